"""The PTransforms for pipelines of one's own; those of a build are in `stages/transforms.py`.

Each is a few lines over plain functions that work without Beam::

    documents = pipeline | ReadDocuments(sources=[SourceConfig(files=["corpus/*.txt"])])
    counted = documents | CountPretokens(output="out/counts")
    counted.shards, counted.rejects
    encoded = documents | EncodeDocuments(tokenizer="out/tokenizer", append="<|endoftext|>")
    encoded.tokens, encoded.rejects
    shards = encoded.tokens | WriteTokenShards(output="out/tokens", num_shards=16)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import with_output_types

from bpe_core.errors import BpeError
from pipelines.batches import DocumentBatch, Reject
from pipelines.beam import coders  # noqa: F401  registers them
from pipelines.beam.dofn import Work
from pipelines.beam.elements import DocumentFn, check_element_type, element_options
from pipelines.beam.metrics import beam_meter
from pipelines.beam.parameters import (
    check_choices,
    check_name,
    check_positive,
    check_special_tokens,
    shown,
    wrong_value,
)
from pipelines.beam.read_tasks import ReadTasks
from pipelines.beam.rows import (
    COUNT_ROW,
    REJECT_ROW,
    SHARD_ROW,
    TOKEN_ROW,
    RowElements,
    check_rows,
    reject_row,
    token_rows,
)
from pipelines.beam.shards import check_global, check_vacant, claim, new_runs, write_shards
from pipelines.config import SourceConfig
from pipelines.config.values import UINT16_IDS
from pipelines.counting.documents import DocumentCounter, DocumentCounting, total_of_counts
from pipelines.errors import InputError
from pipelines.readers.options import ReadOptions
from pipelines.readers.source_limits import limit_files
from pipelines.readers.tasks import SourceReading, TaskWork, read_task, source_readings
from pipelines.storage.directory import Directory
from pipelines.tasks.listing import list_files
from pipelines.tasks.plan import plan_tasks
from pipelines.tokenizers.files import cutting_rules, load_model, tokenizer_of
from pipelines.writing.encoder import DocumentEncoder
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_order import TokenTable
from pipelines.writing.token_runs import RowRuns
from pipelines.writing.token_shards import RowTotals, ShardJob, descriptors, total_of_rows

__all__ = ["CountPretokens", "EncodeDocuments", "ReadDocuments", "WriteTokenShards"]


@with_output_types(DocumentBatch)
@dataclass(kw_only=True)
class ReadDocuments(beam.PTransform):  # type: ignore[misc]
    """Files → batches of documents (`DocumentBatch`), for pipelines of one's own.

    Bounded. Files are listed, and the ends of limits found, when the pipeline is built; at most as
    parallel as there are tasks.

    Attributes:
        sources: which files, and how they are read.
        pattern, special_tokens, normalizer, normalize_quotes: of the tokenizer that is to encode
            them; they decide where documents of more than 4 MB are cut into pieces, and a
            transform that takes pieces refuses those that were cut for others.
    """

    sources: Sequence[SourceConfig]
    pattern: str = "gpt2"
    special_tokens: Sequence[str] = ()
    normalizer: str | None = None
    normalize_quotes: bool = False

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[DocumentBatch]:
        check_special_tokens(self)
        self._check_sources()
        files = [
            file for i, source in enumerate(self.sources) for file in list_files(source, index=i)
        ]
        files, _ = limit_files(files, self.sources)
        plan = plan_tasks(files, self.sources)
        readings = source_readings(
            self.sources,
            self.pattern,
            self.special_tokens,
            normalizer=self.normalizer,
            normalize_quotes=self.normalize_quotes,
        )
        return (
            begin
            | ReadTasks(works=[TaskWork.of_plan(plan, task) for task in plan.tasks])
            | "Read" >> beam.ParDo(_ReadTask(readings)).with_output_types(DocumentBatch)
        )

    def _check_sources(self) -> None:
        given = self.sources
        if isinstance(given, list | tuple) and all(isinstance(s, SourceConfig) for s in given):
            return
        one_is_wrong = isinstance(given, list | tuple)
        wrong = [s for s in given if not isinstance(s, SourceConfig)] if one_is_wrong else [given]
        raise wrong_value(
            self,
            "sources",
            expected="a list of SourceConfig",
            found=f"{'a list with ' if one_is_wrong else ''}{type(wrong[0]).__name__}",
            hint='Write sources=[SourceConfig(files=["corpus/*.txt"])].',
        )

    def display_data(self) -> dict[str, Any]:
        """What is read; of sources their files, forms and policies."""
        shown_sources = [
            f"{source.name or ''} {source.format} {', '.join(source.files)} "
            f"(invalid UTF-8: {source.invalid_utf8})".strip()
            for source in self.sources
        ]
        return {**shown(self), "sources": "; ".join(shown_sources)}


class Counted(NamedTuple):
    """What `CountPretokens` gives: a row for each shard of counts, and rejected documents."""

    shards: beam.PCollection[beam.Row]
    rejects: beam.PCollection[Reject]


@dataclass(kw_only=True)
class CountPretokens(beam.PTransform):  # type: ignore[misc]
    """Documents → shards of counts, files from which tokenizers can be trained.

    Takes `DocumentBatch`, `str`, `bytes`, or records: `beam.Row`, a NamedTuple or a dict. Gives
    `shards`, a row (name, rows, pretokens, bytes, xxh3_128) for each file, and `rejects`
    (`Reject`). `counts-shards.json` is written last and lists the files with the totals. Read them
    with `PretokenCounts.load(output)`.

    Bounded input in the global window. Exactly once: run files hold the counts, and only their
    descriptors go through a shuffle, so what an attempt of a bundle has left that failed or came
    twice is in no shard. That all documents are in every shard is shown by their number and the
    sum of their hashes. There is no resuming. As parallel as the input, then as there are shards.

    Attributes:
        output: directory of the counts, in which no counts are yet.
        pattern, special_tokens, normalizer, normalize_quotes: as of the tokenizer that is to be
            trained; documents of many megabytes that `ReadDocuments` gave must have been read
            with the same.
        shards: number of files.
        memory: bytes for the tables of one process.
        max_pretoken_bytes, on_long_pretoken: "error" or "skip" for longer pre-tokens.
        text_field, id_field: of records, the fields that are the text and the document's own id.
        invalid_utf8: "reject", "replace" or "error", for documents that come as elements.
        storage_options: for the file system of `output`; values may be `${NAME}`, from the
            environment of the workers.

    Raises:
        ConfigError: the elements are no documents, or an attribute is wrong.
        OutputError: there are other counts in `output`.
        AccountingError: on a worker, if documents are missing or there twice.
    """

    output: str
    pattern: str = "gpt2"
    special_tokens: Sequence[str] = ()
    normalizer: str | None = None
    normalize_quotes: bool = False
    shards: int = 64
    memory: int = 512 << 20
    max_pretoken_bytes: int = 1 << 20
    on_long_pretoken: Literal["error", "skip"] = "error"
    text_field: str = "text"
    id_field: str | None = None
    invalid_utf8: Literal["reject", "replace", "error"] = "reject"
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def expand(self, documents: beam.PCollection[Any]) -> Counted:
        check_positive(self, "shards", "memory", "max_pretoken_bytes")
        check_choices(self, "on_long_pretoken", "invalid_utf8")
        check_special_tokens(self)
        check_global(documents, "CountPretokens")
        check_element_type(documents.element_type, self.text_field, self.id_field)
        options = element_options(
            self.pattern,
            self.special_tokens,
            normalizer=self.normalizer,
            normalize_quotes=self.normalize_quotes,
            invalid_utf8=self.invalid_utf8,
        )
        output = Directory(url=self.output, storage_options=self.storage_options)
        job = DocumentCounting(
            counts=output,
            run_directory=new_runs(output),
            pattern=self.pattern,
            special_tokens=tuple(self.special_tokens),
            normalizer=self.normalizer,
            normalize_quotes=self.normalize_quotes,
            shards=self.shards,
            memory=self.memory,
            max_pretoken_bytes=self.max_pretoken_bytes,
            on_long_pretoken=self.on_long_pretoken,
        )
        check_vacant(output, job.names, job.listing)
        claim(documents.pipeline, output, job.listing)
        count = _CountDocuments(job, options, self.text_field, self.id_field)
        counted = documents | "Count" >> beam.ParDo(count).with_output_types(
            tuple[int, bytes], totals=bytes, rejects=Reject
        ).with_outputs("totals", "rejects", main="sections")
        shards = write_shards(counted.sections, counted.totals, job, total_of_counts, COUNT_ROW)
        return Counted(shards=shards, rejects=counted.rejects)

    def display_data(self) -> dict[str, Any]:
        """All attributes but storage options."""
        return shown(self)


class Encoded(NamedTuple):
    """What `EncodeDocuments` gives: `TokenRows` or rows, and rejected documents."""

    tokens: beam.PCollection[Any]
    rejects: beam.PCollection[Any]


@dataclass(kw_only=True)
class EncodeDocuments(beam.PTransform):  # type: ignore[misc]
    """Documents → `tokens` (`TokenRows`, or rows) and `rejects` (`Reject`, or rows).

    Takes `DocumentBatch`, `str`, `bytes`, or records: `beam.Row`, a NamedTuple or a dict. Documents
    that come as such elements have the source "" and the offset 0, and their own id if they have
    one.

    Attributes:
        tokenizer: a directory that `save` of a tokenizer, or a build, wrote.
        prepend, append: special tokens put around each document.
        special_tokens_in_text: "split", "text", "reject" or "error".
        as_rows: give a `beam.Row(input_ids, num_tokens, num_bytes, source, offset, part, id,
            hash)` for each document, or piece of a long one, instead of batches, and rejects as
            `beam.Row(source, offset, length, reason, message, first_bytes, id)`.
        text_field, id_field: of records, the fields that are the text and the document's own id.
        invalid_utf8: "reject", "replace" or "error", for documents that come as elements.
        storage_options: for the file system of `tokenizer`; values may be `${NAME}`, from the
            environment of the workers.

    Raises:
        ConfigError: the elements are no documents, or an attribute is wrong.
    """

    tokenizer: str
    prepend: str | None = None
    append: str | None = None
    special_tokens_in_text: Literal["split", "text", "reject", "error"] = "split"
    as_rows: bool = False
    text_field: str = "text"
    id_field: str | None = None
    invalid_utf8: Literal["reject", "replace", "error"] = "reject"
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def expand(self, documents: beam.PCollection[Any]) -> Encoded:
        check_choices(self, "special_tokens_in_text", "invalid_utf8")
        check_element_type(documents.element_type, self.text_field, self.id_field)
        self._check_affixes()
        encoded = documents | "Encode" >> beam.ParDo(_EncodeDocuments(self)).with_output_types(
            TokenRows, rejects=Reject
        ).with_outputs("rejects", main="tokens")
        if not self.as_rows:
            return Encoded(tokens=encoded.tokens, rejects=encoded.rejects)
        # Steps of their own: of what a step gives at the end of a bundle Beam loses rows where the
        # next step takes them in batches, as WriteToParquet does.
        return Encoded(
            tokens=encoded.tokens
            | "TokensAsRows" >> beam.FlatMap(token_rows).with_output_types(TOKEN_ROW),
            rejects=encoded.rejects
            | "RejectsAsRows" >> beam.Map(reject_row).with_output_types(REJECT_ROW),
        )

    def _check_affixes(self) -> None:
        """Where the tokenizer can be seen, which may be on the workers alone."""
        if self.prepend is None and self.append is None:
            return
        try:
            model = load_model(Directory(url=self.tokenizer, storage_options=self.storage_options))
        except (OSError, BpeError):
            return
        for name in ("prepend", "append"):
            token = getattr(self, name)
            if token is not None and token not in model.special_tokens:
                known = ", ".join(map(repr, model.special_tokens)) or "none"
                expected = f"a special token of the tokenizer, of which there are {known}"
                raise wrong_value(self, name, expected, repr(token))

    def display_data(self) -> dict[str, Any]:
        """All attributes but storage options."""
        return shown(self)


@with_output_types(SHARD_ROW)
@dataclass(kw_only=True)
class WriteTokenShards(beam.PTransform):  # type: ignore[misc]
    """Token batches, or rows, of `EncodeDocuments` → token files; gives a row for each of them.

    Takes `TokenRows`, or rows with at least `input_ids` and `num_bytes`. The files have the names,
    the columns and the form of those of a build; documents are ordered by the hash of their text,
    then by their place and everything else, their pieces following each other. So their bytes are
    the same whatever the order of the input, its bundles or the number of workers.

    Gives `beam.Row(name, rows, documents, tokens, text_bytes, bytes, xxh3_128)` for each file.
    `train-shards.json`, or that of another split, is written last and lists the files with the
    totals. Several splits may have one directory.

    Bounded input in the global window. Exactly once, as `CountPretokens`: run files hold the
    tokens, and only their descriptors go through a shuffle. Rows and tokens that go in are counted
    beside that and must be those that come out. There is no resuming. As parallel as the input,
    then as there are files.

    Attributes:
        output: directory of the files, in which no token files are yet.
        num_shards: number of files.
        split: first part of their names.
        id_type: "uint16" or "uint32"; "auto": that of the token batches, uint32 for rows.
        storage_options: for the file system of `output`; values may be `${NAME}`, from the
            environment of the workers.

    Raises:
        ConfigError: the elements are no tokens, or an attribute is wrong.
        OutputError: there are other token files in `output`.
        AccountingError: on a worker, if rows are missing or there twice.
    """

    output: str
    num_shards: int
    split: str = "train"
    id_type: Literal["auto", "uint16", "uint32"] = "auto"
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def expand(self, tokens: beam.PCollection[Any]) -> beam.PCollection[beam.Row]:
        check_positive(self, "num_shards")
        check_choices(self, "id_type")
        check_name(self, "split")
        check_rows(tokens.element_type)
        check_global(tokens, "WriteTokenShards")
        output = Directory(url=self.output, storage_options=self.storage_options)
        job = ShardJob(
            output=output,
            runs=new_runs(output),
            shards=self.num_shards,
            split=self.split,
            id_type=self.id_type,
        )
        check_vacant(output, job.names, job.listing)
        claim(tokens.pipeline, output, job.listing)
        totals = tokens | "AddUp" >> beam.ParDo(_AddUpRows()).with_output_types(bytes)
        sections = tokens | "WriteRuns" >> beam.ParDo(_WriteRuns(job)).with_output_types(
            tuple[int, bytes]
        )
        return write_shards(sections, totals, job, total_of_rows, SHARD_ROW)

    def display_data(self) -> dict[str, Any]:
        """All attributes but storage options."""
        return shown(self)


# --- what runs on workers --------------------------------------------------------------------


class _ReadTask(Work):
    def __init__(self, readings: Sequence[SourceReading]) -> None:
        super().__init__()
        self._readings = readings

    def process(self, descriptor: bytes) -> Iterator[DocumentBatch]:
        meter = beam_meter()
        work = TaskWork.from_bytes(descriptor)
        for batch in meter.timed("read", read_task(work, self._readings)):
            meter.add_batch(batch)
            yield batch
        meter.finish_task()


class _EncodeDocuments(DocumentFn):
    consumer = "the tokenizer of EncodeDocuments"

    def __init__(self, transform: EncodeDocuments) -> None:
        super().__init__(transform.text_field, transform.id_field)
        self._transform = transform

    def setup(self) -> None:
        super().setup()
        asked = self._transform
        directory = Directory(url=asked.tokenizer, storage_options=asked.storage_options)
        try:
            model = load_model(directory)
        except FileNotFoundError:
            raise InputError(
                "There is no tokenizer.",
                expected="a directory that `save` of a tokenizer, or a build, wrote",
                found="no tokenizer.arrow and no char_bpe.json",
                where=asked.tokenizer,
                hint="Correct `tokenizer`; a build's is its directory `tokenizer`, and all workers "
                "must reach it.",
            ) from None
        self._encoder = DocumentEncoder(
            tokenizer_of(model),
            prepend=asked.prepend,
            append=asked.append,
            special_tokens_in_text=asked.special_tokens_in_text,
            dtype=np.uint16 if model.max_id < UINT16_IDS else np.uint32,
        )
        self.options = element_options(**cutting_rules(model), invalid_utf8=asked.invalid_utf8)

    def take(self, batch: DocumentBatch) -> Iterator[Any]:
        meter = beam_meter()
        with meter.time("encode"):
            kept = self._encoder.refuse(batch)
        meter.add_batch(kept)
        for reject in kept.rejects:
            yield beam.pvalue.TaggedOutput("rejects", reject)
        if not len(kept):
            return
        with meter.time("encode"):
            rows = self._encoder.encode(kept)
        meter.add(tokens=len(rows.ids))
        meter.tell_times()
        yield rows


class _CountDocuments(DocumentFn):
    """The table belongs to one bundle attempt; of one that fails no descriptor is known."""

    consumer = "CountPretokens"

    def __init__(
        self,
        job: DocumentCounting,
        options: ReadOptions,
        text_field: str,
        id_field: str | None,
    ) -> None:
        super().__init__(text_field, id_field)
        self.options = options
        self._job = job
        self._counter: DocumentCounter | None = None

    def start_bundle(self) -> None:
        super().start_bundle()
        if self._counter is not None:  # an attempt before this one failed
            self._counter.close()
        self._counter = DocumentCounter(self._job, beam_meter())

    def take(self, batch: DocumentBatch) -> Iterator[Any]:
        assert self._counter is not None
        self._counter.add(batch)
        for reject in batch.rejects:
            yield beam.pvalue.TaggedOutput("rejects", reject)

    def finish_bundle(self) -> Iterator[Any]:
        assert self._counter is not None
        yield from super().finish_bundle()
        sections, totals = self._counter.finish()
        for section in sections:
            yield GlobalWindows.windowed_value_at_end_of_window(section)
        yield beam.pvalue.TaggedOutput(
            "totals", GlobalWindows.windowed_value_at_end_of_window(totals.to_bytes())
        )
        self._counter.close()
        self._counter = None


class _AddUpRows(beam.DoFn):  # type: ignore[misc]
    """Totals beside the runs, so that neither can lack what the other has."""

    def start_bundle(self) -> None:
        self._totals = RowTotals()
        self._elements = RowElements()

    def process(self, element: Any) -> None:
        if type(element) is TokenRows:
            self._totals = RowTotals.sum_of((self._totals, RowTotals.of(element)))
        elif self._elements.add(element):
            self._add_elements()

    def finish_bundle(self) -> Iterator[Any]:
        self._add_elements()
        yield GlobalWindows.windowed_value_at_end_of_window(self._totals.to_bytes())

    def _add_elements(self) -> None:
        self._totals = RowTotals.sum_of((self._totals, self._elements.totals()))
        self._elements.clear()


class _WriteRuns(Work):
    """Runs belong to one bundle attempt; of one that fails no descriptor is known."""

    def __init__(self, job: ShardJob) -> None:
        super().__init__()
        self._job = job

    def start_bundle(self) -> None:
        self._runs = RowRuns(self._job.runs, self._job.shards)
        self._elements = RowElements()
        self._meter = beam_meter()

    def process(self, element: Any) -> None:
        if type(element) is TokenRows:
            self._add(element)
        elif self._elements.add(element):
            self._add(self._elements.rows())

    def _add(self, rows: TokenRows | TokenTable) -> None:
        with self._meter.time("write"):
            self._runs.add(rows)

    def finish_bundle(self) -> Iterator[Any]:
        self._add(self._elements.rows())
        with self._meter.time("write"):
            sections = self._runs.finish()
        self._meter.tell_times()
        for descriptor in descriptors(sections):
            yield GlobalWindows.windowed_value_at_end_of_window(descriptor)
