"""Every form of input gives the same documents: the same texts, ids, pieces and totals."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import random
import resource
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from build_support import input_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import times

from pipelines.batches import DocumentBatch, Reject
from pipelines.errors import InputError
from pipelines.readers import InvalidDocumentError, ReadOptions, json_lines, read_range
from pipelines.readers.streams import open_handle
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range

Record = dict[str, Any]

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forms")


def make_file(folder: Path, stored: bytes, compression: str | None = None) -> InputFile:
    return input_file(folder / "file", stored, compression)


@dataclass
class Found:
    """What was read of a file, all ranges together."""

    rows: list[tuple[int, bytes, str | None, int]] = field(default_factory=list)
    hashes: list[tuple[int, int]] = field(default_factory=list)
    empty: int = 0
    rejects: list[Reject] = field(default_factory=list)
    bytes: int = 0

    @property
    def texts(self) -> list[bytes]:
        """The documents, their pieces put together."""
        texts: list[bytes] = []
        for part, text, _, _ in self.rows:
            if part == 0:
                texts.append(b"")
            texts[-1] += text
        return texts

    @property
    def pieces(self) -> list[tuple[int, bytes]]:
        return [(part, text) for part, text, _, _ in self.rows]

    @property
    def ids(self) -> list[str | None]:
        return [record_id for part, _, record_id, _ in self.rows if part == 0]

    @property
    def places(self) -> list[int]:
        return [place for part, _, _, place in self.rows if part == 0]

    @property
    def reasons(self) -> list[tuple[int, str]]:
        return [(reject.offset, reject.reason) for reject in self.rejects]

    def add(self, batch: DocumentBatch) -> None:
        self.empty += batch.empty
        self.rejects += batch.rejects
        self.bytes += batch.framing_bytes + int(batch.num_bytes.sum())
        self.bytes += sum(reject.length for reject in batch.rejects)
        assert (batch.ids is None) or len(batch.ids) == len(batch)
        for i in range(len(batch)):
            record_id = None if batch.ids is None else batch.ids[i].as_py()
            place = int(batch.offsets[i])
            self.rows.append((batch.part, batch.document(i), record_id, place))
            self.hashes.append(tuple(batch.hashes[i].tolist()))


def read(file: InputFile, options: ReadOptions, cuts: Sequence[int] = ()) -> Found:
    """Read all ranges of a file that is cut at these places."""
    bounds = [0, *sorted(cut for cut in set(cuts) if 0 < cut < file.size), file.size]
    found = Found()
    for start, end in itertools.pairwise(bounds):
        for batch in read_range(file, Range(file=0, start=start, end=end), options):
            found.add(batch)
    return found


def jsonl(records: Sequence[Record], *, ascii_only: bool = False) -> bytes:
    return b"".join(
        json.dumps(record, ensure_ascii=ascii_only).encode() + b"\n" for record in records
    )


def parquet(records: Sequence[Record], *, row_group_size: int = 1000, **kwargs: Any) -> bytes:
    sink = pa.BufferOutputStream()
    table = records if isinstance(records, pa.Table) else pa.Table.from_pylist(list(records))
    pq.write_table(table, sink, row_group_size=row_group_size, **kwargs)
    return sink.getvalue().to_pybytes()


def arrow_file(table: pa.Table, *, rows: int = 1000, stream: bool = False, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue().to_pybytes()


def lines_of(*lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines)


# --- the same documents


WORDS = [
    "lorem",
    "Ipsum",
    "dölör",
    "中文字",
    "😀",
    "don't",
    "12,5",
    "\n",
    "\t",
    '\\ "',
    "\r\n",
    "\x00\x7f",
]


def many_documents(count: int) -> list[str]:
    generator = random.Random(5)
    lengths = [generator.choice([0, 1, 3, 9, 20]) for _ in range(count)]
    texts = [" ".join(generator.choices(WORDS, k=length)) for length in lengths]
    texts[count // 2] = " ".join(generator.choices(WORDS, k=2000))
    texts[count // 3] = "word by word " * 30_000
    return texts


def column_types(texts: list[str]) -> dict[str, pa.Array[Any]]:
    return {
        "string": pa.array(texts),
        "large_string": pa.array(texts, pa.large_string()),
        "string_view": pa.array(texts, pa.string_view()),
        "binary": pa.array([text.encode() for text in texts]),
        "large_binary": pa.array([text.encode() for text in texts], pa.large_binary()),
        "dictionary": pa.array(texts).dictionary_encode(),
    }


@pytest.mark.slow
def test_the_same_ten_thousand_documents_are_the_same_rows_in_every_form(folder: Path) -> None:
    documents = many_documents(10_000)
    separator = b"<|endoftext|>"
    records = [
        {"n": i, "doc": {"url": "u", "text": text}, "id": i - 7} for i, text in enumerate(documents)
    ]
    limits = {"piece_bytes": 1 << 17, "read_bytes": 1 << 20, "special_tokens": (b"by word",)}
    expected = None
    text_options = ReadOptions(separator=separator, **limits)
    record_options: dict[str, Any] = {
        "text_fields": (("doc", "text"),), "id_field": ("id",), **limits
    }  # fmt: skip
    plain = separator.join(text.encode() for text in documents) + separator
    lines = jsonl(records)
    table = pa.Table.from_pylist(records)
    cases: list[tuple[str, bytes, str | None, ReadOptions]] = [
        ("text", plain, None, text_options),
        ("jsonl", lines, None, ReadOptions(format="jsonl", **record_options)),
        ("jsonl, escaped", jsonl(records, ascii_only=True), None,
         ReadOptions(format="jsonl", **record_options)),
        ("arrow", arrow_file(table), None, ReadOptions(format="arrow", **record_options)),
        ("arrow, zstd", arrow_file(table, compression="zstd"), None,
         ReadOptions(format="arrow", **record_options)),
        ("arrow stream", arrow_file(table, stream=True), None,
         ReadOptions(format="arrow", **record_options)),
    ]  # fmt: skip
    for compression, compress in COMPRESS.items():
        cases.append((f"text.{compression}", compress(plain), compression, text_options))
        options = ReadOptions(format="jsonl", **record_options)
        cases.append((f"jsonl.{compression}", compress(lines), compression, options))
    for compression in ("none", "snappy", "gzip", "zstd", "brotli", "lz4"):
        stored = parquet(table, compression=compression, data_page_size=1 << 16)
        options = ReadOptions(format="parquet", **record_options)
        cases.append((f"parquet, {compression}", stored, None, options))
    for name, column in column_types(documents).items():
        flat = pa.table({"text": column, "id": pa.array(range(-7, len(documents) - 7), pa.int16())})
        options = ReadOptions(format="parquet", id_field=("id",), **limits)
        cases.append((f"parquet of {name}", parquet(flat), None, options))
        options = ReadOptions(format="arrow", id_field=("id",), **limits)
        cases.append((f"arrow of {name}", arrow_file(flat), None, options))
    for name, stored, compression, options in cases:
        file = make_file(folder, stored, compression)
        cuts = [] if compression else range(200_000, len(stored), 200_000)
        found = read(file, options, cuts)
        rows = (found.pieces, found.hashes, found.empty, found.rejects)
        expected = expected or rows
        assert rows == expected, name
        if options.format != "text":
            kept = [i for i, text in enumerate(documents) if text]
            assert found.ids == [str(i - 7) for i in kept], name
        if options.format in ("parquet", "arrow"):
            assert found.places == kept, name
        elif options.format == "jsonl":
            assert all(stored[place] == ord("{") for place in found.places if not compression)
        if options.format in ("text", "jsonl") and name != "jsonl, escaped":
            assert found.bytes == len(plain if options.format == "text" else lines), name
    assert expected is not None
    assert max(part for part, _ in expected[0]) == 2


# --- JSON lines


TEXTS = st.text(st.sampled_from(["a", "é", "中", "😀", "\n", "\r", "\0", '"', "\\", "\u2028", " "]))
# Lines that are no record with a text, or an odd one.
ODD_LINES = [
    b"",
    b" \t",
    b"\r",
    b"{}",
    b"null",
    b"[]",
    b"3",
    b'{"text": null}',
    b'{"text": 3}',
    b'{"text": {"text": "x"}}',
    b'{"text": "x"} y',
    b'{"text": "x"}{"text": "y"}',
    b'{"text": "x"},{"text": "y"}',
    b'{"text": "x"',
    b'{"text": "tab\there"}',
    b'{"text": "nul\x00here"}',
    b'\x00{"text": "x"}',
    b'{"text": "x"}\x00',
    b'{"text": "\\ud800"}',
    b'{"text": "a\\udc80b", "id": "\\udc80"}',
    b'{"text": "\\ud83d\\ude00"}',
    b'{"text": "raw \xff", "id": "\xff"}',
    b'{"text": "raw \xff and \\udcff"}',
    b'{"text": "x", "other": "\xff"}',
    b'{"text": "first", "text": "last"}',
    b'{"text": "x", "o": 1, "o": 2}',
    b'{"text": "x", "n": 1e999}',
    b'{"text": "x", "n": NaN, "id": 12345678901234567890123}',
    b'{"text": "x", "id": -0}',
    b'{"text": "x", "id": 1.0}',
    b'{"text": "x", "id": true}',
    b'{"text": "x", "id": null}',
    b'{"text": "x", "id": "seven"}',
    b'{"te\\u0078t": "x"}',
    b'\xef\xbb\xbf{"text": "x"}',
    b' {"text": "x"}\t\r',
    b'{"text": "x", "a": ' + b"[" * 400 + b"]" * 400 + b"}",
    b"}{",
    b'{"text": "x"}}',
    b'{{"text": "x"}',
]  # fmt: skip
LINES = st.one_of(
    st.sampled_from(ODD_LINES),
    st.builds(
        lambda text, number, ascii_only: json.dumps(
            {"n": 1.5, "text": text, "id": number, "m": {"text": [text]}}, ensure_ascii=ascii_only
        ).encode(),
        TEXTS,
        st.integers(-(10**20), 10**20),
        st.booleans(),
    ),
)


def line_means(line: bytes) -> tuple[bytes | None, str | None, str | None]:
    """Text, id and reason of a line by Python's json alone; all None for a blank one."""
    line = line.strip(b" \t\r")
    if not line:
        return None, None, None
    try:
        record = json.loads(line.decode("utf-8", "surrogateescape"))
    except ValueError:
        return None, None, "malformed_json"
    if not isinstance(record, dict):
        return None, None, "malformed_json"
    record_id = record.get("id")
    if isinstance(record_id, bool | float | dict | list):
        return None, None, "wrong_field_type"
    shown = None
    if record_id is not None:
        shown = encoded(str(record_id), line).decode("utf-8", "replace")
    if "text" not in record:
        return None, shown, "missing_field"
    if record["text"] is None:
        return None, shown, "null_field"
    if not isinstance(record["text"], str):
        return None, shown, "wrong_field_type"
    text = encoded(record["text"], line)
    try:
        text.decode()
    except UnicodeDecodeError:
        return text, shown, "invalid_utf8"
    return text, shown, None


