"""Tokenizers that merge characters give the ids of Hugging Face's tokenizers.

The files are small, with the steps of published ones. The variable PUBLISHED_TOKENIZERS may name a
directory of published files, NAME/tokenizer.json, which are then compared too.
"""

from __future__ import annotations

import json
import os
import pickle
import random
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from character_support import FALLBACKS, STEPS, character_json, read_json
from core_support import INVALID_UTF8
from hypothesis import given, settings
from hypothesis import strategies as st
from pathological_texts import TEXTS
from peer_normalization import normalizes_alike
from profiles import share, times
from tokenizers import Tokenizer

from bpe_core import BPETokenizer
from bpe_core.buffers import concatenate
from bpe_core.errors import FormatError
from bpe_core.formats.merges import read_tokenizer_json

FRAGMENTS = [
    *[
        " ",
        "  ",
        "    ",
        "▁",
        "▁▁",
        "▁ ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
        "\x00",
        "\x08",
        ".",
        ",",
        "'s",
    ],
    *[
        "<s>",
        "</s>",
        "<unk>",
        "<0x0A>",
        "<s",
        ">▁</",
        "> </",
        "the",
        " the",
        "heaven",
        "aaaaa",
        "aa",
    ],
    *[
        "1",
        "1234",
        "é",
        "e\u0301",
        "日本",
        "文字",
        "語",
        "한",
        "👩🏽",
        "👩",
        "Ж",
        "мир",
        "ﬁ",
        "㎏",
        "\u200d",
    ],
]
PREPEND, REPLACE = STEPS["llama"][0]["normalizers"]
METASPACE = {"type": "Metaspace", "replacement": "▁"}
CHARACTERS = st.characters(exclude_categories=["Cs"]).filter(normalizes_alike)
texts = st.lists(st.sampled_from(FRAGMENTS) | CHARACTERS, max_size=30)
PUBLISHED = sorted(Path(os.environ.get("PUBLISHED_TOKENIZERS", "-")).glob("*/tokenizer.json"))


@cache
def peers(steps: str, fallback: str) -> tuple[BPETokenizer, Tokenizer]:
    text = json.dumps(character_json(steps, fallback))
    return read_json(text), Tokenizer.from_str(text)


def check(ours: BPETokenizer, theirs: Tokenizer, texts: Sequence[str]) -> None:
    expected = theirs.encode_batch(list(texts), add_special_tokens=False)
    ids, offsets = ours.encode_batch_to_numpy(list(texts), num_threads=1)
    for i, (text, encoding) in enumerate(zip(texts, expected, strict=True)):
        assert ids[offsets[i] : offsets[i + 1]].tolist() == encoding.ids, text


def random_texts(seed: int, n: int) -> Iterable[str]:
    rng = random.Random(seed)
    ranges = [(0x20, 0x7F), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x110000)]
    for _ in range(n):
        drawn = (
            rng.choice(FRAGMENTS) if rng.random() < 0.8 else chr(rng.randrange(*rng.choice(ranges)))
            for _ in range(rng.randrange(20))
        )
        yield "".join(filter(normalizes_alike, drawn))


@pytest.mark.parametrize("fallback", FALLBACKS)
@pytest.mark.parametrize("steps", STEPS)
def test_ids_are_those_of_tokenizers(steps: str, fallback: str) -> None:
    check(*peers(steps, fallback), [*FRAGMENTS, "", *random_texts(1, times(40))])


@pytest.mark.parametrize("fallback", FALLBACKS)
@settings(max_examples=times(4))
@given(parts=texts, steps=st.sampled_from(list(STEPS)))
def test_any_text_has_the_ids_of_tokenizers(fallback: str, parts: list[str], steps: str) -> None:
    check(*peers(steps, fallback), ["".join(parts)])


@pytest.mark.slow
@pytest.mark.parametrize("fallback", FALLBACKS)
def test_every_character_has_the_ids_of_tokenizers(fallback: str) -> None:
    characters = share([chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000], 211)
    for before, after in [("", ""), ("a", ""), ("", "é"), (" ", "日"), ("\n", "\n")]:
        check(*peers("gemma", fallback), [before + c + after for c in characters])


@pytest.mark.parametrize("name", TEXTS)
def test_pathological_texts_have_the_ids_of_tokenizers(name: str) -> None:
    text = TEXTS[name](1 << 12).decode("utf-8", "replace")
    check(*peers("llama", "bytes"), [text])


