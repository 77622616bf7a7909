"""Records of stages as they are read: each is checked to be what builds write.

`manifest.json` says what is finished, `_plan.json` what was begun, `run.json` how it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from pipelines.errors import DamagedOutputError
from pipelines.manifest.models import FORMAT_VERSION, MANIFESTS, Plan, RunFacts
from pipelines.storage.directory import Directory, check_form

MANIFEST: Final = "manifest.json"
RUN: Final = "run.json"
PLAN: Final = "_plan.json"

_MODELS: Final[Mapping[str, type[BaseModel]]] = dict(MANIFESTS.items())
_COMMANDS: Final = {"counts": "count", "tokenizer": "train", "tokens": "encode"}
# A damaged record still has two of them; files of others with such a name have none.
_MARKERS: Final = frozenset({"format", "configuration", "inputs"})


def read_manifest(directory: Directory) -> dict[str, Any] | None:
    """Return the manifest of a stage; None if the stage is not finished.

    Raises:
        DamagedOutputError: it is not what builds write.
    """
    found = directory.read_json(MANIFEST, hint=_hint(directory))
    if found is not None:
        _check(directory, MANIFEST, found, _MODELS.get(directory.name))
    return found


def read_plan(directory: Directory) -> dict[str, Any] | None:
    """Return the plan of a stage that was begun; None if there is none.

    Raises:
        DamagedOutputError: it is not what builds write.
    """
    found = directory.read_json(PLAN, hint=_hint(directory))
    if found is not None:
        # A stage that is being discarded has its manifest there.
        form = _MODELS.get(directory.name)
        _check(directory, PLAN, found, form if form is None or "checksum" in found else Plan)
    return found


def read_run(directory: Directory) -> dict[str, Any]:
    """Return the record of the last run that finished the stage; {} if there is none.

    Raises:
        DamagedOutputError: it is not what builds write.
    """
    return directory.read_json(RUN, RunFacts, hint=_hint(directory)) or {}


def find_run(directory: Directory) -> dict[str, Any]:
    """Return what `read_run` does, but {} for a damaged record too."""
    try:
        return read_run(directory)
    except DamagedOutputError:
        return {}


def find_plan(directory: Directory) -> dict[str, Any]:
    """Return what `read_plan` does, but {} if there is none or it is damaged."""
    try:
        return read_plan(directory) or {}
    except DamagedOutputError:
        return {}


def is_foreign(found: Mapping[str, Any]) -> bool:
    """Return whether a file with the name of a record is of somebody else."""
    return bool(found) and len(_MARKERS & found.keys()) < 2


def _check(
    directory: Directory, name: str, found: Mapping[str, Any], form: type[BaseModel] | None
) -> None:
    """Check the form of a record, unless it is of another version, which is refused as such."""
    if form is not None and not is_foreign(found) and found.get("format") == FORMAT_VERSION:
        check_form(found, form, directory.path(name), _hint(directory))


def _hint(directory: Directory) -> str:
    command = _COMMANDS.get(directory.name, "build")
    return f"Restore it, or make this stage anew: `beam-bpe {command} CONFIG --restart`."
