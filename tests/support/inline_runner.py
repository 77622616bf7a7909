"""Pipelines for tests that execute each step in the current thread when it is applied.

There is no graph, no worker, no coder: a build takes a fraction of what the DirectRunner needs for
it. Transforms and DoFns are those of the package; of Beam's own there are the few that they use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import apache_beam as beam
import limits
import profiles
import pytest
from apache_beam.internal.util import insert_values_in_args
from apache_beam.metrics.execution import MetricsContainer
from apache_beam.metrics.metric import MetricResult, MetricResults
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.worker import statesampler
from apache_beam.transforms import ptransform
from apache_beam.transforms.util import Reshuffle
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.counters import CounterFactory
from apache_beam.utils.windowed_value import WindowedValue

from pipelines import runners
from pipelines.config import BeamConfig
from pipelines.runners import FAILURE, options_of
from pipelines.runners.failures import our_errors
from pipelines.stages.report_page import write_report_page

_beam_pipeline = runners.pipeline
_write_report_page = write_report_page
_run_pipeline = beam.Pipeline.run
_checked_options: set[tuple[str, ...]] = set()


def _noted_run(*arguments: Any, **keywords: Any) -> Any:
    limits.note_started(limits.BEAM, type(arguments[0].runner).__name__)
    return _run_pipeline(*arguments, **keywords)


beam.Pipeline.run = _noted_run


@contextmanager
def inline_runner() -> Iterator[None]:
    """Make the stages of builds and exports run inline, whatever runner is configured."""
    with mock.patch.object(runners, "pipeline", inline_pipeline):
        yield


@contextmanager
def beam_runner() -> Iterator[None]:
    """Make stages run on Beam's runners, also within `inline_runner`."""
    with mock.patch.object(runners, "pipeline", _beam_pipeline):
        yield


@contextmanager
def inline_pipeline(
    config: BeamConfig, beam_args: Sequence[str] = (), places: Sequence[str] = (), **_: Any
) -> Iterator[_Pipeline]:
    """Return a pipeline like `runners.pipeline`, which runs during the block."""
    # Beam's parser takes a fifth of the time of a build.
    asked = (repr(config), *beam_args)
    if asked not in _checked_options:
        options_of(config, beam_args, places)
        _checked_options.add(asked)
    FAILURE.forget()
    with our_errors(), FAILURE.watched():
        yield _Pipeline()


@contextmanager
def report_pages(*, written: bool = True) -> Iterator[None]:
    """Make builds write the report page, or not."""
    replaced = _write_report_page if written else lambda context: None
    with mock.patch("pipelines.build.write_report_page", replaced):
        yield


@pytest.fixture(scope="module", autouse=True)
def inline_builds() -> Iterator[None]:
    """Make builds of tests and fixtures run inline, except at night, and write no page."""
    inline = nullcontext() if profiles.PROFILE == "nightly" else inline_runner()
    with inline, report_pages(written=False):
        yield


@pytest.fixture(autouse=True)
def runner_of_builds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make builds of tests marked `beam` run on the DirectRunner."""
    with nullcontext() if request.node.get_closest_marker("beam") is None else beam_runner():
        yield


class _Values(beam.PCollection):  # type: ignore[misc]
    def __init__(self, pipeline: _Pipeline, elements: list[Any]) -> None:
        super().__init__(pipeline, windowing=beam.Windowing(GlobalWindows()))
        self.elements = elements


class _Pipeline:
    """Pipeline to which transforms are applied, and its own result."""

    runner = fn_runner.FnApiRunner()  # so that tasks are dealt as there

    def __init__(self) -> None:
        self._metrics: list[MetricsContainer] = []

    @property
    def result(self) -> _Pipeline:
        return self

    def metrics(self) -> _Metrics:
        return _Metrics(self._metrics)

    def __or__(self, transform: Any) -> Any:
        return self.apply(transform, beam.pvalue.PBegin(self))

    def apply(self, transform: Any, value: Any, label: str | None = None) -> Any:
        """Do a step. `value` is its input: nothing, a PCollection or several."""
        if isinstance(transform, ptransform._NamedPTransform):
            return self.apply(transform.transform, value)
        if isinstance(transform, beam.Create):
            return _Values(self, list(transform.values))
        if isinstance(transform, beam.Flatten):
            return _Values(self, [element for part in value for element in part.elements])
        if isinstance(transform, beam.GroupByKey):
            return _Values(self, _grouped(value.elements))
        if isinstance(transform, beam.CombineGlobally):
            return _Values(self, [transform.fn.apply(value.elements)])
        if isinstance(transform, Reshuffle):
            return value
        if isinstance(transform, beam.ParDo):
            return _Values(self, list(self._do(transform, value.elements)))
        return transform.expand(value)

    def _do(self, step: beam.ParDo, elements: list[Any]) -> Iterator[Any]:
        """Process all elements as one bundle."""
        sides = [
            side._from_runtime_iterable(side.pvalue.elements, side._view_options())
            for side in step.side_inputs
        ]
        arguments, keywords = insert_values_in_args(step.args, step.kwargs, sides)
        do = step.fn
        with self._measured(step.label):
            do.setup()
            do.start_bundle()
            for element in elements:
                yield from do.process(element, *arguments, **keywords) or ()
            for found in do.finish_bundle() or ():
                yield found.value if isinstance(found, WindowedValue) else found
            do.teardown()

    @contextmanager
    def _measured(self, step: str) -> Iterator[None]:
        """Collect the metrics reported during the block."""
        self._metrics.append(MetricsContainer(step))
        tracker = statesampler.StateSampler("inline", CounterFactory())
        statesampler.set_current_tracker(tracker)
        try:
            with tracker.scoped_state(step, "process", metrics_container=self._metrics[-1]):
                yield
        finally:
            statesampler.set_current_tracker(None)


def _grouped(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, list[Any]]]:
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return list(groups.items())


class _Metrics(MetricResults):  # type: ignore[misc]
    def __init__(self, steps: Sequence[MetricsContainer]) -> None:
        self._steps = [step.get_cumulative() for step in steps]

    def query(self, filter: Any = None) -> dict[str, list[MetricResult]]:
        return {
            kind: [
                MetricResult(key, value, value)
                for step in self._steps
                for key, value in getattr(step, kind).items()
                if self.matches(filter, key)
            ]
            for kind in (self.COUNTERS, self.DISTRIBUTIONS)
        }
