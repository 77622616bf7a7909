"""Estimate of a build: documents, pre-tokens, tokens, time and memory, from samples of its input.

Documents and bytes are scaled by the sizes of the files. Distinct pre-tokens follow Heaps' law,
D = K · n^β for n bytes of text, with the slope at the end of the sampled text as β. Tokens and the
size of token files come from a tokenizer that is trained on some of the samples (or the finished
one), and encodes others. Rates are those of these steps on this machine.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.count_groups import Group, GroupColumns
from bpe_core.counts import PretokenCounts, sum_counts
from bpe_core.errors import BpeError, TrainingError
from bpe_core.memory import training_memory
from bpe_core.parity import ParityRules
from pipelines.batches import DocumentBatch
from pipelines.config import BuildConfig
from pipelines.counting.given import GivenCounts
from pipelines.counting.jobs import CountRules
from pipelines.counting.table import PretokenCounter
from pipelines.counting.training import train_model
from pipelines.counting.training_counts import TrainingCounts, load_training_counts
from pipelines.manifest.token_schema import schema
from pipelines.probing.samples import FileSample
from pipelines.stages.jobs import choose_id_type, is_grouped
from pipelines.storage.directory import Directory, HashingFile
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Plan, planned_size
from pipelines.tokenizers.files import Model, make_tokenizer
from pipelines.writing.encoder import DocumentEncoder
from pipelines.writing.token_file import TokenFile

# Sampled text to count, to train on and to encode.
_COUNTED_BYTES: Final = 64 << 20
_TRAINED_BYTES: Final = 4 << 20
_ENCODED_BYTES: Final = 4 << 20
_GIVEN_ROWS: Final = 1 << 18  # most pre-tokens of given counts to train on
_CHUNK_BYTES: Final = 128 << 10
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_NO_LIMIT: Final = 1 << 40
# Measured: memory of a worker after startup, of reading, and of encoding besides; start and end of
# a pipeline; a distinct pre-token in the table; a shard of counts, and the bytes in it per byte of
# the distinct pre-tokens, for a pre-token in a group, and for a number of documents.
_STARTED_BYTES: Final = 200 << 20
_READING_BYTES: Final = 50 << 20
_ENCODING_BYTES: Final = 180 << 20
_PIPELINE_SECONDS: Final = 1.5
_TABLE_BYTES: Final = 48
_SHARD_BYTES: Final = 1800
_STORED_SHARE: Final = 0.67
_STORED_GROUP: Final = 1.5
_STORED_DOCUMENTS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Expected work and output of a build.

    Attributes:
        documents: Documents of the input, rejected and not selected ones included.
        text_bytes: Bytes of their text.
        exact: True if the samples are the whole input.
        sampled_bytes: Bytes of the text that was sampled.
        distinct_pretokens: Distinct pre-tokens; None if nothing is counted.
        heaps_factor, heaps_exponent: K and β of Heaps' law for them.
        tokens: Ids in the token files; None if unknown.
        token_file_bytes: Size of all token files; None if unknown.
        count_file_bytes: Size of all shards of counts.
        vocabulary: Ids that training reaches; None if they are unknown or nothing is trained.
        seconds: Seconds of one core for each stage.
        memory: Bytes of memory for each stage: of a worker, or of the process that trains.
        workers: Number of workers here; None if the engine decides it.
        tasks: Number of tasks.
    """

    documents: int
    text_bytes: int
    exact: bool
    sampled_bytes: int
    distinct_pretokens: int | None = None
    heaps_factor: float = 0.0
    heaps_exponent: float = 0.0
    tokens: int | None = None
    token_file_bytes: int | None = None
    count_file_bytes: int = 0
    vocabulary: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    workers: int | None = None
    tasks: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values, with the seconds until the end and core hours."""
        return {**asdict(self), "elapsed": self.elapsed, "core_hours": self.core_hours}

    @property
    def tasks_per_worker(self) -> float | None:
        """Return the tasks of each worker, or None if the engine decides how many there are."""
        return None if self.workers is None else self.tasks / self.workers

    @property
    def elapsed(self) -> float | None:
        """Return the seconds until the end here, or None if the engine decides the workers."""
        if self.workers is None:
            return None
        busy = max(1, min(self.workers, self.tasks))
        alone = self.seconds.get("train", 0.0)
        shared = sum(self.seconds.values()) - alone
        pipelines = sum(stage != "train" for stage in self.seconds)
        return _PIPELINE_SECONDS * pipelines + alone + shared / busy

    @property
    def core_hours(self) -> float:
        """Return the hours of one core that the stages take together."""
        return sum(self.seconds.values()) / 3600

    @property
    def output_bytes(self) -> int | None:
        """Return the size of token files and counts, or None if it is unknown."""
        if self.token_file_bytes is None:
            return None
        return self.token_file_bytes + self.count_file_bytes


def estimate_build(
    config: BuildConfig,
    plan: Plan,
    samples: Sequence[FileSample],
    model: Model | None,
    *,
    shards: int,
    workers: int | None,
    reading: float,
    given: GivenCounts | None = None,
) -> Estimate:
    """Estimate a build.

    Args:
        config: Configuration of the build.
        plan: Plan of its input.
        samples: Samples of the input.
        model: Finished tokenizer to encode with, or None if one is trained.
        shards: Number of shards of the counts.
        workers: Number of workers, or None if the engine decides it.
        reading: Seconds that reading the samples took.
        given: Finished counts to train from, instead of counting.
    """
    read = [file for file in plan.files if not file.unread and file.size]
    sampled = sum(sample.text_bytes for sample in samples)
    exact = len(samples) == len(read) and all(sample.complete for sample in samples)
    exact = exact and sampled <= _COUNTED_BYTES
    sources = [
        _estimate_source(
            source.format == "text" and source.separator is None,
            [file for file in read if file.source == number],
            [sample for sample in samples if sample.file.source == number],
        )
        for number, source in enumerate(config.input)
    ]
    text = sum(source.text_bytes for source in sources)
    selected = sum(source.selected_bytes for source in sources)
    read_text = text * reading / max(sampled, 1)
    chunks = list(_interleave(samples))
    seconds, memory = {}, {}
    counted = None if model is not None else _count(config, chunks, selected)
    count_files, distinct = 0, None
    if counted is not None:
        distinct = counted.distinct if given is None else given.rows
        if given is None:
            entries = counted.distinct
            if is_grouped(config):
                entries = round(entries * _count_groups(config, samples) / counted.sampled)
            table = round(entries * (_TABLE_BYTES + counted.mean_bytes))
            count_files = shards * _SHARD_BYTES + _stored_bytes(config, counted, entries)
            seconds["count"] = read_text + selected * counted.seconds
            memory["count"] = _STARTED_BYTES + _READING_BYTES + min(config.counts.memory, table)
        started = time.perf_counter()
        selected_counts = _select_counts(config, samples, counted, given)
        model = _train(config, selected_counts)
        share = distinct / max(len(selected_counts.counts), 1)
        seconds["train"] = (time.perf_counter() - started) * max(1.0, share)
        memory["train"] = _STARTED_BYTES + training_memory(
            distinct, round(distinct * counted.mean_bytes)
        )
    encoded = None if model is None else _encode(config, model, chunks)
    if encoded is not None:
        seconds["encode"] = read_text + selected * encoded.seconds
        memory["encode"] = _STARTED_BYTES + _ENCODING_BYTES
    return Estimate(
        documents=round(sum(source.documents for source in sources)),
        text_bytes=round(text),
        exact=exact,
        sampled_bytes=sampled,
        distinct_pretokens=distinct,
        heaps_factor=0.0 if counted is None or given is not None else counted.factor,
        heaps_exponent=0.0 if counted is None or given is not None else counted.exponent,
        tokens=None if encoded is None else round(selected * encoded.tokens),
        token_file_bytes=None if encoded is None else round(selected * encoded.stored),
        count_file_bytes=count_files,
        vocabulary=_reached(counted, model),
        seconds=seconds,
        memory=memory,
        workers=workers,
        tasks=len(plan.tasks),
    )


def _reached(counted: _Counted | None, model: Model | None) -> int | None:
    """Return the ids that training reached if it saw all pre-tokens of the input."""
    if counted is None or model is None or len(counted.counts) < counted.distinct:
        return None
    return len(model)


# --- documents and bytes


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Expected content of a source."""

    documents: float = 0.0
    text_bytes: float = 0.0
    selected_bytes: float = 0.0


