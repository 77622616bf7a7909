"""The native table of counts, its packed sections, and merging them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from core_support import SPECIALS, joined, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import reference
from bpe_core._native import CountMerger, PretokenTable, xxh3_128
from bpe_core.errors import CountOverflowError

INT64_MAX = 2**63 - 1
Rows = list[tuple[bytes, int]]

# Keys that share beginnings, that differ only in zero bytes at the end, and on both sides of the
# 16 bytes that an entry holds itself.
keys = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.builds(
        lambda start, n, end: b"shared beginnin"[:start] + b"\x00" * n + end or b"x",
        st.integers(0, 15),
        st.integers(0, 4),
        st.sampled_from([b"", b"a", b"\xff" * 20]),
    ),
)
counts = st.integers(1, 2**20) | st.sampled_from([127, 128, 2**35, 2**62])
mappings = st.dictionaries(keys, counts, max_size=40)


def table_of(rows: Sequence[tuple[bytes, int]]) -> PretokenTable:
    table = PretokenTable(None, [])
    data, starts, _ = joined([key for key, _ in rows])
    table.add_counts(data, np.append(starts, len(data)), np.array([n for _, n in rows], np.int64))
    return table


def rows_of(columns: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Rows:
    data, offsets, values = columns
    assert len(offsets) == len(values) + 1
    text = data.tobytes()
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), values.tolist(), strict=True)
    return [(text[a:b], n) for a, b, n in bounds]


def merged(
    sections: Sequence[bytes], chunk: int = 7, max_rows: int = 3, max_bytes: int = 1 << 20
) -> Rows:
    merger = CountMerger(len(sections), chunks_of(sections, chunk))
    rows: Rows = []
    while found := rows_of(merger.read(max_rows, max_bytes)[:3]):
        assert len(found) <= max_rows
        rows += found
    return rows


def chunks_of(sections: Sequence[bytes], size: int) -> Callable[[int], bytes]:
    places = [0] * len(sections)

    def refill(source: int) -> bytes:
        at = places[source]
        places[source] += size
        return sections[source][at : at + size]

    return refill


# ---- the table


@given(rows=st.lists(st.tuples(keys, st.integers(1, 2**40)), max_size=60))
def test_columns_are_sorted_sums(rows: Rows) -> None:
    expected: Counter[bytes] = Counter()
    for key, n in rows:
        expected[key] += n
    table = table_of(rows)
    assert rows_of(table.columns()) == sorted(expected.items())
    assert len(table) == len(expected)
    assert table.total() == expected.total()


def test_many_keys_are_kept_apart_while_the_table_grows() -> None:
    rng = random.Random(3)
    expected = {
        rng.randbytes(rng.choice([1, 2, 3, 8, 15, 16, 17, 30])): i + 1 for i in range(50_000)
    }
    rows = list(expected.items())
    assert rows_of(table_of(rows).columns()) == sorted(rows)


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("length", [1, 14, 15, 16, 17])
def test_keys_that_differ_in_their_last_byte_are_different(length: int, portable: bool) -> None:
    # A key holds 16 bytes, the last of which may also say how many of them count.
    documents = [b"k" * (length - 1) + bytes([last]) for last in range(256)]
    data, starts, ends = joined(documents)
    table = PretokenTable("none", [], portable=portable)
    for i in range(256):
        for _ in range(i % 3 + 1):
            table.add_documents(data, starts[i : i + 1], ends[i : i + 1])
    assert rows_of(table.columns()) == [(key, i % 3 + 1) for i, key in enumerate(documents)]


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("key", [b"a", b"b" * 40])
def test_counts_go_on_above_32_bits(key: bytes, portable: bool) -> None:
    table = PretokenTable("none", [], portable=portable)
    data, starts, ends = joined([key, b"other"])
    for i, count in enumerate([2**32 - 2, 2**32, 2**40 + 5]):
        table.add_counts(key, np.array([0, len(key)]), np.array([count]))
        for _ in range(4):
            table.add_documents(data, starts, ends)
        expected = sum([2**32 - 2, 2**32, 2**40 + 5][: i + 1]) + 4 * (i + 1)
        assert rows_of(table.columns()) == [(key, expected), (b"other", 4 * (i + 1))]
        assert table.total() == expected + 4 * (i + 1)
    # As many others that the table has to grow.
    others = [str(i).encode() for i in range(20_000)]
    table.add_documents(*joined(others))
    assert dict(rows_of(table.columns()))[key] == expected
    twice = PretokenTable("none", [], portable=not portable)
    twice.add_table(table)
    twice.add_table(table)
    assert dict(rows_of(twice.columns()))[key] == 2 * expected


def test_keys_that_differ_in_zero_bytes_at_the_end_are_different() -> None:
    rows = [(b"a" + b"\x00" * n, n + 1) for n in range(30)]
    rows += [(b"\x00" * n, n) for n in range(1, 30)]
    assert rows_of(table_of(rows).columns()) == sorted(rows)


@given(one=mappings, two=mappings)
def test_tables_are_added_up(one: dict[bytes, int], two: dict[bytes, int]) -> None:
    table = table_of(list(one.items()))
    expected = Counter(one) + Counter(two)
    if max(expected.values(), default=0) > INT64_MAX:
        with pytest.raises(CountOverflowError):
            table.add_table(table_of(list(two.items())))
    else:
        table.add_table(table_of(list(two.items())))
        assert rows_of(table.columns()) == sorted(expected.items())


@given(documents=st.lists(texts, max_size=6), first=st.integers(0, 6))
def test_documents_from_the_first_asked_for_are_counted(documents: list[str], first: int) -> None:
    data, starts, ends = joined([document.encode() for document in documents])
    first = min(first, len(documents))
    table = PretokenTable("gpt2", [token.encode() for token in SPECIALS])
    assert table.add_documents(data, starts, ends, first) == (len(documents), [])
    expected = reference.count_pretokens(documents[first:], special_tokens=SPECIALS)
    assert dict(rows_of(table.columns())) == expected


@pytest.mark.slow
def test_counting_stops_at_the_memory_limit_after_whole_documents() -> None:
    rng = random.Random(11)
    documents = [b" ".join(b"%x" % rng.randrange(2**30) for _ in range(200)) for _ in range(400)]
    data, starts, ends = joined(documents)
    limit = 1 << 20
    table = PretokenTable("gpt2", [])
    total: Counter[bytes] = Counter()
    first = flushes = 0
    while first < len(documents):
        before = first
        first, too_long = table.add_documents(data, starts, ends, first, limit)
        assert before < first <= len(documents)
        assert too_long == []
        assert table.memory_bytes <= 2 * limit
        part = dict(rows_of(table.columns()))
        assert part == reference.count_pretokens(d.decode() for d in documents[before:first])
        total.update(part)
        table.clear()
        assert (len(table), table.total()) == (0, 0)
        flushes += 1
    assert flushes > 2
    assert total == reference.count_pretokens(d.decode() for d in documents)


@pytest.mark.slow
def test_long_pretokens_count_toward_the_memory_limit() -> None:
    rng = random.Random(12)
    documents = [bytes(rng.choices(b"abcdefgh", k=10_000)) for _ in range(1000)]
    data, starts, ends = joined(documents)
    table = PretokenTable("gpt2", [])
    limit = 1 << 20
    first = flushes = 0
    while first < len(documents):
        first, _ = table.add_documents(data, starts, ends, first, limit)
        assert table.memory_bytes <= limit
        table.clear()
        flushes += 1
    assert flushes < 100


def test_with_hardly_any_memory_a_table_still_holds_many_documents() -> None:
    data, starts, ends = joined([b"%d" % i for i in range(1000)])
    assert PretokenTable("gpt2", []).add_documents(data, starts, ends, 0, 1) == (1000, [])


def test_the_tables_of_all_groups_stay_in_the_limit_together() -> None:
    documents = [b" ".join(b"%d" % (i * 7919 + j) for j in range(300)) for i in range(900)]
    data, starts, ends = joined(documents)
    groups = np.array([i % 30 for i in range(len(documents))], np.int32)
    table = PretokenTable("gpt2", [], counts_documents=True)
    limit, first, flushes = 2 << 20, 0, 0
    while first < len(documents):
        first, _ = table.add_documents(data, starts, ends, first, limit, groups)
        assert table.memory_bytes <= limit
        table.clear()
        flushes += 1
    assert flushes < 60


grouped_documents = st.lists(st.tuples(st.integers(0, 3), texts), max_size=12)


@pytest.mark.parametrize("portable", [False, True])
@given(documents=grouped_documents, cut=st.integers(0, 12), chunk=st.integers(1, 40))
def test_groups_and_documents_equal_the_reference(
    portable: bool, documents: list[tuple[int, str]], cut: int, chunk: int
) -> None:
    names = [b"d", b"", b"ab", b"a"]
    expected = reference.count_groups(
        [(names[group], text) for group, text in documents], special_tokens=SPECIALS
    )
    sections = []
    table = PretokenTable(
        "gpt2", [t.encode() for t in SPECIALS], portable=portable, counts_documents=True
    )
    for part in (documents[:cut], documents[cut:]):
        data, starts, ends = joined([text.encode() for _, text in part])
        groups = np.array([group for group, _ in part], np.int32)
        table.add_documents(data, starts, ends, groups=groups)
        sections += table.pack_sections(2, names)
        table.clear()
    found: dict[bytes, dict[bytes, tuple[int, int]]] = {}
    for shard in range(2):
        merger = CountMerger(2, chunks_of(sections[shard::2], chunk), groups=True, documents=True)
        packed = b"".join([merger.header(), *iter(lambda m=merger: m.read_packed(3, 50, 2), b"")])
        again = CountMerger(1, chunks_of([packed], chunk), groups=True, documents=True)
        present = again.names()
        assert present == sorted(set(present))
        while len((rows := again.read(5, 100, 3))[0]):
            data, offsets, sums, totals, bounds, groups, numbers, with_it = rows
            for i in range(len(sums)):
                entries = range(bounds[i], bounds[i + 1])
                key = data[offsets[i] : offsets[i + 1]].tobytes()
                found[key] = {
                    present[groups[e]]: (int(numbers[e]), int(with_it[e])) for e in entries
                }
                assert (sums[i], totals[i]) == tuple(
                    map(sum, zip(*found[key].values(), strict=True))
                )
    assert found == expected


def test_parts_of_a_document_count_as_one() -> None:
    table = PretokenTable("gpt2", [], counts_documents=True)
    data, starts, ends = joined([b"the", b" cat the", b" cat"])
    table.add_documents(data, starts, ends, continues=True)
    table.add_documents(data, starts, ends)
    merger = CountMerger(1, chunks_of(table.pack_sections(1), 9), documents=True)
    rows = merger.read(10, 1000)
    assert rows_of(rows[:3]) == [(b" cat", 4), (b" the", 2), (b"the", 2)]
    assert rows[3].tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (b"\x02\x01b\x01a", "its groups are not in order"),
        (b"\x02\x01a\x01a", "its groups are not in order"),
        (b"\x01\x05a", "ends inside a key"),
        (b"\x01\x01a\x00\x01\x02\x00\x01\x01\x01x", "another number of groups"),
        (b"\x01\x01a\x00\x01\x00x", "another number of groups"),
        (b"\x01\x01a\x00\x01\x01\x01\x01\x01x", "a group has no name"),
        (b"\x01\x01a\x00\x01\x01\x00\x01\x02x", "more documents than places"),
        (b"\x01\x01a\x00\x01\x01\x00\x01\x00x", "count is not positive"),
        (b"\x02\x01a\x01b\x00\x01\x02\x01\x01\x01\x00\x01\x01x", "groups of a key are not"),
    ],
)
def test_damaged_groups_are_refused(section: bytes, problem: str) -> None:
    for chunk in (1, 100):
        with pytest.raises(ValueError, match=f"section 0 of the counts is damaged: .*{problem}"):
            CountMerger(1, chunks_of([section], chunk), groups=True, documents=True).read(9, 99)


@pytest.mark.slow
def test_a_cleared_table_gives_its_memory_back() -> None:
    table = PretokenTable("gpt2", [])
    empty = table.memory_bytes
    data, starts, ends = joined([b" %d" % i for i in range(20_000)])
    table.add_documents(data, starts, ends)
    assert table.memory_bytes > empty
    table.clear()
    assert table.memory_bytes == empty
    assert rows_of(table.columns()) == []
    table.add_documents(data, starts, ends)
    assert table.total() == sum(reference.count_pretokens(f" {i}" for i in range(20_000)).values())


def test_pretokens_above_the_limit_are_told_and_not_counted() -> None:
    table = PretokenTable("gpt2", [b"<s>"], max_pretoken_bytes=20)
    documents = [b"a " + b"b" * 30, b"", b"<s>" + b"c" * 21 + b"<s>" + b"d" * 20]
    data, starts, ends = joined(documents)
    assert table.add_documents(data, starts, ends) == (3, [(0, 1, 31), (2, 3, 21)])
    assert dict(rows_of(table.columns())) == {b"a": 1, b"d" * 20: 1}
    small = PretokenTable("gpt2", [], max_pretoken_bytes=2)
    assert small.add_documents(*joined([b"ab abc"])) == (1, [(0, 2, 4)])
    assert dict(rows_of(small.columns())) == {b"ab": 1}


def test_pretokens_found_elsewhere_are_counted() -> None:
    table = PretokenTable(None, [])
    table.add_spans(b"aabaa", np.array([0, 2, 3, 0]), np.array([2, 3, 5, 5]))
    assert rows_of(table.columns()) == [(b"aa", 2), (b"aabaa", 1), (b"b", 1)]


def test_documents_that_end_with_the_buffer_are_read_no_further() -> None:
    # Every length and every distance of a key from the end of the data.
    for size in range(1, 40):
        text = b" " + b"x" * size
        table = PretokenTable("gpt2", [])
        data = np.frombuffer(text, np.uint8).copy()
        table.add_documents(data, np.array([0, 1]), np.array([len(text), len(text)]))
        assert dict(rows_of(table.columns())) == {text: 1, text[1:]: 1}


@pytest.mark.parametrize("key", [b"\xff\xfe\x00", b"a" * 17, b"'\\"])
def test_an_overflow_names_the_pretoken(key: bytes) -> None:
    with pytest.raises(CountOverflowError, match=rf"\({len(key)} bytes\) does not fit 64 bits"):
        table_of([(key, INT64_MAX), (key, 1)])
    sections = [table_of([(key, INT64_MAX)]).pack_sections(1)[0] for _ in range(2)]
    with pytest.raises(CountOverflowError, match=rf"\({len(key)} bytes\) does not fit 64 bits"):
        merged(sections)
    full = table_of([(key, INT64_MAX)])
    with pytest.raises(CountOverflowError):
        full.add_table(full)
    with pytest.raises(CountOverflowError, match="sum of all counts"):
        table_of([(key, INT64_MAX), (b"other", 1)]).total()


def test_misuse_of_a_table_is_refused() -> None:
    table = PretokenTable("gpt2", [])
    one = np.array([1])
    for starts, ends in [([-1], [1]), ([0], [4]), ([2], [1]), ([0, 1], [1])]:
        with pytest.raises(ValueError):
            table.add_documents(b"abc", np.array(starts), np.array(ends))
        with pytest.raises(ValueError):
            table.add_spans(b"abc", np.array(starts), np.array(ends))
    with pytest.raises(ValueError, match="must not be empty"):
        table.add_spans(b"abc", one, one)
    with pytest.raises(ValueError, match="one entry more"):
        table.add_counts(b"abc", np.array([0, 1]), np.array([1, 2]))
    with pytest.raises(ValueError, match="outside"):
        table.add_counts(b"abc", np.array([0, 4]), one)
    with pytest.raises(ValueError, match="add_spans"):
        PretokenTable(None, []).add_documents(b"abc", np.array([0]), one)
    with pytest.raises(ValueError, match="no native scanner"):
        PretokenTable("gpt3", [])
    with pytest.raises(ValueError, match="shards"):
        table.pack_sections(0)
    assert len(table) == 0


def test_tables_of_several_threads_share_nothing() -> None:
    rng = random.Random(2)
    documents = [b" ".join(b"%d" % rng.randrange(5000) for _ in range(2000)) for _ in range(40)]
    data, starts, ends = joined(documents)
    tables = [PretokenTable("gpt2", [b"77"]) for _ in range(4)]
    threads = [
        threading.Thread(target=table.add_documents, args=(data, starts[i::4], ends[i::4]))
        for i, table in enumerate(tables)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = PretokenTable("gpt2", [b"77"])
    whole.add_documents(data, starts, ends)
    for table in tables[1:]:
        tables[0].add_table(table)
    assert rows_of(tables[0].columns()) == rows_of(whole.columns())


# ---- sections


@given(mapping=mappings, shards=st.integers(1, 9))
def test_sections_hold_the_rows_of_their_shard_in_order(
    mapping: dict[bytes, int], shards: int
) -> None:
    sections = table_of(list(mapping.items())).pack_sections(shards)
    assert len(sections) == shards
    for shard, section in enumerate(sections):
        expected = {key: n for key, n in mapping.items() if xxh3_128(key)[1] % shards == shard}
        assert merged([section]) == sorted(expected.items())


@settings(max_examples=times(2))
@given(
    tables=st.lists(mappings, max_size=5),
    chunk=st.integers(1, 50),
    max_rows=st.integers(1, 10),
    max_bytes=st.integers(1, 60),
)
def test_sections_in_chunks_of_any_size_merge_to_their_sums(
    tables: list[dict[bytes, int]], chunk: int, max_rows: int, max_bytes: int
) -> None:
    expected: Counter[bytes] = Counter()
    for mapping in tables:
        expected.update(mapping)
    sections = [table_of(list(mapping.items())).pack_sections(1)[0] for mapping in tables]
    if max(expected.values(), default=0) > INT64_MAX:
        with pytest.raises(CountOverflowError):
            merged(sections, chunk, max_rows, max_bytes)
    else:
        assert merged(sections, chunk, max_rows, max_bytes) == sorted(expected.items())


@given(tables=st.lists(mappings, min_size=1, max_size=4), chunks=st.lists(st.integers(1, 30)))
def test_what_one_call_gives_does_not_depend_on_the_chunks(
    tables: list[dict[bytes, int]], chunks: list[int]
) -> None:
    small = [{key: min(n, 2**40) for key, n in mapping.items()} for mapping in tables]
    sections = [table_of(list(mapping.items())).pack_sections(1)[0] for mapping in small]
    expected = CountMerger(len(sections), chunks_of(sections, 1 << 20))
    others = [CountMerger(len(sections), chunks_of(sections, chunk)) for chunk in chunks]
    while rows := rows_of(expected.read(4, 30)[:3]):
        assert all(rows_of(other.read(4, 30)[:3]) == rows for other in others)


def test_nothing_merges_to_nothing() -> None:
    assert merged([]) == []
    assert merged([b"", b""]) == []


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (b"\x80", "ends inside a number"),
        (b"\x00", "ends inside a number"),
        (b"\x00\x02\x01a", "ends inside a key"),
        (b"\x00\x01\x00a", "count is not positive"),
        (b"\x00\x01" + b"\xff" * 9 + b"\x01a", "count is not positive"),
        (b"\x00\x01" + b"\xff" * 9 + b"\x03a", "longer than 64 bits"),
        (b"\x00\x01" + b"\xff" * 10 + b"\x01a", "longer than 64 bits"),
        (b"\x01\x01\x01a", "shares more"),
        (b"\x00\x00\x01", "ascending"),
        (b"\x00\x01\x01a\x00\x01\x01a", "ascending"),
        (b"\x00\x01\x01b\x00\x01\x01a", "ascending"),
        (b"\x00\x02\x01ab\x01\x00\x01", "ascending"),
        (b"\x00" + b"\xff" * 9 + b"\x01\x01a", "ends inside a key"),
    ],
)
def test_damaged_sections_are_refused(section: bytes, problem: str) -> None:
    for chunk in (1, 2, 100):
        with pytest.raises(ValueError, match=f"section 1 of the counts is damaged: .*{problem}"):
            merged([b"\x00\x01\x01a", section], chunk)


@settings(max_examples=times(3))
@given(
    mapping=st.dictionaries(keys, st.integers(1, 300), min_size=1, max_size=8),
    where=st.floats(0, 1, exclude_max=True),
    change=st.integers(1, 255),
    cut=st.booleans(),
)
def test_a_changed_section_is_refused_or_still_in_order(
    mapping: dict[bytes, int], where: float, change: int, cut: bool
) -> None:
    section = bytearray(table_of(list(mapping.items())).pack_sections(1)[0])
    place = int(where * len(section))
    if cut:
        del section[place:]
    else:
        section[place] ^= change
    try:
        rows = merged([bytes(section)])
    except ValueError as error:
        assert "damaged" in str(error)
        return
    found = [key for key, _ in rows]
    assert found == sorted(set(found))
    assert all(key and n > 0 for key, n in rows)


def test_an_error_while_reading_a_section_is_passed_on() -> None:
    def refill(source: int) -> bytes:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        CountMerger(1, refill)
    first = [b"\x00\x01\x01a"]

    def refill_once(source: int) -> bytes:
        if first:
            return first.pop()
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        CountMerger(1, refill_once).read(10, 1000)
