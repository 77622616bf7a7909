"""The documentation says what is so: links, names, commands, code blocks and the sample output."""

from __future__ import annotations

import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import guide_support
import profiles
import pytest
import typer.main
import yaml
from build_support import command
from inline_runner import inline_builds, report_pages, runner_of_builds  # noqa: F401

from pipelines import runners
from pipelines.cli import app
from pipelines.config import load_config
from pipelines.rejects.reasons import REASONS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"
GUIDE = ROOT / "docs" / "choosing-a-tokenizer.md"
# test_guides.py runs all of these; test_beam_yaml.py and test_expansion_service.py the last.
RUN_ELSEWHERE = {
    ROOT / "docs" / "tutorial.md",
    *ROOT.glob("docs/guides/*.md"),
    ROOT / "docs" / "beam-yaml.md",
}
# Libraries that the tests don't install.
NOT_INSTALLED = {"megatron", "streaming", "torch", "transformers"}

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What pages leave out of a configuration.
_REST_OF_CONFIGURATION: dict[str, Any] = {"output": "out", "input": {"files": ["c/*.jsonl"]}}
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_QUOTED_PATH = re.compile(
    r"`((?:bpe_core|pipelines|tests|configs|docs|examples|benchmarks|native|\.ci)/[\w./-]*\w)`"
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, language: str) -> list[str]:
    return [code for found, code in _BLOCK.findall(path.read_text("utf-8")) if found == language]


def pages_with(language: str) -> list[Path]:
    """The pages with code of a language that are not run elsewhere."""
    return [path for path in DOCUMENTS if path not in RUN_ELSEWHERE and blocks(path, language)]


def marked(paths: Iterable[Path]) -> list[Any]:
    """Mark what runs pipelines of its own."""
    return [
        pytest.param(path, marks=pytest.mark.beam)
        if re.search(r"\b(?:beam\.Pipeline|runners\.pipeline)\(", path.read_text("utf-8"))
        else path
        for path in paths
    ]


def prose(path: Path) -> str:
    return _BLOCK.sub("", path.read_text("utf-8"))


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def commands() -> Iterator[str]:
    """Every line of a console block that is a command, with the lines that go on with it."""
    for path in DOCUMENTS:
        for block in blocks(path, "console"):
            for line in block.replace("\\\n", " ").splitlines():
                yield line.removeprefix("$ ")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A directory as the repository is after `make quickstart`, and what that printed."""
    directory = tmp_path_factory.mktemp("docs")
    (directory / "examples").symlink_to(ROOT / "examples")
    (directory / "configs").mkdir()
    shutil.copy(ROOT / "configs" / "quickstart.yaml", directory / "configs")
    with report_pages():
        built = command("build", "configs/quickstart.yaml", cwd=directory)
    assert built.returncode == 0, built.stderr
    return directory, built.stdout


def run_line(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a line with `beam-bpe`."""
    return command(*shlex.split(line)[1:], cwd=directory)


def run_program(program: Path, directory: Path) -> str:
    """Run a file from top to bottom, in a namespace of its own; return what it prints."""
    if profiles.PROFILE == "nightly":
        return subprocess.run(
            [sys.executable, str(program)], cwd=directory, stdout=subprocess.PIPE, text=True,
            timeout=120, check=True,
        ).stdout  # fmt: skip
    printed = io.StringIO()
    arguments = mock.patch.object(sys, "argv", [str(program)])
    with chdir(directory), redirect_stdout(printed), arguments:
        runpy.run_path(str(program), run_name="__main__")
    return printed.getvalue()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for target in _LINK.findall(prose(path)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{name_of(path)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{name_of(path)} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_blocks_are_run_or_say_why_not(path: Path) -> None:
    """Languages that tests run, or text; `<!-- not run: REASON -->` is above all others."""
    for block in guide_support.blocks(path):
        assert block.language != "java" or not block.is_run, f"{name_of(path)}:{block.line}"


def test_every_page_is_linked_from_the_list_of_pages() -> None:
    text = (ROOT / "docs" / "pages.md").read_text("utf-8")
    listed = {target.partition("#")[0] for target in _LINK.findall(text)}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"pages.md"}
    assert pages <= listed


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_files_that_are_named_exist(path: Path) -> None:
    for name in _QUOTED_PATH.findall(prose(path)):
        assert (ROOT / name).exists() or (ROOT / "bpe_core" / name).exists(), name


def test_tests_that_prove_a_guarantee_exist() -> None:
    named = re.findall(
        r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    )
    assert len(named) > 50
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / file).read_text("utf-8"), f"{file}::{test}"


def test_make_has_every_target_that_is_named() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for path in DOCUMENTS:
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text("utf-8"), re.MULTILINE))
        assert named <= targets, name_of(path)


def test_commands_are_understood() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    subjects = {"config", "source", "output", "tokenizer", "counts", "first"}
    checked = 0
    for line in commands():
        words = shlex.split(line.partition(" > ")[0], comments=True)
        if words[:1] != ["beam-bpe"]:
            continue
        command, depth = known[words[1]], 2
        if hasattr(command, "commands"):
            command, depth = command.commands[words[2]], 3
        with command.make_context(words[depth - 1], words[depth:]) as context:
            assert subjects & context.params.keys(), line
        checked += 1
    assert checked


