"""Beam metrics: set by workers, and read from the result of a pipeline on any runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from apache_beam.metrics import Metrics, MetricsFilter

from pipelines.metrics import (
    COUNTERS,
    DISTRIBUTIONS,
    NAMESPACE,
    NOTHING_MEASURED,
    Distribution,
    Measured,
    Meter,
)

_SETTERS: Final = {
    **{name: Metrics.counter(NAMESPACE, name).inc for name in COUNTERS},
    **{name: Metrics.distribution(NAMESPACE, name).update for name in DISTRIBUTIONS},
}


def beam_meter() -> Meter:
    """Return a meter that sets metrics of the step that the current thread executes."""
    return Meter(_set_metric)


def read_metrics(result: Any, tasks: int, begun: Measured = NOTHING_MEASURED) -> Measured | None:
    """Return the metrics of a finished pipeline, summed over its steps.

    Args:
        result: Result of the pipeline.
        tasks: Number of completed tasks.
        begun: Metrics of the tasks that began without the pipeline.

    Returns:
        The metrics, or None if the runner has none or returns fewer than were set: no figure is
        better than a wrong one.
    """
    try:
        found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))
        measured = _measured(found).plus(begun)
    # Any error of the runner, or of its remote service, is ignored: the work itself is done.
    except Exception:
        return None
    return measured if measured.counters.get("tasks", 0) >= tasks else None


def _set_metric(name: str, value: int) -> None:
    _SETTERS[name](value)


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
        distributions={name: Distribution.merge(parts) for name, parts in distributions.items()},
    )


def _values(metrics: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values. Beam's `MetricResult.result` ignores a committed value of 0."""
    for metric in metrics:
        value = metric.attempted if metric.committed is None else metric.committed
        if value is not None:
            yield metric.key.metric.name, value