def _estimate_source(
    one_each: bool, files: Sequence[InputFile], samples: Sequence[FileSample]
) -> _Source:
    """Return the content of a source. `one_each`: each file is one document."""
    parts = []
    for compression in {file.compression for file in files}:
        read = [sample for sample in samples if sample.file.compression == compression]
        complete = [sample for sample in read if sample.complete]
        rest = [sample for sample in read if not sample.complete and sample.stored]
        known = {sample.file.url for sample in complete}
        left = [file for file in files if file.compression == compression and file.url not in known]
        parts += [_scale(complete, 1.0), _scale(rest or complete, _factor(left, rest or complete))]
    documents = sum(part.documents for part in parts)
    # Windows lie in large files, so that documents of the many small ones are hardly seen.
    unseen = len(samples) < len(files) and all(sample.rows is None for sample in samples)
    if one_each or (unseen and documents < len(files)):
        documents = len(files)
    return _Source(
        documents=documents,
        text_bytes=sum(part.text_bytes for part in parts),
        selected_bytes=sum(part.selected_bytes for part in parts),
    )


def _factor(files: Sequence[InputFile], samples: Sequence[FileSample]) -> float:
    """Return the content of files as a multiple of that of samples."""
    size = sum(map(planned_size, files))
    rows = [sample for sample in samples if sample.rows is not None]
    found = sum(sample.documents for sample in samples)
    if rows and found:  # some of the rows were read, and the numbers of all are known
        of_files = sum(sample.rows or 0 for sample in rows)
        return of_files / found * size / sum(sample.file.size for sample in rows)
    return size / max(sum(sample.stored for sample in samples), 1)


