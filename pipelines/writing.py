"""Writing: a task → its token files, its rejects and an entry for the manifest.

Of a task, everything else is written before its train file: that file under its final name means
that the task is finished. All bytes follow from the task, the tokenizer and the configuration.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core import BPETokenizer
from bpe_core.errors import SpecialTokenError, UnknownCharacterError
from bpe_core.special_tokens import special_set
from pipelines.accounting import DocumentTotals, planned_bytes, planned_bytes_of_sources
from pipelines.batches import DocumentBatch
from pipelines.dataset.names import BASE, statistics_file_name, task_name, token_file_name
from pipelines.dataset.parquet_files import ParquetOutput
from pipelines.dataset.statistics import (
    Statistics,
    read_statistics,
    write_statistics,
)
from pipelines.dataset.token_schema import schema
from pipelines.dataset.vocabulary import Vocabulary
from pipelines.errors import DifferentConfigurationError, InputError
from pipelines.metrics import Meter
from pipelines.readers.selection import in_share
from pipelines.readers.work import (
    SourceReading,
    TaskWork,
    read_task,
    refuse_special_tokens,
)
from pipelines.rejects.table import RejectFile
from pipelines.rejects.taking import Taking
from pipelines.software import software_metadata
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task
from pipelines.tasks import InputFile, Source
from pipelines.tokenizers.files import (
    Model,
    Tokenizer,
    counts_fingerprint,
    load_model,
    tokenizer_of,
)

ENTRIES = "_tasks"
FORMAT_VERSION = "1"
_ROW_GROUP_ROWS = 1 << 16
_ROW_GROUP_TOKENS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class EncodeJob:
    """All that workers need to know to encode; small, and the same for all of them.

    Attributes:
        tokens: the directory of the token files.
        rejects: the directory of rejected documents.
        tokenizer: the directory of the tokenizer.
        tokenizer_fingerprint: of the tokenizer that must be found there.
        configuration: fingerprint of all that decides the token files.
        plan_id: of files, ranges and configuration: entries of other plans are never mixed in.
        prepend, append: special tokens, or None.
        special_tokens_in_text: "split", "text", "reject" or "error".
        id_type: "uint16" or "uint32".
        validation_fraction: share of the documents in the validation files.
        readings: how each source is read.
        generation: that the files are of; part of their names.
        is_replay: only documents are taken that stand beside the entries (`taking`).
    """

    tokens: Directory
    rejects: Directory
    tokenizer: Directory
    tokenizer_fingerprint: str
    configuration: str
    plan_id: str
    prepend: str | None
    append: str | None
    special_tokens_in_text: str
    id_type: str
    validation_fraction: float
    readings: tuple[SourceReading, ...]
    generation: str = BASE
    is_replay: bool = False

    @property
    def record_ids(self) -> bool:
        """Whether records of any source have ids of their own."""
        return any(reading.options.id_field is not None for reading in self.readings)

    @property
    def entries(self) -> Directory:
        """Where the entries of finished tasks are until the manifest is written."""
        return self.tokens / ENTRIES / self.plan_id


def entry_name(index: int, of: int) -> str:
    """The file of a task's entry."""
    return f"{index:05d}-of-{of:05d}.json"


def task_statistics_name(index: int, of: int) -> str:
    """The file of a task's statistics, beside its entry."""
    return f"{index:05d}-of-{of:05d}.statistics.parquet"


@dataclass(frozen=True, kw_only=True)
class TokenRows:
    """Encoded documents of one batch: row i has ids[offsets[i]:offsets[i + 1]].

    Attributes:
        ids: uint16 or uint32, of all rows.
        offsets: int64[n + 1].
        num_bytes, places, hashes, source, part, record_ids: as `num_bytes`, `offsets`, `hashes`,
            `source`, `part` and `ids` of the `DocumentBatch`.
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    places: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    source: str
    part: int
    record_ids: pa.StringArray | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.num_bytes)

    @property
    def part_numbers(self) -> NDArray[np.int32]:
        """int32[n], the part of each row."""
        return np.full(len(self), self.part, np.int32)

    @property
    def sources(self) -> tuple[Sequence[str], NDArray[np.int32]]:
        """Names of sources in order of appearance, and int32[n], which of them each row has."""
        return (self.source,), np.zeros(len(self), np.int32)

    def slice(self, first: int, end: int) -> TokenRows:
        """The rows [first, end), of the same memory."""
        start, stop = self.offsets[first], self.offsets[end]
        return replace(
            self,
            ids=self.ids[start:stop],
            offsets=self.offsets[first : end + 1] - start,
            num_bytes=self.num_bytes[first:end],
            places=self.places[first:end],
            hashes=self.hashes[first:end],
            record_ids=None if self.record_ids is None else self.record_ids[first:end],
        )


class Rows(Protocol):
    """Rows of a token file: of one batch, as `TokenRows`, or of many."""

    def __len__(self) -> int:
        """Number of rows."""

    @property
    def ids(self) -> NDArray[Any]:
        """The ids of all rows."""

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Row i has ids[offsets[i]:offsets[i + 1]]."""

    @property
    def num_bytes(self) -> NDArray[np.int64]:
        """Of each row, the bytes of the source text."""

    @property
    def places(self) -> NDArray[np.int64]:
        """Of each row, the column `offset`."""

    @property
    def record_ids(self) -> pa.StringArray | None:
        """Of each row, the record's own id."""

    @property
    def part_numbers(self) -> NDArray[np.int32]:
        """Of each row, the number of the piece."""

    @property
    def sources(self) -> tuple[Sequence[str], NDArray[np.int32]]:
        """Names of sources in order of appearance, and which of them each row has."""

    def slice(self, first: int, end: int) -> Rows:
        """The rows [first, end)."""


