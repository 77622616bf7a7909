"""How much do several sizes of the vocabulary cost, beside the largest one alone?

Five tokenizers, without and with writing them in all formats, and a curve of a hundred sizes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from corpora import QUICK_VOCAB_SIZE, SEPARATOR, Text
from measure import OURS, Case, Outcome, Target, script_main

from bpe_core import (
    PretokenCounts,
    TrainingResult,
    count_pretokens,
    measure_vocabulary_sizes,
    train_from_counts,
)

ALONE = "largest size alone"
_SIZE = 128_000
_CURVE_SIZES = 100
_SPECIAL = SEPARATOR.decode()
# Work, and the target: the time of the largest size alone, divided by ours.
_WORKS = {
    "learn 5 sizes": 1 / 1.3,
    "learn and write 5 sizes": 1 / 1.3,
    f"learn, measure {_CURVE_SIZES} sizes": 1 / 2,
}


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure."""
    size = QUICK_VOCAB_SIZE if quick else _SIZE
    for text in texts:
        for work, least in _WORKS.items():
            yield Case(
                work=f"{work} up to {size:,} ids",
                text=text.name,
                path=text.path,
                bytes=text.bytes,
                threads=2,  # learning uses one of them
                sides=(OURS, ALONE),
                targets={ALONE: [Target(least, least)]},
                unit="s",
                options={"vocab_size": size, "work": work},
            )


def train_all(case: Case) -> Outcome:
    counts = _count(case)
    largest = case.options["vocab_size"]
    sizes = [largest >> shift for shift in (4, 3, 2, 1, 0)]
    measures = "measure" in case.options["work"]
    begun = time.perf_counter()
    results = train_from_counts(counts, sizes[-1:] if measures else sizes, [_SPECIAL])
    if measures:
        reached = len(results[0].model)
        step = (reached - 300) / _CURVE_SIZES
        curve = [300 + round(step * i) for i in range(1, _CURVE_SIZES + 1)]
        tokenizer = results[0].tokenizer()
        measure_vocabulary_sizes(tokenizer, counts, curve, num_threads=case.threads)
    if "write" in case.options["work"]:
        _write(results)
    seconds = time.perf_counter() - begun
    return Outcome({"train": seconds}, lambda: {"merges": results[-1].merges})


def train_largest(case: Case) -> Outcome:
    counts = _count(case)
    begun = time.perf_counter()
    result = train_from_counts(counts, case.options["vocab_size"], [_SPECIAL])
    if "write" in case.options["work"]:
        _write([result])
    seconds = time.perf_counter() - begun
    return Outcome({"train": seconds}, lambda: {"merges": result.merges})


def _count(case: Case) -> PretokenCounts:
    return count_pretokens(Path(case.path), special_tokens=[_SPECIAL])


def _write(results: Sequence[TrainingResult]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for result in results:
            result.tokenizer().save(Path(directory, str(len(result.model))))


SIDES = {OURS: train_all, ALONE: train_largest}

if __name__ == "__main__":
    script_main(SIDES)
