"""An export, compared with its export.json."""

from __future__ import annotations

from functools import partial

from pydantic import ConfigDict, ValidationError

from pipelines.dataset.reading import SPLITS
from pipelines.errors import InputError
from pipelines.exports.export import MANIFEST as MANIFEST_OF_EXPORT
from pipelines.exports.export import present_files
from pipelines.exports.records import ExportedName
from pipelines.manifest.entries import FileEntry
from pipelines.manifest.records import Record, first_problem, load_json, load_sealed
from pipelines.storage.directory import Directory
from pipelines.verification.files import check_file
from pipelines.verification.findings import EXPORT, Findings, run_side_by_side


class _ExportedFile(FileEntry):
    """A file of an export, which may be in the directory of its split."""

    model_config = ConfigDict(extra="ignore")

    name: ExportedName


class _Files(Record):
    """The list of files in an export.json."""

    model_config = ConfigDict(extra="ignore")

    files: list[_ExportedFile]


def verify_export(output: Directory, findings: Findings, *, only_bytes: bool) -> None:
    """Compare the files of an export with its export.json."""
    if not only_bytes:
        raise InputError(
            "Only the checksums of an export can be verified.",
            expected="the output of a build, for --against, --sources and --sample",
            where=output.url,
            hint="Verify the output of the build that was exported, or omit the option.",
        )
    findings.result.stages.append(EXPORT)
    data = output.find_bytes(MANIFEST_OF_EXPORT)
    if data is None:
        findings.note(MANIFEST_OF_EXPORT, "missing: the export is not finished")
        return
    findings.add(files=1, bytes=len(data))
    try:
        load_sealed(data)
    except ValueError as error:  # its files may be intact, so they are checked nonetheless
        findings.note(MANIFEST_OF_EXPORT, str(error))
    try:
        files = _Files.model_validate(load_json(data)).files
    except ValidationError as error:
        findings.note(MANIFEST_OF_EXPORT, f"unreadable list of files: {first_problem(error)}")
        return
    except ValueError:
        return
    entries = {entry.name: entry for entry in files}
    present = present_files(output).keys() - {MANIFEST_OF_EXPORT}
    for name in sorted(entries.keys() - present):
        findings.note(name, "missing")
    for name in sorted(present - entries.keys()):
        findings.note(name, f"not listed in {MANIFEST_OF_EXPORT}")
    for name in output.other_names():
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
