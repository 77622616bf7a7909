"""An export from its checks to its manifest, as `beam-bpe export` runs it.

`_export.json`, written before the first file, describes the export in progress; `export.json`,
written last, shows that it is complete. So files of two exports are never mixed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from operator import attrgetter
from typing import Any, Final, cast

from bpe_core.errors import BpeError
from bpe_core.short_repr import short_repr
from pipelines.config import BeamConfig
from pipelines.config.fingerprints import differences
from pipelines.config.values import is_url
from pipelines.console import progress
from pipelines.dataset.reading import SPLITS, TokenDataset
from pipelines.errors import (
    ConfigError,
    DamagedOutputError,
    DifferentConfigurationError,
    OutputError,
    shortened,
)
from pipelines.exports.files import WORK, ExportFiles, FormatOptions, Written
from pipelines.exports.formats import FORMATS, ExportOptions
from pipelines.exports.records import ExportIdentity, ExportManifest
from pipelines.manifest.records import sealed
from pipelines.storage.directory import Directory
from pipelines.storage.locks import OutputLock
from pipelines.supervisor import current_task

MANIFEST: Final = "export.json"
BEGUN: Final = "_export.json"
_WORK_FILES: Final = r"(train|validation)-([a-z]+-)?\d{5,}-of-\d{5,}\.(json|run)"
_FORMAT_VERSION: Final = 1
_NOTHING: Final[dict[str, Any]] = {}  # content of `_export.json` after the files were removed
_REPLACE: Final = "Restore it, or replace the export: the same command with --restart."
_FILES_SHOWN: Final = 3
_DIFFERENCES_SHOWN: Final = 12


@short_repr
@dataclass(frozen=True, kw_only=True)
class Exported:
    """Result of a finished export.

    Attributes:
        directory: The destination.
        content: Content of its export.json.
        was_there: True if it was finished before.
        warnings: Results that the user may not expect.
    """

    directory: Directory
    content: ExportManifest
    was_there: bool
    warnings: tuple[str, ...]

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The JSON values of export.json."""
        return self.content.to_json()


def export(
    dataset: TokenDataset,
    directory: Directory,
    options: ExportOptions,
    *,
    restart: bool = False,
    beam: BeamConfig | None = None,
    beam_args: Sequence[str] = (),
) -> Exported:
    """Write a dataset in another format.

    A finished export is not repeated; an interrupted one is continued or repeated.

    Args:
        dataset: The output of `beam-bpe encode`.
        directory: The destination.
        options: Splits, format and options of the format.
        restart: Remove the files of an export in the destination, and start over.
        beam, beam_args: See `ExportFiles`. They do not affect the written bytes.

    Raises:
        ConfigError: There is nothing to export, or the ids do not fit the format.
        DifferentConfigurationError: The destination contains another export.
        InputError: Token files are missing, damaged, or do not match their manifest.
        OutputError: The destination contains other files, is being written by another export, or
            cannot be written.
    """
    splits = [split for split in options.splits if dataset.num_rows(split)]
    if not splits:
        raise ConfigError(
            "There is nothing to export.",
            expected=f"documents in {' or '.join(options.splits)}",
            found="none",
            where=dataset.tokens.url,
        )
    # Workers may run in other directories.
    given, directory = directory, _absolute(directory)
    dataset = replace(dataset, output=_absolute(dataset.output))
    files = ExportFiles(directory, beam, beam_args)
    _check_pipeline_options(options, files, dataset)
    _check_destination(dataset, directory)
    identity = export_identity(dataset, options)
    _check_no_other_files(directory)
    with OutputLock(directory) as lock:
        manifest = None if restart else _finished(directory, identity)
        was_there = manifest is not None
        foreign: list[str] = []
        if manifest is None or (directory / WORK).sizes():
            lock.acquire()
            held = replace(directory, guard=lock.guard)
            if restart:
                _discard(held, options.format.files)
            files.directory = held
            # Another process may have finished it in the meantime.
            manifest = _finished(held, identity) or _make(dataset, files, options, identity, splits)
            foreign = (held / WORK).remove_below(_WORK_FILES)
    stays = (
        (
            f"{WORK} was not removed: it contains files that no export wrote: "
            + shortened(foreign, _FILES_SHOWN),
        )
        if foreign
        else ()
    )
    return Exported(
        directory=given,
        content=manifest,
        was_there=was_there,
        warnings=(*_warnings(dataset, options, manifest), *stays),
    )


