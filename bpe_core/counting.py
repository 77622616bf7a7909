"""Counting the pre-tokens of files and documents."""

from __future__ import annotations

import codecs
import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import (
    Normalizer,
    OrderedPretokens,
    PretokenTable,
    SpecialSet,
    Splitter,
    SuperwordRuns,
    cut_lookahead,
    safe_cut,
    utf8_valid_prefix,
)
from bpe_core.buffers import concatenate
from bpe_core.cores import usable_cores
from bpe_core.count_files import columns_to_arrow
from bpe_core.counts import PretokenCounts, normalization_metadata
from bpe_core.errors import InvalidUtf8Error, TrainingError
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import (
    Pattern,
    pattern_with_rules,
    resolve_pattern,
    split_custom,
    warn_of_slow_pattern,
)
from bpe_core.special_tokens import check_special_tokens, special_set, split_special_tokens

__all__ = ["Errors", "count_pretokens", "ordered_pretokens"]

Errors: TypeAlias = Literal["strict", "replace", "ignore"]
Source: TypeAlias = "str | os.PathLike[str] | Iterable[str | bytes | os.PathLike[str]]"
_Batch: TypeAlias = (
    "tuple[bytes | bytearray, NDArray[np.int64], NDArray[np.int64]]"  # data, starts, ends
)

# Counts do not depend on it: more takes more memory, less takes more calls.
# First bytes of files that contain text, but not as UTF-8.
_PACKED = {
    b"\x1f\x8b": "gzip data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"BZh": "bz2 data",
    b"\xfd7zXZ": "xz data",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
}
_BATCH_BYTES = 4 << 20
_TEXTS = "Give the path of a file, or a list of texts to count_pretokens."


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
    """Count the pre-tokens of files or documents.

    Text is cut at special tokens, which are not counted. Memory use depends on the number of
    distinct pre-tokens, not on the size of the text.

    Args:
        source: a path (a str is one) or a list of paths, or else documents (str or bytes). A list
            or tuple of str is a list of paths if all of its items name existing files; if only some
            of them do, it is an error. bytes, and the items of an iterator, are always documents. A
            file is one document; its bytes are read without conversion.
        pattern: a name in `bpe_core.PATTERNS` or a regular expression.
        special_tokens: texts at which the text is cut, the longest first if one begins another.
        normalizer: "nfc" or "nfkc": Unicode normalization form that text between special tokens
            is converted to before it is split; None: the text is not changed.
        normalize_quotes: replace typographic quotes by ' and " after that.
        split_categories, max_digits: rules for the pattern; see `pattern_with_rules`.
        errors: for invalid UTF-8: "strict" raises an error, "replace" inserts U+FFFD, "ignore"
            leaves the bytes out.
        num_threads: 0 for all cores.

    Raises:
        InvalidUtf8Error: invalid UTF-8, with errors="strict"; names the file or document and byte.
        TrainingError: only some texts of a list name files, or a document has another type.
        OSError: a file cannot be read.
        InvalidPatternError, InvalidTokenizerError, SpecialTokenError: unusable arguments.

    Example:
        >>> dict(count_pretokens(["low low lower"]).items())
        {b' low': 1, b' lower': 1, b'low': 1}
    """
    specials = check_special_tokens(special_tokens)
    pattern = pattern_with_rules(pattern, split_categories=split_categories, max_digits=max_digits)
    rules = SplitRules(pattern, specials, (), normalizer, normalize_quotes)
    return count_by_rules(source, rules, errors, num_threads)


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
    """Count as `count_pretokens` does, in one thread, and keep the order.

    `PretokenCounts.columns` of the result has the pre-tokens in the order in which they first occur
    in the text, which training with the tie-break `first_seen` needs. Arguments and errors are
    those of `count_pretokens`.

    Example:
        >>> keys, offsets, counts = ordered_pretokens(["low new low"]).columns()
        >>> keys.tobytes(), offsets.tolist(), counts.tolist()
        (b'low new low', [0, 3, 7, 11], [1, 1, 1])
    """
    specials = check_special_tokens(special_tokens)
    pattern = pattern_with_rules(pattern, split_categories=split_categories, max_digits=max_digits)
    rules = SplitRules(pattern, specials, (), normalizer, normalize_quotes)
    return count_by_rules(source, rules, errors, in_order=True)


class SplitRules(NamedTuple):
    """Rules by which text becomes pre-tokens.

    Attributes:
        pattern: name or regular expression, with its rules.
        special_tokens: texts at which the text is cut.
        separators: others, which are not special tokens of the counts.
        normalizer, normalize_quotes: see `count_pretokens`.
    """

    pattern: str
    special_tokens: tuple[str, ...]
    separators: tuple[str, ...]
    normalizer: str | None
    normalize_quotes: bool


