from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import regex
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import formats
from bpe_core.errors import FormatError
from bpe_core.formats import CannotHoldError, files
from bpe_core.formats.gpt2 import vocab_merges_bytes
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.formats.pre_tokenizer import Splitting, pre_tokenizer_of
from bpe_core.formats.ranks import merges_of_ranks, tiktoken_bytes, why_not_ranks
from bpe_core.model import TokenizerModel
from bpe_core.patterns import PATTERNS
from bpe_core.reference import apply_ranks
from bpe_core.stand_ins import from_stand_ins, to_stand_ins

VOCAB = Path(__file__).parents[2].parent / "shared" / "data" / "vocab"
needs_vocab = pytest.mark.skipif(not VOCAB.exists(), reason="no published vocabularies here")

TEXT = (
    "The cat sat on the mat; the other cat didn't.\n\nnaïve café, 漢字かな交じり文, Ελληνικά "
    "123456 <|end|> don't WE'LL   spaces \t\r\n tabs 🙂👍🏽 \x00\x7f \xa0nbsp\u2028line\u3000wide "
)


# Oracles: the definition of merging, as directly as it can be written.


def merged(model: TokenizerModel, text: bytes) -> list[int]:
    """The ids of one pre-token by the definition in TokenizerModel."""
    ids = {token: i for i, token in model.tokens}
    if model.ignore_merges and text in ids:
        return [ids[text]]
    rules = {
        (left, right): (rank, i) for rank, (left, right, i) in enumerate(model.merges.tolist())
    }
    word = [ids[text[i : i + 1]] for i in range(len(text))]
    while True:
        found = [(rules[pair], i) for i, pair in enumerate(pairwise(word)) if pair in rules]
        if not found:
            return word
        (_, result), i = min(found)
        word[i : i + 2] = [result]


def trained(words: Counter[bytes], merges: int, first_id: int = 0) -> TokenizerModel:
    """Byte-pair encoding as textbooks have it: count all pairs anew for each merge."""
    tokens = [bytes([i]) for i in range(256)]
    split = {word: list(word) for word in words}
    rows: list[tuple[int, int, int]] = []
    counts: list[int] = []
    for _ in range(merges):
        pairs: Counter[tuple[int, int]] = Counter()
        for word, symbols in split.items():
            for pair in pairwise(symbols):
                pairs[pair] += words[word]
        if not pairs:
            break
        pair = max(pairs, key=lambda pair: (pairs[pair], tokens[pair[0]], tokens[pair[1]]))
        made = tokens[pair[0]] + tokens[pair[1]]
        assert made not in tokens, "training from bytes never makes the same bytes twice"
        rows.append((pair[0] + first_id, pair[1] + first_id, len(tokens) + first_id))
        counts.append(pairs[pair])
        tokens.append(made)
        for symbols in split.values():
            i = 0
            while i < len(symbols) - 1:
                if (symbols[i], symbols[i + 1]) == pair:
                    symbols[i : i + 2] = [len(tokens) - 1]
                i += 1
    return TokenizerModel.from_tokens(
        ((i + first_id, token) for i, token in enumerate(tokens)),
        rows,
        special_tokens={f"<|{i}|>": i for i in range(first_id)},
        merge_counts=counts,
        tie_break="lexicographic",
        stop_reason="vocab_size_reached",
        counts_fingerprint="c0ffee",
    )


def words_of(text: str, pattern: str) -> Counter[bytes]:
    return Counter(word.encode() for word in regex.findall(PATTERNS.get(pattern, pattern), text))


def small(pattern: str = "gpt2", **changes: Any) -> TokenizerModel:
    model = trained(words_of(TEXT, pattern), 60, first_id=2)
    fields = {name: getattr(model, name) for name in model.__dataclass_fields__}
    return TokenizerModel(**{**fields, "pattern": pattern, **changes})


def without_history(model: TokenizerModel) -> TokenizerModel:
    """The model as formats other than tokenizer.arrow hold it."""
    return TokenizerModel.from_tokens(
        model.tokens,
        map(tuple, model.merges.tolist()),
        special_tokens=model.special_tokens,
        pattern=model.pattern,
        ignore_merges=model.ignore_merges,
    )


def bytes_and(*tokens: tuple[int, bytes]) -> list[tuple[int, bytes]]:
    return [*((i, bytes([i])) for i in range(256)), *tokens]


def tiktoken_of(model: TokenizerModel, ranks: bytes, pattern: str) -> tiktoken.Encoding:
    lines = (line.split() for line in ranks.splitlines())
    return tiktoken.Encoding(
        "test",
        pat_str=pattern,
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
        special_tokens=dict(model.special_tokens),
    )


def huggingface_ids(model: TokenizerModel, text: str) -> list[int]:
    tokenizer = tokenizers.Tokenizer.from_str(huggingface_bytes(model).decode())
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def joins_of(ids: dict[bytes, int]) -> list[tuple[int, int, int]]:
    """What `merges_of_ranks` is to give, by the plain definition."""
    joins = []
    for token, i in sorted(ids.items(), key=lambda item: item[1]):
        parts = apply_ranks(token, {other: j for other, j in ids.items() if other != token})
        if len(parts) == 2 and all(part in ids for part in parts):
            joins.append((ids[parts[0]], ids[parts[1]], i))
    return joins


ab_words = st.text(alphabet="ab", min_size=1, max_size=24)
ab_tokens = st.lists(st.text(alphabet="ab", min_size=2, max_size=7), max_size=14, unique=True)