class DocumentEncoder:
    """Encodes batches by the rules of a build, with a tokenizer that threads may share.

    Args:
        tokenizer: what encodes.
        prepend, append: special tokens put around each document, or None.
        special_tokens_in_text: "split", "text", "reject" or "error".
        dtype: of the ids.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        prepend: str | None,
        append: str | None,
        special_tokens_in_text: str,
        dtype: type[np.uint16] | type[np.uint32] = np.uint32,
    ) -> None:
        self._tokenizer = tokenizer
        self._policy = special_tokens_in_text
        self._dtype = dtype
        special_tokens = tokenizer.special_tokens
        self._specials = special_set(list(special_tokens))
        self._allowed: Literal["all", "none"] = (
            "all" if special_tokens_in_text == "split" else "none"
        )
        self._prepend = _affix(special_tokens, "prepend", prepend)
        self._append = _affix(special_tokens, "append", append)

    @classmethod
    def of_job(cls, job: EncodeJob) -> DocumentEncoder:
        """The encoder of a build."""
        return cls(
            load_tokenizer(job.tokenizer, job.tokenizer_fingerprint),
            prepend=job.prepend,
            append=job.append,
            special_tokens_in_text=job.special_tokens_in_text,
            dtype=np.uint16 if job.id_type == "uint16" else np.uint32,
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids that it gives."""
        tokenizer = self._tokenizer
        return Vocabulary(tokenizer.model if isinstance(tokenizer, BPETokenizer) else tokenizer)

    def refuse(self, batch: DocumentBatch) -> DocumentBatch:
        """The batch without the documents that the policy on special tokens rejects."""
        return refuse_special_tokens(batch, self._specials, self._policy)

    def encode(self, batch: DocumentBatch) -> TokenRows:
        """The ids of a batch's documents.

        Raises:
            InputError: a character has no id, and the tokenizer has no token for the unknown.
        """
        try:
            ids, offsets = self._tokenizer.encode_documents(
                batch.data,
                batch.starts,
                batch.ends,
                allowed_special=self._allowed,
                prepend=self._prepend if batch.part == 0 else (),
                append=self._append if batch.last else (),
                dtype=self._dtype,
            )
        except UnknownCharacterError as error:
            raise InputError(
                "A document has a character that is not in the vocabulary.",
                expected="characters of the alphabet (tokenizer.unk_token: null)",
                found=error.found,
                where=batch.where(error.document),
                hint="Set tokenizer.unk_token, leave tokenizer.limit_alphabet and "
                "tokenizer.min_count as they are by default, or mend the text.",
            ) from None
        return TokenRows(
            ids=ids,
            offsets=offsets,
            num_bytes=batch.num_bytes,
            places=batch.offsets,
            hashes=batch.hashes,
            source=batch.source,
            part=batch.part,
            record_ids=batch.ids,
        )


def _affix(special_tokens: Mapping[str, int], key: str, token: str | None) -> list[int]:
    if token is None:
        return []
    if token not in special_tokens:
        raise SpecialTokenError(
            f"{key}: expected a special token of the tokenizer "
            f"({', '.join(map(repr, special_tokens)) or 'it has none'}), found {token!r}"
        )
    return [special_tokens[token]]


