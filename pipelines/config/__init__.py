"""The configuration of a build: its keys, defaults, checks, errors and JSON schema.

`load_config` reads a YAML file into a frozen `BuildConfig`. Everything wrong with the file is shown
at once, each problem with its key, file, line and column.
"""

from __future__ import annotations

from pipelines.config.build import (
    BeamConfig,
    BuildConfig,
    CountsConfig,
    EncodeConfig,
    load_config,
    read_config,
)
from pipelines.config.source import SourceConfig
from pipelines.config.tokenizer import RulesConfig, TokenizerConfig

__all__ = [
    "BeamConfig",
    "BuildConfig",
    "CountsConfig",
    "EncodeConfig",
    "RulesConfig",
    "SourceConfig",
    "TokenizerConfig",
    "load_config",
    "read_config",
]
