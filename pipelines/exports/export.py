"""An export from its checks to its manifest: what `beam-bpe export` does.

`_export.json` says what is being made from when there is the first file, `export.json`, written
last, that it is complete. Another export never mixes with what is there.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from operator import itemgetter
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bpe_core.errors import BpeError
from pipelines.config import BeamConfig
from pipelines.config.fingerprints import differences
from pipelines.config.values import is_url, protocol_of
from pipelines.console import progress
from pipelines.dataset.reading import SPLITS, TokenDataset
from pipelines.errors import (
    ConfigError,
    DamagedOutputError,
    DifferentConfigurationError,
    OutputError,
)
from pipelines.exports.formats import FORMATS, ExportOptions
from pipelines.manifest.models import ExportIdentity, ExportManifest, sealed
from pipelines.storage.directory import Directory, HashingFile, check_form
from pipelines.storage.filesystems import LOCAL
from pipelines.storage.locks import OutputLock
from pipelines.supervisor import current_task

MANIFEST: Final = "export.json"
# Of the files in WORK.
_WORK_FILES: Final = r"(train|validation)-([a-z]+-)?\d{5,}-of-\d{5,}\.(json|run)"
WORK: Final = "_work"  # what pipelines note and put aside until the export is complete
BEGUN: Final = "_export.json"
_FORMAT_VERSION: Final = 1
_NOTHING: Final[dict[str, Any]] = {}  # what a destination has whose files were removed
_REPLACE: Final = "Restore it, or replace the export: the same command with --restart."
_FILES_SHOWN: Final = 3
_DIFFERENCES_SHOWN: Final = 12


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a format wrote of a split: held against the manifest of the token files.

    Attributes:
        documents, tokens: numbers of them.
        facts: other numbers for the manifest of the export.
    """

    documents: int
    tokens: int
    facts: Mapping[str, int]


