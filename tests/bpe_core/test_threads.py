"""Objects that several threads use at once give the results of one thread.

These tests need few packages, so that they can run where others cannot: in a free-threaded Python.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import BPETokenizer, train_from_iterator
from bpe_core._native import CountMerger, MergeLearner, OrderedPretokens, PretokenTable

T = TypeVar("T")

THREADS = 8
TEXT = (Path(__file__).parents[2] / "examples/data/kjv-00.txt").read_text("utf-8")[:200_000]
LINES = TEXT.encode().splitlines(keepends=True)


def together(work: Callable[[int], T]) -> list[T]:
    """Return what the work of each number returns, all begun at the same time."""
    start = Barrier(THREADS)

    def wait_and_work(number: int) -> T:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(wait_and_work, range(THREADS)))


def spans_of(documents: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    ends = np.cumsum([len(document) for document in documents])
    return b"".join(documents), np.append(0, ends[:-1]), ends


def to_counts(columns: tuple[np.ndarray, np.ndarray, np.ndarray]) -> dict[bytes, int]:
    keys, offsets, counts = columns
    data = keys.tobytes()
    return {
        data[begin:end]: count
        for begin, end, count in zip(
            offsets[:-1].tolist(), offsets[1:].tolist(), counts.tolist(), strict=True
        )
    }


@cache
def tokenizer() -> BPETokenizer:
    return train_from_iterator([TEXT], 700, ["<|end|>"]).tokenizer()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PretokenTable, OrderedPretokens])
def test_threads_count_into_one_table(kind: type[PretokenTable]) -> None:
    alone, shared = kind("gpt2", []), kind("gpt2", [])
    alone.add_documents(*spans_of(LINES))

    parts = [LINES[number::THREADS] for number in range(THREADS)]

    def count(number: int) -> None:
        for begin in range(0, len(parts[number]), 50):
            shared.add_documents(*spans_of(parts[number][begin : begin + 50]))
            assert len(shared) > 0 and shared.memory_bytes > 0
        shared.columns()

    together(count)
    assert to_counts(shared.columns()) == to_counts(alone.columns())


@pytest.mark.slow
def test_tables_are_added_to_each_other_in_any_order() -> None:
    tables = [PretokenTable("gpt2", []) for _ in range(2)]
    for table in tables:
        table.add_documents(*spans_of(LINES[:200]))
    rows = len(tables[0])
    together(lambda number: tables[number % 2].add_table(tables[1 - number % 2]))
    assert [len(table) for table in tables] == [rows, rows]
    tables[0].add_table(tables[0])
    assert len(tables[0]) == rows


def test_threads_learn_the_merges_of_one() -> None:
    table = PretokenTable("gpt2", [])
    table.add_documents(*spans_of(LINES))
    alone, shared = (MergeLearner(*table.columns(), "lexicographic") for _ in range(2))
    alone.learn(600, 1_000)

    def learn(_: int) -> None:
        while shared.learn(600, 5) and shared.num_symbols < 600:
            assert shared.memory_bytes > 0 and len(shared.merges()[0]) > 0

    together(learn)
    assert [column.tolist() for column in shared.merges()] == [
        column.tolist() for column in alone.merges()
    ]


def test_threads_share_a_merger_of_counts() -> None:
    table = PretokenTable("gpt2", [])
    table.add_documents(*spans_of(LINES))
    [section] = table.pack_sections(1)
    chunks = iter([section[begin : begin + 1_000] for begin in range(0, len(section), 1_000)])
    merger = CountMerger(1, lambda _: next(chunks, b""))
    found: dict[bytes, int] = {}

    def read(_: int) -> None:
        while rows := to_counts(merger.read(100, 1 << 20)[:3]):
            found.update(rows)

    together(read)
    assert found == to_counts(table.columns())


@settings(max_examples=times(0.4))
@given(texts=st.lists(st.text(), min_size=1, max_size=20))
def test_threads_encode_as_one_does(texts: list[str]) -> None:
    texts = [*texts, TEXT[:300]]
    shared = tokenizer()
    expected = [shared.encode(text) for text in texts]
    streamed = [*shared.encode_iterable(texts)]

    def encode(number: int) -> None:
        assert [shared.encode(text) for text in texts[number:] + texts[:number]] == (
            expected[number:] + expected[:number]
        )
        assert shared.encode_batch(texts) == expected
        assert shared.decode_batch(expected) == texts
        assert [*shared.encode_iterable(texts)] == streamed

    together(encode)


def test_threads_make_the_shared_numbers_of_a_new_tokenizer() -> None:
    """Each thread meets ids for which no Python int exists yet."""
    shared = BPETokenizer.from_model(tokenizer().model)
    expected = tokenizer().encode(TEXT)
    assert together(lambda _: shared.encode(TEXT)) == [expected] * THREADS