@st.composite
def rank_models(draw: st.DrawFn) -> TokenizerModel:
    """Any tokens under any ranks, also such that no training would give."""
    tokens = [token.encode() for token in draw(ab_tokens)]
    ranks = draw(st.permutations(range(256, 256 + len(tokens))))
    ids = {bytes([i]): i for i in range(256)} | dict(zip(tokens, ranks, strict=True))
    merges = joins_of(ids)
    return TokenizerModel.from_tokens(
        ((i, token) for token, i in ids.items()),
        merges,
        pattern="none",
        ignore_merges=len(merges) < len(tokens),
    )


@st.composite
def pair_models(draw: st.DrawFn) -> TokenizerModel:
    """Any merges in any order, also several that make the same bytes."""
    tokens = [token.encode() for token in draw(ab_tokens)]
    ids = {bytes([i]): i for i in range(256)} | {token: 256 + i for i, token in enumerate(tokens)}
    splits = [
        (ids[token[:i]], ids[token[i:]], ids[token])
        for token in tokens
        for i in range(1, len(token))
        if token[:i] in ids and token[i:] in ids
    ]
    merges = draw(st.permutations(splits)) if draw(st.booleans()) else splits
    kept = merges[: draw(st.integers(0, len(merges)))] if draw(st.booleans()) else merges
    return TokenizerModel.from_tokens(
        ((i, token) for token, i in ids.items()),
        kept,
        pattern="none",
        ignore_merges=draw(st.booleans()),
        special_tokens={"<|end|>": 1000},
    )


# Ranks and merges.


@settings(max_examples=times(1.5))
@given(
    st.dictionaries(
        st.binary(min_size=1, max_size=20) | ab_words.map(str.encode),
        st.integers(0, 10**6),
        max_size=40,
    )
)
def test_merges_of_ranks_are_the_last_joins_of_the_reference(ranks: dict[bytes, int]) -> None:
    ids = {token: i for i, token in {i: token for token, i in ranks.items()}.items()}
    for letter in (b"a", b"b"):
        ids.setdefault(letter, 2_000_000 + letter[0])
    order = sorted(ids, key=ids.__getitem__)
    found = merges_of_ranks(np.array(sorted(ids.values())), pa.array(order, pa.binary()))
    assert list(map(tuple, found.tolist())) == joins_of(ids)


@settings(max_examples=times(1.5))
@given(rank_models(), st.lists(ab_words, min_size=1, max_size=6))
def test_merges_from_ranks_do_what_tiktoken_does(model: TokenizerModel, texts: list[str]) -> None:
    ranks = tiktoken_bytes(model)
    encoding = tiktoken_of(model, ranks, r"[\s\S]+")
    for text in texts:
        assert merged(model, text.encode()) == encoding.encode_ordinary(text)


@settings(max_examples=times(1.5))
@given(pair_models(), st.lists(ab_words, min_size=1, max_size=6))
def test_ranks_are_written_only_if_tiktoken_gives_the_same_ids(
    model: TokenizerModel, texts: list[str]
) -> None:
    if why_not_ranks(model) is not None:
        return
    encoding = tiktoken_of(model, tiktoken_bytes(model), r"[\s\S]+")
    tokens = [token.decode() for i, token in model.tokens if i > 255]
    for text in [*texts, *tokens]:
        assert merged(model, text.encode()) == encoding.encode_ordinary(text)


@settings(max_examples=times(1))
@given(st.dictionaries(ab_words, st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 3))
def test_whatever_is_trained_can_be_written_as_ranks(words: dict[str, int], first_id: int) -> None:
    counts = Counter({word.encode(): count for word, count in words.items()})
    model = trained(counts, merges=20, first_id=first_id)
    encoding = tiktoken_of(model, tiktoken_bytes(model), r"[\s\S]+")
    for word in words:
        assert merged(model, word.encode()) == encoding.encode_ordinary(word)


def test_a_merge_that_makes_bytes_again_never_applies() -> None:
    tokens = bytes_and((300, b"ab"), (301, b"bb"), (302, b"abb"))
    model = TokenizerModel.from_tokens(tokens, [(97, 98, 300), (98, 98, 301), (300, 98, 302)])
    again = TokenizerModel.from_tokens(tokens, [*model.merges.tolist(), (97, 301, 302)])
    for word in ("abb", "abbb", "aabbb", "babbabb"):
        assert merged(model, word.encode()) == merged(again, word.encode())


@pytest.mark.parametrize(
    ("tokens", "merges", "reason"),
    [
        (
            bytes_and((256, b"bc"), (257, b"ab")),
            [(97, 98, 257), (98, 99, 256)],
            "merge 1 makes id 256, after one that makes id 257",
        ),
        (
            bytes_and((256, b"ab"), (257, b"bc"), (258, b"abc")),
            [(97, 98, 256), (98, 99, 257), (97, 257, 258)],
            r"ranks would join b'ab' and b'c' into id 258",
        ),
        (
            bytes_and((256, b"ab"), (257, b"abcd")),
            [(97, 98, 256)],
            r"id 257, b'abcd', do not merge into it",
        ),
        ([(i, bytes([i])) for i in range(255)], [], "byte 0xFF has no id"),
    ],
)
def test_what_ranks_cannot_hold_is_refused(
    tokens: list[tuple[int, bytes]], merges: list[tuple[int, int, int]], reason: str
) -> None:
    model = TokenizerModel.from_tokens(tokens, merges)
    with pytest.raises(CannotHoldError, match=reason):
        tiktoken_bytes(model)


