"""CharBPETokenizer beside Hugging Face's class of that name: the same files, the same ids."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from core_support import FRAGMENTS
from hypothesis import given
from hypothesis import strategies as st
from profiles import seldom, share, times
from tokenizers import CharBPETokenizer as Library

from bpe_core import CharBPETokenizer
from bpe_core.errors import FormatError

NATIVE = Path(__file__).parents[2] / "bpe_core" / "native"
SEPARATOR = "<|endoftext|>"
# The library's options, and ours that mean the same.
OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    (
        {"lowercase": True, "unicode_normalizer": "nfc"},
        {"lowercase": True, "unicode_normalizer": "nfc"},
    ),
    ({"bert_normalizer": False, "split_on_whitespace_only": True}, {"words": "whitespace"}),
    ({"suffix": "</end>", "unk_token": "[?]"}, {"end_of_word": "</end>", "unk_token": "[?]"}),
]
# A separator to str.split, but not to the library.
NOT_ALIKE = dict.fromkeys(range(0x1C, 0x20))
any_text = st.lists(
    st.sampled_from([*FRAGMENTS, "</w>", "<unk>", "。", "ﬁ", "Σ", "a\u0308", "\ufffd", "\x0b"])
    | st.characters(exclude_categories=["Cs"]),
    max_size=40,
).map("".join)


def pair(
    directory: Path,
    texts: Iterable[str],
    theirs: dict[str, Any],
    ours: dict[str, Any],
    vocab_size: int = 2000,
    limit_alphabet: int = 300,
) -> tuple[Library, CharBPETokenizer]:
    """The library's tokenizer trained on texts, read back from its files by it and by us."""
    trained = Library(**theirs)
    unk = theirs.get("unk_token", "<unk>")
    trained.train_from_iterator(
        texts,
        vocab_size=vocab_size,
        limit_alphabet=limit_alphabet,
        special_tokens=[unk],
        suffix=theirs.get("suffix", "</w>"),
        show_progress=False,
    )
    trained.save_model(str(directory))
    files = [str(directory / name) for name in ("vocab.json", "merges.txt")]
    return Library.from_file(*files, **theirs), CharBPETokenizer.from_huggingface(*files, **ours)


@pytest.fixture(scope="module")
def pairs(
    tmp_path_factory: pytest.TempPathFactory, kjv_documents: list[bytes]
) -> list[tuple[Library, CharBPETokenizer]]:
    """One for each of the options, which know some characters of some scripts."""
    texts = [document.decode() for document in kjv_documents[:3]] + [*FRAGMENTS * 3, "日本語。 Ä"]
    return [pair(tmp_path_factory.mktemp("pair"), texts, *options) for options in OPTIONS]


def check(library: Library, tokenizer: CharBPETokenizer, text: str) -> None:
    ids = library.encode(text).ids
    assert tokenizer.encode(text) == ids, text
    decoded = library.decode(ids, skip_special_tokens=False)
    # The library puts spaces around special tokens, and makes spaces of what looks like its suffix.
    if tokenizer.unk_token not in decoded and tokenizer.end_of_word not in text:
        assert tokenizer.decode(ids) == decoded


@pytest.mark.slow
def test_ids_are_those_of_the_library_on_the_example_corpus(
    pairs: list[tuple[Library, CharBPETokenizer]], kjv_documents: list[bytes]
) -> None:
    for library, tokenizer in pairs:
        for document in share(kjv_documents[::7], 4):
            check(library, tokenizer, document.decode())


@pytest.mark.slow
@given(any_text)
def test_ids_are_those_of_the_library_on_random_texts(
    pairs: list[tuple[Library, CharBPETokenizer]], text: str
) -> None:
    for library, tokenizer in pairs:
        check(library, tokenizer, text.translate(NOT_ALIKE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "option", [0, *(pytest.param(i, marks=pytest.mark.soak) for i in range(1, len(OPTIONS)))]
)
def test_ids_are_those_of_the_library_on_every_character(
    pairs: list[tuple[Library, CharBPETokenizer]], option: int
) -> None:
    library, tokenizer = pairs[option]
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c not in NOT_ALIKE]
    points = [*points[:0x3000], *share(points[0x3000:], 11)]
    for at in range(0, len(points), 4096):
        # A character alone, at the end of a word and inside of one.
        text = "".join(f"{chr(c)} a{chr(c)} a{chr(c)}b\n" for c in points[at : at + 4096])
        ids = library.encode(text).ids
        if tokenizer.encode(text) == ids:
            continue
        for c in points[at : at + 4096]:
            check(library, tokenizer, f"{chr(c)} a{chr(c)} a{chr(c)}b\n")


