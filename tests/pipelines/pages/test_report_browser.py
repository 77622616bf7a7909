"""The report page in a real browser: no error, no request, no violation, every width and scheme."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from build_support import command as beam_bpe
from page_support import browser, build_hostile, opened_page

from pipelines.pages.collect import collect
from pipelines.pages.report import make_report

# The elements that are wider than the window and do not scroll in themselves.
_TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll("main *, header *")]
    .filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest(".wide"))
    .map((e) => e.outerHTML.slice(0, 200))"""

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    page = folder / "report.html"
    page.write_text(make_report(collect(str(build_hostile(folder)))), "utf-8")
    return page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


def check(chromium: Any, report: Path, charts: int = 10, **options: Any) -> None:
    """Open a page with `options` of the browser, and check it and the number of its charts."""
    from axe_playwright_python.sync_playwright import Axe

    with opened_page(chromium, report, **options) as (page, errors):
        places = page.locator("[data-chart]")
        page.wait_for_function(
            "() => [...document.querySelectorAll('[data-chart]')].every(e => e.firstChild)"
        )
        assert places.count() >= charts
        assert page.evaluate(_TOO_WIDE) == []
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        # The policy of the page keeps out scripts in it, not those of the debugger.
        violations = Axe().run(page).response["violations"]
        assert [
            (found["id"], [node["html"] for node in found["nodes"][:3]]) for found in violations
        ] == []
        assert page.evaluate("window.owned") is None
        assert errors == []


def test_the_page_works_on_a_phone_in_the_dark(chromium: Any, report: Path) -> None:
    check(chromium, report, viewport={"width": 375, "height": 800}, color_scheme="dark")


@pytest.mark.nightly
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 375, 768, 1280, 1920])
def test_the_page_fits_every_window(
    chromium: Any, report: Path, width: int, color_scheme: str
) -> None:
    check(chromium, report, viewport={"width": width, "height": 900}, color_scheme=color_scheme)


@pytest.mark.nightly
def test_the_page_is_read_without_scripts(chromium: Any, report: Path) -> None:
    with opened_page(chromium, report, java_script_enabled=False) as (page, errors):
        assert page.locator("table").count() > 10
        assert errors == []


@pytest.mark.nightly
def test_the_page_is_used_by_keyboard(chromium: Any, report: Path) -> None:
    with opened_page(chromium, report) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main"
        summary = page.locator("figure summary").first
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("figure details[open] table").first.is_visible()


@pytest.mark.nightly
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_other_pages_fit_and_are_accessible(
    chromium: Any, report: Path, command: str, width: int, color_scheme: str, tmp_path: Path
) -> None:
    output = report.parent / "out"
    other = output / "tokenizer" / "tokenizer.json"
    arguments = [output, other] if command == "compare" else [output, "--with", other]
    page = tmp_path / "page.html"
    assert beam_bpe(command, *arguments, "--html", page).returncode == 0
    viewport = {"width": width, "height": 900}
    check(chromium, page, 3 * (command == "compare"), viewport=viewport, color_scheme=color_scheme)
