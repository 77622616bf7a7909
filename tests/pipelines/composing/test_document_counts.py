"""Counts of documents without tasks: nothing missing or there twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bpe_core import PretokenCounts, count_pretokens
from pipelines.beam.elements import Elements, element_options
from pipelines.counting.documents import CountShards, DocumentCounter
from pipelines.counting.jobs import CountRules
from pipelines.errors import AccountingError
from pipelines.manifest.shards import ShardFiles
from pipelines.storage.directory import Directory

BUNDLES = (["a b", "c"], ["d e f"], [])


def shards_in(directory: Path, shards: int) -> tuple[ShardFiles, CountShards]:
    files = CountShards.files_of(Directory(url=str(directory)), shards)
    rules = CountRules(
        counts=files.output,
        runs=files.runs,
        pattern="gpt2",
        special_tokens=(),
        shards=shards,
        memory=1 << 20,
        max_pretoken_bytes=100,
        on_long_pretoken="error",
    )
    return files, CountShards(rules=rules)


def count(rules: CountRules, texts: Sequence[str]) -> tuple[dict[int, bytes], bytes]:
    """Count a bundle. Return its descriptors, by shard, and its totals."""
    elements = Elements(element_options("gpt2", []))
    for text in texts:
        elements.add(text)
    counter = DocumentCounter(rules)
    for batch in elements.batches():
        counter.add(batch)
    sections, totals = counter.finish()
    found = dict(sections)
    counter.close()
    return found, totals.to_bytes()


def test_bundles_that_are_missing_or_there_twice_are_found(tmp_path: Path) -> None:
    files, shards = shards_in(tmp_path, 2)
    bundles, parts = zip(*(count(shards.rules, texts) for texts in BUNDLES), strict=True)
    totals = shards.add_totals(parts)
    for shard in range(files.number):
        first, second, empty = (bundle[shard] for bundle in bundles)
        for found in ([], [first, empty], [second], [first, second, second], [first, first, empty]):
            with pytest.raises(AccountingError, match="do not contain every document exactly once"):
                shards.merge(shard, [b"", *found], totals)
    assert not list(tmp_path.glob("*.parquet"))
    entries = [
        shards.merge(shard, [bundle[shard] for bundle in reversed(bundles)], totals)
        for shard in range(files.number)
    ]
    for wrong in (entries[:1], [*entries, entries[0]], [replace_pretokens(entries[0]), entries[1]]):
        with pytest.raises(
            AccountingError, match=r"(?s)expected: 6 pretokens\n  found: \d+ pretok"
        ):
            files.finish(wrong, shards.list_totals(totals))
    assert not (tmp_path / files.listing).exists()
    files.finish(entries, shards.list_totals(totals))
    texts = [text for texts in BUNDLES for text in texts]
    assert PretokenCounts.load(tmp_path) == count_pretokens(texts)


def replace_pretokens(entry: dict[str, int]) -> dict[str, int]:
    return {**entry, "pretokens": entry["pretokens"] + 1}


def test_a_bundle_of_other_documents_as_many_as_were_counted_is_found(tmp_path: Path) -> None:
    _, shards = shards_in(tmp_path, 1)
    _, totals = count(shards.rules, ["a", "b"])
    others, _ = count(replace(shards.rules, memory=1), ["a", "c"])
    with pytest.raises(AccountingError, match="do not contain every document exactly once"):
        shards.merge(0, [others[0]], totals)
