"""Count once, train once, and compare vocabularies of several sizes.

python examples/vocabulary_sizes.py [COUNTS]

COUNTS is the directory `counts` of a build, such as out/quickstart/counts. By default, the script
counts the example corpus.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bpe_core import (
    PretokenCounts,
    count_pretokens,
    measure_vocabulary_sizes,
    train_from_counts,
)

CORPUS = Path(__file__).parent / "data"
SIZES = [512, 1024, 2048, 4096, 8192]
END = "<|endoftext|>"


def counts_of_example() -> PretokenCounts:
    """Count the uncompressed shards."""
    return count_pretokens(sorted(CORPUS.glob("kjv-*.txt")), special_tokens=[END])


def main(counts: PretokenCounts) -> None:
    """Train the largest size once; the smaller ones are its first merges."""
    print(f"{len(counts):,} distinct pre-tokens, {counts.total():,} in all")
    tokenizer = train_from_counts(counts, SIZES[-1], [END]).tokenizer()
    print(f"{'ids':>6} {'tokens':>10} {'bytes per token':>16}  words in one token")
    for size in measure_vocabulary_sizes(tokenizer, counts, SIZES):
        use = size.total
        single = use.single_token_pretokens / use.pretokens
        print(f"{size.ids:>6} {use.tokens:>10,} {use.bytes_per_token:>16.2f}  {single:>18.1%}")


if __name__ == "__main__":
    main(PretokenCounts.load(sys.argv[1]) if len(sys.argv) > 1 else counts_of_example())
