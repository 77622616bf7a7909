"""What workers are made of: the image, wheels, source distributions, and the Flex Template."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2 as runner_api
from apache_beam.runners.portability.stager import Stager
from apache_beam.version import __version__ as BEAM_VERSION
from build_support import PACKAGES, ROOT, checksums
from engine_support import need, need_module, not_here

from pipelines import runners
from pipelines.config import SourceConfig, load_config

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
ARGUMENTS = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))
FLEX = runpy.run_path(str(DEPLOY / "flex_template.py"))
METADATA: dict[str, Any] = json.loads((DEPLOY / "flex_template.json").read_text("utf-8"))
PARAMETERS = {parameter["name"]: parameter for parameter in METADATA["parameters"]}

# A value of each parameter, and what it is in the configuration.
EXAMPLES: dict[str, tuple[str, Any]] = {
    "output": ("gs://bucket/out", "gs://bucket/out"),
    "input_files": ("gs://a/*.txt,gs://b/*.gz", ("gs://a/*.txt", "gs://b/*.gz")),
    "input_format": ("text", "text"),
    "input_separator": (r'"\n"', "\n"),
    "input_text_field": ("text", "text"),
    "input_range_bytes": ("256MiB", 256 << 20),
    "tokenizer_path": ("gs://bucket/tokenizer", "gs://bucket/tokenizer"),
    "tokenizer_pattern": ("cl100k", "cl100k"),
    "tokenizer_special_tokens": ("<|endoftext|>,<|pad|>", ("<|endoftext|>", "<|pad|>")),
    "tokenizer_vocab_size": ("50000", 50000),
    "tokenizer_train_where": ("launcher", "launcher"),
    "counts_shards": ("16", 16),
    "encode_prepend": ("<|pad|>", "<|pad|>"),
    "encode_append": ("null", None),
    "encode_validation_fraction": ("0.01", 0.01),
    "max_workers": ("100", 100),
    "sdk_container_image": ("registry/image:1", "registry/image:1"),
}
# These do not go with the others.
APART = ("tokenizer_path", "input_text_field")
# What Dataflow's launcher adds.
OF_LAUNCHER = (
    "--runner=DataflowRunner",
    "--project=p",
    "--region=r",
    "--temp_location=gs://bucket/temp",
    "--staging_location=gs://bucket/staging",
    "--template_location=gs://bucket/staging/template_launches/1/job_object",
    "--job_name=count-1",
)


# --- the image -------------------------------------------------------------------------------


@pytest.mark.process
def test_the_dockerfile_has_no_lint() -> None:
    programs = Path(sys.executable).parent
    need("hadolint", path=str(programs))
    done = subprocess.run(
        [programs / "hadolint", "--no-color", DEPLOY / "Dockerfile"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_image_has_the_versions_of_this_package_and_of_beam() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert ARGUMENTS["VERSION"] == project["version"]
    assert ARGUMENTS["BEAM_VERSION"] == BEAM_VERSION


def test_what_is_copied_into_the_image_is_there() -> None:
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    made = {"dist/${CORE_WHEEL}", "dist/${WHEEL}", "dist/constraints.txt"}
    assert {name for name in copied if (ROOT / name).exists()} - made == copied - made


def _filled_in(text: str) -> str:
    """With the values of ARG, which may name one another."""
    for _ in ARGUMENTS:
        for name, value in ARGUMENTS.items():
            text = text.replace(f"${{{name}}}", value)
    return text


def _of_this_machine(text: str) -> str:
    """With the tags of wheels for the Python and the processor that the tests run on."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return text.replace("cp311-cp311", f"{tag}-{tag}").replace("x86_64", platform.machine())


def _environment(directory: Path, *packages: str) -> tuple[Path, dict[str, str]]:
    """A fresh virtual environment with these packages: its Python, and variables to use it."""
    venv.create(directory, with_pip=True)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables["PATH"] = f"{directory / 'bin'}{os.pathsep}{variables['PATH']}"
    python = directory / "bin/python"
    if packages:
        _run([str(python), "-m", "pip", "install", "-qq", *packages], variables, directory)
    return python, variables


