"""The manifests match their schema, and no byte of them can change unnoticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from build_support import checksums, config_for, some_text, write_corpus

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.manifest.models import MANIFESTS, ImportedManifest, TokensManifest
from pipelines.manifest.records import Record, parse_sealed, sealed
from pipelines.manifest.run_record import RunRecord
from pipelines.manifest.schema import json_schema
from pipelines.storage.directory import json_bytes

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "configs" / "manifest.schema.json"


def config_in(directory: Path, **sections: Any) -> BuildConfig:
    write_corpus(directory / "data", {"a.txt": [*some_text(30), b"\xff"], "b.txt": some_text(9)})
    return config_for(
        directory,
        tokenizer={"superwords": {}},
        encode={"max_reject_fraction": 0.5, "validation_fraction": 0.1},
        **sections,
    )


def model_of(stage: str, name: str) -> type[Record]:
    return MANIFESTS[stage] if name == "manifest.json" else RunRecord  # type: ignore[index]


def is_refused(model: type[Record], data: bytes) -> bool:
    try:
        parse_sealed(model, data)
    except ValueError:
        return True
    return False


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = config_in(tmp_path_factory.mktemp("schema"))
    build.build(config)
    return Path(config.output_path)


def test_the_schema_file_is_generated_from_the_models() -> None:
    assert json.loads(SCHEMA.read_text("utf-8")) == json_schema()


@pytest.mark.slow
@pytest.mark.parametrize("stage", list(MANIFESTS))
@pytest.mark.parametrize("name", ["manifest.json", "run.json"])
def test_what_builds_write_is_as_the_schema_says(output: Path, stage: str, name: str) -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    data = (output / stage / name).read_bytes()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(data), schema)
    record = parse_sealed(model_of(stage, name), data)
    assert json_bytes(record.to_json()) == data


@pytest.mark.parametrize("stage", list(MANIFESTS))
def test_a_change_of_any_byte_is_found(output: Path, stage: str) -> None:
    for name in ("manifest.json", "run.json"):
        model = model_of(stage, name)
        data = (output / stage / name).read_bytes()
        for place in range(0, len(data), 3):
            for bit in (0x01, 0x20, 0x80):
                changed = bytearray(data)
                changed[place] ^= bit
                assert is_refused(model, bytes(changed)), (name, place, bit)
        assert is_refused(model, data[:-1])
        assert is_refused(model, data + b" ")


@pytest.mark.parametrize(
    "name", ["../x.parquet", "/etc/passwd", "a/b", "", ".", "..", ".hidden", "a\\b", "a\x00b"]
)
def test_names_of_files_can_not_lead_out_of_the_directory(output: Path, name: str) -> None:
    manifest = json.loads((output / "tokens" / "manifest.json").read_text())
    manifest.pop("checksum")
    manifest["files"]["train"][0]["name"] = name
    with pytest.raises(ValueError, match=r"^files\.train\.0\.name: "):
        parse_sealed(TokensManifest, json_bytes(sealed(manifest)))


def test_equal_builds_have_equal_manifests(output: Path, tmp_path: Path) -> None:
    config = config_in(tmp_path / "elsewhere", beam={"workers": 1})
    build.build(config)
    assert checksums(Path(config.output_path)) == checksums(output)
    runs = [
        json.loads((path / "tokens" / "run.json").read_text())
        for path in (output, Path(config.output_path))
    ]
    assert runs[0]["manifest"] == runs[1]["manifest"]
    assert runs[0]["locations"] != runs[1]["locations"]


def test_the_documentation_names_every_key() -> None:
    text = (ROOT / "docs" / "manifest.md").read_text("utf-8")
    for model in (*MANIFESTS.values(), ImportedManifest, RunRecord):
        for name, field in model.model_fields.items():
            assert f"`{field.alias or name}`" in text, name
