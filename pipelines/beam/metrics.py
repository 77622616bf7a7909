"""Metrics of Beam: told by workers, and read from the result of a pipeline on any runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from apache_beam.metrics import Metrics, MetricsFilter

from pipelines.metrics import COUNTERS, DISTRIBUTIONS, NAMESPACE, Distribution, Measured, Meter

_ADDERS: Final = {
    **{name: Metrics.counter(NAMESPACE, name).inc for name in COUNTERS},
    **{name: Metrics.distribution(NAMESPACE, name).update for name in DISTRIBUTIONS},
}


def _tell(name: str, value: int) -> None:
    _ADDERS[name](value)


def beam_meter() -> Meter:
    """A meter whose figures become metrics of the step that this thread is at."""
    return Meter(_tell)


def read_metrics(result: Any, tasks: int) -> Measured | None:
    """The metrics of a pipeline that has ended; of all its steps together.

    Args:
        result: of the pipeline.
        tasks: how many were done.

    Returns:
        None if the runner has none, or less than was done: rather no figure than a wrong one.
    """
    try:
        measured = _measured(result.metrics().query(MetricsFilter().with_namespace(NAMESPACE)))
    # Whatever a runner raises here, perhaps from a service far away: the work is done.
    except Exception:
        return None
    return measured if measured.counters.get("tasks", 0) >= tasks else None


def _measured(found: Mapping[str, Iterable[Any]]) -> Measured:
    counters: dict[str, int] = {}
    for name, value in _values(found["counters"]):
        counters[name] = counters.get(name, 0) + int(value)
    distributions: dict[str, list[Distribution]] = {}
    for name, value in _values(found["distributions"]):
        distributions.setdefault(name, []).append(
            Distribution(
                count=int(value.count),
                sum=int(value.sum),
                min=int(value.min),
                max=int(value.max),
            )
        )
    return Measured(
        counters=counters,
        distributions={name: Distribution.of_all(parts) for name, parts in distributions.items()},
    )


def _values(metrics: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Names and values. Beam's own choice, `result`, takes a committed 0 for none."""
    for metric in metrics:
        value = metric.attempted if metric.committed is None else metric.committed
        if value is not None:
            yield metric.key.metric.name, value
