"""Builds from datasets of the Hub: at one commit, by the library's token, over real HTTP."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_support import checksums, config_for, some_text
from hub_server import TOKEN, HubServer, hub_server, use_hub

from pipelines import build
from pipelines.config import BuildConfig, TokenizerConfig
from pipelines.config.build import EncodeConfig
from pipelines.errors import ConfigError, DifferentConfigurationError, InputError
from pipelines.storage.directory import Directory
from pipelines.storage.hub import Repository, pin
from pipelines.verification.verify import verify

FILES = {
    f"data/{name}.txt": b"".join(text + b"<|endoftext|>" for text in some_text(12, start=i))
    for i, name in enumerate("ab")
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server() as server:
        use_hub(monkeypatch, server.url, tmp_path / "cache")
        yield server


def config_of(directory: Path, *files: str, **source: Any) -> BuildConfig:
    return config_for(directory, input={"files": list(files), **source})


def record(directory: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "out" / name).read_text())
    return found


@pytest.mark.slow
def test_a_dataset_gives_the_bytes_of_its_files(hub: HubServer, tmp_path: Path) -> None:
    first = hub.add("org/corpus", FILES, kind="datasets").refs["main"]
    config = config_of(tmp_path, "hf://datasets/org/corpus/data/*.txt")
    build.build(config)
    assert hub.count(r"GET .*/resolve/main/") == 0
    assert hub.count(rf"GET .*/resolve/{first}/") > 0
    for path, data in FILES.items():
        local = tmp_path / "local" / path
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(data)
    build.build(config_of(tmp_path / "local", f"{tmp_path}/local/data/*.txt"))
    assert checksums(tmp_path / "out") == checksums(tmp_path / "local" / "out")
    run = record(tmp_path, "tokens/run.json")
    assert run["commits"] == {"hf://datasets/org/corpus": first}
    assert run["locations"]["a.txt"] == f"hf://datasets/org/corpus@{first}/data/a.txt"
    assert verify(Directory(url=str(tmp_path / "out")), sources=True).problems == []


@pytest.mark.slow
def test_a_resumed_build_reads_the_commit_that_it_began_with(
    hub: HubServer, tmp_path: Path
) -> None:
    repository = hub.add("org/corpus", FILES, kind="datasets")
    first = repository.refs["main"]
    config = config_of(tmp_path, "hf://datasets/org/corpus/data/*.txt")
    build.count(config)
    repository.commit({"data/a.txt": b"other<|endoftext|>", "data/c.txt": b"new<|endoftext|>"})
    assert build.plan(config).tasks
    build.build(config)
    assert record(tmp_path, "tokens/run.json")["commits"] == {"hf://datasets/org/corpus": first}
    with pytest.raises(DifferentConfigurationError, match=r"input a\.txt"):
        build.build(config)  # finished: the branch is read again
    build.build(config, restart=True)
    second = repository.refs["main"]
    assert record(tmp_path, "tokens/run.json")["commits"] == {"hf://datasets/org/corpus": second}


@pytest.mark.slow
def test_files_added_to_a_branch_become_a_generation(hub: HubServer, tmp_path: Path) -> None:
    repository = hub.add("org/corpus", FILES, kind="datasets")
    config = config_of(tmp_path, "hf://datasets/org/corpus/data/*.txt")
    build.build(config)
    repository.commit({"data/c.txt": b"new words<|endoftext|>"})
    tokenizer = {
        "tokenizer": config.tokenizer.model_copy(update={"path": f"{tmp_path}/out/tokenizer"})
    }
    added = config.model_copy(update=tokenizer)
    build.encode(added)
    assert [g["name"] for g in record(tmp_path, "tokens/manifest.json")["generations"]] == [
        "base",
        "add001",
    ]


@pytest.mark.slow
def test_parquet_files_are_read_by_ranges(hub: HubServer, tmp_path: Path) -> None:
    sink = io.BytesIO()
    texts = [text.decode() for text in some_text(30)]
    pq.write_table(pa.table({"text": texts, "other": ["x" * 200] * 30}), sink, row_group_size=10)
    repository = hub.add("org/corpus", {"train/0.parquet": sink.getvalue()}, kind="datasets")
    repository.refs["v1"] = repository.refs["refs/pr/1"] = repository.refs["main"]
    for revision in ("v1", "refs/pr/1", "refs%2Fpr%2F1"):
        directory = tmp_path / revision.replace("/", "-")
        directory.mkdir()
        url = f"hf://datasets/org/corpus@{revision}/**/*.parquet"
        summary = build.count(config_of(directory, url, format="parquet", text_field="text"))
        assert summary.documents == 30


@pytest.mark.slow
def test_a_private_dataset_is_read_with_a_token_that_appears_nowhere(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/private", FILES, kind="datasets", private=True)
    url = "hf://datasets/org/private/data/*.txt"
    with pytest.raises(InputError, match="a private one that this token may not read"):
        build.count(config_of(tmp_path, url))
    monkeypatch.setenv("SECRET", TOKEN)
    options = {"token": "${SECRET}"}
    build.count(config_of(tmp_path, url, storage_options=options))
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()


@pytest.mark.slow
def test_what_is_missing_is_said(hub: HubServer, tmp_path: Path) -> None:
    hub.add("org/corpus", FILES, kind="datasets")
    for url, message in {
        "hf://datasets/org/none/*": "The repository was not found",
        "hf://datasets/org/corpus@none/*": "none called none",
        "hf://datasets/org/corpus/*.nothing": "No file matches a pattern",
    }.items():
        with pytest.raises(InputError, match=message):
            build.plan(config_of(tmp_path, url))


def test_a_build_does_not_write_to_the_hub() -> None:
    with pytest.raises(ValueError, match="the URL of a storage that builds can write to"):
        BuildConfig(output="hf://datasets/org/out", input={"files": ["a"]})


@pytest.mark.parametrize(
    ("url", "pinned"),
    [
        ("/data/a.txt", "/data/a.txt"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("hf://datasets/o/n@{0}/a", "hf://datasets/o/n@{0}/a"),
        ("hf://datasets/o/n@v/a*.gz", "hf://datasets/o/n@{1}/a*.gz"),
        ("zip://*.txt::hf://datasets/o/n@v/a.zip", "zip://*.txt::hf://datasets/o/n@{1}/a.zip"),
    ],
)
def test_urls_are_pinned_to_known_commits(url: str, pinned: str) -> None:
    commits = ["0" * 40, "1" * 40]
    known = {"hf://datasets/o/n@v": commits[1]}
    assert pin(url.format(*commits), {}, known) == pinned.format(*commits)


def test_addresses_are_parsed_and_written_alike() -> None:
    for url in ("hf://datasets/o/n", "hf://datasets/o/n@v1/a/b", "hf://datasets/o/n@refs%2Fpr%2F1"):
        assert str(Repository.parse(url, "dataset")) == url
    with pytest.raises(ConfigError):
        Repository.parse("hf://datasets/o", "dataset")


@pytest.mark.slow
def test_a_replay_reads_the_commit_of_its_dataset(hub: HubServer, tmp_path: Path) -> None:
    bad = {"data/a.txt": b"good words<|endoftext|>bad \xff word<|endoftext|>"}
    repository = hub.add("org/corpus", bad, kind="datasets")
    url = "hf://datasets/org/corpus/data/*.txt"
    lenient = {"max_reject_fraction": 1.0}
    build.build(config_of(tmp_path, url).model_copy(update={"encode": EncodeConfig(**lenient)}))
    assert record(tmp_path, "tokens/manifest.json")["totals"]["rejected"] == 1
    repository.commit({"data/a.txt": b"other"})
    again = config_of(tmp_path, url, invalid_utf8="replace")
    own = TokenizerConfig(path=f"{tmp_path}/out/tokenizer")
    build.replay(again.model_copy(update={"encode": EncodeConfig(**lenient), "tokenizer": own}))
    assert record(tmp_path, "tokens/manifest.json")["totals"]["rejected"] == 0
