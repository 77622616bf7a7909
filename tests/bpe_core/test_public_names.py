"""The public names of bpe_core, their signatures, and what importing it costs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bpe_core
from bpe_core import BPETokenizer, PretokenCounts

EXPORTED = [
    "PATTERNS",
    "BPETokenizer",
    "BasicTokenizer",
    "BpeError",
    "CharBPETokenizer",
    "GPT4Tokenizer",
    "Group",
    "GroupColumns",
    "ParityRules",
    "PretokenCounts",
    "PrunedTokenizer",
    "Reachability",
    "RegexTokenizer",
    "TokenUse",
    "TrainingResult",
    "UseCounter",
    "VocabularySize",
    "VocabularyUse",
    "count_pretokens",
    "count_superwords",
    "find_unreachable",
    "gini",
    "measure_vocabulary_sizes",
    "most_used_tokens",
    "pattern_with_rules",
    "prune_tokenizer",
    "renyi_efficiency",
    "train_bpe",
    "train_characters_from_counts",
    "train_from_counts",
    "train_from_iterator",
    "train_superwords",
]
MODULES = [
    "byte_spaces",
    "char_bpe",
    "char_bpe.tokenizer",
    "char_bpe.training",
    "count_groups",
    "counting",
    "counts",
    "custom_encoding",
    "custom_patterns",
    "decoding",
    "documents",
    "errors",
    "evaluation",
    "formats.reading",
    "merge_steps",
    "minbpe",
    "mixtures",
    "model",
    "normalization",
    "parity",
    "patterns",
    "pretoken_encoding",
    "pretrained",
    "pruning",
    "required_tokens",
    "reachability",
    "short_repr",
    "special_tokens",
    "streaming",
    "text_measures",
    "token_lengths",
    "token_probes",
    "token_table",
    "tokenizer",
    "training",
    "vocabulary_sizes",
    "wrong_calls",
]


def described(name: str, value: Any) -> Iterator[str]:
    """A public name with its parameters; of a class, all its public methods and properties."""
    if not callable(value):
        yield name
        return
    if not inspect.isclass(value):
        yield f"{name}{_without_annotations(inspect.signature(value))}"
        return
    for method in sorted(dir(value)):
        if (method.startswith("_") and method != "__init__") or issubclass(value, Exception):
            continue
        found = inspect.getattr_static(value, method)
        if isinstance(found, property):
            yield f"{name}.{method}"
        elif callable(getattr(value, method)):
            yield from described(f"{name}.{method}", getattr(value, method))


def _without_annotations(signature: inspect.Signature) -> inspect.Signature:
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return inspect.Signature(parameters)


def test_exactly_the_public_names_are_exported() -> None:
    assert sorted(bpe_core.__all__) == sorted(EXPORTED)
    for name in EXPORTED:
        assert getattr(bpe_core, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bpe_core.nothing  # noqa: B018


def test_signatures_are_those_that_users_rely_on() -> None:
    """What changes here changes programs of users: `public_names.txt` says what there was."""
    lines = [line for name in EXPORTED for line in described(name, getattr(bpe_core, name))]
    expected = Path(__file__).with_name("public_names.txt").read_text("utf-8")
    assert "\n".join(lines) + "\n" == expected


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


@pytest.mark.process
def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "['numpy', 'pyarrow', 'regex', 'apache_beam', 'bpe_core._native', 'rich']"
    code = f"import bpe_core, sys; print([m for m in {heavy} if m in sys.modules])"
    assert run(code).strip() == "[]"


@pytest.mark.process
def test_the_package_knows_neither_beam_nor_the_pipelines() -> None:
    code = (
        "import bpe_core, sys; [getattr(bpe_core, name) for name in bpe_core.__all__]; "
        "import bpe_core.reference, bpe_core.formats; "
        "print([m for m in sys.modules if m.split('.')[0] in ('apache_beam', 'pipelines')])"
    )
    assert run(code).strip() == "[]"
