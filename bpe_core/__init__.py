"""Byte-pair encoding: counting pre-tokens, learning merges, encoding and decoding.

    vocab, merges = train_bpe("corpus.txt", 32_000, ["<|endoftext|>"])
    tokenizer = BPETokenizer(vocab, merges, ["<|endoftext|>"])
    tokenizer.decode(tokenizer.encode("Hello, world!"))

Nothing here knows Beam: see `pipelines` for whole corpora.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bpe_core.errors import BpeError

if TYPE_CHECKING:
    from bpe_core.counts import PretokenCounts, count_pretokens
    from bpe_core.patterns import PATTERNS
    from bpe_core.tokenizer import BPETokenizer
    from bpe_core.training import TrainingResult, train_bpe, train_from_counts

__all__ = [
    "PATTERNS",
    "BPETokenizer",
    "BpeError",
    "PretokenCounts",
    "TrainingResult",
    "count_pretokens",
    "train_bpe",
    "train_from_counts",
]

# Modules are imported at the first use of their names: the command line needs BpeError alone.
_MODULES = {
    "PATTERNS": "patterns",
    "BPETokenizer": "tokenizer",
    "PretokenCounts": "counts",
    "TrainingResult": "training",
    "count_pretokens": "counts",
    "train_bpe": "training",
    "train_from_counts": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
