"""The records of a stage on disk: read, or refused with what to do.

A stage's directory has `_plan.json` from its start to its end and `manifest.json`, written last,
once it is finished. While a finished stage is discarded, its manifest is the plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from pydantic import ValidationError

from bpe_core.formats import TOKENIZER_FILES
from pipelines.errors import (
    DamagedOutputError,
    DifferentConfigurationError,
    InputError,
    OutputError,
    PipelineError,
)
from pipelines.manifest.entries import TaskEntry
from pipelines.manifest.models import FORMAT_VERSION, TokensManifest
from pipelines.manifest.names import (
    COMMIT_FILE,
    ENTRIES,
    ENTRY_FILE,
    MANIFEST,
    PLAN,
    RUNS,
    STATISTICS_FILE,
)
from pipelines.manifest.notes import CommitNote
from pipelines.manifest.records import Record, first_problem, load_json
from pipelines.manifest.run_record import StagePlan
from pipelines.manifest.stage import COUNT, ENCODE, IMPORT, SUPERWORDS, TRAIN, ManifestT, Stage
from pipelines.manifest.stage_advice import how_to_redo
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import is_of_a_build
from pipelines.tokenizers.files import counts_fingerprint

_FILES_SHOWN: Final = 3
_FILES_LOOKED_AT: Final = 16
# A damaged record still has two of these keys; files of others with its name have none.
_MARKERS: Final = frozenset({"format", "configuration", "inputs"})
DISCARDED: Final[Mapping[str, Any]] = {}  # the plan of a stage whose files were discarded
_R = TypeVar("_R", bound=Record)


def has_finished_work(stage: Stage[Any], directory: Directory) -> bool:
    """Return True if a stage without a manifest has work that will not be repeated.

    Tasks all of whose documents were rejected or empty do not count, so that a wrong field or
    compression can simply be corrected.
    """
    if stage in (COUNT, SUPERWORDS):
        commits = _load_notes(directory / RUNS, COMMIT_FILE, CommitNote)
        return any(totals.documents for commit in commits for totals in commit.sources)
    if stage == ENCODE:
        entries = _load_notes(directory / ENTRIES, ENTRY_FILE, TaskEntry)
        return any(entry.totals.documents for entry in entries)
    return stage == TRAIN and not TOKENIZER_FILES.isdisjoint(directory.sizes())


def _load_notes(scratch: Directory, ours: re.Pattern[str], model: type[_R]) -> Iterator[_R]:
    """Yield the notes of workers below a directory."""
    for path in scratch.paths_below() if scratch.exists() else ():
        plan_id, _, name = path.rpartition("/")
        if ours.fullmatch(name):
            note = model.load_file(scratch / plan_id, name)
            if note is not None:
                yield note


def load_manifest(
    stage: Stage[ManifestT], directory: Directory, *, command: str | None = None
) -> ManifestT | None:
    """Return the manifest in a stage's directory, or None.

    Raises:
        DifferentConfigurationError: the manifest has another format.
        OutputError: the manifest is damaged, or no build wrote it.
    """
    data = directory.find_bytes(MANIFEST)
    if data is None:
        return None
    try:
        return stage.manifest.model_validate_json(data)
    except ValidationError as error:
        raise _invalid_record(
            stage, directory, MANIFEST, data, first_problem(error), command
        ) from None


def load_plan(
    stage: Stage[ManifestT], directory: Directory, *, command: str | None = None
) -> StagePlan | ManifestT | None:
    """Return the plan in a stage's directory, or None if it is missing or was discarded.

    While a finished stage is discarded, its manifest is the plan.

    Raises:
        DifferentConfigurationError: the plan has another format.
        OutputError: the plan is damaged, or no build wrote it.
    """
    data = directory.find_bytes(PLAN)
    if data is None:
        return None
    try:
        value = load_json(data)
        if value == DISCARDED:
            return None
        model = stage.manifest if "checksum" in value else StagePlan
        return model.model_validate_json(data)
    except ValidationError as error:
        problem = first_problem(error)
    except ValueError as error:
        problem = str(error)
    raise _invalid_record(stage, directory, PLAN, data, problem, command)


def load_declaration(stage: Stage[ManifestT], directory: Directory) -> StagePlan | ManifestT | None:
    """Return the plan of an unfinished stage or the manifest of a finished one, if there is one."""
    return load_plan(stage, directory) or load_manifest(stage, directory)


def load_dataset(tokens: Directory) -> TokensManifest:
    """Return the manifest of finished token files, whatever their configuration.

    Raises:
        InputError: the token files are unfinished.
        OutputError: files are missing.
    """
    manifest = load_manifest(ENCODE, tokens)
    if manifest is None:
        raise InputError(
            "There are no finished token files.",
            expected=MANIFEST,
            where=tokens.url,
            hint="Finish them: `beam-bpe encode CONFIG`.",
        )
    check_present(ENCODE, tokens, manifest)
    return manifest


@dataclass(frozen=True, kw_only=True)
class Remains(Generic[ManifestT]):
    """Record of a stage that is being discarded, which shows the files that belong to the stage.

    Attributes:
        declared: plan or manifest, or None if this version can read neither.
        is_recorded: True if there is a record, even a damaged one.
    """

    declared: StagePlan | ManifestT | None
    is_recorded: bool

    @classmethod
    def load(cls, stage: Stage[ManifestT], directory: Directory) -> Self:
        """Return the remains in the directory of a stage.

        Raises:
            OutputError: a file has the name of a record, and no build wrote it.
        """
        try:
            declared = load_declaration(stage, directory)
        except (DamagedOutputError, DifferentConfigurationError):
            return cls(declared=None, is_recorded=True)
        is_recorded = declared is not None or PLAN in directory.sizes()
        return cls(declared=declared, is_recorded=is_recorded)

    def select(self, directory: Directory, ours: str) -> list[str]:
        """Return the names of files that builds wrote.

        If the record does not show this, Parquet files are recognized by their footers; files of a
        tokenizer belong to a build if there is a record, or if they declare that they were trained
        from counts.

        Args:
            directory: directory of the stage, or of rejects.
            ours: a regex that matches the names of the stage's files.
        """
        names = [name for name in directory.sizes() if re.fullmatch(ours, name)]
        if self.declared is not None:
            return names
        others = self.is_recorded or _is_trained(directory)
        return [
            name
            for name in names
            if (is_of_a_build(directory, name) if name.endswith(".parquet") else others)
        ]


def _is_trained(directory: Directory) -> bool:
    """Return True if a tokenizer in a directory declares that it was trained from counts."""
    try:
        return counts_fingerprint(directory) is not None
    except DamagedOutputError:
        return False


def unrecorded_files(
    stage: Stage[ManifestT], directory: Directory, names: Sequence[str], command: str | None
) -> OutputError:
    """Return the error for files in a directory without a record."""
    pattern = "|".join(map(re.escape, names[:_FILES_LOOKED_AT]))
    ours = Remains[ManifestT](declared=None, is_recorded=False).select(directory, pattern)
    if not ours:
        return _foreign_files(directory, names)
    return OutputError(
        "The output directory has files of a build that left no record.",
        expected=f"{MANIFEST}, or {PLAN} of a build that was interrupted",
        found=", ".join(ours[:_FILES_SHOWN]),
        where=directory.url,
        hint=f"Restore {MANIFEST}, or {how_to_redo(stage, directory, command)}.",
    )


def _invalid_record(
    stage: Stage[ManifestT],
    directory: Directory,
    name: str,
    data: bytes,
    problem: str,
    command: str | None,
) -> PipelineError:
    """Return the error for a record that no build of this version wrote.

    Args:
        stage: stage of the record.
        directory: directory of the stage.
        name: name of the file.
        data: bytes of the file.
        problem: the first problem of the record.
        command: command that the user ran, or None.
    """
    redo = f"{how_to_redo(stage, directory, command)}."
    try:
        value = load_json(data)
    except ValueError:
        value = None
    if value is not None and len(_MARKERS & value.keys()) < 2:
        return _foreign_files(directory, [name])
    if value is not None and _is_other_tokenizer(stage, value):
        return DifferentConfigurationError(
            "The output has another tokenizer; nothing was changed.",
            expected="an imported tokenizer" if stage == IMPORT else "a trained tokenizer",
            found="a trained one" if stage == IMPORT else "an imported one",
            where=directory.url,
            hint="Choose another output, or go back to the old tokenizer.path.",
        )
    if value is not None and value.get("format") != FORMAT_VERSION:
        return DifferentConfigurationError(
            "The output was made by another version of this tool; nothing was changed.",
            expected=f"format {FORMAT_VERSION}",
            found=f"format {value.get('format', 1)}",
            where=directory.url,
            hint=f"Choose another output, or {redo}",
        )
    return DamagedOutputError(
        "A file of the output is damaged.",
        expected="JSON as beam-bpe writes it",
        found=problem,
        where=directory.path(name),
        hint=f"Restore it, or {redo}",
    )


def _is_other_tokenizer(stage: Stage[Any], record: Mapping[str, Any]) -> bool:
    """Return True for the record of an imported tokenizer instead of a trained one, or the reverse.

    Plans are of one model, and are compared by their configuration.
    """
    if stage.directory != TRAIN.directory or "checksum" not in record:
        return False
    return ("imported_from" in record) != (stage == IMPORT)


def _foreign_files(directory: Directory, names: Sequence[str]) -> OutputError:
    return OutputError(
        "The output directory has files that no build of this tool wrote.",
        expected="an empty directory, or one with the manifest.json or _plan.json of a build",
        found=", ".join(sorted(names)[:_FILES_SHOWN]),
        where=directory.url,
        hint="Choose another output, or remove them.",
    )


def check_present(
    stage: Stage[ManifestT], directory: Directory, manifest: ManifestT, command: str | None = None
) -> None:
    """Check that every file of the manifest is in the stage's directory and has its size."""
    listed = {
        f"{place}/{file.name}".removeprefix(f"{stage.directory}/"): file.bytes
        for place, file in manifest.listed_files()
        if place.split("/")[0] == stage.directory and not STATISTICS_FILE.fullmatch(file.name)
    }
    present: dict[str, int] = {}
    for below in {name.rpartition("/")[0] for name in listed}:
        sizes = (directory / below if below else directory).sizes()
        present |= {f"{below}/{name}".lstrip("/"): size for name, size in sizes.items()}
    wrong = [name for name, size in listed.items() if present.get(name) != size]
    if wrong:
        raise OutputError(
            "The output does not match its manifest.",
            expected=f"{len(listed)} files with the sizes in {MANIFEST}",
            found=f"{len(wrong)} missing or of another size: " + ", ".join(wrong[:_FILES_SHOWN]),
            where=directory.url,
            hint=f"Restore them, or {how_to_redo(stage, directory, command)}.",
        )
