"""How fast are pre-tokens counted, from memory?

gigatoken counts as the first phase of its training and logs that phase's time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import peers
from corpora import SEPARATOR, Text
from measure import OURS, Case, Outcome, child_main

from bpe_core._native import PretokenTable

SIDES_IN_ORDER = (OURS, "gigatoken")


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[tuple[Case, Sequence[str]]]:
    """What is measured, each with the sides that are only stated."""
    for text in texts:
        for threads in (1, 2):
            yield Case("count pre-tokens, gpt2", text.name, text.path, text.bytes, threads), ()


def count_ours(case: Case) -> Outcome:
    data = Path(case.path).read_bytes()
    cuts = [0]
    for part in range(1, case.threads):
        place = data.find(SEPARATOR, len(data) * part // case.threads)
        cuts.append(place if place >= 0 else len(data))
    cuts.append(len(data))
    begun = time.perf_counter()
    tables = [PretokenTable("gpt2", [SEPARATOR]) for _ in range(case.threads)]

    def count(i: int) -> None:
        tables[i].add_documents(data, np.array(cuts[i : i + 1]), np.array(cuts[i + 1 : i + 2]))

    threads = [threading.Thread(target=count, args=(i,)) for i in range(1, case.threads)]
    for thread in threads:
        thread.start()
    count(0)
    for thread in threads:
        thread.join()
    table, *others = tables
    for other in others:
        table.add_table(other)
    seconds = time.perf_counter() - begun

    def outputs() -> dict[str, list[tuple[bytes, int]]]:
        keys, offsets, counts = table.columns()
        flat = keys.tobytes()
        ends = offsets.tolist()
        spans = zip(ends[:-1], ends[1:], counts.tolist(), strict=True)
        return {"counts": [(flat[begin:end], count) for begin, end, count in spans]}

    return Outcome({"count": seconds}, outputs)


def count_gigatoken(case: Case) -> Outcome:
    from gigatoken.gigatoken_rs import pretokenized_counts

    data = Path(case.path).read_bytes()
    run = peers.train_gigatoken(data, 300)
    return Outcome(
        {"count": run.count_seconds},
        lambda: {"counts": sorted(pretokenized_counts(data, SEPARATOR))},
    )


SIDES = {OURS: count_ours, "gigatoken": count_gigatoken}

if __name__ == "__main__":
    child_main(SIDES, sys.argv[1:])
