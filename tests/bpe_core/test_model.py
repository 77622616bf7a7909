from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from bpe_core.errors import InvalidPatternError, InvalidTokenizerError
from bpe_core.model import MAX_ID, TokenizerModel

TOKENS = [(0, b"a"), (1, b"b"), (2, b"ab"), (3, b"abb")]
MERGES = [(0, 1, 2), (2, 1, 3)]


def model(**changes: Any) -> TokenizerModel:
    values = {"tokens": TOKENS, "merges": MERGES, "special_tokens": {"<|end|>": 7}, **changes}
    return TokenizerModel.from_tokens(values.pop("tokens"), values.pop("merges"), **values)


def test_tokens_come_in_order_of_id_and_specials_are_in_the_vocabulary() -> None:
    shuffled = model(tokens=TOKENS[::-1])
    assert shuffled == model()
    assert shuffled.tokens == TOKENS
    assert shuffled.vocab == {**dict(TOKENS), 7: b"<|end|>"}
    assert (len(shuffled), shuffled.max_id) == (5, 7)


def test_merges_are_given_back_as_bytes() -> None:
    assert model().merge_bytes == [(b"a", b"b"), (b"ab", b"b")]


def test_from_vocab_is_from_tokens_by_bytes() -> None:
    vocab = {**dict(TOKENS), 7: b"<|end|>"}
    assert TokenizerModel.from_vocab(vocab, model().merge_bytes, {"<|end|>": 7}) == model()


def test_of_a_pair_listed_twice_from_vocab_keeps_the_last() -> None:
    merges = [(b"a", b"b"), (b"ab", b"b"), (b"a", b"b")]
    kept = TokenizerModel.from_vocab(dict(TOKENS), merges, {})
    assert kept.merge_bytes == [(b"ab", b"b"), (b"a", b"b")]


def test_a_special_token_may_have_the_bytes_of_an_ordinary_one() -> None:
    assert model(special_tokens={"ab": 9}).vocab[9] == b"ab"


def test_a_merge_may_make_bytes_that_exist() -> None:
    tokens = [*TOKENS, (4, b"bb")]
    reused = model(tokens=tokens, merges=[*MERGES, (1, 1, 4), (0, 4, 3)])
    assert reused.merge_bytes[-1] == (b"a", b"bb")


def test_with_special_tokens_takes_their_ids_from_ordinary_tokens() -> None:
    changed = model(tokens=[*TOKENS, (4, b"<s>")]).with_special_tokens({"<s>": 4})
    assert changed.tokens == TOKENS
    assert changed.special_tokens == {"<s>": 4}


def test_the_fingerprint_covers_what_decides_ids_and_nothing_else() -> None:
    base = model().fingerprint
    assert base == model(merge_counts=[5, 3], tie_break="first_id", stop_reason="x").fingerprint
    different = [
        model(tokens=[*TOKENS, (5, b"c")]),
        model(merges=MERGES[::-1]),
        model(special_tokens={"<|end|>": 8}),
        model(special_tokens={"<|End|>": 7}),
        model(pattern="o200k"),
        model(ignore_merges=True),
        model(normalizer="nfc"),
        model(normalizer="nfkc"),
        model(normalize_quotes=True),
    ]
    assert len({base, *(other.fingerprint for other in different)}) == 1 + len(different)


def test_the_fingerprint_does_not_depend_on_which_name_a_pattern_has() -> None:
    assert model(pattern="llama3").fingerprint == model(pattern="cl100k").fingerprint
    assert model(pattern="r50k").fingerprint == model(pattern="gpt2").fingerprint


def test_the_fingerprint_is_stable_between_versions() -> None:
    assert model().fingerprint == "4e90141cf834333abe58b4ea11ae28f1"


def test_models_can_be_sent_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(model(merge_counts=[2, 1]))) == model(merge_counts=[2, 1])


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        model().token_ids[0] = 5


def test_ids_of_any_layout_are_looked_up() -> None:
    sparse = model(tokens=[(5, b"a"), (MAX_ID, b"b"), (9, b"ab")], merges=[(5, MAX_ID, 9)])
    assert sparse.bytes_of(np.array([MAX_ID, 5])).to_pylist() == [b"b", b"a"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": [*TOKENS, (3, b"c")]}, "found 3 twice"),
        ({"special_tokens": {"<s>": 2}}, "found 2 twice"),
        ({"special_tokens": {"<s>": 9, "<t>": 9}}, "found 9 twice"),
        ({"tokens": [*TOKENS, (4, b"ab")]}, r"ids 2 and 4 have the same bytes, b'ab'"),
        ({"tokens": [*TOKENS, (4, b"")]}, "id 4: expected bytes, found none"),
        ({"tokens": [*TOKENS, (-1, b"c")]}, "found -1"),
        ({"tokens": [*TOKENS, (MAX_ID + 1, b"c")]}, f"0 ... {MAX_ID}, found 0 ... {MAX_ID + 1}"),
        ({"tokens": [*TOKENS, (1 << 80, b"c")]}, "token ids: expected integers"),
        ({"merges": [(0, 1, 2), (2, 8, 3)]}, r"merges, right: .*found 8 \(row 1\)"),
        ({"merges": [(0, 1, 7)]}, "merges, result: .*found 7"),
        (
            {"merges": [(1, 0, 2)]},
            r"merge 0: b'b' \+ b'a' makes b'ba', but its result, id 2, is b'a",
        ),
        ({"merges": [*MERGES, (0, 1, 2)]}, "merges 0 and 2 are the same pair"),
        ({"merge_counts": [1]}, "one count for each of 2 merges, found 1"),
        ({"special_tokens": {"": 9}}, "special token: expected a text, found ''"),
        ({"special_tokens": {"\ud800": 9}}, "lone surrogate"),
        ({"special_tokens": {"<s>": -4}}, "found -4"),
        ({"normalizer": "nfd"}, "normalizer: expected 'nfc', 'nfkc' or None, found 'nfd'"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTokenizerError, match=message):
        model(**changes)


def test_merges_of_unknown_bytes_are_refused() -> None:
    with pytest.raises(InvalidTokenizerError, match=r"merge 0, b'a' \+ b'z': .* no id for b'z'"):
        TokenizerModel.from_vocab(dict(TOKENS), [(b"a", b"z")], {})


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(InvalidPatternError):
        model(pattern="(")


@pytest.mark.process
def test_a_token_is_looked_up_without_importing_pandas() -> None:
    code = (
        "import sys; from bpe_core.model import TokenizerModel; "
        "model = TokenizerModel.from_tokens([(0, b'a'), (1, b'b')]); "
        "assert model.ids_of(b'b') == [1] and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
