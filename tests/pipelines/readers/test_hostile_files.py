"""Files that are made to do harm end in an error with their place, in little time and memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

import hostile_files as hostile
import pytest

from pipelines.config import SourceConfig
from pipelines.config.values import MAX_EXPANSION
from pipelines.errors import DamagedFileError, ExpansionError, InputError
from pipelines.readers import read_range
from pipelines.readers.tasks import source_readings
from pipelines.storage import expansion
from pipelines.storage.expansion import check_expansion, most_text
from pipelines.tasks.listing import list_files
from pipelines.tasks.plan import Range

MIB = 1 << 20


@pytest.fixture(autouse=True)
def little_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files stand for bombs."""
    monkeypatch.setattr(expansion, "ALLOWED_BYTES", MIB)


def read(source: SourceConfig) -> int:
    """Return the bytes of all documents of a source."""
    (reading,) = source_readings([source], "gpt2", [])
    total = 0
    for number, file in enumerate(list_files(source)):
        for batch in read_range(file, Range(file=number, start=0, end=file.size), reading.options):
            total += batch.data.nbytes
    return total


def source_of(path: Path | str, **settings: object) -> SourceConfig:
    return SourceConfig.model_validate({"files": [str(path)], **settings})


BOMBS: dict[str, Callable[[Path], Path]] = {
    "zstd": lambda folder: hostile.zstd_bomb(folder / "a.txt.zst", 16 * MIB),
    "bz2": lambda folder: hostile.bz2_bomb(folder / "a.txt.bz2", 2 * MIB),
    "xz": lambda folder: hostile.xz_bomb(folder / "a.txt.xz", 8 * MIB),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_compressed_bomb_ends_at_the_limit(kind: str, tmp_path: Path) -> None:
    path = BOMBS[kind](tmp_path)
    with pytest.raises(ExpansionError, match="max_expansion") as caught:
        read(source_of(path, separator="\n"))
    assert caught.value.where == str(path)


def test_a_raised_limit_reads_what_the_default_refuses(tmp_path: Path) -> None:
    path = hostile.zstd_bomb(tmp_path / "a.txt.zst", 16 * MIB)
    assert read(source_of(path, separator="\n", max_expansion=1_000_000)) == 16 * MIB


def test_repetitive_text_is_within_the_limit() -> None:
    check_expansion("a.gz", 10**9, 10**12, MAX_EXPANSION, "text")
    assert most_text(10, MAX_EXPANSION) == MIB
    with pytest.raises(ExpansionError):
        check_expansion("a.gz", 10**9, 10**12 + 1, MAX_EXPANSION, "text")


def test_a_zstd_frame_that_claims_a_huge_window_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="too much memory"):
        read(source_of(hostile.wide_zstd(tmp_path / "a.txt.zst")))


