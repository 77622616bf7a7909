"""Run the benchmarks; write results.json and the tables made from it.

python benchmarks/run.py                         everything
python benchmarks/run.py --only encode --update  one question; the other rows stay
python benchmarks/run.py --only encode           one question; writes nothing
python benchmarks/run.py --quick                 little text, under two minutes; writes nothing
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import batch
import corpora
import count
import encode
import forms
import groups
import learn
import load
import measure
import pack
import pipeline
import scale
import short
import sizes
import table
import tiny
import train

QUESTIONS = (
    *(count, learn, sizes, train, encode, short, batch, pipeline),
    *(forms, groups, tiny, scale, pack, load),
)
QUICK_ROUNDS = 2


def main() -> None:
    """Run the benchmarks that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [question.__name__ for question in QUESTIONS]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=names,
        metavar="QUESTION",
        help=f"some questions, of {', '.join(names)}; writes nothing",
    )
    parser.add_argument("--update", action="store_true", help="with --only: write their rows")
    parser.add_argument("--quick", action="store_true", help="on little text; writes nothing")
    parser.add_argument("--rounds", type=int, help=f"samples a side, {measure.ROUNDS} by default")
    arguments = parser.parse_args()
    quick = arguments.quick
    if quick and arguments.update:
        parser.error("--update: results of --quick are not kept")
    rounds = arguments.rounds or (QUICK_ROUNDS if quick else measure.ROUNDS)
    write = arguments.update or (arguments.only == names and not quick)
    machine = measure.machine()
    texts = corpora.texts(quick=quick)
    if not quick and not corpora.CODE_CORPUS.is_file():
        print("no corpus of code: `make bench-data` fetches it; smaller texts replace it")
    for question in QUESTIONS:
        if question.__name__ in arguments.only:
            begun = time.perf_counter()
            rows = ask(question, texts, rounds, quick=quick)
            print(f"{question.__name__}: {time.perf_counter() - begun:.0f} s", flush=True)
            if write:
                save(question.__name__, rows, texts, machine)


def ask(
    question: ModuleType, texts: Sequence[corpora.Text], rounds: int, *, quick: bool
) -> list[dict[str, Any]]:
    """Measure a question; print its rows as they are finished, and return them."""
    rows = []
    for case in question.cases(texts, quick=quick):
        if hasattr(question, "prepare"):
            question.prepare(case)
        new = measure.measure(question, case, rounds)
        table.print_rows(new)
        rows += new
    return rows


def save(
    name: str,
    rows: Sequence[dict[str, Any]],
    texts: Sequence[corpora.Text],
    machine: dict[str, Any],
) -> None:
    """Replace the rows of a question in results.json, and write the tables again."""
    kept = json.loads(table.RESULTS.read_text())["rows"] if table.RESULTS.is_file() else []
    order = [question.__name__ for question in QUESTIONS]
    others = [row for row in kept if row["question"] != name and row["question"] in order]
    large = corpora.large(texts)
    results = {
        "machine": machine,
        "versions": measure.versions(),
        "texts": {text.name: text.bytes for text in (*texts, large)},
        "rows": sorted([*others, *rows], key=lambda row: order.index(row["question"])),
    }
    table.RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    for path, content in table.pages(results).items():
        path.write_text(content)


if __name__ == "__main__":
    main()