def load_tokenizer(directory: Directory, fingerprint: str) -> Tokenizer:
    """The tokenizer of a build, once a process.

    Raises:
        DifferentConfigurationError: another tokenizer is there than the fingerprint says.
    """
    with _LOADING:
        if (directory.url, fingerprint) not in _LOADED:
            model = load_model(directory)
            if model.fingerprint != fingerprint:
                raise DifferentConfigurationError(
                    "The tokenizer has changed since the build was planned.",
                    expected=f"fingerprint {fingerprint}",
                    found=model.fingerprint,
                    where=directory.url,
                    hint="Run the command again.",
                )
            keep_tokenizer(directory, model)
        return _LOADED[directory.url, fingerprint]


def keep_tokenizer(directory: Directory, model: Model) -> None:
    """Has the workers of this process take the tokenizer from here, and no other from before."""
    _LOADED.clear()
    _LOADED[directory.url, model.fingerprint] = tokenizer_of(model)


_LOADING = threading.Lock()
_LOADED: dict[tuple[str, str], Tokenizer] = {}


class TokenFile(ParquetOutput):
    """A token file that gets its final name when it is whole.

    Row groups are cut by rows and tokens, wherever batches were cut.

    Args:
        directory: that it is in.
        name: of the file.
        columns: as `token_schema.schema` gives them.
        metadata: what its footer says of build and task.
    """

    def __init__(
        self, directory: Directory, name: str, columns: pa.Schema, metadata: Mapping[str, str]
    ) -> None:
        super().__init__(directory, name, columns, metadata, use_dictionary=["source"])
        self._schema = columns
        self._pending: list[Rows] = []
        self._pending_rows = 0
        self._pending_tokens = 0
        self.rows = 0
        self.documents = 0
        self.tokens = 0
        self.text_bytes = 0

    def add(self, rows: Rows) -> None:
        """Takes the rows of a batch."""
        self.documents += int(np.count_nonzero(rows.part_numbers == 0))
        first = 0
        while first < len(rows):
            end = row_group_end(rows.offsets, first, self._pending_rows, self._pending_tokens)
            self._pending.append(rows.slice(first, end))
            self._pending_rows += end - first
            self._pending_tokens += int(rows.offsets[end] - rows.offsets[first])
            first = end
            if fills_row_group(self._pending_rows, self._pending_tokens):
                self._write_row_group()

    def _write_row_group(self) -> None:
        parts = self._pending
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        columns = {
            # A chunk for each batch: the ids stay where they were written.
            "input_ids": pa.chunked_array([_lists(part, self._schema) for part in parts]),
            "num_tokens": pa.array(lengths.astype(np.int32)),
            "num_bytes": pa.array(np.concatenate([part.num_bytes for part in parts])),
            "source": _sources(parts),
            "offset": pa.array(np.concatenate([part.places for part in parts])),
            "part": pa.array(np.concatenate([part.part_numbers for part in parts])),
        }
        if "id" in self._schema.names:
            columns["id"] = pa.chunked_array([_record_ids(part) for part in parts])
        self._writer.write_table(pa.table(columns, schema=self._schema))
        self.rows += len(lengths)
        self.tokens += self._pending_tokens
        self.text_bytes += int(sum(part.num_bytes.sum() for part in parts))
        self._pending, self._pending_rows, self._pending_tokens = [], 0, 0

    def finish(self) -> None:
        """Completes the bytes; the file still has its temporary name."""
        if self._pending:
            self._write_row_group()
        self._close({"rows": self.rows, "tokens": self.tokens, "bytes": self.text_bytes})

    @property
    def entry(self) -> dict[str, Any]:
        """The file's entry of the manifest, once it is closed."""
        return {
            "name": self._name,
            "rows": self.rows,
            "documents": self.documents,
            "tokens": self.tokens,
            "text_bytes": self.text_bytes,
            "bytes": self._file.size,
            "xxh3_128": self._file.hexdigest,
        }


def row_group_end(offsets: NDArray[np.int64], first: int, rows: int, tokens: int) -> int:
    """The row after the one that fills a row group that holds so much, or the last row."""
    room = _ROW_GROUP_TOKENS - tokens
    filling = int(np.searchsorted(offsets, offsets[first] + room, side="left"))
    return min(len(offsets) - 1, filling, first + _ROW_GROUP_ROWS - rows)


def fills_row_group(rows: int, tokens: int) -> bool:
    """Whether a row group with so much is written."""
    return rows >= _ROW_GROUP_ROWS or tokens >= _ROW_GROUP_TOKENS


