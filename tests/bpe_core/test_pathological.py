"""Texts that are one pre-token, or nearly: exact, and in time that grows with their length."""

from __future__ import annotations

import base64
import gc
import heapq
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from core_support import published_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from pathological_texts import TEXTS
from profiles import seldom, times

from bpe_core import BPETokenizer, PretokenCounts, count_pretokens, reference, train_from_counts
from bpe_core.errors import UnknownTokenError
from bpe_core.model import TokenizerModel

Pair = reference.Pair

TIMES_ENGLISH = 20  # the most time a byte, compared with English under the pattern gpt2
TIMES_OF_FOUR = 9  # the most time for four times the text


# ---- time


def least_seconds(
    work: Callable[[Any], object], runs: int = 3, prepare: Callable[[], object] = lambda: None
) -> float:
    """What the processor takes for it in this thread, the least of several runs."""
    times = []
    gc.disable()  # a collection would be part of the time
    try:
        for _ in range(runs):
            prepared = prepare()
            begin = time.thread_time()
            work(prepared)
            times.append(time.thread_time() - begin)
    finally:
        gc.enable()
    return min(times)


def seconds_a_byte(
    text: bytes, pattern: str, model: TokenizerModel, merges: int, runs: int
) -> dict[str, float]:
    """Of counting, of counting and learning, of encoding by a new tokenizer, and of decoding."""

    def counts() -> PretokenCounts:
        return count_pretokens([text], pattern=pattern, num_threads=1)

    def tokenizer() -> BPETokenizer:
        return BPETokenizer.from_model(replace(model, pattern=pattern))

    decoder = tokenizer()
    ids = decoder.encode_to_numpy(text)
    assert decoder.decode_bytes(ids) == text
    seconds = {
        "count": least_seconds(lambda _: counts(), runs),
        "train": least_seconds(lambda _: train_from_counts(counts(), 256 + merges), runs),
        "encode": least_seconds(lambda new: new.encode_to_numpy(text), runs, prepare=tokenizer),
        "decode": least_seconds(lambda _: decoder.decode_bytes(ids), runs),
    }
    return {work: value / len(text) for work, value in seconds.items()}


def times_longer(
    name: str, model: TokenizerModel, sizes: tuple[int, int], merges: int
) -> dict[str, float]:
    """How many times the time of the smaller pre-token the larger takes."""
    small, large = (
        seconds_a_byte(TEXTS[name](size), "none", model, merges, runs=3) for size in sizes
    )
    return {work: large[work] * sizes[1] / (small[work] * sizes[0]) for work in small}


@pytest.fixture(scope="module")
def english(kjv: bytes, kjv_tokenizer: BPETokenizer) -> dict[str, float]:
    """Seconds a byte of 200 kB."""
    return seconds_a_byte(kjv[:200_000], "gpt2", kjv_tokenizer.model, 300, runs=3)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["gpt2", "none"])
@pytest.mark.parametrize("name", TEXTS)
def test_no_text_takes_much_more_time_than_english(
    name: str, pattern: str, english: dict[str, float], kjv_tokenizer: BPETokenizer
) -> None:
    found = seconds_a_byte(TEXTS[name](200_000), pattern, kjv_tokenizer.model, 300, runs=2)
    times = {work: found[work] / english[work] for work in english}
    assert max(times.values()) <= TIMES_ENGLISH, times


@pytest.mark.parametrize("name", ["one letter", "random letters", "random digits", "base64"])
def test_a_longer_pretoken_takes_time_near_its_length(
    name: str, kjv_tokenizer: BPETokenizer
) -> None:
    sizes = (100_000, 400_000)
    times = times_longer(name, kjv_tokenizer.model, sizes, merges=300)
    assert max(times.values()) <= TIMES_OF_FOUR, times


@pytest.mark.slow
def test_a_token_as_long_as_the_text_takes_time_near_its_length() -> None:
    """By the merges that were learned from the text itself: at the end it is one token."""

    def seconds(size: int) -> float:
        text = b"a" * size
        tokenizer = train_from_counts(count_pretokens([text], pattern="none"), 300).tokenizer()
        assert len(tokenizer.encode(text)) == 1
        return least_seconds(lambda _: tokenizer.encode(text))

    assert seconds(400_000) <= TIMES_OF_FOUR * seconds(100_000)


# ---- whole sizes, run by `make soak`

