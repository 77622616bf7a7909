"""Contents that a build must have, computed from the planted documents by plain Python."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import regex
from corpus import END, SPECIAL_TOKENS, Source

from bpe_core import PretokenCounts, reference

# Copied from the releases of their tokenizers, not from the package.
PATTERNS = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


class Broken(AssertionError):
    """A promise that an output does not keep."""


def check(kept: bool, promise: str, *found: object) -> None:
    """Raise `Broken` unless a promise is kept."""
    if not kept:
        raise Broken(": ".join([promise, *map(str, found)]))


@dataclass
class Model:
    """Contents of the dataset of some sources.

    Attributes:
        kept: Texts of the documents of each file, in order.
        rejects: How often each file has a reject of each reason.
        empty: Number of empty documents of each file.
    """

    kept: dict[str, list[str]]
    rejects: Counter[tuple[str, str]]
    empty: Counter[str]

    @classmethod
    def of(cls, sources: Sequence[Source], invalid_utf8: str) -> Model:
        """Decide on every planted document by a policy."""
        model = cls({}, Counter(), Counter())
        for source in sources:
            for label, documents in source.files.items():
                model.kept[label] = []
                for document in documents:
                    outcome = document.outcome(invalid_utf8)
                    if isinstance(outcome, str):
                        model.rejects[label, outcome] += 1
                    elif outcome:
                        model.kept[label].append(outcome.decode())
                    else:
                        model.empty[label] += 1
        return model

    def counts(self, pattern: str) -> Counter[bytes]:
        """Return the pre-token counts of all kept documents."""
        split = regex.compile("|".join(map(regex.escape, SPECIAL_TOKENS)))
        words = regex.compile(PATTERNS[pattern])
        return Counter(
            word.encode()
            for texts in self.kept.values()
            for text in texts
            for part in split.split(text)
            for word in words.findall(part)
        )


@dataclass(frozen=True)
class Trained:
    """Tokenizer that counts must give, by the reference."""

    vocab: Mapping[int, bytes]
    merges: list[tuple[bytes, bytes]]
    pattern: str

    @classmethod
    def of(cls, counts: Mapping[bytes, int], vocab_size: int, pattern: str) -> Trained:
        """Learn from counts."""
        learned = reference.learn_merges(counts.items(), vocab_size - len(SPECIAL_TOKENS))
        return cls(reference.build_vocab(SPECIAL_TOKENS, learned.merges), learned.merges, pattern)

    def ids(self, text: str) -> list[int]:
        """Return the ids of a document, with those after its end."""
        specials = {token: self.id_of(token) for token in SPECIAL_TOKENS}
        return [
            *reference.encode(text, self.vocab, self.merges, specials, pattern=self.pattern),
            specials[END],
        ]

    def id_of(self, token: str) -> int:
        """Return the id of a special token."""
        return next(i for i, text in self.vocab.items() if text == token.encode())


def check_counts(output: Path, model: Model, pattern: str) -> None:
    """Check that the counts are exact."""
    found = dict(PretokenCounts.load(output / "counts").items())
    expected = model.counts(pattern)
    wrong = {key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
    check(not wrong, "counts are exact", sorted(wrong)[:3])


def check_tokenizer(output: Path, trained: Trained) -> None:
    """Check that the tokenizer is that of the reference."""
    made = json.loads((output / "tokenizer" / "tokenizer.json").read_text())
    check(len(made["model"]["merges"]) == len(trained.merges), "all merges are there")
    ranks = [line.split() for line in (output / "tokenizer" / "tokenizer.tiktoken").open()]
    tokens = {int(number): base64.b64decode(text) for text, number in ranks}
    wrong = [i for i, token in tokens.items() if trained.vocab.get(i) != token]
    check(not wrong, "tokens are those of the reference", wrong[:3])


def check_tokens(output: Path, model: Model, trained: Trained) -> None:
    """Check that the token files contain each kept document once, with its ids, in order."""
    rows: dict[str, list[tuple[int, int, list[int]]]] = {label: [] for label in model.kept}
    for path in (output / "tokens").glob("*-*-of-*.parquet"):
        for row in pq.read_table(path).to_pylist():
            check(row["source"] in rows, "sources are known", row["source"])
            rows[row["source"]].append((row["offset"], row["part"], row["input_ids"]))
    for label, texts in model.kept.items():
        found = [ids for _, _, ids in sorted(rows[label])]
        check(len(found) == len(texts), "each document is there once", label, len(found))
        for number, text in enumerate(texts):
            check(
                found[number] == trained.ids(text), "ids are those of the reference", label, number
            )


def check_totals(output: Path, model: Model) -> None:
    """Check rejects and the totals of the manifest."""
    manifest = json.loads((output / "tokens" / "manifest.json").read_text())
    totals = manifest["totals"]
    check(totals["documents"] == sum(map(len, model.kept.values())), "documents add up", totals)
    check(totals["empty"] == model.empty.total(), "empty documents add up", totals)
    check(totals["rejected"] == model.rejects.total(), "rejects add up", totals)
    reasons: Counter[str] = Counter()
    for (_, reason), number in model.rejects.items():
        reasons[reason] += number
    check(totals["reasons"] == dict(reasons), "reasons add up", totals["reasons"], reasons)
    found = {entry["name"]: entry for entry in manifest["inputs"]}
    for label, texts in model.kept.items():
        check(found[label]["documents"] == len(texts), "documents of a file add up", label)
        check(found[label]["empty"] == model.empty[label], "empty ones of a file add up", label)


def check_rejects(output: Path, model: Model) -> None:
    """Check that exactly the planted rejects are recorded, with their places."""
    rows: list[dict[str, Any]] = []
    for path in (output / "rejects").glob("*.parquet"):
        rows += pq.read_table(path).to_pylist()
    found = Counter((row["source"], row["reason"]) for row in rows)
    check(found == model.rejects, "rejects are the planted ones", found - model.rejects)
    places = {(row["source"], row["offset"]) for row in rows}
    check(len(places) == len(rows), "rejects have their places")


def check_nothing_left(output: Path) -> None:
    """Check that nothing temporary is left."""
    odd = [
        str(path.relative_to(output))
        for path in output.rglob("*")
        if path.is_file() and (path.name.startswith((".", "_")) or path.suffix in (".tmp", ".part"))
    ]
    check(not odd, "nothing temporary is left", odd)


def check_export(folder: Path, model: Model, trained: Trained) -> None:
    """Check that an export to NumPy contains the ids of all documents, once each."""
    pieces: Counter[tuple[int, ...]] = Counter()
    for path in folder.glob("*.offsets.npy"):
        ids = np.load(folder / path.name.replace(".offsets", ""))
        pieces.update(tuple(ids[a:b].tolist()) for a, b in pairwise(np.load(path)))
    expected = [trained.ids(text) for texts in model.kept.values() for text in texts]
    check(pieces == Counter(map(tuple, expected)), "an export contains each document once")
