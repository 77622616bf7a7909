"""The native core; see the modules of bpe_core that use it."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Bytes: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
_Int64: TypeAlias = NDArray[np.int64]
_Columns: TypeAlias = tuple[NDArray[np.uint8], _Int64, _Int64]

def split_pretokens(
    pattern: str, data: _Bytes, capacity: int = 256, portable: bool = False
) -> _Int64: ...
def utf8_valid_prefix(data: _Bytes) -> int: ...
def xxh3_128(data: _Bytes) -> tuple[int, int]: ...
def separator_problem(separator: bytes) -> str | None: ...
def find_separators(data: _Bytes, separator: bytes, from_: int, limit: int) -> _Int64: ...
def split_documents(
    data: _Bytes,
    separator: bytes,
    start: int,
    from_: int,
    begin_before: int,
    max_bytes: int,
    max_documents: int,
) -> tuple[_Int64, _Int64, int, int, int, bool]: ...
def scan_documents(
    data: _Bytes, starts: _Int64, ends: _Int64
) -> tuple[_Int64, NDArray[np.uint64]]: ...
def last_joins(data: _Bytes, offsets: _Int64) -> tuple[_Int64, _Int64]: ...
def cut_lookahead(specials: SpecialSet) -> int: ...
def safe_cut(
    text: _Bytes,
    at_end: bool,
    limit: int,
    specials: SpecialSet,
    normalizer: Normalizer | None = None,
) -> int | None: ...

class Normalizer:
    def __init__(self, form: str | None = None, quotes: bool = False) -> None: ...
    def normalize(self, text: bytes) -> bytes: ...

class NormalizerStream:
    def __init__(self, normalizer: Normalizer) -> None: ...
    def add(self, piece: bytes) -> bytes: ...
    def finish(self) -> bytes: ...

class SpecialSet:
    def __init__(self, tokens: Sequence[bytes], ids: Iterable[int]) -> None: ...
    @property
    def ids(self) -> list[int]: ...
    def find_all(self, data: _Bytes) -> list[tuple[int, int, int]]: ...
    def find_first(self, data: _Bytes, starts: _Int64, ends: _Int64) -> _Int64: ...

class PretokenTable:
    def __init__(
        self,
        pattern: str | None,
        special_tokens: Sequence[bytes],
        max_pretoken_bytes: int = 0,
        portable: bool = ...,
        normalizer: Normalizer | None = None,
    ) -> None: ...
    def add_documents(
        self, data: _Bytes, starts: _Int64, ends: _Int64, first: int = 0, memory_limit: int = 0
    ) -> tuple[int, list[tuple[int, int, int]]]: ...
    def add_spans(self, data: _Bytes, starts: _Int64, ends: _Int64) -> None: ...
    def add_counts(self, keys: _Bytes, offsets: _Int64, counts: _Int64) -> None: ...
    def add_table(self, other: PretokenTable) -> None: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def total(self) -> int: ...
    def pack_sections(self, shards: int) -> list[bytes]: ...
    def columns(self) -> _Columns: ...

class OrderedPretokens:
    def __init__(
        self,
        pattern: str | None,
        special_tokens: Sequence[bytes] = (),
        normalizer: Normalizer | None = None,
    ) -> None: ...
    def add_documents(self, data: _Bytes, starts: _Int64, ends: _Int64) -> None: ...
    def add_spans(self, data: _Bytes, starts: _Int64, ends: _Int64) -> None: ...
    def __len__(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def columns(self) -> _Columns: ...

class CountMerger:
    def __init__(self, sources: int, refill: Callable[[int], bytes]) -> None: ...
    def read(self, max_rows: int, max_bytes: int) -> _Columns: ...

class MergeLearner:
    def __init__(
        self,
        keys: _Bytes,
        offsets: _Int64,
        counts: _Int64,
        tie_break: str,
        min_frequency: int = 1,
        max_token_bytes: int = 0,
        forbidden_tokens: Sequence[bytes] = (),
        always_new: bool = False,
        forbid_whitespace_tokens: bool = False,
    ) -> None: ...
    @staticmethod
    def from_symbols(
        symbols: Sequence[bytes],
        words: NDArray[np.uint32],
        offsets: _Int64,
        counts: _Int64,
        tie_break: str,
        min_frequency: int = 1,
        max_token_bytes: int = 0,
        forbidden_tokens: Sequence[bytes] = (),
        always_new: bool = False,
        forbid_whitespace_tokens: bool = False,
    ) -> MergeLearner: ...
    def learn(self, symbols: int, max_steps: int) -> bool: ...
    def merges(
        self,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], _Int64]: ...
    def symbol(self, symbol: int) -> bytes: ...
    @property
    def num_symbols(self) -> int: ...
    @property
    def symbol_bytes(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def stop_reason(self) -> str: ...

class Encoder:
    def __init__(
        self,
        byte_ids: _Int64,
        left: NDArray[np.uint32],
        right: NDArray[np.uint32],
        result: NDArray[np.uint32],
        unknown_id: int = -1,
        pattern: str | None = "gpt2",
        cache_entries: int = ...,
        portable: bool = ...,
        normalizer: Normalizer | None = None,
    ) -> None: ...
    def set_whole_tokens(self, keys: _Bytes, offsets: _Int64, ids: NDArray[np.uint32]) -> None: ...
    def encode_documents(
        self,
        data: _Bytes,
        starts: _Int64,
        ends: _Int64,
        specials: SpecialSet,
        prepend: Sequence[int] = (),
        append: Sequence[int] = (),
        bits: int = 32,
        num_threads: int = 1,
    ) -> tuple[NDArray[np.uint32] | NDArray[np.uint16], _Int64]: ...
    def encode_text(
        self, text: str | bytes, specials: SpecialSet, in_stream: bool = False
    ) -> list[int]: ...
    def encode_spans(
        self, data: _Bytes, starts: _Int64, ends: _Int64, special_ids: _Int64
    ) -> tuple[NDArray[np.uint32], _Int64]: ...

def mark_words(
    data: _Bytes, starts: _Int64, ends: _Int64, rule: str, specials: SpecialSet
) -> tuple[NDArray[np.uint8], _Int64]: ...

class LongestMatcher:
    def __init__(self, keys: _Bytes, offsets: _Int64, ids: _Int64, word_end: str) -> None: ...
    def encode(
        self,
        data: _Bytes,
        starts: _Int64,
        ends: _Int64,
        special_ids: Sequence[int],
        longest_first: bool,
    ) -> tuple[_Int64, _Int64]: ...
