"""Lists of texts are encoded where they are: in all threads, without a joined copy."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import BPETokenizer
from bpe_core.errors import SpecialTokenError, UnknownTokenError

END = "<|endoftext|>"
# Of one, two and four bytes a character in memory; with lone surrogates, pairs and a special token.
PARTS = ["low", " lower", "\n", "é", "ÿ1", "中文", "Ω", "😀", "\ud83d", "\ude00", "\udc00a", END]
# Longer than what is copied at a time, and than a thread's run.
LONG = ["low lower " * 7_000, "lowé " * 14_000, "中文 low" * 9_000, "😀 low" * 120_000]


@pytest.fixture(scope="module")
def tokenizer(kjv_tokenizer: BPETokenizer) -> BPETokenizer:
    return kjv_tokenizer


@pytest.mark.slow
@given(
    texts=st.lists(st.lists(st.sampled_from(PARTS), max_size=6).map("".join), max_size=30),
    num_threads=st.sampled_from([1, 2, 3]),
)
@settings(max_examples=times(20))
def test_texts_of_a_list_have_the_ids_of_each_text(
    tokenizer: BPETokenizer, texts: list[str], num_threads: int
) -> None:
    expected = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts, num_threads=num_threads) == expected
    mixed = [text.encode("utf-8", "replace") if i % 3 else text for i, text in enumerate(texts)]
    ids, offsets = tokenizer.encode_batch_to_numpy(mixed, num_threads=num_threads)
    assert ids.dtype == np.uint32
    assert ids.tolist() == [i for text in mixed for i in tokenizer.encode(text)]
    assert np.diff(offsets).tolist() == [len(tokenizer.encode(text)) for text in mixed]


@pytest.mark.slow
def test_long_and_short_texts_in_any_order(tokenizer: BPETokenizer) -> None:
    texts = [*LONG, *PARTS * 500, *LONG[::-1], ""]
    random.Random(1).shuffle(texts)
    expected = list(map(tokenizer.encode, texts))
    for num_threads in (1, 2, 5):
        assert tokenizer.encode_batch(tuple(texts), num_threads=num_threads) == expected
        lengths = tokenizer.count_tokens_batch(iter(texts), num_threads=num_threads)
        assert lengths.tolist() == list(map(len, expected))


def test_special_tokens_and_errors_are_those_of_each_text() -> None:
    tokenizer = BPETokenizer({i: bytes([i]) for i in range(128)}, [], [END])
    assert tokenizer.encode_batch([END, "a"], allowed_special="none")[1] == [97]
    assert tokenizer.encode_batch([END, "a"], allowed_special={END}) == [[128], [97]]
    with pytest.raises(SpecialTokenError, match="document 1, byte 1"):
        tokenizer.encode_batch(["a", f"a{END}"], allowed_special="none_raise")
    with pytest.raises(UnknownTokenError, match="0xC3"):
        tokenizer.encode_batch(["a", "é"])
    with pytest.raises(TypeError, match="documents: expected a text as str or bytes, found int"):
        tokenizer.encode_batch(["a", 5])  # type: ignore[list-item]


def test_a_list_may_change_meanwhile(tokenizer: BPETokenizer) -> None:
    texts = [f"low lower {i}é" for i in range(20_000)]
    expected = tokenizer.encode_batch(texts)
    going_on = threading.Event()

    def change() -> None:
        while not going_on.is_set():
            texts[:] = [f"{text}" for text in reversed(texts)]

    other = threading.Thread(target=change)
    other.start()
    try:
        found = tokenizer.encode_batch(texts, num_threads=2)
    finally:
        going_on.set()
        other.join()
    assert found in (expected, expected[::-1])


_PEAK = """
import resource, sys
from bpe_core import BPETokenizer
tokenizer = BPETokenizer.load(sys.argv[1])
texts = [f"{i} And God said unto them " * 1_000 for i in range(2_000)]
size = sum(map(len, texts))
tokenizer.count_tokens_batch(texts[:200])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = tokenizer.encode_batch_to_numpy(texts)[0]
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(size, len(ids) * 4, (after - before) * 1024)
"""


@pytest.mark.process
@pytest.mark.slow
def test_texts_are_not_copied(tokenizer: BPETokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    size, ids, grown = map(int, done.stdout.split())
    assert grown < ids + size / 4
