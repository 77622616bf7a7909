"""Files that are bad as a whole: what is kept of them, what is rejected, when a build fails."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fuzzing
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from build_support import command, config_for, input_file, some_text, write_corpus

from bpe_core import BPETokenizer
from pipelines import build, tasks
from pipelines.batches import Reject
from pipelines.config import BuildConfig
from pipelines.errors import (
    BadFileError,
    BadFileLimitError,
    ConfigError,
    DamagedFileError,
    InputError,
    RejectLimitError,
)
from pipelines.readers import ReadOptions, arrow_footer, read_range
from pipelines.stages import encode as encode_stage
from pipelines.stages import inputs as stage_inputs
from pipelines.tasks.listing import InputFile, compression_of
from pipelines.tasks.plan import Range

END = b"<|endoftext|>"
DOCUMENTS = some_text(300, words=30)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": lambda data: zstandard.compress(data[:9000]) + zstandard.compress(data[9000:]),
    "bz2": lambda data: bz2.compress(data[:9000]) + bz2.compress(data[9000:]),
    "xz": lzma.compress,
}


def file_at(path: Path, data: bytes) -> InputFile:
    return input_file(path, data, compression_of(path.name))


@dataclass
class Found:
    texts: list[bytes]
    rejects: list[Reject]

    @property
    def places(self) -> list[tuple[int, int, str]]:
        return [(reject.offset, reject.length, reject.reason) for reject in self.rejects]


def read(file: InputFile, cuts: Sequence[int] = (), **options: Any) -> Found:
    """The texts of whole documents, and the rejects."""
    found = Found([], [])
    asked = ReadOptions(separator=END, keep_readable=True, **options)
    bounds = [0, *cuts, file.size]
    for start, end in itertools.pairwise(bounds):
        pieces = b""
        for batch in read_range(file, Range(file=0, start=start, end=end), asked):
            found.rejects += batch.rejects
            for i in range(len(batch)):
                pieces += batch.document(i)
                if batch.last:
                    found.texts.append(pieces)
                    pieces = b""
        assert not pieces, "a document without its end"
    return found


# --- what is kept of a file


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "jsonl"])
@pytest.mark.parametrize("suffix", COMPRESS)
def test_documents_before_the_end_of_a_truncated_file_are_kept_and_none_that_is_cut(
    tmp_path: Path, suffix: str, form: str
) -> None:
    text = fuzzing.text_file(DOCUMENTS) if form == "text" else fuzzing.json_file(DOCUMENTS)
    data = COMPRESS[suffix](text)
    after = END if form == "text" else b"\n"
    kept = set()
    for part in (0.0, 0.5, 0.97, 0.999):
        file = file_at(tmp_path / f"f.{suffix}", data[: int(len(data) * part) or 1])
        sizes = ((1 << 20, 4 << 20), (1000, 70))
        found, other = (read(file, format=form, read_bytes=r, piece_bytes=p) for r, p in sizes)
        assert found == other
        assert found.texts == DOCUMENTS[: len(found.texts)]
        lines = [text + after for text in DOCUMENTS] if form == "text" else text.splitlines(True)
        place = sum(map(len, lines[: len(found.texts)]))
        assert found.places == [(place, 0, "damaged_file")]
        assert str(tmp_path) not in found.rejects[0].message
        kept.add(len(found.texts))
        with pytest.raises(DamagedFileError):
            list(
                read_range(file, Range(file=0, start=0, end=file.size), ReadOptions(separator=END))
            )
    assert len(kept) > 1


def test_a_long_document_that_is_cut_off_is_given_in_no_part(tmp_path: Path) -> None:
    data = gzip.compress(b"short" + END + b"some words " * 100_000)
    file = file_at(tmp_path / "f.gz", data[:-1000])
    found = read(file, piece_bytes=1000)
    assert found.texts == [b"short"]
    assert found.places == [(5 + len(END), 0, "damaged_file")]


def test_a_file_that_is_one_document_and_damaged_is_all_rejected(tmp_path: Path) -> None:
    file = file_at(tmp_path / "f.gz", gzip.compress(b"some words " * 1000)[:-5])
    options = ReadOptions(separator=None, keep_readable=True)
    (batch,) = read_range(file, Range(file=0, start=0, end=file.size), options)
    assert [(r.offset, r.reason) for r in batch.rejects] == [(0, "damaged_file")]


def parquet(documents: Sequence[bytes], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(fuzzing.table_of(documents), sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize("cuts", [(), (3000, 9000)])
def test_rows_before_and_after_a_broken_row_group_are_kept(
    tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    data = bytearray(parquet(DOCUMENTS, row_group_size=70, compression="zstd"))
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(2).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    data[begin : begin + 40] = bytes(40)
    found = read(file_at(tmp_path / "f.parquet", bytes(data)), cuts, format="parquet")
    assert found.texts == DOCUMENTS[:140] + DOCUMENTS[210:]
    assert found.places == [(140, 70, "damaged_file")]


def test_rows_before_a_broken_page_are_kept(tmp_path: Path) -> None:
    texts = [random.Random(i).randbytes(40).hex().encode() for i in range(2000)]
    options: dict[str, Any] = {"data_page_size": 5000, "use_dictionary": False}
    data = bytearray(parquet(texts, write_page_checksum=True, compression="none", **options))
    place = bytes(data).index(texts[1500])
    data[place] ^= 1
    file = file_at(tmp_path / "f.parquet", bytes(data))
    found = read(file, format="parquet")
    if len(found.texts) == 2000:
        pytest.skip("this version of Arrow does not check pages")
    ((place, left, reason),) = found.places
    assert found.texts == texts[:place]
    assert (place + left, reason) == (2000, "damaged_file")


@pytest.mark.parametrize("broken", ["body", "metadata"])
def test_rows_of_other_record_batches_are_kept(tmp_path: Path, broken: str) -> None:
    sink = io.BytesIO()
    table = fuzzing.table_of(DOCUMENTS)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=100)
    data = bytearray(sink.getvalue())
    (_, (begin, metadata, body), _) = arrow_footer._read_blocks(sink, len(data))
    if broken == "body":
        data[begin + metadata + 16 : begin + metadata + body] = bytes(body - 16)
    else:
        data[begin + 8 : begin + metadata] = bytes(metadata - 8)
    found = read(file_at(tmp_path / "f.arrow", bytes(data)), format="arrow")
    if broken == "body":
        assert found.texts == DOCUMENTS[:100] + DOCUMENTS[200:]
        assert found.places == [(100, 100, "damaged_file")]
    else:  # how many rows it had is not known, nor then the places of others
        assert found.texts == DOCUMENTS[:100]
        assert found.places == [(100, 0, "damaged_file")]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_file_of_another_schema_or_without_footer_is_rejected_as_a_whole(
    tmp_path: Path, form: str
) -> None:
    data = parquet([b"a"])
    for wrong in (data[:-1], b"nothing", parquet([b"a"]).replace(b"text", b"body")):
        found = read(file_at(tmp_path / f"f.{form}", wrong), format=form)
        assert found.texts == []
        assert found.places == [(0, 0, "damaged_file")]


@pytest.mark.parametrize("form", ["text", "parquet"])
def test_a_file_that_is_gone_or_changed_is_rejected_in_each_of_its_ranges(
    tmp_path: Path, form: str
) -> None:
    data = fuzzing.text_file(DOCUMENTS) if form == "text" else parquet(DOCUMENTS)
    file = file_at(tmp_path / "f", data)
    expected = [(0, 5000), (5000, len(data) - 5000)] if form == "text" else [(0, 0)] * 2
    found = read(replace(file, size=file.size, version_tag="mtime_ns=1"), [5000], format=form)
    assert found.places == [(*place, "changed_file") for place in expected]
    (tmp_path / "f").unlink()
    found = read(file, [5000], format=form)
    assert found.places == [(*place, "vanished_file") for place in expected]
    for reject in found.rejects:
        assert "mtime" not in reject.message
        assert str(tmp_path) not in reject.message
    assert found.texts == []


def test_a_file_that_changes_while_it_is_read_is_kept_up_to_there(tmp_path: Path) -> None:
    file = file_at(tmp_path / "f", fuzzing.text_file(DOCUMENTS))
    options = ReadOptions(separator=END, keep_readable=True, read_bytes=3000)
    batches = read_range(file, Range(file=0, start=0, end=file.size), options)
    first = next(batches)
    (tmp_path / "f").write_bytes(b"short")
    (last,) = batches
    (reject,) = last.rejects
    assert (reject.offset, reject.reason) == (
        sum(map(len, DOCUMENTS[: len(first)])) + len(END) * len(first),
        "changed_file",
    )
    assert reject.offset + reject.length == file.size


def test_storage_that_fails_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_at(tmp_path / "f", b"text")

    def failing(*_: object, **__: object) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pipelines.storage.remote_files.os.open", failing)
    with pytest.raises(InputError) as caught:
        read(file)
    assert not isinstance(caught.value, BadFileError)


# --- builds


def manifest_of(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "tokens" / "manifest.json").read_text())
    return found


def rejects_of(output: Path, pattern: str = "[0-9]*") -> list[dict[str, Any]]:
    files = sorted((output / "rejects").glob(f"{pattern}.parquet"))
    return [row for path in files for row in pq.read_table(path).to_pylist()]


@pytest.fixture
def bad_corpus(tmp_path: Path) -> BuildConfig:
    """Files a and d are whole, b and c are not; every file is several tasks or none is."""
    write_corpus(tmp_path / "data", {"a.txt": DOCUMENTS[:90], "d.txt": DOCUMENTS[200:]})
    for name, begin in (("b.txt.gz", 90), ("c.txt.gz", 150)):
        data = gzip.compress(fuzzing.text_file(DOCUMENTS[begin : begin + 50]), compresslevel=0)
        (tmp_path / "data" / name).write_bytes(data[: len(data) * 2 // 3])
    return config_for(tmp_path, input={"max_bad_files": 2}, beam={"workers": 1})


def with_limit(config: BuildConfig, limit: int) -> BuildConfig:
    (source,) = config.input
    return config.model_copy(
        update={"input": (source.model_copy(update={"max_bad_files": limit}),)}
    )


@pytest.mark.slow
def test_a_build_within_the_limit_keeps_what_can_be_read_and_says_so(
    bad_corpus: BuildConfig, tmp_path: Path
) -> None:
    summary = build.build(bad_corpus)
    assert (summary.bad_files, summary.rejects) == (2, 0)
    assert summary.reasons == {"damaged_file": 2}
    manifest = manifest_of(tmp_path / "out")
    assert manifest["totals"]["bad_files"] == ["b.txt.gz", "c.txt.gz"]
    assert [(one["name"], one["bad"]) for one in manifest["inputs"]] == [
        ("a.txt", False),
        ("b.txt.gz", True),
        ("c.txt.gz", True),
        ("d.txt", False),
    ]
    found = {row["source"]: row for row in rejects_of(tmp_path / "out")}
    assert {name: row["reason"] for name, row in found.items()} == {
        "b.txt.gz": "damaged_file",
        "c.txt.gz": "damaged_file",
    }
    tokenizer = BPETokenizer.load(tmp_path / "out" / "tokenizer")
    texts: dict[str, list[bytes]] = {}
    for path in sorted((tmp_path / "out" / "tokens").glob("train-*")):
        for row in pq.read_table(path).to_pylist():
            texts.setdefault(row["source"], []).append(
                tokenizer.decode_bytes(row["input_ids"][:-1])
            )
    assert texts["a.txt"] + texts["d.txt"] == DOCUMENTS[:90] + DOCUMENTS[200:]
    for name, begin in (("b.txt.gz", 90), ("c.txt.gz", 150)):
        kept = DOCUMENTS[begin : begin + len(texts[name])]
        assert texts[name] == kept
        assert found[name]["offset"] == sum(len(text) + len(END) for text in kept)
    # What is not finished differently is not done again, and the limit is no part of the identity.
    again = build.build(with_limit(bad_corpus, 7))
    assert {stage.state for stage in again.stages} == {"already finished"}


@pytest.mark.slow
@pytest.mark.parametrize("in_one_task", [False, True])
def test_more_bad_files_than_allowed_are_named_and_the_limit_can_be_raised(
    bad_corpus: BuildConfig, tmp_path: Path, in_one_task: bool
) -> None:
    config = bad_corpus
    if in_one_task:
        (source,) = config.input
        source = source.model_copy(update={"range_bytes": 1 << 20})
        config = config.model_copy(update={"input": (source,)})
    with pytest.raises(BadFileLimitError) as caught:
        build.build(with_limit(config, 1))
    for text in ("at most 1 per source", "b.txt.gz", "c.txt.gz", "damaged_file"):
        assert text in str(caught.value)
    assert BadFileLimitError.exit_code == 4
    assert not (tmp_path / "out" / "counts" / "manifest.json").exists()
    with pytest.raises(InputError, match=r"b\.txt\.gz"):
        build.build(with_limit(config, 0))
    states = [stage.state for stage in build.build(config).stages]
    assert states == ["done" if in_one_task else "resumed", "done", "done"]


@pytest.mark.slow
def test_a_file_in_several_tasks_counts_once(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": DOCUMENTS[:90], "b.txt": DOCUMENTS[200:]})
    config = config_for(tmp_path, input={"max_bad_files": 1}, beam={"workers": 1})
    path = tmp_path / "data" / "b.txt"
    planned = build.plan(config)
    assert planned.files[1].ranges > 2
    real = tasks.plan_tasks

    def vanishing(*arguments: Any) -> Any:
        plan = real(*arguments)
        path.unlink(missing_ok=True)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_inputs, "plan_tasks", vanishing)
        summary = build.build(config)
    assert summary.bad_files == 1
    assert summary.reasons == {"vanished_file": planned.files[1].ranges}
    entries = {one["name"]: one for one in manifest_of(tmp_path / "out")["inputs"]}
    assert (entries["b.txt"]["documents"], entries["b.txt"]["bad"]) == (0, True)
    assert entries["a.txt"]["documents"] == 90


@pytest.mark.slow
def test_limits_count_the_rows_that_can_not_be_read(tmp_path: Path) -> None:
    data = bytearray(parquet(DOCUMENTS, row_group_size=70))
    begin = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(1).column(0).dictionary_page_offset
    data[begin : begin + 30] = bytes(30)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.parquet").write_bytes(data)
    limits = {"format": "parquet", "max_bad_files": 1, "limit_documents": 100}
    summary = build.build(config_for(tmp_path, input=limits))
    assert (summary.documents, summary.bad_files) == (70, 1)
    assert [(r["offset"], r["length"]) for r in rejects_of(tmp_path / "out")] == [(70, 30)]


@pytest.mark.slow
def test_a_file_that_is_bad_only_when_encoding_is_named(
    bad_corpus: BuildConfig, tmp_path: Path
) -> None:
    bad_corpus = with_limit(bad_corpus, 3)
    real = encode_stage.write_tokens

    def removing(*arguments: Any) -> Any:
        (tmp_path / "data" / "a.txt").unlink()
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_stage, "write_tokens", removing)
        with pytest.raises(InputError, match=r"are not the counted ones(.|\n)*two stages: a\.txt"):
            build.build(bad_corpus)


def with_many_rejects(folder: Path, fraction: float) -> BuildConfig:
    """Return a configuration whose counting rejects 78 of 144 documents, and encoding one more."""
    files = {f"{i:02}.txt": [*DOCUMENTS[:5], *[b"\xff%d" % n for n in range(i)]] for i in range(13)}
    files["12.txt"].append(b"a <|x|> b")
    write_corpus(folder / "data", files)
    return config_for(
        folder,
        tokenizer={"special_tokens": ["<|endoftext|>", "<|x|>"]},
        encode={"special_tokens_in_text": "reject", "max_reject_fraction": fraction},
        beam={"workers": 1},
    )


def test_too_many_rejects_name_the_worst_files_and_an_example(tmp_path: Path) -> None:
    with pytest.raises(RejectLimitError) as caught:
        build.build(with_many_rejects(tmp_path, 0.54))
    lines = str(caught.value).splitlines()
    assert any("78 of 144" in line for line in lines)
    worst = [line.strip() for line in lines if ".txt:" in line]
    assert worst[0] == "12.txt: 12 rejected (15.4% of all), mostly invalid_utf8"
    assert [line[:2] for line in worst] == [f"{i:02}" for i in range(12, 2, -1)]
    assert "    and 2 more" in lines
    assert any(line.startswith("    such as 01.txt, document at offset ") for line in lines)
    assert any(line.endswith("rejects/count-*.parquet") for line in lines)


@pytest.mark.slow
def test_encoding_ends_when_the_counted_documents_can_not_keep_the_limit(tmp_path: Path) -> None:
    with pytest.raises(RejectLimitError) as caught:
        build.build(with_many_rejects(tmp_path, 0.545))
    assert "at most 0.545 of at most 144" in str(caught.value)
    assert "79 before the end, such as" in str(caught.value)
    assert (tmp_path / "out" / "counts" / "manifest.json").exists()


@pytest.mark.slow
def test_the_pattern_none_is_refused_for_a_large_corpus_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": DOCUMENTS[:20]})
    config = config_for(tmp_path, tokenizer={"pattern": "none"}, beam={"workers": 1})
    size = (tmp_path / "data" / "a.txt").stat().st_size
    monkeypatch.setattr("pipelines.tasks.plan.LARGEST_WITHOUT_PATTERN", size - 1)
    for run in (build.plan, build.count, build.build):
        with pytest.raises(ConfigError, match=r"pattern none(.|\n)*tokenizer\.path"):
            run(config)
    monkeypatch.setattr("pipelines.tasks.plan.LARGEST_WITHOUT_PATTERN", size)
    build.build(config)
    monkeypatch.setattr("pipelines.tasks.plan.LARGEST_WITHOUT_PATTERN", 1)
    finished = str(tmp_path / "out" / "tokenizer")
    encoding = config.model_copy(
        update={
            "output": str(tmp_path / "other"),
            "tokenizer": config.tokenizer.model_validate({"path": finished}),
        }
    )
    assert build.build(encoding).documents == 20


# --- every policy, by the command

NO_PERMISSION = """
import ctypes
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
libc.capget(header, sets)
sets[0] &= ~0b110  # root, too, may then read only what it is allowed to
libc.capset(header, sets)
"""
CHANGES = """
from pathlib import Path
import pipelines.tasks
plan_tasks = pipelines.tasks.plan.plan_tasks
def changing(*arguments):
    plan = plan_tasks(*arguments)
    Path({data!r}, "vanishing.txt").unlink(missing_ok=True)
    Path({data!r}, "growing.txt").write_bytes(b"x" * 9999)
    Path({data!r}, "touched.txt").touch()
    return plan
