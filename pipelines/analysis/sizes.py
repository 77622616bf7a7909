"""`beam-bpe sizes`: what vocabularies of several sizes make of a counted corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bpe_core import BPETokenizer, PretokenCounts, VocabularySize, VocabularyUse
from bpe_core.short_repr import short_repr
from bpe_core.vocabulary_sizes import NEWEST, measure_vocabulary_sizes
from pipelines.console.tables import format_table
from pipelines.console.terminal import visible

_BAR_WIDTH: Final = 40
_HEAD: Final = (
    "vocabulary",
    "tokens",
    "bytes/token",
    "fertility",
    "in one token",
    "used ids",
    f"last {NEWEST:,}",
)


@short_repr
@dataclass(frozen=True, kw_only=True)
class SizesReport:
    """Use of vocabularies of several sizes by the text of each source.

    Attributes:
        sizes: The sizes, ascending.
        sources: Use by each source, by its name, for each of the sizes.
    """

    sizes: Sequence[VocabularySize]
    sources: Sequence[Mapping[str, VocabularyUse]]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "sizes": [
                {
                    "vocab_size": size.vocab_size,
                    "ids": size.ids,
                    "total": _to_json(size.total),
                    "sources": {name: _to_json(use) for name, use in sources.items()},
                }
                for size, sources in zip(self.sizes, self.sources, strict=True)
            ]
        }

    def __str__(self) -> str:
        """Return the report as text."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        uses = {"all sources": [size.total for size in self.sizes]}
        names = list(self.sources[0]) if self.sources else []
        if len(names) == 1:
            uses = {}
        uses |= {name: [sources[name] for sources in self.sources] for name in names}
        for name, of_sizes in uses.items():
            yield visible(name)
            rows = [_row(size, use) for size, use in zip(self.sizes, of_sizes, strict=True)]
            yield from format_table([_HEAD, *rows])
            yield ""
        yield "bytes per token"
        yield from self._plot(uses)
        reached = {size.ids for size in self.sizes if size.ids < size.vocab_size}
        if reached:
            yield ""
            yield f"Training ends at {max(reached):,} ids: nothing more can be merged."

    def _plot(self, uses: Mapping[str, Sequence[VocabularyUse]]) -> Iterator[str]:
        most = max((use.bytes_per_token for of in uses.values() for use in of), default=0) or 1
        width = max(len(f"{size.vocab_size:,}") for size in self.sizes)
        for name, of_sizes in uses.items():
            if len(uses) > 1:
                yield f"  {visible(name)}"
            for size, use in zip(self.sizes, of_sizes, strict=True):
                bar = "█" * round(use.bytes_per_token * _BAR_WIDTH / most)
                yield f"  {size.vocab_size:>{width},}  {bar} {use.bytes_per_token:.2f}"


def measure_sizes(
    tokenizer: BPETokenizer, counts: PretokenCounts, sizes: Sequence[int], name: str
) -> SizesReport:
    """Return the use of a tokenizer's vocabularies of several sizes by counted text.

    Args:
        tokenizer: Tokenizer that contains the largest size.
        counts: All counts of the text.
        sizes: The sizes.
        name: Name of the text, if its counts are not kept apart by source.
    """
    measured = measure_vocabulary_sizes(tokenizer, counts, sorted(set(sizes)))
    return SizesReport(sizes=measured, sources=[{name: size.total} for size in measured])


def _to_json(use: VocabularyUse) -> dict[str, int | float]:
    return {
        "tokens": use.tokens,
        "bytes": use.bytes,
        "bytes_per_token": use.bytes_per_token,
        "pretokens": use.pretokens,
        "fertility": use.fertility,
        "single_token_pretokens": use.single_token_pretokens,
        "used_ids": use.used_ids,
        "last_thousand_tokens": use.last_thousand_tokens,
    }


def _row(size: VocabularySize, use: VocabularyUse) -> list[str]:
    single = use.single_token_pretokens / use.pretokens if use.pretokens else 0.0
    return [
        f"{size.vocab_size:,}",
        f"{use.tokens:,}",
        f"{use.bytes_per_token:.3f}",
        f"{use.fertility:.3f}",
        f"{single:.1%}",
        f"{use.used_ids:,}",
        f"{use.last_thousand_tokens:,}",
    ]
