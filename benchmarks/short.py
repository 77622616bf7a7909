"""How long does it take to encode one short string?

The strings are consecutive parts of the text; calls are timed in batches. The first use is that of
a new tokenizer, which has not seen the strings. The steady state is its third pass over them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import corpora
import peers
from corpora import Text, Vocabulary
from encode import of_lists
from measure import OURS, Case, Outcome, Target, script_main

_SIZES = (20, 200, 2000)  # bytes
_BATCHES = 40
_CALLS = 50  # per batch


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases: English strings with every vocabulary."""
    text = texts[0]
    for vocabulary in corpora.vocabularies(text)[: 1 if quick else None]:
        yield Case(
            work=f"encode one string, {vocabulary.name}, STEP",
            text=text.name,
            path=text.path,
            bytes=text.bytes,
            threads=1,
            sides=(OURS, "tiktoken"),
            targets={"tiktoken": [Target(2.0, 1.5)]},
            unit="µs",
            headline=["200 bytes, first use", "200 bytes, steady"]
            if vocabulary.name == "o200k"
            else [],
            options=corpora.as_json(vocabulary),
        )


def strings(data: bytes, size: int, count: int) -> list[str]:
    """Return consecutive strings of about `size` bytes each, cut between characters."""
    made = []
    end = 0
    for _ in range(count):
        begin, end = end, end + size
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        made.append(data[begin:end].decode())
    return made


def _latencies(
    case: Case, new_encode: Callable[[Vocabulary], Callable[[str], Sequence[int]]]
) -> Outcome:
    data = Path(case.path).read_bytes().replace(corpora.SEPARATOR, b"\n")
    vocabulary = Vocabulary(**case.options)
    seconds: dict[str, float] = {}
    encoded: list[Sequence[int]] = []
    for size in _SIZES:
        texts = strings(data, size, _BATCHES * _CALLS)
        batches = [texts[begin : begin + _CALLS] for begin in range(0, len(texts), _CALLS)]
        encode = new_encode(vocabulary)
        seconds[f"{size:,} bytes, first use"] = _median_call(encode, batches)
        encoded += map(encode, texts)
        seconds[f"{size:,} bytes, steady"] = _median_call(encode, batches)
    return Outcome(seconds, lambda: of_lists(encoded))


def _median_call(encode: Callable[[str], Sequence[int]], batches: list[list[str]]) -> float:
    """Return the seconds per call in the median batch."""
    seconds = []
    for batch in batches:
        begun = time.perf_counter()
        for text in batch:
            encode(text)
        seconds.append((time.perf_counter() - begun) / len(batch))
    return statistics.median(seconds)


def _new_ours(vocabulary: Vocabulary) -> Callable[[str], Sequence[int]]:
    return vocabulary.load().encode


def _new_tiktoken(vocabulary: Vocabulary) -> Callable[[str], Sequence[int]]:
    encode: Callable[[str], Sequence[int]] = peers.tiktoken_encoding(vocabulary).encode_ordinary
    return encode


SIDES = {
    OURS: lambda case: _latencies(case, _new_ours),
    "tiktoken": lambda case: _latencies(case, _new_tiktoken),
}

if __name__ == "__main__":
    script_main(SIDES)
