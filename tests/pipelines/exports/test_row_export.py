"""Packed rows and documents from a dataset: nothing is lost, and the bytes follow from the rows."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from export_support import Document, documents, write_dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import times

from pipelines.config import BeamConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import ConfigError, InputError, OutputError
from pipelines.exports import row_export, row_pipeline, row_tasks, shuffling
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.sorting.keys import order_keys
from pipelines.storage.directory import Directory

SOME_DOCUMENTS = [
    documents(40, seed=1, most=30),
    [],
    [[[1, 2, 3], [4, 5], [], [6, 0]], [[7, 0]], [[0]]],
    documents(25, seed=2, most=90),
]
WITH_VALIDATION = {"train": SOME_DOCUMENTS, "validation": [documents(9, seed=3), []]}


@pytest.fixture
def without_beam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are done here, in any order and some of them twice: their results are the same."""

    def do_all(files: Any, job: Any, step: str, tasks: Sequence[Any]) -> None:
        descriptors = [task.to_bytes() for task in tasks]
        random.Random(0).shuffle(descriptors)
        for descriptor in [*descriptors, descriptors[0]]:
            row_tasks.do_task(job, step, descriptor)

    monkeypatch.setattr(row_pipeline, "run_tasks", do_all)


def exported(output: Path, destination: Path, **options: Any) -> Path:
    dataset = TokenDataset.open(str(output))
    export(dataset, Directory(url=str(destination)), ExportOptions(**options))
    return destination


