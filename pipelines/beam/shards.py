"""The steps from sections of runs to shards without tasks, for counts and for token files."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import GlobalWindows

from pipelines.beam.dofn import Work
from pipelines.beam.metrics import beam_meter
from pipelines.errors import AccountingError, ConfigError, OutputError
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


RUNS: Final = "_runs"
_RUN_FILES: Final = r"run-[0-9a-f]{32}\.bin"
_FORMAT_VERSION: Final = "1"

# Directories and listings, by pipeline.
_CLAIMED: Final[WeakKeyDictionary[Any, set[tuple[str, str]]]] = WeakKeyDictionary()


def new_runs(output: Directory) -> Directory:
    """Where the runs of a pipeline go: a directory that no other pipeline has."""
    return output / RUNS / secrets.token_hex(16)


def claim(pipeline: Any, output: Directory, listing: str) -> None:
    """Notes that a pipeline writes these shards, which nothing else of it may.

    Raises:
        ConfigError: another transform of the pipeline does.
    """
    claimed = _CLAIMED.setdefault(pipeline, set())
    shards = (output.url.rstrip("/"), listing)
    if shards in claimed:
        raise ConfigError(
            "Two transforms of this pipeline write the same files.",
            expected="a directory for each, or another split",
            found=f"{output.url} twice",
            where="output",
        )
    claimed.add(shards)


def check_vacant(output: Directory, pattern: str, listing: str) -> None:
    """Whether a directory has no files with the names of those that are to be written.

    Raises:
        OutputError: it has some.
    """
    taken = rf"{pattern}|{re.escape(listing)}"
    if found := sorted(name for name in output.sizes() if re.fullmatch(taken, name)):
        raise OutputError(
            "The output has such files already.",
            expected=f"none, as files of two pipelines must not be mixed in {output.url}",
            found=f"{len(found):,}, such as {found[0]}",
            where=output.url,
            hint="Choose another directory, or remove them.",
        )


def check_global(documents: Any, name: str) -> None:
    """Whether a PCollection is bounded and is grouped as a whole: files of it are written once.

    Raises:
        ConfigError: it is not.
    """
    windows, trigger = documents.windowing.windowfn, documents.windowing.triggerfn
    is_whole = isinstance(windows, GlobalWindows) and isinstance(trigger, DefaultTrigger)
    if documents.is_bounded and is_whole:
        return
    kind = "bounded" if documents.is_bounded else "unbounded"
    triggered = "" if isinstance(trigger, DefaultTrigger) else f" with the trigger {trigger}"
    raise ConfigError(
        f"{name} writes files of a whole PCollection.",
        expected="bounded input in the global window, without a trigger",
        found=f"{kind} input in {type(windows).__name__}{triggered}",
        where="the input of the transform",
        hint="Put beam.WindowInto(beam.window.GlobalWindows()) before it, or write windows by "
        "pipelines of their own.",
    )


def finish_shards(
    output: Directory,
    runs: Directory,
    pattern: str,
    entries: Sequence[Mapping[str, Any]],
    totals: Mapping[str, Any],
    listing: str,
) -> list[dict[str, Any]]:
    """Checks the shards against the totals, lists them, removes the runs; gives the entries.

    Args:
        output: directory of the shards.
        runs: what they were made from.
        pattern: of their names.
        entries: of all of them.
        totals: what went in; entries must add up to those of its values that they have too.
        listing: name of the file that lists them.

    Raises:
        AccountingError: they do not.
        OutputError: files of another pipeline have come into the directory.
    """
    ordered = sorted((dict(entry) for entry in entries), key=lambda entry: str(entry["name"]))
    summed = {key: sum(e[key] for e in ordered) for key in totals if key in ordered[0]}
    if wrong := {key: value for key, value in summed.items() if value != totals[key]}:
        raise AccountingError(
            "The shards do not hold what went into the pipeline.",
            expected=", ".join(f"{totals[key]:,} {key}" for key in wrong),
            found=", ".join(f"{value:,} {key}" for key, value in wrong.items()),
            where=output.url,
            hint="Run the pipeline again, into an empty directory.",
        )
    present = {name for name in output.sizes() if re.fullmatch(pattern, name)}
    if others := sorted(present - {entry["name"] for entry in ordered}):
        raise OutputError(
            "Files of another pipeline have come into the output.",
            expected=f"{len(ordered):,} files",
            found=f"{len(others):,} others, such as {others[0]}",
            where=output.url,
            hint="Give each pipeline a directory of its own, and run this one again.",
        )
    listed = {"format_version": _FORMAT_VERSION, "files": ordered, "totals": dict(totals)}
    # This step may be tried again, but then it has the same to say.
    if output.read_json(listing) not in (None, listed):
        raise OutputError(
            "Another pipeline has written to the output.",
            expected=f"no {listing} but that of this pipeline",
            where=output.path(listing),
            hint="Give each pipeline a directory of its own, and run this one again.",
        )
    output.write_json(listing, listed)
    runs.remove_below(_RUN_FILES)
    (output / RUNS).remove_if_empty()
    return ordered