def _scale(samples: Sequence[FileSample], factor: float) -> _Source:
    text = sum(sample.text_bytes for sample in samples)
    left_out = sum(sample.not_selected_bytes for sample in samples)
    return _Source(
        documents=factor * sum(sample.documents for sample in samples),
        text_bytes=factor * text,
        selected_bytes=factor * (text - left_out),
    )


# --- pre-tokens


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """Pre-tokens of the samples.

    Attributes:
        counts: Those of some of the samples, to train on.
        sampled: Number of distinct ones in all samples.
        distinct: Expected number of distinct ones in the input.
        factor, exponent: Heaps' law.
        mean_bytes: Mean length of a distinct pre-token.
        seconds: Seconds per byte.
    """

    counts: PretokenCounts
    sampled: int
    distinct: int
    factor: float
    exponent: float
    mean_bytes: float
    seconds: float


def _interleave(samples: Sequence[FileSample]) -> Iterator[DocumentBatch]:
    """Yield the documents of the samples in chunks, mixed so that any first part is typical."""
    chunks = [chunk for sample in samples for batch in sample.batches for chunk in _cut(batch)]
    order = sorted(range(len(chunks)), key=lambda i: i * _GOLDEN % 1)
    left = _COUNTED_BYTES
    for i in order:
        if left > 0:
            yield chunks[i]
            left -= int(chunks[i].num_bytes.sum())


def _cut(batch: DocumentBatch) -> Iterator[DocumentBatch]:
    numbers = np.cumsum(batch.num_bytes) // _CHUNK_BYTES
    for number in np.unique(numbers):
        yield batch.select(numbers == number)


def _count(config: BuildConfig, chunks: Sequence[DocumentBatch], text: float) -> _Counted | None:
    """Count the pre-tokens of the samples; `text` is the text of the input to count."""
    rules = _count_rules(config)
    counter = PretokenCounter(rules)
    size = 0
    train_on: PretokenCounts | None = None
    started = time.perf_counter()
    try:
        for chunk in chunks:
            counter.add(chunk)
            size += int(chunk.num_bytes.sum())
            if train_on is None and size >= _TRAINED_BYTES:
                train_on = counter.counts()
        spent = time.perf_counter() - started
        counts = counter.counts()
    finally:
        counter.close()
    distinct = len(counts)
    if not distinct:
        return None
    exponent = _share_in_one(rules, chunks)
    expected = distinct * max(1.0, text / size) ** exponent
    return _Counted(
        counts=counts if train_on is None else train_on,
        sampled=distinct,
        distinct=round(expected),
        factor=distinct / size**exponent,
        exponent=exponent,
        mean_bytes=len(counts.columns()[0]) / distinct,
        seconds=spent / size,
    )


