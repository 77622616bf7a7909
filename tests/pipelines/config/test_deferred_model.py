"""Models that are built by their first use."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import ValidationError

from pipelines.config.deferred_model import DeferredModel

THREADS = 8


def test_a_model_is_built_by_its_first_use() -> None:
    class Pair(DeferredModel):
        one: int
        two: list[int] = []

    assert not Pair.__pydantic_complete__
    assert Pair(one=1).model_dump() == {"one": 1, "two": []}
    assert Pair.__pydantic_complete__


def test_threads_may_use_a_model_for_the_first_time_together() -> None:
    start = threading.Barrier(THREADS)

    def use(model: type[DeferredModel]) -> str:
        start.wait()
        with pytest.raises(ValidationError, match=r"nested\.one"):
            model.model_validate({"nested": {"one": "no number"}})
        return model.model_validate_json('{"nested": {"one": 3}}').model_dump_json()

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(20):

            class Nested(DeferredModel):
                one: int

            class Model(DeferredModel):
                nested: Nested

            assert set(pool.map(use, [Model] * THREADS)) == {'{"nested":{"one":3}}'}
