"""Options of a pipeline: what goes with a runner, and what is refused."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from build_support import config_for

from pipelines import build, runners
from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.redaction import redact
from pipelines.runners import dataflow, flink
from pipelines.runners.options import check_detaches
from pipelines.runners.spec import is_this_machine
from pipelines.stages.context import BuildContext

PROCESS = {"environment_type": "PROCESS"}
BOOT = {**PROCESS, "environment_config": '{"command": "boot"}'}
CLUSTER = {"flink_master": "flink.example:8081"}
POOL = {"environment_type": "EXTERNAL", "environment_config": "localhost:1"}
POOL_ELSEWHERE = {**POOL, "environment_config": "pool.example:50000"}
HERE = {"job_endpoint": "localhost:1"}
ELSEWHERE = {"job_endpoint": "spark.example:8099"}
LOOPBACK = {"environment_type": "LOOPBACK"}
UNREACHED = {**HERE, "job_server_timeout": 1, **POOL}
DATAFLOW = {"project": "p", "region": "r", "temp_location": "gs://b/t"}
DATAFLOW_JOB = {**DATAFLOW, "sdk_container_image": "i:1"}


def options_for(
    runner: str, options: Mapping[str, Any], *places: str, workers: int = 0
) -> dict[str, Any]:
    config = BeamConfig(runner=runner, workers=workers, options=dict(options))
    return dict(runners.options_of(config, places=places).get_all_options())


def test_the_pinned_runner_uses_threads_and_the_workers_asked_for() -> None:
    options = runners.options_of(BeamConfig(workers=3)).get_all_options()
    assert options["direct_running_mode"] == "multi_threading"
    assert options["direct_num_workers"] == 3
    assert runners.options_of(BeamConfig()).get_all_options()["direct_num_workers"] >= 1


def test_the_command_line_wins_over_the_configuration() -> None:
    configured = BeamConfig(workers=3, options={"direct_num_workers": 4, "job_name": "a"})
    options = runners.options_of(configured, ("--direct_num_workers=5",)).get_all_options()
    assert (options["direct_num_workers"], options["job_name"]) == (5, "a")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("use_public_ips", False),  # Beam's default is None, which is yes
        ("save_main_session", False),
        ("pipeline_type_check", False),  # whose default is True
        ("streaming", False),
        ("no_auth", False),
    ],
)
def test_no_is_said_to_beam_where_it_would_take_yes(name: str, expected: bool) -> None:
    options = runners.options_of(BeamConfig(options={name: False})).get_all_options()
    assert options[name] is expected


def test_a_negation_that_is_denied_says_nothing() -> None:
    options = runners.options_of(BeamConfig(options={"no_use_public_ips": False}))
    assert options.get_all_options()["use_public_ips"] is None


def test_the_mode_may_be_a_word_of_its_own() -> None:
    for given in (["--direct_running_mode", "in_memory"], ["--direct_running_mode=in_memory"]):
        options = runners.options_of(BeamConfig(), given).get_all_options()
        assert (options["direct_running_mode"], options["direct_num_workers"]) == ("in_memory", 1)


def test_options_may_be_flags_lists_negations_and_two_words() -> None:
    configured = BeamConfig(options={"streaming": False, "experiments": ["a", "b"]})
    options = runners.options_of(
        configured, ("--direct_runner_bundle_repeat", "2", "--no_save_main_session")
    ).get_all_options()
    assert options["experiments"] == ["a", "b"]
    assert options["direct_runner_bundle_repeat"] == 2
    assert not options["streaming"]


@pytest.mark.parametrize(
    ("options", "arguments", "shown"),
    [
        ({"frobnicate": 3}, (), "--frobnicate"),
        ({}, ("--frobnicate=3",), "--frobnicate"),
        ({}, ("--frobnicate",), "--frobnicate"),
        ({"frobnicate": False}, (), "--frobnicate"),
        ({}, ("--direct_num=3",), "--direct_num"),
        ({}, ("--no_such_thing",), "--no_such_thing"),
        ({}, ("--direct_num_workers=many",), "invalid int value: 'many'"),
        ({"temp_location": {"a": 1}}, (), "beam.options.temp_location"),
        ({"experiments": ["a", {"b": 1}]}, (), "beam.options.experiments"),
        ({"runner": "FlinkRunner"}, (), "--runner=FlinkRunner"),
        ({}, ("--runner=FlinkRunner",), "beam.runner"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(
    options: dict[str, Any],
    arguments: tuple[str, ...],
    shown: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ConfigError) as error:
        runners.options_of(BeamConfig(options=options), arguments)
    assert shown in str(error.value)
    assert "beam.options" in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_while_options_are_read_others_can_write_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Progress is shown meanwhile, by another thread."""
    seen = []
    read = PipelineOptions.get_all_options

    def note(*given: Any, **named: Any) -> Any:
        seen.append(sys.stderr)
        return read(*given, **named)

    monkeypatch.setattr(PipelineOptions, "get_all_options", note)
    runners.options_of(BeamConfig(), [])
    assert {*seen} == {sys.stderr}


