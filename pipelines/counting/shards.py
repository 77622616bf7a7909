"""Merging sections of sorted runs into shards of counts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from bpe_core._native import CountMerger, PretokenTable
from bpe_core.counts import FORMAT_VERSION, columns_to_arrow, normalization_metadata
from bpe_core.errors import BpeError
from bpe_core.patterns import resolve_pattern
from pipelines.accounting import DocumentTotals
from pipelines.counting.jobs import _MASK_128, Counting, CountJob, Section
from pipelines.errors import IncompleteCountsError, OutputError
from pipelines.metrics import Meter
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task

MERGED_AT_ONCE = 256

# Of a merge's sections together, and of each: at most, at least.
_BUFFER_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10
_SMALLEST_CHUNK_BYTES = 16 << 10
_ROW_GROUP_ROWS = 1 << 17
_ROW_GROUP_BYTES = 8 << 20


def shard_name(shard: int, shards: int) -> str:
    """The file of a shard."""
    return f"shard-{shard:05d}-of-{shards:05d}.parquet"


def merge_shard(
    job: CountJob, shard: int, descriptors: Sequence[bytes], meter: Meter | None = None
) -> dict[str, Any]:
    """Merges a shard's sections and writes its file; gives its entry of the manifest.

    Raises:
        IncompleteCountsError: the commits lack tasks of the plan or hold some twice, or a section
            is not as its commit says.
    """
    commits = [json.loads(text) for text in descriptors if text]
    _check_complete(job, shard, commits)
    corpus = DocumentTotals.sum_of(
        DocumentTotals(documents=commit["documents"], hash_sum=int(commit["hash_sum"], 16))
        for commit in commits
    ).corpus_fingerprint
    sections = [Section(**section) for commit in commits for section in commit["sections"]]
    meter = meter or Meter()
    with meter.time("merge"):
        entry = write_shard(job, shard, sections, corpus)
    if shard == 0:
        entry["sources"] = _sources(job, commits)
        entry["long_pretokens"] = sum(commit["long_pretokens"] for commit in commits)
    # The launcher finds it by its name: results of a job are never found by listing.
    job.runs.write_json(f"{entry['name']}.json", entry)
    meter.add(distinct_pretokens=entry["rows"])
    meter.tell_times()
    return entry


def write_shard(
    job: Counting, shard: int, sections: Sequence[Section], corpus: str
) -> dict[str, Any]:
    """Merges sections, in rounds if they are many, into a shard; gives its entry.

    Raises:
        IncompleteCountsError: a section is damaged.
    """
    sections = sorted(sections, key=lambda section: (section.run, section.offset))
    scratch: list[str] = []
    try:
        with current_task(f"merging shard {shard} of {job.shards} of the counts"):
            while len(sections) > MERGED_AT_ONCE:
                sections = _merge_round(job, sections, scratch)
            return _write_shard(job, shard, sections, corpus)
    finally:
        job.runs.remove_files(scratch)


def _sources(job: CountJob, commits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The totals of each source, of all commits together."""
    sources = [DocumentTotals() for _ in job.readings]
    for commit in commits:
        for totals, part in zip(sources, commit["sources"], strict=True):
            totals.add(DocumentTotals.from_json(part))
    return [totals.to_json() for totals in sources]


def _check_complete(job: CountJob, shard: int, commits: Sequence[Mapping[str, Any]]) -> None:
    tasks = sum(commit["tasks"] for commit in commits)
    tasks_hash = sum(int(commit["tasks_hash"], 16) for commit in commits) & _MASK_128
    if tasks == job.num_tasks and tasks_hash == job.tasks_hash:
        return
    raise IncompleteCountsError(
        f"Shard {shard} of the counts can't be written: its commits do not hold every task once.",
        expected=f"{job.num_tasks} tasks with hash {job.tasks_hash:032x}",
        found=f"{tasks} tasks with hash {tasks_hash:032x} in {len(commits)} commits",
        where=job.runs.url,
        hint="Run the same command again: finished commits are kept. If it happens again, begin "
        "anew with --restart.",
    )


def _merge_round(job: Counting, sections: list[Section], scratch: list[str]) -> list[Section]:
    """Merges groups of sections into one section each, in scratch files."""
    merged = []
    for first in range(0, len(sections), MERGED_AT_ONCE):
        table = PretokenTable(None, [])
        name = f"run-{secrets.token_hex(16)}.bin"
        scratch.append(name)
        with job.runs.write(name) as file:
            for rows in _merged_rows(job, sections[first : first + MERGED_AT_ONCE]):
                table.add_counts(*rows)
                # Rows come in ascending order, so packed tables follow each other.
                file.write(_restart_section(table))
        merged.append(Section(run=name, offset=0, length=file.size, hash=file.hexdigest))
    return merged


