"""Training on texts in memory: the tokenizer of training on files, in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bpe_core import train_bpe, train_from_iterator
from bpe_core.errors import InvalidUtf8Error, TrainingError

TEXTS = ["low lower lowest<|end|>", "", "neu é new\nnewer  ", "low new\u4e2d\u6587"] * 3


@pytest.mark.parametrize("tie_break", ["lexicographic", "first_id", "huggingface", "first_seen"])
@pytest.mark.parametrize("num_threads", [0, 1])
def test_texts_train_the_tokenizer_of_their_files(
    tmp_path: Path, tie_break: Any, num_threads: int
) -> None:
    paths = [tmp_path / str(i) for i in range(len(TEXTS))]
    for path, text in zip(paths, TEXTS, strict=True):
        path.write_bytes(text.encode())
    expected = train_bpe(paths, 270, ["<|end|>"], tie_break=tie_break)
    for texts in (TEXTS, iter(TEXTS), (text.encode() for text in TEXTS)):
        result = train_from_iterator(
            texts, 270, ["<|end|>"], tie_break=tie_break, num_threads=num_threads
        )
        assert (result.vocab, result.merges) == expected


def test_options_are_those_of_files(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("ﬁne ﬁve 1234 12\n\n  fine five" * 3)
    options: dict[str, Any] = {
        "pattern": "cl100k",
        "normalizer": "nfkc",
        "split_categories": True,
        "max_digits": 1,
        "min_frequency": 2,
        "max_token_bytes": 3,
        "forbidden_tokens": [b"fi"],
        "forbid_whitespace_tokens": True,
    }
    result = train_from_iterator([path.read_text()], 262, **options)
    assert (result.vocab, result.merges) == train_bpe(path, 262, **options)
    assert result.tokenizer().normalizer == "nfkc"


def test_texts_are_not_kept() -> None:
    def texts() -> Iterator[str]:
        for i in range(100):
            yield f"text {i % 10} " * 50_000  # 40 MB in all

    tracemalloc.start()
    train_from_iterator(texts(), 260, num_threads=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


def test_too_few_texts_are_reported() -> None:
    with pytest.warns(UserWarning, match="training reached 257 of 300 ids: no pair is left"):
        assert len(train_from_iterator(["ab"], 300).model) == 257
    with pytest.warns(UserWarning, match="training reached 256 of 300 ids"):
        train_from_iterator([], 300)


def test_what_is_no_iterable_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("low")
    wrong: list[tuple[Any, str]] = [
        ("hello world", "expected several texts, found one str; give a list, or for files: train_"),
        (path, "expected several texts, found one PosixPath"),
        (5, "expected several texts, found one int"),
        ([str(path)], r"expected texts, found names of files .* train_bpe\(paths, …\)"),
        ([path], "document 0: expected str or bytes, found PosixPath"),
        (["a", 5], "document 1: expected str or bytes, found int"),
        ([["a", "b"]], r"found list; for batches: itertools\.chain\.from_iterable\(batches\)"),
    ]
    for texts, message in wrong:
        with pytest.raises(TrainingError, match=message):
            train_from_iterator(texts, 300)
    with pytest.raises(InvalidUtf8Error, match="document 1, byte 0: expected UTF-8"):
        train_from_iterator([b"a", b"\xff"], 300)
