"""The PTransforms for users' pipelines; those of a build are in `stages/transforms.py`.

Each puts a few steps together. What the steps do is in `beam/`, and below that in plain functions
that work without Beam::

    documents = pipeline | ReadDocuments(sources=[SourceConfig(files=["corpus/*.txt"])])
    counted = documents | CountPretokens(output="out/counts")
    counted.shards, counted.rejects
    encoded = documents | EncodeDocuments(tokenizer="out/tokenizer", append="<|endoftext|>")
    encoded.tokens, encoded.rejects
    shards = encoded.tokens | WriteTokenShards(output="out/tokens", num_shards=16)

Documents may be `DocumentBatch`, `str`, `bytes`, or records: `beam.Row`, a NamedTuple or a dict.
Documents that are not a `DocumentBatch` have the source "" and the offset 0.

CountPretokens and WriteTokenShards take bounded input in the global window, and every element is in
their files exactly once: counts and tokens go to sorted runs, and only descriptors of the runs are
shuffled, so the runs of a bundle that failed or was repeated are in no shard. Totals that come on
another way show that nothing is missing. A listing of the files is written last. Nothing is
resumed. Both are as parallel as their input, then as there are shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import apache_beam as beam
from apache_beam.typehints import with_output_types

from bpe_core.errors import BpeError
from bpe_core.short_repr import short_repr
from pipelines.batches import DocumentBatch, Reject
from pipelines.beam import coders  # noqa: F401  registers them
from pipelines.beam.count_documents import CountDocuments
from pipelines.beam.elements import check_element_type
from pipelines.beam.encode_documents import EncodeBatches
from pipelines.beam.parameters import ElementRules, ParameterizedTransform, TextRules, wrong_value
from pipelines.beam.read_tasks import ReadTask, ReadTasks
from pipelines.beam.rows import (
    COUNT_ROW,
    REJECT_ROW,
    SHARD_ROW,
    TOKEN_ROW,
    check_rows,
    reject_row,
    token_rows,
)
from pipelines.beam.shards import claim_files, write_shards
from pipelines.beam.write_runs import AddUpRows, WriteRuns
from pipelines.config import SourceConfig
from pipelines.counting.documents import CountShards
from pipelines.counting.jobs import CountRules
from pipelines.readers.source_limits import limit_files
from pipelines.readers.tasks import TaskWork, source_readings
from pipelines.storage.directory import Directory
from pipelines.tasks.listing import list_files
from pipelines.tasks.plan import plan_tasks
from pipelines.tokenizers.files import load_model
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_shards import TokenShards

__all__ = ["CountPretokens", "EncodeDocuments", "ReadDocuments", "WriteTokenShards"]


@with_output_types(DocumentBatch)
@short_repr
@dataclass(kw_only=True)
class ReadDocuments(TextRules, ParameterizedTransform):
    """Files → batches of documents (`DocumentBatch`).

    Bounded. Files are listed, and the ends of limits found, when the pipeline is built. At most as
    parallel as there are tasks.

    Attributes:
        sources: The files, and how to read them.
        pattern, special_tokens, normalizer, normalize_quotes: Those of the tokenizer that will
            encode the documents. They decide where documents of more than 4 MB are cut into pieces;
            a transform refuses pieces that were cut for another tokenizer.

    Raises:
        ConfigError: A parameter is wrong.
        InputError: A file is missing or cannot be read.
    """

    sources: Sequence[SourceConfig]

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[DocumentBatch]:
        rules = self.check_parameters()
        _check_sources(self)
        listed = [f for i, source in enumerate(self.sources) for f in list_files(source, index=i)]
        files, _ = limit_files(listed, self.sources)
        plan = plan_tasks(files, self.sources)
        read = ReadTask(source_readings(self.sources, **rules))
        return (
            begin
            | ReadTasks(works=[TaskWork.of_plan(plan, task) for task in plan.tasks])
            | "Read" >> beam.ParDo(read).with_output_types(DocumentBatch)
        )

    def display_data(self) -> dict[str, Any]:
        """Return the parameters; of sources their files, formats and policies."""
        sources = "; ".join(map(_describe_source, self.sources))
        return {**super().display_data(), "sources": sources}


class Counted(NamedTuple):
    """The outputs of `CountPretokens`: a row for each shard of counts, and rejected documents."""

    shards: beam.PCollection[beam.Row]
    rejects: beam.PCollection[Reject]


@short_repr
@dataclass(kw_only=True)
class CountPretokens(ElementRules, TextRules, ParameterizedTransform):
    """Documents → shards of counts, from which tokenizers can be trained.

    Returns `shards`, a row (name, rows, pretokens, bytes, xxh3_128) for each file, and `rejects`
    (`Reject`). The listing is `counts-shards.json`; `PretokenCounts.load(output)` reads the counts.

    Attributes:
        output: Directory of the counts, which must not contain any.
        pattern, special_tokens, normalizer, normalize_quotes: Those of the tokenizer to train.
            `ReadDocuments` must have the same for documents of many megabytes.
        shards: Number of files.
        memory: Bytes for the tables of one process.
        max_pretoken_bytes, on_long_pretoken: "error" or "skip" for longer pre-tokens.
        text_field, id_field, invalid_utf8: See `ElementRules`.
        storage_options: Options of the file system of `output`. Values may be `${NAME}`, from the
            environment of the workers.

    Raises:
        ConfigError: The elements are not documents, or a parameter is wrong.
        OutputError: The output already contains counts.
        AccountingError: On a worker, if documents are missing or were counted twice.
    """

    output: str
    shards: int = 64
    memory: int = 512 << 20
    max_pretoken_bytes: int = 1 << 20
    on_long_pretoken: Literal["error", "skip"] = "error"
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def expand(self, documents: beam.PCollection[Any]) -> Counted:
        rules = self.check_parameters()
        invalid_utf8 = rules.pop("invalid_utf8")
        check_element_type(documents.element_type, self.text_field, self.id_field)
        output = Directory(url=self.output, storage_options=self.storage_options)
        files = CountShards.files_of(output, rules["shards"])
        claim_files(documents, files, "CountPretokens")
        job = CountRules(counts=files.output, runs=files.runs, **rules)
        count = CountDocuments(job, self.text_field, self.id_field, invalid_utf8)
        counted = documents | "Count" >> beam.ParDo(count).with_output_types(
            tuple[int, bytes], totals=bytes, rejects=Reject
        ).with_outputs("totals", "rejects", main="sections")
        kind = CountShards(rules=job)
        shards = write_shards(counted.sections, counted.totals, files, kind, COUNT_ROW)
        return Counted(shards=shards, rejects=counted.rejects)


class Encoded(NamedTuple):
    """The outputs of `EncodeDocuments`: `TokenRows` or rows, and rejected documents."""

    tokens: beam.PCollection[Any]
    rejects: beam.PCollection[Any]


@short_repr
@dataclass(kw_only=True)
class EncodeDocuments(ElementRules, ParameterizedTransform):
    """Documents → `tokens` (`TokenRows`, or rows) and `rejects` (`Reject`, or rows).

    Attributes:
        tokenizer: A directory that a build, or `save` of a tokenizer, wrote.
        prepend, append: Special tokens to put around each document.
        special_tokens_in_text: "split", "text", "reject" or "error".
        as_rows: Return a `beam.Row(input_ids, num_tokens, num_bytes, source, offset, part, id,
            hash)` for each document, or piece of a long one, instead of batches, and rejects as
            `beam.Row(source, offset, length, reason, message, first_bytes, id)`.
        text_field, id_field, invalid_utf8: See `ElementRules`.
        storage_options: Options of the file system of `tokenizer`. Values may be `${NAME}`, from
            the environment of the workers.

    Raises:
        ConfigError: The elements are not documents, or a parameter is wrong.
    """

    tokenizer: str
    prepend: str | None = None
    append: str | None = None
    special_tokens_in_text: Literal["split", "text", "reject", "error"] = "split"
    as_rows: bool = False
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def expand(self, documents: beam.PCollection[Any]) -> Encoded:
        rules = self.check_parameters()
        check_element_type(documents.element_type, self.text_field, self.id_field)
        tokenizer = Directory(url=self.tokenizer, storage_options=self.storage_options)
        _check_affixes(self, tokenizer)
        encode = EncodeBatches(
            tokenizer, text_field=self.text_field, id_field=self.id_field, **rules
        )
        encoded = documents | "Encode" >> beam.ParDo(encode).with_output_types(
            TokenRows, rejects=Reject
        ).with_outputs("rejects", main="tokens")
        if not self.as_rows:
            return Encoded(tokens=encoded.tokens, rejects=encoded.rejects)
        # Steps of their own: Beam loses rows that a step yields in finish_bundle if the next fused
        # step takes them in batches, as WriteToParquet does.
        return Encoded(
            tokens=encoded.tokens
            | "TokensAsRows" >> beam.FlatMap(token_rows).with_output_types(TOKEN_ROW),
            rejects=encoded.rejects
            | "RejectsAsRows" >> beam.Map(reject_row).with_output_types(REJECT_ROW),
        )


@with_output_types(SHARD_ROW)
@short_repr
@dataclass(kw_only=True)
class WriteTokenShards(ParameterizedTransform):
    """Token batches, or rows, of `EncodeDocuments` → token files, and a row for each of them.

    Rows need at least `input_ids` and `num_bytes`. The files have the names, the columns and the
    format of those of a build. Documents are ordered by the hash of their text, then by everything
    else, and their pieces follow each other. So the bytes do not depend on the order of the input,
    its bundles or the workers.

    Returns `beam.Row(name, rows, documents, tokens, text_bytes, bytes, xxh3_128)` for each file.
    The listing is `train-shards.json`, or that of another split; several splits may have one
    directory.

    Attributes:
        output: Directory of the files, which must not contain token files of the split.
        num_shards: Number of files.
        split: First part of their names.
        id_type: "uint16" or "uint32"; "auto": that of the token batches, uint32 for rows.
        storage_options: Options of the file system of `output`. Values may be `${NAME}`, from the
            environment of the workers.

    Raises:
        ConfigError: The elements are not tokens, or a parameter is wrong.
        OutputError: The output already contains token files of the split.
        AccountingError: On a worker, if rows are missing or were written twice.
    """

    output: str
    num_shards: int
    split: str = "train"
    id_type: Literal["auto", "uint16", "uint32"] = "auto"
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def expand(self, tokens: beam.PCollection[Any]) -> beam.PCollection[beam.Row]:
        self.check_parameters()
        check_rows(tokens.element_type)
        output = Directory(url=self.output, storage_options=self.storage_options)
        files = TokenShards.files_of(output, self.num_shards, self.split)
        claim_files(tokens, files, "WriteTokenShards")
        totals = tokens | "AddUp" >> beam.ParDo(AddUpRows()).with_output_types(bytes)
        sections = tokens | "WriteRuns" >> beam.ParDo(WriteRuns(files)).with_output_types(
            tuple[int, bytes]
        )
        kind = TokenShards(files=files, id_type=self.id_type)
        return write_shards(sections, totals, files, kind, SHARD_ROW)


def _check_sources(transform: ReadDocuments) -> None:
    """Raise ConfigError unless the sources are a list of SourceConfig."""
    sources = transform.sources
    is_list = isinstance(sources, list | tuple)
    given = sources if is_list else [sources]
    wrong = [type(source).__name__ for source in given if not isinstance(source, SourceConfig)]
    if wrong or not is_list:
        raise wrong_value(
            transform,
            "sources",
            expected="a list of SourceConfig",
            found=f"a list with {wrong[0]}" if is_list else type(sources).__name__,
            hint='Write sources=[SourceConfig(files=["corpus/*.txt"])].',
        )
    if any(source.keep_columns for source in transform.sources):
        raise wrong_value(
            transform,
            "sources",
            expected="sources without keep_columns, which only builds keep",
            found="keep_columns",
            hint="Remove it, or run a build: `beam-bpe build CONFIG`.",
        )


def _describe_source(source: SourceConfig) -> str:
    files = ", ".join(source.files)
    policy = f"(invalid UTF-8: {source.invalid_utf8})"
    return f"{source.name or ''} {source.format} {files} {policy}".strip()


def _check_affixes(transform: EncodeDocuments, tokenizer: Directory) -> None:
    """Check prepend and append if the tokenizer can be read here, and not on workers alone."""
    given = {"prepend": transform.prepend, "append": transform.append}
    if not any(given.values()):
        return
    try:
        known = load_model(tokenizer).special_tokens
    except (OSError, BpeError):
        return
    for name, token in given.items():
        if token is not None and token not in known:
            choices = ", ".join(map(repr, known)) or "there is none"
            expected = f"a special token: {choices}"
            raise wrong_value(transform, name, expected, repr(token))
