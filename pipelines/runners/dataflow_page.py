"""Dataflow's service: the job of a pipeline, its state, its figures and its warnings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import GoogleCloudOptions

from pipelines.console.engine_jobs import MOST_MESSAGES, EngineJob
from pipelines.metrics import COUNTERS, NAMESPACE
from pipelines.redaction import redact

__all__ = ["DataflowPage", "job_url"]

_STATE_PREFIX: Final = "JOB_STATE_"
_LEAST_IMPORTANCE: Final = "JOB_MESSAGE_WARNING"
_SERVICE: Final = "dataflow/v1b3"
_USER: Final = "user"
# Figures of the service by its names.
_FIGURES: Final = {"CurrentVcpuCount": "vcpus", "TotalVcpuTime": "vcpu_seconds"}
_MOST_CHARACTERS: Final = 500


def job_url(project: str, region: str, job: str) -> str:
    """Return the page of a job in Google Cloud's console."""
    return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job}?project={project}"


class DataflowPage:
    """Service of Dataflow, for the job of a pipeline; with the client that submits the job."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def find(self) -> EngineJob | None:
        """Return the job, or None while the service does not have it."""
        result = getattr(self._pipeline, "result", None)
        if result is None or not result.has_job:
            return None
        asked = self._pipeline.options.view_as(GoogleCloudOptions)
        job = result.job_id()
        return EngineJob(engine="Dataflow", id=job, url=job_url(asked.project, asked.region, job))

    def read(self, job: EngineJob) -> EngineJob:
        """Return the job with its current state, figures and messages."""
        client = self._pipeline.result._runner.dataflow_client
        found = client.get_job(job.id)
        state = found.current_state.name.removeprefix(_STATE_PREFIX)
        messages, _ = client.list_messages(job.id, minimum_importance=_LEAST_IMPORTANCE)
        return replace(
            job,
            state=state,
            figures=_read_figures(client.get_job_metrics(job.id).metrics),
            messages=tuple(
                redact(str(message.message_text))[:_MOST_CHARACTERS]
                for message in messages[-MOST_MESSAGES:]
            ),
        )


def _read_figures(metrics: Any) -> dict[str, float]:
    """Return the service's figures, and the sums of our counters over all steps."""
    figures: dict[str, float] = {}
    for metric in metrics:
        name, value = metric.name.name, metric.scalar
        if not isinstance(value, (int, float)) or metric.name.context.get("tentative") == "true":
            continue
        if metric.name.origin == _SERVICE and name in _FIGURES:
            figures[_FIGURES[name]] = value
        is_ours = metric.name.context.get("namespace") == NAMESPACE and name in COUNTERS
        if metric.name.origin == _USER and is_ours:
            figures[name] = figures.get(name, 0) + value
    return figures