VOCABULARIES = {"gpt2": "r50k", "cl100k": "cl100k", "o200k": "o200k", "none": "r50k"}


@pytest.fixture(scope="module")
def long_english(
    shared_text: Callable[..., bytes], published_vocabulary: Callable[[str], Path]
) -> dict[str, float]:
    """Seconds a byte of 10 MB."""
    model = published_tokenizer("r50k", str(published_vocabulary("r50k"))).model
    return seconds_a_byte(shared_text("prose", 10_000_000), "gpt2", model, 32_000, runs=3)


@pytest.mark.soak
@pytest.mark.parametrize("pattern", VOCABULARIES)
@pytest.mark.parametrize("name", TEXTS)
def test_10_megabytes_take_no_longer_than_20_times_those_of_english(
    name: str,
    pattern: str,
    long_english: dict[str, float],
    published_vocabulary: Callable[[str], Path],
) -> None:
    vocabulary = VOCABULARIES[pattern]
    model = published_tokenizer(vocabulary, str(published_vocabulary(vocabulary))).model
    found = seconds_a_byte(TEXTS[name](10_000_000), pattern, model, 32_000, runs=2)
    times = {work: found[work] / long_english[work] for work in long_english}
    assert max(times.values()) <= TIMES_ENGLISH, times


@pytest.mark.soak
@pytest.mark.parametrize("name", TEXTS)
def test_4_megabytes_take_no_longer_than_9_times_one(
    name: str, published_vocabulary: Callable[[str], Path]
) -> None:
    model = published_tokenizer("r50k", str(published_vocabulary("r50k"))).model
    sizes = (1_000_000, 4_000_000)
    times = times_longer(name, model, sizes, merges=2_000)
    assert max(times.values()) <= TIMES_OF_FOUR, times


# ---- ids


def merged_by_a_queue(text: bytes, ranks: Mapping[Pair, int]) -> list[bytes]:
    """What `reference.apply_merges` gives, for long texts: pairs wait in a queue by rank and place.

    An entry is passed over if the pair at its place has changed since.
    """
    tokens: list[bytes | None] = [bytes([byte]) for byte in text]
    before = list(range(-1, len(text) - 1))
    after = list(range(1, len(text) + 1))
    queue = [(ranks[pair], i) for i, pair in enumerate(pairwise(tokens)) if pair in ranks]  # type: ignore[index]
    heapq.heapify(queue)

    def rank_at(i: int) -> int | None:
        if i < 0 or tokens[i] is None or after[i] == len(text):
            return None
        return ranks.get((tokens[i], tokens[after[i]]))  # type: ignore[arg-type]

    while queue:
        rank, i = heapq.heappop(queue)
        if rank_at(i) != rank:
            continue
        j = after[i]
        tokens[i], tokens[j] = tokens[i] + tokens[j], None  # type: ignore[operator]
        after[i] = after[j]
        if after[i] < len(text):
            before[after[i]] = i
        for place in (before[i], i):
            if (new := rank_at(place)) is not None:
                heapq.heappush(queue, (new, place))
    return [token for token in tokens if token is not None]


def random_merges(rng: random.Random) -> list[Pair]:
    """Of few letters, in any order: also ones whose parts come later, and several of one result."""
    tokens = [bytes([byte]) for byte in b"abcde"[: rng.choice([1, 2, 2, 3, 5])]]
    longest = rng.choice([4, 16, 64, 300, 2000])
    merges: list[Pair] = []
    for _ in range(rng.choice([3, 10, 50, 200])):
        left, right = rng.choice(tokens), rng.choice(tokens)
        if rng.random() < 0.3:
            left, right = tokens[-1], rng.choice([tokens[-1], right])
        if len(left + right) > longest or (left, right) in merges:
            continue
        merges.append((left, right))
        if left + right not in tokens:
            tokens.append(left + right)
    order = rng.random()
    if order < 0.4:
        rng.shuffle(merges)
    elif order < 0.6:
        merges.reverse()
    return merges


def text_of(merges: Sequence[Pair], size: int, rng: random.Random) -> bytes:
    """Their tokens, some repeated often, and here and there a byte that is in none."""
    tokens = sorted({token for left, right in merges for token in (left, right, left + right)})
    some = rng.sample(tokens, min(len(tokens), rng.choice([1, 2, 5, 1000])))
    text = b""
    while len(text) < size:
        repeats = rng.choice([1, 1, 1, 2, 10, 200])
        text += rng.choice(some) * repeats if rng.random() < 0.97 else b"z"
    return text[:size]


