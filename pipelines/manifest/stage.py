"""The stages of a build: their records on disk, compared with a configuration and its inputs.

A stage's directory has `_plan.json` from its start to its end and `manifest.json`, written last,
once it is finished: when every file that it lists is present with its size, and after the names in
the directory are on the disk. Both record the canonical configuration and the inputs, so that the
output of another configuration is never mixed in. Beside configurations, names and sizes of inputs
are compared and, if this machine has recorded them, version tags. Only `run.json` depends on the
machine or the moment. A build that is killed between the manifest and its own end leaves scratch
files, which the next one removes.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final, Generic, Self, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from bpe_core.formats import TOKENIZER_FILES
from bpe_core.short_repr import short_repr
from pipelines.config.fingerprints import Difference, differences, fingerprint
from pipelines.config.values import is_url
from pipelines.console.units import format_bytes
from pipelines.errors import (
    DamagedOutputError,
    DifferentConfigurationError,
    InputError,
    OutputError,
    PipelineError,
    shortened,
)
from pipelines.manifest import generations
from pipelines.manifest.entries import TaskEntry
from pipelines.manifest.models import (
    FORMAT_VERSION,
    CountsManifest,
    ImportedManifest,
    Manifest,
    StageDirectory,
    SuperwordsManifest,
    TokenizerManifest,
    TokensManifest,
)
from pipelines.manifest.names import (
    COMMIT_FILE,
    ENTRIES,
    ENTRY_FILE,
    MANIFEST,
    PLAN,
    RUN,
    RUNS,
    STATISTICS_FILE,
)
from pipelines.manifest.notes import CommitNote
from pipelines.manifest.records import Record, first_problem, load_json, sealed
from pipelines.manifest.run_record import RunRecord, StagePlan
from pipelines.storage.directory import Directory
from pipelines.storage.filesystems import split_chain
from pipelines.storage.hub import is_repository
from pipelines.storage.parquet import is_of_a_build
from pipelines.tasks.plan import BY_TEXT, Plan, TaskRule
from pipelines.tokenizers.files import counts_fingerprint

_DIFFERENCES_SHOWN: Final = 12
_FILES_SHOWN: Final = 3
_FILES_LOOKED_AT: Final = 16
# A damaged record still has two of these keys; files of others with its name have none.
_MARKERS: Final = frozenset({"format", "configuration", "inputs"})
_DISCARDED: Final[Mapping[str, Any]] = {}  # the plan of a stage whose files were discarded

_M = TypeVar("_M", bound=Manifest)
_R = TypeVar("_R", bound=Record)


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[_M]):
    """A stage of a build.

    Attributes:
        name: in summaries and errors; also the name of its command.
        manifest: model of its manifest.
        may_grow: if inputs may be added to it when it is finished, as a further generation.
    """

    name: str
    manifest: type[_M]
    may_grow: bool = False

    @property
    def directory(self) -> StageDirectory:
        """The name of its directory in the output."""
        return self.manifest.directory_name


COUNT: Final = Stage(name="count", manifest=CountsManifest)
SUPERWORDS: Final = Stage(name="superwords", manifest=SuperwordsManifest)  # a part of training
TRAIN: Final = Stage(name="train", manifest=TokenizerManifest)
IMPORT: Final = Stage(name="import", manifest=ImportedManifest)
ENCODE: Final = Stage(name="encode", manifest=TokensManifest, may_grow=True)
STAGES: Final[tuple[Stage[Any], ...]] = (COUNT, TRAIN, ENCODE)


@short_repr
@dataclass(frozen=True, kw_only=True)
class Identity:
    """All that decides the bytes of a stage's output.

    Attributes:
        configuration: in canonical form, without the keys that have no influence.
        inputs: size of each input file, by its label.
        marks: version tag (ETag or modification time) of each input file, by its label.
        locations: path or URL of each input file, by its label.
    """

    configuration: Mapping[str, Any]
    inputs: Mapping[str, int]
    marks: Mapping[str, str]
    locations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, configuration: Mapping[str, Any], plan: Plan) -> Identity:
        """Return the identity of a stage with this configuration and the inputs of a plan."""
        return cls(
            configuration=configuration,
            inputs={file.label: file.size for file in plan.files},
            marks={file.label: file.version_tag for file in plan.files},
            locations={file.label: file.url for file in plan.files},
        )

    @property
    def configuration_fingerprint(self) -> str:
        """The fingerprint of the configuration alone."""
        return fingerprint(self.configuration)


def find_finished_manifest(
    stage: Stage[_M], directory: Directory, identity: Identity, *, command: str | None = None
) -> _M | None:
    """Return the manifest of a finished stage, or None if the stage is unfinished.

    Args:
        stage: the stage to look for.
        directory: directory of the stage.
        identity: required identity. A stage that may grow may have fewer inputs.
        command: command that the user ran, for hints; None for that of the stage.

    Raises:
        DifferentConfigurationError: the stage has another configuration or other inputs.
        OutputError: the directory has files that no build wrote, lacks files of the manifest, or
            has a damaged record.
    """
    manifest = load_manifest(stage, directory, command=command)
    if manifest is not None:
        may_grow = stage.may_grow
        _check_same(stage, directory, manifest, identity, may_grow=may_grow, command=command)
        _check_present(stage, directory, manifest, command)
        return manifest
    plan = load_plan(stage, directory, command=command)
    if plan is not None and is_bound(stage, directory, plan, identity):
        _check_same(stage, directory, plan, identity, may_grow=False, command=command)
    elif plan is None and PLAN not in directory.sizes():
        there = sorted(n for n in directory.sizes() if not n.startswith((".", "_")))
        if there:
            raise _unrecorded_files(stage, directory, there, command)
    return None


def is_bound(
    stage: Stage[_M], directory: Directory, plan: StagePlan | _M, identity: Identity
) -> bool:
    """Return True unless an unfinished stage may begin again with this other identity.

    It may if it has finished nothing. `plan` is what `load_plan` returned.
    """
    if not isinstance(plan, StagePlan) or has_finished_work(stage, directory):
        return True
    return not _differs(directory, plan, identity)


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
    stage: Stage[_M], directory: Directory, *, command: str | None = None
) -> _M | None:
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
    stage: Stage[_M], directory: Directory, *, command: str | None = None
) -> StagePlan | _M | None:
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
        if value == _DISCARDED:
            return None
        model = stage.manifest if "checksum" in value else StagePlan
        return model.model_validate_json(data)
    except ValidationError as error:
        problem = first_problem(error)
    except ValueError as error:
        problem = str(error)
    raise _invalid_record(stage, directory, PLAN, data, problem, command)


def load_declaration(stage: Stage[_M], directory: Directory) -> StagePlan | _M | None:
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
    _check_present(ENCODE, tokens, manifest)
    return manifest


def check_replayable(
    tokens: Directory, manifest: TokensManifest, configuration: Mapping[str, Any]
) -> None:
    """Check that a configuration is that of a dataset, apart from the policy on rejects.

    Raises:
        DifferentConfigurationError: it differs in other keys.
    """
    known = {source["name"] for source in manifest.configured_sources}
    now = generations.without_files(configuration, known)
    was = generations.without_files(manifest.configuration, known)
    changed = differences(generations.with_policy(was, generations.policy_of(now)), now)
    if not changed:
        return
    keys = sorted(
        f"{section}.{key}" for section, policy in generations.POLICY.items() for key in policy
    )
    raise DifferentConfigurationError(
        "Rejects are replayed into a dataset of another configuration; nothing was changed.",
        expected=f"differences in {', '.join(keys)} alone",
        found="these differences (there → now)\n    " + "\n    ".join(map(str, changed)),
        where=tokens.url,
        hint="Go back to the configuration of the dataset.",
    )


def begin_stage(
    directory: Directory,
    identity: Identity,
    limits: Mapping[str, Any] | None = None,
    tasks: int | None = None,
    commits: Mapping[str, str] | None = None,
    *,
    task_rule: TaskRule = BY_TEXT,
) -> None:
    """Record the identity of a stage before the stage writes anything.

    Args:
        directory: directory of the stage.
        identity: identity of the stage.
        limits: positions where limits of sources end, for `read_limits`; None without limits.
        tasks: number of its tasks, which is needed to discard files by their names; None if it has
            no tasks.
        commits: commits of the Hub's repositories that it reads, for `read_commits`.
        task_rule: rule by which its files are cut, for `read_task_rule`.
    """
    directory.create()
    plan = StagePlan(
        format=FORMAT_VERSION,
        configuration=dict(identity.configuration),
        inputs=dict(identity.inputs),
        marks=dict(identity.marks),
        limits=dict(limits or {}),
        tasks=tasks,
        commits=dict(commits or {}),
        task_rule=task_rule,
    )
    directory.write_json(PLAN, plan.to_json())


def read_number_of_tasks(counts: Directory) -> int | None:
    """Return the number of tasks that counting has recorded; None if it has not."""
    return next((f.tasks for f in _intact_records(COUNT, counts) if f.tasks is not None), None)


def read_limits(output: Directory) -> dict[str, Any]:
    """Return where the limits of sources end, as the stages of an output have recorded it."""
    limits: dict[str, Any] = {}
    for stage in (COUNT, ENCODE):
        limits.update(_binding_facts(stage, output / stage.directory, lambda found: found.limits))
    return limits


def read_commits(
    output: Directory, redone: Collection[Stage[Any]] = (), *, may_grow: bool = True
) -> dict[str, str]:
    """Return the commits that an unfinished build reads, by the URLs of repositories of the Hub.

    The inputs of a finished build may have grown, so it reads their branches again.

    Args:
        output: output of the build.
        redone: stages that will be discarded.
        may_grow: False for the commits that a finished build has read.
    """
    if may_grow and ENCODE not in redone and MANIFEST in (output / ENCODE.directory).sizes():
        return {}
    commits: dict[str, str] = {}
    stages: tuple[Stage[Any], ...] = (COUNT, ENCODE)
    for stage in (stage for stage in stages if stage not in redone):
        commits.update(_binding_facts(stage, output / stage.directory, lambda found: found.commits))
    return commits


def read_task_rule(output: Directory, redone: Collection[Stage[Any]] = ()) -> TaskRule:
    """Return the rule by which an unfinished stage cut its files; without such a stage, the newest.

    Args:
        output: output of the build.
        redone: stages that will be discarded.
    """
    stages: tuple[Stage[Any], ...] = (COUNT, ENCODE)
    for stage in (stage for stage in stages if stage not in redone):
        with suppress(PipelineError):
            plan = load_plan(stage, output / stage.directory)
            if isinstance(plan, StagePlan):
                return plan.task_rule
    return BY_TEXT


def read_number_of_shards(output: Directory) -> int | None:
    """Return the number of shards of the counts that an output has or begins; None without any."""
    stages: tuple[Stage[Any], ...] = (COUNT, TRAIN)
    for stage in stages:
        with suppress(PipelineError):
            directory = output / stage.directory
            found = load_declaration(stage, directory)
            if isinstance(found, StagePlan) and not has_finished_work(stage, directory):
                continue
            counts = {} if found is None else found.configuration.get("counts", {})
            if isinstance(counts.get("shards"), int):
                return int(counts["shards"])
    return None


def _binding_facts(
    stage: Stage[Any],
    directory: Directory,
    facts_of: Callable[[StagePlan | RunRecord], Mapping[str, Any]],
) -> dict[str, Any]:
    """Return facts from the records of a stage, but not of one that has finished nothing."""
    facts: dict[str, Any] = {}
    for found in _intact_records(stage, directory):
        # Few records have any. Only for these are the notes of workers listed.
        stated = facts_of(found)
        if stated and (not isinstance(found, StagePlan) or has_finished_work(stage, directory)):
            facts.update(stated)
    return facts


def _intact_records(stage: Stage[Any], directory: Directory) -> Iterator[StagePlan | RunRecord]:
    """Yield the records of a stage that tell facts which can be found out again."""
    with suppress(DamagedOutputError, DifferentConfigurationError):
        plan = load_plan(stage, directory)
        if isinstance(plan, StagePlan):
            yield plan
    with suppress(DamagedOutputError):
        run = RunRecord.load(directory)
        if run is not None:
            yield run


def finish_stage(
    stage: Stage[_M],
    directory: Directory,
    identity: Identity,
    manifest: _M,
    run: Mapping[str, Any],
) -> None:
    """Write `run.json`, then the manifest.

    Args:
        stage: the completed stage.
        directory: directory of the stage.
        identity: identity of the stage.
        manifest: manifest of the stage.
        run: additional content of `run.json`.

    Raises:
        OutputError: files of the manifest are missing.
    """
    system = os.uname()  # platform.platform() would start a process
    earlier = None
    with suppress(DamagedOutputError):
        earlier = RunRecord.load(directory)
    marks = {} if earlier is None else earlier.repaired_marks
    locations = {} if earlier is None else earlier.repaired_locations
    record = {
        **run,
        "repaired_marks": {**marks, **run.get("repaired_marks", {})},
        "repaired_locations": {
            **locations,
            **_without_credentials(run.get("repaired_locations", {})),
        },
        "stage": stage.directory,
        "manifest": manifest.checksum,
        "output": directory.url,
        "marks": identity.marks,
        "locations": _without_credentials(identity.locations),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "software": {
            "python": platform.python_version(),
            "apache-beam": version("apache-beam"),
            "pyarrow": f"{pa.cpp_build_info.version} {pa.cpp_build_info.package_kind}".strip(),
            "system": f"{system.sysname} {system.release} {system.machine}",
        },
    }
    directory.write_json(RUN, sealed(record))
    _check_present(stage, directory, manifest)
    # The manifest declares the stage finished: everything else must be on disk before it is.
    directory.sync()
    directory.write_json(MANIFEST, manifest.to_json())
    directory.sync()
    directory.remove(PLAN)
    directory.remove_leftovers()


def remove_remains(directory: Directory, may_remove: Callable[[], bool]) -> None:
    """Remove the files of a build that was killed after it wrote the manifest.

    Args:
        directory: directory of a finished stage.
        may_remove: function that is called if there are such files; it returns False if another
            build holds the lock.
    """
    if (PLAN in directory.sizes() or directory.leftovers()) and may_remove():
        directory.remove(PLAN)
        directory.remove_leftovers()


@dataclass(frozen=True, kw_only=True)
class Remains(Generic[_M]):
    """Record of a stage that is being discarded, which shows the files that belong to the stage.

    Attributes:
        declared: plan or manifest, or None if this version can read neither.
        is_recorded: True if there is a record, even a damaged one.
    """

    declared: StagePlan | _M | None
    is_recorded: bool

    @classmethod
    def load(cls, stage: Stage[_M], directory: Directory) -> Self:
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


def discard_stage(stage: Stage[_M], directory: Directory, ours: str) -> None:
    """Remove what builds wrote into a stage's directory, and nothing else.

    If this is interrupted, the remaining files still have a plan that declares their configuration,
    unless that was damaged before.

    Args:
        stage: stage to discard.
        directory: directory of the stage.
        ours: a regex that matches the names of the stage's files.
    """
    remains = Remains.load(stage, directory)
    names = remains.select(directory, ours)
    if not (remains.is_recorded or names):
        return
    if remains.declared is not None:
        directory.write_json(PLAN, remains.declared.to_json())
        directory.remove(MANIFEST)
    directory.remove_files([*names, RUN])
    directory.remove_leftovers()
    directory.write_json(PLAN, _DISCARDED)
    directory.remove(MANIFEST)


def _unrecorded_files(
    stage: Stage[_M], directory: Directory, names: Sequence[str], command: str | None
) -> OutputError:
    """Return the error for files in a directory without a record."""
    pattern = "|".join(map(re.escape, names[:_FILES_LOOKED_AT]))
    ours = Remains[_M](declared=None, is_recorded=False).select(directory, pattern)
    if not ours:
        return _foreign_files(directory, names)
    return OutputError(
        "The output directory has files of a build that left no record.",
        expected=f"{MANIFEST}, or {PLAN} of a build that was interrupted",
        found=", ".join(ours[:_FILES_SHOWN]),
        where=directory.url,
        hint=f"Restore {MANIFEST}, or {_how_to_redo(stage, directory, command)}.",
    )


def _invalid_record(
    stage: Stage[_M],
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
    redo = f"{_how_to_redo(stage, directory, command)}."
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


def _check_present(
    stage: Stage[_M], directory: Directory, manifest: _M, command: str | None = None
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
            hint=f"Restore them, or {_how_to_redo(stage, directory, command)}.",
        )


def _check_same(
    stage: Stage[_M],
    directory: Directory,
    found: StagePlan | _M,
    identity: Identity,
    *,
    may_grow: bool,
    command: str | None,
) -> None:
    inputs = found.input_sizes
    configuration = [str(d) for d in _changed_configuration(found, identity.configuration)]
    changed = list(_changed_inputs(directory, found, identity))
    added = [label for label in identity.inputs if label not in inputs]
    if added and (not configuration or _is_grown(found, identity.configuration)):
        configuration = []
        if may_grow and not changed:
            return
    if not (configuration or changed or added):
        return
    shown = sorted(
        [
            *changed,
            *(f'input {label}: not set → "{identity.inputs[label]} bytes"' for label in added),
        ]
    )
    differing = [*configuration, *shown]
    raise DifferentConfigurationError(
        "The output belongs to another configuration or other inputs; nothing was changed.",
        found="these differences (there → now)\n    "
        + shortened(differing, _DIFFERENCES_SHOWN, separator="\n    "),
        where=directory.url,
        hint=_choices_after_adding(directory)
        if added and not configuration and not changed and stage == COUNT
        else "Choose another output, go back to the old configuration and restore the inputs, or "
        f"{_how_to_redo(stage, directory, command)}.",
    )


def _differs(directory: Directory, found: StagePlan, identity: Identity) -> bool:
    return bool(
        found.inputs.keys() != identity.inputs.keys()
        or _changed_configuration(found, identity.configuration)
        or any(_changed_inputs(directory, found, identity))
    )


def _changed_configuration(
    found: StagePlan | Manifest, configuration: Mapping[str, Any]
) -> list[Difference]:
    """Return the differences from a stage's configuration, none if a generation of it has this one.

    A replay of rejects gives its generation a policy of its own.
    """
    replayed = generations.replay_policies(found) if isinstance(found, TokensManifest) else []
    there = found.configuration
    if any(not differences(generations.with_policy(there, p), configuration) for p in replayed):
        return []
    return differences(there, configuration)


def _is_grown(found: StagePlan | Manifest, configuration: Mapping[str, Any]) -> bool:
    """Return True if a configuration only adds sources and patterns of files."""
    if "input" not in found.configuration:
        return False
    known = [source["name"] for source in found.configuration["input"]]
    there = generations.without_files(found.configuration, known)
    return not _changed_configuration(
        found.model_copy(update={"configuration": there}),
        generations.without_files(configuration, known),
    )


def _changed_inputs(
    directory: Directory, found: StagePlan | Manifest, identity: Identity
) -> Iterator[str]:
    """Describe the inputs that are gone or that have changed."""
    return (text for _, text in _find_changed(directory, found, identity))


def _find_changed(
    directory: Directory, found: StagePlan | Manifest, identity: Identity
) -> Iterator[tuple[str, str]]:
    """Yield the label of each input that is gone or has changed, and a description."""
    run = RunRecord.load(directory)
    marks = {} if run is None else run.marks
    repaired_marks = {} if run is None else run.repaired_marks
    if isinstance(found, StagePlan) and found.marks:
        marks = found.marks
    for label, sizes in found.input_sizes.items():
        size, version_tag = identity.inputs.get(label), identity.marks.get(label)
        if size is None:
            yield label, f'input {label}: "{sizes[0]} bytes" → not set'
        elif size not in sizes:
            yield label, f'input {label}: "{sizes[0]} bytes" → "{size} bytes"'
        elif version_tag not in (
            *([marks.get(label, version_tag)] if size == sizes[0] else []),
            *([repaired_marks.get(label, version_tag)] if size in sizes[1:] else []),
        ):
            yield (
                label,
                f"input {label}: as large as before, but changed since "
                f"({marks.get(label)} → {version_tag})",
            )


def find_input_changes(
    directory: Directory, manifest: Manifest, identity: Identity
) -> tuple[list[str], list[str]]:
    """Return the labels of inputs to add to a finished stage and to remove; changed ones are both.

    Raises:
        DifferentConfigurationError: more than files of its sources and numbers of shards differ.
    """
    known = [source["name"] for source in manifest.configuration["input"]]
    was = generations.without_files(manifest.configuration, known)
    now = generations.without_files(identity.configuration, known)
    if len(identity.configuration["input"]) != len(known):
        now = {**now, "input": identity.configuration["input"]}
    counts = {**was["counts"], "shards": now["counts"]["shards"]}
    if changed := differences({**was, "counts": counts}, now):
        raise DifferentConfigurationError(
            "Only files can be updated; nothing was changed.",
            expected="differences in the files of the same sources alone",
            found="these differences (there → now)\n    "
            + shortened(list(map(str, changed)), _DIFFERENCES_SHOWN, separator="\n    "),
            where=directory.url,
            hint="Count again: `beam-bpe count CONFIG --restart`.",
        )
    removed = [label for label, _ in _find_changed(directory, manifest, identity)]
    there = manifest.input_sizes.keys() - set(removed)
    return [label for label in identity.inputs if label not in there], removed


def _without_credentials(locations: Mapping[str, str]) -> dict[str, str]:
    """Return the locations that cannot contain credentials."""
    return {label: url for label, url in locations.items() if not may_contain_credentials(url)}


def may_contain_credentials(url: str) -> bool:
    """Return True for URLs with a query or a user."""
    storage = split_chain(url)[-1]  # that of an archive, whose files have any names
    if is_repository(storage):  # @ is before the revision
        return False
    return is_url(storage) and ("?" in storage or "@" in storage)


def _choices_after_adding(counts: Directory) -> str:
    return (
        "Files were added, and the tokenizer is of the others. Choose:\n"
        "    to encode the added files alone, with the tokenizer that is there: "
        "`beam-bpe add CONFIG`;\n"
        "    to train with them: `beam-bpe count CONFIG --update`, which counts the added files "
        "alone,\n"
        "      then `beam-bpe train CONFIG --restart`;\n"
        "      if the tokenizer has the same ids then, `beam-bpe encode CONFIG` encodes the added "
        "files alone;\n"
        f"    to start again and encode everything{_removal(counts, STAGES)}: "
        "`beam-bpe build CONFIG --restart`."
    )


def _how_to_redo(stage: Stage[Any], directory: Directory, command: str | None) -> str:
    """Return the smallest commands that make a stage and those after it again.

    Args:
        stage: the stage; an import is a part of encoding, superwords are one of training.
        directory: its directory.
        command: command that the user ran, or None for that of the stage.
    """
    names = [known.name for known in STAGES]
    parts = {IMPORT.name: ENCODE.name, SUPERWORDS.name: TRAIN.name}
    first = names.index(parts.get(stage.name, stage.name))
    reached = ENCODE.name if command in ("build", "add") else command
    last = names.index(reached) if reached in names else first
    redone = STAGES[first : max(first, last) + 1]
    if command == "build" and first == 0:
        commands = ["build CONFIG --restart"]
    else:
        commands = [f"{redone[0].name} CONFIG --restart"]
        for later in redone[1:]:
            made = (_output_of(directory) / later.directory).sizes()
            commands.append(f"{later.name} CONFIG" + " --restart" * bool(made))
    kept = ["the counts", "the counts and the tokenizer"][first - 1] if first else ""
    there = first > 0 and (_output_of(directory) / COUNT.directory).exists()
    return (
        f"redo this stage{f' and keep {kept}' if there else ''}: "
        + ", then ".join(f"`beam-bpe {each}`" for each in commands)
        + _removal(directory, redone)
    )


def _removal(directory: Directory, stages: Sequence[Stage[Any]]) -> str:
    """Return the directories of stages with their sizes, as what will be removed; or nothing."""
    sizes = {
        stage.directory: sum((_output_of(directory) / stage.directory).sizes().values())
        for stage in stages
    }
    removed = [f"{name}/, {format_bytes(size)}" for name, size in sizes.items() if size]
    return f" (removes {'; '.join(removed)})" if removed else ""


def _output_of(directory: Directory) -> Directory:
    """Return the output that a stage's directory is in."""
    return replace(directory, url=directory.url.rpartition("/")[0])
