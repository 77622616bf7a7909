"""Tasks that threads begin before there is a pipeline, whose workers go on with them."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from build_support import SEPARATOR, checksums, config_for, some_text, write_corpus
from hypothesis import given
from hypothesis import strategies as st

from pipelines import build
from pipelines.errors import InputError
from pipelines.manifest.run_record import RunRecord
from pipelines.storage.directory import Directory
from pipelines.tasks.shared_queue import TaskQueue

SECTIONS = {"input": {"separator": SEPARATOR}, "counts": {"checkpoint_bytes": 9000}}
COUNTERS = ("tasks", "documents", "bytes", "rejects")


@given(tasks=st.integers(0, 30), workers=st.integers(1, 4), bundles=st.integers(1, 5))
def test_every_task_is_taken_once(tasks: int, workers: int, bundles: int) -> None:
    queue: TaskQueue[list[bytes]] = TaskQueue([b"%d" % i for i in range(tasks)], workers)
    done: list[bytes] = []

    def bundle() -> None:
        done.extend(next(queue.take_over(), ()))
        done.extend(queue.take())
        for others in queue.take_over():
            done.extend(others)

    with queue.begun(list):
        threads = [threading.Thread(target=bundle) for _ in range(bundles)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(done, key=int) == [b"%d" % i for i in range(tasks)]


def test_a_thread_ends_after_its_task_when_a_worker_takes_its_place() -> None:
    queue: TaskQueue[list[bytes]] = TaskQueue([b"a", b"b", b"c"], 1)
    began, may_end = threading.Event(), threading.Event()

    def work(tasks: Iterator[bytes]) -> list[bytes]:
        done = []
        for task in tasks:
            began.set()
            may_end.wait()
            done.append(task)
        return done

    with queue.begun(work):
        began.wait()
        threading.Timer(0.01, may_end.set).start()
        assert next(queue.take_over()) == [b"a"]
        assert list(queue.take()) == [b"b", b"c"]


def test_threads_that_no_worker_replaces_end_with_the_block() -> None:
    queue: TaskQueue[None] = TaskQueue([b"a", b"b"], 1)
    taken: list[bytes] = []
    began, may_end = threading.Event(), threading.Event()

    def work(tasks: Iterator[bytes]) -> None:
        for task in tasks:
            began.set()
            may_end.wait()
            taken.append(task)

    with pytest.raises(KeyboardInterrupt), queue.begun(work):
        began.wait()
        raise KeyboardInterrupt
    may_end.set()
    assert next(queue.take_over(), None) is None
    assert taken == [b"a"]


def test_the_error_of_a_thread_is_raised_where_its_result_is_wanted() -> None:
    queue: TaskQueue[None] = TaskQueue([b"a"], 1)

    def work(tasks: Iterator[bytes]) -> None:
        raise ValueError(next(tasks))

    with queue.begun(work), pytest.raises(ValueError, match="a"):
        next(queue.take_over())


def test_a_pickled_queue_is_the_same_in_its_process() -> None:
    queue: TaskQueue[None] = TaskQueue([b"a"], 1)
    assert pickle.loads(pickle.dumps(queue)) is queue


# --- builds

Begun = Callable[..., Any]


@pytest.fixture
def import_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads do all tasks before there is a pipeline."""
    begun: Begun = TaskQueue.begun

    @contextmanager
    def all_begun(queue: TaskQueue[Any], work: Begun) -> Iterator[None]:
        with begun(queue, work):
            while not all(result.done() for _, result in queue._threads):
                time.sleep(0.001)
            yield

    monkeypatch.setattr(TaskQueue, "begun", all_begun)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("built")
    write_corpus(directory / "data", {"text.txt": some_text(60)})
    build.build(config_for(directory, **SECTIONS), beam_args=["--direct_num_workers=2"])
    return directory


@pytest.mark.usefixtures("import_takes_long")
def test_a_build_that_is_done_before_there_is_a_pipeline_is_the_same(
    built: Path, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", {"text.txt": some_text(60)})
    build.build(config_for(tmp_path, **SECTIONS))
    assert checksums(tmp_path / "out") == checksums(built / "out")
    for stage in ("counts", "tokens"):
        alone, begun = (
            RunRecord.load(Directory(url=f"{directory}/out/{stage}")).metrics
            for directory in (built, tmp_path)
        )
        assert {name: begun[name] for name in COUNTERS} == {name: alone[name] for name in COUNTERS}


@pytest.mark.usefixtures("import_takes_long")
def test_an_error_of_a_task_that_began_early_ends_the_build(tmp_path: Path) -> None:
    texts = [*some_text(60), b"<|a|>"]
    write_corpus(tmp_path / "data", {"text.txt": texts})
    sections = {
        **SECTIONS,
        "tokenizer": {"vocab_size": 300, "special_tokens": ["<|a|>"]},
        "encode": {"append": "<|a|>", "special_tokens_in_text": "error"},
    }
    with pytest.raises(InputError, match="special token"):
        build.build(config_for(tmp_path, **sections))
    assert not (tmp_path / "out" / "tokens" / "manifest.json").exists()