def write_task(job: EncodeJob, work: TaskWork, meter: Meter | None = None) -> dict[str, Any]:
    """Encodes a task and writes its files; gives the task's entry of the manifest.

    Raises:
        InputError: as reading and the policies do.
        OutputError: the output can't be written.
    """
    meter = meter or Meter()
    encoder = DocumentEncoder.of_job(job)
    totals = {file.label: DocumentTotals() for file, _, _ in work.parts}
    refused: dict[str, DocumentTotals] = {}
    metadata = _metadata(job, work)
    columns = schema(job.id_type, record_ids=job.record_ids)
    statistics = Statistics(encoder.vocabulary)
    source_names = {file.label: file.source_name for file, _, _ in work.parts}
    names = {
        split: token_file_name(split, work.index, work.of, job.generation)
        for split in ("train", "validation")
    }
    entry: dict[str, Any] = {"index": work.index, "source": work.source}
    with (
        current_task(work.describe("encode")),
        meter.time("write"),  # what is neither reading nor encoding
        TokenFile(job.tokens, names["train"], columns, metadata) as train,
    ):
        with ExitStack() as others:
            rejects = others.enter_context(
                RejectFile(job.rejects, task_name(work.index, work.of, job.generation), metadata)
            )
            validation = None
            if job.validation_fraction > 0:
                validation = others.enter_context(
                    TokenFile(job.tokens, names["validation"], columns, metadata)
                )
            taking = Taking(job.entries, task_name(work.index, work.of)) if job.is_replay else None
            for batch in meter.timed("read", read_task(work, job.readings)):
                taken = batch if taking is None else taking.of(batch)
                with meter.time("encode"):
                    kept = encoder.refuse(taken)
                if len(kept) < len(taken):
                    of_file = refused.setdefault(kept.source, DocumentTotals())
                    of_file.add(DocumentTotals.removed(taken, kept))
                totals[kept.source].add_batch(kept)
                rejects.add(kept.rejects)
                meter.add_batch(kept)
                for file, part in _split(kept, train, validation, job.validation_fraction):
                    with meter.time("encode"):
                        rows = encoder.encode(part)
                    meter.add(tokens=len(rows.ids))
                    file.add(rows)
                    statistics.add_rows(
                        "train" if file is train else "validation",
                        source_names[rows.source],
                        rows.source,
                        ids=rows.ids,
                        lengths=np.diff(rows.offsets),
                        num_bytes=rows.num_bytes,
                        offsets=rows.places,
                        begins=np.full(len(rows), rows.part == 0),
                    )
            if taking is not None:
                for carried in taking.carried():
                    rejects.add(carried)
                for label, left_out in taking.finish(work, job.readings):
                    totals[label].add(left_out)
            if validation is not None:
                validation.finish()
        train.finish()
        entry["totals"] = DocumentTotals.sum_of(totals.values()).to_json()
        entry["inputs"] = {label: of_file.numbers() for label, of_file in totals.items()}
        # Counting has them: the policy on special tokens is that of encoding.
        entry["refused"] = {label: found.corpus_fingerprint for label, found in refused.items()}
        entry["train"] = train.entry
        entry["validation"] = None if validation is None else validation.entry
        entry["rejects"] = rejects.entry
        statistics.finish()
        entry["statistics"] = write_statistics(
            job.entries, task_statistics_name(work.index, work.of), statistics.tables()
        )
        job.entries.write_json(entry_name(work.index, work.of), entry)
    meter.finish_task()
    return entry


def _split(
    batch: DocumentBatch, train: TokenFile, validation: TokenFile | None, fraction: float
) -> list[tuple[TokenFile, DocumentBatch]]:
    """The batch by the file that its documents belong to, chosen by their hashes alone."""
    if not len(batch):
        return []
    if validation is None:
        return [(train, batch)]
    chosen = in_share(batch.hashes[:, 1], fraction)
    parts = [(train, batch.select(~chosen)), (validation, batch.select(chosen))]
    return [(file, part) for file, part in parts if len(part)]


def _metadata(job: EncodeJob, work: TaskWork) -> dict[str, str]:
    return {
        "bpe.format": FORMAT_VERSION,
        "bpe.configuration": job.configuration,
        "bpe.tokenizer": job.tokenizer_fingerprint,
        "bpe.task": work.summary,
        **software_metadata(),
    }


def _record_ids(rows: Rows) -> pa.StringArray:
    return pa.nulls(len(rows), pa.string()) if rows.record_ids is None else rows.record_ids


def _lists(rows: Rows, schema: pa.Schema) -> pa.ListArray:
    return pa.ListArray.from_arrays(
        pa.array(rows.offsets.astype(np.int32)),
        pa.array(rows.ids),
        type=schema.field("input_ids").type,
    )


