"""The counts' part of the manifest, from the entries of the shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.config.fingerprints import fingerprint

if TYPE_CHECKING:
    from pipelines.config import SourceConfig
    from pipelines.counting.jobs import CountJob


def shard_entries(job: CountJob) -> list[dict[str, Any]] | None:
    """The entries of all shards; None unless all of them are there, with their files."""
    from pipelines.counting.shards import shard_name
    from pipelines.manifest.models import ShardEntry

    names = [f"{shard_name(shard, job.shards)}.json" for shard in range(job.shards)]
    if not job.runs.sizes().keys() >= set(names):
        return None
    present = job.counts.sizes()
    found = job.runs.read_json_files(names, ShardEntry)
    entries = [entry for entry in found if entry is not None]
    there = [entry for entry in entries if present.get(entry["name"]) == entry["bytes"]]
    return there if len(there) == job.shards else None


def counts_content(
    job: CountJob, sources: Sequence[SourceConfig], planned_bytes: Sequence[int | None]
) -> dict[str, Any]:
    """The part of the manifest that the shards' entries add up to.

    Args:
        job: whose shards are all there.
        sources: of the configuration.
        planned_bytes: of each source.
    """
    from pipelines.accounting import DocumentTotals

    entries = shard_entries(job)
    assert entries is not None, "a finished pipeline has written every shard and its entry"
    # The first has been told what it takes one to tell.
    found = entries[0].pop("sources")
    long_pretokens = entries[0].pop("long_pretokens")
    totals = DocumentTotals.sum_of(map(DocumentTotals.from_json, found))
    content = {
        "corpus": totals.corpus_fingerprint,
        "sources": [
            {"name": source.name, "planned_bytes": bytes_, **of_it}
            for source, bytes_, of_it in zip(sources, planned_bytes, found, strict=True)
        ],
        "shards": entries,
        "totals": {
            **totals.to_json(),
            "distinct_pretokens": sum(entry["rows"] for entry in entries),
            "pretokens": sum(entry["pretokens"] for entry in entries),
            "long_pretokens": long_pretokens,
        },
    }
    return {**content, "fingerprint": fingerprint(content)}
