"""The commands that help to write a configuration: schema."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON schema of a configuration, with which editors complete and check YAML."""
    from pipelines.config.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
