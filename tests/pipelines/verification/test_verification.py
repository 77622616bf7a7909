"""`beam-bpe verify` finds whatever is wrong with an output, and says where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import yaml
from build_support import command, some_text
from profiles import times

from pipelines import build
from pipelines.config import load_config
from pipelines.config.fingerprints import fingerprint
from pipelines.errors import ConfigError, InputError, NotWholeError
from pipelines.exports.destinations import export_dataset
from pipelines.exports.formats import ExportOptions
from pipelines.manifest.records import sealed
from pipelines.storage.directory import Directory, json_bytes
from pipelines.verification.findings import Verification
from pipelines.verification.verify import verify

INVALID = b"caf\xff and more"
FILES = {"a.txt": [*some_text(30), INVALID], "b.txt": some_text(20, start=100)}
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration, its data and its output."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "data").mkdir()
    for name, documents in FILES.items():
        (folder / "data" / name).write_bytes(END.encode().join(documents))
    values = {
        "output": "out",
        "input": {"files": ["data/*.txt"], "range_bytes": 4000},
        "tokenizer": {"vocab_size": 300, "special_tokens": [END]},
        "counts": {"shards": 2},
        "encode": {"append": END, "validation_fraction": 0.3, "max_reject_fraction": 0.5},
        "beam": {"workers": 1},
    }
    (folder / "build.yaml").write_text(yaml.safe_dump(values))
    build.build(load_config(folder / "build.yaml"))
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built / "out", tmp_path / "out")
    return tmp_path


def verified(folder: Path, **options: Any) -> Verification:
    return verify(Directory(url=str(folder / "out")), **options)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "out").rglob("*.*") if not path.name.startswith("_"))


def reseal(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a manifest as one would who makes its checksum and that of run.json right."""
    checksum = ""
    for name in ("manifest.json", "run.json"):
        file = path / name
        value = json.loads(file.read_text())
        value.pop("checksum")
        if name == "manifest.json":
            change(value)
        else:
            value["manifest"] = checksum
        value = sealed(value)
        checksum = value["checksum"]
        file.write_bytes(json_bytes(value))


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Changes a token file and gives the manifest its new size and checksum."""
    metadata = pq.read_metadata(path).metadata
    table = change(pq.read_table(path))
    said = {key: value for key, value in metadata.items() if key.startswith(b"bpe.")}
    pq.write_table(table.replace_schema_metadata(said), path)
    data = path.read_bytes()

    def of_manifest(manifest: dict[str, Any]) -> None:
        for kind in ("train", "validation", "statistics"):
            for entry in manifest["files"][kind]:
                if entry["name"] == path.name:
                    entry["bytes"] = len(data)
                    entry["xxh3_128"] = xxhash.xxh3_128_hexdigest(data)

    reseal(path.parent, of_manifest)


def messages(found: Verification) -> str:
    return "\n".join(f"{problem.file}: {problem.message}" for problem in found.problems)


# --- bytes


@pytest.mark.slow
def test_a_whole_output_is_whole(folder: Path) -> None:
    found = verified(folder, sources=True)
    assert found.problems == []
    assert found.stages == ["counts", "tokenizer", "tokens"]
    assert found.files == len(files_of(folder))
    assert found.bytes == sum(path.stat().st_size for path in files_of(folder))
    assert found.rows == 50
    assert found.documents == 50


@pytest.mark.slow
def test_a_changed_byte_in_any_file_is_found(folder: Path) -> None:
    positions = times(0.03)
    for number, path in enumerate(files_of(folder)):
        data = path.read_bytes()
        step = len(data) / positions
        for place in (int((i + number / 97 % 1) * step) for i in range(positions)):
            damaged = bytearray(data)
            damaged[place] ^= 1 << (place % 8)
            path.write_bytes(damaged)
            found = {problem.file for problem in verified(folder).problems}
            assert str(path.relative_to(folder / "out")) in found, (path, place)
        path.write_bytes(data)
    assert not verified(folder).problems


@pytest.mark.soak
def test_a_change_of_every_byte_is_found(folder: Path) -> None:
    for path in files_of(folder):
        data = path.read_bytes()
        for place in range(0, len(data), 1 if path.suffix == ".json" else 13):
            damaged = bytearray(data)
            damaged[place] ^= 0x20  # also the case of letters, and white space
            path.write_bytes(damaged)
            found = {problem.file for problem in verified(folder).problems}
            assert str(path.relative_to(folder / "out")) in found, (path, place)
        path.write_bytes(data)


@pytest.mark.slow
def test_missing_short_and_foreign_files_are_named(folder: Path) -> None:
    tokens = folder / "out" / "tokens"
    (tokens / "train-00000-of-00005.parquet").unlink()
    with (tokens / "train-00001-of-00005.parquet").open("r+b") as file:
        file.truncate(100)
    (tokens / "train-00005-of-00005.parquet").touch()
    (folder / "out" / "tokenizer" / "tokenizer.json").unlink()
    (folder / "out" / "rejects" / "other.parquet").touch()
    (folder / "out" / "counts" / "run.json").unlink()
    (tokens / ".train-00000-of-00005.parquet.0123456789abcdef.tmp").touch()  # of a killed build
    text = messages(verified(folder))
    assert "tokens/train-00000-of-00005.parquet: missing" in text
    assert "tokens/train-00001-of-00005.parquet: 100 bytes, but the manifest lists" in text
    assert "tokens/train-00005-of-00005.parquet: not listed in the manifest" in text
    assert "tokenizer/tokenizer.json: missing" in text
    assert "rejects/other.parquet: not listed in the manifest" in text
    assert "counts/run.json: missing" in text
    assert ".tmp" not in text


@pytest.mark.slow
def test_foreign_directories_and_files_beside_stages_are_named(folder: Path) -> None:
    out = folder / "out"
    for name in ("tokens/more", "counts/more", "rejects/more", "beside", "tokens/_tasks"):
        (out / name).mkdir()
        (out / name / "train-00000-of-00001.parquet").touch()
    (out / "stray.parquet").touch()
    (out / "_lock.json").touch()
    assert messages(verified(folder)).splitlines() == [
        "beside: not of a build",
        "counts/more: not a file, and not of a build",
        "rejects/more: not a file, and not of a build",
        "stray.parquet: not of a build",
        "tokens/more: not a file, and not of a build",
    ]


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b"[]", b"{}"])
def test_without_a_run_record_the_rest_is_verified(folder: Path, content: bytes | None) -> None:
    """Of a build with `tokenizer.path`, whose place only run.json says."""
    out = folder / "out"
    shutil.move(out / "tokenizer", folder / "tokenizer")
    shutil.rmtree(out / "counts")
    record = out / "tokens" / "run.json"
    record.unlink()
    if content is not None:
        record.write_bytes(content)
    path = out / "tokens" / "train-00001-of-00005.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    text = messages(verified(folder))
    assert "tokens/run.json: the rows were not verified (--tokenizer DIR): " in text
    assert f"tokens/{path.name}: damaged" in text
    assert "not verified" not in messages(verified(folder, tokenizer=str(folder / "tokenizer")))
    with pytest.raises(ConfigError, match="tokenizer of the token files was not found"):
        verified(folder, tokenizer=str(folder / "nowhere"))


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"stage": []}', b"?" * 99, "cut"])
def test_what_is_no_copy_of_a_manifest_is_refused(
    folder: Path, content: bytes | str | None
) -> None:
    copy = folder / "kept.json"
    data = (folder / "out" / "tokens" / "manifest.json").read_bytes()
    if content is None:
        copy.mkdir()
    else:
        copy.write_bytes(data.replace(b"a.txt", b"c.txt") if isinstance(content, str) else content)
    with pytest.raises(InputError, match="The copy to verify against is not a manifest") as refused:
        verified(folder, against=str(copy))
    assert "emove" not in str(refused.value)


def test_a_copy_at_the_root_is_not_sought_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "manifest-kept-elsewhere.json"
    shutil.copy(folder / "out" / "tokens" / "manifest.json", folder / name)
    monkeypatch.chdir(folder)
    assert not verified(folder, against=name).problems
    with pytest.raises(InputError, match="no such file"):
        verified(folder, against=f"/{name}")


@pytest.mark.slow
@pytest.mark.parametrize("to", ["npy", "mds"])
def test_an_export_is_verified_by_its_checksums(folder: Path, to: str) -> None:
    destination = folder / "export"
    export_dataset(str(folder / "out"), str(destination), ExportOptions(to=to))
    found = verify(Directory(url=str(destination)))
    assert not found.problems, messages(found)
    assert found.files == len([path for path in destination.rglob("*.*") if path.is_file()])
    assert "export: checksums: " in str(found)
    with pytest.raises(InputError, match="Only the checksums"):
        verify(Directory(url=str(destination)), sample=1)
    files = [f["name"] for f in json.loads((destination / "export.json").read_text())["files"]]
    first = destination / files[0]
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    (destination / files[1]).unlink()
    (destination / "more.npy").touch()
    (destination / "more").mkdir()
    text = messages(verify(Directory(url=str(destination))))
    assert f"{files[0]}: damaged: xxh3-128" in text
    assert f"{files[1]}: missing" in text
    assert "more.npy: not listed in export.json" in text
    assert "more: not of an export" in text
    whole = (destination / "export.json").read_bytes()
    for place in range(0, len(whole), 29):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        (destination / "export.json").write_bytes(flipped)
        assert "export.json: " in messages(verify(Directory(url=str(destination))))
    record = json.loads(whole)
    record["files"][0]["name"] = "../build.yaml"
    (destination / "export.json").write_text(json.dumps(record))
    assert "files.0.name: " in messages(verify(Directory(url=str(destination))))


def test_a_stage_that_is_not_finished_is_named(folder: Path) -> None:
    (folder / "out" / "tokens" / "manifest.json").unlink()
    assert messages(verified(folder)).startswith("tokens: not finished: there is no manifest.json")
    shutil.rmtree(folder / "out")
    with pytest.raises(InputError, match="no build to verify"):
        verified(folder)


@pytest.mark.slow
def test_a_manifest_must_equal_a_copy_kept_elsewhere(folder: Path) -> None:
    copy = folder / "kept.json"
    shutil.copy(folder / "out" / "tokens" / "manifest.json", copy)
    assert not verified(folder, against=str(copy)).problems

    def change(manifest: dict[str, Any]) -> None:
        manifest["software"]["pyarrow"] = "0.1"

    reseal(folder / "out" / "tokens", change)
    assert "statistics.parquet: software: " in messages(verified(folder))
    text = messages(verified(folder, against=str(copy)))
    assert f"tokens/manifest.json: differs from {copy}: checksum: " in text
    assert 'software.pyarrow: "' in text
    with pytest.raises(InputError, match="not a manifest"):
        verified(folder, against=str(folder / "nothing.json"))


# --- what is in the files, where all checksums are right


def reconfigure(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Changes the configuration and makes its fingerprint right."""

    def of_manifest(manifest: dict[str, Any]) -> None:
        change(manifest["configuration"])
        manifest["configuration_fingerprint"] = fingerprint(manifest["configuration"])

    return of_manifest