def test_very_long_tokens_are_not_written_as_ranks_rather_than_checked_for_hours() -> None:
    model = TokenizerModel.from_tokens(bytes_and((300, b"x" * 5000)))
    with pytest.raises(CannotHoldError, match="a token has 5000 bytes"):
        tiktoken_bytes(model)


# Round trips.

Trip = Callable[[TokenizerModel, Path], TokenizerModel]


def through_arrow(model: TokenizerModel, folder: Path) -> TokenizerModel:
    formats.write_arrow(model, folder / "tokenizer.arrow")
    return formats.read_arrow(folder / "tokenizer.arrow")


def through_huggingface(model: TokenizerModel, folder: Path) -> TokenizerModel:
    formats.write_huggingface(model, folder / "tokenizer.json")
    return formats.read_huggingface(folder / "tokenizer.json")


def through_vocab_merges(model: TokenizerModel, folder: Path) -> TokenizerModel:
    places = folder / "vocab.json", folder / "merges.txt"
    formats.write_vocab_merges(model, *places)
    specials = list(model.special_tokens)
    return formats.read_vocab_merges(*places, specials, pattern=model.pattern)


def through_tiktoken(model: TokenizerModel, folder: Path) -> TokenizerModel:
    formats.write_tiktoken(model, folder / "ranks")
    specials = model.special_tokens
    return formats.read_tiktoken(folder / "ranks", pattern=model.pattern, special_tokens=specials)


ALL = [through_arrow, through_huggingface, through_vocab_merges, through_tiktoken]


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\p{L}+|\p{N}{1,2}|[^\p{L}\p{N}]"])
@pytest.mark.parametrize("trip", ALL)
def test_each_format_gives_the_tokenizer_back(trip: Trip, pattern: str, tmp_path: Path) -> None:
    model = without_history(small(pattern))
    back = trip(model, tmp_path)
    assert back.fingerprint == model.fingerprint
    if pattern != "llama3":  # has cl100k's regular expression, by which a file is recognised
        assert back == model


@pytest.mark.parametrize("normalizer", ["nfc", "nfkc", None])
def test_arrow_holds_normalization_and_text_only_formats_refuse_it(
    normalizer: str | None, tmp_path: Path
) -> None:
    tokens = [(byte, bytes([byte])) for byte in range(256)]
    model = TokenizerModel.from_tokens(
        tokens, normalizer=normalizer, normalize_quotes=normalizer is None
    )
    not_written = formats.save_tokenizer(model, tmp_path)
    assert formats.load_tokenizer(tmp_path) == model
    reason = f"normalized before it is split ({normalizer or 'normalize_quotes'})"
    for name in ("vocab.json + merges.txt", "tokenizer.tiktoken"):
        assert reason in not_written[name]
    training = json.loads((tmp_path / "training.json").read_bytes())
    assert training["tokenizer"]["normalizer"] == normalizer
    assert training["tokenizer"]["normalize_quotes"] == (normalizer is None)


def test_arrow_keeps_counts_and_how_training_went(tmp_path: Path) -> None:
    model = small()
    assert model.merge_counts is not None
    assert through_arrow(model, tmp_path) == model


@settings(max_examples=times(1))
@given(pair_models())
def test_arrow_holds_any_tokenizer(tmp_path_factory: Any, model: TokenizerModel) -> None:
    assert through_arrow(model, tmp_path_factory.mktemp("arrow")) == model


def test_an_empty_tokenizer_and_one_without_merges_can_be_held(tmp_path: Path) -> None:
    for tokens in ([], bytes_and()):
        model = TokenizerModel.from_tokens(tokens)
        assert through_arrow(model, tmp_path) == model
    assert through_huggingface(model, tmp_path) == model
    assert through_vocab_merges(model, tmp_path) == model


def test_special_tokens_of_any_text_survive(tmp_path: Path) -> None:
    specials = {"<| été 漢 |>": 400, "\n": 401, " a\tb": 402, "éé": 403, "🙂": 404, '"\\': 405}
    model = TokenizerModel.from_tokens(bytes_and(), special_tokens=specials)
    for trip in ALL:
        assert trip(model, tmp_path) == model


def test_arrow_bytes_are_the_same_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / "a.arrow", tmp_path / "b.arrow"]
    for path in paths:
        formats.write_arrow(small(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_stand_ins_are_a_bijection_of_bytes() -> None:
    everything = bytes(range(256))
    assert from_stand_ins(to_stand_ins(everything)) == everything
    assert all(c.isprintable() and not c.isspace() for c in to_stand_ins(everything))
    assert [from_stand_ins(text) for text in (" ", "\x7f", "\xad", "漢", "\uffff")] == [None] * 5


# Peers.


@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "none"])
def test_tokenizer_json_gives_tiktokens_ids(pattern: str) -> None:
    model = small(pattern)
    encoding = tiktoken_of(model, tiktoken_bytes(model), PATTERNS[pattern])
    texts = [TEXT, f"<|0|>{TEXT}<|1|><|0|>", "  \n\n  ", "", "\r\n \r\n  x  ", "<|1|>"]
    for text in texts:
        expected = encoding.encode(text, allowed_special="all")
        assert huggingface_ids(model, text) == expected


def test_pattern_none_does_not_split_in_tokenizer_json() -> None:
    model = small("none")
    assert huggingface_ids(model, TEXT[:60]) == merged(model, TEXT[:60].encode())


@settings(max_examples=times(1))
@given(pair_models(), st.lists(ab_words, min_size=1, max_size=6))
def test_tokenizer_json_holds_any_merges(model: TokenizerModel, texts: list[str]) -> None:
    for text in texts:
        assert huggingface_ids(model, text) == merged(model, text.encode())