def _sources(parts: Sequence[Rows]) -> pa.DictionaryArray:
    """The column `source`: its dictionary has the sources in order of appearance."""
    known: dict[str, int] = {}
    indices = []
    for part in parts:
        names, which = part.sources
        of_all = [known.setdefault(name, len(known)) for name in names]
        indices.append(np.array(of_all, np.int32)[which])
    return pa.DictionaryArray.from_arrays(
        pa.array(np.concatenate(indices)), pa.array(list(known), pa.string())
    )


def finished_entries(job: EncodeJob, of: int) -> dict[int, dict[str, Any]]:
    """The entries of finished tasks by index: those whose train file is there."""
    present = {**job.rejects.sizes(), **job.tokens.sizes()}
    written = job.entries.sizes()
    likely = [
        index
        for index in range(of)
        if {entry_name(index, of), task_statistics_name(index, of)} <= written.keys()
        and token_file_name("train", index, of, job.generation) in present
    ]
    found = job.entries.read_json_files([entry_name(index, of) for index in likely])
    return {
        index: entry
        for index, entry in zip(likely, found, strict=True)
        if entry is not None and _is_present(entry, present)
    }


def _is_present(entry: Mapping[str, Any], present: Mapping[str, int]) -> bool:
    files = [entry[kind] for kind in ("train", "validation", "rejects") if entry[kind]]
    return all(present.get(file["name"]) == file["bytes"] for file in files)


def write_merged_statistics(
    job: EncodeJob, entries: Mapping[int, Mapping[str, Any]], model: Model
) -> dict[str, Any]:
    """Adds up the statistics of all tasks and writes them; gives the file's entry of the manifest.

    Raises:
        OutputError: those of a task are missing or damaged.
    """
    statistics = Statistics(Vocabulary(model))
    for entry in entries.values():
        statistics.add_table(read_statistics(job.entries, entry["statistics"]))
    splits = ["train", *(["validation"] if job.validation_fraction > 0 else [])]
    metadata = {
        "bpe.format": FORMAT_VERSION,
        "bpe.configuration": job.configuration,
        "bpe.tokenizer": job.tokenizer_fingerprint,
        "bpe.counts": counts_fingerprint(job.tokenizer) or "",
        **software_metadata(),
    }
    return write_statistics(
        job.tokens,
        statistics_file_name(job.generation),
        statistics.tables(job.generation, splits=splits),
        metadata,
    )


def tokens_content(
    entries: Mapping[int, Mapping[str, Any]],
    files: Sequence[InputFile],
    sources: Sequence[Source],
    generation: str = BASE,
) -> dict[str, Any]:
    """The part of the manifest that the tasks' entries add up to.

    Args:
        entries: of all tasks, by index.
        files: of the plan.
        sources: of the configuration.
        generation: that all of these are of.
    """
    ordered = [entries[index] for index in sorted(entries)]
    of_sources = [DocumentTotals() for _ in sources]
    of_inputs = {file.label: DocumentTotals() for file in files}
    refused: dict[str, list[str]] = {}
    for entry in ordered:
        of_sources[entry["source"]].add(DocumentTotals.from_json(entry["totals"]))
        for label, numbers in entry["inputs"].items():
            of_inputs[label].add(DocumentTotals(**numbers))
        for label, corpus in entry["refused"].items():
            refused.setdefault(label, []).append(corpus)
    totals = DocumentTotals.sum_of(of_sources)
    train = [entry["train"] for entry in ordered]
    validation = [entry["validation"] for entry in ordered if entry["validation"]]
    written = train + validation
    planned = planned_bytes_of_sources(files, sources)
    return {
        "corpus": totals.corpus_fingerprint,
        "inputs": [
            {
                "name": file.label,
                "size": file.size,
                "generation": generation,
                "unread": file.unread,
                "planned_bytes": planned_bytes(file, sources[file.source].format),
                **of_inputs[file.label].numbers(),
                "bad": file.label in totals.bad_files,
                **(
                    {"refused": DocumentTotals.of_corpora(refused[file.label]).corpus_fingerprint}
                    if file.label in refused
                    else {}
                ),
            }
            for file in files
        ],
        "sources": [
            {"name": source.name, "planned_bytes": bytes_, **of_source.to_json()}
            for source, bytes_, of_source in zip(sources, planned, of_sources, strict=True)
        ],
        "files": {
            "train": train,
            "validation": validation,
            "rejects": [entry["rejects"] for entry in ordered if entry["rejects"]],
        },
        "totals": {
            **totals.to_json(),
            "train_rows": sum(file["rows"] for file in train),
            "validation_rows": sum(file["rows"] for file in validation),
            "tokens": sum(file["tokens"] for file in written),
            "text_bytes": sum(file["text_bytes"] for file in written),
        },
    }
