"""Byte-pair encoding: counting pre-tokens, learning merges, encoding and decoding.

    vocab, merges = train_bpe("corpus.txt", 32_000, ["<|endoftext|>"])
    tokenizer = BPETokenizer(vocab, merges, ["<|endoftext|>"])
    tokenizer.decode(tokenizer.encode("Hello, world!"))

This package does not depend on Beam; `pipelines` builds whole corpora with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bpe_core.errors import BpeError
from bpe_core.late_names import load_name

if TYPE_CHECKING:
    from bpe_core.char_bpe import CharBPETokenizer
    from bpe_core.character_training import train_characters_from_counts
    from bpe_core.count_groups import Group, GroupColumns
    from bpe_core.counting import count_pretokens
    from bpe_core.counts import PretokenCounts
    from bpe_core.evaluation import TokenUse, UseCounter, gini, renyi_efficiency
    from bpe_core.minbpe import BasicTokenizer, GPT4Tokenizer, RegexTokenizer
    from bpe_core.parity import ParityRules
    from bpe_core.patterns import PATTERNS, pattern_with_rules
    from bpe_core.pruning import PrunedTokenizer, most_used_tokens, prune_tokenizer
    from bpe_core.reachability import Reachability, find_unreachable
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
    "Reachability",
    "RegexTokenizer",
    "TokenUse",
    "TrainingResult",
    "UseCounter",
    "VocabularySize",
    "VocabularyUse",
    "count_pretokens",
    "count_superwords",
    "find_unreachable",
    "gini",
    "measure_vocabulary_sizes",
    "most_used_tokens",
    "pattern_with_rules",
    "prune_tokenizer",
    "renyi_efficiency",
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
    "PrunedTokenizer": "pruning",
    "Reachability": "reachability",
    "RegexTokenizer": "minbpe",
    "TokenUse": "evaluation",
    "TrainingResult": "training",
    "UseCounter": "evaluation",
    "VocabularySize": "vocabulary_sizes",
    "VocabularyUse": "vocabulary_sizes",
    "count_pretokens": "counting",
    "count_superwords": "superwords",
    "find_unreachable": "reachability",
    "gini": "evaluation",
    "measure_vocabulary_sizes": "vocabulary_sizes",
    "most_used_tokens": "pruning",
    "pattern_with_rules": "patterns",
    "prune_tokenizer": "pruning",
    "renyi_efficiency": "evaluation",
    "train_bpe": "training",
    "train_characters_from_counts": "character_training",
    "train_from_counts": "training",
    "train_from_iterator": "training",
    "train_superwords": "superwords",
}


def __getattr__(name: str) -> Any:
    return load_name(globals(), _MODULES, name)
