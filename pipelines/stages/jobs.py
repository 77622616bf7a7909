"""Jobs of the stages: what workers need to know, from a build's configuration and plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.config.fingerprints import tokens_configuration
from pipelines.errors import ConfigError
from pipelines.stages.context import Run

if TYPE_CHECKING:
    from pipelines.counting.jobs import CountJob
    from pipelines.manifest.stage import Identity
    from pipelines.readers.tasks import SourceReading
    from pipelines.tokenizers.files import Model
    from pipelines.writing.jobs import EncodeJob


_MASK_128 = (1 << 128) - 1


def _count_job(run: Run, identity: Identity, task_hashes: Sequence[int]) -> CountJob:
    from pipelines.counting.jobs import CountJob
    from pipelines.readers.tasks import source_readings

    config = run.config
    tokenizer = config.tokenizer
    return CountJob(
        counts=run.counts,
        rejects=run.rejects,
        configuration=identity.configuration_fingerprint,
        plan_id=run.plan.plan_id(identity.configuration_fingerprint),
        num_tasks=len(task_hashes),
        tasks_hash=sum(task_hashes) & _MASK_128,
        pattern=tokenizer.effective_pattern,
        special_tokens=tokenizer.special_tokens,
        normalizer=tokenizer.normalization_form,
        normalize_quotes=tokenizer.normalize_quotes,
        shards=config.counts.shards,
        memory=config.counts.memory,
        checkpoint_bytes=config.counts.checkpoint_bytes,
        max_pretoken_bytes=config.counts.max_pretoken_bytes,
        on_long_pretoken=config.counts.on_long_pretoken,
        readings=source_readings(
            config.input,
            tokenizer.effective_pattern,
            tokenizer.special_tokens,
            normalizer=tokenizer.normalization_form,
            normalize_quotes=tokenizer.normalize_quotes,
        ),
    )


def encode_configuration(run: Run, model: Model) -> dict[str, Any]:
    """What decides the bytes of the token files, inputs apart."""
    return {
        **tokens_configuration(run.config, model.fingerprint),
        "id_type": run.id_type(model),
    }


def check_affixes(run: Run, model: Model) -> None:
    """Whether what is put around documents are special tokens of the tokenizer."""
    for key in ("prepend", "append"):
        token = getattr(run.config.encode, key)
        if token is not None and token not in model.special_tokens:
            raise ConfigError(
                "What is put around documents is no special token of the tokenizer.",
                expected=f"one of {', '.join(map(repr, model.special_tokens))}, or null",
                found=repr(token),
                where=f"encode.{key}",
                hint=f"Change encode.{key}.",
            )


def encode_job(
    run: Run, identity: Identity, model: Model, plan_id: str, generation: str
) -> EncodeJob:
    """What workers have to know."""
    from pipelines.writing.jobs import EncodeJob

    encode = run.config.encode
    return EncodeJob(
        tokens=run.tokens,
        rejects=run.rejects,
        tokenizer=run.tokenizer_directory,
        tokenizer_fingerprint=model.fingerprint,
        configuration=identity.configuration_fingerprint,
        plan_id=plan_id,
        generation=generation,
        prepend=encode.prepend,
        append=encode.append,
        special_tokens_in_text=encode.special_tokens_in_text,
        id_type=run.id_type(model),
        validation_fraction=encode.validation_fraction,
        readings=readings(run, model),
    )


def readings(run: Run, model: Model) -> tuple[SourceReading, ...]:
    """How each source is read for this tokenizer."""
    from pipelines.readers.tasks import source_readings
    from pipelines.tokenizers.files import cutting_rules

    return source_readings(run.config.input, **cutting_rules(model))
