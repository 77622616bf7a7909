"""The commands and queries on pages about topics run, or there is a reason why they do not."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import zstandard
from build_support import EXAMPLES, ROOT, command
from guide_support import blocks
from inline_runner import inline_builds, runner_of_builds  # noqa: F401

from bpe_core import BasicTokenizer

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Its commands run with their output, in test_guides.py.
PAGES.remove(ROOT / "docs" / "tutorial.md")
# Commands that no test runs as they are shown, with the reason.
NOT_RUN = {
    r"hf://": "needs the Hugging Face Hub; test_hub_export.py and others run it on a server here",
    r"s3://": "needs a bucket; tests/pipelines/storage run it on a server here",
    r"Flink|Prism|Portable|--no-wait": "needs an engine; tests/engines run it",
    r"apache_beam\.yaml|expansion_service": "test_beam_yaml.py, test_expansion_service.py run it",
    r"^(java|docker|gcloud|pip|pipx|uvx|python -m apache_beam|torchrun)\b": "needs other programs",
    r"^echo 15496": "has ids of another tokenizer; test_text_commands.py runs it",
    r"^make\b|^python3 -m venv|/pip ": "test_makefile.py and .ci/run run it",
    r"^python examples|^\.venv/bin/python examples": "test_docs.py runs the examples",
    r"^curl|^spm_train": "needs the network, or a program of another project",
    r"--by lang": "needs a column; test_kept_columns_build.py tests it",
    r"--text-field doc\.text|^beam-bpe replay": "needs other records; test_guides.py runs it",
    r"-- --direct_": "starts worker processes; tests/pipelines/stages run it",
}
pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.process]

_CONFIGURATION = """\
output: out
input: {files: [corpus/*.txt], separator: "<|endoftext|>"}
tokenizer: {vocab_size: 1000, special_tokens: ["<|endoftext|>"]}
encode: {append: "<|endoftext|>"}
"""
_TWO_SOURCES = """\
output: out
input:
  - {name: web, files: [corpus/*.txt], separator: "<|endoftext|>"}
  - {name: books, files: [books/*.txt], separator: "<|endoftext|>"}
counts: {document_frequency: true}
tokenizer: {vocab_size: 300}
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files and outputs that the pages name, built once."""
    world = tmp_path_factory.mktemp("prepared") / "here"
    (world / "out").mkdir(parents=True)
    (world / "examples").symlink_to(ROOT / "examples")
    shutil.copytree(ROOT / "configs", world / "configs")
    for name in ("quickstart", "validation-split"):
        built = command("build", f"configs/{name}.yaml", cwd=world, here=True)
        assert built.returncode == 0, built.stderr
    text = (EXAMPLES / "kjv-01.txt").read_text("utf-8")
    chapters = text.split("<|endoftext|>")
    for name in ("corpus/a.txt", "books/b.txt", "code/c.txt", "notes/d.txt", "more/e.txt"):
        (world / name).parent.mkdir()
        (world / name).write_text("<|endoftext|>".join(chapters[:40]), "utf-8")
    for name in ("text.txt", "notes.txt", "de.txt", "en.txt", "a.txt"):
        (world / name).write_text(chapters[0], "utf-8")
    (world / "more" / "f.gz").write_bytes(gzip.compress(chapters[1].encode()))
    packed = zstandard.ZstdCompressor().compress(chapters[2].encode())
    (world / "more" / "g.txt.zst").write_bytes(packed)
    records = "".join(json.dumps({"text": text}) + "\n" for text in chapters[:9]).encode()
    (world / "data").mkdir()
    packed = zstandard.ZstdCompressor().compress(records)
    (world / "data" / "a.jsonl.zst").write_bytes(packed)
    (world / "build.yaml").write_text(_CONFIGURATION)
    return world


@pytest.fixture
def here(prepared: Path, tmp_path: Path) -> Path:
    """A copy of the directory, with other names for what it has."""
    directory = tmp_path / "here"
    shutil.copytree(prepared, directory, symlinks=True)
    quickstart = prepared / "out" / "quickstart"
    tokenizer = quickstart / "tokenizer"
    for name in ("out/other", "out/web", "out/books", "a", "b"):
        shutil.copytree(quickstart, directory / name)
    for name in ("../llama3", "Llama-3.2-1B", "gpt2", "other"):
        shutil.copytree(tokenizer, directory / name)
    shutil.copy(tokenizer / "tokenizer.json", directory)
    shutil.copy(tokenizer / "tokenizer.tiktoken", directory / "o200k_base.tiktoken")
    shutil.copytree(quickstart / "tokens", directory / "kept")
    minbpe = BasicTokenizer()
    minbpe.train("low lower lowest newer newest " * 9, 270)
    minbpe.save(str(directory / "mine"))
    return directory


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the commands of a page that are shown without output, with the line of their block."""
    for block in blocks(path):
        if block.language == "console" and block.is_run and not block.code.startswith("$ "):
            for line, _ in block.commands:
                yield block.line, line


def reason_not_to_run(line: str) -> str | None:
    reasons = [reason for pattern, reason in NOT_RUN.items() if re.search(pattern, line)]
    return reasons[0] if reasons else None


@pytest.mark.parametrize(
    "path", [path for path in PAGES if any(lines_of(path))], ids=lambda path: path.stem
)
def test_commands_run(path: Path, here: Path) -> None:
    lines = [(number, line) for number, line in lines_of(path) if not reason_not_to_run(line)]
    if any(line.startswith("beam-bpe verify out ") for _, line in lines):
        shutil.rmtree(here / "out")  # the page builds it
    failed = [
        f"{path.name}:{n}: {line}\n{printed}" for n, line in lines if (printed := run(line, here))
    ]
    assert not failed, "\n".join(failed)


def run(line: str, here: Path) -> str | None:
    """Run a command; return what it prints if it fails."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["beam-bpe", "init"] and "--config" not in words:
        if (here / "out").exists():
            return None  # it would describe another build than that of the page
        (here / "build.yaml").unlink()
    if words[0].removeprefix(".venv/bin/") == "beam-bpe" and not {"|", ">"} & {*words}:
        done = command(*words[1:], cwd=here, here=True)
    else:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=here, capture_output=True, text=True, env={**os.environ, "PATH": path},
        )  # fmt: skip
    return done.stdout + done.stderr if done.returncode else None


def test_every_reason_not_to_run_a_command_has_a_command() -> None:
    lines = [line for path in PAGES for _, line in lines_of(path)]
    for pattern in NOT_RUN:
        assert any(re.search(pattern, line) for line in lines), pattern


def test_queries_run(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL of the pages, on counts of two sources and on the statistics of the quick start."""
    shutil.copytree(prepared, tmp_path, symlinks=True, dirs_exist_ok=True)
    (tmp_path / "two.yaml").write_text(_TWO_SOURCES)
    counted = command("count", "two.yaml", cwd=tmp_path, here=True)
    assert counted.returncode == 0, counted.stderr
    monkeypatch.chdir(tmp_path)
    queries = [
        query
        for path in PAGES
        for block in blocks(path)
        if block.language == "sql" and block.is_run
        for query in block.code.split(";")
        if query.strip()
    ]
    assert len(queries) >= 4
    for query in queries:
        assert duckdb.sql(query) is not None, query
