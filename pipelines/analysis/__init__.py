"""Answers from counts and tokenizers, without the corpus."""
