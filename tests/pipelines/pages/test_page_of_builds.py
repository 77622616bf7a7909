"""Builds write the report page at their end, and are finished without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from build_support import checksums, config_for, some_text, states, write_corpus
from inline_runner import report_pages

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.pages import collect
from pipelines.storage.directory import Directory
from pipelines.verification.verify import verify

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def pages() -> Iterator[None]:
    with report_pages():
        yield


@pytest.fixture
def config(tmp_path: Path) -> BuildConfig:
    write_corpus(tmp_path / "data", {"a.txt": some_text(30)})
    return config_for(tmp_path, encode={"append": None})


def test_a_build_writes_the_page_once(config: BuildConfig, tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = build.build(config)
    assert summary.outputs["report"] == str(out / "report.html")
    assert summary.warnings == ()
    assert "30" in (out / "report.html").read_text("utf-8")
    before = states(out)
    assert build.build(config).outputs["report"] == str(out / "report.html")
    assert states(out) == before
    assert verify(Directory(url=str(out))).problems == []
    write_corpus(tmp_path / "data", {"b.txt": some_text(12, start=40)})
    build.add(config)
    assert "b.txt" in (out / "report.html").read_text("utf-8")


def test_a_build_without_it_has_the_same_bytes(config: BuildConfig, tmp_path: Path) -> None:
    build.build(config)
    without = config.model_copy(update={"report": False, "output": str(tmp_path / "other")})
    assert "report" not in build.build(without).outputs
    assert not (tmp_path / "other" / "report.html").exists()
    assert checksums(tmp_path / "other") == checksums(tmp_path / "out")


def test_a_page_that_cannot_be_written_is_a_warning(
    config: BuildConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(collect, "collect", fail)
        summary = build.build(config)
    assert summary.warnings == ("the report page (report.html) was not written: no space",)
    assert "report" not in summary.outputs
    assert (tmp_path / "out" / "tokens" / "manifest.json").exists()
    # The next build writes what is missing.
    assert build.build(config).warnings == ()
    assert (tmp_path / "out" / "report.html").exists()


def test_a_restart_removes_the_page_with_the_dataset(
    config: BuildConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.build(config)
    monkeypatch.setattr(build, "write_report_page", lambda context: None)
    build.encode(config, restart=True)
    assert not (tmp_path / "out" / "report.html").exists()


def test_an_output_on_another_storage_has_a_page(config: BuildConfig) -> None:
    remote = config.model_copy(update={"output": "memory://page-of-builds/out"})
    summary = build.build(remote)
    assert summary.warnings == ()
    assert summary.outputs["report"] == "memory://page-of-builds/out/report.html"
    assert b"<!doctype html>" in Directory(url="memory://page-of-builds/out").read_bytes(
        "report.html"
    )
