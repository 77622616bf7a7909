"""Files that are added to a finished dataset make a generation of their own."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml
from build_support import checksums, command, config_for, some_text, states, write_corpus

from pipelines import build
from pipelines.config import BuildConfig, load_config
from pipelines.errors import DifferentConfigurationError, RejectLimitError
from pipelines.stages import transforms
from pipelines.stages.context import BuildContext
from pipelines.stages.encode import discard_tokens
from pipelines.stages.summary import BuildSummary
from pipelines.writing import tasks as writing_tasks

BASE = {"b.txt": some_text(30), "d.txt": some_text(25, start=30)}
FIRST = {"a.txt": some_text(40, start=55), "c.txt": some_text(5, start=95)}
SECOND = {"e.txt": some_text(20, start=100)}

PLAN_KEYS = ("format", "configuration", "inputs", "tasks")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    write_corpus(directory / "data", BASE)
    build.train(config_for(directory))
    return directory / "out" / "tokenizer"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """The directory of a finished dataset, with `data` and `out`."""
    directory = tmp_path_factory.mktemp("base")
    write_corpus(directory / "data", BASE)
    build.encode(config_of(directory, tokenizer))
    return directory


@pytest.fixture
def config(base: Path, tokenizer: Path, tmp_path: Path) -> BuildConfig:
    """The configuration of a finished dataset in the folder of the test."""
    shutil.copytree(base, tmp_path, dirs_exist_ok=True)
    return config_of(tmp_path, tokenizer)


def config_of(directory: Path, tokenizer: Path, **sections: Any) -> BuildConfig:
    config = config_for(directory, encode={"validation_fraction": 0.2}, **sections)
    return config.model_copy(update={"tokenizer": type(config.tokenizer)(path=str(tokenizer))})


def add(directory: Path, files: dict[str, list[bytes]]) -> None:
    write_corpus(directory / "data", files)


def manifest_of(directory: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((directory / "out/tokens/manifest.json").read_text())
    return manifest


def rows(directory: Path, split: str = "train") -> dict[tuple[str, int, int], list[int]]:
    """The ids by document, of the files in the manifest; none may be there twice."""
    files = [file["name"] for file in manifest_of(directory)["files"][split]]
    found = {}
    for name in files:
        for row in ds.dataset(directory / "out/tokens" / name).to_table().to_pylist():
            key = row["source"], row["offset"], row["part"]
            assert key not in found
            found[key] = row["input_ids"]
    return found


def names(files: list[dict[str, Any]]) -> list[str]:
    return [file["name"] for file in files]


@pytest.mark.slow
def test_only_the_added_files_are_encoded_and_the_earlier_keep_their_bytes(
    config: BuildConfig, tmp_path: Path
) -> None:
    before, was = states(tmp_path / "out/tokens"), manifest_of(tmp_path)
    add(tmp_path, FIRST)
    (stage,) = build.encode(config).stages
    assert stage.name == "encode add001"
    assert stage.bytes == sum(len(document) for file in FIRST.values() for document in file)

    after, now = states(tmp_path / "out/tokens"), manifest_of(tmp_path)
    for file in before.keys() - {"manifest.json", "run.json"}:
        assert after[file] == before[file]
    added = now["files"]["train"][len(was["files"]["train"]) :]
    assert now["files"]["train"] == was["files"]["train"] + added
    of = len(added)
    assert names(added) == [f"train-add001-{i:05d}-of-{of:05d}.parquet" for i in range(of)]
    assert set(after) == {
        "manifest.json",
        "run.json",
        *names(now["files"]["train"] + now["files"]["validation"] + now["files"]["statistics"]),
    }
    assert [(file["name"], file["generation"]) for file in now["inputs"]] == [
        ("b.txt", "base"),
        ("d.txt", "base"),
        ("a.txt", "add001"),
        ("c.txt", "add001"),
    ]
    kinds = [(g["name"], g["kind"], g["tasks"]) for g in now["generations"]]
    assert kinds == [("base", "base", len(was["files"]["train"])), ("add001", "added", of)]
    (again,) = build.encode(config).stages
    assert again.state == "already finished"
    assert states(tmp_path / "out/tokens") == after


@pytest.mark.slow
def test_adding_says_if_no_file_is_new(config: BuildConfig, tmp_path: Path) -> None:
    add(tmp_path, FIRST)
    nothing = "input.files matches no file that the dataset lacks"
    for run, says in ((build.add, False), (build.add, True), (build.encode, False)):
        assert any(nothing in warning for warning in run(config).warnings) == says


@pytest.mark.slow
def test_generations_add_up_to_the_dataset_that_one_build_makes(
    config: BuildConfig, tokenizer: Path, tmp_path: Path
) -> None:
    for files in (FIRST, SECOND):
        add(tmp_path, files)
        build.encode(config)
    at_once = tmp_path / "at_once"
    shutil.copytree(tmp_path / "data", at_once / "data")
    build.encode(config_of(at_once, tokenizer))

    ours, theirs = manifest_of(tmp_path), manifest_of(at_once)
    assert [g["name"] for g in ours["generations"]] == ["base", "add001", "add002"]
    for key in ("corpus", "totals", "sources", "configuration", "configuration_fingerprint"):
        assert ours[key] == theirs[key], key
    by_name = {file.pop("name"): file for file in theirs["inputs"]}
    for file in ours["inputs"]:
        of_one = by_name[file.pop("name")]
        assert {**file, "generation": "base"} == of_one
    for split in ("train", "validation"):
        assert rows(tmp_path, split) == rows(at_once, split)


@pytest.mark.slow
def test_the_same_steps_give_the_same_bytes_with_any_number_of_workers(
    config: BuildConfig, base: Path, tokenizer: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(base, other)
    for directory, workers in ((tmp_path, 1), (other, 4)):
        add(directory, FIRST)
        build.encode(config_of(directory, tokenizer, beam={"workers": workers}))
    assert checksums(tmp_path / "out") == checksums(other / "out")


@pytest.mark.slow
def test_patterns_and_sources_may_be_added(tokenizer: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "2025", {"x.txt": some_text(9)})
    write_corpus(tmp_path / "2026", {"y.txt": some_text(8, start=10)})
    write_corpus(tmp_path / "news", {"x.txt": some_text(7, start=20)})

    def encode(*sources: dict[str, Any]) -> BuildSummary:
        return build.encode(config_of(tmp_path, tokenizer, input=list(sources)))

    year, years = ([str(tmp_path / y / "*") for y in some] for some in (["2025"], ["2025", "2026"]))
    encode({"name": "books", "files": year})
    encode({"name": "books", "files": years})
    news = {"name": "news", "files": [str(tmp_path / "news/*")], "invalid_utf8": "replace"}
    encode(news, {"name": "books", "files": years})
    manifest = manifest_of(tmp_path)
    assert [(file["name"], file["generation"]) for file in manifest["inputs"]] == [
        ("books/x.txt", "base"),
        ("books/y.txt", "add001"),
        ("news/x.txt", "add002"),
    ]
    assert [(s["name"], s["documents"]) for s in manifest["sources"]] == [
        ("news", 7),
        ("books", 17),
    ]
    with pytest.raises(DifferentConfigurationError, match="books"):
        encode({"name": "books", "files": years})
    with pytest.raises(DifferentConfigurationError, match="strip_bom"):
        (tmp_path / "2026" / "z.txt").write_bytes(b"more")
        encode(news, {"name": "books", "files": years, "strip_bom": True})


def remove(data: Path) -> None:
    (data / "b.txt").unlink()


def change(data: Path) -> None:
    (data / "b.txt").write_bytes(b"new")


@pytest.mark.parametrize("also_added", [False, True])
@pytest.mark.parametrize(
    ("alter", "shown"), [(remove, "b.txt.* → not set"), (change, 'b.txt.* → "3 bytes"')]
)
def test_removed_and_changed_files_are_named_and_nothing_is_touched(
    alter: Callable[[Path], None],
    shown: str,
    also_added: bool,
    config: BuildConfig,
    tmp_path: Path,
) -> None:
    before = states(tmp_path / "out")
    alter(tmp_path / "data")
    if also_added:
        add(tmp_path, FIRST)
    with pytest.raises(DifferentConfigurationError, match=shown) as caught:
        build.encode(config)
    assert "restore the inputs" in str(caught.value)
    assert "--restart" in str(caught.value)
    assert states(tmp_path / "out") == before


@pytest.mark.slow
def test_restart_removes_all_generations(config: BuildConfig, tmp_path: Path) -> None:
    (tmp_path / "out/tokens/mine.txt").touch()
    add(tmp_path, FIRST)
    build.encode(config)
    remove(tmp_path / "data")
    build.encode(config, restart=True)
    manifest = manifest_of(tmp_path)
    assert [g["name"] for g in manifest["generations"]] == ["base"]
    assert {path.name for path in (tmp_path / "out/tokens").iterdir()} == {
        "manifest.json",
        "run.json",
        "mine.txt",
        *names(manifest["files"]["train"] + manifest["files"]["validation"]),
        "statistics.parquet",
    }


@pytest.mark.parametrize("finished", [True, False])
def test_restart_leaves_files_of_others_with_names_of_that_form(
    finished: bool, config: BuildConfig, tmp_path: Path
) -> None:
    foreign = ("tokens/train-00000-of-00099.parquet", "rejects/00000-of-00099.parquet")
    manifest = manifest_of(tmp_path)
    tokens = tmp_path / "out/tokens"
    if not finished:
        sizes = {file["name"]: file["size"] for file in manifest["inputs"]}
        plan = {**manifest, "inputs": sizes, "tasks": manifest["generations"][0]["tasks"]}
        (tokens / "_plan.json").write_text(json.dumps({k: plan[k] for k in PLAN_KEYS}))
        (tokens / "manifest.json").unlink()
    for name in foreign:
        (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text("mine")
    context = BuildContext.of(config)
    with context.lock:
        discard_tokens(context.output, context.lock)
    left = {path.name for path in tokens.iterdir()}
    assert left == {"_plan.json", "train-00000-of-00099.parquet"}
    assert all((tmp_path / "out" / name).read_text() == "mine" for name in foreign)


@pytest.mark.slow
def test_a_plan_shows_the_generation_that_would_be_made(
    config: BuildConfig, tmp_path: Path
) -> None:
    assert build.plan(config).generation == "base"
    add(tmp_path, FIRST)
    plan = build.plan(config)
    assert plan.generation == "add001"
    assert [Path(file.path).name for file in plan.files] == ["a.txt", "c.txt"]
    assert plan.token_files[0] == f"train-add001-00000-of-{plan.tasks:05d}.parquet"
    build.encode(config)
    plan = build.plan(config)
    assert plan.generation == "base"
    files = manifest_of(tmp_path)["files"]
    assert list(plan.token_files) == names(files["train"] + files["validation"])
    assert plan.finished_tasks == plan.tasks == len(files["train"])
    assert plan.refusal is None


def test_a_plan_says_why_a_build_would_refuse(config: BuildConfig, tmp_path: Path) -> None:
    assert build.plan(config).refusal is None
    encode = config.encode.model_copy(update={"append": None})
    other = config.model_copy(update={"encode": encode})
    with pytest.raises(DifferentConfigurationError) as error:
        build.build(other)
    plan = build.plan(other)
    assert str(plan.refusal) == str(error.value)
    assert "encode.append" in str(error.value)
    assert plan.finished_tasks == 0
    gone = sorted((tmp_path / "data").iterdir())[0]
    gone.unlink()
    assert f"input {gone.name}: " in str(build.plan(config).refusal)


@pytest.mark.slow
def test_rejects_of_added_files_have_files_of_their_own(
    config: BuildConfig, tmp_path: Path
) -> None:
    add(tmp_path, {**FIRST, "bad.txt": [b"good", b"\xff", b"\xfe"]})
    before = states(tmp_path / "out/tokens")
    with pytest.raises(RejectLimitError):
        build.encode(config)
    assert states(tmp_path / "out/tokens") == before
    tolerant = config.model_copy(
        update={"encode": config.encode.model_copy(update={"max_reject_fraction": 0.1})}
    )
    (stage,) = build.encode(tolerant).stages
    assert stage.state == "done"
    (file,) = manifest_of(tmp_path)["files"]["rejects"]
    assert file["name"].startswith("add001-")
    assert [path.name for path in (tmp_path / "out/rejects").iterdir()] == [file["name"]]
    build.encode(tolerant, restart=True)
    assert "add001" not in "".join(path.name for path in (tmp_path / "out/rejects").iterdir())


def test_added_files_without_text_are_noted(config: BuildConfig, tmp_path: Path) -> None:
    (tmp_path / "data/empty.txt").touch()
    build.encode(config)
    assert manifest_of(tmp_path)["generations"][1]["tasks"] == 0
    assert manifest_of(tmp_path)["inputs"][-1]["name"] == "empty.txt"
    assert build.encode(config).stages[0].state == "already finished"


def test_a_source_with_a_limit_can_not_grow(tokenizer: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", BASE)
    files = [str(tmp_path / "data" / "*")]
    limited = config_of(tmp_path, tokenizer, input={"files": files, "limit_documents": 40})
    build.encode(limited)
    before = states(tmp_path / "out/tokens")
    add(tmp_path, FIRST)
    with pytest.raises(DifferentConfigurationError, match="source with a limit"):
        build.encode(limited)
    assert states(tmp_path / "out/tokens") == before
    apart = {"files": files, "limit_documents": 40, "exclude": [*FIRST]}
    (stage,) = build.encode(config_of(tmp_path, tokenizer, input=apart)).stages
    assert stage.state == "already finished"


# --- interruptions ---------------------------------------------------------------------------


def fail_after(tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has encoding fail when so many tasks are written."""
    write, left = transforms.write_task, [None] * tasks

    def failing(*arguments: Any) -> Any:
        if not left:
            raise KeyError("stopped by the test")
        left.pop()
        return write(*arguments)

    for module in (transforms, writing_tasks):  # those of Beam, and those begun before it
        monkeypatch.setattr(module, "write_task", failing)


