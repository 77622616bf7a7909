"""Builds that are killed again and again: never a torn file, and in the end the same bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from build_support import (
    PACKAGES,
    checksums,
    command,
    config_for,
    some_text,
    works_of,
    write_corpus,
)

from pipelines import build
from pipelines.batches import DocumentBatch
from pipelines.config import BuildConfig
from pipelines.counting import commits
from pipelines.errors import OutputError
from pipelines.readers.tasks import TaskWork
from pipelines.storage.locks import LOCK

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc"),
]

CORPUS = {f"{name}.txt": some_text(30, start=30 * i) for i, name in enumerate("abcd")}
CORPUS["b.txt"][3] = b"not UTF-8: \xff"
SECONDS = 120.0
WORKER = "apache_beam.runners.worker.sdk_worker_main"


def config_of(directory: Path) -> BuildConfig:
    return config_for(
        directory,
        input={"range_bytes": 2500},
        counts={"shards": 3, "checkpoint_bytes": 1},
        encode={"validation_fraction": 0.3, "max_reject_fraction": 0.5},
    )


def grouped_config_of(directory: Path) -> BuildConfig:
    """Two sources of records in three languages, whose counts and documents are kept apart."""
    return config_for(
        directory,
        input=[
            {
                "name": name,
                "files": [str(directory / "data" / f"{name}-*.jsonl")],
                "format": "jsonl",
                "range_bytes": 2500,
            }
            for name in ("books", "web")
        ],
        tokenizer={"mixture": {"by": "lang", "temperature": 0.5}, "min_documents": 2},
        counts={
            "shards": 3,
            "checkpoint_bytes": 1,
            "group_by": "lang",
            "document_frequency": True,
        },
        encode={"validation_fraction": 0.3},
    )


def write_records(directory: Path) -> None:
    directory.mkdir(parents=True)
    for number, name in enumerate(("books-a", "books-b", "web-a", "web-b")):
        records = [
            json.dumps({"text": text.decode(), "lang": ["en", "de", "fr"][i % 3]})
            for i, text in enumerate(some_text(30, start=30 * number))
        ]
        (directory / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in records))


def prepared(directory: Path, *, grouped: bool = False) -> tuple[BuildConfig, Path]:
    """A corpus and a configuration, also as a file."""
    if grouped:
        write_records(directory / "data")
    else:
        write_corpus(directory / "data", CORPUS)
    config = (grouped_config_of if grouped else config_of)(directory)
    path = directory / "build.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    return config, path


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checksums of the files of a build that nobody disturbed."""
    directory = tmp_path_factory.mktemp("undisturbed")
    write_corpus(directory / "data", CORPUS)
    build.build(config_of(directory))
    files = checksums(directory / "out")
    assert sum(name.startswith("tokens/train-") for name in files) >= 12
    assert any(name.startswith("rejects/") for name in files)
    return files


