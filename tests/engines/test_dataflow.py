"""Jobs for Dataflow as they are submitted, down to the bytes of the request, without a network.

With a template to write and an address of this machine as the service, Beam's runner does all that
it does for a real job but send it: it stages files, writes the job's request, and ends.
"""

from __future__ import annotations

import base64
import bz2
import itertools
import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as runner_api
from apache_beam.version import __version__ as BEAM_VERSION
from build_support import EXAMPLES, PACKAGES, ROOT, command, count_job
from engine_support import need_module

from pipelines import runners
from pipelines.beam.read_tasks import ReadTasks
from pipelines.config import BeamConfig, BuildConfig, SourceConfig
from pipelines.readers.tasks import TaskWork
from pipelines.stages.train_job import TrainJob
from pipelines.stages.transforms import (
    CountTasks,
    NoteFinished,
    TrainTokenizer,
    WriteTasks,
    WriteTrainedTasks,
)
from pipelines.storage.directory import Directory
from pipelines.storage.locks import LOCK, Guard
from pipelines.tasks.listing import InputFile
from pipelines.transforms import CountPretokens, EncodeDocuments, ReadDocuments, WriteTokenShards
from pipelines.writing.jobs import EncodeJob

pytestmark = pytest.mark.beam

IMAGE = "europe-docker.pkg.dev/project/images/beam-bpe:1"
SECRET = "correct-horse-battery-staple"
REFERENCE = "${BPE_TEST_TOKEN}"
# https://cloud.google.com/dataflow/docs/request-quotas
LARGEST_REQUEST = 20 * 10**6
STAGES = ["count", "encode"]
OWN_ROWS = {
    *("CountPretokens/Finish", "WriteTokenShards/Finish", "WriteRows/Finish"),
    *("AsRows/TokensAsRows", "AsRows/RejectsAsRows"),
}
OF_BUILD = ["TrainTokenizer", "WriteTrainedTasks", "NoteFinished"]


@pytest.fixture(autouse=True, scope="module")
def _client() -> None:
    need_module("google.cloud.dataflow_v1beta3", "google-cloud-dataflow-client")


@dataclass
class Submission:
    """What a submission has left in a directory: the request, and the files for the workers."""

    directory: Path

    @cached_property
    def request(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "temp/job.json").read_bytes())
        return found

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = self.request["environment"]["sdkPipelineOptions"]["options"]
        return found

    @cached_property
    def pipeline(self) -> Any:
        data = (self.directory / "staging/pipeline.pb").read_bytes()
        return runner_api.Pipeline.FromString(data).components

    @property
    def steps(self) -> dict[str, Any]:
        return {step.unique_name: step for step in self.pipeline.transforms.values()}

    def coder(self, collection: str) -> str:
        """Of a collection, such as kv(varint,bytes)."""

        def described(name: str) -> str:
            coder = self.pipeline.coders[name]
            parts = ",".join(map(described, coder.component_coder_ids))
            return coder.spec.urn.split(":")[2] + (f"({parts})" if parts else "")

        return described(self.pipeline.pcollections[collection].coder_id)

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
        }

    def texts(self) -> Iterator[bytes]:
        """Everything that is in files, also what they hold compressed."""
        yield from self.files().values()
        for step in self.pipeline.transforms.values():
            if step.spec.urn == "beam:transform:pardo:v1":
                function = runner_api.ParDoPayload.FromString(step.spec.payload).do_fn
                yield _unpacked(function.payload) if function.payload else b""


def _unpacked(payload: bytes) -> bytes:
    data = base64.b64decode(payload)
    return bz2.decompress(data) if data.startswith(b"BZh") else zlib.decompress(data)


