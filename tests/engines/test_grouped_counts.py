"""Grouped counts, their sums and what a mixture trains from them are the same on every engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from build_support import checksums, some_text
from engine_support import Work, command, flink_options, prism_binary, run

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


@pytest.mark.engines
def test_merged_counts_of_the_sources_are_those_of_one_build(grouped: Work) -> None:
    for source in SOURCES:
        configuration = write_configuration(grouped.directory, source, source)
        done = command(configuration, grouped.directory / source, stage="count")
        assert done.returncode == 0, done.stderr
    outputs = [str(grouped.directory / source) for source in reversed(SOURCES)]
    merged = grouped.directory / "merged"
    beam_bpe = [sys.executable, "-m", "pipelines"]
    done = run([*beam_bpe, "counts", "merge", *outputs, "--output", str(merged)])
    assert done.returncode == 0, done.stderr
    found = shards(merged)
    assert len(found) == 3
    assert found == shards(grouped.directory / "direct")


@pytest.mark.engines
@pytest.mark.parametrize("engine", ["direct with one worker", "prism", "embedded flink"])
def test_an_engine_counts_groups_and_trains_a_mixture(
    grouped: Work, tmp_path: Path, engine: str
) -> None:
    given = {
        "direct with one worker": lambda: ["beam.workers=1"],
        "prism": lambda: ["beam.runner=PrismRunner", "--", f"--prism_location={prism_binary()}"],
        "embedded flink": lambda: ["beam.workers=2", *flink_options("[local]")],
    }[engine]()
    done = command(grouped.configuration, tmp_path / "out", *given, stage="train")
    assert done.returncode == 0, done.stderr
    assert checksums(tmp_path / "out") == grouped.expected
