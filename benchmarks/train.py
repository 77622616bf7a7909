"""How fast is a tokenizer trained from a file?

gigatoken reads the file itself. The others get an iterator of documents, which are in memory before
the clock starts. rustbpe and bpeasy do not support special tokens and learn the same number of
merges.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import corpora
import peers
from corpora import QUICK_VOCAB_SIZE, SEPARATOR, VOCAB_SIZE, Text
from measure import OURS, Case, Limit, Outcome, Outputs, Target, peak, script_main

from bpe_core import PATTERNS, train_bpe
from bpe_core.stand_ins import from_stand_ins

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TARGETS = {
    "gigatoken": Target(2.5, 2.5),
    "rustbpe": Target(5, 5),
    "tokenizers": Target(10, 10),
    "bpeasy": Target(10, 10),
}
_TIE_BREAK = {
    "rustbpe": "first_id",
    "bpeasy": "first_id",
}  # the other peers break ties as Hugging Face does
_MEMORY = 600_000_000


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases: English against every peer, all of the code against gigatoken."""
    for peer in ("gigatoken",) if quick else _TARGETS:
        yield _case(texts[0], peer, _TARGETS[peer], quick=quick)
    if not quick:
        yield _case(corpora.large(texts), "gigatoken", Target(2.0, 1.5), limit=True)


def _case(
    text: Text, peer: str, target: Target, *, quick: bool = False, limit: bool = False
) -> Case:
    size = QUICK_VOCAB_SIZE if quick else VOCAB_SIZE
    return Case(
        work=f"train_bpe, {size:,} ids from a file",
        text=text.name,
        path=text.path,
        bytes=text.bytes,
        threads=2,
        sides=(OURS, peer),
        targets={peer: [target]},
        limits=[Limit(_MEMORY)] if limit else [],
        headline=["train"] if peer == "gigatoken" else [],
        options={"vocab_size": size, "tie_break": _TIE_BREAK.get(peer, "huggingface")},
    )


def train_ours(case: Case) -> Outcome:
    begun = time.perf_counter()
    _, merges = train_bpe(
        case.path,
        case.options["vocab_size"],
        [SEPARATOR.decode()],
        tie_break=case.options["tie_break"],
        num_threads=case.threads,
    )
    seconds = time.perf_counter() - begun
    return Outcome({"train": seconds}, lambda: _outputs(merges), {"train": peak()})


def _outputs(merges: list[tuple[bytes, bytes]]) -> Outputs:
    return {"merges": merges, "tokens": [left + right for left, right in merges]}


def train_gigatoken(case: Case) -> Outcome:
    run = peers.train_gigatoken(case.path, case.options["vocab_size"])
    return Outcome({"train": run.seconds}, lambda: _outputs(run.merges), {"train": peak()})


def train_tokenizers(case: Case) -> Outcome:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=case.options["vocab_size"],
        special_tokens=[SEPARATOR.decode()],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    documents = _documents(case)
    begun = time.perf_counter()
    tokenizer.train_from_iterator(documents, trainer)
    seconds = time.perf_counter() - begun
    return Outcome({"train": seconds}, lambda: {"merges": _merges_of(tokenizer)})


def _merges_of(tokenizer: Tokenizer) -> list[tuple[bytes | None, bytes | None]]:
    """Return the merges of a tokenizer, decoding the characters that represent bytes."""
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(from_stand_ins(left), from_stand_ins(right)) for left, right in merges]


def train_rustbpe(case: Case) -> Outcome:
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    documents = _documents(case)
    begun = time.perf_counter()
    tokenizer.train_from_iterator(
        iter(documents), case.options["vocab_size"] - 1, pattern=PATTERNS["gpt2"]
    )
    seconds = time.perf_counter() - begun
    return Outcome(
        {"train": seconds},
        lambda: _learned({bytes(token): rank for token, rank in tokenizer.get_mergeable_ranks()}),
    )


def train_bpeasy(case: Case) -> Outcome:
    import bpeasy

    documents = _documents(case)
    longest = max(map(len, documents))
    begun = time.perf_counter()
    ranks = bpeasy.train_bpe(
        iter(documents), PATTERNS["gpt2"], longest, case.options["vocab_size"] - 1
    )
    seconds = time.perf_counter() - begun
    return Outcome({"train": seconds}, lambda: _learned(ranks))


def _learned(ranks: dict[bytes, int]) -> Outputs:
    """Return the tokens after the 256 bytes, in order of rank."""
    return {"tokens": sorted(ranks, key=ranks.__getitem__)[256:]}


def _documents(case: Case) -> list[str]:
    return [document.decode() for document in corpora.documents(case.path)]


SIDES = {
    OURS: train_ours,
    "gigatoken": train_gigatoken,
    "rustbpe": train_rustbpe,
    "tokenizers": train_tokenizers,
    "bpeasy": train_bpeasy,
}

if __name__ == "__main__":
    script_main(SIDES)
