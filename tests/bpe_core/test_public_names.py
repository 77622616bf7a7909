"""The public names of bpe_core, their signatures, and what importing it costs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import bpe_core
from bpe_core import BPETokenizer, CharBPETokenizer, PretokenCounts

EXPORTED = [
    "PATTERNS",
    "BPETokenizer",
    "BasicTokenizer",
    "BpeError",
    "CharBPETokenizer",
    "GPT4Tokenizer",
    "PretokenCounts",
    "RegexTokenizer",
    "TrainingResult",
    "count_pretokens",
    "pattern_with_rules",
    "train_bpe",
    "train_from_counts",
]
MODULES = [
    "char_bpe",
    "char_bpe.tokenizer",
    "char_bpe.training",
    "counting",
    "counts",
    "custom_patterns",
    "documents",
    "errors",
    "minbpe",
    "model",
    "normalization",
    "patterns",
    "special_tokens",
    "streaming",
    "token_lengths",
    "tokenizer",
    "training",
]


def parameters(function: Any) -> list[str]:
    """Names with defaults; keyword-only ones after a `*`."""
    shown: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        shown.append(parameter.name + default)
    return [name for name in shown if name not in ("self", "cls")]


def test_exactly_the_public_names_are_exported() -> None:
    assert sorted(bpe_core.__all__) == sorted(EXPORTED)
    for name in EXPORTED:
        assert getattr(bpe_core, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bpe_core.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            "train_bpe",
            "input_path vocab_size special_tokens=() * pattern='gpt2' normalizer=None "
            "normalize_quotes=False split_categories=False max_digits=None "
            "tie_break='lexicographic' min_frequency=1 max_token_bytes=None forbidden_tokens=() "
            "forbid_whitespace_tokens=False separator=None errors='strict' num_threads=0 "
            "progress=False",
        ),
        (
            "count_pretokens",
            "source * pattern='gpt2' special_tokens=() normalizer=None normalize_quotes=False "
            "split_categories=False max_digits=None errors='strict' num_threads=0",
        ),
        (
            "train_from_counts",
            "counts vocab_size special_tokens=() * tie_break='lexicographic' min_frequency=1 "
            "max_token_bytes=None forbidden_tokens=() forbid_whitespace_tokens=False base=None "
            "progress=False",
        ),
    ],
)
def test_functions_take_what_they_promise(function: str, expected: str) -> None:
    assert parameters(getattr(bpe_core, function)) == expected.split()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (
            "__init__",
            "vocab merges special_tokens=None * pattern='gpt2' unknown_id=None normalizer=None "
            "normalize_quotes=False",
        ),
        ("normalize", "text"),
        ("from_files", "vocab_filepath merges_filepath special_tokens=None * pattern='gpt2'"),
        ("from_tiktoken", "path * pattern special_tokens=None"),
        ("from_huggingface", "path"),
        ("load", "directory"),
        ("save", "directory"),
        ("encode", "text allowed_special='all'"),
        ("encode_ordinary", "text"),
        ("encode_iterable", "iterable"),
        ("encode_to_numpy", "text allowed_special='all'"),
        ("encode_batch_to_numpy", "documents * allowed_special='all' num_threads=0"),
        ("decode", "ids errors='replace'"),
        ("decode_bytes", "ids"),
        ("encode_with_offsets", "text allowed_special='all'"),
        ("truncate", "text max_tokens allowed_special='all'"),
        ("count_tokens", "text allowed_special='all'"),
        ("count_tokens_batch", "documents * allowed_special='all' num_threads=0"),
        ("token_to_id", "token"),
        ("id_to_bytes", "token_id"),
    ],
)
def test_methods_of_the_tokenizer_take_what_they_promise(method: str, expected: str) -> None:
    assert parameters(getattr(BPETokenizer, method)) == expected.split()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (
            "__init__",
            "unk_token='<unk>' end_of_word='</w>' end_of_word_as='symbol' words='whitespace' "
            "lowercase=False unicode_normalizer=None * special_tokens=() method='merges'",
        ),
        ("from_vocab", "vocab merges settings"),
        ("from_huggingface", "vocab_filepath merges_filepath settings"),
        ("load", "directory"),
        ("save", "directory training=None"),
        (
            "train",
            "texts vocab_size * min_frequency=2 max_merges=None limit_alphabet=None "
            "tie_break='first_seen' verbose=False",
        ),
        ("encode", "text * method=None"),
        ("decode", "ids unknown='error'"),
        ("token_to_id", "token"),
        ("id_to_token", "token_id"),
    ],
)
def test_methods_of_the_character_tokenizer_take_what_they_promise(
    method: str, expected: str
) -> None:
    assert parameters(getattr(CharBPETokenizer, method)) == expected.split()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("BasicTokenizer.__init__", ""),
        ("BasicTokenizer.encode", "text"),
        ("RegexTokenizer.__init__", "pattern=None"),
        ("RegexTokenizer.encode", "text allowed_special='none_raise'"),
        ("RegexTokenizer.encode_ordinary", "text"),
        ("RegexTokenizer.register_special_tokens", "special_tokens"),
        ("GPT4Tokenizer.__init__", "ranks_path=None"),
        ("GPT4Tokenizer.save_vocab", "vocab_file"),
        *[
            (f"{name}.{method}", expected)
            for name in ("BasicTokenizer", "RegexTokenizer", "GPT4Tokenizer")
            for method, expected in [
                ("train", "text vocab_size verbose=False"),
                ("decode", "ids"),
                ("save", "file_prefix"),
                ("load", "model_file"),
            ]
        ],
    ],
)
def test_methods_are_those_of_minbpe(method: str, expected: str) -> None:
    tokenizer, name = method.split(".")
    assert parameters(getattr(getattr(bpe_core, tokenizer), name)) == expected.split()


def test_a_tokenizer_and_counts_have_their_attributes() -> None:
    tokenizer = BPETokenizer({0: b"a"}, [])
    names = [
        "unknown_id",
        "vocab",
        "merges",
        "special_tokens",
        "pattern",
        "normalizer",
        "normalize_quotes",
    ]
    for name in [*names, "__len__"]:
        assert hasattr(tokenizer, name)
    names = ["load", "save", "from_arrow", "to_arrow", "from_mapping", "items", "total"]
    for name in [*names, "__len__", "__add__", "prune"]:
        assert callable(getattr(PretokenCounts, name))
    fields = {"model", "merge_counts", "stop_reason"}
    assert set(inspect.signature(bpe_core.TrainingResult).parameters) == fields
    for name in ("merges", "vocab", "tokenizer"):
        assert hasattr(bpe_core.TrainingResult, name)


def test_the_named_patterns_are_those_promised() -> None:
    promised = {"gpt2", "cl100k", "o200k", "llama3", "qwen2", "none"}
    assert promised <= bpe_core.PATTERNS.keys()
    assert all(isinstance(pattern, str) for pattern in bpe_core.PATTERNS.values())
    possessive = re.compile(r"[+*?]\+|\{[\d,]+\}\+")
    assert not any(possessive.search(pattern) for pattern in bpe_core.PATTERNS.values())


@pytest.mark.parametrize("module", MODULES)
def test_modules_export_what_they_define_and_document_it(module: str) -> None:
    loaded: ModuleType = importlib.import_module(f"bpe_core.{module}")
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name


@pytest.mark.parametrize("module", [*MODULES, "__init__"])
def test_examples_in_docstrings_hold(module: str) -> None:
    name = "bpe_core" if module == "__init__" else f"bpe_core.{module}"
    # The names that examples of this package may use without importing them.
    names = {public: getattr(bpe_core, public) for public in EXPORTED}
    assert doctest.testmod(importlib.import_module(name), extraglobs=names).failed == 0


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "['numpy', 'pyarrow', 'regex', 'apache_beam', 'bpe_core._native', 'rich']"
    code = f"import bpe_core, sys; print([m for m in {heavy} if m in sys.modules])"
    assert run(code).strip() == "[]"


def test_the_package_knows_neither_beam_nor_the_pipelines() -> None:
    code = (
        "import bpe_core, sys; [getattr(bpe_core, name) for name in bpe_core.__all__]; "
        "import bpe_core.reference, bpe_core.formats; "
        "print([m for m in sys.modules if m.split('.')[0] in ('apache_beam', 'pipelines')])"
    )
    assert run(code).strip() == "[]"
