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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import regex

from bpe_core.patterns import UNICODE_VERSION
from pipelines.errors import DifferentConfigurationError, OutputError
from pipelines.identity import differences, fingerprint
from pipelines.storage import Directory
from pipelines.tasks import Plan

MANIFEST = "manifest.json"
RUN = "run.json"
_PLAN = "_plan.json"
FORMAT_VERSION = 2
_DIFFERENCES_SHOWN = 12
_FILES_SHOWN = 3
_NOTHING: dict[str, Any] = {}  # the plan of a directory whose files were discarded


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What decides the bytes of a stage's output.

    Attributes:
        configuration: canonical: without what has no influence.
        inputs: source, name and size of each input file, by its label.
        marks: what changes with an input file, by its label; of this machine.
    """

    configuration: Mapping[str, Any]
    inputs: Mapping[str, int]
    marks: Mapping[str, str]

    @classmethod
    def of(cls, configuration: Mapping[str, Any], plan: Plan) -> Identity:
        """The identity of a stage over the inputs of a plan."""
        return cls(
            configuration=configuration,
            inputs={file.label: file.size for file in plan.files},
            marks={file.label: file.mark for file in plan.files},
        )

    @property
    def configuration_fingerprint(self) -> str:
        """Of the configuration alone."""
        return fingerprint(self.configuration)


def finished_manifest(directory: Directory, identity: Identity) -> dict[str, Any] | None:
    """The manifest of a finished stage; None if it is not finished, or not begun.

    Raises:
        DifferentConfigurationError: what is there is of another configuration or other inputs.
        OutputError: there are files that no build wrote.
    """
    manifest = directory.read_json(MANIFEST)
    found = directory.read_json(_PLAN) if manifest is None else manifest
    if found is None:
        foreign = [name for name in directory.sizes() if not name.startswith((".", "_"))]
        if foreign:
            raise _foreign_files(directory, foreign)
        return None
    if manifest is None and found == _NOTHING:
        return None
    if not {"configuration", "inputs"} <= found.keys():
        raise _foreign_files(directory, [_PLAN if manifest is None else MANIFEST])
    _check_format(directory, found)
    _check_same(directory, found, identity)
    if manifest is not None:
        _check_present(directory, manifest)
    return manifest


def begin_stage(
    directory: Directory, identity: Identity, limits: Mapping[str, Any] = _NOTHING
) -> None:
    """States what the stage is about to make, before it makes anything.

    `limits` says where the limits of sources were found to end; see `kept_limits`.
    """
    directory.create()
    directory.write_json(
        _PLAN,
        {
            "format": FORMAT_VERSION,
            "configuration": identity.configuration,
            "inputs": identity.inputs,
            "marks": identity.marks,
            "limits": limits,
        },
    )


def kept_limits(directories: Sequence[Directory]) -> dict[str, Any]:
    """What stages, begun or finished, have kept of where the limits of sources end."""
    kept: dict[str, Any] = {}
    for directory in directories:
        for name in (_PLAN, RUN):
            limits = (directory.read_json(name) or {}).get("limits", {})
            kept.update(limits if isinstance(limits, dict) else {})
    return kept


def finish_stage(
    directory: Directory, identity: Identity, content: Mapping[str, Any], run: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes `run.json` and then the manifest; gives the manifest."""
    system = os.uname()  # platform.platform() would start a process
    directory.write_json(
        RUN,
        {
            **run,
            "output": directory.url,
            "marks": identity.marks,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "software": {
                "python": platform.python_version(),
                "apache-beam": version("apache-beam"),
                "system": f"{system.sysname} {system.release} {system.machine}",
            },
        },
    )
    manifest = {
        "format": FORMAT_VERSION,
        "configuration": identity.configuration,
        "configuration_fingerprint": identity.configuration_fingerprint,
        "inputs": identity.inputs,
        "software": {
            "bpe-beam": version("bpe-beam"),
            "pyarrow": pa.__version__,
            "unicode": UNICODE_VERSION,
            "regex": regex.__version__,
        },
        **content,
    }
    directory.write_json(MANIFEST, manifest)
    directory.remove(_PLAN)
    directory.remove_leftovers()
    return manifest


