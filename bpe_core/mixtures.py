"""Mixtures: counts of several groups with other proportions than those of the corpus.

The weights of the groups are integers, so that a mixture is the same on every machine and in every
order of the counts:

1. B(g) is the number of bytes of group g: the sum of length × count over its pre-tokens. T is the
   sum of B over the groups with a share above 0.
2. The share s(g) is the decimal number given, divided by the sum of all shares; or, by temperature
   t, B(g)^t, rounded to 20 digits.
3. The exact weight w(g) is s(g) × T / B(g), which keeps the number of bytes T.
4. W(g) is w(g) × 2^k, rounded to an integer (halves to even). k is the largest number up to 32 for
   which the sum of W(g) × B(g) is below 2^62, so that no sum can overflow. A weight of less than
   512 / 2^k is an error: rounding would change it by more than a thousandth.
5. The count of a pre-token is the sum of W(g) × its count in g. Nothing is rounded here. Counts are
   in units of 2^-k occurrences.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core.count_algebra import Factor, exact_fraction
from bpe_core.count_groups import Group, GroupColumns
from bpe_core.errors import CountOverflowError, TrainingError

__all__ = ["Mixture", "find_mixture"]

MOST_SCALE_BITS: Final = 32
_LIMIT: Final = 1 << 62
_LEAST_WEIGHT: Final = 512
# Both operations used, ln and exp, are correctly rounded by every implementation.
_EXACT: Final = Context(prec=50, rounding=ROUND_HALF_EVEN)
_ROUNDED: Final = Context(prec=20, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True)
class Mixture:
    """Weights of groups.

    Attributes:
        weights: By name, W: an integer, 0 for a group that is left out.
        scale_bits: k, where a weight of 2^k counts each occurrence once.
        sizes: By name, B: the bytes of the group.
    """

    weights: Mapping[str, int]
    scale_bits: int
    sizes: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the mixture for the files of a tokenizer."""
        return {
            "scale_bits": self.scale_bits,
            "groups": {
                name: {"bytes": size, "weight": self.weights[name]}
                for name, size in self.sizes.items()
            },
        }


def name_groups(
    groups: Sequence[Group], by: str = "source", group_by: str | None = None
) -> list[str]:
    """Return the name of each group in a mixture: its source, or the value of the grouped field.

    Args:
        groups: Groups of the counts.
        by: `source`, or the name of the field.
        group_by: Name of the field by which the text was counted, if it is known.

    Raises:
        TrainingError: counts are not kept apart in this way.
    """
    if by == "source" and groups:
        return [group.source for group in groups]
    if by == (group_by or by) and groups and groups[0].value is not None:
        return [str(group.value) for group in groups]
    found = "counts that are not kept apart" if not groups else "counts by source"
    if groups and groups[0].value is not None:
        found = f"counts by {group_by or 'another field'}"
    raise TrainingError(
        f"by: expected counts that are kept apart by {by}, found {found}; count several sources, "
        "or set counts.group_by"
    )


def add_group_bytes(
    lengths: NDArray[np.int64], columns: GroupColumns, sizes: NDArray[np.int64]
) -> None:
    """Add the bytes of each group to `sizes`.

    Args:
        lengths: Length of the pre-token of each row.
        columns: Counts of the groups of each row.
        sizes: Bytes by number of the group.

    Raises:
        CountOverflowError: the bytes exceed 2^62.
    """
    sizes_of_entries = np.repeat(lengths, np.diff(columns.offsets))
    estimate = float(sizes_of_entries.astype(np.float64) @ columns.counts) + float(sizes.sum())
    if estimate > _LIMIT:
        raise CountOverflowError("mixture: expected text of at most 2^62 bytes, found more")
    np.add.at(sizes, columns.groups, sizes_of_entries * columns.counts)


def find_mixture(
    sizes: Mapping[str, int],
    shares: Mapping[str, Factor] | None = None,
    temperature: Factor | None = None,
) -> Mixture:
    """Return the weights of a mixture.

    Args:
        sizes: Bytes of each group, by name.
        shares: Shares of bytes, by name, one for each group; 0 leaves a group out. Only their
            proportions matter.
        temperature: Instead of shares, a number from 0 (equal shares) to 1 (those of the corpus).

    Raises:
        TrainingError: a group has no share, a share is of an unknown group or is not a number, or
            the weights span too many orders of magnitude.

    Example:
        >>> find_mixture({"web": 300, "code": 100}, {"web": 0.5, "code": 0.5}).weights
        {'web': 2863311531, 'code': 8589934592}
    """
    if (shares is None) == (temperature is None):
        raise TrainingError(
            "mixture: expected shares or a temperature, found "
            + ("neither" if shares is None else "both")
        )
    if shares is None:
        assert temperature is not None
        wanted = _shares_by_temperature(sizes, temperature)
    else:
        wanted = _check_shares(sizes, shares)
    whole = sum(wanted.values())
    if whole == 0:
        raise TrainingError("mixture: expected a share above 0, found none")
    kept = sum(sizes[name] for name, share in wanted.items() if share)
    exact = {
        name: share / whole * kept / sizes[name] if share else Fraction(0)
        for name, share in wanted.items()
    }
    for bits in range(MOST_SCALE_BITS, -1, -1):
        weights = {name: round(weight * 2**bits) for name, weight in exact.items()}
        if sum(weight * sizes[name] for name, weight in weights.items()) < _LIMIT:
            break
    for name, share in wanted.items():
        if share and weights[name] < _LEAST_WEIGHT:
            raise TrainingError(
                f"mixture: expected weights that fit 64-bit counts, found one of "
                f"{float(exact[name]):.2g} for {name!r}; give it a larger share, or 0 to leave it "
                "out"
            )
    return Mixture(weights, bits, {name: sizes[name] for name in wanted})