@pytest.mark.nightly
@pytest.mark.parametrize("fallback", FALLBACKS)
def test_a_million_random_texts_have_the_ids_of_tokenizers(fallback: str) -> None:
    for steps in STEPS:
        check(*peers(steps, fallback), list(random_texts(5, 1_000_000 // len(STEPS))))


@pytest.mark.nightly
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_published_files_give_the_ids_of_tokenizers(path: Path) -> None:
    try:
        ours = BPETokenizer.from_huggingface(path)
    except FormatError:
        pytest.skip("not read")
    if ours.model.characters is None:
        pytest.skip("byte-level")
    theirs = Tokenizer.from_file(str(path))
    check(ours, theirs, [*FRAGMENTS, *random_texts(2, times(400)), *map(chr, range(0x3000))])


@settings(max_examples=times(2))
@given(
    parts=st.lists(texts.map("".join), max_size=8),
    steps=st.sampled_from(list(STEPS)),
    fallback=st.sampled_from(list(FALLBACKS)),
)
def test_a_stream_has_the_ids_of_its_text(parts: list[str], steps: str, fallback: str) -> None:
    tokenizer, _ = peers(steps, fallback)
    long = [part * 300 for part in parts]
    assert list(tokenizer.encode_iterable(long)) == tokenizer.encode("".join(long))


@pytest.mark.parametrize("steps", STEPS)
def test_decoding_gives_the_text_of_tokenizers(steps: str) -> None:
    ours, theirs = peers(steps, "bytes")
    for text in random_texts(3, times(20)):
        ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


def test_decoding_leaves_out_the_space_that_encoding_put_first() -> None:
    tokenizer, _ = peers("llama", "bytes")
    for text in ["the earth", " the", "  ", "", "日本語", "\n", "é\x00", "Ω"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    the = tokenizer.encode("the")
    assert tokenizer.decode_bytes(the) == b"the"
    assert b"".join(map(tokenizer.id_to_bytes, the)) == b" the"


@pytest.mark.parametrize("fallback", FALLBACKS)
@pytest.mark.parametrize("steps", STEPS)
def test_files_that_are_written_mean_the_same(steps: str, fallback: str, tmp_path: Path) -> None:
    ours, theirs = peers(steps, fallback)
    not_written = ours.save(tmp_path)
    assert set(not_written) == {"tokenizer.model"}  # its special tokens are never found in text
    assert BPETokenizer.load(tmp_path) == ours
    assert BPETokenizer.from_huggingface(tmp_path / "tokenizer.json") == ours
    written = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in random_texts(4, times(4)):
        assert written.encode(text).ids == theirs.encode(text, add_special_tokens=False).ids
    assert pickle.loads(pickle.dumps(ours)) == ours


@pytest.mark.parametrize("fallback", FALLBACKS)
@pytest.mark.parametrize("steps", [name for name in STEPS if name != "nfkc"])
def test_tokens_are_the_slices_of_the_text_between_offsets(steps: str, fallback: str) -> None:
    tokenizer, _ = peers(steps, fallback)
    for text in ["", " ", "the ▁earth</s>the", "Ω日Ω\u0378<s>Ω", *random_texts(6, times(1))]:
        ids, offsets = tokenizer.encode_with_offsets(text)
        assert ids.tolist() == tokenizer.encode(text)
        assert (offsets[0], offsets[-1]) == (0, len(text))
        for token_id, begin, end in zip(ids.tolist(), offsets[:-1], offsets[1:], strict=True):
            token = tokenizer.id_to_bytes(token_id).decode("utf-8", "replace")
            if "\ufffd" not in token and token_id != tokenizer.unknown_id:
                assert text[begin:end].replace("▁", " ") in (token, token.removeprefix(" "))
        for most in range(len(ids)):
            head = tokenizer.truncate(text, most)
            assert text.startswith(head)
            assert tokenizer.count_tokens(head) <= most


def test_offsets_are_given_unless_special_tokens_take_white_space() -> None:
    content = character_json("llama", "bytes")
    (token,) = [t for t in content["added_tokens"] if t["content"] == "</s>"]
    others = [t for t in content["added_tokens"] if not t["content"].isspace()]
    content["added_tokens"] = others
    token["rstrip"] = True
    tokenizer = read_json(json.dumps(content))
    ids, offsets = tokenizer.encode_with_offsets("the</s>the Ω")
    assert ids.tolist() == tokenizer.encode("the</s>the Ω")
    assert offsets[-1] == len("the</s>the Ω")
    with pytest.raises(ValueError, match="white space that special tokens take"):
        tokenizer.encode_with_offsets("the</s> the")


@pytest.mark.parametrize("steps", STEPS)
def test_normalizing_gives_what_decoding_does(steps: str) -> None:
    tokenizer, _ = peers(steps, "bytes")
    for text in random_texts(7, times(4)):
        assert tokenizer.normalize(text) == tokenizer.decode(tokenizer.encode(text))


def test_invalid_utf8_becomes_the_tokens_of_its_bytes() -> None:
    tokenizer, _ = peers("gemma", "bytes")
    unknown, _ = peers("gemma", "unknown")
    for data in INVALID_UTF8:
        ids = tokenizer.encode(b"the" + data + b"the")
        assert tokenizer.decode_bytes(ids) == b"the" + data + b"the"
        assert len(unknown.encode(data)) == len(data)


def test_special_tokens_that_are_not_allowed_are_merged_as_text() -> None:
    tokenizer, theirs = peers("gemma", "bytes")
    vocab = theirs.get_vocab()
    assert tokenizer.encode("▁▁a\n", "none") == [vocab["▁▁"], vocab["a"], vocab["\n"]]
    assert tokenizer.encode("  ") == tokenizer.encode("▁▁") == [vocab["▁▁"]]
    assert vocab["<s>"] not in tokenizer.encode("<s>", "none")


def test_the_unknown_token_in_the_text_is_text_unless_it_is_an_added_token() -> None:
    tokenizer, theirs = peers("gemma", "bytes")
    assert tokenizer.encode("<unk>") == theirs.encode("<unk>").ids != [0]


def test_ids_fit_into_16_bits_where_those_of_the_vocabulary_do() -> None:
    tokenizer, _ = peers("llama", "bytes")
    data = "日本 Ω the".encode()
    bounds = np.array([0]), np.array([len(data)])
    narrow, _ = tokenizer.encode_documents(data, *bounds, dtype=np.uint16)
    assert narrow.tolist() == tokenizer.encode(data)


@pytest.mark.parametrize("line_break", ["\\n", "\\u000a"])
def test_merges_with_escapes_are_read_by_native_code(line_break: str, tmp_path: Path) -> None:
    root = character_json()
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(root, ensure_ascii=False).replace("\\n", line_break), "utf-8")
    merges = read_tokenizer_json(path)[1]
    vocab = root["model"]["vocab"]
    keys, offsets = concatenate([text.encode() for text in vocab])
    rows = merges.find_rows(keys, offsets, np.array(list(vocab.values())), stand_ins=False)
    assert rows is not None
    assert any("\n" in "".join(pair) for pair in root["model"]["merges"])
    assert rows.tolist() == [
        [vocab[left], vocab[right], vocab[left + right]] for left, right in root["model"]["merges"]
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.ignore_merges": True}, "model.ignore_merges"),
        ({"model.dropout": 0.1}, "model.dropout"),
        ({"model.byte_fallback": False, "model.unk_token": None}, "byte_ids or an unknown_id"),
        ({"model.byte_fallback": False, "model.unk_token": "é"}, "text does not get otherwise"),
        ({"model.byte_fallback": False, "model.unk_token": "th"}, "text does not get otherwise"),
        ({"model.fuse_unk": 1}, "model.fuse_unk"),
        ({"model.end_of_word_suffix": "</w>"}, "model.end_of_word_suffix"),
        ({"normalizer.normalizers": [{"type": "Lowercase"}, PREPEND, REPLACE]}, "Lowercase"),
        ({"normalizer.normalizers": [PREPEND]}, "Replace of spaces"),
        ({"normalizer": REPLACE, "pre_tokenizer": {"type": "Whitespace"}}, "Whitespace"),
        ({"pre_tokenizer": {**METASPACE, "replacement": "_"}}, "Metaspace.replacement"),
        ({"pre_tokenizer": {**METASPACE, "prepend_scheme": "last"}}, "prepend_scheme"),
        ({"decoder": {"type": "WordPiece"}}, "WordPiece"),
        ({"model.merges": [["a", "zzz"]]}, "no id for 'zzz'"),
        ({"model.merges": [["a"]]}, "two tokens"),
        ({"model.vocab": {"a": 0, "▁": 1, "a b": 2}, "model.merges": []}, "a space"),
        ({"model.vocab": {"▁": 1, "a": 1}, "model.merges": []}, "each id once"),
        ({"model.vocab": {"▁": 1, "a": 2}, "model.merges": []}, "for each byte"),
        ({"model.vocab": {"a": 2}, "model.merges": []}, "the space"),
        ({"model.type": "Unigram"}, "model.type"),
    ],
)  # fmt: skip
def test_what_would_change_ids_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    root = {**character_json("llama", "bytes"), "added_tokens": []}
    for key, value in changes.items():
        *path, last = key.split(".")
        target = root
        for name in path:
            target = target[name]
        target[last] = value
    with pytest.raises(FormatError, match=message):
        read_json(json.dumps(root))


def test_an_unknown_token_that_is_also_text_is_no_matter_beside_bytes() -> None:
    root = character_json("llama", "bytes")
    root["model"]["unk_token"] = "a"
    text = json.dumps(root)
    check(read_json(text), Tokenizer.from_str(text), [*FRAGMENTS, "a", "aaaa", "cat and aa", "日a"])


def test_a_normalized_added_token_is_refused_beside_a_normalizer() -> None:
    root = character_json("llama", "bytes")
    root["added_tokens"][0]["normalized"] = True
    with pytest.raises(FormatError, match="'normalized' of '<s>'"):
        read_json(json.dumps(root))
