"""How fast are merges learned from existing counts?

For gigatoken: the time of its training minus the counting phase that it logs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import peers
from corpora import QUICK_VOCAB_SIZE, SEPARATOR, VOCAB_SIZE, Text
from measure import OURS, Case, Outcome, Target, script_main

from bpe_core import count_pretokens, train_from_counts


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure."""
    size = QUICK_VOCAB_SIZE if quick else VOCAB_SIZE
    for text in texts:
        yield Case(
            work=f"learn {size:,} ids from counts",
            text=text.name,
            path=text.path,
            bytes=text.bytes,
            threads=1,
            targets={"gigatoken": [Target(4.0, 3.0)]},
            unit="s",
            headline=["learn"] if text is texts[0] else [],
            options={"vocab_size": size},
        )


def learn_ours(case: Case) -> Outcome:
    special = SEPARATOR.decode()
    counts = count_pretokens(Path(case.path), special_tokens=[special], num_threads=1)
    begun = time.perf_counter()
    result = train_from_counts(
        counts, case.options["vocab_size"], [special], tie_break="huggingface"
    )
    result.vocab  # noqa: B018 - timed, because gigatoken returns the vocabulary, too
    seconds = time.perf_counter() - begun
    return Outcome({"learn": seconds}, lambda: {"merges": result.merges})


def learn_gigatoken(case: Case) -> Outcome:
    run = peers.train_gigatoken(Path(case.path).read_bytes(), case.options["vocab_size"])
    return Outcome({"learn": run.seconds - run.count_seconds}, lambda: {"merges": run.merges})


SIDES = {OURS: learn_ours, "gigatoken": learn_gigatoken}

if __name__ == "__main__":
    script_main(SIDES)
