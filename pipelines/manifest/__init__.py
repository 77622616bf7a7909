"""Manifests: the files that a build leaves to describe each stage.

Importing this package loads no models; the first use of `Identity` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipelines.manifest.names import MANIFEST, RUN

if TYPE_CHECKING:
    from pipelines.manifest.stage import Identity

__all__ = ["MANIFEST", "RUN", "Identity"]


def __getattr__(name: str) -> Any:
    if name != "Identity":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = import_module(f"{__name__}.stage").Identity
    return value
