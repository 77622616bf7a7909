"""Character-level byte-pair encoding: `CharBPETokenizer`.

==============  ===========================================================================
settings.py     what a tokenizer does apart from its vocabulary; how text becomes words
training.py     words → alphabet and merges, by the native learner
encoder.py      merges as rules over bytes, for the native encoder
vocabulary.py   tokens and merges, and what encodes with them
tokenizer.py    the class
files.py        its files
==============  ===========================================================================
"""

from __future__ import annotations

from bpe_core.char_bpe.tokenizer import CharBPETokenizer

__all__ = ["CharBPETokenizer"]
