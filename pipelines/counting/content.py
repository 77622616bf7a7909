"""Manifest content for the counts, composed of the entries that workers wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bpe_core.count_groups import Group
from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.counting.shard_files import shard_name
from pipelines.manifest.entries import GroupName, ShardRecord
from pipelines.manifest.models import CountsContent

if TYPE_CHECKING:
    from pipelines.config import SourceConfig
    from pipelines.counting.jobs import CountJob


def shard_entries(job: CountJob) -> list[ShardRecord] | None:
    """Return the entries of all shards, or None unless all entries and their files exist."""
    names = [f"{shard_name(shard, job.shards)}.json" for shard in range(job.shards)]
    if not job.runs.sizes().keys() >= set(names):
        return None
    sizes = job.counts.sizes()
    entries = [entry for entry in ShardRecord.load_files(job.runs, names) if entry is not None]
    present = [entry for entry in entries if sizes.get(entry.name) == entry.bytes]
    return present if len(present) == job.shards else None


def counts_content(
    job: CountJob, sources: Sequence[SourceConfig], planned_bytes: Sequence[int | None]
) -> CountsContent:
    """Return the manifest content for the counts.

    Args:
        job: A count whose shards are all written.
        sources: The configured sources.
        planned_bytes: Bytes to read of each source, or None if unknown before reading.
    """
    entries = shard_entries(job)
    assert entries is not None, "a finished pipeline has written every shard and its entry"
    # Only the first shard's entry contains the totals of the sources.
    found = entries[0].sources
    totals = DocumentTotals.sum_of(source.document_totals() for source in found)
    content: dict[str, Any] = {
        "corpus": totals.corpus_fingerprint,
        "sources": [
            {"name": source.name, "planned_bytes": planned, **of_source.to_json()}
            for source, planned, of_source in zip(sources, planned_bytes, found, strict=True)
        ],
        "shards": [entry.entry.to_json() for entry in entries],
        "totals": {
            **totals.to_json(),
            "distinct_pretokens": sum(entry.rows for entry in entries),
            "pretokens": sum(entry.pretokens for entry in entries),
            "long_pretokens": entries[0].long_pretokens,
        },
    }
    if job.grouped:
        content["groups"] = _group_entries(entries)
    return CountsContent.model_validate({**content, "fingerprint": fingerprint(content)})


def _group_entries(entries: Sequence[ShardRecord]) -> list[dict[str, Any]]:
    """Return the entries of the groups in the manifest, from those of all shards."""
    documents = {entry.group: entry.documents for entry in entries[0].group_documents}
    sums: dict[Group, dict[str, Any]] = {}
    for numbers in (numbers for entry in entries for numbers in entry.groups):
        of_group = sums.setdefault(numbers.group, {"documents": documents[numbers.group]})
        for name in ("distinct_pretokens", "pretokens", "bytes"):
            of_group[name] = of_group.get(name, 0) + getattr(numbers, name)
    return [{**GroupName.name(group), **sums[group]} for group in sorted(sums)]
