"""What workers measure: how much they do, and how long each part of the work takes.

The functions that do the work (`TaskCounter`, `merge_shard`, `write_task`) tell a `Meter`, which
tells the display of progress and, on a worker of Beam, Beam's metrics (`beam_metrics`). Nothing of
a build depends on these figures: a bundle that a runner does twice is measured twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pipelines.console import progress
from pipelines.rejects.reasons import REASONS_OF_FILES

if TYPE_CHECKING:
    from pipelines.batches import DocumentBatch

NAMESPACE: Final = "beam_bpe"
COUNTERS: Final = ("tasks", "documents", "bytes", "rejects", "tokens", "distinct_pretokens")
# Parts of the work, in the order in which they are done.
Part = Literal["read", "count", "merge", "encode", "write"]
PARTS: Final[tuple[Part, ...]] = ("read", "count", "merge", "encode", "write")
_SECOND: Final = 1_000_000
_END: Final = object()
_Item = TypeVar("_Item")


def distribution_of(part: Part) -> str:
    """The name of the distribution that has the time of a part of the work.

    >>> distribution_of("read")
    'read_microseconds'
    """
    return f"{part}_microseconds"


DISTRIBUTIONS: Final = tuple(map(distribution_of, PARTS))


def _nobody(name: str, value: int) -> None:
    """Told of a metric where there is no Beam."""


class Meter:
    """Measures the work of one thread. Counters are told batch by batch, times task by task.

    Args:
        tell: is given the name of a metric and what to add to it: a number or, of a distribution,
            one value.

    >>> told = []
    >>> meter = Meter(lambda name, value: told.append(name))
    >>> with meter.time("encode"):
    ...     meter.add(tokens=3)
    >>> meter.finish_task()
    >>> told
    ['tokens', 'encode_microseconds', 'tasks']
    """

    def __init__(self, tell: Callable[[str, int], None] = _nobody) -> None:
        self._tell = tell
        self._seconds: dict[Part, float] = {}
        self._inner = 0.0  # of the part that is being timed, what belongs to parts within

    def add(self, **amounts: int) -> None:
        """Adds to counters, by their names."""
        for name, amount in amounts.items():
            self._tell(name, amount)
        progress.note(**amounts)

    def add_batch(self, batch: DocumentBatch) -> None:
        """Counts the documents of a batch, a long one at its first piece, and its rejects."""
        rejects = sum(reject.reason not in REASONS_OF_FILES for reject in batch.rejects)
        documents = len(batch) if batch.part == 0 else 0
        self.add(documents=documents, bytes=int(batch.num_bytes.sum()), rejects=rejects)

    @contextmanager
    def time(self, part: Part) -> Iterator[None]:
        """Times the block, without what is timed within it as another part."""
        outer, self._inner = self._inner, 0.0
        begun = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begun
            self._seconds[part] = self._seconds.get(part, 0.0) + spent - self._inner
            self._inner = outer + spent

    def timed(self, part: Part, items: Iterable[_Item]) -> Iterator[_Item]:
        """The same items; what it takes to get each is timed."""
        iterator = iter(items)
        while True:
            with self.time(part):
                item = next(iterator, _END)
            if item is _END:
                return
            yield item  # type: ignore[misc]

    def tell_times(self) -> None:
        """Tells the times since the last call, each as one value of its distribution."""
        for part, seconds in self._seconds.items():
            self._tell(distribution_of(part), round(seconds * _SECOND))
        self._seconds.clear()

    def finish_task(self) -> None:
        """Notes that a task is finished, and tells its times."""
        self.tell_times()
        self.add(tasks=1)


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Of the values that were told: their number, sum, least and greatest."""

    count: int
    sum: int
    min: int
    max: int

    @classmethod
    def of_all(cls, parts: Iterable[Distribution]) -> Distribution:
        """Of the values of all of them.

        >>> Distribution.of_all([Distribution(count=1, sum=3, min=3, max=3)] * 2)
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
    """The metrics of a pipeline that has ended, by their names.

    Attributes:
        counters: their sums.
        distributions: of the times in microseconds.
    """

    counters: Mapping[str, int]
    distributions: Mapping[str, Distribution] = field(default_factory=dict)

    @property
    def seconds(self) -> dict[str, float]:
        """What each part of the work took, of all workers together."""
        return {
            part: self.distributions[name].sum / _SECOND
            for part in PARTS
            if (name := distribution_of(part)) in self.distributions
        }

    def to_json(self) -> dict[str, Any]:
        """What `run.json` says."""
        return {
            **self.counters,
            **{name: asdict(values) for name, values in self.distributions.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Measured:
        """The metrics that `to_json` gave."""
        return cls(
            counters={name: item for name, item in value.items() if not isinstance(item, dict)},
            distributions={
                name: Distribution(**item) for name, item in value.items() if isinstance(item, dict)
            },
        )
