"""Files by their names and bytes: missing, unknown and damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import xxhash

from bpe_core.errors import BpeError
from pipelines.errors import in_a_line
from pipelines.manifest.models import MANIFESTS, Stage
from pipelines.manifest.records import MANIFEST, RUN
from pipelines.storage.directory import Directory
from pipelines.storage.remote_files import open_stored
from pipelines.verification.findings import Findings

_CHUNK_BYTES: Final = 4 << 20


def listed_files(stage: Stage, manifest: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The files of a stage, as (directory, entry)."""
    if stage == "counts":
        rejects = [("rejects", entry) for entry in manifest.get("rejects", ())]
        return [*(("counts", entry) for entry in manifest["shards"]), *rejects]
    if stage == "tokenizer":
        return [("tokenizer", entry) for entry in manifest["files"]]
    files = manifest["files"]
    return [
        (directory, entry)
        for kind, directory in (
            ("train", "tokens"),
            ("validation", "tokens"),
            ("statistics", "tokens"),
            ("rejects", "rejects"),
        )
        for entry in files[kind]
    ]


def check_names(
    output: Directory, manifests: Mapping[Stage, Mapping[str, Any]], findings: Findings
) -> None:
    """Notes files that are missing, and those that no manifest lists.

    What begins with `.` or `_` is temporary, and no reader of the dataset takes it.
    """
    known: dict[str, set[str]] = {stage: {MANIFEST, RUN} for stage in manifests}
    for stage, manifest in manifests.items():
        for directory, entry in listed_files(stage, manifest):
            known.setdefault(directory, set()).add(entry["name"])
    if "tokens" in manifests:
        known.setdefault("rejects", set())
    for directory, names in known.items():
        present = (output / directory).sizes()
        for name in sorted(names - present.keys()):
            findings.note(f"{directory}/{name}", "missing")
        for name in sorted(present.keys() - names):
            if not name.startswith((".", "_")):
                findings.note(f"{directory}/{name}", "not listed in the manifest")
        for name in (output / directory).others():
            if not name.startswith((".", "_")):
                findings.note(f"{directory}/{name}", "not a file, and of no build")
    for name in sorted({*output.sizes(), *output.others()} - {*MANIFESTS, "rejects"}):
        if not name.startswith((".", "_")):
            findings.note(name, "not of a build")


def check_file(
    directory: Directory,
    where: str,
    entry: Mapping[str, Any],
    findings: Findings,
    look_into: Callable[[], None] | None,
) -> None:
    """Checks the bytes of a file, and what is in it if they are right."""
    hasher = xxhash.xxh3_128()
    size = 0
    try:
        stored = open_stored(directory.path(entry["name"]), directory.storage_options)
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
        findings.note(where, f"can't be read: {error}")
        return
    findings.add(files=1, bytes=size)
    if size != entry["bytes"]:
        findings.note(where, f"{size:,} bytes, where the manifest says {entry['bytes']:,}")
        return
    if hasher.hexdigest() != entry["xxh3_128"]:
        findings.note(
            where,
            f"damaged: xxh3-128 {hasher.hexdigest()}, where the manifest says {entry['xxh3_128']}",
        )
        return
    if look_into is not None:
        try:
            look_into()
        except BpeError as error:
            findings.note(where, in_a_line(error))
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            findings.note(where, f"can't be understood: {type(error).__name__}: {error}")
