"""Builds from Python: `pipelines.build`, `plan` and `verify`, as programs call them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from build_support import PACKAGES, write_corpus
from inline_runner import inline_builds, runner_of_builds  # noqa: F401

import pipelines
from bpe_core import BPETokenizer
from pipelines.build import build
from pipelines.config import BuildConfig, read_config
from pipelines.errors import ConfigError, InputError, OutputError, PipelineError
from pipelines.stages.summary import BuildSummary

END = "<|endoftext|>"


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A configuration as a program writes it, relative to the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    for name in ("a", "b"):
        text = END.join(f"low lower lowest {name}{i}" for i in range(20))
        (tmp_path / "corpus" / name).write_text(text)
    return {
        "output": Path("out"),
        "input": {"files": ("corpus/*",), "separator": END},
        "tokenizer": {"vocab_size": 270, "special_tokens": [END]},
        "counts": {"shards": 1},
    }


@pytest.mark.slow
def test_a_build_returns_its_result(values: dict[str, Any], tmp_path: Path) -> None:
    summary = pipelines.build(values)
    assert isinstance(summary, BuildSummary)
    assert summary.output == str(tmp_path / "out")
    assert (summary.documents, summary.rejects, summary.vocab_size) == (40, 0, 270)
    assert summary.tokens is not None
    assert summary.seconds is not None
    assert summary.seconds > 0
    assert summary.tokenizer == str(tmp_path / "out" / "tokenizer")
    tokenizer = summary.load_tokenizer()
    assert tokenizer == BPETokenizer.load("out")
    assert len(repr(summary)) < 300
    again = pipelines.build(values)
    assert {stage.state for stage in again.stages} == {"already finished"}
    assert again.load_tokenizer() == tokenizer
    assert not pipelines.verify("out").problems
    assert not pipelines.verify(tmp_path / "out").problems


def test_paths_values_and_configurations_are_the_same(
    values: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "build.yaml"
    path.write_text(yaml.safe_dump({**values, "output": "out", "input": {"files": ["corpus/*"]}}))
    for given in (str(path), path):
        assert pipelines.plan(given).output == str(tmp_path / "out")
    config = read_config(values)
    assert read_config(config) is config
    assert isinstance(config, BuildConfig)
    assert [Path(file.path).name for file in pipelines.plan(config).files] == ["a", "b"]


def test_the_module_is_the_function(values: dict[str, Any]) -> None:
    import pipelines.build as module

    assert pipelines.build is module
    assert module.build is build
    with pytest.raises(ConfigError):
        module({})


def test_errors_are_ours(values: dict[str, Any]) -> None:
    wrong = {**values, "tokenizer": {"vocab_siez": 5}, "encode": {"id_type": 7}}
    with pytest.raises(ConfigError) as caught:
        pipelines.build(wrong)
    message = str(caught.value)
    assert message.startswith("2 errors in the configuration:\n")
    assert "Did you mean vocab_size?" in message
    assert "where:" not in message
    with pytest.raises(ConfigError, match=r"found: int"):
        pipelines.build(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        pipelines.build("nothing.yaml")
    with pytest.raises(InputError, match="nothing"):
        pipelines.build({**values, "input": {"files": ["nothing"]}})
    with pytest.raises(PipelineError, match="not the output of a build"):
        pipelines.verify("corpus/a")


def test_there_is_no_tokenizer_before_training(values: dict[str, Any]) -> None:
    counted = pipelines.build.count(values)
    assert counted.tokenizer is None
    with pytest.raises(OutputError, match="There is no tokenizer yet"):
        counted.load_tokenizer()


@pytest.mark.slow
def test_progress_is_shown_on_request(
    values: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    pipelines.build(values)
    assert capfd.readouterr() == ("", "")
    pipelines.build({**values, "output": "again"}, progress=True)
    assert "[1/3] counted" in capfd.readouterr().err


@pytest.mark.process
@pytest.mark.slow
def test_programs_show_nothing_but_their_own_output(tmp_path: Path) -> None:
    """Without a guard for `__main__`, and within a running event loop, as in a notebook."""
    write_corpus(tmp_path / "corpus", {"a": [b"low lower", b"lowest"]})
    program = (
        "import asyncio, pipelines\n"
        "from bpe_core import BPETokenizer\n"
        "from pipelines import CountPretokens\n"
        "async def main():\n"
        "    return pipelines.build({'output': 'out', 'input': {'files': ['corpus/*']},\n"
        "        'tokenizer': {'vocab_size': 260}, 'counts': {'shards': 1}})\n"
        "summary = asyncio.run(main())\n"
        "print(summary.vocab_size, summary.load_tokenizer() == BPETokenizer.load('out'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={"PYTHONPATH": str(PACKAGES)},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("260 True\n", "", 0)
