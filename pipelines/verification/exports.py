"""An export, held against its export.json."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Final

from pipelines.dataset.reading import SPLITS
from pipelines.errors import InputError
from pipelines.exports.export import MANIFEST as MANIFEST_OF_EXPORT
from pipelines.exports.export import present_files
from pipelines.manifest.models import problem_of_seal
from pipelines.storage.directory import Directory
from pipelines.verification.files import check_file
from pipelines.verification.findings import EXPORT, Findings, run_side_by_side

_NAME_IN_EXPORT: Final = re.compile(r"((train|validation)/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def verify_export(output: Directory, findings: Findings, *, only_bytes: bool) -> None:
    """Holds the files of an export against its export.json."""
    if not only_bytes:
        raise InputError(
            "An export has only checksums to be verified.",
            expected="the output of a build, for --against, --sources and --sample",
            where=output.url,
            hint="Verify the output of the build that was exported, or leave the option out.",
        )
    findings.result.stages.append(EXPORT)
    data = output.find_bytes(MANIFEST_OF_EXPORT)
    if data is None:
        findings.note(MANIFEST_OF_EXPORT, "missing: the export is not finished")
        return
    findings.add(files=1, bytes=len(data))
    problem = problem_of_seal(data)
    if problem is not None:  # its list is still worth to be looked at
        findings.note(MANIFEST_OF_EXPORT, problem)
    try:
        entries = {entry["name"]: entry for entry in json.loads(data)["files"]}
        for name, entry in entries.items():
            if not _NAME_IN_EXPORT.fullmatch(name):
                raise ValueError(f"the name {name!r}")
            if type(entry["bytes"]) is not int or not isinstance(entry["xxh3_128"], str):
                raise ValueError(f"the entry of {name}")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        findings.note(MANIFEST_OF_EXPORT, f"can't be understood: {type(error).__name__}: {error}")
        return
    present = present_files(output).keys() - {MANIFEST_OF_EXPORT}
    for name in sorted(entries.keys() - present):
        findings.note(name, "missing")
    for name in sorted(present - entries.keys()):
        findings.note(name, f"not listed in {MANIFEST_OF_EXPORT}")
    for name in output.others():
        if name not in SPLITS and not name.startswith((".", "_")):
            findings.note(name, "not of an export")
    run_side_by_side(
        "verifying files",
        [
            partial(check_file, output, name, entry, findings, None)
            for name, entry in entries.items()
            if name in present
        ],
    )
    findings.result.problems.sort()
