"""The example pipelines in Beam YAML, through Beam's own command."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.yaml import main as beam_yaml
from build_support import EXAMPLES, ROOT, SEPARATOR, some_text

from bpe_core import BPETokenizer, PretokenCounts, count_pretokens, train_from_counts
from pipelines import row_transforms, transforms
from pipelines.beam.rows import COUNT_ROW, SHARD_ROW, TOKEN_ROW

PIPELINES = ROOT / "examples" / "beam_yaml"


@pytest.fixture(scope="module")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    texts = [*some_text(20), *chapters()[:20]]
    counts = count_pretokens(texts, special_tokens=[SEPARATOR])
    train_from_counts(counts, 400, [SEPARATOR]).tokenizer().save(directory)
    return directory


def chapters() -> list[bytes]:
    """The documents of the example corpus's text files that are not compressed."""
    texts = [path.read_bytes() for path in sorted(EXAMPLES.glob("*.txt"))]
    return [doc for text in texts for doc in text.split(SEPARATOR.encode()) if doc]


def run(name: str, **variables: str) -> None:
    """As `python -m apache_beam.yaml.main` does, in this process."""
    beam_yaml.run(arguments(name, variables))


def arguments(name: str, variables: dict[str, str]) -> list[str]:
    return [
        f"--yaml_pipeline_file={PIPELINES / name}",
        f"--jinja_variables={json.dumps(variables)}",
        "--runner=FnApiRunner",
    ]


def table(directory: Path, name: str) -> pa.Table:
    files = sorted(directory.glob(f"{name}-*-of-*"))
    assert files
    return pa.concat_tables([pq.read_table(file) for file in files])


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_reads_filters_encodes_and_writes_rows(
    tokenizer_directory: Path, tmp_path: Path
) -> None:
    variables = {"tokenizer": str(tokenizer_directory), "output": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "apache_beam.yaml.main", *arguments("encode.yaml", variables)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    tokenizer = BPETokenizer.load(tokenizer_directory)
    end = tokenizer.special_tokens[SEPARATOR]
    expected = [
        (doc, [*tokenizer.encode(doc.decode()), end])
        for doc in chapters()
        if len(doc.decode()) >= 2000
    ]
    rows = table(tmp_path, "tokens").to_pylist()
    rows = sorted(
        (row for row in rows if row["source"].endswith(".txt")),
        key=lambda row: (row["source"], row["offset"]),
    )
    assert len(rows) == len(expected) > 100
    for row, (text, ids) in zip(rows, expected, strict=True):
        assert row["input_ids"] == ids
        assert row["num_bytes"] == len(text)
        content = (EXAMPLES / row["source"]).read_bytes()
        assert content[row["offset"] :].startswith(text)
    assert table(tmp_path, "rejects").num_rows == 0


@pytest.mark.beam
def test_a_column_of_parquet_becomes_token_files(tokenizer_directory: Path, tmp_path: Path) -> None:
    texts = [text.decode() for text in some_text(60)]
    pq.write_table(
        pa.table({"body": texts, "id": [f"d{i}" for i in range(60)]}), tmp_path / "texts.parquet"
    )
    output = tmp_path / "out"
    run(
        "shards.yaml",
        files=str(tmp_path / "texts.parquet"),
        text_field="body",
        tokenizer=str(tokenizer_directory),
        output=str(output),
    )
    tokenizer = BPETokenizer.load(tokenizer_directory)
    end = tokenizer.special_tokens[SEPARATOR]
    files = sorted(output.glob("train-*.parquet"))
    assert len(files) == 4
    found = {row["id"]: row["input_ids"] for f in files for row in pq.read_table(f).to_pylist()}
    assert found == {f"d{i}": [*tokenizer.encode(text), end] for i, text in enumerate(texts)}


@pytest.mark.beam
def test_filtered_documents_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    output = tmp_path / "counts"
    run("count.yaml", output=str(output), files="examples/data/*.txt")
    taken = [text for text in chapters() if len(text.decode()) >= 2000]
    assert PretokenCounts.load(output) == count_pretokens(taken, special_tokens=[SEPARATOR])


def test_the_provider_offers_every_transform() -> None:
    [provider] = yaml.safe_load((PIPELINES / "providers.yaml").read_text("utf-8"))
    names = {name: f"pipelines.row_transforms.{name}" for name in row_transforms.TRANSFORMS}
    assert provider["transforms"] == names


def rows_of_the_page() -> dict[str, list[str]]:
    """The cells of the page's table of transforms, by their names."""
    page = (ROOT / "docs" / "beam-yaml.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.MULTILINE)
    return {name: cells.split("|") for name, cells in rows}


def test_the_table_names_what_each_transform_takes_and_gives() -> None:
    rows = rows_of_the_page()
    assert sorted(rows) == sorted(row_transforms.TRANSFORMS)
    # What is set by the transforms over rows, or told below the table for all that take text.
    common = {"text_field", "id_field", "invalid_utf8", "as_rows"}
    given = {
        "ReadDocuments": row_transforms.DOCUMENT_ROW,
        "CountPretokens": COUNT_ROW,
        "EncodeDocuments": TOKEN_ROW,
        "WriteTokenShards": SHARD_ROW,
    }
    for name, (_, gives, config) in rows.items():
        assert re.findall(r"`(\w+)`", gives) == [field for field, _ in given[name]._fields]
        if name != "ReadDocuments":
            known = [field.name for field in dataclasses.fields(getattr(transforms, name))]
            assert re.findall(r"`(\w+)`", config) == [n for n in known if n not in common]
            assert ("those below" in config) == bool(common & set(known))


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "beam-yaml.md").read_text("utf-8")
    shown = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    files = [PIPELINES / "encode.yaml", PIPELINES / "providers.yaml"]
    assert [yaml.safe_load(text) for text in shown] == [
        yaml.safe_load(file.read_text("utf-8")) for file in files
    ]


@pytest.mark.slow
def test_a_wrong_key_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    text = (PIPELINES / "count.yaml").read_text("utf-8").replace("files:", "file:")
    path.write_text(text.replace("providers.yaml", str(PIPELINES / "providers.yaml")), "utf-8")
    with pytest.raises(ValueError, match='"ReadDocuments" at line') as caught:
        beam_yaml.run([f"--yaml_pipeline_file={path}", "--runner=FnApiRunner"])
    assert "Did you mean files?" in str(caught.value)


@pytest.mark.slow
def test_rejects_that_nothing_takes_are_refused(tmp_path: Path) -> None:
    pipeline = f"""
pipeline:
  transforms:
    - type: ReadDocuments
      config: {{files: [a.txt], error_handling: {{output: rejects}}}}
providers:
  - include: {PIPELINES / "providers.yaml"}
"""
    with pytest.raises(ValueError, match=r"ReadDocuments\.rejects must be used"):
        beam_yaml.run([f"--yaml_pipeline={pipeline}", "--runner=FnApiRunner"])
