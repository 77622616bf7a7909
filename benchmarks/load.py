"""How long does it take to load a saved vocabulary of 200,000 tokens?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import corpora
from corpora import Text, Vocabulary
from measure import OURS, Case, Limit, Outcome, script_main

from bpe_core import BPETokenizer

_SECONDS = 0.2


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield one case: the largest vocabulary that exists."""
    vocabulary = corpora.vocabularies(texts[0])[-1]
    yield Case(
        work=f"BPETokenizer.load, {vocabulary.name}",
        text="",
        path=vocabulary.path,
        bytes=0,
        threads=1,
        sides=(OURS,),
        limits=[Limit(_SECONDS, "seconds")],
        unit="s",
        headline=["load"],
        options=corpora.as_json(vocabulary),
    )


def prepare(case: Case) -> None:
    """Save the vocabulary."""
    Vocabulary(**case.options).save()


def load_ours(case: Case) -> Outcome:
    directory = Vocabulary(**case.options).saved
    begun = time.perf_counter()
    tokenizer = BPETokenizer.load(directory)
    seconds = time.perf_counter() - begun
    return Outcome({"load": seconds}, lambda: {"vocab": sorted(tokenizer.vocab.items())})


SIDES = {OURS: load_ours}

if __name__ == "__main__":
    script_main(SIDES)
