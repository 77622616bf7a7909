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
from pipelines.analysis.token_uses import TokenUses, count_uses, read_uses
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
# Tokens of one source alone: used so often that this number of uses would be expected in the other
# sources if it was used there as often; and the most surprising ones of each source.
_EXPECTED_ELSEWHERE: Final = 20
_OF_A_SOURCE: Final = 50
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
        most_documents: upper bound of the documents with it; None if documents were not counted.
    """

    token_id: int
    token: bytes
    reasons: tuple[Reason, ...]
    uses: int | None
    merge_count: int | None
    source: str | None
    most_documents: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the token as JSON values."""
        return {
            **token_to_json(self.token_id, self.token),
            "reasons": list(self.reasons),
            "uses": self.uses,
            "merge_count": self.merge_count,
            "source": self.source,
            **({} if self.most_documents is None else {"most_documents": self.most_documents}),
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
            yield f"not listed: {text}"
        if self.tokens[:limit]:
            yield ""
            yield f"{'id':>8} {'uses':>12} {'merged':>12}  token, reasons"
        for token in self.tokens[:limit]:
            numbers = (token.token_id, *("–" if n is None else f"{n:,}" for n in _numbers(token)))
            why = ", ".join(_describe(token, reason) for reason in token.reasons)
            yield f"{numbers[0]:>8} {numbers[1]:>12} {numbers[2]:>12}  " + (
                f"{quote_token(token.token)}: {why}"
            )
        if len(self.tokens) > limit:
            yield f"and {len(self.tokens) - limit:,} more: --limit N, --json"


def _describe(token: Suspect, reason: Reason) -> str:
    if reason != "one_source" or token.source is None:
        return _REASONS[reason]
    number = token.most_documents
    where = "" if number is None else f", in {number:,} documents at most"
    return f"only {visible(token.source)} has it{where}"


def _numbers(token: Suspect) -> tuple[int | None, int | None]:
    return token.uses, token.merge_count


def find_suspects(subject: Subject, known: TokenUses | None = None) -> Suspects:
    """Return the tokens that training made and that encoding never or hardly uses, and others.

    They are ordered by their strongest reason (unreachable, unused, hardly used, one source), and
    then by the number of occurrences that training merged. Those of one source alone are ordered by
    the uses in a document with them or, without numbers of documents, by their uses.

    Args:
        subject: a byte-level tokenizer, and its output.
        known: uses by the counts of the subject or, without counts, in its token files, if they
            have been read.

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
    found = _examine_uses(subject, known, missing)
    uses = None if found is None else found.uses
    merged = _merge_counts(model)
    examined = lengths_of(model.token_bytes) > 1
    marks: dict[Reason, NDArray[np.bool_]] = {"unreachable": examined & ~_find_reachable(model)}
    if uses is not None:
        marks["unused"] = examined & (uses == 0)
        marks["hardly_used"] = examined & (uses > 0) & (uses < merged * _HARDLY)
    surprise = np.maximum(merged, 0).astype(np.float64)
    sources: Sequence[str] = () if found is None else found.sources
    if found is not None and len(sources) > 1:
        concentration = found.uses / np.maximum(
            1 if found.documents is None else found.documents, 1
        )
        marks["one_source"] = examined & _find_surprising(found, concentration, missing)
    strongest = np.full(len(examined), len(_REASONS))
    for strength, reason in reversed(list(enumerate(_REASONS))):
        if reason in marks:
            strongest[marks[reason]] = strength
    if found is not None and len(sources) > 1:
        surprise = np.where(strongest == len(_REASONS) - 1, concentration, surprise)
    order = np.lexsort((model.token_ids, -surprise, strongest))
    rows = order[: int((strongest < len(_REASONS)).sum())].tolist()
    tokens = bytes_of_ids(model, model.token_ids[rows].tolist())
    return Suspects(
        tokens=tuple(
            Suspect(
                token_id=int(model.token_ids[row]),
                token=token,
                reasons=tuple(reason for reason, marked in marks.items() if marked[row]),
                uses=None if uses is None else int(uses[row]),
                merge_count=int(merged[row]) if merged[row] > 0 else None,
                source=_name_source(found, row),
                most_documents=None
                if found is None or found.documents is None
                else int(found.documents[row]),
            )
            for row, token in zip(rows, tokens, strict=True)
        ),
        of=int(examined.sum()),
        missing=tuple(missing),
    )


def _name_source(found: TokenUses | None, row: int) -> str | None:
    """Return the name of the source that alone has a token; None if others have it, or are none."""
    number = -1 if found is None or len(found.sources) < 2 else int(found.only_source[row])
    return None if found is None or number < 0 else found.sources[number]


def _find_surprising(
    found: TokenUses, surprise: NDArray[np.float64], missing: list[str]
) -> NDArray[np.bool_]:
    """Return true for the most surprising of the tokens that each source alone has."""
    surprising = np.zeros(len(found.uses), bool)
    whole = sum(found.source_tokens)
    for number, name in enumerate(found.sources):
        own = found.source_tokens[number]
        expected = found.uses * ((whole - own) / max(own, 1))
        rows = np.flatnonzero((found.only_source == number) & (expected >= _EXPECTED_ELSEWHERE))
        first = np.lexsort((rows, -found.uses[rows], -surprise[rows]))[:_OF_A_SOURCE]
        surprising[rows[first]] = True
        if len(rows) > _OF_A_SOURCE:
            missing.append(
                f"{visible(name)}: {len(rows) - _OF_A_SOURCE:,} more tokens that it alone has, as "
                "text of a language or kind of its own does"
            )
    return surprising


def _examine_uses(
    subject: Subject, known: TokenUses | None, missing: list[str]
) -> TokenUses | None:
    """Return the uses of the ordinary tokens by the counts or in the token files, if known."""
    model = subject.model
    if subject.counts is not None:
        try:
            found = known or count_uses(model, subject.counts)
        except TrainingError as error:
            missing.append(f"counts: {error}")
        else:
            if len(found.sources) < 2:
                missing.append("sources: the counts are not kept apart by source")
            return found
    if subject.dataset is None:
        missing.append(f"uses: {subject.lost_counts or 'there are neither counts nor token files'}")
        return None
    return known or TokenUses.of_all_text(read_uses(subject.dataset, model))


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
