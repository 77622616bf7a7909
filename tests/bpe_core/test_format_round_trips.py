"""Every format gives back what was written into it, or refuses with the reason; both ways.

Special tokens here have any text: spaces, line breaks, quotes, characters of regular expressions,
other scripts, and texts that are other tokens' bytes too. What a format holds is compared as data,
and by the ids that the library which owns it gives.
"""

from __future__ import annotations

import base64
import json
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiktoken
from core_support import FRAGMENTS, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times
from tokenizers import AddedToken, ByteLevelBPETokenizer, Tokenizer

from bpe_core import BPETokenizer, formats, train_bpe
from bpe_core.formats import CannotHoldError
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.formats.ranks import tiktoken_bytes
from bpe_core.formats.tiktoken_call import tiktoken_call
from bpe_core.model import TokenizerModel
from bpe_core.patterns import PATTERNS
from bpe_core.stand_ins import to_stand_ins

Tokens = list[tuple[int, bytes]]
Merges = list[tuple[int, int, int]]

SPECIALS = [
    *[
        "<|endoftext|>",
        "end of text",
        " ",
        "\n\n",
        "\r",
        "\t\x00",
        '"quoted"',
        "it's",
        "'''",
        "\\n",
    ],
    *[
        "(.*)+?[^a]{2}$|",
        "é",
        "漢字 かな",
        "🙂🙂",
        "Ω\u0301",
        "Ġ the",
        "{specials}",
        "%s",
        "</s>\u2028",
    ],
]
# Bytes of ordinary tokens too.
TAKEN = ["a", "th", " the", "\n", "in", " "]


@pytest.fixture(scope="module")
def trained(kjv: bytes, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokens, Merges]:
    """A vocabulary without special tokens: ids from 0, 256 bytes and 300 merges."""
    path = tmp_path_factory.mktemp("trained") / "text"
    path.write_bytes(kjv[:200_000])
    vocab, merges = train_bpe(path, 556)
    ids = {token: i for i, token in vocab.items()}
    return list(vocab.items()), [(ids[a], ids[b], ids[a + b]) for a, b in merges]


@st.composite
def specials(draw: st.DrawFn, taken: bool = False) -> list[str]:
    chosen = st.sampled_from([*SPECIALS, *(TAKEN if taken else [])]) | st.text(
        st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6
    )
    return draw(st.lists(chosen, unique=True, max_size=6))


def model_with(
    trained: tuple[Tokens, Merges], special_tokens: list[str], place: int, pattern: str
) -> TokenizerModel:
    """Special tokens first (place 0), last (1), or last with gaps (2)."""
    tokens, merges = trained
    shift = len(special_tokens) if place == 0 else 0
    first = 0 if place == 0 else len(tokens) + 40 * (place == 2)
    return TokenizerModel.from_tokens(
        [(i + shift, token) for i, token in tokens],
        [(a + shift, b + shift, c + shift) for a, b, c in merges],
        special_tokens={text: first + i * max(place, 1) for i, text in enumerate(special_tokens)},
        pattern=pattern,
    )


def sample_of(model: TokenizerModel, text: str) -> str:
    return text + "".join(f"{special}{text[:3]}{special}a" for special in model.special_tokens)


def tiktoken_ids(model: TokenizerModel, folder: Path, text: str) -> list[int]:
    """Through the call that is written beside the ranks, run as a user would."""
    (folder / "tokenizer.tiktoken").write_bytes(tiktoken_bytes(model))
    (folder / "tokenizer_tiktoken.py").write_bytes(tiktoken_call(model, "tokenizer.tiktoken"))
    encoding = runpy.run_path(str(folder / "tokenizer_tiktoken.py"))["encoding"]
    assert isinstance(encoding, tiktoken.Encoding)
    return encoding.encode(text, allowed_special="all")


