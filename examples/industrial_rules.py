"""Show how each rule of published tokenizers changes the tokens of a text.

python examples/industrial_rules.py
"""

from __future__ import annotations

from typing import Any

from bpe_core import BPETokenizer, count_pretokens, train_from_counts

TEXT = (
    "It's the ﬁrst cafe\u0301 of 2024, said “Zoë”.\n\n"
    "(a) it's 31415926;\n \n(b) she's “ﬁne”;\n \n(c) 2024.\n \nThe end"
)
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("no rule", {}, {}),
    ("normalizer: nfc", {"normalizer": "nfc"}, {}),
    ("normalizer: nfkc", {"normalizer": "nfkc"}, {}),
    ("normalize_quotes", {"normalize_quotes": True}, {}),
    ("split_categories", {"split_categories": True}, {}),
    ("max_digits: 2", {"max_digits": 2}, {}),
    ("forbid_whitespace_tokens", {}, {"forbid_whitespace_tokens": True}),
]


def trained(counting: dict[str, Any], training: dict[str, Any]) -> BPETokenizer:
    """Train a tokenizer that merges the text as far as its rules allow."""
    counts = count_pretokens([TEXT], pattern="cl100k", **counting)
    return train_from_counts(counts, 1000, **training).tokenizer()


def tokens_of(tokenizer: BPETokenizer) -> list[str]:
    """Return the tokens of the text, decoded."""
    return [tokenizer.decode([token_id]) for token_id in tokenizer.encode(TEXT)]


def main() -> None:
    """Print the tokens that each rule adds and removes."""
    without = tokens_of(trained({}, {}))
    for name, counting, training in CASES:
        found = tokens_of(trained(counting, training))
        print(f"{name} ({len(found)} tokens)")
        if found == without:
            print("   ", *map(repr, found))
        else:
            print("    removed:", *map(repr, sorted(set(without) - set(found))))
            print("    added:", *map(repr, sorted(set(found) - set(without))))


if __name__ == "__main__":
    main()
