"""Versions of the software that determines the bytes of an output; all workers must have them."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

import pyarrow as pa
import regex
import zstandard

from bpe_core.patterns import UNICODE_VERSION
from pipelines.errors import WorkerVersionError


@cache
def deciding_versions() -> Mapping[str, str]:
    """Return the versions that determine output: this package, pyarrow, zstd, Unicode, regex."""
    return {
        "bpe-beam": version("bpe-beam"),
        "pyarrow": pa.__version__,
        "zstd": ".".join(map(str, zstandard.ZSTD_VERSION)),
        "unicode": UNICODE_VERSION,
        "regex": regex.__version__,
    }


def software_metadata() -> dict[str, str]:
    """Return the same versions as metadata for the footer of a file."""
    return {"bpe.software": json.dumps(deciding_versions(), sort_keys=True)}


@cache
def worker_versions() -> Mapping[str, str]:
    """Return the versions that workers must share: those above, and Python's major and minor."""
    return {**deciding_versions(), "python": ".".join(platform.python_version_tuple()[:2])}


def check_worker(expected: Mapping[str, str]) -> None:
    """Check that this worker has the same versions as the launcher.

    Raises:
        WorkerVersionError: some versions differ.
    """
    found = worker_versions()
    differing = [name for name, value in expected.items() if found.get(name) != value]
    if differing:
        raise WorkerVersionError(
            "A worker has other versions than the launcher.",
            expected=", ".join(f"{name} {expected[name]}" for name in differing),
            found=", ".join(f"{name} {found.get(name, 'unknown')}" for name in differing),
            where=f"worker on {platform.node()}",
            hint="Rebuild the image or environment of the workers with the launcher's versions.",
        )
