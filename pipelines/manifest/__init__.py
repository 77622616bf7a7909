"""Manifests: the files that a build leaves to describe each stage."""

from pipelines.manifest.records import MANIFEST, RUN
from pipelines.manifest.stage import Identity

__all__ = ["MANIFEST", "RUN", "Identity"]
