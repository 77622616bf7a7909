"""Replay of rejected documents: they are encoded after all, as a generation of their own."""
