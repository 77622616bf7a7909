"""Names that users have written down: imports, commands, keys, files; and what objects show."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel

from bpe_core.short_repr import MOST_CHARACTERS
from pipelines.cli import app
from pipelines.counting import shard_name
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import Exported
from pipelines.manifest import models, names
from pipelines.stages import summary
from pipelines.tokenizers.conversion import Conversion
from pipelines.verification.findings import Verification

ROOT = Path(__file__).parents[2]

IMPORTS = {
    "pipelines": "CountPretokens EncodeDocuments ReadDocuments WriteTokenShards build plan verify",
    "pipelines.accounting": "check_accounts",
    "pipelines.batches": "DocumentBatch Reject",
    "pipelines.build": "add build count encode plan replay sizes train",
    "pipelines.cli": "main",
    "pipelines.config": "BeamConfig BuildConfig SourceConfig load_config read_config",
    "pipelines.counting": "CountJob Section TaskCounter count_tasks load_counts merge_shard "
    "read_commit shard_name usable_commits write_shard",
    "pipelines.dataset.inspection": "Inspector",
    "pipelines.dataset.reading": "TokenDataset",
    "pipelines.dataset.report": "report",
    "pipelines.errors": "AccountingError BadFileError ConfigError DifferentConfigurationError "
    "IncompleteCountsError InputError JobFailedError NotWholeError OutputError PipelineError "
    "RejectLimitError TooLargeError WorkerDiedError WorkerVersionError",
    "pipelines.exports.export": "export",
    "pipelines.exports.formats": "ExportOptions",
    "pipelines.manifest": "MANIFEST RUN Identity",
    "pipelines.row_transforms": "CountPretokens EncodeDocuments ReadDocuments WriteTokenShards",
    "pipelines.runners": "pipeline",
    "pipelines.storage.directory": "Directory",
    "pipelines.storage.locks": "OutputLock",
    "pipelines.tasks": "InputFile Plan Range Task list_files plan_tasks",
    "pipelines.tokenizers.conversion": "Request convert",
    "pipelines.transforms": "CountPretokens EncodeDocuments ReadDocuments WriteTokenShards",
    "pipelines.verification.verify": "verify",
    "pipelines.writing": "DocumentEncoder EncodeJob TokenFile TokenRows load_tokenizer write_task",
}

COMMANDS = """
init plan count train encode build add replay convert tokenize count-tokens export verify
inspect report schema sizes counts evaluate explain why prune
"""

KEYS = """
output output_storage_options
input input.name input.files input.format input.separator input.text_field input.join
input.id_field input.compression input.invalid_utf8 input.strip_bom input.range_bytes
input.max_document_bytes input.max_bad_files input.include input.exclude input.limit_documents
input.limit_bytes input.sample_fraction input.min_chars input.max_chars input.storage_options
tokenizer tokenizer.path tokenizer.base tokenizer.unit tokenizer.pattern tokenizer.special_tokens
tokenizer.normalizer tokenizer.normalize_quotes tokenizer.rules tokenizer.rules.split_categories
tokenizer.rules.max_digits tokenizer.rules.forbid_whitespace_tokens tokenizer.unk_token
tokenizer.end_of_word tokenizer.end_of_word_as tokenizer.limit_alphabet tokenizer.vocab_size
tokenizer.tie_break tokenizer.min_frequency tokenizer.min_count tokenizer.max_token_bytes
tokenizer.forbidden_tokens tokenizer.required_tokens tokenizer.train_where
counts counts.shards counts.memory counts.checkpoint_bytes counts.max_pretoken_bytes
counts.on_long_pretoken
encode encode.vocab_size encode.prepend encode.append encode.special_tokens_in_text encode.id_type
encode.validation_fraction encode.max_reject_fraction
beam beam.runner beam.workers beam.options
"""


@pytest.mark.parametrize("module", IMPORTS)
def test_documented_imports(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in IMPORTS[module].split() if not hasattr(found, name)]
    assert missing == []


def test_commands() -> None:
    command: Any = typer.main.get_command(app)
    assert set(COMMANDS.split()) <= set(command.commands)


def test_configuration_keys() -> None:
    schema = json.loads((ROOT / "configs" / "build.schema.json").read_bytes())
    assert set(KEYS.split()) <= set(_keys(schema, schema, ""))


def _keys(schema: dict[str, Any], node: dict[str, Any], prefix: str) -> Iterator[str]:
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    for name, value in node.get("properties", {}).items():
        yield prefix + name
        choices = [value, *value.get("anyOf", ())]
        for choice in [*choices, *(choice.get("items", {}) for choice in choices)]:
            yield from _keys(schema, choice, f"{prefix}{name}.")


def test_files_on_disk() -> None:
    assert names.token_file_name("train", 3, 12) == "train-00003-of-00012.parquet"
    assert names.token_file_name("train", 3, 12, "add001") == "train-add001-00003-of-00012.parquet"
    assert names.statistics_file_name("add001") == "statistics-add001.parquet"
    assert shard_name(3, 12) == "shard-00003-of-00012.parquet"
    assert names.task_name(3, 12) == "00003-of-00012"


# --- short representations


LONG = ["a long text " * 100] * 1000


def public_classes() -> set[type]:
    """The classes that are imported from documented places, and those of their results."""
    named = {
        value
        for module, listed in IMPORTS.items()
        for name in listed.split()
        if inspect.isclass(value := getattr(importlib.import_module(module), name))
    }
    results = {TokenDataset, Exported, Conversion, Verification}
    for module in (models, summary):
        results |= {
            value
            for value in vars(module).values()
            if inspect.isclass(value) and value.__module__ == module.__name__
        }
    return {value for value in named | results if not issubclass(value, Exception)}


def _shows_fields(owner: type) -> bool:
    return dataclasses.is_dataclass(owner) or issubclass(owner, BaseModel)


def with_long_fields(owner: Any) -> object:
    if issubclass(owner, BaseModel):
        return owner.model_construct(**dict.fromkeys(owner.model_fields, LONG))
    instance = object.__new__(owner)
    for field in dataclasses.fields(owner):
        object.__setattr__(instance, field.name, LONG)
    return instance


def test_public_objects_have_a_short_repr() -> None:
    found = [owner for owner in public_classes() if _shows_fields(owner)]
    assert len(found) > 20
    for owner in found:
        assert len(repr(with_long_fields(owner))) <= MOST_CHARACTERS, owner
