"""The published JSON schema of the records, generated from their models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from pipelines.manifest.models import MANIFESTS, ImportedManifest
from pipelines.manifest.run_record import RunRecord


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the three manifests and of `run.json`."""
    models: list[type[BaseModel]] = [*MANIFESTS.values(), ImportedManifest, RunRecord]
    _, schema = models_json_schema([(model, "validation") for model in models])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "manifest.json and run.json of beam-bpe",
        "description": "See docs/manifest.md. $defs contains each model by its name.",
        "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in models],
        "$defs": schema["$defs"],
    }
