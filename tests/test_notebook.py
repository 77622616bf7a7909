"""The example notebook runs from top to bottom, and its results show themselves."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from inline_runner import inline_builds, runner_of_builds  # noqa: F401

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory like `examples`."""
    (tmp_path / "data").symlink_to(NOTEBOOK.parent / "data")
    return tmp_path


def codes() -> Iterator[str]:
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def run_cell(code: str, namespace: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last expression."""
    *statements, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        statements, last = [*statements, last], ast.Expr(ast.Constant(None))
    exec(compile(ast.Module(statements, []), "cell", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


def test_it_is_committed_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    code_cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in code_cells] == [[]] * len(code_cells)
    assert {cell["execution_count"] for cell in code_cells} == {None}


@pytest.mark.slow
def test_its_cells_run_in_any_python(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with chdir(directory):
        namespace: dict[str, Any] = {}
        values = [run_cell(code, namespace) for code in codes()]
    pages = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    summary, table, coloured, first = pages
    assert "bytes per token" in summary and "encode" in summary
    assert "4,000" in table and "tokens" in coloured and "In" in first
    assert "bytes per token" in capfd.readouterr().out  # the curve of the sizes


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.slow
def test_it_runs_in_a_kernel_with_one_display_of_progress(directory: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": directory}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert {output["output_type"] for output in outputs} <= {
        "display_data",
        "execute_result",
        "stream",
    }
    assert "\x1b" not in json.dumps(outputs)
    (progress,) = [output for output in outputs if output["output_type"] == "display_data"]
    lines = progress["data"]["text/plain"].splitlines()
    assert [line[:5] for line in lines if line.startswith("[")] == ["[1/3]", "[2/3]", "[3/3]"]
    assert "<progress" not in progress["data"]["text/html"]


_INTERRUPTED = """
import pipelines, time
from pipelines.readers.tasks import TaskWork
config = {
    "output": "out",
    "input": {"files": ["data/kjv-*.txt"], "separator": "<|endoftext|>", "range_bytes": "64KiB"},
    "counts": {"checkpoint_bytes": "64KiB"},
    "tokenizer": {"vocab_size": 500},
}
begin = TaskWork.from_bytes
TaskWork.from_bytes = lambda data: (time.sleep(0.2), begin(data))[1]
pipelines.build(config, progress=True)
"""
_RESUMED = """
TaskWork.from_bytes = begin
print([stage.state for stage in pipelines.build(config).stages])
"""


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.slow
def test_an_interrupted_cell_says_what_is_kept_and_goes_on(directory: Path) -> None:
    jupyter = pytest.importorskip("jupyter_client")
    manager = jupyter.KernelManager()
    manager.start_kernel(cwd=str(directory))
    client = manager.client()
    client.start_channels()

    def run(code: str, interrupt_at: str | None = None) -> Iterator[dict[str, Any]]:
        asked = client.execute(code)
        while True:
            message = client.get_iopub_msg(timeout=60)
            content = message["content"]
            if message["parent_header"].get("msg_id") != asked:
                continue
            if content.get("execution_state") == "idle":
                return
            yield content
            shown = content.get("data", {}).get("text/plain", "")
            if interrupt_at is not None and interrupt_at in shown:
                manager.interrupt_kernel()
                interrupt_at = None

    try:
        client.wait_for_ready(timeout=60)
        *_, last = (c["data"]["text/plain"] for c in run(_INTERRUPTED, "/s, ") if "data" in c)
        assert "stopped: Interrupted while counting, " in last
        printed = "".join(content.get("text", "") for content in run(_RESUMED))
        assert "'resumed', 'done', 'done'" in printed
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
