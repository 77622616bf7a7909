"""How much faster are two workers than one at counting and encoding through Beam?

Both the complete process, which starts Python and Beam first, and the duration that the stage
records are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import command
import corpora
from corpora import QUICK_VOCAB_SIZE, VOCAB_SIZE, Text
from measure import Case, Outcome, Target, script_main

_OUTPUTS = {"count": "counts", "encode": "tokens"}
_SIDES = {"2 workers": 2, "1 worker": 1}


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure."""
    text = corpora.large(texts) if not quick else texts[0]
    for stage in ("count",) if quick else _OUTPUTS:
        yield Case(
            work=f"beam-bpe {stage}, 2 workers, STEP",
            text=text.name,
            path=text.path,
            bytes=text.bytes,
            threads=2,
            sides=tuple(_SIDES),
            targets={"1 worker": [Target(1.8, 1.6)]},
            options={"stage": stage, "vocab_size": QUICK_VOCAB_SIZE if quick else VOCAB_SIZE},
        )


def prepare(case: Case) -> None:
    """Train the tokenizer to encode with."""
    if case.options["stage"] == "encode":
        command.make_tokenizer(case)


def _run(workers: int) -> Callable[[Case], Outcome]:
    def run(case: Case) -> Outcome:
        stage = case.options["stage"]
        with command.scratch() as directory:
            watched = command.beam_bpe(stage, case, workers, Path(directory))
            made = Path(directory) / "output" / _OUTPUTS[stage]
            seconds = {
                "whole process": watched.seconds,
                "the stage": command.stage_seconds(made),
            }
            checksums = command.file_checksums(made)
        return Outcome(
            seconds,
            lambda: {"files": checksums},
            dict.fromkeys(seconds, watched.peak_bytes),
        )

    return run


SIDES = {side: _run(workers) for side, workers in _SIDES.items()}

if __name__ == "__main__":
    script_main(SIDES)
