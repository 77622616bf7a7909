"""`beam-bpe compare`: two tokenizers or datasets, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from bpe_core.errors import BpeError
from bpe_core.model import TokenizerModel
from bpe_core.short_repr import short_repr
from bpe_core.visible_text import visible
from pipelines.analysis.evaluation import shorten_locations
from pipelines.analysis.evaluation_sample import open_sample
from pipelines.analysis.evaluation_texts import CountedText, EvaluationText
from pipelines.console.tables import format_table
from pipelines.errors import ConfigError
from pipelines.pages.collect import collect_found
from pipelines.pages.found_output import FoundOutput, find_output
from pipelines.pages.report_data import ReportData, TokenRow
from pipelines.pages.tables import Column, Figure, Format, Record, Table
from pipelines.pages.templates import CHART_SCRIPTS, embed_json, render_page
from pipelines.tokenizers.files import make_tokenizer

__all__ = ["Comparison", "compare"]

_ROWS: Final = 20
_GROUPS: Final = 14
_ALL: Final = "all"


@dataclass(frozen=True, kw_only=True)
class SharedVocabulary:
    """Tokens of two vocabularies, compared by their bytes.

    Attributes:
        shared, only: number of tokens that both have, and that each alone has.
        same_ids: number of the shared ones that have the same id.
        same_merges: number of merges until the first that differs; None without merges in both.
        frequent: the most frequent tokens that each alone has; the first ones if uses are unknown.
    """

    shared: int
    only: tuple[int, int]
    same_ids: int
    same_merges: int | None
    frequent: tuple[tuple[TokenRow, ...], tuple[TokenRow, ...]]


@dataclass(frozen=True, kw_only=True)
class SameText:
    """Tokens that both tokenizers make of the same text, by group."""

    description: str
    groups: tuple[tuple[str, int, int, int], ...]  # name, bytes, tokens of both


@short_repr
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two outputs or tokenizers, side by side.

    Attributes:
        reports: contents of their reports.
        names: short and different names.
        vocabulary: their vocabularies; None unless both have a tokenizer.
        texts: measures on the texts of both; those that could not be measured are left out.
        notes: why something is missing.
    """

    reports: tuple[ReportData, ReportData]
    names: tuple[str, str]
    vocabulary: SharedVocabulary | None
    texts: tuple[SameText, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values, without the tokenizers themselves."""
        first, second = (replace(report, encoder=None) for report in self.reports)
        return asdict(replace(self, reports=(first, second)))

    def __str__(self) -> str:
        """Return the comparison as text."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for table in self._tables():
            yield visible(table.title)
            rows = [[visible(column.label) for column in table.columns]]
            rows += [[visible(str(c.show(row))) for c in table.columns] for row in table.rows]
            yield from format_table(rows)
            yield ""
        yield from (f"note: {visible(note)}" for note in self.notes)

    def to_html(self) -> str:
        """Return the comparison as a page of HTML that needs nothing else."""
        figures = list(self._figures())
        return render_page(
            "comparison.html",
            scripts=CHART_SCRIPTS,
            title=f"{self.names[0]} and {self.names[1]} – bpe-beam comparison",
            names=self.names,
            reports=self.reports,
            tables=list(self._tables()),
            figures=figures,
            token_tables=list(self._token_tables()),
            remarks=self.notes,
            chart_data=embed_json(
                {
                    "source_names": self.names,
                    "charts": {figure.name: figure.rows for figure in figures},
                }
            ),
        )

    # --- tables

    def _columns(self, label: str = "", kind: Format = "cell") -> list[Column]:
        first, second = self.names
        return [
            Column("label", label, "text"),
            Column("first", first, kind),
            Column("second", second, kind),
        ]

    def _row(self, label: str, values: Sequence[object]) -> Record:
        first, second = values
        return {"label": label, "first": first, "second": second}

    def _tables(self) -> Iterator[Table]:
        first, second = self.reports
        yield Table(
            title="Numbers",
            columns=self._columns(),
            rows=[
                self._row(label, [report.headline.get(label) for report in self.reports])
                for label in dict.fromkeys([*first.headline, *second.headline])
            ],
        )
        facts = [report.facts.get("Tokenizer", {}) for report in self.reports]
        yield Table(
            title="Tokenizers",
            columns=self._columns(kind="text"),
            rows=[
                self._row(label, [fact.get(label) for fact in facts])
                for label in dict.fromkeys([*facts[0], *facts[1]])
            ],
        )
        if self.vocabulary is not None:
            yield self._vocabulary_table(self.vocabulary)
        for text in self.texts:
            yield Table(
                title=f"Bytes per token of the same text: {text.description}",
                columns=self._columns(),
                rows=[
                    self._row(
                        name, [f"{size / number:.3f}" if number else None for number in tokens]
                    )
                    for name, size, *tokens in text.groups
                ],
            )
        if first.sources and second.sources:
            yield from self._source_tables()

    def _vocabulary_table(self, found: SharedVocabulary) -> Table:
        return Table(
            title="Vocabularies",
            columns=self._columns(),
            rows=[
                self._row("tokens that both have", [f"{found.shared:,}"] * 2),
                self._row("with the same id", [f"{found.same_ids:,}"] * 2),
                self._row("tokens that it alone has", [f"{n:,}" for n in found.only]),
                self._row(
                    "merges until the first difference",
                    [None if found.same_merges is None else f"{found.same_merges:,}"] * 2,
                ),
            ],
        )

    def _source_tables(self) -> Iterator[Table]:
        by_name = [{source.name: source for source in report.sources} for report in self.reports]
        names = list(dict.fromkeys([*by_name[0], *by_name[1]]))
        for title, key, text in (
            ("Documents by source", "documents", "{:,}"),
            ("Tokens by source", "tokens", "{:,}"),
            ("Bytes per token by source", "bytes_per_token", "{:.3f}"),
        ):
            rows = []
            for name in names:
                values = [getattr(found.get(name), key, None) for found in by_name]
                rows.append(
                    self._row(name, [None if v is None else text.format(v) for v in values])
                )
            yield Table(title=title, columns=self._columns("source"), rows=rows)

    def _token_tables(self) -> Iterator[Table]:
        if self.vocabulary is None:
            return
        for name, rows in zip(self.names, self.vocabulary.frequent, strict=True):
            if rows:
                yield Table(
                    title=f"Only in {name}",
                    text="The most frequent tokens that the other does not have.",
                    columns=[
                        Column("id", "id"),
                        Column("shown", "token", "token"),
                        Column("uses", "uses"),
                    ],
                    rows=[{**asdict(row), "shown": row.shown, "title": row.title} for row in rows],
                )

    # --- charts

    def _figures(self) -> Iterator[Figure]:
        source = Column("source", "", "text")
        rows = [
            {"source": name, "ids": point.ids, "bytes_per_token": point.bytes_per_token}
            for name, report in zip(self.names, self.reports, strict=True)
            for point in report.curve
            if point.source == _ALL
        ]
        if rows:
            yield Figure(
                name="curve",
                title="Bytes per token by size of the vocabulary",
                text="Each on the text that it was trained from.",
                columns=[
                    source,
                    Column("ids", "ids"),
                    Column("bytes_per_token", "bytes per token", "ratio"),
                ],
                rows=rows,
            )
        if any(report.lengths for report in self.reports):
            yield Figure(
                name="compared_lengths",
                title="Tokens of a document",
                columns=[
                    source,
                    Column("at_least", "at least"),
                    Column("below", "below"),
                    Column("share", "share of documents", "percent"),
                ],
                rows=list(self._length_rows()),
            )
        if any(report.ranks for report in self.reports):
            yield Figure(
                name="compared_ranks",
                title="Uses of ids by rank",
                text="As a share of all tokens. Both axes are logarithmic.",
                columns=[source, Column("rank", "rank"), Column("share", "share", "percent")],
                rows=list(self._rank_rows()),
            )
        for name, title in (("scripts", "By script"), ("kinds", "By kind")):
            yield Figure(
                name=f"compared_{name}",
                title=title,
                text="Share of the ids.",
                columns=[
                    Column("name", "", "text"),
                    Column("first", self.names[0], "percent"),
                    Column("second", self.names[1], "percent"),
                ],
                rows=self._group_rows(name),
            )

    def _length_rows(self) -> Iterator[Record]:
        for name, report in zip(self.names, self.reports, strict=True):
            sums: dict[tuple[float, float | None], int] = {}
            for bucket in report.lengths:
                key = bucket.at_least, bucket.below
                sums[key] = sums.get(key, 0) + bucket.documents
            total = sum(sums.values())
            for (at_least, below), documents in sorted(sums.items(), key=lambda item: item[0][0]):
                yield {
                    "source": name,
                    "at_least": int(at_least),
                    "below": None if below is None else int(below),
                    "share": documents / total,
                }

    def _rank_rows(self) -> Iterator[Record]:
        for name, report in zip(self.names, self.reports, strict=True):
            first = report.ranks[0] if report.ranks else None
            for point in report.ranks:
                # The share of the first id is that of its own uses.
                assert first is not None
                share = point.uses * first.share / first.uses
                yield {"source": name, "rank": point.rank, "share": share, "token": point.token}

    def _group_rows(self, name: str) -> list[Record]:
        shares: list[Mapping[str, float]] = []
        for report in self.reports:
            groups = getattr(report, name)
            total = sum(group.ids for group in groups)
            shares.append({group.name: group.ids / total for group in groups})
        known = sorted({*shares[0], *shares[1]}, key=lambda n: -max(s.get(n, 0) for s in shares))
        return [
            {"name": n, "first": shares[0].get(n, 0.0), "second": shares[1].get(n, 0.0)}
            for n in known[:_GROUPS]
        ]


def compare(
    first: str, second: str, storage_options: Mapping[str, Any] | None = None
) -> Comparison:
    """Return two outputs or tokenizers side by side.

    Args:
        first, second: path or URL of an output or a tokenizer, or `hf://ORG/NAME`.
        storage_options: options of their file system.

    Raises:
        ConfigError: there is neither an output nor a tokenizer, or both are the same.
        InputError, OutputError: a file is damaged or cannot be read.
    """
    if first == second:
        raise ConfigError(
            "There is nothing to compare.",
            expected="two outputs or tokenizers",
            found=f"{first} twice",
        )
    found = find_output(first, storage_options), find_output(second, storage_options)
    names = shorten_locations([one.location for one in found])
    if names[0] == names[1]:  # both are hidden
        names = ["first", "second"]
    notes: list[str] = []
    return Comparison(
        reports=(collect_found(found[0]), collect_found(found[1])),
        names=(names[0], names[1]),
        vocabulary=_compare_vocabularies(*found),
        texts=tuple(_measure_texts(found, storage_options or {}, notes)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _compare_vocabularies(first: FoundOutput, second: FoundOutput) -> SharedVocabulary | None:
    if first.vocabulary is None or second.vocabulary is None:
        return None
    ids = [
        dict(zip(vocabulary.tokens(), vocabulary.ids.tolist(), strict=True))
        for vocabulary in (first.vocabulary, second.vocabulary)
    ]
    shared = ids[0].keys() & ids[1].keys()
    only = ids[0].keys() - shared, ids[1].keys() - shared
    return SharedVocabulary(
        shared=len(shared),
        only=(len(only[0]), len(only[1])),
        same_ids=sum(ids[0][token] == ids[1][token] for token in shared),
        same_merges=_count_same_merges(first, second),
        frequent=(_list_frequent(first, ids[0], only[0]), _list_frequent(second, ids[1], only[1])),
    )


def _count_same_merges(first: FoundOutput, second: FoundOutput) -> int | None:
    if not (isinstance(first.model, TokenizerModel) and isinstance(second.model, TokenizerModel)):
        return None
    one, other = first.model.merge_bytes, second.model.merge_bytes
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _list_frequent(
    found: FoundOutput, ids: Mapping[bytes, int], only: set[bytes]
) -> tuple[TokenRow, ...]:
    by_id: Mapping[int, int] = {}
    if found.uses is not None and found.vocabulary is not None:
        by_id = dict(zip(found.vocabulary.ids.tolist(), found.uses.tolist(), strict=True))
    ordered = sorted(only, key=lambda token: (-by_id.get(ids[token], 0), ids[token]))
    return tuple(
        TokenRow(id=ids[token], hex=token.hex(), uses=by_id.get(ids[token]))
        for token in ordered[:_ROWS]
    )


def _measure_texts(
    found: tuple[FoundOutput, FoundOutput], options: Mapping[str, Any], notes: list[str]
) -> Iterator[SameText]:
    """Yield measures of both tokenizers on the text of each output that has some."""
    if found[0].model is None or found[1].model is None:
        return
    tokenizers = make_tokenizer(found[0].model), make_tokenizer(found[1].model)
    for one in found:
        problems: list[str] = []
        for open_text in (_open_counts, _open_sample):
            try:
                text = open_text(one, options)
                if text is None:
                    continue
                first, second = (text.use(tokenizer, one.name) for tokenizer in tokenizers)
            except BpeError as error:
                problems.append(str(error).splitlines()[0])
                continue
            groups = [
                (name, size.bytes, first[name].tokens, second[name].tokens)
                for name, size in text.sizes.items()
            ]
            if len(groups) > 1:
                a, b, c = (sum(numbers) for numbers in list(zip(*groups, strict=True))[1:])
                groups.append((_ALL, a, b, c))
            yield SameText(description=f"{text.kind} of {one.name}", groups=tuple(groups))
            break
        else:
            notes += [f"The text of {one.name} was not encoded by both: {p}" for p in problems]


def _open_counts(found: FoundOutput, options: Mapping[str, Any]) -> EvaluationText | None:
    return CountedText(found.counts) if found.counts and found.has_few_counts else None


def _open_sample(found: FoundOutput, options: Mapping[str, Any]) -> EvaluationText | None:
    return None if found.dataset is None else open_sample(found.dataset.output.url, options)