def output_directory(output: str, storage_options: str | None) -> Directory:
    """Return the output of a build, by its path or URL and its file system's options as JSON.

    Raises:
        ConfigError: The options cannot be parsed, or the output is a file.
    """
    directory = Directory.given(output, read_storage_options(storage_options))
    if directory.is_local and directory.local_path("").is_file():
        raise ConfigError(
            "This is not the output of a build.",
            expected="the directory that a build wrote, `output` in its configuration",
            found="a file",
            where=output,
        )
    return directory


def format_export(exported: Exported) -> str:
    """Return the text that the command prints for an export."""
    manifest = exported.content
    lines = ["already finished"] if exported.was_there else []
    for split, content in manifest.splits.items():
        numbers = ", ".join(f"{name} {value:,}" for name, value in content.items())
        lines.append(f"{split}: {numbers}")
    size = sum(file.bytes for file in manifest.files)
    lines.append(f"files: {len(manifest.files)}, bytes {size:,}, in {exported.directory.url}")
    lines += [f"warning: {warning}" for warning in exported.warnings]
    return "\n".join(lines)


def present_files(directory: Directory) -> dict[str, int]:
    """Return names and sizes of an export's files, including those in directories of splits."""
    found = dict(directory.sizes())
    for split in SPLITS:
        found |= {f"{split}/{name}": size for name, size in (directory / split).sizes().items()}
    return {name: size for name, size in found.items() if not name.startswith((".", "_"))}


def _make(
    dataset: TokenDataset,
    files: ExportFiles,
    options: ExportOptions,
    identity: ExportIdentity,
    splits: Sequence[str],
) -> ExportManifest:
    """Write all files, the manifest last. Return the manifest."""
    directory = files.directory
    resolved = cast(FormatOptions, identity.options)
    directory.create()
    directory.write_json(BEGUN, identity.to_json())
    contents = {}
    total = sum(map(dataset.num_tokens, splits))
    with progress.show("exporting ids", total):
        for split in splits:
            with current_task(f"export of {split} to {options.to}"):
                written = options.format.writer(dataset, split, files, resolved)
            _check_complete(dataset, split, written)
            contents[split] = {
                "documents": written.documents,
                "tokens": written.tokens,
                **written.facts,
            }
    ordered = sorted(files.entries, key=attrgetter("name"))
    manifest = sealed(
        {
            **identity.to_json(),
            "splits": contents,
            "files": [file.to_json() for file in ordered],
            "software": {"bpe-beam": version("bpe-beam")},
        }
    )
    directory.write_json(MANIFEST, manifest)
    directory.remove(BEGUN)
    for place in (directory, *(directory / split for split in SPLITS)):
        place.remove_leftovers()
    return ExportManifest.model_validate(manifest)


def _absolute(directory: Directory) -> Directory:
    if is_url(directory.url):
        return directory
    return replace(directory, url=os.path.abspath(directory.url))  # noqa: PTH100


def _check_pipeline_options(
    options: ExportOptions, files: ExportFiles, dataset: TokenDataset
) -> None:
    """Check that Beam options are valid, and are given only for formats that run pipelines."""
    beam = files.beam
    if options.format.runs_pipelines:
        if files.beam_args or beam != BeamConfig(workers=beam.workers):
            from pipelines import runners

            places = (dataset.output.url, files.directory.url)
            runners.check_waits(runners.options_of(beam, files.beam_args, places))
        return
    given = [
        *([f"--runner {beam.runner}"] if beam.runner != BeamConfig().runner else []),
        *([f"--workers {beam.workers}"] if beam.workers else []),
        *files.beam_args,
    ]
    if not given:
        return
    owners = [name for name, known in FORMATS.items() if known.runs_pipelines]
    raise ConfigError(
        "This format is written by one process, without a pipeline.",
        expected="--runner, --workers and Beam options only with --to " + " or ".join(owners),
        found=f"--to {options.to} {' '.join(given)}",
        hint="Remove these options.",
    )


