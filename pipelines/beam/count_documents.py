"""The DoFn that counts documents into sorted runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from pipelines.batches import DocumentBatch
from pipelines.beam.elements import DocumentFn, element_options
from pipelines.beam.metrics import beam_meter
from pipelines.counting.documents import DocumentCounter
from pipelines.counting.jobs import CountRules


class CountDocuments(DocumentFn):
    """DoFn that counts documents and yields descriptors of runs, totals of bundles, and rejects.

    A table belongs to one attempt of a bundle. Descriptors are yielded only at the end of a bundle,
    so runs of a failed attempt are never used.

    Args:
        rules: How pre-tokens are counted.
        text_field, id_field, invalid_utf8: See `ElementRules`.
    """

    consumer = "CountPretokens"

    def __init__(
        self, rules: CountRules, text_field: str, id_field: str | None, invalid_utf8: str
    ) -> None:
        super().__init__(text_field, id_field)
        self.options = element_options(
            rules.pattern,
            rules.special_tokens,
            normalizer=rules.normalizer,
            normalize_quotes=rules.normalize_quotes,
            invalid_utf8=invalid_utf8,
        )
        self._rules = rules
        self._counter: DocumentCounter | None = None

    def start_bundle(self) -> None:
        """Start with an empty table."""
        super().start_bundle()
        if self._counter is not None:  # the previous attempt failed
            self._counter.close()
        self._counter = DocumentCounter(self._rules, beam_meter())

    def process_documents(self, batch: DocumentBatch) -> Iterator[Any]:
        """Count a batch, and yield its rejects."""
        assert self._counter is not None
        self._counter.add(batch)
        for reject in batch.rejects:
            yield beam.pvalue.TaggedOutput("rejects", reject)

    def finish_bundle(self) -> Iterator[Any]:
        """Write the last run, and yield descriptors and totals."""
        assert self._counter is not None
        yield from super().finish_bundle()
        descriptors, totals = self._counter.finish()
        for descriptor in descriptors:
            yield GlobalWindows.windowed_value_at_end_of_window(descriptor)
        yield beam.pvalue.TaggedOutput(
            "totals", GlobalWindows.windowed_value_at_end_of_window(totals.to_bytes())
        )
        self._counter.close()
        self._counter = None