def sum_by_name(names: Sequence[str], sizes: NDArray[np.int64]) -> dict[str, int]:
    """Return the bytes of all groups of each name, without names that have none."""
    sums: dict[str, int] = {}
    for name, size in zip(names, sizes.tolist(), strict=True):
        if size:
            sums[name] = sums.get(name, 0) + size
    return sums


def mix_counts(
    columns: GroupColumns, mixture: Mixture, names: Sequence[str]
) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the rows that a mixture keeps, as an array of booleans, and their weighted counts.

    Args:
        columns: Counts of the groups of each row.
        mixture: Weights of the groups.
        names: Name of each group, as `name_groups` returns them.
    """
    weights = np.array([mixture.weights.get(name, 0) for name in names], np.int64)
    sums = np.append(0, np.cumsum(weights[columns.groups] * columns.counts))
    weighted = np.diff(sums[columns.offsets])
    return pa.array(weighted > 0), weighted[weighted > 0]


def to_units(occurrences: int, unit: int) -> int:
    """Return a number of occurrences as a count in units of 1 / `unit` occurrences."""
    return min(occurrences * unit, 2**63 - 1)


def to_occurrences(counts: NDArray[np.int64], unit: int) -> NDArray[np.int64]:
    """Return counts in such units as numbers of occurrences, rounded, but at least 1."""
    return counts if unit == 1 else np.maximum((counts + unit // 2) // unit, 1)


def check_names(
    given: Collection[str], known: Collection[str], required: Collection[str] | None = None
) -> str | None:
    """Return what is wrong with the names of a mixture, or None.

    Args:
        given: Names that have a share.
        known: Names of the groups.
        required: Names that must have a share; all known ones if None.
    """
    missing = sorted(set(known if required is None else required) - set(given))
    unknown = sorted(set(given) - set(known))
    problems = []
    if unknown:
        close = difflib.get_close_matches(unknown[0], missing or known, n=1)
        problems.append(
            f"{', '.join(map(repr, unknown))}, unknown"
            + (f" (did you mean {close[0]!r}?)" if close else "")
        )
    if missing:
        problems.append(f"none for {', '.join(map(repr, missing))}")
    return "; ".join(problems) or None


def _check_shares(sizes: Mapping[str, int], shares: Mapping[str, Factor]) -> dict[str, Fraction]:
    if not isinstance(shares, Mapping):
        raise TrainingError(
            f"shares: expected a mapping of names to shares, found {type(shares).__name__}"
        )
    checked = {name: _fraction(share, f"the share of {name!r}") for name, share in shares.items()}
    # A group without text needs no share, and may have the share 0.
    named = {name for name, share in checked.items() if share or name in sizes}
    if problem := check_names(named, sizes):
        raise TrainingError(
            f"shares: expected one for each of {', '.join(map(repr, sorted(sizes)))} (0 leaves a "
            f"group out), found {problem}"
        )
    return {name: checked[name] for name in sizes}


def _shares_by_temperature(sizes: Mapping[str, int], temperature: Factor) -> dict[str, Fraction]:
    exponent = _fraction(temperature, "temperature")
    if exponent > 1:
        raise TrainingError(
            f"temperature: expected an exponent from 0 (equal shares) to 1 (those of the corpus), "
            f"found {temperature}; what papers call a temperature of 3 is 0.33 here"
        )
    power = _EXACT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))

    def share(size: int) -> Fraction:
        logarithm = _EXACT.multiply(power, _EXACT.ln(Decimal(size)))
        return Fraction(_ROUNDED.plus(_EXACT.exp(logarithm)))

    return {name: share(size) for name, size in sizes.items()}


def _fraction(value: Factor, what: str) -> Fraction:
    try:
        return exact_fraction(value)
    except TrainingError:
        raise TrainingError(f"{what}: expected a number of at least 0, found {value!r}") from None
