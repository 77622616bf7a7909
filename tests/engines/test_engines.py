"""Every engine makes the same bytes from the same configuration, also when workers are killed."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from build_support import checksums, states
from engine_support import (
    BEAMS_POOL,
    FlinkCluster,
    Work,
    WorkerPool,
    arguments,
    check_metrics,
    command,
    environment,
    flink_cluster,
    flink_options,
    job_server,
    prism_binary,
    processes_with,
    run,
    wait_until,
    worker_pool,
)

PROGRESS = r"^(?:\[|reading |estimate|job: ).*\n"
EMBED = ("beam.runner=PortableRunner", "--", "--job_endpoint=embed")


def check(work: Work, output: Path, *given: str) -> None:
    """Builds, and compares every file with that of the DirectRunner; no process is left."""
    place = output.with_name("temporary")
    place.mkdir()
    done = command(work.configuration, output, *given, TMPDIR=str(place), MARK=str(place))
    assert done.returncode == 0, done.stderr
    # Nothing is shown but progress, where it takes long.
    assert re.sub(PROGRESS, "", done.stderr, flags=re.MULTILINE) == ""
    assert checksums(output) == work.expected
    check_metrics(output)
    assert processes_with("MARK", str(place)) == []
    assert not [*place.iterdir()]  # nor any temporary file


@pytest.mark.engines
@pytest.mark.parametrize("mode", ["in_memory", "multi_threading", "multi_processing"])
@pytest.mark.parametrize("repeat", [0, 2])
def test_modes_of_the_direct_runner(work: Work, tmp_path: Path, mode: str, repeat: int) -> None:
    workers = 1 if mode == "in_memory" else 2
    options = [f"--direct_running_mode={mode}", f"--direct_runner_bundle_repeat={repeat}"]
    check(work, tmp_path / "out", f"beam.workers={workers}", "--", *options)


@pytest.mark.engines
def test_portable_runner_with_workers_in_the_command(work: Work, tmp_path: Path) -> None:
    check(work, tmp_path / "out", *EMBED, "--environment_type=LOOPBACK")


@pytest.mark.smoke
def test_portable_runner_with_a_pool_of_processes(work: Work, tmp_path: Path, pool: str) -> None:
    options = ["--environment_type=EXTERNAL", f"--environment_config={pool}"]
    check(work, tmp_path / "out", *EMBED, *options)


@pytest.mark.parametrize(
    "train_where",
    [
        pytest.param("worker", marks=pytest.mark.smoke),
        pytest.param("launcher", marks=pytest.mark.engines),
    ],
)
def test_prism(work: Work, tmp_path: Path, train_where: str) -> None:
    location = f"--prism_location={prism_binary()}"
    where = f"tokenizer.train_where={train_where}"
    check(work, tmp_path / "out", where, "beam.runner=PrismRunner", "--", location)


@pytest.mark.parametrize(
    "train_where",
    [
        pytest.param("launcher", marks=pytest.mark.smoke),
        pytest.param("worker", marks=pytest.mark.engines),
    ],
)
def test_embedded_flink(work: Work, tmp_path: Path, train_where: str) -> None:
    where = f"tokenizer.train_where={train_where}"
    check(work, tmp_path / "out", where, "beam.workers=2", *flink_options("[local]"))


@pytest.mark.engines
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_flink_cluster(
    work: Work, tmp_path: Path, cluster: FlinkCluster, pool: str, parallelism: int
) -> None:
    options = flink_options(cluster.address, pool)
    before = cluster.restarted()
    output = tmp_path / "out"
    check(work, output, f"beam.workers={parallelism}", *options)
    assert cluster.restarted() == before
    for stage in ("counts", "tokens"):
        job = json.loads((output / stage / "run.json").read_text("utf-8"))["job"]
        assert job["url"] == f"http://{cluster.address}/#/job/running/{job['id']}/overview"
        assert cluster.state(job["id"]) == job["state"] == "FINISHED"
        figures = job["figures"]
        assert figures["subtasks_finished"] == figures["subtasks"] > 0
        assert figures["records"] > 0 and figures["bytes_sent"] > 0
        # The cluster reads its metrics every ten seconds: a shorter job can end without this one.
        assert (figures.get("restarts", 0), figures["task_managers"]) == (0, 2)


@pytest.mark.engines
def test_a_task_manager_with_the_pool_that_beam_has(work: Work, tmp_path: Path) -> None:
    """As users run it: a pool beside each TaskManager."""
    with (
        flink_cluster(tmp_path / "cluster", task_managers=1) as cluster,
        worker_pool(tmp_path / "pool", program=BEAMS_POOL) as pool,
    ):
        options = flink_options(cluster.address, pool.address)
        check(work, tmp_path / "out", "beam.workers=2", *options)
        assert cluster.restarted() == []


# --- exports ---------------------------------------------------------------------------------

FORMS = {
    "packed": ["--to=packed", "--sequence-length=128", "--shuffle-seed=7", "--files=3"],
    "documents": ["--to=documents", "--files=5"],
}


@pytest.fixture(scope="module")
def exported(
    work: Work, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, str]]:
    """What the DirectRunner exports in a form."""
    directory = tmp_path_factory.mktemp("exported")
    return functools.cache(lambda to: export(work, directory / to, to))


def export(work: Work, destination: Path, to: str, *given: str) -> dict[str, str]:
    """Exports what the DirectRunner built."""
    beam_bpe = [sys.executable, "-m", "pipelines"]
    output = str(work.directory / "direct")
    done = run([*beam_bpe, "export", output, str(destination), *FORMS[to], *given])
    assert done.returncode == 0, done.stderr
    return checksums(destination)


@pytest.mark.engines
def test_exports_of_prism(
    work: Work, tmp_path: Path, exported: Callable[[str], dict[str, str]]
) -> None:
    options = ["--runner=PrismRunner", "--", f"--prism_location={prism_binary()}"]
    assert export(work, tmp_path / "out", "packed", *options) == exported("packed")


@pytest.mark.engines
@pytest.mark.parametrize("to", FORMS)
def test_exports_of_embedded_flink(
    work: Work, tmp_path: Path, exported: Callable[[str], dict[str, str]], to: str
) -> None:
    _, *options = flink_options("[local]")
    given = ["--runner=FlinkRunner", "--workers=2", *options]
    assert export(work, tmp_path / "out", to, *given) == exported(to)


@pytest.mark.engines
def test_exports_of_the_flink_cluster_into_a_relative_directory(
    work: Work,
    tmp_path: Path,
    exported: Callable[[str], dict[str, str]],
    cluster: FlinkCluster,
    pool: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *options = flink_options(cluster.address, pool)
    given = ["--runner=FlinkRunner", "--workers=4", *options]
    assert export(work, Path("out"), "packed", *given) == exported("packed")


# --- kills, and going on ---------------------------------------------------------------------

COMMIT = "counts/_runs/*/commit-*"
TOKENS = "tokens/train-*"


def begin(
    work: Work,
    output: Path,
    given: Sequence[str],
    slowness: Path,
    begun: str,
    stage: str = "build",
) -> subprocess.Popen[str]:
    """Starts a command with slow workers; comes back when there is a file."""
    building = subprocess.Popen(
        arguments(work.configuration, output, *given, stage=stage),
        env=environment(slowness),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(
        lambda: building.poll() is not None or any(output.glob(begun)), f"{begun} to appear", 240
    )
    assert building.poll() is None, f"it ended before there was {begun}"
    return building


def killed(
    work: Work,
    output: Path,
    given: Sequence[str],
    slowness: Path,
    begun: str,
    kill: Callable[[], None],
) -> None:
    """A build in which something is killed as soon as a file appears, and which Flink finishes.

    Compares the result with that of the DirectRunner.
    """
    building = begin(work, output, given, slowness, begun)
    kill()
    _, said = building.communicate(timeout=800)
    assert building.returncode == 0, said
    assert checksums(output) == work.expected


@pytest.mark.engines
@pytest.mark.parametrize("lost", ["job", "server"])
def test_a_job_that_an_engine_ends_is_told_of_and_the_same_command_goes_on(
    work: Work, tmp_path: Path, slow_pool: WorkerPool, slowness: Path, lost: str
) -> None:
    output = tmp_path / "out"
    workers = ["--environment_type=EXTERNAL", f"--environment_config={slow_pool.address}"]
    with job_server(tmp_path / "server") as server:
        given = ["beam.runner=PortableRunner", "--", f"--job_endpoint={server.address}", *workers]
        building = begin(work, output, given, slowness, COMMIT)
        if lost == "job":
            server.cancel()
        else:
            server.process.kill()
        _, said = building.communicate(timeout=60)
    assert building.returncode == 14
    said = re.sub(PROGRESS, "", said, flags=re.MULTILINE)
    found = "CANCELLED" if lost == "job" else ".+"
    assert re.fullmatch(
        rf"error: PortableRunner did not finish the job\.\n"
        rf"  found: .*({found}).*\n  what to do: Run the same command again: .*\n",
        said,
    ), said
    done = command(work.configuration, output)
    assert done.returncode == 0, done.stderr
    assert checksums(output) == work.expected


def kill_a_worker(pool: WorkerPool) -> None:
    os.kill(pool.workers()[0], signal.SIGKILL)


@pytest.mark.engines
def test_flink_cluster_loses_a_worker_process_while_counting(
    work: Work, tmp_path: Path, cluster: FlinkCluster, slow_pool: WorkerPool, slowness: Path
) -> None:
    given = ["beam.workers=4", *flink_options(cluster.address, slow_pool.address)]
    killed(work, tmp_path / "out", given, slowness, COMMIT, lambda: kill_a_worker(slow_pool))


@pytest.mark.engines
def test_flink_cluster_loses_a_worker_process_while_encoding(
    work: Work, tmp_path: Path, cluster: FlinkCluster, slow_pool: WorkerPool, slowness: Path
) -> None:
    given = ["beam.workers=4", *flink_options(cluster.address, slow_pool.address)]
    killed(work, tmp_path / "out", given, slowness, TOKENS, lambda: kill_a_worker(slow_pool))


@pytest.mark.engines
@pytest.mark.parametrize("begun", [COMMIT, TOKENS], ids=["counting", "encoding"])
def test_flink_cluster_loses_a_task_manager(
    work: Work,
    tmp_path: Path,
    cluster: FlinkCluster,
    slow_pool: WorkerPool,
    slowness: Path,
    begun: str,
) -> None:
    """The job has all slots, so it has some of this TaskManager; another takes its place."""

    def kill() -> None:
        cluster.kill_task_manager(1)
        cluster.start_task_manager(1)

    given = ["beam.workers=4", *flink_options(cluster.address, slow_pool.address)]
    killed(work, tmp_path / "out", given, slowness, begun, kill)
    cluster.wait_for_slots(4)


def goes_on(work: Work, output: Path, given: Sequence[str], slowness: Path) -> None:
    """Commands that are killed while they count and while they encode are finished by others.

    Of what was committed and written before nothing is done again.
    """
    for stage, begun in (("count", COMMIT), ("encode", TOKENS)):
        building = begin(work, output, given, slowness, begun, stage)
        building.kill()
        building.communicate()
        there = {n: state for n, state in states(output).items() if n.startswith("tokens/train-")}
        done = command(work.configuration, output, *given, stage=stage)
        assert done.returncode == 0, done.stderr
        assert re.search(rf"^{stage} .* resumed$", done.stdout, re.MULTILINE)
        made = states(output)
        # A task is finished when its train file is there; its other files come before.
        assert {name: made[name] for name in there} == there
    assert checksums(output) == work.expected


@pytest.mark.engines
@pytest.mark.parametrize("mode", ["in_memory", "multi_threading", "multi_processing"])
def test_killed_commands_of_the_direct_runner_go_on(
    work: Work, tmp_path: Path, slowness: Path, mode: str
) -> None:
    workers = 1 if mode == "in_memory" else 2
    options = [f"--direct_running_mode={mode}", "--direct_runner_bundle_repeat=2"]
    goes_on(work, tmp_path / "out", [f"beam.workers={workers}", "--", *options], slowness)


@pytest.mark.engines
def test_killed_commands_of_the_portable_runner_go_on(
    work: Work, tmp_path: Path, slow_pool: WorkerPool, slowness: Path
) -> None:
    options = ["--environment_type=EXTERNAL", f"--environment_config={slow_pool.address}"]
    goes_on(work, tmp_path / "out", [*EMBED, *options], slowness)


@pytest.mark.engines
def test_killed_commands_of_prism_go_on(work: Work, tmp_path: Path, slowness: Path) -> None:
    given = ["beam.runner=PrismRunner", "--", f"--prism_location={prism_binary()}"]
    goes_on(work, tmp_path / "out", given, slowness)


@pytest.mark.engines
def test_killed_commands_of_embedded_flink_go_on(
    work: Work, tmp_path: Path, slowness: Path
) -> None:
    given = ["beam.workers=2", *flink_options("[local]")]
    goes_on(work, tmp_path / "out", given, slowness)


@pytest.mark.engines
def test_killed_commands_of_the_flink_cluster_go_on(
    work: Work, tmp_path: Path, cluster: FlinkCluster, slow_pool: WorkerPool, slowness: Path
) -> None:
    given = ["beam.workers=2", *flink_options(cluster.address, slow_pool.address)]
    goes_on(work, tmp_path / "out", given, slowness)
    cluster.wait_for_slots(4)  # of a killed command the job can't write, so it fails


@pytest.mark.engines
def test_an_interrupted_command_cancels_its_job_on_the_flink_cluster(
    work: Work, tmp_path: Path, cluster: FlinkCluster, slow_pool: WorkerPool, slowness: Path
) -> None:
    given = ["beam.workers=4", *flink_options(cluster.address, slow_pool.address)]
    cluster.wait_for_slots(4)
    canceled = cluster.overview()["jobs-cancelled"]
    building = begin(work, tmp_path / "out", given, slowness, COMMIT, "count")
    building.send_signal(signal.SIGINT)
    _, said = building.communicate(timeout=60)
    assert building.returncode == 130
    assert "Traceback" not in said
    wait_until(lambda: cluster.overview()["jobs-cancelled"] == canceled + 1, "a cancelled job")
    done = command(work.configuration, tmp_path / "out", *given)
    assert done.returncode == 0, done.stderr
    assert checksums(tmp_path / "out") == work.expected