def _check_destination(dataset: TokenDataset, directory: Directory) -> None:
    """Check that the destination is not one of the directories of the build."""
    output = os.path.normpath(dataset.output.url)
    destination = os.path.normpath(directory.url)
    if dataset.output.is_local and directory.is_local:
        output = os.path.realpath(dataset.output.local_path(""))
        destination = os.path.realpath(directory.local_path(""))
    written = ("counts", "superwords", "tokenizer", "tokens", "rejects")
    folders = [f"{output}/{name}" for name in written]
    inside = any(f"{destination}/".startswith(f"{folder}/") for folder in folders)
    if destination == output or inside:
        raise ConfigError(
            "The destination is a directory that the build writes.",
            expected="a directory that is neither OUTPUT nor in its counts, tokenizer, tokens or "
            "rejects",
            found=directory.url,
            hint=f"Choose a different one, such as {dataset.output.path('exports/NAME')}.",
        )


def _warnings(
    dataset: TokenDataset, options: ExportOptions, manifest: ExportManifest
) -> tuple[str, ...]:
    return (
        *_warnings_of_boundaries(dataset, options),
        *_warnings_of_files(options, manifest),
        *_warnings_of_padding(dataset, options),
    )


def _warnings_of_files(options: ExportOptions, manifest: ExportManifest) -> Iterator[str]:
    made = manifest.splits.get("train", {}).get("files")
    if options.files is not None and made is not None and made != options.files:
        yield (
            f"the training split has {made:,} files, not the {options.files:,} of --files: there "
            "are no more rows"
        )


def _warnings_of_padding(dataset: TokenDataset, options: ExportOptions) -> Iterator[str]:
    if options.pad_id is None:
        return
    try:
        largest = dataset.model().max_id
    except (OSError, BpeError):  # the tokenizer may be elsewhere, and packing does not need it
        return
    if options.pad_id > largest:
        yield (
            f"--pad-id {options.pad_id} is larger than the ids of the vocabulary (up to "
            f"{largest:,}): "
            "the model needs an embedding for it"
        )


def _warnings_of_boundaries(dataset: TokenDataset, options: ExportOptions) -> tuple[str, ...]:
    affixes = dataset.configuration["encode"]
    if options.format.has_boundaries or affixes["prepend"] or affixes["append"]:
        return ()
    return (
        "nothing separates documents: the build has neither encode.append nor encode.prepend, and "
        f"{options.to} files do not show where documents begin",
    )


def export_identity(dataset: TokenDataset, options: ExportOptions) -> ExportIdentity:
    """Return everything that determines the bytes of an export.

    Args:
        dataset: The dataset.
        options: Splits, format and options of the format.

    Raises:
        ConfigError: The ids do not fit the format.
    """
    configuration = dataset.configuration
    return ExportIdentity(
        format=_FORMAT_VERSION,
        to=options.to,
        split=options.split,
        options=options.resolve(dataset.dtype.name),
        dataset={
            "fingerprint": dataset.fingerprint,
            "configuration": dataset.configuration_fingerprint,
            "tokenizer": configuration["tokenizer"],
            "id_type": configuration["id_type"],
        },
    )


def check_same_export(found: Mapping[str, Any], identity: ExportIdentity, where: str) -> None:
    """Check that the record in a destination is of the same export.

    Args:
        found: Content of export.json or _export.json, of any version.
        identity: Identity of the export.
        where: Path or URL of the destination.

    Raises:
        DifferentConfigurationError: It is of another one.
    """
    wanted = identity.to_json()
    changed = differences({key: found.get(key) for key in wanted}, wanted)
    if changed:
        raise DifferentConfigurationError(
            "The destination contains a different export; nothing was changed.",
            found="these differences (there → now)\n    "
            + shortened([*map(str, changed)], _DIFFERENCES_SHOWN, separator="\n    "),
            where=where,
            hint="Choose a different destination, or replace the export: the same command with "
            "--restart.",
        )


def _check_no_other_files(directory: Directory) -> None:
    """Check that a destination without an export is empty."""
    present = present_files(directory)
    if not present or MANIFEST in present or BEGUN in directory.sizes():
        return
    raise OutputError(
        "The destination has files that no export wrote.",
        expected="an empty directory, or one with an export.json",
        found=shortened(sorted(present), _FILES_SHOWN),
        where=directory.url,
        hint="Choose a different destination, or remove these files.",
    )


