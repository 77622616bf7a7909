"""What is in an output directory is never mixed, overwritten or removed unless builds made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from build_support import checksums, states

from pipelines import accounting
from pipelines.console.units import format_bytes
from pipelines.errors import DifferentConfigurationError, OutputError
from pipelines.manifest.models import Manifest
from pipelines.manifest.stage import COUNT, ENCODE, TRAIN, Identity, Stage
from pipelines.manifest.stage_comparison import find_finished_manifest, is_bound
from pipelines.manifest.stage_records import load_plan
from pipelines.manifest.stage_writing import begin_stage, discard_stage, finish_stage
from pipelines.storage.directory import Directory

IDENTITY = Identity(
    configuration={
        "a": {"b": 1},
        "encode": {},
        "id_type": "uint16",
        "input": [],
        "tokenizer": "0" * 32,
    },
    inputs={"x.txt": 5, "y.txt": 6},
    marks={"x.txt": "1", "y.txt": "2"},
)
STAGE = TRAIN
OURS = r"part-\d+"


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(url=str(tmp_path / "stage"))


NUMBERS = dict.fromkeys(accounting.NUMBERS, 0)
FILE = {"name": "part-1", "bytes": 5, "xxh3_128": "0" * 32, "rows": 1}
TOTALS = {**NUMBERS, "hash_sum": "0" * 32, "bad_files": [], "reasons": {}}
CORPUS = {
    "sources": [{"name": None, "planned_bytes": 11, **TOTALS}],
    "corpus": f"0-{'0' * 32}",
}
FACTS = {"seconds": 1, "runner": "DirectRunner", "workers": 1}


def manifest_of(stage: Stage[Any], identity: Identity = IDENTITY, **fields: Any) -> Manifest:
    """A manifest of a stage with one file, `part-1`."""
    content: dict[str, Any] = {"inputs": identity.inputs, **CORPUS}
    if stage == COUNT:
        counted = dict.fromkeys(("distinct_pretokens", "pretokens", "long_pretokens"), 0)
        content |= {"shards": [{**FILE, "pretokens": 1}], "fingerprint": "f" * 32}
        content["totals"] = {**TOTALS, **counted}
    elif stage == TRAIN:
        numbers = dict.fromkeys(("merges", "vocab_size", "vocab_size_asked_for"), 1)
        content = {
            "inputs": identity.inputs,
            "counts": "f" * 32,
            "fingerprint": "0" * 32,
            "files": [{name: FILE[name] for name in ("name", "bytes", "xxh3_128")}],
            "stop_reason": "vocab_size",
            "stopped_because": "enough",
            "not_written": {},
            **numbers,
        }
    else:
        encoded = dict.fromkeys(("train_rows", "validation_rows", "tokens", "text_bytes"), 0)
        entry = {"generation": "base", "planned_bytes": None, "unread": False, "bad": False}
        content |= {
            "inputs": [
                {"name": label, "size": size, **entry, **NUMBERS}
                for label, size in identity.inputs.items()
            ],
            "tokenizer": "0" * 32,
            "counts": None,
            "generations": [
                {
                    "name": "base",
                    "kind": "base",
                    "tasks": 1,
                    "configuration_fingerprint": identity.configuration_fingerprint,
                    "corpus": CORPUS["corpus"],
                }
            ],
            "files": {
                "train": [{**FILE, "documents": 0, "tokens": 0, "text_bytes": 0}],
                **{kind: [] for kind in ("validation", "rejects", "statistics")},
            },
            "totals": {**TOTALS, **encoded},
        }
    return stage.manifest.seal(identity.configuration, **{**content, **fields})


def finished(
    directory: Directory, identity: Identity = IDENTITY, stage: Stage[Any] = STAGE
) -> Manifest:
    begin_stage(directory, identity)
    directory.write_bytes("part-1", b"12345")
    made = manifest_of(stage, identity)
    finish_stage(stage, directory, identity, made, FACTS)
    return made


def test_a_directory_that_is_not_there_or_empty_is_not_begun(directory: Directory) -> None:
    assert find_finished_manifest(STAGE, directory, IDENTITY) is None
    directory.create()
    assert find_finished_manifest(STAGE, directory, IDENTITY) is None


def test_a_stage_that_has_begun_can_go_on(directory: Directory) -> None:
    begin_stage(directory, IDENTITY)
    directory.write_bytes("part-1", b"")
    assert find_finished_manifest(STAGE, directory, IDENTITY) is None


def test_a_finished_stage_gives_its_manifest(directory: Directory) -> None:
    made = finished(directory)
    assert find_finished_manifest(STAGE, directory, IDENTITY) == made
    assert set(directory.sizes()) == {"manifest.json", "run.json", "part-1"}
    assert made.input_sizes == {"x.txt": (5,), "y.txt": (6,)}
    assert "seconds" not in made.to_json()


def test_the_manifest_holds_nothing_of_machine_or_moment(tmp_path: Path) -> None:
    both = [Directory(url=str(tmp_path / name)) for name in "ab"]
    for directory, marks in zip(both, ("1", "2"), strict=True):
        identity = replace(IDENTITY, marks={"x.txt": marks, "y.txt": marks})
        finished(directory, identity)
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
        begin_stage(directory, IDENTITY)
        finish_a_task(directory, documents=1)
    else:
        finished(directory)
    before = states(Path(directory.url))
    stage = COUNT if state == "begun" else STAGE
    with pytest.raises(DifferentConfigurationError) as error:
        find_finished_manifest(stage, directory, replace(IDENTITY, **change))
    assert shown in str(error.value)
    assert directory.url in str(error.value)
    assert "--restart" in str(error.value)
    assert states(Path(directory.url)) == before


def finish_a_task(directory: Directory, documents: int) -> None:
    totals = {**TOTALS, "documents": documents, "bad_files": [], "reasons": {}}
    note = {
        "plan_id": "0" * 32,
        "tasks": {"0": "0" * 32},
        "runs": [],
        "sources": [{key: totals[key] for key in (*NUMBERS, "hash_sum", "bad_files", "reasons")}],
        "long_pretokens": 0,
        "fingerprint": "0" * 32,
    }
    scratch = directory / "_runs" / ("0" * 32)
    scratch.create()
    scratch.write_json(f"commit-{'0' * 32}.json", note)


@pytest.mark.parametrize("tasks", [0, 1])
def test_a_stage_that_has_finished_no_document_may_begin_again_otherwise(
    tasks: int, directory: Directory
) -> None:
    begin_stage(directory, IDENTITY)
    for _ in range(tasks):
        finish_a_task(directory, documents=0)
    other = replace(IDENTITY, configuration={"a": {"b": 2}})
    assert find_finished_manifest(COUNT, directory, other) is None
    plan = load_plan(COUNT, directory)
    assert plan is not None
    assert is_bound(COUNT, directory, plan, IDENTITY)
    assert not is_bound(COUNT, directory, plan, other)


def test_an_output_of_another_version_is_left_alone(directory: Directory) -> None:
    made = finished(directory)
    directory.write_json("manifest.json", {**made.to_json(), "format": 1})
    with pytest.raises(DifferentConfigurationError, match="another version") as error:
        find_finished_manifest(STAGE, directory, IDENTITY)
    assert "format 1" in str(error.value)


def test_inputs_may_be_listed_with_what_became_of_them(directory: Directory) -> None:
    made = finished(directory, stage=ENCODE)
    found = find_finished_manifest(ENCODE, directory, IDENTITY)
    assert found == made
    changed = replace(IDENTITY, inputs={**IDENTITY.inputs, "y.txt": 7})
    with pytest.raises(DifferentConfigurationError, match='"6 bytes" → "7 bytes"'):
        find_finished_manifest(ENCODE, directory, changed)


@pytest.mark.parametrize(
    ("name", "change", "shown"),
    [
        ("manifest.json", {"generations": []}, "generations: "),
        ("manifest.json", {"files": []}, "files: "),
        ("manifest.json", {"inputs": {"x.txt": 5}}, "inputs: "),
        ("manifest.json", {"more": 1}, "more: "),
        ("_plan.json", {"inputs": {"x.txt": "5"}}, "inputs.x.txt: "),
        ("_plan.json", {"tasks": -1}, "tasks: "),
    ],
)
def test_damaged_records_are_named(
    name: str, change: dict[str, Any], shown: str, directory: Directory
) -> None:
    """An error names the file, the key, and the way out."""
    finished(directory, stage=ENCODE)
    if name == "_plan.json":
        directory.remove("manifest.json")
        begin_stage(directory, IDENTITY)
    directory.write_json(name, {**(directory.read_json(name) or {}), **change})
    check_damaged(directory, name, shown)


@pytest.mark.parametrize("name", ["manifest.json", "_plan.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", '{"a":' * 100_000, "\udcff"])
def test_records_that_are_not_json_objects_are_named(
    name: str, text: str, directory: Directory
) -> None:
    directory.write_bytes(name, text.encode("utf-8", "surrogateescape"))
    check_damaged(directory, name, "")


def check_damaged(directory: Directory, name: str, shown: str) -> None:
    with pytest.raises(OutputError, match="damaged") as error:
        find_finished_manifest(ENCODE, directory, IDENTITY)
    assert f"found: {shown}" in str(error.value)
    assert directory.path(name) in str(error.value)
    assert "`beam-bpe encode CONFIG --restart`" in str(error.value)


def test_many_differences_are_shown_in_part(directory: Directory) -> None:
    finished(directory)
    inputs = {f"{i}.txt": 1 for i in range(50)}
    with pytest.raises(DifferentConfigurationError) as error:
        find_finished_manifest(STAGE, directory, replace(IDENTITY, inputs=inputs))
    assert "and 40 more" in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"), [("thesis.docx", ""), ("manifest.json", '{"name": "an extension"}')]
)
def test_files_that_no_build_wrote_are_refused(name: str, text: str, directory: Directory) -> None:
    directory.write_bytes(name, text.encode())
    with pytest.raises(OutputError, match="no build of this tool wrote") as error:
        find_finished_manifest(STAGE, directory, IDENTITY)
    assert name in str(error.value)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"1234")])
def test_a_finished_stage_with_a_file_missing_or_cut_short_is_not_finished_quietly(
    damage: Callable[[Path], Any], directory: Directory
) -> None:
    finished(directory)
    damage(Path(directory.path("part-1")))
    with pytest.raises(OutputError) as error:
        find_finished_manifest(STAGE, directory, IDENTITY)
    assert "part-1" in str(error.value)
    assert "--restart" in str(error.value)


def test_finishing_removes_what_killed_writers_left(directory: Directory) -> None:
    directory.create()
    (Path(directory.url) / ".part-1.0123456789abcdef.tmp").touch()
    finished(directory)
    assert set(directory.sizes()) == {"manifest.json", "run.json", "part-1"}


# --- discarding


def discard(directory: Directory) -> None:
    discard_stage(STAGE, directory, OURS)


@pytest.mark.parametrize("state", ["begun", "finished"])
def test_discarding_removes_what_builds_wrote_and_nothing_else(
    state: str, directory: Directory
) -> None:
    begin_stage(directory, IDENTITY)
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
    assert find_finished_manifest(STAGE, directory, other) is None
    finished(directory, other)
    assert find_finished_manifest(STAGE, directory, other) is not None
    assert set(directory.sizes()) == {"manifest.json", "run.json", "notes.txt", "part-1"}


def test_nothing_is_discarded_where_no_build_has_been(directory: Directory) -> None:
    directory.write_bytes("part-1", b"somebody's")
    (directory / "_scratch").write_bytes("x", b"somebody's")
    before = states(Path(directory.url))
    discard(directory)
    assert states(Path(directory.url)) == before
    with pytest.raises(OutputError):
        find_finished_manifest(STAGE, directory, IDENTITY)


def test_an_interrupted_discard_still_says_what_the_rest_is_of(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(directory)

    def fail(self: Directory) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Directory, "remove_leftovers", fail)
        discard(directory)
    assert find_finished_manifest(STAGE, directory, IDENTITY) is None
    with pytest.raises(DifferentConfigurationError):
        find_finished_manifest(STAGE, directory, replace(IDENTITY, configuration={}))
    discard(directory)
    assert set(directory.sizes()) == {"_plan.json"}


@pytest.mark.parametrize(
    ("stage", "command", "advice"),
    [
        (COUNT, "build", "redo this stage: `build CONFIG --restart` (removes counts/,"),
        (COUNT, "count", "redo this stage: `count CONFIG --restart` (removes counts/,"),
        (COUNT, "train", "`count CONFIG --restart`, then `train CONFIG` (removes counts/,"),
        (TRAIN, "encode", "stage: `train CONFIG --restart`, then `encode CONFIG` (removes tok"),
        (ENCODE, "build", "redo this stage: `encode CONFIG --restart` (removes tokens/,"),
        (ENCODE, "add", "redo this stage: `encode CONFIG --restart` (removes tokens/,"),
        (ENCODE, "encode", "redo this stage: `encode CONFIG --restart` (removes tokens/,"),
        (ENCODE, None, "redo this stage: `encode CONFIG --restart` (removes tokens/,"),
    ],
)
def test_a_refusal_names_the_commands_that_mend_it(
    stage: Stage[Any], command: str | None, advice: str, tmp_path: Path
) -> None:
    directory = Directory(url=str(tmp_path / stage.directory))
    finished(directory, stage=stage)
    other = replace(IDENTITY, configuration={})
    with pytest.raises(DifferentConfigurationError) as error:
        find_finished_manifest(stage, directory, other, command=command)
    assert advice in str(error.value).replace("beam-bpe ", "")


def test_a_refusal_names_what_is_kept_and_how_much_is_removed(tmp_path: Path) -> None:
    output = Directory(url=str(tmp_path))
    for stage in (COUNT, TRAIN, ENCODE):
        finished(output / stage.directory, stage=stage)
    sizes = [sum((output / s.directory).sizes().values()) for s in (TRAIN, ENCODE)]
    other = replace(IDENTITY, configuration={})
    with pytest.raises(DifferentConfigurationError) as error:
        find_finished_manifest(TRAIN, output / "tokenizer", other, command="build")
    assert str(error.value).endswith(
        "redo this stage and keep the counts: `beam-bpe train CONFIG --restart`, then `beam-bpe "
        f"encode CONFIG --restart` (removes tokenizer/, {format_bytes(sizes[0])}; tokens/, "
        f"{format_bytes(sizes[1])})."
    )
