"""A small build with hostile texts, and a real browser, for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from build_support import some_text

from pipelines import build
from pipelines.config import BuildConfig

END = "<|endoftext|>"
SPECIAL = '<|"><img src=x onerror="window.owned=1">|>'
HOSTILE = (
    "</script><script>window.owned = 1</script> <b onclick='x'>&amp; \u202egnp.exe\u202c "
    "\x1b[31m {{ 7*7 }} ${7*7} 漢字 \U0001f600"
).encode()
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
_VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}


def build_hostile(folder: Path) -> Path:
    """Build a dataset of two sources with texts that attack pages; return its output."""
    books = [*some_text(40), HOSTILE, f"a {SPECIAL} b".encode(), *some_text(10, start=50)]
    (folder / "books.txt").write_bytes(END.encode().join(books))
    (folder / "<b>web.txt").write_bytes(b"\n".join([*some_text(20, 9), b"bad \xff", HOSTILE]))
    config = BuildConfig.model_validate(
        {
            "output": str(folder / "out"),
            "input": [
                {"name": "books", "files": [str(folder / "books.txt")], "sample_fraction": 0.9},
                {"name": "web", "files": [str(folder / "*web.txt")], "separator": "\n"},
            ],
            "tokenizer": {"vocab_size": 340, "special_tokens": [END, SPECIAL]},
            "counts": {"shards": 2},
            "encode": {"append": END, "validation_fraction": 0.2, "max_reject_fraction": 0.5},
            "beam": {"workers": 1},
        }
    )
    build.build(config)
    return folder / "out"


class Page(HTMLParser):
    """Elements of a page: names, attributes, texts, rows of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.texts: list[str] = []
        self._cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("th", "td") and self._cell is not None:
            self.rows[-1].append("".join(self._cell).strip())
            self._cell = None

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._cell is not None:
            self._cell.append(data)


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a headless Chromium of the machine, or skip the test."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail("There is no Chromium, but REQUIRE_BROWSER is 1.")
        pytest.skip("There is no Chromium on this machine.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=list(_FLAGS))
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def opened_page(chromium: Any, file: Path, **options: Any) -> Iterator[tuple[Any, list[str]]]:
    """Yield a page that was opened from its file, and the list of its errors."""
    errors: list[str] = []
    page = chromium.new_page(**options)
    page.set_default_timeout(10_000)
    page.on("console", lambda message: errors.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: errors.append(f"error: {error}"))
    page.on("request", lambda request: errors.extend(_foreign(request.url)))
    page.goto(file.absolute().as_uri())
    try:
        yield page, errors
    finally:
        page.close()


def _foreign(url: str) -> list[str]:
    return [] if url.startswith("file:") else [f"request: {url}"]
