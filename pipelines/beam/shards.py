"""The steps from sections of sorted runs to shards, of counts or of tokens, without tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import GlobalWindows

from pipelines.beam.dofn import VersionCheckedDoFn
from pipelines.beam.metrics import beam_meter
from pipelines.errors import ConfigError
from pipelines.manifest.shards import ShardFiles

# What transforms write, as (directory, listing), by pipeline.
_CLAIMED: Final[WeakKeyDictionary[Any, set[tuple[str, str]]]] = WeakKeyDictionary()


class ShardKind(Protocol):
    """Shards of one kind. Small, since it goes to every worker; totals are as they are shuffled."""

    def merge(self, shard: int, descriptors: Iterable[bytes], totals: bytes) -> dict[str, Any]:
        """Write the file of a shard from descriptors of its sections. Return the file's entry."""

    def measure(self, entry: Mapping[str, Any]) -> dict[str, int]:
        """Return the metrics of a file."""

    def add_totals(self, parts: Iterable[bytes]) -> bytes:
        """Add up the totals of bundles."""

    def list_totals(self, totals: bytes) -> dict[str, Any]:
        """Return the totals for the listing."""


def claim_files(collection: beam.PCollection[Any], files: ShardFiles, name: str) -> None:
    """Check that a transform can write files, once, and reserve their names in its pipeline.

    Args:
        collection: Input of the transform.
        files: What it writes.
        name: Name of the transform.

    Raises:
        ConfigError: The input is not a whole collection, or another transform of the pipeline
            writes the same files.
        OutputError: The directory has such files.
    """
    _check_whole(collection, name)
    files.check_vacant()
    claimed = _CLAIMED.setdefault(collection.pipeline, set())
    claim = (files.output.url.rstrip("/"), files.listing)
    if claim in claimed:
        raise ConfigError(
            "Two transforms of this pipeline write the same files.",
            expected="a directory for each, or another split",
            found=f"{files.output.url} twice",
            where="output",
            hint="Change the output or the split of one of them.",
        )
    claimed.add(claim)


def write_shards(
    sections: beam.PCollection[tuple[int, bytes]],
    totals: beam.PCollection[bytes],
    files: ShardFiles,
    kind: ShardKind,
    row: Any,
) -> beam.PCollection[beam.Row]:
    """Merge sections into shards, and list these when all are written.

    Args:
        sections: Shards, with descriptors of what the runs of a bundle have for them.
        totals: Totals of bundles.
        files: Where the shards go.
        kind: How they are merged.
        row: Type of the rows.

    Returns:
        A row for each file.
    """
    total = beam.pvalue.AsSingleton(
        totals | "Total" >> beam.CombineGlobally(kind.add_totals).with_output_types(bytes)
    )
    return (
        (sections, create_every_shard(sections.pipeline, files.number))
        | "Sections" >> beam.Flatten()
        | "ByShard" >> beam.GroupByKey()
        | "MergeShards" >> beam.ParDo(MergeShard(kind), total).with_output_types(tuple[int, bytes])
        | "AllShards" >> beam.GroupByKey()
        | "Finish" >> beam.ParDo(FinishShards(files, kind), total).with_output_types(row)
    )


def create_every_shard(pipeline: beam.Pipeline, shards: int) -> beam.PCollection[tuple[int, bytes]]:
    """Return an empty section for each shard, so that shards without any other are written too."""
    # Coders follow from declared types: without one, elements are shuffled as pickled objects.
    return pipeline | "EveryShard" >> beam.Create(
        [(shard, b"") for shard in range(shards)], reshuffle=False
    ).with_output_types(tuple[int, bytes])


class MergeShard(VersionCheckedDoFn):
    """Writes the file of a shard."""

    def __init__(self, kind: ShardKind) -> None:
        super().__init__()
        self._kind = kind

    def process(
        self, element: tuple[int, Iterable[bytes]], totals: bytes
    ) -> Iterator[tuple[int, bytes]]:
        """Merge the sections of a shard. Yield its entry, with a key that all shards share."""
        meter = beam_meter()
        with meter.time("merge"):
            entry = self._kind.merge(*element, totals)
        meter.add(**self._kind.measure(entry))
        meter.report_times()
        yield 0, json.dumps(entry).encode()


class FinishShards(beam.DoFn):  # type: ignore[misc]
    """Checks all shards together, and lists them."""

    def __init__(self, files: ShardFiles, kind: ShardKind) -> None:
        self._files = files
        self._kind = kind

    def process(self, element: tuple[int, Iterable[bytes]], totals: bytes) -> Iterator[beam.Row]:
        """Finish the files. Yield a row for each of them."""
        entries = [json.loads(entry) for entry in element[1]]
        for entry in self._files.finish(entries, self._kind.list_totals(totals)):
            yield beam.Row(**entry)


def _check_whole(collection: Any, name: str) -> None:
    """Check that a collection is bounded, and grouped as a whole."""
    windows, trigger = collection.windowing.windowfn, collection.windowing.triggerfn
    is_whole = isinstance(windows, GlobalWindows) and isinstance(trigger, DefaultTrigger)
    if collection.is_bounded and is_whole:
        return
    bounded = "bounded" if collection.is_bounded else "unbounded"
    triggered = "" if isinstance(trigger, DefaultTrigger) else f" with the trigger {trigger}"
    raise ConfigError(
        f"{name} writes files of a whole PCollection.",
        expected="bounded input in the global window, without a trigger",
        found=f"{bounded} input in {type(windows).__name__}{triggered}",
        where="the input of the transform",
        hint="Put beam.WindowInto(beam.window.GlobalWindows()) before it, or write each window "
        "with a pipeline of its own.",
    )
