"""The report page in the output of a finished build."""

from __future__ import annotations

from pipelines.console import progress
from pipelines.manifest.names import REPORT
from pipelines.stages.context import BuildContext

__all__ = ["write_report_page"]


def write_report_page(context: BuildContext) -> None:
    """Write `report.html` if the dataset has changed or the page is missing.

    A build whose page cannot be written is finished all the same: its summary has a warning.
    """
    root, report = context.output.root, context.report
    if not context.config.report or report.summary.tokens is None:
        return
    if report.has_changes or REPORT not in root.sizes():
        if not context.lock.try_acquire():
            return
        progress.describe("writing the report page")
        try:
            from pipelines.pages.collect import collect
            from pipelines.pages.report import make_report

            page = make_report(collect(root.url, root.storage_options))
            root.write_bytes(REPORT, page.encode())
        except Exception as error:  # the build is finished, whatever it is
            reason = str(error).partition("\n")[0] or type(error).__name__
            report.add_warnings([f"the report page ({REPORT}) was not written: {reason}"])
            return
    report.add_page(root.path(REPORT))
