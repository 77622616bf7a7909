"""Hooks of mkdocs: pages from outside docs/, links between both, and the script of diagrams."""

from __future__ import annotations

import hashlib
import io
import posixpath
import re
import tarfile
import tomllib
import urllib.request
from pathlib import Path

import code_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[2]
# Files outside docs/, and their addresses on the site.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
    "benchmarks/README.md": "benchmarks.md",
}
# Their tables need the room of the navigation.
WIDE_PAGES = {"benchmarks.md"}
# Pages that are made from the code.
CODE_PAGES = {
    "reference/commands.md": code_pages.render_commands,
    "reference/messages.md": code_pages.render_messages,
}
# The theme would load Mermaid from a CDN if no script had defined it.
MERMAID = "assets/javascripts/mermaid.js"
DIAGRAMS = "assets/javascripts/diagrams.js"
MERMAID_URL = "https://registry.npmjs.org/@mermaid-js/tiny/-/tiny-11.17.2.tgz"
MERMAID_MEMBER = "package/dist/mermaid.tiny.js"
MERMAID_SHA256 = "7a644017d37f93c8359790884e6b67fb1f747c78eb20475952404bd87190a3f8"
_SCRIPT_CACHE = ROOT / "out" / "site-scripts" / f"mermaid-{MERMAID_SHA256[:16]}.js"

_FENCED_OR_LINK = re.compile(
    r"^(?P<fence>```+).*?^(?P=fence) *$"
    r"|(?<=\]\()(?P<target>[^)\s#]+)(?P<anchor>(?:#[^)\s]*)?)(?=\))",
    re.MULTILINE | re.DOTALL,
)
_COMMANDS = re.compile(r"\A```console\n(?!\$ )")
_TABLE_LINE = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_BUNDLE = re.compile(r'(?=<script src="[^"]*assets/javascripts/bundle\.)')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the addresses of the site and of the repository."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    repository = urls["Repository"]
    config.site_url = urls["Documentation"]
    config.edit_uri = f"{repository}/edit/main/"
    config.extra["repository"] = repository
    config.extra["social"] = [
        {"icon": "fontawesome/brands/github", "link": repository, "name": "Repository"}
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/ and the script of diagrams."""
    for file in files:
        file.edit_uri = f"docs/{file.src_uri}"
    for path, uri in PAGES.items():
        page = File.generated(config, uri, abs_src_path=str(ROOT / path))
        page.edit_uri = path
        files.append(page)
    for uri, render in CODE_PAGES.items():
        files.append(File.generated(config, uri, content=render()))
    files.append(File.generated(config, MERMAID, abs_src_path=str(fetch_mermaid())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert Markdown of the repository to that of the site.

    Relative links lead to pages of the site, or to the repository online. Console blocks without
    output are highlighted as commands. In tables, GitHub wants a backslash before a bar in code,
    which Python's Markdown would show.
    """
    if page.file.src_uri in CODE_PAGES:
        return markdown
    if page.file.src_uri in WIDE_PAGES:
        page.meta["hide"] = ["navigation"]
    ours = {uri: path for path, uri in PAGES.items()}
    uri = page.file.src_uri
    folder = posixpath.dirname(ours.get(uri, f"docs/{uri}"))
    repository = config.extra["repository"]
    linked = _FENCED_OR_LINK.sub(
        lambda found: (
            _COMMANDS.sub("```bash\n", found[0])
            if found["fence"]
            else convert_link(found, folder, uri, repository)
        ),
        markdown,
    )
    return _TABLE_LINE.sub(
        lambda line: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), line[0]), linked
    )


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load the script of diagrams on pages that have one."""
    if '<pre class="mermaid">' not in output:
        return output
    urls = [get_relative_url(script, page.url) for script in (MERMAID, DIAGRAMS)]
    scripts = "".join(f'<script src="{url}"></script>' for url in urls)
    return _BUNDLE.sub(scripts, output, count=1)


def convert_link(link: re.Match[str], folder: str, uri: str, repository: str) -> str:
    """Return the target of a link in a file of `folder`, for the page `uri`."""
    target, anchor = link["target"], link["anchor"]
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    page = path.removeprefix("docs/") if path.startswith("docs/") else PAGES.get(path)
    if page:
        return posixpath.relpath(page, posixpath.dirname(uri) or ".") + anchor
    if not (ROOT / path).exists():
        return link[0]  # mkdocs reports it
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{repository}/{kind}/main/{path}{anchor}"


def fetch_mermaid() -> Path:
    """Return the script of diagrams, from the npm registry if it is not here yet."""
    if not _SCRIPT_CACHE.exists():
        with urllib.request.urlopen(MERMAID_URL, timeout=60) as answer:
            packed = io.BytesIO(answer.read())
        with tarfile.open(fileobj=packed) as archive:
            member = archive.extractfile(MERMAID_MEMBER)
            script = member.read() if member else b""
        if (found := hashlib.sha256(script).hexdigest()) != MERMAID_SHA256:
            raise PluginError(
                f"{MERMAID_URL}: expected {MERMAID_MEMBER} with SHA-256 {MERMAID_SHA256}, "
                f"found {found}. Do not use this file."
            )
        _SCRIPT_CACHE.parent.mkdir(parents=True, exist_ok=True)
        _SCRIPT_CACHE.write_bytes(script)
    return _SCRIPT_CACHE
