"""Character-level byte-pair encoding: `CharBPETokenizer`.

==============  ===========================================================================
settings.py     behaviour apart from the vocabulary; conversion of text to words
training.py     words → alphabet and merges, by the native learner
encoder.py      merges as rules over bytes, for the native encoder
vocabulary.py   tokens and merges, and their encoders
tokenizer.py    the class
files.py        its files
==============  ===========================================================================
"""

from __future__ import annotations

from bpe_core.char_bpe.tokenizer import CharBPETokenizer

__all__ = ["CharBPETokenizer"]
