"""The stages of a build: what each records on disk, compared with a configuration and its inputs.

A stage's directory has `_plan.json` from its start to its end and `manifest.json`, written last,
once it is finished. Both record the canonical configuration and the inputs, so that the output of
another configuration is never mixed in. Only `run.json` depends on the machine or the moment.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

import pyarrow as pa

from pipelines.config.fingerprints import Difference, differences, fingerprint
from pipelines.errors import DifferentConfigurationError, InputError, OutputError
from pipelines.manifest import generations
from pipelines.manifest.models import FORMAT_VERSION, StageDirectory, sealed
from pipelines.storage.directory import Directory
from pipelines.tasks.plan import Plan
from pipelines.versions import deciding_versions

MANIFEST: Final = "manifest.json"
RUN: Final = "run.json"
_PLAN: Final = "_plan.json"
_DIFFERENCES_SHOWN: Final = 12
_FILES_SHOWN: Final = 3
_DISCARDED: Final[Mapping[str, Any]] = {}  # the plan of a stage whose files were discarded


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of a build.

    Attributes:
        name: in summaries and errors; also the name of its command.
        directory: name of its directory in the output.
        may_grow: if inputs may be added to it when it is finished, as a further generation.
    """

    name: str
    directory: StageDirectory
    may_grow: bool = False


COUNT: Final = Stage(name="count", directory="counts")
TRAIN: Final = Stage(name="train", directory="tokenizer")
ENCODE: Final = Stage(name="encode", directory="tokens", may_grow=True)
STAGES: Final = (COUNT, TRAIN, ENCODE)


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
            marks={file.label: file.mark for file in plan.files},
            locations={file.label: file.url for file in plan.files},
        )

    @property
    def configuration_fingerprint(self) -> str:
        """The fingerprint of the configuration alone."""
        return fingerprint(self.configuration)


def find_finished_manifest(
    stage: Stage, directory: Directory, identity: Identity, *, command: str | None = None
) -> dict[str, Any] | None:
    """Return the manifest of a finished stage, or None if the stage is unfinished.

    Args:
        stage: to look for.
        directory: of the stage.
        identity: that the stage must have. A stage that may grow may have fewer inputs.
        command: that the user ran, for hints; None: that of the stage.

    Raises:
        DifferentConfigurationError: the stage has another configuration or other inputs.
        OutputError: the directory has files that no build wrote, or lacks files of the manifest.
    """
    manifest = directory.read_json(MANIFEST)
    found = directory.read_json(_PLAN) if manifest is None else manifest
    if found is None:
        foreign = [name for name in directory.sizes() if not name.startswith((".", "_"))]
        if foreign:
            raise _foreign_files(directory, foreign)
        return None
    if manifest is None and found == _DISCARDED:
        return None
    if not {"configuration", "inputs"} <= found.keys():
        raise _foreign_files(directory, [_PLAN if manifest is None else MANIFEST])
    _check_format(stage, directory, found, command)
    may_grow = stage.may_grow and manifest is not None
    _check_same(stage, directory, found, identity, may_grow=may_grow, command=command)
    if manifest is not None:
        _check_present(stage, directory, manifest, command)
    return manifest


def read_declaration(directory: Directory) -> dict[str, Any]:
    """Return the plan of an unfinished stage or the manifest of a finished one; {} if not begun."""
    return directory.read_json(_PLAN) or directory.read_json(MANIFEST) or {}


def find_dataset(tokens: Directory) -> dict[str, Any] | None:
    """Return the manifest of finished token files as it is on disk, or None if there is none."""
    manifest = tokens.read_json(MANIFEST)
    return manifest if manifest is not None and "generations" in manifest else None


def read_dataset_manifest(tokens: Directory) -> dict[str, Any]:
    """Return the manifest of finished token files, whatever their configuration.

    Raises:
        InputError: the token files are unfinished.
        OutputError: files are missing.
    """
    manifest = tokens.read_json(MANIFEST)
    if manifest is None:
        raise InputError(
            "There are no finished token files.",
            expected=MANIFEST,
            where=tokens.url,
            hint="Finish them: `beam-bpe encode CONFIG`.",
        )
    _check_format(ENCODE, tokens, manifest)
    _check_present(ENCODE, tokens, manifest)
    return manifest


def check_replayable(
    tokens: Directory, manifest: Mapping[str, Any], configuration: Mapping[str, Any]
) -> None:
    """Check that a configuration is that of a dataset, apart from the policy on rejects.

    Raises:
        DifferentConfigurationError: it differs in other keys.
    """
    known = {source["name"] for source in manifest["configuration"]["input"]}
    now = generations.without_files(configuration, known)
    was = generations.without_files(manifest["configuration"], known)
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
) -> None:
    """Record what a stage is about to make, before it makes anything.

    Args:
        directory: of the stage.
        identity: of the stage.
        limits: where the limits of sources end, for `read_limits`; None: it has no limits.
        tasks: number of its tasks, which names its files when they are discarded; None: it has no
            tasks.
    """
    directory.create()
    directory.write_json(
        _PLAN,
        {
            "format": FORMAT_VERSION,
            "configuration": identity.configuration,
            "inputs": identity.inputs,
            "marks": identity.marks,
            "limits": limits or {},
            "tasks": tasks,
        },
    )


