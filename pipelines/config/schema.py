"""JSON schema of a configuration, printed by `python -m pipelines.config.schema`."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from pipelines.config.build import BuildConfig

# --- schema ----------------------------------------------------------------------------------


class _SchemaWithoutFieldTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file, for editors that complete and check YAML."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of beam-bpe",
        **{
            key: value
            for key, value in BuildConfig.model_json_schema(
                schema_generator=_SchemaWithoutFieldTitles
            ).items()
            if key not in ("title", "description")
        },
    }


def main() -> None:
    """Write the JSON schema to standard output."""
    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