def options_of(directory: Path, **more: Any) -> BeamConfig:
    for name in ("temp", "staging"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    options = {
        "project": "project",
        "region": "europe-west4",
        "no_auth": True,
        "dataflow_endpoint": "http://localhost:1",
        "temp_location": str(directory / "temp"),
        "staging_location": str(directory / "staging"),
        "template_location": str(directory / "temp/job.json"),
        "sdk_container_image": IMAGE,
        "job_name": "beam-bpe",
        **more,
    }
    options = {name: value for name, value in options.items() if value is not None}
    return BeamConfig(runner="DataflowRunner", workers=40, options=options)


def works_of(tasks: int) -> list[TaskWork]:
    """Tasks as a plan of a large corpus in Google Cloud Storage has them."""
    numbers = random.Random(tasks)
    files = (
        InputFile(
            source=0,
            source_name="web",
            url=f"gs://corpus/crawl-30/segment-{number // 1000:03d}/part-{number:05d}.jsonl.zst",
            name=f"segment-{number // 1000:03d}/part-{number:05d}.jsonl.zst",
            size=numbers.randrange(10**8, 10**9),
            version_tag=f"{numbers.getrandbits(128):032x}",
            compression="zstd",
        )
        for number in itertools.count()
    )
    return [
        TaskWork(
            index=index,
            of=tasks,
            hash=numbers.getrandbits(128),
            parts=((file, 0, file.size),),
        )
        for index, file in zip(range(tasks), files, strict=False)
    ]


def submit(stage: str, directory: Path, tasks: int = 20, **options: Any) -> Submission:
    """The job of one stage, with the transforms that a build has."""
    storage_options = {"token": REFERENCE}
    config = BuildConfig(
        output="gs://results/out",
        input={"files": ["gs://corpus/*.jsonl.zst"], "storage_options": storage_options},
    )
    works = works_of(tasks)
    counting = count_job(config, works)
    output = Directory(url="gs://results/out", storage_options=storage_options)
    with runners.pipeline(
        options_of(directory, **options), places=[output.url, "gs://corpus"]
    ) as pipeline:
        descriptors = pipeline | "ReadTasks" >> ReadTasks(works=works)
        job = replace(counting, counts=output / "counts", rejects=output / "rejects")
        if stage == "count":
            descriptors | "CountPretokens" >> CountTasks(job=job)
        elif stage == "build":
            guard = Guard(output=output, owner="0" * 32)
            training = TrainJob(
                config=config,
                guard=guard,
                counting=job,
                planned_bytes=(1,),
                plan="0" * 32,
                tasks=tasks,
                limits={},
            )
            counted = descriptors | "CountPretokens" >> CountTasks(job=job)
            trained = counted | "TrainTokenizer" >> TrainTokenizer(job=training)
            again = pipeline | "ReadTasksAgain" >> ReadTasks(works=works)
            encoding = WriteTrainedTasks(job=training, trained=trained)
            written = again | "WriteTrainedTasks" >> encoding
            written | "NoteFinished" >> NoteFinished(guard=guard)
        else:
            descriptors | "WriteTokenShards" >> WriteTasks(
                job=EncodeJob(
                    tokens=output / "tokens",
                    rejects=output / "rejects",
                    tokenizer=output / "tokenizer",
                    tokenizer_fingerprint="0" * 32,
                    configuration="0" * 32,
                    plan_id="0" * 32,
                    prepend=None,
                    append="<|endoftext|>",
                    special_tokens_in_text="split",
                    id_type="uint16",
                    validation_fraction=0.01,
                    readings=counting.readings,
                )
            )
    return Submission(directory)


def submit_own(directory: Path) -> Submission:
    """The job of a user's own program, with all public transforms."""
    storage_options = {"token": REFERENCE}
    source = SourceConfig(files=[f"{EXAMPLES}/kjv-00.txt"])
    with runners.pipeline(options_of(directory)) as pipeline:
        documents = pipeline | ReadDocuments(sources=[source])
        counts = CountPretokens(output="memory://own-job/counts", storage_options=storage_options)
        documents | counts
        encode = EncodeDocuments(tokenizer="gs://own/tokenizer", storage_options=storage_options)
        encoded = documents | encode
        write = WriteTokenShards(
            output="memory://own-job/tokens", num_shards=16, storage_options=storage_options
        )
        encoded.tokens | write
        rows = documents | "AsRows" >> replace(encode, as_rows=True)
        rows.tokens | "WriteRows" >> replace(write, split="rows")
    return Submission(directory)


@pytest.fixture(scope="module", params=[*STAGES, "build", "own"])
def submission(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Submission]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BPE_TEST_TOKEN", SECRET)
        directory = tmp_path_factory.mktemp(request.param)
        yield submit_own(directory) if request.param == "own" else submit(request.param, directory)


def test_the_steps_are_those_of_the_transforms(submission: Submission) -> None:
    names = {name for name in submission.steps if name.count("/") == 1}
    of_reading = {"ReadTasks/Tasks", "ReadTasks/Deal", "ReadTasks/Dealt"}
    of_counting = {"CountTasks", "EveryShard", "Sections", "BySection", "MergeShards"}
    if "WriteRows/Finish" in names:
        assert {name.partition("/")[0] for name in names} == {
            *("ReadDocuments", "CountPretokens", "EncodeDocuments", "WriteTokenShards"),
            *("AsRows", "WriteRows"),
        }
        return
    if "NoteFinished/Note" in names:
        assert {name.partition("/")[0] for name in names} == {
            *("ReadTasks", "CountPretokens", "ReadTasksAgain", *OF_BUILD)
        }
        return
    assert names in (
        of_reading | {f"CountPretokens/{name}" for name in of_counting},
        of_reading | {"WriteTokenShards/WriteTasks"},
    )


def test_nothing_is_read_by_splittable_functions_or_by_sources(submission: Submission) -> None:
    for step in submission.steps.values():
        assert "read" not in step.spec.urn and "sdf" not in step.spec.urn
        if step.spec.urn == "beam:transform:pardo:v1":
            payload = runner_api.ParDoPayload.FromString(step.spec.payload)
            assert not payload.restriction_coder_id


def test_what_is_shuffled_are_numbers_with_bytes_and_no_objects(submission: Submission) -> None:
    shuffles = {
        name: step
        for name, step in submission.steps.items()
        if step.spec.urn in ("beam:transform:reshuffle:v1", "beam:transform:group_by_key:v1")
        and "/ReshufflePerKey/" not in name  # what is inside is the service's
    }
    assert any(name.endswith("ReadTasks/Deal") for name in shuffles)
    for name, step in shuffles.items():
        # Beam gives what is combined globally, here totals, the key None.
        key = "pickled_python" if "/Total/CombinePerKey/" in name else "varint"
        for collection in step.inputs.values():
            assert submission.coder(collection) == f"kv({key},bytes)"
        for collection in step.outputs.values():
            assert submission.coder(collection) in (
                f"kv({key},bytes)",
                f"kv({key},iterable(bytes))",
            )
    last, kind = {max(submission.steps)}, "bytes"
    if submission.steps.keys() >= OWN_ROWS:
        last, kind = OWN_ROWS, "row"
    for name in last:
        outputs = submission.steps[name].outputs.values()
        assert {submission.coder(output) for output in outputs} <= {kind}


def test_workers_have_our_image_and_nothing_else_is_staged(submission: Submission) -> None:
    [pool] = submission.request["environment"]["workerPools"]
    assert pool["workerHarnessContainerImage"] == IMAGE
    [image] = pool["sdkHarnessContainerImages"]
    assert image["containerImage"] == IMAGE
    assert submission.files().keys() == {"temp/job.json", "staging/pipeline.pb"}
    for environment in submission.pipeline.environments.values():
        assert not environment.dependencies


def test_the_job_has_the_options_asked_for(submission: Submission) -> None:
    assert submission.request["type"] == "JOB_TYPE_BATCH"
    assert submission.request["name"] == "beam-bpe"
    assert submission.options["project"] == "project"
    assert submission.options["max_num_workers"] == 40
    assert submission.options["save_main_session"] is False
    [pool] = submission.request["environment"]["workerPools"]
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 40
    assert {"use_runner_v2", "use_portable_job_submission"} <= set(
        submission.request["environment"]["experiments"]
    )


def test_references_to_credentials_travel_and_their_values_do_not(submission: Submission) -> None:
    texts = list(submission.texts())
    assert any(REFERENCE.encode() in text for text in texts)
    for text in texts:
        assert SECRET.encode() not in text
        assert base64.b64encode(SECRET.encode()) not in text


def test_the_request_does_not_grow_with_the_tasks(tmp_path: Path) -> None:
    small, large = (submit("encode", tmp_path / str(n), n).files() for n in (10, 2000))
    assert abs(len(large["temp/job.json"]) - len(small["temp/job.json"])) < 100
    pipelines = [files["staging/pipeline.pb"] for files in (small, large)]
    assert len(pipelines[1]) - len(pipelines[0]) < 1990 * 200


@pytest.mark.engines
@pytest.mark.parametrize("stage", STAGES)
def test_a_hundred_thousand_tasks_fit_a_job(tmp_path: Path, stage: str) -> None:
    files = submit(stage, tmp_path, 100_000).files()
    assert len(files["temp/job.json"]) < 100_000
    assert len(files["staging/pipeline.pb"]) < LARGEST_REQUEST
    print({name: len(data) for name, data in files.items()})


def test_wheels_are_staged_with_the_list_of_what_to_install_in_order(tmp_path: Path) -> None:
    names = [
        "bpe_core-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "bpe_beam-0.1.0-py3-none-any.whl",
    ]
    wheels = [str(tmp_path / name) for name in names]
    for wheel in wheels:
        Path(wheel).write_bytes(wheel.encode())
    found = submit("encode", tmp_path / "job", sdk_container_image=None, extra_packages=wheels)
    [environment] = found.pipeline.environments.values()
    staged = {
        runner_api.ArtifactStagingToRolePayload.FromString(file.role_payload).staged_name
        for file in environment.dependencies
    }
    assert staged == {*names, "extra_packages.txt"}
    [pool] = found.request["environment"]["workerPools"]
    assert pool["workerHarnessContainerImage"].endswith(f"_sdk:{BEAM_VERSION}")
    [listed] = [data for path, data in found.files().items() if path.endswith("packages.txt")]
    assert listed.decode().split() == names


def test_the_command_refuses_paths_of_this_machine_before_it_writes(tmp_path: Path) -> None:
    options = options_of(tmp_path).options
    given = [f"--{name}={value}" for name, value in options.items() if name != "no_auth"]
    output = tmp_path / "out"
    keys = [f"output={output}", "beam.runner=DataflowRunner"]
    settings = [item for key in keys for item in ("--set", key)]
    done = command("build", ROOT / "configs/quickstart.yaml", *settings, "--", *given)
    assert done.returncode == 2, done.stderr
    assert "Remote workers cannot reach a path of this machine" in done.stderr
    assert not output.exists()


@pytest.mark.process
@pytest.mark.slow
def test_the_flex_template_submits_a_whole_build_and_leaves_the_output_to_it(
    tmp_path: Path,
) -> None:
    options = {**options_of(tmp_path).options, "no_auth": None}
    options.pop("sdk_container_image")
    output = tmp_path / "out"
    launched = subprocess.run(
        [
            *(sys.executable, str(ROOT / "deploy/flex_template.py"), "--stage=build"),
            *(f"--output=file://{output}", f"--sdk_container_image={IMAGE}"),
            *(f"--input_files=file://{ROOT}/examples/data/kjv-0*.txt", "--input_range_bytes=64KiB"),
            *("--runner=DataflowRunner", "--no_auth"),
            *(f"--{name}={value}" for name, value in options.items() if value is not None),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        timeout=120,
    )
    assert launched.returncode == 0, launched.stderr
    assert "submitted" in launched.stdout
    names = {name.partition("/")[0] for name in Submission(tmp_path).steps}
    assert names >= {"ReadTasks", "CountPretokens", *OF_BUILD}
    job = json.loads((output / LOCK).read_bytes())["job"]
    assert job["name"] == f"template {options['template_location']}"
    assert job["stages"] == ["count", "train", "encode"]
    assert (output / "counts/_plan.json").exists()
    assert not list(output.rglob("manifest.json"))
