"""How long does it take to encode a list of 100,000 short strings, on all cores?

The strings are consecutive parts of the text, of about 100 bytes each. The first use is that of a
new tokenizer; the second use repeats it with the same tokenizer. The result is a list of ids for
each string; for tokenizers, its own objects are converted to these.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import corpora
import peers
from corpora import Text, Vocabulary
from encode import of_lists
from install import CANDIDATE_PATH
from measure import OURS, Case, Outcome, Target, script_main
from short import strings

_STRINGS = 100_000
_BYTES = 100  # of a string


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases: English strings with every vocabulary."""
    text = texts[0]
    for vocabulary in corpora.vocabularies(text)[: 1 if quick else None]:
        yield Case(
            work=f"encode 100,000 strings, {vocabulary.name}, STEP",
            text=text.name,
            path=text.path,
            bytes=min(_STRINGS * _BYTES, text.bytes),
            threads=2,
            sides=(OURS, "gigatoken", peers.CANDIDATE, "tiktoken"),
            targets={
                side: [Target(1.5, 1.1)] for side in ("gigatoken", peers.CANDIDATE, "tiktoken")
            },
            headline=["first use", "second use"] if vocabulary.name == "o200k" else [],
            options=corpora.as_json(vocabulary),
        )


def prepare(case: Case) -> None:
    """Write the tokenizer.json that Hugging Face's library reads."""
    Vocabulary(**case.options).save()


def _uses(case: Case, encode: Callable[[list[str]], Sequence[Sequence[int]]]) -> Outcome:
    data = Path(case.path).read_bytes().replace(corpora.SEPARATOR, b"\n")
    texts = strings(data, _BYTES, case.bytes // _BYTES)
    seconds: dict[str, float] = {}
    encoded: Sequence[Sequence[int]] = ()
    for name in ("first use", "second use"):
        encoded = ()  # frees the result of the first use before the second
        begun = time.perf_counter()
        encoded = encode(texts)
        seconds[name] = time.perf_counter() - begun
    return Outcome(seconds, lambda: of_lists(encoded))


def encode_ours(case: Case) -> Outcome:
    tokenizer = Vocabulary(**case.options).load()
    return _uses(case, lambda texts: tokenizer.encode_batch(texts, num_threads=case.threads))


def encode_gigatoken(case: Case) -> Outcome:
    import gigatoken

    vocabulary = Vocabulary(**case.options)
    pattern = [] if vocabulary.name in corpora.SPECIAL_IDS else [vocabulary.pattern]
    tokenizer = gigatoken.Tokenizer.from_tiktoken(vocabulary.path, *pattern)
    return _uses(case, tokenizer.encode_batch_list)


def encode_tiktoken(case: Case) -> Outcome:
    encoding = peers.tiktoken_encoding(Vocabulary(**case.options))
    return _uses(
        case, lambda texts: encoding.encode_ordinary_batch(texts, num_threads=case.threads)
    )


def encode_tokenizers_candidate(case: Case) -> Outcome:
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ["RAYON_NUM_THREADS"] = str(case.threads)
    sys.path.insert(0, str(CANDIDATE_PATH))
    from tokenizers import Tokenizer

    path = Vocabulary(**case.options).saved / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))

    def encode(texts: list[str]) -> list[list[int]]:
        return [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]

    return _uses(case, encode)


SIDES = {
    OURS: encode_ours,
    "gigatoken": encode_gigatoken,
    "tiktoken": encode_tiktoken,
    peers.CANDIDATE: encode_tokenizers_candidate,
}

if __name__ == "__main__":
    script_main(SIDES)
