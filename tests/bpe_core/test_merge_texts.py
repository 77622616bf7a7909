"""The merges of a tokenizer.json, read natively, mean what JSON's reader makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core._native import entries_in_stand_ins, find_merges, has_equal_keys
from bpe_core.buffers import concatenate
from bpe_core.errors import FormatError
from bpe_core.formats import huggingface
from bpe_core.formats import merges as merges_module
from bpe_core.model import TokenizerModel
from bpe_core.stand_ins import to_stand_ins

LONG = b"ab" * 20
MERGES = [
    (b"a", b"b"),
    (b" ", b"ab"),
    (b'"', b"\\"),
    (b"\xc3", b"\xa9"),
    (b"ab", b"ab"),
    (b"\\", b"/"),
]
MERGES += [(LONG[:i], LONG[i:][:2]) for i in range(4, len(LONG), 2)]


def root_of(merges: list[Any]) -> dict[str, Any]:
    tokens = dict.fromkeys([bytes([i]) for i in range(256)] + [a + b for a, b in MERGES])
    vocab = {to_stand_ins(token): i for i, token in enumerate(tokens)}
    return {
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "added_tokens": [],
    }


def sides(as_text: bool) -> list[Any]:
    pairs = [[to_stand_ins(left), to_stand_ins(right)] for left, right in MERGES]
    return [" ".join(pair) for pair in pairs] if as_text else pairs


def outcome(path: Path) -> TokenizerModel | str:
    try:
        return huggingface.read_huggingface(path)
    except FormatError as error:
        return str(error)


def outcomes(path: Path, data: bytes) -> tuple[TokenizerModel | str, TokenizerModel | str]:
    """What a file is read as, and what it is read as by JSON's reader alone."""
    path.write_bytes(data)
    native = outcome(path)
    with patch.object(merges_module, "find_merges", lambda _: None):
        return native, outcome(path)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"ensure_ascii": False}])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_merges_are_read_in_every_spelling(
    as_text: bool, options: Any, bom: bytes, tmp_path: Path
) -> None:
    data = json.dumps(root_of(sides(as_text)), **options).encode()
    assert find_merges(data) is not None
    native, plain = outcomes(tmp_path / "tokenizer.json", bom + data)
    assert native == plain
    assert isinstance(native, TokenizerModel)
    assert native.merge_bytes == MERGES


def test_of_a_pair_given_twice_the_last_place_counts(tmp_path: Path) -> None:
    merges = [*sides(False), *sides(False)[1:3], *sides(False)[2:3]]
    native, plain = outcomes(tmp_path / "tokenizer.json", json.dumps(root_of(merges)).encode())
    assert native == plain
    assert isinstance(native, TokenizerModel)
    assert native.merge_bytes == [MERGES[0], *MERGES[3:], *MERGES[1:3]]


WRONG = [
    *(["a"], ["a", "b", "c"], [], "ab", "a b c", "a  b", " b", "a ", "", 1, None, {}, ["a", 1]),
    *(["a", "\ud800"], "a \ud83d\ude00", ["Ġ ", "a"], ["x", "y"], ["a\n", "b"], [["a"], "b"]),
]


@pytest.mark.parametrize("item", WRONG, ids=repr)
def test_a_wrong_merge_is_reported_with_its_place(item: Any, tmp_path: Path) -> None:
    merges = [*sides(False)[:2], item]
    native, plain = outcomes(tmp_path / "tokenizer.json", json.dumps(root_of(merges)).encode())
    assert native == plain
    assert isinstance(native, str)


SMALL = json.dumps(
    {
        "version": '"model": {"merges": []}',
        "model": {
            "merges": ["a b", ["ab", "ab"], "\u0120 a", ["\n", "\t\r"]],
            "x": [{"merges": ["\\"]}],
        },
    }
)


@settings(max_examples=times(5))
@given(st.data())
def test_a_changed_file_is_never_read_as_another(data: st.DataObject) -> None:
    text = SMALL
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 2))
        new = data.draw(
            st.sampled_from(
                ["", *'"\\[]{},: \n0é', '"merges": [],', '"model":', "\\u0041", "\\n", "null"]
            )
        )
        text = text[:at] + new + text[at + cut :]
    found = find_merges(text.encode())
    if found is None:
        return
    begin, end, merges = found
    rest = text.encode()[:begin] + b"[]" + text.encode()[end:]
    try:
        emptied = json.loads(rest, object_pairs_hook=distinct)
    except ValueError:
        return
    whole = json.loads(text, object_pairs_hook=distinct)
    listed = whole["model"]["merges"]
    pairs = [item.split(" ") if isinstance(item, str) else item for item in listed]
    assert all(len(pair) == 2 for pair in pairs)
    assert len(merges) == len(pairs)
    whole["model"]["merges"] = []
    assert emptied == whole
    keys = sorted({text for left, right in pairs for text in (left, right, left + right)} - {""})
    rows = merges.rows(*concatenate([key.encode() for key in keys]), range(len(keys)), False)  # type: ignore[arg-type]
    if all(left and right for left, right in pairs):
        expected = dict.fromkeys(
            reversed([tuple(map(keys.index, (a, b, a + b))) for a, b in pairs])
        )
        assert rows is not None
        assert list(map(tuple, rows.tolist())) == [*reversed(expected)]


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_equal_keys_are_found(keys: list[bytes]) -> None:
    assert has_equal_keys(*concatenate(keys)) == (len(set(keys)) < len(keys))


def test_entries_that_are_none_are_left_to_the_messages() -> None:
    for entries in ({"a": "1"}, {"a": True}, {"a": -1}, {"a": 2**31}, {"a": 1, "b": 1}, {"日": 1}):
        assert entries_in_stand_ins(entries, (), 2**31 - 1) is None
    found = entries_in_stand_ins({"Ġb": 7, "a": 3, "日": 1}, {"日"}, 2**31 - 1)
    assert found is not None
    ids, data, offsets = found
    assert (ids.tolist(), bytes(data), offsets.tolist()) == ([3, 7], b"a b", [0, 1, 3])