def count_by_rules(
    source: Source,
    rules: SplitRules,
    errors: Errors,
    num_threads: int = 1,
    in_order: bool = False,
    runs: SuperwordRuns | None = None,
) -> PretokenCounts:
    """Count as `count_pretokens` or, in order, as `ordered_pretokens` does.

    With `runs`, these are counted instead of pre-tokens, and never in order.
    """
    if errors not in ("strict", "replace", "ignore"):
        raise TrainingError(f"errors: expected strict, replace or ignore, found {errors!r}")
    if num_threads < 0:
        raise TrainingError(f"num_threads: expected 0 (all cores) or more, found {num_threads}")
    resolved = resolve_pattern(rules.pattern)
    warn_of_slow_pattern(resolved)
    cuts = (*rules.special_tokens, *rules.separators)
    normalizer = native_normalizer(rules.normalizer, rules.normalize_quotes)
    specials = special_set(cuts)
    counter = _Counter(resolved, cuts, specials, normalizer, num_threads, in_order, runs)
    paths = _find_paths(source)
    if paths is None:
        batches = _document_batches(source, errors)  # type: ignore[arg-type]
    else:
        cut_by = resolved.scanner if resolved.has_safe_cuts else None
        batches = _file_batches(paths, specials, normalizer, cut_by, errors)
    metadata = {
        "pattern": rules.pattern,
        "special_tokens": json.dumps(rules.special_tokens, ensure_ascii=False),
        "unicode_version": resolved.unicode_version,
        **normalization_metadata(rules.normalizer, rules.normalize_quotes),
    }
    return PretokenCounts(columns_to_arrow(*counter.count(batches).columns()), metadata)


class _Counter:
    """Counter of batches in threads that share nothing: each has a table, added up at the end."""

    def __init__(
        self,
        pattern: Pattern,
        cut_at: tuple[str, ...],
        specials: SpecialSet,
        normalizer: Normalizer | None,
        num_threads: int,
        in_order: bool,
        runs: SuperwordRuns | None,
    ) -> None:
        self._scanner = pattern.scanner
        self._regex = pattern.regex
        self._cut_at = [text.encode() for text in cut_at]
        self._specials = specials
        self._normalizer = normalizer
        self._threads = num_threads or usable_cores()
        self._in_order = in_order
        self._runs = runs
        self._local = threading.local()
        self._tables: list[PretokenTable] = []

    def count(self, batches: Iterator[_Batch]) -> PretokenTable | OrderedPretokens:
        if self._in_order:
            ordered = OrderedPretokens(self._scanner, self._cut_at, self._normalizer)
            for batch in batches:
                self._add(ordered, batch)
            return ordered
        if self._threads == 1 or self._scanner is None:
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

    def _new_table(self) -> PretokenTable:
        return PretokenTable(
            self._scanner, self._cut_at, normalizer=self._normalizer, runs=self._runs
        )

    def _add_to_own_table(self, batch: _Batch) -> None:
        table: PretokenTable | None = getattr(self._local, "table", None)
        if table is None:
            table = self._local.table = self._new_table()
            self._tables.append(table)
        self._add(table, batch)

    def _add(self, table: PretokenTable | OrderedPretokens, batch: _Batch) -> None:
        if self._scanner is not None:
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
    groups: NDArray[np.int32] | None = None,
) -> list[tuple[int, int, int]]:
    """Count a batch by a pattern that is not compiled, with pre-tokens from `regex`.

    `groups` has the group of each document, for a table that keeps their counts apart.

    Returns:
        (document, offset in it, bytes) of each pre-token longer than max_pretoken_bytes (0: no
        limit), which is not counted. With a normalizer, the offset is that of the text between
        special tokens, plus the offset in its normalized form.

    Raises:
        SlowPatternError: The pattern takes too long for a document, which the error numbers.
    """
    data, starts, ends = batch
    too_long: list[tuple[int, int, int]] = []
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        at = 0
        group = () if groups is None else (int(groups[index]),)
        if isinstance(table, PretokenTable):
            table.start_document(*group)
        for part, is_special in split_special_tokens(bytes(data[start:end]), specials):
            if not is_special:
                text = part if normalizer is None else normalizer.normalize(part)
                cuts = split_custom(regex, text.decode(), index)
                begins, stops = cuts[:-1], cuts[1:]
                if max_pretoken_bytes:
                    long = stops - begins > max_pretoken_bytes
                    places = zip(begins[long].tolist(), stops[long].tolist(), strict=True)
                    too_long += [(index, at + begin, stop - begin) for begin, stop in places]
                    begins, stops = begins[~long], stops[~long]
                table.add_spans(text, begins, stops, *group)
            at += len(part)
    return too_long


def _find_paths(source: Source) -> list[Path] | None:
    """Return the paths if the source is files; None if it is documents."""
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
        raise _mixed_source_error(source, are_files)
    return [Path(item) for item in source]