def _run(command: list[str], variables: dict[str, str], directory: Path) -> str:
    done = subprocess.run(
        command, env=variables, cwd=directory, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.engines
def test_the_steps_of_the_image_run_and_what_they_install_builds_the_same(tmp_path: Path) -> None:
    """In a virtual environment in place of the container; the wheels are those of `make wheel`."""
    names = [_of_this_machine(_filled_in(name)) for name in ("${CORE_WHEEL}", "${WHEEL}")]
    wheels = [ROOT / "dist" / name for name in names]
    if not all(wheel.exists() for wheel in wheels):
        not_here(f"needs {names} of `make wheel`")
    _, variables = _environment(tmp_path / "venv")
    image = tmp_path / "image"
    image.mkdir()
    for wheel in wheels:
        shutil.copy(wheel, image)
    ours = ["--exclude", "bpe-beam", "--exclude", "bpe-core"]
    freeze = [sys.executable, "-m", "pip", "freeze", *ours, "--exclude-editable"]
    (image / "constraints.txt").write_text(_run(freeze, variables, image))
    steps = re.findall(
        r"^RUN ((?:.*\\\n)*.*)$", _of_this_machine(_filled_in(DOCKERFILE)), re.MULTILINE
    )
    assert steps
    for step in steps:
        _run(["sh", "-c", step], variables, image)
    config = str(ROOT / "configs/quickstart.yaml")
    here = [sys.executable, "-m", "pipelines", "build", config]
    _run([*here, "--set", f"output={tmp_path / 'here'}"], {"PYTHONPATH": str(PACKAGES)}, image)
    there = ["beam-bpe", "build", config]
    _run([*there, "--set", f"output={tmp_path / 'there'}"], variables, image)
    built = [checksums(tmp_path / name) for name in ("here", "there")]
    assert built[0] == built[1]


# --- packages for workers without that image -------------------------------------------------


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Beam stages of `--setup_file`: a source distribution."""
    directory = tmp_path_factory.mktemp("staged")
    options = PipelineOptions([f"--setup_file={ROOT / 'setup.py'}"])
    paths = [
        Path(runner_api.ArtifactFilePayload.FromString(artifact.type_payload).path)
        for artifact in Stager.create_job_resources(options, str(directory))
    ]
    # Beside it lies a list of the packages here, for people.
    [archive] = [path for path in paths if path.name.endswith(".tar.gz")]
    return archive


@pytest.mark.process
def test_setup_file_stages_all_that_is_compiled_and_little_else(workflow: Path) -> None:
    with tarfile.open(workflow) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    native = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "bpe_core/native").iterdir()
        if path.suffix in (".cpp", ".hpp")
    }
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in ("bpe_core", "pipelines")
        for path in (ROOT / package).rglob("*.py")
    }
    assert native | modules <= names
    assert not [name for name in names if name.endswith(".so") or name.startswith(("out", "dist"))]
    assert workflow.stat().st_size < 1_450_000  # the code and the libraries of pages: 1.3 MB


@pytest.mark.engines
def test_the_source_distribution_compiles_with_setuptools_and_pybind11_alone(
    workflow: Path, tmp_path: Path
) -> None:
    python, variables = _environment(tmp_path / "venv", "setuptools>=77", "pybind11>=3.0")
    target = tmp_path / "target"
    command = [str(python), "-m", "pip", "install", "-qq", "--no-build-isolation", "--no-deps"]
    _run([*command, "--target", str(target), str(workflow)], variables, tmp_path)
    code = "from bpe_core import _native, cores; print(_native.__file__, cores.__file__)"
    printed = _run([sys.executable, "-c", code], {"PYTHONPATH": str(target)}, tmp_path)
    assert all(Path(name).is_relative_to(target) for name in printed.split())


# --- the Flex Template -----------------------------------------------------------------------


def test_the_metadata_are_what_dataflow_reads() -> None:
    """Parsed by the message of Dataflow's interface, which refuses fields that it does not know."""
    need_module("google.cloud.dataflow_v1beta3", "google-cloud-dataflow-client")
    dataflow = importlib.import_module("google.cloud.dataflow_v1beta3")
    read = dataflow.TemplateMetadata.from_json(json.dumps(METADATA))
    assert len(read.parameters) == len(PARAMETERS)
    for parameter in read.parameters:
        assert re.fullmatch(r"[a-zA-Z]\w*", parameter.name)
        assert parameter.label and parameter.help_text
        for pattern in parameter.regexes:
            re.compile(pattern)


def test_every_parameter_is_a_key_of_the_configuration(tmp_path: Path) -> None:
    assert PARAMETERS.keys() == {"stage", *FLEX["KEYS"]} == {"stage", *EXAMPLES}
    together = [name for name in EXAMPLES if name not in APART]
    for names in (together, *(("output", "input_files", name) for name in APART)):
        arguments = [f"--{name}={EXAMPLES[name][0]}" for name in names]
        if "input_text_field" in names:
            arguments.append("--input_format=jsonl")
        stage, configuration, left = FLEX["parsed"](["--stage=count", *arguments, *OF_LAUNCHER])
        assert (stage, left) == ("count", list(OF_LAUNCHER))
        path = tmp_path / "build.yaml"
        path.write_text(yaml.safe_dump(configuration), "utf-8")
        config = load_config(path)
        for name in names:
            assert _value(config, FLEX["KEYS"][name]) == EXAMPLES[name][1], name


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("tokenizer_pattern", r"'s|'t| ?\p{L}+|\s+", None),
        ("tokenizer_pattern", r"[a-z]+|\s+", None),
        ("tokenizer_pattern", r" ?\p{L}+| ?[^\p{L}]", None),
        ("input_separator", "---: #", None),
        ("input_separator", "null", "nothing"),
        ("input_separator", r'"\n\t"', "\n\t"),
        ("encode_append", "[EOS]", None),
        ("input_range_bytes", "65536", 65536),
    ],
)
def test_text_among_the_parameters_stands_as_it_is(name: str, text: str, value: Any) -> None:
    given = ["--stage=count", "--output=gs://b/out", "--input_files=gs://b/*.txt"]
    _, configuration, _ = FLEX["parsed"]([*given, f"--{name}={text}"])
    section, _, key = FLEX["KEYS"][name].partition(".")
    expected = {None: text, "nothing": None}.get(value, value)
    assert configuration[section][key] == expected