def test_commands_that_are_shown_with_their_output_print_it() -> None:
    pages_of_test_guides = {ROOT / "docs" / "tutorial.md", *ROOT.glob("docs/guides/*.md")}
    check_shown_output(sorted({*DOCUMENTS} - {GUIDE} - pages_of_test_guides), ROOT)


@pytest.mark.slow
def test_commands_of_the_guide_print_what_is_shown(quickstart: tuple[Path, str]) -> None:
    check_shown_output([GUIDE], quickstart[0])


def check_shown_output(pages: Iterable[Path], directory: Path) -> None:
    shown = [b for path in pages for b in blocks(path, "console") if b.startswith("$ beam-bpe")]
    assert shown
    for block in shown:
        line, _, output = block.partition("\n")
        ran = run_line(line.removeprefix("$ "), directory)
        assert ran.stdout + ran.stderr == output


@pytest.mark.slow
@pytest.mark.parametrize("path", marked(pages_with("python")), ids=name_of)
def test_python_blocks_run(path: Path, quickstart: tuple[Path, str], tmp_path: Path) -> None:
    """They run from top to bottom, in one namespace, where `make quickstart` has been."""
    directory, _ = quickstart
    code = [b.code for b in guide_support.blocks(path) if b.language == "python" and b.is_run]
    for block in code:
        compile(block, name_of(path), "exec")
    runnable = [block for block in code if not (_imports(block) & NOT_INSTALLED)]
    program = tmp_path / "program.py"
    program.write_text("\n".join(runnable), "utf-8")
    run_program(program, directory)


def _imports(code: str) -> set[str]:
    return set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE))


@pytest.mark.slow
def test_the_sample_of_the_summary_is_what_quickstart_prints(
    quickstart: tuple[Path, str],
) -> None:
    directory, printed = quickstart
    [sample] = blocks(QUICKSTART, "text")
    printed = printed.replace(str(directory), "…")
    assert _without_times(sample) == _without_times(printed)


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, ROOT / "docs" / "inspecting.md"], ids=name_of)
def test_the_sample_of_a_document_is_what_inspect_prints(
    page: Path, quickstart: tuple[Path, str]
) -> None:
    directory, _ = quickstart
    [sample] = blocks(page, "text")
    ran = run_line("beam-bpe inspect out/quickstart --row 3", directory)
    printed = re.sub(r"/\S+/examples/", "…/examples/", ran.stdout)
    place = 0  # each part of the sample is in what is printed, behind the one before
    for part in sample.split("…\n"):
        assert part in printed[place:], part
        place = printed.index(part, place) + len(part)


def test_the_sample_of_convert_is_what_it_prints(quickstart: tuple[Path, str]) -> None:
    directory, _ = quickstart
    page = ROOT / "docs" / "converting.md"
    line = blocks(page, "console")[0].splitlines()[0]
    ran = run_line(line, directory)
    printed = re.sub(r"tokenizers [\d.]+ returns", "tokenizers returns", ran.stdout)
    [sample] = [block for block in blocks(page, "text") if block.startswith("read ")]
    assert re.sub(r"tokenizers [\d.]+ returns", "tokenizers returns", sample) == printed


def _without_times(summary: str) -> list[str]:
    """The lines of a summary; of those of the stages the names alone."""
    return [
        re.sub(r"^( *(?:count|train|total|encode|read|merge|write)) +[\d.]+ .*", r"\1", line)
        for line in summary.split("\n")
    ]


@pytest.mark.parametrize("page", pages_with("yaml"), ids=name_of)
def test_configurations_are_valid(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole ones, and parts in place of what `_REST_OF_CONFIGURATION` has."""
    monkeypatch.setenv("MY_S3_KEY", "key")
    monkeypatch.setenv("MY_S3_SECRET", "secret")
    for block in blocks(page, "yaml"):
        path = tmp_path / "build.yaml"
        whole = yaml.safe_load(block).keys() >= _REST_OF_CONFIGURATION.keys()
        path.write_text(block if whole else yaml.safe_dump(completed(block)), "utf-8")
        config = load_config(path)
        places = [config.output_path, *(config.resolve_glob(s.files[0]) for s in config.input)]
        runners.options_of(config.beam, places=places)


def completed(part: str) -> dict[str, Any]:
    found = {**_REST_OF_CONFIGURATION, **yaml.safe_load(part)}
    if isinstance(found["input"], dict):
        found["input"] = {**_REST_OF_CONFIGURATION["input"], **found["input"]}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", marked(sorted((ROOT / "examples").glob("*.py"))), ids=name_of)
def test_examples_run(path: Path, quickstart: tuple[Path, str]) -> None:
    for library in _imports(path.read_text("utf-8")) & NOT_INSTALLED:
        pytest.importorskip(library, reason="too large for the extra `test`")
    directory, _ = quickstart
    assert run_program(path, directory)


def test_the_reasons_of_rejects_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "bad-data.md").read_text("utf-8")
    _, _, rejects = text.partition("## Reasons")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", rejects, re.MULTILINE)
    assert dict(rows) == REASONS  # the last column is what to do


def test_the_changelog_begins_with_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    headings = re.findall(
        r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert headings[0] == version
