"""Encoding of texts of any length, such as pipes, on all cores and in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpe_core import BPETokenizer, _native
from bpe_core.errors import InvalidUtf8Error, UnknownTokenError
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import resolve_pattern
from bpe_core.special_tokens import added_token_set
from pipelines.tokenizers.files import Tokenizer, cutting_rules, model_of

Block: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]

# Text that is encoded at a time, and its pieces, which the cores share.
_BLOCK_BYTES: Final = 4 << 20
_PIECE_BYTES: Final = 1 << 16
_LONGEST_CHARACTER: Final = 4
_NOT_IDS: Final = re.compile(rb"[^0-9\s,\[\]]")


class StreamEncoder:
    """Encoder of texts that come in blocks.

    A text is cut where the ids are those of the whole text. For tokenizers without such places
    (the pattern `none`, patterns that are not compiled) each text is read completely.

    Args:
        tokenizer: The tokenizer.
        ordinary: True to encode special tokens in the text as ordinary text.
    """

    def __init__(self, tokenizer: Tokenizer, *, ordinary: bool = False) -> None:
        self._tokenizer = tokenizer
        self._options: dict[str, Any] = {
            "allowed_special": "none" if ordinary else "all",
            "num_threads": 0,
        }
        rules = cutting_rules(model_of(tokenizer))
        resolved, splitter = resolve_pattern(rules["pattern"]), rules.get("splitter")
        self._cuts = resolved.has_safe_cuts if splitter is None else splitter.has_cuts
        self._scanner = splitter or resolved.scanner or "none"
        self._after_special: bool = rules["after_special"]
        self._normalizer = native_normalizer(rules["normalizer"], rules["normalize_quotes"])
        specials = () if ordinary else rules["special_tokens"]
        self._specials = added_token_set(
            {text: i for i, text in enumerate(specials)},
            rules.get("token_flags", {}),
            self._normalizer,
        )
        self._after_special = rules.get("after_special", True)
        self._lookahead = _native.cut_lookahead(self._specials)

    def encode(self, blocks: Iterable[Block]) -> Iterator[NDArray[np.uint32]]:
        """Yield the ids of a text in UTF-8, in arrays of any length.

        Raises:
            InvalidUtf8Error: The text is not UTF-8.
            UnknownTokenError: A byte has no id.
        """
        text = bytearray()
        done = 0
        wanted = _BLOCK_BYTES
        for block in blocks:
            text += memoryview(block)  # type: ignore[arg-type]  # an array is a buffer too
            while self._cuts and len(text) >= wanted + self._lookahead:
                bounds = self._cut(text)
                if len(bounds) == 1:
                    # Twice the text, so that looking again takes linear time in all.
                    wanted = 2 * len(text)
                    break
                self._check_utf8(text, bounds[-1], done)
                yield from self._encode(text, bounds, continues=done > 0)
                done += bounds[-1]
                del text[: bounds[-1]]
                wanted = _BLOCK_BYTES
        self._check_utf8(text, len(text), done)
        bounds = [*self._cut(text), len(text)] if self._cuts else [0, len(text)]
        yield from self._encode(text, bounds, continues=done > 0)

    def count(self, blocks: Iterable[Block]) -> tuple[int, int]:
        """Return the number of ids of a text and of its bytes; see `encode`."""
        size = 0

        def measure() -> Iterator[Block]:
            nonlocal size
            for block in blocks:
                size += len(block)
                yield block

        return sum(map(len, self.encode(measure()))), size

    def _cut(self, text: bytearray) -> list[int]:
        """Return 0 and the offsets at which the text is cut, ascending."""
        bounds = [0]
        with memoryview(text) as view:
            while True:
                rest = view[bounds[-1] :]
                cut = self._find_cut(rest)
                if not cut:
                    return bounds
                bounds.append(bounds[-1] + cut)

    def _find_cut(self, rest: memoryview) -> int | None:
        limit = _PIECE_BYTES
        while limit + self._lookahead < len(rest):
            cut = _native.safe_cut(
                rest[: limit + self._lookahead],
                False,
                limit,
                self._specials,
                self._normalizer,
                self._scanner,
                self._after_special,
            )
            if cut:
                return cut
            limit *= 2
        return None

    def _check_utf8(self, text: bytearray, end: int, done: int) -> None:
        with memoryview(text) as view:
            valid = _native.utf8_valid_prefix(view[:end])
        if valid < end:
            found = bytes(text[valid : valid + _LONGEST_CHARACTER]).hex(" ")
            raise InvalidUtf8Error(
                f"byte {done + valid:,} of the text: expected UTF-8, found the bytes {found}"
            )

    def _encode(
        self, text: bytearray, bounds: list[int], *, continues: bool
    ) -> Iterator[NDArray[np.uint32]]:
        data = np.frombuffer(bytes(memoryview(text)[: bounds[-1]]), np.uint8)
        starts = np.array(bounds[:-1], np.int64)
        ends = np.array(bounds[1:], np.int64)
        if not isinstance(self._tokenizer, BPETokenizer):
            yield self._tokenizer.encode_documents(data, starts, ends, **self._options)[0]
            return
        first = 0 if continues else 1
        for part, later in ((slice(0, first), False), (slice(first, None), True)):
            if len(starts[part]):
                yield self._tokenizer.encode_documents(
                    data, starts[part], ends[part], continues=later, **self._options
                )[0].astype(np.uint32, copy=False)


def decode_stream(tokenizer: Tokenizer, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of ids, which are numbers between white space, commas or brackets.

    Raises:
        UnknownTokenError: The text contains something else, or the vocabulary lacks an id.
    """
    batches = _parse_ids(blocks)
    if not isinstance(tokenizer, BPETokenizer):
        ids = [token_id for batch in batches for token_id in batch]
        yield tokenizer.decode(ids).encode()
        return
    is_first = True
    for batch in batches:
        # A space that encoding puts before the text belongs to its first token alone.
        tokens = b"".join(tokenizer.decode_tokens_bytes(batch))
        yield tokenizer.decode_bytes(batch) if is_first else tokens
        is_first = is_first and not tokens


def token_bytes(tokenizer: Tokenizer, token_id: int) -> bytes:
    """Return the bytes of a token."""
    if isinstance(tokenizer, BPETokenizer):
        return tokenizer.id_to_bytes(token_id)
    return (tokenizer.id_to_token(token_id) or "").encode()


def _parse_ids(blocks: Iterable[bytes]) -> Iterator[list[int]]:
    rest = b""
    for block in blocks:
        head, separator, rest = _split_last(rest + block)
        if separator:
            yield _parse(head)
    yield _parse(rest)


def _split_last(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a text behind its last separator of ids."""
    end = max(text.rfind(one) for one in (b" ", b"\n", b"\t", b",", b"]"))
    return text[: end + 1], text[end : end + 1] if end >= 0 else b"", text[end + 1 :]


def _parse(text: bytes) -> list[int]:
    if wrong := _NOT_IDS.search(text):
        found = text[wrong.start() : wrong.start() + 20].decode("utf-8", "backslashreplace")
        raise UnknownTokenError(
            f"expected ids, numbers between spaces, commas or brackets; found {found!r}"
        )
    return [int(word) for word in re.split(rb"[\s,\[\]]+", text) if word]
