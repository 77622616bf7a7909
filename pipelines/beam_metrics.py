"""Metrics of Beam: told by workers, and read from the result of a pipeline on any runner."""

from __future__ import annotations

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
        found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))
    # Whatever a runner raises here, perhaps from a service far away: the work is done.
    except Exception:
        return None
    counters: dict[str, int] = {}
    for metric in found["counters"]:
        name = metric.key.metric.name
        counters[name] = counters.get(name, 0) + int(metric.result)
    distributions: dict[str, list[Distribution]] = {}
    for metric in found["distributions"]:
        values = metric.result
        distributions.setdefault(metric.key.metric.name, []).append(
            Distribution(
                count=int(values.count),
                sum=int(values.sum),
                min=int(values.min),
                max=int(values.max),
            )
        )
    if counters.get("tasks", 0) < tasks:
        return None
    return Measured(
        counters=counters,
        distributions={name: Distribution.of_all(parts) for name, parts in distributions.items()},
    )
