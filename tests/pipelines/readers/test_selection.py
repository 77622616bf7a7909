"""Selection: what is taken follows from the documents and their order, from nothing else."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard
from build_support import config_for, encode_job, write_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import times
from reading_support import cases, expected_documents, make_file, several_cases

from bpe_core import BPETokenizer, _native, count_pretokens, train_from_counts
from pipelines.accounting import DocumentTotals, planned_bytes
from pipelines.batches import DocumentBatch
from pipelines.config import BuildConfig, SourceConfig
from pipelines.errors import ConfigError, InputError
from pipelines.readers import InvalidDocumentError, ReadOptions, read_range
from pipelines.readers import source_limits as limits
from pipelines.readers.long_documents import LongDocument, Specials
from pipelines.readers.selection import Selection, select_share
from pipelines.readers.source_limits import limit_files
from pipelines.readers.tasks import TaskWork, read_task, source_readings
from pipelines.tasks.listing import InputFile, NoInputError, list_files
from pipelines.tasks.plan import Range, plan_tasks
from pipelines.writing.tasks import write_task

property_settings = settings(
    max_examples=times(1.5), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("selection")


def is_taken(text: bytes, selection: Selection) -> bool:
    """The rules of selection, said once more."""
    if (xxhash.xxh3_128_intdigest(text) >> 64) / 2**64 >= selection.sample_fraction:
        return False
    characters = len(text.decode("utf-8", "replace"))
    most = selection.max_chars
    return characters >= selection.min_chars and (most is None or characters <= most)


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def texts_of(
    batches: Iterable[DocumentBatch], totals: DocumentTotals | dict[str, DocumentTotals]
) -> list[bytes]:
    """The documents, their pieces put together; the totals, by source or of all, are added to."""
    texts: list[bytes] = []
    for batch in batches:
        (totals if isinstance(totals, DocumentTotals) else totals[batch.source]).add_batch(batch)
        for i in range(len(batch)):
            if batch.part:
                texts[-1] += batch.document(i)
            else:
                texts.append(batch.document(i))
    return texts


@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_texts_too_long_to_be_held_are_selected_before_they_are_rejected(
    fraction: float, tmp_path: Path
) -> None:
    texts = [b"%d " % i + b"x" * (20 + 7 * i) for i in range(60)]
    file = make_file(tmp_path, b"\n".join(texts))
    selection = Selection(sample_fraction=fraction, max_chars=300)
    options = ReadOptions(
        separator=b"\n",
        selection=selection,
        cut=False,
        max_document_bytes=100,
        read_bytes=64,
        invalid_utf8="error",
    )
    totals = DocumentTotals()
    found = texts_of(read_range(file, Range(file=0, start=0, end=file.size), options), totals)
    taken = [text for text in texts if is_taken(text, selection)]
    assert found == [text for text in taken if len(text) <= 100]
    assert totals.rejected == len(taken) - len(found)
    assert totals.reasons == ({"too_long": totals.rejected} if totals.rejected else {})
    assert totals.not_selected == len(texts) - len(taken)
    assert totals.not_selected_bytes == sum(map(len, texts)) - sum(map(len, taken))
    assert totals.file_bytes == file.size


selections = st.builds(
    Selection,
    sample_fraction=st.sampled_from([1.0, 0.75, 0.3]),
    min_chars=st.integers(0, 8),
    max_chars=st.one_of(st.none(), st.integers(8, 40)),
)


# --- documents by themselves


@property_settings
@given(
    case=st.one_of(cases, several_cases),
    selection=selections,
    invalid_utf8=st.sampled_from(["reject", "replace"]),
    cuts=st.lists(st.integers(1, 200), max_size=6),
    read_bytes=st.integers(1, 50),
    piece_bytes=st.integers(1, 60),
)
def test_the_same_documents_are_selected_however_a_file_is_cut_and_read(
    folder: Path,
    case: tuple[bytes | tuple[bytes, ...], bytes],
    selection: Selection,
    invalid_utf8: Any,
    cuts: list[int],
    read_bytes: int,
    piece_bytes: int,
) -> None:
    separator, data = case
    options = ReadOptions(
        separator=separator,
        selection=selection,
        invalid_utf8=invalid_utf8,
        read_bytes=read_bytes,
        piece_bytes=piece_bytes,
    )
    file = make_file(folder, data)
    bounds = [0, *sorted(cut for cut in set(cuts) if cut < len(data)), len(data)]
    totals = DocumentTotals()
    found = []
    for start, end in itertools.pairwise(bounds):
        part = Range(file=0, start=start, end=end)
        found += texts_of(read_range(file, part, options), totals)
    texts = [text for _, text in expected_documents(data, separator, strip_bom=False)]
    taken = [text for text in texts if text and is_taken(text, selection)]
    kept = [text for text in taken if is_utf8(text) or invalid_utf8 == "replace"]
    assert found == [text.decode("utf-8", "replace").encode() for text in kept]
    assert totals.bytes == sum(map(len, kept))
    assert totals.rejected_bytes == sum(map(len, taken)) - totals.bytes
    assert totals.not_selected_bytes == sum(map(len, texts)) - sum(map(len, taken))
    assert totals.rejected == len(taken) - len(kept)
    assert totals.not_selected == sum(map(bool, texts)) - len(taken)
    assert totals.all_documents == len(texts)
    assert totals.file_bytes == len(data)


@given(
    parts=st.lists(st.sampled_from([b"a", "é".encode(), "中".encode(), "🙂".encode(), b"\xff",
                                    b"\xe4\xb8", b"\xf0\x9f", b"\x80"]), max_size=12),
    size=st.integers(1, 7),
)  # fmt: skip
def test_characters_of_a_long_document_are_those_of_its_repaired_text(
    parts: list[bytes], size: int
) -> None:
    text = np.frombuffer(b"".join(parts), np.uint8)
    document = LongDocument(0, Specials((), (), None), None, count_characters=True)
    for begin in range(0, max(len(text), 1), size):
        chunk = text[begin : begin + size]
        document.add(chunk, is_last=begin + size >= len(text))
    assert document.characters == len(b"".join(parts).decode("utf-8", "replace"))


def test_characters_are_counted_natively() -> None:
    texts = ["", "abc", "é中🙂" * 100, "e\u0301", "x" * 1000 + "ß"]
    data = "".join(texts).encode()
    ends = np.cumsum([len(text.encode()) for text in texts])
    starts = ends - [len(text.encode()) for text in texts]
    assert _native.count_characters(data, starts, ends).tolist() == [len(text) for text in texts]
    with pytest.raises(ValueError, match="outside"):
        _native.count_characters(b"abc", np.array([0]), np.array([4]))


@pytest.mark.parametrize("piece_bytes", [4, 1 << 20])
def test_what_is_not_selected_is_no_error(folder: Path, piece_bytes: int) -> None:
    file = make_file(folder, b"good one|bad \xff\xff\xff one|good")
    whole = Range(file=0, start=0, end=file.size)
    options = ReadOptions(
        separator=b"|",
        invalid_utf8="error",
        selection=Selection(max_chars=10),
        piece_bytes=piece_bytes,
    )
    totals = DocumentTotals()
    assert texts_of(read_range(file, whole, options), totals) == [b"good one", b"good"]
    assert (totals.not_selected, totals.rejected) == (1, 0)
    with pytest.raises(InvalidDocumentError):
        list(read_range(file, whole, replace(options, selection=Selection(max_chars=11))))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_records_that_are_too_long_are_selected_before_they_are_rejected(
    folder: Path, form: str
) -> None:
    texts = ["short", "x" * 50, "y" * 50]
    data = encoded(form, [texts])[0]
    options = ReadOptions(format=form, max_document_bytes=20)  # type: ignore[arg-type]
    file = make_file(folder, data)
    whole = Range(file=0, start=0, end=file.size)
    digests = {text: xxhash.xxh3_128_intdigest(text.encode()) >> 64 for text in texts}
    between = (digests[texts[1]] + digests[texts[2]]) // 2 / 2**64
    totals = DocumentTotals()
    chosen = replace(options, selection=Selection(sample_fraction=between))
    texts_of(read_range(file, whole, chosen), totals)
    short_too = digests["short"] / 2**64 < between
    assert (totals.documents, totals.rejected, totals.not_selected) == (short_too, 1, 2 - short_too)
    assert (totals.rejected_bytes, totals.rows) == (50, 3)


def test_sample_and_validation_split_are_independent(folder: Path) -> None:
    data = b"".join(b"document number %d\n" % i for i in range(40_000))
    options = ReadOptions(separator=b"\n")
    file = make_file(folder, data)
    batches = list(read_range(file, Range(file=0, start=0, end=file.size), options))
    hashes = np.concatenate([batch.hashes for batch in batches])
    sampled, validation = select_share(hashes[:, 0], 0.3), select_share(hashes[:, 1], 0.1)
    table = np.array(
        [[np.count_nonzero(a & b) for b in (validation, ~validation)] for a in (sampled, ~sampled)]
    )
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    assert ((table - expected) ** 2 / expected).sum() < 10.83  # one in a thousand
    assert abs(sampled.mean() - 0.3) < 0.01
    assert abs(validation.mean() - 0.1) < 0.01
    smaller = select_share(hashes[:, 0], 0.2)
    assert not (smaller & ~sampled).any()


# --- limits

BAD = None  # a document that is rejected
Item = str | None


def encoded(form: str, files: Sequence[Sequence[Item]]) -> list[bytes]:
    """Files with these documents."""
    if form in ("parquet", "arrow"):
        return [_columns(form, items) for items in files]
    if form == "jsonl":
        return [
            b"".join(
                b"{bad\n" if item is BAD else json.dumps({"text": item}).encode() + b"\n \n"
                for item in items
            )
            for items in files
        ]
    end = {"text": b"<|end|>", "lines": b"\n"}[form]
    return [
        b"".join((b"\xff\xfe" if item is BAD else item.encode()) + end for item in items)
        for items in files
    ]


def _columns(form: str, items: Sequence[Item]) -> bytes:
    table = pa.table({"text": pa.array(items, pa.string())})
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, sink, row_group_size=3)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    return bytes(sink.getvalue().to_pybytes())


BAD_BYTES = {"text": 2, "lines": 2, "jsonl": 4, "parquet": 0, "arrow": 0}
COMPRESS = {
    "": lambda data: data,
    ".gz": lambda data: gzip.compress(data[:50], 1) + gzip.compress(data[50:], 1),
    ".zst": zstandard.ZstdCompressor().compress,
}


def source_of(folder: Path, form: str, **keys: Any) -> SourceConfig:
    keys = {"files": [str(folder / "*")], **keys}
    if form in ("text", "lines"):
        return SourceConfig(separator={"text": "<|end|>", "lines": "\n"}[form], **keys)
    return SourceConfig(format=form, **keys)


@dataclass
class Read:
    """What a build would read of a source."""

    files: list[InputFile]
    texts: list[bytes]
    totals: list[DocumentTotals]


def read_source(source: SourceConfig) -> Read:
    files, _ = limit_files(list_files(source), [source])
    plan = plan_tasks(files, [source])
    readings = source_readings([source], "gpt2", ())
    texts: list[bytes] = []
    totals = {file.label: DocumentTotals() for file in files}
    for task in plan.tasks:
        texts += texts_of(read_task(TaskWork.of_plan(plan, task), readings), totals)
    return Read(files, texts, list(totals.values()))


def expected_limit(
    form: str, files: Sequence[Sequence[Item]], documents: int | None, most: int | None
) -> list[list[Item]]:
    """The documents of each file up to the limits."""
    taken: list[list[Item]] = [[] for _ in files]
    total = number = 0
    for i, items in enumerate(files):
        for item in items:
            number += 1
            total += BAD_BYTES[form] if item is BAD else len(item.encode())
            if (documents is not None and number > documents) or (most and total > most):
                return taken
            taken[i].append(item)
    return taken


items = st.one_of(st.sampled_from(["", "a", "word by word", "é中🙂", "x" * 300]), st.just(BAD))


@pytest.mark.slow
@settings(property_settings, max_examples=times(1.2))
@given(
    form=st.sampled_from(["text", "lines", "jsonl", "parquet", "arrow"]),
    compression=st.sampled_from(list(COMPRESS)),
    files=st.lists(st.lists(items, max_size=12), min_size=1, max_size=4),
    documents=st.one_of(st.none(), st.integers(1, 30)),
    most=st.one_of(st.none(), st.integers(1, 900)),
    range_bytes=st.integers(20, 600),
    threads=st.integers(1, 4),
)
def test_limits_take_the_first_documents_in_every_form(
    tmp_path_factory: pytest.TempPathFactory,
    form: str,
    compression: str,
    files: list[list[Item]],
    documents: int | None,
    most: int | None,
    range_bytes: int,
    threads: int,
) -> None:
    folder = tmp_path_factory.mktemp("limits")
    compression = "" if form in ("parquet", "arrow") else compression
    for i, data in enumerate(encoded(form, files)):
        (folder / f"{i}{compression}").write_bytes(COMPRESS[compression](data))
    source = source_of(
        folder, form, limit_documents=documents, limit_bytes=most, range_bytes=range_bytes
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "usable_cores", lambda: threads)
        found = read_source(source)
    expected = expected_limit(form, files, documents, most)
    assert found.texts == [item.encode() for items in expected for item in items if item]
    for file, totals, items in zip(found.files, found.totals, expected, strict=True):
        assert totals.all_documents == len(items), file
        assert totals.empty == items.count("")
        assert totals.rejected == items.count(BAD)
        assert planned_bytes(file, source.format) in (None, totals.file_bytes)
        assert totals.rows == (len(items) if source.format in ("parquet", "arrow") else 0)
        assert not (file.unread and items)


@pytest.mark.parametrize("form", ["text", "jsonl", "parquet"])
def test_limits_come_before_every_other_selection(tmp_path: Path, form: str) -> None:
    texts: list[Item] = [f"document {i}" for i in range(200)]
    (tmp_path / "0").write_bytes(encoded(form, [texts])[0])
    source = source_of(tmp_path, form, limit_documents=100, sample_fraction=0.5, range_bytes=99)
    found = read_source(source)
    selection = Selection(sample_fraction=0.5)
    first = [str(text).encode() for text in texts[:100]]
    assert found.texts == [text for text in first if is_taken(text, selection)]
    assert found.totals[0].all_documents == 100


def test_whole_files_are_limited_by_their_number(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text(f"file {i}")
    source = SourceConfig(files=[str(tmp_path / "*")], separator=None, limit_documents=2)
    found = read_source(source)
    assert found.texts == [b"file 0", b"file 1"]
    assert [file.unread for file in found.files] == [False, False, True, True, True]


@pytest.mark.slow
def test_long_documents_count_once_and_with_all_their_bytes(tmp_path: Path) -> None:
    long = b"long words " * 600_000  # above a piece
    (tmp_path / "a.txt").write_bytes(b"|".join([b"one", long, b"three", long, b"five"]))
    source = SourceConfig(files=[str(tmp_path / "*")], separator="|")
    bytes_ = len(long) + len(b"onethree")
    for keys in ({"limit_documents": 3}, {"limit_bytes": bytes_ + 100}):
        found = read_source(source.model_copy(update=keys))
        assert found.texts == [b"one", long, b"three"]
        assert found.totals[0].file_bytes == bytes_ + 3
    exact = source.model_copy(update={"limit_bytes": len(b"one") + len(long)})
    assert read_source(exact).texts == [b"one", long]


def test_what_comes_after_a_limit_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "0.txt.gz").write_bytes(gzip.compress(b"one|two|three"))
    (tmp_path / "1.txt.gz").write_bytes(b"this is no gzip")
    source = SourceConfig(files=[str(tmp_path / "*")], separator="|", limit_documents=3)
    assert read_source(source).texts == [b"one", b"two", b"three"]
    with pytest.raises(InputError, match=r"1\.txt\.gz"):
        read_source(source.model_copy(update={"limit_documents": 4}))


@pytest.mark.slow
def test_a_compressed_file_is_read_up_to_the_limit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(b"%d\n" % (i * 7919) for i in range(2_000_000))
    (tmp_path / "a.txt.zst").write_bytes(zstandard.ZstdCompressor(1).compress(data))
    source = SourceConfig(files=[str(tmp_path / "*")], separator="\n", limit_documents=1000)
    sizes: list[int] = []
    real = DocumentTotals.add_batch

    def noted(totals: DocumentTotals, batch: DocumentBatch) -> None:
        sizes.append(len(batch.data))
        real(totals, batch)

    monkeypatch.setattr(DocumentTotals, "add_batch", noted)
    found = read_source(source)
    assert len(found.texts) == 1000
    assert sum(sizes) < 3 * (2 << 20)  # one buffer when the limit is looked for, one when reading


def test_where_a_limit_ends_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_bytes(b"one|two|three")
    source = SourceConfig(files=[str(tmp_path / "*")], separator="|", limit_documents=2)
    files = list_files(source)
    first, ends = limit_files(files, [source])
    ends = json.loads(json.dumps(ends))
    monkeypatch.delattr(limits._Search, "end")
    assert limit_files(files, [source], ends)[0] == first
    for changed in (
        (files, source.model_copy(update={"limit_documents": 1})),
        (files, source.model_copy(update={"separator": "\n"})),
        ([replace(files[0], version_tag="other")], source),
    ):
        with pytest.raises(AttributeError):
            limit_files(changed[0], [changed[1]], ends)
    for damaged in ({"file": 7, "stop": 1, "end": 1}, {"file": "0"}, 3):
        with pytest.raises(AttributeError):
            limit_files(files, [source], dict.fromkeys(ends, damaged))


# --- files


def test_include_and_exclude_choose_files_by_their_names(tmp_path: Path) -> None:
    names = ["a.txt", "b.txt", "x/a.txt", "x/y/c.md"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")

    def chosen(**keys: Any) -> list[str]:
        source = SourceConfig(files=[f"{tmp_path}/**"], **keys)
        return [file.name for file in list_files(source)]

    assert chosen() == names
    assert chosen(include=["*.txt"]) == ["a.txt", "b.txt"]
    assert chosen(include=["**/*.txt"]) == ["a.txt", "b.txt", "x/a.txt"]
    assert chosen(exclude=["**/a.txt"]) == ["b.txt", "x/y/c.md"]
    assert chosen(include=["**/*.txt"], exclude=["x/**", "b*"]) == ["a.txt"]
    with pytest.raises(NoInputError, match=r"input\[0\].include") as error:
        chosen(include=["*.md"])
    assert "x/y/c.md" in str(error.value)


def test_keys_that_leave_nothing_are_refused(tmp_path: Path) -> None:
    from pipelines.config import load_config

    path = tmp_path / "build.yaml"
    path.write_text("output: out\ninput: {files: [a]}\n")
    for override, shown in {
        "input.sample_fraction=0": "sample_fraction",
        "input.sample_fraction=1.5": "sample_fraction",
        "input.limit_documents=0": "limit_documents",
        "input.max_chars=0": "max_chars",
        "input.limit_bytes=0": "limit_bytes",
    }.items():
        with pytest.raises(ConfigError, match=shown):
            load_config(path, [override])
    with pytest.raises(ConfigError, match="at least min_chars, 10"):
        load_config(path, ["input.min_chars=10", "input.max_chars=9"])


# --- sides


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    counts = count_pretokens([b"some words"], special_tokens=["<|endoftext|>"])
    train_from_counts(counts, 260, ["<|endoftext|>"]).tokenizer().save(directory)
    return directory


def sides(config: BuildConfig, tokenizer: Path) -> dict[str, set[bytes]]:
    """The texts in the files of each split."""
    fingerprint = BPETokenizer.load(tokenizer).model.fingerprint
    job = encode_job(config, tokenizer, fingerprint)
    source = config.input[0]
    plan = plan_tasks(list_files(source), [source])
    for task in plan.tasks:
        write_task(job, TaskWork.of_plan(plan, task))
    decode = BPETokenizer.load(tokenizer).decode_bytes
    return {
        split: {
            decode(row["input_ids"][:-1])
            for path in Path(job.tokens.url).glob(f"{split}-*.parquet")
            for row in pq.read_table(path).to_pylist()
        }
        for split in ("train", "validation")
    }


@pytest.mark.slow
def test_a_document_never_changes_sides(tmp_path: Path, tokenizer: Path) -> None:
    texts = [b"some text, number %d" % i for i in range(400)]
    more = [b"added " + text for text in texts[:100]]
    halves = {"z.txt": texts[150:], "a.txt": texts[:150]}
    layouts: dict[str, dict[str, Any]] = {
        "one file": {"a.txt": texts},
        "renamed and cut otherwise": halves,
        "in another order, with more": {
            "m.txt": more,
            **{f"n{i}": [t] for i, t in enumerate(texts)},
        },
    }
    found = []
    for name, files in layouts.items():
        directory = tmp_path / name
        write_corpus(directory / "data", files)
        config = config_for(
            directory,
            input={"sample_fraction": 0.5, "range_bytes": 700 if name == "one file" else 5000},
            encode={"validation_fraction": 0.3},
        )
        found.append(sides(config, tokenizer))
    directory = tmp_path / "json lines"
    directory.mkdir()
    (directory / "data").mkdir()
    (directory / "data" / "a").write_bytes(encoded("jsonl", [[t.decode() for t in texts]])[0])
    config = config_for(
        directory,
        input={"sample_fraction": 0.5, "format": "jsonl"},
        encode={"validation_fraction": 0.3},
    )
    found.append(sides(config, tokenizer))
    for split in ("train", "validation"):
        first, *others = ({text for text in one[split] if text in set(texts)} for one in found)
        assert len(first) > 20
        assert all(other == first for other in others)
