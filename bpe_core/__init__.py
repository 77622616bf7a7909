"""Byte-pair encoding: counting pre-tokens, learning merges, encoding and decoding.

    vocab, merges = train_bpe("corpus.txt", 32_000, ["<|endoftext|>"])
    tokenizer = BPETokenizer(vocab, merges, ["<|endoftext|>"])
    tokenizer.decode(tokenizer.encode("Hello, world!"))

This package does not depend on Beam; `pipelines` builds whole corpora with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bpe_core.errors import BpeError

if TYPE_CHECKING:
    from bpe_core.char_bpe import CharBPETokenizer
    from bpe_core.character_training import train_characters_from_counts
    from bpe_core.count_groups import Group, GroupColumns
    from bpe_core.counting import count_pretokens
    from bpe_core.counts import PretokenCounts
    from bpe_core.minbpe import BasicTokenizer, GPT4Tokenizer, RegexTokenizer
    from bpe_core.parity import ParityRules
    from bpe_core.patterns import PATTERNS, pattern_with_rules
    from bpe_core.pruning import PrunedTokenizer, most_used_tokens, prune_tokenizer
    from bpe_core.superwords import count_superwords, train_superwords
    from bpe_core.tokenizer import BPETokenizer
    from bpe_core.training import (
        TrainingResult,
        train_bpe,
        train_from_counts,
        train_from_iterator,
    )
    from bpe_core.vocabulary_sizes import (
        VocabularySize,
        VocabularyUse,
        measure_vocabulary_sizes,
    )

__all__ = [
    "PATTERNS",
    "BPETokenizer",
    "BasicTokenizer",
    "BpeError",
    "CharBPETokenizer",
    "GPT4Tokenizer",
    "Group",
    "GroupColumns",
    "ParityRules",
    "PretokenCounts",
    "PrunedTokenizer",
    "RegexTokenizer",
    "TrainingResult",
    "VocabularySize",
    "VocabularyUse",
    "count_pretokens",
    "count_superwords",
    "measure_vocabulary_sizes",
    "most_used_tokens",
    "pattern_with_rules",
    "prune_tokenizer",
    "train_bpe",
    "train_characters_from_counts",
    "train_from_counts",
    "train_from_iterator",
    "train_superwords",
]

# Modules are imported when one of their names is first used: the command line needs only BpeError,
# and numpy and pyarrow would delay each of its answers.
_MODULES = {
    "PATTERNS": "patterns",
    "BPETokenizer": "tokenizer",
    "BasicTokenizer": "minbpe",
    "CharBPETokenizer": "char_bpe",
    "GPT4Tokenizer": "minbpe",
    "Group": "count_groups",
    "GroupColumns": "count_groups",
    "ParityRules": "parity",
    "PretokenCounts": "counts",
    "RegexTokenizer": "minbpe",
    "TrainingResult": "training",
    "VocabularySize": "vocabulary_sizes",
    "VocabularyUse": "vocabulary_sizes",
    "count_pretokens": "counting",
    "count_superwords": "superwords",
    "measure_vocabulary_sizes": "vocabulary_sizes",
    "most_used_tokens": "pruning",
    "pattern_with_rules": "patterns",
    "prune_tokenizer": "pruning",
    "PrunedTokenizer": "pruning",
    "train_bpe": "training",
    "train_characters_from_counts": "character_training",
    "train_from_counts": "training",
    "train_from_iterator": "training",
    "train_superwords": "superwords",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
