"""The site: its navigation has every page, and it is built without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
HOOKS = ROOT / "tools" / "site" / "hooks.py"
CONFIGURATION = ROOT / "mkdocs.yml"
# Elements that GitHub and the site must find in the same text.
ELEMENTS = re.compile(r"h[1-4]|[uo]l|li|table|t[rhd]|pre|code|p|em|strong|blockquote")


class _Loader(yaml.SafeLoader):
    """Loader that ignores the tags of mkdocs."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def outside_pages() -> dict[str, str]:
    """`PAGES` of the hooks, which import mkdocs."""
    [table] = re.findall(r"^PAGES = (\{.*?^\})", HOOKS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    pages: dict[str, str] = yaml.safe_load(table)
    return pages


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [page for item in items for page in pages_of(item)]


def test_the_navigation_lists_every_page_once() -> None:
    nav = yaml.load(CONFIGURATION.read_text("utf-8"), _Loader)["nav"]
    docs = ROOT / "docs"
    there = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    assert sorted(pages_of(nav)) == sorted([*there, *outside_pages().values()])


def test_pages_from_outside_docs_exist() -> None:
    for path in outside_pages():
        assert (ROOT / path).is_file(), path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("needs the dependency group `docs`")
    directory = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return directory


@pytest.mark.nightly
@pytest.mark.process
def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        html = page.read_text("utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]* src="?(?:https?:)?//', html), page
        loaded = re.findall(r'<link[^>]* rel="?(?:stylesheet|preconnect|preload)[^>]*>', html)
        assert not [link for link in loaded if "//" in link], page


@pytest.mark.nightly
@pytest.mark.process
def test_pages_have_the_same_elements_as_in_the_repository(site: Path) -> None:
    """Markdown of the site is not CommonMark: it wants other blank lines and indentation."""
    outside = {uri: ROOT / path for path, uri in outside_pages().items()}
    docs = {path.relative_to(ROOT / "docs").as_posix(): path for path in ROOT.glob("docs/**/*.md")}
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    for uri, source in {**docs, **outside}.items():
        address = "index.html" if uri == "index.md" else f"{uri.removesuffix('.md')}/index.html"
        [article] = re.findall(
            r"<article[^>]*>(.*?)</article>", (site / address).read_text("utf-8"), re.DOTALL
        )
        expected = elements_of(reader.render(source.read_text("utf-8")))
        assert elements_of(article) == expected, source


def elements_of(html: str) -> Counter[str]:
    """Count the elements that Markdown has a notation for."""
    found: Counter[str] = Counter()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if ELEMENTS.fullmatch(tag):
                found[tag] += 1

    Parser().feed(html)
    return found