def huggingface_ids(model: TokenizerModel, text: str) -> list[int]:
    tokenizer = Tokenizer.from_str(huggingface_bytes(model).decode())
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def gpt2_ids(model: TokenizerModel, folder: Path, text: str) -> list[int]:
    places = folder / "vocab.json", folder / "merges.txt"
    formats.write_vocab_merges(model, *places)
    tokenizer = ByteLevelBPETokenizer(*map(str, places))
    added = [AddedToken(special, normalized=False) for special in model.special_tokens]
    tokenizer.add_special_tokens(added)
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round-trips")


models = st.tuples(
    specials(taken=True), st.integers(0, 2), st.sampled_from(["gpt2", "cl100k", "o200k", "qwen2"])
)


@settings(max_examples=times(0.4))
@given(models, texts)
def test_tokenizer_json_holds_any_special_tokens_or_says_why_not(
    trained: tuple[Tokens, Merges],
    folder: Path,
    drawn: tuple[list[str], int, str],
    text: str,
) -> None:
    model = model_with(trained, *drawn)
    try:
        formats.write_huggingface(model, folder / "tokenizer.json")
    except CannotHoldError as error:
        assert "special token" in str(error)
        return
    assert formats.read_huggingface(folder / "tokenizer.json") == model
    sample = sample_of(model, text)
    assert huggingface_ids(model, sample) == BPETokenizer.from_model(model).encode(sample)


@settings(max_examples=times(0.4))
@given(models, texts)
def test_ranks_and_their_call_hold_any_special_tokens(
    trained: tuple[Tokens, Merges],
    folder: Path,
    drawn: tuple[list[str], int, str],
    text: str,
) -> None:
    model = model_with(trained, *drawn)
    path = folder / "tokenizer.tiktoken"
    formats.write_tiktoken(model, path)
    back = formats.read_tiktoken(path, pattern=model.pattern, special_tokens=model.special_tokens)
    assert back == model
    sample = sample_of(model, text)
    try:
        found = tiktoken_ids(model, folder, sample)
    except CannotHoldError as error:
        assert "begins another" in str(error)
        assert any(a != b and b.startswith(a) for a in drawn[0] for b in drawn[0])
        return
    assert found == BPETokenizer.from_model(model).encode(sample)


@settings(max_examples=times(0.4))
@given(specials(taken=True), st.integers(0, 2), texts)
def test_gpt2s_files_hold_any_special_tokens_or_say_why_not(
    trained: tuple[Tokens, Merges], folder: Path, drawn: list[str], place: int, text: str
) -> None:
    model = model_with(trained, drawn, place, "gpt2")
    places = folder / "vocab.json", folder / "merges.txt"
    try:
        formats.write_vocab_merges(model, *places)
    except CannotHoldError as error:
        assert "special token" in str(error)
        return
    assert formats.read_vocab_merges(*places, list(model.special_tokens)) == model
    assert formats.read_vocab_merges(*places, model.special_tokens) == model
    sample = sample_of(model, text)
    assert gpt2_ids(model, folder, sample) == BPETokenizer.from_model(model).encode(sample)


@settings(max_examples=times(0.4))
@given(models, st.booleans(), st.data())
def test_arrow_holds_everything(
    trained: tuple[Tokens, Merges],
    folder: Path,
    drawn: tuple[list[str], int, str],
    normalized: bool,
    data: st.DataObject,
) -> None:
    plain = model_with(trained, *drawn)
    ids = st.sampled_from(list(plain.special_tokens.values()) or [None])
    around = st.lists(ids, max_size=3) if plain.special_tokens else st.just([])
    model = TokenizerModel.from_tokens(
        plain.tokens,
        map(tuple, plain.merges.tolist()),
        special_tokens=plain.special_tokens,
        pattern=plain.pattern,
        normalizer="nfkc" if normalized else None,
        prepend=[i for i in data.draw(around) if i is not None],
        append=[i for i in data.draw(around) if i is not None],
        nonspecial_tokens=list(plain.special_tokens)[::2],
    )
    formats.write_arrow(model, folder / "tokenizer.arrow")
    assert formats.read_arrow(folder / "tokenizer.arrow") == model


