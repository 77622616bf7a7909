"""Whole builds over files, archives and directories whose names look like something else."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from build_support import checksums

from bpe_core import BPETokenizer
from pipelines import build
from pipelines.config import BuildConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import InputError
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory
from pipelines.tasks.listing import list_files
from pipelines.verification.verify import verify

NAMES = [
    "a", "a::b.txt", "zip:x", "zip::c", "simplecache::a", "file::a", "file:a", "memory:a",
    "*", "?", "[a]", "[*]", "a[:]b", "#", "a#b", "%", "%41", "a\nb", "a\\b", "~", "~root",
    "a b", " ", "${HOME}", "é", "-", "a=b", "a:", ":", "\x1b[31m", ".a", "deep/a::b", "zip:/a::b",
    "s3:/bucket@x?y", "x::/[y]*/~",
]  # fmt: skip
ODD = "zip::o[u]t*? #%~=:"


def text_of(name: str) -> str:
    return f"The text of {name!r} and of no other file."


def written(folder: Path) -> Path:
    """The folder with a file of each name."""
    for name in NAMES:
        path = Path(f"{folder}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(name))
        os.utime(path, (1, 1))  # so that no time tells two files of one size apart
    return folder


def zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in NAMES:
            archive.writestr(name, text_of(name))
    return path


def tarred(path: Path) -> Path:
    with tarfile.open(path, "w") as archive:
        for name in NAMES:
            data = text_of(name).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def config_of(output: str, *sources: tuple[str, str], **source: object) -> BuildConfig:
    values = [
        {"name": name, "files": [file], "separator": None, **source} for name, file in sources
    ]
    return BuildConfig.model_validate(
        {"output": output, "input": values, "tokenizer": {"vocab_size": 300}}
    )


def texts(dataset: TokenDataset) -> dict[str, str]:
    """The texts of the documents by their source."""
    tokenizer = BPETokenizer.load(Path(dataset.output.url) / "tokenizer")
    found = {}
    for file in dataset.of_split("train"):
        rows = pq.read_table(Path(dataset.tokens.url) / file.name).to_pylist()
        found |= {row["source"]: tokenizer.decode(row["input_ids"][:-1]) for row in rows}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("output", ["out", f"./{ODD}", "./s3://bucket/out", "~out"])
def test_all_files_are_read_by_their_names(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = written(tmp_path / "zip::in")
    archive = zipped(tmp_path / "a::b.zip")
    sources = [
        ("folder", "zip[:]:in/**/*"),
        ("zip", f"zip://**::{archive}"),
        ("tar", f"tar://**::{tarred(tmp_path / 'tar:::*.tar')}"),
    ]
    config = config_of(output, *sources)
    build.build(config)
    out = Directory(url=f"{tmp_path}/{output.removeprefix('./')}")
    assert Path(out.url, "tokens").is_dir()
    dataset = TokenDataset.open(out.url)
    expected = {f"{kind}/{name}": text_of(name) for kind, _ in sources for name in NAMES}
    assert texts(dataset) == expected
    for given in (None, config):
        result = verify(out, sources=True, config=given)
        assert (result.problems, result.documents) == ([], len(expected))
    assert all(stage.state == "already finished" for stage in build.build(config).stages)

    destination = Directory(url=f"{tmp_path}/exports::/[a]*")
    exported = export(dataset, destination, ExportOptions(to="nanogpt"))
    assert exported.manifest["files"]
    assert verify(destination).problems == []
    (folder / "a::b.txt").write_text(text_of("A::b.txt"))
    (problem, *_) = verify(out, sources=True).problems
    assert "a::b.txt" in str(problem)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_can_be_given(name: str, tmp_path: Path) -> None:
    folder, archive = written(tmp_path / "in"), zipped(tmp_path / "a.zip")
    literal = "".join(f"[{char}]" if char in "*?[" else char for char in name)
    member = "".join(f"[{char}]" if char in "*?[:" else char for char in name)
    for files in (
        f"{folder}/{literal}",
        f"file://{folder}/{literal}",
        f"zip://{member}::{archive}",
    ):
        config = config_of(str(tmp_path / "out"), ("x", files))
        (file,) = list_files(config.input[0], resolve=config.resolve_glob)
        assert file.name == name.rpartition("/")[2]
        assert file.size == len(text_of(name).encode())


@pytest.mark.slow
def test_repaired_file_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    names = ["a=b::c[1].txt", "a.txt", "b::c.txt"]
    for name in names:
        (tmp_path / "in" / name).write_bytes(b"bad \xff" if name != "a.txt" else b"good")
    config = config_of(f"./{ODD}", ("x", "in/*"))
    values = config.model_dump(mode="json", exclude_unset=True)
    values["encode"] = {"max_reject_fraction": 1.0}
    config = BuildConfig.model_validate(values)
    build.build(config)
    repaired = tmp_path / "zip::" / names[0]
    repaired.parent.mkdir()
    repaired.write_bytes(b"bad !")
    with zipfile.ZipFile(tmp_path / "x::y.zip", "w") as archive:
        archive.writestr("b::c[1].txt", b"bad !")
    member = "zip://b[:]:c[1].txt::" + str(tmp_path / "x::y.zip")
    # As the command divides NAME=PATH.
    build.replay(config, {"x/a": f"b::c[1].txt={repaired}", "x/b::c.txt": member})
    out = Directory(url=str(tmp_path / ODD))
    assert set(texts(TokenDataset.open(out.url)).values()) == {"good", "bad !"}
    assert verify(out, config=config, sources=True).problems == []


def test_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff")).write_bytes(b"text")
    config = config_of(str(tmp_path / "out"), ("x", str(tmp_path / "*")))
    with pytest.raises(InputError, match=r"not UTF-8(.|\n)*a\\xff"):
        build.build(config)
    assert checksums(tmp_path / "out") == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_files_of_one_name_in_an_archive_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    members = [("a.txt", b"first"), ("b.txt", b"b"), ("a.txt", b"second")]
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive, pytest.warns(match="Duplicate name"):
            for name, data in members:
                archive.writestr(name, data)
    else:
        with tarfile.open(path, "w") as tar:
            for name, data in [*members, ("./a.txt", b"third")]:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    files = f"{kind}://*::{path}"
    with pytest.raises(InputError, match="several files with the same name") as error:
        build.build(config_of(str(tmp_path / "out"), ("x", files)))
    assert "5 bytes at byte " in str(error.value)
    assert "6 bytes at byte " in str(error.value)
    assert "input[0].exclude" in str(error.value)
    build.build(config_of(str(tmp_path / "out"), ("x", files), exclude=["a.txt"]))
    assert texts(TokenDataset.open(str(tmp_path / "out"))) == {"x/b.txt": "b"}
