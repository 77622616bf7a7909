"""An export from its checks to its manifest: what is refused, kept, made anew; memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from build_support import PACKAGES, command
from export_support import change_manifest, documents, repeat_file, write_dataset
from profiles import seldom

from pipelines import choices
from pipelines.config import BeamConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import (
    ConfigError,
    DifferentConfigurationError,
    InputError,
    OutputError,
)
from pipelines.exports import export as export_module
from pipelines.exports.export import Exported, export, format_export
from pipelines.exports.formats import FORMATS, ExportOptions
from pipelines.storage.directory import Directory
from pipelines.storage.locks import OutputLock


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return write_dataset(
        tmp_path / "out",
        {"train": [documents(30), documents(20, 1)], "validation": [documents(4)]},
    )


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def run(output: Path, target: Path, *, restart: bool = False, **options: Any) -> Exported:
    asked = ExportOptions(**{"to": "megatron", **options})
    dataset = TokenDataset.open(str(output))
    return export(dataset, Directory(url=str(target)), asked, restart=restart)


def contents(directory: Path) -> Mapping[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_the_manifest_says_what_was_made_from_what(output: Path, target: Path) -> None:
    exported = run(output, target)
    manifest = json.loads((target / "export.json").read_text())
    assert manifest == exported.manifest
    assert manifest["dataset"]["fingerprint"] == TokenDataset.open(str(output)).fingerprint
    assert manifest["options"] == {"id_type": "uint16"}
    assert manifest["splits"]["train"]["documents"] == 50
    names = ["train.bin", "train.idx", "validation.bin", "validation.idx"]
    assert [file["name"] for file in manifest["files"]] == names
    assert [file["bytes"] for file in manifest["files"]] == [
        (target / name).stat().st_size for name in names
    ]
    assert set(contents(target)) == {*names, "export.json"}
    assert str(target) in format_export(exported)


@pytest.mark.parametrize("to", FORMATS)
def test_equal_exports_are_equal_files(output: Path, target: Path, to: str) -> None:
    run(output, target / "a", to=to)
    run(output, target / "b", to=to)
    assert contents(target / "a") == contents(target / "b")


def test_a_finished_export_is_not_made_again(output: Path, target: Path) -> None:
    assert not run(output, target).was_there
    times = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    again = run(output, target)
    assert again.was_there
    assert format_export(again).startswith("already finished")
    assert {path: path.stat().st_mtime_ns for path in target.iterdir()} == times


def test_another_export_in_the_destination_is_refused_and_kept(output: Path, target: Path) -> None:
    run(output, target)
    before = contents(target)
    with pytest.raises(DifferentConfigurationError, match='to: "megatron" → "npy"'):
        run(output, target, to="npy")
    with pytest.raises(DifferentConfigurationError, match="split"):
        run(output, target, split="train")
    other = write_dataset(output.parent / "other", {"train": [documents(30, 9)]})
    with pytest.raises(DifferentConfigurationError, match=r"dataset\.fingerprint"):
        run(other, target)
    assert contents(target) == before


def test_files_of_others_are_refused_and_kept(output: Path, target: Path) -> None:
    for name in ("notes.txt", "train/data.txt"):
        place = target / name.replace("/", "-")
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("mine")
        for restart in (False, True):
            with pytest.raises(OutputError, match=name):
                run(output, place, restart=restart)
        assert contents(place) == {name: b"mine"}


def test_restart_goes_on_after_an_interrupted_restart(
    output: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(output, target, to="npy")
    remove = Directory.remove_files

    def interrupted(directory: Directory, names: Sequence[str]) -> None:
        if any(name.endswith(".npy") for name in names):
            raise KeyboardInterrupt
        remove(directory, names)

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "remove_files", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(output, target, to="nanogpt", restart=True)
    run(output, target, to="nanogpt", restart=True)
    run(output, target.parent / "fresh", to="nanogpt")
    assert contents(target) == contents(target.parent / "fresh")


@pytest.mark.parametrize("to", FORMATS)
def test_restart_replaces_an_export_and_nothing_else(output: Path, target: Path, to: str) -> None:
    run(output, target, to=to)
    (target / "notes.txt").write_text("mine")
    other = "npy" if to != "npy" else "nanogpt"
    run(output, target, to=other, restart=True)
    found = contents(target)
    assert found.pop("notes.txt") == b"mine"
    run(output, target.parent / "fresh", to=other)
    assert found == contents(target.parent / "fresh")


@pytest.mark.parametrize("to", [name for name, form in FORMATS.items() if not form.runs_pipelines])
def test_an_interrupted_export_is_made_anew(
    output: Path, target: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(output, target.parent / "whole", to=to)
    for step in range(1, 6):
        steps = iter(range(step))

        def fail(*arguments: Any, steps: Any = steps) -> None:
            if next(steps, None) is None:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(export_module.progress, "advance", fail)
            try:
                run(output, target, to=to)
            except (KeyboardInterrupt, RuntimeError):  # the latter from workers of a pipeline
                assert not (target / "export.json").exists()
    run(output, target, to=to)
    assert contents(target) == contents(target.parent / "whole")


def test_an_interrupted_export_is_not_mixed_with_another(
    output: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(export_module.progress, "advance", lambda amount: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(output, target)
    with pytest.raises(DifferentConfigurationError):
        run(output, target, to="npy")
    run(output, target, to="npy", restart=True)


def test_a_file_that_is_missing_or_cut_off_is_told(output: Path, target: Path) -> None:
    run(output, target)
    path = target / "train.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OutputError, match=r"train\.bin(.|\n)*--restart"):
        run(output, target)
    run(output, target, restart=True)
    path.unlink()
    with pytest.raises(OutputError, match=r"train\.bin"):
        run(output, target)


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("key", ["documents", "rows", "tokens"])
def test_no_export_is_finished_that_does_not_hold_what_the_manifest_says(
    output: Path, target: Path, to: str, key: str
) -> None:
    manifest = json.loads((output / "tokens/manifest.json").read_text())
    manifest["files"]["train"][1][key] += 1
    if key == "tokens":
        manifest["totals"]["tokens"] += 1
    change_manifest(output, **manifest)
    with pytest.raises((InputError, OutputError)):
        run(output, target, to=to)
    assert not (target / "export.json").exists()


def test_a_split_without_documents_is_left_out_or_refused(output: Path, target: Path) -> None:
    only = write_dataset(output.parent / "only", {"train": [documents(3)], "validation": [[]]})
    assert list(run(only, target).manifest["splits"]) == ["train"]
    with pytest.raises(ConfigError, match="nothing to export"):
        run(only, target, split="validation", restart=True)
    assert (target / "export.json").exists()


def test_files_of_mds_have_64_mib_unless_another_size_is_given() -> None:
    assert ExportOptions(to="mds").resolve("uint16")["shard_bytes"] == 64 << 20
    assert ExportOptions(to="mds", shard_bytes=5).resolve("uint16")["shard_bytes"] == 5


def test_options_of_other_formats_are_refused_with_their_owner() -> None:
    with pytest.raises(ConfigError, match=r"--max-tokens with --to llm\.c"):
        ExportOptions(to="megatron", max_tokens=5)
    with pytest.raises(ConfigError, match="--shard-bytes with --to mds"):
        ExportOptions(to="npy", shard_bytes=5)
    with pytest.raises(ConfigError, match="1 or above"):
        ExportOptions(to="mds", shard_bytes=0)
    with pytest.raises(ConfigError, match="--to megatron"):
        ExportOptions(to="tfrecord")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="uint16 or int32"):
        ExportOptions(to="megatron", id_type="uint32").resolve("uint32")


def test_documents_that_run_into_each_other_are_told(output: Path, target: Path) -> None:
    assert run(output, target / "megatron").warnings == ()
    [warning] = run(output, target / "nanogpt", to="nanogpt").warnings
    assert "nothing separates documents" in warning
    manifest = json.loads((output / "tokens/manifest.json").read_text())
    manifest["configuration"]["encode"]["append"] = "<|endoftext|>"
    change_manifest(output, **manifest)
    assert run(output, target / "appended", to="nanogpt").warnings == ()


@pytest.mark.parametrize("place", ["", "tokens", "tokens/x", "counts", "rejects/a", "../out/."])
def test_an_export_into_the_folders_of_the_build_is_refused(output: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="that the build writes"):
        run(output, output / place)
    assert not (output / "_lock.json").exists()


def test_an_export_beside_the_folders_of_the_build_is_made(output: Path) -> None:
    run(output, output / "exports/megatron")


@pytest.mark.parametrize(
    ("beam", "beam_args", "found"),
    [
        (BeamConfig(workers=2), (), "--workers 2"),
        (BeamConfig(runner="FlinkRunner"), (), "--runner FlinkRunner"),
        (None, ("--direct_running_mode=bogus",), "--direct_running_mode=bogus"),
    ],
)
def test_formats_without_pipelines_refuse_what_only_pipelines_have(
    output: Path, target: Path, beam: BeamConfig | None, beam_args: tuple[str, ...], found: str
) -> None:
    dataset, options = TokenDataset.open(str(output)), ExportOptions(to="npy")
    with pytest.raises(ConfigError, match=f"found: --to npy {found}"):
        export(dataset, Directory(url=str(target)), options, beam=beam, beam_args=beam_args)
    assert not target.exists()


@pytest.mark.parametrize(
    ("beam", "beam_args", "problem"),
    [
        (BeamConfig(), ("--no_wait_until_finish",), "must wait"),
        (BeamConfig(), ("--direct_num=2",), "Unknown Beam option"),
        (BeamConfig(runner="PrismRunner", workers=2), (), "workers has no effect"),
        (BeamConfig(runner="FlinkRunner"), ("--flink_master=flink.example:1",), "cannot reach"),
    ],
)
def test_options_that_a_runner_cannot_have_are_refused_before_anything_is_written(
    output: Path, target: Path, beam: BeamConfig, beam_args: tuple[str, ...], problem: str
) -> None:
    dataset, options = TokenDataset.open(str(output)), ExportOptions(to="packed")
    with pytest.raises(ConfigError, match=problem):
        export(dataset, Directory(url=str(target)), options, beam=beam, beam_args=beam_args)
    assert not target.exists()


@pytest.mark.slow
def test_fewer_files_than_asked_for_are_told(output: Path, target: Path) -> None:
    [warning] = run(output, target, to="documents", files=100_000, split="train").warnings
    assert warning.startswith("the training split has 50 files, not the 100,000 of --files")


@pytest.mark.slow
def test_padding_above_the_vocabulary_is_told(
    output: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(output, target / "unknown", to="packed", pad_id=9000).warnings == ()
    model = SimpleNamespace(max_id=999)
    monkeypatch.setattr(TokenDataset, "model", lambda *_: model)
    assert run(output, target / "within", to="packed", pad_id=999).warnings == ()
    [warning] = run(output, target / "above", to="packed", pad_id=1000).warnings
    assert "--pad-id 1000 is larger than the ids of the vocabulary (up to 999)" in warning


# --- the command


def test_the_command_knows_the_names_that_exports_know() -> None:
    assert get_args(choices.ExportFormat) == tuple(FORMATS)
    assert get_args(choices.Runner) == get_args(BeamConfig.model_fields["runner"].annotation)


def test_the_command_exports_and_says_what(output: Path, target: Path) -> None:
    done = command(
        "export", output, target, "--to", "llm.c", "--max-tokens", 500, "--split", "train"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("train: documents 50, tokens ")
    assert len(list(target.glob("train_*.bin"))) > 1
    again = command(
        "export", output, target, "--to", "llm.c", "--max-tokens", 500, "--split", "train"
    )
    assert again.stdout.startswith("already finished")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--to", "megatron", "--max-tokens", "5"], 2, "--to llm.c"),
        (["--to", "tfrecord"], 2, "megatron"),
        (["--to", "npy", "--storage-options", "key"], 2, "a JSON object"),
        (["--to", "npy", "--split", "validation"], 0, ""),
    ],
)
def test_the_command_says_what_is_wrong(
    output: Path, target: Path, arguments: list[str], code: int, says: str
) -> None:
    done = command("export", output, target, *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert says in done.stderr


def test_a_build_that_is_not_finished_is_told(tmp_path: Path, target: Path) -> None:
    done = command("export", tmp_path, target, "--to", "npy")
    assert done.returncode == 4
    assert "beam-bpe encode" in done.stderr


# --- memory

_MEASURE = """
import resource, sys
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import export
from pipelines.exports.formats import FORMATS, ExportOptions
from pipelines.storage.locks import OutputLock
from pipelines.storage.directory import Directory

