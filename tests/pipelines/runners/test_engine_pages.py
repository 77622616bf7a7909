"""The pages of engines: found, followed, and never in the way of a build."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from flink_server import JOB, FlinkServer, flink_server
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from pipelines.console import displays, progress
from pipelines.console.engine_jobs import EngineJob
from pipelines.runners import flink_page, watching
from pipelines.runners.dataflow_page import DataflowPage
from pipelines.runners.flink import FLINK
from pipelines.runners.flink_page import FlinkPage, job_url
from pipelines.runners.watching import PageError, watched

NAME = "beam-bpe-0123abcd"


@pytest.fixture
def server() -> Iterator[FlinkServer]:
    with flink_server() as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SECONDS", 0.01)
    monkeypatch.setattr(watching, "_SECONDS_BETWEEN_LAST", 0.01)
    monkeypatch.setattr(flink_page, "_SECONDS_TO_ANSWER", 0.2)
    for interval in ("LINE_SECONDS", "JSON_SECONDS"):
        monkeypatch.setattr(displays, interval, 0.01)


def page(server: FlinkServer, *, is_unique: bool = True) -> FlinkPage:
    return FlinkPage(server.master, NAME, is_unique=is_unique)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 2
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


# --- Flink


def test_a_job_is_found_by_its_name_and_read(server: FlinkServer) -> None:
    asked = page(server)
    server.answers["/jobs/overview"] = {"jobs": []}
    assert asked.find() is None
    server.run_job("other", "0" * 32)
    server.run_job(NAME)
    job = asked.find()
    assert job is not None and job.id == JOB
    assert job.url == f"http://{server.master}/#/job/running/{JOB}/overview"
    read = asked.read(job)
    assert read.state == "RUNNING"
    assert read.figures == {
        "subtasks": 4,
        "subtasks_finished": 2,
        "records": 3,
        "bytes_sent": 50,
        "back_pressured_seconds": 1.5,
        "restarts": 1,
        "task_managers": 2,
        "lost_task_managers": 0,
    }
    assert str(read) == (
        "Flink: running, 2 of 4 subtasks, 3 records, 50 bytes sent, 1 restart, 2 s of back-pressure"
    )


def test_lost_task_managers_and_checkpoints_are_counted(server: FlinkServer) -> None:
    server.run_job(NAME)
    server.answers[f"/jobs/{JOB}/checkpoints"] = {"counts": {"completed": 3}}
    asked = page(server)
    job = asked.find()
    assert job is not None and asked.read(job).figures["checkpoints"] == 3
    server.answers["/taskmanagers"] = {"taskmanagers": [{"id": "tm-2"}, {"id": "tm-3"}]}
    figures = asked.read(job).figures
    assert (figures["task_managers"], figures["lost_task_managers"]) == (2, 1)


def test_figures_that_a_cluster_forgets_stay(server: FlinkServer) -> None:
    server.run_job(NAME)
    asked = page(server)
    job = asked.find()
    assert job is not None
    job = asked.read(job)
    server.answers[f"/jobs/{JOB}/metrics?get=numRestarts"] = []
    assert asked.read(job).figures["restarts"] == 1


def test_of_a_name_of_the_user_a_job_that_was_there_before_is_of_others(
    server: FlinkServer,
) -> None:
    server.run_job(NAME, "0" * 32)
    asked = page(server, is_unique=False)
    assert asked.find() is None
    server.run_job(NAME)
    job = asked.find()
    assert job is not None and job.id == JOB


def test_links_have_no_credentials(server: FlinkServer) -> None:
    server.run_job(NAME)
    asked = FlinkPage(f"http://me:correct-horse@{server.master}/", NAME, is_unique=True)
    job = asked.find()
    assert job is not None and "horse" not in repr(job) and "me:" not in repr(job)
    assert server.asked == [("/jobs/overview", "Basic bWU6Y29ycmVjdC1ob3JzZQ==")]
    shown = "https://flink.example/a/#/job/running/1f/overview"
    assert job_url("https://u:p%40q@flink.example/a?token=abc#d", "1f") == shown


def test_embedded_flink_has_no_page() -> None:
    options = {"flink_master": "[local]", "job_name": NAME}
    pipeline: Any = SimpleNamespace(options=SimpleNamespace(get_all_options=lambda: options))
    assert FLINK.page(pipeline) is None


_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["jobs", "jid", "name", "vertices", "metrics", "tasks", "parallelism",
                         "write-records", "state", "id", "value", "taskmanagers", "counts"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(_VALUES, _VALUES)
def test_any_json_is_read_without_another_error(listed: Any, read: Any) -> None:
    asked = FlinkPage("flink.example", NAME, is_unique=True)
    job = EngineJob(engine="Flink", id=JOB, url="")
    for value in (listed, read):
        asked._get = lambda _, value=value: value  # type: ignore[method-assign, misc]
        asked.find()
        str(asked.read(job))


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (b"<html>Sign in</html>", 200, "expected JSON, found a page of HTML"),
        ({"errors": []}, 401, "HTTP 401 Unauthorized"),
        ({"errors": []}, 503, "HTTP 503 Service Unavailable"),
        (None, 200, "HTTP 404 Not Found"),
    ],
)
def test_bad_answers_have_a_reason(
    server: FlinkServer, answer: Any, status: int, reason: str
) -> None:
    server.answers, server.status = {"*": answer}, status
    with pytest.raises(PageError, match=reason):
        page(server).find()


def test_a_slow_or_missing_page_has_a_reason(
    server: FlinkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flink_page, "_SECONDS_TO_ANSWER", 0.05)
    server.seconds = 0.2
    with pytest.raises(PageError, match="no answer within"):
        page(server).find()
    with pytest.raises(PageError, match="ConnectionError"):
        FlinkPage("localhost:9", NAME, is_unique=True).find()


def test_an_endless_answer_is_refused(server: FlinkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink_page, "_MOST_BYTES", 10)
    server.answers["*"] = b"[" * 1000
    with pytest.raises(PageError, match="too long"):
        page(server).find()


# --- watching


@pytest.mark.usefixtures("quick")
def test_the_link_and_the_figures_are_shown_and_the_last_ones_kept(
    server: FlinkServer, capfd: pytest.CaptureFixture[str]
) -> None:
    kept: list[EngineJob] = []
    server.answers["/jobs/overview"] = {"jobs": []}
    with (
        progress.shown("json", "reading"),
        progress.show("counting", 4),
        watched(page(server), kept.append),
    ):
        wait_for(lambda: len(server.asked) > 1)
        server.run_job(NAME)
        wait_for(lambda: ("/taskmanagers", None) in server.asked)
        time.sleep(0.05)
        server.answers[f"/jobs/{JOB}"]["state"] = "FINISHED"
    assert [job.state for job in kept] == ["FINISHED"]
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    links = [event["text"] for event in events if event["event"] == "job"]
    assert links == [f"Flink {JOB}: http://{server.master}/#/job/running/{JOB}/overview"]
    shown = [event["job"] for event in events if event["event"] == "progress" and event["job"]]
    assert shown[0]["id"] == JOB and shown[0]["figures"]["records"] == 3


@pytest.mark.usefixtures("quick")
def test_the_state_is_read_until_the_engine_has_noted_the_end(server: FlinkServer) -> None:
    server.run_job(NAME)
    kept: list[EngineJob] = []
    late = threading.Timer(0.2, server.answers[f"/jobs/{JOB}"].update, [{"state": "FINISHED"}])
    with watched(page(server), kept.append):
        wait_for(lambda: ("/taskmanagers", None) in server.asked)
        late.start()
    assert [job.state for job in kept] == ["FINISHED"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [200, 401, 404, 500])
def test_a_page_that_fails_is_reported_once_and_the_work_goes_on(
    server: FlinkServer, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    server.answers, server.status = {"*": b"<html>\x1b[31m login"}, status
    done = []
    with progress.shown("plain", "reading"), watched(page(server), done.append):
        wait_for(lambda: len(server.asked) > 4)
    assert done == []
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[1].startswith("job: the engine does not report figures: ")


@pytest.mark.usefixtures("quick")
def test_a_page_that_never_answers_does_not_delay_the_end(
    server: FlinkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flink_page, "_SECONDS_TO_ANSWER", 30.0)
    monkeypatch.setattr(watching, "_SECONDS_TO_END", 0.1)
    server.seconds = 3.0
    before = time.monotonic()
    with watched(page(server), lambda _: None):
        wait_for(lambda: bool(server.asked))
    with pytest.raises(KeyError), watched(page(server), lambda _: None):
        raise KeyError
    assert time.monotonic() - before < 1


def test_without_a_page_nothing_is_started() -> None:
    before = threading.active_count()
    with watched(None, lambda _: None):
        assert threading.active_count() == before


# --- Dataflow


class _Client:
    """Beam's client of the service, as far as a page uses it, with answers of Google's types."""

    def __init__(self) -> None:
        self.types = pytest.importorskip("google.cloud.dataflow_v1beta3")

    def get_job(self, job: str) -> Any:
        return self.types.Job(id=job, current_state=self.types.JobState.JOB_STATE_RUNNING)

    def list_messages(self, job: str, minimum_importance: str) -> tuple[Any, str]:
        assert minimum_importance == "JOB_MESSAGE_WARNING"
        message = self.types.JobMessage(message_text="A worker was lost.")
        return self.types.ListJobMessagesResponse(job_messages=[message]).job_messages, ""

    def get_job_metrics(self, job: str) -> Any:
        ours = {"namespace": "beam_bpe", "step": "s1"}
        metrics = [
            self._metric("documents", 3.0, **ours),
            self._metric("documents", 4.0, **{**ours, "step": "s2"}),
            self._metric("documents", 9.0, **ours, tentative="true"),
            self._metric("read_microseconds", 5.0, **ours),
            self._metric("tokens", None, **ours),
            self._metric("CurrentVcpuCount", 8.0, origin="dataflow/v1b3"),
        ]
        return self.types.JobMetrics(metrics=metrics)

    def _metric(
        self, name: str, value: float | None, *, origin: str = "user", **context: str
    ) -> Any:
        named = self.types.MetricStructuredName(origin=origin, name=name, context=context)
        scalar = None if value is None else Value(number_value=value)
        return self.types.MetricUpdate(name=named, scalar=scalar)


def _dataflow_pipeline(result: Any) -> Any:
    asked = SimpleNamespace(project="my-project", region="europe-west4")
    return SimpleNamespace(result=result, options=SimpleNamespace(view_as=lambda _: asked))


def test_a_job_of_dataflow_is_found_and_read() -> None:
    runner = SimpleNamespace(dataflow_client=_Client())
    result = SimpleNamespace(has_job=True, job_id=lambda: "2026-11-23_1", _runner=runner)
    asked = DataflowPage(_dataflow_pipeline(result))
    job = asked.find()
    assert job is not None and job.url == (
        "https://console.cloud.google.com/dataflow/jobs/europe-west4/2026-11-23_1"
        "?project=my-project"
    )
    read = asked.read(job)
    assert (read.state, read.messages) == ("RUNNING", ("A worker was lost.",))
    assert read.figures == {"documents": 7.0, "vcpus": 8.0}
    assert str(read) == "Dataflow: running, 7 documents, 8 vCPUs"


@pytest.mark.parametrize("result", [None, SimpleNamespace(has_job=False)])
def test_before_its_submission_there_is_no_job_of_dataflow(result: Any) -> None:
    assert DataflowPage(_dataflow_pipeline(result)).find() is None


@pytest.mark.usefixtures("quick")
def test_messages_of_an_engine_are_shown_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_SECONDS_TO_END", 0.1)  # the client's job never ends
    runner = SimpleNamespace(dataflow_client=_Client())
    result = SimpleNamespace(has_job=True, job_id=lambda: "1", _runner=runner)
    kept: list[EngineJob] = []
    pipeline = _dataflow_pipeline(result)
    with progress.shown("plain", "reading"), watched(DataflowPage(pipeline), kept.append):
        time.sleep(0.1)
    assert capfd.readouterr().err.count("job: A worker was lost.\n") == 1
    assert kept[0].messages


def test_records_have_the_job() -> None:
    from pipelines.manifest.run_record import EngineJobEntry

    job = EngineJob(engine="Flink", id=JOB, url="http://f/", state="FINISHED", figures={"r": 1.5})
    entry = EngineJobEntry.model_validate_json(json.dumps(job.to_json()))
    assert (entry.id, entry.figures) == (JOB, {"r": 1.5})
