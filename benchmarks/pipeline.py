"""How fast is each stage as a separate command, and how much memory does it use?

`beam-bpe train` is compared with gigatoken's training in a process that is already running, and
`beam-bpe encode` with encode_to_parquet.py, a script of gigatoken and pyarrow. Memory is the peak
of the resident memory of the process tree.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import command
import corpora
import numpy as np
import peers
import pyarrow.parquet as pq
from corpora import QUICK_VOCAB_SIZE, VOCAB_SIZE, Text
from measure import OURS, Case, Limit, Outcome, Outputs, Target, peak, script_main

from bpe_core import BPETokenizer

_TARGETS = {
    "train": [Target(1.5, 1.2)],
    "encode": [Target(2.0, 1.5), Target(10, 10, "peak_bytes")],
}
_LIMITS = {"train": Limit(600_000_000), "encode": Limit(500_000_000)}


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure."""
    text = corpora.large(texts) if not quick else texts[0]
    for stage, targets in _TARGETS.items():
        yield Case(
            work=f"beam-bpe {stage}, whole process",
            text=text.name,
            path=text.path,
            bytes=text.bytes,
            threads=2,
            targets={"gigatoken": targets},
            limits=[_LIMITS[stage]],
            headline=[stage],
            options={"stage": stage, "vocab_size": QUICK_VOCAB_SIZE if quick else VOCAB_SIZE},
        )


def prepare(case: Case) -> None:
    """Train the tokenizer that both sides encode with."""
    if case.options["stage"] == "encode":
        command.make_tokenizer(case)


def run_ours(case: Case) -> Outcome:
    stage = case.options["stage"]
    scratch = command.scratch()
    run = command.beam_bpe(stage, case, case.threads, Path(scratch.name))

    def outputs() -> Outputs:
        output = Path(scratch.name) / "output"
        if stage == "train":
            return {"merges": BPETokenizer.load(output / "tokenizer").merges}
        return _read_tokens(output / "tokens")

    return Outcome({stage: run.seconds}, outputs, {stage: run.peak_bytes})


def _read_tokens(directory: Path) -> dict[str, np.ndarray]:
    """Return the rows in the order of the documents in the text."""
    files = sorted(set(directory.glob("*.parquet")) - set(directory.glob("statistics*")))
    table = pq.ParquetDataset(files).read(["input_ids", "num_bytes", "offset", "part"])
    table = table.sort_by([("offset", "ascending"), ("part", "ascending")])
    ids = [np.asarray(chunk.flatten()) for chunk in table["input_ids"].chunks]
    return {
        "ids": np.concatenate(ids),
        "lengths": np.asarray(table["input_ids"].combine_chunks().value_lengths()),
        "num_bytes": np.asarray(table["num_bytes"]),
        "offset": np.asarray(table["offset"]),
    }


def run_gigatoken(case: Case) -> Outcome:
    if case.options["stage"] == "train":
        training = peers.train_gigatoken(case.path, case.options["vocab_size"])
        return Outcome(
            {"train": training.seconds}, lambda: {"merges": training.merges}, {"train": peak()}
        )
    script = str(Path(__file__).with_name("encode_to_parquet.py"))
    tokenizer = str(command.tokenizer_directory(case) / "tokenizer.json")
    scratch = command.scratch()
    run = command.run_and_watch([sys.executable, script, tokenizer, case.path, scratch.name])
    return Outcome(
        {"encode": run.seconds},
        lambda: _read_tokens(Path(scratch.name)),
        {"encode": run.peak_bytes},
    )


SIDES = {OURS: run_ours, "gigatoken": run_gigatoken}

if __name__ == "__main__":
    script_main(SIDES)
