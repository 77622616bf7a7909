"""Differences, multiples and selections of counts, as operations on whole columns.

Counts are exact integers. Where a rule is needed, it is this:

- A multiple is count times fraction in exact rational arithmetic, rounded to an integer, halves
  to even. The counts of groups are rounded one by one, and the others are their sums. Documents are
  multiplied likewise, but stay at least 1.
- A float means its shortest decimal text: 0.1 is 1/10.
- What becomes 0 is left out. What would become negative, or exceed 64 bits, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import scale_counts
from bpe_core.count_groups import GroupColumns, one_array
from bpe_core.errors import CountOverflowError, TrainingError

__all__ = ["Factor"]

Factor: TypeAlias = int | float | Decimal | Fraction

_LIMIT: Final = 1 << 63
_SHOWN_BYTES: Final = 40


def exact_fraction(factor: Factor) -> Fraction:
    """Return a factor as a fraction.

    Raises:
        TrainingError: it is negative, not finite, or needs numbers of more than 63 bits.

    >>> exact_fraction(0.1)
    Fraction(1, 10)
    """
    try:
        if isinstance(factor, bool):
            raise ValueError
        exact = factor if isinstance(factor, Fraction) else Fraction(Decimal(str(factor)))
    except (ValueError, OverflowError, ArithmeticError):
        raise TrainingError(
            f"counts: expected a number of at least 0 to multiply with, found {factor!r}"
        ) from None
    if exact < 0 or max(exact.numerator, exact.denominator) >= _LIMIT:
        raise TrainingError(
            "counts: expected a number of at least 0, numerator and denominator of which are below "
            f"2^63, to multiply with, found {factor!r}"
        )
    return exact


def plain_entries(table: pa.Table) -> GroupColumns:
    """Return rows without groups as one entry each."""
    documents = table["documents"].to_numpy() if "documents" in table.column_names else None
    rows = len(table)
    return GroupColumns(
        np.arange(rows + 1), np.zeros(rows, np.int32), table["count"].to_numpy(), documents
    )


def subtract_entries(
    keys: pa.ChunkedArray,
    columns: GroupColumns,
    subtracted_keys: pa.ChunkedArray,
    subtracted: GroupColumns,
    groups: int,
) -> GroupColumns:
    """Return the entries of `keys` without those that are subtracted; rows may become empty.

    Args:
        keys: Distinct pre-tokens.
        columns: Entries of their groups.
        subtracted_keys, subtracted: The same of the counts to subtract, with the same numbers for
            the same groups.
        groups: Number of groups.

    Raises:
        TrainingError: a count or a number of documents would become negative, or they would
            contradict each other.
    """
    pretokens, others = one_array(keys), one_array(subtracted_keys)
    rows = pc.fill_null(pc.index_in(others, value_set=pretokens), -1).to_numpy()
    entries = np.repeat(rows.astype(np.int64), np.diff(subtracted.offsets))
    places = columns.rows() * groups + columns.groups  # ascending
    wanted = entries * groups + subtracted.groups
    at = np.searchsorted(places, wanted)
    missing = entries < 0
    missing |= np.append(places, -1)[at] != wanted
    counts = columns.counts.copy()
    counts[at[~missing]] -= subtracted.counts[~missing]  # each entry at most once
    if missing.any() or (counts < 0).any():
        first = int(np.flatnonzero(missing)[0]) if missing.any() else None
        _raise_negative(pretokens, columns, others, subtracted, at, first, counts)
    documents = None
    if columns.documents is not None and subtracted.documents is not None:
        documents = columns.documents.copy()
        documents[at] -= subtracted.documents
        wrong = (documents < 0) | (documents > counts) | ((documents == 0) & (counts > 0))
        if wrong.any():
            entry = int(np.flatnonzero(wrong)[0])
            name = show_pretoken(pretokens[int(columns.rows()[entry])].as_py())
            raise TrainingError(
                f"counts: expected to subtract a part of the counts, found that {name} would have "
                f"{documents[entry]:,} documents and occur {counts[entry]:,} times"
            )
    return _without_zeros(GroupColumns(columns.offsets, columns.groups, counts, documents))


def scale_entries(keys: pa.ChunkedArray, columns: GroupColumns, factor: Factor) -> GroupColumns:
    """Return the entries of `keys` multiplied by a factor; rows may become empty.

    Raises:
        TrainingError: the factor is not a number of at least 0.
        CountOverflowError: a count does not fit into 64 bits.
    """
    exact = exact_fraction(factor)
    counts = scale_counts(columns.counts, exact.numerator, exact.denominator)
    if (counts < 0).any():
        entry = int(np.flatnonzero(counts < 0)[0])
        name = show_pretoken(keys[int(columns.rows()[entry])].as_py())
        raise CountOverflowError(
            f"the count of pre-token {name}, {columns.counts[entry]:,}, times {factor} does not "
            "fit 64 bits"
        )
    documents = columns.documents
    if documents is not None:
        scaled = scale_counts(documents, exact.numerator, exact.denominator)
        documents = np.maximum(scaled, counts > 0)
    return _without_zeros(GroupColumns(columns.offsets, columns.groups, counts, documents))


def most_frequent(table: pa.Table, number: int) -> pa.Table:
    """Return the rows with the highest counts, in descending order; ties by bytes."""
    if isinstance(number, bool) or number < 0:
        raise TrainingError(f"top: expected a number of at least 0, found {number!r}")
    if not len(table):
        return table
    order = [("count", "descending"), ("pretoken", "ascending")]
    columns = table.select(["count", "pretoken"]).combine_chunks()
    return table.take(pc.select_k_unstable(columns, min(number, len(table)), order))


def match_pretokens(
    pretokens: pa.ChunkedArray,
    *,
    script: str | None = None,
    min_bytes: int | None = None,
    max_bytes: int | None = None,
    regex: str | None = None,
) -> pa.ChunkedArray:
    """Return True for each pre-token that fulfills all conditions; see `PretokenCounts.filter`.

    Raises:
        TrainingError: a script or a regular expression is invalid.
    """
    lengths = pc.binary_length(pretokens)
    kept = pc.greater_equal(lengths, 0 if min_bytes is None else min_bytes)
    if max_bytes is not None:
        kept = pc.and_(kept, pc.less_equal(lengths, max_bytes))
    if script is not None:
        if not script.replace("_", "").isalpha():
            raise _unknown_script(script)
        try:
            kept = pc.and_(kept, _search(pretokens, rf"\p{{{script}}}"))
        except pa.ArrowInvalid:
            raise _unknown_script(script) from None
    if regex is not None:
        try:
            kept = pc.and_(kept, _search(pretokens, regex))
        except pa.ArrowInvalid as error:
            raise TrainingError(
                f"regex: expected a regular expression in RE2's syntax, found {regex!r}: {error}"
            ) from None
    return kept


def count_of_counter(counter: Mapping[str | bytes, int]) -> dict[bytes, int]:
    """Return the counts above 0 of a mapping of texts or bytes, by bytes.

    Raises:
        TrainingError: a count is negative, or a pre-token or a count has another type.
        CountOverflowError: the counts of a text and its bytes together do not fit into 64 bits.
    """
    if not isinstance(counter, Mapping):
        raise TrainingError(
            "counts: expected a Counter or another mapping of texts or bytes to counts, found "
            f"{type(counter).__name__}"
        )
    counts: dict[bytes, int] = {}
    for text, count in counter.items():
        is_integer = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
        if not isinstance(text, (str, bytes)) or not is_integer or count < 0:
            raise TrainingError(
                "counts: expected texts or bytes with counts of at least 0 as int, found "
                f"{text!r}: {count!r}"
            )
        if count:
            pretoken = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
            counts[pretoken] = counts.get(pretoken, 0) + int(count)
            if counts[pretoken] >= _LIMIT:
                raise CountOverflowError(
                    f"the count of pre-token {show_pretoken(pretoken)} does not fit 64 bits"
                )
    return counts


def show_pretoken(pretoken: bytes) -> str:
    """Return a pre-token for a message.

    >>> show_pretoken(b" lower")
    "b' lower'"
    """
    return repr(pretoken[:_SHOWN_BYTES]) + ("..." if len(pretoken) > _SHOWN_BYTES else "")


def _without_zeros(columns: GroupColumns) -> GroupColumns:
    return columns.select(columns.counts > 0)


def _raise_negative(
    pretokens: pa.Array,
    columns: GroupColumns,
    others: pa.Array,
    subtracted: GroupColumns,
    at: NDArray[np.int64],
    missing: int | None,
    counts: NDArray[np.int64],
) -> NoReturn:
    if missing is not None:
        name = others[int(subtracted.rows()[missing])].as_py()
        found, less = 0, int(subtracted.counts[missing])
    else:
        entry = int(np.flatnonzero(counts < 0)[0])
        name = pretokens[int(columns.rows()[entry])].as_py()
        found = int(columns.counts[entry])
        less = int(subtracted.counts[at == entry][0])
    raise TrainingError(
        f"counts: expected to subtract a part of the counts, found {less:,} occurrences of "
        f"{show_pretoken(name)} to subtract from {found:,}"
    )


def _search(pretokens: pa.ChunkedArray, regex: str) -> pa.ChunkedArray:
    # RE2 finds matches in text with bytes that are not UTF-8: no character matches them.
    texts = [
        pa.Array.from_buffers(pa.large_string(), len(chunk), chunk.buffers(), offset=chunk.offset)
        for chunk in pretokens.chunks
    ]
    return pc.match_substring_regex(pa.chunked_array(texts, pa.large_string()), regex)


def _unknown_script(script: str) -> TrainingError:
    return TrainingError(
        "script: expected a script of Unicode, such as Latin, Cyrillic, Arabic or Han, found "
        f"{script!r}"
    )
