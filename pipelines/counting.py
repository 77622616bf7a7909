"""Counting: tasks → sorted runs and commits → shards of counts.

A worker counts into a native table. When the table is full, and before every commit, it is packed
into a *run*: one file with a sorted section for each shard. A *commit* is written after its runs:
it names them, with checksums, and exactly the tasks that they hold. Runs without a commit are
ignored, so an attempt that died, or was repeated, leaves nothing that counts. Only descriptors of
sections are shuffled; each shard merges its sections and checks that their commits hold every task
of the plan once.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from bpe_core._native import CountMerger, PretokenTable
from bpe_core.counts import (
    FORMAT_VERSION,
    PretokenCounts,
    add_custom_pretokens,
    columns_to_arrow,
    normalization_metadata,
)
from bpe_core.errors import BpeError
from bpe_core.memory import available_memory, training_memory
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import resolve_pattern
from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch
from pipelines.config.identity import fingerprint
from pipelines.dataset.names import COMMIT_FILE
from pipelines.dataset.parquet_files import listed_bytes
from pipelines.errors import IncompleteCountsError, InputError, OutputError, TooLargeError
from pipelines.metrics import Meter
from pipelines.readers.work import SourceReading, TaskWork, read_task
from pipelines.rejects.table import RejectFile
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task

RUNS = "_runs"
MERGED_AT_ONCE = 256
# Of a merge's sections together, and of each: at most, at least.
_BUFFER_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10
_SMALLEST_CHUNK_BYTES = 16 << 10
_ROW_GROUP_ROWS = 1 << 17
_ROW_GROUP_BYTES = 8 << 20
_MASK_128 = (1 << 128) - 1
# Metadata of a shard that say nothing of the counts.
_OF_A_FILE = (b"bpe.shard", b"bpe.format", b"bpe.totals")


@dataclass(frozen=True, kw_only=True)
class Counting:
    """How pre-tokens are counted, and where to; small, and the same for all workers.

    Attributes:
        counts: the directory of the shards.
        pattern, special_tokens: how text is split and cut.
        normalizer, normalize_quotes: what text between special tokens goes through.
        shards: number of shards.
        memory: bytes for the tables of one process.
        max_pretoken_bytes, on_long_pretoken: what is too long, and what then.
    """

    counts: Directory
    pattern: str
    special_tokens: tuple[str, ...]
    shards: int
    memory: int
    max_pretoken_bytes: int
    on_long_pretoken: str
    normalizer: str | None = None
    normalize_quotes: bool = False

    @property
    def runs(self) -> Directory:
        """Where the runs are."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class CountJob(Counting):
    """All that workers need to know to count the tasks of a build.

    Attributes:
        rejects: the directory of rejected documents.
        configuration: fingerprint of all that decides the counts but the inputs.
        plan_id: files, ranges and rules; runs of other plans are never mixed in.
        num_tasks, tasks_hash: what the commits must add up to (sum of task hashes modulo 2^128).
        checkpoint_bytes: text after which a commit is written at the end of a task.
        readings: how each source is read.
    """

    rejects: Directory
    configuration: str
    plan_id: str
    num_tasks: int
    tasks_hash: int
    checkpoint_bytes: int
    readings: tuple[SourceReading, ...]

    @property
    def runs(self) -> Directory:
        """Where runs and commits of this plan are."""
        return self.counts / RUNS / self.plan_id


