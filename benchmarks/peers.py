"""Access to the other tokenizers and packers of ids in the comparison."""

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
from install import CANDIDATE_PATH

MODULES = {  # side: module, for each side that is a package
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
# A side too: the release candidate of tokenizers, in a directory of its own beside the release,
# which has training.
CANDIDATE = "tokenizers-1.0"
_PHASE = re.compile(rb"Pretokenization took ([0-9.]+)(ns|\xc2\xb5s|us|ms|s)\b")
_UNITS = {b"ns": 1e-9, b"us": 1e-6, b"\xc2\xb5s": 1e-6, b"ms": 1e-3, b"s": 1.0}


def is_installed(side: str) -> bool:
    """Return whether a side can run here; a side that is not a package always can."""
    if side == CANDIDATE:
        return CANDIDATE_PATH.is_dir()
    return side not in MODULES or importlib.util.find_spec(MODULES[side]) is not None


@dataclass(frozen=True)
class GigatokenTraining:
    """A training run of gigatoken.

    Attributes:
        seconds: time of the call.
        count_seconds: time of the first phase, from gigatoken's log.
        merges: the merges in order.
    """

    seconds: float
    count_seconds: float
    merges: list[tuple[bytes, bytes]]


def train_gigatoken(source: Any, vocab_size: int) -> GigatokenTraining:
    """Train on bytes or on the file at a path."""
    import gigatoken

    with tempfile.TemporaryFile() as log:
        with _stderr_to(log):
            begun = time.perf_counter()
            _, merges = gigatoken.train_bpe(source, vocab_size, [SEPARATOR.decode()])
            seconds = time.perf_counter() - begun
        log.seek(0)
        return GigatokenTraining(seconds, phase_seconds(log.read()), merges)


def phase_seconds(log: bytes) -> float:
    """Return the time of the first phase from gigatoken's log on standard error."""
    found = _PHASE.search(log)
    if found is None:
        raise RuntimeError(f"gigatoken's log has no time of its first phase: {log!r}")
    return float(found[1]) * _UNITS[found[2]]


@contextmanager
def _stderr_to(log: BinaryIO) -> Iterator[None]:
    """Redirect standard error to a file, including that of native code."""
    saved = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def tiktoken_encoding(vocabulary: Vocabulary) -> Any:
    """Return tiktoken's own definition of a published encoding, with the ranks of the file."""
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe
    from tiktoken_ext import openai_public

    from bpe_core import PATTERNS

    ranks = load_tiktoken_bpe(vocabulary.path)
    if vocabulary.name in SPECIAL_IDS:
        # Overridden, because the definitions download the ranks.
        openai_public.load_tiktoken_bpe = lambda *_, **__: ranks
        return tiktoken.Encoding(**getattr(openai_public, f"{vocabulary.name}_base")())
    pattern = PATTERNS[vocabulary.pattern]
    return tiktoken.Encoding(
        vocabulary.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    )
