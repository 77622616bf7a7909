"""Add tokens for other text to a tokenizer and keep all of its ids.

python examples/extend_tokenizer.py [RANKS PATTERN]

RANKS is a .tiktoken file, such as that of cl100k, and PATTERN is the name of its split pattern. By
default, the script trains a small tokenizer first.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bpe_core import BPETokenizer, count_pretokens, train_bpe, train_from_counts

CORPUS = Path(__file__).parent / "data"
END = "<|endoftext|>"
NEW_TOKENS = 1000


def trained() -> BPETokenizer:
    """Train a tokenizer of 2,000 ids on the first part of the corpus."""
    vocab, merges = train_bpe(CORPUS / "kjv-00.txt", 2000, [END])
    return BPETokenizer(vocab, merges, [END])


def main(base: BPETokenizer) -> None:
    """Count other text with the tokenizer's own pattern and learn the tokens to add."""
    other = CORPUS / "kjv-04.txt"
    counts = count_pretokens(other, pattern=base.pattern, special_tokens=[END])
    size = len(base) + 1 + NEW_TOKENS
    extended = train_from_counts(counts, size, ["<|note|>"], base=base).tokenizer()
    assert base.vocab.items() <= extended.vocab.items()
    new = [token for i, token in extended.vocab.items() if i not in base.vocab]
    print(f"{len(base):,} ids, now {len(extended):,}; the first new ones: {new[:6]}")

    text = other.read_bytes()
    before, after = base.count_tokens(text), extended.count_tokens(text)
    print(
        f"{other.name}: {before:,} tokens before, {after:,} after ({1 - after / before:.0%} fewer)"
    )
    sentence = "In the beginning"
    print(base.encode(sentence), extended.encode(sentence))


if __name__ == "__main__":
    ranks = sys.argv[1:]
    main(BPETokenizer.from_tiktoken(ranks[0], pattern=ranks[1]) if ranks else trained())
