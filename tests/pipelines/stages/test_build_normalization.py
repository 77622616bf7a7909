"""Builds with a normalizer and rules: counted, trained and encoded alike."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from build_support import SEPARATOR, config_for, write_corpus

from bpe_core import BPETokenizer, count_pretokens, train_from_counts
from pipelines import build
from pipelines.config import BuildConfig
from pipelines.readers import ReadOptions
from pipelines.readers import tasks as work

PIECES = [
    *("nai\u0308ve ", "naïve ", "ﬁne ", "“quoted” ", "don’t ", "12345 ", "＜|endoftext|＞ ", "㎏ "),
    *("e", "\u0301", "\u0323", "가", "\u1100\u1161", "\n\n", "\t", "½", "(a", "…", "\ufdfa"),
]


def some_documents(number: int, seed: int, most: int = 60) -> list[bytes]:
    rng = random.Random(seed)
    return [
        ("x" + "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, most)))).encode()
        for _ in range(number)
    ]


def encoded(config: BuildConfig) -> dict[tuple[str, int], list[int]]:
    """The ids of each document, by its place in the sources; of pieces, joined."""
    ids: dict[tuple[str, int], list[int]] = {}
    for file in sorted(Path(config.output, "tokens").glob("train-*.parquet")):
        for row in pq.read_table(file).to_pylist():
            ids.setdefault((row["source"], row["offset"]), []).extend(row["input_ids"])
    return ids


RULES: list[dict[str, Any]] = [
    {"normalizer": "nfc"},
    {"normalizer": "nfkc", "normalize_quotes": True},
    {
        "normalizer": "nfkc",
        "normalize_quotes": True,
        "pattern": "cl100k",
        "rules": {"split_categories": True, "max_digits": 2, "forbid_whitespace_tokens": True},
    },
    {"normalize_quotes": True, "pattern": r"\p{L}+|[^\p{L}]+"},
    {"rules": {"max_digits": 3}},
]


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES, ids=lambda rules: " ".join(rules))
def test_ids_are_those_of_the_tokenizer_and_merges_those_of_the_documents(
    rules: dict[str, Any], tmp_path: Path
) -> None:
    corpus = {"a.txt": some_documents(40, 1), "b.txt": some_documents(40, 2)}
    write_corpus(tmp_path / "data", corpus)
    config = config_for(tmp_path, tokenizer={"vocab_size": 330, **rules})
    build.build(config)
    tokenizer = BPETokenizer.load(Path(config.output, "tokenizer"))
    assert tokenizer.normalizer == rules.get("normalizer")
    assert tokenizer.normalize_quotes == rules.get("normalize_quotes", False)

    found = encoded(config)
    end = tokenizer.special_tokens[SEPARATOR]
    sizes = {}
    for name, documents in corpus.items():
        offset = 0
        for document in documents:
            ids = found.pop((name, offset))
            assert ids == [*tokenizer.encode(document), end]
            text = tokenizer.decode(ids[:-1])
            assert text == tokenizer.normalize(document)
            sizes[name, offset] = len(document)
            offset += len(document) + len(SEPARATOR)
    assert not found
    rows = [
        row
        for file in Path(config.output, "tokens").glob("train-*.parquet")
        for row in pq.read_table(file).to_pylist()
    ]
    assert {(row["source"], row["offset"]): row["num_bytes"] for row in rows} == sizes

    settings = config.tokenizer
    counts = count_pretokens(
        [document for documents in corpus.values() for document in documents],
        pattern=settings.effective_pattern,
        special_tokens=[SEPARATOR],
        normalizer=settings.normalization_form,
        normalize_quotes=settings.normalize_quotes,
    )
    trained = train_from_counts(
        counts,
        330,
        [SEPARATOR],
        forbid_whitespace_tokens=settings.rules.forbid_whitespace_tokens,
    )
    assert trained.model.fingerprint == tokenizer.model.fingerprint
    if settings.rules.forbid_whitespace_tokens:
        made = [left + right for left, right in tokenizer.merges]
        assert not any(token.decode(errors="replace").isspace() for token in made)


@pytest.mark.slow
def test_long_documents_are_cut_where_the_normalized_text_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = partial(ReadOptions, piece_bytes=200, read_bytes=100)
    monkeypatch.setattr(work, "ReadOptions", short)
    documents = some_documents(3, 7, most=3000)
    write_corpus(tmp_path / "data", {"a.txt": documents})
    settings = {"vocab_size": 330, "normalizer": "nfkc", "normalize_quotes": True}
    config = config_for(tmp_path, tokenizer=settings, beam={"workers": 1})
    build.build(config)
    tokenizer = BPETokenizer.load(Path(config.output, "tokenizer"))
    end = tokenizer.special_tokens[SEPARATOR]
    found = list(encoded(config).values())
    assert found == [[*tokenizer.encode(document), end] for document in documents]
    files = sorted(Path(config.output, "tokens").glob("train-*.parquet"))
    table = pq.read_table(files, columns=["part"])
    assert max(table["part"].to_pylist()) > 5


def test_what_cannot_be_written_is_said_in_training_json(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_documents(20, 3)})
    config = config_for(tmp_path, tokenizer={"normalizer": "nfc"})
    build.build(config)
    training = json.loads(Path(config.output, "tokenizer", "training.json").read_bytes())
    assert training["tokenizer"]["normalizer"] == "nfc"
    reasons = training["not_written"]
    for name in ("vocab.json + merges.txt", "tokenizer.tiktoken"):
        assert "normalized before it is split" in reasons[name]