def encoded(value: str, line: bytes) -> bytes:
    """Escaped surrogates as three bytes each; what is not UTF-8 in the line as it is there."""
    is_raw = b"\xff" in line
    return b"".join(
        character.encode("utf-8", "surrogateescape" if is_raw else "surrogatepass")
        for character in value
    )


@settings(max_examples=times(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(LINES, max_size=12),
    ends=st.booleans(),
    cuts=st.lists(st.integers(1, 400), max_size=6),
    read_bytes=st.integers(1, 300),
    piece_bytes=st.sampled_from([3, 1000]),
)
def test_json_lines_mean_what_each_means_alone_however_the_file_is_cut(
    folder: Path,
    lines: list[bytes],
    ends: bool,
    cuts: list[int],
    read_bytes: int,
    piece_bytes: int,
) -> None:
    data = lines_of(*lines) if ends else b"\n".join(lines)
    options = ReadOptions(
        format="jsonl", id_field=("id",), read_bytes=read_bytes, piece_bytes=piece_bytes
    )
    found = read(make_file(folder, data), options, cuts)
    texts, ids, places, reasons, empty, place = [], [], [], [], 0, 0
    for line in lines:
        of_line = line.removeprefix(b"\xef\xbb\xbf") if place == 0 else line
        begin = place + len(line) - len(of_line)
        text, record_id, reason = line_means(of_line)
        if reason is not None:
            reasons.append((begin, reason, record_id))
        elif text:
            texts.append(text)
            ids.append(record_id)
            places.append(begin)
        else:
            empty += text is not None
        place += len(line) + 1
    assert (found.texts, found.ids, found.places) == (texts, ids, places)
    assert sorted((r.offset, r.reason, r.id) for r in found.rejects) == reasons
    assert found.empty == empty
    assert found.bytes == len(data)


@settings(max_examples=times(1.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(LINES, max_size=12),
    compression=st.sampled_from([None, *COMPRESS]),
    members=st.integers(1, 4),
    cuts=st.lists(st.integers(1, 400), max_size=6),
    read_bytes=st.integers(1, 300),
    max_document_bytes=st.sampled_from([10, 20, 1000]),
)
def test_json_lines_of_any_length_are_the_same_cut_or_compressed(
    folder: Path,
    lines: list[bytes],
    compression: str | None,
    members: int,
    cuts: list[int],
    read_bytes: int,
    max_document_bytes: int,
) -> None:
    data = lines_of(*lines)
    options = ReadOptions(format="jsonl", max_document_bytes=max_document_bytes)
    whole = read(make_file(folder, data), options)
    other = replace(options, read_bytes=read_bytes)
    if compression is None:
        found = read(make_file(folder, data), other, cuts)
    else:
        step = len(data) // members + 1
        parts = [data[start : start + step] for start in range(0, step * members, step)]
        stored = b"".join(COMPRESS[compression](part) for part in parts)
        found = read(make_file(folder, stored, compression), other)
    found.rejects.sort(key=lambda reject: reject.offset)
    whole.rejects.sort(key=lambda reject: reject.offset)
    assert found == whole
    assert found.bytes == len(data)


def test_the_first_and_the_last_of_many_bad_lines_are_found(folder: Path) -> None:
    good = json.dumps({"text": "good"}).encode()
    lines = [good] * 10_000
    for i in (0, 5, 5000, 9999):
        lines[i] = b'{"text": "bad'
    found = read(make_file(folder, lines_of(*lines)), ReadOptions(format="jsonl"))
    assert found.texts == [b"good"] * 9996
    offsets = [offset for offset, _ in found.reasons]
    assert offsets == [sum(len(line) + 1 for line in lines[:i]) for i in (0, 5, 5000, 9999)]
    first = found.rejects[0]
    assert (first.reason, first.length, first.first_bytes) == ("malformed_json", 13, lines[0])
    assert first.message == "not JSON: Unterminated string starting at byte 9 of the line"


@pytest.mark.parametrize(
    ("line", "reason", "message"),
    [
        (b"[1]", "malformed_json", "expected an object, found an array"),
        (b'{"a": {"b": {}}}', "missing_field", "the field a.b.c is missing"),
        (b'{"a": {}}', "missing_field", "the field a.b is missing"),
        (b'{"a": null}', "null_field", "the field a is null"),
        (b'{"a": {"b": {"c": null}}}', "null_field", "the field a.b.c is null"),
        (b'{"a": "x"}', "wrong_field_type", "the field a: expected an object, found text"),
        (b'{"a": {"b": {"c": 1}}}', "wrong_field_type",
         "the field a.b.c: expected text, found a number"),
        (b'{"a": {"b": {"c": [1]}}}', "wrong_field_type",
         "the field a.b.c: expected text, found an array"),
        (b'{"a": {"b": {"c": true}}}', "wrong_field_type",
         "the field a.b.c: expected text, found a truth value"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_line_is_told(
    folder: Path, line: bytes, reason: str, message: str
) -> None:
    good = b'{"a": {"b": {"c": "good"}}}'
    options = ReadOptions(format="jsonl", text_fields=(("a", "b", "c"),))
    found = read(make_file(folder, lines_of(good, line, good)), options)
    assert found.texts == [b"good"] * 2
    assert [(r.reason, r.message, r.first_bytes) for r in found.rejects] == [
        (reason, message, line)
    ]


PYTHON_REFUSES = [
    b'{"text": "x", "a": Inf}',
    b'{"text": "x", "a": [-Inf]}',
    b'{"text": "x", "a": -NaN}',
    b'{"text": "x", "a": ' + b"[" * 3000 + b"]" * 3000 + b"}",
]


@pytest.mark.parametrize("line", [*ODD_LINES, *PYTHON_REFUSES])
def test_a_line_means_the_same_alone_and_among_few_or_many_others(
    folder: Path, line: bytes
) -> None:
    options = ReadOptions(format="jsonl", id_field=("id",))
    first, bad = b'{"text": "first"}\n', b'\n{"text": 5}\n'
    alone = read(make_file(folder, first + line), options)
    assert line not in PYTHON_REFUSES or alone.texts[1:] == [b"x"]
    for others in (1, 1000):
        lines = first + line + bad + b'{"text": "other", "id": 1}\n' * others
        found = read(make_file(folder, lines), options)
        assert found.texts == [*alone.texts, *[b"other"] * others]
        assert found.ids == [*alone.ids, *["1"] * others]
        assert found.rejects[:-1] == alone.rejects
        assert found.reasons[-1] == (len(first + line) + 1, "wrong_field_type")


AWKWARD = {
    "ids above 2^63": lambda i: b'{"id": %d, "text": "a"}' % (2**63 + i),
    "ids of two types": lambda i: b'{"text": "a", "id": %s}' % (b"null" if i % 2 else b'"\\n"'),
    "escaped keys": lambda i: rb'{"\u0069d": %d, "te\u0078t": "\u00e9\ud83d\ude00"}' % i,
    "numbers of Python": lambda i: b'{"text": "a", "n": NaN, "m": 1e999, "i": %d}' % i,
    "deep nesting": lambda i: b'{"text": "a", "n": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    "blanks": lambda i: b' \t{\t"text" : "a"\r}\r',
}


@pytest.mark.parametrize("line", AWKWARD.values(), ids=AWKWARD)
def test_awkward_lines_are_read_without_python(
    folder: Path, line: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "_parse", None)
    lines = [line(i) for i in range(1000)]
    options = ReadOptions(format="jsonl", id_field=("id",))
    found = read(make_file(folder, lines_of(*lines)), options)
    assert len(found.texts) == len(lines)


def test_fields_and_ids_are_right_where_python_reads_some_lines(folder: Path) -> None:
    lines = []
    expected = []
    for i in range(500):
        record = {"a": f"{i}\n" * (i % 4), "b": "é" * (i % 3), "n": i if i % 5 else str(i)}
        line = json.dumps(record, ensure_ascii=i % 2 == 0).encode()
        if i % 7 == 0:  # Python's
            line = line[:-1] + b', "b": "last"}'
            record["b"] = "last"
        if i % 11 == 0:
            line = line[:-1] + b"]"
        else:
            expected.append((f"{record['a']}::{record['b']}::{record['a']}", str(record["n"])))
        lines.append(line)
    options = ReadOptions(
        format="jsonl", text_fields=(("a",), ("b",), ("a",)), join=b"::", id_field=("n",)
    )
    found = read(make_file(folder, lines_of(*lines)), options)
    assert list(zip([text.decode() for text in found.texts], found.ids, strict=True)) == expected
    assert len(found.rejects) == 46
    assert found.bytes == len(lines_of(*lines))


def test_blanks_around_every_line_cost_little(folder: Path) -> None:
    options = ReadOptions(format="jsonl")
    seconds = []
    for line in (b'{"text": "a"}', b'{"text": "a"} ', b' \t{"text": "a"}\r'):
        file = make_file(folder, lines_of(*[line] * 100_000))
        runs = []
        for _ in range(3):
            begin = time.process_time()
            batches = list(read_range(file, Range(file=0, start=0, end=file.size), options))
            runs.append(time.process_time() - begin)
        assert sum(len(batch.starts) for batch in batches) == 100_000
        seconds.append(min(runs))
    assert max(seconds) < 3 * seconds[0]


@pytest.mark.parametrize("blanks", [b" " * 7, b"\t" * 8, b" \r" * 5000])
def test_any_number_of_blanks_around_a_line_is_no_part_of_it(folder: Path, blanks: bytes) -> None:
    lines = [blanks + b'{"text": "a"}' + blanks, blanks, b'{"text": "b"}' + blanks, blanks + b"x"]
    found = read(make_file(folder, lines_of(*lines)), ReadOptions(format="jsonl"))
    assert found.texts == [b"a", b"b"]
    assert [(r.reason, r.first_bytes, r.length) for r in found.rejects] == [
        ("malformed_json", b"x", 1)
    ]


def test_deep_nesting_hurts_nobody(folder: Path) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        deep = opening * 200_000 + b"1" + closing * 200_000
        line = b'{"text": "x", "a": ' + deep + b"}"
        # The second has a key twice, so Python looks at it.
        lines = lines_of(line, line[:-1] + b', "text": "y"}', b'{"text": "z"}')
        found = read(make_file(folder, lines), ReadOptions(format="jsonl"))
        assert found.texts == [b"x", b"z"]
        assert found.reasons == [(len(line) + 1, "malformed_json")]


def test_a_line_above_the_limit_is_rejected_without_being_held(folder: Path) -> None:
    long = b'{"text": "' + b"word " * 100_000 + b'"}'
    lines = [b'{"text": "a"}', long, b'{"text": "b"}', long]
    data = b"\n".join(lines)
    options = ReadOptions(format="jsonl", max_document_bytes=5000, read_bytes=1000)
    for cuts in ([], [10, 3000, 200_000, 600_000]):
        found = read(make_file(folder, data), options, cuts)
        assert found.texts == [b"a", b"b"]
        assert [(r.reason, r.length, r.first_bytes) for r in found.rejects] == [
            ("too_long", len(long), long[:64])
        ] * 2
        assert found.bytes == len(data)


def test_lines_of_ten_megabytes_are_cut_into_the_pieces_of_a_text_file(folder: Path) -> None:
    text = "some words, then others. " * 420_000
    options = ReadOptions(format="jsonl")
    found = read(make_file(folder, jsonl([{"text": text}, {"text": "b"}])), options, [4_000_000])
    plain = read(make_file(folder, text.encode() + b"|b"), ReadOptions(separator=b"|"))
    assert found.pieces == plain.pieces
    assert found.hashes == plain.hashes
    assert len(found.pieces) > 3


@pytest.mark.parametrize("policy", ["reject", "replace", "error"])
@pytest.mark.parametrize("piece_bytes", [4, 1000])
def test_the_policy_on_invalid_utf8_holds_for_every_form(
    folder: Path, policy: Any, piece_bytes: int
) -> None:
    bad = b"some \xff\xfe words"
    table = pa.table({"text": pa.array([b"good", bad, b"good"])})
    lines = lines_of(b'{"text": "good"}', b'{"text": "' + bad + b'"}', b'{"text": "good"}')
    options = {"invalid_utf8": policy, "piece_bytes": piece_bytes}
    stored = {
        "text": (b"good|" + bad + b"|good", "byte 10"),
        "jsonl": (lines, "line at byte 17"),
        "parquet": (parquet(table), "row 1"),
        "arrow": (arrow_file(table), "row 1"),
    }
    for form, (data, place) in stored.items():
        separator = b"|" if form == "text" else None
        form_options = ReadOptions(format=form, separator=separator, **options)  # type: ignore[arg-type]
        if policy == "error":
            with pytest.raises(InvalidDocumentError, match=f"byte 5 of the doc(.|\n)*{place}"):
                read(make_file(folder, data), form_options)
            continue
        found = read(make_file(folder, data), form_options)
        if policy == "replace":
            assert found.texts == [b"good", "some \ufffd\ufffd words".encode(), b"good"]
            assert not found.rejects
        else:
            assert found.texts == [b"good", b"good"]
            (reject,) = found.rejects
            assert (reject.reason, reject.length, reject.first_bytes) == (
                "invalid_utf8", len(bad), bad
            )  # fmt: skip


def test_fields_are_joined_in_every_form(folder: Path) -> None:
    records = [
        {"a": "x", "b": "é", "i": "1"},
        {"a": "", "b": "", "i": "2"},
        {"a": None, "b": "y", "i": "3"},
        {"a": "z", "b": None, "i": "4"},
        {"a": "z" * 50, "b": "w " * 50, "i": None},
    ]
    table = pa.Table.from_pylist(records)
    for form, data in (
        ("jsonl", jsonl(records)),
        ("parquet", parquet(table)),
        ("arrow", arrow_file(table)),
    ):
        options = ReadOptions(
            format=form,  # type: ignore[arg-type]
            text_fields=(("a",), ("b",)),
            join=b" | ",
            id_field=("i",),
            piece_bytes=60,
        )
        found = read(make_file(folder, data), options)
        assert found.texts == ["x | é".encode(), b" | ", b"z" * 50 + b" | " + b"w " * 50], form
        assert found.ids == ["1", "2", None]
        assert [(r.reason, r.message, r.id) for r in found.rejects] == [
            ("null_field", "the field a is null", "3"),
            ("null_field", "the field b is null", "4"),
        ]


# --- columns


@settings(max_examples=times(1.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.one_of(st.none(), TEXTS), max_size=40),
    rows=st.integers(1, 12),
    cuts=st.lists(st.integers(1, 3000), max_size=8),
    piece_bytes=st.sampled_from([3, 1000]),
    column_type=st.sampled_from(
        [pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
         pa.dictionary(pa.int8(), pa.string())]
    ),
)  # fmt: skip
def test_rows_are_read_once_however_the_file_is_cut(
    folder: Path,
    texts: list[str | None],
    rows: int,
    cuts: list[int],
    piece_bytes: int,
    column_type: pa.DataType,
) -> None:
    column = pa.array(texts, pa.string()).cast(column_type)
    numbers = pa.array(range(len(texts)), pa.uint8())
    # The writer cannot cut views into row groups.
    is_view = pa.types.is_string_view(column_type)
    record = pa.StructArray.from_arrays([numbers, column], ["n", "text"])
    table = pa.table({"before": numbers, "record": record})
    expected = [(i, text.encode()) for i, text in enumerate(texts) if text]
    for form, data in (
        ("parquet", parquet(table, row_group_size=1000 if is_view else rows)),
        ("arrow", arrow_file(table, rows=rows)),
        ("arrow", arrow_file(table, rows=rows, stream=True)),
    ):
        options = ReadOptions(
            format=form,  # type: ignore[arg-type]
            text_fields=(("record", "text"),),
            id_field=("before",),
            piece_bytes=piece_bytes,
        )
        found = read(make_file(folder, data), options, cuts)
        assert list(zip(found.places, found.texts, strict=True)) == expected
        assert found.ids == [str(i) for i, _ in expected]
        assert found.reasons == [(i, "null_field") for i, text in enumerate(texts) if text is None]
        assert found.empty == texts.count("")
        assert found.bytes == sum(len(text) for _, text in expected)


def test_a_struct_that_is_null_has_null_fields(folder: Path) -> None:
    records = [{"doc": {"text": "a"}}, {"doc": None}, {"doc": {"text": None}}]
    table = pa.Table.from_pylist(records)
    for form, data in (
        ("jsonl", jsonl(records)),
        ("parquet", parquet(table)),
        ("arrow", arrow_file(table)),
    ):
        options = ReadOptions(format=form, text_fields=(("doc", "text"),))  # type: ignore[arg-type]
        found = read(make_file(folder, data), options)
        assert found.texts == [b"a"]
        assert [reject.reason for reject in found.rejects] == ["null_field"] * 2


def test_a_column_with_a_dot_in_its_name_is_no_path(folder: Path) -> None:
    table = pa.table({"a.b": ["dotted"], "a": [{"b": "nested"}]})
    for form, data in (("parquet", parquet(table)), ("arrow", arrow_file(table))):
        for path, text in ((("a.b",), b"dotted"), (("a", "b"), b"nested")):
            options = ReadOptions(format=form, text_fields=(path,))  # type: ignore[arg-type]
            assert read(make_file(folder, data), options).texts == [text]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"text_fields": (("body",),)}, ["column body", "text_field", "the columns n, text, doc"]),
        ({"text_fields": (("doc", "x"),)}, ["column doc.x", "the columns t"]),
        ({"text_fields": (("n", "x"),)}, ["column n.x", "int64, which has no field 'x'"]),
        ({"text_fields": (("n",),)}, ["column n", "int64", "string or binary"]),
        ({"text_fields": (("doc",),)}, ["column doc", "struct<t: string>"]),
        ({"id_field": ("doc",)}, ["column doc", "id_field", "text or integers"]),
        ({"id_field": ("key",)}, ["column key", "id_field", "the columns"]),
    ],
)
def test_a_column_that_is_missing_or_of_another_type_is_named_with_the_file(
    folder: Path, form: Any, options: dict[str, Any], shown: list[str]
) -> None:
    table = pa.table({"n": [1], "text": ["a"], "doc": [{"t": "a"}]})
    data = parquet(table) if form == "parquet" else arrow_file(table)
    file = make_file(folder, data)
    with pytest.raises(InputError) as caught:
        read(file, ReadOptions(format=form, **options))
    for text in [*shown, file.url]:
        assert text in str(caught.value)


def test_a_column_that_is_there_twice_is_refused(folder: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    for form, data in (("parquet", parquet(table)), ("arrow", arrow_file(table))):
        with pytest.raises(InputError, match="2 columns named 'text'"):
            read(make_file(folder, data), ReadOptions(format=form))  # type: ignore[arg-type]


def test_extension_types_are_read_as_what_is_stored(folder: Path) -> None:
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}']))
    unknown = pa.field("text", pa.string(), metadata={"ARROW:extension:name": "not.known"})
    for table in (
        pa.table({"text": column}),
        pa.table([pa.array(['{"a": 1}'])], schema=pa.schema([unknown])),
    ):
        for form, data in (("parquet", parquet(table)), ("arrow", arrow_file(table))):
            found = read(make_file(folder, data), ReadOptions(format=form))  # type: ignore[arg-type]
            assert found.texts == [b'{"a": 1}']


@pytest.mark.slow
def test_columns_that_are_not_asked_for_are_not_read(folder: Path) -> None:
    noise = random.Random(1).randbytes(2_000_000)
    table = pa.table({"noise": [noise] * 3, "text": ["a", "b", "c"], "more": [noise] * 3})
    for form, data in (
        ("parquet", parquet(table, use_dictionary=False)),
        ("arrow", arrow_file(table)),
    ):
        damaged = bytearray(data)
        place = data.find(noise) + 1000
        damaged[place : place + 1_000_000] = bytes(1_000_000)
        found = read(make_file(folder, bytes(damaged)), ReadOptions(format=form))  # type: ignore[arg-type]
        assert found.texts == [b"a", b"b", b"c"]


@pytest.mark.slow
def test_a_long_value_that_many_rows_share_is_not_held_for_all_of_them(folder: Path) -> None:
    """A dictionary of one megabyte for 20,000 rows would be 20 GB in memory."""
    values = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(20_000, np.int32)), pa.array(["some words " * 90_000])
    )
    plain = pa.table({"text": values}).cast(pa.schema([("text", values.type)]))
    for form, data in (("parquet", parquet(plain, row_group_size=20_000, store_schema=False)),
                       ("parquet", parquet(plain, row_group_size=20_000)),
                       ("arrow", arrow_file(plain, rows=20_000))):  # fmt: skip
        assert len(data) < 2_000_000
        file = make_file(folder, data)
        pa.default_memory_pool().release_unused()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        options = ReadOptions(format=form, max_expansion=1_000_000)  # type: ignore[arg-type]
        batches = read_range(file, Range(file=0, start=0, end=file.size), options)
        for batch in itertools.islice(batches, 100):
            assert batch.data.nbytes < 4 << 20
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 300 << 10  # in KiB