def _restart_section(table: PretokenTable) -> bytes:
    """Packs and empties the table. A packed table shares no prefix with what stands before it."""
    (packed,) = table.pack_sections(1)
    table.clear()
    return packed


def _merged_rows(job: Counting, sections: Sequence[Section]) -> Iterator[Any]:
    share = _BUFFER_BYTES // max(len(sections), 1)
    chunk_bytes = max(_SMALLEST_CHUNK_BYTES, min(_CHUNK_BYTES, share))
    readers = [_SectionReader(job.runs, section, chunk_bytes) for section in sections]
    try:
        merger = CountMerger(len(readers), lambda source: readers[source].read())
        while len((rows := merger.read(_ROW_GROUP_ROWS, _ROW_GROUP_BYTES))[2]):
            yield rows
    except BpeError:
        raise
    except ValueError as error:  # the bytes make no sense, before their hash could be checked
        raise _damaged_run(job.runs.url, "sorted counts", str(error)) from None


class _SectionReader:
    """Reads a section in chunks and checks its hash at the end.

    No file stays open, since there may be more sections than a process may open files.
    """

    def __init__(self, runs: Directory, section: Section, chunk_bytes: int) -> None:
        self._runs = runs
        self._section = section
        self._chunk_bytes = chunk_bytes
        self._done = 0
        self._hasher = xxhash.xxh3_128()

    def read(self) -> bytes:
        """The next chunk, empty at the end."""
        left = self._section.length - self._done
        if left == 0:
            if self._hasher.hexdigest() != self._section.hash:
                raise self._damaged("other bytes")
            return b""
        start = self._section.offset + self._done
        try:
            chunk = self._runs.read_bytes(
                self._section.run, start, start + min(self._chunk_bytes, left)
            )
        except OutputError as error:
            raise self._damaged(str(error.found)) from None
        if not chunk:
            raise self._damaged("a shorter file")
        self._hasher.update(chunk)
        self._done += len(chunk)
        return chunk

    def _damaged(self, found: str) -> IncompleteCountsError:
        section = self._section
        expected = (
            f"{section.length:,} bytes at byte {section.offset:,} with xxh3-128 {section.hash}"
        )
        return _damaged_run(self._runs.path(section.run), expected, found)


def _damaged_run(where: str, expected: str, found: str) -> IncompleteCountsError:
    return IncompleteCountsError(
        "A run of the counts is damaged.",
        expected=expected,
        found=found,
        where=where,
        hint="Begin counting anew with --restart.",
    )


def _write_shard(
    job: Counting, shard: int, sections: Sequence[Section], corpus: str
) -> dict[str, Any]:
    metadata = {
        "bpe.format": FORMAT_VERSION,
        "bpe.pattern": job.pattern,
        "bpe.special_tokens": json.dumps(job.special_tokens, ensure_ascii=False),
        "bpe.unicode_version": resolve_pattern(job.pattern).unicode_version,
        **{
            f"bpe.{key}": value
            for key, value in normalization_metadata(job.normalizer, job.normalize_quotes).items()
        },
        "bpe.corpus": corpus,
        "bpe.shard": f"{shard} of {job.shards}",
    }
    schema = columns_to_arrow(*PretokenTable(None, []).columns()).schema
    name = shard_name(shard, job.shards)
    rows = count = 0
    with (
        job.counts.write(name) as file,
        pq.ParquetWriter(
            pa.PythonFile(file, "w"),
            schema.with_metadata(metadata),
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
            column_encoding={"pretoken": "DELTA_BYTE_ARRAY", "count": "DELTA_BINARY_PACKED"},
        ) as writer,
    ):
        for columns in _merged_rows(job, sections):
            writer.write_table(columns_to_arrow(*columns), row_group_size=_ROW_GROUP_ROWS)
            rows += len(columns[2])
            count += sum(columns[2].tolist())
        writer.add_key_value_metadata(
            {"bpe.totals": json.dumps({"rows": rows, "pretokens": count})}
        )
    return {
        "name": name,
        "rows": rows,
        "pretokens": count,
        "bytes": file.size,
        "xxh3_128": file.hexdigest,
    }
