"""Other tokenizers, and other packers of ids, as they are used here."""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from corpora import SEPARATOR, SPECIAL_IDS, Vocabulary

MODULES = {  # of each side that is a package
    "gigatoken": "gigatoken",
    "tiktoken": "tiktoken",
    "tokenizers": "tokenizers",
    "quicktok-v1": "quicktok",
    "bpe-openai": "bpe_openai",
    "rustbpe": "rustbpe",
    "bpeasy": "bpeasy",
    "datatrove": "datatrove",
    "llm-foundry": "llmfoundry",
}
_PHASE = re.compile(rb"Pretokenization took ([0-9.]+)(ns|\xc2\xb5s|us|ms|s)\b")
_UNITS = {b"ns": 1e-9, b"us": 1e-6, b"\xc2\xb5s": 1e-6, b"ms": 1e-3, b"s": 1.0}


def is_installed(side: str) -> bool:
    """Whether a side can run here; one that is no package of its own can."""
    return side not in MODULES or importlib.util.find_spec(MODULES[side]) is not None


@dataclass(frozen=True)
class GigatokenTraining:
    """A training run of gigatoken.

    Attributes:
        seconds: of the call.
        count_seconds: of its first phase, as it logs it.
        merges: in order.
    """

    seconds: float
    count_seconds: float
    merges: list[tuple[bytes, bytes]]


def train_gigatoken(source: Any, vocab_size: int) -> GigatokenTraining:
    """Trains on bytes or on the file at a path."""
    import gigatoken

    with tempfile.TemporaryFile() as log:
        with _stderr_to(log):
            begun = time.perf_counter()
            _, merges = gigatoken.train_bpe(source, vocab_size, [SEPARATOR.decode()])
            seconds = time.perf_counter() - begun
        log.seek(0)
        return GigatokenTraining(seconds, phase_seconds(log.read()), merges)


def phase_seconds(log: bytes) -> float:
    """The time of the phase in what gigatoken wrote to standard error."""
    found = _PHASE.search(log)
    if found is None:
        raise RuntimeError(f"gigatoken's log has no time of its first phase: {log!r}")
    return float(found[1]) * _UNITS[found[2]]


@contextmanager
def _stderr_to(log: BinaryIO) -> Iterator[None]:
    """Sends standard error, that of native code too, to a file."""
    saved = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def tiktoken_encoding(vocabulary: Vocabulary) -> Any:
    """tiktoken's own definition of a published encoding, with the ranks of the file."""
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe
    from tiktoken_ext import openai_public

    from bpe_core import PATTERNS

    ranks = load_tiktoken_bpe(vocabulary.path)
    if vocabulary.name in SPECIAL_IDS:
        # The definitions load the ranks from the network.
        openai_public.load_tiktoken_bpe = lambda *_, **__: ranks
        return tiktoken.Encoding(**getattr(openai_public, f"{vocabulary.name}_base")())
    pattern = PATTERNS[vocabulary.pattern]
    return tiktoken.Encoding(
        vocabulary.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    )
