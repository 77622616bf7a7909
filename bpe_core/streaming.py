"""Encoding a text that comes in parts, a few kB at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from bpe_core._native import (
    Encoder,
    Normalizer,
    SpecialSet,
    Splitter,
    cut_lookahead,
    safe_cut,
)
from bpe_core.buffers import to_utf8
from bpe_core.custom_encoding import CustomEncoder

__all__ = ["TextStream"]

_STREAM_BYTES = 1 << 12  # of the text (of str: characters) that are encoded at a time


class TextStream:
    """Encoder of a text that comes in parts.

    Args:
        encoder: native encoder.
        specials: special tokens that become their ids.
        normalizer: native normalizer, or None.
        cut_by: rules for safe cuts of the encoder's splitter; None if text may be cut only before
            special tokens.
        after_special: text may be cut between a special token and what follows it.
        custom: encoder by a pattern that is not compiled; None if the encoder splits text itself.
    """

    def __init__(
        self,
        encoder: Encoder,
        specials: SpecialSet,
        normalizer: Normalizer | None,
        cut_by: str | Splitter | None,
        *,
        after_special: bool,
        custom: CustomEncoder | None,
    ) -> None:
        self._encoder = encoder
        self._specials = specials
        self._normalizer = normalizer
        self._cut_by = cut_by
        self._after_special = after_special
        self._custom = custom

    def encode(self, parts: Iterable[str | bytes]) -> Iterator[int]:
        """Yield the ids of the parts joined.

        Raises:
            TypeError: a part is neither str nor bytes; raised when it is reached.
        """
        return chain.from_iterable(self._encode_steps(parts))

    def _encode_steps(self, parts: Iterable[str | bytes]) -> Iterator[array[int]]:
        lookahead = cut_lookahead(self._specials)
        text = bytearray()
        continues = False
        wanted = _STREAM_BYTES
        self._encoder.begin_stream()
        try:
            for part in _utf8_parts(parts):
                text += part
                while len(text) >= wanted + lookahead:
                    cut = self._find_cut(text, wanted)
                    if cut is None:
                        # Twice the text, so that looking again takes linear time in all.
                        wanted = 2 * len(text)
                        break
                    yield self._encode_step(bytes(memoryview(text)[:cut]), continues)
                    del text[:cut]
                    continues = True
                    wanted = _STREAM_BYTES
            yield self._encode_step(bytes(text), continues)
        finally:
            self._encoder.end_stream()

    def _encode_step(self, text: bytes, continues: bool) -> array[int]:
        # An array makes Python's int of each id only when it is asked for.
        if self._custom is None:
            return array("I", self._encoder.encode_step(text, self._specials, continues))
        bounds = np.array([0, len(text)])
        ids, _ = self._custom.encode(text, bounds[:1], bounds[1:], self._specials)
        return array("I", ids.tobytes())

    def _find_cut(self, text: bytearray, limit: int) -> int | None:
        """Return the last offset up to `limit`, else the first one, where a cut changes no ids.

        At least `cut_lookahead` bytes must follow the limit.
        """
        if self._cut_by is not None:
            return safe_cut(
                text,
                False,
                limit,
                self._specials,
                self._normalizer,
                self._cut_by,
                self._after_special,
            )
        begins = (
            begin
            for begin, _, _ in self._specials.find_all(text)
            if 0 < begin <= limit and not self._specials.binds(text[begin - 1], text[begin])
        )
        return max(begins, default=None)


def _utf8_parts(parts: Iterable[str | bytes]) -> Iterator[bytes]:
    """Yield the parts in UTF-8, of about equal size, without a cut in a surrogate pair."""
    gathered: list[str] = []
    length = 0
    for number, part in enumerate(parts):
        if isinstance(part, str) and length + len(part) < _STREAM_BYTES:
            gathered.append(part)
            length += len(part)
        elif isinstance(part, str):
            for i in range(0, len(part), _STREAM_BYTES):
                text = "".join([*gathered, part[i : i + _STREAM_BYTES]])
                half = text[-1] if "\ud800" <= text[-1] < "\udc00" else ""
                yield to_utf8(text[: len(text) - len(half)])
                gathered, length = [half], len(half)
        elif isinstance(part, bytes):
            yield to_utf8("".join(gathered))
            yield from (part[i : i + _STREAM_BYTES] for i in range(0, len(part), _STREAM_BYTES))
            gathered, length = [], 0
        else:
            raise TypeError(
                f"part {number} of the text: expected str or bytes, found {type(part).__name__}"
            )
    yield to_utf8("".join(gathered))
