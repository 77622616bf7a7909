"""An evaluation as a page of HTML."""

from __future__ import annotations

from pipelines.analysis.evaluation import Evaluation
from pipelines.analysis.evaluation_report import describe_text, list_details, list_sections
from pipelines.pages.templates import render_page

__all__ = ["make_page"]


def make_page(evaluation: Evaluation) -> str:
    """Return an evaluation as a page of HTML that needs nothing else."""
    return render_page(
        "evaluation.html",
        title="Tokenizers: " + ", ".join(one.name for one in evaluation.tokenizers),
        description=describe_text(evaluation),
        tokenizers=evaluation.tokenizers,
        sections=[*list_sections(evaluation), *list_details(evaluation)],
    )
