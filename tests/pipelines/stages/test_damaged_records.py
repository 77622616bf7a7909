"""Damaged files that builds and exports leave: an error that names the file, and ways out."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from build_support import checksums, config_for, some_text, write_corpus
from rich.console import Console

from bpe_core.errors import BpeError
from pipelines import build
from pipelines.config import BuildConfig
from pipelines.config.fingerprints import fingerprint
from pipelines.dataset import inspection, report
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import DamagedOutputError, OutputError
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.manifest.records import sealed
from pipelines.stages import lifecycle
from pipelines.storage.directory import Directory, json_bytes
from pipelines.verification.verify import verify

RECORDS = [
    (stage, name) for stage in ("counts", "tokenizer", "tokens")
    for name in ("manifest.json", "_plan.json")
]  # fmt: skip
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "nested": lambda data: b'{"a": ' * 100_000,
    "a list": lambda data: b"[]",
    "no inputs": lambda data: json_bytes(resealed({**json.loads(data), "inputs": 7})),
    "no files": lambda data: json_bytes(
        resealed({**json.loads(data), "files": [], "shards": {}, "generations": [], "marks": 0})
    ),
}
FOREIGN = (
    "counts/shard-00000-of-00099.parquet",
    "counts/shard-00000-of-00002.parquet.bak",
    "tokenizer/mine.json",
    "tokens/train-00000-of-00999.parquet",
    "tokens/notes.txt",
    "rejects/00000-of-00999.parquet",
    "rejects/count-00000-of-00999.parquet",
    "counts/_runs/mine.txt",
    "tokens/_tasks/mine.txt",
)


def resealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the right checksum, where it had one."""
    for key in ("checksum", "fingerprint"):
        if key in value and (key == "checksum" or "tasks" in value):
            content = {name: item for name, item in value.items() if name != key}
            return {**content, key: fingerprint(content)}
    return dict(value)


@dataclass(frozen=True)
class Outputs:
    """Outputs of one build at different moments, by name: copies to be damaged."""

    folder: Path
    config: BuildConfig

    def copy(self, name: str, to: Path) -> BuildConfig:
        """Copy one; the configuration that builds there."""
        shutil.copytree(self.folder / name, to)
        return self.config.model_copy(update={"output": str(to)})


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    folder = tmp_path_factory.mktemp("outputs")
    write_corpus(folder / "data", {"a.txt": [*some_text(8), b"\xff"], "b.txt": some_text(4)})
    encode = {"max_reject_fraction": 1, "validation_fraction": 0.3}
    config = config_for(folder, beam={"workers": 1}, encode=encode)
    finish = lifecycle.finish_stage
    for name in ("counts", "tokenizer", "tokens", "done"):

        def finish_others(stage: Any, *rest: Any, at: str = name) -> None:
            if stage.directory == at:
                raise KeyboardInterrupt
            finish(stage, *rest)

        with mock.patch.object(lifecycle, "finish_stage", finish_others):
            try:
                build.build(config)
            except KeyboardInterrupt:
                assert name != "done"
        shutil.copytree(folder / "out", folder / name)
    return Outputs(folder, config)


def place(out: Path) -> None:
    """Put files of others into the directories that builds have made."""
    begun = {path.name for path in out.iterdir()}
    for name in FOREIGN:
        if name.partition("/")[0] in begun:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(name)


def of_builds(out: Path, before: Mapping[str, str]) -> dict[str, str]:
    """Checksums of what builds made, once the files of others are seen to be there."""
    found = checksums(out)
    foreign = before.keys() & FOREIGN
    assert foreign
    assert all(found[name] == before[name] for name in foreign)
    return {name: value for name, value in found.items() if name not in foreign}