def discard_stage(directory: Directory, ours: str, scratch: str | None = None) -> None:
    """Removes what builds wrote into a stage's directory, and nothing else.

    Nothing is removed where no build has been. When this is interrupted, what is left still says
    which build it is of.

    Args:
        directory: of the stage.
        ours: a regex that matches the names of the stage's files.
        scratch: its subdirectory that is all ours.
    """
    begun = directory.read_json(_PLAN)
    found = begun if begun is not None else directory.read_json(MANIFEST)
    if found is None:
        return
    if begun is None:
        directory.write_json(_PLAN, found)
    directory.remove(MANIFEST)
    if scratch is not None:
        (directory / scratch).remove_all()
    directory.remove_files(
        [name for name in directory.sizes() if name == RUN or re.fullmatch(ours, name)]
    )
    directory.remove_leftovers()
    directory.write_json(_PLAN, _NOTHING)


def _foreign_files(directory: Directory, names: Sequence[str]) -> OutputError:
    return OutputError(
        "The output directory has files that no build of this tool wrote.",
        expected="an empty directory, or one with the manifest.json or _plan.json of a build",
        found=", ".join(sorted(names)[:_FILES_SHOWN]),
        where=directory.url,
        hint="Choose another output, or remove them.",
    )


def _check_present(directory: Directory, manifest: Mapping[str, Any]) -> None:
    """All files that the manifest lists must be there with their sizes."""
    files = manifest.get("files", {})
    listed = [
        *manifest.get("shards", ()),
        *(file for split in ("train", "validation") for file in files.get(split, ())),
    ]
    present = directory.sizes() if listed else {}
    wrong = [file["name"] for file in listed if present.get(file["name"]) != file["bytes"]]
    if wrong:
        raise OutputError(
            "The output is not as its manifest says.",
            expected=f"{len(listed)} files with the sizes in {MANIFEST}",
            found=f"{len(wrong)} missing or of another size: " + ", ".join(wrong[:_FILES_SHOWN]),
            where=directory.url,
            hint=f"Restore them, or make them anew: {_restart(directory)}.",
        )


def _check_format(directory: Directory, found: Mapping[str, Any]) -> None:
    if found.get("format") == FORMAT_VERSION:
        return
    raise DifferentConfigurationError(
        "The output was made by another version of this tool; nothing was changed.",
        expected=f"format {FORMAT_VERSION}",
        found=f"format {found.get('format', 1)}",
        where=directory.url,
        hint=f"Choose another output, or make this stage anew: {_restart(directory)}.",
    )


def _check_same(directory: Directory, found: Mapping[str, Any], identity: Identity) -> None:
    changed = [str(d) for d in differences(found["configuration"], identity.configuration)]
    inputs = _sizes(found["inputs"])
    changed += [f"input {d}" for d in differences(_flat(inputs), _flat(identity.inputs))]
    marks = found.get("marks") or (directory.read_json(RUN) or {}).get("marks", {})
    changed += [
        f"input {label}: as large as before, but changed since ({marks[label]} → {mark})"
        for label, mark in identity.marks.items()
        if marks.get(label, mark) != mark and inputs.get(label) == identity.inputs[label]
    ]
    if not changed:
        return
    shown = "\n    ".join(changed[:_DIFFERENCES_SHOWN])
    more = len(changed) - _DIFFERENCES_SHOWN
    raise DifferentConfigurationError(
        "The output belongs to another configuration or other inputs; nothing was changed.",
        found="these differences (there → now)\n    "
        + shown
        + (f"\n    and {more} more" if more > 0 else ""),
        where=directory.url,
        hint="Choose another output, go back to the old configuration, or make this stage anew: "
        f"{_restart(directory)}.",
    )


def _restart(directory: Directory) -> str:
    stage = {"counts": "count", "tokenizer": "train"}.get(directory.url.rpartition("/")[2])
    return f"`beam-bpe {stage or 'encode'} CONFIG --restart`"


def _sizes(inputs: Mapping[str, int] | Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
    """Size of each input by its label; manifests of token files list what became of each."""
    if isinstance(inputs, Mapping):
        return inputs
    return {file["name"]: file["size"] for file in inputs}


def _flat(inputs: Mapping[str, int]) -> dict[str, str]:
    return {label: f"{size} bytes" for label, size in inputs.items()}
