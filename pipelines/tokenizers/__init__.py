"""Tokenizer directories, vocabularies, and conversion between file formats."""