def test_counts_that_moved_between_inputs_are_found(folder: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        for number, sign in enumerate((1, -1)):
            manifest["inputs"][number]["bytes"] += sign
            manifest["inputs"][number]["framing_bytes"] -= sign
        manifest["inputs"][0]["documents"] += 1
        manifest["inputs"][1]["documents"] -= 1

    reseal(folder / "out" / "tokens", change)
    text = messages(verified(folder))
    assert "input a.txt: documents: 31, but the token files have 30" in text
    assert "input b.txt: bytes: " in text


def test_counts_that_say_something_else_of_the_corpus_are_found(folder: Path) -> None:
    reseal(folder / "out" / "counts", lambda m: m["totals"].update(hash_sum="0" * 32))
    assert "counts/manifest.json: totals.hash_sum: " in messages(verified(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["totals"].update(tokens=1), "manifest.json: tokens: "),
        (lambda m: m["totals"].update(train_rows=1), "manifest.json: train_rows: "),
        (lambda m: m["files"]["train"][0].update(tokens=1), "ids in the files, 4,576 in all"),
        (lambda m: m["files"]["train"][0].update(name="../a.parquet"), "files.train.0.name"),
        (lambda m: m.update(tokenizer="0" * 32), "tokenizer: "),
        (lambda m: m.update(configuration={}), "configuration: "),
        (lambda m: m.update(more=1), "more: Extra inputs"),
        (lambda m: m.update(counts="0" * 32), "statistics.parquet: counts: "),
        (lambda m: m.update(counts=None), "statistics.parquet: counts: "),
        (lambda m: m["software"].update(zstd="0.1"), "statistics.parquet: software: "),
        (lambda m: m.update(corpus=f"50-{0:032x}"), "manifest.json: corpus: 50-"),
        (lambda m: m["totals"].update(hash_sum="0" * 32), "manifest.json: totals.hash_sum: "),
        (lambda m: m["sources"][0].update(hash_sum="0" * 32), "manifest.json: totals.hash_sum: "),
        (lambda m: m["sources"][0].update(bad_files=["a.txt"]), "totals.bad_files: [], but"),
        (lambda m: m["inputs"][0].update(bad=True), "totals.bad_files: [], but ['a.txt']"),
        (lambda m: m["inputs"][0].update(size=1), "input a.txt: size: 1, but "),
        (lambda m: m["inputs"][0].update(name="z.txt"), "no input a.txt, but token files contain"),
        (lambda m: m["inputs"].append(m["inputs"][0]), "input a.txt: listed 2 times"),
        (lambda m: m["generations"].append({**m["generations"][0], "name": "add001"}), "add001"),
        (lambda m: m["generations"][0].update(name="add001"), "does not list base"),
        (lambda m: m["generations"][0].update(tasks=9), "token files of base: 5, but 9"),
        (reconfigure(lambda c: c["encode"].update(seed=7)), "configuration_fingerprint of base: "),
        (reconfigure(lambda c: c["encode"].update(append="<none>")), "rows were not verified: "),
        (reconfigure(lambda c: c.update(input=3)), "manifest.json: "),
    ],
)
def test_a_manifest_that_says_something_else_is_found(
    folder: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    reseal(folder / "out" / "tokens", change)
    assert message in messages(verified(folder))


def column(name: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        values = change(table[name].to_pylist())
        kind = table.schema.field(name)
        array = pa.array(values, kind.type)
        return table.set_column(place, kind, array)

    return changed


def retyped(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        field = table.schema.field(name).with_type(kind)
        return table.set_column(place, field, table[name].cast(kind))

    return changed


def ids(change: Callable[[list[int]], list[int]]) -> Callable[[pa.Table], pa.Table]:
    return column("input_ids", lambda rows: [change(rows[0]), *rows[1:]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (ids(lambda row: [9, *row[1:]]), "statistics.parquet: token: differs from the token files"),
        (ids(lambda row: [300, *row[1:]]), "row 0: id 300 is not in the vocabulary"),
        (ids(lambda row: [*row[:-1], 9]), "row 0: a document without the appended token"),
        (ids(lambda row: row[1:]), "num_tokens"),
        (column("part", lambda parts: [1, *parts[1:]]), "row 0: a part that does not follow"),
        (column("offset", lambda places: [places[1], *places[1:]]), "row 1: a document out of"),
        (column("offset", lambda places: [0, *places[1:]]), "outside the interval of its"),
        (column("offset", lambda places: [*places[:-1], 10**9]), "outside the interval of its"),
        (column("num_bytes", lambda sizes: [1, *sizes[1:]]), "text_bytes: "),
        (column("source", lambda names: ["x", *names[1:]]), "row 0: of 'x', which is not"),
        (lambda table: table.slice(1), "rows"),
        (lambda table: table.drop_columns(["part"]), "the column part"),
        (lambda table: table.append_column("more", table["part"]), "more int32, but input_ids"),
        (lambda table: table.append_column("id", table["source"]), "columns input_ids"),
        (retyped("num_tokens", pa.int64()), "num_tokens int64, "),
        (column("num_bytes", lambda sizes: [-9, *sizes[1:]]), "row 0: num_bytes below 0"),
        (ids(lambda row: [*row[:-2], 60000, row[-1]]), "row 0: id 60000 is not in the vocabulary"),
    ],
)
def test_rows_that_are_not_as_they_must_be_are_found(
    folder: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    rewrite(folder / "out" / "tokens" / "train-00001-of-00005.parquet", change)
    assert message in messages(verified(folder))


@pytest.mark.parametrize("step", [-1, 1])
def test_places_that_moved_by_a_byte_are_found_where_documents_adjoin(
    step: int, folder: Path
) -> None:
    """A document and the one before it must be in the same file; `--sources` tells them all."""
    path = folder / "out" / "tokens" / "train-00002-of-00005.parquet"
    table = pq.read_table(path)
    ends = [
        a + b
        for a, b in zip(table["offset"].to_pylist(), table["num_bytes"].to_pylist(), strict=True)
    ]
    offsets = table["offset"].to_pylist()
    first = next(i for i in range(len(ends)) if offsets[i + 1] == ends[i] + len(END))
    moved = first + (step < 0)
    rewrite(
        path,
        column("offset", lambda o: [*o[:moved], o[moved] + step, *o[moved + 1 :]]),
    )
    assert f"row {first + 1}: a document that begins before the previous one ends" in messages(
        verified(folder)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "change", "message"),
    [
        ("counts", lambda m: m["software"].update(pyarrow="0.1"), "parquet: software.pyarrow: "),
        (
            "counts",
            reconfigure(lambda c: c["counts"].update(shards=3)),
            "counts.shards: 3, but 2 ",
        ),
        (
            "counts",
            reconfigure(lambda c: c["tokenizer"].update(pattern="none")),
            "tokenizer/manifest.json: differs from the configuration of counts/manifest.json: "
            "tokenizer.pattern",
        ),
        ("tokenizer", lambda m: m["software"].update(regex="1"), "training.json: software: "),
        (
            "tokenizer",
            reconfigure(lambda c: c["tokenizer"].update(vocab_size=9)),
            "training.json: configuration: ",
        ),
        ("tokenizer", lambda m: m.update(merges=1), "training.json: merges: "),
        ("tokenizer", lambda m: m.update(stop_reason="x"), "training.json: stop_reason: "),
        ("tokenizer", lambda m: m.update(not_written={"a": "b"}), "training.json: not_written: "),
        ("tokenizer", lambda m: m.update(counts="0" * 32), "tokenizer/manifest.json: counts: "),
    ],
)
def test_what_other_manifests_say_is_held_against_their_files(
    stage: str, change: Callable[[dict[str, Any]], None], message: str, folder: Path
) -> None:
    reseal(folder / "out" / stage, change)
    assert message in messages(verified(folder))


def test_a_footer_of_another_build_is_found(folder: Path) -> None:
    path = folder / "out" / "tokens" / "train-00001-of-00005.parquet"
    rewrite(path, lambda table: table)
    table = pq.read_table(path)
    said = {**pq.read_metadata(path).metadata, b"bpe.configuration": b"0" * 32}
    said = {key: value for key, value in said.items() if key.startswith(b"bpe.")}
    pq.write_table(table.replace_schema_metadata(said), path)

    def same(table: pa.Table) -> pa.Table:
        return table

    rewrite(path, same)
    assert f"{path.name}: configuration: {'0' * 32}, but " in messages(verified(folder))


@pytest.mark.slow
def test_ids_of_another_text_are_found_by_the_source(folder: Path) -> None:
    def swap(rows: list[list[int]]) -> list[list[int]]:
        """Two ids change their places: no sum and no statistic can tell."""
        row = rows[0]
        first = next(i for i in range(len(row) - 2) if row[i] != row[i + 1])
        row[first : first + 2] = row[first + 1], row[first]
        return rows

    path = folder / "out" / "tokens" / "train-00001-of-00005.parquet"
    rewrite(path, column("input_ids", swap))
    assert not verified(folder).problems
    assert "row 0: ids of another text than a.txt has at offset" in messages(
        verified(folder, sources=True)
    )
    assert "row 0: ids of another text than" in messages(verified(folder, sample=1000))


@pytest.mark.slow
def test_a_source_that_changed_or_is_gone_is_named(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "data", tmp_path / "data")
    shutil.copytree(built / "out", tmp_path / "out")
    shutil.copy(built / "build.yaml", tmp_path)
    config = load_config(tmp_path / "build.yaml")
    file = tmp_path / "data" / "a.txt"
    text = file.read_bytes()
    file.write_bytes(text.replace(b"the", b"teh", 1))
    found = messages(verified(tmp_path, sources=True, config=config))
    assert "ids of another text than a.txt has at offset" in found
    assert not verified(tmp_path, sources=True).problems  # where the build found the files
    file.write_bytes(text.replace(b"the", b"th\xff", 1))
    assert "rejects/00000-of-00005.parquet: other rejects than" in messages(
        verified(tmp_path, sources=True, config=config)
    )
    file.unlink()
    with pytest.raises(InputError, match="location of an input file is unknown"):
        verified(tmp_path, sources=True, config=config)


@pytest.mark.slow
def test_generations_and_replays_are_verified(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "data", tmp_path / "data")
    shutil.copy(built / "build.yaml", tmp_path)
    (tmp_path / "data" / "b.txt").rename(tmp_path / "b.txt")
    first = load_config(tmp_path / "build.yaml")
    build.train(first)
    shutil.move(tmp_path / "out" / "tokenizer", tmp_path / "tokenizer")
    shutil.rmtree(tmp_path / "out")
    values = yaml.safe_load((tmp_path / "build.yaml").read_text())
    values["tokenizer"] = {"path": "tokenizer"}
    values.pop("counts")
    (tmp_path / "build.yaml").write_text(yaml.safe_dump(values))
    config = load_config(tmp_path / "build.yaml")
    build.encode(config)
    (tmp_path / "b.txt").rename(tmp_path / "data" / "b.txt")
    build.encode(config)
    assert not verified(tmp_path, sources=True).problems
    build.replay(load_config(tmp_path / "build.yaml", ["input.invalid_utf8=replace"]))
    found = verified(tmp_path, sources=True)
    assert not found.problems, messages(found)
    assert (found.rows, found.documents) == (51, 51)
    assert not verified(tmp_path, sample=100).problems
    path = tmp_path / "out" / "tokens" / "statistics-add001.parquet"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert f"tokens/{path.name}: damaged" in messages(verified(tmp_path))


@pytest.mark.slow
def test_selections_and_limits_are_verified(built: Path, tmp_path: Path) -> None:
    values = {
        "output": str(tmp_path / "out"),
        "input": [
            {"name": "few", "files": [str(built / "data/a.txt")], "limit_documents": 12},
            {"name": "half", "files": [str(built / "data/*")], "sample_fraction": 0.5},
        ],
        "tokenizer": {"vocab_size": 300},
        "counts": {"shards": 1},
        "encode": {"max_reject_fraction": 0.5},
        "beam": {"workers": 1},
    }
    (tmp_path / "build.yaml").write_text(yaml.safe_dump(values))
    build.build(load_config(tmp_path / "build.yaml"))
    found = verified(tmp_path, sources=True)
    assert not found.problems, messages(found)
    assert found.documents == found.rows
    assert 12 < found.rows < 12 + 51
    assert not verified(tmp_path, sample=20).problems


# --- the command


@pytest.mark.slow
def test_the_command_says_what_is_wrong_and_fails(folder: Path) -> None:
    done = command("verify", folder / "out", "--sample", 5)
    assert (done.returncode, done.stderr) == (0, "")
    assert "documents compared with their source: 5" in done.stdout
    assert done.stdout.endswith("out is intact.\n")
    path = folder / "out" / "counts" / "shard-00000-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    done = command("verify", folder / "out")
    assert (done.returncode, done.stderr) == (NotWholeError.exit_code, "")
    assert "is not intact: 1 problem\n" in done.stdout
    assert "counts/shard-00000-of-00002.parquet: damaged: xxh3-128 " in done.stdout
    done = command("verify", folder / "nothing")
    assert done.returncode == InputError.exit_code
    assert "no build to verify" in done.stderr
