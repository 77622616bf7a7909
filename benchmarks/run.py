"""Runs all benchmarks; writes results.json and the table in README.md.

python benchmarks/run.py                   everything, about a quarter of an hour
python benchmarks/run.py --quick           on little text, in under two minutes; writes nothing
python benchmarks/run.py --only encode     one question; writes nothing
"""

from __future__ import annotations

import argparse
import datetime
import json

import corpora
import count
import encode
import learn
import measure
import pipeline
import table
import train

QUESTIONS = (count, learn, train, encode, pipeline)
ROUNDS = 5
QUICK_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [question.__name__ for question in QUESTIONS]
    parser.add_argument("--quick", action="store_true", help="on little text; writes nothing")
    parser.add_argument("--only", choices=names, help="one question; writes nothing")
    arguments = parser.parse_args()
    machine = measure.machine()
    texts = corpora.texts(quick=arguments.quick)
    rows = []
    for question in QUESTIONS:
        if arguments.only not in (None, question.__name__):
            continue
        chosen = texts[:1] if arguments.quick else texts
        for case, stated in question.cases(chosen, quick=arguments.quick):
            if question is pipeline:
                pipeline.prepare(case)
            new = measure.measure(
                question,
                case,
                question.SIDES_IN_ORDER,
                stated=stated,
                rounds=QUICK_ROUNDS if arguments.quick else ROUNDS,
            )
            table.print_rows(new)
            rows += [{"question": question.__name__, **row} for row in new]
    if arguments.quick or arguments.only:
        return
    results = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine,
        "versions": measure.versions(),
        "texts": {text.name: text.bytes for text in texts},
        "rows": rows,
    }
    path = table.HERE / "results.json"
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    readme = table.HERE / "README.md"
    readme.write_text(table.with_table(readme.read_text(), results))


if __name__ == "__main__":
    main()
