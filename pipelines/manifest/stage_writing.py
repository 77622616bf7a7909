"""The beginning and the end of a stage on disk, and its removal.

The manifest is written when every file that it lists is present with its size, and after the names
in the directory are on the disk. Only `run.json` depends on the machine or the moment. A build that
is killed between the manifest and its own end leaves scratch files, which the next one removes.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from pipelines.config.values import is_url
from pipelines.errors import DamagedOutputError
from pipelines.manifest.models import FORMAT_VERSION
from pipelines.manifest.names import MANIFEST, PLAN, RUN
from pipelines.manifest.records import sealed
from pipelines.manifest.run_record import RunRecord, StagePlan
from pipelines.manifest.stage import Identity, ManifestT, Stage
from pipelines.manifest.stage_records import DISCARDED, Remains, check_present
from pipelines.storage.directory import Directory
from pipelines.storage.filesystems import split_chain
from pipelines.storage.hub import is_repository
from pipelines.tasks.plan import BY_TEXT, TaskRule


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


def finish_stage(
    stage: Stage[ManifestT],
    directory: Directory,
    identity: Identity,
    manifest: ManifestT,
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
    check_present(stage, directory, manifest)
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


def discard_stage(stage: Stage[ManifestT], directory: Directory, ours: str) -> None:
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
    directory.write_json(PLAN, DISCARDED)
    directory.remove(MANIFEST)


def _without_credentials(locations: Mapping[str, str]) -> dict[str, str]:
    """Return the locations that cannot contain credentials."""
    return {label: url for label, url in locations.items() if not may_contain_credentials(url)}


def may_contain_credentials(url: str) -> bool:
    """Return True for URLs with a query or a user."""
    storage = split_chain(url)[-1]  # that of an archive, whose files have any names
    if is_repository(storage):  # @ is before the revision
        return False
    return is_url(storage) and ("?" in storage or "@" in storage)
