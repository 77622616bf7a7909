"""Whole builds: what they make, going on after every kind of end, and what they refuse."""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from build_support import (
    EXAMPLES,
    ROOT,
    SEPARATOR,
    checksums,
    command,
    config_for,
    some_text,
    states,
    works_of,
    write_corpus,
)

from bpe_core import BPETokenizer
from pipelines import (
    build,
    supervisor,
)
from pipelines.accounting import NUMBERS
from pipelines.batches import DocumentBatch
from pipelines.cli import main
from pipelines.config import BuildConfig, load_config
from pipelines.counting import commits
from pipelines.errors import (
    ConfigError,
    DifferentConfigurationError,
    InputError,
    OutputError,
    RejectLimitError,
)
from pipelines.readers.tasks import TaskWork
from pipelines.stages import count as count_stage
from pipelines.stages import encode as encode_stage
from pipelines.stages.context import importing
from pipelines.writing import tasks as writing_tasks

END = SEPARATOR
CORPUS = {f"{name}.txt": some_text(30, start=30 * i) for i, name in enumerate("abc")}
ALL = [document for name in sorted(CORPUS) for document in CORPUS[name]]

INPUT = {"range_bytes": 14_000}  # a task for each file

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(tmp_path: Path) -> BuildConfig:
    write_corpus(tmp_path / "data", CORPUS)
    return config_for(tmp_path, input=INPUT)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a build of the same corpus."""
    directory = tmp_path_factory.mktemp("undisturbed")
    write_corpus(directory / "data", CORPUS)
    build.build(config_for(directory, input=INPUT))
    return directory


@pytest.fixture
def expected(undisturbed: Path) -> dict[str, str]:
    """Checksums of the files of an undisturbed build."""
    return checksums(undisturbed / "out")


@pytest.fixture
def finished(tmp_path: Path, undisturbed: Path) -> BuildConfig:
    """The configuration of a build that is finished, moved to the test's folder."""
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    return config_for(tmp_path, input=INPUT)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process, as its child does; exit code, stdout, stderr."""
    status = tmp_path / "status"
    status.mkdir()
    monkeypatch.setenv(supervisor.STATUS_VARIABLE, str(status))
    monkeypatch.setattr(supervisor, "enter_child", lambda: None)
    monkeypatch.setattr(supervisor, "leave", sys.exit)

    def run_(stage: str, config: BuildConfig, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([stage, str(written(config, tmp_path)), *arguments])
        code = left.value.code
        shown, err = capfd.readouterr()
        return code if isinstance(code, int) else 0, shown, without_estimate(err)

    return run_


def without_estimate(err: str) -> str:
    """Return what the command wrote to stderr after the line with the estimate."""
    return re.sub(r"^estimate: .*\n", "", err)


def written(config: BuildConfig, directory: Path) -> Path:
    path = directory / "build.yaml"
    values = config.model_dump(mode="json", exclude_unset=True)
    path.write_text(yaml.safe_dump(values))
    return path


def changed(config: BuildConfig, **sections: Any) -> BuildConfig:
    values = config.model_dump(mode="json", exclude_unset=True)
    for name, section in sections.items():
        if name == "input":
            values["input"] = [{**source, **section} for source in values["input"]]
        elif isinstance(section, dict):
            values[name] = {**values.get(name, {}), **section}
        else:
            values[name] = section
    return BuildConfig.model_validate(values)


def out(config: BuildConfig) -> Path:
    return Path(config.output_path)


def rows_of(config: BuildConfig, split: str = "train") -> list[dict[str, Any]]:
    paths = sorted((out(config) / "tokens").glob(f"{split}-*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def manifest_of(config: BuildConfig, stage: str) -> dict[str, Any]:
    return json.loads((out(config) / stage / "manifest.json").read_bytes())


# --- what a build makes


def test_no_garbage_is_collected_while_beam_is_imported_and_it_is_again_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "apache_beam", raising=False)
    assert gc.isenabled()
    with pytest.raises(ImportError), importing():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    gc.unfreeze()


@pytest.mark.parametrize("in_child", [True, False])
def test_beam_is_imported_without_pandas_in_the_child_of_a_command_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_child: bool
) -> None:
    monkeypatch.delitem(sys.modules, "apache_beam", raising=False)
    if in_child:
        monkeypatch.setenv(supervisor.STATUS_VARIABLE, str(tmp_path))
    else:
        monkeypatch.delenv(supervisor.STATUS_VARIABLE, raising=False)
    finders = list(sys.meta_path)
    with importing():
        refusing = [finder for finder in sys.meta_path if finder not in finders]
        assert len(refusing) == in_child
        for finder in refusing:
            assert finder.find_spec("numpy", None) is None
            with pytest.raises(ModuleNotFoundError):
                finder.find_spec("pandas", None)
    assert sys.meta_path == finders
    gc.unfreeze()


@pytest.mark.slow
def test_the_quickstart_decodes_to_its_source_documents_byte_for_byte(tmp_path: Path) -> None:
    config = load_config(ROOT / "configs" / "quickstart.yaml", [f"output={tmp_path}/out"])
    summary = build.build(config)
    assert summary.vocab_size == len(BPETokenizer.load(tmp_path / "out" / "tokenizer")) == 8192
    source = []
    for path in sorted(EXAMPLES.glob("*.txt*")):
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        documents = data.split(END.encode())
        source += [(path.name, document) for document in documents if document]
    tokenizer = BPETokenizer.load(tmp_path / "out" / "tokenizer")
    rows = rows_of(config)
    assert [
        (row["source"], tokenizer.decode_bytes(row["input_ids"][:-1])) for row in rows
    ] == source
    assert {row["input_ids"][-1] for row in rows} == {tokenizer.special_tokens[END]}
    assert summary.documents == summary.train_rows == len(source)
    assert summary.tokens == sum(row["num_tokens"] for row in rows)
    assert summary.rejects == 0


def test_the_token_files_are_one_dataset_for_pyarrow(finished: BuildConfig) -> None:
    import pyarrow.dataset as ds

    dataset = ds.dataset(sorted(map(str, (out(finished) / "tokens").glob("train-*.parquet"))))
    assert dataset.count_rows() == len(ALL)
    assert pq.read_table(out(finished) / "tokens" / "train-00000-of-00003.parquet").num_rows > 0


def test_the_stages_one_by_one_make_what_a_build_makes(
    config: BuildConfig, expected: dict[str, str]
) -> None:
    stages = [build.count(config), build.train(config), build.encode(config)]
    assert checksums(out(config)) == expected
    assert [[stage.state for stage in summary.stages] for summary in stages] == [
        ["done"],
        ["already finished", "done"],
        ["already finished", "already finished", "done"],
    ]


def test_encoding_first_makes_what_it_needs(config: BuildConfig, expected: dict[str, str]) -> None:
    build.encode(config)
    assert checksums(out(config)) == expected


@pytest.mark.slow
def test_totals_agree_from_counting_to_the_rows(tmp_path: Path) -> None:
    corpus = {"a.txt": [*ALL[:20], b"", b"bad \xff", b"", *ALL[20:]]}
    write_corpus(tmp_path / "data", corpus)
    config = config_for(tmp_path, encode={"max_reject_fraction": 0.5, "validation_fraction": 0.25})
    summary = build.build(config)
    counts, tokens = (manifest_of(config, stage) for stage in ("counts", "tokens"))
    assert counts["corpus"] == tokens["corpus"]
    for totals in (counts["totals"], tokens["totals"]):
        assert (totals["documents"], totals["empty"], totals["rejected"]) == (len(ALL), 2, 1)
    assert counts["sources"] == tokens["sources"]
    assert sum(counts["totals"][name] for name in NUMBERS if "bytes" in name) == sum(
        counts["inputs"].values()
    )
    totals = tokens["totals"]
    assert totals["train_rows"] + totals["validation_rows"] == len(ALL)
    assert totals["validation_rows"] == len(rows_of(config, "validation")) > 0
    assert (summary.documents, summary.empty, summary.rejects) == (len(ALL) + 3, 2, 1)
    assert summary.outputs["rejects"] == str(out(config) / "rejects")
    (reject,) = pq.read_table(out(config) / "rejects").to_pylist()
    assert reject["reason"] == "invalid_utf8"


def test_sources_are_named_in_their_order(tmp_path: Path) -> None:
    write_corpus(tmp_path / "y", {"1.txt": ALL[:5]})
    write_corpus(tmp_path / "x" / "sub", {"2.txt": ALL[5:9]})
    config = config_for(
        tmp_path,
        input=[
            {"name": "first", "files": [str(tmp_path / "y" / "*")]},
            {"name": "second", "files": [str(tmp_path / "x" / "**")]},
        ],
    )
    build.build(config)
    sources = [row["source"] for row in rows_of(config)]
    assert sources == ["first/1.txt"] * 5 + ["second/sub/2.txt"] * 4


@pytest.mark.parametrize("content", [b"", SEPARATOR.encode() * 3])
def test_a_corpus_without_text_is_built_with_warnings(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_bytes(content)
    config = config_for(tmp_path)
    summary = build.build(config)
    assert (summary.documents, summary.tokens, summary.merges) == (len(content) // 13, 0, 0)
    assert "too small for the vocabulary" in summary.warnings[0]


def test_a_corpus_too_small_for_the_vocabulary_is_a_warning_with_the_number_reached(
    config: BuildConfig, run: Run
) -> None:
    config = changed(config, tokenizer={"vocab_size": 5000})
    code, shown, err = run("build", config)
    assert (code, err) == (0, "")
    reached = len(BPETokenizer.load(out(config) / "tokenizer"))
    assert 257 < reached < 5000
    assert f"warning: the corpus is too small for the vocabulary: training reached {reached:,}" in (
        shown
    )
    training = json.loads((out(config) / "tokenizer" / "training.json").read_bytes())["training"]
    assert training["vocab_size"] == reached
    assert training["stop_reason"] == "no_pairs_left"
    assert training["stopped_because"] == "no pair is left to merge"


# --- types of ids


@pytest.mark.parametrize(
    ("largest", "asked", "expected_type"),
    [
        (65535, "auto", pa.uint16()),
        (65536, "auto", pa.uint32()),
        (300, "uint32", pa.uint32()),
        (65535, "uint16", pa.uint16()),
        (65536, "uint16", None),
    ],
)
def test_the_type_of_ids_follows_from_the_largest_one(
    largest: int, asked: str, expected_type: pa.DataType | None, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": ALL[:3]})
    vocab = {i: bytes([i]) for i in range(256)}
    BPETokenizer(vocab, [], {END: largest}).save(tmp_path / "tokenizer")
    config = changed(config_for(tmp_path), encode={"id_type": asked})
    config = config.model_copy(
        update={"tokenizer": type(config.tokenizer)(path=str(tmp_path / "tokenizer"))}
    )
    if expected_type is None:
        with pytest.raises(ConfigError, match=r"encode\.id_type"):
            build.encode(config)
        return
    build.encode(config)
    table = pq.read_table(next((out(config) / "tokens").glob("train-*")))
    assert table.schema.field("input_ids").type.value_type == expected_type
    assert table["input_ids"][0].as_py()[-1] == largest


# --- a finished tokenizer


@pytest.fixture
def with_tokenizer(tmp_path: Path, config: BuildConfig) -> BuildConfig:
    build.train(config)
    shutil.copytree(out(config) / "tokenizer", tmp_path / "mine")
    shutil.rmtree(out(config))
    return changed(config, tokenizer={}).model_copy(
        update={"tokenizer": type(config.tokenizer)(path=str(tmp_path / "mine"))}
    )


@pytest.mark.slow
def test_a_finished_tokenizer_encodes_without_counting(
    with_tokenizer: BuildConfig, expected: dict[str, str]
) -> None:
    build.build(with_tokenizer)
    assert {path.name for path in out(with_tokenizer).iterdir()} == {
        "tokens",
        "configuration.json",
    }
    assert checksums(out(with_tokenizer) / "tokens") == {
        name.removeprefix("tokens/"): value
        for name, value in expected.items()
        if name.startswith("tokens/")
    }
    shutil.move(str(with_tokenizer.tokenizer.path), str(out(with_tokenizer) / "moved"))
    moved = with_tokenizer.model_copy(
        update={
            "tokenizer": type(with_tokenizer.tokenizer)(path=str(out(with_tokenizer) / "moved"))
        }
    )
    (stage,) = build.encode(moved).stages
    assert stage.state == "already finished"


@pytest.mark.parametrize("stage", ["count", "train"])
def test_with_a_finished_tokenizer_nothing_is_counted_or_trained(
    stage: str, with_tokenizer: BuildConfig, run: Run
) -> None:
    code, _, err = run(stage, with_tokenizer)
    assert code == 2
    assert "remove tokenizer.path" in err


def test_a_tokenizer_that_is_not_there_is_told(with_tokenizer: BuildConfig, run: Run) -> None:
    shutil.rmtree(str(with_tokenizer.tokenizer.path))
    code, _, err = run("encode", with_tokenizer)
    assert code == 2
    assert "There is no tokenizer" in err
    assert "found: nothing at this path" in err
    assert str(with_tokenizer.tokenizer.path) in err
    Path(str(with_tokenizer.tokenizer.path)).touch()  # a file, which is none of a tokenizer
    code, _, err = run("encode", with_tokenizer)
    assert code == 4
    assert "found an empty file" in " ".join(err.split())


def test_affixes_that_the_tokenizer_does_not_have_are_told(
    with_tokenizer: BuildConfig, run: Run
) -> None:
    code, _, err = run("encode", changed(with_tokenizer, encode={"append": "<|end|>"}))
    assert code == 2
    assert "encode.append" in err
    assert "'<|endoftext|>'" in err


# --- doing nothing


@pytest.mark.slow
def test_building_again_does_nothing_and_says_so(
    finished: BuildConfig, run: Run, tmp_path: Path
) -> None:
    before = states(out(finished))
    code, shown, err = run("build", finished)
    assert (code, err) == (0, "")
    assert shown.startswith("Everything was finished already; nothing was done.\n")
    assert states(out(finished)) == before


@pytest.mark.parametrize(
    "sections",
    [
        {"beam": {"workers": 1}},
        {"counts": {"memory": "1MiB", "checkpoint_bytes": 5}},
        {"encode": {"max_reject_fraction": 0.5}},
    ],
    ids=str,
)
def test_what_has_no_influence_on_the_output_may_change(
    sections: dict[str, Any], finished: BuildConfig
) -> None:
    before = states(out(finished))
    summary = build.build(changed(finished, **sections))
    assert {stage.state for stage in summary.stages} == {"already finished"}
    assert states(out(finished)) == before


# --- another configuration, other inputs


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


CHANGES: dict[str, tuple[dict[str, Any], Callable[[Path], object], str]] = {
    "tokenizer": ({"tokenizer": {"vocab_size": 310}}, lambda data: None, "vocab_size: 300 → 310"),
    "counts": ({"tokenizer": {"pattern": "o200k"}}, lambda data: None, '"gpt2" → "o200k"'),
    "tokens": ({"encode": {"append": None}}, lambda data: None, 'append: "<|endoftext|>" → null'),
    "tasks": ({"input": {"range_bytes": 5000}}, lambda data: None, "range_bytes: 14000 → 5000"),
    "touched": ({}, lambda data: touch(data / "b.txt"), "b.txt: as large as before, but changed"),
    "longer": ({}, lambda data: (data / "b.txt").write_bytes(b"new"), "b.txt"),
    "added": ({}, lambda data: (data / "d.txt").write_bytes(b"new"), "d.txt: not set"),
    "removed": ({}, lambda data: (data / "b.txt").unlink(), "b.txt"),
}


@pytest.mark.parametrize(("sections", "change", "shown"), CHANGES.values(), ids=CHANGES)
def test_output_of_another_configuration_stops_the_build_and_stays(
    sections: dict[str, Any],
    change: Callable[[Path], object],
    shown: str,
    finished: BuildConfig,
    tmp_path: Path,
    run: Run,
) -> None:
    before = states(out(finished))
    change(tmp_path / "data")
    code, _, err = run("build", changed(finished, **sections))
    assert code == DifferentConfigurationError.exit_code == 3
    assert shown in err
    assert "Traceback" not in err
    assert "--restart" in err
    assert states(out(finished)) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counts", "tasks", "touched", "removed"])
def test_restart_begins_anew_and_removes_only_what_builds_wrote(
    name: str,
    finished: BuildConfig,
    tmp_path: Path,
) -> None:
    sections, change, _ = CHANGES[name]
    foreign = {
        "counts/notes.txt", "tokenizer/README.md", "tokens/train.csv", "rejects/mine.parquet",
        "tokens/mine/train-00000-of-00001.parquet", "elsewhere/manifest.json", "README",
    }  # fmt: skip
    for name in foreign:
        (out(finished) / name).parent.mkdir(exist_ok=True)
        (out(finished) / name).write_text("mine")
    change(tmp_path / "data")
    other = changed(finished, **sections)
    build.build(other, restart=True)
    fresh = changed(other, output=str(tmp_path / "fresh"))
    build.build(fresh)
    made = checksums(out(other))
    assert foreign <= made.keys()
    assert {name: value for name, value in made.items() if name not in foreign} == checksums(
        out(fresh)
    )
    assert {stage.state for stage in build.build(other).stages} == {"already finished"}


@pytest.mark.parametrize("stage", ["count", "train", "encode"])
def test_a_stage_can_be_restarted_alone(
    stage: str, finished: BuildConfig, expected: dict[str, str]
) -> None:
    before = states(out(finished))
    getattr(build, stage)(finished, restart=True)
    assert checksums(out(finished)) == expected
    after = states(out(finished))
    again = {name.partition("/")[0] for name in before if before[name] != after[name]}
    assert again - {"configuration.json"} == {
        {"count": "counts", "train": "tokenizer", "encode": "tokens"}[stage]
    }


@pytest.mark.parametrize("arguments", [("--restart", "--", "--frobnicate"), ("--restart",)])
def test_restart_removes_nothing_when_the_new_build_can_not_begin(
    arguments: tuple[str, ...], finished: BuildConfig, tmp_path: Path, run: Run
) -> None:
    if len(arguments) == 1:
        shutil.rmtree(tmp_path / "data")
    before = states(out(finished))
    assert run("build", finished, *arguments)[0] in (2, 4)
    assert states(out(finished)) == before


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("stage", ["counts", "tokenizer", "tokens"])
def test_files_that_no_build_wrote_are_refused_and_stay(
    stage: str, restart: bool, config: BuildConfig
) -> None:
    name = {"counts": "shard-00000-of-00002.parquet", "tokenizer": "tokenizer.json",
            "tokens": "train-00000-of-00001.parquet"}[stage]  # fmt: skip
    path = out(config) / stage / name
    path.parent.mkdir(parents=True)
    path.write_text("somebody's")
    with pytest.raises(OutputError, match="no build of this tool wrote"):
        build.build(config, restart=restart)
    assert path.read_text() == "somebody's"


def test_a_finished_output_that_lost_a_file_is_told(finished: BuildConfig, run: Run) -> None:
    (out(finished) / "tokens" / "train-00000-of-00003.parquet").unlink()
    code, _, err = run("build", finished)
    assert code == OutputError.exit_code == 5
    assert "train-00000-of-00003.parquet" in err


# --- going on after every kind of end


def record_reads(patch: pytest.MonkeyPatch, fails: Callable[..., bool]) -> list[Any]:
    """Notes which tasks each stage reads; fails in the middle of those chosen."""
    read: list[Any] = []
    for stage, module in (("count", commits), ("encode", writing_tasks)):
        real = module.read_task

        def reading(
            work: TaskWork, readings: Any, stage: str = stage, real: Any = real
        ) -> Iterator[DocumentBatch]:
            read.append((stage, work.index))
            yield from real(work, readings)
            if fails(stage, work):
                raise InputError("The disk went away.")

        patch.setattr(module, "read_task", reading)
    return read


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["count", "encode"])
@pytest.mark.parametrize("failing", [0, 2])
def test_a_build_that_failed_goes_on_where_it_was(
    stage: str,
    failing: int,
    config: BuildConfig,
    expected: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = changed(config, beam={"workers": 1}, counts={"checkpoint_bytes": 1})
    with monkeypatch.context() as patch, pytest.raises(InputError, match="went away"):
        record_reads(patch, lambda at, work: at == stage and work.index == failing)
        build.build(config)
    with monkeypatch.context() as patch:
        read = record_reads(patch, lambda at, work: False)
        summary = build.build(config)
    tasks = len(works_of(config))
    assert tasks == 3
    order = sorted(range(tasks), key=lambda i: (-works_of(config)[i].parts[0][2], i))
    left = order[order.index(failing) :]
    assert [index for at, index in read if at == stage] == left
    states_ = {stage_.name: stage_.state for stage_ in summary.stages}
    if stage == "encode":
        assert states_["count"] == "already finished"
        assert not any(at == "count" for at, _ in read)
    if len(left) < tasks:
        assert states_[stage] == "resumed"
    # Speed is that of what was done now.
    sizes = {i: sum(map(len, CORPUS[name])) for i, name in enumerate(sorted(CORPUS))}
    bytes_ = {stage_.name: stage_.bytes for stage_ in summary.stages}
    assert bytes_[stage] == sum(sizes[i] for i in left)
    assert checksums(out(config)) == expected


KILL = """
import logging, signal
logging.getLogger().addFilter(lambda record: "apitools" not in record.getMessage())
import pipelines.{module} as module
real = module.{function}
def dying(*arguments):
    first = arguments[0]
    {note}
    if os.environ.get("KILL") and {when}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