def check_path(path: object, where: str, hint: str = _TEXTS) -> Path:
    """Return a path that the operating system can look up; the file need not exist.

    Args:
        path: the path.
        where: the argument, for the error.
        hint: advice for a text that is not a path.

    Raises:
        TrainingError: the path is not a str or an `os.PathLike` of one, or cannot name a file.
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
            f"{problem}. {hint}"
        )
    return Path(path)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _mixed_source_error(items: Sequence[str], are_files: list[bool]) -> TrainingError:
    missing = [item for item, is_file in zip(items, are_files, strict=True) if not is_file]
    shown = ", ".join(map(_shorten, missing[:5]))
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return TrainingError(
        f"source: expected files or documents, found texts of which "
        f"{len(items) - len(missing)} name files ({items[are_files.index(True)]!r}) and "
        f"{len(missing)} do not: {shown}{more}; correct these names, or give documents as bytes "
        "or by an iterator"
    )


def name_files(texts: object) -> bool:
    """Return True if texts are a list and each item is the name of an existing file."""
    if not isinstance(texts, (list, tuple)) or not texts:
        return False
    return all(isinstance(text, str) and _is_file(text) for text in texts)


def _is_file(text: str) -> bool:
    return len(text) < 4096 and os.path.isfile(text)  # noqa: PTH113  # there may be many


def _document_batches(documents: Iterable[str | bytes], errors: Errors) -> Iterator[_Batch]:
    parts: list[bytes] = []
    size = 0
    for index, document in enumerate(documents):
        if not isinstance(document, (str, bytes)):
            batches = "; for batches: itertools.chain.from_iterable(batches)"
            raise TrainingError(
                f"document {index}: expected str or bytes, found {type(document).__name__}"
                + (batches if isinstance(document, (list, tuple)) else "")
            )
        raw = document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document
        parts.append(_repair(raw, errors, f"document {index}", 0))
        size += len(parts[-1])
        if size >= _BATCH_BYTES:
            yield _make_batch(parts)
            parts, size = [], 0
    if parts:
        yield _make_batch(parts)


def _make_batch(documents: list[bytes]) -> _Batch:
    data, offsets = concatenate(documents)
    return data, offsets[:-1], offsets[1:]


def _file_batches(
    paths: list[Path],
    specials: SpecialSet,
    normalizer: Normalizer | None,
    cut_by: str | Splitter | None,
    errors: Errors,
) -> Iterator[_Batch]:
    for path in paths:
        for chunk in _file_chunks(path, specials, normalizer, cut_by, errors):
            yield chunk, np.array([0], np.int64), np.array([len(chunk)], np.int64)


def _file_chunks(
    path: Path,
    specials: SpecialSet,
    normalizer: Normalizer | None,
    cut_by: str | Splitter | None,
    errors: Errors,
) -> Iterator[bytearray]:
    """Yield the file's text in chunks that together have the pre-tokens of the whole file."""
    lookahead = cut_lookahead(specials)
    text = bytearray()
    wanted = _BATCH_BYTES
    for block in _valid_blocks(path, errors):
        text += block
        while cut_by is not None and len(text) >= wanted + lookahead:
            cut = safe_cut(text, False, len(text) - lookahead, specials, normalizer, cut_by)
            if cut is None:
                # Twice the text, so that looking again takes linear time in all.
                wanted = 2 * len(text)
                break
            yield text[:cut]
            del text[:cut]
            wanted = _BATCH_BYTES
    if text:
        yield text


def _valid_blocks(path: Path, errors: Errors) -> Iterator[bytes]:
    """Yield the file's bytes in blocks of complete characters, repaired where they are invalid."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    offset = 0
    rest = b""
    with path.open("rb") as file:
        while block := file.read(_BATCH_BYTES):
            text = rest + block
            valid = utf8_valid_prefix(text)
            if len(text) - valid < 4:  # at most a character that continues in the next block
                yield text[:valid]
                rest = text[valid:]
            else:
                if errors == "strict":
                    _repair(text, errors, str(path), offset)
                yield decoder.decode(text).encode()
                rest = decoder.getstate()[0]
                decoder.reset()
            offset += len(text) - len(rest)
    if rest:
        yield _repair(rest, errors, str(path), offset)


def _repair(text: bytes, errors: Errors, where: str, offset: int) -> bytes:
    valid = utf8_valid_prefix(text)
    if valid == len(text):
        return text
    if errors == "strict":
        found = f"0x{text[valid : valid + 4].hex().upper()}"
        packed = next((name for magic, name in _PACKED.items() if text.startswith(magic)), None)
        if packed is not None and not offset:
            raise InvalidUtf8Error(
                f"{where}, byte {valid}: expected UTF-8, found {found} in {packed}; unpack it, or "
                "train with a build, which reads it: beam-bpe init"
            )
        raise InvalidUtf8Error(
            f"{where}, byte {offset + valid}: expected UTF-8, found {found}; repair the text, or "
            'give errors="replace" or errors="ignore"'
        )
    return text.decode("utf-8", errors).encode()