def state_with(stage: str, name: str) -> str:
    return "done" if name == "manifest.json" else stage


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "name", "damage"),
    [
        *((*record, damage) for record in RECORDS for damage in ("cut short", "no inputs")),
        *(("tokens", "manifest.json", damage) for damage in ("empty", "nested", "a list")),
        *(("counts", "_plan.json", damage) for damage in ("nested", "no files")),
        *((stage, "manifest.json", "no files") for stage in ("counts", "tokenizer", "tokens")),
    ],
)
def test_restart_gets_past_a_damaged_record(
    stage: str, name: str, damage: str, outputs: Outputs, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    config = outputs.copy(state_with(stage, name), out)
    record = out / stage / name
    record.write_bytes(DAMAGES[damage](record.read_bytes()))
    place(out)
    before = checksums(out)
    with pytest.raises(DamagedOutputError) as error:
        build.build(config)
    assert f"where: {record}" in str(error.value)
    assert " CONFIG --restart`" in str(error.value)
    assert isinstance(build.plan(config).refusal, DamagedOutputError)
    assert checksums(out) == before
    build.build(config, restart=True)
    assert of_builds(out, before) == checksums(outputs.folder / "done")


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "name"), RECORDS)
def test_restart_gets_past_a_record_that_was_removed(
    stage: str, name: str, outputs: Outputs, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    config = outputs.copy(state_with(stage, name), out)
    (out / stage / name).unlink()
    place(out)
    before = checksums(out)
    with pytest.raises(OutputError, match="files of a build that left no record") as error:
        build.build(config)
    advised = re.findall(r"`beam-bpe (\w+) CONFIG( --restart)?`", str(error.value))
    assert advised
    for command, restart in advised:
        getattr(build, command)(config, restart=bool(restart))
    assert of_builds(out, before) == checksums(outputs.folder / "done")


@pytest.mark.parametrize(
    ("stage", "restart"),
    [("counts", build.count), ("tokenizer", build.train), ("tokens", build.encode)],
)
@pytest.mark.parametrize("removed", [False, True])
def test_stage_alone_is_restarted_as_the_error_says(
    stage: str,
    restart: Callable[..., object],
    removed: bool,
    outputs: Outputs,
    tmp_path: Path,
) -> None:
    config = outputs.copy("done", tmp_path / "out")
    record = tmp_path / "out" / stage / "manifest.json"
    if removed:
        record.unlink()
    else:
        record.write_bytes(b"{")
    with pytest.raises(OutputError) as error:
        restart(config)
    assert f"`beam-bpe {restart.__name__} CONFIG --restart`" in str(error.value)
    restart(config, restart=True)
    build.build(config)
    assert checksums(tmp_path / "out") == checksums(outputs.folder / "done")


@pytest.mark.parametrize("interrupted", ["write_json", "remove_files", "remove_leftovers"])
def test_interrupted_restart_can_be_restarted(
    interrupted: str, outputs: Outputs, tmp_path: Path
) -> None:
    config = outputs.copy("done", tmp_path / "out")
    (tmp_path / "out/tokens/manifest.json").write_bytes(b"{")
    fails = mock.patch.object(Directory, interrupted, side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), fails:
        build.build(config, restart=True)
    with pytest.raises(OutputError):
        build.build(config)
    build.build(config, restart=True)
    assert checksums(tmp_path / "out") == checksums(outputs.folder / "done")


@pytest.mark.parametrize("name", ["manifest.json", "_plan.json"])
def test_record_of_somebody_else_is_never_removed(name: str, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(2)})
    config = config_for(tmp_path)
    record = tmp_path / "out/tokens" / name
    record.parent.mkdir(parents=True)
    record.write_text('{"name": "an app", "icons": []}')
    for restart in (False, True):
        with pytest.raises(OutputError, match="no build of this tool wrote"):
            build.build(config, restart=restart)
    assert record.read_text() == '{"name": "an app", "icons": []}'


def test_damaged_run_record_and_plan_beside_a_manifest_do_not_stop_a_restart(
    outputs: Outputs, tmp_path: Path
) -> None:
    config = outputs.copy("done", tmp_path / "out")
    for stage in ("counts", "tokenizer", "tokens"):
        (tmp_path / "out" / stage / "run.json").write_bytes(b"{")
        (tmp_path / "out" / stage / "_plan.json").write_bytes(b"{")
    with pytest.raises(DamagedOutputError, match=r"run\.json"):
        build.build(config)
    build.build(config, restart=True)
    assert checksums(tmp_path / "out") == checksums(outputs.folder / "done")


@pytest.mark.slow
def test_damaged_record_on_another_storage_is_restarted(outputs: Outputs, tmp_path: Path) -> None:
    config = outputs.config.model_copy(update={"output": f"memory://{tmp_path.name}"})
    build.build(config)
    out = Directory(url=config.output)
    (out / "tokens").write_bytes("manifest.json", b"{")
    (out / "counts").remove("manifest.json")
    with pytest.raises(OutputError):
        build.build(config)
    build.build(config, restart=True)
    assert verify(out).problems == []


@pytest.mark.slow
@pytest.mark.parametrize("to", ["npy", "packed"])
@pytest.mark.parametrize(
    ("record", "damage"),
    [
        ("export.json", "cut short"),
        ("export.json", "no inputs"),
        ("export.json", "no files"),
        ("_export.json", "nested"),
        ("_export.json", "no inputs"),
    ],
)
def test_restart_gets_past_a_damaged_export(
    record: str, damage: str, to: Any, outputs: Outputs, tmp_path: Path
) -> None:
    dataset = TokenDataset.open(str(outputs.folder / "done"))
    destination = Directory(url=str(tmp_path))
    options = ExportOptions(to=to)
    export(dataset, destination, options)
    whole = checksums(tmp_path)
    path = tmp_path / record
    data = (tmp_path / "export.json").read_bytes()
    if record == "_export.json":
        (tmp_path / "export.json").unlink()
    if damage == "no inputs":
        data = data.replace(b'"to"', b'"ot"')
    path.write_bytes(DAMAGES[damage](data))
    with pytest.raises(OutputError) as error:
        export(dataset, destination, options)
    assert str(path) in str(error.value)
    assert "--restart" in str(error.value)
    with pytest.raises(OutputError, match="some files are not of the requested format"):
        export(dataset, destination, ExportOptions(to="nanogpt"), restart=True)
    export(dataset, destination, options, restart=True)
    assert checksums(tmp_path) == whole


