"""Stages that end at once because they could not end well, where samples did not show it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from build_support import config_for, some_text

from pipelines import build
from pipelines.errors import InputError, RejectLimitError
from pipelines.probing import checks
from pipelines.readers import ReadOptions, read_range
from pipelines.readers import json_lines as reader
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range


def write_lines(path: Path, records: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def test_the_first_reject_ends_counting_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.Checks, "find_problem", lambda self: None)
    texts = [{"text": text.decode()} for text in some_text(200)]
    write_lines(tmp_path / "data" / "a.jsonl", [*texts[:100], {"txt": "other"}, *texts[100:]])
    config = config_for(tmp_path, input={"format": "jsonl"}, beam={"workers": 1})
    with pytest.raises(RejectLimitError) as caught:
        build.build(config)
    for text in ("none may be", "missing_field", 'it begins \'{"txt"', "rejects/count-"):
        assert text in str(caught.value)
    (path,) = (tmp_path / "out" / "rejects").iterdir()
    assert pq.read_table(path)["reason"].to_pylist() == ["missing_field"]


def read(path: Path, start: int = 0, **options: object) -> int:
    size = path.stat().st_size
    file = InputFile(
        source=0, source_name="web", url=str(path), name="a.jsonl", size=size,
        version_tag="", compression=None,
    )  # fmt: skip
    settings = ReadOptions(format="jsonl", **options)  # type: ignore[arg-type]
    part = Range(file=0, start=start, end=size)
    return sum(len(batch.rejects) for batch in read_range(file, part, settings))


def test_a_field_that_the_first_thousand_records_lack_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_lines(path, [{"id": i, "content": "some text"} for i in range(1200)])
    with pytest.raises(
        InputError, match=r'No record of web/a\.jsonl has the field "text"'
    ) as error:
        read(path, expect_fields=True)
    assert "the fields id, content" in str(error.value)
    assert "Did you mean content?" in str(error.value)
    assert read(path) == 1200
    assert read(path, start=5, expect_fields=True) < 1200


@pytest.mark.parametrize("place", [0, 500, 999])
def test_a_field_that_one_of_them_has_is_none(place: int, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records: list[dict[str, object]] = [{"content": "x"} for _ in range(1200)]
    records[place] = {"text": "x"}
    write_lines(path, records)
    assert read(path, expect_fields=True) == 1199


def test_files_of_fewer_records_are_left_to_the_limit_of_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    write_lines(path, [{"content": "x"} for _ in range(999)])
    assert read(path, expect_fields=True) == 999
    monkeypatch.setattr(reader, "_FIRST_RECORDS", 999)
    with pytest.raises(InputError, match="No record"):
        read(path, expect_fields=True)
