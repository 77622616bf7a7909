"""Flink's REST interface: the job of a pipeline, its state and its figures."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import requests

from pipelines.console.engine_jobs import EngineJob
from pipelines.redaction import redact
from pipelines.runners.watching import PageError

__all__ = ["FlinkPage", "job_url", "rest_url"]

_SECONDS_TO_ANSWER: Final = 5.0
_MOST_BYTES: Final = 8 << 20
_CHUNK_BYTES: Final = 1 << 16
_ID: Final = re.compile(r"[0-9a-f]{32}")
_STATE: Final = re.compile(r"[A-Z_]{1,40}")
_MILLISECOND: Final = 1e-3


def rest_url(master: str) -> str:
    """Return the URL of the REST interface of a `flink_master`.

    >>> rest_url("flink.example:8081")
    'http://flink.example:8081'
    """
    master = master.rstrip("/")
    return master if "://" in master else f"http://{master}"


def job_url(master: str, job: str) -> str:
    """Return the page of a job in Flink's web interface, without credentials.

    When the job has ended, the interface leads from this page to that of the completed job.

    >>> job_url("https://me:secret@flink.example/proxy/?token=1", "1f")
    'https://flink.example/proxy/#/job/running/1f/overview'
    """
    parts = urlsplit(rest_url(master))
    host = parts.netloc.rpartition("@")[2]
    page = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + "/", "", ""))
    return redact(f"{page}#/job/running/{job}/overview")


class FlinkPage:
    """REST interface of a cluster, for the job with a name.

    Args:
        master: Address of the cluster, which may contain a user and a password.
        name: Name of the job.
        is_unique: True if no other job has this name. Otherwise, jobs that the cluster has when it
            is first asked are those of others.
    """

    def __init__(self, master: str, name: str, *, is_unique: bool) -> None:
        self._master = master
        self._url = rest_url(master)
        self._name = name
        self._of_others: set[str] | None = set() if is_unique else None
        self._task_managers: set[str] = set()
        self._has_checkpoints = True

    def find(self) -> EngineJob | None:
        """Return the job, or None while the cluster does not have it."""
        answer = self._get("jobs/overview")
        found = [job["jid"] for job in _objects(answer, "jobs") if job.get("name") == self._name]
        if self._of_others is None:
            self._of_others = set(found)
        new = [job for job in found if job not in self._of_others and _ID.fullmatch(str(job))]
        if len(new) != 1:
            return None
        return EngineJob(engine="Flink", id=new[0], url=job_url(self._master, new[0]))

    def read(self, job: EngineJob) -> EngineJob:
        """Return the job with its current state and figures."""
        answer = self._get(f"jobs/{job.id}")
        steps = list(_objects(answer, "vertices"))
        figures: dict[str, float] = {
            "subtasks": sum(_number(step, "parallelism") for step in steps),
            "subtasks_finished": sum(_number(step, "tasks", "FINISHED") for step in steps),
            "records": sum(_number(step, "metrics", "write-records") for step in steps),
            "bytes_sent": sum(_number(step, "metrics", "write-bytes") for step in steps),
            "back_pressured_seconds": _MILLISECOND
            * max(
                (_number(step, "metrics", "accumulated-backpressured-time") for step in steps),
                default=0,
            ),
        }
        figures |= self._read_restarts(job) | self._read_task_managers()
        figures |= self._read_checkpoints(job)
        state = answer.get("state") if isinstance(answer, dict) else None
        if isinstance(state, str) and _STATE.fullmatch(state):
            job = replace(job, state=state)
        return replace(job, figures={**job.figures, **figures})

    def _read_restarts(self, job: EngineJob) -> dict[str, float]:
        answer = self._get(f"jobs/{job.id}/metrics?get=numRestarts")
        values = [str(entry.get("value")) for entry in _objects(answer)]
        # The cluster forgets it when the job has ended.
        return {"restarts": int(values[0])} if values and values[0].isdecimal() else {}

    def _read_task_managers(self) -> dict[str, float]:
        found = {str(one.get("id")) for one in _objects(self._get("taskmanagers"), "taskmanagers")}
        self._task_managers |= found
        return {
            "task_managers": len(found),
            "lost_task_managers": len(self._task_managers - found),
        }

    def _read_checkpoints(self, job: EngineJob) -> dict[str, float]:
        if not self._has_checkpoints:
            return {}
        try:
            answer = self._get(f"jobs/{job.id}/checkpoints")
        except PageError:  # batch jobs have none
            self._has_checkpoints = False
            return {}
        return {"checkpoints": _number(answer, "counts", "completed")}

    def _get(self, path: str) -> Any:
        """Return the answer to a question.

        Raises:
            PageError: There is none, or it is not JSON.
        """
        until = time.monotonic() + _SECONDS_TO_ANSWER
        try:
            with requests.get(
                f"{self._url}/{path}", timeout=_SECONDS_TO_ANSWER, stream=True
            ) as response:
                if not response.ok:
                    raise PageError(f"HTTP {response.status_code} {response.reason}".strip())
                data = bytearray()
                for chunk in response.iter_content(_CHUNK_BYTES):
                    data += chunk
                    if len(data) > _MOST_BYTES or time.monotonic() > until:
                        raise PageError("the answer is too long or too slow")
                kind = response.headers.get("Content-Type", "")
        except requests.Timeout:
            raise PageError(f"no answer within {_SECONDS_TO_ANSWER:.0f} s") from None
        except (requests.RequestException, UnicodeError) as error:
            raise PageError(type(error).__name__) from None
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            found = "a page of HTML" if "html" in kind else "something else"
            raise PageError(f"expected JSON, found {found}") from None


def _objects(answer: Any, name: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list: the answer, or its value of this name."""
    if name is not None:
        answer = answer.get(name) if isinstance(answer, dict) else None
    for one in answer if isinstance(answer, list) else ():
        if isinstance(one, dict):
            yield one


def _number(value: Any, *path: str) -> float:
    """Return the number at a path of keys in an answer, or 0 if the answer lacks it."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else 0