# --- runs and commits ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Section:
    """A sorted section of a run: where it is, and the xxh3-128 of its bytes."""

    run: str
    offset: int
    length: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Tasks that were counted wholly, and the runs that hold their counts and nothing else.

    Attributes:
        name: of its file.
        plan_id: of the plan that the tasks are of.
        tasks: their hashes by index.
        runs: for each run its sections, one a shard.
        sources: totals of the documents read, by the index of their source.
        long_pretokens: pre-tokens that were skipped because of their length.
    """

    name: str
    plan_id: str
    tasks: Mapping[int, int]
    runs: tuple[tuple[Section, ...], ...]
    sources: tuple[DocumentTotals, ...]
    long_pretokens: int

    @property
    def totals(self) -> DocumentTotals:
        """Of all sources together."""
        return DocumentTotals.sum_of(self.sources)

    def to_json(self) -> dict[str, Any]:
        """What the file says, with a fingerprint of it."""
        content = {
            "plan_id": self.plan_id,
            "tasks": {str(index): f"{value:032x}" for index, value in self.tasks.items()},
            "runs": [[asdict(section) for section in run] for run in self.runs],
            "sources": [totals.to_json() for totals in self.sources],
            "long_pretokens": self.long_pretokens,
        }
        return {**content, "fingerprint": fingerprint(content)}

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> Commit:
        """The commit that a file of this name says.

        Raises:
            OutputError: the file is damaged.
        """
        content = {key: item for key, item in value.items() if key != "fingerprint"}
        if value.get("fingerprint") != fingerprint(content):
            raise OutputError(
                "A commit of the counts is damaged.",
                expected=f"content with the fingerprint {value.get('fingerprint')}",
                found=fingerprint(content),
                where=name,
                hint="Remove the file, so that its tasks are counted again, or begin anew with "
                "--restart.",
            )
        return cls(
            name=name,
            plan_id=value["plan_id"],
            tasks={int(index): int(text, 16) for index, text in value["tasks"].items()},
            runs=tuple(tuple(Section(**s) for s in run) for run in value["runs"]),
            sources=tuple(map(DocumentTotals.from_json, value["sources"])),
            long_pretokens=value["long_pretokens"],
        )

    def descriptors(self, shards: int) -> Iterator[tuple[int, bytes]]:
        """What each shard has to know of this commit, as (shard, JSON).

        All of them go through the shuffle: what one shard's entry is enough to tell the launcher,
        the first has alone.
        """
        totals = self.totals
        common = {
            "commit": self.name,
            "tasks": len(self.tasks),
            "tasks_hash": f"{sum(self.tasks.values()) & _MASK_128:032x}",
            "documents": totals.documents,
            "hash_sum": f"{totals.hash_sum:032x}",
        }
        first = {
            "sources": [source.to_json() for source in self.sources],
            "long_pretokens": self.long_pretokens,
        }
        for shard in range(shards):
            sections = [asdict(run[shard]) for run in self.runs if run[shard].length]
            more = first if shard == 0 else {}
            yield shard, json.dumps({**common, **more, "sections": sections}).encode()


def usable_commits(job: CountJob) -> Iterator[Commit]:
    """The commits of this plan, in order of name, without those that repeat a task.

    One after another: a commit has an entry for each section of its runs, so all of those of a
    large corpus may be more than fits in memory.

    Raises:
        OutputError: one is damaged.
    """
    taken: set[int] = set()
    names = sorted(filter(COMMIT_FILE.fullmatch, job.runs.sizes()))
    for name, value in zip(names, job.runs.read_json_files(names), strict=True):
        if value is None:
            continue
        commit = Commit.from_json(name, value)
        if commit.plan_id == job.plan_id and taken.isdisjoint(commit.tasks):
            taken.update(commit.tasks)
            yield commit


def read_commit(job: CountJob, name: str) -> Commit:
    """The commit in a file that was there when the launcher looked.

    Raises:
        OutputError: it is damaged, or gone.
    """
    value = job.runs.read_json(name)
    if value is None:
        raise OutputError(
            "A commit of the counts is gone.",
            expected="the file, as it was when the build went on",
            where=job.runs.path(name),
            hint="Leave files of an output alone while a build runs, and run the command again.",
        )
    return Commit.from_json(name, value)


class _MemoryShare:
    """Deals the memory of the tables to the counters that are at work in this process.

    It does not hold them: one that is forgotten after an error has no share.
    """

    _lock = threading.Lock()
    _at_work: ClassVar[WeakSet[PretokenCounter]] = WeakSet()

    @classmethod
    def join(cls, counter: PretokenCounter) -> None:
        with cls._lock:
            cls._at_work.add(counter)

    @classmethod
    def leave(cls, counter: PretokenCounter) -> None:
        with cls._lock:
            cls._at_work.discard(counter)

    @classmethod
    def of(cls, memory: int) -> int:
        with cls._lock:
            return max(memory // max(len(cls._at_work), 1), 1)


class PretokenCounter:
    """Counts batches into runs. `close` must be called, also after an error.

    Attributes:
        runs: what was written, for each run its sections, one a shard.
        pretokens: how many they hold.
        long_pretokens: pre-tokens that were skipped because of their length.
    """

    def __init__(self, job: Counting, meter: Meter | None = None) -> None:
        self._rules = job
        self._meter = meter or Meter()
        pattern = resolve_pattern(job.pattern)
        self._custom = pattern.regex if pattern.native is None else None
        tokens = [token.encode() for token in job.special_tokens]
        self._normalizer = native_normalizer(job.normalizer, job.normalize_quotes)
        self._table = PretokenTable(
            pattern.native, tokens, job.max_pretoken_bytes, normalizer=self._normalizer
        )
        self.start()
        _MemoryShare.join(self)

    def close(self) -> None:
        """Gives the memory back; what is not committed is lost."""
        self._table.clear()
        _MemoryShare.leave(self)

    def start(self) -> None:
        """Begins anew with nothing written; what is in the table stays."""
        self.runs: list[tuple[Section, ...]] = []
        self.pretokens = 0
        self.long_pretokens = 0

    def add(self, batch: DocumentBatch) -> None:
        """Counts the documents of a batch; writes a run when the table is full."""
        done = 0
        while done < len(batch):
            limit = _MemoryShare.of(self._rules.memory)
            if self._custom is None:
                done, too_long = self._table.add_documents(
                    batch.data, batch.starts, batch.ends, done, limit
                )
            else:
                too_long = add_custom_pretokens(
                    self._table,
                    (batch.data.tobytes(), batch.starts, batch.ends),
                    self._custom,
                    self._rules.special_tokens,
                    self._normalizer,
                    max_pretoken_bytes=self._rules.max_pretoken_bytes,
                )
                done = len(batch)
            for place in too_long:
                self._meet_long_pretoken(batch, *place)
            if self._table.memory_bytes > limit or done < len(batch):
                self.flush()

    def _meet_long_pretoken(
        self, batch: DocumentBatch, document: int, begin: int, length: int
    ) -> None:
        if self._rules.on_long_pretoken == "skip":
            self.long_pretokens += 1
            return
        raise InputError(
            "A pre-token is too long.",
            expected=f"at most {self._rules.max_pretoken_bytes:,} bytes (max_pretoken_bytes)",
            found=f"{length:,} bytes",
            where=f"{batch.where(document)}, part {batch.part}, byte {begin:,}",
            hint="Raise max_pretoken_bytes, or leave such pre-tokens out with on_long_pretoken "
            "(in a build counts.max_pretoken_bytes, counts.on_long_pretoken: skip).",
        )

    def flush(self) -> None:
        """Packs the table into a run and empties it."""
        if not len(self._table):
            return
        name = f"run-{secrets.token_hex(16)}.bin"
        sections = []
        offset = 0
        with self._meter.time("write"), self._rules.runs.write(name) as file:
            for packed in self._table.pack_sections(self._rules.shards):
                file.write(packed)
                digest = xxhash.xxh3_128_hexdigest(packed)
                sections.append(Section(run=name, offset=offset, length=len(packed), hash=digest))
                offset += len(packed)
        self.runs.append(tuple(sections))
        self.pretokens += self._table.total()
        self._table.clear()


class TaskCounter(PretokenCounter):
    """Counts the tasks of one bundle attempt."""

    def __init__(self, job: CountJob, meter: Meter | None = None) -> None:
        super().__init__(job, meter)
        self._job = job
        self._start_commit()

    def count(self, work: TaskWork) -> Iterator[tuple[int, bytes]]:
        """Counts a task. Gives descriptors if that made a commit due."""
        totals = DocumentTotals()
        with (
            current_task(work.describe("count")),
            self._meter.time("count"),  # what is neither reading nor writing
            RejectFile(
                self._job.rejects,
                f"count-{work.index:05d}-of-{work.of:05d}",
                {
                    "bpe.format": FORMAT_VERSION,
                    "bpe.configuration": self._job.configuration,
                    "bpe.task": work.summary,
                },
            ) as rejects,
        ):
            for batch in self._meter.timed("read", read_task(work, self._job.readings)):
                totals.add_batch(batch)
                rejects.add(batch.rejects)
                self.add(batch)
                self._meter.add_batch(batch)
        self._totals[work.source].add(totals)
        self._tasks[work.index] = work.hash
        self._all_bytes += totals.all_bytes
        self._meter.finish_task()
        if self._all_bytes >= self._job.checkpoint_bytes:
            yield from self.commit()

    def commit(self) -> Iterator[tuple[int, bytes]]:
        """Writes what was counted since the last commit; gives its descriptors."""
        if not self._tasks:
            return
        self.flush()
        commit = Commit(
            name=f"commit-{secrets.token_hex(16)}.json",
            plan_id=self._job.plan_id,
            tasks=self._tasks,
            runs=tuple(self.runs),
            sources=tuple(self._totals),
            long_pretokens=self.long_pretokens,
        )
        with self._meter.time("write"):
            self._job.runs.write_json(commit.name, commit.to_json())
        self._meter.tell_times()
        self._start_commit()
        yield from commit.descriptors(self._job.shards)

    def _start_commit(self) -> None:
        self.start()
        self._tasks: dict[int, int] = {}
        self._totals = [DocumentTotals() for _ in self._job.readings]
        self._all_bytes = 0


# --- shards ----------------------------------------------------------------------------------


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


def load_counts(
    directory: Directory, manifest: Mapping[str, Any], *, min_count: int = 1
) -> PretokenCounts:
    """The counts of a finished stage, as its manifest lists them.

    Args:
        directory: of the shards.
        manifest: of the stage.
        min_count: pre-tokens that occur less often are left out.

    Raises:
        OutputError: a shard is missing or damaged.
        TooLargeError: learning merges from them would take more memory than there is.
    """
    tables = []
    rows = key_bytes = 0
    available = available_memory()
    for shard in manifest["shards"]:
        data = listed_bytes(
            directory,
            shard,
            what="A shard of the counts",
            hint="Count anew: `beam-bpe count CONFIG --restart`.",
        )
        table = _read_shard(data, min_count)
        tables.append(table)
        rows += table.num_rows
        key_bytes += pc.sum(pc.binary_length(table["pretoken"])).as_py() or 0
        needed = training_memory(rows, key_bytes)
        if available is not None and needed > available:
            raise _too_large(rows, len(tables), manifest, needed, available)
    metadata = {
        key.decode().removeprefix("bpe."): value.decode()
        for key, value in (tables[0].schema.metadata or {}).items()
        if key not in _OF_A_FILE
    }
    table = pa.concat_tables(table.replace_schema_metadata(None) for table in tables)
    return PretokenCounts(table, {**metadata, "fingerprint": manifest["fingerprint"]})


def _read_shard(data: bytes, min_count: int) -> pa.Table:
    """A shard without what is too rare, of which no more than a row group is ever in memory."""
    file = pq.ParquetFile(pa.BufferReader(data))
    batches = file.iter_batches()
    if min_count > 1:
        batches = (batch.filter(pc.greater_equal(batch["count"], min_count)) for batch in batches)
    return pa.Table.from_batches(batches, file.schema_arrow)


def _too_large(
    rows: int, shards: int, manifest: Mapping[str, Any], needed: int, available: int
) -> TooLargeError:
    return TooLargeError(
        "Learning merges from these counts would take more memory than there is.",
        expected=f"at most {available / 2**30:,.1f} GiB, what is available",
        found=f"about {needed / 2**30:,.1f} GiB for the {rows:,} pre-tokens of the first {shards} "
        f"of {len(manifest['shards'])} shards",
        where="training, which is one process",
        hint="Raise tokenizer.min_count to leave out rare pre-tokens, or train on a machine with "
        "more memory: the counts are finished and need not be made again.",
    )


def count_tasks(job: CountJob, works: Sequence[TaskWork]) -> Iterator[tuple[int, bytes]]:
    """Counts tasks as one bundle would: for callers without Beam."""
    counter = TaskCounter(job)
    try:
        for work in works:
            yield from counter.count(work)
        yield from counter.commit()
    finally:
        counter.close()