for output in sys.argv[1:]:
    dataset = TokenDataset.open(output)
    for to in FORMATS:
        export(dataset, Directory(url=f"{output}/{to}"), ExportOptions(to=to))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.process
@pytest.mark.nightly
def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 50_000, 1 << 20, np.uint16)
    file = [[ids[begin : begin + 700]] for begin in range(0, len(ids), 700)]
    outputs = [
        repeat_file(write_dataset(tmp_path / str(times), {"train": [file]}), times)
        for times in (10, 40)
    ]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, *map(str, outputs)],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        text=True,
        check=True,
    )
    small, large = map(int, done.stdout.split())
    assert large < small + 16, f"{small} MiB of 10 M ids, {large} MiB of 40 M"


# --- two at once


@pytest.mark.slow
def test_two_exports_at_once_write_one_and_the_other_says_so(output: Path, target: Path) -> None:
    with OutputLock(Directory(url=str(target))) as lock:
        lock.acquire()
        for options in ({}, {"to": "npy"}, {"restart": True}):
            with pytest.raises(OutputError, match="process"):
                run(output, target, **options)
    assert contents(target) == {}
    run(output, target)
    with OutputLock(Directory(url=str(target))) as lock:
        lock.acquire()
        assert run(output, target).was_there


def test_an_export_that_lost_its_lock_writes_nothing_more(
    output: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(amount: int) -> None:
        lock = json.loads((target / "_lock.json").read_text())
        (target / "_lock.json").write_text(json.dumps({**lock, "owner": "another"}))

    monkeypatch.setattr(export_module.progress, "advance", lose)
    with pytest.raises(OutputError, match="no longer holds"):
        run(output, target)
    assert set(contents(target)) == {"_export.json", "_lock.json"}


_KILLED = """
import os, signal, sys
from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory

output, target, to, left = sys.argv[1:]
calls = iter(range(int(left)))
progress.advance = lambda amount: next(calls, None) is None and os.kill(os.getpid(), signal.SIGKILL)
export(TokenDataset.open(output), Directory(url=target), ExportOptions(to=to))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("to", "left"), [*seldom([("megatron", 2), ("megatron", 0)], 2), ("mds", 1)]
)
def test_after_a_kill_the_same_command_makes_the_same_files(
    output: Path, target: Path, to: str, left: int
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(output), str(target), to, str(left)],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (target / "export.json").exists()
    run(output, target, to=to)
    run(output, target.parent / "whole", to=to)
    assert contents(target) == contents(target.parent / "whole")
