"""Damaged files: each reader raises FormatError or gives a tokenizer, and nothing else.

What is still read from a changed tokenizer.json is compared with what the library makes of it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from profiles import times
from tokenizers import Tokenizer

from bpe_core import BPETokenizer, formats, train_bpe
from bpe_core.errors import BpeError, FormatError
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.model import TokenizerModel

Reader = Callable[[Path], object]

READERS: dict[str, Reader] = {
    "tokenizer.arrow": formats.read_arrow,
    "tokenizer.json": formats.read_huggingface,
    "vocab.json": lambda path: formats.read_vocab_merges(path, path.with_name("merges.txt")),
    "merges.txt": lambda path: formats.read_vocab_merges(path.with_name("vocab.json"), path),
    "tokenizer.tiktoken": lambda path: formats.read_tiktoken(path, pattern="gpt2"),
    "tokenizer.model": formats.read_minbpe,
    "found": lambda path: formats.find_tokenizer(path),
}
TEXT = "In the beginning, it's 12\n\n  <|a|><tool> the end  "
NUMBER = 2_000


@pytest.fixture(scope="module")
def model(kjv: bytes, tmp_path_factory: pytest.TempPathFactory) -> TokenizerModel:
    path = tmp_path_factory.mktemp("trained") / "text"
    path.write_bytes(kjv[:50_000])
    vocab, merges = train_bpe(path, 300)
    plain = BPETokenizer(vocab, merges, ["<|a|>", "<tool>"], pattern="cl100k").model
    return TokenizerModel.from_tokens(
        plain.tokens,
        map(tuple, plain.merges.tolist()),
        special_tokens=plain.special_tokens,
        pattern=plain.pattern,
        prepend=[plain.special_tokens["<|a|>"]],
        nonspecial_tokens=["<tool>"],
    )


@pytest.fixture(scope="module")
def whole(model: TokenizerModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the tokenizer in every format."""
    folder = tmp_path_factory.mktemp("whole")
    assert formats.save_tokenizer(model, folder) == {}
    formats.write_minbpe(model, folder / "tokenizer")
    (folder / "found").write_bytes((folder / "tokenizer.tiktoken").read_bytes())
    return folder


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Some bytes flipped, cut out, doubled or put in, and perhaps the end lost."""
    changed = bytearray(data)
    for _ in range(draw.choice([0, 1, 1, 2, 8])):
        at = draw.randrange(len(changed) + 1)
        length = draw.choice([1, 1, 2, 9, 100])
        kind = draw.randrange(4)
        if kind == 0:
            changed[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = changed[at : at + length]
        else:
            changed[at:at] = draw.choice(PIECES)
    return bytes(changed[: draw.choice([len(changed), len(changed), draw.randrange(len(data))])])


PIECES = [
    *[
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\n",
        b"\r\n",
        b" ",
        b"\xed\xa0\x80",
        b"{",
        b"[",
        b'"',
        b",",
    ],
    *[b"-1", b"99999999999999999999", b"1e400", b"null", b"NaN", b'"\\ud800"', b"[" * 5000, b"# "],
]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_format_errors_or_tokenizers(
    name: str, whole: Path, tmp_path: Path
) -> None:
    damage(name, whole, tmp_path, range(NUMBER // len(READERS)))


@pytest.mark.soak
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_format_errors_or_tokenizers(
    name: str, whole: Path, tmp_path: Path
) -> None:
    damage(name, whole, tmp_path, range(NUMBER, 2 * NUMBER))


def damage(name: str, whole: Path, folder: Path, seeds: range) -> None:
    for other in whole.iterdir():
        (folder / other.name).write_bytes(other.read_bytes())
    path = folder / name
    data = path.read_bytes()
    for seed in seeds:
        path.write_bytes(damaged(data, random.Random(seed)))
        try:
            found = READERS[name](path)
        except FormatError as error:
            assert str(error).startswith(str(folder)), seed
            continue
        if isinstance(found, TokenizerModel):
            use(found)


def use(model: TokenizerModel) -> None:
    """What is read can be used, or refuses in words."""
    try:
        tokenizer = BPETokenizer.from_model(model)
        tokenizer.decode(tokenizer.encode(TEXT))
    except BpeError:
        pass


# Changed values.

VALUES: list[Any] = [
    *[
        None,
        True,
        False,
        0,
        -1,
        1,
        300,
        2**31,
        2**70,
        1.5,
        1e308,
        "",
        "a",
        "<|a|>",
        "Ġthe",
        "\ud800",
    ],
    *[
        [],
        {},
        [[]],
        ["a", "b"],
        "NFC",
        {"type": "NFC"},
        {"type": "Sequence"},
        {"type": "ByteLevel"},
    ],
    *[{"Regex": "a|b"}, {"Regex": "("}, {"String": "e"}, "Isolated", "Removed", "MergedWithNext"],
    *[{"type": "Digits", "individual_digits": True}, {"id": "A", "type_id": 0}, ["Ġ", "t"]],
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values below one."""
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in list(items) or (enumerate(value) if isinstance(value, list) else ()):
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(root: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """With one value removed, exchanged, or taken from elsewhere."""
    root = copy.deepcopy(root)
    settings = [path for path in places(root) if path[:2] not in (("model", "vocab"),)]
    rare = [path for path in settings if path[:2] != ("model", "merges")]
    *keys, last = draw.choice(rare if draw.random() < 0.8 else [*places(root)])
    parent: Any = root
    for key in keys:
        parent = parent[key]
    if draw.random() < 0.2:
        del parent[last]
    elif draw.random() < 0.2:
        *keys, key = draw.choice(rare)
        elsewhere: Any = root
        for step in keys:
            elsewhere = elsewhere[step]
        parent[last] = copy.deepcopy(elsewhere[key])
    else:
        parent[last] = draw.choice(VALUES)
    return root


def compare(root: dict[str, Any], folder: Path, seeds: range) -> None:
    path = folder / "tokenizer.json"
    agreed = 0
    for seed in seeds:
        text = json.dumps(changed(root, random.Random(seed)))
        path.write_text(text)
        try:
            model = formats.read_huggingface(path)
        except FormatError as error:
            assert str(error).startswith(str(path)), seed
            continue
        try:
            theirs = Tokenizer.from_str(text)
        except Exception:  # the library has no class of its own for it
            continue
        expected = theirs.encode(TEXT, add_special_tokens=False).ids
        assert BPETokenizer.from_model(model).encode(TEXT) == expected, seed
        with_added = theirs.encode(TEXT).ids
        assert [*model.prepend, *expected, *model.append] == with_added, seed
        again = Tokenizer.from_str(huggingface_bytes(model).decode())
        assert again.encode(TEXT).ids == with_added, seed
        agreed += 1
    assert agreed > len(seeds) // 20


@pytest.mark.slow
def test_changed_values_are_format_errors_or_what_the_library_makes_of_them(
    model: TokenizerModel, tmp_path: Path
) -> None:
    compare(json.loads(huggingface_bytes(model)), tmp_path, range(times(7)))


@pytest.mark.soak
def test_many_changed_values_are_format_errors_or_what_the_library_makes_of_them(
    model: TokenizerModel, tmp_path: Path
) -> None:
    compare(json.loads(huggingface_bytes(model)), tmp_path, range(1_000, 9_000))


# Bombs.


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 100_000,
        '{"model": {"vocab": {"a": ' + "9" * 10_000 + "}}}",
        '{"model": ' + '{"type": ' * 900 + "1" + "}" * 901,
        '{"pre_tokenizer": ' + '{"type": "Sequence", "pretokenizers": [' * 400 + "]}" * 400 + "}",
    ],
)
def test_json_that_nests_or_counts_without_end_is_a_format_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    for read in (formats.read_huggingface, formats.find_tokenizer):
        if read is formats.find_tokenizer and text.endswith("}"):
            continue  # it is JSON, of no format in particular
        with pytest.raises(FormatError):
            read(path)


@pytest.mark.slow
def test_added_tokens_of_great_length_do_not_take_the_square_of_it(tmp_path: Path) -> None:
    model = TokenizerModel.from_tokens((i, bytes([i])) for i in range(256))
    root = json.loads(huggingface_bytes(model))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "special": True}
    root["added_tokens"] = [
        {"id": 256 + i, "content": "ab" * 200_000 + str(i), "normalized": bool(i), **flags}
        for i in range(2)
    ]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(root))
    read = formats.read_huggingface(path)
    assert read.token_flags == {"ab" * 200_000 + "1": {"normalized"}}
    text = "ab" * 100_000 + "1 " + "ab" * 200_000 + "1"
    assert BPETokenizer.from_model(read).count_tokens(text) == 200_003
