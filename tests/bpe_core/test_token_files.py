"""Parts of tokenizer files that are written natively, against Python's json and base64."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bpe_core._native import merge_lines, merges_json, rank_lines, stand_ins_of, vocabulary_json
from bpe_core.buffers import concatenate, flatten
from bpe_core.formats.gpt2 import vocab_merges_bytes
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.model import TokenizerModel
from bpe_core.stand_ins import to_stand_ins

BYTES = [bytes([byte]) for byte in range(256)]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(
    longer=st.lists(st.binary(min_size=2, max_size=6), unique=True, max_size=8),
    specials=st.lists(TEXTS, unique=True, max_size=6),
    data=st.data(),
)
def test_files_have_the_bytes_that_json_and_base64_write(
    longer: list[bytes], specials: list[str], data: st.DataObject
) -> None:
    num_tokens = len(BYTES) + len(longer) + len(specials)
    first = data.draw(st.integers(0, 3))
    gap = data.draw(st.integers(1, 4))
    order = data.draw(st.permutations([*longer, *specials]))
    numbers = range(first, first + num_tokens * gap, gap)
    texts = dict(zip([*BYTES, *order], numbers, strict=True))
    ids = {token: i for token, i in texts.items() if isinstance(token, bytes)}
    special_ids = {text: i for text, i in texts.items() if isinstance(text, str)}
    merges = [(t[:1], t[1:], t) for t in longer if t[1:] in ids]
    model = TokenizerModel.from_tokens(
        [(i, token) for token, i in ids.items()],
        [(ids[left], ids[right], ids[result]) for left, right, result in merges],
        special_tokens=special_ids,
    )
    assume(not set(map(to_stand_ins, ids)) & special_ids.keys())
    by_text = {to_stand_ins(token): i for token, i in ids.items()} | special_ids
    vocab = dict(sorted(by_text.items(), key=itemgetter(1)))
    sides = [[to_stand_ins(left), to_stand_ins(right)] for left, right, _ in merges]

    written, lines = vocab_merges_bytes(model)
    assert written == (json.dumps(vocab, ensure_ascii=False) + "\n").encode()
    assert lines.decode() == "".join(f"{a} {b}\n" for a, b in [("#version:", "0.2"), *sides])
    file = huggingface_bytes(model).decode()
    root = json.loads(file)
    assert file == json.dumps(root, ensure_ascii=False) + "\n"
    assert (root["model"]["vocab"], root["model"]["merges"]) == (vocab, sides)
    assert list(root["model"]["vocab"]) == list(vocab)
    expected = [b"%b %d\n" % (base64.b64encode(t), i) for i, t in model.tokens]
    assert rank_lines(*flatten(model.token_bytes), model.token_ids) == b"".join(expected)


@given(st.lists(TEXTS, unique=True, max_size=20))
def test_any_text_is_escaped_as_json_escapes_it(texts: list[str]) -> None:
    keys, offsets = concatenate([text.encode() for text in texts])
    rows = np.arange(len(texts))[::-1].copy()
    expected = {texts[i]: i for i in rows.tolist()}
    ids = np.arange(len(texts))
    assert vocabulary_json(keys, offsets, ids, rows).decode() == dumped(expected)
    expected_merges = [[texts[i], texts[~i]] for i in rows.tolist()]
    assert merges_json(keys, offsets, rows, rows[::-1].copy()).decode() == dumped(expected_merges)


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def test_stand_ins_are_those_of_each_byte() -> None:
    text, offsets = stand_ins_of(*concatenate(BYTES))
    found = [text[a:b].decode() for a, b in pairwise(offsets)]
    assert found == list(map(to_stand_ins, BYTES))


def test_rows_and_offsets_outside_of_the_texts_are_refused() -> None:
    keys, offsets, one = b"ab", np.array([0, 1, 2]), np.array([0])
    for row in (-1, 2):
        with pytest.raises(ValueError, match=f"row {row} of 2 does not exist"):
            vocabulary_json(keys, offsets, np.arange(2), np.array([row]))
        with pytest.raises(ValueError, match="does not exist"):
            merge_lines(keys, offsets, one, np.array([row]))
    with pytest.raises(ValueError, match="an id for each token"):
        rank_lines(keys, offsets, one)
    with pytest.raises(ValueError, match="equally long"):
        merges_json(keys, offsets, one, np.array([0, 1]))
    with pytest.raises(ValueError, match="outside of the data"):
        stand_ins_of(keys, np.array([0, 3]))
    with pytest.raises(ValueError, match="offsets must have one entry more"):
        stand_ins_of(keys, np.array([], np.int64))
