"""`beam-bpe report`: one page about a dataset, from its manifest and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.visible_text import visible
from pipelines.accounting import NUMBERS
from pipelines.console.tables import format_table
from pipelines.console.units import format_bytes
from pipelines.dataset.reading import SPLITS
from pipelines.errors import ConfigError, shortened
from pipelines.manifest.models import MANIFESTS, TokensManifest
from pipelines.manifest.names import RUN, source_name
from pipelines.manifest.records import parse_sealed
from pipelines.manifest.run_record import RunRecord
from pipelines.metrics import Measured
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.writing.statistics import LONGEST_KEPT, Statistics, read_statistics

if TYPE_CHECKING:
    from pipelines.dataset.reading import TokenDataset
    from pipelines.tokenizers.files import Model

_LABEL_WIDTH: Final = 18
_BAR_WIDTH: Final = 30
_LONGEST_SHOWN: Final = 5
_TOKENS_SHOWN: Final = 10
_SOURCES_SHOWN: Final = 20
_GROUPS_SHOWN: Final = 50
_MOST_GROUPS: Final = 100_000


def report(dataset: TokenDataset, model: Model, by: str | None = None) -> dict[str, Any]:
    """Return the report on a dataset as JSON values.

    Args:
        dataset: to describe.
        model: the tokenizer that it was encoded with.
        by: a column that it keeps, for which token files are read.

    Returns:
        `output`, `tokenizer` (fingerprint, ids), `generations`, `inputs` (files, bytes), `totals`
        and `rejects` (number by reason), `sources` (the outcome for each, and its tokens),
        `splits` (documents, tokens, bytes), `tokens_per_document` and `bytes_per_token` (buckets),
        `vocabulary` (numbers of used and unused ids, the ids that no split uses, the most frequent
        ids), `longest` documents, `runs` (the last run of each stage: time, runner, metrics); with
        `by`, `groups` (column, and documents, tokens and bytes by value).

    Raises:
        ConfigError: the dataset does not keep the column, or it has too many values.
        InputError, OutputError: a file is missing or damaged, or the manifest has an older format.
    """
    manifest = dataset.require_manifest()
    vocabulary = Vocabulary(model)
    statistics = read_all_statistics(dataset, vocabulary)
    uses = statistics.all_uses()
    names = [source["name"] for source in manifest.configured_sources]
    totals = manifest.totals.to_json()
    most = np.argsort(-uses, kind="stable")[:_TOKENS_SHOWN]
    return {
        "output": dataset.output.url,
        "configuration_fingerprint": manifest.configuration_fingerprint,
        "tokenizer": {"fingerprint": manifest.tokenizer, "ids": len(vocabulary)},
        "generations": [generation.name for generation in manifest.generations],
        "inputs": {
            "files": len(manifest.inputs),
            "bytes": sum(file.size for file in manifest.inputs),
            "unread_files": sum(file.unread for file in manifest.inputs),
            "bad_files": [file.name for file in manifest.inputs if file.bad],
        },
        "totals": {name: totals[name] for name in (*NUMBERS, "tokens")},
        "rejects": manifest.totals.reasons,
        "sources": list(_sources(manifest, statistics, names)),
        "splits": [
            {"split": split, **_sum_of(statistics.files, split)} for split in statistics.splits
        ],
        "tokens_per_document": _buckets(statistics, "tokens_per_document"),
        "bytes_per_token": _buckets(statistics, "bytes_per_token"),
        "vocabulary": {
            "used": int((uses > 0).sum()),
            "unused": int((uses == 0).sum()),
            "unused_ids": vocabulary.ids[uses == 0].tolist(),
            "most_frequent": [
                {"id": int(vocabulary.ids[row]), "uses": int(uses[row])} for row in most
            ],
        },
        "longest": [
            {
                "split": document.split,
                "file": document.file,
                "offset": document.offset,
                "tokens": document.tokens,
                "bytes": document.bytes,
            }
            for document in statistics.longest[:LONGEST_KEPT]
        ],
        "runs": list(_runs(dataset)),
        **({} if by is None else {"groups": {"column": by, "values": group_by(dataset, by)}}),
    }


def read_all_statistics(dataset: TokenDataset, vocabulary: Vocabulary) -> Statistics:
    """Return the statistics of all generations of a dataset.

    Raises:
        InputError, OutputError: a file is missing or damaged, or the manifest has an older format.
    """
    statistics = Statistics(vocabulary)
    for entry in dataset.require_manifest().files.statistics:
        statistics.add_table(read_statistics(dataset.tokens, entry))
    return statistics


def group_by(dataset: TokenDataset, column: str) -> list[dict[str, Any]]:
    """Return the documents, tokens and bytes by the values of a column, most tokens first.

    The column, `num_tokens` and `num_bytes` of all token files are read, but no ids.

    Args:
        dataset: to read.
        column: a column of records that it keeps.

    Raises:
        ConfigError: the dataset does not keep the column, or it has too many values.
    """
    known = dataset.kept_columns.names
    if column not in known:
        raise ConfigError(
            "The dataset does not keep this column.",
            expected=f"one of {', '.join(known)}" if known else "a dataset with kept columns",
            found=column,
            where="--by",
            hint="Keep fields of records with input.keep_columns, and encode again.",
        )
    sums: dict[str | None, NDArray[np.int64]] = {}
    for split in SPLITS:
        for table in dataset.tables(split, [column, "num_tokens", "num_bytes", "part"]):
            begins = pc.equal(table["part"], 0).cast("int64")
            grouped = (
                table.append_column("documents", begins)
                .group_by(column)
                .aggregate([("documents", "sum"), ("num_tokens", "sum"), ("num_bytes", "sum")])
            )
            numbers = [grouped[name].to_pylist() for name in grouped.column_names if name != column]
            for value, *added in zip(grouped[column].to_pylist(), *numbers, strict=True):
                _add_group(sums, None if value is None else str(value), added)
            if len(sums) > _MOST_GROUPS:
                raise ConfigError(
                    "The column has too many values to group by.",
                    expected=f"at most {_MOST_GROUPS:,} values",
                    found=f"more in {column}",
                    where="--by",
                )
    ordered = sorted(sums.items(), key=lambda item: (-int(item[1][1]), item[0] or ""))
    return [
        {"value": value, "documents": d, "tokens": t, "bytes": b}
        for value, (d, t, b) in ((value, found.tolist()) for value, found in ordered)
    ]


def _add_group(
    sums: dict[str | None, NDArray[np.int64]], value: str | None, added: Sequence[int]
) -> None:
    known = sums.setdefault(value, np.zeros(3, np.int64))
    known += np.array(added, np.int64)


def _runs(dataset: TokenDataset) -> Iterator[dict[str, Any]]:
    """Yield the run of each stage that has an intact `run.json`."""
    keys = {"stage", "finished", "seconds", "runner", "workers", "metrics"}
    for stage in MANIFESTS:
        data = (dataset.output / stage).find_bytes(RUN)
        with suppress(ValueError):
            yield parse_sealed(RunRecord, data or b"").model_dump(include=keys)


def _sources(
    manifest: TokensManifest, statistics: Statistics, names: Sequence[str | None]
) -> Iterator[dict[str, Any]]:
    tokens: Counter[str | None] = Counter()
    for (_, source, _), sums in statistics.files.items():
        tokens[source] += int(sums[1])
    files = Counter(source_name(file.name, names) for file in manifest.inputs)
    for entry in manifest.sources:
        yield {
            "name": entry.name,
            "files": files[entry.name],
            **entry.document_totals().numbers(),
            "tokens": tokens[entry.name],
        }


def _sum_of(files: Mapping[tuple[str, str | None, str], Any], split: str) -> dict[str, int]:
    sums = np.zeros(3, np.int64)
    for key, part in files.items():
        sums += part if key[0] == split else 0
    return dict(zip(("documents", "tokens", "bytes"), sums.tolist(), strict=True))


def _buckets(statistics: Statistics, name: str) -> list[dict[str, Any]]:
    """Return the buckets of a histogram over all splits and sources, with empty ones between."""
    found: dict[tuple[float, float | None], dict[str, int]] = {}
    for table in statistics.tables():
        for row in table.filter(pc.equal(table["statistic"], name)).to_pylist():
            sums = found.setdefault((row["at_least"], row["below"]), Counter())
            for key in ("documents", "tokens", "bytes"):
                sums[key] += row[key]
    return [
        {"at_least": at_least, "below": below, **sums}
        for (at_least, below), sums in sorted(found.items(), key=lambda item: item[0][0])
    ]


# --- as text ---------------------------------------------------------------------------------


def shown(found: Mapping[str, Any], model: Model) -> str:
    """Return the report as a page of text; texts of the corpus are escaped."""
    return "\n".join(_lines(found, Vocabulary(model)))


def _lines(found: Mapping[str, Any], vocabulary: Vocabulary) -> Iterator[str]:
    totals, inputs = found["totals"], found["inputs"]
    yield from _facts(
        {
            "dataset": found["output"],
            "generations": ", ".join(found["generations"]),
            "tokenizer": f"{found['tokenizer']['ids']:,} ids, {found['tokenizer']['fingerprint']}",
            "input": f"{inputs['files']:,} files, {format_bytes(inputs['bytes'])}"
            + _also(inputs["unread_files"], "unread")
            + _also(len(inputs["bad_files"]), "damaged"),
            "documents": f"{totals['documents']:,} kept, {format_bytes(totals['bytes'])}",
            "left out": f"{totals['empty']:,} empty, {totals['rejected']:,} rejected, "
            f"{totals['not_selected']:,} not selected",
            "tokens": f"{totals['tokens']:,}, {_ratio(totals['bytes'], totals['tokens'])} bytes "
            "per token",
        }
    )
    if found["rejects"]:
        yield from ("", "rejects by reason")
        yield from format_table([[reason, f"{n:,}"] for reason, n in found["rejects"].items()])
    head = ["", "documents", "rejected", "not selected", "tokens", "share", "bytes/token"]
    yield from ("", "sources")
    yield from format_table(
        [head, *(_source_row(source, totals) for source in found["sources"][:_SOURCES_SHOWN])]
    )
    if len(found["sources"]) > _SOURCES_SHOWN:
        yield f"  and {len(found['sources']) - _SOURCES_SHOWN:,} more"
    if "groups" in found:
        yield from ("", visible(found["groups"]["column"]))
        yield from _groups(found["groups"]["values"], totals)
    if len(found["splits"]) > 1:
        yield from ("", "splits")
        yield from format_table(
            [["", "documents", "tokens"]]
            + [[s["split"], f"{s['documents']:,}", f"{s['tokens']:,}"] for s in found["splits"]]
        )
    yield from ("", "tokens per document")
    yield from _histogram(found["tokens_per_document"], _numbers)
    yield from ("", "bytes per token, of documents")
    yield from _histogram(found["bytes_per_token"], _ratios)
    yield from ("", "vocabulary")
    yield from _vocabulary(found["vocabulary"], vocabulary)
    yield from ("", "longest documents")
    yield from format_table(
        [
            [f"{d['tokens']:,} tokens", d["split"], visible(f"{d['file']}:{d['offset']}")]
            for d in found["longest"][:_LONGEST_SHOWN]
        ]
    )
    if found["runs"]:
        yield from ("", "last runs (indented: seconds of all workers together, MB/s of one)")
        yield from format_table(
            [["", "seconds", "MB/s"], *(row for run in found["runs"] for row in _run_rows(run))]
        )


def _run_rows(run: Mapping[str, Any]) -> Iterator[list[str]]:
    measured = Measured.from_json(run["metrics"] or {})
    times = {
        f"{run['stage']}, {run['finished']}, {run['runner']}": run["seconds"],
        **{f"  {part}": seconds for part, seconds in measured.seconds.items()},
    }
    size = measured.counters.get("bytes", 0)
    for name, seconds in times.items():
        rate = f"{size / seconds / 1e6:.1f}" if size and seconds > 0 else "–"
        yield [visible(name), f"{seconds:.1f}", rate]


def _facts(facts: Mapping[str, str]) -> Iterator[str]:
    for label, value in facts.items():
        yield f"{label:<{_LABEL_WIDTH}}{visible(value)}"


def _also(number: int, what: str) -> str:
    return f", {number:,} {what}" if number else ""


def _ratio(size: int, tokens: int) -> str:
    return f"{size / tokens:.2f}" if tokens else "–"


def _source_row(source: Mapping[str, Any], totals: Mapping[str, Any]) -> list[str]:
    share = source["tokens"] / totals["tokens"] if totals["tokens"] else 0.0
    numbers = [f"{source[key]:,}" for key in ("documents", "rejected", "not_selected", "tokens")]
    name = visible(source["name"] or "all")
    return [name, *numbers, f"{share:.1%}", _ratio(source["bytes"], source["tokens"])]


def _groups(groups: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]) -> Iterator[str]:
    rows = [["", "documents", "tokens", "share", "bytes/token"]]
    for group in groups[:_GROUPS_SHOWN]:
        share = group["tokens"] / totals["tokens"] if totals["tokens"] else 0.0
        name = "(none)" if group["value"] is None else visible(group["value"]).replace("\n", "⏎")
        numbers = [f"{group[key]:,}" for key in ("documents", "tokens")]
        rows.append([name, *numbers, f"{share:.1%}", _ratio(group["bytes"], group["tokens"])])
    yield from format_table(rows)
    if len(groups) > _GROUPS_SHOWN:
        yield f"  and {len(groups) - _GROUPS_SHOWN:,} more"


def _numbers(at_least: float, below: float | None) -> str:
    if below is None:
        return f"{at_least:,.0f} or more"
    return f"{at_least:,.0f}" + (f" to {below - 1:,.0f}" if below > at_least + 1 else "")


def _ratios(at_least: float, below: float | None) -> str:
    return f"{at_least:.2f} " + ("or more" if below is None else f"to below {below:.2f}")


def _histogram(
    buckets: Iterable[Mapping[str, Any]], label: Callable[[float, float | None], str]
) -> Iterator[str]:
    buckets = list(buckets)
    most = max((bucket["documents"] for bucket in buckets), default=1)
    rows = []
    for bucket in buckets:
        bar = "█" * -(-bucket["documents"] * _BAR_WIDTH // most)
        name = label(bucket["at_least"], bucket["below"])
        rows.append([name, f"{bucket['documents']:,}", bar])
    width = max((len(row[0]) for row in rows), default=0)
    digits = max((len(row[1]) for row in rows), default=0)
    for name, number, bar in rows:
        yield f"  {name.rjust(width)}  {number.rjust(digits)}  {bar}"


def _vocabulary(found: Mapping[str, Any], vocabulary: Vocabulary) -> Iterator[str]:
    def token(token_id: int) -> str:
        return visible(vocabulary.token(token_id) or b"").replace("\n", "⏎").replace("\t", "→")

    yield f"  {found['used']:,} ids are used, {found['unused']:,} never"
    unused = found["unused_ids"]
    if unused:
        shown = [f"{i} '{token(i)}'" for i in unused[:_TOKENS_SHOWN]]
        yield f"  never: {shortened(shown, _TOKENS_SHOWN, total=len(unused))}"
    most = [(token(m["id"]), m["uses"]) for m in found["most_frequent"] if m["uses"]]
    yield "  most:  " + ", ".join(f"'{text}' {uses:,}" for text, uses in most)
