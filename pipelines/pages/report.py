"""The report page: what an output consists of, as one file of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Final

from pipelines.pages.report_data import Bucket, Group, ReportData, SourceRow, TokenRow
from pipelines.pages.tables import Column, Figure, Record, Table
from pipelines.pages.templates import CHART_SCRIPTS, embed_json, render_page
from pipelines.rejects.reasons import REASONS

__all__ = ["make_report"]

_ENCODER_SCRIPTS: Final = ("encoder.js", "encoder-box.js")
_ENCODER_TEXT: Final = "In the beginning, there were 12,345 words: 世界 🌍."
_MOST_ENCODER_TOKENS: Final = 80
_MOST_SOURCES_IN_CHART: Final = 12
_SOURCES_SHOWN: Final = 100
_SOURCE: Final = Column("source", "source", "text")


def make_report(data: ReportData) -> str:
    """Return the report as a page of HTML that needs nothing else."""
    figures = {figure.name: figure for figure in _list_figures(data)}
    names = [source.name for source in data.sources]
    return render_page(
        "report.html",
        scripts=CHART_SCRIPTS if data.encoder is None else (*CHART_SCRIPTS, *_ENCODER_SCRIPTS),
        title=f"{data.name} – bpe-beam report",
        data=data,
        sections=dict(_list_sections(data)),
        figures=figures,
        tables={"sources": _tabulate_sources(data), "left_out": _tabulate_left_out(data)}
        | {"times": _tabulate_times(data)},
        token_tables=[] if data.tokens is None else list(_tabulate_tokens(data)),
        samples={
            source: list(documents)
            for source, documents in groupby(
                sorted(data.samples, key=lambda sample: names.index(sample.source)),
                lambda sample: sample.source,
            )
        },
        encoder_data=embed_json(data.encoder),
        encoder_text=_choose_text(data),
        chart_data=embed_json(
            {
                "source_names": [source.name for source in _by_tokens(data)],
                "charts": {name: figure.rows for name, figure in figures.items()},
            }
        ),
    )


def _choose_text(data: ReportData) -> str:
    """Return the text that the encoder box begins with: the beginning of a document."""
    if not data.samples:
        return _ENCODER_TEXT
    facts = data.facts.get("Dataset", {})
    around = {facts.get(label, "").encode() for label in ("before each document", "after each")}
    tokens = (token for _, token in data.samples[0].pairs[:_MOST_ENCODER_TOKENS])
    text = b"".join(token for token in tokens if token not in around)
    return text.decode("utf-8", "ignore") or _ENCODER_TEXT


def _list_sections(data: ReportData) -> Iterator[tuple[str, str]]:
    """Yield the sections that the page has: names and titles."""
    there: dict[str, tuple[str, bool]] = {
        "flow": ("What was built", True),
        "sources": ("Sources", bool(data.sources)),
        "lengths": ("Documents", bool(data.lengths)),
        "compression": ("Compression", data.tokens is not None),
        "frequency": ("Frequency", bool(data.ranks)),
        "vocabulary": ("Vocabulary", data.tokens is not None),
        "encoder": ("Encoder", data.encoder is not None),
        "samples": ("Samples", bool(data.samples)),
        "times": ("Time", bool(data.times)),
        "facts": ("Facts", True),
    }
    for name, (title, is_there) in there.items():
        if is_there:
            yield name, title


# --- charts


def _list_figures(data: ReportData) -> Iterator[Figure]:
    yield from _figures_of_sources(data)
    yield Figure(
        name="lengths",
        title="Tokens of a document",
        columns=[
            _SOURCE,
            Column("at_least", "at least"),
            Column("below", "below"),
            Column("documents", "documents"),
            Column("tokens", "tokens"),
        ],
        rows=[_bucket(bucket, int) for bucket in data.lengths],
    )
    yield Figure(
        name="ratios",
        title="Bytes per token of a document",
        columns=[
            _SOURCE,
            Column("at_least", "at least", "ratio"),
            Column("below", "below", "ratio"),
            Column("documents", "documents"),
        ],
        rows=[_bucket(bucket, float) for bucket in data.ratios],
    )
    yield Figure(
        name="compression",
        title="Bytes per token by source",
        text="Text in UTF-8, with all tokens that were written. More is shorter.",
        columns=[_SOURCE, Column("bytes_per_token", "bytes per token", "ratio")],
        rows=[
            {"source": source.name, "bytes_per_token": source.bytes_per_token}
            for source in data.sources
            if source.bytes_per_token is not None
        ],
    )
    yield Figure(
        name="curve",
        title="Bytes per token by size of the vocabulary",
        text="" if not data.curve else "What smaller vocabularies of the same training would give.",
        columns=[
            _SOURCE,
            Column("ids", "ids"),
            Column("bytes_per_token", "bytes per token", "ratio"),
        ],
        rows=[asdict(point) for point in data.curve],
        note=data.notes.get("curve"),
    )
    yield Figure(
        name="ranks",
        title="Uses of ids by rank",
        text="Both axes are logarithmic.",
        columns=[
            Column("rank", "rank"),
            Column("uses", "uses"),
            Column("token", "token", "text"),
        ],
        rows=[asdict(point) for point in data.ranks],
    )
    yield Figure(
        name="coverage",
        title="Share of all tokens that the most frequent ids are",
        columns=[Column("rank", "ids"), Column("share", "share of tokens", "percent")],
        rows=[asdict(point) for point in data.ranks],
    )
    yield _figure_of_groups("scripts", "By script", data.scripts)
    yield _figure_of_groups("kinds", "By kind", data.kinds)
    yield Figure(
        name="times",
        title="Seconds of each stage",
        text="Of its last run.",
        columns=[Column("stage", "stage", "text"), Column("seconds", "seconds", "seconds")],
        rows=[
            {"stage": time.stage, "seconds": time.seconds}
            for time in data.times
            if time.part is None
        ],
    )


def _by_tokens(data: ReportData) -> list[SourceRow]:
    return sorted(data.sources, key=lambda source: -(source.tokens or source.bytes))


def _figures_of_sources(data: ReportData) -> Iterator[Figure]:
    shown = list(dict.fromkeys(bucket.source for bucket in data.lengths))
    names = {source.name: source.name for source in data.sources}
    if data.lengths:
        names = {name: name if name in shown else "other sources" for name in names}
    if len(data.sources) > 1:
        shares = list(_share_rows(data, names))
        yield Figure(
            name="shares",
            title="Share of each source",
            columns=[
                Column("measure", "", "text"),
                _SOURCE,
                Column("value", "number"),
                Column("share", "share", "percent"),
            ],
            rows=shares,
        )
    if any(source.rejected or source.empty or source.not_selected for source in data.sources):
        yield Figure(
            name="outcomes",
            title="Kept and left out",
            columns=[
                _SOURCE,
                Column("outcome", "outcome", "text"),
                Column("documents", "documents"),
                Column("share", "share", "percent"),
            ],
            rows=list(_outcome_rows(data)),
        )


def _share_rows(data: ReportData, names: Mapping[str, str]) -> Iterator[Record]:
    for measure in ("documents", "bytes", "tokens"):
        sums: dict[str, int] = {}
        for source in _by_tokens(data):
            name = names[source.name]
            sums[name] = sums.get(name, 0) + (getattr(source, measure) or 0)
        total = sum(sums.values())
        for name, value in sums.items():
            if total:
                yield {"measure": measure, "source": name, "value": value, "share": value / total}


def _outcome_rows(data: ReportData) -> Iterator[Record]:
    for source in _by_tokens(data)[:_MOST_SOURCES_IN_CHART]:
        outcomes = {
            "kept": source.documents,
            "not selected": source.not_selected,
            "empty": source.empty,
            "rejected": source.rejected,
        }
        total = sum(outcomes.values())
        for outcome, documents in outcomes.items():
            if total:
                yield {
                    "source": source.name,
                    "outcome": outcome,
                    "documents": documents,
                    "share": documents / total,
                }


def _bucket(bucket: Bucket, kind: type) -> Record:
    below = None if bucket.below is None else kind(bucket.below)
    return {**asdict(bucket), "at_least": kind(bucket.at_least), "below": below}


def _figure_of_groups(name: str, title: str, groups: Sequence[Group]) -> Figure:
    ids = sum(group.ids for group in groups)
    tokens = sum(group.tokens or 0 for group in groups)
    return Figure(
        name=name,
        title=title,
        text="Share of the ids, and of the tokens that they are used for.",
        columns=[
            Column("name", "", "text"),
            Column("ids", "ids"),
            Column("share_of_ids", "share", "percent"),
            Column("tokens", "tokens"),
            Column("share_of_tokens", "share", "percent"),
        ],
        rows=[
            {
                **asdict(group),
                "share_of_ids": group.ids / max(ids, 1),
                "share_of_tokens": None if group.tokens is None else group.tokens / max(tokens, 1),
            }
            for group in groups
        ],
    )


# --- tables


def _tabulate_sources(data: ReportData) -> Table:
    tokens = sum(source.tokens or 0 for source in data.sources)
    return Table(
        title="Sources",
        columns=[
            Column("name", "source", "text"),
            Column("files", "files"),
            Column("stored_bytes", "as stored", "bytes"),
            Column("documents", "documents"),
            Column("bytes", "text", "bytes"),
            Column("tokens", "tokens"),
            Column("share", "share", "percent"),
            Column("bytes_per_token", "bytes per token", "ratio"),
        ],
        rows=[
            {
                **asdict(source),
                "bytes_per_token": source.bytes_per_token,
                "share": source.tokens / tokens if source.tokens is not None and tokens else None,
            }
            for source in data.sources[:_SOURCES_SHOWN]
        ],
        note=f"and {len(data.sources) - _SOURCES_SHOWN:,} more"
        if len(data.sources) > _SOURCES_SHOWN
        else None,
    )


def _tabulate_left_out(data: ReportData) -> Table:
    return Table(
        title="Left out",
        columns=[
            Column("what", "what", "text"),
            Column("number", "number"),
            Column("why", "why", "text"),
        ],
        rows=list(_left_out_rows(data)),
    )


def _left_out_rows(data: ReportData) -> Iterator[Record]:
    for reason, number in sorted(data.reasons.items(), key=lambda item: -item[1]):
        why = REASONS.get(reason, "").replace("`", "")
        yield {"what": f"rejected, {reason}", "number": number, "why": why}
    for source in data.sources:
        if source.not_selected:
            keys = ", ".join(f"{key}: {value}" for key, value in source.selection.items())
            what = f"not selected, {source.name}"
            yield {"what": what, "number": source.not_selected, "why": keys}
    if empty := sum(source.empty for source in data.sources):
        yield {"what": "empty", "number": empty, "why": "documents without text"}
    if data.unread_files:
        why = "a limit of their source ends before them"
        yield {"what": "files that were not read", "number": data.unread_files, "why": why}
    if data.bad_files:
        why = "damaged; their readable part was used"
        yield {"what": "bad files", "number": data.bad_files, "why": why}


def _tabulate_tokens(data: ReportData) -> Iterator[Table]:
    assert data.tokens is not None
    tokens = data.tokens
    if tokens.frequent:
        yield _token_table("Most frequent", tokens.frequent)
    yield _token_table("Longest", tokens.longest, more=[Column("bytes", "bytes")])
    if tokens.rarest:
        yield _token_table("Rarest of those used", tokens.rarest)
    reasons = [f"{number:,} {text}" for text, number in tokens.suspect_reasons.items()]
    yield _token_table(
        "Suspicious",
        tokens.suspects,
        more=[Column("remark", "why", "text")],
        text=", ".join(reasons) or "No token looks like a mistake.",
        note=data.notes.get("suspects"),
    )


def _token_table(
    title: str,
    rows: Sequence[TokenRow],
    more: Sequence[Column] = (),
    text: str = "",
    note: str | None = None,
) -> Table:
    return Table(
        title=title,
        columns=[
            Column("id", "id"),
            Column("shown", "token", "token"),
            Column("uses", "uses"),
            *more,
        ],
        rows=[
            {
                **asdict(row),
                "shown": row.shown,
                "title": row.title,
                "bytes": len(row.token),
            }
            for row in rows
        ],
        text=text,
        note=note,
    )


def _tabulate_times(data: ReportData) -> Table:
    return Table(
        title="Stages and their parts",
        columns=[
            Column("name", "stage", "text"),
            Column("seconds", "seconds", "seconds"),
            Column("megabytes_per_second", "MB/s", "rate"),
            Column("run", "run", "text"),
        ],
        rows=[
            {
                **asdict(time),
                "name": time.part or time.stage,
                "indent": time.part is not None,
                "run": ""
                if time.part
                else f"{time.runner}, {time.workers or 'its own number of'} workers, "
                f"{time.finished.replace('T', ' ').removesuffix('Z')}",
            }
            for time in data.times
        ],
    )