@settings(max_examples=times(0.5))
@given(pair_models(), st.lists(ab_words, min_size=1, max_size=6))
def test_what_is_read_from_tokenizer_json_gives_the_same_ids(
    tmp_path_factory: Any, model: TokenizerModel, texts: list[str]
) -> None:
    back = through_huggingface(model, tmp_path_factory.mktemp("json"))
    for text in texts:
        assert merged(back, text.encode()) == merged(model, text.encode())


def test_a_custom_pattern_in_tokenizer_json_splits_as_here() -> None:
    pattern = r" ?\p{L}+|\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|[^\S\n]+|\n+|[-+*/=(),.;:!?]"
    model = small(pattern=pattern)
    text = TEXT + "1234567+x"
    expected: list[int] = []
    end = 0
    for match in regex.finditer(pattern, text):
        for piece in (text[end : match.start()], match.group()):
            expected += merged(model, piece.encode())
        end = match.end()
    expected += merged(model, text[end:].encode())
    assert huggingface_ids(model, text) == expected


@pytest.mark.parametrize(
    "pattern",
    [r"(\S)\1|.", r"\X|.", "(?:a){e<=1}x|."],
)
def test_patterns_that_cannot_be_translated_are_refused(pattern: str) -> None:
    with pytest.raises(CannotHoldError, match="custom pattern may mean something else"):
        pre_tokenizer_of(Splitting(pattern))


# Reading what others wrote.


def json_file(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    root = json.loads(huggingface_bytes(small("cl100k")))
    change(root)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(root), encoding="utf-8")
    return path


def test_merges_may_be_texts_in_tokenizer_json(tmp_path: Path) -> None:
    def as_texts(root: dict[str, Any]) -> None:
        root["model"]["merges"] = [" ".join(merge) for merge in root["model"]["merges"]]

    back = formats.read_huggingface(json_file(tmp_path, as_texts))
    assert back == without_history(small("cl100k"))


def test_added_tokens_outside_the_vocabulary_have_the_ids_the_library_gives(tmp_path: Path) -> None:
    root = json.loads(huggingface_bytes(TokenizerModel.from_tokens(bytes_and())))
    added = [json_added("<a>", 256), json_added("<b>", 257, special=False)]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**root, "added_tokens": added}))
    assert formats.read_huggingface(path).special_tokens == {"<a>": 256, "<b>": 257}
    assert tokenizers.Tokenizer.from_file(str(path)).encode("<b>x<a>").ids == [257, 120, 256]


def json_added(text: str, token_id: int, **changes: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": text, "special": True, **flags, **changes}


def test_of_a_merge_listed_twice_the_last_counts_as_in_the_library(tmp_path: Path) -> None:
    tokens = bytes_and((256, b"ab"), (257, b"bc"))
    root = json.loads(huggingface_bytes(TokenizerModel.from_tokens(tokens, [(97, 98, 256)])))
    root["model"]["merges"] = [["a", "b"], ["b", "c"], ["a", "b"]]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(root))
    model = formats.read_huggingface(path)
    assert merged(model, b"abc") == [97, 257]
    assert tokenizers.Tokenizer.from_file(str(path)).encode("abc").ids == [97, 257]


def test_ignore_merges_is_kept_where_it_changes_ids_and_dropped_where_not(tmp_path: Path) -> None:
    unreached = bytes_and((256, b"ab"), (257, b"abcd"))
    model = TokenizerModel.from_tokens(unreached, [(97, 98, 256)], ignore_merges=True)
    assert through_huggingface(model, tmp_path).ignore_merges
    assert huggingface_ids(model, "abcd") == [257]
    idle = small(ignore_merges=True)
    assert through_huggingface(idle, tmp_path) == without_history(small())


def put(*path: Any) -> Callable[[dict[str, Any]], object]:
    """A change that sets root[path[0]][path[1]]... to the last."""

    def change(root: dict[str, Any]) -> None:
        *keys, last, value = path
        for key in keys:
            root = root[key]
        root[last] = value

    return change