def _value(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = config[part] if isinstance(config, dict) else getattr(config, part)
        config = config[0] if part == "input" else config
    return config


def test_parameters_that_a_stage_needs_are_required_and_their_values_accepted() -> None:
    required = {name for name, found in PARAMETERS.items() if not found.get("isOptional")}
    assert required == {"stage", "output", "input_files", "sdk_container_image"}
    for name, (text, _) in {**EXAMPLES, "stage": ("count", None)}.items():
        assert all(re.search(pattern, text) for pattern in PARAMETERS[name].get("regexes", []))
    [formats] = PARAMETERS["input_format"]["regexes"]
    choices = "|".join(get_args(SourceConfig.model_fields["format"].annotation))
    assert formats == f"^({choices})$"


def test_a_whole_build_trains_on_a_worker_unless_told_otherwise() -> None:
    given = ["--stage=build", "--output=gs://b/out", "--input_files=gs://b/*.txt"]
    for more, where in (
        ([], {"train_where": "worker"}),
        (["--tokenizer_train_where=launcher"], {"train_where": "launcher"}),
        (["--tokenizer_path=gs://b/tokenizer"], {"path": "gs://b/tokenizer"}),
    ):
        _, configuration, _ = FLEX["parsed"]([*given, *more])
        assert configuration["tokenizer"] == where


def test_options_of_the_launcher_are_understood(tmp_path: Path) -> None:
    arguments = [f"--{name}={EXAMPLES[name][0]}" for name in EXAMPLES if name not in APART]
    _, configuration, left = FLEX["parsed"](["--stage=encode", *arguments, *OF_LAUNCHER])
    path = tmp_path / "build.yaml"
    path.write_text(yaml.safe_dump(configuration), "utf-8")
    options = runners.options_of(load_config(path).beam, left, ("gs://bucket/out",))
    found = options.get_all_options()
    assert found["template_location"].endswith("job_object")
    assert found["sdk_container_image"] == "registry/image:1"
    assert found["max_num_workers"] == 100
