"""Counts of documents without tasks: nothing missing or there twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bpe_core import PretokenCounts, count_pretokens
from pipelines.beam.elements import Elements, element_options
from pipelines.beam.shards import finish_shards, new_runs
from pipelines.counting.documents import (
    CountTotals,
    DocumentCounter,
    DocumentCounting,
    merge_counts,
    total_of_counts,
)
from pipelines.errors import AccountingError
from pipelines.storage.directory import Directory

BUNDLES = (["a b", "c"], ["d e f"], [])


def job_in(directory: Path, shards: int) -> DocumentCounting:
    output = Directory(url=str(directory))
    return DocumentCounting(
        counts=output,
        run_directory=new_runs(output),
        pattern="gpt2",
        special_tokens=(),
        shards=shards,
        memory=1 << 20,
        max_pretoken_bytes=100,
        on_long_pretoken="error",
    )


def counted(job: DocumentCounting, texts: Sequence[str]) -> tuple[dict[int, bytes], bytes]:
    """What a bundle gives: its descriptors, by shard, and its totals."""
    elements = Elements(element_options("gpt2", []))
    for text in texts:
        elements.add(text)
    counter = DocumentCounter(job)
    for batch in elements.batches():
        counter.add(batch)
    sections, totals = counter.finish()
    found = dict(sections)
    counter.close()
    return found, totals.to_bytes()


def test_bundles_that_are_missing_or_there_twice_are_found(tmp_path: Path) -> None:
    job = job_in(tmp_path, 2)
    bundles, parts = zip(*(counted(job, texts) for texts in BUNDLES), strict=True)
    totals = CountTotals.from_bytes(total_of_counts(parts))
    for shard in range(job.shards):
        first, second, empty = (bundle[shard] for bundle in bundles)
        for found in ([], [first, empty], [second], [first, second, second], [first, first, empty]):
            with pytest.raises(AccountingError, match="do not hold every document once"):
                merge_counts(job, shard, [b"", *found], totals)
    assert not list(tmp_path.glob("*.parquet"))
    entries = [
        merge_counts(job, shard, [bundle[shard] for bundle in reversed(bundles)], totals)
        for shard in range(job.shards)
    ]
    for wrong in (entries[:1], [*entries, entries[0]], [replace_pretokens(entries[0]), entries[1]]):
        with pytest.raises(
            AccountingError, match=r"(?s)expected: 6 pretokens\n  found: \d+ pretok"
        ):
            finish_shards(job.output, job.runs, job.names, wrong, totals.to_json(), job.listing)
    assert not (tmp_path / job.listing).exists()
    finish_shards(job.output, job.runs, job.names, entries, totals.to_json(), job.listing)
    texts = [text for texts in BUNDLES for text in texts]
    assert PretokenCounts.load(tmp_path) == count_pretokens(texts)


def replace_pretokens(entry: dict[str, int]) -> dict[str, int]:
    return {**entry, "pretokens": entry["pretokens"] + 1}


def test_a_bundle_of_other_documents_as_many_as_were_counted_is_found(tmp_path: Path) -> None:
    job = job_in(tmp_path, 1)
    _, totals = counted(job, ["a", "b"])
    others, _ = counted(replace(job, memory=1), ["a", "c"])
    with pytest.raises(AccountingError, match="do not hold every document once"):
        merge_counts(job, 0, [others[0]], CountTotals.from_bytes(totals))