SPLIT = ("pre_tokenizer", "pretokenizers", 0)
REFUSED_JSON: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (put("normalizer", {"type": "NFD"}), r"normalizer: expected null, NFC or NFKC, found \['NFD'"),
    (put("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 2}), "NFC or NFKC"),
    (put("normalizer", "NFC"), "normalizer: expected an object"),
    (put("truncation", {"max_length": 8}), "truncation: expected null, .* and cut the ids"),
    (put("padding", {"strategy": "BatchLongest"}), "padding: expected null, .* and pad the ids"),
    (put("model", "type", "WordPiece"), "model.type: expected 'BPE', found 'WordPiece'"),
    (put("model", None), "model: expected an object, found None"),
    (put("model", "dropout", 0.1), "model.dropout: expected null, found 0.1"),
    (put("model", "continuing_subword_prefix", "##"), "prefix: expected null: byte-level"),
    (put("model", "end_of_word_suffix", "</w>"), "suffix: expected null: byte-level"),
    (lambda root: root["model"]["vocab"].pop("!"), "none for byte 0x21"),
    (put("model", "vocab", "xy", 3), "'xy': expected each id once, found id 3 again"),
    (put("model", "vocab", "xy", "3"), "'xy': expected an id of 0 ... 2147483647, found '3'"),
    (put("model", "vocab", "xy", True), "'xy': expected an id of 0 ... 2147483647, found True"),
    (put("model", "vocab", "xy", 2**31), "expected an id of 0 ... 2147483647"),
    (put("model", "merges", 3, ["t"]), r"model.merges\[3\]: expected two tokens"),
    (put("model", "merges", 3, "t h e"), r"model.merges\[3\]: expected two tokens"),
    (put("model", "merges", 3, 7), r"model.merges\[3\]: expected two tokens"),
    (put("model", "merges", 3, ["zq", "q"]), "merge 3, b'zq' .* no id for b'zq'"),
    (put("model", "merges", {}), "model.merges: expected a list"),
    (put("pre_tokenizer", None), "pre_tokenizer: expected an object, found None"),
    (put("pre_tokenizer", {"type": "Whitespace"}), "expected steps of type Split, Digits, Pun"),
    (put("pre_tokenizer", "pretokenizers", []), "and one ByteLevel"),
    (put(*SPLIT, {"type": "BertPreTokenizer"}), r"found \['BertPreTokenizer', 'ByteLevel'\]"),
    (put(*SPLIT, {"type": "Digits", "individual_digits": 1}), "individual_digits: expected true"),
    (put("pre_tokenizer", "pretokenizers", 1, "add_prefix_space", True), "expected false"),
    (put("pre_tokenizer", "pretokenizers", 1, "use_regex", "yes"), "expected true or false"),
    (put(*SPLIT, "behavior", "Merged"), "expected 'Isolated' or 'Removed' or"),
    (put(*SPLIT, "behavior", "Removed"), 'found the behavior "Removed", which drops text'),
    (put(*SPLIT, "invert", 1), "Split.invert: expected true or false"),
    (put(*SPLIT, "pattern", {"Literal": " "}), 'Split.pattern: expected {"Regex": ...}'),
    (put(*SPLIT, "pattern", {"String": ""}), 'Split.pattern: expected {"Regex": ...}'),
    (put(*SPLIT, "pattern", {"Regex": r"(a)\1"}), "found an escape, .*1"),
    (put("decoder", {"type": "WordPiece"}), "decoder.type: expected 'ByteLevel'"),
    (
        put("decoder", {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]}),
        "decoder.type: expected 'ByteLevel', found 'Fuse'",
    ),
    (put("decoder", "ByteLevel"), "decoder: expected an object"),
    (put("added_tokens", 0, "lstrip", 1), r"\[0\].lstrip of '<|0|>': expected false or true"),
    (put("added_tokens", 0, "special", 1), r"\[0\].special of '<|0|>': expected false or true"),
    (put("added_tokens", 0, "id", 77), r"added_tokens\[0\].id of '<|0|>': expected 0, which"),
    (put("added_tokens", 1, "content", "<|0|>"), "expected a text, each once"),
    (put("added_tokens", 0, "content", 5), "expected a text, each once, found 5"),
    (put("added_tokens", 0, 3), r"added_tokens\[0\]: expected an object"),
    (put("added_tokens", [json_added("<", 62)]), "'<': expected an id that ordinary text does not"),
    (put("added_tokens", [json_added("he", 258)]), "'he': expected an id that ordinary"),
    (put("model", "ignore_merges", "no"), "expected true or false, found 'no'"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED_JSON)
def test_a_tokenizer_json_that_asks_for_more_is_refused_with_the_reason(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    path = json_file(tmp_path, change)
    with pytest.raises(FormatError, match=message) as error:
        formats.read_huggingface(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        {"type": "ByteLevel"},
        {"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": True}]},
    ],
)
def test_a_decoder_may_be_missing_or_in_a_sequence(decoder: Any, tmp_path: Path) -> None:
    path = json_file(tmp_path, put("decoder", decoder))
    model = formats.read_huggingface(path)
    assert model == formats.read_huggingface(json_file(tmp_path, lambda root: None))


