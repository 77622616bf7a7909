"""PretokenCounts: how often each pre-token occurs; counted from files or documents."""

from __future__ import annotations

import codecs
import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bpe_core._native import (
    Normalizer,
    OrderedPretokens,
    PretokenTable,
    SpecialSet,
    cut_lookahead,
    safe_cut,
    utf8_valid_prefix,
)
from bpe_core.buffers import joined
from bpe_core.cores import usable_cores
from bpe_core.errors import FormatError, InvalidUtf8Error, TrainingError
from bpe_core.normalization import checked_normalizer, native_normalizer
from bpe_core.patterns import Pattern, pattern_with_rules, resolve_pattern, split_custom
from bpe_core.special_tokens import check_special_tokens, special_set, split_special_tokens

__all__ = ["Errors", "PretokenCounts", "count_pretokens", "ordered_pretokens"]

Errors: TypeAlias = Literal["strict", "replace", "ignore"]
Source: TypeAlias = "str | os.PathLike[str] | Iterable[str | bytes | os.PathLike[str]]"
_Batch: TypeAlias = (
    "tuple[bytes | bytearray, NDArray[np.int64], NDArray[np.int64]]"  # data, starts, ends
)

_BATCH_BYTES = 4 << 20
_SCHEMA = pa.schema(
    [
        pa.field("pretoken", pa.large_binary(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
FORMAT_VERSION = "1"
_HOW_COUNTED = ("pattern", "special_tokens", "unicode_version", "normalizer", "normalize_quotes")


class PretokenCounts:
    """Distinct pre-tokens with their counts, as Arrow columns.

    Attributes:
        metadata: what was counted and how (pattern, special_tokens as JSON, unicode_version, …).

    Example:
        >>> counts = PretokenCounts.from_mapping({b"low": 5, b" lower": 2})
        >>> len(counts), counts.total()
        (2, 7)
        >>> dict((counts + counts).items())
        {b' lower': 4, b'low': 10}
    """

    def __init__(self, table: pa.Table, metadata: Mapping[str, str] | None = None) -> None:
        self._table = table
        self.metadata = dict(metadata or {})

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[bytes, int], metadata: Mapping[str, str] | None = None
    ) -> PretokenCounts:
        """Counts from a mapping of bytes to counts above 0.

        Raises:
            TrainingError: a pre-token that is not bytes or is empty, or a count that is not a
                positive 64-bit integer.
        """
        if not isinstance(mapping, Mapping):
            raise TrainingError(
                "counts: expected a mapping of pre-tokens to counts, found "
                f"{type(mapping).__name__}"
            )
        for pretoken, count in mapping.items():
            is_integer = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
            if not isinstance(pretoken, bytes) or not is_integer:
                raise TrainingError(
                    "counts: expected pre-tokens as bytes with their counts as int, found "
                    f"{pretoken!r}: {count!r}"
                )
            if not pretoken or not 0 < count < 2**63:
                raise TrainingError(
                    "counts: expected pre-tokens of at least one byte with counts of 1 … 2^63-1, "
                    f"found {pretoken!r}: {count}"
                )
        table = pa.table(
            [
                pa.array(mapping.keys(), pa.large_binary()),
                pa.array(mapping.values(), pa.int64()),
            ],
            schema=_SCHEMA,
        )
        return cls(_sorted(table), metadata)

    @classmethod
    def from_arrow(cls, table: pa.Table) -> PretokenCounts:
        """Counts from a table with the columns pretoken (binary) and count (integers above 0).

        Rows of equal pre-tokens are added up.

        Raises:
            FormatError: a column is missing, has another type, nulls, or counts below 1.
        """
        if not isinstance(table, pa.Table):
            raise FormatError(f"the table: expected a pyarrow.Table, found {type(table).__name__}")
        table, metadata = _checked(table, "the table")
        distinct = PretokenTable(None, [])
        keys, offsets = _bytes_column(table["pretoken"])
        distinct.add_counts(keys, offsets, table["count"].to_numpy())
        return cls(_table_of(distinct), metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PretokenCounts:
        """Counts from a file that `save` wrote, or from a `counts/` directory of a build.

        Raises:
            FormatError: the directory lacks shards, or a file is damaged or holds something else.
            OSError: a file that cannot be read.
        """
        path = Path(path)
        files = _shard_files(path) if path.is_dir() else [path]
        tables = []
        metadata: dict[str, str] = {}
        for number, file in enumerate(files):
            table, metadata = _read_file(file)
            shard = metadata.pop("shard", None)
            if path.is_dir() and shard not in (None, f"{number} of {len(files)}"):
                raise FormatError(
                    f"{file}: expected shard {number} of {len(files)}, found {shard}; "
                    "restore the file"
                )
            tables.append(table)
        return cls(pa.concat_tables(tables), metadata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one Parquet file, sorted by pre-token; equal counts give equal bytes."""
        table = self.to_arrow()
        temporary = f"{os.fspath(path)}.tmp"
        pq.write_table(table, temporary, compression="zstd", write_statistics=False)
        Path(temporary).replace(path)

    def to_arrow(self) -> pa.Table:
        """A table of pretoken (large_binary) and count (int64), sorted by pretoken."""
        metadata = {"bpe.format": FORMAT_VERSION, **_prefixed(self.metadata)}
        return _sorted(self._table).replace_schema_metadata(metadata)

    def columns(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """(bytes, offsets, counts): pre-token i is bytes[offsets[i]:offsets[i + 1]].

        In the order of the table or text these counts were made of.
        """
        keys, offsets = _bytes_column(self._table["pretoken"])
        return keys, offsets, self._table["count"].to_numpy()

    def items(self) -> Iterator[tuple[bytes, int]]:
        """(pre-token, count), sorted by pre-token."""
        for batch in _sorted(self._table).to_batches():
            yield from zip(batch["pretoken"].to_pylist(), batch["count"].to_pylist(), strict=True)

    def total(self) -> int:
        """The number of pre-tokens counted, repeats included."""
        # As Python integers: the sum of many int64 may need more bits.
        counts = self._table["count"].to_numpy()
        return int((counts >> 32).sum()) * 2**32 + int((counts & 0xFFFFFFFF).sum())

    def prune(self, min_count: int) -> PretokenCounts:
        """Without the pre-tokens that occur less than `min_count` times."""
        kept = self._table.filter(pc.greater_equal(self._table["count"], min_count))
        return PretokenCounts(kept, self.metadata)

    def __len__(self) -> int:
        """The number of distinct pre-tokens."""
        return int(self._table.num_rows)

    def __add__(self, other: PretokenCounts) -> PretokenCounts:
        """The counts of both; of the metadata what says how both were counted, not of what.

        Raises:
            TrainingError: they were counted with different patterns or special tokens.
            CountOverflowError: a sum does not fit 64 bits.
        """
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        metadata = {}
        for key in _HOW_COUNTED:
            mine, theirs = self.metadata.get(key), other.metadata.get(key)
            if mine is not None and theirs is not None and not _counted_alike(key, mine, theirs):
                raise TrainingError(
                    f"counts: expected the same {key} on both sides, found {mine} and {theirs}; "
                    "count one of them again"
                )
            if (value := theirs if mine is None else mine) is not None:
                metadata[key] = value
        both = PretokenTable(None, [])
        for counts in (self, other):
            both.add_counts(*counts.columns())
        return PretokenCounts(_table_of(both), metadata)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        return bool(_sorted(self._table).equals(_sorted(other._table)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PretokenCounts({len(self)} distinct, {self.total()} in all)"


def count_pretokens(
    source: Source,
    *,
    pattern: str = "gpt2",
    special_tokens: Iterable[str] = (),
    normalizer: str | None = None,
    normalize_quotes: bool = False,
    split_categories: bool = False,
    max_digits: int | None = None,
    errors: Errors = "strict",
    num_threads: int = 0,
) -> PretokenCounts:
    """Counts the pre-tokens of files or documents.

    Text is cut at special tokens, which are not counted. Memory depends on the number of distinct
    pre-tokens, not on the size of the text.

    Args:
        source: a path (a str is one) or a list of paths, or else documents (str or bytes). A list
            or tuple of str whose items all name existing files is a list of paths, one item or
            many; if some of them do, it is refused. bytes, and what an iterator gives, are always
            documents. A file is one document; its bytes are read as they are.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression.
        special_tokens: where text is cut, the longest first where one begins another.
        normalizer: "nfc" or "nfkc": text between special tokens is brought into this Unicode
            normalization form before it is split; None: it stays as it is.
        normalize_quotes: typographic quotes become ' and " after that.
        split_categories, max_digits: rules for the pattern; see `pattern_with_rules`.
        errors: what invalid UTF-8 does: "strict" raises, "replace" puts U+FFFD, "ignore" leaves
            the bytes out.
        num_threads: 0 for all cores.

    Raises:
        InvalidUtf8Error: invalid UTF-8, with errors="strict"; names the file or document and byte.
        TrainingError: a list of texts of which some name files, or documents of another type.
        OSError: a file that cannot be read.
        InvalidPatternError, InvalidTokenizerError, SpecialTokenError: unusable arguments.

    Example:
        >>> dict(count_pretokens(["low low lower"]).items())
        {b' low': 1, b' lower': 1, b'low': 1}
    """
    specials = check_special_tokens(special_tokens)
    pattern = pattern_with_rules(pattern, split_categories=split_categories, max_digits=max_digits)
    how = _How(pattern, specials, (), normalizer, normalize_quotes)
    return _count(source, how, errors, num_threads)


def ordered_pretokens(
    source: Source,
    *,
    pattern: str = "gpt2",
    special_tokens: Iterable[str] = (),
    normalizer: str | None = None,
    normalize_quotes: bool = False,
    split_categories: bool = False,
    max_digits: int | None = None,
    errors: Errors = "strict",
) -> PretokenCounts:
    """Counts as `count_pretokens` does, in one thread; `columns` has them in order.

    The pre-tokens stand in the order in which they first occur in the text, which training with
    the tie-break `first_seen` needs. Arguments and errors are those of `count_pretokens`.

    Example:
        >>> keys, offsets, counts = ordered_pretokens(["low new low"]).columns()
        >>> keys.tobytes(), offsets.tolist(), counts.tolist()
        (b'low new low', [0, 3, 7, 11], [1, 1, 1])
    """
    specials = check_special_tokens(special_tokens)
    pattern = pattern_with_rules(pattern, split_categories=split_categories, max_digits=max_digits)
    how = _How(pattern, specials, (), normalizer, normalize_quotes)
    return _count(source, how, errors, in_order=True)


def count_files(
    paths: list[Path],
    *,
    pattern: str,
    special_tokens: tuple[str, ...],
    separator: str | None,
    normalizer: str | None,
    normalize_quotes: bool,
    errors: Errors,
    num_threads: int,
    in_order: bool = False,
) -> PretokenCounts:
    """As `count_pretokens` of files, or `ordered_pretokens`, cut at `separator` as well."""
    cuts = () if separator is None or separator in special_tokens else (separator,)
    how = _How(pattern, special_tokens, cuts, normalizer, normalize_quotes)
    return _count(paths, how, errors, num_threads, in_order)


def _counted_alike(key: str, mine: str, theirs: str) -> bool:
    if key != "pattern" or mine == theirs:
        return mine == theirs
    # The regular expressions, not their names: llama3 and cl100k are one pattern.
    return resolve_pattern(mine).regex == resolve_pattern(theirs).regex


class _How(NamedTuple):
    """How text becomes pre-tokens."""

    pattern: str
    special_tokens: tuple[str, ...]
    separators: tuple[str, ...]
    normalizer: str | None
    normalize_quotes: bool


def _count(
    source: Source,
    how: _How,
    errors: Errors,
    num_threads: int = 1,
    in_order: bool = False,
) -> PretokenCounts:
    if errors not in ("strict", "replace", "ignore"):
        raise TrainingError(f"errors: expected strict, replace or ignore, found {errors!r}")
    if num_threads < 0:
        raise TrainingError(f"num_threads: expected 0 (all cores) or more, found {num_threads}")
    resolved = resolve_pattern(how.pattern)
    cuts = (*how.special_tokens, *how.separators)
    normalizer = native_normalizer(how.normalizer, how.normalize_quotes)
    specials = special_set(cuts)
    counter = _Counter(resolved, cuts, specials, normalizer, num_threads, in_order)
    paths = _paths_of(source)
    if paths is None:
        batches = _document_batches(source, errors)  # type: ignore[arg-type]
    else:
        cut = resolved.has_safe_cuts
        batches = _file_batches(paths, specials, normalizer, cut, errors)
    metadata = {
        "pattern": how.pattern,
        "special_tokens": json.dumps(how.special_tokens, ensure_ascii=False),
        "unicode_version": resolved.unicode_version,
        **normalization_metadata(how.normalizer, how.normalize_quotes),
    }
    return PretokenCounts(_table_of(counter.count(batches)), metadata)


def normalization_metadata(normalizer: str | None, normalize_quotes: bool) -> dict[str, str]:
    """What the metadata of counts say of normalization."""
    return {
        "normalizer": checked_normalizer(normalizer) or "null",
        "normalize_quotes": json.dumps(normalize_quotes),
    }


class _Counter:
    """Counts batches in threads that share nothing: a table each, added up at the end."""

    def __init__(
        self,
        pattern: Pattern,
        cuts: tuple[str, ...],
        specials: SpecialSet,
        normalizer: Normalizer | None,
        num_threads: int,
        in_order: bool,
    ) -> None:
        self._native = pattern.native
        self._regex = pattern.regex
        self._cuts = cuts
        self._specials = specials
        self._normalizer = normalizer
        self._threads = num_threads or usable_cores()
        self._in_order = in_order
        self._local = threading.local()
        self._tables: list[PretokenTable] = []

    def count(self, batches: Iterator[_Batch]) -> PretokenTable | OrderedPretokens:
        if self._in_order:
            ordered = OrderedPretokens(self._native, self._encoded_cuts(), self._normalizer)
            for batch in batches:
                self._add(ordered, batch)
            return ordered
        if self._threads == 1 or self._native is None:
            for batch in batches:
                self._add_to_own_table(batch)
        else:
            self._count_in_threads(batches)
        tables = self._tables or [self._new_table()]
        first, *others = sorted(tables, key=len, reverse=True)
        for table in others:
            first.add_table(table)
        return first

    def _count_in_threads(self, batches: Iterator[_Batch]) -> None:
        with ThreadPoolExecutor(self._threads) as pool:
            pending: set[Future[None]] = set()
            for batch in batches:
                pending.add(pool.submit(self._add_to_own_table, batch))
                if len(pending) > self._threads + 1:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in pending:
                future.result()

    def _encoded_cuts(self) -> list[bytes]:
        return [token.encode() for token in self._cuts]

    def _new_table(self) -> PretokenTable:
        return PretokenTable(self._native, self._encoded_cuts(), normalizer=self._normalizer)

    def _add_to_own_table(self, batch: _Batch) -> None:
        table: PretokenTable | None = getattr(self._local, "table", None)
        if table is None:
            table = self._local.table = self._new_table()
            self._tables.append(table)
        self._add(table, batch)

    def _add(self, table: PretokenTable | OrderedPretokens, batch: _Batch) -> None:
        if self._native is not None:
            table.add_documents(*batch)
            return
        add_custom_pretokens(table, batch, self._regex, self._specials, self._normalizer)


def add_custom_pretokens(
    table: PretokenTable | OrderedPretokens,
    batch: _Batch,
    regex: str,
    specials: SpecialSet,
    normalizer: Normalizer | None = None,
    max_pretoken_bytes: int = 0,
) -> list[tuple[int, int, int]]:
    """Counts a batch by a custom pattern: `regex` finds the pre-tokens, the table counts them.

    Returns:
        (document, place in it, bytes) of the pre-tokens longer than max_pretoken_bytes (0: no
        limit), which are not counted. A place in normalized text is counted from where its part
        begins.
    """
    data, starts, ends = batch
    too_long: list[tuple[int, int, int]] = []
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        at = 0
        for part, is_special in split_special_tokens(bytes(data[start:end]), specials):
            if not is_special:
                text = part if normalizer is None else normalizer.normalize(part)
                cuts = split_custom(regex, text.decode())
                begins, stops = cuts[:-1], cuts[1:]
                if max_pretoken_bytes:
                    long = stops - begins > max_pretoken_bytes
                    places = zip(begins[long].tolist(), stops[long].tolist(), strict=True)
                    too_long += [(index, at + begin, stop - begin) for begin, stop in places]
                    begins, stops = begins[~long], stops[~long]
                table.add_spans(text, begins, stops)
            at += len(part)
    return too_long


def _paths_of(source: Source) -> list[Path] | None:
    """The paths, if the source is files; None if it is documents."""
    if isinstance(source, (str, os.PathLike)):
        return [check_path(source, "source")]
    if not isinstance(source, Iterable):
        raise TrainingError(
            f"source: expected a path, or several paths or documents, found {type(source).__name__}"
        )
    if not isinstance(source, (list, tuple)) or not source:
        return None
    if any(isinstance(item, os.PathLike) for item in source):
        return [check_path(item, f"source, item {index}") for index, item in enumerate(source)]
    if not all(isinstance(item, str) for item in source):
        return None
    are_files = [_is_file(item) for item in source]
    if not any(are_files):
        return None
    if not all(are_files):
        raise _some_are_files(source, are_files)
    return [Path(item) for item in source]


def check_path(path: object, where: str) -> Path:
    """Return a path that the operating system can look up, whether or not the file exists.

    Raises:
        TrainingError: it is not a str or an `os.PathLike` of one, or cannot name a file.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise TrainingError(
            f"{where}: expected a path as str or os.PathLike, found {type(path).__name__}"
        )
    problem = None
    try:
        Path(path).stat()
    except ValueError as error:  # a NUL, or a lone surrogate
        problem = str(error)
    except OSError as error:
        problem = error.strerror if error.errno == errno.ENAMETOOLONG else None
    if problem is not None:
        raise TrainingError(
            f"{where}: expected a path, found {_shorten(os.fspath(path))}, which cannot be one: "
            f"{problem}; give the path of a file, or a list of texts to count_pretokens"
        )
    return Path(path)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _some_are_files(items: Sequence[str], are_files: list[bool]) -> TrainingError:
    missing = [item for item, is_file in zip(items, are_files, strict=True) if not is_file]
    shown = ", ".join(map(_shorten, missing[:5]))
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return TrainingError(
        f"source: expected files or documents, found texts of which "
        f"{len(items) - len(missing)} name files ({items[are_files.index(True)]!r}) and "
        f"{len(missing)} do not: {shown}{more}; correct these names, or give documents as bytes "
        "or by an iterator"
    )


def _is_file(text: str) -> bool:
    return len(text) < 4096 and os.path.isfile(text)  # noqa: PTH113  # there may be many


def _document_batches(documents: Iterable[str | bytes], errors: Errors) -> Iterator[_Batch]:
    parts: list[bytes] = []
    size = 0
    for index, document in enumerate(documents):
        if not isinstance(document, (str, bytes)):
            raise TrainingError(
                f"document {index}: expected str or bytes, found {type(document).__name__}"
            )
        raw = document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document
        parts.append(_repaired(raw, errors, f"document {index}", 0))
        size += len(parts[-1])
        if size >= _BATCH_BYTES:
            yield _batch_of(parts)
            parts, size = [], 0
    if parts:
        yield _batch_of(parts)


def _batch_of(documents: list[bytes]) -> _Batch:
    data, offsets = joined(documents)
    return data, offsets[:-1], offsets[1:]


def _file_batches(
    paths: list[Path],
    cuts: SpecialSet,
    normalizer: Normalizer | None,
    may_cut: bool,
    errors: Errors,
) -> Iterator[_Batch]:
    for path in paths:
        for piece in _file_pieces(path, cuts, normalizer, may_cut, errors):
            yield piece, np.array([0], np.int64), np.array([len(piece)], np.int64)


def _file_pieces(
    path: Path, cuts: SpecialSet, normalizer: Normalizer | None, may_cut: bool, errors: Errors
) -> Iterator[bytearray]:
    """The file's text in pieces that have the same pre-tokens as the whole."""
    lookahead = cut_lookahead(cuts)
    text = bytearray()
    wanted = _BATCH_BYTES
    for block in _valid_blocks(path, errors):
        text += block
        while may_cut and len(text) >= wanted + lookahead:
            cut = safe_cut(text, False, len(text) - lookahead, cuts, normalizer)
            if cut is None:
                wanted = 2 * len(text)  # no place yet: look again when there is as much more
                break
            yield text[:cut]
            del text[:cut]
            wanted = _BATCH_BYTES
    if text:
        yield text


def _valid_blocks(path: Path, errors: Errors) -> Iterator[bytes]:
    """The file's bytes, valid UTF-8 after repair, in blocks of whole characters."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    offset = 0
    rest = b""
    with path.open("rb") as file:
        while block := file.read(_BATCH_BYTES):
            text = rest + block
            valid = utf8_valid_prefix(text)
            if len(text) - valid < 4:  # at most a character that goes on in the next block
                yield text[:valid]
                rest = text[valid:]
            else:
                if errors == "strict":
                    _repaired(text, errors, str(path), offset)
                yield decoder.decode(text).encode()
                rest = decoder.getstate()[0]
                decoder.reset()
            offset += len(text) - len(rest)
    if rest:
        yield _repaired(rest, errors, str(path), offset)


def _repaired(text: bytes, errors: Errors, where: str, offset: int) -> bytes:
    valid = utf8_valid_prefix(text)
    if valid == len(text):
        return text
    if errors == "strict":
        raise InvalidUtf8Error(
            f"{where}, byte {offset + valid}: expected UTF-8, found "
            f"0x{text[valid : valid + 4].hex().upper()}; repair the text, or give "
            'errors="replace" or errors="ignore"'
        )
    return text.decode("utf-8", errors).encode()


def _shard_files(directory: Path) -> list[Path]:
    files = sorted(directory.glob("shard-*-of-*.parquet"))
    number = files[0].stem.rsplit("-", 1)[1] if files else ""
    expected = int(number) if number.isascii() and number.isdigit() else 0
    wanted = (f"shard-{i:05d}-of-{expected:05d}.parquet" for i in range(expected))
    found = {file.name for file in files}
    missing = next((name for name in wanted if name not in found), None)
    if missing is not None or len(files) != expected or not files:
        raise FormatError(
            f"{directory}: expected all shards of a finished count "
            f"(shard-00000-of-NNNNN.parquet …), found {len(files)} of {expected or 'some'}"
            f"{f', without {missing}' if missing else ''}; finish counting with `beam-bpe count`"
        )
    return files


def _read_file(file: Path) -> tuple[pa.Table, dict[str, str]]:
    try:
        # A file of its own: given a path, pyarrow takes names of folders for columns too.
        with pa.OSFile(str(file)) as source:
            found = pq.read_table(source, columns=["pretoken", "count"])
        table, metadata = _checked(found, str(file))
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        # What is wrong with the contents pyarrow reports as an OSError too, without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FormatError(
            f"{file}: expected Parquet with the columns pretoken and count: {error}; restore the "
            "file, or count again"
        ) from None
    pretokens = table["pretoken"].combine_chunks()
    ascending = pc.less(pretokens[:-1], pretokens[1:]) if len(pretokens) > 1 else pa.array([True])
    if not pc.all(ascending).as_py():
        row = pc.index(ascending, False).as_py() + 1
        raise FormatError(
            f"{file}, row {row}: expected each pre-token once, in ascending order, found "
            f"{pretokens[row].as_py()[:40]!r} after {pretokens[row - 1].as_py()[:40]!r}; restore "
            "the file, or read it with pyarrow and give the table to from_arrow"
        )
    return table, metadata


def _checked(table: pa.Table, where: str) -> tuple[pa.Table, dict[str, str]]:
    names = set(table.column_names)
    if not {"pretoken", "count"} <= names:
        raise FormatError(f"{where}: expected the columns pretoken and count, found {names}")
    metadata = _checked_metadata(table.schema.metadata or {}, where)
    try:
        table = table.select(["pretoken", "count"]).cast(_SCHEMA)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise FormatError(
            f"{where}: expected pretoken as binary, count as int64: {error}"
        ) from None
    if table.num_rows and (
        pc.min(table["count"]).as_py() < 1
        or pc.min(pc.binary_length(table["pretoken"])).as_py() < 1
    ):
        raise FormatError(f"{where}: expected pre-tokens of at least one byte with counts above 0")
    return table, metadata


def _checked_metadata(found: Mapping[bytes, bytes], where: str) -> dict[str, str]:
    try:
        metadata = {
            key.decode().removeprefix("bpe."): value.decode()
            for key, value in found.items()
            if key.startswith(b"bpe.")
        }
        specials = json.loads(metadata.get("special_tokens", "[]"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}, metadata: expected UTF-8 and JSON: {error}") from None
    if not isinstance(specials, list) or not all(isinstance(text, str) for text in specials):
        raise FormatError(
            f"{where}, metadata: expected special_tokens as a list of texts, found "
            f"{metadata['special_tokens'][:100]}"
        )
    version = metadata.pop("format", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise FormatError(
            f"{where}, metadata: expected format {FORMAT_VERSION}, found {version[:100]}; read it "
            "with the version of this package that wrote it"
        )
    return metadata


def _bytes_column(column: pa.ChunkedArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    if len(offsets) == 0:
        offsets = np.zeros(1, np.int64)
    keys = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return keys, offsets


def _table_of(table: PretokenTable | OrderedPretokens) -> pa.Table:
    return columns_to_arrow(*table.columns())


def columns_to_arrow(
    keys: NDArray[np.uint8], offsets: NDArray[np.int64], counts: NDArray[np.int64]
) -> pa.Table:
    """The columns as a table, without copying."""
    pretokens = pa.Array.from_buffers(
        pa.large_binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(keys)]
    )
    return pa.table([pretokens, pa.array(counts)], schema=_SCHEMA)


def _sorted(table: pa.Table) -> pa.Table:
    return table.take(pc.sort_indices(table, [("pretoken", "ascending")])).combine_chunks()


def _prefixed(metadata: Mapping[str, str]) -> dict[str, str]:
    return {f"bpe.{key}": value for key, value in metadata.items()}
