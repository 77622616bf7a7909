"""What a build would read, do and write; from sizes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.config.fingerprints import (
    counts_configuration,
    tokenizer_configuration,
    tokens_configuration,
)
from pipelines.config.values import UINT16_IDS
from pipelines.errors import DifferentConfigurationError, OutputError, PipelineError
from pipelines.manifest.names import BASE, token_file_name
from pipelines.stages.context import Run
from pipelines.stages.summary import BuildPlan, PlannedFile
from pipelines.storage.directory import Directory
from pipelines.tasks.plan import Plan, is_splittable


def describe(run: Run) -> BuildPlan:
    """The plan of a build, and why it would be refused if it would."""
    run.check_size()
    config = run.config
    refusal = _refusal(run)
    generation, files_plan = (BASE, run.plan) if refusal else _next_generation(run)
    ranges = [0] * len(files_plan.files)
    for task in files_plan.tasks:
        for part in task.ranges:
            ranges[part.file] += 1
    names = run.config.input
    files = tuple(
        PlannedFile(
            path=file.url,
            bytes=file.size,
            compression=file.compression or "none",
            splittable=is_splittable(file.compression, names[file.source]),
            ranges=ranges[i],
            source=file.source_name,
            stop=file.stop,
        )
        for i, file in enumerate(files_plan.files)
    )
    there = None if refusal else run.finished_dataset()
    if there is not None and generation == BASE:
        of = finished = sum(made["tasks"] for made in there["generations"])
        token_files = tuple(
            file["name"] for split in ("train", "validation") for file in there["files"][split]
        )
    else:
        of = len(files_plan.tasks)
        splits = ["train"] + (["validation"] if config.encode.validation_fraction else [])
        token_files = tuple(
            token_file_name(split, i, of, generation) for split in splits for i in range(of)
        )
        present = {} if refusal else run.tokens.sizes()
        finished = sum(name in present for name in token_files[:of])
    return BuildPlan(
        files=files,
        tasks=of,
        finished_tasks=finished,
        shards=config.counts.shards if config.tokenizer.path is None else 0,
        token_files=token_files,
        id_type=_planned_id_type(run),
        output=run.output.url,
        skipped=run.skipped,
        generation=generation,
        selection={source.name or "": source.selection for source in names if source.selection},
        warnings=tuple(_plan_warnings(run, files)),
        refusal=refusal,
    )


def _next_generation(run: Run) -> tuple[str, Plan]:
    """The generation that encoding would make, and the work for it; from sizes alone."""
    earlier = run.finished_dataset()
    if earlier is None:
        return BASE, run.plan
    from pipelines.manifest import generations

    added = run.plan_of_added(earlier)
    left = {file.label: file.size for file in run.listed.files}
    same = all(
        left.get(file["name"]) in (file["size"], file.get("repaired", {}).get("size", -1))
        for file in earlier["inputs"]
    )
    if not added.files or not same:
        return BASE, run.plan
    return generations.next_name(earlier), added


def _refusal(run: Run) -> PipelineError | None:
    """Why a build would refuse what is in the output; None if it would not."""
    try:
        check_output(run)
    except (DifferentConfigurationError, OutputError) as error:
        return error
    return None


def check_output(run: Run) -> None:
    """Checks what the stages check before they begin, as far as it can be known before they ran.

    Raises:
        DifferentConfigurationError: what is there is of another configuration or other inputs.
        OutputError: there are files that no build wrote.
    """
    from pipelines.manifest import stage as records

    def checked(directory: Directory, configuration: Mapping[str, Any]) -> Any:
        identity = records.Identity.of(configuration, run.listed)
        return records.finished_manifest(
            directory, identity, may_grow=directory is run.tokens, command="build"
        )

    tokenizer = run.config.tokenizer
    trained: Any = None
    if tokenizer.path is None:
        counted = checked(run.counts, counts_configuration(run.config))
        found = records.stated_configuration(run.tokenizer)
        corpus = found.get("corpus") if counted is None else counted["corpus"]
        configuration = {**tokenizer_configuration(run.config), "corpus": corpus}
        trained = checked(run.tokenizer, configuration)
    model = run.load_model() if trained is not None or tokenizer.path is not None else None
    found = records.stated_configuration(run.tokens)
    asked = run.config.encode.id_type
    known = (
        {"tokenizer": found.get("tokenizer", ""), "id_type": found.get("id_type")}
        if model is None
        else {"tokenizer": model.fingerprint, "id_type": run.id_type(model)}
    )
    if model is None and asked != "auto":
        known["id_type"] = asked
    configuration = tokens_configuration(run.config, str(known["tokenizer"]))
    checked(run.tokens, {**configuration, "id_type": known["id_type"]})


def _planned_id_type(run: Run) -> str:
    if run.config.encode.id_type != "auto":
        return run.config.encode.id_type
    if run.config.tokenizer.path is not None:
        return run.id_type(run.load_model())
    return "uint16" if run.config.tokenizer.vocab_size <= UINT16_IDS else "uint32"


def _plan_warnings(run: Run, files: Sequence[PlannedFile]) -> Iterator[str]:
    steps = {source.name: source.range_bytes for source in run.config.input}
    large = [file for file in files if not file.splittable and file.bytes > steps[file.source]]
    if large:
        largest = max(large, key=lambda file: file.bytes)
        yield (
            "files above range_bytes that can't be split (compressed, or a document each): "
            f"{len(large):,}, the largest {largest.path}; each is the work of one worker."
        )
