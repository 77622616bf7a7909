"""The table of published tokenizers: its rows, and the files that it makes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
from tokenizers import Tokenizer

from bpe_core.errors import FormatError

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("published_tokenizers")
    monkeypatch.setattr(module, "TRAINED_BYTES", 40_000)
    monkeypatch.setattr(module, "TRAINED_IDS", 500)
    monkeypatch.setattr(module, "MEASURED_BYTES", 20_000)
    return module


def test_the_table_has_thirty_models_each_once(table: ModuleType) -> None:
    names = [model.name for model in table.MODELS]
    assert len(names) == len(set(names)) >= 30
    for model in table.MODELS:
        assert bool(model.package) + bool(model.file) + (model.make is not None) == 1


@pytest.mark.slow
def test_files_with_published_patterns_are_read_by_their_library(
    table: ModuleType, tmp_path: Path
) -> None:
    for model in table.MODELS:
        if model.make is None:
            continue
        model.make(tmp_path)
        path = tmp_path / "tokenizer.json"
        if path.exists():
            if json.loads(path.read_text())["model"]["type"] != "BPE":
                continue  # the table says why such a file is refused
            assert Tokenizer.from_file(str(path)).encode("the 12 <|endoftext|>").ids, model.name
            path.unlink()
        else:
            config = json.loads((tmp_path / "tokenizer_config.json").read_text())
            assert config["added_tokens_decoder"]


def test_a_row_says_what_was_found(table: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    model = table.Model("Made", make=table.byte_file(table.split(table.LLAMA3), table.byte_level()))
    row = str(table.row_of(model))
    assert row.startswith("| Made | pattern and flags; trained here | huggingface | yes | native")
    assert "the same" in row
    missing = table.Model("Missing", package="@lenml/tokenizer-of-nobody")
    assert "not tried" in str(table.row_of(missing))


def test_reasons_have_no_paths(table: ModuleType) -> None:
    error = FormatError("/tmp/x/tokenizer.json: model: expected a|b\n  where: /tmp/x")
    assert table.reason_of(error, "/tmp/x") == "model: expected a\\|b"
