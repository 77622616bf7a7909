"""A job at an engine, as progress and the records of a build show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pipelines.console.units import format_bytes

MOST_MESSAGES: Final = 20  # that are read at a time, and shown of a job


def _counted(noun: str, plural: str) -> Callable[[float], str]:
    return lambda value: f"{value:,.0f} {noun if value == 1 else plural}"


# Figures that progress shows if they are not 0, in this order.
_SHOWN: Final[Mapping[str, Callable[[float], str]]] = {
    "tasks": _counted("task", "tasks"),
    "documents": _counted("document", "documents"),
    "tokens": _counted("token", "tokens"),
    "records": _counted("record", "records"),
    "bytes_sent": lambda value: f"{format_bytes(round(value))} sent",
    "checkpoints": _counted("checkpoint", "checkpoints"),
    "vcpus": _counted("vCPU", "vCPUs"),
    "restarts": _counted("restart", "restarts"),
    "lost_task_managers": _counted("TaskManager lost", "TaskManagers lost"),
    "back_pressured_seconds": lambda value: f"{value:.0f} s of back-pressure",
}

# Of Flink and of Dataflow.
_FINAL_STATES: Final = {"FINISHED", "CANCELED", "FAILED", "DONE", "CANCELLED", "UPDATED", "DRAINED"}


@dataclass(frozen=True, kw_only=True)
class EngineJob:
    """Job at an engine, and what the engine last reported about it.

    Attributes:
        engine: name of the engine, such as "Flink".
        id: the engine's id of the job.
        url: page where people can watch it, without credentials.
        state: state in the engine's words, such as "RUNNING"; "" if it is not known.
        figures: numbers that the engine reports, by name.
        messages: warnings and errors of the engine's service.
    """

    engine: str
    id: str
    url: str
    state: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    messages: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Return True if the engine does nothing more for the job."""
        return self.state in _FINAL_STATES

    def __str__(self) -> str:
        """Return the state and the figures as a line of text.

        >>> from dataclasses import replace
        >>> job = EngineJob(engine="Flink", id="a", url="", state="RUNNING")
        >>> str(replace(job, figures={"subtasks": 20, "subtasks_finished": 8, "restarts": 1}))
        'Flink: running, 8 of 20 subtasks, 1 restart'
        """
        figures = self.figures
        parts = [self.state.lower()] if self.state else []
        if figures.get("subtasks"):
            finished = figures.get("subtasks_finished", 0)
            parts.append(f"{finished:,.0f} of {figures['subtasks']:,.0f} subtasks")
        parts += [show(figures[name]) for name, show in _SHOWN.items() if figures.get(name, 0) >= 1]
        return f"{self.engine}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values."""
        return asdict(self)
