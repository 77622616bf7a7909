"""The site: its navigation has every page, and it is built without a warning."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from markdown_it import MarkdownIt

import bpe_core
import pipelines
from pipelines.cli import app

ROOT = Path(__file__).parents[1]
HOOKS = ROOT / "tools" / "site" / "hooks.py"
CODE_PAGES = ROOT / "tools" / "site" / "code_pages.py"
CONFIGURATION = ROOT / "mkdocs.yml"
PYTHON_REFERENCE = ROOT / "docs" / "reference" / "python"
# Elements that GitHub and the site must find in the same text.
ELEMENTS = re.compile(r"h[1-4]|[uo]l|li|table|t[rhd]|pre|code|p|em|strong|blockquote")


class _Loader(yaml.SafeLoader):
    """Loader that ignores the tags of mkdocs."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


_IMPORT = re.compile(
    r"^from ((?:bpe_core|pipelines)[\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE
)


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
    made = re.findall(r'^    "(reference/.*\.md)": ', HOOKS.read_text("utf-8"), re.MULTILINE)
    assert sorted(pages_of(nav)) == sorted([*there, *outside_pages().values(), *made])


def test_pages_from_outside_docs_exist() -> None:
    for path in outside_pages():
        assert (ROOT / path).is_file(), path


def referenced_names() -> set[str]:
    """The names in the Python reference: objects, and modules with all their public names."""
    pages = [path.read_text("utf-8") for path in PYTHON_REFERENCE.glob("*.md")]
    return {name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)}


def test_the_python_reference_has_every_public_name() -> None:
    names = referenced_names()
    for package in (bpe_core, pipelines):
        for name in package.__all__:
            full = f"{package.__name__}.{name}"
            assert full in names or name in {"BpeError", "plan"}, full  # in pages of modules


def test_the_python_reference_has_every_name_that_pages_import() -> None:
    names = referenced_names()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for module, in_brackets, in_line in _IMPORT.findall(page.read_text("utf-8")):
            for name in re.findall(r"\w+", in_brackets or in_line):
                full = f"{module}.{name}"
                documented = {full, f"bpe_core.{name}", f"pipelines.{name}", module} & names
                found = documented or any(other.startswith(f"{full}.") for other in names)
                assert found, f"{page.name} imports {full}"


@pytest.mark.slow
def test_every_command_and_option_is_in_the_reference() -> None:
    page = runpy.run_path(str(CODE_PAGES))["render_commands"]()
    sections = dict(re.findall(r"^## ([\w ,-]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    shared = sections.pop("Options for messages")
    for name, command in leaves(typer.main.get_command(app)):
        section = sections.pop(name)
        for parameter in command.params:
            shown = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar
            assert (shown or parameter.name.upper()) in section + shared, (name, parameter.name)
    assert not sections


def leaves(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


@pytest.mark.slow
def test_messages_of_errors_are_in_the_reference_with_their_remedy() -> None:
    page = runpy.run_path(str(CODE_PAGES))["render_messages"]()
    line = "| The output belongs to another configuration or other inputs; nothing was changed. | "
    assert line in page
    assert "| Choose another directory, or remove the files. |" in page
    assert "## TrainingError" in page


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
def test_bars_in_the_code_of_tables_have_no_backslash(site: Path) -> None:
    shown = [page for page in site.rglob("*.html") if r"\|" in page.read_text("utf-8")]
    assert shown == []


@pytest.mark.nightly
@pytest.mark.process
def test_pages_have_the_same_elements_as_in_the_repository(site: Path) -> None:
    """Markdown of the site is not CommonMark: it wants other blank lines and indentation."""
    outside = {uri: ROOT / path for path, uri in outside_pages().items()}
    docs = {
        path.relative_to(ROOT / "docs").as_posix(): path
        for path in ROOT.glob("docs/**/*.md")
        if path.parent != PYTHON_REFERENCE
    }
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    for uri, source in {**docs, **outside}.items():
        folder = uri.removesuffix(".md").removesuffix("index")
        html = (site / folder / "index.html").read_text("utf-8")
        [article] = re.findall(r"<article[^>]*>(.*?)</article>", html, re.DOTALL)
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


@pytest.mark.nightly
@pytest.mark.process
def test_the_reference_has_every_public_method(site: Path) -> None:
    listed = ROOT / "tests" / "bpe_core" / "public_names.txt"
    expected = set(re.findall(r"^\w+(?:\.[a-z]\w*)?", listed.read_text("utf-8"), re.MULTILINE))
    html = [page.read_text("utf-8") for page in (site / "reference" / "python").rglob("*.html")]
    anchors = {name for page in html for name in re.findall(r'id="bpe_core\.([\w.]+)"', page)}
    assert expected - anchors == {"Group.count", "Group.index"}  # of every tuple
