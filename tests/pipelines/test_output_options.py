"""`--quiet`, `--verbose`, `--log`, `--json`, variables of the environment, and completion."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from build_support import ROOT, some_text, write_corpus
from build_support import command as beam_bpe

from pipelines.config.schema import json_schema

DOCUMENTED = (ROOT / "docs" / "commands.md").read_text("utf-8").split("## JSON\n")[1]
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"


def write_config(directory: Path) -> Path:
    write_corpus(directory / "data", {"a.txt": some_text(12)})
    config = directory / "build.yaml"
    config.write_text(
        "output: out\ninput: {files: [data/*.txt]}\ncounts: {shards: 1}\n"
        "tokenizer: {vocab_size: 280}\n"
    )
    return config


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The output of a build, and what `--json` printed."""
    directory = tmp_path_factory.mktemp("built")
    done = beam_bpe("build", write_config(directory), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    [line] = done.stdout.splitlines()
    return directory / "out", json.loads(line)


# --- quiet and verbose


@pytest.mark.slow
def test_quiet_prints_errors_only(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    for name in ("plan", "build"):
        done = beam_bpe(name, config, "-q", env={"BEAM_BPE_PROGRESS": "auto"})
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = beam_bpe("build", tmp_path / "none.yaml", "--quiet")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")


@pytest.mark.slow
def test_verbose_shows_the_log(tmp_path: Path) -> None:
    done = beam_bpe("build", write_config(tmp_path), "-v", env={"BEAM_BPE_PROGRESS": "auto"})
    lines = done.stderr.splitlines()
    assert all(re.match(rf"{TIME} INFO ", line) for line in lines)
    texts = [line.split(" INFO ")[1] for line in lines]
    assert texts[0].startswith("reading ")
    assert texts[-1].startswith("finished in ")
    assert "[1/3] counting" in texts
    assert done.stdout.startswith("documents")


# --- the log


@pytest.mark.slow
def test_a_log_has_lines_with_times(tmp_path: Path) -> None:
    log, config = tmp_path / "log.txt", write_config(tmp_path)
    for _ in range(2):  # the second run appends
        assert beam_bpe("build", config, "--log", log, "--set", "beam.workers=1").returncode == 0
    text = log.read_text("utf-8")
    assert all(re.match(rf"{TIME} (INFO|WARNING) ", line) for line in text.splitlines())
    assert f"configuration {config}, with --set of beam.workers\n" in text
    assert "[3/3] encoded: " in text
    assert "[3/3] encoding: already finished" in text


def test_a_log_has_errors_but_no_credentials(tmp_path: Path) -> None:
    log, config = tmp_path / "log.txt", write_config(tmp_path)
    secret = "correct-horse-battery"
    options = f"output_storage_options={{secret: {secret}}}"
    given = ["--set", "output=s3://bucket/out", "--set", options]
    done = beam_bpe("build", config, "--log", log, *given, "too many")
    assert done.returncode == 2
    text = log.read_text("utf-8")
    assert re.search(rf"^{TIME} ERROR error: ", text, re.MULTILINE)
    assert "with --set of output, output_storage_options\n" in text
    assert secret not in text + done.stderr


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    done = beam_bpe("plan", write_config(tmp_path), "--log", tmp_path / "none" / "log.txt")
    assert done.returncode == 5
    assert "The log cannot be written." in done.stderr


# --- JSON


def check_keys(value: Mapping[str, Any], name: str) -> None:
    """Check that the documentation has exactly these keys, in their order."""
    [row] = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", DOCUMENTED, re.MULTILINE)
    assert list(value) == re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row))


@pytest.mark.slow
def test_a_summary_as_json(built: tuple[Path, dict[str, Any]]) -> None:
    output, summary = built
    check_keys(summary, "`count`, `train`, `encode`, `build`, `add`, `replay`")
    assert summary["documents"] == 12
    assert summary["outputs"]["tokens"] == str(output / "tokens")
    assert [stage["name"] for stage in summary["stages"]] == ["count", "train", "encode"]
    check_keys(summary["stages"][0], "each of `stages`")


