"""How much time and memory does it take to train from very many distinct pre-tokens?

    .venv/bin/python benchmarks/many_pretokens.py                    200 million, in eight files
    .venv/bin/python benchmarks/many_pretokens.py --distinct 1000000

It writes files of synthetic counts and runs `beam-bpe counts merge`, `counts prune --min-count 2`
and `train` on them. Pre-tokens are a space and eight pseudorandom letters; a twentieth of each file
is in all files. Their counts follow a power law of which 57 % are 1, about as in natural text.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import command
import corpora
import numpy as np
import pyarrow as pa
import yaml
from numpy.typing import NDArray

from bpe_core.count_files import columns_to_arrow
from bpe_core.counts import PretokenCounts

_FILES: Final = 8
_SHARED: Final = 20  # of as many pre-tokens of a file, one is in all files
_LETTERS: Final = 8
_ODD: Final = np.uint64(2_654_435_761)  # a bijection of 32-bit numbers that scatters them
_EXPONENT: Final = -0.8
_SHARDS: Final = 64
_COUNTED: Final = {"pattern": "gpt2", "special_tokens": "[]", "unicode_version": "16.0.0"}


def main() -> None:
    """Run the commands; print their time and the peak of their memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--distinct", type=int, default=200_000_000)
    parser.add_argument("--vocab-size", type=int, default=corpora.VOCAB_SIZE)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=corpora.ROOT / "out") as name:
        run(Path(name), arguments.distinct, arguments.vocab_size)


def run(place: Path, distinct: int, vocab_size: int) -> None:
    """Write counts below a directory, and run the commands on them."""
    files = [place / f"{i}.parquet" for i in range(_FILES)]
    with timed(f"write {_FILES} files of counts, {distinct:,} distinct pre-tokens"):
        for file, numbers in zip(files, numbers_of_files(distinct), strict=True):
            make_counts(numbers).save(file)
    config = place / "train.yaml"
    settings = {
        "output": str(place / "trained"),
        "input": {"files": [str(config)]},
        "counts": {"path": str(place / "frequent")},
        "tokenizer": {"vocab_size": vocab_size, "special_tokens": []},
        "encode": {"append": None},
    }
    config.write_text(yaml.safe_dump(settings))
    merged = [*map(str, files), "--output", str(place / "all"), "--shards", str(_SHARDS)]
    frequent = [str(place / "all"), "--min-count", "2", "--output", str(place / "frequent")]
    for words in (
        ["counts", "merge", *merged],
        ["counts", "prune", *frequent],
        ["train", str(config)],
    ):
        done = command.run_and_watch([sys.executable, "-m", "pipelines", *words])
        work = " ".join(word for word in words[:2] if not word.startswith("/"))
        print(f"{work}: {done.seconds:.1f} s, {done.peak_bytes / 2**20:,.0f} MiB", flush=True)


def numbers_of_files(distinct: int) -> Iterator[NDArray[np.uint64]]:
    """Yield the numbers of the pre-tokens of each file."""
    shared = distinct // (_FILES * _SHARED)
    own = (distinct - shared) // _FILES
    for i in range(_FILES):
        first = shared + i * own
        yield np.concatenate(
            [np.arange(shared, dtype=np.uint64), np.arange(first, first + own, dtype=np.uint64)]
        )


def make_counts(numbers: NDArray[np.uint64]) -> PretokenCounts:
    """Return counts of the pre-tokens with these numbers."""
    scattered = np.sort((numbers * _ODD) & np.uint64(0xFFFFFFFF))
    keys = np.empty((len(scattered), 1 + _LETTERS), np.uint8)
    keys[:, 0] = ord(" ")
    for i in range(_LETTERS):
        shift = np.uint64(4 * (_LETTERS - 1 - i))
        keys[:, 1 + i] = ord("a") + ((scattered >> shift) & np.uint64(15))
    offsets = np.arange(len(scattered) + 1, dtype=np.int64) * (1 + _LETTERS)
    # Another order of the numbers, as uniform numbers above 0 and at most 1.
    uniform = (((scattered * _ODD) >> np.uint64(8)) & np.uint64(0xFFFFFF)) + np.uint64(1)
    counts = ((uniform / 2**24) ** _EXPONENT).astype(np.int64)
    table: pa.Table = columns_to_arrow(keys.reshape(-1), offsets, counts)
    return PretokenCounts(table, _COUNTED)


@contextmanager
def timed(work: str) -> Iterator[None]:
    """Print how long a block takes."""
    begun = time.perf_counter()
    yield
    print(f"{work}: {time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
