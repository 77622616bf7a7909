"""Beam pipelines that train a byte-pair-encoding tokenizer on a corpus and encode the corpus.

Importing this package imports neither Beam nor pyarrow; the modules do that when they need to.
"""

from __future__ import annotations
