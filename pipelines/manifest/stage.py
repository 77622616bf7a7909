"""What was built from what: the files that say so, and holding them against a configuration.

A stage's directory has `_plan.json` from its beginning to its end, and `manifest.json`, written
last, when it is finished. Both state the canonical configuration and the inputs, so another
configuration never mixes with what is there. What depends on machine or moment is in `run.json`
alone.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from pipelines.config.fingerprints import Difference, differences, fingerprint
from pipelines.config.values import is_url
from pipelines.errors import (
    DamagedOutputError,
    DifferentConfigurationError,
    InputError,
    OutputError,
)
from pipelines.manifest import generations
from pipelines.manifest.models import FORMAT_VERSION, sealed
from pipelines.manifest.records import (
    MANIFEST,
    PLAN,
    RUN,
    find_plan,
    find_run,
    is_foreign,
    read_manifest,
    read_plan,
    read_run,
)
from pipelines.storage.directory import Directory
from pipelines.storage.filesystems import split_chain
from pipelines.storage.parquet import is_of_a_build
from pipelines.tasks.plan import Plan
from pipelines.versions import deciding_versions

_DIFFERENCES_SHOWN = 12
_FILES_SHOWN = 3
_FILES_LOOKED_AT = 16
_NOTHING: dict[str, Any] = {}  # the plan of a directory whose files were discarded


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What decides the bytes of a stage's output.

    Attributes:
        configuration: canonical: without what has no influence.
        inputs: source, name and size of each input file, by its label.
        marks: what changes with an input file, by its label; of this machine.
        locations: path or URL of each input file, by its label.
    """

    configuration: Mapping[str, Any]
    inputs: Mapping[str, int]
    marks: Mapping[str, str]
    locations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, configuration: Mapping[str, Any], plan: Plan) -> Identity:
        """The identity of a stage over the inputs of a plan."""
        return cls(
            configuration=configuration,
            inputs={file.label: file.size for file in plan.files},
            marks={file.label: file.mark for file in plan.files},
            locations={file.label: file.url for file in plan.files},
        )

    @property
    def configuration_fingerprint(self) -> str:
        """Of the configuration alone."""
        return fingerprint(self.configuration)


def finished_manifest(
    directory: Directory,
    identity: Identity,
    *,
    may_grow: bool = False,
    command: str | None = None,
) -> dict[str, Any] | None:
    """The manifest of a finished stage; None if it is not finished, or not begun.

    Args:
        directory: of the stage.
        identity: of what is to be there.
        may_grow: there may be further inputs than those of the manifest, also of further sources.
        command: that was asked for, of which the hints are; None: that of the stage.

    Raises:
        DifferentConfigurationError: what is there is of another configuration or other inputs.
        OutputError: there are files that no build wrote.
    """
    manifest = read_manifest(directory)
    found = read_plan(directory) if manifest is None else manifest
    if found is None:
        there = sorted(n for n in directory.sizes() if not n.startswith((".", "_")))
        if there:
            raise _unrecorded_files(directory, there, _restart(directory, command))
        return None
    if manifest is None and found == _NOTHING:
        return None
    if is_foreign(found):
        raise _foreign_files(directory, [PLAN if manifest is None else MANIFEST])
    restart = _restart(directory, command)
    _check_format(directory, found, restart)
    _check_same(
        directory, found, identity, may_grow=may_grow and manifest is not None, restart=restart
    )
    if manifest is not None:
        _check_present(directory, manifest, restart)
    return manifest


def stated(directory: Directory) -> dict[str, Any]:
    """What is said of what is in a stage's directory, begun or finished; empty if nothing is."""
    return read_plan(directory) or read_manifest(directory) or {}


def stated_configuration(directory: Directory) -> dict[str, Any]:
    """The configuration of what is in a stage's directory, finished or begun; empty if none."""
    found = read_manifest(directory) or read_plan(directory) or {}
    return dict(found.get("configuration", {}))


