"""Exports from and to S3: the bytes of a local one, few reads, faults survived, no credential."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from build_support import command
from export_support import documents, write_dataset
from storage_support import KEY, S3, SECRET

from pipelines.dataset.reading import TokenDataset
from pipelines.errors import InputError
from pipelines.exports.export import export
from pipelines.exports.formats import FORMATS, ExportOptions
from pipelines.storage import retries
from pipelines.storage.directory import Directory


@pytest.fixture
def output(s3: S3, tmp_path: Path) -> Path:
    """A dataset on S3, and the same one here."""
    output = write_dataset(
        tmp_path / "out", {"train": [documents(300), documents(200, 1)], "validation": []}
    )
    for path in (output / "tokens").iterdir():
        s3.put(f"out/tokens/{path.name}", path.read_bytes())
    return output


@pytest.mark.slow
@pytest.mark.parametrize("to", FORMATS)
def test_an_export_from_s3_to_s3_has_the_bytes_of_a_local_one(
    s3: S3, output: Path, tmp_path: Path, to: str
) -> None:
    options = ExportOptions(to=to)  # type: ignore[arg-type]
    here = tmp_path / "here"
    export(TokenDataset.open(str(output)), Directory(url=str(here)), options)
    there = Directory(url=f"{s3.url}/there", storage_options=s3.options)
    dataset = TokenDataset.open(f"{s3.url}/out", s3.options)
    assert not export(dataset, there, options).was_there
    assert export(dataset, there, options).was_there
    found = {
        name.removeprefix("there/"): s3.get(name) for name in s3.names if name.startswith("there/")
    }
    assert found == {
        str(path.relative_to(here)): path.read_bytes() for path in here.rglob("*") if path.is_file()
    }
    assert s3.unfinished_uploads == 0


@pytest.mark.slow
def test_other_columns_than_those_asked_for_are_not_read(s3: S3, tmp_path: Path) -> None:
    big = [[np.random.default_rng(0).integers(0, 60_000, 1 << 19).tolist()]]
    output = write_dataset(tmp_path / "big", {"train": [big]})
    [path] = (output / "tokens").glob("*.parquet")
    for file in (output / "tokens").iterdir():
        s3.put(f"big/tokens/{file.name}", file.read_bytes())
    dataset = TokenDataset.open(f"{s3.url}/big", s3.options)
    s3.server.forget()
    assert [len(lengths) for lengths in dataset.document_lengths("train") if len(lengths)] == [1]
    sent = sum(seen.sent for seen in s3.server.requests)
    assert sent < path.stat().st_size / 4


@pytest.mark.slow
def test_passing_faults_are_survived(s3: S3, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_sleep", lambda seconds: None)
    dataset = TokenDataset.open(f"{s3.url}/out", s3.options)
    s3.server.faults = iter(["slow_down", None, "reset", None, "truncated", None, "unavailable"])
    there = Directory(url=f"{s3.url}/there", storage_options=s3.options)
    export(dataset, there, ExportOptions(to="megatron"))
    assert next(s3.server.faults, "all came") == "all came"
    here = output.parent / "here"
    export(TokenDataset.open(str(output)), Directory(url=str(here)), ExportOptions(to="megatron"))
    assert s3.get("there/train.bin") == (here / "train.bin").read_bytes()


@pytest.mark.slow
def test_a_file_that_is_gone_is_named(s3: S3, output: Path) -> None:
    dataset = TokenDataset.open(f"{s3.url}/out", s3.options)
    s3.backend.delete_object(s3.bucket, "out/tokens/train-00001-of-00002.parquet")
    there = Directory(url=f"{s3.url}/there", storage_options=s3.options)
    with pytest.raises(InputError, match="train-00001-of-00002"):
        export(dataset, there, ExportOptions(to="npy"))
    assert "there/export.json" not in s3.names


@pytest.mark.slow
def test_the_command_takes_options_of_the_storage_and_shows_no_credential(
    s3: S3, output: Path
) -> None:
    options = {"key": "${TEST_S3_KEY}", "secret": "${TEST_S3_SECRET}", "endpoint_url": s3.endpoint}
    arguments = [f"{s3.url}/out", f"{s3.url}/there", "--to", "nanogpt"]
    arguments += ["--storage-options", json.dumps(options)]
    variables = {"TEST_S3_KEY": KEY, "TEST_S3_SECRET": SECRET}
    done = command("export", *arguments, env=variables)
    assert done.returncode == 0, done.stderr
    assert "there/train.bin" in s3.names
    texts = [done.stdout, done.stderr, *(s3.get(n).decode("latin-1") for n in s3.names)]
    assert not any(SECRET in text or KEY in text for text in texts)