@settings(max_examples=times(0.4))
@given(specials(), st.sampled_from(["gpt2", "cl100k", "none"]))
def test_minbpes_model_holds_special_tokens_without_white_space_or_says_why_not(
    trained: tuple[Tokens, Merges], folder: Path, drawn: list[str], pattern: str
) -> None:
    model = model_with(trained, drawn, 1, pattern)
    try:
        formats.write_minbpe(model, folder / "tokenizer")
    except CannotHoldError:
        assert any(c.isspace() or not c.isprintable() for text in drawn for c in text)
        return
    back = formats.read_minbpe(folder / "tokenizer.model")
    assert back.vocab == model.vocab
    assert back.fingerprint == model.fingerprint


def test_minbpe_refuses_a_chain_of_patterns(trained: tuple[Tokens, Merges]) -> None:
    model = model_with(trained, [], 1, r"\d(?#then)\p{L}+")
    with pytest.raises(CannotHoldError, match="a chain of several, and minbpe takes one"):
        formats.minbpe_bytes(model)


@pytest.mark.parametrize("special", TAKEN)
def test_special_tokens_like_other_tokens_survive_where_a_format_can_tell_them_apart(
    special: str, trained: tuple[Tokens, Merges], tmp_path: Path
) -> None:
    model = model_with(trained, [special, "<|end|>"], 0, "gpt2")
    not_written = formats.save_tokenizer(model, tmp_path)
    assert formats.load_tokenizer(tmp_path) == model
    ours = BPETokenizer.from_model(model)
    text = "in the beginning\n<|end|>"
    assert tiktoken_ids(model, tmp_path, text) == ours.encode(text)
    if any(to_stand_ins(token) == special for _, token in model.tokens):
        assert set(not_written) == {"tokenizer.json", "vocab.json + merges.txt"}
        assert f"special token {special!r}" in not_written["tokenizer.json"]
    else:  # its text is not how its bytes are written
        assert not_written == {}
        assert formats.read_huggingface(tmp_path / "tokenizer.json") == model
        assert huggingface_ids(model, text) == ours.encode(text)


# The call of tiktoken.


def test_the_call_of_tiktoken_is_written_with_the_ranks_and_runs(
    trained: tuple[Tokens, Merges], tmp_path: Path
) -> None:
    model = model_with(trained, SPECIALS, 0, "cl100k")
    assert "tokenizer.tiktoken" not in formats.save_tokenizer(model, tmp_path)
    encoding = runpy.run_path(str(tmp_path / "tokenizer_tiktoken.py"))["encoding"]
    assert encoding._special_tokens == dict(model.special_tokens)
    assert encoding._pat_str == PATTERNS["cl100k"]


@pytest.mark.parametrize("pattern", [r"\p{L}+|\d", r" ?[a-z]+|(?=x)x|\s+(?!\S)", r"[^\s\d]{1,3}"])
def test_a_pattern_that_leaves_text_unmatched_loses_nothing_in_tiktoken(
    pattern: str, trained: tuple[Tokens, Merges], tmp_path: Path
) -> None:
    model = model_with(trained, ["<|end|>"], 0, pattern)
    ours = BPETokenizer.from_model(model)
    for text in ("In the beginning, 12 -- ??  x!!<|end|>", "...", "", " \n ", *FRAGMENTS):
        assert tiktoken_ids(model, tmp_path, text) == ours.encode(text)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(\w)\1", "may mean something else to tiktoken: an escape"),
        (r"\d(?#then)\p{L}+", "a chain of several"),
    ],
)
def test_the_call_is_left_out_where_tiktoken_may_split_otherwise(
    pattern: str, reason: str, trained: tuple[Tokens, Merges], tmp_path: Path
) -> None:
    formats.save_tokenizer(model_with(trained, [], 0, "gpt2"), tmp_path)
    assert (tmp_path / "tokenizer_tiktoken.py").exists()
    not_written = formats.save_tokenizer(model_with(trained, [], 0, pattern), tmp_path)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(not_written["tokenizer_tiktoken.py"])
    assert (tmp_path / "tokenizer.tiktoken").exists()
    assert not (tmp_path / "tokenizer_tiktoken.py").exists()


