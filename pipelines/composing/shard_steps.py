"""The steps from sections of runs to shards, the same for counts and for token files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import apache_beam as beam

from pipelines.beam_metrics import beam_meter
from pipelines.composing.shards import finish_shards
from pipelines.runners.work import Work
from pipelines.storage.directory import Directory


class Shards(Protocol):
    """What becomes shards; small, and the same for all workers. Totals are as they are shuffled."""

    @property
    def output(self) -> Directory:
        """Where the shards are."""

    @property
    def runs(self) -> Directory:
        """What they are made from."""

    @property
    def shards(self) -> int:
        """Number of them."""

    @property
    def names(self) -> str:
        """The pattern of their names, whatever their number."""

    @property
    def listing(self) -> str:
        """The file that lists them."""

    def merge(self, shard: int, found: Iterable[bytes], totals: bytes) -> dict[str, Any]:
        """Writes the file of a shard, from what is known of its sections; gives its entry."""

    def measured(self, entry: Mapping[str, Any]) -> dict[str, int]:
        """What metrics say of a file."""

    def listed(self, totals: bytes) -> dict[str, Any]:
        """What the listing says of the totals."""


def every_shard(pipeline: beam.Pipeline, shards: int) -> beam.PCollection[tuple[int, bytes]]:
    """An empty section for each shard, so that those without others are written too."""
    # Types are what coders follow from: undeclared, elements would be shuffled as objects.
    return pipeline | "EveryShard" >> beam.Create(
        [(shard, b"") for shard in range(shards)], reshuffle=False
    ).with_output_types(tuple[int, bytes])


def write_shards(
    sections: beam.PCollection[tuple[int, bytes]],
    parts: beam.PCollection[bytes],
    job: Shards,
    add_up: Callable[[Iterable[bytes]], bytes],
    row: Any,
) -> beam.PCollection[beam.Row]:
    """Sections of all shards → a row for each file, when all are there and listed.

    Args:
        sections: shards, with descriptors of what the runs of a bundle have for them.
        parts: totals of bundles.
        job: what is written.
        add_up: gives the totals of all.
        row: type of the rows.
    """
    totals = beam.pvalue.AsSingleton(
        parts | "Total" >> beam.CombineGlobally(add_up).with_output_types(bytes)
    )
    return (
        (sections, every_shard(sections.pipeline, job.shards))
        | "Sections" >> beam.Flatten()
        | "ByShard" >> beam.GroupByKey()
        | "MergeShards" >> beam.ParDo(_Merge(job), totals).with_output_types(tuple[int, bytes])
        | "AllShards" >> beam.GroupByKey()
        | "Finish" >> beam.ParDo(_Finish(job), totals).with_output_types(row)
    )


class _Merge(Work):
    def __init__(self, job: Shards) -> None:
        super().__init__()
        self._job = job

    def process(
        self, element: tuple[int, Iterable[bytes]], totals: bytes
    ) -> Iterator[tuple[int, bytes]]:
        meter = beam_meter()
        with meter.time("merge"):
            entry = self._job.merge(*element, totals)
        meter.add(**self._job.measured(entry))
        meter.tell_times()
        yield 0, json.dumps(entry).encode()


class _Finish(beam.DoFn):  # type: ignore[misc]
    def __init__(self, job: Shards) -> None:
        self._job = job

    def process(self, element: tuple[int, Iterable[bytes]], totals: bytes) -> Iterator[beam.Row]:
        job, entries = self._job, [json.loads(entry) for entry in element[1]]
        listed = job.listed(totals)
        for entry in finish_shards(job.output, job.runs, job.names, entries, listed, job.listing):
            yield beam.Row(**entry)
