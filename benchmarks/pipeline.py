"""How fast is the command line, each stage a whole process, and how much memory does it take?

`beam-bpe train` is set beside gigatoken's training called in a process that runs already, and
`beam-bpe encode` beside a script of gigatoken and pyarrow, encode_to_parquet.py. Memory is the
resident memory of the process tree, at its largest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import corpora
import numpy as np
import peers
import pyarrow.parquet as pq
import yaml
from corpora import QUICK_VOCAB_SIZE, SEPARATOR, VOCAB_SIZE, Text
from measure import OURS, Case, Outcome, child_main

SIDES_IN_ORDER = (OURS, "gigatoken")
_RANGE_BYTES = 16 << 20
_POLL_SECONDS = 0.02


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[tuple[Case, Sequence[str]]]:
    """What is measured, each with the sides that are only stated."""
    size = QUICK_VOCAB_SIZE if quick else VOCAB_SIZE
    text = corpora.joined(texts, quick=quick)
    tokenizer = str(corpora.MADE / f"{text.name}-{size}")
    for stage in ("train", "encode"):
        work = f"beam-bpe {stage}, whole process"
        options = {"stage": stage, "vocab_size": size, "tokenizer": tokenizer}
        yield Case(work, text.name, text.path, text.bytes, 2, options), ()


def prepare(case: Case) -> None:
    """Makes the tokenizer that both sides encode with."""
    if case.options["stage"] == "encode":
        from bpe_core import count_pretokens, train_from_counts

        special = SEPARATOR.decode()
        counts = count_pretokens(Path(case.path), special_tokens=[special])
        result = train_from_counts(
            counts, case.options["vocab_size"], [special], tie_break="huggingface"
        )
        result.tokenizer().save(case.options["tokenizer"])


def run_ours(case: Case) -> Outcome:
    stage = case.options["stage"]
    special = SEPARATOR.decode()
    with tempfile.TemporaryDirectory(dir=corpora.MADE) as directory:
        output = Path(directory) / "output"
        tokenizer: dict[str, object] = {"path": case.options["tokenizer"]}
        if stage == "train":
            tokenizer = {"vocab_size": case.options["vocab_size"], "tie_break": "huggingface"}
            tokenizer["special_tokens"] = [special]
        config = {
            "output": str(output),
            "input": {"files": [case.path], "separator": special, "range_bytes": _RANGE_BYTES},
            "tokenizer": tokenizer,
            "encode": {"append": None},
            "beam": {"workers": case.threads},
        }
        path = Path(directory) / "build.yaml"
        path.write_text(yaml.safe_dump(config))
        command = [str(Path(sys.executable).with_name("beam-bpe")), stage, str(path)]
        seconds, peak = run_and_watch(command)
        outputs = _read_merges(output) if stage == "train" else _read_tokens(output / "tokens")
    return Outcome({stage: seconds}, lambda: outputs, {stage: peak})


def _read_merges(output: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    from bpe_core import BPETokenizer

    return {"merges": BPETokenizer.load(output / "tokenizer").merges}


def _read_tokens(directory: Path) -> dict[str, np.ndarray]:
    files = sorted(directory.glob("*.parquet"))
    tables = [pq.read_table(file, columns=["input_ids"]) for file in files]
    columns = [table["input_ids"].combine_chunks() for table in tables]
    return {
        "ids": np.concatenate([_values(column.flatten()) for column in columns]),
        "lengths": np.concatenate([_values(column.value_lengths()) for column in columns]),
    }


def _values(array: object) -> np.ndarray:
    return np.asarray(array).astype(np.int64)


def run_gigatoken(case: Case) -> Outcome:
    if case.options["stage"] == "train":
        run = peers.train_gigatoken(case.path, case.options["vocab_size"])
        return Outcome({"train": run.seconds}, lambda: {"merges": run.merges}, {"train": peak()})
    script = Path(__file__).with_name("encode_to_parquet.py")
    with tempfile.TemporaryDirectory(dir=corpora.MADE) as directory:
        tokenizer = str(Path(case.options["tokenizer"]) / "tokenizer.json")
        output = Path(directory) / "tokens.parquet"
        command = [sys.executable, str(script), tokenizer, case.path, str(output)]
        seconds, peak_bytes = run_and_watch(command)
        outputs = _read_tokens(Path(directory))
    return Outcome({"encode": seconds}, lambda: outputs, {"encode": peak_bytes})


def peak() -> int:
    """This process's largest resident memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def run_and_watch(command: Sequence[str]) -> tuple[float, int]:
    """Seconds of a command, and the largest resident memory of it and its descendants together."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    largest = 0
    finished = threading.Event()

    def watch() -> None:
        nonlocal largest
        while not finished.wait(_POLL_SECONDS):
            largest = max(largest, tree_bytes(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, errors = process.communicate()
    seconds = time.perf_counter() - begun
    finished.set()
    watcher.join()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{errors.decode()}")
    return seconds, largest


def tree_bytes(root: int) -> int:
    """Resident memory of a process and its descendants; pages that they share count once each."""
    total = 0
    pending = [root]
    while pending:
        process = Path("/proc") / str(pending.pop())
        try:
            for line in (process / "status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:", "RssFile:")):
                    total += int(line.split()[1]) * 1024
            for task in (process / "task").iterdir():
                pending += map(int, (task / "children").read_text().split())
        except OSError:  # it has ended
            continue
    return total


SIDES = {OURS: run_ours, "gigatoken": run_gigatoken}

if __name__ == "__main__":
    child_main(SIDES, sys.argv[1:])