# --- damage


def small_files() -> dict[str, tuple[Any, bytes]]:
    texts = [f"text number {i} " * (i % 5) for i in range(60)]
    table = pa.table({"id": pa.array(range(60)), "text": pa.array(texts)})
    encoded_table = pa.table({"id": table["id"], "text": table["text"].dictionary_encode()})
    return {
        "jsonl": ("jsonl", jsonl(table.to_pylist())),
        "parquet": ("parquet", parquet(table, row_group_size=20, use_dictionary=False)),
        "parquet dictionary": ("parquet", parquet(table, compression="none")),
        "arrow": ("arrow", arrow_file(table, rows=20)),
        "arrow lz4": ("arrow", arrow_file(table, rows=20, compression="lz4")),
        "arrow dictionary": ("arrow", arrow_file(encoded_table, rows=60)),
        "arrow views": (
            "arrow",
            arrow_file(table.set_column(1, "text", table["text"].cast(pa.string_view()))),
        ),
        "arrow stream": ("arrow", arrow_file(table, rows=20, stream=True)),
    }


@pytest.mark.parametrize("name", small_files())
def test_a_file_that_is_cut_short_is_an_error_that_names_it(folder: Path, name: str) -> None:
    form, data = small_files()[name]
    if form == "jsonl":
        return  # the last line is then no JSON: a reject
    for size in range(1, len(data), max(1, len(data) // 150)):
        file = make_file(folder, data[:size])
        with pytest.raises(InputError) as caught:
            read(file, ReadOptions(format=form), [size // 3])
        assert file.url in str(caught.value)
    file = make_file(folder, data + b"garbage")
    with pytest.raises(InputError):
        read(file, ReadOptions(format=form))


@pytest.mark.slow
@pytest.mark.parametrize("name", small_files())
def test_damaged_bytes_give_documents_rejects_or_an_error_that_names_the_file(
    folder: Path, name: str
) -> None:
    form, data = small_files()[name]
    generator = random.Random(8)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(generator.choice([1, 1, 3, 10])):
            damaged[generator.randrange(len(data))] = generator.randrange(256)
        file = make_file(folder, bytes(damaged))
        try:
            found = read(file, ReadOptions(format=form, id_field=("id",)), [len(data) // 2])
        except InputError as error:
            assert file.url in str(error)
        else:
            assert all(text.decode() for text in found.texts)


def test_other_files_are_refused_in_words(folder: Path) -> None:
    for data in (b"", b"plain text", b"PAR1", b"ARROW1", b"FEA1....FEA1", bytes(100)):
        for form in ("parquet", "arrow"):
            file = make_file(folder, data or b"\n")
            with pytest.raises(InputError, match=r"input\.format"):
                read(file, ReadOptions(format=form))  # type: ignore[arg-type]


def test_arrow_values_are_checked_before_their_offsets_are_used(folder: Path) -> None:
    offsets = np.array([0, 1 << 20, 3], np.int32)
    wrong = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(offsets.data), pa.py_buffer(b"abc")]
    )
    outside = pa.DictionaryArray.from_arrays(
        pa.array([0, 7], pa.int32()), pa.array(["a"]), safe=False
    )
    for column in (wrong, outside):
        for stream in (False, True):
            data = arrow_file(pa.table({"text": column}), stream=stream)
            with pytest.raises(InputError, match=r"row 0(.|\n)*ArrowInvalid"):
                read(make_file(folder, data), ReadOptions(format="arrow"))


# --- storage


def test_no_more_is_asked_of_memory_than_a_file_has(folder: Path) -> None:
    file = make_file(folder, b"0123456789")
    with open_handle(file, {}) as handle:
        assert handle.read(1 << 60) == b"0123456789"
        assert handle.read(1 << 60) == b""
        handle.seek(4)
        assert handle.read() == b"456789"


def test_files_on_other_storage_are_read_like_local_ones(folder: Path) -> None:
    for name, (form, data) in small_files().items():
        local = make_file(folder, data)
        options = ReadOptions(format=form, id_field=("id",), read_bytes=100)
        cuts = [200, 1000]
        expected = read(local, options, cuts)
        assert expected.texts
        fsspec.filesystem("memory").pipe("/forms/file", data)
        with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
            archive.writestr("file", data)
        for url in ("memory://forms/file", f"zip://file::{folder}/archive.zip"):
            assert read(replace(local, url=url), options, cuts) == expected, (name, url)


@pytest.mark.parametrize("name", small_files())
def test_a_file_of_another_size_than_planned_is_an_error(folder: Path, name: str) -> None:
    form, data = small_files()[name]
    file = replace(make_file(folder, data), size=len(data) - 1)
    with pytest.raises(InputError, match="changed"):
        read(file, ReadOptions(format=form))
