"""DoFns that write token rows to sorted runs, and add them up independently as a check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from pipelines.beam.dofn import VersionCheckedDoFn
from pipelines.beam.metrics import beam_meter
from pipelines.beam.rows import RowElements
from pipelines.manifest.shards import ShardFiles
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_runs import RowRuns
from pipelines.writing.token_shards import RowTotals, describe_sections


class WriteRuns(VersionCheckedDoFn):
    """DoFn that writes rows to sorted runs and yields descriptors of their sections.

    Runs belong to one attempt of a bundle. Descriptors are yielded only at its end, so runs of a
    failed attempt are never used.
    """

    def __init__(self, files: ShardFiles) -> None:
        super().__init__()
        self._files = files

    def start_bundle(self) -> None:
        """Start without rows."""
        self._runs = RowRuns(self._files.runs, self._files.number)
        self._elements = RowElements()
        self._meter = beam_meter()

    def process(self, element: Any) -> None:
        """Add a batch of rows, or a row."""
        if type(element) is TokenRows:
            self._add(element)
        elif self._elements.add(element):
            self._add(self._elements.rows())

    def finish_bundle(self) -> Iterator[Any]:
        """Write the last run, and yield the descriptors."""
        self._add(self._elements.rows())
        with self._meter.time("write"):
            sections = self._runs.finish()
        self._meter.report_times()
        for descriptor in describe_sections(sections):
            yield GlobalWindows.windowed_value_at_end_of_window(descriptor)

    def _add(self, rows: TokenRows) -> None:
        with self._meter.time("write"):
            self._runs.add(rows)


class AddUpRows(beam.DoFn):  # type: ignore[misc]
    """DoFn that adds up rows, to check the shards independently of the runs."""

    def start_bundle(self) -> None:
        """Start at zero."""
        self._totals = RowTotals()
        self._elements = RowElements()

    def process(self, element: Any) -> None:
        """Add a batch of rows, or a row."""
        if type(element) is TokenRows:
            self._totals = RowTotals.sum_of((self._totals, RowTotals.of(element)))
        elif self._elements.add(element):
            self._add_elements()

    def finish_bundle(self) -> Iterator[Any]:
        """Yield the totals of the bundle."""
        self._add_elements()
        yield GlobalWindows.windowed_value_at_end_of_window(self._totals.to_bytes())

    def _add_elements(self) -> None:
        self._totals = RowTotals.sum_of((self._totals, self._elements.totals()))
        self._elements.clear()
