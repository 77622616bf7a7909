"""What is in an output directory is never mixed, overwritten or removed unless builds made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from build_support import checksums, states

from pipelines.errors import DifferentConfigurationError, OutputError
from pipelines.manifest import stage as manifest
from pipelines.manifest.stage import Identity
from pipelines.storage.directory import Directory

IDENTITY = Identity(
    configuration={"a": {"b": 1}},
    inputs={"x.txt": 5, "y.txt": 6},
    marks={"x.txt": "1", "y.txt": "2"},
)
OURS = r"part-\d+"


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(url=str(tmp_path / "stage"))


def finished(directory: Directory) -> dict[str, Any]:
    manifest.begin_stage(directory, IDENTITY)
    directory.write_bytes("part-1", b"12345")
    content = {"shards": [{"name": "part-1", "bytes": 5}], "fingerprint": "f"}
    return manifest.finish_stage(directory, IDENTITY, content, {"seconds": 1})


def test_a_directory_that_is_not_there_or_empty_is_not_begun(directory: Directory) -> None:
    assert manifest.finished_manifest(directory, IDENTITY) is None
    directory.create()
    assert manifest.finished_manifest(directory, IDENTITY) is None


def test_a_stage_that_has_begun_can_go_on(directory: Directory) -> None:
    manifest.begin_stage(directory, IDENTITY)
    directory.write_bytes("part-1", b"")
    assert manifest.finished_manifest(directory, IDENTITY) is None


def test_a_finished_stage_gives_its_manifest(directory: Directory) -> None:
    made = finished(directory)
    assert manifest.finished_manifest(directory, IDENTITY) == made
    assert set(directory.sizes()) == {"manifest.json", "run.json", "part-1"}
    assert made["inputs"] == {"x.txt": 5, "y.txt": 6}
    assert "seconds" not in made


def test_the_manifest_holds_nothing_of_machine_or_moment(tmp_path: Path) -> None:
    both = [Directory(url=str(tmp_path / name)) for name in "ab"]
    for directory, marks in zip(both, ("1", "2"), strict=True):
        identity = replace(IDENTITY, marks={"x.txt": marks, "y.txt": marks})
        manifest.begin_stage(directory, identity)
        manifest.finish_stage(directory, identity, {}, {"seconds": marks})
    first, second = (checksums(Path(directory.url)) for directory in both)
    assert first == second


@pytest.mark.parametrize("state", ["begun", "finished"])
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"configuration": {"a": {"b": 2}}}, "a.b: 1 → 2"),
        ({"configuration": {"a": {"b": 1}, "c": "d"}}, 'c: not set → "d"'),
        ({"inputs": {"x.txt": 5}, "marks": {"x.txt": "1"}}, '"6 bytes" → not set'),
        ({"inputs": {"x.txt": 5, "y.txt": 9}}, '"6 bytes" → "9 bytes"'),
        ({"inputs": {**IDENTITY.inputs, "z.txt": 1}}, 'not set → "1 bytes"'),
        (
            {"marks": {"x.txt": "1", "y.txt": "3"}},
            "y.txt: as large as before, but changed since (2 → 3)",
        ),
    ],
)
def test_another_configuration_or_other_inputs_stop_and_show_what_differs(
    state: str, change: dict[str, Any], shown: str, directory: Directory
) -> None:
    if state == "begun":
        manifest.begin_stage(directory, IDENTITY)
    else:
        finished(directory)
    before = states(Path(directory.url))
    with pytest.raises(DifferentConfigurationError) as error:
        manifest.finished_manifest(directory, replace(IDENTITY, **change))
    assert shown in str(error.value)
    assert directory.url in str(error.value)
    assert "--restart" in str(error.value)
    assert states(Path(directory.url)) == before


def test_an_output_of_another_version_is_left_alone(directory: Directory) -> None:
    made = finished(directory)
    directory.write_json("manifest.json", {**made, "format": 1})
    with pytest.raises(DifferentConfigurationError, match="another version") as error:
        manifest.finished_manifest(directory, IDENTITY)
    assert "format 1" in str(error.value)


def test_inputs_may_be_listed_with_what_became_of_them(directory: Directory) -> None:
    listed = [{"name": name, "size": size} for name, size in IDENTITY.inputs.items()]
    manifest.begin_stage(directory, IDENTITY)
    manifest.finish_stage(directory, IDENTITY, {"inputs": listed}, {})
    found = manifest.finished_manifest(directory, IDENTITY)
    assert found is not None and found["inputs"] == listed
    changed = replace(IDENTITY, inputs={**IDENTITY.inputs, "y.txt": 7})
    with pytest.raises(DifferentConfigurationError, match='"6 bytes" → "7 bytes"'):
        manifest.finished_manifest(directory, changed)


def test_many_differences_are_shown_in_part(directory: Directory) -> None:
    finished(directory)
    inputs = {f"{i}.txt": 1 for i in range(50)}
    with pytest.raises(DifferentConfigurationError) as error:
        manifest.finished_manifest(directory, replace(IDENTITY, inputs=inputs))
    assert "and 40 more" in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"), [("thesis.docx", ""), ("manifest.json", '{"name": "an extension"}')]
)
def test_files_that_no_build_wrote_are_refused(name: str, text: str, directory: Directory) -> None:
    directory.write_bytes(name, text.encode())
    with pytest.raises(OutputError, match="no build of this tool wrote") as error:
        manifest.finished_manifest(directory, IDENTITY)
    assert name in str(error.value)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"1234")])
def test_a_finished_stage_with_a_file_missing_or_cut_short_is_not_finished_quietly(
    damage: Callable[[Path], Any], directory: Directory
) -> None:
    finished(directory)
    damage(Path(directory.path("part-1")))
    with pytest.raises(OutputError) as error:
        manifest.finished_manifest(directory, IDENTITY)
    assert "part-1" in str(error.value)
    assert "--restart" in str(error.value)


def test_finishing_removes_what_killed_writers_left(directory: Directory) -> None:
    directory.create()
    (Path(directory.url) / ".part-1.0123456789abcdef.tmp").touch()
    finished(directory)
    assert set(directory.sizes()) == {"manifest.json", "run.json", "part-1"}


# --- discarding


def discard(directory: Directory) -> None:
    manifest.discard_stage(directory, OURS)


@pytest.mark.parametrize("state", ["begun", "finished"])
def test_discarding_removes_what_builds_wrote_and_nothing_else(
    state: str, directory: Directory
) -> None:
    manifest.begin_stage(directory, IDENTITY)
    directory.write_bytes("part-1", b"12345")
    if state == "finished":
        finished(directory)
    foreign = {"part-1.bak", "part-", "notes.txt", "manifest.json.old", ".gitignore", "_mine"}
    for name in foreign:
        directory.write_bytes(name, b"mine")
    (directory / "folder").write_bytes("part-1", b"mine")
    discard(directory)
    assert set(directory.sizes()) == foreign | {"_plan.json"}
    assert (directory / "folder").sizes() == {"part-1": 4}


def test_after_discarding_another_configuration_can_begin_beside_foreign_files(
    directory: Directory,
) -> None:
    finished(directory)
    directory.write_bytes("notes.txt", b"mine")
    discard(directory)
    other = replace(IDENTITY, configuration={"other": 1})
    assert manifest.finished_manifest(directory, other) is None
    manifest.begin_stage(directory, other)
    manifest.finish_stage(directory, other, {}, {})
    assert manifest.finished_manifest(directory, other) is not None
    assert set(directory.sizes()) == {"manifest.json", "run.json", "notes.txt"}


def test_nothing_is_discarded_where_no_build_has_been(directory: Directory) -> None:
    directory.write_bytes("part-1", b"somebody's")
    (directory / "_scratch").write_bytes("x", b"somebody's")
    before = states(Path(directory.url))
    discard(directory)
    assert states(Path(directory.url)) == before
    with pytest.raises(OutputError):
        manifest.finished_manifest(directory, IDENTITY)


def test_an_interrupted_discard_still_says_what_the_rest_is_of(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(directory)

    def fail(self: Directory) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Directory, "remove_leftovers", fail)
        discard(directory)
    assert manifest.finished_manifest(directory, IDENTITY) is None
    with pytest.raises(DifferentConfigurationError):
        manifest.finished_manifest(directory, replace(IDENTITY, configuration={}))
    discard(directory)
    assert set(directory.sizes()) == {"_plan.json"}


@pytest.mark.parametrize(
    ("stage", "command", "mending"),
    [
        ("counts", "build", ["build"]),
        ("tokens", "build", ["build"]),
        ("counts", "count", ["count"]),
        ("counts", "train", ["count", "train"]),
        ("tokenizer", "encode", ["train", "encode"]),
        ("tokens", "encode", ["encode"]),
        ("tokens", None, ["encode"]),
    ],
)
def test_a_refusal_names_the_commands_that_mend_it(
    stage: str, command: str | None, mending: list[str], directory: Directory
) -> None:
    place = directory / stage
    manifest.begin_stage(place, replace(IDENTITY, configuration={"input": []}))
    with pytest.raises(DifferentConfigurationError) as error:
        manifest.finished_manifest(place, replace(IDENTITY, configuration={}), command=command)
    named = ", then ".join(f"`beam-bpe {name} CONFIG --restart`" for name in mending)
    assert str(error.value).endswith(f"anew: {named}.")