module.{function} = dying
"""
READ = "open(os.environ['NOTES'], 'a').write(f'{first.index}\\n') if hasattr(first, 'index') else 0"
NOTE = "first = arguments[-1]; " + READ


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function", "when", "where"),
    [
        ("counting.commits", "read_task", "first.index == 2", "count task 2 of 3"),
        pytest.param(
            "writing.tasks",
            "read_task",
            "first.index == 2",
            "encode task 2 of 3",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "counting.shards",
            "_write_file",
            "True",
            "merging shard 0 of 2 of the counts",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_build_that_was_killed_says_where_and_goes_on(
    module: str,
    function: str,
    when: str,
    where: str,
    config: BuildConfig,
    expected: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = changed(config, beam={"workers": 1}, counts={"checkpoint_bytes": 1})
    path = written(config, tmp_path)
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    hook = KILL.format(module=module, function=function, when=when, note=READ)
    monkeypatch.setenv("KILL", "1")
    killed = command("build", path, hook=hook, directory=tmp_path)
    assert killed.returncode == 8, killed.stderr
    assert "killed by SIGKILL" in killed.stderr
    assert where in killed.stderr
    assert "Traceback" not in killed.stderr
    monkeypatch.delenv("KILL")
    (tmp_path / "notes").unlink(missing_ok=True)
    done = command("build", path, hook=hook, directory=tmp_path)
    assert (done.returncode, without_estimate(done.stderr)) == (0, "")
    if function == "read_task":
        assert (tmp_path / "notes").read_text().split() == ["2"]
        assert re.search(r"^(count|encode) .* resumed$", done.stdout, re.MULTILINE)
    assert checksums(out(config)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function", "time"),
    [
        ("counting.shards", "write_shard", 2),
        ("stages.learn", "load_training_counts", 1),
        ("stages.lifecycle", "finish_stage", 1),
        ("stages.encode", "begin_stage", 1),
        ("stages.encode", "tokens_content", 1),
    ],
)
def test_a_build_that_failed_between_tasks_goes_on(
    module: str,
    function: str,
    time: int,
    config: BuildConfig,
    expected: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = getattr(sys.modules[f"pipelines.{module}"], function)
    calls = []

    def failing(*arguments: Any, **keywords: Any) -> Any:
        calls.append(function)
        if len(calls) == time:
            raise OutputError("The disk went away.")
        return real(*arguments, **keywords)

    monkeypatch.setattr(f"pipelines.{module}.{function}", failing)
    try:
        build.build(config)
    except OutputError:
        build.build(config)
    assert checksums(out(config)) == expected


@pytest.mark.slow
def test_many_tasks_with_workers_killed_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures in every bundle, at tasks that change, until all is done."""
    write_corpus(tmp_path / "data", {"a.txt": CORPUS["a.txt"]})
    config = config_for(
        tmp_path,
        input={"range_bytes": 1200},
        counts={"checkpoint_bytes": 2000, "memory": 1 << 16},
        beam={"workers": 3},
    )
    tasks = len(works_of(config))
    assert tasks >= 8
    for attempt in range(60):
        with monkeypatch.context() as patch:
            failing = [i for i in range(tasks) if (i * 7 + attempt * 5) % tasks == 0]
            record_reads(patch, lambda at, work, failing=failing: work.index in failing)
            try:
                build.build(config)
            except InputError:
                continue
            break
    else:
        pytest.fail("never finished")
    fresh = changed(config, output=str(tmp_path / "fresh"))
    build.build(fresh)
    assert checksums(out(config)) == checksums(out(fresh))