def _share_in_one(rules: CountRules, chunks: Sequence[DocumentBatch]) -> float:
    """Return the share of the distinct pre-tokens that occur in one chunk alone.

    One more chunk is expected to bring as many new ones as each brought that no other contains, so
    this is the exponent of Heaps' law at the end of the sample (Good and Turing's estimate, for
    incidence in sampling units; Chao et al. 2014, "Rarefaction and extrapolation with Hill
    numbers"). Chunks, because pre-tokens come in clusters.
    """
    found = []
    for chunk in chunks:
        counter = PretokenCounter(rules)
        try:
            counter.add(chunk)
            data, offsets, _ = counter.counts().columns()
        finally:
            counter.close()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        found.append(pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers))
    numbers = pc.value_counts(pa.chunked_array(found)).field("counts").to_numpy()
    return float(np.mean(numbers == 1))


def _count_rules(config: BuildConfig) -> CountRules:
    tokenizer = config.tokenizer
    nowhere = Directory(url=config.output_path)
    return CountRules(
        counts=nowhere,
        runs=nowhere,
        pattern=tokenizer.effective_pattern,
        special_tokens=tokenizer.special_tokens,
        shards=1,
        memory=_NO_LIMIT,
        max_pretoken_bytes=config.counts.max_pretoken_bytes,
        on_long_pretoken=config.counts.on_long_pretoken,
        normalizer=tokenizer.normalization_form,
        normalize_quotes=tokenizer.normalize_quotes,
    )


def _count_groups(config: BuildConfig, samples: Sequence[FileSample]) -> int:
    """Return the number of distinct pre-tokens of each group of the samples, added up."""
    rules = replace(
        _count_rules(config),
        sources=tuple(source.name or "" for source in config.input),
        group_by=config.counts.group_by,
    )
    counter = PretokenCounter(rules)
    left = _COUNTED_BYTES
    try:
        for sample in samples:
            for batch in sample.batches if left > 0 else ():
                counter.add(batch, sample.file.source)
                left -= int(batch.num_bytes.sum())
        return len(counter)
    finally:
        counter.close()


def _stored_bytes(config: BuildConfig, counted: _Counted, entries: int) -> int:
    """Return the size of the rows of all shards, with so many entries of groups."""
    grouped = is_grouped(config)
    stored = _STORED_SHARE * counted.distinct * counted.mean_bytes
    if grouped:
        stored += _STORED_GROUP * entries
    if config.counts.document_frequency:
        stored += _STORED_DOCUMENTS * (counted.distinct + entries * grouped)
    return round(stored)


# --- tokens


@dataclass(frozen=True, kw_only=True)
class _Encoded:
    """Tokens, bytes of token files and seconds per byte of text."""

    tokens: float
    stored: float
    seconds: float


def _select_counts(
    config: BuildConfig,
    samples: Sequence[FileSample],
    counted: _Counted,
    given: GivenCounts | None,
) -> TrainingCounts:
    """Return what to train on: given counts if they are small, or some of the samples.

    Counts of samples are mixed, or kept apart for parity, by the rules of the configuration.
    """
    tokenizer = config.tokenizer
    if given is not None and given.rows <= _GIVEN_ROWS:
        return load_training_counts(given, tokenizer)
    section = tokenizer.mixture or tokenizer.parity
    if section is None or (tokenizer.parity is not None and tokenizer.parity.development):
        return TrainingCounts(counts=counted.counts)
    counts = _count_by_name(config, samples, section.by)
    names = sorted({group.source for group in counts.groups})
    try:
        if tokenizer.mixture is not None:
            shares = tokenizer.mixture.shares
            if shares is not None:  # some may be of values that the samples lack
                shares = {name: shares.get(name, 0) for name in names}
            return TrainingCounts(
                counts=counts.mix(shares, temperature=tokenizer.mixture.temperature)
            )
    except TrainingError:  # such as no sampled value with a share
        return TrainingCounts(counts=counted.counts)
    assert tokenizer.parity is not None
    ratios = tokenizer.parity.ratios
    rules = ParityRules(
        ratios=None if ratios is None else {name: ratios[name] for name in names if name in ratios},
        global_merges=tokenizer.parity.global_merges,
        window_size=tokenizer.parity.window_size,
        alpha=tokenizer.parity.alpha,
    )
    return TrainingCounts(counts=counts, parity=rules)


