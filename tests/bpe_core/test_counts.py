"""Counts: the same as the reference's however the text comes, and the same in every form."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from core_support import INVALID_UTF8, SPECIALS, dirty_bytes, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import PretokenCounts, count_pretokens, counting, reference
from bpe_core.counting import ordered_pretokens
from bpe_core.errors import (
    CountOverflowError,
    FormatError,
    InvalidPatternError,
    InvalidUtf8Error,
    SpecialTokenError,
    TrainingError,
)
from bpe_core.patterns import PATTERNS

INT64_MAX = 2**63 - 1

mappings = st.dictionaries(st.binary(min_size=1, max_size=24), st.integers(1, 2**40), max_size=30)


def of_documents(documents: list[str | bytes], **options: object) -> dict[bytes, int]:
    # An iterator, since a list of texts could be the names of files.
    return dict(count_pretokens(iter(documents), **options).items())  # type: ignore[arg-type]


def in_order(counted: PretokenCounts) -> list[tuple[bytes, int]]:
    keys, offsets, numbers = counted.columns()
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    pretokens = [keys[begin:end].tobytes() for begin, end in bounds]
    return list(zip(pretokens, numbers.tolist(), strict=True))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda size: monkeypatch.setattr(counting, "_BATCH_BYTES", size)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("counts") / "text.txt"


# ---- equal to the reference


@pytest.mark.parametrize("pattern", PATTERNS)
@given(
    documents=st.lists(texts, max_size=5),
    as_bytes=st.booleans(),
    num_threads=st.integers(1, 4),
)
def test_counts_of_documents_equal_the_reference(
    pattern: str, documents: list[str], as_bytes: bool, num_threads: int
) -> None:
    expected = reference.count_pretokens(documents, pattern=pattern, special_tokens=SPECIALS)
    given_as = [document.encode() for document in documents] if as_bytes else documents
    found = of_documents(
        given_as, pattern=pattern, special_tokens=SPECIALS, num_threads=num_threads
    )
    assert found == expected


@pytest.mark.slow
def test_counts_of_a_corpus_equal_the_reference(kjv_documents: list[bytes]) -> None:
    documents = [document.decode() for document in kjv_documents[::20]]
    for pattern in PATTERNS:
        expected = reference.count_pretokens(documents, pattern=pattern)
        assert of_documents(documents, pattern=pattern) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\w+|\s"])
@settings(max_examples=times(0.6))
@given(contents=st.lists(texts, min_size=1, max_size=3), batch_bytes=st.integers(1, 40))
def test_counts_of_files_equal_the_reference_whatever_is_read_at_once(
    pattern: str, contents: list[str], batch_bytes: int, text_file: Path
) -> None:
    paths = [text_file.with_suffix(f".{i}") for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_BATCH_BYTES", batch_bytes)
        found = count_pretokens(paths, pattern=pattern, special_tokens=SPECIALS, num_threads=2)
    expected = reference.count_pretokens(contents, pattern=pattern, special_tokens=SPECIALS)
    assert dict(found.items()) == expected


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\w+|\s"])
@settings(max_examples=times(0.6))
@given(contents=st.lists(texts, min_size=1, max_size=3), batch_bytes=st.integers(1, 40))
def test_ordered_pretokens_stand_where_they_first_occur(
    pattern: str, contents: list[str], batch_bytes: int, text_file: Path
) -> None:
    expected = reference.count_pretokens(contents, pattern=pattern, special_tokens=SPECIALS)
    found = ordered_pretokens(iter(contents), pattern=pattern, special_tokens=SPECIALS)
    assert in_order(found) == list(expected.items())
    paths = [text_file.with_suffix(f".{i}") for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_BATCH_BYTES", batch_bytes)
        found = ordered_pretokens(paths, pattern=pattern, special_tokens=SPECIALS)
    assert in_order(found) == list(expected.items())


def test_ordered_pretokens_of_a_corpus_are_its_counts(kjv_path: Path) -> None:
    found = ordered_pretokens(kjv_path, special_tokens=["<|endoftext|>"])
    assert found == count_pretokens(kjv_path, special_tokens=["<|endoftext|>"])


def test_counts_of_shards_are_those_of_the_documents_between_special_tokens(
    kjv_shards: list[Path], kjv_documents: list[bytes], tmp_path: Path
) -> None:
    plain = []
    for path in kjv_shards:
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        plain.append(tmp_path / path.stem)
        plain[-1].write_bytes(data)
    of_files = count_pretokens(plain, special_tokens=["<|endoftext|>"])
    assert of_files == count_pretokens(kjv_documents)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_threads_and_batches_change_nothing(
    kjv_documents: list[bytes], small_batches: Callable[[int], None], num_threads: int
) -> None:
    expected = count_pretokens(kjv_documents, num_threads=1)
    small_batches(50_000)
    assert count_pretokens(kjv_documents, num_threads=num_threads) == expected


@given(documents=st.lists(texts, max_size=4), sizes=st.lists(st.integers(1, 3), max_size=4))
def test_counts_of_groups_of_documents_add_up(documents: list[str], sizes: list[int]) -> None:
    whole = count_pretokens(iter(documents), special_tokens=SPECIALS)
    rest = list(documents)
    total = count_pretokens(iter([]), special_tokens=SPECIALS)
    for size in [*sizes, len(rest)]:
        group, rest = rest[:size], rest[size:]
        total = total + count_pretokens(iter(group), special_tokens=SPECIALS)
    assert total == whole


@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "none"])
@given(text=texts)
def test_a_regular_expression_counts_as_the_named_pattern_does(name: str, text: str) -> None:
    # The added alternative never matches, but makes it a pattern without a native scanner.
    custom = PATTERNS[name] + "|(?!)"
    expected = of_documents([text], pattern=name, special_tokens=SPECIALS)
    assert of_documents([text], pattern=custom, special_tokens=SPECIALS) == expected


def test_names_of_files_are_files_and_other_texts_are_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"text")
    for source in (path, str(path), [path], [str(path)], (path,)):
        assert dict(count_pretokens(source).items()) == {b"text": 1}
    documents = [str(path), "text"]
    assert count_pretokens(iter(documents), pattern="none").total() == 2
    assert dict(count_pretokens(iter([str(path)]), pattern="none").items()) == {
        str(path).encode(): 1
    }


def test_text_that_a_regular_expression_leaves_out_is_counted() -> None:
    assert of_documents(["ab, cd"], pattern=r"\w+") == {b"ab": 1, b", ": 1, b"cd": 1}


def test_special_tokens_cut_text_and_are_not_counted() -> None:
    assert of_documents(["a<s>a<s><s>b <s"], special_tokens=["<s>", "<s><s>"]) == {
        b"a": 2,
        b"b": 1,
        b" <": 1,
        b"s": 1,
    }


def test_a_long_pretoken_is_counted_whole(
    small_batches: Callable[[int], None], text_file: Path
) -> None:
    small_batches(1000)
    text_file.write_bytes(b"x" * 50_000 + b" y " + b"!" * 50_000)
    assert dict(count_pretokens(text_file).items()) == {
        b"x" * 50_000: 1,
        b" y": 1,
        b" " + b"!" * 50_000: 1,
    }


# ---- invalid UTF-8


@pytest.mark.parametrize("errors", ["replace", "ignore"])
@settings(max_examples=times(3))
@given(data=dirty_bytes, batch_bytes=st.integers(1, 20))
def test_invalid_utf8_of_files_is_repaired_as_python_does(
    errors: str, data: bytes, batch_bytes: int, text_file: Path
) -> None:
    text_file.write_bytes(data)
    text = data.decode("utf-8", errors)
    # Every cut is at a special token: how the pre-tokens split is tested elsewhere.
    expected = reference.count_pretokens([text], pattern="none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_BATCH_BYTES", batch_bytes)
        found = count_pretokens(text_file, pattern="none", errors=errors)  # type: ignore[arg-type]
    assert dict(found.items()) == expected
    documents = count_pretokens([data], pattern="none", errors=errors)  # type: ignore[arg-type]
    assert documents == found


@settings(max_examples=times(3))
@given(data=dirty_bytes, batch_bytes=st.integers(1, 20))
def test_the_first_invalid_byte_of_a_file_is_named(
    data: bytes, batch_bytes: int, text_file: Path
) -> None:
    text_file.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_BATCH_BYTES", batch_bytes)
        try:
            data.decode()
        except UnicodeDecodeError as error:
            with pytest.raises(InvalidUtf8Error) as raised:
                count_pretokens(text_file)
            assert f"{text_file}, byte {error.start}: expected UTF-8, found 0x" in str(raised.value)
        else:
            count_pretokens(text_file)


@pytest.mark.slow
@pytest.mark.parametrize("sequence", INVALID_UTF8)
def test_invalid_utf8_is_found_at_every_place_about_the_edge_of_a_block(
    sequence: bytes, small_batches: Callable[[int], None], text_file: Path
) -> None:
    block = 64
    small_batches(block)
    for before in range(block - 6, block + 3):
        for after in (b"", b"z", "é".encode(), b"z" * block):
            data = b"x" * before + sequence + after
            text_file.write_bytes(data)
            with pytest.raises(InvalidUtf8Error, match=f"byte {before}:"):
                count_pretokens(text_file)
            for errors in ("replace", "ignore"):
                found = count_pretokens(text_file, pattern="none", errors=errors)
                text = data.decode("utf-8", errors).encode()
                assert dict(found.items()) == {text: 1}


def test_the_first_invalid_byte_of_a_document_is_named() -> None:
    documents = [b"fine", "naïve".encode()[:3]]
    with pytest.raises(InvalidUtf8Error, match=r"document 1, byte 2: .* 0xC3"):
        count_pretokens(documents)
    assert of_documents(documents, errors="replace") == {
        b"fine": 1,
        b"na": 1,
        "\ufffd".encode(): 1,
    }
    assert of_documents(documents, errors="ignore") == {b"fine": 1, b"na": 1}


def test_lone_surrogates_of_a_text_are_invalid() -> None:
    with pytest.raises(InvalidUtf8Error, match=r"document 0, byte 1: .* 0xED"):
        of_documents(["a\ud800b"])
    assert of_documents(["a\ud800b"], errors="ignore") == {b"ab": 1}


# ---- large counts


def test_counts_pass_32_and_33_bits() -> None:
    half = PretokenCounts.from_mapping({b"a": 2**31 + 1, b"long pre-token of 30 bytes....": 2**40})
    both = dict((half + half).items())
    assert both == {b"a": 2**32 + 2, b"long pre-token of 30 bytes....": 2**41}


def test_a_total_may_pass_64_bits() -> None:
    found = PretokenCounts.from_mapping({bytes([i]): INT64_MAX for i in range(9)})
    assert found.total() == 9 * INT64_MAX
    assert repr(found) == f"PretokenCounts(9 distinct, {9 * INT64_MAX} in all)"


@pytest.mark.parametrize("pretoken", [b"abc", b"a" * 100, b"\xff\xfe", b"\x00", b"x\x00y" * 10])
def test_a_sum_that_does_not_fit_is_an_error(pretoken: bytes) -> None:
    full = PretokenCounts.from_mapping({pretoken: INT64_MAX})
    with pytest.raises(CountOverflowError, match=r"pre-token .* does not fit 64 bits"):
        full + PretokenCounts.from_mapping({pretoken: 1})
    rows = pa.table({"pretoken": [pretoken, pretoken], "count": [INT64_MAX, 1]})
    with pytest.raises(CountOverflowError):
        PretokenCounts.from_arrow(rows)


# ---- forms


@given(mapping=mappings)
def test_every_form_holds_the_same_counts(mapping: dict[bytes, int], text_file: Path) -> None:
    found = PretokenCounts.from_mapping(mapping, {"pattern": "gpt2", "note": "ä"})
    assert list(found.items()) == sorted(mapping.items())
    assert len(found) == len(mapping)
    assert found.total() == sum(mapping.values())
    again = PretokenCounts.from_arrow(found.to_arrow())
    found.save(text_file)
    loaded = PretokenCounts.load(text_file)
    for other in (again, loaded):
        assert other == found
        assert other.metadata == found.metadata == {"pattern": "gpt2", "note": "ä"}
    keys, offsets, values = loaded.columns()
    rows = zip(offsets[:-1], offsets[1:], values.tolist(), strict=True)
    assert {keys[a:b].tobytes(): n for a, b, n in rows} == mapping


@given(
    rows=st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 2**33))),
    cut=st.integers(0, 5),
    count_type=st.sampled_from([pa.int64(), pa.uint64()]),
    bytes_type=st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_rows_of_a_table_in_any_order_are_added_up(
    rows: list[tuple[bytes, int]], cut: int, count_type: pa.DataType, bytes_type: pa.DataType
) -> None:
    columns = [
        pa.array([key for key, _ in rows], bytes_type),
        pa.array([n for _, n in rows], count_type),
    ]
    table = pa.table(columns, ["pretoken", "count"])
    chunked = pa.concat_tables([table.slice(cut), table.slice(0, cut)])
    expected: Counter[bytes] = Counter()
    for key, n in rows:
        expected[key] += n
    assert dict(PretokenCounts.from_arrow(chunked).items()) == expected
    assert PretokenCounts.from_arrow(chunked) == PretokenCounts.from_mapping(expected)


def test_equal_counts_are_equal_bytes(kjv_documents: list[bytes], tmp_path: Path) -> None:
    documents = kjv_documents[:200]
    shuffled = random.Random(5).sample(documents, len(documents))
    one, two = count_pretokens(documents, num_threads=1), count_pretokens(shuffled, num_threads=2)
    half = len(documents) // 2
    parts = count_pretokens(documents[:half]) + count_pretokens(documents[half:])
    mapping = dict(random.Random(6).sample(list(one.items()), len(one)))
    from_mapping = PretokenCounts.from_mapping(mapping, one.metadata)
    one.save(tmp_path / "1")
    reloaded = PretokenCounts.load(tmp_path / "1")
    for i, other in enumerate([two, parts, from_mapping, reloaded], 2):
        other.save(tmp_path / str(i))
        assert (tmp_path / str(i)).read_bytes() == (tmp_path / "1").read_bytes()


def test_what_was_counted_and_how_is_recorded() -> None:
    found = count_pretokens(["a"], pattern="o200k", special_tokens=["<s>", "é"])
    assert found.metadata == {
        "pattern": "o200k",
        "special_tokens": '["<s>", "é"]',
        "unicode_version": "16.0.0",
        "normalizer": "null",
        "normalize_quotes": "false",
    }
    assert count_pretokens(["a"], pattern=r"\w").metadata["unicode_version"] == "16.0.0"


def test_prune_leaves_out_what_is_rare() -> None:
    found = PretokenCounts.from_mapping({b"a": 1, b"b": 2, b"c": 3}, {"pattern": "gpt2"})
    assert dict(found.prune(2).items()) == {b"b": 2, b"c": 3}
    assert found.prune(2).metadata == found.metadata
    assert len(found.prune(4)) == 0
    assert found.prune(4) + found == found


def test_counts_made_in_different_ways_are_not_added() -> None:
    found = count_pretokens(["a"])
    with pytest.raises(TrainingError, match=r"same pattern .* gpt2 and o200k"):
        found + count_pretokens(["a"], pattern="o200k")
    with pytest.raises(TrainingError, match="same special_tokens"):
        found + count_pretokens(["a"], special_tokens=["<s>"])
    assert found + PretokenCounts.from_mapping({b"a": 1}) == count_pretokens(["a", "a"])
    with pytest.raises(TypeError):
        found + {b"a": 1}  # type: ignore[operator]


def test_a_sum_says_how_it_was_counted_but_not_of_which_corpus() -> None:
    one = PretokenCounts.from_mapping({b"a": 1}, {"pattern": "gpt2", "fingerprint": "1"})
    two = PretokenCounts.from_mapping({b"a": 1}, {"special_tokens": "[]", "fingerprint": "1"})
    assert (one + two).metadata == {"pattern": "gpt2", "special_tokens": "[]"}


def test_counts_are_compared_by_their_rows() -> None:
    found = PretokenCounts.from_mapping({b"a": 1})
    assert found == PretokenCounts.from_mapping({b"a": 1}, {"pattern": "gpt2"})
    assert found != PretokenCounts.from_mapping({b"a": 2})
    assert found != {b"a": 1}


def test_a_directory_of_shards_is_loaded_whole(tmp_path: Path) -> None:
    for i, mapping in enumerate([{b"b": 2}, {}, {b"a": 1}]):
        shard = PretokenCounts.from_mapping(mapping, {"pattern": "gpt2", "shard": f"{i} of 3"})
        shard.save(tmp_path / f"shard-{i:05}-of-00003.parquet")
    found = PretokenCounts.load(tmp_path)
    assert list(found.items()) == [(b"a", 1), (b"b", 2)]
    assert found.metadata == {"pattern": "gpt2"}
    (tmp_path / "shard-00001-of-00003.parquet").unlink()
    with pytest.raises(FormatError, match="found 2 of 3"):
        PretokenCounts.load(tmp_path)


# ---- misuse


@pytest.mark.parametrize(
    ("mapping", "shown"),
    [({b"": 1}, "b''"), ({b"a": 0}, "b'a': 0"), ({b"a": -1}, "-1"), ({b"a": 2**63}, "922")]
    + [({b"a": value}, f"b'a': {value!r}") for value in (True, 1.0, None)]
    + [(None, "NoneType"), ([(b"a", 1)], "list")],
)
def test_counts_must_be_positive_and_fit(mapping: dict[bytes, int], shown: str) -> None:
    with pytest.raises(TrainingError, match=shown):
        PretokenCounts.from_mapping(mapping)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"pretoken": [b"a"]}),
        pa.table({"pretoken": [b"a"], "count": ["1"]}).set_column(
            1, "count", pa.array([b"x"], pa.binary())
        ),
        pa.table({"pretoken": [1], "count": [1]}),
        pa.table({"pretoken": [b"a", None], "count": [1, 1]}),
        pa.table({"pretoken": [b"a"], "count": pa.array([None], pa.int64())}),
        pa.table({"pretoken": [b"a"], "count": [0]}),
        pa.table({"pretoken": [b""], "count": [1]}),
        pa.table({"pretoken": [b"a"], "count": pa.array([2**63], pa.uint64())}),
        pa.table({"pretoken": [b"a"], "count": [1.5]}),
        pa.table([[b"a"], [b"b"], [1]], names=["pretoken", "pretoken", "count"]),
        pa.table({"pretoken": pa.array([[b"a"]]), "count": [1]}),
    ],
)
def test_tables_of_another_kind_are_refused(table: pa.Table, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="the table: expected"):
        PretokenCounts.from_arrow(table)
    path = tmp_path / "counts.parquet"
    pq.write_table(table, path)
    with pytest.raises(FormatError, match=r"counts.parquet: expected"):
        PretokenCounts.load(path)


def test_files_that_are_no_counts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"no Parquet")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("text", "empty"):
        with pytest.raises(FormatError, match=f"{name}: expected Parquet"):
            PretokenCounts.load(tmp_path / name)
    with pytest.raises(FormatError, match="expected all shards"):
        (tmp_path / "directory").mkdir()
        PretokenCounts.load(tmp_path / "directory")
    with pytest.raises(FileNotFoundError):
        PretokenCounts.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        count_pretokens(tmp_path / "none")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"bpe.format": "3"}, "expected format 1 or 2, found 3"),
        ({"bpe.special_tokens": "{}"}, "expected special_tokens as a list of texts, found {}"),
        ({"bpe.special_tokens": "[1]"}, r"a list of texts, found \[1\]"),
        ({"bpe.special_tokens": "["}, "expected UTF-8 and JSON"),
        ({"bpe.special_tokens": "[" * 100_000}, "expected UTF-8 and JSON"),
        ({"bpe.pattern": b"\xff"}, "expected UTF-8 and JSON"),
    ],
)
def test_tables_with_other_metadata_are_refused(
    metadata: dict[str, str], message: str, tmp_path: Path
) -> None:
    table = pa.table({"pretoken": [b"a"], "count": [1]}).replace_schema_metadata(metadata)
    with pytest.raises(FormatError, match=f"the table, metadata: .*{message}"):
        PretokenCounts.from_arrow(table)
    pq.write_table(table, tmp_path / "counts")
    with pytest.raises(FormatError, match=f"{tmp_path}/counts, metadata: .*{message}"):
        PretokenCounts.load(tmp_path / "counts")


@pytest.mark.parametrize(("first", "second"), [(b"b", b"a"), (b"a", b"a")])
def test_files_that_are_not_sorted_are_refused(first: bytes, second: bytes, tmp_path: Path) -> None:
    table = pa.table({"pretoken": [b"", first, second], "count": [1, 2, 3]}).slice(1)
    pq.write_table(table, tmp_path / "counts")
    with pytest.raises(FormatError, match=f"counts, row 1: .* found {second!r} after {first!r}"):
        PretokenCounts.load(tmp_path / "counts")
    assert PretokenCounts.from_arrow(table).total() == 5


@pytest.mark.slow
def test_damaged_files_are_refused_and_named(tmp_path: Path) -> None:
    draw = random.Random(0)
    path = tmp_path / "counts"
    words = " ".join(f"w{draw.randrange(500)}" for _ in range(2000))
    counts = count_pretokens([words], special_tokens=["<s>"])
    counts.save(path)
    whole = path.read_bytes()
    refused = 0
    for _ in range(600):
        data = bytearray(whole)
        begin = draw.randrange(len(data))
        match draw.randrange(4):
            case 0:
                del data[begin:]
            case 1:
                data[begin] ^= 1 << draw.randrange(8)
            case 2:
                data[-1 - begin % 1500] = draw.randrange(256)
            case _:
                data[begin : begin + draw.randrange(20)] = draw.randbytes(draw.randrange(20))
        path.write_bytes(data)
        try:
            assert PretokenCounts.load(path) == counts
        except FormatError as error:
            assert str(error).startswith(str(path))
            refused += 1
    assert refused > 400


def test_directories_of_other_shards_are_refused(tmp_path: Path) -> None:
    for i in range(2):
        shard = PretokenCounts.from_mapping({b"a": 1}, {"shard": f"{i} of 2"})
        shard.save(tmp_path / f"shard-{i:05}-of-00002.parquet")
    one, two = sorted(tmp_path.iterdir())
    two.write_bytes(one.read_bytes())
    with pytest.raises(FormatError, match=f"{two}: expected shard 1 of 2, found 0 of 2"):
        PretokenCounts.load(tmp_path)
    two.rename(tmp_path / "shard-00002-of-00002.parquet")
    with pytest.raises(FormatError, match="found 2 of 2, without shard-00001-of"):
        PretokenCounts.load(tmp_path)
    one.rename(tmp_path / "shard-0-of-x.parquet")
    with pytest.raises(FormatError, match="found 2 of some"):
        PretokenCounts.load(tmp_path)


def test_unusable_arguments_are_refused() -> None:
    with pytest.raises(TrainingError, match="errors: expected strict, replace or ignore"):
        count_pretokens(["a"], errors="other")  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match="document 1: expected str or bytes, found int"):
        count_pretokens(["a", 1])  # type: ignore[list-item]
    with pytest.raises(TrainingError, match="num_threads: expected"):
        count_pretokens(["a"], num_threads=-1)
    for text in ("x" * 5000, "a\0", "\ud800"):
        for source in (text, Path(text), [Path(text)]):
            with pytest.raises(TrainingError, match=r"source.*: expected a path, found '"):
                count_pretokens(source)
    with pytest.raises(TrainingError, match=r"source: expected a path, or several .* found int"):
        count_pretokens(5)  # type: ignore[arg-type]
    with pytest.raises(SpecialTokenError):
        count_pretokens(["a"], special_tokens=["<s>", "<s>"])
    with pytest.raises(InvalidPatternError):
        count_pretokens(["a"], pattern="(")


# ---- files or documents


def test_names_of_which_some_are_no_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("low low")
    for source in (["a.txt", "mistyped.txt"], ("mistyped.txt", "a.txt")):
        with pytest.raises(TrainingError, match=r"1 do not: 'mistyped\.txt'; correct"):
            count_pretokens(source)
    many = ["a.txt", *(f"{i}.txt" for i in range(7)), "x" * 5000]
    with pytest.raises(TrainingError, match=r"'4\.txt' and 3 more; correct these names"):
        count_pretokens(many)
    with pytest.raises(TrainingError, match=r"item 1: expected a path .* found bytes"):
        count_pretokens([Path("a.txt"), b"low"])


def test_texts_are_files_if_all_of_them_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("low low")
    contents = {b"low": 1, b" low": 1}
    for files in ("a", ["a"], ("a",), [Path("a")]):
        assert dict(count_pretokens(files).items()) == contents
    assert dict(count_pretokens([Path("a"), "a"]).items()) == {b"low": 2, b" low": 2}
    for documents in ([b"a"], iter(["a"])):
        assert dict(count_pretokens(documents).items()) == {b"a": 1}
    assert dict(count_pretokens(["b", "c\0", "d\ud800"], errors="replace").items()).keys() >= {
        b"b",
        b"c",
        b"d",
    }
    with pytest.raises(FileNotFoundError):
        count_pretokens("mistyped.txt")


def test_counts_by_one_pattern_under_two_names_are_added() -> None:
    for one, other in (("gpt2", "r50k"), ("llama3", "cl100k")):
        both = count_pretokens(["a b"], pattern=one) + count_pretokens(["a"], pattern=other)
        assert dict(both.items()) == {b"a": 2, b" b": 1}
        assert both.metadata["pattern"] == one
    with pytest.raises(TrainingError, match="same pattern on both sides"):
        count_pretokens(["a"], pattern="gpt2") + count_pretokens(["a"], pattern="cl100k")


@pytest.mark.parametrize(
    ("mapping", "shown"), [({"ab": 1}, "'ab': 1"), ({b"ab": "1"}, "b'ab': '1'")]
)
def test_a_mapping_of_other_types_is_refused(mapping: dict, shown: str) -> None:
    with pytest.raises(TrainingError, match=rf"pre-tokens as bytes .* found {shown}"):
        PretokenCounts.from_mapping(mapping)
