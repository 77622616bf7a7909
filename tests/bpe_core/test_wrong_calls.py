"""Calls that people try first: each either works or names the call that does."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bpe_core
import pipelines
from bpe_core import BPETokenizer, PretokenCounts, train_bpe, train_from_counts
from bpe_core.errors import (
    FormatError,
    InvalidTokenizerError,
    InvalidUtf8Error,
    TrainingError,
    UnknownTokenError,
)
from bpe_core.formats.huggingface import tokenizer_config_bytes

BYTES = {i: bytes([i]) for i in range(256)}
TOKENIZER: Any = BPETokenizer(BYTES | {256: b"hi"}, [(b"h", b"i")], ["<|endoftext|>"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.encode(["a"]), "encode takes one str or bytes; for a list use encode_batch"),
        (lambda t: t.encode(("a",)), "encode takes one str or bytes; for a list use encode_batch"),
        (lambda t: t.encode(None), "encode takes one str or bytes, found NoneType"),
        (lambda t: t.encode_ordinary(["a"]), "for a list use encode_batch"),
        (
            lambda t: t.encode_to_numpy(["a"]),
            "encode_to_numpy takes one str or bytes; for a list use encode_batch_to_numpy",
        ),
        (
            lambda t: t.count_tokens(["a"]),
            "count_tokens takes one str or bytes; for a list use count_tokens_batch",
        ),
        (lambda t: t.encode_with_offsets(["a"]), "encode_with_offsets takes one str or bytes"),
        (
            lambda t: t.encode_batch("a"),
            "encode_batch takes a list of texts, found one str; for one text use encode",
        ),
        (
            lambda t: t.encode_batch_to_numpy(b"a"),
            "encode_batch_to_numpy takes a list of texts, found one bytes; for one text use "
            "encode_to_numpy",
        ),
        (
            lambda t: t.count_tokens_batch("a"),
            "count_tokens_batch takes a list of texts, found one str; for one text use "
            "count_tokens",
        ),
        (lambda t: t.encode_batch(5), "encode_batch takes a list of texts, found one int"),
        (lambda t: t.decode("hi"), "decode takes ids, found str; for a text use encode"),
        (lambda t: t.decode(b"hi"), "decode takes ids, found bytes; for a text use encode"),
        (lambda t: t.decode(5), r"decode takes several ids, found one int; give a list: \[5\]"),
        (lambda t: t.decode([[1], [2]]), "for a list for each of several use decode_batch"),
        (lambda t: t.decode_bytes("hi"), "decode takes ids, found str"),
        (lambda t: t.decode_batch([1, 2]), "for one list use decode"),
        (lambda t: t.decode_batch("hi"), "decode_batch takes lists of ids, found str"),
        (lambda t: t.id_to_token("hi"), "id_to_token takes an id, found str; .* token_to_id"),
        (lambda t: t.id_to_token([1]), "id_to_token takes an id, found list; for several: "),
    ],
)
@pytest.mark.filterwarnings("ignore:the split pattern")
def test_wrong_arguments(call: Callable[[Any], object], message: str) -> None:
    for tokenizer in (TOKENIZER, BPETokenizer(BYTES, [], pattern=r"(\w)\1|.")):
        with pytest.raises(TypeError, match=message):
            call(tokenizer)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("tokenize", "encode"),
        ("get_vocab", "vocab"),
        ("eos_token_id", "eos_id"),
        ("to_file", "save"),
        ("count", "count_tokens"),
        ("batch_decode", "decode_batch"),
        ("from_file", "load"),
    ],
)
def test_names_of_other_libraries(name: str, ours: str) -> None:
    message = f"'BPETokenizer' has no attribute '{name}'; use {ours}$"
    for owner in (TOKENIZER, BPETokenizer):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=message):
            getattr(owner, name)


@pytest.mark.parametrize(
    ("package", "name", "ours"),
    [
        (bpe_core, "load", "BPETokenizer.load"),
        (bpe_core, "Tokenizer", "BPETokenizer"),
        (bpe_core, "train", "train_bpe for files, train_from_iterator for texts"),
        (pipelines, "encode", "build.encode"),
        (pipelines, "load", "bpe_core.BPETokenizer.load"),
    ],
)
def test_names_that_are_looked_for_in_the_packages(
    package: ModuleType, name: str, ours: str
) -> None:
    assert not hasattr(package, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; use {re.escape(ours)}$"):
        getattr(package, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        package.nothing  # noqa: B018


def test_other_unknown_names() -> None:
    for owner in (TOKENIZER, BPETokenizer):
        with pytest.raises(AttributeError, match=r"'BPETokenizer' has no attribute 'nothing'$"):
            owner.nothing  # noqa: B018


def test_training_of_other_things_than_files_of_text(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"found none at .*rglob"):
        train_bpe(tmp_path, 300)
    with pytest.raises(TrainingError, match=r"found none at .*glob\.glob\(pattern\)"):
        train_bpe(tmp_path / "*.txt", 300)
    for data, kind in (
        (gzip.compress(b"low"), "gzip data"),
        (b"PAR1\x15" + b"\xff" * 9, "a Parquet file"),
    ):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InvalidUtf8Error, match=f"in {kind}; unpack it, .*beam-bpe init"):
            train_bpe(tmp_path / "a", 300)
    (tmp_path / "a").write_bytes(b"caf\xe9")
    with pytest.raises(InvalidUtf8Error, match="repair the text"):
        train_bpe(tmp_path / "a", 300)


def test_training_of_a_text() -> None:
    with pytest.raises(
        TrainingError,
        match=r"input_path: expected a file, found none at 'hello world'\. For texts in memory: "
        r"train_from_iterator\(texts, …\)",
    ):
        train_bpe("hello world", 300)
    with pytest.raises(TrainingError, match=r"train_from_iterator\(texts, …\)"):
        train_bpe("hello world " * 1000, 300)


@pytest.mark.parametrize("size", [True, "300", "32k", 300.0, None])
def test_vocabulary_sizes_that_are_none(size: Any, tmp_path: Any) -> None:
    counts = PretokenCounts.from_mapping({b"low": 5})
    with pytest.raises(TrainingError, match=f"vocab_size: expected an integer, found {size!r}"):
        train_from_counts(counts, size)
    (tmp_path / "text").write_text("low")
    with pytest.raises(TrainingError, match=f"vocab_size: expected an integer, found {size!r}"):
        train_bpe(tmp_path / "text", size)


# --- calls that work


def test_names_that_everybody_types() -> None:
    assert TOKENIZER.vocab_size == TOKENIZER.n_vocab == len(TOKENIZER) == 258
    assert TOKENIZER.eos_id == 257
    assert TOKENIZER.bos_id is None
    assert TOKENIZER.id_to_token(256) == "hi"
    assert TOKENIZER.id_to_token(257) == "<|endoftext|>"
    assert TOKENIZER.id_to_token(0xE9) == "\ufffd"
    assert TOKENIZER.id_to_token(258) is None
    assert TOKENIZER.decode_tokens_bytes([256, 257]) == [b"hi", b"<|endoftext|>"]
    with pytest.raises(UnknownTokenError, match="id 258: expected an id of this vocabulary"):
        TOKENIZER.decode_tokens_bytes([258])


def test_sizes_differ_by_gaps_between_ids() -> None:
    tokenizer = BPETokenizer({0: b"a", 9: b"b"}, [])
    assert (tokenizer.vocab_size, tokenizer.n_vocab) == (2, 10)
    empty = BPETokenizer({}, [])
    assert (empty.vocab_size, empty.n_vocab) == (0, 0)


@pytest.mark.parametrize(
    ("specials", "bos", "eos"),
    [
        ([], None, None),
        (["<s>", "</s>"], 256, 257),
        (["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], 256, 257),
        (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, 256),
        (["<eos>", "</s>"], None, None),
    ],
)
def test_ids_around_a_text(specials: list[str], bos: int | None, eos: int | None) -> None:
    tokenizer = BPETokenizer(BYTES, [], specials)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (bos, eos)


def test_ids_around_a_text_are_those_of_the_template_first() -> None:
    model = BPETokenizer(BYTES, [], ["<s>", "</s>", "[CLS]", "[SEP]"]).model
    tokenizer = BPETokenizer.from_model(replace(model, prepend=(258,), append=(259,)))
    assert (tokenizer.bos_id, tokenizer.eos_id) == (258, 259)
    kept = BPETokenizer.from_model(replace(model, nonspecial_tokens=frozenset(["<s>", "</s>"])))
    assert (kept.bos_id, kept.eos_id) == (None, None)


@pytest.mark.parametrize(
    ("config", "around", "of_documents"),
    [
        ({}, (None, 256), (None, 256)),
        ({"eos_token": "<|im_end|>", "bos_token": None}, (None, 258), (None, 256)),
        ({"eos_token": {"content": "<|im_end|>"}}, (None, 258), (None, 256)),
        ({"bos_token": "<|endoftext|>"}, (256, 256), (None, 256)),
        ({"bos_token": "<|im_start|>"}, (257, 256), (257, 256)),
        ({"eos_token": "absent"}, (None, 256), (None, 256)),
    ],
)
def test_ids_around_a_text_are_those_of_the_config_beside_it(
    config: dict[str, Any],
    around: tuple[int | None, int | None],
    of_documents: tuple[int | None, int | None],
    tmp_path: Path,
) -> None:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    plain = BPETokenizer(BYTES, [], specials)
    plain.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    read = BPETokenizer.load(tmp_path / "tokenizer.json")
    read.save(tmp_path / "again")
    for tokenizer in (read, BPETokenizer.load(tmp_path / "again")):
        assert (tokenizer.bos_id, tokenizer.eos_id) == around
        assert tokenizer.model.document_boundaries == of_documents
        assert tokenizer.model.fingerprint == plain.model.fingerprint
    written = json.loads(tokenizer_config_bytes(read.model))
    stated = {key: text for key, text in config.items() if isinstance(text, str)}
    assert stated.items() <= written.items() or "absent" in stated.values()


def test_a_config_beside_a_tokenizer_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    for text in ("[", "[]", '{"eos_token": 5}'):
        (tmp_path / "tokenizer_config.json").write_text(text)
        with pytest.raises(FormatError, match="tokenizer_config"):
            BPETokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("name", ["tokenizer.json", "mine.tiktoken", "a.model", "b.arrow"])
def test_a_tokenizer_is_saved_in_a_directory(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="save writes a directory with all formats"):
        TOKENIZER.save(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_boundaries_are_special_tokens() -> None:
    with pytest.raises(InvalidTokenizerError, match="bos_token and eos_token: expected special"):
        replace(TOKENIZER.model, eos_token="hi")
    model = replace(BPETokenizer(BYTES, [], ["<s>", "</s>"]).model, eos_token="<s>")
    assert model.with_special_tokens({"</s>": 257}).eos_token is None


def test_batches_are_decoded() -> None:
    texts = ["hi", "", "né<|endoftext|>"]
    lists = TOKENIZER.encode_batch(texts)
    assert TOKENIZER.decode_batch(lists) == texts
    assert TOKENIZER.decode_batch(map(np.array, lists[::2])) == texts[::2]
    assert TOKENIZER.decode_batch(TOKENIZER.encode_batch_to_numpy(texts)) == texts
    assert TOKENIZER.decode_batch([]) == []
    assert TOKENIZER.decode_batch([[0xE9]], errors="ignore") == [""]


def test_ids_come_in_any_container() -> None:
    class Tensor:
        """A tensor, whose elements are tensors."""

        def tolist(self) -> list[int]:
            return [256, 33]

    for ids in ([256, 33], (256, 33), iter([256, 33]), np.array([256, 33]), Tensor()):
        assert TOKENIZER.decode(ids) == "hi!"