def interrupted(config: BuildConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fail_after(2, patch)
        one_worker = config.beam.model_copy(update={"workers": 1})
        with pytest.raises(Exception, match="stopped by the test"):
            build.encode(config.model_copy(update={"beam": one_worker}))


@pytest.mark.slow
def test_an_interrupted_generation_is_finished_later_and_till_then_the_dataset_is_as_before(
    config: BuildConfig, base: Path, tokenizer: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    was = manifest_of(tmp_path)
    add(tmp_path, FIRST)
    interrupted(config, monkeypatch)
    assert manifest_of(tmp_path) == was
    assert len(list((tmp_path / "out/tokens").glob("train-add001-*"))) == 2
    (stage,) = build.encode(config).stages
    assert stage.state == "resumed"

    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(base, undisturbed)
    add(undisturbed, FIRST)
    build.encode(config_of(undisturbed, tokenizer))
    assert checksums(tmp_path / "out") == checksums(undisturbed / "out")


@pytest.mark.slow
@pytest.mark.parametrize("more", [SECOND, {"z.txt": []}], ids=["other names", "the same names"])
def test_what_an_interrupted_generation_left_is_not_mixed_with_that_of_more_files(
    more: dict[str, list[bytes]],
    config: BuildConfig,
    base: Path,
    tokenizer: Path,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    add(tmp_path, FIRST)
    interrupted(config, monkeypatch)
    add(tmp_path, more)
    (stage,) = build.encode(config).stages
    assert stage.state == "done"

    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(base, undisturbed)
    add(undisturbed, {**FIRST, **more})
    build.encode(config_of(undisturbed, tokenizer))
    assert checksums(tmp_path / "out") == checksums(undisturbed / "out")


def test_what_an_interrupted_generation_left_goes_when_its_files_are_taken_back(
    config: BuildConfig, tmp_path: Path, monkeypatch: Any
) -> None:
    before = checksums(tmp_path / "out")
    add(tmp_path, FIRST)
    interrupted(config, monkeypatch)
    for name in FIRST:
        (tmp_path / "data" / name).unlink()
    (stage,) = build.encode(config).stages
    assert stage.state == "already finished"
    assert checksums(tmp_path / "out") == before


# --- trained tokenizers, and the command ------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trained")
    write_corpus(directory / "data", BASE)
    build.build(config_for(directory))
    return directory


@pytest.fixture
def yaml_file(trained: Path, tmp_path: Path) -> Path:
    """The configuration of a finished build with a trained tokenizer."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "build.yaml"
    values = config_for(tmp_path).model_dump(mode="json", exclude_unset=True)
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.slow
def test_with_a_trained_tokenizer_the_choice_is_the_users(yaml_file: Path, tmp_path: Path) -> None:
    add(tmp_path, FIRST)
    before = states(tmp_path / "out")
    for stage in (build.build, build.encode, build.train, build.count):
        with pytest.raises(DifferentConfigurationError) as caught:
            stage(load_config(yaml_file))
        shown = str(caught.value)
        assert 'a.txt: not set → "' in shown
        assert "`beam-bpe add CONFIG`" in shown
        assert "count CONFIG --update" in shown
        assert "build CONFIG --restart" in shown
    assert states(tmp_path / "out") == before

    added = load_config(yaml_file, [f"tokenizer.path={tmp_path}/out/tokenizer"])
    assert [stage.name for stage in build.encode(added).stages] == ["encode add001"]
    assert build.encode(added).stages[0].state == "already finished"


@pytest.mark.slow
def test_counting_and_training_anew_to_the_same_ids_leaves_the_dataset_as_it_is(
    yaml_file: Path, tmp_path: Path
) -> None:
    before = states(tmp_path / "out/tokens")
    # Everything once more: pre-tokens occur twice as often, and merges are the same.
    add(tmp_path, {f"again-{name}": documents for name, documents in BASE.items()})
    config = load_config(yaml_file)
    build.count(config, restart=True)
    build.train(config, restart=True)
    assert [stage.name for stage in build.build(config).stages] == [
        "count",
        "train",
        "encode add001",
    ]
    after = states(tmp_path / "out/tokens")
    assert all(after[name] == before[name] for name in before if name.endswith(".parquet"))
    assert {stage.state for stage in build.build(config).stages} == {"already finished"}


@pytest.mark.slow
def test_another_tokenizer_after_training_anew_encodes_nothing(
    yaml_file: Path, tmp_path: Path
) -> None:
    add(tmp_path, {"other.txt": [b"zyxw vuts rqpo " * 5000]})
    config = load_config(yaml_file)
    build.count(config, restart=True)
    build.train(config, restart=True)
    before = states(tmp_path / "out/tokens")
    with pytest.raises(DifferentConfigurationError, match=r"tokenizer: .*\n.*other.txt") as caught:
        build.encode(config)
    assert "`beam-bpe encode CONFIG --restart`" in str(caught.value)
    assert states(tmp_path / "out/tokens") == before


@pytest.mark.process
@pytest.mark.nightly
def test_a_generation_killed_by_the_system_goes_on(yaml_file: Path, tmp_path: Path) -> None:
    add(tmp_path, FIRST)
    tokenizer = f"tokenizer.path={tmp_path}/out/tokenizer"
    hook = (
        "import signal, pipelines.stages.transforms as t\n"
        "write = t.write_task\n"
        "def killing(*arguments):\n"
        "    entry = write(*arguments)\n"
        f"    os.kill(os.getpid(), {signal.SIGKILL.value})\n"
        "t.write_task = killing"
    )
    was = manifest_of(tmp_path)
    killed = command("encode", yaml_file, "--set", tokenizer, hook=hook, directory=tmp_path)
    assert killed.returncode == 8, killed.stderr
    assert manifest_of(tmp_path) == was
    done = command("encode", yaml_file, "--set", tokenizer)
    assert done.returncode == 0, done.stderr
    assert "encode add001" in done.stdout
    assert "resumed" in done.stdout
    shown = command("plan", yaml_file, "--set", tokenizer)
    assert shown.returncode == 0, shown.stderr
    # The dataset has the file now, so a build keeps the counts and the tokenizer without it.
    kept = command("plan", yaml_file)
    assert kept.returncode == 0, kept.stderr
