from __future__ import annotations

import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from build_support import PACKAGES, ROOT

import pipelines
from bpe_core import errors as core_errors
from bpe_core.errors import FormatError
from bpe_core.formats import FORMATS, WRITTEN_FORMATS
from pipelines import errors, supervisor
from pipelines.choices import TokenizerFormat, WrittenTokenizerFormat
from pipelines.cli import main
from pipelines.cli.options import parse_bytes, parse_number
from pipelines.stages.summary import (
    BuildPlan,
    BuildSummary,
    PlannedFile,
    StageSummary,
)

QUICKSTART = ROOT / "configs" / "quickstart.yaml"
STAGES = ("count", "train", "encode", "build")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def in_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """Runs the command in this process, as the supervised child, with a stand-in of the stages."""
    monkeypatch.setenv(supervisor.STATUS_VARIABLE, str(tmp_path))
    monkeypatch.setattr(supervisor, "enter_child", lambda: None)
    monkeypatch.setattr(supervisor, "leave", sys.exit)

    def run(stage: Callable[..., Any], *arguments: object) -> tuple[int, str, str]:
        stand_in = types.ModuleType("pipelines.build")
        for name in ("plan", *STAGES):
            setattr(stand_in, name, stage)
        # In this order: the attribute to restore is looked up in the modules.
        monkeypatch.setattr(pipelines, "build", stand_in, raising=False)
        monkeypatch.setitem(sys.modules, "pipelines.build", stand_in)
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        code = left.value.code
        return (code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


def command(
    *arguments: object, build: str = "", directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the whole command; `build` is Python that stands in for the stages."""
    if directory is not None:
        (directory / "sitecustomize.py").write_text(
            "import sys, types\n"
            "module = sys.modules['pipelines.build'] = types.ModuleType('pipelines.build')\n"
            f"exec({build!r}, module.__dict__)\n"
        )
    path = str(PACKAGES) if directory is None else f"{directory}:{PACKAGES}"
    return subprocess.run(
        [sys.executable, "-P", "-m", "pipelines", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": path, "PATH": "", "COLUMNS": "200", "BEAM_BPE_PROGRESS": "none"},
        check=False,
    )


# --- help, version, start


def test_help_names_every_command_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name in ("plan", *STAGES):
        assert f"│ {name} " in text
    for code, meaning in errors.EXIT_CODES.items():
        assert f" {code} {meaning}" in text


def test_every_exit_code_has_a_meaning() -> None:
    classes = {error.exit_code for error in vars(errors).values() if hasattr(error, "exit_code")}
    others = {0, errors.CORE_ERROR_EXIT_CODE}
    others |= {errors.INTERRUPTED_EXIT_CODE, errors.TERMINATED_EXIT_CODE}
    assert errors.EXIT_CODES.keys() == classes | others


def test_the_documentation_has_every_exit_code_with_its_meaning() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    table = "".join(f"| {code} | {meaning} |\n" for code, meaning in errors.EXIT_CODES.items())
    assert f"## Exit codes\n\n| code | meaning |\n|---|---|\n{table}\n" in text


def test_the_documentation_says_what_to_do_after_every_exit_code() -> None:
    text = (ROOT / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+(?:, \d+)*) \|", text, re.MULTILINE)
    documented = {int(code) for row in rows for code in row.split(", ")}
    assert documented | {0} == errors.EXIT_CODES.keys()  # the page leaves out that all went well


def test_the_documentation_has_the_exit_code_of_every_error() -> None:
    text = (ROOT / "docs" / "errors.md").read_text("utf-8")
    documented = dict(re.findall(r"^\| `(\w+Error)` \| (\d+) \| ", text, re.MULTILINE))
    own = {
        name: str(value.exit_code)
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PipelineError)
    }
    del own["PipelineError"]
    assert documented == own


def test_the_documentation_has_a_remedy_for_every_error_of_the_core() -> None:
    text = (ROOT / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+Error)`[^|]* \| \D[^|]* \| [^|]+ \|$", text, re.MULTILINE)
    own = {name for name, value in vars(core_errors).items() if isinstance(value, type)}
    assert {*rows, "BpeError"} == own


def test_formats_of_tokenizers_are_those_of_the_core() -> None:
    assert get_args(TokenizerFormat) == FORMATS
    assert get_args(WrittenTokenizerFormat) == WRITTEN_FORMATS


@pytest.mark.process
def test_the_version_is_that_of_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", "--version"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"beam-bpe \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments", [["--help"], ["build", "absent.yaml"], ["build", str(QUICKSTART), "--set", "a=b"]]
)
def test_the_command_starts_without_importing_what_only_stages_need(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom pipelines.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "print(*{'apache_beam', 'pyarrow', 'numpy', 'fsspec'} & sys.modules.keys(), "
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stderr.splitlines()[-1] == ""


@pytest.mark.process
def test_a_tokenizer_is_found_without_the_models_of_a_build() -> None:
    unneeded = {"pipelines.config.build", "pipelines.manifest.models", "pipelines.dataset.reading"}
    code = (
        "import sys, pipelines.dataset.tokenizers\n"
        f"print(*({unneeded!r} | {{'apache_beam', 'pandas'}}) & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "\n"


@pytest.mark.process
def test_commands_leave_out_pandas_unless_a_data_frame_is_made() -> None:
    code = (
        "import sys\nfrom pipelines.cli.process import leave_out_pandas\nleave_out_pandas()\n"
        "import numpy as np, pyarrow as pa, pyarrow.compute as pc\n"
        "pc.equal(pa.array(np.arange(2)), pa.scalar(1)).to_pylist(), pa.array(['a'])\n"
        "print('pandas' in sys.modules, len(pa.table({'a': [1]}).to_pandas()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "False 1\n"


# --- the way of arguments to the stages


@pytest.mark.parametrize("stage", STAGES)
def test_each_command_runs_its_stage_with_overrides_restart_and_beam_options(
    stage: str, in_child: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def stage_function(config: Any, **arguments: Any) -> BuildSummary:
        calls.append((config.tokenizer.vocab_size, arguments))
        return BuildSummary(documents=3)

    code, out, err = in_child(
        stage_function, stage, QUICKSTART, "--set", "tokenizer.vocab_size=300", "--restart",
        "--take-over",
        "--", "--direct_num_workers=2", "--flag",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.startswith("documents")
    beam_args = ("--direct_num_workers=2", "--flag")
    given = {"restart": True, "no_wait": False, "take_over": True, "beam_args": beam_args}
    only = {"update": False} if stage == "count" else {}
    assert calls == [(300, {**given, **only})]


def test_without_options_a_stage_gets_none(in_child: Run) -> None:
    def stage(
        config: Any, *, restart: bool, beam_args: tuple[str, ...], **others: bool
    ) -> BuildSummary:
        assert (restart, beam_args) == (False, ())
        assert not any(others.values())
        return BuildSummary()

    assert in_child(stage, "build", QUICKSTART)[0] == 0


def test_plan_runs_in_this_process_and_is_shown(
    in_child: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(supervisor.STATUS_VARIABLE)
    plan = BuildPlan(
        files=(PlannedFile(path="/data/a.txt", bytes=9, compression="none", splittable=True,
                           ranges=2),),
        tasks=2, shards=64, token_files=("train-00000-of-00002.parquet",) * 2, id_type="uint16",
        splitting="by a native scanner", output="/out",
    )  # fmt: skip
    code, out, err = in_child(lambda config: plan, "plan", QUICKSTART, "--files")
    assert (code, err) == (0, "")
    assert "/data/a.txt: 9 bytes, 2 ranges" in out


# --- errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PipelineError("Broken."), 1),
        (errors.ConfigError("Broken."), 2),
        (errors.DifferentConfigurationError("Broken."), 3),
        (errors.InputError("Broken.", found="nothing", where="a.txt"), 4),
        (errors.OutputError("Broken."), 5),
        (errors.RejectLimitError("Broken."), 6),
        (errors.IncompleteCountsError("Broken."), 7),
        (errors.WorkerDiedError("Broken."), 8),
        (FormatError("Broken."), 9),
    ],
)
def test_each_error_is_a_message_on_stderr_and_an_exit_code(
    error: Exception, code: int, in_child: Run
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for stage in ("plan", "build"):
        assert in_child(fail, stage, QUICKSTART) == (code, "", f"error: {error}\n")


@pytest.mark.slow
def test_a_plan_that_a_build_would_refuse_is_shown_and_has_its_exit_code(in_child: Run) -> None:
    refusal = errors.DifferentConfigurationError("Other.")
    planned = BuildPlan(
        files=(),
        tasks=7,
        shards=0,
        token_files=(),
        id_type="uint16",
        splitting="by a native scanner",
        output="",
        refusal=refusal,
    )
    code, out, err = in_child(lambda _: planned, "plan", QUICKSTART)
    assert (code, err) == (3, "error: Other.\n")
    assert "work                 7 tasks\n" in out


def test_an_error_with_an_escape_sequence_does_nothing_to_the_terminal(in_child: Run) -> None:
    def fail(*_: object, **__: object) -> None:
        raise errors.InputError("Broken.", where="/d/\x1b]0;owned\x07.txt")

    _, _, shown = in_child(fail, "build", QUICKSTART)
    assert shown == "error: Broken.\n  where: /d/\\x1b]0;owned\\x07.txt\n"


def test_debug_shows_the_traceback_of_an_error(in_child: Run) -> None:
    def fail(*_: object, **__: object) -> None:
        raise errors.InputError("Broken.")

    code, _, shown = in_child(fail, "plan", QUICKSTART, "--debug")
    assert code == errors.InputError.exit_code
    assert "Traceback" in shown
    assert shown.endswith("error: Broken.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "absent.yaml"],
        ["build", str(QUICKSTART), "--set", "tokenizer.vocab=3"],
        ["build", str(QUICKSTART), "extra"],
        ["plan", str(QUICKSTART), "--set", "counts.shards=0"],
    ],
)
def test_a_wrong_configuration_is_told_before_a_stage_begins(
    arguments: list[str], in_child: Run
) -> None:
    code, out, err = in_child(lambda *_, **__: pytest.fail("begun"), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err


@pytest.mark.process
def test_a_wrong_configuration_is_told_once_by_the_whole_command() -> None:
    done = command("build", QUICKSTART, "--set", "tokenizer.vocab=3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr


def test_an_unknown_option_is_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["build", str(QUICKSTART), "--runner=FlinkRunner"])
    assert left.value.code == 2
    assert "--runner" in capfd.readouterr().err


def test_options_take_numbers_as_people_write_them(capfd: pytest.CaptureFixture[str]) -> None:
    assert (parse_number("2k"), parse_bytes("64MiB")) == (2000, 64 << 20)
    with pytest.raises(SystemExit) as left:
        main(["export", "out", "there", "--to", "llm.c", "--max-tokens", "64MiB"])
    assert left.value.code == 2
    assert "expected a whole number such as 32k" in capfd.readouterr().err


# --- the whole command, parent and child

HEADER = """
import os, signal, sys, time
from pipelines.errors import InputError
from pipelines.stages.summary import BuildSummary
from pipelines.supervisor import current_task
"""


@pytest.mark.process
def test_the_stage_runs_in_a_child_and_its_output_is_that_of_the_command(tmp_path: Path) -> None:
    build = HEADER + """
def build(config, restart, beam_args, **others):
    print(os.getppid(), beam_args, restart, flush=True)
    return BuildSummary(documents=1234)
"""  # fmt: skip
    done = command("build", QUICKSTART, "--", "--a=b", build=build, directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\d+ \('--a=b',\) False\ndocuments +1,234\n", done.stdout)


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("raise InputError('No file.')", 4, r"error: No file\.\n"),
        ("raise KeyboardInterrupt", 130, r"Interrupted\.\n"),
        ("raise RuntimeError('odd')", 1, r"Traceback .*RuntimeError: odd\n"),
        (
            "os.kill(os.getpid(), signal.SIGSEGV)",
            8,
            r"error: .*died.*SIGSEGV.*tasks in progress: task 7.*",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", 8, r"error: .*SIGKILL.*task 7.*memory.*"),
        ("os._exit(0)", 8, r"error: .*code 0.*task 7.*"),
    ],
)
def test_however_the_child_ends_the_command_says_so(
    tmp_path: Path, body: str, code: int, message: str
) -> None:
    build = HEADER + f"""
def build(config, restart, beam_args, **others):
    with current_task("task 7"):
        {body}
"""  # fmt: skip
    done = command("build", QUICKSTART, build=build, directory=tmp_path)
    assert done.returncode == code
    assert done.stdout == ""
    assert re.fullmatch(message, done.stderr, re.DOTALL)


# --- stages alone already finished


def test_finished_stages_are_told_as_such(in_child: Run) -> None:
    finished = BuildSummary(stages=(StageSummary(name="count", state="already finished"),))
    code, out, _ = in_child(lambda *_, **__: finished, "count", QUICKSTART)
    assert code == 0
    assert out.startswith("Everything was finished already; nothing was done.\n")
