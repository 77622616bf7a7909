from __future__ import annotations

import pytest

from bpe_core import PretokenCounts, memory
from bpe_core._native import MergeLearner


def test_the_estimate_is_at_least_what_learning_takes_and_not_far_more() -> None:
    words = {f"{i:x}{'lower' * (i % 3)}".encode(): 1 + i % 7 for i in range(50_000)}
    columns = PretokenCounts.from_mapping(words).columns()
    learner = MergeLearner(*columns, "lexicographic")
    learner.learn(5_000, 10_000)
    estimate = memory.training_memory(len(words), sum(map(len, words)))
    assert learner.memory_bytes < estimate < 8 * learner.memory_bytes + (64 << 20)


def test_the_estimate_grows_with_pretokens_and_with_their_bytes() -> None:
    assert memory.training_memory(10**9, 10**10) > 100 << 30
    assert memory.training_memory(10, 100) < memory.training_memory(11, 100)
    assert memory.training_memory(10, 100) < memory.training_memory(10, 101)


def test_the_smaller_of_machine_and_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_machine_memory", lambda: 10)
    monkeypatch.setattr(memory, "_group_memory", lambda: 7)
    assert memory.available_memory() == 7
    monkeypatch.setattr(memory, "_group_memory", lambda: None)
    assert memory.available_memory() == 10
    monkeypatch.setattr(memory, "_machine_memory", lambda: None)
    assert memory.available_memory() is None