def test_removed_with_invert_is_isolated_for_patterns_that_match_everything(tmp_path: Path) -> None:
    def change(root: dict[str, Any]) -> None:
        root["pre_tokenizer"]["pretokenizers"][0] |= {"behavior": "Removed", "invert": True}

    assert formats.read_huggingface(json_file(tmp_path, change)).pattern == "cl100k"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1: expected JSON, found nothing"),
        (b'{"a": 1,\n}', "line 2: expected JSON, found a mistake at column 1: "),
        (b'{"a": x}', "line 1: expected JSON, found a mistake at column 7: Expecting value"),
        (b"[1]", r"expected a JSON object, found \[1\]"),
        (b"[" * 100_000, "expected JSON of limited depth|line 1: expected JSON"),
        (b'{"a":' * 100_000, "expected JSON of limited depth|line 1: expected JSON"),
        (b'{"a": 1, "a": 2}', "the key 'a' twice"),
        (b'{"a": ' + b"9" * 5000 + b"}", "expected a tokenizer's JSON"),
        (b'{"a": "\xff"}', "byte 7: expected UTF-8"),
        (b"\x80\x04K\x01.", "byte 0: expected UTF-8"),
    ],
)
def test_malformed_json_is_a_format_error(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        formats.read_huggingface(path)


# vocab.json and merges.txt.


def gpt2_files(folder: Path, vocab: str, merges: str | bytes) -> tuple[Path, Path]:
    paths = folder / "vocab.json", folder / "merges.txt"
    paths[0].write_text(vocab, encoding="utf-8")
    paths[1].write_bytes(merges if isinstance(merges, bytes) else merges.encode())
    return paths


AB = '{"a": 0, "b": 1, "#": 2, "ab": 3, "##": 4, "Ġ": 5, "Ġa": 6, "<|end|>": 9}'


@pytest.mark.parametrize("header", ["", "#version: 0.2\n", "#version: 0.2 - x y z\r\n"])
def test_merges_txt_is_read_with_any_line_ends_and_header(header: str, tmp_path: Path) -> None:
    for body in (
        "# #\na b\nĠ a\n",
        "# #\r\na b\r\nĠ a\r\n",
        "# #\na b\nĠ a",
        "# #\n\na b\nĠ a\n\n",
    ):
        places = gpt2_files(tmp_path, AB, header + body)
        model = formats.read_vocab_merges(*places, ["<|end|>"])
        assert model.merge_bytes == [(b"#", b"#"), (b"a", b"b"), (b" ", b"a")]
        assert model.special_tokens == {"<|end|>": 9}


def test_a_byte_order_mark_is_not_a_token(tmp_path: Path) -> None:
    places = gpt2_files(tmp_path, "\ufeff" + AB, "\ufeffa b\n")
    assert formats.read_vocab_merges(*places).merge_bytes == [(b"a", b"b")]


def test_special_tokens_keep_their_entries_or_get_new_ids(tmp_path: Path) -> None:
    places = gpt2_files(tmp_path, AB, "a b\n")
    new = formats.read_vocab_merges(*places, ["<|new|>", "<|end|>", "ab", "a", "<|new|>"])
    assert new.special_tokens == {"<|end|>": 9, "<|new|>": 10, "ab": 11, "a": 12}
    assert dict(new.tokens)[3] == b"ab"
    assert formats.read_vocab_merges(*places, {"<|new|>": 20}).special_tokens == {"<|new|>": 20}
    assert formats.read_vocab_merges(*places).tokens[-1] == (9, b"<|end|>")


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        (AB, "a b c\n", "merges.txt: line 1: expected two tokens"),
        (AB, "a b\nab\n", "merges.txt: line 2: expected two tokens"),
        (AB, "a  b\n", "merges.txt: line 1: expected two tokens"),
        (AB, "a b\n漢 b\n", "merges.txt: line 2: expected two tokens"),
        (AB, "b b\n", "merges.txt: merge 0, .* no id for b'bb'"),
        (AB, b"a b\n\xff b\n", "merges.txt: byte 4: expected UTF-8"),
        ('{"a": 0, "b": 0}', "", "'b': expected each id once, found id 0 again"),
        ('{"a": -1}', "", "expected an id of 0 ... 2147483647, found -1"),
        ('{"a": 1.5}', "", "'a': expected an id of 0 ... 2147483647, found 1.5"),
        ('{"漢": 1}', "", "id 1: expected printable stand-ins"),
        ("{", "", "vocab.json: line 1: expected JSON"),
    ],
)
def test_malformed_vocab_and_merges_are_format_errors(
    vocab: str, merges: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=message):
        formats.read_vocab_merges(*gpt2_files(tmp_path, vocab, merges), ["<|end|>"])


def test_a_stated_special_id_must_be_the_one_in_vocab_json(tmp_path: Path) -> None:
    places = gpt2_files(tmp_path, AB, "")
    with pytest.raises(FormatError, match=r"'<\|end\|>': expected id 8, as asked, found id 9"):
        formats.read_vocab_merges(*places, {"<|end|>": 8})


def test_text_keyed_formats_refuse_tokens_of_equal_text() -> None:
    model = TokenizerModel.from_tokens(
        bytes_and((256, b" a")), [(32, 97, 256)], special_tokens={"Ġa": 300}
    )
    for encode in (huggingface_bytes, vocab_merges_bytes):
        with pytest.raises(CannotHoldError, match=r"'Ġa' .* is also how the bytes b' a'"):
            encode(model)


def test_a_special_token_like_a_whole_pretoken_is_refused_with_ignore_merges() -> None:
    model = TokenizerModel.from_tokens(
        bytes_and((256, b"abc")), special_tokens={"Ġx": 300}, ignore_merges=True
    )
    with pytest.raises(CannotHoldError, match="also the stand-ins of b' x'"):
        huggingface_bytes(model)
    with pytest.raises(CannotHoldError, match="ignore_merges"):
        vocab_merges_bytes(model)


def test_tokenizer_json_refuses_a_vocabulary_without_some_byte() -> None:
    model = TokenizerModel.from_tokens([(0, b"a")])
    with pytest.raises(CannotHoldError, match="byte 0x00 has no id; Hugging Face leaves"):
        huggingface_bytes(model)


# .tiktoken.


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"YQ== 0\nYg==\n", "line 2: expected a token in base64, a space and its rank"),
        (b"YQ== 0\nYg== 1 2\n", "line 2"),
        (b"YQ== 0\nYg= 1\n", "line 2"),
        (b"YQ== 0\nY!g== 1\n", "line 2"),
        (b"YQ== 0\n== 1\n", "line 2"),
        (b"YQ== 0\nYg== -1\n", "line 2"),
        (b"YQ== 0\nYg== 1.0\n", "line 2"),
        (b"YQ== 0\nYg== 2147483648\n", "line 2"),
        (b"YQ== 0\nYg== " + b"1" * 5000, "line 2"),
        (b"YQ== 0\nYQ== 1\n", "line 2: expected each token once, found b'a' again"),
        (b"YQ== 0\nYg== 0\n", "expected each once, found 0 twice$"),
        (b"YQ== 0\n" + base64.b64encode(b"x" * 5000) + b" 1\n", "line 2: .* at most 4096 bytes"),
        (b"", "found none"),
        (b"\xff\xfe\x00", "line 1"),
    ],
)
def test_malformed_ranks_are_format_errors(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message) as error:
        formats.read_tiktoken(path, pattern="gpt2")
    assert str(error.value).startswith(str(path))


