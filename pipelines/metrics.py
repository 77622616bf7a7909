"""Measurements of workers: the amount of work done, and the time of each part of the work.

The working functions (`TaskCounter`, `merge_shard`, `write_task`) report to a `Meter`. It forwards
to the display of progress and, on a Beam worker, to Beam's metrics (`pipelines.beam.metrics`). Only
the summary and `run.json` show these figures, and no output depends on them: a bundle that a runner
repeats is measured twice.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pipelines.console import progress
from pipelines.console.engine_jobs import EngineJob
from pipelines.rejects.reasons import REASONS_OF_FILES

if TYPE_CHECKING:
    from pipelines.batches import DocumentBatch

NAMESPACE: Final = "beam_bpe"
COUNTERS: Final = ("tasks", "documents", "bytes", "rejects", "tokens", "distinct_pretokens")
# Parts of the work, in their order.
Part = Literal["read", "count", "merge", "encode", "write"]
PARTS: Final[tuple[Part, ...]] = ("read", "count", "merge", "encode", "write")
_SECOND: Final = 1_000_000
_END: Final = object()
_Item = TypeVar("_Item")


def distribution_name(part: Part) -> str:
    """Return the name of the distribution of the times of a part of the work.

    >>> distribution_name("read")
    'read_microseconds'
    """
    return f"{part}_microseconds"


DISTRIBUTIONS: Final = tuple(map(distribution_name, PARTS))


def _discard(name: str, value: int) -> None:
    """Discard a metric, because there is no Beam."""


class Meter:
    """Meter of the work of one thread. It reports counters per batch and times per task.

    Args:
        report: function that is called with the name of a metric and an amount: an increment of a
            counter, or one value of a distribution.

    >>> reported = []
    >>> meter = Meter(lambda name, value: reported.append(name))
    >>> with meter.time("encode"):
    ...     meter.add(tokens=3)
    >>> meter.finish_task()
    >>> reported
    ['tokens', 'encode_microseconds', 'tasks']
    """

    def __init__(self, report: Callable[[str, int], None] = _discard) -> None:
        self._report = report
        self._seconds: dict[Part, float] = {}
        self._inner = 0.0  # seconds of the timed part that belong to nested parts
        self._task_bytes = 0

    def add(self, **amounts: int) -> None:
        """Add amounts to counters, given by name."""
        for name, amount in amounts.items():
            self._report(name, amount)
        progress.note(**amounts)

    def add_batch(self, batch: DocumentBatch) -> None:
        """Count the documents of a batch, a long one at its first chunk, and its rejects."""
        rejects = sum(reject.reason not in REASONS_OF_FILES for reject in batch.rejects)
        documents = len(batch) if batch.part == 0 else 0
        size = int(batch.num_bytes.sum())
        self._task_bytes += size
        self.add(documents=documents, bytes=size, rejects=rejects)

    @contextmanager
    def time(self, part: Part) -> Iterator[None]:
        """Measure the time of the block, without parts that are measured within it."""
        outer, self._inner = self._inner, 0.0
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self._seconds[part] = self._seconds.get(part, 0.0) + spent - self._inner
            self._inner = outer + spent

    def time_items(self, part: Part, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items, and measure the time of getting each."""
        iterator = iter(items)
        while True:
            with self.time(part):
                item = next(iterator, _END)
            if item is _END:
                return
            yield item  # type: ignore[misc]

    def report_times(self) -> None:
        """Report the times since the last call, each as one value of its distribution."""
        for part, seconds in self._seconds.items():
            self._report(distribution_name(part), round(seconds * _SECOND))
        self._seconds.clear()

    def finish_task(self, planned_bytes: int = 0) -> None:
        """Count a finished task, of so many planned bytes, and report its times."""
        self.report_times()
        self.add(tasks=1)
        progress.note(planned=planned_bytes, finished_bytes=self._task_bytes)
        self._task_bytes = 0


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Number, sum, minimum and maximum of the reported values."""

    count: int
    sum: int
    min: int
    max: int

    @classmethod
    def merge(cls, parts: Iterable[Distribution]) -> Distribution:
        """Return the distribution of the values of all parts.

        >>> Distribution.merge([Distribution(count=1, sum=3, min=3, max=3)] * 2)
        Distribution(count=2, sum=6, min=3, max=3)
        """
        parts = list(parts)
        return cls(
            count=sum(part.count for part in parts),
            sum=sum(part.sum for part in parts),
            min=min(part.min for part in parts),
            max=max(part.max for part in parts),
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Metrics of a finished pipeline, by name.

    Attributes:
        counters: sums of the counters.
        distributions: distributions of the times in microseconds.
    """

    counters: Mapping[str, int]
    distributions: Mapping[str, Distribution] = field(default_factory=dict)

    def plus(self, other: Measured) -> Measured:
        """Return the metrics of both."""
        counters = {*self.counters, *other.counters}
        distributions = {*self.distributions, *other.distributions}
        return Measured(
            counters={
                name: self.counters.get(name, 0) + other.counters.get(name, 0) for name in counters
            },
            distributions={
                name: Distribution.merge(
                    part.distributions[name] for part in (self, other) if name in part.distributions
                )
                for name in distributions
            },
        )

    @property
    def seconds(self) -> dict[str, float]:
        """Total time of each part of the work, for all workers together."""
        return {
            part: self.distributions[name].sum / _SECOND
            for part in PARTS
            if (name := distribution_name(part)) in self.distributions
        }

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values for `run.json`."""
        return {
            **self.counters,
            **{name: asdict(values) for name, values in self.distributions.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Measured:
        """Return the metrics in JSON values from `to_json`."""
        return cls(
            counters={name: item for name, item in value.items() if not isinstance(item, dict)},
            distributions={
                name: Distribution(**item) for name, item in value.items() if isinstance(item, dict)
            },
        )


NOTHING_MEASURED: Final = Measured(counters={})


class MetricSums:
    """Sums of the metrics that threads of this process report without Beam."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._distributions: dict[str, Distribution] = {}

    def add(self, name: str, value: int) -> None:
        """Add a metric: the increment of a counter, or one value of a distribution."""
        with self._lock:
            if name in COUNTERS:
                self._counters[name] += value
                return
            one = Distribution(count=1, sum=value, min=value, max=value)
            before = self._distributions.get(name)
            self._distributions[name] = one if before is None else Distribution.merge([before, one])

    @property
    def measured(self) -> Measured:
        """Return the metrics so far."""
        with self._lock:
            return Measured(counters=dict(self._counters), distributions=dict(self._distributions))


@dataclass(frozen=True, kw_only=True)
class PipelineRun:
    """Figures of a pipeline that has ended.

    Attributes:
        measured: Metrics of its workers, or None if the runner reported none.
        job: Job at the engine, or None if the engine has no page for it.
    """

    measured: Measured | None = None
    job: EngineJob | None = None
