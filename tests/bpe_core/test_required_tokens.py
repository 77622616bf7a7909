"""Required tokens are tokens of their own bytes, at any size, with any base."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bpe_core import (
    BPETokenizer,
    PretokenCounts,
    measure_vocabulary_sizes,
    reference,
    train_from_counts,
)
from bpe_core.errors import TrainingError
from bpe_core.extending import smallest_vocabulary
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.required_tokens import why_never_encoded

words = st.binary(min_size=1, max_size=6).map(lambda b: bytes(97 + byte % 3 for byte in b))
counted = st.dictionaries(words, st.integers(1, 9), min_size=1, max_size=8)
lists = st.lists(words, max_size=4, unique=True)
WORDS = {b"low": 5, b"lower": 2, b"newest": 6, b"widest": 3}


@pytest.mark.slow
@given(counted, lists, st.integers(256, 275))
def test_the_rule_is_that_of_the_reference(
    mapping: dict[bytes, int], required: list[bytes], size: int
) -> None:
    """As many merges are learned as leave room; each required token is then encoded as one."""
    counts = PretokenCounts.from_mapping(mapping)
    learned = train_from_counts(counts, size).merges
    fitting = [
        n
        for n in range(len(learned) + 1)
        if 256 + n + len(reference.required_merges(learned[:n], required)) <= size
    ]
    if not fitting:
        with pytest.raises(TrainingError, match="with room for"):
            train_from_counts(counts, size, required_tokens=required)
        return
    kept = learned[: max(fitting)]
    expected = [*kept, *reference.required_merges(kept, required)]
    result = train_from_counts(counts, size, required_tokens=required)
    assert result.merges == expected
    assert len(result.model) <= size
    tokenizer = result.tokenizer()
    for token in required:
        assert len(tokenizer.encode(token)) == 1
    assert list(result.merge_counts[len(kept) :]) == [0] * (len(expected) - len(kept))


@given(counted, lists, lists)
def test_forbidden_tokens_are_not_parts(
    mapping: dict[bytes, int], required: list[bytes], forbidden: list[bytes]
) -> None:
    forbidden = [token for token in forbidden if len(token) > 1 and token not in required]
    counts = PretokenCounts.from_mapping(mapping)
    options = {"forbidden_tokens": forbidden, "required_tokens": required}
    try:
        result = train_from_counts(counts, 300, **options)  # type: ignore[arg-type]
    except TrainingError as error:
        assert "forbidden or an existing token" in str(error)
        return
    assert not set(result.vocab.values()) & set(forbidden)
    assert all(len(result.tokenizer().encode(token)) == 1 for token in required)


def test_each_size_has_the_required_tokens() -> None:
    counts = PretokenCounts.from_mapping(WORDS)
    required = [b"newer", b"lowlow", b"xyz"]
    results = train_from_counts(counts, [265, 270], required_tokens=required)
    for size, result in zip([265, 270], results, strict=True):
        assert len(result.model) == size
        assert set(required) <= set(result.vocab.values())
        alone = train_from_counts(counts, size, required_tokens=required)
        assert alone.model == result.model
    assert results[1].model.training_options is not None
    assert results[1].model.training_options["required_tokens"] == ["newer", "lowlow", "xyz"]
    assert smallest_vocabulary(results[1].model, 256) is None
    with pytest.raises(TrainingError, match="required tokens"):
        measure_vocabulary_sizes(results[1].tokenizer(), counts, [265])


def test_a_base_keeps_its_ids() -> None:
    counts = PretokenCounts.from_mapping(WORDS)
    base = train_from_counts(counts, 262, ["<s>"]).tokenizer()
    required = [b"lowest", b"zz"]
    extended = train_from_counts(counts, 268, base=base, required_tokens=required).tokenizer()
    assert base.vocab.items() <= extended.vocab.items()
    assert extended.merges[: len(base.merges)] == base.merges
    assert [len(extended.encode(token)) for token in required] == [1, 1]
    assert len(extended.model) == 268


def test_the_json_file_has_the_same_ids() -> None:
    counts = PretokenCounts.from_mapping(WORDS)
    tokenizer = train_from_counts(counts, 272, required_tokens=[b"newer", b"\xc3\xa9t"]).tokenizer()
    peer = tokenizers.Tokenizer.from_str(huggingface_bytes(tokenizer.model).decode())
    for text in ("newer lower", "ét widest newest", "lowlow newernewer"):
        assert peer.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"required_tokens": ["text"]}, "required_tokens: expected several bytes"),
        ({"required_tokens": [b""]}, "found an empty one"),
        ({"required_tokens": [b"ab"], "forbidden_tokens": [b"ab"]}, "none that is forbidden"),
        ({"required_tokens": [b"abc"], "forbidden_tokens": [b"ab", b"bc"]}, "new tokens can make"),
    ],
)
def test_impossible_tokens_are_refused(options: dict[str, list[bytes]], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        train_from_counts(PretokenCounts.from_mapping(WORDS), 270, **options)  # type: ignore[arg-type]


def test_a_byte_without_a_token_is_an_error() -> None:
    base = BPETokenizer({0: b"a", 1: b"b"}, [])
    counts = PretokenCounts.from_mapping({b"ab": 2})
    with pytest.raises(TrainingError, match="0x63"):
        train_from_counts(counts, 4, base=base, required_tokens=[b"abc"])


def test_texts_that_are_never_one_pretoken() -> None:
    assert why_never_encoded(" York", "gpt2", None, False) is None
    assert why_never_encoded("a b", "none", None, False) is None
    assert why_never_encoded("a b", r"(a)\1|\S+|\s", None, False) is not None
    assert "normalization" in str(why_never_encoded("\ufb01", "gpt2", "nfkc", False))
