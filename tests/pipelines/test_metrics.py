"""What workers measure, under names that stay, and what becomes of it on the way to `run.json`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.metrics.cells import DistributionData, DistributionResult
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metricbase import MetricName
from build_support import (
    ROOT,
    SEPARATOR,
    config_for,
    count_job,
    encode_job,
    some_text,
    works_of,
    write_corpus,
)

from bpe_core import BPETokenizer, count_pretokens, train_from_counts
from pipelines import build, runners
from pipelines.beam.metrics import read_metrics
from pipelines.config import BeamConfig, BuildConfig, SourceConfig
from pipelines.counting.commits import TaskCounter, merge_commits
from pipelines.metrics import (
    COUNTERS,
    DISTRIBUTIONS,
    NAMESPACE,
    PARTS,
    Distribution,
    Measured,
    Meter,
)
from pipelines.transforms import (
    CountPretokens,
    EncodeDocuments,
    ReadDocuments,
    WriteTokenShards,
)
from pipelines.writing.tasks import write_task

# One is no UTF-8, one holds a special token, which encoding alone rejects, one is empty.
DOCUMENTS = {
    "a.txt": [*some_text(40), b"\xff"],
    "b.txt": [*some_text(9), b"a <|endoftext|> b", b""],
}
BETWEEN = "<|document|>"


@pytest.fixture
def config(tmp_path: Path) -> BuildConfig:
    write_corpus(tmp_path / "data", DOCUMENTS, BETWEEN)
    return config_for(
        tmp_path,
        input={"separator": BETWEEN},
        encode={
            "special_tokens_in_text": "reject",
            "max_reject_fraction": 0.5,
            "validation_fraction": 0.3,
        },
    )


@pytest.fixture
def tokenizer(tmp_path: Path) -> BPETokenizer:
    """Trained on some of the documents; saved in `tokenizer`."""
    counts = count_pretokens(DOCUMENTS["a.txt"][:9], special_tokens=[SEPARATOR])
    trained = train_from_counts(counts, 300, [SEPARATOR]).tokenizer()
    trained.save(tmp_path / "tokenizer")
    return trained


def run_record(config: BuildConfig, stage: str) -> dict[str, Any]:
    path = Path(config.output_path) / stage / "run.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def totals(config: BuildConfig, stage: str) -> dict[str, Any]:
    path = Path(config.output_path) / stage / "manifest.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))["totals"]
    return found


def test_names_stay_as_they_are() -> None:
    assert NAMESPACE == "beam_bpe"
    assert COUNTERS == ("tasks", "documents", "bytes", "rejects", "tokens", "distinct_pretokens")
    assert DISTRIBUTIONS == (
        "read_microseconds",
        "count_microseconds",
        "merge_microseconds",
        "encode_microseconds",
        "write_microseconds",
    )


def test_the_documentation_lists_every_name_with_its_kind() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| (counter|distribution) \|", text, re.MULTILINE))
    assert listed == {
        **dict.fromkeys(COUNTERS, "counter"),
        **dict.fromkeys(DISTRIBUTIONS, "distribution"),
    }
    assert f"`{NAMESPACE}`" in text


@pytest.mark.process
def test_the_module_works_without_beam() -> None:
    code = "import sys, pipelines.metrics; sys.exit('apache_beam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# --- the meter


class Told:
    """What a meter has told."""

    def __init__(self) -> None:
        self.values: dict[str, list[int]] = {}

    def __call__(self, name: str, value: int) -> None:
        self.values.setdefault(name, []).append(value)

    @property
    def sums(self) -> dict[str, int]:
        return {name: sum(values) for name, values in self.values.items()}


def test_times_of_parts_within_others_are_told_once() -> None:
    told = Told()
    meter = Meter(told)
    begun = time.perf_counter()
    with meter.time("write"):
        time.sleep(0.02)
        with meter.time("encode"):
            time.sleep(0.03)
            with meter.time("read"):
                time.sleep(0.01)
        with meter.time("read"):
            time.sleep(0.01)
    whole = (time.perf_counter() - begun) * 1e6
    meter.report_times()
    assert told.values["encode_microseconds"][0] >= 30_000
    assert told.values["write_microseconds"][0] >= 20_000
    assert told.values["read_microseconds"][0] >= 20_000
    assert sum(told.sums.values()) <= whole
    meter.report_times()
    assert all(len(values) == 1 for values in told.values.values())


def test_only_getting_items_is_timed_and_an_error_is_passed_on() -> None:
    def items() -> Iterator[int]:
        yield 1
        time.sleep(0.02)
        yield 2
        raise KeyError("end")

    told = Told()
    meter = Meter(told)
    got = []
    with pytest.raises(KeyError):
        for item in meter.time_items("read", items()):
            got.append(item)
            time.sleep(0.05)
    meter.report_times()
    assert got == [1, 2]
    assert 20_000 <= told.sums["read_microseconds"] < 90_000


def test_items_that_are_not_wanted_any_more_are_closed() -> None:
    closed = []

    def items() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            closed.append(True)

    timed = Meter().time_items("read", items())
    next(timed)
    timed.close()  # type: ignore[attr-defined]
    assert closed


def test_functions_without_beam_measure_what_they_did(
    config: BuildConfig, tmp_path: Path, tokenizer: BPETokenizer
) -> None:
    works = works_of(config)
    told = Told()
    job = count_job(config, works)
    counter = TaskCounter(job, Meter(told))
    descriptors = [d for work in works for d in counter.count(work)]
    descriptors += counter.commit()
    counter.close()
    assert told.sums["tasks"] == len(works)
    assert told.sums["documents"] == 50
    assert told.sums["rejects"] == 1
    assert len(told.values["read_microseconds"]) == len(works)
    assert told.sums["write_microseconds"] > 0

    told = Told()
    shards = [
        merge_commits(job, shard, [d for at, d in descriptors if at == shard], Meter(told))
        for shard in range(job.shards)
    ]
    assert told.sums["distinct_pretokens"] == sum(entry["rows"] for entry in shards)
    assert len(told.values["merge_microseconds"]) == job.shards

    told = Told()
    encoding = encode_job(config, tmp_path / "tokenizer", tokenizer.model.fingerprint)
    entries = [write_task(encoding, work, Meter(told)) for work in works]
    assert told.sums["documents"] == 49
    assert told.sums["rejects"] == 2
    files = [entry[split] for entry in entries for split in ("train", "validation")]
    assert told.sums["tokens"] == sum(file["tokens"] for file in files)
    assert told.sums["bytes"] == sum(file["text_bytes"] for file in files)
    assert told.sums["documents"] == sum(file["documents"] for file in files)
    for part in ("read", "encode", "write"):
        assert len(told.values[f"{part}_microseconds"]) == len(works)


# --- what Beam makes of them


def metric(name: str, value: Any, step: str = "s") -> MetricResult:
    return MetricResult(MetricKey(step, MetricName(NAMESPACE, name)), value, None)


class Result:
    """Stands for a result of a runner that tells these."""

    def __init__(self, counters: list[MetricResult], distributions: list[MetricResult]) -> None:
        self.found = {"counters": counters, "distributions": distributions}

    def metrics(self) -> Any:
        return SimpleNamespace(query=lambda _: self.found)


def test_metrics_of_all_steps_are_added() -> None:
    times = [
        metric(
            "read_microseconds", DistributionResult(DistributionData(9, 2, low, 7)), step=str(low)
        )
        for low in (2, 1)
    ]
    result = Result([metric("tasks", 3, "a"), metric("tasks", 4, "b")], times)
    measured = read_metrics(result, 7)
    assert measured == Measured(
        counters={"tasks": 7},
        distributions={"read_microseconds": Distribution(count=4, sum=18, min=1, max=7)},
    )
    assert measured.seconds == {"read": 18e-6}
    assert Measured.from_json(json.loads(json.dumps(measured.to_json()))) == measured


def test_rather_no_figure_than_one_of_less_than_was_done() -> None:
    assert read_metrics(Result([metric("tasks", 6)], []), 7) is None
    assert read_metrics(Result([], []), 1) is None


def test_a_committed_zero_is_a_figure_and_none_is_not() -> None:
    def told(name: str, committed: int | None, attempted: int | None) -> MetricResult:
        return MetricResult(MetricKey("s", MetricName(NAMESPACE, name)), committed, attempted)

    counters = [
        told("tasks", 2, None),
        told("rejects", 0, None),
        told("bytes", 0, 7),
        told("tokens", None, 5),
        told("documents", None, None),
    ]
    measured = read_metrics(Result(counters, [metric("read_microseconds", None)]), 2)
    assert measured == Measured(
        counters={"tasks": 2, "rejects": 0, "bytes": 0, "tokens": 5}, distributions={}
    )


@pytest.mark.parametrize(
    "result",
    [
        None,
        SimpleNamespace(metrics=lambda: 1 / 0),
        Result([metric("tasks", "many")], []),
        Result([metric("tasks", 1)], [metric("read_microseconds", 3)]),
    ],
)
def test_a_runner_without_metrics_is_none(result: Any) -> None:
    assert read_metrics(result, 1) is None


# --- builds


@pytest.mark.slow
def test_a_build_records_what_its_workers_did(config: BuildConfig) -> None:
    summary = build.build(config)
    for stage, parts in (
        ("counts", {"read", "count", "merge", "write"}),
        ("tokens", {"read", "encode", "write"}),
    ):
        record, found = run_record(config, stage), totals(config, stage)
        measured = Measured.from_json(record["metrics"])
        expected = {
            "tasks": len(works_of(config)),
            **{name: found[name] for name in ("documents", "bytes")},
            "rejects": found["rejected"],
        }
        if stage == "counts":
            expected["distinct_pretokens"] = found["distinct_pretokens"]
        else:
            expected["tokens"] = found["tokens"]
        assert measured.counters == expected
        assert measured.seconds.keys() == parts
        most = record["workers"] * record["seconds"]
        assert 0 < sum(measured.seconds.values()) <= most
    assert run_record(config, "tokenizer")["metrics"] is None
    assert [list(stage.parts) for stage in summary.stages] == [
        ["read", "count", "merge", "write"],
        [],
        ["read", "encode", "write"],
    ]


@pytest.mark.slow
def test_a_build_whose_runner_tells_nothing_says_nothing(
    config: BuildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.beam.metrics.MetricsFilter", None)
    summary = build.build(config)
    assert run_record(config, "counts")["metrics"] is None
    assert run_record(config, "tokens")["metrics"] is None
    assert not any(stage.parts for stage in summary.stages)


@pytest.mark.beam
def test_pipelines_of_ones_own_have_the_same_metrics(
    config: BuildConfig, tmp_path: Path, tokenizer: BPETokenizer
) -> None:
    source = SourceConfig(files=[str(tmp_path / "data" / "*")], separator=BETWEEN)
    with runners.pipeline(BeamConfig(workers=2)) as pipeline:
        documents = pipeline | ReadDocuments(sources=[source])
        encoded = documents | EncodeDocuments(
            tokenizer=str(tmp_path / "tokenizer"), special_tokens_in_text="reject"
        )
        _ = documents | CountPretokens(output=str(tmp_path / "own/counts"), shards=2)
        _ = encoded.tokens | WriteTokenShards(output=str(tmp_path / "own/tokens"), num_shards=2)
    by_step: dict[str, dict[str, int]] = {}
    for found in pipeline.result.metrics().query()["counters"]:
        if found.key.metric.namespace == NAMESPACE:
            step = found.key.step.partition("/")[0]
            by_step.setdefault(step, {})[found.key.metric.name] = found.result
    read, encode = by_step["ReadDocuments"], by_step["EncodeDocuments"]
    assert (read["documents"], encode["documents"]) == (50, 49)
    assert (read["rejects"], encode["rejects"]) == (1, 2)
    assert read["bytes"] == encode["bytes"] + len(b"a <|endoftext|> b")
    assert read["tasks"] == 1
    assert encode["tokens"] > 0
    written, counted = by_step["WriteTokenShards"], by_step["CountPretokens"]
    assert written == {name: encode[name] for name in ("documents", "bytes", "tokens")}
    listing = json.loads((tmp_path / "own/counts/counts-shards.json").read_bytes())
    assert counted["distinct_pretokens"] == sum(file["rows"] for file in listing["files"])
    measured = read_metrics(pipeline.result, 1)
    assert measured is not None
    assert measured.seconds.keys() == set(PARTS)
    merges = measured.distributions["merge_microseconds"]
    assert merges.count == 4  # shards of counts, and of tokens
