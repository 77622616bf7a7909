"""Verification of an output: files, manifests, and documents compared with their sources."""
