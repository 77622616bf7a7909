"""Plan of a build: the files, work and output that follow from the sizes of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from bpe_core.formats.outline import Outline
from bpe_core.model import TokenizerModel
from bpe_core.patterns import Pattern, Tier, resolve_pattern
from pipelines.config import BuildConfig
from pipelines.config.fingerprints import (
    counts_configuration,
    tokenizer_configuration,
    tokens_configuration,
)
from pipelines.config.values import UINT16_IDS
from pipelines.counting.training_counts import check_groups
from pipelines.errors import ConfigError, DifferentConfigurationError, OutputError, PipelineError
from pipelines.manifest import generations
from pipelines.manifest.models import Manifest, TokensManifest
from pipelines.manifest.names import BASE, MANIFEST, PLAN, token_file_name
from pipelines.manifest.stage import COUNT, ENCODE, SUPERWORDS, TRAIN, Identity, Stage
from pipelines.manifest.stage_comparison import find_finished_manifest
from pipelines.manifest.stage_records import load_declaration, load_manifest
from pipelines.stages.estimates import Estimate
from pipelines.stages.growth import find_former_training
from pipelines.stages.imports import load_encoder, outline_encoder
from pipelines.stages.inputs import Inputs
from pipelines.stages.jobs import choose_id_type
from pipelines.stages.output import Output
from pipelines.stages.probe import Probe, probe_input
from pipelines.stages.summary import BuildPlan, PlannedFile
from pipelines.stages.superwords import superwords_configuration
from pipelines.tasks.plan import LARGE_FILE_TASKS, Plan, find_unsplittable, is_splittable
from pipelines.tokenizers.files import Model

_M = TypeVar("_M", bound=Manifest)


def plan_build(
    config: BuildConfig, inputs: Inputs, output: Output, workers: int | None
) -> BuildPlan:
    """Return the plan of a build, with the error with which the build would end, if any.

    Args:
        config: Configuration of the build.
        inputs: Inputs of the build.
        output: Output of the build.
        workers: Number of workers, or None if the engine decides it.
    """
    output.root.check_place()
    inputs.check()
    refusal = _find_refusal(config, inputs, output)
    # If a build would refuse the output, the plan does not use it.
    dataset = None if refusal else load_manifest(ENCODE, output.tokens)
    generation, plan = _plan_generation(inputs, output, dataset)
    files = _list_files(config, plan)
    encoder = None if config.tokenizer.path is None else outline_encoder(output)
    pattern = _find_pattern(config, encoder)
    if dataset is not None and generation == BASE:
        tasks = finished = sum(made.tasks for made in dataset.generations)
        token_files = [file.name for file in dataset.files.token_files]
    else:
        tasks = len(plan.tasks)
        splits = ["train"] + (["validation"] if config.encode.validation_fraction else [])
        token_files = [
            token_file_name(split, i, tasks, generation) for split in splits for i in range(tasks)
        ]
        present = {} if refusal else output.tokens.sizes()
        finished = sum(name in present for name in token_files[:tasks])
    probe = Probe()
    if refusal is None and finished < tasks:
        refusal = _find_unwritable(output)
        model = None if config.tokenizer.path is None else load_encoder(output)
        probe = probe_input(config, inputs, plan, model, workers)
    return BuildPlan(
        files=files,
        tasks=tasks,
        finished_tasks=finished,
        shards=inputs.shards if _counts(config) else 0,
        token_files=tuple(token_files),
        id_type=_plan_id_type(config, encoder),
        splitting="by its vocabulary" if pattern is None else _TIERS[pattern.tier],
        output=output.root.url,
        skipped=inputs.skipped,
        generation=generation,
        selection={
            source.name or "": source.selection for source in config.input if source.selection
        },
        estimate=probe.estimate,
        warnings=(
            *_find_warnings(config, plan, pattern),
            *probe.warnings,
            *_warn_of_vocabulary(config, probe.estimate),
        ),
        refusal=refusal or probe.problem,
    )


def _plan_generation(
    inputs: Inputs, output: Output, dataset: TokensManifest | None
) -> tuple[str, Plan]:
    """Return the generation that encoding would add, and its plan."""
    if dataset is None:
        return BASE, inputs.plan
    added = inputs.plan_added(dataset, output.tokens.url)
    left = {file.label: file.size for file in inputs.listed.files}
    same = all(left.get(label) in sizes for label, sizes in dataset.input_sizes.items())
    if not added.files or not same:
        return BASE, inputs.plan
    return generations.next_name(dataset), added


def _list_files(config: BuildConfig, plan: Plan) -> tuple[PlannedFile, ...]:
    ranges = [0] * len(plan.files)
    for task in plan.tasks:
        for part in task.ranges:
            ranges[part.file] += 1
    return tuple(
        PlannedFile(
            path=file.url,
            bytes=file.size,
            compression=file.compression or "none",
            splittable=is_splittable(file.compression, config.input[file.source]),
            ranges=ranges[i],
            source=file.source_name,
            stop=file.stop,
        )
        for i, file in enumerate(plan.files)
    )


def _find_refusal(config: BuildConfig, inputs: Inputs, output: Output) -> PipelineError | None:
    """Return the error with which a build would refuse its output, or None."""
    try:
        check_output(config, inputs, output, "build")
    except (ConfigError, DifferentConfigurationError, OutputError) as error:
        return error
    return None


def _find_unwritable(output: Output) -> PipelineError | None:
    """Return the error with which writing into the output ends, or None."""
    try:
        output.root.check_writable()
    except OutputError as error:
        return error
    return None


def check_output(config: BuildConfig, inputs: Inputs, output: Output, command: str) -> None:
    """Run the checks that a command's stages do before they start, as far as possible now.

    Args:
        config: Configuration of the build.
        inputs: Inputs of the build.
        output: Output of the build.
        command: "count", "train", "encode" or "build".

    Raises:
        DifferentConfigurationError: A stage has another configuration or other inputs.
        OutputError: The output contains files that no build wrote.
        ConfigError: The groups of finished counts are not those of the rules of training.
    """

    def check(stage: Stage[_M], configuration: Mapping[str, Any]) -> _M | None:
        identity = Identity.of(configuration, inputs.listed)
        return find_finished_manifest(stage, output.of_stage(stage), identity, command=command)

    trained = None
    if config.tokenizer.path is None:
        former = find_former_training(config, inputs, output, command, adds=command == "add")
        trained = None if former is None else former[1]
    if config.tokenizer.path is None and trained is None:
        counted = check(COUNT, counts_configuration(config, inputs.shards))
        if command == COUNT.name:
            return
        if counted is not None:
            check_groups(config.tokenizer, counted.group_bytes, output.counts.url)
        declared = load_declaration(TRAIN, output.tokenizer)
        known = {} if declared is None else declared.configuration
        corpus = known.get("corpus") if counted is None else counted.corpus
        if config.tokenizer.superwords is not None:
            check(SUPERWORDS, superwords_configuration(config, inputs.shards, corpus))
        trained = check(TRAIN, {**tokenizer_configuration(config, inputs.shards), "corpus": corpus})
        if command == TRAIN.name:
            return
    if not {MANIFEST, PLAN} & output.tokens.sizes().keys():
        fingerprint, id_type = "", ""  # nothing was encoded that could differ
    elif trained is not None or config.tokenizer.path is not None:
        model = load_encoder(output)
        fingerprint, id_type = model.fingerprint, choose_id_type(config.encode, model)
    else:  # the tokenizer is unknown, so use the one in the manifest of the token files
        encoded = load_declaration(ENCODE, output.tokens)
        known = {} if encoded is None else encoded.configuration
        asked = config.encode.id_type
        fingerprint = str(known.get("tokenizer", ""))
        id_type = str(known.get("id_type")) if asked == "auto" else asked
    check(ENCODE, {**tokens_configuration(config, fingerprint), "id_type": id_type})


_TIERS: Final[Mapping[Tier, str]] = {
    "scanner": "by a native scanner",
    "automaton": "by a compiled pattern",
    "two_passes": "by a compiled pattern, in two passes",
    "regex": "by the package regex, in Python",
}


def _find_pattern(config: BuildConfig, encoder: Model | Outline | None) -> Pattern | None:
    """Return the split pattern of the tokenizer, or None if it has none."""
    if encoder is None:
        return resolve_pattern(config.tokenizer.effective_pattern)
    if isinstance(encoder, TokenizerModel) and encoder.characters is not None:
        return None
    return None if encoder.pattern is None else resolve_pattern(encoder.pattern)


def _counts(config: BuildConfig) -> bool:
    """Return True if a build counts its input."""
    return config.tokenizer.path is None and config.counts.path is None


def _plan_id_type(config: BuildConfig, encoder: Model | Outline | None) -> str:
    if encoder is not None:
        return choose_id_type(config.encode, encoder)
    if config.encode.id_type != "auto":
        return config.encode.id_type
    base = config.tokenizer.base_model
    # Ids of published tokenizers may have gaps, which new ids do not fill.
    gaps = 0 if base is None else base.max_id + 1 - len(base)
    return "uint16" if config.encoded_vocab_size + gaps <= UINT16_IDS else "uint32"


def _warn_of_vocabulary(config: BuildConfig, estimate: Estimate | None) -> Iterator[str]:
    """Yield the warning with which training would end, if all of the input is known."""
    reached = None if estimate is None else estimate.vocabulary
    if reached is not None and reached < config.encoded_vocab_size:
        yield (
            f"the corpus is too small for the vocabulary: training reaches {reached:,} of "
            f"{config.encoded_vocab_size:,} ids"
        )


def _find_warnings(config: BuildConfig, plan: Plan, pattern: Pattern | None) -> Iterator[str]:
    if pattern is not None and pattern.obstacle is not None:
        yield (
            f"the split pattern has {pattern.obstacle}, which is not compiled: the package regex "
            "splits the text, at 2 to 5 MB/s a core, and documents are held in memory whole."
        )
    large = find_unsplittable(plan, config.input)
    if large:
        largest = max(large, key=lambda file: file.size)
        yield (
            "files that cannot be split (compressed, or one document each) and are larger than "
            f"{LARGE_FILE_TASKS} tasks: {len(large):,}, the largest {largest.url}; one worker "
            "processes each."
        )