@pytest.mark.parametrize(
    ("name", "option"),
    seldom([(name, i) for name in ("multilingual", "prose") for i in range(len(OPTIONS))], 3),
)
def test_ids_are_those_of_the_library_on_larger_texts(
    name: str, option: int, tmp_path: Path, shared_text: Callable[..., bytes]
) -> None:
    texts = shared_text(name, times(20_000)).decode().split(SEPARATOR)
    theirs, ours = OPTIONS[option]
    known = [text[:1000] for text in texts]
    library, tokenizer = pair(tmp_path, known, theirs, ours, vocab_size=6000, limit_alphabet=700)
    for text in texts:
        check(library, tokenizer, text)


@pytest.mark.slow
def test_trained_vocabularies_have_almost_all_tokens_in_common(
    tmp_path: Path, kjv_documents: list[bytes]
) -> None:
    texts = [document.decode() for document in kjv_documents]
    library, _ = pair(tmp_path, texts, {}, {}, vocab_size=3000, limit_alphabet=1000)
    tokenizer = CharBPETokenizer.huggingface()
    tokenizer.train(texts, 3000, limit_alphabet=1000)
    common = library.get_vocab().keys() & tokenizer.vocab.keys()
    assert len(tokenizer) == library.get_vocab_size() == 3000
    # Which of equally frequent pairs the library takes differs from run to run.
    assert len(common) > 2900


def test_what_is_saved_is_read_by_the_library(tmp_path: Path, kjv_documents: list[bytes]) -> None:
    text = kjv_documents[0].decode()
    for theirs, ours in OPTIONS:
        tokenizer = CharBPETokenizer.huggingface()
        if ours:
            unk = ours.get("unk_token", "<unk>")
            defaults = {"end_of_word_as": "suffix", "words": "bert", "special_tokens": [unk]}
            tokenizer = CharBPETokenizer(**{**defaults, **ours})
        tokenizer.train(text, 600)
        reasons = tokenizer.save(tmp_path)
        assert "vocab.json + merges.txt" not in reasons
        files = [str(tmp_path / name) for name in ("vocab.json", "merges.txt")]
        library = Library.from_file(*files, **theirs)
        check(library, tokenizer, text + " naïve!")
    symbol = CharBPETokenizer()
    symbol.train(text, 600)
    assert "needs end_of_word_as='suffix'" in symbol.save(tmp_path)["vocab.json + merges.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["char_bpe.json"]


def test_of_a_pair_given_twice_the_last_place_counts(tmp_path: Path) -> None:
    vocab = {"<unk>": 0, "a": 1, "b": 2, "c</w>": 3, "ab": 4, "bc</w>": 5, "<": 6}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nb c</w>\na b\n")
    files = [str(tmp_path / name) for name in ("vocab.json", "merges.txt")]
    tokenizer = CharBPETokenizer.from_huggingface(*files)
    assert tokenizer.encode("abc") == Library.from_file(*files).encode("abc").ids == [1, 5]


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        ('{"a": "b"}', "", "vocab.json: token 'a': expected an id, found 'b'"),
        ("[]", "", "expected a JSON object"),
        ('{"a": 1}', "", "expected unk_token and special tokens in the vocabulary"),
        ('{"<unk>": 0}', "#version: 0.2\na b c\n", "merges.txt: line 2: expected two tokens"),
        ('{"<unk>": 0}', "a b\n", "no id for 'a'"),
    ],
)
def test_malformed_files_are_refused(vocab: str, merges: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(vocab)
    (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(FormatError, match=message):
        CharBPETokenizer.from_huggingface(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_without_a_token_for_it_the_unknown_is_minus_one(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0, "b</w>": 1}')
    (tmp_path / "merges.txt").write_text("")
    files = (tmp_path / "vocab.json", tmp_path / "merges.txt")
    tokenizer = CharBPETokenizer.from_huggingface(*files, unk_token=None)
    assert tokenizer.encode("ab aé b") == [0, 1, 0, -1, 1]


@pytest.mark.soak
def test_words_of_bert_are_those_of_the_installed_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of kinds of characters is that of this version (make tables writes it anew)."""
    monkeypatch.syspath_prepend(str(NATIVE))
    spec = importlib.util.spec_from_file_location("g", NATIVE / "generate_bert_classes.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    written = (NATIVE / "bert_classes.hpp").read_text(encoding="ascii").splitlines()
    generated = generator.generate().splitlines()
    assert written[1:] == generated[1:], f"tokenizers {tokenizers.__version__} differs"