@pytest.mark.parametrize("order", [1, -1])
def test_the_call_is_left_out_where_a_special_token_begins_another(
    order: int, trained: tuple[Tokens, Merges], tmp_path: Path
) -> None:
    formats.save_tokenizer(model_with(trained, ["<|end", "|>"], 0, "gpt2"), tmp_path)
    assert (tmp_path / "tokenizer_tiktoken.py").exists()
    model = model_with(trained, ["<|end", "<|", "<|endoftext|>"][::order], 0, "gpt2")
    assert formats.save_tokenizer(model, tmp_path) == {
        "tokenizer_tiktoken.py": "the special token '<|' begins another, '<|end', and tiktoken "
        "does not look for the longest first"
    }
    assert (tmp_path / "tokenizer.tiktoken").exists()
    assert not (tmp_path / "tokenizer_tiktoken.py").exists()


# Published vocabularies.


def everything(
    model: TokenizerModel, pattern: str, folder: Path
) -> Iterator[Callable[[str], list[int]]]:
    """The ids of each library, from files that this package wrote."""
    yield lambda text: tiktoken_ids(model, folder, text)
    yield lambda text: huggingface_ids(model, text)
    if pattern == "gpt2":
        yield lambda text: gpt2_ids(model, folder, text)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("r50k", marks=pytest.mark.nightly),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("cl100k", "o200k")),
    ],
)
def test_published_vocabularies_written_and_read_by_the_peers_give_their_ids(
    name: str,
    published_vocabulary: Callable[[str], Path],
    shared_text: Callable[..., bytes],
    tmp_path: Path,
) -> None:
    path = published_vocabulary(name)
    pattern = {"r50k": "gpt2"}.get(name, name)
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in map(bytes.split, path.read_bytes().splitlines())
    }
    special_tokens = {"<|endoftext|>": max(ranks.values()) + 1}
    encoding = tiktoken.Encoding(
        name, pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens=special_tokens
    )
    model = formats.read_tiktoken(path, pattern=pattern, special_tokens=special_tokens)
    limit = 60_000
    for source in ("prose", "multilingual"):
        text = shared_text(source, limit).decode("utf-8", "ignore")
        expected = encoding.encode(text, allowed_special="all")
        for ids in everything(model, pattern, tmp_path):
            assert ids(text) == expected
        # Back from what was written, and from what the library writes itself.
        again = Tokenizer.from_str(huggingface_bytes(model).decode())
        again.save(str(tmp_path / "tokenizer.json"))
        assert formats.read_huggingface(tmp_path / "tokenizer.json") == model
        assert BPETokenizer.from_model(model).encode(text) == expected


def test_merges_that_make_the_same_bytes_survive_where_a_format_can_hold_them(
    tmp_path: Path,
) -> None:
    tokens = [*((i, bytes([i])) for i in range(256)), (256, b"ab"), (257, b"bc"), (258, b"abc")]
    merges = [(97, 98, 256), (98, 99, 257), (256, 99, 258), (97, 257, 258)]
    model = TokenizerModel.from_tokens(tokens, merges)
    formats.save_tokenizer(model, tmp_path)
    assert formats.load_tokenizer(tmp_path) == model
    assert formats.read_huggingface(tmp_path / "tokenizer.json") == model
    assert formats.read_vocab_merges(tmp_path / "vocab.json", tmp_path / "merges.txt") == model
    assert len(json.loads((tmp_path / "tokenizer.json").read_bytes())["model"]["merges"]) == 4