def test_what_is_left_of_an_interrupted_build_is_not_mixed_with_another(
    config: BuildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(InputError):
        record_reads(patch, lambda at, work: at == "encode" and work.index == 1)
        build.build(config)
    before = states(out(config))
    with pytest.raises(DifferentConfigurationError):
        build.build(changed(config, encode={"append": None}))
    assert states(out(config)) == before


@pytest.mark.slow
def test_an_interrupted_count_may_go_on_with_other_ranges(
    config: BuildConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Runs of other ranges are of another plan: they are left out, and removed in the end."""
    config = changed(config, counts={"checkpoint_bytes": 1})
    with monkeypatch.context() as patch, pytest.raises(InputError):
        record_reads(patch, lambda at, work: work.index == 1)
        build.build(config)
    other = changed(config, input={"range_bytes": 5000})
    build.build(other)
    fresh = changed(other, output=str(tmp_path / "fresh"))
    build.build(fresh)
    assert checksums(out(other)) == checksums(out(fresh))


# --- inputs that are wrong


def shown_by(run: Run, config: BuildConfig, code: int, *texts: str, stage: str = "build") -> None:
    found, _, err = run(stage, config)
    assert found == code, err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    for text in texts:
        assert text in err


def test_no_file_matches(config: BuildConfig, run: Run) -> None:
    config = changed(config, input={"files": ["nowhere/*.txt"]})
    shown_by(run, config, 4, "No file matches", "nowhere")
    assert not out(config).exists()


@pytest.mark.parametrize(("kind", "damage"), [("zstd", "corrupt"), ("gzip", "cut")])
def test_a_damaged_compressed_file_is_named_with_the_byte(
    kind: str, damage: str, tmp_path: Path, run: Run
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": ALL})
    text = b"".join(document + END.encode() for document in some_text(400))
    if kind == "zstd":
        data = zstandard.ZstdCompressor(write_checksum=True).compress(text)
    else:
        data = gzip.compress(text, 1)
    if damage == "cut":
        data = data[: len(data) // 2]
    else:
        middle = len(data) // 2
        data = data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]
    name = {"zstd": "b.txt.zst", "gzip": "b.txt.gz"}[kind]
    (tmp_path / "data" / name).write_bytes(data)
    config = config_for(tmp_path)
    shown_by(run, config, 4, "corrupt or truncated", str(tmp_path / "data" / name), "up to byte")


def test_invalid_utf8_with_error_names_file_and_byte(tmp_path: Path, run: Run) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"good", b"so \xff bad"]})
    config = config_for(tmp_path, input={"invalid_utf8": "error"})
    shown_by(run, config, 4, "not valid UTF-8", "a.txt, byte 20", "0xff")


def test_special_tokens_in_text_with_error_names_file_and_byte(tmp_path: Path, run: Run) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"good", b"so <|x|> bad"]})
    config = config_for(
        tmp_path,
        tokenizer={"special_tokens": [END, "<|x|>"]},
        encode={"special_tokens_in_text": "error"},
    )
    shown_by(run, config, 4, "contains a special token", "a.txt, document at offset 17", "byte 3")


@pytest.mark.slow
def test_a_pretoken_that_is_too_long_is_an_error_or_is_skipped_with_a_warning(
    tmp_path: Path, run: Run
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [*ALL, b"lo" + b"o" * 100 + b"ng"]})
    config = config_for(tmp_path, counts={"max_pretoken_bytes": 50})
    shown_by(run, config, 4, "pre-token is too long", "104 bytes", "a.txt", "on_long_pretoken")
    skipping = changed(config, counts={"on_long_pretoken": "skip"}, output=str(tmp_path / "o2"))
    code, shown, _ = run("build", skipping)
    assert code == 0
    assert "1 pre-tokens longer than counts.max_pretoken_bytes were not counted" in shown


@pytest.mark.slow
def test_too_many_rejects_fail_and_say_where_to_look(tmp_path: Path, run: Run) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [*ALL[:9], b"\xff"]})
    config = config_for(tmp_path, encode={"max_reject_fraction": 0.05})
    assert RejectLimitError.exit_code == 6
    shown_by(run, config, 6, "1 of 10", "encode.max_reject_fraction", "rejects/count-")
    (path,) = (out(config) / "rejects").glob("count-*.parquet")
    assert pq.read_table(path).num_rows == 1
    code, shown, _ = run("build", changed(config, encode={"max_reject_fraction": 0.1}))
    assert code == 0
    assert re.search(r"^rejects +1$", shown, re.MULTILINE)
    assert re.search(r"^count .* resumed$", shown, re.MULTILINE)
    assert [path.name for path in (out(config) / "rejects").iterdir()] == ["00000-of-00001.parquet"]


@pytest.mark.slow
def test_only_documents_that_are_judged_count_for_the_limit_of_rejects(
    tmp_path: Path, run: Run
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [*ALL[:9], b"bad \xff", *[b""] * 90, *[b"x"] * 200]})
    config = config_for(
        tmp_path, input={"min_chars": 2}, encode={"max_reject_fraction": 0.09}, beam={"workers": 1}
    )
    shown_by(run, config, 6, "1 of 10", "of the kept and rejected documents")
    assert run("build", changed(config, encode={"max_reject_fraction": 0.1}))[0] == 0


def change_input_at(
    patch: pytest.MonkeyPatch,
    module: Any,
    function: str,
    path: Path,
    content: bytes,
    *,
    keep_time: bool = False,
) -> None:
    real = getattr(module, function)
    status = path.stat()

    def changing(*arguments: Any) -> Any:
        path.write_bytes(content)
        if keep_time:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return real(*arguments)

    patch.setattr(module, function, changing)


def test_an_input_that_changes_while_it_is_read_is_told(
    config: BuildConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    path = tmp_path / "data" / "b.txt"
    change_input_at(monkeypatch, count_stage, "usable_commits", path, path.read_bytes()[:-50])
    shown_by(run, config, 4, "has changed since the work was planned", str(path))


def test_an_input_of_the_same_size_but_of_another_time_is_told(
    config: BuildConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    path = tmp_path / "data" / "b.txt"
    other = path.read_bytes().replace(b"cat", b"dog")
    change_input_at(monkeypatch, count_stage, "usable_commits", path, other)
    shown_by(run, config, 4, "has changed since the work was planned", "mtime_ns=", str(path))


@pytest.mark.slow
def test_an_input_that_changes_with_its_old_time_between_counting_and_encoding_is_told(
    config: BuildConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    path = tmp_path / "data" / "b.txt"
    other = path.read_bytes().replace(b"cat", b"dog")
    change_input_at(monkeypatch, encode_stage, "finished_entries", path, other, keep_time=True)
    shown_by(run, config, 4, "are not the counted ones", "--restart")
    assert not (out(config) / "tokens" / "manifest.json").exists()


# --- outputs that cannot be written


@pytest.mark.parametrize("below", ["", "/below"])
def test_an_output_that_is_a_file(
    below: str, config: BuildConfig, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "file").touch()
    config = changed(config, output=f"{tmp_path}/file{below}")
    for stage in ("plan", "build"):
        shown_by(run, config, 5, "/file is a file", "Choose another output", stage=stage)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small file system, where the tests may."""
    mounted: list[Path] = []

    def mount_(options: str) -> Path:
        place = tmp_path / "mounted"
        place.mkdir()
        program = shutil.which("mount")
        if program is None or os.geteuid() != 0:
            pytest.skip("only root can mount")
        done = subprocess.run(
            [program, "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True
        )
        if done.returncode:
            pytest.skip("no mounts here")
        mounted.append(place)
        return place

    yield mount_
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.process
def test_an_output_that_can_not_be_written(
    config: BuildConfig, mount: Callable[[str], Path], run: Run
) -> None:
    config = changed(config, output=str(mount("ro") / "out"))
    shown_by(
        run, config, 5, "The output cannot be written", "Read-only file system", str(out(config))
    )


@pytest.mark.process
@pytest.mark.parametrize("kilobytes", [16, 40, 60])
def test_a_full_disk_is_told_and_the_build_goes_on_when_there_is_room(
    kilobytes: int,
    config: BuildConfig,
    expected: dict[str, str],
    mount: Callable[[str], Path],
    run: Run,
) -> None:
    place = mount(f"size={kilobytes}k")
    config = changed(config, output=str(place / "out"))
    shown_by(run, config, 5, "No space left on device", str(place), "Free some space")
    subprocess.run(["mount", "-o", "remount,size=10m", str(place)], check=True)
    code, _, err = run("build", config)
    assert (code, err) == (0, "")
    assert checksums(out(config)) == expected
