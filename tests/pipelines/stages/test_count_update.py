"""`beam-bpe count --update`: the result equals a count of all files from scratch, byte for byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from build_support import command as beam_bpe
from build_support import some_text, write_corpus

from pipelines.stages import count_update
from pipelines.storage.directory import Directory

FILES = {"a": (0, 6), "b": (6, 4), "c": (10, 5), "d": (15, 1)}


def write_config(root: Path, output: str = "out", **counts: Any) -> Path:
    config = root / f"{output}.yaml"
    source = {"files": ["data/*.txt"], "range_bytes": 900}
    config.write_text(json.dumps({"output": output, "input": [source], "counts": counts}))
    return config


def write_files(root: Path, names: str, start: int | None = None) -> None:
    """Write files, with other documents if they start at another one."""
    for name in names:
        first, documents = FILES[name]
        text = some_text(documents, start=first if start is None else start)
        write_corpus(root / "data", {f"{name}.txt": text})


def count(config: Path, *arguments: str) -> None:
    done = beam_bpe("count", config, "-q", *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def result(root: Path, output: str = "out") -> dict[str, Any]:
    """The shards and the manifest."""
    counts = root / output / "counts"
    files: dict[str, Any] = {file.name: file.read_bytes() for file in counts.glob("shard-*")}
    return {**files, "manifest": json.loads((counts / "manifest.json").read_bytes())}


def from_scratch(root: Path, **counts: Any) -> dict[str, Any]:
    shutil.rmtree(root / "again", ignore_errors=True)
    count(write_config(root, "again", **counts))
    return result(root, "again")


def scratch(root: Path) -> list[str]:
    counts = root / "out/counts"
    return sorted(path.name for path in counts.iterdir() if path.name.startswith(("_", ".")))


@pytest.mark.slow
def test_added_files_are_counted_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path, shards=3)
    write_files(tmp_path, "ac")
    count(config)
    write_files(tmp_path, "bd")
    read: set[str] = set()
    original = count_update.count_works

    def noting(context: Any, job: Any, works: Any) -> Any:
        read.update(file.label for work in works for file, _, _ in work.parts)
        return original(context, job, works)

    monkeypatch.setattr(count_update, "count_works", noting)
    count(config, "--update")
    assert read == {"b.txt", "d.txt"}
    assert result(tmp_path) == from_scratch(tmp_path, shards=3)
    assert scratch(tmp_path) == []
    count(config, "--update")
    assert result(tmp_path) == result(tmp_path, "again")
    done = beam_bpe("count", config)
    assert "already finished" in done.stdout + done.stderr
    assert beam_bpe("verify", tmp_path / "out").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("counts", [{}, {"shards": 2}], ids=str)
def test_changed_and_removed_files_are_subtracted(tmp_path: Path, counts: dict[str, Any]) -> None:
    """Also those that an update has added."""
    config = write_config(tmp_path, keep_file_counts=True, **counts)
    write_files(tmp_path, "ab")
    count(config)
    write_files(tmp_path, "d")
    count(config, "--update")
    for name, start in (("b", 40), ("d", 50), ("b", 60)):
        write_files(tmp_path, name, start)
        count(config, "--update")
        assert result(tmp_path) == from_scratch(tmp_path, **counts)
    (tmp_path / "data/d.txt").unlink()
    write_files(tmp_path, "c")
    count(config, "--update")
    assert result(tmp_path) == from_scratch(tmp_path, **counts)
    # Without the key, a command removes the kept counts.
    assert scratch(tmp_path) == ["_runs"]
    count(write_config(tmp_path, **counts))
    assert scratch(tmp_path) == []


@pytest.mark.slow
def test_groups_that_are_gone_leave_no_trace(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    def write_records(name: str, language: str, start: int) -> None:
        rows = [
            json.dumps({"text": text.decode(), "lang": language})
            for text in some_text(3, start=start)
        ]
        (tmp_path / "data" / name).write_text("\n".join(rows))

    def config(output: str, **more: Any) -> Path:
        path = tmp_path / f"{output}.yaml"
        counts = {"shards": 2, "group_by": "lang", "document_frequency": True, **more}
        source = {"files": ["data/*.jsonl"], "format": "jsonl"}
        path.write_text(json.dumps({"output": output, "input": [source], "counts": counts}))
        return path

    write_records("a.jsonl", "de", 0)
    write_records("b.jsonl", "fr", 3)
    count(config("out", keep_file_counts=True))
    (tmp_path / "data/b.jsonl").unlink()
    write_records("c.jsonl", "en", 6)
    count(config("out", keep_file_counts=True), "--update")
    count(config("again"))
    assert result(tmp_path) == result(tmp_path, "again")


@pytest.mark.slow
def test_the_number_of_shards_follows_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.tasks.plan._TEXT_OF_A_SHARD", 1500)
    config = write_config(tmp_path)
    write_files(tmp_path, "d")
    count(config)
    former = len(result(tmp_path))
    write_files(tmp_path, "ab")
    count(config, "--update")
    assert len(result(tmp_path)) > former
    assert result(tmp_path) == from_scratch(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("failing", range(1, 16))
def test_an_interrupted_update_is_completed_or_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Whichever file cannot be written. Until the update is complete, the counts stay valid."""
    config = write_config(tmp_path, shards=2)
    write_files(tmp_path, "ac")
    count(config)
    former = result(tmp_path)
    write_files(tmp_path, "b")
    written = 0
    original = Directory.write

    def write(self: Directory, name: str) -> Any:
        nonlocal written
        written += "/counts" in self.url
        if written == failing:
            raise OSError(28, "No space left on device")
        return original(self, name)

    monkeypatch.setattr(Directory, "write", write)
    beam_bpe("count", config, "-q", "--update")
    monkeypatch.undo()
    if not (tmp_path / "out/counts/_update/manifest.json").exists() and written >= failing:
        assert result(tmp_path) == former
    expected = from_scratch(tmp_path, shards=2)
    if failing % 2:
        beam_bpe("count", config)  # completes a complete update, and else refuses the added file
    count(config, "--update")
    assert result(tmp_path) == expected
    assert scratch(tmp_path) == []


def test_an_update_without_counts_counts(tmp_path: Path) -> None:
    write_files(tmp_path, "a")
    count(write_config(tmp_path, shards=2), "--update")
    assert result(tmp_path) == from_scratch(tmp_path, shards=2)


@pytest.mark.slow
def test_what_cannot_be_updated_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, shards=2)
    write_files(tmp_path, "ab")
    count(config)
    before = result(tmp_path)

    def refusal(*arguments: object) -> str:
        done = beam_bpe("count", config, *arguments)
        assert done.returncode
        assert "Traceback" not in done.stderr
        assert result(tmp_path) == before
        return done.stderr

    write_files(tmp_path, "c")
    assert "--update`, which counts the added files alone" in refusal()
    other = ("--set", "tokenizer.pattern=cl100k")
    assert "Only files can be updated" in refusal("--update", *other)
    assert "neither starts again" in refusal("--update", "--restart")
    (tmp_path / "data/a.txt").unlink()
    error = refusal("--update")
    assert "counts.keep_file_counts: true when they were counted" in error
    assert "a.txt" in error
