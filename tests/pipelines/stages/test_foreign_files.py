"""Nothing is removed that no build wrote, whatever its name looks like and wherever it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from build_support import config_for, some_text, write_corpus

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.manifest.names import ENTRY_FILES, RUN_FILES
from pipelines.stages.summary import BuildSummary
from pipelines.storage.directory import Directory

PLAN = "0" * 32
FOREIGN = (
    "counts/_runs/mine.txt",
    "counts/_runs/other/run-mine.bin",
    f"counts/_runs/{PLAN}/commit-mine.json",
    f"counts/_runs/{PLAN}/run-0123.bin",
    f"counts/_runs/{PLAN}/more/run-{PLAN}.bin",
    "counts/shard-00000-of-00099.parquet",
    "tokens/_tasks/mine.json",
    f"tokens/_tasks/{PLAN}/00000-of-00001.txt",
    "tokens/_tasks/other/00000-of-00001.json",
    "tokens/train-00000-of-00999.parquet",
    "tokens/train-add001-00000-of-00001.parquet",
    "tokens/statistics-add001.parquet",
    "tokens/statistics-add004.parquet",
    "rejects/count-00000-of-00999.parquet",
    "rejects/00000-of-00999.parquet",
    "rejects/add001-00000-of-00001.parquet",
    "tokenizer/mine.json",
    "mine.txt",
)
OURS = (
    f"counts/_runs/{PLAN}/run-{PLAN}.bin",
    f"counts/_runs/{PLAN}/.run-{PLAN}.bin.0123456789abcdef.tmp",
    f"tokens/_tasks/{PLAN}/00000-of-00001.statistics.parquet",
)


def place(out: Path, names: tuple[str, ...]) -> None:
    for name in names:
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def left(out: Path, names: tuple[str, ...]) -> set[str]:
    there = {name for name in names if (out / name).exists()}
    assert all((out / name).read_text() == name for name in there)
    return there


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildConfig]:
    folder = tmp_path_factory.mktemp("finished")
    write_corpus(folder / "data", {"a.txt": [*some_text(8), b"\xff"]})
    config = config_for(folder, beam={"workers": 1}, encode={"max_reject_fraction": 1})
    build.build(config)
    return folder / "out", config


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        lambda config: build.build(config, restart=True),
        lambda config: build.build(config),
    ],
    ids=["restart", "again"],
)
def test_files_of_others_stay_in_every_place(
    command: Callable[[BuildConfig], BuildSummary],
    finished: tuple[Path, BuildConfig],
    tmp_path: Path,
) -> None:
    built, config = finished
    out = tmp_path / "out"
    shutil.copytree(built, out)
    config = config.model_copy(update={"output": str(out)})
    place(out, FOREIGN + OURS)
    summary = command(config)
    assert left(out, FOREIGN) == set(FOREIGN)
    assert not left(out, OURS)
    said = "\n".join(summary.warnings)
    assert (
        f"{out}/counts/_runs was not removed: it contains files that no build wrote: "
        f"{PLAN}/commit-mine.json" in said
    )
    assert (
        f"{out}/tokens/_tasks was not removed: it contains files that no build wrote: "
        f"{PLAN}/00000-of-00001.txt" in said
    )
    assert len(summary.warnings) == len(set(summary.warnings))


def test_warnings_show_three_files_of_others_and_count_the_rest(
    finished: tuple[Path, BuildConfig], tmp_path: Path
) -> None:
    built, config = finished
    out = tmp_path / "out"
    shutil.copytree(built, out)
    runs = out / "counts" / "_runs"
    runs.mkdir(exist_ok=True)
    for i in range(5):
        (runs / f"mine-{i}.txt").touch()
    summary = build.build(config.model_copy(update={"output": str(out)}))
    (warning,) = [text for text in summary.warnings if "_runs" in text]
    assert warning.endswith(": mine-0.txt, mine-1.txt, mine-2.txt and 2 more")


@pytest.mark.slow
def test_rejects_that_counting_noted_are_removed_by_their_number(
    finished: tuple[Path, BuildConfig], tmp_path: Path
) -> None:
    config = finished[1].model_copy(update={"output": str(tmp_path / "out")})
    build.count(config)
    (noted,) = (tmp_path / "out/rejects").iterdir()
    other = noted.with_name("count-00000-of-00999.parquet")
    shutil.copy(noted, other)
    build.count(config, restart=True)
    assert noted.exists() and other.exists()
    build.encode(config)
    assert not noted.exists() and other.exists()


def test_what_an_unfinished_generation_left_is_told_by_its_footer(
    finished: tuple[Path, BuildConfig], tmp_path: Path
) -> None:
    built, config = finished
    out = tmp_path / "out"
    shutil.copytree(built, out)
    (train,) = out.glob("tokens/train-*")
    ours = out / "tokens/train-add001-00000-of-00003.parquet"
    shutil.copy(train, ours)
    later = out / "tokens/train-add002-00000-of-00003.parquet"  # of no generation that can be
    shutil.copy(train, later)
    foreign = "tokens/train-add001-00001-of-00003.parquet"
    place(out, (foreign,))
    build.encode(config.model_copy(update={"output": str(out)}))
    assert not ours.exists() and later.exists()
    assert left(out, (foreign,))


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    place(elsewhere, (f"run-{PLAN}.bin",))
    scratch = tmp_path / "counts/_runs"
    scratch.mkdir(parents=True)
    (scratch / PLAN).symlink_to(elsewhere)
    assert Directory(url=str(scratch)).remove_below(RUN_FILES) == [PLAN]
    assert (elsewhere / f"run-{PLAN}.bin").exists()


def test_a_storage_without_directories_keeps_them_too() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    url = "memory://foreign/tokens/_tasks"
    kept, gone = f"{url}/{PLAN}/mine.json", f"{url}/{PLAN}/00000-of-00001.json"
    for path in (kept, gone):
        memory.pipe_file(path, b"{}")
    assert Directory(url=url).remove_below(ENTRY_FILES) == [f"{PLAN}/mine.json"]
    assert memory.exists(kept) and not memory.exists(gone)
    memory.rm_file(kept)
    assert Directory(url=url).remove_below(ENTRY_FILES) == []
    assert Directory(url="memory://nowhere").remove_below(ENTRY_FILES) == []


def test_an_export_keeps_files_of_others(
    finished: tuple[Path, BuildConfig], tmp_path: Path
) -> None:
    names = ("_work/mine.run", "_work/train-00000-of-00001.txt", "_work/more/x.json")
    options = ExportOptions(to="packed", sequence_length=16)
    dataset = TokenDataset.open(str(finished[0]))
    for restart in (False, True):
        place(tmp_path, names)
        done = export(dataset, Directory(url=str(tmp_path)), options, restart=restart)
        assert left(tmp_path, names) == set(names)
        assert any(
            "_work was not removed: it contains files that no export wrote: mine.run" in w
            for w in done.warnings
        )
