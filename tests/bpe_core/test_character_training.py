"""Training of tokenizers that merge characters, and the files that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from character_support import TEXT
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times
from tokenizers import Tokenizer

from bpe_core import (
    BPETokenizer,
    PretokenCounts,
    TrainingResult,
    count_pretokens,
    train_characters_from_counts,
)
from bpe_core.errors import TrainingError

SAMPLES = [
    *[
        "",
        " ",
        "  ",
        "the earth",
        " the",
        "\n\n  x",
        "Ω",
        "ΩΩ ΩΩ",
        "日本語の Ω",
        "<|end|>",
        "<unk>",
    ],
    *[
        "<unk>",
        "a<|end|>the",
        "<|end|> the",
        "aaaaaaa",
        "\x00",
        "e\u0301▁ ▁",
        "👩🏽",
        *TEXT.splitlines(),
    ],
]


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> PretokenCounts:
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text(TEXT * 3)
    return count_pretokens(path, special_tokens=["<|end|>"])


def trained(counts: PretokenCounts, **options: Any) -> TrainingResult:
    return train_characters_from_counts(counts, 500, ["<|end|>"], **options)


@pytest.mark.parametrize("character_coverage", [1.0, 0.98])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_what_is_saved_has_the_same_ids_for_other_libraries(
    byte_fallback: bool, character_coverage: float, counts: PretokenCounts, tmp_path: Path
) -> None:
    result = trained(counts, byte_fallback=byte_fallback, character_coverage=character_coverage)
    tokenizer = result.tokenizer()
    assert len(tokenizer) <= 500
    assert tokenizer.save(tmp_path) == {}
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    for text in SAMPLES:
        ids = tokenizer.encode(text)
        assert ids == library.encode(text).ids == processor.encode(text), text
        if byte_fallback:
            assert tokenizer.decode(ids) == text.replace("▁", " ")
    assert BPETokenizer.load(tmp_path) == tokenizer
    assert BPETokenizer.from_sentencepiece(tmp_path / "tokenizer.model").encode("the") == (
        tokenizer.encode("the")
    )


@settings(max_examples=times(1))
@given(st.text("ab c", min_size=1, max_size=60), st.integers(262, 275))
def test_any_small_text_trains_a_tokenizer_that_others_read(text: str, vocab_size: int) -> None:
    words = {word.encode(): text.count(word) for word in {" ", " a", *text.split(" ")} if word}
    counts = PretokenCounts.from_mapping({word: max(count, 1) for word, count in words.items()})
    model = train_characters_from_counts(counts, vocab_size).model
    from bpe_core.formats.huggingface import huggingface_bytes
    from bpe_core.formats.sentencepiece import sentencepiece_bytes

    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_bytes(model))
    library = Tokenizer.from_str(huggingface_bytes(model).decode())
    ids = BPETokenizer.from_model(model).encode(text)
    assert ids == processor.encode(text) == library.encode(text).ids


def test_frequent_words_become_tokens_with_the_space_before_them(counts: PretokenCounts) -> None:
    result = trained(counts)
    assert result.tokenizer().token_to_id(b" the") is not None
    assert result.explain_stop()
    assert list(result.merge_counts) == result.model.merge_counts.tolist()  # type: ignore[union-attr]


def test_rare_characters_are_left_to_their_bytes(counts: PretokenCounts) -> None:
    full, most = trained(counts), trained(counts, character_coverage=0.95)
    characters = [
        sum(len(token.decode("utf-8", "replace")) == 1 for _, token in result.model.tokens)
        for result in (full, most)
    ]
    assert characters[0] > characters[1]
    assert full.tokenizer().token_to_id("日".encode()) is not None
    assert most.tokenizer().token_to_id("한".encode()) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"character_coverage": 0}, "character_coverage: expected a number above 0"),
        ({"character_coverage": 1.5}, "character_coverage"),
        ({"vocab_size": 200}, "vocab_size: expected more than 257"),
        ({"vocab_size": 258}, "vocab_size"),
        ({"counts": {b"a": 1}}, "expected the space"),
        ({"counts": {b"\xff": 1}}, "expected pre-tokens in UTF-8"),
    ],
)
def test_unusable_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    values = {"counts": {b" a": 2, b" b": 1}, "vocab_size": 300, **arguments}
    counts = PretokenCounts.from_mapping(values.pop("counts"))
    with pytest.raises(TrainingError, match=message):
        train_characters_from_counts(counts, **values)


def test_counts_of_normalized_text_make_a_tokenizer_that_normalizes() -> None:
    metadata = {"normalizer": "nfkc", "normalize_quotes": "true"}
    counts = PretokenCounts.from_mapping({b" a": 2}, metadata)
    model = train_characters_from_counts(counts, 300).model
    assert (model.normalizer, model.normalize_quotes) == ("nfkc", True)