def dataset_manifest(directory: Directory) -> dict[str, Any]:
    """The manifest of finished token files, whatever configuration they are of.

    Raises:
        InputError: they are not finished.
        OutputError: files are missing.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        raise InputError(
            "There are no finished token files.",
            expected=MANIFEST,
            where=directory.url,
            hint="Finish them: `beam-bpe encode CONFIG`.",
        )
    _check_format(directory, manifest, _restart(directory))
    _check_present(directory, manifest, _restart(directory))
    return manifest


def check_replayable(
    directory: Directory, found: Mapping[str, Any], configuration: Mapping[str, Any]
) -> None:
    """Checks that a configuration is that of a dataset but for what decides about rejects.

    Raises:
        DifferentConfigurationError: it is not.
    """
    known = {source["name"] for source in found["configuration"]["input"]}
    now = generations.without_files(configuration, known)
    was = generations.without_files(found["configuration"], known)
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
        where=directory.url,
        hint="Go back to the configuration of the dataset.",
    )


def begin_stage(
    directory: Directory,
    identity: Identity,
    limits: Mapping[str, Any] = _NOTHING,
    tasks: int | None = None,
) -> None:
    """States what the stage is about to make, before it makes anything.

    `limits` says where the limits of sources were found to end; see `kept_limits`. From the number
    of tasks follow the names of files, by which they are known when they are discarded.
    """
    directory.create()
    directory.write_json(
        PLAN,
        {
            "format": FORMAT_VERSION,
            "configuration": identity.configuration,
            "inputs": identity.inputs,
            "marks": identity.marks,
            "limits": limits,
            "tasks": tasks,
        },
    )


def tasks_of(directory: Directory) -> int | None:
    """The number of tasks of a stage that was begun or counted; None if nothing says it."""
    for found in (find_plan(directory), find_run(directory)):
        tasks = found.get("tasks")
        if isinstance(tasks, int):
            return tasks
    return None


def kept_limits(directories: Sequence[Directory]) -> dict[str, Any]:
    """What stages, begun or finished, have kept of where the limits of sources end."""
    kept: dict[str, Any] = {}
    for directory in directories:
        for found in (find_plan(directory), find_run(directory)):
            limits = found.get("limits", {})
            kept.update(limits if isinstance(limits, dict) else {})
    return kept


def finish_stage(
    directory: Directory, identity: Identity, content: Mapping[str, Any], run: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes `run.json` and then the manifest; gives the manifest."""
    manifest = sealed(
        {
            "format": FORMAT_VERSION,
            "configuration": identity.configuration,
            "configuration_fingerprint": identity.configuration_fingerprint,
            "inputs": identity.inputs,
            "software": dict(deciding_versions()),
            **content,
        }
    )
    system = os.uname()  # platform.platform() would start a process
    earlier = find_run(directory)
    record = {
        **run,
        "repaired_marks": {**earlier.get("repaired_marks", {}), **run.get("repaired_marks", {})},
        "repaired_locations": {
            **earlier.get("repaired_locations", {}),
            **_public(run.get("repaired_locations", {})),
        },
        "stage": manifest.get("stage"),
        "manifest": manifest["checksum"],
        "output": directory.url,
        "marks": identity.marks,
        "locations": _public(identity.locations),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "software": {
            "python": platform.python_version(),
            "apache-beam": version("apache-beam"),
            "pyarrow": f"{pa.cpp_build_info.version} {pa.cpp_build_info.package_kind}".strip(),
            "system": f"{system.sysname} {system.release} {system.machine}",
        },
    }
    directory.write_json(RUN, sealed(record))
    _check_present(directory, manifest, _restart(directory))
    directory.settle()
    directory.write_json(MANIFEST, manifest)
    directory.settle()
    directory.remove(PLAN)
    directory.remove_leftovers()
    return manifest


