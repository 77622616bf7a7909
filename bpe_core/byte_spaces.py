"""Spaces that a byte-level tokenizer adds to text or leaves out, and where its tokens are then."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bpe_core.model import TokenizerModel
from bpe_core.split_patterns.sets import Named, resolve

__all__ = ["find_places", "prefixed", "without_white_space"]


def prefixed(segment: str, model: TokenizerModel) -> str:
    """Return the text between two special tokens with the space that `prefix_space` puts there.

    Example:
        >>> prefixed("a b", TokenizerModel.from_tokens([(0, b"a")], prefix_space=True))
        ' a b'
    """
    return f" {segment}" if _takes_space(segment, model) else segment


def without_white_space(text: str) -> str:
    """Return the text that has ids with `drop_white_space`.

    Example:
        >>> without_white_space(" a b")
        'ab'
    """
    return "".join(word for _, word in _words_of(text))


def find_places(segments: Iterable[tuple[str, int]], model: TokenizerModel) -> NDArray[np.int64]:
    """Return int64[n + 1]: byte i of the n bytes that tokens have stands for the text from there.

    A space that was put before text has the place of what follows.

    Args:
        segments: the text between special tokens, and the bytes of the one that follows.
        model: the tokenizer.

    Example:
        >>> model = TokenizerModel.from_tokens([(0, b"a")], prefix_space=True)
        >>> find_places([("ab", 3), (" c", 0)], model).tolist()
        [0, 0, 1, 2, 3, 4, 5, 6, 7]
    """
    places: list[NDArray[np.int64]] = []
    done = 0
    for segment, special_bytes in segments:
        if _takes_space(segment, model):
            places.append(np.array([done]))
        end = done + len(segment.encode())
        if model.drop_white_space:
            for at, text in _words_of(segment):
                begin = done + len(segment[:at].encode())
                places.append(np.arange(begin, begin + len(text.encode())))
        else:
            places.append(np.arange(done, end))
        places.append(np.arange(end, end + special_bytes))
        done = end + special_bytes
    return np.concatenate([*places, np.array([done])])


def _takes_space(segment: str, model: TokenizerModel) -> bool:
    return model.prefix_space and segment != "" and not segment.startswith(" ")


def _words_of(segment: str) -> list[tuple[int, str]]:
    return [(found.start(), found[0]) for found in _WORD.finditer(segment)]


def _not_white_space() -> re.Pattern[str]:
    bounds = resolve(Named("space"))
    spans = zip(bounds[::2], bounds[1::2], strict=True)
    return re.compile(f"[^{''.join(f'{chr(a)}-{chr(b - 1)}' for a, b in spans)}]+")


_WORD = _not_white_space()