@pytest.mark.slow
def test_a_plan_as_json(built: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    config = write_config(tmp_path)
    plan = json.loads(beam_bpe("plan", config, "--json").stdout)
    check_keys(plan, "`plan`")
    check_keys(plan["files"][0], "each of `files`")
    check_keys(plan["estimate"], "`estimate`, or null")
    assert (plan["tasks"], plan["refusal"], plan["estimate"]["documents"]) == (1, None, 12)
    given = ["--set", f"output={built[0]}", "--set", "counts.shards=2"]
    done = beam_bpe("plan", config, "--json", *given)
    plan = json.loads(done.stdout)
    check_keys(plan["refusal"], "`refusal`, or null")
    assert (done.returncode, plan["refusal"]["exit_code"]) == (3, 3)


@pytest.mark.slow
def test_a_verification_as_json(built: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    output, _ = built
    done = beam_bpe("verify", output, "--json")
    found = json.loads(done.stdout)
    check_keys(found, "`verify`")
    assert (done.returncode, found["intact"], found["problems"]) == (0, True, [])
    damaged = tmp_path / "damaged"
    shutil.copytree(output, damaged)
    with next((damaged / "tokens").glob("*.parquet")).open("ab") as file:
        file.write(b"x")
    done = beam_bpe("verify", damaged, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["intact"]) == (12, False)
    check_keys(found["problems"][0], "each of `problems`")


@pytest.mark.slow
def test_a_document_and_a_search_as_json(built: tuple[Path, dict[str, Any]]) -> None:
    output, _ = built
    document = json.loads(beam_bpe("inspect", output, "--row", 3, "--json").stdout)
    check_keys(document, "`inspect --row`, `--doc`, `--random`")
    assert document["text"].encode().startswith(some_text(12)[3])
    assert "".join(document["shown_tokens"]) == document["text"]
    hits = json.loads(beam_bpe("inspect", output, "--grep", "cat", "--json").stdout)
    check_keys(hits, "`inspect --grep`")
    check_keys(hits["hits"][0], "each of `hits`")


@pytest.mark.slow
def test_a_report_as_json(built: tuple[Path, dict[str, Any]]) -> None:
    report = json.loads(beam_bpe("report", built[0], "--json").stdout)
    check_keys(report, "`report`")


# --- the environment


@pytest.mark.slow
def test_variables_stand_for_options(tmp_path: Path) -> None:
    config, log = write_config(tmp_path), tmp_path / "log.txt"
    variables = {
        "BEAM_BPE_CONFIG": str(config),
        "BEAM_BPE_SET": f"output={tmp_path}/other tokenizer.vocab_size=270",
        "BEAM_BPE_WORKERS": "1",
        "BEAM_BPE_LOG": str(log),
        "BEAM_BPE_QUIET": "1",
    }
    done = beam_bpe("build", env=variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "other/tokenizer/manifest.json").read_text())["vocab_size"] == 270
    assert "with --set of output, tokenizer.vocab_size, beam.workers\n" in log.read_text()


@pytest.mark.slow
def test_a_key_that_is_set_wins_over_the_number_of_workers(tmp_path: Path) -> None:
    given = ["--set", "beam.workers=1", "--workers", 2]
    assert beam_bpe("count", write_config(tmp_path), *given).returncode == 0
    assert json.loads((tmp_path / "out" / "counts" / "run.json").read_text())["workers"] == 1


def test_every_variable_is_documented() -> None:
    source = "".join(path.read_text() for path in (ROOT / "pipelines" / "cli").glob("*.py"))
    found = set(re.findall(r'envvar="(\w+)"', source))
    text = (ROOT / "docs" / "commands.md").read_text("utf-8")
    assert found == set(re.findall(r"^\| `(BEAM_BPE_\w+)` \|", text, re.MULTILINE))


# --- schema, completion, suggestions


def test_the_schema_is_printed() -> None:
    assert json.loads(beam_bpe("schema").stdout) == json_schema()


@pytest.mark.process
def test_a_shell_completes_commands_and_options() -> None:
    for words, expected in (("beam-bpe tok", "tokenize"), ("beam-bpe build --qui", "--quiet")):
        variables = {
            "_BEAM_BPE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = subprocess.run(
            [sys.executable, "-P", "-c", "from pipelines.cli import main; main()"],
            env={"PYTHONPATH": str(ROOT), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == [expected]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("build", "a.yaml", "--vocab-size", "9"), "--set tokenizer.vocab_size=VALUE."),
        (("build", "a.yaml", "--text_field", "a"), "--set input.text_field=VALUE."),
        (("build", "a.yaml", "-j", "2"), "Did you mean --workers?"),
        (("export", "out", "to", "--format", "npy"), "Did you mean --to?"),
        (("export", "out", "to", "--to", "parquet"), "Token files are Parquet already"),
        (("convert", "out", "to", "--to", "HF"), "Did you mean huggingface?"),
        (("plan",), "Missing argument 'CONFIG'. `beam-bpe init FILES` writes one."),
        (("tokenize", "out", "Hello world"), "read from standard input: echo 'Some text' |"),
    ],
)
def test_a_wrong_command_line_gets_advice(
    arguments: tuple[str, ...], advice: str, tmp_path: Path
) -> None:
    done = beam_bpe(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert advice in re.sub(r"[\s│]+", " ", done.stderr)
    assert "Value error" not in done.stderr


def test_the_only_configuration_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "a b.yaml").write_text("")
    done = beam_bpe("build", cwd=tmp_path)
    assert "Did you mean: beam-bpe build 'a b.yaml'?" in re.sub(r"[\s│]+", " ", done.stderr)


@pytest.mark.parametrize(
    ("name", "option", "suggested"),
    [
        ("build", "--quieet", "--quiet"),
        ("train", "--sett", "--set"),
        ("inspect", "--quit", "--quiet"),
    ],
)
def test_only_options_that_are_alike_are_suggested(name: str, option: str, suggested: str) -> None:
    done = beam_bpe(name, "build.yaml", option)
    assert done.returncode == 2
    assert re.search(f"No such option:? '?{option}", done.stderr)  # by the version of typer
    assert re.findall(r"Possible options: ([^)]*)", done.stderr) == ([suggested] * bool(suggested))
