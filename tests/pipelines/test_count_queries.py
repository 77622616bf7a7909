"""The queries of docs/counts.md return what `PretokenCounts` contains."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars
import pyarrow.dataset
import pytest
from build_support import ROOT, config_for, some_text, write_corpus
from guide_support import blocks

from bpe_core import PretokenCounts
from pipelines import build


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent of `out`, which has counts of two sources with numbers of documents."""
    directory = tmp_path_factory.mktemp("queries")
    sources = []
    for name, start in (("books", 0), ("web", 5)):
        write_corpus(directory / name, {"a.txt": some_text(9, start=start)})
        files = [str(directory / name / "*")]
        sources.append({"name": name, "files": files, "separator": "<|endoftext|>"})
    counts = {"shards": 3, "document_frequency": True}
    build.count(config_for(directory, input=sources, counts=counts))
    return directory


@pytest.mark.slow
def test_duckdb_polars_and_pyarrow_read_the_shards(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(output)
    counts = PretokenCounts.load("out/counts")
    web = counts.select(source="web")
    documents = web.documents()
    assert documents is not None
    by_documents, alone = (
        duckdb.sql(block.code.rstrip().rstrip(";")).fetchall()
        for block in blocks(ROOT / "docs" / "counts.md")
        if block.language == "sql"
    )
    assert [row[2] for row in by_documents] == sorted(documents.tolist(), reverse=True)[:20]
    found = {text.encode(): count for text, count, _ in by_documents}
    assert found.items() <= dict(web.items()).items()
    others = dict(counts.select(source="books").items())
    assert dict(alone) == {key: n for key, n in web.items() if key not in others}

    totals = (
        polars.read_parquet("out/counts/shard-*.parquet", columns=["pretoken", "groups"])
        .explode("groups")
        .unnest("groups")
        .group_by("source")
        .agg(polars.col("count").sum())
    )
    assert dict(totals.iter_rows()) == {
        name: counts.select(source=name).total() for name in ("books", "web")
    }

    dataset = pyarrow.dataset.dataset(sorted(map(str, Path("out/counts").glob("shard-*"))))
    table = dataset.to_table(columns=["pretoken", "count"])
    assert dict(zip(*table.to_pydict().values(), strict=True)) == dict(counts.items())
