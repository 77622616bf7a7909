"""The counts' part of the manifest, put together from the entries that workers wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.counting.shards import shard_name
from pipelines.manifest.models import CountsContent
from pipelines.manifest.notes import ShardNote

if TYPE_CHECKING:
    from pipelines.config import SourceConfig
    from pipelines.counting.jobs import CountJob


def shard_entries(job: CountJob) -> list[dict[str, Any]] | None:
    """Return the entries of all shards; None unless all entries and their files are there."""
    names = [f"{shard_name(shard, job.shards)}.json" for shard in range(job.shards)]
    if not job.runs.sizes().keys() >= set(names):
        return None
    sizes = job.counts.sizes()
    found = job.runs.read_json_files(names, ShardNote)
    entries = [entry for entry in found if entry is not None]
    present = [entry for entry in entries if sizes.get(entry["name"]) == entry["bytes"]]
    return present if len(present) == job.shards else None


def counts_content(
    job: CountJob, sources: Sequence[SourceConfig], planned_bytes: Sequence[int | None]
) -> CountsContent:
    """Return the counts' part of the manifest.

    Args:
        job: A count whose shards are all written.
        sources: The configured sources.
        planned_bytes: Bytes to read of each source; None if its size does not say that.
    """
    entries = shard_entries(job)
    assert entries is not None, "a finished pipeline has written every shard and its entry"
    # Only the first shard's entry has what is the same for all.
    found = entries[0].pop("sources")
    long_pretokens = entries[0].pop("long_pretokens")
    totals = DocumentTotals.sum_of(map(DocumentTotals.from_json, found))
    content = {
        "corpus": totals.corpus_fingerprint,
        "sources": [
            {"name": source.name, "planned_bytes": planned, **of_source}
            for source, planned, of_source in zip(sources, planned_bytes, found, strict=True)
        ],
        "shards": entries,
        "totals": {
            **totals.to_json(),
            "distinct_pretokens": sum(entry["rows"] for entry in entries),
            "pretokens": sum(entry["pretokens"] for entry in entries),
            "long_pretokens": long_pretokens,
        },
    }
    return CountsContent.model_validate({**content, "fingerprint": fingerprint(content)})
