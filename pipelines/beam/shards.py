"""Steps from sections of sorted runs to shards of counts or tokens, for pipelines without tasks."""

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

# The (directory, listing) pairs that transforms write, by pipeline.
_CLAIMED: Final[WeakKeyDictionary[Any, set[tuple[str, str]]]] = WeakKeyDictionary()


class ShardKind(Protocol):
    """Operations on shards of one kind, for counts or tokens.

    Implementations are small, since every worker receives one. Totals are in their shuffled form.
    """

    def merge(self, shard: int, descriptors: Iterable[bytes], totals: bytes) -> dict[str, Any]:
        """Write a shard's file from descriptors of its sections. Return the file's entry."""

    def measure(self, entry: Mapping[str, Any]) -> dict[str, int]:
        """Return the metrics of a file."""

    def add_totals(self, parts: Iterable[bytes]) -> bytes:
        """Add up the totals of bundles."""

    def list_totals(self, totals: bytes) -> dict[str, Any]:
        """Return the totals in the form of the listing."""


def claim_files(collection: beam.PCollection[Any], files: ShardFiles, name: str) -> None:
    """Check that a transform can write its files once, and reserve their names in the pipeline.

    Args:
        collection: Input of the transform.
        files: Files that it writes.
        name: Name of the transform.

    Raises:
        ConfigError: The input is not a whole collection, or another transform of the pipeline
            writes the same files.
        OutputError: The directory already contains such files.
    """
    _check_whole(collection, name)
    files.check_vacant()
    claimed = _CLAIMED.setdefault(collection.pipeline, set())
    claim = (files.output.url.rstrip("/"), files.listing)
    if claim in claimed:
        raise ConfigError(
            "Two transforms of this pipeline write the same files.",
            expected="a separate directory for each, or different splits",
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
    """Merge sections into shards, and list the shards after all are written.

    Args:
        sections: Pairs of a shard and a descriptor of its section of a bundle's runs.
        totals: Totals of bundles.
        files: Destination of the shards.
        kind: Operations on shards of this kind.
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
    """Return an empty section for each shard, so that empty shards are written too."""
    # Declared types select efficient coders; without one, elements are shuffled as pickled objects.
    return pipeline | "EveryShard" >> beam.Create(
        [(shard, b"") for shard in range(shards)], reshuffle=False
    ).with_output_types(tuple[int, bytes])


class MergeShard(VersionCheckedDoFn):
    """DoFn that writes the file of a shard."""

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
    """DoFn that checks all shards together and lists them."""

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
        f"{name} writes the files of a whole PCollection.",
        expected="bounded input in the global window, without a trigger",
        found=f"{bounded} input in {type(windows).__name__}{triggered}",
        where="the input of the transform",
        hint="Put beam.WindowInto(beam.window.GlobalWindows()) before it, or write each "
        "window with a separate pipeline.",
    )
