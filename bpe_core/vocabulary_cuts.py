"""Splitting text where a vocabulary's merges cannot join it, for models without a split pattern."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core._native import ByteSplitter, VocabularySplitter
from bpe_core.buffers import flatten
from bpe_core.character_encoding import character_splitter
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern

__all__ = ["shows_segments", "vocabulary_splitter"]


def vocabulary_splitter(model: TokenizerModel) -> VocabularySplitter | ByteSplitter | None:
    """Return what splits text for a model that merges characters, or has the pattern none.

    Two characters, or bytes, that stand side by side inside no token stay apart whatever surrounds
    them: a merge of one with the other would make such a token. So the parts have the ids of the
    whole. None for other patterns, and for `ignore_merges`, where a text can be a token that merges
    do not make.
    """
    if model.characters is not None:
        return character_splitter(model, model.characters)
    if model.ignore_merges or resolve_pattern(model.pattern).native != "none":
        return None
    made = model.bytes_of(pc.unique(pa.array(model.merges[:, 2])).to_numpy())
    data, offsets = flatten(made)
    values = np.frombuffer(data, np.uint8).astype(np.int64)
    inside = np.ones(len(values), np.bool_)
    inside[offsets[1:] - 1] = False  # the last byte of a token has none after it
    firsts = np.flatnonzero(inside)
    joined = np.zeros(256 * 256, np.bool_)
    joined[values[firsts] << 8 | values[firsts + 1]] = True
    return ByteSplitter(np.packbits(joined, bitorder="little").view(np.uint64))


def shows_segments(model: TokenizerModel) -> bool:
    """Return true if a part of a text shows where the text between special tokens begins.

    With `prefix_space` that text gets a space in front. A cut is then not allowed after a special
    token, but a cut does not know those that are found in normalized text.
    """
    flags = model.token_flags.values()
    return not (model.prefix_space and any("normalized" in names for names in flags))
