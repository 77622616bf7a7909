"""Manifests: the files that a build leaves to describe each stage."""

from pipelines.manifest.names import MANIFEST, RUN
from pipelines.manifest.stage import Identity

__all__ = ["MANIFEST", "RUN", "Identity"]