def read_number_of_tasks(directory: Directory) -> int | None:
    """Return the number of tasks that a stage has recorded; None if it has not."""
    for name in (_PLAN, RUN):
        tasks = (directory.read_json(name) or {}).get("tasks")
        if isinstance(tasks, int):
            return tasks
    return None


def read_limits(directories: Sequence[Directory]) -> dict[str, Any]:
    """Return where the limits of sources end, as stages in these directories have recorded it."""
    found: dict[str, Any] = {}
    for directory in directories:
        for name in (_PLAN, RUN):
            limits = (directory.read_json(name) or {}).get("limits", {})
            found.update(limits if isinstance(limits, dict) else {})
    return found


def finish_stage(
    stage: Stage,
    directory: Directory,
    identity: Identity,
    content: Mapping[str, Any],
    run: Mapping[str, Any],
) -> dict[str, Any]:
    """Write `run.json`, then the manifest; return the manifest.

    Args:
        stage: that is complete.
        directory: of the stage.
        identity: of the stage.
        content: of the manifest, besides what every manifest has; its keys win.
        run: of `run.json`, besides what every one has.

    Raises:
        OutputError: files of the manifest are missing.
    """
    manifest = sealed(
        {
            "format": FORMAT_VERSION,
            "stage": stage.directory,
            "configuration": identity.configuration,
            "configuration_fingerprint": identity.configuration_fingerprint,
            "inputs": identity.inputs,
            "software": dict(deciding_versions()),
            **content,
        }
    )
    system = os.uname()  # platform.platform() would start a process
    earlier = directory.read_json(RUN) or {}
    record = {
        **run,
        "repaired_marks": {**earlier.get("repaired_marks", {}), **run.get("repaired_marks", {})},
        "repaired_locations": {
            **earlier.get("repaired_locations", {}),
            **_without_credentials(run.get("repaired_locations", {})),
        },
        "stage": stage.directory,
        "manifest": manifest["checksum"],
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
    directory.settle()
    directory.write_json(MANIFEST, manifest)
    directory.settle()
    directory.remove(_PLAN)
    directory.remove_leftovers()
    return manifest


def remove_remains(directory: Directory, may_remove: Callable[[], bool]) -> None:
    """Remove the files of a build that was killed after it wrote the manifest.

    Args:
        directory: of a finished stage.
        may_remove: called if there are such files; returns False if another build is at work.
    """
    if (_PLAN in directory.sizes() or directory.leftovers()) and may_remove():
        directory.remove(_PLAN)
        directory.remove_leftovers()


def discard_stage(directory: Directory, ours: str) -> None:
    """Remove what builds wrote into a stage's directory, and nothing else.

    Nothing is removed from a directory without a plan or a manifest. If this is interrupted, the
    remaining files still have a plan that declares their configuration.

    Args:
        directory: of the stage.
        ours: a regex that matches the names of the stage's files.
    """
    begun = directory.read_json(_PLAN)
    found = begun if begun is not None else directory.read_json(MANIFEST)
    if found is None:
        return
    if begun is None:
        directory.write_json(_PLAN, found)
    directory.remove(MANIFEST)
    directory.remove_files(
        [name for name in directory.sizes() if name == RUN or re.fullmatch(ours, name)]
    )
    directory.remove_leftovers()
    directory.write_json(_PLAN, _DISCARDED)


def _foreign_files(directory: Directory, names: Sequence[str]) -> OutputError:
    return OutputError(
        "The output directory has files that no build of this tool wrote.",
        expected="an empty directory, or one with the manifest.json or _plan.json of a build",
        found=", ".join(sorted(names)[:_FILES_SHOWN]),
        where=directory.url,
        hint="Choose another output, or remove them.",
    )


def _check_present(
    stage: Stage, directory: Directory, manifest: Mapping[str, Any], command: str | None = None
) -> None:
    """Check that every file of the manifest is in the directory and has its size."""
    files = manifest.get("files", ())
    if isinstance(files, Mapping):  # of token files; their rejects are in another directory
        files = [file for split in ("train", "validation") for file in files[split]]
    listed = [*manifest.get("shards", ()), *files]
    present = directory.sizes() if listed else {}
    wrong = [file["name"] for file in listed if present.get(file["name"]) != file["bytes"]]
    if wrong:
        raise OutputError(
            "The output is not as its manifest says.",
            expected=f"{len(listed)} files with the sizes in {MANIFEST}",
            found=f"{len(wrong)} missing or of another size: " + ", ".join(wrong[:_FILES_SHOWN]),
            where=directory.url,
            hint=f"Restore them, or redo this stage: {_restart_commands(stage, command)}.",
        )


def _check_format(
    stage: Stage, directory: Directory, found: Mapping[str, Any], command: str | None = None
) -> None:
    if found.get("format") == FORMAT_VERSION:
        return
    raise DifferentConfigurationError(
        "The output was made by another version of this tool; nothing was changed.",
        expected=f"format {FORMAT_VERSION}",
        found=f"format {found.get('format', 1)}",
        where=directory.url,
        hint=f"Choose another output, or redo this stage: {_restart_commands(stage, command)}.",
    )


def _check_same(
    stage: Stage,
    directory: Directory,
    found: Mapping[str, Any],
    identity: Identity,
    *,
    may_grow: bool,
    command: str | None,
) -> None:
    inputs = index_inputs(found)
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
    more = len(differing) - _DIFFERENCES_SHOWN
    raise DifferentConfigurationError(
        "The output belongs to another configuration or other inputs; nothing was changed.",
        found="these differences (there → now)\n    "
        + "\n    ".join(differing[:_DIFFERENCES_SHOWN])
        + (f"\n    and {more} more" if more > 0 else ""),
        where=directory.url,
        hint=_choices_after_adding(directory)
        if added and not configuration and not changed and stage == COUNT
        else "Choose another output, go back to the old configuration and restore the inputs, or "
        f"redo this stage: {_restart_commands(stage, command)}.",
    )


def index_inputs(found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the inputs in a manifest or plan by label, each with its `size`."""
    inputs = found["inputs"]
    if isinstance(inputs, Mapping):
        return {label: {"size": size} for label, size in inputs.items()}
    return {file["name"]: file for file in inputs}


def _changed_configuration(
    found: Mapping[str, Any], configuration: Mapping[str, Any]
) -> list[Difference]:
    """Return the differences from a stage's configuration, none if a generation of it has this one.

    A replay of rejects gives its generation a policy of its own.
    """
    there = found["configuration"]
    changed = differences(there, configuration)
    replayed = [] if "generations" not in found else generations.policies(found)[1:]
    if any(not differences(generations.with_policy(there, p), configuration) for p in replayed):
        return []
    return changed


def _is_grown(found: Mapping[str, Any], configuration: Mapping[str, Any]) -> bool:
    """Return True if a configuration only adds sources and patterns of files."""
    known = [source["name"] for source in found["configuration"]["input"]]
    return not _changed_configuration(
        {**found, "configuration": generations.without_files(found["configuration"], known)},
        generations.without_files(configuration, known),
    )


def _changed_inputs(
    directory: Directory, found: Mapping[str, Any], identity: Identity
) -> Iterator[str]:
    """Yield the inputs that are gone or that have changed."""
    run = directory.read_json(RUN) or {}
    marks = found.get("marks") or run.get("marks", {})
    for label, file in index_inputs(found).items():
        size, mark = identity.inputs.get(label), identity.marks.get(label)
        was, repaired = file["size"], file.get("repaired", {}).get("size")
        if size is None:
            yield f'input {label}: "{was} bytes" → not set'
        elif size not in (was, repaired):
            yield f'input {label}: "{was} bytes" → "{size} bytes"'
        elif mark not in (
            *([marks.get(label, mark)] if size == was else []),
            *([run.get("repaired_marks", {}).get(label, mark)] if size == repaired else []),
        ):
            yield (
                f"input {label}: as large as before, but changed since "
                f"({marks.get(label)} → {mark})"
            )


def _choices_after_adding(counts: Directory) -> str:
    tokenizer = f"{counts.url.removesuffix(COUNT.directory)}{TRAIN.directory}"
    return (
        "Files were added, and the tokenizer is of the others. Choose:\n"
        "    to encode the added files alone, with the tokenizer that is there:\n"
        f"      `beam-bpe encode CONFIG --set tokenizer.path={tokenizer}`;\n"
        "    to count and train with them: `beam-bpe count CONFIG --restart`, then `beam-bpe train "
        "CONFIG --restart`;\n"
        "      if the tokenizer has the same ids then, `beam-bpe encode CONFIG` encodes the added "
        "files alone;\n"
        "    to start again and encode everything: `beam-bpe build CONFIG --restart`."
    )


def _without_credentials(locations: Mapping[str, str]) -> dict[str, str]:
    """Return the locations that can't contain credentials."""
    return {
        label: url
        for label, url in locations.items()
        if "://" not in url or not ("?" in url or "@" in url)
    }


def _restart_commands(stage: Stage, command: str | None) -> str:
    """Return the commands that make a stage again, and those after it up to a command."""
    names = [stage.name for stage in STAGES]
    first = names.index(stage.name)
    last = names.index(command) if command in names else first
    again = ["build"] if command == "build" else names[first : max(first, last) + 1]
    return ", then ".join(f"`beam-bpe {name} CONFIG --restart`" for name in again)
