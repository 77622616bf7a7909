"""How much does a tiny document cost, and how much a tiny file?

50 million documents of 20 bytes, one per line, and a million files of 1 kB, one document each.
Complete processes are measured, including planning. Costs are per document or per file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import command
import corpora
from corpora import QUICK_VOCAB_SIZE, Text
from measure import OURS, Case, Outcome, script_main

_DOCUMENTS = 50_000_000
_FILES = 1_000_000
_DOCUMENT_BYTES = 20
_FILE_BYTES = 1000
_QUICK_SHARE = 200
_FILES_IN_A_FOLDER = 1000
_LINES_AT_ONCE = 1_000_000


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure."""
    share = _QUICK_SHARE if quick else 1
    for item, number, size in (
        ("document", _DOCUMENTS // share, _DOCUMENT_BYTES),
        ("file", _FILES // share, _FILE_BYTES),
    ):
        made = corpora.MADE / f"tiny-{item}s-{number}"
        pattern, separator = ("*/*", None) if item == "file" else ("*", "\n")
        for stage in ("count", "encode"):
            yield Case(
                work=f"beam-bpe {stage}, {number:,} {item}s of {size:,} bytes",
                text=texts[0].name,
                path=texts[0].path,
                bytes=number * size,
                threads=2,
                sides=(OURS,),
                items=(number, item),
                options={
                    "stage": stage,
                    "vocab_size": QUICK_VOCAB_SIZE,
                    "made": str(made),
                    "input": {
                        "files": [str(made / pattern)],
                        "separator": separator,
                        "range_bytes": "64MiB",
                    },
                },
            )


def prepare(case: Case) -> None:
    """Write the corpus, and train the tokenizer to encode with."""
    if case.options["stage"] == "encode":
        command.make_tokenizer(case)
    made = Path(case.options["made"])
    if made.is_dir():
        return
    unfinished = made.with_name(f"{made.name}-unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    write = _write_files if case.items[1] == "file" else _write_documents
    write(unfinished, _ascii_of(case.path), case.items[0])
    unfinished.rename(made)


def _ascii_of(path: str) -> bytes:
    """Return the text without line breaks and characters of several bytes."""
    text = Path(path).read_bytes().replace(corpora.SEPARATOR, b" ").replace(b"\n", b" ")
    return text.decode().encode("ascii", "ignore")


def _write_documents(directory: Path, text: bytes, number: int) -> None:
    starts = range(0, len(text) - _DOCUMENT_BYTES, _DOCUMENT_BYTES)
    lines = [text[start : start + _DOCUMENT_BYTES] + b"\n" for start in starts[:_LINES_AT_ONCE]]
    with (directory / "lines.txt").open("wb") as file:
        for begin in range(0, number, len(lines)):
            file.writelines(lines[: number - begin])


def _write_files(directory: Path, text: bytes, number: int) -> None:
    for index in range(number):
        folder = directory / f"{index // _FILES_IN_A_FOLDER:04d}"
        if index % _FILES_IN_A_FOLDER == 0:
            folder.mkdir()
        start = index * _FILE_BYTES % (len(text) - _FILE_BYTES)
        number_of_file = os.open(f"{folder}/{index:07d}.txt", os.O_CREAT | os.O_WRONLY)
        os.write(number_of_file, text[start : start + _FILE_BYTES])
        os.close(number_of_file)


def run_ours(case: Case) -> Outcome:
    stage = case.options["stage"]
    with command.scratch() as directory:
        run = command.beam_bpe(stage, case, case.threads, Path(directory))
    return Outcome({stage: run.seconds}, dict, {stage: run.peak_bytes})


SIDES = {OURS: run_ours}

if __name__ == "__main__":
    script_main(SIDES)
