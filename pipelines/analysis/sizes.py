"""`beam-bpe sizes`: what vocabularies of several sizes make of a counted corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bpe_core import BPETokenizer, PretokenCounts, VocabularySize, VocabularyUse
from bpe_core.short_repr import short_repr
from bpe_core.visible_text import visible
from bpe_core.vocabulary_sizes import NEWEST, measure_vocabulary_sizes
from pipelines.console.tables import format_table

_BAR_WIDTH: Final = 40
_PARTS_SHOWN: Final = 20
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
    """Use of vocabularies of several sizes by a corpus and its parts.

    Attributes:
        sizes: The sizes, ascending.
        name: Name of a source without a name, or of all sources if they are not kept apart.
    """

    sizes: Sequence[VocabularySize]
    name: str

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "sizes": [
                {
                    "vocab_size": size.vocab_size,
                    "ids": size.ids,
                    "total": _to_json(size.total),
                    "sources": self._sources_to_json(size),
                }
                for size in self.sizes
            ]
        }

    def _sources_to_json(self, size: VocabularySize) -> dict[str, Any]:
        found = {name or self.name: _to_json(use) for name, use in self._sources_of(size).items()}
        for group, use in size.groups.items():
            values: dict[str, Any] = found[group.source or self.name].setdefault("values", {})
            values[group.value or ""] = _to_json(use)
        return found

    def _sources_of(self, size: VocabularySize) -> Mapping[str, VocabularyUse]:
        return size.sources or {self.name: size.total}

    def __str__(self) -> str:
        """Return the report as text."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        parts = self._parts()
        for name, uses in parts[:_PARTS_SHOWN]:
            yield visible(name)
            rows = [_row(size, use) for size, use in zip(self.sizes, uses, strict=True)]
            yield from format_table([_HEAD, *rows])
            yield ""
        if len(parts) > _PARTS_SHOWN:
            yield f"and {len(parts) - _PARTS_SHOWN:,} more, with --json"
            yield ""
        yield "bytes per token"
        yield from self._plot(parts[:_PARTS_SHOWN])
        reached = {size.ids for size in self.sizes if size.ids < size.vocab_size}
        if reached:
            yield ""
            yield f"Training ends at {max(reached):,} ids: nothing more can be merged."

    def _parts(self) -> list[tuple[str, list[VocabularyUse]]]:
        """Return names and uses of all text, of each source and of each group."""
        sources = [
            (name or self.name, [self._sources_of(size)[name] for size in self.sizes])
            for name in self._sources_of(self.sizes[0])
        ]
        groups = [
            (
                f"{group.source or self.name}, {group.value or '(no value)'}",
                [size.groups[group] for size in self.sizes],
            )
            for group in self.sizes[0].groups
        ]
        if len(sources) == 1:
            return [*sources, *groups]
        return [("all sources", [size.total for size in self.sizes]), *sources, *groups]

    def _plot(self, parts: Sequence[tuple[str, Sequence[VocabularyUse]]]) -> Iterator[str]:
        most = max(use.bytes_per_token for _, uses in parts for use in uses) or 1
        width = max(len(f"{size.vocab_size:,}") for size in self.sizes)
        for name, uses in parts:
            if len(parts) > 1:
                yield f"  {visible(name)}"
            for size, use in zip(self.sizes, uses, strict=True):
                bar = "█" * round(use.bytes_per_token * _BAR_WIDTH / most)
                yield f"  {size.vocab_size:>{width},}  {bar} {use.bytes_per_token:.2f}"


def measure_sizes(
    tokenizer: BPETokenizer, counts: PretokenCounts, sizes: Sequence[int], name: str
) -> SizesReport:
    """Return the use of a tokenizer's vocabularies of several sizes by counted text.

    Args:
        tokenizer: Tokenizer that contains the largest size.
        counts: All counts of the text.
        sizes: The sizes, at least one.
        name: Name of a source without a name, or of all sources if they are not kept apart.
    """
    measured = measure_vocabulary_sizes(tokenizer, counts, sorted(set(sizes)))
    return SizesReport(sizes=measured, name=name)


def _to_json(use: VocabularyUse) -> dict[str, Any]:
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
