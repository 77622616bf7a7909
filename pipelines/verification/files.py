"""Names and bytes of files: missing, unknown and damaged ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa
import xxhash

from bpe_core.errors import BpeError
from pipelines.errors import to_one_line
from pipelines.manifest.entries import FileEntry
from pipelines.manifest.models import MANIFESTS
from pipelines.manifest.names import CONFIGURATION, MANIFEST, REPORT, RUN
from pipelines.storage.directory import Directory
from pipelines.storage.remote_files import open_stored
from pipelines.verification.findings import Findings
from pipelines.verification.manifests import Manifests

_CHUNK_BYTES: Final = 4 << 20


def check_names(output: Directory, manifests: Manifests, findings: Findings) -> None:
    """Note files that are missing, and files that no manifest lists.

    Names that begin with `.` or `_` are temporary; no reader of the dataset opens them.
    """
    known: dict[str, set[str]] = {m.directory_name: {MANIFEST, RUN} for m in manifests}
    for manifest in manifests:
        for directory, entry in manifest.listed_files():
            known.setdefault(directory, set()).add(entry.name)
            for place in map(str, PurePosixPath(directory).parents[:-1]):
                known.setdefault(place, set())
    if manifests.tokens is not None:
        known.setdefault("rejects", set())
    for directory, names in known.items():
        present = (output / directory).sizes()
        for name in sorted(names - present.keys()):
            findings.note(f"{directory}/{name}", "missing")
        for name in sorted(present.keys() - names):
            if not name.startswith((".", "_")):
                findings.note(f"{directory}/{name}", "not listed in the manifest")
        for name in (output / directory).other_names():
            if not name.startswith((".", "_")) and f"{directory}/{name}" not in known:
                findings.note(f"{directory}/{name}", "not a file, and not of a build")
    for name in sorted(
        {*output.sizes(), *output.other_names()} - {*MANIFESTS, "rejects", CONFIGURATION, REPORT}
    ):
        if not name.startswith((".", "_")):
            findings.note(name, "not of a build")


def check_file(
    directory: Directory,
    where: str,
    entry: FileEntry,
    findings: Findings,
    check_content: Callable[[], None] | None,
) -> None:
    """Check the bytes of a file and, if they are right, its content."""
    hasher = xxhash.xxh3_128()
    size = 0
    try:
        stored = open_stored(directory.path(entry.name), directory.storage_options)
        try:
            buffer = memoryview(bytearray(min(_CHUNK_BYTES, stored.size)))
            while size < stored.size:
                data = buffer[: stored.size - size]
                stored.read_into(data, size)
                hasher.update(data)
                size += len(data)
        finally:
            stored.close()
    except FileNotFoundError:
        return  # noted as missing
    except OSError as error:
        findings.note(where, f"cannot be read: {error}")
        return
    findings.add(files=1, bytes=size)
    if size != entry.bytes:
        findings.note(where, f"{size:,} bytes, but the manifest lists {entry.bytes:,}")
        return
    if hasher.hexdigest() != entry.xxh3_128:
        findings.note(
            where,
            f"damaged: xxh3-128 {hasher.hexdigest()}, but the manifest lists {entry.xxh3_128}",
        )
        return
    if check_content is not None:
        try:
            check_content()
        except BpeError as error:
            findings.note(where, to_one_line(error))
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            findings.note(where, f"unreadable content: {type(error).__name__}: {error}")