def read(destination: Path, split: str = "train") -> pa.Table:
    files = sorted(destination.glob(f"{split}-*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


def checksums(destination: Path) -> dict[str, str]:
    entries = json.loads((destination / "export.json").read_text())["files"]
    return {entry["name"]: entry["xxh3_128"] for entry in entries}


def joined(files: Sequence[Sequence[Document]]) -> list[list[int]]:
    """The ids of each document, those of its parts together."""
    return [[i for part in document for i in part] for file in files for document in file]


def pieces(table: pa.Table) -> list[list[list[int]]]:
    """The pieces of documents in each row, without padding."""
    rows = []
    for ids, tokens, lengths in zip(
        *(table[name].to_pylist() for name in ("input_ids", "num_tokens", "document_lengths")),
        strict=True,
    ):
        bounds = np.cumsum([0, *lengths]).tolist()
        assert bounds[-1] == tokens
        rows.append([ids[a:b] for a, b in pairwise(bounds)])
    return rows


def cut(ids: Sequence[int], length: int) -> Iterator[tuple[int, ...]]:
    for start in range(0, len(ids), length):
        yield tuple(ids[start : start + length])


a_document = st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=3)
a_dataset = st.lists(st.lists(a_document, max_size=8), min_size=1, max_size=4)
quickly = settings(
    max_examples=times(0.25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.usefixtures("without_beam")
@quickly
@given(a_dataset, st.integers(1, 15), st.integers(1, 4))
def test_concatenated_rows_are_the_ids_in_order_for_any_number_of_files(
    tmp_path: Path, files: list[list[Document]], length: int, number: int
) -> None:
    shutil.rmtree(tmp_path)
    wanted = joined(files)
    output = write_dataset(tmp_path / "build", {"train": [[*files[0], [[3]]], *files[1:]]})
    wanted.insert(len(files[0]), [3])
    made = exported(
        output, tmp_path / "made", to="packed", sequence_length=length, files=number, pad_id=0
    )
    table = read(made)
    ids = [i for document in wanted for i in document]
    rows = pieces(table)
    assert [i for row in rows for piece in row for i in piece] == ids
    assert all(sum(map(len, row)) == length for row in rows[:-1])
    bounds = {0, *np.cumsum([len(document) for document in wanted]).tolist()}
    bounds |= set(range(0, len(ids), length))
    starts = np.cumsum([0, *(len(piece) for row in rows for piece in row)]).tolist()
    assert set(starts) == bounds | {len(ids)}
    assert {len(row) for row in table["input_ids"].to_pylist()} == {length}


@pytest.mark.usefixtures("without_beam")
@quickly
@given(a_dataset, st.integers(1, 15), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_best_fit_loses_no_id_and_cuts_no_document_that_fits(
    tmp_path: Path,
    files: list[list[Document]],
    length: int,
    window: int,
    number: int,
    shuffled: bool,
) -> None:
    shutil.rmtree(tmp_path)
    files = [[*files[0], [[3]]], *files[1:]]
    made = exported(
        write_dataset(tmp_path / "build", {"train": files}),
        tmp_path / "made",
        to="packed",
        sequence_length=length,
        packing="best-fit",
        packing_window=window,
        files=number,
        shuffle_seed=5 if shuffled else None,
    )
    found = Counter(tuple(piece) for row in pieces(read(made)) for piece in row)
    assert found == Counter(piece for ids in joined(files) for piece in cut(ids, length))


@pytest.mark.usefixtures("without_beam")
@quickly
@given(a_dataset, st.integers(0, 3), st.integers(1, 4))
def test_a_shuffle_of_documents_is_a_permutation_and_keeps_parts_together(
    tmp_path: Path, files: list[list[Document]], seed: int, number: int
) -> None:
    shutil.rmtree(tmp_path)
    files = [[*files[0], [[3], [4]]], *files[1:]]
    output = write_dataset(tmp_path / "build", {"train": files})
    made = exported(output, tmp_path / "made", to="documents", shuffle_seed=seed, files=number)
    found: list[list[Any]] = []
    for path in sorted(made.glob("*.parquet")):
        rows = pq.read_table(path).to_pylist()
        assert not rows or rows[0]["part"] == 0
        for row in rows:
            assert row["num_tokens"] == len(row["input_ids"])
            assert row["num_bytes"] == 3 * len(row["input_ids"])
            if row["part"] == 0:
                found.append([row["offset"]])
            assert row["part"] == len(found[-1]) - 1
            assert row["offset"] == found[-1][0]
            found[-1].append(row["input_ids"])
    wanted = [[place, *document] for file in files for place, document in enumerate(file)]
    assert sorted(found) == sorted(wanted)


SHAPES: list[dict[str, Any]] = [
    {"to": "packed", "sequence_length": 32, "position_ids": True},
    {"to": "packed", "sequence_length": 32, "packing": "best-fit", "packing_window": 7},
    {"to": "packed", "sequence_length": 32, "shuffle_seed": 4},
    {
        "to": "packed",
        "sequence_length": 32,
        "packing": "best-fit",
        "packing_window": 7,
        "shuffle_seed": 4,
        "pad_id": 0,
    },
    {"to": "documents"},
    {"to": "documents", "shuffle_seed": 4},
]


@pytest.mark.slow
@pytest.mark.usefixtures("without_beam")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_the_same_for_any_number_of_files_runs_buckets_and_cuts_of_the_input(
    tmp_path: Path, shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = write_dataset(tmp_path / "build", WITH_VALIDATION)
    one = exported(output, tmp_path / "one", **shape)
    several = exported(output, tmp_path / "several", **shape, files=3)
    monkeypatch.setattr(row_export, "_RUN_BYTES", 600)
    monkeypatch.setattr(shuffling, "BUCKET_BYTES", 200)
    monkeypatch.setattr(shuffling, "_FLUSH_BYTES", 300)
    monkeypatch.setattr(shuffling, "_LARGE_ROW_IDS", 20)
    small = exported(output, tmp_path / "small", **shape)
    assert checksums(small) == checksums(one)
    merged = {
        "train": [[document for file in SOME_DOCUMENTS for document in file]],
        "validation": WITH_VALIDATION["validation"],
    }
    otherwise = exported(write_dataset(tmp_path / "merged", merged), tmp_path / "cut", **shape)
    for split in ("train", "validation"):
        assert read(several, split).equals(read(one, split))
        if shape["to"] == "packed":
            assert read(otherwise, split).equals(read(one, split))
    assert len(list(several.glob("train-*"))) == 3
    assert not (one / "_work").exists()


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[2:4], ids=str)
def test_bytes_are_the_same_for_any_number_of_workers(
    tmp_path: Path, shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_export, "_RUN_BYTES", 600)
    dataset = TokenDataset.open(str(write_dataset(tmp_path / "build", WITH_VALIDATION)))
    made = []
    for workers in (1, 3):
        directory = Directory(url=str(tmp_path / f"{workers}"))
        options = ExportOptions(**shape, files=4)
        export(dataset, directory, options, beam=BeamConfig(workers=workers))
        made.append(checksums(tmp_path / f"{workers}"))
    assert made[0] == made[1]


@pytest.mark.usefixtures("without_beam")
def test_splits_are_never_mixed(tmp_path: Path) -> None:
    output = write_dataset(tmp_path / "build", WITH_VALIDATION)
    made = exported(output, tmp_path / "made", to="packed", sequence_length=8, shuffle_seed=1)
    for split, files in WITH_VALIDATION.items():
        found = Counter(i for row in pieces(read(made, split)) for piece in row for i in piece)
        assert found == Counter(i for document in joined(files) for i in document)


def test_keys_of_a_shuffle_spread_evenly_and_depend_on_seed_and_split() -> None:
    numbers = np.arange(1 << 16, dtype=np.uint64)
    orders = [
        order_keys(seed, split, numbers).argsort()
        for seed, split in ((1, "train"), (2, "train"), (1, "validation"))
    ]
    for order in orders:
        # Where the first half of the numbers lands, in 64 cells: chi-square of 63 degrees of
        # freedom is above 120 by chance once in 10^5.
        cells = np.bincount(np.flatnonzero(order < 1 << 15) // 1024, minlength=64)
        assert ((cells - 512.0) ** 2 / 256).sum() < 120
        # Neighbours do not stay neighbours: of 65,536 about 2 by chance.
        assert (np.abs(np.diff(order)) == 1).sum() < 20
    assert len({tuple(order[:50].tolist()) for order in orders}) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("without_beam")
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[3], SHAPES[5]], ids=str)
def test_an_interrupted_export_does_the_rest_and_gives_the_same_bytes(
    tmp_path: Path, shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_export, "_RUN_BYTES", 600)
    output = write_dataset(tmp_path / "build", WITH_VALIDATION)
    wanted = checksums(exported(output, tmp_path / "whole", **shape, files=4))
    do_task = row_tasks.do_task
    done: list[tuple[str, bytes]] = []
    state = {"until": 0}

    def failing(job: Any, step: str, descriptor: bytes) -> str:
        if len(done) == state["until"]:
            raise KeyboardInterrupt
        name = do_task(job, step, descriptor)
        done.append((f"{job.split} {step}", descriptor))
        return name

    monkeypatch.setattr(row_tasks, "do_task", failing)
    finished = False
    while not finished:
        state["until"] += 2
        try:
            exported(output, tmp_path / "resumed", **shape, files=4)
            finished = True
        except KeyboardInterrupt:
            assert not (tmp_path / "resumed" / "export.json").exists()
    assert checksums(tmp_path / "resumed") == wanted
    # `without_beam` does one task of each step twice; nothing else is done again.
    assert len(done) - len(set(done)) <= len({step for step, _ in done})


@pytest.mark.usefixtures("without_beam")
def test_a_damaged_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gather = row_tasks.gather_task

    def damaging(job: Any, task: Any) -> dict[str, Any]:
        path = tmp_path / "made" / "_work" / job.runs[0].name
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(bytes(data))
        return gather(job, task)

    monkeypatch.setattr(row_tasks, "gather_task", damaging)
    output = write_dataset(tmp_path / "build", {"train": SOME_DOCUMENTS})
    with pytest.raises(OutputError, match="A run of sorted rows is damaged"):
        exported(output, tmp_path / "made", to="documents", shuffle_seed=1)


@pytest.mark.usefixtures("without_beam")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_token_files_that_hold_less_than_the_manifest_says_are_found(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    output = write_dataset(tmp_path / "build", {"train": SOME_DOCUMENTS})
    shutil.copy(
        output / "tokens" / "train-00002-of-00004.parquet",
        output / "tokens" / "train-00003-of-00004.parquet",
    )
    with pytest.raises(InputError, match="does not match the manifest"):
        exported(output, tmp_path / "made", **shape)
    assert not (tmp_path / "made" / "export.json").exists()


@pytest.mark.usefixtures("without_beam")
def test_row_groups_have_the_number_of_rows_asked_for(tmp_path: Path) -> None:
    output = write_dataset(tmp_path / "build", {"train": SOME_DOCUMENTS})
    made = exported(output, tmp_path / "made", to="packed", sequence_length=16, row_group_rows=5)
    [path] = made.glob("*.parquet")
    footer = pq.ParquetFile(path).metadata
    rows = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    assert set(rows[:-1]) == {5}
    assert json.loads(footer.metadata[b"bpe.totals"])["rows"] == sum(rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "packed", "packing_window": 5}, "packing best-fit"),
        ({"to": "packed", "sequence_length": 1 << 30}, "at most 16,777,216"),
        ({"to": "packed", "sequence_length": 0}, "1 or above"),
        ({"to": "packed", "shuffle_seed": -1}, "0 or above"),
        ({"to": "packed", "packing": "next-fit"}, "best-fit"),
        ({"to": "documents", "pad_id": 0}, "--to packed"),
        ({"to": "npy", "shuffle_seed": 1}, "--to documents or packed"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExportOptions(**options)


def test_padding_that_the_ids_have_no_room_for_is_refused(tmp_path: Path) -> None:
    output = write_dataset(tmp_path / "build", {"train": SOME_DOCUMENTS})
    with pytest.raises(ConfigError, match="an id that fits uint16"):
        exported(output, tmp_path / "made", to="packed", pad_id=1 << 16)
    assert not (tmp_path / "made").exists()


def command(output: Path, destination: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines", "export", str(output), str(destination), *arguments],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.usefixtures("without_beam")
def test_what_an_interrupted_export_finished_is_kept_if_it_has_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = write_dataset(tmp_path / "build", {"train": [documents(400, seed=9)]})
    options = {"to": "packed", "sequence_length": 32, "files": 4}
    wanted = checksums(exported(output, tmp_path / "whole", **options))
    write_task = row_tasks.write_task
    written: list[int] = []

    def failing(job: Any, task: Any) -> Any:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(task.index)
        return write_task(job, task)

    monkeypatch.setattr(row_tasks, "write_task", failing)
    resumed = tmp_path / "resumed"
    with pytest.raises(KeyboardInterrupt):
        exported(output, resumed, **options)
    damaged = resumed / f"train-{written[1]:05d}-of-00004.parquet"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    done = written.copy()
    written.clear()
    exported(output, resumed, **options)
    assert set(written) == {*range(4)} - {done[0], done[2]}
    assert checksums(resumed) == wanted


def kill_when_done(process: subprocess.Popen[str], work: Path, entries: int) -> bool:
    """Kills the processes of a command when so many tasks are done; whether it still ran."""
    while process.poll() is None:
        if work.is_dir() and len(list(work.glob("*.json"))) >= entries:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.001)
    return False


@pytest.mark.process
@pytest.mark.parametrize(
    "kills",
    [pytest.param(2, marks=pytest.mark.nightly), pytest.param(25, marks=pytest.mark.soak)],
)
def test_a_command_that_is_killed_goes_on_and_gives_the_same_bytes(
    tmp_path: Path, kills: int
) -> None:
    output = write_dataset(tmp_path / "build", {"train": [documents(3000, seed=9)] * 3})
    arguments = ("--to", "packed", "--sequence-length", "32", "--shuffle-seed", "1", "--files", "9")
    wanted = command(output, tmp_path / "whole", *arguments)
    assert wanted.wait(timeout=120) == 0
    moments = random.Random(kills)
    resumed = tmp_path / "resumed"
    for _ in range(kills):
        if not kill_when_done(
            command(output, resumed, *arguments), resumed / "_work", moments.randint(0, 9)
        ):
            break
        assert not (resumed / "export.json").exists() or checksums(resumed)
    last = command(output, resumed, *arguments)
    said, _ = last.communicate(timeout=120)
    assert last.returncode == 0, said
    assert checksums(resumed) == checksums(tmp_path / "whole")
    assert sorted(path.name for path in resumed.glob("*.parquet")) == sorted(checksums(resumed))
    assert not (resumed / "_work").exists()