def _finished(directory: Directory, identity: ExportIdentity) -> ExportManifest | None:
    """Return the manifest of the same export, or None if it is not finished."""
    finished = _read_record(directory, MANIFEST)
    found = _read_record(directory, BEGUN) if finished is None else finished
    if not found:
        return None
    check_same_export(found, identity, directory.url)
    if finished is None:
        return None
    manifest = ExportManifest.model_validate(finished)
    present = present_files(directory)
    wrong = [file.name for file in manifest.files if present.get(file.name) != file.bytes]
    if wrong:
        raise OutputError(
            "The export does not match its export.json.",
            expected=f"{len(manifest.files)} files with the sizes there",
            found=f"{len(wrong)} missing or of a different size: {shortened(wrong, _FILES_SHOWN)}",
            where=directory.url,
            hint="Restore them, or write them again: the same command with --restart.",
        )
    return manifest


def _read_record(directory: Directory, name: str) -> dict[str, Any] | None:
    """Return the content of export.json or _export.json, or None if the file does not exist.

    Raises:
        DamagedOutputError: It is not in the form that exports write.
    """
    found = directory.read_json(name, hint=_REPLACE)
    # Other versions are refused later, with their own message.
    if found and found.get("format") == _FORMAT_VERSION:
        form = ExportManifest if name == MANIFEST else ExportIdentity
        found = directory.read_json(name, form, hint=_REPLACE)
    return found


def _discard(directory: Directory, asked: str) -> None:
    """Remove the files of an export and nothing else, its description last.

    Args:
        directory: The destination.
        asked: A regex that matches the names of files in the requested format. If the description
            is damaged, the export is assumed to be in this format.
    """
    found: dict[str, Any] | None = None
    damaged: DamagedOutputError | None = None
    for name in (MANIFEST, BEGUN):
        try:
            found = _read_record(directory, name) or found
        except DamagedOutputError as error:
            damaged = error
    if not found and damaged is None:
        return
    ours = asked if not found else _names_of(found, directory)
    present = [name for name in present_files(directory) if name != MANIFEST]
    removed = [name for name in present if re.fullmatch(ours, name)]
    if found:
        directory.write_json(BEGUN, found)
        directory.remove(MANIFEST)
    elif others := sorted(set(present).difference(removed)):
        raise OutputError(
            "The export's description is damaged, and some files are not of the requested format.",
            found=shortened(others, _FILES_SHOWN),
            where=directory.url,
            hint="Use --restart with the format of the existing export, or choose another "
            "destination.",
        ) from damaged
    directory.remove_files(removed)
    (directory / WORK).remove_below(_WORK_FILES)
    for split in SPLITS:
        (directory / split).remove_leftovers()
        (directory / split).remove_if_empty()
    directory.remove_leftovers()
    directory.write_json(BEGUN, _NOTHING)
    directory.remove(MANIFEST)


def _names_of(found: Mapping[str, Any], directory: Directory) -> str:
    """Return a regex that matches the names of the files of an export."""
    known = FORMATS.get(str(found.get("to")))
    if known is None:
        raise OutputError(
            "The destination contains an export in a format unknown to this version.",
            expected=f"one of {', '.join(FORMATS)}",
            found=str(found.get("to")),
            where=directory.url,
            hint="Choose a different destination, or remove the export.",
        )
    return known.files


def _check_complete(dataset: TokenDataset, split: str, written: Written) -> None:
    wanted = (dataset.num_documents(split), dataset.num_tokens(split))
    if (written.documents, written.tokens) != wanted:
        raise OutputError(
            "The written files do not match the token files; the export is not finished.",
            expected=f"{wanted[0]:,} documents and {wanted[1]:,} ids in {split}",
            found=f"{written.documents:,} documents and {written.tokens:,} ids",
            where=dataset.tokens.url,
            hint="The token files and their manifest differ: restore them, or encode again.",
        )


def read_storage_options(given: str | None) -> dict[str, Any]:
    """Return the options of a file system, given as JSON."""
    if given is None:
        return {}
    try:
        options = json.loads(given)
    except ValueError:
        options = None
    if not isinstance(options, dict):  # not shown, since it may contain credentials
        raise ConfigError(
            "The options of the file system cannot be parsed.",
            expected='a JSON object, such as \'{"endpoint_url": "http://localhost:9000"}\'',
            found="other text (not shown: it may hold credentials)",
            where="--storage-options",
        )
    return options