def tokenizer_of(merges: Sequence[Pair]) -> BPETokenizer:
    tokens = dict.fromkeys([bytes([byte]) for byte in range(256)])
    tokens |= dict.fromkeys(left + right for left, right in merges)
    return BPETokenizer(dict(enumerate(tokens)), merges, pattern="none")


def tokens_of(tokenizer: BPETokenizer, text: bytes) -> list[bytes]:
    return [tokenizer.vocab[token_id] for token_id in tokenizer.encode(text)]


@given(rng=st.randoms(use_true_random=False), size=st.integers(65, 900))
@settings(max_examples=times(0.6))
def test_long_pretokens_are_merged_as_the_reference_does(rng: random.Random, size: int) -> None:
    merges = random_merges(rng)
    text = text_of(merges, size, rng)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    expected = reference.apply_merges(text, ranks)
    assert merged_by_a_queue(text, ranks) == expected
    assert tokens_of(tokenizer_of(merges), text) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", seldom(range(6), 3))
def test_texts_of_many_windows_are_merged_as_in_one(seed: int) -> None:
    """Windows whose ends have to be put right are rare: of many texts, some have them."""
    rng = random.Random(seed)
    for size in [*rng.choices([300, 600, 1000, 3000], k=times(2.5)), 40_000]:
        merges = random_merges(rng)
        text = text_of(merges, size, rng)
        ranks = {pair: rank for rank, pair in enumerate(merges)}
        assert tokens_of(tokenizer_of(merges), text) == merged_by_a_queue(text, ranks), merges


def test_what_comes_much_later_can_decide_where_tokens_part() -> None:
    """The last two of ascending bytes merge first: where all others part depends on the last."""
    merges = [(bytes([byte]), bytes([byte + 1])) for byte in reversed(range(255))]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    tokenizer = tokenizer_of(merges)
    rng = random.Random(1)
    for _ in range(40):
        runs = [range(*sorted(rng.sample(range(256), 2))) for _ in range(rng.randrange(5, 40))]
        text = b"".join(map(bytes, runs))
        assert tokens_of(tokenizer, text) == merged_by_a_queue(text, ranks)


@pytest.mark.parametrize("size", [*range(250, 262), 480, 4095, 4096, 4097, 65_536, 70_001])
def test_runs_of_one_letter_are_merged_from_the_left(size: int) -> None:
    merges = [(b"a" * i, b"a" * i) for i in (1, 2)] + [(b"aaaa", b"aaa"), (b"aaa", b"a")]
    merges += [(b"aa", b"a"), (b"a" * 7, b"aaaa")]
    text = b"a" * size
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    assert tokens_of(tokenizer_of(merges), text) == merged_by_a_queue(text, ranks)


@given(
    tokens=st.lists(st.text("ab", min_size=2, max_size=9).map(str.encode), unique=True),
    text=st.lists(st.sampled_from([b"a", b"b", b"ab", b"aab", b"bbb", b"a" * 40]), min_size=100),
)
@settings(max_examples=times(0.3))
def test_tokens_with_several_splits_have_the_ids_of_the_reference(
    tokens: list[bytes], text: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {token: rank for rank, token in enumerate(tokens, 256)}
    path = tmp_path_factory.getbasetemp() / "ranks.tiktoken"
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    path.write_text("".join(lines))
    tokenizer = BPETokenizer.from_tiktoken(path, pattern="none")
    whole = b"".join(text)
    assert tokenizer.encode(whole) == reference.encode_with_ranks(
        whole.decode(), ranks, {}, pattern="none"
    )


def test_bytes_without_an_id_in_a_long_pretoken() -> None:
    vocab = {0: b"a", 1: b"b", 2: b"ab"}
    text = b"abb" * 1000 + b"zab"
    strict = BPETokenizer(vocab, [(b"a", b"b")], pattern="none")
    with pytest.raises(UnknownTokenError, match="0x7A"):
        strict.encode(text)
    lenient = BPETokenizer(vocab, [(b"a", b"b")], pattern="none", unknown_id=7)
    assert lenient.encode(text) == [2, 1] * 1000 + [7, 2]