def test_blank_lines_and_windows_line_ends_are_read_as_tiktoken_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_bytes(b"YQ== 0\r\n\r\nYg== 1\r\n\nYWI= 2")
    model = formats.read_tiktoken(path, pattern="gpt2", special_tokens={"<s>": 3})
    assert model.merges.tolist() == [[0, 1, 2]]


def test_a_tokenizer_with_specials_first_works_in_tiktoken() -> None:
    model = small("gpt2")
    assert min(i for i, _ in model.tokens) == 2
    encoding = tiktoken_of(model, tiktoken_bytes(model), PATTERNS["gpt2"])
    ids = encoding.encode(f"<|1|>{TEXT}<|0|>", allowed_special="all")
    assert (ids[0], ids[-1]) == (1, 0)
    assert encoding.decode(ids) == f"<|1|>{TEXT}<|0|>"


# tokenizer.arrow.


def arrow_file(folder: Path, rows: list[dict[str, Any]], **metadata: str | None) -> Path:
    path = folder / "tokenizer.arrow"
    formats.write_arrow(TokenizerModel.from_tokens([]), path)
    schema = pa.ipc.open_file(path.read_bytes()).schema
    merged_metadata = {k.decode(): v.decode() for k, v in schema.metadata.items()} | metadata
    kept = {k: v for k, v in merged_metadata.items() if v is not None}
    full = [{"left": None, "right": None, "special": False, "count": None, **row} for row in rows]
    table = pa.Table.from_pylist(full, schema=schema.with_metadata(kept))
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


A, B = {"id": 0, "bytes": b"a"}, {"id": 1, "bytes": b"b"}
MERGE = {"id": 2, "bytes": b"ab", "left": 0, "right": 1}


@pytest.mark.parametrize(
    ("rows", "metadata", "message"),
    [
        ([A, B], {}, "metadata 'fingerprint': expected .*, that of the rows"),
        ([A, B], {"unknown_id": "-1"}, "metadata 'unknown_id': expected an id, found '-1'"),
        ([A, B], {"unknown_id": "9999999999"}, "unknown_id: expected an id of 0 ... 2147483647"),
        ([A, B], {"unknown_id": "1"}, "metadata 'fingerprint': expected .*, that of the rows"),
        ([A, {**B, "id": 0}], {}, "id 0: expected the bytes of its first row, b'a', found b'b'"),
        ([A, {**B, "bytes": b"a"}], {}, "ids 0 and 1 have the same bytes"),
        ([A, B, {**MERGE, "right": None}], {}, "'left' and 'right': expected both or neither"),
        ([A, B, {**MERGE, "right": 5}], {}, "merges, right: .*found 5"),
        ([A, B, {**MERGE, "bytes": b"ba"}], {}, "merge 0: .* makes b'ab'"),
        ([A, B, {**MERGE, "count": 4}, {**MERGE, "left": 2, "right": 2}], {}, "for every merge"),
        ([{**A, "special": True}, {**B, "special": True, "id": 0}], {}, "found 0 twice"),
        ([{**A, "special": True}, {**A, "special": True}], {}, "expected each text once"),
        ([{**A, "special": True, "bytes": b"\xff"}], {}, "special token 0: expected UTF-8"),
        ([A], {"format": "other"}, "expected 'bpe-beam tokenizer', version 1"),
        ([A], {"format_version": "2"}, "expected 'bpe-beam tokenizer', version 1"),
        ([A], {"pattern": None}, "expected the key 'pattern'"),
        ([A], {"pattern": "("}, "not a valid regular expression"),
    ],
)
def test_rows_that_contradict_each_other_are_format_errors(
    rows: list[dict[str, Any]], metadata: dict[str, str | None], message: str, tmp_path: Path
) -> None:
    path = arrow_file(tmp_path, rows, **metadata)
    with pytest.raises(FormatError, match=message) as error:
        formats.read_arrow(path)
    assert str(error.value).startswith(str(path))


def test_other_arrow_files_are_refused_naming_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.arrow"
    table = pa.table({"id": pa.array([1], pa.int8())})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(FormatError, match=r"columns: expected id: uint32, .*, found id: int8"):
        formats.read_arrow(path)


@pytest.mark.parametrize("kind", ["arrow", "json", "tiktoken"])
def test_damaged_files_are_format_errors_and_never_anything_else(kind: str, tmp_path: Path) -> None:
    model = small("gpt2")
    formats.save_tokenizer(model, tmp_path)
    read: Callable[[Path], TokenizerModel] = {
        "arrow": formats.read_arrow,
        "json": formats.read_huggingface,
        "tiktoken": lambda path: formats.read_tiktoken(path, pattern="gpt2"),
    }[kind]
    whole = (tmp_path / f"tokenizer.{kind}").read_bytes()
    path = tmp_path / "damaged"
    draw = random.Random(7)
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 1, 2, 8])):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data[: draw.choice([len(data), len(data), draw.randrange(len(data))])])
        try:
            read(path)
        except FormatError as error:
            assert str(error).startswith(str(path))


# The directory.


def test_save_writes_every_format_and_load_reads_it(tmp_path: Path) -> None:
    model = small()
    assert formats.save_tokenizer(model, tmp_path / "new" / "tokenizer") == {}
    folder = tmp_path / "new" / "tokenizer"
    names = {"merges.txt", "tokenizer.arrow", "tokenizer.json", "tokenizer.tiktoken"}
    others = {"tokenizer_config.json", "tokenizer_tiktoken.py", "training.json", "vocab.json"}
    assert {p.name for p in folder.iterdir()} == names | others
    assert formats.load_tokenizer(folder) == model