def remove_remains(directory: Directory, may_remove: Callable[[], bool]) -> None:
    """Removes what a build left that was killed after it wrote the manifest.

    Args:
        directory: of a finished stage.
        may_remove: asked if there is anything: whether no other build is at work.
    """
    if (PLAN in directory.sizes() or directory.leftovers()) and may_remove():
        directory.remove(PLAN)
        directory.remove_leftovers()


def read_for_discarding(directory: Directory) -> dict[str, Any] | None:
    """Return the plan or manifest of a stage that is to be discarded; None if it has neither.

    A record that is damaged, or of another version, is {}: it does not tell which files are ours.

    Raises:
        OutputError: there is a file of somebody else with its name.
    """
    try:
        begun = read_plan(directory)
        found = begun or read_manifest(directory)
    except DamagedOutputError:
        return {}
    if found is None:
        return begun
    if is_foreign(found):
        raise _foreign_files(directory, [MANIFEST if begun is None else PLAN])
    return found if found.get("format") == FORMAT_VERSION else {}


def files_of_builds(directory: Directory, ours: str, found: Mapping[str, Any] | None) -> list[str]:
    """Return the names of files in a directory that builds wrote.

    Args:
        directory: of a stage, or of rejects.
        ours: a regex that matches the names of the stage's files.
        found: what `read_for_discarding` returned. If it does not tell which files are ours,
            Parquet files say so themselves; others are ours if there was a record.
    """
    names = [name for name in directory.sizes() if re.fullmatch(ours, name)]
    if found:
        return names
    is_trained = found is not None or _was_trained(directory)
    return [
        name
        for name in names
        if (is_of_a_build(directory, name) if name.endswith(".parquet") else is_trained)
    ]


def _was_trained(directory: Directory) -> bool:
    """Return whether a build trained the tokenizer in a directory."""
    from pipelines.tokenizers.files import counts_fingerprint  # slow to import, and rarely needed

    try:
        return counts_fingerprint(directory) is not None
    except DamagedOutputError:
        return False


def discard_stage(directory: Directory, ours: str) -> None:
    """Remove what builds wrote into a stage's directory, and nothing else.

    When this is interrupted, what is left still says which build it is of.

    Args:
        directory: of the stage.
        ours: a regex that matches the names of the stage's files.
    """
    found = read_for_discarding(directory)
    names = files_of_builds(directory, ours, found)
    if found is None and not names:
        return
    if found:
        directory.write_json(PLAN, found)
        directory.remove(MANIFEST)
    directory.remove_files([*names, RUN])
    directory.remove_leftovers()
    directory.write_json(PLAN, _NOTHING)
    directory.remove(MANIFEST)


def _unrecorded_files(directory: Directory, names: Sequence[str], restart: str) -> OutputError:
    """Return the error for files without the record of a build."""
    ours = files_of_builds(directory, "|".join(map(re.escape, names[:_FILES_LOOKED_AT])), None)
    if not ours:
        return _foreign_files(directory, names)
    return OutputError(
        "The output directory has files of a build, and nothing says of which.",
        expected=f"{MANIFEST}, or {PLAN} of a build that was interrupted",
        found=", ".join(ours[:_FILES_SHOWN]),
        where=directory.url,
        hint=f"Restore {MANIFEST}, or make this stage anew: {restart}.",
    )


def _foreign_files(directory: Directory, names: Sequence[str]) -> OutputError:
    return OutputError(
        "The output directory has files that no build of this tool wrote.",
        expected="an empty directory, or one with the manifest.json or _plan.json of a build",
        found=", ".join(sorted(names)[:_FILES_SHOWN]),
        where=directory.url,
        hint="Choose another output, or remove them.",
    )


def _check_present(directory: Directory, manifest: Mapping[str, Any], restart: str) -> None:
    """All files that the manifest lists must be there with their sizes."""
    files = manifest.get("files", ())
    if isinstance(files, Mapping):  # those of encoding; rejects are in another directory
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
            hint=f"Restore them, or make them anew: {restart}.",
        )


