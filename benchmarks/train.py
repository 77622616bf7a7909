"""How fast is a tokenizer trained from a file?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import peers
from corpora import QUICK_VOCAB_SIZE, SEPARATOR, VOCAB_SIZE, Text
from measure import OURS, Case, Outcome, child_main

from bpe_core import train_bpe

SIDES_IN_ORDER = (OURS, "gigatoken")


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[tuple[Case, Sequence[str]]]:
    """What is measured, each with the sides that are only stated."""
    size = QUICK_VOCAB_SIZE if quick else VOCAB_SIZE
    work = f"train {size:,} ids from a file"
    for index, text in enumerate(texts):
        case = Case(work, text.name, text.path, text.bytes, 2, {"vocab_size": size})
        yield case, ("tokenizers",) if index == 0 and not quick else ()


def train_ours(case: Case) -> Outcome:
    begun = time.perf_counter()
    _, merges = train_bpe(
        case.path,
        case.options["vocab_size"],
        [SEPARATOR.decode()],
        tie_break="huggingface",
        num_threads=case.threads,
    )
    return Outcome({"train": time.perf_counter() - begun}, lambda: {"merges": merges})


def train_gigatoken(case: Case) -> Outcome:
    run = peers.train_gigatoken(case.path, case.options["vocab_size"])
    return Outcome({"train": run.seconds}, lambda: {"merges": run.merges})


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
    documents = Path(case.path).read_text(encoding="utf-8").split(SEPARATOR.decode())
    begun = time.perf_counter()
    tokenizer.train_from_iterator(documents, trainer)
    return Outcome({"train": time.perf_counter() - begun})


SIDES = {OURS: train_ours, "gigatoken": train_gigatoken, "tokenizers": train_tokenizers}

if __name__ == "__main__":
    child_main(SIDES, sys.argv[1:])
