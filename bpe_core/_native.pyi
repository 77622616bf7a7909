"""The native core; see the modules of bpe_core that use it."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Bytes: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
_Int32: TypeAlias = NDArray[np.int32]
_Int64: TypeAlias = NDArray[np.int64]
_Separators: TypeAlias = bytes | Sequence[bytes]
_Columns: TypeAlias = tuple[NDArray[np.uint8], _Int64, _Int64]
# keys, offsets, counts, documents; of groups: offsets, groups, counts, documents
_CountRows: TypeAlias = tuple[
    NDArray[np.uint8], _Int64, _Int64, _Int64, _Int64, _Int32, _Int64, _Int64
]

def split_pretokens(
    pattern: str | Splitter, data: _Bytes, capacity: int = 256, portable: bool = False
) -> _Int64: ...
def join_texts(texts: list[Any]) -> tuple[NDArray[np.uint8], _Int64] | None: ...
def utf8_valid_prefix(data: _Bytes) -> int: ...
def xxh3_128(data: _Bytes) -> tuple[int, int]: ...
def separator_problem(separator: _Separators) -> str | None: ...
def find_separators(
    data: _Bytes, separator: _Separators, from_: int, limit: int, at_end: bool = True
) -> tuple[_Int64, _Int64]: ...
def split_documents(
    data: _Bytes,
    separator: _Separators,
    start: int,
    from_: int,
    begin_before: int,
    max_bytes: int,
    max_documents: int,
    at_end: bool = True,
) -> tuple[_Int64, _Int64, int, int, int, bool]: ...
def scan_documents(
    data: _Bytes, starts: _Int64, ends: _Int64
) -> tuple[_Int64, NDArray[np.uint64]]: ...
def add_id_counts(ids: NDArray[np.uint16] | NDArray[np.uint32], counts: _Int64) -> None: ...
def add_document_frequency(
    ids: NDArray[np.uint16] | NDArray[np.uint32],
    offsets: _Int64,
    document: _Int64,
    first_row: int,
    documents: _Int64,
    first: _Int64,
    last: _Int64,
) -> None: ...
def add_document_sums(
    tokens: _Int64, bytes: _Int64, lengths: _Int64, ratios: _Int64, steps: int
) -> None: ...
def count_characters(data: _Bytes, starts: _Int64, ends: _Int64) -> _Int64: ...
def last_joins(data: _Bytes, offsets: _Int64) -> tuple[_Int64, _Int64]: ...
def unescape_json(data: NDArray[np.uint8], starts: _Int64, ends: _Int64) -> _Int64: ...
def cut_lookahead(specials: SpecialSet) -> int: ...
def safe_cut(
    text: _Bytes,
    at_end: bool,
    limit: int,
    specials: SpecialSet,
    normalizer: Normalizer | None = None,
    pattern: str | Splitter = "gpt2",
    after_special: bool = True,
) -> int | None: ...
def best_fit_rows(lengths: _Int64, capacity: int) -> tuple[_Int64, int]: ...
def copy_pieces(
    source: NDArray[Any], starts: _Int64, lengths: _Int64, target: NDArray[Any], places: _Int64
) -> None: ...

class Splitter:
    @property
    def has_cuts(self) -> bool: ...

class PatternStep:
    def __init__(
        self,
        code: NDArray[np.int32],
        scouts: Sequence[tuple[bool, NDArray[np.int32]]],
        sets: NDArray[np.uint8],
        starts: Sequence[int],
        classes: Sequence[int],
        of_bytes: bool,
    ) -> None: ...
    @property
    def states(self) -> int: ...
    @property
    def table(self) -> NDArray[np.uint32]: ...
    @property
    def starts(self) -> list[int]: ...
    @property
    def scouts(self) -> list[tuple[bool, NDArray[np.uint32], list[int]]]: ...
    @property
    def matches_everything(self) -> bool: ...

class PatternSplitter(Splitter):
    def __init__(self, steps: Sequence[PatternStep]) -> None: ...
    def may_cut(self, previous: int, next: int) -> bool: ...

class VocabularySplitter(Splitter):
    def __init__(
        self,
        characters: NDArray[np.uint32],
        tokens: _Bytes,
        offsets: _Int64,
        split_before_space: bool,
        unknown: str,
    ) -> None: ...

class ByteSplitter(Splitter):
    def __init__(self, joined: NDArray[np.uint64]) -> None: ...

class Normalizer:
    def __init__(self, form: str | None = None, quotes: bool = False) -> None: ...
    @staticmethod
    def of_table(table: bytes, remove_spaces: bool) -> Normalizer: ...
    def normalize(self, text: bytes) -> bytes: ...

class JsonFields:
    def __init__(self, paths: Sequence[Sequence[bytes]], portable: bool = False) -> None: ...
    def find(
        self, data: _Bytes, starts: _Int64, ends: _Int64
    ) -> tuple[_Int64, _Int64, NDArray[np.uint8]]: ...

class SpecialSet:
    def __init__(
        self,
        tokens: Sequence[bytes],
        ids: Iterable[int],
        flags: Sequence[int] = (),
        normalized: Sequence[tuple[bytes, int, int]] = (),
        bound: Sequence[bytes] = (),
        word_characters: Sequence[tuple[int, int]] = (),
    ) -> None: ...
    @property
    def ids(self) -> list[int]: ...
    @property
    def normalized_ids(self) -> list[int]: ...
    def binds(self, before: int, after: int) -> bool: ...
    def find_all(self, data: _Bytes) -> list[tuple[int, int, int]]: ...
    def find_normalized(self, data: _Bytes) -> list[tuple[int, int, int]]: ...
    def find_first(self, data: _Bytes, starts: _Int64, ends: _Int64) -> _Int64: ...

class SuperwordRuns:
    def __init__(
        self,
        words: str | Splitter,
        chunks: str | Splitter,
        tokens: _Bytes,
        offsets: _Int64,
        most_words: int,
    ) -> None: ...

class PretokenTable:
    def __init__(
        self,
        pattern: str | Splitter | None,
        special_tokens: Sequence[bytes],
        max_pretoken_bytes: int = 0,
        portable: bool = ...,
        normalizer: Normalizer | None = None,
        runs: SuperwordRuns | None = None,
        counts_documents: bool = False,
    ) -> None: ...
    def add_documents(
        self,
        data: _Bytes,
        starts: _Int64,
        ends: _Int64,
        first: int = 0,
        memory_limit: int = 0,
        groups: _Int32 | None = None,
        continues: bool = False,
    ) -> tuple[int, list[tuple[int, int, int]]]: ...
    def start_document(self, group: int = 0) -> None: ...
    def add_spans(self, data: _Bytes, starts: _Int64, ends: _Int64, group: int = 0) -> None: ...
    def add_counts(self, keys: _Bytes, offsets: _Int64, counts: _Int64) -> None: ...
    def add_table(self, other: PretokenTable, group: int = 0) -> None: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def total(self) -> int: ...
    def pack_sections(self, shards: int, names: Sequence[bytes] | None = None) -> list[bytes]: ...
    def columns(self) -> _Columns: ...

class OrderedPretokens:
    def __init__(
        self,
        pattern: str | Splitter | None,
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
    def __init__(
        self,
        sources: int,
        refill: Callable[[int], bytes],
        groups: bool = False,
        documents: bool = False,
        same_document: bool = False,
    ) -> None: ...
    def read(self, max_rows: int, max_bytes: int, max_entries: int = ...) -> _CountRows: ...
    def read_packed(self, max_rows: int, max_bytes: int, max_entries: int = ...) -> bytes: ...
    def header(self) -> bytes: ...
    def names(self) -> list[bytes]: ...
    def totals(self) -> list[tuple[int, int, int]]: ...

def scale_counts(counts: _Int64, numerator: int, denominator: int) -> _Int64: ...

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
        max_initial_symbols: int = 0,
    ) -> MergeLearner: ...
    @staticmethod
    def with_parity(
        keys: _Bytes,
        offsets: _Int64,
        begins: _Int64,
        groups: NDArray[np.int32],
        counts: _Int64,
        num_groups: int,
        tie_break: str,
        min_frequency: int = 1,
        max_token_bytes: int = 0,
        forbidden_tokens: Sequence[bytes] = (),
        forbid_whitespace_tokens: bool = False,
        ratios: Sequence[float] = (),
        global_merges: int = 0,
        window_size: int = 0,
        alpha: float = 2.0,
    ) -> MergeLearner: ...
    def learn(self, symbols: int, max_steps: int) -> bool: ...
    def merges(
        self,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], _Int64]: ...
    def applied_counts(self) -> _Int64: ...
    def symbol(self, symbol: int) -> bytes: ...
    def symbols(self) -> tuple[NDArray[np.uint8], NDArray[np.int32]]: ...
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
        pattern: str | Splitter | None = "gpt2",
        cache_entries: int = ...,
        portable: bool = ...,
        normalizer: Normalizer | None = None,
        join_unknown: bool = False,
    ) -> None: ...
    def set_space_prefix(self, place: str, before_space: bool) -> None: ...
    def drop_white_space(self) -> None: ...
    def set_whole_tokens(self, keys: _Bytes, offsets: _Int64, ids: NDArray[np.uint32]) -> bool: ...
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
        continues: bool = False,
    ) -> tuple[NDArray[np.uint32] | NDArray[np.uint16], _Int64]: ...
    def encode_lists(
        self,
        data: _Bytes,
        starts: _Int64,
        ends: _Int64,
        specials: SpecialSet,
        num_threads: int = 1,
    ) -> list[list[int]]: ...
    def encode_text_lists(
        self, texts: Sequence[object], specials: SpecialSet, num_threads: int = 1
    ) -> list[list[int]] | None: ...
    def encode_texts(
        self, texts: Sequence[object], specials: SpecialSet, num_threads: int = 1
    ) -> tuple[NDArray[np.uint32], _Int64] | None: ...
    def encode_text(self, text: str | bytes, specials: SpecialSet) -> list[int]: ...
    def encode_step(
        self, text: str | bytes, specials: SpecialSet, continues: bool = False
    ) -> bytes: ...
    def begin_stream(self) -> None: ...
    def end_stream(self) -> None: ...
    def encode_spans(
        self, data: _Bytes, starts: _Int64, ends: _Int64, special_ids: _Int64
    ) -> tuple[NDArray[np.uint32], _Int64]: ...
    def count_token_use(
        self,
        keys: _Bytes,
        offsets: _Int64,
        rows: _Int64,
        groups: NDArray[np.int32],
        counts: _Int64,
        first_group: int,
        num_groups: int,
        num_tokens: int,
        num_threads: int = 1,
    ) -> tuple[_Int64, _Int64]: ...

def undo_merges(
    left: NDArray[np.uint32],
    right: NDArray[np.uint32],
    result: NDArray[np.uint32],
    occurrences: _Int64,
    alone: _Int64,
    sums: _Int64,
) -> None: ...
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

class MergeTexts:
    def __len__(self) -> int: ...
    def rows(
        self, keys: _Bytes, offsets: _Int64, ids: _Int64, stand_ins: bool
    ) -> NDArray[np.int64] | None: ...

def find_merges(json: _Bytes) -> tuple[int, int, MergeTexts] | None: ...
def find_outline(json: _Bytes) -> tuple[tuple[int, int], tuple[int, int], int] | None: ...
def entries_in_stand_ins(
    entries: dict[str, Any], left_out: Collection[str], max_id: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int32]] | None: ...
def has_equal_keys(keys: _Bytes, offsets: _Int64) -> bool: ...
def find_wrong_merge(
    keys: _Bytes, offsets: _Int64, left: _Int64, right: _Int64, result: _Int64
) -> int: ...
def stand_ins_of(keys: _Bytes, offsets: _Int64) -> tuple[bytes, NDArray[np.int64]]: ...
def vocabulary_json(keys: _Bytes, offsets: _Int64, ids: _Int64, rows: _Int64) -> bytes: ...
def merges_json(keys: _Bytes, offsets: _Int64, left: _Int64, right: _Int64) -> bytes: ...
def merge_lines(keys: _Bytes, offsets: _Int64, left: _Int64, right: _Int64) -> bytes: ...
def rank_lines(keys: _Bytes, offsets: _Int64, ids: _Int64) -> bytes: ...