def test_training_json_says_what_a_person_wants_to_know(tmp_path: Path) -> None:
    model = small()
    formats.save_tokenizer(model, str(tmp_path), {"documents": 3})
    training = json.loads((tmp_path / "training.json").read_bytes())
    assert training["documents"] == 3
    assert training["tokenizer"]["stop_reason"] == "vocab_size_reached"
    assert training["tokenizer"]["fingerprint"] == model.fingerprint
    assert training["tokenizer"]["ids"] == len(model)
    assert training["files"][0] == "tokenizer.arrow"
    assert training["not_written"] == {}


def test_formats_that_cannot_hold_it_are_named_with_reasons_and_stale_files_removed(
    tmp_path: Path,
) -> None:
    formats.save_tokenizer(small(), tmp_path)
    special = TokenizerModel.from_tokens(
        bytes_and((256, b"bc"), (257, b"ab")),
        [(97, 98, 257), (98, 99, 256)],
        special_tokens={"ab": 300},
    )
    not_written = formats.save_tokenizer(special, tmp_path)
    assert list(not_written) == ["tokenizer.json", "vocab.json + merges.txt", "tokenizer.tiktoken"]
    assert {p.name for p in tmp_path.iterdir()} == {"tokenizer.arrow", "training.json"}
    assert json.loads((tmp_path / "training.json").read_bytes())["not_written"] == not_written
    assert formats.load_tokenizer(tmp_path) == special


def test_save_gives_the_same_bytes_anywhere(tmp_path: Path) -> None:
    for name in ("a", "b"):
        formats.save_tokenizer(small(), tmp_path / name, {"documents": 3})
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_save_and_load_take_fsspec_urls() -> None:
    url = "memory://formats-test/tokenizer"
    formats.save_tokenizer(small(), url)
    assert formats.load_tokenizer(url) == small()
    assert formats.read_huggingface(f"{url}/tokenizer.json") == without_history(small())
    fsspec.filesystem("memory").rm("/formats-test", recursive=True)


def test_paths_may_have_any_characters_and_file_urls_are_paths(tmp_path: Path) -> None:
    for name in ("a::b*[c]?", "ünï 漢"):
        formats.save_tokenizer(small(), tmp_path / name)
        assert formats.load_tokenizer(f"file://{tmp_path / name}/") == small()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formats.save_tokenizer(small(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def write_bytes(path: Path, data: bytes) -> int:
        if "arrow" in path.name:
            raise OSError(28, "No space left on device")
        with path.open("wb") as file:
            return file.write(data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(OSError, match="No space left"):
        formats.save_tokenizer(small("o200k"), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_that_is_too_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 100)
    formats.save_tokenizer(small(), tmp_path)
    with pytest.raises(FormatError, match="at most 100 bytes, found a larger one"):
        formats.load_tokenizer(tmp_path)


def test_a_missing_tokenizer_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        formats.load_tokenizer(tmp_path)


# Published vocabularies.

PUBLISHED = [
    ("r50k_base", "gpt2", {"<|endoftext|>": 50256}),
    pytest.param("cl100k_base", "cl100k", {"<|endoftext|>": 100257}, marks=pytest.mark.soak),
    pytest.param("o200k_base", "o200k", {"<|endoftext|>": 199999}, marks=pytest.mark.soak),
]


@needs_vocab
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "pattern", "specials"), PUBLISHED)
def test_published_ranks_survive_every_format(
    name: str, pattern: str, specials: dict[str, int], tmp_path: Path
) -> None:
    path = VOCAB / f"{name}.tiktoken"
    model = formats.read_tiktoken(path, pattern=pattern, special_tokens=specials)
    assert formats.save_tokenizer(model, tmp_path) == {}
    assert (tmp_path / "tokenizer.tiktoken").read_bytes() == path.read_bytes()
    assert formats.load_tokenizer(tmp_path) == model
    assert formats.read_huggingface(tmp_path / "tokenizer.json") == model
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    encoding = tiktoken_of(model, path.read_bytes(), PATTERNS[pattern])
    text = f"<|endoftext|>{TEXT}" * 20
    ids = encoding.encode(text, allowed_special="all")
    assert tokenizer.encode(text, add_special_tokens=False).ids == ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.slow
@needs_vocab
def test_gpt2s_files_and_r50ks_ranks_are_the_same_tokenizer(tmp_path: Path) -> None:
    files_model = formats.read_vocab_merges(
        VOCAB / "gpt2_vocab.json", VOCAB / "gpt2_merges.txt", ["<|endoftext|>"]
    )
    ranks = VOCAB / "r50k_base.tiktoken"
    specials = {"<|endoftext|>": 50256}
    assert files_model == formats.read_tiktoken(ranks, pattern="gpt2", special_tokens=specials)
    formats.write_vocab_merges(files_model, tmp_path / "vocab.json", tmp_path / "merges.txt")
    written = json.loads((tmp_path / "vocab.json").read_bytes())
    assert written == json.loads((VOCAB / "gpt2_vocab.json").read_bytes())
    lines = (tmp_path / "merges.txt").read_text(encoding="utf-8").split("\n")
    assert lines[1:] == (VOCAB / "gpt2_merges.txt").read_text(encoding="utf-8").split("\n")
    assert tiktoken_bytes(files_model) == ranks.read_bytes()
