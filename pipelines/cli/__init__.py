"""The command `beam-bpe`."""

from pipelines.cli.application import app, main

__all__ = ["app", "main"]
