"""Tokenizers as files: those of a build, and from one format to another."""