class ExportFiles:
    """The destination of an export: files that appear whole, and are noted with their checksums.

    Args:
        directory: the destination.
        beam: what runs pipelines, for formats that are written by them.
        beam_args: options of theirs, over those of `beam`.
    """

    def __init__(
        self, directory: Directory, beam: BeamConfig | None = None, beam_args: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.beam = beam or BeamConfig()
        self.beam_args = beam_args
        self.entries: list[dict[str, Any]] = []

    @contextmanager
    def write(self, name: str) -> Iterator[HashingFile]:
        """A file to write, which gets its name when the block ends without an error."""
        with self.directory.write(name) as file:
            yield file
        self.entries.append({"name": name, "bytes": file.size, "xxh3_128": file.hexdigest})


def write_array(file: HashingFile, array: NDArray[Any]) -> None:
    """Writes the bytes of an array, which may be empty."""
    if array.size:
        file.write(np.ascontiguousarray(array))


def ids_as(ids: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The ids in another type; the same array if that is its type.

    Raises:
        ConfigError: an id does not fit.
    """
    if ids.dtype == dtype or not ids.size:
        return ids.astype(dtype, copy=False)
    largest = int(ids.max())
    if largest > np.iinfo(dtype).max:
        raise ConfigError(
            "An id does not fit the type of the export.",
            expected=f"ids up to {np.iinfo(dtype).max:,} ({dtype.name})",
            found=f"{largest:,}",
            hint="Ask for a larger type with --id-type, or choose another format.",
        )
    return ids.astype(dtype)


class IdStream:
    """The ids of a split as one stream, without regard to rows.

    Args:
        dataset: what is exported.
        split: of it.
        dtype: of the ids that come.
    """

    def __init__(self, dataset: TokenDataset, split: str, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._chunks = dataset.chunks(split, ["part"])
        self._rest: NDArray[Any] = np.empty(0, dtype)
        self._documents = 0
        self._tokens = 0

    def take(self, tokens: int) -> Iterator[NDArray[Any]]:
        """The next ids, in pieces; fewer only where the split ends."""
        left = tokens
        while left and self._fill():
            piece = self._rest[:left]
            self._rest = self._rest[left:]
            left -= len(piece)
            self._tokens += len(piece)
            yield piece

    def finish(self, **facts: int) -> Written:
        """What was taken; what is left is looked at, and not counted."""
        while self._fill():
            self._rest = self._rest[:0]
        return Written(documents=self._documents, tokens=self._tokens, facts=facts)

    def _fill(self) -> bool:
        """Whether there are ids."""
        while not len(self._rest):
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._documents += int(chunk.starts.sum())
            self._rest = ids_as(chunk.ids, self.dtype)
        return True


class FormatModule(Protocol):
    """What the module of a format has."""

    def write_split(
        self, dataset: TokenDataset, split: str, files: ExportFiles, options: Mapping[str, Any]
    ) -> Written:
        """Writes the files of a split; `progress.advance` is told the ids that are done.

        Args:
            dataset: what is exported.
            split: "train" or "validation"; it has rows.
            files: where it goes.
            options: those of the format, each with a value (`ExportOptions.resolved`).
        """


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A finished export.

    Attributes:
        directory: where it is.
        manifest: the contents of its export.json.
        was_there: whether it was finished before.
        warnings: what may not be as its user expects.
    """

    directory: Directory
    manifest: Mapping[str, Any]
    was_there: bool
    warnings: tuple[str, ...]


def export(
    dataset: TokenDataset,
    directory: Directory,
    options: ExportOptions,
    *,
    restart: bool = False,
    beam: BeamConfig | None = None,
    beam_args: Sequence[str] = (),
) -> Exported:
    """Writes a dataset in another form.

    An export that is there already is not made again; one that was interrupted is.

    Args:
        dataset: what `beam-bpe encode` wrote.
        directory: the destination.
        options: the form.
        restart: remove what an export left in the destination, and begin anew.
        beam, beam_args: as `ExportFiles` takes them; they have no influence on what is written.

    Raises:
        ConfigError: there is nothing to export, or the ids do not fit the format.
        DifferentConfigurationError: the destination has another export.
        InputError: token files are missing, damaged, or not what their manifest says.
        OutputError: the destination has other files or is written by another export at this moment,
            or it can't be written.
    """
    splits = [split for split in options.splits if dataset.num_rows(split)]
    if not splits:
        raise ConfigError(
            "There is nothing to export.",
            expected=f"documents in {' or '.join(options.splits)}",
            found="none",
            where=dataset.tokens.url,
        )
    # Workers may be in other directories.
    given, directory = directory, _absolute(directory)
    dataset = replace(dataset, output=_absolute(dataset.output))
    files = ExportFiles(directory, beam, beam_args)
    _check_pipeline_options(options, files, dataset)
    _check_destination(dataset, directory)
    resolved = options.resolved(dataset.dtype.name)
    identity = _identity(dataset, options, resolved)
    _refuse_others_files(directory)
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
            # Another may have finished it meanwhile.
            manifest = _finished(held, identity) or _make(dataset, files, options, identity, splits)
            foreign = (held / WORK).remove_below(_WORK_FILES)
    stays = (
        (f"{WORK} stays: no export wrote {', '.join(foreign[:_FILES_SHOWN])}",) if foreign else ()
    )
    return Exported(
        directory=given,
        manifest=manifest,
        was_there=was_there,
        warnings=(*_warnings(dataset, options, manifest), *stays),
    )


def _make(
    dataset: TokenDataset,
    files: ExportFiles,
    options: ExportOptions,
    identity: Mapping[str, Any],
    splits: Sequence[str],
) -> dict[str, Any]:
    """Writes all files, the manifest last."""
    directory = files.directory
    directory.create()
    directory.write_json(BEGUN, identity)
    module: FormatModule = importlib.import_module(f"pipelines.exports.{options.format.module}")
    contents = {}
    total = sum(map(dataset.num_tokens, splits))
    with progress.shown("exporting ids", total):
        for split in splits:
            with current_task(f"export of {split} to {options.to}"):
                written = module.write_split(dataset, split, files, identity["options"])
            _check_complete(dataset, split, written)
            contents[split] = {
                "documents": written.documents,
                "tokens": written.tokens,
                **written.facts,
            }
    manifest = sealed(
        {
            **identity,
            "splits": contents,
            "files": sorted(files.entries, key=itemgetter("name")),
            "software": {"bpe-beam": version("bpe-beam")},
        }
    )
    directory.write_json(MANIFEST, manifest)
    directory.remove(BEGUN)
    for place in (directory, *(directory / split for split in SPLITS)):
        place.remove_leftovers()
    return manifest


def _absolute(directory: Directory) -> Directory:
    if is_url(directory.url):
        return directory
    return replace(directory, url=os.path.abspath(directory.url))  # noqa: PTH100


def _check_pipeline_options(
    options: ExportOptions, files: ExportFiles, dataset: TokenDataset
) -> None:
    """Only some formats are written by pipelines; theirs are options that Beam knows."""
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
    owners = [name for name, form in FORMATS.items() if form.runs_pipelines]
    raise ConfigError(
        "The format is written by one process, without a pipeline.",
        expected="--runner, --workers and options of Beam with --to " + " or ".join(owners),
        found=f"--to {options.to} {' '.join(given)}",
        hint="Leave the options out.",
    )


def _check_destination(dataset: TokenDataset, directory: Directory) -> None:
    """An export never stands in the folders of the build it is of."""
    output = os.path.normpath(dataset.output.url)
    destination = os.path.normpath(directory.url)
    if dataset.output.is_local and directory.is_local:
        output = os.path.realpath(dataset.output.local_path(""))
        destination = os.path.realpath(directory.local_path(""))
    folders = [f"{output}/{name}" for name in ("counts", "tokenizer", "tokens", "rejects")]
    inside = any(f"{destination}/".startswith(f"{folder}/") for folder in folders)
    if destination == output or inside:
        raise ConfigError(
            "The destination is where the build writes.",
            expected="a directory that is not OUTPUT, nor in its counts, tokenizer, tokens or "
            "rejects",
            found=directory.url,
            hint=f"Choose another, such as {dataset.output.path('exports/NAME')}.",
        )


def _warnings(
    dataset: TokenDataset, options: ExportOptions, manifest: Mapping[str, Any]
) -> tuple[str, ...]:
    return (
        *_warnings_of_boundaries(dataset, options),
        *_warnings_of_files(options, manifest),
        *_warnings_of_padding(dataset, options),
    )


def _warnings_of_files(options: ExportOptions, manifest: Mapping[str, Any]) -> Iterator[str]:
    made = manifest["splits"].get("train", {}).get("files")
    if options.files is not None and made is not None and made != options.files:
        yield (
            f"{made:,} files were made of the training split, not {options.files:,} as --files "
            "asks for: there are no more rows"
        )


def _warnings_of_padding(dataset: TokenDataset, options: ExportOptions) -> Iterator[str]:
    if options.pad_id is None:
        return
    try:
        largest = dataset.model().max_id
    except (OSError, BpeError):  # it may be elsewhere, and packing needs none
        return
    if options.pad_id > largest:
        yield (
            f"--pad-id {options.pad_id} is above the ids of the vocabulary (up to {largest:,}): "
            "the model needs a row for it"
        )


def _warnings_of_boundaries(dataset: TokenDataset, options: ExportOptions) -> tuple[str, ...]:
    affixes = dataset.manifest["configuration"]["encode"]
    if options.format.has_boundaries or affixes["prepend"] or affixes["append"]:
        return ()
    return (
        "nothing stands between documents: the build has neither encode.append nor "
        f"encode.prepend, and {options.to} files do not tell where documents begin",
    )


def export_dataset(
    output: str,
    destination: str,
    options: ExportOptions,
    storage_options: str | None = None,
    *,
    restart: bool = False,
    beam: BeamConfig | None = None,
    beam_args: Sequence[str] = (),
) -> str:
    """Exports the output of a build, by its path or URL; gives what the command prints.

    Args:
        output: of the build.
        destination: the directory to write to.
        options: the form.
        storage_options: of those of the two that are not local, as JSON.
        restart, beam, beam_args: as `export` takes them.
    """
    remote = _storage_options(storage_options)
    local = [protocol_of(url) in LOCAL for url in (output, destination)]
    dataset = TokenDataset.open(output, {} if local[0] else remote)
    directory = Directory(url=destination, storage_options={} if local[1] else remote)
    exported = export(dataset, directory, options, restart=restart, beam=beam, beam_args=beam_args)
    return shown(exported)


def output_directory(output: str, storage_options: str | None) -> Directory:
    """The output of a build, by its path or URL and the options of its file system as JSON.

    Raises:
        ConfigError: the options can't be read, or the output is a file.
    """
    options = _storage_options(storage_options)
    is_local = protocol_of(output) in LOCAL
    if is_local and Directory(url=output).local_path("").is_file():
        raise ConfigError(
            "This is no output of a build.",
            expected="the directory that a build wrote into: `output` of its configuration",
            found="a file",
            where=output,
        )
    return Directory(url=output, storage_options={} if is_local else options)


def _storage_options(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        options = json.loads(given)
    except ValueError:
        options = None
    if not isinstance(options, dict):  # not shown: there may be secrets in it
        raise ConfigError(
            "The options of the file system can't be read.",
            expected='a JSON object, such as \'{"endpoint_url": "http://localhost:9000"}\'',
            where="--storage-options",
        )
    return options


def _identity(
    dataset: TokenDataset, options: ExportOptions, resolved: Mapping[str, Any]
) -> dict[str, Any]:
    configuration = dataset.manifest["configuration"]
    return {
        "format": _FORMAT_VERSION,
        "to": options.to,
        "split": options.split,
        "options": resolved,
        "dataset": {
            "fingerprint": dataset.fingerprint,
            "configuration": dataset.manifest["configuration_fingerprint"],
            "tokenizer": configuration["tokenizer"],
            "id_type": configuration["id_type"],
        },
    }


def _refuse_others_files(directory: Directory) -> None:
    """Stops where there are files, and no export has been."""
    present = present_files(directory)
    if not present or MANIFEST in present or BEGUN in directory.sizes():
        return
    raise OutputError(
        "The destination has files that no export wrote.",
        expected="an empty directory, or one with an export.json",
        found=", ".join(sorted(present)[:_FILES_SHOWN]),
        where=directory.url,
        hint="Choose another destination, or remove them.",
    )


def _finished(directory: Directory, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of the same export, finished; None if it is not finished, or not begun."""
    manifest = _read_record(directory, MANIFEST)
    found = _read_record(directory, BEGUN) if manifest is None else manifest
    if not found:
        return None
    changed = differences({key: found.get(key) for key in identity}, identity)
    if changed:
        raise DifferentConfigurationError(
            "The destination has another export; nothing was changed.",
            found="these differences (there → now)\n    "
            + "\n    ".join(map(str, changed[:_DIFFERENCES_SHOWN])),
            where=directory.url,
            hint="Choose another destination, or replace it: the same command with --restart.",
        )
    if manifest is None:
        return None
    present = present_files(directory)
    wrong = [
        file["name"] for file in manifest["files"] if present.get(file["name"]) != file["bytes"]
    ]
    if wrong:
        raise OutputError(
            "The export is not as its export.json says.",
            expected=f"{len(manifest['files'])} files with the sizes there",
            found=f"{len(wrong)} missing or of another size: " + ", ".join(wrong[:_FILES_SHOWN]),
            where=directory.url,
            hint="Restore them, or make them anew: the same command with --restart.",
        )
    return manifest


def present_files(directory: Directory) -> dict[str, int]:
    """Names and sizes of the files of exports, also in the directories of splits."""
    found = dict(directory.sizes())
    for split in SPLITS:
        found |= {f"{split}/{name}": size for name, size in (directory / split).sizes().items()}
    return {name: size for name, size in found.items() if not name.startswith((".", "_"))}


def _read_record(directory: Directory, name: str) -> dict[str, Any] | None:
    """Return what is in export.json or _export.json; None if there is no such file.

    Raises:
        DamagedOutputError: it is not what exports write.
    """
    found = directory.read_json(name, hint=_REPLACE)
    if found and found.get("format") == _FORMAT_VERSION:  # others are refused as such
        form = ExportManifest if name == MANIFEST else ExportIdentity
        check_form(found, form, directory.path(name), _REPLACE)
    return found


def _discard(directory: Directory, asked: str) -> None:
    """Remove the files of an export, and nothing else; its description last.

    Args:
        directory: the destination.
        asked: a regex that matches the names of files of the format that is asked for. If the
            description is damaged, the files are taken for such.
    """
    found = None
    damaged = None
    for name in (MANIFEST, BEGUN):
        try:
            found = _read_record(directory, name) or found
        except DamagedOutputError as error:
            damaged = error
    if not found and damaged is None:
        return
    ours = asked if found is None else _names_of(found, directory)
    present = [name for name in present_files(directory) if name != MANIFEST]
    removed = [name for name in present if re.fullmatch(ours, name)]
    if found is not None:
        directory.write_json(BEGUN, found)
        directory.remove(MANIFEST)
    elif len(removed) < len(present):
        raise OutputError(
            "The description of the export is damaged, and not all files there are of this format.",
            found=", ".join(sorted(set(present).difference(removed))[:_FILES_SHOWN]),
            where=directory.url,
            hint="Restart with the format of the export that is there, or choose another "
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
    """Return a regex of the names of the files of an export."""
    known = FORMATS.get(str(found.get("to")))
    if known is None:
        raise OutputError(
            "The destination has an export that this version does not know.",
            expected=f"one of {', '.join(FORMATS)}",
            found=str(found.get("to")),
            where=directory.url,
            hint="Choose another destination, or remove it.",
        )
    return known.files


def _check_complete(dataset: TokenDataset, split: str, written: Written) -> None:
    wanted = (dataset.num_documents(split), dataset.num_tokens(split))
    if (written.documents, written.tokens) != wanted:
        raise OutputError(
            "What was written is not what the token files hold; the export is not finished.",
            expected=f"{wanted[0]:,} documents and {wanted[1]:,} ids in {split}",
            found=f"{written.documents:,} documents and {written.tokens:,} ids",
            where=dataset.tokens.url,
            hint="The token files and their manifest differ: restore them, or encode anew.",
        )


def shown(exported: Exported) -> str:
    """What the command prints."""
    manifest = exported.manifest
    lines = ["already finished"] if exported.was_there else []
    for split, content in manifest["splits"].items():
        numbers = ", ".join(f"{name} {value:,}" for name, value in content.items())
        lines.append(f"{split}: {numbers}")
    size = sum(file["bytes"] for file in manifest["files"])
    lines.append(f"files: {len(manifest['files'])}, bytes {size:,}, in {exported.directory.url}")
    lines += [f"warning: {warning}" for warning in exported.warnings]
    return "\n".join(lines)
