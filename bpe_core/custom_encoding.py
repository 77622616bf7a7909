"""Encoding by patterns that are not compiled, and texts cut at their special tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import Encoder, Normalizer, SpecialSet
from bpe_core.byte_spaces import prefixed
from bpe_core.characters import SPACE_SIGN
from bpe_core.documents import check_spans
from bpe_core.errors import InvalidUtf8Error
from bpe_core.model import TokenizerModel
from bpe_core.patterns import split_custom

__all__ = ["CustomEncoder", "find_encoded_segments", "find_segments"]


@dataclass(frozen=True)
class CustomEncoder:
    """Encoder with pre-tokens from the library `regex`.

    Attributes:
        encoder: Native encoder, which merges.
        expression: The split pattern.
        normalizer: Normalizer of the text between special tokens, or None.
    """

    encoder: Encoder
    expression: str
    normalizer: Normalizer | None

    def encode(
        self,
        data: bytes | memoryview | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        specials: SpecialSet,
        prepend: Sequence[int] = (),
        append: Sequence[int] = (),
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the ids of documents data[starts[i]:ends[i]], and int64[n + 1] offsets in them.

        Raises:
            InvalidUtf8Error: A document is not UTF-8.
            SlowPatternError: The pattern takes too long for a document, which the error numbers.
            ValueError: A document lies outside of the data.
        """
        check_spans(len(data), starts, ends)
        texts: list[bytes] = []
        bounds: list[NDArray[np.int64]] = []
        special_ids: list[NDArray[np.int64]] = []
        spans_after: list[int] = []
        at = spans = 0

        def add(cuts: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
            nonlocal spans
            bounds.append(cuts)
            special_ids.append(ids)
            spans += len(ids)

        def add_ids(ids: Sequence[int]) -> None:
            add(np.full(len(ids), at, np.int64), np.array(ids, np.int64))

        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            text = bytes(data[start:end])
            add_ids(prepend)
            for part, special_id in find_segments(text, specials, self.normalizer):
                cuts = split_custom(self.expression, part, index)
                add(cuts[:-1] + at, np.full(len(cuts) - 1, -1, np.int64))
                texts.append(part.encode())
                at += len(texts[-1])
                if special_id is not None:
                    add_ids([special_id])
            add_ids(append)
            spans_after.append(spans)
        begins = np.concatenate([*bounds, np.array([at], np.int64)])
        all_ids = np.concatenate([*special_ids, np.zeros(0, np.int64)])
        ids, offsets = self.encoder.encode_spans(b"".join(texts), begins[:-1], begins[1:], all_ids)
        return ids, offsets[np.array([0, *spans_after], np.int64)]


def find_segments(
    text: bytes, specials: SpecialSet, normalizer: Normalizer | None
) -> Iterator[tuple[str, int | None]]:
    """Yield the normalized text before each special token and the token's id, None at the end.

    Raises:
        InvalidUtf8Error: The text is not UTF-8.
    """
    matches = specials.find_all(text)
    ids = specials.ids if matches else []
    done = 0
    for begin, end, index in [*matches, (len(text), len(text), -1)]:
        part = _decode(text, done, begin)
        if normalizer is not None:
            part = normalizer.normalize(part.encode()).decode()
        if found := specials.find_normalized(part.encode()):
            data = part.encode()
            inner = 0
            for start, stop, at in found:
                yield data[inner:start].decode(), specials.normalized_ids[at]
                inner = stop
            part = data[inner:].decode()
        yield part, ids[index] if index >= 0 else None
        done = end


def find_encoded_segments(
    text: bytes, model: TokenizerModel, specials: SpecialSet
) -> Iterator[tuple[str, int | None]]:
    """Yield what `find_segments` does, with the spaces that the model's rules put before text.

    Raises:
        InvalidUtf8Error: The text is not UTF-8.
    """
    rules = model.characters
    at_start = True
    for part, special_id in find_segments(text, specials, model.native_normalizer):
        if rules is None:
            part = prefixed(part, model)
        else:
            if text and rules.puts_space_before(part.encode(), at_start=at_start):
                part = " " + part
            part = part.replace(SPACE_SIGN, " ")
        at_start = False
        yield part, special_id


def _decode(text: bytes, begin: int, end: int) -> str:
    try:
        return text[begin:end].decode()
    except UnicodeDecodeError as error:
        at = begin + error.start
        raise InvalidUtf8Error(
            f"byte {at} of the text: expected UTF-8, found 0x{text[at : at + 4].hex().upper()}; "
            "repair the text: a regular expression needs characters"
        ) from None
