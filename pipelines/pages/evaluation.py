"""An evaluation as a page of HTML."""

from __future__ import annotations

from pipelines.analysis.evaluation import Evaluation
from pipelines.analysis.evaluation_report import (
    Section,
    describe_text,
    list_details,
    list_sections,
)
from pipelines.pages.tables import Column, Table
from pipelines.pages.templates import render_page

__all__ = ["make_page"]


def make_page(evaluation: Evaluation) -> str:
    """Return an evaluation as a page of HTML that needs nothing else."""
    sections = [*list_sections(evaluation), *list_details(evaluation)]
    return render_page(
        "evaluation.html",
        title="Tokenizers: " + ", ".join(one.name for one in evaluation.tokenizers),
        description=describe_text(evaluation),
        tokenizers=evaluation.tokenizers,
        tables=[_tabulate(section) for section in sections],
    )


def _tabulate(section: Section) -> Table:
    """Return a table, whose keys are the numbers of its columns."""
    return Table(
        title=section.title[:1].upper() + section.title[1:],
        columns=[
            Column("0", "", "text"),
            *(
                Column(str(number), name, "cell")
                for number, name in enumerate(section.columns, start=1)
            ),
        ],
        rows=[{str(number): cell for number, cell in enumerate(row)} for row in section.rows],
        note=section.note,
    )
