"""Grouped counts, their sums and what a mixture trains from them are the same on every engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from build_support import checksums, some_text
from engine_support import Work, command, flink_options, prism_binary, run

from bpe_core import PretokenCounts

SOURCES = {"books": ["en"], "chat": ["de", "en"], "web": ["", "de", "fr"]}


def write_configuration(directory: Path, name: str, *sources: str) -> Path:
    """Write the configuration of a build of some of the sources."""
    values: dict[str, Any] = {
        "output": str(directory / name),
        "input": [
            {
                "name": source,
                "files": [str(directory / f"{source}-*.jsonl")],
                "format": "jsonl",
                "range_bytes": 2000,
            }
            for source in sources
        ],
        "tokenizer": {
            "vocab_size": [280, 300, 340],
            "mixture": {"by": "lang", "": 0.1, "de": 0.5, "en": 0.2, "fr": 0.2},
            "min_documents": 2,
        },
        "counts": {
            "group_by": "lang",
            "document_frequency": True,
            "shards": 3,
            "checkpoint_bytes": 3000,
        },
    }
    path = directory / f"{name}.json"
    path.write_text(json.dumps(values))
    return path


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Three sources with records in several languages, trained from by the DirectRunner."""
    directory = tmp_path_factory.mktemp("grouped")
    for start, (source, languages) in enumerate(SOURCES.items()):
        for part in range(2):
            texts = some_text(20, start=40 * start + 20 * part)
            records = [
                {"text": text.decode(), "lang": languages[number % len(languages)]}
                for number, text in enumerate(texts)
            ]
            lines = "".join(f"{json.dumps(record)}\n" for record in records)
            (directory / f"{source}-{part}.jsonl").write_text(lines)
    work = Work(directory, {})
    write_configuration(directory, "config", *SOURCES).rename(work.configuration)
    done = command(work.configuration, directory / "direct", "beam.workers=3", stage="train")
    assert done.returncode == 0, done.stderr
    work.expected.update(checksums(directory / "direct"))
    return work


def shards(output: Path) -> dict[str, bytes]:
    """Return the shards of counts."""
    return {path.name: path.read_bytes() for path in (output / "counts").glob("shard-*")}


def engine_options(engine: str, request: pytest.FixtureRequest) -> list[str]:
    """Return keys and options for an engine."""
    if engine == "prism":
        return ["beam.runner=PrismRunner", "--", f"--prism_location={prism_binary()}"]
    if engine == "embedded flink":
        return ["beam.workers=2", *flink_options("[local]")]
    if engine == "flink cluster":
        cluster, pool = (request.getfixturevalue(name) for name in ("cluster", "pool"))
        return ["beam.workers=2", *flink_options(cluster.address, pool)]
    return ["beam.workers=1"]


@pytest.mark.engines
@pytest.mark.parametrize("engine", ["direct with one worker", "prism"])
def test_counts_of_the_sources_add_up_and_subtract_to_those_of_one_build(
    grouped: Work, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    for source in SOURCES:
        configuration = write_configuration(grouped.directory, source, source)
        given = engine_options(engine, request)
        done = command(configuration, tmp_path / source, *given, stage="count")
        assert done.returncode == 0, done.stderr

    def combine(name: str, operation: str, *arguments: str) -> Path:
        beam_bpe = [sys.executable, "-m", "pipelines", "counts", operation]
        done = run([*beam_bpe, *arguments, "--output", str(tmp_path / name)])
        assert done.returncode == 0, done.stderr
        return tmp_path / name

    books, chat, web = (str(tmp_path / source) for source in SOURCES)
    merged = combine("merged", "merge", web, chat, books)
    found = shards(merged)
    assert len(found) == 3
    assert found == shards(grouped.directory / "direct")
    assert shards(combine("left", "subtract", str(merged), books, web)) == shards(Path(chat))
    twice = combine("twice", "scale", str(merged), "--by", "2")
    total = combine("sum", "merge", str(merged), str(merged))
    half = combine("half", "scale", str(twice), "--by", "0.5", "--shards", "5")
    loaded = [PretokenCounts.load(place / "counts") for place in (twice, total, half, merged)]
    assert loaded[0] == loaded[1]
    assert loaded[2] == loaded[3]
    # The mixture of the merged counts, whatever their shards, is that of the build.
    other = combine("other", "merge", books, web, chat, "--shards", "2")
    configuration = json.loads(grouped.configuration.read_text())
    configuration |= {"output": str(tmp_path / "trained")}
    configuration["counts"] = {
        "group_by": "lang",
        "document_frequency": True,
        "path": str(other),
    }
    path = tmp_path / "trained.json"
    path.write_text(json.dumps(configuration))
    done = command(path, tmp_path / "trained", stage="train")
    assert done.returncode == 0, done.stderr
    name = "tokenizer/tokenizer.json"
    assert checksums(tmp_path / "trained")[name] == grouped.expected[name]


@pytest.mark.engines
@pytest.mark.parametrize(
    "engine", ["direct with one worker", "prism", "embedded flink", "flink cluster"]
)
def test_an_engine_counts_groups_and_trains_a_mixture(
    grouped: Work, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    given = engine_options(engine, request)
    done = command(grouped.configuration, tmp_path / "out", *given, stage="train")
    assert done.returncode == 0, done.stderr
    assert checksums(tmp_path / "out") == grouped.expected
