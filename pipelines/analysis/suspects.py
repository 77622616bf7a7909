"""`beam-bpe explain --suspects`: tokens that look like mistakes of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpe_core.buffers import flatten, lengths_of
from bpe_core.errors import TrainingError
from bpe_core.model import TokenizerModel
from bpe_core.pretoken_encoding import make_pretoken_encoder
from bpe_core.short_repr import short_repr
from bpe_core.visible_text import visible
from pipelines.analysis.subjects import Subject
from pipelines.analysis.token_uses import count_uses, read_uses
from pipelines.analysis.tokens import bytes_of_ids, quote_token, token_to_json
from pipelines.errors import ConfigError

__all__ = ["Reason", "Suspect", "Suspects", "find_suspects"]

Reason: TypeAlias = Literal["unreachable", "unused", "hardly_used", "one_source"]

# The strongest first.
_REASONS: Final[Mapping[Reason, str]] = {
    "unreachable": "its own bytes become other tokens",
    "unused": "encoding never uses it",
    "hardly_used": "encoding hardly uses it",
    "one_source": "one source alone has it",
}
# Used less often than this share of the occurrences that training merged.
_HARDLY: Final = 0.01
_SHOWN: Final = 20


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A token that looks like a mistake.

    Attributes:
        token_id, token: id and bytes.
        reasons: why it is suspected, the strongest reason first.
        uses: number of times that encoding uses it; None if unknown.
        merge_count: number of occurrences when its merge was learned; None if unknown.
        source: name of the source that alone has it, or None.
    """

    token_id: int
    token: bytes
    reasons: tuple[Reason, ...]
    uses: int | None
    merge_count: int | None
    source: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the token as JSON values."""
        return {
            **token_to_json(self.token_id, self.token),
            "reasons": list(self.reasons),
            "uses": self.uses,
            "merge_count": self.merge_count,
            "source": self.source,
        }


@short_repr
@dataclass(frozen=True, kw_only=True)
class Suspects:
    """Suspected tokens, the most suspicious first.

    Attributes:
        tokens: the suspected tokens.
        of: number of the tokens that were examined: all that are neither bytes nor special.
        missing: what could not be examined, with the reason.
    """

    tokens: tuple[Suspect, ...]
    of: int
    missing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all suspected tokens as JSON values."""
        return {
            "suspects": [token.to_json() for token in self.tokens],
            "of": self.of,
            "missing": list(self.missing),
        }

    def format(self, limit: int = _SHOWN) -> str:
        """Return the first suspected tokens as text."""
        return "\n".join(self._lines(limit))

    def _lines(self, limit: int) -> Iterator[str]:
        yield f"suspects     {len(self.tokens):,} of {self.of:,} tokens"
        for reason, text in _REASONS.items():
            if number := sum(reason in token.reasons for token in self.tokens):
                yield f"{number:>12,} {text}"
        for text in self.missing:
            yield f"not examined: {text}"
        if self.tokens[:limit]:
            yield ""
            yield f"{'id':>8} {'uses':>12} {'merged':>12}  token, reasons"
        for token in self.tokens[:limit]:
            numbers = (token.token_id, *("–" if n is None else f"{n:,}" for n in _numbers(token)))
            why = ", ".join(
                f"only {visible(token.source)} has it"
                if reason == "one_source" and token.source
                else _REASONS[reason]
                for reason in token.reasons
            )
            yield f"{numbers[0]:>8} {numbers[1]:>12} {numbers[2]:>12}  " + (
                f"{quote_token(token.token)}: {why}"
            )
        if len(self.tokens) > limit:
            yield f"and {len(self.tokens) - limit:,} more: --limit N, --json"


def _numbers(token: Suspect) -> tuple[int | None, int | None]:
    return token.uses, token.merge_count