@pytest.fixture(scope="module")
def expected_grouped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checksums of the files of a build with groups that nobody disturbed."""
    config, _ = prepared(tmp_path_factory.mktemp("grouped"), grouped=True)
    build.build(config)
    return checksums(Path(config.output_path))


@dataclass(frozen=True)
class Moment:
    """When so many files of this name are there, and a little later."""

    files: str
    number: int
    delay: float
    whole_group: bool

    def wait(self, out: Path, process: subprocess.Popen[bytes]) -> bool:
        """Whether it came before the process ended."""
        end = time.monotonic() + SECONDS
        while process.poll() is None:
            assert time.monotonic() < end, self
            if sum(1 for _ in out.glob(self.files)) >= self.number:
                time.sleep(self.delay)
                return process.poll() is None
            time.sleep(0.0005)
        return False


def moments(seed: int, tasks: int) -> Iterator[Moment]:
    """Eight, in the order in which a build comes to them, whatever it had done before."""
    numbers = random.Random(seed)
    early, late = sorted(numbers.sample(range(1, tasks), 2))
    begin, middle, end = sorted(numbers.sample(range(1, tasks), 3))
    chosen = [
        ("counts/_runs/*/commit-*", early),
        ("counts/_runs/*/commit-*", late),
        (numbers.choice(["counts/shard-*", "counts/.shard-*", "counts/_runs/*/shard-*"]), 1),
        (numbers.choice(["counts/manifest.json", "counts/run.json", "tokenizer/_plan.json",
                         "tokenizer/tokenizer.json", "tokenizer/manifest.json"]), 1),
        (numbers.choice(["tokens/train-*", "tokens/validation-*"]), begin),
        (numbers.choice(["tokens/train-*", "tokens/_tasks/*/*"]), middle),
        ("tokens/_tasks/*/*", end),
        (numbers.choice(["tokens/run.json", "tokens/manifest.json"]), 1),
    ]  # fmt: skip
    for files, number in chosen:
        yield Moment(files, number, numbers.choice([0, numbers.random() / 100]),
                     numbers.random() < 0.7)  # fmt: skip


def start(path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pipelines", "build", str(path), *arguments],
        env={**os.environ, "PYTHONPATH": str(PACKAGES), "TMPDIR": str(path.parent)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def children(process: int) -> list[int]:
    """All processes below one, whichever of its threads started them."""
    found: list[int] = []
    for lists in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, lists.read_text().split())
    return [pid for child in found for pid in (child, *children(child))]


def command_line(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def check_nothing_is_torn(out: Path, expected: dict[str, str]) -> None:
    """All that has a final name is as in an undisturbed build, and a manifest has its files."""
    found = checksums(out)
    final = {
        name: checksum
        for name, checksum in found.items()
        if not any(part.startswith(("_", ".")) for part in name.split("/"))
        and not name.startswith("rejects/count-")  # are gone in the end
    }
    for name, checksum in final.items():
        assert checksum == expected[name], name
    for stage in ("counts", "tokenizer", "tokens"):
        if f"{stage}/manifest.json" in final:
            of_stage = {name for name in expected if name.startswith(f"{stage}/")}
            assert of_stage <= final.keys()


def killed_again_and_again(
    directory: Path, expected: dict[str, str], seed: int, of: int = 1, *, grouped: bool = False
) -> tuple[Path, int]:
    """The output of a build that was killed at one in `of` moments of a seed; how often it was."""
    config, path = prepared(directory, grouped=grouped)
    out = Path(config.output_path)
    kills = 0
    for moment in [*moments(seed, len(works_of(config)))][::of]:
        process = start(path)
        met = moment.wait(out, process)
        if met and moment.whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        elif met:
            for child in children(process.pid):
                os.kill(child, signal.SIGKILL)
        code = process.wait(SECONDS)
        kills += code in (-signal.SIGKILL, 8)
        assert code in (0, -signal.SIGKILL, 8), moment
        check_nothing_is_torn(out, expected)
    assert start(path).wait(SECONDS) == 0
    return out, kills


@pytest.mark.parametrize("of", [4, 1])
@pytest.mark.process
@pytest.mark.nightly
def test_a_build_killed_at_any_moment_goes_on_to_the_same_bytes(
    tmp_path: Path, expected: dict[str, str], of: int
) -> None:
    out, kills = killed_again_and_again(tmp_path, expected, seed=7, of=of)
    assert checksums(out) == expected
    assert kills >= 6 // of  # a build may end before the last moments are seen


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.parametrize("seed", [3, 4])
def test_a_build_with_groups_and_documents_that_is_killed_goes_on_to_the_same_bytes(
    tmp_path: Path, expected_grouped: dict[str, str], seed: int
) -> None:
    out, kills = killed_again_and_again(tmp_path, expected_grouped, seed, grouped=True)
    assert checksums(out) == expected_grouped
    assert kills >= 5


@pytest.mark.slow
def test_a_count_killed_near_its_end_reads_nothing_again(
    tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, path = prepared(tmp_path)
    out = Path(config.output_path)
    tasks = len(works_of(config))
    process = start(path)
    assert Moment("counts/_runs/*/commit-*", -(-9 * tasks // 10), 0, True).wait(out, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = {
        int(index)
        for commit in out.glob("counts/_runs/*/commit-*")
        for index in json.loads(commit.read_bytes())["tasks"]
    }
    assert 0.9 * tasks <= len(done)
    read: list[int] = []
    real = commits.read_task

    def reading(work: TaskWork, readings: Any) -> Iterator[DocumentBatch]:
        read.append(work.index)
        return real(work, readings)

    monkeypatch.setattr("pipelines.counting.commits.read_task", reading)
    build.build(config)
    assert sorted(read) == sorted(set(range(tasks)) - done)
    assert checksums(out) == expected


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 113))
def test_builds_killed_a_hundred_times_go_on_to_the_same_bytes(
    seed: int, tmp_path: Path, expected: dict[str, str]
) -> None:
    out, kills = killed_again_and_again(tmp_path, expected, seed)
    print(f"\nseed {seed}: killed {kills} times")
    assert checksums(out) == expected


def one_worker_killed(directory: Path, expected: dict[str, str], files: str) -> Path:
    config, path = prepared(directory)
    out = Path(config.output_path)
    process = start(path, "--", "--direct_running_mode=multi_processing")
    assert Moment(files, 1, 0, False).wait(out, process)
    for child in children(process.pid):
        if WORKER.encode() in command_line(child).split(b"\0"):  # not the shell that started it
            os.kill(child, signal.SIGKILL)
            break
    else:
        pytest.fail("there is no worker")
    try:
        assert process.wait(5) != 0
    except subprocess.TimeoutExpired:  # Beam may wait for it for ever
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
    check_nothing_is_torn(out, expected)
    assert start(path).wait(SECONDS) == 0
    return out


@pytest.mark.soak
@pytest.mark.parametrize("files", ["counts/_runs/*/commit-*", "tokens/_tasks/*/*"])
def test_a_build_of_which_one_worker_process_was_killed_goes_on(
    files: str, tmp_path: Path, expected: dict[str, str]
) -> None:
    assert checksums(one_worker_killed(tmp_path, expected, files)) == expected


@pytest.mark.soak
def test_workers_that_outlive_their_build_do_no_harm_to_the_next(
    tmp_path: Path, expected: dict[str, str]
) -> None:
    """They stand still while another configuration is built, and then go on."""
    config, path = prepared(tmp_path)
    out = Path(config.output_path)
    process = start(path, "--", "--direct_running_mode=multi_processing")
    assert Moment("tokens/_tasks/*/*", 1, 0, False).wait(out, process)
    (child,) = (pid for pid in children(process.pid) if b"\0build\0" in command_line(pid))
    workers = [pid for pid in children(child) if WORKER.encode() in command_line(pid).split(b"\0")]
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    os.kill(child, signal.SIGKILL)
    assert process.wait(SECONDS) == 8
    assert start(path, "--restart", "--set", "encode.append=null").wait(SECONDS) == 0
    made = checksums(out)
    with suppress(ProcessLookupError):  # workers may end with their build
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        time.sleep(5)
        os.killpg(process.pid, signal.SIGKILL)
    assert {name: value for name, value in checksums(out).items() if name in made} == made
    assert start(path, "--set", "encode.append=null").wait(SECONDS) == 0
    assert checksums(out) == made


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_a_build_of_added_files_that_is_killed_keeps_the_dataset_and_goes_on(
    seed: int, tmp_path: Path
) -> None:
    numbers = random.Random(seed)
    made = []
    for name in ("undisturbed", "killed"):
        config, path = prepared(tmp_path / name)
        config = config.model_copy(
            update={"tokenizer": type(config.tokenizer)(path=str(tmp_path / "tokenizer"))}
        )
        if name == "undisturbed":
            trained, _ = prepared(tmp_path / "trained")
            build.train(trained)
            shutil.copytree(Path(trained.output_path) / "tokenizer", tmp_path / "tokenizer")
        path.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
        out = Path(config.output_path)
        build.build(config)
        base = checksums(out, but=("run.json", "manifest.json", "configuration.json"))
        write_corpus(tmp_path / name / "data", {"e.txt": some_text(30, start=200)})
        if name == "killed":
            for moment in (
                Moment(
                    "tokens/train-add001-*", numbers.randint(1, 4), numbers.random() / 100, True
                ),
                Moment("tokens/_tasks/*/*", numbers.randint(1, 6), 0, True),
                Moment("tokens/run.json", 1, numbers.random(), True),
            ):
                process = start(path)
                moment.wait(out, process)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(SECONDS)
                now = checksums(out)
                assert base.items() <= now.items()
        assert start(path).wait(SECONDS) == 0
        made.append(checksums(out))
    assert made[0] == made[1]
    assert any("add001" in name for name in made[0])


@pytest.mark.process
def test_two_builds_at_once_on_one_output(tmp_path: Path, expected: dict[str, str]) -> None:
    """One of them builds; the other is refused, or comes when all is finished."""
    config, path = prepared(tmp_path)
    codes = [process.wait(SECONDS) for process in [start(path), start(path)]]
    assert 0 in codes
    assert set(codes) <= {0, 5}
    assert checksums(Path(config.output_path)) == expected


@pytest.mark.nightly
@pytest.mark.process
def test_two_different_builds_at_once_on_one_output(
    tmp_path: Path, expected: dict[str, str]
) -> None:
    config, path = prepared(tmp_path)
    other = ("--set", "tokenizer.pattern=o200k", "--restart")
    processes = [start(path), start(path, *other)]
    codes = [process.wait(SECONDS) for process in processes]
    # Both are done where one begins only when the other has ended.
    assert codes in ([0, 5], [5, 0], [3, 0], [0, 0])
    out = Path(config.output_path)
    if codes == [0, 5]:
        assert checksums(out) == expected
        return
    fresh = config_of(tmp_path / "fresh")
    write_corpus(tmp_path / "fresh" / "data", CORPUS)
    tokenizer = fresh.tokenizer.model_copy(update={"pattern": "o200k"})
    build.build(fresh.model_copy(update={"tokenizer": tokenizer}))
    assert checksums(out) == checksums(Path(fresh.output_path))


@pytest.mark.process
def test_a_build_refused_because_of_another_says_which(
    tmp_path: Path, expected: dict[str, str]
) -> None:
    config, path = prepared(tmp_path)
    out = Path(config.output_path)
    process = start(path)
    assert Moment("counts/_runs/*/commit-*", 1, 0, True).wait(out, process)
    (child,) = children(process.pid)
    os.kill(child, signal.SIGSTOP)
    try:
        refused = command("build", path)
        assert refused.returncode == 5
        assert "\nerror: Another build is writing to this output." in f"\n{refused.stderr}"
        assert f"process {child} on " in refused.stderr
        with pytest.raises(OutputError, match=f"process {child} on"):
            build.build(config, restart=True)
        assert build.plan(config).tasks == len(works_of(config))
    finally:
        os.kill(child, signal.SIGCONT)
    assert process.wait(SECONDS) == 0
    assert checksums(out) == expected
    assert not (out / LOCK).exists()
