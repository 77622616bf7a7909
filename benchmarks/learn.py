"""How fast are merges learned from counts that are there?

gigatoken: its whole training less the counting phase that it logs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import peers
from corpora import QUICK_VOCAB_SIZE, SEPARATOR, VOCAB_SIZE, Text
from measure import OURS, Case, Outcome, child_main

from bpe_core import count_pretokens, train_from_counts

SIDES_IN_ORDER = (OURS, "gigatoken")


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[tuple[Case, Sequence[str]]]:
    """What is measured, each with the sides that are only stated."""
    size = QUICK_VOCAB_SIZE if quick else VOCAB_SIZE
    work = f"learn {size:,} ids from counts"
    for text in texts:
        yield Case(work, text.name, text.path, text.bytes, 1, {"vocab_size": size}), ()


def learn_ours(case: Case) -> Outcome:
    special = SEPARATOR.decode()
    counts = count_pretokens(Path(case.path), special_tokens=[special], num_threads=1)
    begun = time.perf_counter()
    result = train_from_counts(
        counts, case.options["vocab_size"], [special], tie_break="huggingface"
    )
    result.vocab  # noqa: B018 - gigatoken returns it
    seconds = time.perf_counter() - begun
    return Outcome({"learn": seconds}, lambda: {"merges": result.merges})


def learn_gigatoken(case: Case) -> Outcome:
    run = peers.train_gigatoken(Path(case.path).read_bytes(), case.options["vocab_size"])
    return Outcome({"learn": run.seconds - run.count_seconds}, lambda: {"merges": run.merges})


SIDES = {OURS: learn_ours, "gigatoken": learn_gigatoken}

if __name__ == "__main__":
    child_main(SIDES, sys.argv[1:])
