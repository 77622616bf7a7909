"""Templates of pages, with texts of the corpus escaped.

Names and texts come from corpora and files of other people. A page shows them, so every text that a
template inserts passes through `visible` (control characters and marks that change the direction of
writing), then through the escaping of HTML.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from bpe_core.visible_text import visible

__all__ = ["read_asset", "render_page"]


def render_page(template: str, **values: object) -> str:
    """Return a page from a template in `assets/` and the values that it names.

    Args:
        template: name of the file.
        values: for the template. Texts are escaped, unless they are `Markup`.
    """
    return (
        _environment()
        .get_template(template)
        .render(style=Markup(read_asset("style.css")), **values)
    )


@cache
def read_asset(name: str) -> str:
    """Return the text of a file in `assets/`."""
    return (files(__package__) / "assets" / name).read_text("utf-8")


@cache
def _environment() -> Environment:
    names = [entry.name for entry in (files(__package__) / "assets").iterdir()]
    return Environment(
        loader=DictLoader({name: read_asset(name) for name in names if name.endswith(".html")}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _make_visible(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