def _count_by_name(config: BuildConfig, samples: Sequence[FileSample], by: str) -> PretokenCounts:
    """Count some of the samples, kept apart by the names of a mixture: sources, or values."""
    every = max(1, sum(sample.text_bytes for sample in samples) // _TRAINED_BYTES)
    chunks = [
        (config.input[sample.file.source].name or "", chunk)
        for sample in samples
        for batch in sample.batches
        for chunk in _cut(batch)
    ][::every]
    counters: dict[str, PretokenCounter] = {}
    try:
        for source, chunk in chunks:
            names = np.array([source] * len(chunk), object)
            if by != "source":
                known = [] if chunk.kept is None else chunk.kept[0].to_pylist()
                names = np.array([value or "" for value in known or [None] * len(chunk)], object)
            for name in dict.fromkeys(names.tolist()):
                if name not in counters:
                    counters[name] = PretokenCounter(_count_rules(config))
                counters[name].add(chunk.select(names == name))
        parts = [_as_group(name, counter.counts()) for name, counter in counters.items()]
    finally:
        for counter in counters.values():
            counter.close()
    return sum_counts([part for part in parts if len(part)] or parts)


def _as_group(name: str, counts: PretokenCounts) -> PretokenCounts:
    """Return counts as those of a single group."""
    keys, offsets, numbers = counts.columns()
    size = len(numbers)
    columns = GroupColumns(np.arange(size + 1), np.zeros(size, np.int32), numbers)
    groups = [Group(name)] if size else []
    return PretokenCounts.from_group_columns(keys, offsets, groups, columns, counts.metadata)


def _train(config: BuildConfig, counts: TrainingCounts) -> Model | None:
    """Train a tokenizer on the samples; None if they are not enough."""
    try:
        return train_model(
            config.tokenizer.with_vocab_size(config.encoded_vocab_size), counts
        ).model
    except BpeError:
        return None


def _encode(config: BuildConfig, model: Model, chunks: Sequence[DocumentBatch]) -> _Encoded | None:
    """Encode samples, from the last on: those to train on were the first."""
    encode = config.encode
    id_type = choose_id_type(encode, model)
    encoder = DocumentEncoder(
        make_tokenizer(model),
        prepend=encode.prepend,
        append=encode.append,
        special_tokens_in_text=encode.special_tokens_in_text,
        dtype=np.uint16 if id_type == "uint16" else np.uint32,
    )
    keeps = any(source.keep_columns for source in config.input)
    if not keeps:  # the field of counts.group_by is not written
        chunks = [replace(chunk, kept=None) for chunk in chunks]
    columns = schema(
        id_type,
        record_ids=any(source.id_field for source in config.input),
        kept=next((chunk.kept.schema for chunk in chunks if chunk.kept is not None), None),
    )
    size = timed = 0
    spent = 0.0
    with TokenFile(_Nowhere(), "sample", columns, {}) as file:
        for chunk in reversed(chunks):
            started = time.perf_counter()
            try:
                file.add(encoder.encode(chunk))
            except BpeError:  # such as a character without an id
                continue
            chunk_bytes = int(chunk.num_bytes.sum())
            # The first chunks fill caches and import modules, which a build does once.
            if size >= _ENCODED_BYTES // 2 or chunk is chunks[0]:
                spent += time.perf_counter() - started
                timed += chunk_bytes
            size += chunk_bytes
            if size >= _ENCODED_BYTES:
                break
        started = time.perf_counter()
        file.finish()
    if not size:
        return None
    return _Encoded(
        tokens=file.tokens / size,
        stored=file.entry["bytes"] / size,
        seconds=spent / max(timed, 1) + (time.perf_counter() - started) / size,
    )


class _Nowhere:
    """Place of a file of which only the size is kept."""

    @contextmanager
    def write(self, name: str) -> Iterator[HashingFile]:
        """Open the file."""
        yield _Size(io.BytesIO())


class _Size(HashingFile):
    """File that only adds up the bytes that are written."""

    def write(self, data: Any) -> int:
        """Count the data."""
        size = memoryview(data).nbytes
        self.size += size
        return size