@pytest.mark.parametrize(
    ("runner", "options", "problem"),
    [
        (
            "DirectRunner",
            {"direct_running_mode": "in_memory"},
            "in_memory supports only one worker",
        ),
        ("FlinkRunner", {**CLUSTER, **LOOPBACK}, "cannot reach this process"),
        ("FlinkRunner", {**ELSEWHERE, **LOOPBACK}, "cannot reach this process"),
        ("FlinkRunner", ELSEWHERE, "LOOPBACK, the default, .* job_endpoint spark.example:8099"),
        ("PortableRunner", {**ELSEWHERE, **LOOPBACK}, "cannot reach this process"),
        ("PortableRunner", {**HERE, **CLUSTER, **LOOPBACK}, "cannot reach this process"),
        (
            "PortableRunner",
            {**ELSEWHERE, "environment_type": "beam:env:embedded_python_loopback:v1"},
            "cannot reach this process",
        ),
        ("PrismRunner", ELSEWHERE, "cannot reach this process"),
        ("DataflowRunner", {"project": "p", "region": "r"}, "none for temp_location"),
        ("DataflowRunner", DATAFLOW, "would not have this package"),
        ("DataflowRunner", {**DATAFLOW, "requirements_file": "r"}, "would not have this package"),
        ("DataflowRunner", {**DATAFLOW, "setup_file": "s", "temp_location": "t"}, "reach this lo"),
        ("DataflowRunner", {**DATAFLOW, "setup_file": "s"}, "cannot reach a path of this machine"),
        ("FlinkRunner", CLUSTER, "cannot reach a path of this machine"),
        ("FlinkRunner", {"environment_type": "DOCKER"}, "cannot reach a path of this machine"),
        (
            "FlinkRunner",
            {"flink_master": "localhost:8081"},
            "cannot reach a path of this machine[^$]*environment_type DOCKER, the default",
        ),
        ("FlinkRunner", POOL_ELSEWHERE, r"this machine[^$]*a worker pool at pool.example:50000"),
        ("FlinkRunner", {**ELSEWHERE, **POOL}, "this machine[^$]*job_endpoint spark.example"),
        ("FlinkRunner", {**ELSEWHERE, **BOOT}, "this machine[^$]*job_endpoint spark.example"),
        ("PortableRunner", HERE, "cannot reach a path of this machine"),
        ("PortableRunner", ELSEWHERE, "cannot reach a path of this machine"),
        ("PortableRunner", {**ELSEWHERE, **POOL}, "cannot reach a path of this machine"),
        ("PortableRunner", {**HERE, **POOL_ELSEWHERE}, "cannot reach a path of this machine"),
        ("PortableRunner", {**HERE, "environment_type": "beam:env:docker:v1"}, "type DOCKER"),
        ("PrismRunner", {"environment_type": "DOCKER"}, "cannot reach a path of this machine"),
        ("PrismRunner", POOL_ELSEWHERE, "cannot reach a path of this machine"),
        ("PrismRunner", {"flink_masterr": "x"}, "Unknown Beam option"),
        ("PrismRunner", {}, "beam.workers has no effect"),
        ("PortableRunner", {"job_endpoint": "embed", **LOOPBACK}, "no effect"),
        ("PortableRunner", {}, "needs a job server"),
        ("PortableRunner", {**HERE, "environment_type": "FOO"}, "Unknown environment_type"),
        (
            "PortableRunner",
            {**HERE, "environment_type": "beam:env:foo:v1"},
            "Unknown environment_type",
        ),
        ("PrismRunner", {"environment_type": "FOO"}, "Unknown environment_type"),
        ("FlinkRunner", {**CLUSTER, "environment_type": "FOO"}, "Unknown environment_type"),
        ("PortableRunner", {**HERE, **PROCESS}, "needs the command"),
        (
            "PortableRunner",
            {**HERE, "environment_type": "beam:env:process:v1"},
            "needs the command",
        ),
        (
            "PortableRunner",
            {**HERE, **PROCESS, "environment_config": "{"},
            "needs the c",
        ),
        ("PortableRunner", {**HERE, "environment_type": "EXTERNAL"}, "found: none"),
        ("PortableRunner", {**UNREACHED, "environment_config": "localhost"}, "found: localhost"),
        ("PortableRunner", {**UNREACHED, "environment_config": "{}"}, "found: none"),
        ("DirectRunner", {"direct_num_workers": -1}, "cannot be negative"),
    ],
)
def test_what_does_not_go_with_a_runner_is_refused(
    runner: str, options: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        options_for(runner, options, "/data/out", workers=2)


@pytest.mark.parametrize(
    ("runner", "options", "place"),
    [
        ("FlinkRunner", {}, "/data/out"),  # [auto]: in this process
        ("FlinkRunner", {"flink_master": "[local]"}, "/data/out"),
        ("FlinkRunner", {"flink_master": "localhost:8081", **POOL}, "/data/out"),
        ("FlinkRunner", {"flink_master": "http://localhost:8081", **LOOPBACK}, "/data/out"),
        ("FlinkRunner", {"flink_master": "localhost:8081"}, "file:///mnt/out"),
        ("FlinkRunner", HERE, "/data/out"),
        ("FlinkRunner", CLUSTER, "s3://bucket/out"),
        ("FlinkRunner", CLUSTER, "file:///mnt/out"),
        ("FlinkRunner", CLUSTER, "zip://*.txt::s3://bucket/a.zip"),
        ("PortableRunner", {**HERE, **LOOPBACK}, "/data/out"),
        ("PortableRunner", {"job_endpoint": "dns:///localhost:1", **LOOPBACK}, "/data/out"),
        ("PortableRunner", ELSEWHERE, "file:///mnt/out"),
        ("PortableRunner", UNREACHED, "/data/out"),
        ("PortableRunner", {**UNREACHED, "environment_config": '{"url": "[::1]:5"}'}, "/data/out"),
        (
            "PortableRunner",
            {**UNREACHED, **BOOT},
            "/data/out",
        ),
        (
            "PortableRunner",
            {**HERE, **PROCESS, "environment_options": ["process_command=boot"]},
            "/data/out",
        ),
        ("PrismRunner", {}, "/data/out"),
        ("DataflowRunner", {**DATAFLOW, "sdk_container_image": "i:1"}, "gs://b/out"),
    ],
)
def test_places_that_workers_reach_are_taken(
    runner: str, options: Mapping[str, Any], place: str
) -> None:
    options_for(runner, options, place)


@pytest.mark.parametrize(
    "option",
    [
        "--template_location=gs://b/t",
        "--no_wait_until_finish",
        "--output_executable_path=job.jar",
        "--wait_until_finish_duration=5",
    ],
)
def test_a_build_refuses_options_with_which_it_would_not_wait(option: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.txt").write_text("a")
    config = config_for(tmp_path, beam={"runner": "DirectRunner"})
    with pytest.raises(ConfigError, match=option.partition("=")[0]):
        build.count(config, beam_args=[option])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("runner", "options", "found"),
    [
        ("DirectRunner", {}, "DirectRunner, which works in processes of the launcher"),
        ("PrismRunner", {}, "PrismRunner, which works"),
        ("FlinkRunner", {}, r"flink_master \[auto\]"),
        ("FlinkRunner", {"flink_master": "[local]", **POOL}, r"flink_master \[local\]"),
        ("FlinkRunner", {"flink_master": "localhost:1", **LOOPBACK}, "LOOPBACK"),
        ("FlinkRunner", HERE, "LOOPBACK"),  # which Beam takes for [auto]
        ("PortableRunner", {"job_endpoint": "embed", **POOL}, "job_endpoint embed"),
        ("PortableRunner", {**HERE, **LOOPBACK}, "LOOPBACK"),
        ("DataflowRunner", {**DATAFLOW_JOB, "dry_run": True}, "--dry_run"),
        ("DataflowRunner", {**DATAFLOW_JOB, "no_wait_until_finish": True}, "--no_wait_until"),
    ],
)
def test_a_job_that_would_end_with_the_command_is_refused(
    runner: str, options: Mapping[str, Any], found: str
) -> None:
    config = BeamConfig(runner=runner, options=dict(options))
    with pytest.raises(ConfigError, match=f"found: .*{found}"):
        check_detaches(config, runners.options_of(config))


@pytest.mark.parametrize(
    ("runner", "options"),
    [
        ("FlinkRunner", {"flink_master": "localhost:8081", **POOL}),
        ("FlinkRunner", {**ELSEWHERE, **POOL}),
        ("FlinkRunner", CLUSTER),
        ("PortableRunner", ELSEWHERE),
        ("DataflowRunner", DATAFLOW_JOB),
        ("DataflowRunner", {**DATAFLOW_JOB, "template_location": "gs://b/t"}),
    ],
)
def test_a_job_that_lives_elsewhere_may_be_left(runner: str, options: Mapping[str, Any]) -> None:
    config = BeamConfig(runner=runner, options=dict(options))
    check_detaches(config, runners.options_of(config))


def test_whether_a_job_can_be_left_is_said_before_where_the_data_are() -> None:
    options = {"job_endpoint": "embed", "environment_type": "DOCKER"}
    config = BeamConfig(runner="PortableRunner", options=options)
    with pytest.raises(ConfigError, match="found: job_endpoint embed"):
        runners.options_of(config, places=["/data/out"], no_wait=True)
    with pytest.raises(ConfigError, match="cannot reach a path"):
        runners.options_of(config, places=["/data/out"])


@pytest.mark.parametrize(
    ("runner", "options", "workers", "expected"),
    [
        ("DirectRunner", {}, 3, 3),
        ("DirectRunner", {"direct_num_workers": 1}, 3, 1),
        ("DirectRunner", {"direct_num_workers": 0}, 3, os.cpu_count()),
        ("DirectRunner", {"direct_running_mode": "in_memory"}, 0, 1),
        ("FlinkRunner", {}, 0, None),
        ("FlinkRunner", {}, 3, 3),
        ("FlinkRunner", {"parallelism": 2}, 3, 2),
        ("PortableRunner", UNREACHED, 0, None),
        ("PrismRunner", {}, 0, None),
    ],
)
def test_workers_are_those_of_the_options_or_unknown(
    runner: str, options: Mapping[str, Any], workers: int, expected: int | None
) -> None:
    config = BeamConfig(runner=runner, workers=workers, options=dict(options))
    assert runners.workers_of(config, runners.options_of(config)) == expected


def test_all_cores_are_more_than_the_one_worker_of_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    with pytest.raises(ConfigError, match="found: 6 workers, one per core"):
        runners.options_of(
            BeamConfig(), ["--direct_running_mode=in_memory", "--direct_num_workers=0"]
        )


def test_workers_are_the_parallelism_of_flink() -> None:
    assert options_for("FlinkRunner", {}, workers=3)["parallelism"] == 3
    assert options_for("FlinkRunner", {"parallelism": 5}, workers=3)["parallelism"] == 5


def test_in_memory_is_one_worker_where_none_are_asked_for() -> None:
    options = options_for("DirectRunner", {"direct_running_mode": "in_memory"})
    assert options["direct_num_workers"] == 1


def test_dataflow_is_refused_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataflow, "_PACKAGE", "google.cloud_of_nobody.client")
    with pytest.raises(ConfigError, match=r"apache-beam\[gcp\]"):
        options_for("DataflowRunner", DATAFLOW, "gs://b/out")


