"""Templates of pages, with texts of the corpus escaped.

Names and texts come from corpora and files of other people. A page shows them, so every text that a
template inserts passes through `visible` (control characters and marks that change the direction of
writing), then through the escaping of HTML. A page runs only the scripts that it was written with:
its policy lists their hashes, and it loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from bpe_core.token_colours import TOKEN_STYLE, token_spans_html
from bpe_core.visible_text import visible

__all__ = ["CHART_SCRIPTS", "embed_json", "read_asset", "render_page", "render_part"]

CHART_SCRIPTS: Final = ("d3.min.js", "plot.min.js", "charts.js")
"""Scripts of pages with charts, in order."""

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; script-src {scripts}"
)


def render_page(template: str, *, scripts: Sequence[str] = (), **values: object) -> str:
    """Return a page from a template in `assets/` and the values that it names.

    Args:
        template: name of the file.
        scripts: names of the scripts in `assets/` that the page runs, in order.
        values: for the template. Texts are escaped, unless they are `Markup`.
    """
    # An HTML parser reads all line ends as \n before it compares hashes.
    texts = [read_asset(name).replace("\r\n", "\n") for name in scripts]
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(TOKEN_STYLE + read_asset("style.css")),
            scripts=[Markup(text) for text in texts],
            policy=_POLICY.format(scripts=" ".join(map(_hash, texts)) or "'none'"),
            **values,
        )
    )


def render_part(template: str, **values: object) -> str:
    """Return a part of a page, without its scripts and its style; see `render_page`."""
    return _environment().get_template(template).render(**values)


@cache
def read_asset(name: str) -> str:
    """Return the text of a file in `assets/`."""
    return (files(__package__) / "assets" / name).read_text("utf-8")


def embed_json(value: object) -> Markup:
    """Return JSON for an element `<script type="application/json">`, safe for any texts.

    Example:
        >>> str(embed_json(["</script>", "\\u202e"]))
        '["\\\\u003c/script\\\\u003e","\\\\u202e"]'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    names = [entry.name for entry in (files(__package__) / "assets").iterdir()]
    environment = Environment(
        loader=DictLoader({name: read_asset(name) for name in names if name.endswith(".html")}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = "{:,}".format
    environment.filters["tokens"] = lambda pairs: Markup(token_spans_html(pairs))
    return environment


def _make_visible(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
