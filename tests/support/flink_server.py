"""A web server that answers as the REST interface of a Flink cluster, or badly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOB = "7b3de304e7b27b971d412eabaa392029"


def step(**metrics: Any) -> dict[str, Any]:
    """Return a step of a job with two subtasks, one of which has finished."""
    return {"parallelism": 2, "tasks": {"FINISHED": 1, "RUNNING": 1}, "metrics": metrics}


@dataclass
class FlinkServer:
    """Answers by path, and what was asked.

    Attributes:
        answers: Values that are sent as JSON; bytes are sent as they are.
        status: Status of every answer.
        seconds: Time before every answer.
        asked: Paths in order, with the value of the header `Authorization`.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    seconds: float = 0.0
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    port: int = 0

    @property
    def master(self) -> str:
        """Return the value for `flink_master`."""
        return f"localhost:{self.port}"

    def run_job(self, name: str, job: str = JOB, **metrics: Any) -> None:
        """Answer as a cluster on which a job runs."""
        listed = self.answers.setdefault("/jobs/overview", {"jobs": []})["jobs"]
        listed.append({"jid": job, "name": name, "state": "RUNNING", "end-time": -1})
        figures = {"write-records": 3, "write-bytes": 50, "accumulated-backpressured-time": 1500}
        self.answers |= {
            f"/jobs/{job}": {"state": "RUNNING", "vertices": [step(**figures, **metrics), step()]},
            f"/jobs/{job}/metrics?get=numRestarts": [{"id": "numRestarts", "value": "1"}],
            "/taskmanagers": {"taskmanagers": [{"id": "tm-1"}, {"id": "tm-2"}]},
        }


@contextmanager
def flink_server() -> Iterator[FlinkServer]:
    """Serve during the block."""
    served = FlinkServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append((self.path, self.headers["Authorization"]))
            time.sleep(served.seconds)
            found = served.answers.get(self.path, served.answers.get("*"))
            status = served.status if found is not None or served.status != 200 else 404
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            kind = "text/html" if isinstance(found, bytes) else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # whoever asked has gone
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        server.daemon_threads = True
        served.port = server.server_port
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield served
        server.shutdown()
