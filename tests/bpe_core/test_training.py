"""Training: the merges of the reference and of Hugging Face, ids, limits and warnings."""

from __future__ import annotations

import dataclasses
import json
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_support import SPECIALS, huggingface_merges, minbpe_merges, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import seldom, times

from bpe_core import (
    BPETokenizer,
    PretokenCounts,
    TrainingResult,
    count_pretokens,
    counting,
    reference,
    train_bpe,
    train_from_counts,
)
from bpe_core.errors import (
    CountOverflowError,
    InvalidPatternError,
    InvalidUtf8Error,
    SpecialTokenError,
    TrainingError,
)

TIE_BREAKS: list[Any] = ["lexicographic", "first_id", "huggingface"]  # which counts decide
END = "<|endoftext|>"

words = st.dictionaries(
    st.text("ab \xad!\xff", min_size=1, max_size=12).map(str.encode),
    st.sampled_from([1, 1, 2, 3, 2**31, 2**40]),
    max_size=10,
)


@pytest.fixture(scope="module")
def kjv_counts(kjv_documents: list[bytes]) -> PretokenCounts:
    return count_pretokens(kjv_documents)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training") / "text.txt"


def quietly(*args: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train_bpe(*args, **options)


# ---- equal to the reference and to Hugging Face


@pytest.mark.slow
@pytest.mark.parametrize("tie_break", seldom(TIE_BREAKS, 2))
def test_merges_of_a_corpus_equal_the_reference(
    tie_break: Any, kjv_path: Path, kjv_counts: PretokenCounts
) -> None:
    expected = reference.learn_merges(kjv_counts.items(), 256 + times(3), tie_break=tie_break)
    vocab, merges = train_bpe(kjv_path, 257 + times(3), [END], tie_break=tie_break)
    assert merges == expected.merges
    assert vocab == reference.build_vocab([END], expected.merges)
    result = train_from_counts(kjv_counts, 257 + times(3), [END], tie_break=tie_break)
    assert (result.merges, result.merge_counts) == (expected.merges, expected.counts)


@pytest.mark.slow
def test_merges_of_a_corpus_equal_those_of_hugging_face(
    kjv_documents: list[bytes], kjv_counts: PretokenCounts
) -> None:
    found = train_from_counts(kjv_counts, 256 + times(20), tie_break="huggingface")
    documents = (document.decode() for document in kjv_documents)
    assert found.merges == huggingface_merges(documents, times(20))


@settings(max_examples=times(0.6))
@given(documents=st.lists(texts, max_size=4), merges=st.integers(1, 40))
def test_merges_of_random_text_equal_those_of_hugging_face(
    documents: list[str], merges: int
) -> None:
    counted = count_pretokens(iter(documents))
    found = train_from_counts(counted, 256 + merges, tie_break="huggingface")
    assert found.merges == huggingface_merges(documents, merges)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@settings(max_examples=times(1))
@given(
    mapping=words,
    merges=st.integers(0, 30),
    min_frequency=st.integers(1, 4),
    max_token_bytes=st.none() | st.integers(1, 6),
    forbidden=st.lists(st.sampled_from([b"ab", b" a", b"aa", b"a!"]), max_size=2),
)
def test_every_option_does_what_the_reference_does(
    tie_break: Any,
    mapping: dict[bytes, int],
    merges: int,
    min_frequency: int,
    max_token_bytes: int | None,
    forbidden: list[bytes],
) -> None:
    options: dict[str, Any] = {
        "tie_break": tie_break,
        "min_frequency": min_frequency,
        "max_token_bytes": max_token_bytes,
        "forbidden_tokens": forbidden,
    }
    expected = reference.learn_merges(mapping.items(), 256 + merges, **options)
    found = train_from_counts(PretokenCounts.from_mapping(mapping), 256 + merges, **options)
    assert (found.merges, found.merge_counts) == (expected.merges, expected.counts)
    assert found.stop_reason == expected.stop_reason
    assert found.vocab == reference.build_vocab([], expected.merges)


@settings(max_examples=times(0.6))
@given(
    documents=st.lists(texts, min_size=1, max_size=3),
    pattern=st.sampled_from(["gpt2", "o200k", r"\w+"]),
)
def test_training_on_files_equals_the_reference(
    documents: list[str], pattern: str, text_file: Path
) -> None:
    paths = [text_file.with_suffix(f".{i}") for i in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.write_bytes(document.encode())
    expected = reference.train(documents, 290, SPECIALS, pattern=pattern)
    assert quietly(paths, 290, SPECIALS, pattern=pattern) == expected


@settings(max_examples=times(0.6))
@given(
    documents=st.lists(texts | st.text("ab ", max_size=60), min_size=1, max_size=3),
    pattern=st.sampled_from(["gpt2", "none", r"\w+"]),
    batch_bytes=st.integers(1, 40),
)
def test_ties_broken_by_first_place_equal_the_reference(
    documents: list[str], pattern: str, batch_bytes: int, text_file: Path
) -> None:
    paths = [text_file.with_suffix(f".{i}") for i in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.write_bytes(document.encode())
    options: dict[str, Any] = {"pattern": pattern, "tie_break": "first_seen"}
    expected = reference.train(documents, 290, SPECIALS, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_BATCH_BYTES", batch_bytes)
        assert quietly(paths, 290, SPECIALS, **options) == expected


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "none"])
def test_merges_of_a_text_equal_those_of_minbpe(pattern: str, kjv: bytes, text_file: Path) -> None:
    text = kjv[: times(2000)]
    text_file.write_bytes(text)
    chunks = reference.split_pretokens(text.decode(), pattern)
    expected = minbpe_merges((chunk.encode() for chunk in chunks), 30)
    assert train_bpe(text_file, 256 + 30, pattern=pattern, tie_break="first_seen")[1] == expected
    # A small text has many ties.
    small = text[:3000]
    text_file.write_bytes(small)
    chunks = reference.split_pretokens(small.decode(), pattern)
    expected = minbpe_merges((chunk.encode() for chunk in chunks), times(6))
    found = quietly(text_file, 256 + times(6), pattern=pattern, tie_break="first_seen")[1]
    assert found == expected


def test_the_order_of_counts_changes_nothing(kjv_counts: PretokenCounts) -> None:
    rows = kjv_counts.to_arrow()
    order = np.random.default_rng(4).permutation(len(rows))
    shuffled = PretokenCounts(rows.take(order))
    expected = train_from_counts(kjv_counts, 1000)
    assert train_from_counts(shuffled, 1000).merges == expected.merges


@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_threads_change_nothing(
    num_threads: int, kjv_path: Path, kjv_counts: PretokenCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_BATCH_BYTES", 100_000)
    expected = train_from_counts(kjv_counts, 800, [END])
    found = train_bpe(kjv_path, 800, [END], num_threads=num_threads)
    assert found == (expected.vocab, expected.merges)


# ---- where text is cut


def test_text_is_cut_at_separators_as_at_special_tokens(text_file: Path) -> None:
    text_file.write_bytes(b"ab|ab|ab" * 3)
    merges = [(b"a", b"b")]
    for separator in ("|", b"|"):
        vocab, found = quietly(text_file, 300, pattern="none", separator=separator)
        assert found == [*merges, (b"ab", b"ab")]
        assert vocab == reference.build_vocab([], found)
    assert quietly(text_file, 300, ["|"], pattern="none", separator="|")[1] == [
        *merges,
        (b"ab", b"ab"),
    ]
    assert quietly(text_file, 258, pattern="none")[1] == [*merges, (b"|", b"ab")]


def test_bytes_are_read_as_they_are(text_file: Path) -> None:
    text_file.write_bytes(b"\xef\xbb\xbfa\r\nb\r\n" * 4)
    found = quietly(text_file, 300, pattern="none")[1]
    assert (b"\r", b"\n") in found
    assert any(left + right == b"\xef\xbb\xbfa" for left, right in found)


def test_invalid_utf8_follows_the_policy(text_file: Path) -> None:
    text_file.write_bytes(b"ab\xffab")
    with pytest.raises(InvalidUtf8Error, match="byte 2"):
        train_bpe(text_file, 257)
    assert quietly(text_file, 300, errors="ignore")[1] == [(b"a", b"b"), (b"ab", b"ab")]
    assert (b"a", b"b") in quietly(text_file, 300, errors="replace")[1]


# ---- ids


def test_ids_are_special_tokens_in_order_then_bytes_then_merges(kjv_counts: PretokenCounts) -> None:
    result = train_from_counts(kjv_counts, 300, ["<b>", "<a>"])
    vocab = list(result.vocab.items())
    assert [i for i, _ in vocab] == list(range(300))
    tokens = [token for _, token in vocab]
    assert tokens[:2] == [b"<b>", b"<a>"]
    assert tokens[2:258] == [bytes([byte]) for byte in range(256)]
    assert tokens[258:] == [left + right for left, right in result.merges]


def test_a_special_token_keeps_its_own_id_beside_equal_ordinary_bytes() -> None:
    found = PretokenCounts.from_mapping({b"abab": 5})
    result = train_from_counts(found, 262, ["ab", "a", "é"])
    assert result.merges == [(b"a", b"b"), (b"ab", b"ab")]
    assert [i for i, token in result.vocab.items() if token == b"ab"] == [0, 3 + 256]
    assert [i for i, token in result.vocab.items() if token == b"a"] == [1, 3 + ord("a")]
    tokenizer = result.tokenizer()
    assert tokenizer.encode("ababaé") == [0, 0, 1, 2]
    assert tokenizer.encode("abab", allowed_special="none") == [260]
    assert tokenizer.encode("aab", allowed_special="none") == [3 + ord("a"), 259]


def test_results_of_several_sizes_are_prefixes(kjv_counts: PretokenCounts) -> None:
    sizes = [500, 257, 400, 257, 500]
    results = train_from_counts(kjv_counts, sizes, [END])
    assert [len(result.vocab) for result in results] == sizes
    whole = results[0]
    for size, result in zip(sizes, results, strict=True):
        alone = train_from_counts(kjv_counts, size, [END])
        assert result.merges == alone.merges == whole.merges[: size - 257]
        assert result.merge_counts == alone.merge_counts == whole.merge_counts[: size - 257]
        assert list(result.vocab.items()) == list(whole.vocab.items())[:size]
        assert result.stop_reason == "vocab_size_reached"
        assert result.model == alone.model
    assert train_from_counts(kjv_counts, []) == []


def test_numbers_of_numpy_are_sizes() -> None:
    found = PretokenCounts.from_mapping({b"abc": 1})
    assert len(train_from_counts(found, np.int64(257)).merges) == 1  # type: ignore[call-overload]
    sizes = np.array([256, 258])
    assert [len(r.merges) for r in train_from_counts(found, sizes)] == [0, 2]  # type: ignore[call-overload]


def test_the_result_knows_what_it_was_made_of(kjv_counts: PretokenCounts) -> None:
    made = PretokenCounts(kjv_counts.to_arrow(), {"pattern": "o200k", "fingerprint": "c0ffee"})
    result = train_from_counts(made, 300, [END], tie_break="first_id")
    assert isinstance(result, TrainingResult)
    assert result.model.pattern == result.tokenizer().pattern == "o200k"
    assert result.model.tie_break == "first_id"
    assert result.model.counts_fingerprint == "c0ffee"
    assert result.model.merge_counts.tolist() == result.merge_counts
    assert result.tokenizer().vocab == result.vocab
    assert result.tokenizer().merges == result.merges
    assert result.tokenizer().special_tokens == {END: 0}


def test_tokens_of_white_space_alone_are_not_made_when_forbidden(
    kjv_counts: PretokenCounts, text_file: Path
) -> None:
    mapping = {b"\n\n": 90, b"    ": 80, b" \x00": 70, "\u3000".encode() * 2: 60, b" a": 2}
    found = PretokenCounts.from_mapping(mapping)
    assert len(train_from_counts(found, 260).merges) == 4
    result = train_from_counts(found, 300, forbid_whitespace_tokens=True)
    assert result.merges == [
        (b"\xe3", b"\x80"),
        (b"\x80", b"\xe3\x80"),
        (b"\xe3\x80", b"\x80\xe3\x80"),
        (b" ", b"a"),
    ]
    text_file.write_bytes(b"\n\n\n\n a\n\n a")
    _, merges = quietly(text_file, 300, pattern="none", forbid_whitespace_tokens=True)
    assert merges[0] == (b" ", b"a")
    assert not any(reference.is_blank(left + right) for left, right in merges)


def test_forbidden_tokens_are_never_made(text_file: Path) -> None:
    text_file.write_bytes(b"abab")
    _, merges = quietly(text_file, 300, forbidden_tokens=[b"ab"])
    assert merges == [(b"b", b"a"), (b"ba", b"b"), (b"a", b"bab")]


def test_the_options_of_a_training_are_in_its_files(
    kjv_counts: PretokenCounts, tmp_path: Path
) -> None:
    result = train_from_counts(
        kjv_counts,
        300,
        min_frequency=2,
        max_token_bytes=5,
        forbidden_tokens=[b"th", b"\xff\x00"],
        forbid_whitespace_tokens=True,
    )
    expected = {
        "min_frequency": 2,
        "max_token_bytes": 5,
        "forbidden_tokens": ["th", {"hex": "ff00"}],
        "forbid_whitespace_tokens": True,
        "base": None,
    }
    assert result.model.training_options == expected
    result.tokenizer().save(tmp_path)
    assert BPETokenizer.load(tmp_path).model == result.model
    told = json.loads((tmp_path / "training.json").read_bytes())["tokenizer"]
    assert told["training_options"] == expected
    # How it was trained is no part of what it is.
    other = dataclasses.replace(result.model, training_options=None)
    assert other.fingerprint == result.model.fingerprint


# ---- where training ends


def test_a_corpus_too_small_for_the_vocabulary_warns_with_the_number_reached(
    text_file: Path,
) -> None:
    text_file.write_bytes(b"abab")
    with pytest.warns(UserWarning, match=r"reached 258 of 300 ids: no pair is left to merge"):
        _, merges = train_bpe(text_file, 300)
    assert merges == [(b"a", b"b"), (b"ab", b"ab")]
    with pytest.warns(
        UserWarning, match="257 of 300 ids: no pair left is as frequent as min_frequency asks"
    ):
        train_bpe(text_file, 300, min_frequency=2)


def test_an_empty_corpus_gives_bytes_and_special_tokens(text_file: Path) -> None:
    text_file.write_bytes(b"")
    with pytest.warns(UserWarning, match="reached 257 of 300"):
        vocab, merges = train_bpe(text_file, 300, [END])
    assert (vocab, merges) == (reference.build_vocab([END], []), [])
    result = train_from_counts(PretokenCounts.from_mapping({}), 300)
    assert (result.merges, result.stop_reason) == ([], "no_pairs_left")


def test_a_vocabulary_of_bytes_and_special_tokens_alone_needs_no_merge(text_file: Path) -> None:
    text_file.write_bytes(b"abab")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vocab, merges = train_bpe(text_file, 257, [END])
    assert (len(vocab), merges) == (257, [])


def test_pairs_are_counted_in_64_bits() -> None:
    big = 2**62
    result = train_from_counts(PretokenCounts.from_mapping({b"ab": big, b"cd": big - 1}), 258)
    assert result.merge_counts == [big, big - 1]
    for mapping in ({b"abab": big}, {b"xab": big, b"yab": big}):
        with pytest.raises(CountOverflowError):
            train_from_counts(PretokenCounts.from_mapping(mapping), 300)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_counts_beyond_32_bits_give_the_merges_of_the_reference(tie_break: Any) -> None:
    # One pre-token above 2^31, all together above 2^32: sums that wrap would be rare or negative.
    mapping = {
        b"the": 2**31 + 17,
        b" the": 2**32 - 5,
        b"then": 2**31 - 1,
        b"thaw": 2**31 - 1,
        b"aaaa": 2**30,
        b"rare": 3,
    }
    expected = reference.learn_merges(mapping.items(), 290, tie_break=tie_break)
    assert expected.counts[0] > 2**33
    found = train_from_counts(PretokenCounts.from_mapping(mapping), 290, tie_break=tie_break)
    assert (found.merges, found.merge_counts) == (expected.merges, expected.counts)
    assert found.merges[0] == (b"t", b"h")
    assert found.tokenizer().count_tokens("the") == 1


def test_progress_tells_the_merges_made_and_wanted(kjv_counts: PretokenCounts) -> None:
    told: list[tuple[int, int]] = []
    result = train_from_counts(
        kjv_counts, 1000, [END], progress=lambda made, wanted: told.append((made, wanted))
    )
    assert told[-1] == (743, 743) == (len(result.merges), 1000 - 257)
    assert told == sorted(told)
    assert len(told) > 2
    assert train_from_counts(kjv_counts, 300, progress=True).merges == result.merges[:44]


# ---- misuse


@pytest.mark.parametrize(
    ("vocab_size", "message"),
    [
        (256, r"at least 257 \(256 bytes and 1 special tokens\), found 256"),
        (0, "at least 257"),
        (-5, "at least 257"),
        (True, "an integer, found True"),
        (300.0, "an integer, found 300.0"),
        ("300", "an integer"),
        ([300, 256], "at least 257"),
    ],
)
def test_unusable_sizes_are_refused(vocab_size: Any, message: str, text_file: Path) -> None:
    text_file.write_bytes(b"abab")
    with pytest.raises(TrainingError, match=f"vocab_size: expected {message}"):
        train_from_counts(PretokenCounts.from_mapping({b"ab": 1}), vocab_size, [END])
    if not isinstance(vocab_size, list):
        with pytest.raises(TrainingError, match=f"vocab_size: expected {message}"):
            train_bpe(text_file, vocab_size, [END])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tie_break": "first_seen"}, "first_seen needs the order of the text"),
        ({"tie_break": "random"}, "tie_break: expected lexicographic"),
        ({"min_frequency": 0}, "min_frequency: expected at least 1, found 0"),
        ({"forbidden_tokens": ["ab"]}, "forbidden_tokens: expected several bytes, found 'ab'"),
        ({"forbidden_tokens": b"ab"}, "forbidden_tokens: expected several bytes, found 97"),
        ({"max_token_bytes": 0}, "max_token_bytes: expected at least 1, found 0"),
    ],
)
def test_unusable_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        train_from_counts(PretokenCounts.from_mapping({b"ab": 1}), 300, **options)


def test_unusable_inputs_are_refused(text_file: Path, tmp_path: Path) -> None:
    text_file.write_bytes(b"abab")
    for missing in ("none.txt", tmp_path):
        with pytest.raises(TrainingError, match="input_path: expected a file, found none at"):
            train_bpe([text_file, missing], 300)
    for text in ("x" * 5000, "a\0", "\ud800"):
        for path in (text, [text], Path(text), [text_file, text]):
            with pytest.raises(TrainingError, match="input_path: expected a path, found '"):
                train_bpe(path, 300)
    for other in (5, None, b"text", [text_file, b"text"], [None]):
        with pytest.raises(TrainingError, match="input_path: expected a path as str"):
            train_bpe(other, 300)  # type: ignore[arg-type]
    for special_tokens in (["<s>", "<s>"], [""], ["\ud800"], "<s>", [b"<s>"]):
        with pytest.raises(SpecialTokenError):
            train_bpe(text_file, 300, special_tokens)  # type: ignore[arg-type]
        with pytest.raises(SpecialTokenError):
            train_from_counts(count_pretokens(text_file), 300, special_tokens)  # type: ignore[arg-type]
    for separator in ("", b"", b"\xff", "\ud800", "aba"):
        with pytest.raises(TrainingError, match="separator: expected"):
            train_bpe(text_file, 300, separator=separator)
    with pytest.raises(InvalidPatternError):
        train_bpe(text_file, 300, pattern="gpt3")
    with pytest.raises(TrainingError, match="errors: expected"):
        train_bpe(text_file, 300, errors="other")  # type: ignore[arg-type]


def test_a_shuffled_corpus_gives_the_same_merges(kjv_documents: list[bytes]) -> None:
    documents = kjv_documents[:300]
    expected = train_from_counts(count_pretokens(documents), 600).merges
    random.Random(8).shuffle(documents)
    assert train_from_counts(count_pretokens(documents), 600).merges == expected


def test_tokens_longer_in_all_than_a_model_holds_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bpe_core.training.MOST_TOKEN_BYTES", 10_000)
    text = random.Random(1).choices("ab", k=3_000)
    counts = count_pretokens(["".join(text)], pattern="none")
    assert len(train_from_counts(counts, 300).merges) == 44
    with pytest.raises(TrainingError, match="expected at most 10,000 bytes in all"):
        train_from_counts(counts, 32_000)


def test_special_tokens_that_counts_were_made_without_are_told() -> None:
    without = count_pretokens(iter(["a<|e|> b<|e|>"]))
    with pytest.warns(
        UserWarning, match=r"counts made without \['<\|e\|>'\]; .* count the text with"
    ):
        assert (b"<", b"|") in train_from_counts(without, 260, ["<|e|>"]).merges
    counted = count_pretokens(iter(["a<|e|> b<|e|>"]), special_tokens=["<|f|>", "<|e|>"])
    unsaid = PretokenCounts.from_mapping(dict(without.items()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_from_counts(counted, 258, ["<|e|>"])
        train_from_counts(without, 258)
        train_from_counts(unsaid, 258, ["<|e|>"])
