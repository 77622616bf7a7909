"""`verify --sources` accepts what was built, whatever the form of the files and the rules."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from build_support import command, config_for, some_text

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.storage.directory import Directory
from pipelines.verification.findings import Verification
from pipelines.verification.verify import verify

TEXTS = [text.decode() for text in some_text(12)]
RECORDS = [{"id": f"n{i}", "title": f"on {i}", "text": text} for i, text in enumerate(TEXTS)]


def write_text(folder: Path) -> None:
    (folder / "a").write_text("<|endoftext|>".join(TEXTS))


def write_invalid(folder: Path) -> None:
    (folder / "a").write_bytes(b"<|endoftext|>".join([b"caf\xff and more", *some_text(4)]))


def write_lines(folder: Path) -> None:
    (folder / "a").write_text("\n".join(text.replace("\n", " ") for text in TEXTS))


def write_files(folder: Path) -> None:
    for i, text in enumerate(TEXTS):
        (folder / f"{i:02}").write_text(text)


def write_jsonl(folder: Path) -> None:
    (folder / "a").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))


def write_parquet(folder: Path) -> None:
    pq.write_table(pa.Table.from_pylist(RECORDS), folder / "a", row_group_size=5)


def write_arrow(folder: Path) -> None:
    table = pa.Table.from_pylist(RECORDS)
    with pa.ipc.new_stream(folder / "a", table.schema) as writer:
        writer.write_table(table, max_chunksize=5)


WRITERS: dict[str, Callable[[Path], None]] = {
    "jsonl": write_jsonl,
    "parquet": write_parquet,
    "arrow": write_arrow,
}
FIELDS: dict[str, dict[str, Any]] = {
    "one": {},
    "one with an id": {"id_field": "id"},
    "listed": {"text_field": ["text"]},
    "several": {"text_field": ["title", "text"], "join": ": ", "id_field": "id"},
}


def built(folder: Path, sources: Any, **sections: Any) -> BuildConfig:
    config = config_for(folder, input=sources, beam={"workers": 1}, **sections)
    build.build(config)
    return config


def whole(config: BuildConfig) -> Verification:
    """What was found of an output that is whole, by all documents and by some."""
    output = Directory(url=config.output_path)
    for options in ({"sample": 5}, {"sample": 5, "config": config}, {"sources": True}):
        found = verify(output, **options)  # type: ignore[arg-type]
        assert not found.problems, str(found)
        assert found.documents
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("form", WRITERS)
def test_records_are_compared(form: str, fields: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    WRITERS[form](tmp_path / "data")
    config = built(
        tmp_path, {"files": [str(tmp_path / "data/*")], "format": form, **FIELDS[fields]}
    )
    assert whole(config).documents == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "source", "tokenizer", "number"),
    [
        (write_text, {}, {}, 12),
        (write_lines, {"separator": "\n"}, {}, 12),
        (write_lines, {"separator": ["\n", "<|endoftext|>"], "strip_bom": True}, {}, 12),
        (write_files, {"separator": None}, {}, 12),
        (write_text, {}, {"normalizer": "nfkc", "normalize_quotes": True}, 12),
        (write_invalid, {"invalid_utf8": "replace"}, {}, 5),
        (write_text, {}, {"unit": "character"}, 12),
    ],
)
def test_texts_are_compared(
    write: Callable[[Path], None],
    source: dict[str, Any],
    tokenizer: dict[str, Any],
    number: int,
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    config = built(tmp_path, {"files": [str(tmp_path / "data/*")], **source}, tokenizer=tokenizer)
    assert whole(config).documents == number


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 30])
def test_files_that_were_bad_and_allowed_are_compared(limit: int | None, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "whole.txt").write_text("<|endoftext|>".join(TEXTS))
    text = "<|endoftext|>".join(TEXTS * 2).encode()
    (data / "cut.txt.gz").write_bytes(gzip.compress(text, compresslevel=0)[:-200])
    source = {"files": [str(tmp_path / "data/*")], "max_bad_files": 1, "limit_documents": limit}
    config = built(tmp_path, {key: value for key, value in source.items() if value is not None})
    found = whole(config)
    assert found.documents == found.rows
    (data / "cut.txt.gz").write_bytes(gzip.compress(text, compresslevel=0)[:-1200])
    assert verify(Directory(url=config.output_path), sources=True).problems


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("verify",), ("report",), ("inspect", "--row", "0"), ("verify", "--sources")]
)
def test_a_configuration_given_for_an_output_is_told(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "build.yaml").write_text("output: out")
    done = command(arguments[0], tmp_path / "build.yaml", *arguments[1:])
    assert done.returncode == 2
    assert "expected: the directory that a build wrote" in done.stderr
    assert "--restart" not in done.stderr


def test_what_was_not_compared_is_not_said_to_be_whole() -> None:
    assert str(Verification(output="out")).endswith("\nout is intact.")
    shown = str(Verification(output="out", unread_tasks=2))
    assert shown.endswith("\nout is intact, except for the tasks that were not compared.")
