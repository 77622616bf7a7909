"""The transform that deals task descriptors to workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.typehints import with_output_types

from pipelines import runners
from pipelines.readers.tasks import TaskWork


@with_output_types(bytes)
@dataclass(kw_only=True)
class ReadTasks(beam.PTransform):  # type: ignore[misc]
    """Task descriptors, the largest first, dealt to the workers."""

    works: Sequence[TaskWork]

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[bytes]:
        sizes = {
            work.index: sum(end - start for _, start, end in work.parts) for work in self.works
        }
        ordered = sorted(self.works, key=lambda work: (-sizes[work.index], work.index))
        return runners.deal(begin, [work.to_bytes() for work in ordered])

    def display_data(self) -> dict[str, Any]:
        """The number of tasks."""
        return {"tasks": len(self.works)}
