"""An output is never its own input, wherever it lies among the files that a pattern matches."""

from __future__ import annotations

import uuid
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import pytest
from rich.console import Console

from pipelines import build
from pipelines.cli.render import show_plan
from pipelines.config import BuildConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import InputError
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.stages.summary import BuildPlan
from pipelines.storage.directory import Directory
from pipelines.verification.verify import verify


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"


def write(root: str, *names: str) -> None:
    for name in names:
        with fsspec.open(f"{root}/{name}", "wb", auto_mkdir=True) as file:
            file.write(f"The text of {name}.".encode())


def config_of(root: str, output: str = "out", **source: Any) -> BuildConfig:
    source = {"files": [f"{root}/**/*"], "separator": None, **source}
    return BuildConfig.model_validate(
        {
            "output": f"{root}/{output}",
            "input": source,
            "tokenizer": {"vocab_size": 300},
            "counts": {"shards": 1},
        }
    )


def build_again(config: BuildConfig, *names: str) -> BuildPlan:
    """Build twice; the input is the files of these names. The plan after it."""
    build.build(config)
    again = build.build(config)
    assert [stage.state for stage in again.stages] == ["already finished"] * 3
    dataset = TokenDataset.open(config.output_path)
    assert sorted(dataset.require_manifest().inputs_by_label) == sorted(names)
    problems = verify(dataset.output, sources=True, config=config).problems
    assert {problem.message for problem in problems} <= {"not of a build"}
    plan = build.plan(config)
    assert plan.refusal is None
    assert len(plan.files) == len(names)
    return plan


@pytest.mark.slow
def test_output_below_the_folder_of_a_pattern_is_not_read(root: str) -> None:
    write(root, "a.txt", "deep/b.txt")
    config = config_of(root)
    assert build.plan(config).skipped == 0
    plan = build_again(config, "a.txt", "deep/b.txt")
    assert plan.skipped > 8
    dataset = TokenDataset.open(config.output_path)
    export(dataset, dataset.output / "exports" / "x", ExportOptions(to="npy"))
    write(root, "out/notes.txt")
    assert build.plan(config).skipped == plan.skipped + 4
    build_again(config, "a.txt", "deep/b.txt")
    console = Console(record=True, width=200)
    show_plan(build.plan(config), console)
    assert f"files of this output ({config.output_path}/…)" in console.export_text()


@pytest.mark.slow
def test_pattern_that_begins_in_the_output_reaches_what_others_keep_there(root: str) -> None:
    write(root, "out/data/a.txt", "out/counts.txt")
    plan = build_again(config_of(root, files=[f"{root}/out/**/*"]), "data/a.txt", "counts.txt")
    assert plan.skipped > 8
    plan = build.plan(config_of(root, files=[f"{root}/out/data/*"]))
    assert (len(plan.files), plan.skipped) == (1, 0)


@pytest.mark.slow
def test_excluded_files_are_not_called_skipped(root: str) -> None:
    write(root, "a.txt")
    assert build_again(config_of(root, exclude=["out/**"]), "a.txt").skipped == 0


@pytest.mark.slow
def test_limits_and_other_outputs_are_as_before(root: str) -> None:
    write(root, "a.txt", "b.txt", "out2/c.txt")
    plan = build_again(config_of(root, limit_documents=2), "a.txt", "b.txt", "out2/c.txt")
    assert plan.unread == 1


@pytest.mark.slow
def test_source_of_nothing_but_the_output_is_refused(root: str) -> None:
    write(root, "a.txt")
    build.build(config_of(root))
    tokens = f"{root}/out/tokens/*.parquet"
    with pytest.raises(InputError, match="never its own input") as error:
        build.build(config_of(root, files=[tokens]))
    assert "train-00000-of-00001.parquet" in str(error.value)
    other = config_of(root, output="other", files=[tokens], invalid_utf8="replace")
    with pytest.raises(InputError, match=r"not text, but a Parquet file"):
        build.build(other)


@pytest.mark.slow
def test_output_is_known_through_links(tmp_path: Path) -> None:
    write(str(tmp_path), "in/a.txt")
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "disk")
    files = [f"{tmp_path}/in/**/*"]
    config = config_of(str(tmp_path), files=files, follow_links="anywhere")
    assert build_again(config, "a.txt").skipped > 8


@pytest.mark.slow
def test_archives_beside_the_output_are_read(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with zipfile.ZipFile(tmp_path / "out" / "a.zip", "w") as archive:
        archive.writestr("counts/a.txt", "text")
    config = config_of(str(tmp_path), files=[f"zip://**::{tmp_path}/out/a.zip"])
    assert build_again(config, "counts/a.txt").skipped == 0


@pytest.mark.slow
def test_another_storage_of_the_same_kind_is_not_the_output(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    config = config_of(str(tmp_path), output="../out")
    assert Directory(url=config.output_path).is_local
    assert build_again(config, "a.txt").skipped == 0
