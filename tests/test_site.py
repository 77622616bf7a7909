"""The site: its navigation has every page, and it is built without a warning."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from markdown_it import MarkdownIt
from page_support import browser

import bpe_core
import pipelines
from pipelines.cli import app

ROOT = Path(__file__).parents[1]
HOOKS = ROOT / "tools" / "site" / "hooks.py"
LINKS = ROOT / "tools" / "site" / "links.py"
CODE_PAGES = ROOT / "tools" / "site" / "code_pages.py"
CONFIGURATION = ROOT / "mkdocs.yml"
PYTHON_REFERENCE = ROOT / "docs" / "reference" / "python"
# Elements that GitHub and the site must find in the same text.
ELEMENTS = re.compile(r"h[1-4]|[uo]l|li|table|t[rhd]|pre|code|p|em|strong|blockquote")


class _Loader(yaml.SafeLoader):
    """Loader that ignores the tags of mkdocs."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


_SITE_PATH = "/bpe-beam/"
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


def test_addresses_of_other_sites_are_well_formed() -> None:
    script = runpy.run_path(str(LINKS))
    links = script["find_links"](script["documentation"]())
    assert len(links) > 20
    assert [f"{link}: {found}" for link in links if (found := script["find_mistake"](link))] == []


@pytest.mark.parametrize(
    "address",
    ["http://example.org", "https://localhost/a", "https://a b.org", "https://example.org/a|b"],
)
def test_malformed_addresses_are_found(address: str) -> None:
    assert runpy.run_path(str(LINKS))["find_mistake"](address) is not None


def test_missing_pages_are_broken_and_silent_servers_unknown(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    handler = partial(_QuietHandler, directory=tmp_path)
    script = runpy.run_path(str(LINKS))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        answers = script["ask"]([f"{base}/there#part", f"{base}/gone", "http://127.0.0.1:9/"])
        server.shutdown()
    broken, unknown = script["sort_answers"](answers)
    assert broken == [f"{base}/gone: 404"]
    assert [line.partition(" ")[0] for line in unknown] == ["http://127.0.0.1:9/:"]


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.mark.nightly
def test_addresses_of_other_sites_lead_somewhere() -> None:
    script = runpy.run_path(str(LINKS))
    answers = script["ask"](script["find_links"](script["documentation"]()))
    broken, unknown = script["sort_answers"](answers)
    assert not broken
    if len(unknown) == len(answers):
        pytest.skip("no network: the form of the addresses is checked alone")
    for line in unknown:
        warnings.warn(f"not reached: {line}", stacklevel=1)


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


class _SiteHandler(SimpleHTTPRequestHandler):
    """Server of the site below the path of `site_url`, with its page for what is missing."""

    def log_message(self, *_: object) -> None: ...

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix(_SITE_PATH.rstrip("/")))

    def send_error(self, code: int, *_: object, **__: object) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write((Path(self.directory) / "404.html").read_bytes())


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = partial(_SiteHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{_SITE_PATH}"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@contextmanager
def opened(chromium: Any, address: str, **options: Any) -> Iterator[tuple[Any, list[str]]]:
    """Yield a page, and the list of its errors and of its requests to other hosts."""
    errors: list[str] = []
    page = chromium.new_page(**options)
    page.on("console", lambda message: errors.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: errors.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: errors.extend([] if "//127.0.0.1:" in request.url else [request.url]),
    )
    page.goto(address, wait_until="networkidle")
    try:
        yield page, errors
    finally:
        page.close()


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize(
    "uri",
    ["", "architecture/", "benchmarks/", "configuration/", "guides/", "reference/commands/",
     "reference/messages/", "reference/python/tokenizer/"],
)  # fmt: skip
def test_pages_work_in_a_browser(
    chromium: Any, address: str, uri: str, width: int, color_scheme: str
) -> None:
    """No error, no other host, nothing wider than the window, diagrams drawn, WCAG kept."""
    from axe_playwright_python.sync_playwright import Axe

    viewport = {"width": width, "height": 900}
    with opened(chromium, address + uri, viewport=viewport, color_scheme=color_scheme) as (
        page,
        errors,
    ):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for diagram in page.locator(".mermaid").all():
            assert diagram.bounding_box()["height"] > 40
        page.wait_for_timeout(700)  # until tables that scroll can be focused
        rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
        found = Axe().run(page, options=rules).response["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"][:3]]) for one in found] == []
        assert errors == []


@pytest.mark.nightly
@pytest.mark.process
def test_search_finds_an_option(chromium: Any, address: str) -> None:
    with opened(chromium, address) as (page, errors):
        page.get_by_role("textbox").first.fill("max_reject_fraction")
        page.locator(".md-search-result__item").first.wait_for()
        assert errors == []


@pytest.mark.nightly
@pytest.mark.process
def test_a_missing_page_leads_on(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}no/such/page/") as (page, _):
        page.get_by_role("link", name="Troubleshooting").click()
        page.wait_for_url(f"{address}troubleshooting/")
