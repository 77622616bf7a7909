"""Listing of input files, ranges, tasks and their identities."""

from __future__ import annotations

import os
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config import BuildConfig, SourceConfig
from pipelines.errors import ConfigError, InputError
from pipelines.tasks.listing import (
    InputFile,
    NoInputError,
    compression_of,
    list_files,
)
from pipelines.tasks.plan import (
    BY_STORED_BYTES,
    Plan,
    Range,
    Task,
    choose_shards,
    estimate_text,
    find_unsplittable,
    plan_tasks,
    text_of_a_task,
)


def source_of(files: Sequence[str] = ("*",), **keys: Any) -> SourceConfig:
    return SourceConfig(files=tuple(files), **{"separator": "\n", "range_bytes": 100, **keys})


def make_files(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def names(source: SourceConfig) -> list[str]:
    return [file.name for file in list_files(source)]


# --- listing


def test_a_name_that_is_not_utf_8_is_refused_with_what_to_do(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt")
    (tmp_path / "b\udcff.txt").touch()
    with pytest.raises(InputError, match="not UTF-8") as error:
        names(source_of([f"{tmp_path}/*"]))
    assert "b\\xff.txt" in str(error.value)
    assert "Rename" in str(error.value)
    str(error.value).encode()
    assert names(source_of([f"{tmp_path}/a*"])) == ["a.txt"]


def test_files_are_sorted_and_each_is_listed_once(tmp_path: Path) -> None:
    make_files(tmp_path, "b.txt", "a.txt", "c.md", "d/e.txt")
    source = source_of([f"{tmp_path}/*.txt", f"{tmp_path}/a.*", f"{tmp_path}/**/*.txt"])
    assert names(source) == ["a.txt", "b.txt", "d/e.txt"]


def test_options_that_local_files_do_not_have_are_refused(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt")
    for pattern in (f"{tmp_path}/a.txt", f"{tmp_path}/*", f"file://{tmp_path}/*"):
        assert names(source_of([pattern], storage_options={"auto_mkdir": False})) == ["a.txt"]
        with pytest.raises(ConfigError, match=r"storage_options\.nonsense"):
            list_files(source_of([pattern], storage_options={"nonsense": 1}))


def test_a_file_is_described_by_url_size_and_mark(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt.gz")
    (file,) = list_files(source_of([f"{tmp_path}/*"], name="web"), index=3)
    assert file.source == 3
    assert file.url == f"{tmp_path}/a.txt.gz"
    assert file.label == "web/a.txt.gz"
    assert file.size == len("a.txt.gz")
    assert file.compression == "gzip"
    assert str((tmp_path / "a.txt.gz").stat().st_mtime_ns) in file.version_tag
    os.utime(tmp_path / "a.txt.gz", ns=(1, 1))
    assert list_files(source_of([f"{tmp_path}/*"]))[0].version_tag != file.version_tag


def test_names_begin_below_the_fixed_part_of_the_pattern(tmp_path: Path) -> None:
    make_files(tmp_path, "en/x/1.txt", "de/y/1.txt")
    assert names(source_of([f"{tmp_path}/*/*/1.txt"])) == ["de/y/1.txt", "en/x/1.txt"]
    assert names(source_of([f"{tmp_path}/en/*/1.txt"])) == ["x/1.txt"]
    assert names(source_of([f"{tmp_path}/en/x/1.txt"])) == ["1.txt"]


def test_wildcards_in_brackets_are_plain_characters(tmp_path: Path) -> None:
    folder = tmp_path / "data[1]*"
    make_files(folder, "a.txt", "b[2].txt")
    make_files(tmp_path, "data1/c.txt")
    escaped = f"{tmp_path}/data[[]1][*]"
    assert names(source_of([f"{escaped}/*.txt"])) == ["a.txt", "b[2].txt"]
    assert names(source_of([f"{escaped}/b[[]2].txt"])) == ["b[2].txt"]


def test_patterns_of_a_configuration_are_resolved(tmp_path: Path) -> None:
    make_files(tmp_path / "odd[folder", "a.txt")
    config = BuildConfig.model_validate({"output": "out", "input": {"files": ["*.txt"]}})
    config._base_dir = tmp_path / "odd[folder"
    (file,) = list_files(config.input[0], resolve=config.resolve_glob)
    assert (file.name, file.url) == ("a.txt", f"{tmp_path}/odd[folder/a.txt")


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    make_files(tmp_path, "corpus/a.txt", "corpus/real/b.txt")
    (tmp_path / "corpus/linked").symlink_to("real")
    (tmp_path / "corpus/link.txt").symlink_to(tmp_path / "corpus/real/b.txt")
    (tmp_path / "corpus2").symlink_to("corpus")
    for corpus in ("corpus", "corpus2"):
        files = list_files(source_of([f"{tmp_path}/{corpus}/**"]))
        names = ["a.txt", "link.txt", "linked/b.txt", "real/b.txt"]
        assert [file.name for file in files] == names
        assert [file.size for file in files] == [12, 17, 17, 17]


@pytest.mark.parametrize("pattern", ["in/**", "in/**/*.txt", "in/*", "in/*.txt", "in/*/a.txt"])
def test_a_link_out_of_the_folder_is_an_error_unless_it_is_allowed(
    pattern: str, tmp_path: Path
) -> None:
    make_files(tmp_path, "in/b/a.txt", "in/c.txt", "away/a.txt")
    link = "in/d" if pattern == "in/*/a.txt" else "in/d.txt"
    (tmp_path / link).symlink_to("../away" if link == "in/d" else "../away/a.txt")
    patterns = [f"{tmp_path}/{pattern}"]
    with pytest.raises(InputError, match="leads out of the input folder") as caught:
        list_files(source_of(patterns))
    assert str(caught.value.where).startswith(f"{tmp_path}/{link}")
    followed = list_files(source_of(patterns, follow_links="anywhere"))
    assert any(file.url.startswith(f"{tmp_path}/{link}") for file in followed)
    kept = list_files(source_of(patterns, exclude=["d*", "d/**"]))
    assert all("/d" not in file.url.removeprefix(str(tmp_path)) for file in kept)
    path = f"{tmp_path}/{link}" + ("/a.txt" if link == "in/d" else "")
    assert [file.size for file in list_files(source_of([path]))] == [len("away/a.txt")]


def test_a_folder_outside_is_not_searched(tmp_path: Path) -> None:
    make_files(tmp_path, "in/a.txt", "away/b.bin")
    (tmp_path / "in/d").symlink_to("../away")
    with pytest.raises(InputError, match="leads out of the input folder"):
        list_files(source_of([f"{tmp_path}/in/**/*.txt"]))


@pytest.mark.parametrize("links", [{"a": ".", "b": "."}, {"a/b": "..", "c": "a"}])
@pytest.mark.parametrize("follow_links", ["inside", "anywhere"])
def test_links_in_circles_are_an_error(
    links: dict[str, str], follow_links: str, tmp_path: Path
) -> None:
    for link, target in links.items():
        (tmp_path / "in" / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / link).symlink_to(target)
    with pytest.raises(InputError, match="again and again"):
        list_files(source_of([f"{tmp_path}/in/**/*.txt"], follow_links=follow_links))


def test_a_link_to_itself_is_a_broken_link(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("a.txt")
    with pytest.raises(InputError, match="broken link"):
        list_files(source_of([f"{tmp_path}/*"]))


def test_a_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match="broken link"):
        list_files(source_of([f"{tmp_path}/*"]))


def test_what_is_no_regular_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        list_files(source_of([f"{tmp_path}/*"]))


def test_no_match_names_pattern_folder_and_what_is_there(tmp_path: Path) -> None:
    make_files(tmp_path, *(f"{i}.md" for i in range(12)))
    with pytest.raises(NoInputError) as caught:
        list_files(source_of([f"{tmp_path}/*.md", f"{tmp_path}/*.txt"]), index=1)
    text = str(caught.value)
    assert f"{tmp_path}/*.txt" in text
    assert "0.md, 1.md" in text
    assert "and 4 more" in text
    assert "input[1].files[1]" in text


def test_no_match_says_if_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match=f"there is no folder {tmp_path}/gone/"):
        list_files(source_of([f"{tmp_path}/gone/*.txt"]))


def test_a_folder_is_no_input_and_the_message_says_how_to_name_its_files(tmp_path: Path) -> None:
    make_files(tmp_path, "corpus/a.txt")
    with pytest.raises(NoInputError, match=r"corpus is a folder(.|\n)*/\*"):
        list_files(source_of([f"{tmp_path}/corpus"]))


def test_files_that_would_have_one_name_are_refused(tmp_path: Path) -> None:
    make_files(tmp_path, "x/1.txt", "y/1.txt")
    with pytest.raises(InputError, match="same name"):
        list_files(source_of([f"{tmp_path}/x/*", f"{tmp_path}/y/*"]))


def test_an_unknown_protocol_is_an_error_for_people() -> None:
    with pytest.raises(InputError, match="cannot be listed"):
        list_files(source_of(["nosuch://bucket/*"]))


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.rm("/corpus", recursive=True)


def test_files_on_other_storage_are_listed_and_can_be_opened_by_their_url(
    tmp_path: Path, memory: fsspec.AbstractFileSystem
) -> None:
    memory.pipe({"/corpus/b.txt": b"bb", "/corpus/a.txt": b"a", "/corpus/c/d.txt": b"ddd"})
    archive = tmp_path / "corpus.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("x/a.txt", "zipped")
    patterns = {
        "memory://corpus/*.txt": ["a.txt", "b.txt"],
        "memory://corpus/**/d.txt": ["c/d.txt"],
        "memory://corpus/a.txt": ["a.txt"],
        "simplecache::memory://corpus/*.txt": ["a.txt", "b.txt"],
        f"zip://x/*.txt::{archive}": ["a.txt"],
        f"zip://**/a.txt::file://{archive}": ["x/a.txt"],
        f"file://{tmp_path}/*.zip": ["corpus.zip"],
    }
    for pattern, expected in patterns.items():
        files = list_files(source_of([pattern]))
        assert [file.name for file in files] == expected, pattern
        for file in files:
            with fsspec.open(file.url, "rb") as stream:
                assert len(stream.read()) == file.size, pattern


def test_other_storage_without_a_match_says_what_is_there(
    memory: fsspec.AbstractFileSystem,
) -> None:
    memory.pipe({"/corpus/b.md": b"bb"})
    with pytest.raises(NoInputError, match=r"b\.md"):
        list_files(source_of(["memory://corpus/*.txt"]))
    with pytest.raises(NoInputError, match=r"b\.md"):
        list_files(source_of(["memory://corpus/a.txt"]))


@pytest.mark.parametrize(
    ("name", "stated", "expected"),
    [
        ("a.txt", "infer", None),
        ("a.txt.gz", "infer", "gzip"),
        ("a.GZ", "infer", "gzip"),
        ("a.bgz", "infer", "gzip"),
        ("a.jsonl.zst", "infer", "zstd"),
        ("a.zstd", "infer", "zstd"),
        ("a.bz2", "infer", "bz2"),
        ("a.xz", "infer", "xz"),
        ("a.gz", "none", None),
        ("a.txt", "zstd", "zstd"),
    ],
)
def test_compression_is_stated_or_follows_from_the_extension(
    name: str, stated: str, expected: str | None
) -> None:
    assert compression_of(name, stated) == expected


# --- planning


def make_file(size: int, name: str = "a", source: int = 0, **values: Any) -> InputFile:
    fields = {"source_name": None, "url": f"/x/{name}", "version_tag": "1", "compression": None}
    return InputFile(source=source, size=size, name=name, **{**fields, **values})


def layout(plan: Plan) -> list[list[tuple[int, int, int]]]:
    return [[(part.file, part.start, part.end) for part in task.ranges] for task in plan.tasks]


def text_of(task: Task, files: Sequence[InputFile]) -> int:
    each = (3 if files[part.file].compression else 1 for part in task.ranges)
    return sum(
        (part.end - part.start) * ratio for part, ratio in zip(task.ranges, each, strict=True)
    )


def test_files_are_cut_at_multiples_and_small_ones_share_a_task() -> None:
    plan = plan_tasks([make_file(250), make_file(30), make_file(20)], [source_of()])
    assert layout(plan) == [
        [(0, 0, 100)],
        [(0, 100, 200)],
        [(0, 200, 250), (1, 0, 30), (2, 0, 20)],
    ]
    assert [task.index for task in plan.tasks] == [0, 1, 2]
    assert [task.size for task in plan.tasks] == [100, 100, 100]


def test_compressed_files_and_files_that_are_documents_are_one_range() -> None:
    assert layout(plan_tasks([make_file(250, compression="gzip")], [source_of()])) == [
        [(0, 0, 250)]
    ]
    whole_files = source_of(separator=None)
    assert layout(plan_tasks([make_file(250)], [whole_files])) == [[(0, 0, 250)]]


def test_empty_files_have_no_range() -> None:
    assert layout(plan_tasks([make_file(0), make_file(0)], [source_of()])) == []


def test_a_task_belongs_to_one_source_and_its_limit() -> None:
    files = [make_file(30, "a"), make_file(30, "b", source=1), make_file(30, "c", source=1)]
    plan = plan_tasks(files, [source_of(), source_of(range_bytes=50)])
    assert layout(plan) == [[(0, 0, 30)], [(1, 0, 30)], [(2, 0, 30)]]


@given(
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from([None, "gzip"])), max_size=30),
    st.integers(1, 150),
)
def test_every_byte_is_in_exactly_one_range_and_tasks_keep_their_limit(
    described: list[tuple[int, str | None]], range_bytes: int
) -> None:
    files = [make_file(size, compression=compression) for size, compression in described]
    plan = plan_tasks(files, [source_of(range_bytes=range_bytes)])
    position = [0] * len(files)
    last_file = 0
    for task in plan.tasks:
        assert task.size == sum(part.end - part.start for part in task.ranges)
        assert text_of(task, files) <= range_bytes or len(task.ranges) == 1
        for part in task.ranges:
            assert part.file >= last_file
            assert part.start == position[part.file] < part.end
            last_file, position[part.file] = part.file, part.end
    assert position == [file.size for file in files]
    for task, after in zip(plan.tasks, plan.tasks[1:], strict=False):
        first = after.ranges[0]
        filled = text_of(task, files) + text_of(replace(after, ranges=(first,)), files)
        assert filled > range_bytes, "tasks are filled"


def test_a_task_is_a_64th_of_the_corpus_between_4_mib_and_range_bytes() -> None:
    source = source_of(range_bytes=64 << 20)
    texts = {size: text_of_a_task(source, size) for size in (1, 1 << 28, 1 << 30, 1 << 40)}
    assert list(texts.values()) == [4 << 20, 4 << 20, 16 << 20, 64 << 20]
    assert text_of_a_task(source_of(range_bytes=1 << 20), 1 << 40) == 1 << 20
    for size, tasks in ((1 << 22, 1), (64 << 20, 16), (1 << 30, 64), (8 << 30, 128)):
        assert len(plan_tasks([make_file(size)], [source]).tasks) == tasks


@pytest.mark.parametrize(
    ("compression", "form", "ratio"),
    [
        (None, "text", 1),
        (None, "arrow", 1),
        (None, "parquet", 2),
        ("gzip", "jsonl", 3),
        ("zstd", "text", 4),
        ("bz2", "text", 4),
        ("xz", "text", 4),
    ],
)
def test_tasks_are_cut_by_the_text_that_compressed_files_are_estimated_to_have(
    compression: str | None, form: str, ratio: int
) -> None:
    """Small shards make a task each, and as many share one as fit the text of a task."""
    source = SourceConfig(files=("*",), format=form)
    mib = (1 << 20) // ratio
    shards = [make_file(size * mib, f"{i}", compression=compression) for i in (1, 2) for size in
              (4, 2, 2, 3)]  # fmt: skip
    assert estimate_text(shards, [source]) // (1 << 18) in (87, 88)
    plan = plan_tasks(shards, [source])
    assert [len(task.ranges) for task in plan.tasks] == [1, 2, 1, 1, 2, 1]
    former = plan_tasks(shards, [source], BY_STORED_BYTES)
    assert [len(task.ranges) for task in former.tasks] == [8]


def test_large_files_that_cannot_be_split_are_found() -> None:
    mib = 1 << 20
    files = [
        make_file(6 * mib, "large", compression="gzip"),
        make_file(60 * mib, "text"),
        *(make_file(mib, f"{i}", compression="gzip") for i in range(20)),
    ]
    source = source_of(range_bytes=64 * mib)
    plan = plan_tasks(files, [source])
    assert [file.name for file in find_unsplittable(plan, [source])] == ["large"]


def test_counts_have_a_shard_for_each_64_mib_of_text_up_to_64() -> None:
    sizes = (0, 1, 64 << 20, (64 << 20) + 1, 1 << 30, 1 << 40)
    assert [choose_shards(size) for size in sizes] == [1, 1, 1, 2, 16, 64]


def test_the_plan_id_changes_with_all_that_counts_depend_on_and_nothing_else() -> None:
    files = [make_file(250, "a"), make_file(30, "b")]
    sources = [source_of()]
    plan_id = plan_tasks(files, sources).plan_id("rules")
    assert plan_id == plan_tasks(files, sources).plan_id("rules")
    assert len(plan_id) == 32
    moved = [replace(file, url=f"s3://bucket/{file.name}") for file in files]
    assert plan_tasks(moved, sources).plan_id("rules") == plan_id
    others = [
        plan_tasks(files, sources).plan_id("other rules"),
        plan_tasks(files[:1], sources).plan_id("rules"),
        plan_tasks(files, [source_of(range_bytes=99)]).plan_id("rules"),
        plan_tasks([replace(files[0], version_tag="2"), files[1]], sources).plan_id("rules"),
        plan_tasks([replace(files[0], name="c"), files[1]], sources).plan_id("rules"),
        plan_tasks([replace(files[0], size=249), files[1]], sources).plan_id("rules"),
        plan_tasks([replace(files[0], source_name="w"), files[1]], sources).plan_id("rules"),
    ]
    assert len({plan_id, *others}) == len(others) + 1


def test_task_hashes_tell_tasks_apart_and_do_not_depend_on_other_tasks() -> None:
    files = [make_file(250, "a"), make_file(100, "b")]
    plan = plan_tasks(files, [source_of()])
    hashes = [plan.task_hash(task) for task in plan.tasks]
    assert len(set(hashes)) == len(plan.tasks) == 4
    assert all(0 <= number < 1 << 128 for number in hashes)
    alone = plan_tasks(files[1:], [source_of()])
    assert alone.task_hash(alone.tasks[0]) == hashes[3]


@pytest.mark.slow
def test_a_hundred_thousand_files_are_planned_in_little_time() -> None:
    files = [make_file(1000, f"{i:06}.txt") for i in range(100_000)]
    began = time.process_time()
    plan = plan_tasks(files, [source_of(range_bytes=1 << 20)])
    plan.plan_id("rules")
    assert time.process_time() - began < 5
    assert sum(len(task.ranges) for task in plan.tasks) == len(files)
    assert plan.tasks[0].ranges[0] == Range(file=0, start=0, end=1000)
