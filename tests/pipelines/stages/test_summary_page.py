"""The result of a build as a notebook shows it."""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path

from pipelines.console.engine_jobs import EngineJob
from pipelines.pages.summary import Link
from pipelines.stages.summary import BuildSummary, StageSummary
from pipelines.storage.locks import DetachedJob


def text_of(page: str) -> str:
    without_style = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", without_style).split())


def test_numbers_stages_and_places() -> None:
    job = EngineJob(engine="Flink", id="1f", url="http://flink.example/#/job/running/1f/overview")
    summary = BuildSummary(
        output="out/books",
        documents=1189,
        bytes=4_136_661,
        rejects=0,
        tokens=1_157_356,
        bytes_per_token=3.574,
        vocab_size=2000,
        seconds=3.07,
        stages=(StageSummary(name="count", seconds=2.0, bytes=4_000_000, job=job),),
        outputs={"tokens": "/data/out/books/tokens"},
        warnings=("the corpus is too small",),
    )
    page = summary._repr_html_()
    text = text_of(page)
    for part in ("out/books", "documents 1,189", "text 4.1 MB", "tokens 1,157,356",
                 "bytes per token 3.57", "ids 2,000", "seconds 3.1", "count 2.0 2.0 done",
                 "warning: the corpus is too small", "/data/out/books/tokens"):  # fmt: skip
        assert part in text, part
    assert f'<a href="{job.url}">' in page and "Flink job of count" in text


def test_an_unfinished_result_shows_what_there_is() -> None:
    job = DetachedJob(name="1f", runner="FlinkRunner", url=None, stages=("count",))
    text = text_of(BuildSummary(output="out", submitted=job)._repr_html_())
    assert text == "out submitted 1f"


def test_names_are_escaped() -> None:
    page = BuildSummary(output="</style><script>\u202e", outputs={"<b>": "<i>"})._repr_html_()
    assert "<script>" not in page and "<b>:" not in page and "\u202e" not in page
    assert "&lt;i&gt;" in page


def test_pages_below_the_notebook_are_links(tmp_path: Path) -> None:
    with chdir(tmp_path):
        assert Link.of(str(tmp_path / "out" / "report.html")).href == "out/report.html"
        assert Link.of("/elsewhere/report.html").href is None
        assert Link.of("s3://bucket/report.html").href is None
        odd = tmp_path / "javascript:alert(1)" / "a b.html"
        assert Link.of(str(odd)).href == "javascript%3Aalert%281%29/a%20b.html"
