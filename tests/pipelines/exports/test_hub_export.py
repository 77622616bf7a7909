"""Exports to datasets of the Hub: commits with a card, continued where they were interrupted."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from build_support import checksums, config_for, some_text, write_corpus
from hub_server import TOKEN, HubServer, Repository, hub_server, use_hub

from pipelines import build
from pipelines.errors import ConfigError, DifferentConfigurationError, OutputError
from pipelines.exports import hub as hub_exports
from pipelines.exports.destinations import export_dataset
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory
from pipelines.verification.verify import verify

URL = "hf://datasets/org/tokens"
Export = Callable[..., str]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("built")
    write_corpus(directory / "data", {f"{i}.txt": some_text(12, start=i) for i in range(3)})
    build.build(config_for(directory))
    return directory / "out"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server() as server:
        use_hub(monkeypatch, server.url, tmp_path / "cache")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


def export(output: Path, url: str = URL, to: Any = "megatron", **options: Any) -> str:
    restart = options.pop("restart", False)
    return export_dataset(str(output), url, ExportOptions(to=to, **options), restart=restart)


def repository(hub: HubServer) -> Repository:
    return hub.repositories["datasets", "org/tokens"]


@pytest.mark.slow
def test_an_export_has_the_bytes_of_a_local_one_and_a_card(
    hub: HubServer, output: Path, tmp_path: Path
) -> None:
    shown = export(output)
    assert "in hf://datasets/org/tokens" in shown
    export_dataset(str(output), str(tmp_path / "local"), ExportOptions(to="megatron"))
    found = repository(hub).files()
    card = found.pop("README.md").decode()
    found.pop(".gitattributes")
    local = {
        name: (tmp_path / "local" / name).read_bytes() for name in checksums(tmp_path / "local")
    }
    assert {name: found[name] for name in local} == local
    assert found.keys() == local.keys()
    assert repository(hub).private
    assert yaml.safe_load(card.split("---")[1]) == {"tags": ["bpe-beam", "tokenized"]}
    manifest = json.loads(found["export.json"])
    assert f"| train | {manifest['splits']['train']['documents']:,} |" in card
    assert manifest["dataset"]["tokenizer"] in card
    for text in (TOKEN, str(tmp_path), str(output), hub.url):
        assert text not in card
    assert not list(output.glob("_hub-*"))
    assert verify(Directory(url=str(output))).problems == []
    requests = len(hub.requests)
    assert "already finished" in export(output)
    assert not any(one.startswith("PUT") or "commit" in one for one in hub.requests[requests:])


@pytest.mark.slow
def test_rows_for_training_are_loaded_by_split_and_described(hub: HubServer, output: Path) -> None:
    export(output, f"{URL}/packed", to="packed", sequence_length=64)
    found = repository(hub).files()
    card = found["packed/README.md"].decode()
    front = yaml.safe_load(card.split("---")[1])
    assert front["configs"][0]["data_files"] == [
        {"split": "train", "path": "packed/train-*.parquet"}
    ]
    [column] = [line for line in card.splitlines() if line.startswith("| `input_ids`")]
    assert "uint16" in column
    assert "| `sequence_length` | `64` |" in card
    [name] = [name for name in found if name.endswith(".parquet")]
    assert pq.read_table(io.BytesIO(found[name])).num_rows > 0


@pytest.mark.slow
def test_an_interrupted_upload_is_continued(
    hub: HubServer, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_exports, "_FILES_OF_A_COMMIT", 1)
    options = {"to": "llm.c", "max_tokens": 300}
    hub.fail[r"PUT /lfs/"] = 403
    with pytest.raises(OutputError, match="may not be used with this token"):
        export(output, **options)
    assert "_export.json" in repository(hub).files()
    hub.fail[r"PUT /lfs/"] = 400
    with pytest.raises(OutputError, match="The same command continues an upload"):
        export(output, **options)
    hub.fail.clear()
    commit = hub_exports._Remote.commit
    calls = []

    def fails(remote: Any, files: Any, removed: Any, message: str) -> None:
        calls.append(message)
        if len(calls) == 3:
            raise OutputError("cut")
        commit(remote, files, removed, message)

    with monkeypatch.context() as patched:
        patched.setattr(hub_exports._Remote, "commit", fails)
        with pytest.raises(OutputError, match="cut"):
            export(output, **options)
    there = [name for name in repository(hub).files() if name.endswith(".bin")]
    assert len(there) == 2
    assert list(output.glob("_hub-*"))
    hub.requests.clear()
    export(output, **options)
    files = repository(hub).files()
    total = sum(name.endswith(".bin") for name in files)
    assert hub.count("PUT /lfs/") == total - 2
    assert "_export.json" not in files
    assert "export.json" in files


@pytest.mark.slow
def test_another_export_is_refused_and_replaced_on_request(hub: HubServer, output: Path) -> None:
    export(output)
    with pytest.raises(DifferentConfigurationError, match='to: "megatron" → "npy"'):
        export(output, to="npy")
    export(output, to="npy", restart=True)
    assert repository(hub).files().keys() == {
        *(".gitattributes", "README.md", "export.json", "train.npy", "train.offsets.npy"),
    }


@pytest.mark.slow
def test_files_of_others_are_left_alone(hub: HubServer, output: Path) -> None:
    added = hub.add("org/tokens", {"a.txt": b"mine", "README.md": b"# mine"}, kind="datasets")
    with pytest.raises(OutputError, match="files that no export wrote"):
        export(output)
    added.commit({"a.txt": None})
    assert "README.md stays" in export(output)
    assert added.files()["README.md"] == b"# mine"


@pytest.mark.slow
def test_what_the_hub_refuses_is_said(
    hub: HubServer, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/tokens", {}, kind="datasets")
    with pytest.raises(OutputError, match="none called v9"):
        export(output, f"{URL}@v9")
    with pytest.raises(ConfigError, match="A commit cannot be changed"):
        export(output, f"{URL}@{'0' * 40}")
    with pytest.raises(ConfigError, match="not the address of a dataset repository"):
        export(output, "hf://org/tokens")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong-token")
    with pytest.raises(OutputError) as raised:
        export(output)
    assert "hf_wrong-token" not in str(raised.value)
