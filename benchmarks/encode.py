"""How fast are documents in memory encoded to one array of ids?

The first pass uses a new tokenizer; the second pass repeats it with the same tokenizer. We and
gigatoken get the complete text and split it at the separator. The others get a list of documents
and less text.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import corpora
import numpy as np
import peers
from corpora import SEPARATOR, Text, Vocabulary
from install import CANDIDATE_PATH
from measure import OURS, Case, Outcome, Outputs, Target, script_main

from bpe_core._native import split_documents

_STATED = {  # peer: vocabularies that it supports
    "tiktoken": ("r50k", "cl100k", "o200k", "trained-8k"),
    "quicktok-v1": ("cl100k", "o200k"),
    "bpe-openai": ("cl100k", "o200k"),
    "tokenizers": ("r50k", "cl100k", "o200k", "trained-8k"),
}
_STATED_BYTES = 4_000_000


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases: gigatoken on complete texts, the others on a part of them."""
    for text in texts:
        for vocabulary in corpora.vocabularies(texts[0])[: 1 if quick else None]:
            for threads in (1,) if quick else (1, 2):
                candidate = [peers.CANDIDATE] if threads == 1 else []
                yield _case(text, vocabulary, threads, (OURS, "gigatoken", *candidate))
    if quick:
        return
    for text in texts:
        for vocabulary in corpora.vocabularies(texts[0]):
            part = corpora.part_of(text, _STATED_BYTES)
            others = [peer for peer, names in _STATED.items() if vocabulary.name in names]
            for threads in (1, 2):
                yield _case(part, vocabulary, threads, (OURS, *others))


def _case(text: Text, vocabulary: Vocabulary, threads: int, sides: Sequence[str]) -> Case:
    return Case(
        work=f"encode {vocabulary.name}, STEP",
        text=text.name,
        path=text.path,
        bytes=text.bytes,
        threads=threads,
        sides=sides,
        targets={
            side: [Target(1.5, 1.1)]
            for side in ("gigatoken", peers.CANDIDATE)
            if side == "gigatoken" or side in sides
        },
        headline=["first pass", "second pass"]
        if "gigatoken" in sides and threads == 1 and vocabulary.name == "o200k"
        else [],
        options=corpora.as_json(vocabulary),
    )


def prepare(case: Case) -> None:
    """Write the tokenizer.json that Hugging Face's library reads."""
    if {"tokenizers", peers.CANDIDATE} & {*case.sides} and case.threads == 1:
        _vocabulary(case).save()


def _passes(encode: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    seconds = {}
    encoded = None
    for name in ("first pass", "second pass"):
        encoded = None  # frees the result of the first pass before the second
        begun = time.perf_counter()
        encoded = encode()
        seconds[name] = time.perf_counter() - begun
    return seconds, encoded


def _vocabulary(case: Case) -> Vocabulary:
    return Vocabulary(**case.options)


def encode_ours(case: Case) -> Outcome:
    tokenizer = _vocabulary(case).load()
    data = Path(case.path).read_bytes()

    def encode() -> Any:
        starts, ends = split(data)
        return tokenizer.encode_documents(data, starts, ends, num_threads=case.threads)

    seconds, (ids, offsets) = _passes(encode)
    return Outcome(seconds, lambda: {"ids": ids, "lengths": np.diff(offsets)})


def split(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of the documents of a text that are not empty."""
    starts, ends, _, rest, *_ = split_documents(
        data, SEPARATOR, 0, 0, len(data), len(data) + 1, len(data)
    )
    if rest < len(data):  # text after the last separator
        starts, ends = np.append(starts, rest), np.append(ends, len(data))
    return starts, ends


def encode_gigatoken(case: Case) -> Outcome:
    import awkward
    import gigatoken

    vocabulary = _vocabulary(case)
    if vocabulary.name in corpora.SPECIAL_IDS:
        tokenizer = gigatoken.Tokenizer.from_tiktoken(vocabulary.path)
    else:
        tokenizer = gigatoken.Tokenizer.from_tiktoken(vocabulary.path, vocabulary.pattern)
    source = gigatoken.BytesSource(Path(case.path).read_bytes(), separator=SEPARATOR)
    seconds, encoded = _passes(lambda: tokenizer.encode_batch(source, parallel=case.threads > 1))
    return Outcome(
        seconds,
        lambda: {
            "ids": awkward.to_numpy(awkward.flatten(encoded)),
            "lengths": awkward.to_numpy(awkward.num(encoded)),
        },
    )


def encode_tiktoken(case: Case) -> Outcome:
    encoding = peers.tiktoken_encoding(_vocabulary(case))
    documents = _documents(case)
    seconds, encoded = _passes(
        lambda: encoding.encode_ordinary_batch(documents, num_threads=case.threads)
    )
    return Outcome(seconds, lambda: of_lists(encoded))


def encode_quicktok(case: Case) -> Outcome:
    import quicktok

    encoding = quicktok.get_encoding(f"{case.options['name']}_base")
    documents = _documents(case)
    seconds, (ids, offsets) = _passes(lambda: encoding.encode_batch(documents, case.threads))
    return Outcome(seconds, lambda: {"ids": ids, "lengths": np.diff(offsets)})


def encode_bpe_openai(case: Case) -> Outcome:
    import bpe_openai

    encoding = bpe_openai.get_encoding(f"{case.options['name']}_base")
    documents = _documents(case)
    seconds, encoded = _passes(
        lambda: encoding.encode_ordinary_batch(documents, num_threads=case.threads)
    )
    return Outcome(seconds, lambda: of_lists(encoded))


def encode_tokenizers(case: Case) -> Outcome:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(_vocabulary(case).saved / "tokenizer.json"))
    documents = _documents(case)
    seconds, encoded = _passes(
        lambda: tokenizer.encode_batch_fast(documents, add_special_tokens=False)
    )
    return Outcome(seconds, lambda: of_lists([encoding.ids for encoding in encoded]))


def encode_tokenizers_candidate(case: Case) -> Outcome:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = str(case.threads)
    sys.path.insert(0, str(CANDIDATE_PATH))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(_vocabulary(case).saved / "tokenizer.json"))
    documents = _documents(case)
    seconds, encoded = _passes(lambda: tokenizer.encode_batch(documents, add_special_tokens=False))
    return Outcome(seconds, lambda: of_lists([encoding.ids for encoding in encoded]))


def _documents(case: Case) -> list[str]:
    return [document.decode() for document in corpora.documents(case.path)]


def of_lists(encoded: Sequence[Sequence[int]]) -> Outputs:
    """Return the ids of many texts and the number of ids of each."""
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ids = np.fromiter(itertools.chain.from_iterable(encoded), np.int64, int(lengths.sum()))
    return {"ids": ids, "lengths": lengths}


SIDES = {
    OURS: encode_ours,
    "gigatoken": encode_gigatoken,
    "tiktoken": encode_tiktoken,
    "quicktok-v1": encode_quicktok,
    "bpe-openai": encode_bpe_openai,
    "tokenizers": encode_tokenizers,
    peers.CANDIDATE: encode_tokenizers_candidate,
}

if __name__ == "__main__":
    script_main(SIDES)
