"""The exceptions: their tree, and that misuse raises them and nothing else."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from bpe_core import BPETokenizer, PretokenCounts, count_pretokens, errors, train_bpe
from bpe_core.errors import BpeError, CountOverflowError, HubError, TrainingError

BYTES = {i: bytes([i]) for i in range(256)}
CLASSES = [getattr(errors, name) for name in errors.__all__]


def test_every_exception_is_exported_and_in_the_tree_of_the_docstring() -> None:
    defined = [value for _, value in inspect.getmembers(errors, inspect.isclass)]
    assert set(defined) == set(CLASSES)
    drawn = re.findall(r"^[│├└─ ]*(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(errors.__all__)


@pytest.mark.parametrize("error", CLASSES)
def test_every_exception_is_a_bpe_error_and_can_cross_processes(error: type[BpeError]) -> None:
    assert issubclass(error, BpeError)
    assert error is BpeError or issubclass(error, OSError if error is HubError else ValueError)
    assert error.__doc__
    again = pickle.loads(pickle.dumps(error("what happened")))
    assert type(again) is error
    assert str(again) == "what happened"


def test_an_overflow_is_an_error_of_training() -> None:
    assert issubclass(CountOverflowError, TrainingError)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: train_bpe("no such file", 300), ["expected a file", "no such file"]),
        (lambda: train_bpe([], 20), ["at least 256", "found 20"]),
        (lambda: count_pretokens([b"\xff"]), ["byte 0", "0xFF", 'errors="replace"']),
        (lambda: count_pretokens(["a"], special_tokens=["x", "x"]), ["'x' twice", "remove"]),
        (lambda: count_pretokens(["a"], pattern="gpt"), ["did you mean 'gpt2'"]),
        (lambda: PretokenCounts.from_mapping({b"a": 0}), ["1 … 2^63-1", "b'a': 0"]),
        (lambda: BPETokenizer(BYTES, [(b"a", b"b")]), ["merge 0", "b'ab'", "add it"]),
        (lambda: BPETokenizer(BYTES, [], ["<s>"]).encode("<s>", "none_raise"), ["'<s>'", "allow"]),
        (lambda: BPETokenizer({0: b"a"}, []).encode("b"), ["0x62", "unknown_id"]),
        (lambda: BPETokenizer(BYTES, []).decode([300]), ["id 300", "256 tokens"]),
    ],
)
def test_messages_say_what_was_expected_and_found_and_what_to_do(
    call: Any, said: list[str]
) -> None:
    with pytest.raises(BpeError) as raised:
        call()
    for part in said:
        assert part in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "name", ["tokenizer.arrow", "tokenizer.json", "tokenizer.tiktoken", "vocab.json", "merges.txt"]
)
def test_damaged_files_of_a_tokenizer_are_errors_of_this_project(name: str, tmp_path: Path) -> None:
    BPETokenizer(BYTES | {256: b"hi"}, [(b"h", b"i")], ["<s>"]).save(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    readers: dict[str, Any] = {
        "tokenizer.arrow": lambda: BPETokenizer.load(tmp_path),
        "tokenizer.json": lambda: BPETokenizer.from_huggingface(path),
        "tokenizer.tiktoken": lambda: BPETokenizer.from_tiktoken(path, pattern="gpt2"),
    }
    files = tmp_path / "vocab.json", tmp_path / "merges.txt"
    read = readers.get(name, lambda: BPETokenizer.from_files(*files))
    read()
    for damaged in (b"", whole[: len(whole) // 2], b"\xff" + whole[1:], b"[]" + whole):
        path.write_bytes(damaged)
        try:
            read()
        except BpeError as error:
            assert name in str(error)
