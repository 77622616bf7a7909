"""The release: its versions, its workflows, and the files that describe the project to others."""

from __future__ import annotations

import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS: dict[str, dict[Any, Any]] = {
    path.stem: yaml.safe_load(path.read_text("utf-8"))
    for path in (ROOT / ".github/workflows").glob("*.yml")
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        for job, content in workflow["jobs"].items():
            yield f"{name}: {job}", content


def test_workflows_run_the_checks_the_nightly_tests_and_the_release() -> None:
    commands = {
        name: [
            step["run"]
            for job in workflow["jobs"].values()
            for step in job["steps"]
            if "run" in step
        ]
        for name, workflow in WORKFLOWS.items()
    }
    assert commands["checks"] == [".ci/run"]
    assert "make nightly" in commands["nightly"]
    assert commands["release"] == ["make release", "python deploy/try_release.py dist/release"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for command in (command for found in commands.values() for command in found):
        if target := re.fullmatch(r"make (\w+)", command):
            assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE)
        elif script := re.search(r"\S+/\S+(?=\s|$)", command):
            assert command.startswith("sudo") or (ROOT / script[0]).exists(), command


def test_jobs_have_limits_and_no_more_rights_than_they_need() -> None:
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        assert True in workflow, name  # YAML 1.1 reads the key `on` as true
    writing = []
    for name, job in jobs():
        assert job["timeout-minutes"] <= 360 and job["runs-on"], name
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), name
            assert "uses" not in step or re.fullmatch(r"[\w./-]+@[\w./]+", step["uses"]), name
        if "write" in job.get("permissions", {}).values():
            writing.append((name, job["permissions"], job["environment"]))
    assert writing == [("release: publish", {"id-token": "write"}, "pypi")]


def test_the_release_has_wheels_for_every_declared_python() -> None:
    [setup] = [
        step["with"]["python-version"]
        for step in WORKFLOWS["release"]["jobs"]["build"]["steps"]
        if step.get("uses", "").startswith("actions/setup-python")
    ]
    prefix = "Programming Language :: Python :: 3."
    declared = {
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith(prefix)
    }
    assert {*setup.split()} == declared == {*PYTHONS}


def test_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert (citation["title"], citation["license"]) == (PROJECT["name"], PROJECT["license"])
    assert {"cff-version", "message", "authors"} <= citation.keys()
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## {re.escape(PROJECT['version'])}\b", changes, re.MULTILINE)


def test_a_tag_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tomli_w")
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    check = runpy.run_path(str(ROOT / "deploy/build_release.py"))["check_version"]
    check(PROJECT, None)
    check(PROJECT, f"v{PROJECT['version']}")
    with pytest.raises(SystemExit, match=r"expected the tag v0\.1\.0"):
        check(PROJECT, "v9.9")


def test_a_release_from_another_repository_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tomli_w")
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    check = runpy.run_path(str(ROOT / "deploy/build_release.py"))["check_repository"]
    check(PROJECT, None)
    check(PROJECT, urlsplit(PROJECT["urls"]["Repository"]).path.strip("/"))
    with pytest.raises(SystemExit, match="expected the address of someone/else"):
        check(PROJECT, "someone/else")
