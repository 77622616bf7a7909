"""How fast are documents in memory encoded to one array of ids?

The first pass is that of a new tokenizer, the second the same again. Both sides get the whole text
and split it at the separator themselves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import corpora
import numpy as np
from corpora import SEPARATOR, Text
from measure import OURS, Case, Outcome, child_main

from bpe_core import BPETokenizer
from bpe_core._native import split_documents

SIDES_IN_ORDER = (OURS, "gigatoken")
_SPECIAL_IDS = {"r50k": 50256, "cl100k": 100257, "o200k": 199999}
_STATED_BYTES = 8_000_000


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[tuple[Case, Sequence[str]]]:
    """What is measured, each with the sides that are only stated."""
    for text in texts:
        for index, vocabulary in enumerate(corpora.vocabularies(text)):
            if index > 0 and quick:
                break
            options = corpora.as_json(vocabulary)
            work = f"encode {vocabulary.name}, STEP"
            for threads in (1,) if index > 0 or quick else (1, 2):
                case = Case(work, text.name, text.path, text.bytes, threads, options)
                yield case, ("tiktoken",) if index == 0 and threads == 1 else ()


def _passes(encode: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    seconds = {}
    encoded = None
    for name in ("first pass", "second pass"):
        encoded = None  # what the first pass gave is freed before the second begins
        begun = time.perf_counter()
        encoded = encode()
        seconds[name] = time.perf_counter() - begun
    return seconds, encoded


def encode_ours(case: Case) -> Outcome:
    name = case.options["name"]
    special = {SEPARATOR.decode(): _SPECIAL_IDS[name]} if name in _SPECIAL_IDS else None
    tokenizer = BPETokenizer.from_tiktoken(
        case.options["path"], pattern=case.options["pattern"], special_tokens=special
    )
    data = Path(case.path).read_bytes()

    def encode() -> Any:
        starts, ends = split(data)
        return tokenizer.encode_documents(data, starts, ends, num_threads=case.threads)

    seconds, (ids, offsets) = _passes(encode)
    return Outcome(seconds, lambda: {"ids": ids, "lengths": np.diff(offsets)})


def split(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Where the documents of a text that are not empty begin and end."""
    starts, ends, _, rest, *_ = split_documents(
        data, SEPARATOR, 0, 0, len(data), len(data) + 1, len(data)
    )
    if rest < len(data):  # what follows the last separator
        starts, ends = np.append(starts, rest), np.append(ends, len(data))
    return starts, ends


def encode_gigatoken(case: Case) -> Outcome:
    import awkward
    import gigatoken

    path = case.options["path"]
    if case.options["name"] in _SPECIAL_IDS:
        tokenizer = gigatoken.Tokenizer.from_tiktoken(path)
    else:
        tokenizer = gigatoken.Tokenizer.from_tiktoken(path, case.options["pattern"])
    source = gigatoken.BytesSource(Path(case.path).read_bytes(), separator=SEPARATOR)
    seconds, encoded = _passes(lambda: tokenizer.encode_batch(source, parallel=case.threads > 1))
    return Outcome(
        seconds,
        lambda: {
            "ids": awkward.to_numpy(awkward.flatten(encoded)),
            "lengths": awkward.to_numpy(awkward.num(encoded)).astype(np.int64),
        },
    )


def encode_tiktoken(case: Case) -> Outcome:
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    from bpe_core import PATTERNS

    encoding = tiktoken.Encoding(
        "benchmark",
        pat_str=PATTERNS[case.options["pattern"]],
        mergeable_ranks=load_tiktoken_bpe(case.options["path"]),
        special_tokens={},
    )
    data = corpora.beginning(Path(case.path).read_bytes(), _STATED_BYTES)
    documents = data.decode().split(SEPARATOR.decode())
    seconds, _ = _passes(
        lambda: encoding.encode_ordinary_batch(documents, num_threads=case.threads)
    )
    return Outcome(seconds, bytes=len(data))


SIDES = {OURS: encode_ours, "gigatoken": encode_gigatoken, "tiktoken": encode_tiktoken}

if __name__ == "__main__":
    child_main(SIDES, sys.argv[1:])
