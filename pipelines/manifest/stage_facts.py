"""Facts that the records of an output state, which a new invocation has to keep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pipelines.errors import DamagedOutputError, DifferentConfigurationError, PipelineError
from pipelines.manifest.names import MANIFEST
from pipelines.manifest.run_record import RunRecord, StagePlan
from pipelines.manifest.stage import COUNT, ENCODE, TRAIN, Stage
from pipelines.manifest.stage_records import has_finished_work, load_declaration, load_plan
from pipelines.storage.directory import Directory
from pipelines.tasks.plan import BY_TEXT, TaskRule


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
