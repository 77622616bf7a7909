"""The configuration of a build: its keys, defaults, checks, errors and JSON schema.

`load_config` reads a YAML file into a frozen `BuildConfig`. Everything wrong with the file is shown
at once, each problem with its key, file, line and column.

Importing this package loads no models; the first use of one of its names does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bpe_core.late_names import load_name

if TYPE_CHECKING:
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

_MODULES: Final = {
    **dict.fromkeys(__all__, "build"),
    "RulesConfig": "tokenizer",
    "SourceConfig": "source",
    "TokenizerConfig": "tokenizer",
}


def __getattr__(name: str) -> Any:
    return load_name(globals(), _MODULES, name)
