"""Versions of the software that decides the bytes of an output; every worker must have the same."""

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
    """What has an influence on bytes, by name: this package, pyarrow, zstd, Unicode and regex."""
    return {
        "bpe-beam": version("bpe-beam"),
        "pyarrow": pa.__version__,
        "zstd": ".".join(map(str, zstandard.ZSTD_VERSION)),
        "unicode": UNICODE_VERSION,
        "regex": regex.__version__,
    }


def software_metadata() -> dict[str, str]:
    """The same for the footer of a file."""
    return {"bpe.software": json.dumps(deciding_versions(), sort_keys=True)}


@cache
def worker_versions() -> Mapping[str, str]:
    """What a worker must have as the command has it: those, and Python without its last number."""
    return {**deciding_versions(), "python": ".".join(platform.python_version_tuple()[:2])}


def check_worker(expected: Mapping[str, str]) -> None:
    """Checks that this process has the versions of the command that sent the work.

    Raises:
        WorkerVersionError: it has others.
    """
    found = worker_versions()
    differing = [name for name, value in expected.items() if found.get(name) != value]
    if differing:
        raise WorkerVersionError(
            "A worker has other versions than the command.",
            expected=", ".join(f"{name} {expected[name]}" for name in differing),
            found=", ".join(f"{name} {found.get(name, 'unknown')}" for name in differing),
            where=f"worker on {platform.node()}",
            hint="Make the workers' image, or environment, anew with the versions of the command.",
        )
