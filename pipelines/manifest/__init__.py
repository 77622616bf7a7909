"""Manifests: the files that a build leaves to describe each stage."""

from pipelines.manifest.stage import MANIFEST, RUN, Identity

__all__ = ["MANIFEST", "RUN", "Identity"]