def test_an_xz_file_with_a_huge_dictionary_takes_no_memory_for_it(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read(source_of(hostile.wide_xz(tmp_path / "a.txt.xz"), separator="\n")) == 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


ARCHIVES: dict[str, Callable[[Path], str]] = {
    "zip": lambda folder: f"zip://*::{hostile.zip_bomb(folder / 'a.zip', 8 * MIB)}",
    "zip whose files share their bytes": lambda folder: (
        f"zip://*::{hostile.overlapping_zip(folder / 'a.zip', 2000, 64 << 10)}"
    ),
    "tar.xz": lambda folder: f"tar://*::{hostile.tar_bomb(folder / 'a.tar.xz', 16 * MIB, 'w:xz')}",
    "tar that claims a size": lambda folder: (
        f"tar://*::{hostile.lying_tar(folder / 'a.tar', 1 << 50)}"
    ),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_that_expands_too_much_is_refused_when_it_is_listed(
    kind: str, tmp_path: Path
) -> None:
    with pytest.raises(ExpansionError) as caught:
        list_files(source_of(ARCHIVES[kind](tmp_path), max_expansion=100))
    assert caught.value.where == f"{tmp_path}/a.{kind[:3]}" + (".xz" if kind == "tar.xz" else "")


PARQUET: dict[str, tuple[Callable[[], bytes], type[InputError]]] = {
    "10^9 rows": (lambda: hostile.claimed_rows(10**9), DamagedFileError),
    "2^45 rows": (lambda: hostile.claimed_rows(1 << 45), DamagedFileError),
    "-5 rows": (lambda: hostile.claimed_rows(-5), DamagedFileError),
    "a page of 2 GiB": (lambda: hostile.claimed_pages((1 << 31) - 1), ExpansionError),
    "a page of -7 bytes": (lambda: hostile.claimed_pages(-7), DamagedFileError),
    "10^9 columns": (lambda: hostile.claimed_list(10**9), DamagedFileError),
    "2^31 columns": (lambda: hostile.claimed_list(1 << 31), DamagedFileError),
    "a large page": (lambda: hostile.parquet_page_bomb(16 * MIB), ExpansionError),
    "a long value of all rows": (
        lambda: hostile.parquet_dictionary_bomb(100 << 10, 10_000),
        ExpansionError,
    ),
}


@pytest.mark.parametrize("kind", PARQUET)
def test_parquet_that_lies_is_an_error(kind: str, tmp_path: Path) -> None:
    make, error = PARQUET[kind]
    check_refused(tmp_path / "a.parquet", make(), error, "parquet")


ARROW: dict[str, tuple[Callable[[], bytes], type[InputError]]] = {
    "10^12 rows": (
        lambda: hostile.patched(hostile.arrow_bytes(), hostile.ROWS, 10**12),
        DamagedFileError,
    ),
    "2^40 rows in a stream": (
        lambda: hostile.patched(hostile.arrow_bytes(stream=True), hostile.ROWS, 1 << 40),
        DamagedFileError,
    ),
    "a buffer of 2^40 bytes": (lambda: hostile.arrow_claimed_buffer(1 << 40), ExpansionError),
    "a buffer of -2^40 bytes": (lambda: hostile.arrow_claimed_buffer(-1 << 40), DamagedFileError),
    "a long value of all rows": (
        lambda: hostile.arrow_dictionary_bomb(100 << 10, 10_000),
        ExpansionError,
    ),
    "views of the same bytes": (
        lambda: hostile.arrow_view_bomb(100 << 10, 10_000),
        ExpansionError,
    ),
}


@pytest.mark.parametrize("kind", ARROW)
def test_arrow_that_lies_is_an_error(kind: str, tmp_path: Path) -> None:
    make, error = ARROW[kind]
    check_refused(tmp_path / "a.arrow", make(), error, "arrow", max_expansion=100)


def check_refused(
    path: Path, data: bytes, error: type[InputError], form: str, **settings: object
) -> None:
    path.write_bytes(data)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    with pytest.raises(error) as caught:
        read(source_of(path, format=form, **settings))
    assert type(caught.value) is error
    assert caught.value.where == str(path)
    assert "\n" not in str(caught.value.found)
    assert time.process_time() - begun < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300 << 10


NESTED = [hostile.nested("["), hostile.nested('{"a":')]


@pytest.mark.parametrize(
    "line",
    [f'{{"text":{NESTED[0]}}}', NESTED[1], '{"text":"x","more":' + "[" * hostile.DEPTH],
    ids=["the text", "the record", "never closed"],
)
def test_json_nested_a_million_deep_is_a_reject(line: str, tmp_path: Path) -> None:
    texts, rejects = read_lines(tmp_path, line)
    assert texts == [b"ok", b"after"]
    assert rejects == [("malformed_json", 14)]


@pytest.mark.parametrize("value", NESTED, ids=["arrays", "objects"])
def test_json_nested_beside_the_text_is_skipped(value: str, tmp_path: Path) -> None:
    assert read_lines(tmp_path, f'{{"text":"x","more":{value}}}') == ([b"ok", b"x", b"after"], [])


def read_lines(folder: Path, line: str) -> tuple[list[bytes], list[tuple[str, int]]]:
    """Return the texts and rejects of a file with this line as the second of three."""
    path = folder / "a.jsonl"
    path.write_text(f'{{"text":"ok"}}\n{line}\n{{"text":"after"}}\n')
    source = source_of(path, format="jsonl")
    (reading,) = source_readings([source], "gpt2", [])
    (file,) = list_files(source)
    batches = list(read_range(file, Range(file=0, start=0, end=file.size), reading.options))
    return (
        [text for batch in batches for text in batch.documents()],
        [(reject.reason, reject.offset) for batch in batches for reject in batch.rejects],
    )
