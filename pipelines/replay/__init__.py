"""Replaying rejected documents: encoded after all, as a generation of their own."""
