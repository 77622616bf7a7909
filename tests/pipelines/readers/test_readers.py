"""Reading ranges: the documents of a file, each once, however it is cut, read and compressed."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import random
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import fsspec
import pytest
import xxhash
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from profiles import times
from reading_support import (
    BOM,
    SPECIALS,
    cases,
    expected_documents,
    make_file,
    several_cases,
)

from bpe_core import _native, reference
from bpe_core.patterns import resolve_pattern
from pipelines.batches import DocumentBatch, Reject
from pipelines.errors import InputError
from pipelines.readers import (
    InvalidDocumentError,
    LongDocumentError,
    ReadOptions,
    read_range,
    streams,
)
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readers")


@dataclass
class Document:
    """What the batches say about one document, its pieces put together."""

    offset: int
    text: bytes
    source_bytes: int
    hash: int
    pieces: list[bytes] = field(default_factory=list)
    special_at: int | None = None


@dataclass
class Contents:
    documents: list[Document] = field(default_factory=list)
    empty: int = 0
    rejects: list[Reject] = field(default_factory=list)
    bytes: int = 0

    def texts(self) -> list[bytes]:
        return [document.text for document in self.documents]


def collect(batches: Iterator[DocumentBatch]) -> Contents:
    """Put pieces together and check what every batch promises of itself."""
    contents = Contents()
    unfinished = False
    for batch in batches:
        assert batch.source == "web/file"
        contents.empty += batch.empty
        contents.bytes += batch.framing_bytes + int(batch.num_bytes.sum())
        contents.bytes += sum(reject.length for reject in batch.rejects)
        contents.rejects += batch.rejects
        if batch.is_piece:
            assert len(batch) == 1
            assert (batch.part > 0) == unfinished
        else:
            assert (batch.part, batch.last, batch.special_at) == (0, True, None)
            assert not unfinished
        for i in range(len(batch)):
            text = batch.document(i)
            assert text.decode()
            high, low = batch.hashes[i].tolist()
            if batch.part == 0:
                contents.documents.append(
                    Document(int(batch.offsets[i]), b"", 0, high << 64 | low, [], batch.special_at)
                )
            document = contents.documents[-1]
            assert document.offset == batch.offsets[i]
            assert document.hash == high << 64 | low
            assert document.special_at == batch.special_at
            if batch.is_piece:
                assert batch.part == len(document.pieces)
            document.pieces.append(text)
            document.text += text
            document.source_bytes += int(batch.num_bytes[i])
        if batch.is_piece and batch.last:
            assert document.source_bytes == batch.whole_bytes
        unfinished = not batch.last
    assert not unfinished
    return contents


def read(file: InputFile, options: ReadOptions, cuts: Sequence[int] = ()) -> Contents:
    """Read all ranges of a file that is cut at these places, checking whose documents they give."""
    bounds = [0, *sorted(cut for cut in set(cuts) if 0 < cut < file.size), file.size]
    contents = Contents()
    for start, end in itertools.pairwise(bounds):
        part = collect(read_range(file, Range(file=0, start=start, end=end), options))
        if file.compression is None:
            assert all(start <= document.offset < end for document in part.documents)
        contents.documents += part.documents
        contents.empty += part.empty
        contents.bytes += part.bytes
        contents.rejects += part.rejects
    return contents


def expected_pieces(text: bytes, piece_bytes: int) -> list[bytes]:
    specials = _native.SpecialSet(SPECIALS, range(len(SPECIALS)))
    pieces = []
    while len(text) > piece_bytes:
        cut = _native.safe_cut(text, True, piece_bytes, specials)
        if cut is None:
            break
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text]


property_settings = settings(
    max_examples=times(2.5), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@property_settings
@given(
    case=st.one_of(cases, several_cases),
    cuts=st.lists(st.integers(1, 200), max_size=8),
    read_bytes=st.integers(1, 50),
    piece_bytes=st.integers(1, 60),
    strip_bom=st.booleans(),
)
@example(case=(b"\n\n", b"a\n\n\n\n\nb\n"), cuts=[1, 2, 3, 4, 5, 6, 7], read_bytes=1,
         piece_bytes=5, strip_bom=False)  # fmt: skip
@example(case=(b"|", BOM), cuts=[1, 2], read_bytes=1, piece_bytes=5, strip_bom=True)
@example(case=(b"|", BOM + b"|a"), cuts=[1, 2, 3, 4], read_bytes=1, piece_bytes=5, strip_bom=True)
def test_documents_do_not_depend_on_ranges_or_reads(
    folder: Path,
    case: tuple[bytes | tuple[bytes, ...], bytes],
    cuts: list[int],
    read_bytes: int,
    piece_bytes: int,
    strip_bom: bool,
) -> None:
    separator, data = case
    options = ReadOptions(
        separator=separator,
        strip_bom=strip_bom,
        special_tokens=SPECIALS,
        read_bytes=read_bytes,
        piece_bytes=piece_bytes,
    )
    found = read(make_file(folder, data), options, cuts)
    expected = expected_documents(data, separator, strip_bom)
    valid = [(offset, text) for offset, text in expected if text and is_utf8(text)]
    invalid = [(offset, text) for offset, text in expected if not is_utf8(text)]
    assert [(document.offset, document.text) for document in found.documents] == valid
    assert found.empty == sum(not text for _, text in expected)
    assert found.bytes == len(data)  # of all ranges, documents, rejects and what is between them
    for document in found.documents:
        assert document.source_bytes == len(document.text)
        assert document.hash == xxhash.xxh3_128_intdigest(document.text)
        assert document.pieces == expected_pieces(document.text, piece_bytes)
        if len(document.text) > piece_bytes:
            assert document.special_at == first_special(document.text)
    rejects = [(reject.offset, reject.length, reject.first_bytes) for reject in found.rejects]
    assert rejects == [(offset, len(text), text[:64]) for offset, text in invalid]
    for reject, (_, text) in zip(found.rejects, invalid, strict=True):
        assert reject.reason == "invalid_utf8"
        assert f"at byte {valid_prefix(text)} of" in reject.message


def valid_prefix(text: bytes) -> int:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(text)


def is_utf8(text: bytes) -> bool:
    return valid_prefix(text) == len(text)


def first_special(text: bytes) -> int | None:
    places = [text.find(token) for token in SPECIALS if token in text]
    return min(places, default=None)


@property_settings
@given(
    case=st.one_of(cases, several_cases),
    read_bytes=st.integers(1, 50),
    piece_bytes=st.integers(1, 60),
)
def test_replaced_bytes_are_those_that_python_replaces(
    folder: Path, case: tuple[bytes | tuple[bytes, ...], bytes], read_bytes: int, piece_bytes: int
) -> None:
    separator, data = case
    options = ReadOptions(
        separator=separator,
        invalid_utf8="replace",
        special_tokens=SPECIALS,
        read_bytes=read_bytes,
        piece_bytes=piece_bytes,
    )
    found = read(make_file(folder, data), options, [7, 20])
    texts = [text for text in reference.split_documents(data, separator) if text]
    assert found.texts() == [text.decode("utf-8", "replace").encode() for text in texts]
    assert [document.source_bytes for document in found.documents] == [len(text) for text in texts]
    assert [document.hash for document in found.documents] == [
        xxhash.xxh3_128_intdigest(text) for text in texts
    ]
    assert not found.rejects


@pytest.mark.slow
@property_settings
@given(
    case=st.one_of(cases, several_cases),
    compression=st.sampled_from(list(COMPRESS)),
    members=st.integers(1, 4),
    read_bytes=st.integers(1, 50),
    piece_bytes=st.integers(5, 60),
)
def test_compressed_files_give_the_documents_of_their_text(
    folder: Path,
    case: tuple[bytes | tuple[bytes, ...], bytes],
    compression: str,
    members: int,
    read_bytes: int,
    piece_bytes: int,
) -> None:
    separator, data = case
    options = ReadOptions(
        separator=separator,
        special_tokens=SPECIALS,
        read_bytes=read_bytes,
        piece_bytes=piece_bytes,
    )
    step = len(data) // members + 1
    parts = [data[start : start + step] for start in range(0, step * members, step)]
    stored = b"".join(COMPRESS[compression](part) for part in parts)
    found = read(make_file(folder, stored, compression), options)
    plain = read(make_file(folder, data), options)
    assert found == plain


@property_settings
@given(case=st.one_of(cases, several_cases), read_bytes=st.integers(1, 50))
def test_documents_that_must_not_be_cut_are_read_whole(
    folder: Path, case: tuple[bytes | tuple[bytes, ...], bytes], read_bytes: int
) -> None:
    separator, data = case
    options = ReadOptions(
        separator=separator, cut=False, read_bytes=read_bytes, piece_bytes=1, max_document_bytes=999
    )
    found = read(make_file(folder, data), options, [10, 30])
    texts = reference.split_documents(data, separator)
    assert found.texts() == [text for text in texts if text and is_utf8(text)]
    assert all(len(document.pieces) == 1 for document in found.documents)


@pytest.mark.parametrize("compression", [None, *COMPRESS])
def test_without_a_separator_a_file_is_one_document(folder: Path, compression: str | None) -> None:
    data = "eins\nzwei ünd drei ".encode() * 10
    stored = data if compression is None else COMPRESS[compression](data)
    file = make_file(folder, stored, compression)
    for piece_bytes in (20, 1000):
        options = ReadOptions(separator=None, piece_bytes=piece_bytes, read_bytes=7)
        assert read(file, options).texts() == [data]
    assert read(file, ReadOptions(separator=None, cut=False)).texts() == [data]


@pytest.mark.parametrize(
    "pattern", [r"\p{N}(?#then) ?\p{L}+| ?\p{N}+|\s+", r"(?=(\d{3})+(?!\d))|\s"]
)
def test_chunks_of_a_long_document_have_the_pretokens_of_the_whole(
    pattern: str, folder: Path
) -> None:
    data = b"In 1234567 words, some 12 more; and 100200 others.\n" * 40
    file = make_file(folder, data)
    options = ReadOptions(
        separator=None, pattern=pattern, piece_bytes=200, read_bytes=64, max_document_bytes=300
    )
    (document,) = read(file, options).documents
    chunks = document.pieces
    assert len(chunks) > 5
    assert b"".join(chunks) == data
    scanner = resolve_pattern(pattern).scanner
    assert scanner is not None
    ends = _native.split_pretokens(scanner, data).tolist()
    begins = itertools.accumulate(map(len, chunks), initial=0)
    found = [
        begin + end
        for begin, chunk in zip(begins, chunks, strict=False)
        for end in _native.split_pretokens(scanner, chunk).tolist()
    ]
    assert found == ends


@pytest.mark.parametrize("separator", [None, b"\n"])
def test_an_empty_text_has_no_document(folder: Path, separator: bytes | None) -> None:
    file = make_file(folder, gzip.compress(b""), "gzip")
    assert read(file, ReadOptions(separator=separator)) == Contents()
    only_mark = make_file(folder, BOM)
    found = read(only_mark, ReadOptions(separator=separator, strip_bom=True))
    assert found == Contents(bytes=len(BOM))


def test_an_unfinished_last_line_is_a_document_and_carriage_returns_stay(folder: Path) -> None:
    file = make_file(folder, b"one\r\n\r\nlast")
    assert read(file, ReadOptions(separator=b"\n")).texts() == [b"one\r", b"\r", b"last"]


def test_a_byte_order_mark_stays_unless_it_is_to_be_stripped(folder: Path) -> None:
    file = make_file(folder, BOM + b"a\n" + BOM + b"b\n")
    assert read(file, ReadOptions(separator=b"\n")).texts() == [BOM + b"a", BOM + b"b"]
    stripped = read(file, ReadOptions(separator=b"\n", strip_bom=True))
    assert stripped.texts() == [b"a", BOM + b"b"]
    assert [document.offset for document in stripped.documents] == [3, 5]


def test_a_run_of_the_separator_may_reach_over_many_ranges(folder: Path) -> None:
    for length in (1, 2, 3, 5000, 5001):
        data = b"a" + b"\n" * length + b"b"
        file = make_file(folder, data)
        for step in (1, 7) if length < 10 else (999, 1000):
            found = read(file, ReadOptions(separator=b"\n\n"), range(step, len(data), step))
            texts = reference.split_documents(data, b"\n\n")
            assert found.texts() == [text for text in texts if text]
            assert found.empty == texts.count(b"")


def test_one_document_may_span_many_ranges(folder: Path) -> None:
    data = b"x" * 1000 + b"|b|" + b"y" * 1000
    file = make_file(folder, data)
    found = read(file, ReadOptions(separator=b"|", read_bytes=64), range(100, 2000, 100))
    assert found.texts() == [b"x" * 1000, b"b", b"y" * 1000]


def test_the_last_document_of_a_range_costs_little_reading_past_it(folder: Path) -> None:
    file = make_file(folder, b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 100_000)
    batches = list(read_range(file, Range(file=0, start=0, end=150), ReadOptions(separator=b"\n")))
    assert [len(batch) for batch in batches] == [1, 1]
    assert batches[-1].data.nbytes < 1 << 17


def test_tiny_documents_come_in_several_batches(folder: Path) -> None:
    file = make_file(folder, b"a\n\n" * 300_000)
    batches = list(
        read_range(file, Range(file=0, start=0, end=file.size), ReadOptions(separator=b"\n"))
    )
    assert sum(map(len, batches)) == sum(batch.empty for batch in batches) == 300_000
    assert max(map(len, batches)) <= 1 << 18


@pytest.mark.slow
def test_large_random_files_are_read_with_the_default_options(folder: Path) -> None:
    generator = random.Random(3)
    words = ["lorem", "ipsum", "dölör", "中文", "\n", "a\n\nb", "<|a|>"]
    lengths = [generator.choice([3, 50, 2000, 300_000]) for _ in range(60)]
    documents = [" ".join(generator.choices(words, k=length)) for length in lengths]
    data = "<|endoftext|>".join([*documents, "long words " * 900_000]).encode()
    options = ReadOptions(separator=b"<|endoftext|>", special_tokens=SPECIALS)
    file = make_file(folder, data)
    found = read(file, options, range(1 << 20, len(data), 1 << 20))
    assert found.texts() == data.split(b"<|endoftext|>")
    assert len(found.documents[-1].pieces) == 3
    small = read(file, replace(options, read_bytes=10_007), range(3 << 20, len(data), 3 << 20))
    assert small == found


# --- long documents


def test_cutting_changes_no_pretoken(folder: Path) -> None:
    generator = random.Random(4)
    text = "".join(generator.choices("abcé中문'’ \n\t1.😀\u0301", k=3000))
    file = make_file(folder, text.encode())
    options = ReadOptions(separator=b"|", piece_bytes=100, read_bytes=30)
    (document,) = read(file, options).documents
    assert len(document.pieces) > 20
    for pattern in ("gpt2", "cl100k", "o200k", "qwen2"):
        assert pretokens(pattern, document.pieces) == pretokens(pattern, [text.encode()])


def pretokens(pattern: str, pieces: list[bytes]) -> list[bytes]:
    found = []
    for piece in pieces:
        ends = _native.split_pretokens(pattern, piece).tolist()
        found += [piece[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    return found


def test_a_special_token_made_by_replacing_is_not_cut(folder: Path) -> None:
    special = "ab \ufffd c".encode()
    data = b"word " * 10 + b"ab \xff c" + b" word" * 10
    options = ReadOptions(
        separator=b"|", invalid_utf8="replace", piece_bytes=54, special_tokens=(special,)
    )
    (document,) = read(make_file(folder, data), options).documents
    assert document.text == data.replace(b"\xff", b"\xef\xbf\xbd")
    assert sum(special in piece for piece in document.pieces) == 1
    found = read(make_file(folder, data), replace(options, max_document_bytes=60))
    assert [(r.offset, r.length, r.reason) for r in found.rejects] == [(0, len(data), "too_long")]


def test_a_long_document_without_a_place_to_cut_is_refused_above_the_limit(folder: Path) -> None:
    file = make_file(folder, b"ok|" + b"1" * 1000)
    options = ReadOptions(separator=b"|", piece_bytes=10)
    assert read(file, options).texts() == [b"ok", b"1" * 1000]
    with pytest.raises(LongDocumentError, match=r"max_document_bytes(.|\n)*byte 3"):
        read(file, replace(options, max_document_bytes=100))


@pytest.mark.parametrize("end", [b"", b"|", b"|more"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_document_that_must_be_read_whole_is_rejected_above_the_limit(
    folder: Path, end: bytes, compression: str | None
) -> None:
    data = b"ok|" + b"word " * 20 + end
    stored = data if compression is None else COMPRESS[compression](data)
    file = make_file(folder, stored, compression)
    options = ReadOptions(separator=b"|", cut=False, max_document_bytes=100)
    others = [b"more"] * (end == b"|more")
    assert read(file, options).texts() == [b"ok", b"word " * 20, *others]
    for read_bytes in (7, 1 << 20):
        found = read(file, replace(options, max_document_bytes=99, read_bytes=read_bytes))
        assert found.texts() == [b"ok", *others]
        (reject,) = found.rejects
        assert (reject.offset, reject.length, reject.reason) == (3, 100, "too_long")
        assert reject.first_bytes == (b"word " * 20)[:64]
        assert "a document of 100 bytes; at most 99" in reject.message


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_memory_does_not_grow_with_a_document(folder: Path, compression: str | None) -> None:
    data = b"some words " * 1_000_000 + b"\n" + b"more words " * 100_000
    stored = data if compression is None else COMPRESS[compression](data)
    file = make_file(folder, stored, compression)
    options = ReadOptions(separator=b"\n", piece_bytes=1 << 16, read_bytes=1 << 16)
    total = 0
    tracemalloc.start()
    for batch in read_range(file, Range(file=0, start=0, end=file.size), options):
        total += int(batch.num_bytes.sum())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == len(data) - 1
    assert peak < 2 << 20


def test_a_compressed_file_is_decompressed_at_most_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    open_file = streams._open_file
    monkeypatch.setattr(
        streams, "_open_file", lambda *arguments: opened.append(1) or open_file(*arguments)
    )
    file = make_file(folder, gzip.compress(b"many words " * 50 + b"\n" + b"a b " * 100), "gzip")
    options = ReadOptions(separator=b"\n", piece_bytes=50)
    assert [len(document.pieces) > 2 for document in read(file, options).documents] == [True] * 2
    assert len(opened) == 2


# --- what is wrong with files and documents


def test_an_invalid_document_can_be_an_error(folder: Path) -> None:
    data = b"good|b\xffd and some more words"
    for piece_bytes in (5, 1000):
        options = ReadOptions(separator=b"|", invalid_utf8="error", piece_bytes=piece_bytes)
        with pytest.raises(InvalidDocumentError) as caught:
            read(make_file(folder, data), options)
        text = str(caught.value)
        assert "0xff" in text
        assert "byte 1 of the document" in text
        assert f"{folder}/file, byte 6" in text
        assert "input.invalid_utf8" in text


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("separator", [b"\n", None])
def test_a_compressed_file_that_is_cut_short_is_an_error_wherever_it_ends(
    folder: Path, compression: str, separator: bytes | None
) -> None:
    data = "one\ntwo\nthrée\n".encode() * 3
    stored = COMPRESS[compression](data)
    for stored_twice in (b"", stored):
        for size in range(1, len(stored)):
            file = make_file(folder, stored_twice + stored[:size], compression)
            with pytest.raises(InputError) as caught:
                read(file, ReadOptions(separator=separator))
            assert file.url in str(caught.value)
            # Of the first member there is text, of which a decompressor may give none.
            assert "bytes of text" not in str(caught.value)
            assert f"after reading up to byte {file.size:,}" in str(caught.value)


@pytest.mark.parametrize("compression", COMPRESS)
def test_a_corrupt_compressed_file_never_gives_other_documents(
    folder: Path, compression: str
) -> None:
    generator = random.Random(6)
    data = b"".join(generator.randbytes(5).hex().encode() + b"\n" for _ in range(20))
    member = COMPRESS[compression](data)
    stored = member + member
    errors = 0
    for place in range(len(stored)):
        damaged = bytearray(stored)
        damaged[place] ^= 1 << generator.randrange(8)
        file = make_file(folder, bytes(damaged), compression)
        try:
            assert read(file, ReadOptions(separator=b"\n")).texts() == (data * 2).split()
        except InputError as error:
            assert "corrupt" in str(error)
            errors += 1
    assert errors > 0.9 * len(stored)


@pytest.mark.parametrize("compression", COMPRESS)
def test_what_is_not_compressed_at_all_is_an_error(folder: Path, compression: str) -> None:
    with pytest.raises(InputError, match=r"input\.compression"):
        read(make_file(folder, b"plain text\n" * 10, compression), ReadOptions(separator=b"\n"))


def test_padding_between_xz_members_is_skipped(folder: Path) -> None:
    stored = lzma.compress(b"a\n") + b"\0" * 8 + lzma.compress(b"b\n") + b"\0" * 4
    file = make_file(folder, stored, "xz")
    assert read(file, ReadOptions(separator=b"\n")).texts() == [b"a", b"b"]


@pytest.mark.parametrize("size", [9, 11])
def test_a_file_of_another_size_than_planned_is_an_error(folder: Path, size: int) -> None:
    file = replace(make_file(folder, b"0123456789"), size=size)
    with pytest.raises(InputError, match=rf"changed(.|\n)*{size} bytes(.|\n)*10 bytes"):
        read(file, ReadOptions(separator=b"\n"))


def test_a_file_that_shrinks_while_it_is_read_is_an_error(folder: Path) -> None:
    file = make_file(folder, b"0123456789\n" * 10)
    options = ReadOptions(separator=b"\n", read_bytes=20)
    batches = read_range(file, Range(file=0, start=0, end=file.size), options)
    next(batches)
    (folder / "file").write_bytes(b"0123")
    with pytest.raises(InputError, match=r"changed(.|\n)*end of the file at byte"):
        list(batches)


def test_a_file_that_is_gone_is_an_error(folder: Path) -> None:
    file = make_file(folder, b"a")
    (folder / "file").unlink()
    with pytest.raises(InputError, match=r"no longer exists(.|\n)*FileNotFoundError"):
        read(file, ReadOptions(separator=b"\n"))


def test_only_the_whole_of_a_compressed_file_can_be_read(folder: Path) -> None:
    file = make_file(folder, gzip.compress(b"a\nb\n"), "gzip")
    with pytest.raises(ValueError, match="cannot be divided into ranges"):
        list(read_range(file, Range(file=0, start=5, end=9), ReadOptions(separator=b"\n")))


# --- storage


@pytest.mark.parametrize("compression", [None, "gzip", "xz"])
def test_files_on_other_storage_are_read_like_local_ones(
    folder: Path, compression: str | None
) -> None:
    data = b"one two three|four|" * 20 + b"five six seven " * 50
    stored = data if compression is None else COMPRESS[compression](data)
    local = make_file(folder, stored, compression)
    name = f"readers/{compression}"
    fsspec.filesystem("memory").pipe(f"/{name}", stored)
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr(name, stored)
    options = ReadOptions(separator=b"|", piece_bytes=100, read_bytes=33)
    cuts = range(50, 800, 50) if compression is None else ()
    expected = read(local, options, cuts)
    for url in (
        f"memory://{name}",
        f"simplecache::memory://{name}",
        f"zip://{name}::{folder}/archive.zip",
        f"file://{folder}/file",
    ):
        assert read(replace(local, url=url), options, cuts) == expected, url