pipelines.tasks.plan.plan_tasks = changing
"""

GOOD = DOCUMENTS[:10]
LINES = [json.dumps({"id": i, "text": text.decode()}) for i, text in enumerate(GOOD)]


def write_bad_data(data: Path) -> list[dict[str, Any]]:
    """Sources with everything that may be wrong; of each the good documents are GOOD."""
    data.mkdir(parents=True)
    text = fuzzing.text_file(GOOD)
    (data / "whole.txt").write_bytes(fuzzing.text_file(DOCUMENTS[50:150]))
    (data / "latin.txt").write_bytes(text + b"caf\xe9" + END)
    lines = [
        *LINES,
        "{",
        '{"id": 11}',
        '{"text": null}',
        '{"text": 5}',
        '{"text": "' + "x" * 2000 + '"}',
    ]
    (data / "lines.jsonl").write_text("\n".join(lines))
    for name in ("vanishing", "growing", "touched", "forbidden"):
        (data / f"{name}.txt").write_bytes(text)
    os.utime(data / "touched.txt", ns=(1, 1))
    (data / "forbidden.txt").chmod(0)
    (data / "cut.txt.gz").write_bytes(gzip.compress(text + b"more")[:-6])
    (data / "group.parquet").write_bytes(parquet(GOOD)[:-9])
    (data / "nulls.parquet").write_bytes(b"")
    pq.write_table(
        pa.table({"text": [*map(bytes.decode, GOOD), None, "x" * 2000]}), data / "nulls.parquet"
    )
    (data / "empty.parquet").write_bytes(b"")
    pq.write_table(pa.table({"body": ["a"]}), data / "other.parquet")
    (data / "tokens.txt").write_bytes(text + b"a <|x|> in text" + END)
    one = {"max_bad_files": 1}
    return [
        {"name": "whole", "files": ["whole.txt"]},
        {"name": "reject", "files": ["latin.txt"]},
        {"name": "replace", "files": ["latin.txt"], "invalid_utf8": "replace"},
        {"name": "lines", "files": ["lines.jsonl"], "format": "jsonl", "max_document_bytes": 1000},
        {"name": "gone", "files": ["vanishing.txt"], **one},
        {"name": "changed", "files": ["growing.txt", "touched.txt"], "max_bad_files": 2},
        {"name": "forbidden", "files": ["forbidden.txt"], **one},
        {"name": "cut", "files": ["cut.txt.gz"], **one},
        {
            "name": "table",
            "files": ["group.parquet", "nulls.parquet", "empty.parquet", "other.parquet"],
            "format": "parquet",
            "max_document_bytes": 1000,
            "max_bad_files": 3,
        },
        {"name": "tokens", "files": ["tokens.txt"]},
    ]


@pytest.mark.process
@pytest.mark.slow
def test_everything_that_may_be_wrong_is_counted_and_has_its_place(tmp_path: Path) -> None:
    data = tmp_path / "data"
    sources = write_bad_data(data)
    for source in sources:
        source["files"] = [f"data/{name}" for name in source["files"]]
    values = {
        "output": "out",
        "input": sources,
        "tokenizer": {"vocab_size": 300, "special_tokens": ["<|endoftext|>", "<|x|>"]},
        "encode": {"max_reject_fraction": 0.5, "special_tokens_in_text": "reject"},
        "counts": {"shards": 1},
    }
    config = tmp_path / "build.yaml"
    config.write_text(yaml.safe_dump(values))
    done = command(
        "build", config, hook=NO_PERMISSION + CHANGES.format(data=str(data)), directory=tmp_path
    )
    (data / "forbidden.txt").chmod(0o600)
    assert done.returncode == 0, done.stderr
    rows = rejects_of(tmp_path / "out")
    begin = len(fuzzing.text_file(GOOD))
    places = [0]
    for line in (tmp_path / "data" / "lines.jsonl").read_text().split("\n"):
        places.append(places[-1] + len(line.encode()) + 1)
    found = {(row["source"], row["offset"]): row["reason"] for row in rows}
    assert found == {
        ("reject/latin.txt", begin): "invalid_utf8",
        ("lines/lines.jsonl", places[10]): "malformed_json",
        ("lines/lines.jsonl", places[11]): "missing_field",
        ("lines/lines.jsonl", places[12]): "null_field",
        ("lines/lines.jsonl", places[13]): "wrong_field_type",
        ("lines/lines.jsonl", places[14]): "too_long",
        ("gone/vanishing.txt", 0): "vanished_file",
        ("changed/growing.txt", 0): "changed_file",
        ("changed/touched.txt", 0): "changed_file",
        ("forbidden/forbidden.txt", 0): "unreadable_file",
        ("cut/cut.txt.gz", begin): "damaged_file",
        ("table/group.parquet", 0): "damaged_file",
        ("table/nulls.parquet", 10): "null_field",
        ("table/nulls.parquet", 11): "too_long",
        ("table/empty.parquet", 0): "damaged_file",
        ("table/other.parquet", 0): "damaged_file",
        ("tokens/tokens.txt", begin): "special_token",
    }
    numbers: dict[str, int] = {}
    for reason in found.values():
        numbers[reason] = numbers.get(reason, 0) + 1
    for reason, number in numbers.items():
        assert f"  {reason:<19}{number}\n" in done.stdout
    assert f"{'bad files':<21}8\n" in done.stdout
    assert f"{'rejects':<21}9\n" in done.stdout
    totals = manifest_of(tmp_path / "out")["totals"]
    assert totals["reasons"] == dict(sorted(numbers.items()))
    assert totals["documents"] == 100 + 10 * 6 + 1
    inputs = {one["name"]: one for one in manifest_of(tmp_path / "out")["inputs"]}
    for name in ("reject/latin.txt", "lines/lines.jsonl", "cut/cut.txt.gz", "table/nulls.parquet"):
        assert inputs[name]["documents"] == 10, name


@pytest.mark.process
@pytest.mark.slow
def test_by_default_a_file_without_permission_fails_the_build_and_is_named(tmp_path: Path) -> None:
    write_bad_data(tmp_path / "data")
    values = {"output": "out", "input": {"files": ["data/forbidden.txt"]}}
    config = tmp_path / "build.yaml"
    config.write_text(yaml.safe_dump(values))
    done = command("build", config, hook=NO_PERMISSION, directory=tmp_path)
    (tmp_path / "data" / "forbidden.txt").chmod(0o600)
    assert done.returncode == 4, done.stderr
    assert "Permission to read an input file is denied." in done.stderr
    assert f"where: {tmp_path}/data/forbidden.txt" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "keys", "error", "shown"),
    [
        ("latin.txt", {"invalid_utf8": "error"}, InputError, r"0xe9(.|\n)*latin\.txt"),
        ("latin.txt", {}, RejectLimitError, r"1 of 11(.|\n)*latin\.txt"),
        ("cut.txt.gz", {}, DamagedFileError, r"truncated(.|\n)*cut\.txt\.gz"),
        ("other.parquet", {"format": "parquet"}, DamagedFileError, "columns body"),
        ("empty.parquet", {"format": "parquet"}, InputError, r"empty(.|\n)*empty\.parquet"),
        ("tokens.txt", {}, InputError, r"a special token at byte 2(.|\n)*tokens\.txt"),
    ],
)
def test_by_default_each_of_them_fails_the_build_and_is_named(
    tmp_path: Path, name: str, keys: dict[str, Any], error: type[Exception], shown: str
) -> None:
    write_bad_data(tmp_path / "data")
    config = config_for(
        tmp_path,
        input={"files": [str(tmp_path / "data" / name)], **keys},
        tokenizer={"special_tokens": ["<|endoftext|>", "<|x|>"]},
        encode={"special_tokens_in_text": "error"},
        beam={"workers": 1},
    )
    with pytest.raises(error, match=shown):
        build.build(config)
