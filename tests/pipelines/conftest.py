"""Builds of tests run inline, unless a test is marked `beam`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import limits
import profiles
import pytest
from inline_runner import beam_runner, inline_runner

_run = beam.Pipeline.run


def _noted_run(*arguments: Any, **keywords: Any) -> Any:
    limits.note_started(limits.BEAM)
    return _run(*arguments, **keywords)


beam.Pipeline.run = _noted_run


@pytest.fixture(scope="session", autouse=True)
def inline_builds() -> Iterator[None]:
    """For fixtures too; at night everything runs on the DirectRunner."""
    if profiles.PROFILE == "nightly":
        yield
        return
    with inline_runner():
        yield


@pytest.fixture(autouse=True)
def runner_of_builds(request: pytest.FixtureRequest) -> Iterator[None]:
    """The DirectRunner for tests marked `beam`."""
    if request.node.get_closest_marker("beam") is None:
        yield
        return
    with beam_runner():
        yield