def _check_format(directory: Directory, found: Mapping[str, Any], restart: str) -> None:
    if found.get("format") == FORMAT_VERSION:
        return
    raise DifferentConfigurationError(
        "The output was made by another version of this tool; nothing was changed.",
        expected=f"format {FORMAT_VERSION}",
        found=f"format {found.get('format', 1)}",
        where=directory.url,
        hint=f"Choose another output, or make this stage anew: {restart}.",
    )


def _check_same(
    directory: Directory,
    found: Mapping[str, Any],
    identity: Identity,
    *,
    may_grow: bool,
    restart: str,
) -> None:
    inputs = inputs_of(found)
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
        hint=_after_adding(directory)
        if added and not configuration and not changed and _is_counted(directory)
        else "Choose another output, go back to the old configuration and restore the inputs, or "
        f"make this stage anew: {restart}.",
    )


def inputs_of(found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The inputs that a manifest or a plan states, by label, each with its `size`."""
    inputs = found["inputs"]
    if isinstance(inputs, Mapping):
        return {label: {"size": size} for label, size in inputs.items()}
    return {file["name"]: file for file in inputs}


def _changed_configuration(
    found: Mapping[str, Any], configuration: Mapping[str, Any]
) -> list[Difference]:
    """None if it is that of any generation: rejects may have been replayed by another policy."""
    there = found["configuration"]
    changed = differences(there, configuration)
    replayed = [] if "generations" not in found else generations.policies(found)[1:]
    if any(not differences(generations.with_policy(there, p), configuration) for p in replayed):
        return []
    return changed


def _is_grown(found: Mapping[str, Any], configuration: Mapping[str, Any]) -> bool:
    """Whether only patterns of files and sources were added."""
    known = [source["name"] for source in found["configuration"]["input"]]
    return not _changed_configuration(
        {**found, "configuration": generations.without_files(found["configuration"], known)},
        generations.without_files(configuration, known),
    )


def _changed_inputs(
    directory: Directory, found: Mapping[str, Any], identity: Identity
) -> Iterator[str]:
    """The inputs that are not there any more, or not as they were."""
    run = read_run(directory)
    marks = found.get("marks") or run.get("marks", {})
    for label, file in inputs_of(found).items():
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


def _is_counted(directory: Directory) -> bool:
    return directory.url.rpartition("/")[2] == "counts"


def _after_adding(directory: Directory) -> str:
    tokenizer = f"{directory.url.rpartition('/')[0]}/tokenizer"
    return (
        "Files were added, and the tokenizer is of the others. Choose:\n"
        "    to encode the added files alone, with the tokenizer that is there:\n"
        f"      `beam-bpe encode CONFIG --set tokenizer.path={tokenizer}`;\n"
        "    to count and train with them: `beam-bpe count CONFIG --restart`, then `beam-bpe train "
        "CONFIG --restart`;\n"
        "      if the tokenizer has the same ids then, `beam-bpe encode CONFIG` encodes the added "
        "files alone;\n"
        "    to begin anew and encode all: `beam-bpe build CONFIG --restart`."
    )


def _public(locations: Mapping[str, str]) -> dict[str, str]:
    return {label: url for label, url in locations.items() if _is_public(url)}


def _is_public(url: str) -> bool:
    """Return whether a path or URL has no place in which credentials could stand."""
    url = split_chain(url)[-1]
    return not is_url(url) or not ("?" in url or "@" in url)


def _restart(directory: Directory, command: str | None = None) -> str:
    """The commands that make a stage anew, and those after it up to what was asked for."""
    stages = ("count", "train", "encode")
    first = {"counts": 0, "tokenizer": 1}.get(directory.url.rpartition("/")[2], 2)
    last = stages.index(command) if command in stages else first
    names = ("build",) if command == "build" else stages[first : max(first, last) + 1]
    return ", then ".join(f"`beam-bpe {name} CONFIG --restart`" for name in names)
