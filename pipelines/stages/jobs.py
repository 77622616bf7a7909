"""Jobs of the stages, made from a configuration: the complete instructions for workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bpe_core.formats.outline import Outline
from bpe_core.patterns import superword_pattern
from pipelines.accounting import sum_hashes
from pipelines.config import BuildConfig
from pipelines.config.build import EncodeConfig
from pipelines.config.fingerprints import tokens_configuration
from pipelines.config.values import UINT16_IDS
from pipelines.counting.jobs import CountJob, FirstRound
from pipelines.errors import ConfigError, shortened
from pipelines.manifest.names import RUNS
from pipelines.readers.tasks import (
    SourceReading,
    TaskWork,
    keep_columns,
    read_group_field,
    source_readings,
)
from pipelines.rejects.thresholds import RejectLimit
from pipelines.stages.output import Output
from pipelines.storage.directory import Directory
from pipelines.tasks.plan import COLUMN_FORMATS, Plan, planned_size
from pipelines.tokenizers import files as tokenizer_files
from pipelines.tokenizers.files import Model, cutting_rules, format_affixes
from pipelines.tokenizers.sources import missing_tokenizer
from pipelines.writing.jobs import EncodeJob


def list_works(plan: Plan) -> list[TaskWork]:
    """Return the tasks of a plan in the form in which they are sent to workers."""
    return [TaskWork.of_plan(plan, task) for task in plan.tasks]


def count_job(
    config: BuildConfig,
    output: Output,
    plan: Plan,
    works: Sequence[TaskWork],
    configuration: str,
    *,
    shards: int,
) -> CountJob:
    """Return the job that counts.

    Args:
        config: Configuration of the build.
        output: Output of the build.
        plan: Plan of the inputs.
        works: Tasks of the plan.
        configuration: Fingerprint of the canonical configuration of counting.
        shards: Number of shards of the counts.
    """
    tokenizer = config.tokenizer
    sources = tuple(source.name or "" for source in config.input) if is_grouped(config) else ()
    # Runs of an older version, which kept counts of several sources together, are of another plan.
    plan_id = plan.plan_id(f"{configuration}{' by source' if sources else ''}")
    return CountJob(
        counts=output.counts,
        runs=output.counts / RUNS / plan_id,
        rejects=output.rejects,
        configuration=configuration,
        plan_id=plan_id,
        num_tasks=len(works),
        tasks_hash=sum_hashes(work.hash for work in works),
        pattern=tokenizer.effective_pattern,
        special_tokens=tokenizer.special_tokens,
        normalizer=tokenizer.normalization_form,
        normalize_quotes=tokenizer.normalize_quotes,
        shards=shards,
        memory=config.counts.memory,
        # Counts of files are kept as commits, each of which then has one task.
        checkpoint_bytes=0 if config.counts.keep_file_counts else config.counts.checkpoint_bytes,
        max_pretoken_bytes=config.counts.max_pretoken_bytes,
        on_long_pretoken=config.counts.on_long_pretoken,
        sources=sources,
        group_by=config.counts.group_by,
        document_frequency=config.counts.document_frequency,
        readings=count_readings(config),
        reject_limit=RejectLimit(
            fraction=config.encode.max_reject_fraction,
            most_documents=_most_documents(config, plan),
            where=output.rejects.path("count-*.parquet"),
            stage=plan_id,
        ),
    )


def is_grouped(config: BuildConfig) -> bool:
    """Return True if counts are kept apart: by source if there are several, or by a field."""
    return len(config.input) > 1 or config.counts.group_by is not None


def _most_documents(config: BuildConfig, plan: Plan) -> int | None:
    """Return the most documents that files can contain by their sizes, or None if unknown.

    Of compressed files and of columns the sizes say too little.
    """
    most = 0
    for file in plan.files:
        source = config.input[file.source]
        if source.format == "text" and source.separator is None:
            most += 1
        elif file.compression is not None or source.format in COLUMN_FORMATS:
            return None
        else:
            separators = source.separators if source.format == "text" else (b"\n",)
            shortest = min(map(len, separators or (b"",)))
            most += planned_size(file) // (1 + shortest) + 1
    return most


def superwords_job(
    config: BuildConfig,
    output: Output,
    plan: Plan,
    works: Sequence[TaskWork],
    configuration: str,
    fingerprint: str,
    *,
    shards: int,
) -> CountJob:
    """Return the job that counts runs of words with the tokenizer of the first round.

    Args:
        fingerprint: Fingerprint of this tokenizer.

    The other arguments are those of `count_job`. Rejected documents are those of the first count;
    they are noted among the scratch files.
    """
    job = count_job(config, output, plan, works, configuration, shards=shards)
    runs = output.superwords / RUNS / job.plan_id
    pattern = superword_pattern(config.tokenizer.effective_pattern)
    return replace(
        job,
        counts=output.superwords,
        runs=runs,
        rejects=runs,
        pattern=pattern,
        readings=count_readings(config, pattern),
        superwords=FirstRound(directory=output.superwords, fingerprint=fingerprint),
    )


def count_readings(config: BuildConfig, pattern: str | None = None) -> tuple[SourceReading, ...]:
    """Return the settings for reading each source to count it, by a pattern if one is given."""
    tokenizer = config.tokenizer
    readings = source_readings(
        config.input,
        pattern or tokenizer.effective_pattern,
        tokenizer.special_tokens,
        normalizer=tokenizer.normalization_form,
        normalize_quotes=tokenizer.normalize_quotes,
        expect_fields=config.encode.max_reject_fraction < 1,
    )
    return read_group_field(readings, config.counts.group_path)


def encode_job(
    config: BuildConfig,
    output: Output,
    model: Model,
    *,
    configuration: str,
    plan_id: str,
    generation: str,
    kept: pa.Schema | None,
    most_documents: int | None = None,
) -> EncodeJob:
    """Return the job that encodes.

    Args:
        config: Configuration of the build.
        output: Output of the build.
        model: Tokenizer that encodes.
        configuration: Fingerprint of the canonical configuration of encoding.
        plan_id: Id of files, ranges and configuration.
        generation: Generation of the files.
        kept: Columns of records that the files keep, or None.
        most_documents: Kept and rejected documents of the whole dataset, or None if unknown.
    """
    encode = config.encode
    return EncodeJob(
        tokens=output.tokens,
        rejects=output.rejects,
        tokenizer=output.encoder,
        tokenizer_fingerprint=model.fingerprint,
        configuration=configuration,
        plan_id=plan_id,
        generation=generation,
        prepend=encode.prepend,
        append=encode.append,
        special_tokens_in_text=encode.special_tokens_in_text,
        id_type=choose_id_type(encode, model),
        validation_fraction=encode.validation_fraction,
        readings=encode_readings(config, model, kept),
        reject_limit=RejectLimit(
            fraction=encode.max_reject_fraction,
            most_documents=most_documents,
            where=output.rejects.path("*.parquet"),
            stage=plan_id,
        ),
    )


def encode_configuration(config: BuildConfig, model: Model) -> dict[str, Any]:
    """Return the canonical configuration of encoding: all that determines its bytes but inputs."""
    return {
        **tokens_configuration(config, model.fingerprint),
        "id_type": choose_id_type(config.encode, model),
    }


def encode_readings(
    config: BuildConfig, model: Model, kept: pa.Schema | None = None
) -> tuple[SourceReading, ...]:
    """Return the settings for reading each source to encode it with a tokenizer.

    `kept` are the columns of records that token files keep, or None if they are not read.
    """
    readings = source_readings(
        config.input,
        **cutting_rules(model),
        expect_fields=config.encode.max_reject_fraction < 1,
    )
    return keep_columns(readings, config.input, kept)


def load_model(encoder: Directory) -> Model:
    """Load the tokenizer to encode with.

    Raises:
        ConfigError: The directory contains none.
    """
    try:
        return tokenizer_files.load_model(encoder)
    except (FileNotFoundError, NotADirectoryError):
        raise missing_tokenizer(encoder, f"tokenizer.path: {encoder.url}") from None


def choose_id_type(encode: EncodeConfig, model: Model | Outline) -> str:
    """Return the configured type of ids or, for "auto", the smallest that fits a tokenizer.

    Raises:
        ConfigError: The ids do not fit the configured type.
    """
    asked = encode.id_type
    if asked == "auto":
        return "uint16" if model.max_id < UINT16_IDS else "uint32"
    if asked == "uint16" and model.max_id >= UINT16_IDS:
        raise ConfigError(
            "The ids do not fit the configured type.",
            expected=f"uint32 or auto, for ids up to {model.max_id}",
            found="uint16",
            where="encode.id_type",
            hint="Change encode.id_type.",
        )
    return asked


def check_affixes(encode: EncodeConfig, model: Model) -> None:
    """Check that the tokens put around documents are special tokens of a tokenizer.

    Raises:
        ConfigError: One is not.
    """
    for key in ("prepend", "append"):
        token = getattr(encode, key)
        if token is not None and token not in model.special_tokens:
            raise ConfigError(
                "A token to put around documents is not a special token of the tokenizer.",
                expected=f"one of {shortened(list(map(repr, model.special_tokens)), 12)}, or null",
                found=repr(token),
                where=f"encode.{key}",
                hint=f"This tokenizer suggests {format_affixes(model)}.",
            )
