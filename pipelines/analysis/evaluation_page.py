"""An evaluation as a page of HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from bpe_core.visible_text import visible
from pipelines.analysis.evaluation import Evaluation
from pipelines.analysis.evaluation_report import (
    Section,
    describe_text,
    list_details,
    list_sections,
)

__all__ = ["make_page"]

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; }}
body {{ padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }}
h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .75rem; border-bottom: 1px solid #8884; }}
td, thead th {{ text-align: right; }}
tbody th {{ text-align: left; font-weight: normal; }}
tbody tr:hover {{ background: #8882; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def make_page(evaluation: Evaluation) -> str:
    """Return an evaluation as a page of HTML that needs nothing else."""
    title = "Tokenizers: " + ", ".join(one.name for one in evaluation.tokenizers)
    parts = [
        f"<h1>{escape(visible(title))}</h1>",
        f"<p>{escape(describe_text(evaluation))}</p>",
        "<ul>",
        *(
            f"<li>{escape(visible(one.name))}: <code>{escape(visible(one.location))}</code>, "
            f"fingerprint <code>{one.fingerprint}</code></li>"
            for one in evaluation.tokenizers
        ),
        "</ul>",
    ]
    for section in [*list_sections(evaluation), *list_details(evaluation)]:
        parts += _section_to_html(section)
    return _PAGE.format(title=escape(visible(title)), body="\n".join(parts))


def _section_to_html(section: Section) -> Iterator[str]:
    yield f"<h2>{escape(visible(section.title))}</h2>"
    yield '<div class="wide"><table>'
    head = "".join(f'<th scope="col">{escape(visible(name))}</th>' for name in section.columns)
    yield f"<thead><tr><td></td>{head}</tr></thead>"
    yield "<tbody>"
    for label, *cells in section.rows:
        shown = "".join(f"<td>{escape(visible(cell))}</td>" for cell in cells)
        yield f'<tr><th scope="row">{escape(visible(label))}</th>{shown}</tr>'
    yield "</tbody></table></div>"
    if section.note:
        yield f"<p>{escape(visible(section.note))}</p>"