def find_suspects(subject: Subject) -> Suspects:
    """Return the tokens that training made and that encoding never or hardly uses, and others.

    They are ordered by their strongest reason (unreachable, unused, hardly used, one source), and
    then by the number of occurrences that training merged or encoding uses.

    Args:
        subject: a byte-level tokenizer, and its output.

    Raises:
        ConfigError: the tokenizer merges characters.
        InputError, OutputError: a file of the output is damaged.
    """
    model = subject.model
    if model.characters is not None:
        raise ConfigError(
            "Tokens of this tokenizer cannot be examined.",
            expected="a byte-level tokenizer",
            found="one that merges characters",
            where=subject.location,
        )
    missing: list[str] = []
    uses, sources, only = _examine_uses(subject, missing)
    merged = _merge_counts(model)
    examined = lengths_of(model.token_bytes) > 1
    marks: dict[Reason, NDArray[np.bool_]] = {"unreachable": examined & ~_find_reachable(model)}
    if uses is not None:
        marks["unused"] = examined & (uses == 0)
        marks["hardly_used"] = examined & (uses > 0) & (uses < merged * _HARDLY)
    if len(sources) > 1:
        marks["one_source"] = examined & (only >= 0)
    strongest = np.full(len(examined), len(_REASONS))
    for strength, reason in reversed(list(enumerate(_REASONS))):
        if reason in marks:
            strongest[marks[reason]] = strength
    weights = np.where(
        strongest == len(_REASONS) - 1, merged if uses is None else uses, np.maximum(merged, 0)
    )
    order = np.lexsort((model.token_ids, -weights, strongest))
    rows = order[: int((strongest < len(_REASONS)).sum())].tolist()
    tokens = bytes_of_ids(model, model.token_ids[rows].tolist())
    return Suspects(
        tokens=tuple(
            Suspect(
                token_id=int(model.token_ids[row]),
                token=token,
                reasons=tuple(reason for reason, found in marks.items() if found[row]),
                uses=None if uses is None else int(uses[row]),
                merge_count=int(merged[row]) if merged[row] > 0 else None,
                source=sources[only[row]] if "one_source" in marks and only[row] >= 0 else None,
            )
            for row, token in zip(rows, tokens, strict=True)
        ),
        of=int(examined.sum()),
        missing=tuple(missing),
    )


def _examine_uses(
    subject: Subject, missing: list[str]
) -> tuple[NDArray[np.int64] | None, Sequence[str], NDArray[np.int64]]:
    """Return uses of the ordinary tokens, names of sources, and the source that alone has each."""
    model = subject.model
    nowhere = np.full(len(model.token_ids), -1, np.int64)
    if subject.counts is not None:
        try:
            found = count_uses(model, subject.counts)
        except TrainingError as error:
            missing.append(f"counts: {error}")
        else:
            if len(found.sources) < 2:
                missing.append("sources: the counts are not kept apart by source")
            return found.uses, found.sources, found.only_source
    if subject.dataset is None:
        missing.append(f"uses: {subject.lost_counts or 'there are neither counts nor token files'}")
        return None, (), nowhere
    return read_uses(subject.dataset, model), (), nowhere


def _merge_counts(model: TokenizerModel) -> NDArray[np.int64]:
    """Return the occurrences that the merges of each token joined when learned; 0 if unknown."""
    merged = np.zeros(len(model.token_ids), np.int64)
    if model.merge_counts is not None:
        rows = np.searchsorted(model.token_ids, model.merges[:, 2])
        np.add.at(merged, rows, model.merge_counts)
    return merged


def _find_reachable(model: TokenizerModel) -> NDArray[np.bool_]:
    """Return true for tokens whose own bytes, as a pre-token, become them."""
    keys, offsets = flatten(model.token_bytes)
    size = len(model.token_ids)
    no_specials = np.full(size, -1, np.int64)
    ids, bounds = make_pretoken_encoder(model).encode_spans(
        keys, offsets[:-1], offsets[1:], no_specials
    )
    first = ids[bounds[:-1]]
    reachable: NDArray[np.bool_] = (np.diff(bounds) == 1) & (first == np.arange(size))
    return reachable