def test_workers_are_the_most_machines_of_dataflow_and_no_session_is_sent_there() -> None:
    given = {**DATAFLOW, "extra_packages": ["a.whl"]}
    options = options_for("DataflowRunner", given, workers=9)
    assert options["max_num_workers"] == 9
    assert options["save_main_session"] is False


@pytest.mark.parametrize("place", ["memory://out", "zip://*.txt::/data/a.zip", "zip::memory://a"])
def test_no_part_of_this_machine_is_a_place_for_workers_elsewhere(place: str) -> None:
    with pytest.raises(ConfigError, match=f"found: {re.escape(place)}"):
        options_for("FlinkRunner", CLUSTER, "s3://bucket/out", place)


def test_every_pattern_of_every_source_is_a_place_that_workers_must_reach(tmp_path: Path) -> None:
    sources = [
        {"name": "one", "files": ["s3://bucket/*.txt", str(tmp_path / "later.txt")]},
        {"name": "two", "files": ["s3://bucket/2/*.txt"]},
    ]
    config = config_for(tmp_path, output="s3://bucket/out", input=sources)
    context = BuildContext.of(config, "replay", repaired=["/repaired.txt"])
    assert context.places == (
        *("s3://bucket/out", "s3://bucket/out/tokenizer", "s3://bucket/*.txt"),
        *(str(tmp_path / "later.txt"), "s3://bucket/2/*.txt", "/repaired.txt"),
    )


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost", True),
        ("localhost:8081", True),
        ("http://localhost:8081/", True),
        ("https://user:word@127.0.0.1", True),
        ("[::1]:50000", True),
        ("localhost.example:8081", False),
        ("http://flink.example:8081", False),
        ("localhost:word@flink.example:8081", False),
        ("", False),
    ],
)
def test_addresses_of_this_machine(address: str, expected: bool) -> None:
    assert is_this_machine(address) is expected


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_password_in_the_address_of_a_cluster_is_told_to_nobody(scheme: str) -> None:
    master = f"{scheme}someone:corr%2Fct-horse@flink.example:8081"
    with pytest.raises(ConfigError) as error:
        options_for("FlinkRunner", {"flink_master": master}, "/data/out")
    assert "flink.example:8081" in str(error.value)
    assert "horse" not in str(error.value)
    assert redact("refused: corr/ct-horse") == "refused: ***"
    assert flink._USER.sub("", master) == f"{scheme}flink.example:8081"