# --- any damage


def mutated(value: Any, generator: random.Random) -> Any:
    """A copy in which one value, at any depth, is another, gone, deeper or there twice."""
    value = json.loads(json.dumps(value))
    places: list[tuple[Any, Any]] = []

    def collect(container: Any) -> None:
        for key in container if isinstance(container, dict) else range(len(container)):
            places.append((container, key))
            if isinstance(container[key], dict | list):
                collect(container[key])

    collect(value)
    if not places:
        return [value]
    container, key = generator.choice(places)
    match generator.randrange(6):
        case 0:
            del container[key]
        case 1:
            container[key] = generator.choice([[container[key]], {"x": container[key]}])
        case 2:
            nested: list[Any] = []
            for _ in range(generator.choice([50, 400])):
                nested = [nested]
            container[key] = nested
        case _:
            container[key] = generator.choice(VALUES)
    return value


VALUES: list[Any] = [
    None, True, 0, -1, 1, 10**18, 10**30, 1.5, float("nan"), "", "x", "base", "add001", "0" * 32,
    "../../x", [], [[]], [{}], ["a"], {}, {"a": 1}, {"name": None},
]  # fmt: skip
RAW = [b"", b"[]", b"null", b"{}", b"\xff", b"1" * 5000, b"[" * 100_000, b'{"a": ' * 100_000]


def damage_something(out: Path, generator: random.Random) -> str:
    """Damage a JSON file that builds wrote, with a right checksum; what was done."""
    other = ("tokenizer.json", "vocab.json", "tokenizer_config.json")
    path = generator.choice(sorted(p for p in out.rglob("*.json") if p.name not in other))
    if generator.random() < 0.15:
        path.write_bytes(generator.choice(RAW))
    else:
        value = json.loads(path.read_bytes())
        for _ in range(generator.choice([1, 1, 2, 3])):
            value = mutated(value, generator)
            if not isinstance(value, dict):
                break
        path.write_bytes(json_bytes(resealed(value) if isinstance(value, dict) else value))
    return str(path.relative_to(out))


def commands(config: BuildConfig) -> dict[str, Callable[[], object]]:
    """What may be done with an output, by name."""
    out = Directory(url=config.output)
    console = Console(file=io.StringIO())
    values = config.model_dump(mode="json", exclude_unset=True)
    fixed = BuildConfig.model_validate({**values, "tokenizer": {"path": f"{out.url}/tokenizer"}})

    def shown(row: int | None) -> None:
        dataset = TokenDataset.open(out.url)
        inspector = inspection.Inspector(dataset, dataset.find_model())
        at = inspector.with_name("b.txt:0") if row is None else inspector.at_row("train", row)
        inspection.show_document(inspector.read(at, 99), console, inspection.locations(dataset))

    def reported() -> None:
        dataset = TokenDataset.open(out.url)
        model = dataset.find_model()
        report.shown(report.report(dataset, model), model)

    def exported() -> None:
        dataset = TokenDataset.open(out.url)
        export(dataset, out / "exports", ExportOptions(to="npy"), restart=True)

    return {
        "plan": lambda: build.plan(config),
        "plan with a tokenizer": lambda: build.plan(fixed),
        "verify": lambda: verify(out),
        "verify --sources": lambda: verify(out, sources=True),
        "verify --sources --config": lambda: verify(out, sources=True, config=config),
        "report": reported,
        "inspect --row": lambda: shown(0),
        "inspect --doc": lambda: shown(None),
        "export": exported,
        "replay": lambda: build.replay(config),
        "build": lambda: build.build(config),
        "encode": lambda: build.encode(fixed),
        "restart": lambda: build.build(config, restart=True),
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_any_damage_ends_in_an_error_of_ours(seed: int, outputs: Outputs, tmp_path: Path) -> None:
    generator = random.Random(seed)
    out = tmp_path / "out"
    config = outputs.copy(generator.choice(["counts", "tokenizer", "tokens", "done", "done"]), out)
    damaged = damage_something(out, generator)
    possible = commands(config)
    for name in generator.sample(sorted(possible), 4):
        try:
            possible[name]()
        except BpeError as error:
            assert str(error)
        except Exception as error:
            raise AssertionError(f"{name}, after damage of {damaged}") from error


def test_sealed_objects_have_the_checksum_that_the_tests_give_them() -> None:
    assert resealed({"a": 1, "checksum": "x"}) == sealed({"a": 1})
