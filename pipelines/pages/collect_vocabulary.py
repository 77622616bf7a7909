"""Collection of what is known about the vocabulary: uses, sizes, groups, suspicious tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bpe_core import BPETokenizer
from bpe_core.errors import BpeError
from bpe_core.model import TokenizerModel
from bpe_core.visible_text import visible
from pipelines.analysis.evaluation import count_scripts
from pipelines.analysis.sizes import measure_sizes
from pipelines.analysis.subjects import Subject
from pipelines.analysis.suspects import Reason, find_suspects
from pipelines.analysis.token_kinds import TOKEN_KINDS, classify_token
from pipelines.analysis.token_uses import TokenUses
from pipelines.counting.load import load_all_columns
from pipelines.pages.found_output import ALL, FoundOutput, describe_too_many
from pipelines.pages.report_data import CurvePoint, Group, RankPoint, TokenRow, Tokens
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = ["draw_curve", "group_kinds", "group_scripts", "list_tokens", "rank_uses"]

_ROWS: Final = 24  # of each table of tokens
_NEVER_SHOWN: Final = 60
_RANKS: Final = 240
_SIZES: Final = 12
_ONLY_SOURCE: Final = "one_source"
_BYTES: Final = 256
_REASONS: Final[Mapping[Reason, str]] = {
    "unreachable": "its own bytes become other tokens",
    "unused": "never used",
    "hardly_used": "hardly used",
    _ONLY_SOURCE: "in one source only",
}


def draw_curve(found: FoundOutput, shown: Mapping[str, str]) -> Iterator[CurvePoint]:
    """Yield bytes per token by size of the vocabulary, of all text and of each source."""
    model = found.model
    if found.counts is None or model is None:
        found.notes["curve"] = "Sizes are compared by counts, which this output does not have."
        return
    if not isinstance(model, TokenizerModel) or model.characters is not None:
        found.notes["curve"] = "Sizes are compared for tokenizers that merge bytes."
        return
    if not found.has_few_counts:
        found.notes["curve"] = describe_too_many(found, "beam-bpe sizes")
        return
    least = len(model.special_tokens) + _BYTES
    most = len(model)
    if most <= least:
        found.notes["curve"] = "The tokenizer has no merges."
        return
    sizes = sorted(set(np.geomspace(least, most, _SIZES).round().astype(int).tolist()))
    try:
        counts = load_all_columns(found.counts)
        measured = measure_sizes(BPETokenizer.from_model(model), counts, sizes, ALL).sizes
    except BpeError as error:
        found.notes["curve"] = f"Sizes cannot be compared: {error}"
        return
    for size in measured:
        yield CurvePoint(source=ALL, ids=size.ids, bytes_per_token=size.total.bytes_per_token)
        for name, use in size.sources.items() if len(size.sources) > 1 else ():
            if shown.get(name) == name:
                yield CurvePoint(source=name, ids=size.ids, bytes_per_token=use.bytes_per_token)


def rank_uses(vocabulary: Vocabulary, uses: NDArray[np.int64]) -> Iterator[RankPoint]:
    """Yield points of the curve of uses by rank, evenly apart on a logarithmic scale."""
    order = np.argsort(-uses, kind="stable")
    ordered = uses[order]
    used = int((uses > 0).sum())
    if not used:
        return
    shares = np.cumsum(ordered) / ordered.sum()
    for place in sorted(set(np.geomspace(1, used, _RANKS).round().astype(int).tolist())):
        row = int(order[place - 1])
        yield RankPoint(
            rank=place,
            uses=int(ordered[place - 1]),
            share=float(shares[place - 1]),
            token=visible(vocabulary.token(int(vocabulary.ids[row])) or b""),
        )


def group_scripts(vocabulary: Vocabulary, uses: NDArray[np.int64] | None) -> Iterator[Group]:
    """Yield the ids and tokens of each script."""
    data, bounds = vocabulary.decode(vocabulary.ids)
    rows = np.arange(len(vocabulary))
    weights = np.zeros(len(rows), np.int64) if uses is None else uses
    found = list(count_scripts(data, bounds, rows, weights))
    for script, ids, tokens in found if uses is not None else sorted(found, key=lambda f: -f[1]):
        yield Group(
            name="no script" if script is None else script.replace("_", " "),
            ids=ids,
            tokens=None if uses is None else tokens,
        )


def group_kinds(
    found: FoundOutput, vocabulary: Vocabulary, uses: NDArray[np.int64] | None
) -> Iterator[Group]:
    """Yield the ids and tokens of each kind."""
    assert found.model is not None
    special = set(found.model.special_tokens.values())
    ids: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    listed = vocabulary.ids.tolist()
    weights = [0] * len(listed) if uses is None else uses.tolist()
    for token_id, token, weight in zip(listed, vocabulary.tokens(), weights, strict=True):
        kind = TOKEN_KINDS["special" if token_id in special else classify_token(token)]
        ids[kind] += 1
        tokens[kind] += weight
    for kind, number in ids.most_common():
        yield Group(name=kind, ids=number, tokens=None if uses is None else tokens[kind])


def list_tokens(
    found: FoundOutput, vocabulary: Vocabulary, uses: NDArray[np.int64] | None
) -> Tokens:
    """Return tables of tokens: frequent, long, rare, never used, suspicious."""
    assert found.model is not None
    texts = vocabulary.tokens()
    lengths = np.array([len(text) for text in texts], np.int64)
    is_special = np.isin(vocabulary.ids, list(found.model.special_tokens.values()))
    ordinary = np.where(is_special, -1, lengths)

    def rows(order: NDArray[np.integer], number: int = _ROWS) -> tuple[TokenRow, ...]:
        return tuple(
            TokenRow(
                id=int(vocabulary.ids[row]),
                hex=texts[row].hex(),
                uses=None if uses is None else int(uses[row]),
            )
            for row in order[:number].tolist()
        )

    never = frequent = rarest = np.zeros(0, np.int64)
    if uses is not None:
        by_use = np.argsort(-uses, kind="stable")
        frequent = by_use[uses[by_use] > 0]
        rarest = frequent[::-1]
        never = np.flatnonzero(uses == 0)
        never = never[np.argsort(lengths[never] == 1, kind="stable")]  # bytes last
    suspects, reasons = _list_suspects(found, vocabulary, uses)
    return Tokens(
        used=None if uses is None else len(frequent),
        unused=None if uses is None else len(never),
        frequent=rows(frequent),
        longest=rows(np.argsort(-ordinary, kind="stable")),
        rarest=rows(rarest),
        never=rows(never, _NEVER_SHOWN),
        suspects=suspects,
        suspect_reasons=reasons,
    )


def _list_suspects(
    found: FoundOutput, vocabulary: Vocabulary, uses: NDArray[np.int64] | None
) -> tuple[tuple[TokenRow, ...], dict[str, int]]:
    """Return the first suspicious tokens, and the number of them by reason."""
    model = found.model
    if not isinstance(model, TokenizerModel) or model.characters is not None:
        found.notes["suspects"] = "Only tokenizers that merge bytes are examined."
        return (), {}
    subject = Subject(
        location=found.location,
        model=model,
        output=found.output,
        # Statistics have the uses, too, at a fraction of the time.
        counts=found.counts if found.has_few_counts and found.tokens is None else None,
        lost_counts=found.lost_counts,
        dataset=None if found.tokens is None else found.dataset,
    )
    of_statistics = None
    if found.statistics is not None and uses is not None:
        of_statistics = TokenUses.of_all_text(uses[vocabulary.rows_of(model.token_ids)])
    suspects = find_suspects(subject, found.counted_uses or of_statistics)
    if suspects.missing:
        found.notes["suspects"] = "Not examined: " + "; ".join(suspects.missing) + "."
    reasons = Counter(reason for token in suspects.tokens for reason in token.reasons)
    worst = [token for token in suspects.tokens if token.reasons != (_ONLY_SOURCE,)]
    return tuple(
        TokenRow(
            id=token.token_id,
            hex=token.token.hex(),
            uses=token.uses,
            remark=", ".join(_REASONS[reason] for reason in token.reasons),
        )
        for token in worst[:_ROWS]
    ), {text: reasons[reason] for reason, text in _REASONS.items() if reasons[reason]}
