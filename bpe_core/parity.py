"""Parity-aware training: merges that compress several groups of text, such as languages, equally.

Each step chooses the group that is compressed least and merges the most frequent pair of this
group, in the text of all groups. `bpe_core.reference.learn_parity_merges` is the algorithm in plain
Python, with its source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import MergeLearner
from bpe_core.counts import PretokenCounts
from bpe_core.errors import TrainingError
from bpe_core.mixtures import check_names, name_groups
from bpe_core.short_repr import short_repr

__all__ = ["ParityRules"]

_MOST_GROUPS: Final = 1024


@short_repr
@dataclass(frozen=True, kw_only=True)
class ParityRules:
    """Rules of parity-aware training. Groups of counts with the same name are one group.

    Attributes:
        by: `source`, or the field by which counts are grouped: then the names are its values.
        ratios: By name, the intended compression in bytes a token, of which only the proportions
            matter; None: equal. A script of three bytes a character needs a ratio about three times
            as high as Latin text for as many tokens a sentence.
        development: Instead of ratios, counts of parallel text, grouped in the same way: the same
            sentences in each group. The group with the most tokens in them is compressed least.
        global_merges: Number of first merges that are learned from all groups together.
        window_size: Number of choices in which one group may have a limited share; None: no limit.
        alpha: In the window, a group is passed over while it has more than `alpha` times its equal
            share of the choices.
    """

    by: str = "source"
    ratios: Mapping[str, float] | None = None
    development: PretokenCounts | None = None
    global_merges: int = 0
    window_size: int | None = None
    alpha: float = 2.0

    def to_json(self) -> dict[str, Any]:
        """Return the rules for the tokenizer's files."""
        parallel = self.development
        return {
            "by": self.by,
            "ratios": None if self.ratios is None else dict(self.ratios),
            "development": parallel and parallel.metadata.get("fingerprint", True),
            "global_merges": self.global_merges,
            "window_size": self.window_size,
            "alpha": self.alpha,
        }


def make_parity_learner(
    rules: ParityRules,
    counts: PretokenCounts,
    *,
    tie_break: str,
    min_frequency: int,
    max_token_bytes: int,
    forbidden_tokens: Sequence[bytes],
    forbid_whitespace_tokens: bool,
) -> MergeLearner:
    """Return a learner of grouped counts.

    Raises:
        TrainingError: counts are not kept apart in this way, or the rules name other groups.
    """
    _check_numbers(rules)
    names = sorted(set(_names_of(counts, rules)))
    if len(names) > _MOST_GROUPS:
        raise TrainingError(
            f"parity: expected at most {_MOST_GROUPS:,} groups, found {len(names):,}; each pair "
            "has a count for each group in memory"
        )
    parts = [_rows(counts, rules, names, 0)]
    ratios = []
    if rules.development is None:
        ratios = check_ratios(rules.ratios, names)
    else:
        parts.append(_rows(_check_development(rules, names), rules, names, len(names)))
    keys, lengths, sizes, groups, numbers = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    return MergeLearner.with_parity(
        keys,
        _offsets(lengths),
        _offsets(sizes),
        groups,
        numbers,
        len(names),
        "stand_ins" if tie_break == "huggingface" else tie_break,
        min_frequency,
        max_token_bytes,
        forbidden_tokens,
        forbid_whitespace_tokens=forbid_whitespace_tokens,
        ratios=ratios,
        global_merges=rules.global_merges,
        window_size=rules.window_size or 0,
        alpha=rules.alpha,
    )


def _names_of(counts: PretokenCounts, rules: ParityRules) -> list[str]:
    return name_groups(counts.groups, rules.by, counts.metadata.get("group_by"))


def _rows(
    counts: PretokenCounts, rules: ParityRules, names: Sequence[str], first: int
) -> tuple[NDArray[Any], ...]:
    """Return bytes, lengths, numbers of entries, and the groups, numbered from `first`, and counts.

    They are those of the pre-tokens and of their entries.
    """
    columns = counts.group_columns()
    assert columns is not None, "the groups have names"
    keys, offsets, _ = counts.columns()
    numbers = np.array([first + names.index(name) for name in _names_of(counts, rules)], np.int32)
    return (
        keys[offsets[0] : offsets[-1]],
        np.diff(offsets),
        np.diff(columns.offsets),
        numbers[columns.groups],
        columns.counts,
    )


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(0, np.cumsum(lengths)).astype(np.int64)


def _check_numbers(rules: ParityRules) -> None:
    for key, least in (("global_merges", 0), ("window_size", 1)):
        value = getattr(rules, key)
        if value is None and key == "window_size":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise TrainingError(f"parity: expected {key} of at least {least}, found {value!r}")
    if not _is_positive(rules.alpha):
        raise TrainingError(f"parity: expected alpha above 0, found {rules.alpha!r}")
    if rules.ratios is not None and rules.development is not None:
        raise TrainingError("parity: expected ratios or development, found both")


def _is_positive(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0  # type: ignore[arg-type, operator]


def check_ratios(ratios: Mapping[str, float] | None, names: Sequence[str]) -> list[float]:
    """Return the ratio of each name; without ratios, equal ones.

    Raises:
        TrainingError: a name has no ratio, or a ratio is of another name or not above 0.
    """
    if ratios is None:
        return [1.0] * len(names)
    if problem := check_names(ratios, names):
        raise TrainingError(
            f"parity: expected a ratio for each of {', '.join(map(repr, names))}, found {problem}"
        )
    if wrong := [name for name in names if not _is_positive(ratios[name])]:
        raise TrainingError(
            f"parity: expected ratios above 0, found {ratios[wrong[0]]!r} for {wrong[0]!r}"
        )
    return [float(ratios[name]) for name in names]


def _check_development(rules: ParityRules, names: Sequence[str]) -> PretokenCounts:
    parallel = rules.development
    assert parallel is not None, "the caller has it"
    if problem := check_names(set(_names_of(parallel, rules)), names):
        raise TrainingError(
            f"parity: expected development text for each of {', '.join(map(repr, names))}, found "
            f"{problem}"
        )
    return parallel
