"""How fast are pre-tokens in memory counted?

gigatoken counts in the first phase of its training and logs the time of that phase. Its training
supports only GPT-2's pattern, so the other patterns are compared with that figure.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import peers
from corpora import PATTERNS, SEPARATOR, Text
from measure import OURS, Case, Outcome, Target, script_main

from bpe_core._native import PretokenTable

_PIECE_BYTES = 4 << 20
_NOT_COMPARED = "not compared: gigatoken has gpt2 only"


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure."""
    for pattern in ("gpt2",) if quick else PATTERNS.values():
        for text in texts:
            for threads in (1, 2):
                first = pattern == "gpt2" and threads == 1
                yield Case(
                    work=f"count pre-tokens, {pattern}",
                    text=text.name,
                    path=text.path,
                    bytes=text.bytes,
                    threads=threads,
                    targets={"gigatoken": [Target(3.0, 2.2) if first else Target(2.5, 1.8)]},
                    not_compared={} if pattern == "gpt2" else {"gigatoken": _NOT_COMPARED},
                    headline=["count"] if first else [],
                    options={"pattern": pattern},
                )


def count_ours(case: Case) -> Outcome:
    data = Path(case.path).read_bytes()
    begun = time.perf_counter()
    if case.threads == 1:
        table = PretokenTable(case.options["pattern"], [SEPARATOR])
        table.add_documents(data, np.array([0]), np.array([len(data)]))
    else:
        table = _count_in_threads(data, case)
    seconds = time.perf_counter() - begun

    def outputs() -> dict[str, list[tuple[bytes, int]]]:
        keys, offsets, counts = table.columns()
        flat = keys.tobytes()
        ends = offsets.tolist()
        spans = zip(ends[:-1], ends[1:], counts.tolist(), strict=True)
        return {"counts": [(flat[begin:end], count) for begin, end, count in spans]}

    return Outcome({"count": seconds}, outputs)


def _count_in_threads(data: bytes, case: Case) -> PretokenTable:
    """Count in threads with a table each, which take chunks from a queue; add up the tables."""
    tables = [PretokenTable(case.options["pattern"], [SEPARATOR]) for _ in range(case.threads)]
    pieces: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    begin = 0
    while begin < len(data):
        end = data.find(SEPARATOR, begin + _PIECE_BYTES)
        end = len(data) if end < 0 else end
        pieces.put((begin, end))
        begin = end

    def count(table: PretokenTable) -> None:
        while True:
            try:
                begin, end = pieces.get_nowait()
            except queue.Empty:
                return
            table.add_documents(data, np.array([begin]), np.array([end]))

    threads = [threading.Thread(target=count, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table, *others = sorted(tables, key=len, reverse=True)
    for other in others:
        table.add_table(other)
    return table


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
    script_main(SIDES)
