"""Count once, then train vocabularies of several sizes from the counts.

python examples/vocabulary_sizes.py [COUNTS]

COUNTS is the directory `counts` of a build, such as out/quickstart/counts. By default, the script
counts the example corpus.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bpe_core import PretokenCounts, count_pretokens, train_from_counts

CORPUS = Path(__file__).parent / "data"
SIZES = [512, 1024, 2048, 4096, 8192]
END = "<|endoftext|>"


def counts_of_example() -> PretokenCounts:
    """Count the uncompressed shards."""
    return count_pretokens(sorted(CORPUS.glob("kjv-*.txt")), special_tokens=[END])


def main(counts: PretokenCounts) -> None:
    """Train once for all sizes; each result is a prefix of the next."""
    print(f"{len(counts):,} distinct pre-tokens, {counts.total():,} in all")
    total_bytes = sum(len(pretoken) * count for pretoken, count in counts.items())
    print(f"{'ids':>6} {'tokens':>10} {'bytes per token':>16}  last merge")
    for result in train_from_counts(counts, SIZES, [END]):
        tokenizer = result.tokenizer()
        tokens = sum(count * tokenizer.count_tokens(pretoken) for pretoken, count in counts.items())
        left, right = result.merges[-1]
        print(f"{len(tokenizer):>6} {tokens:>10,} {total_bytes / tokens:>16.2f}  {left + right!r}")


if __name__ == "__main__":
    main(PretokenCounts.load(sys.argv[1]) if len(sys.argv) > 1 else counts_of_example())
