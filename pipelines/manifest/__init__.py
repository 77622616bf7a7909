"""Manifests: the files that a build leaves to describe each stage.

Importing this package loads no models; the first use of `Identity` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bpe_core.late_names import load_name
from pipelines.manifest.names import MANIFEST, RUN

if TYPE_CHECKING:
    from pipelines.manifest.stage import Identity

__all__ = ["MANIFEST", "RUN", "Identity"]


def __getattr__(name: str) -> Any:
    return load_name(globals(), {"Identity": "stage"}, name)
