"""The tokenizer of the course CS336: train it, save and load its two files, encode a stream.

python examples/cs336_bpe.py [DIRECTORY]

DIRECTORY is the directory to save the tokenizer in; the default is out/cs336_bpe.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bpe_core import BPETokenizer, train_bpe

TEXT = Path(__file__).parent / "data" / "kjv-00.txt"
END = "<|endoftext|>"


def main(directory: Path) -> None:
    """Train with the course's tie-break, which merges the lexicographically greatest pair."""
    vocab, merges = train_bpe(TEXT, 2000, [END])
    longest = max((left + right for left, right in merges), key=len)
    print(f"{len(vocab):,} ids, {len(merges):,} merges; the longest token is {longest!r}")

    BPETokenizer(vocab, merges, [END]).save(directory)
    tokenizer = BPETokenizer.from_files(directory / "vocab.json", directory / "merges.txt", [END])

    ids = tokenizer.encode(f"Let there be light.{END}")
    print(ids, [tokenizer.decode([token_id]) for token_id in ids])

    # Line by line, in little memory; the ids are those of the complete text.
    with TEXT.open(encoding="utf-8", newline="") as lines:
        stream: Iterator[int] = tokenizer.encode_iterable(lines)
        first = list(islice(stream, 12))
        number = len(first) + sum(1 for _ in stream)
    size = TEXT.stat().st_size
    print(
        f"{size:,} bytes are {number:,} tokens, {size / number:.2f} bytes each; the first: {first}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/cs336_bpe"))
