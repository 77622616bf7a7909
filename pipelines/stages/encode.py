"""The stage that encodes the corpus into token files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelines.config.identity import (
    fingerprint,
    tokens_configuration,
)
from pipelines.dataset.names import BASE, ENTRY_FILES
from pipelines.errors import (
    ConfigError,
    InputError,
    OutputError,
)
from pipelines.stages.run import Made, Run, importing
from pipelines.stages.train import train

if TYPE_CHECKING:
    from pipelines.manifest import Identity
    from pipelines.readers.work import SourceReading, TaskWork
    from pipelines.tokenizers.files import Model
    from pipelines.writing import EncodeJob


def _plan_fingerprint(identity: Identity, generation: str) -> str:
    """Of what decides the files of a generation, but for its inputs."""
    made_by = identity.configuration_fingerprint
    if generation == BASE:
        return made_by
    return fingerprint({"configuration": made_by, "generation": generation})


def encode(run: Run) -> None:
    """Encodes what is not encoded yet; trains first if the tokenizer is to be trained."""
    from pipelines.tokenizers.files import tokenizer_class

    counted = None
    if run.config.tokenizer.path is None:
        counted = train(run)["configuration"]["corpus"]
    model = run.load_model()
    check_affixes(run, model)
    run.summary = replace(run.summary, tokenizer_class=tokenizer_class(model))
    manifest = run.stage(
        "encode",
        run.tokens,
        encode_configuration(run, model),
        lambda identity: _run_encode(run, identity, model, counted),
        lambda identity, earlier: _run_encode(run, identity, model, counted, earlier),
    )
    run.remove_scratch(run.tokens / "_tasks", ENTRY_FILES)
    if run.rejects.exists() and run.lock.try_acquire():
        run.discard_count_rejects()
    run.remove_unlisted(manifest)
    note_tokens(run, manifest)


def encode_configuration(run: Run, model: Model) -> dict[str, Any]:
    """What decides the bytes of the token files, inputs apart."""
    return {
        **tokens_configuration(run.config, model.fingerprint),
        "id_type": run.id_type(model),
    }


def discard_tokens(run: Run) -> None:
    """Removes what the stage wrote, with the rejects."""
    from pipelines.dataset import generations
    from pipelines.manifest import discard_stage, stated

    run.lock.acquire()
    found = stated(run.tokens)
    if found:
        run.remove_scratch(run.tokens / "_tasks", ENTRY_FILES)
    if "generations" in found:
        generations.remove(generations.unlisted(run.tokens, run.rejects, found))
    tokens, rejects = generations.names_of(found)
    discard_stage(run.tokens, tokens)
    run.discard_count_rejects()
    run.rejects.remove_files([n for n in run.rejects.sizes() if re.fullmatch(rejects, n)])
    run.rejects.remove_if_empty()


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


def _run_encode(
    run: Run,
    identity: Identity,
    model: Model,
    counted: str | None,
    earlier: Mapping[str, Any] | None = None,
) -> Made:
    """Encodes all files or, after an earlier manifest, those that it does not list."""
    with importing():
        from pipelines import writing
        from pipelines.accounting import check_accounts
        from pipelines.dataset import generations
        from pipelines.readers.work import TaskWork
        from pipelines.tokenizers.files import counts_fingerprint

    plan = run.plan if earlier is None else run.plan_of_added(earlier)
    works = [TaskWork.of_plan(plan, task) for task in plan.tasks]
    name = BASE if earlier is None else generations.next_name(earlier)
    job = encode_job(run, identity, model, plan.plan_id(_plan_fingerprint(identity, name)), name)
    entries, made = write_tokens(run, job, works, model, earlier)
    content = writing.tokens_content(entries, plan.files, run.config.input, name)
    content["files"]["statistics"] = [writing.write_merged_statistics(job, entries, model)]
    content = {
        **generations.content_of(earlier, content, name, len(works), identity.configuration),
        "tokenizer": model.fingerprint,
        "counts": counts_fingerprint(job.tokenizer),
    }
    run.check_limits(content, [file["name"] for file in content["files"]["rejects"]])
    check_accounts({"configuration": identity.configuration, **content})
    if counted is not None and counted not in generations.corpora(content):
        raise InputError(
            "The documents that were encoded are not those that were counted.",
            expected=f"number and sum of hashes {counted}",
            found=content["corpus"] + _other_bad_files(run, content["totals"]),
            where=run.tokens.url,
            hint="The input has changed meanwhile. When it is complete, begin anew with --restart.",
        )
    return replace(made, content=content, run={"tokenizer": job.tokenizer.url})


def write_tokens(
    run: Run,
    job: EncodeJob,
    works: Sequence[TaskWork],
    model: Model,
    earlier: Mapping[str, Any] | None,
) -> tuple[dict[int, dict[str, Any]], Made]:
    """Has the tasks written that are not yet; gives the entries of all."""
    from pipelines import runners, writing
    from pipelines.accounting import DocumentTotals
    from pipelines.beam_metrics import read_metrics
    from pipelines.console import progress
    from pipelines.dataset import generations
    from pipelines.stages.detached import submit
    from pipelines.stages.transforms import ReadTasks, WriteTasks

    finished = writing.finished_entries(job, len(works))
    if earlier is not None:
        kept = finished.values()
        generations.remove(generations.unlisted(run.tokens, run.rejects, earlier, kept))
    left = [work for work in works if work.index not in finished]
    measured = None
    if left:
        writing.keep_tokenizer(job.tokenizer, model)

        def written(pipeline: Any) -> Any:
            tasks = pipeline | "ReadTasks" >> ReadTasks(works=left)
            return tasks | "WriteTokenShards" >> WriteTasks(job=job)

        if run.no_wait:
            submit(run, "encode", written)
        with (
            progress.shown("encoding tasks", len(left)),
            runners.pipeline(run.config.beam, run.beam_args, run.places) as pipeline,
        ):
            written(pipeline)
        measured = read_metrics(pipeline.result, len(left))
    entries = writing.finished_entries(job, len(works))
    _check_all_there(run, len(entries), len(works))
    if any(entry["rejects"] for entry in entries.values()):
        run.rejects.settle()
    fresh = sum(DocumentTotals.from_json(entries[work.index]["totals"]).all_bytes for work in left)
    return entries, Made(content={}, resumed=bool(finished), bytes=fresh, measured=measured)


def _check_all_there(run: Run, found: int, tasks: int) -> None:
    if found == tasks:
        return
    raise OutputError(
        "Files of this build are gone or changed, though their tasks had finished.",
        expected=f"those of {tasks:,} tasks",
        found=f"those of {found:,}",
        where=run.tokens.url,
        hint="Something else writes into the output. Run the same command again: what is "
        "missing is made again.",
    )


def _other_bad_files(run: Run, totals: Mapping[str, Any]) -> str:
    """Files that could be read when encoding and not when counting, or the other way round."""
    counted = run.counts.read_json("manifest.json") or {}
    before = set(counted.get("totals", {}).get("bad_files", ()))
    other = sorted(before.symmetric_difference(totals["bad_files"]))
    return f"; bad in one of the two alone: {', '.join(other[:10])}" if other else ""


def encode_job(
    run: Run, identity: Identity, model: Model, plan_id: str, generation: str
) -> EncodeJob:
    """What workers have to know."""
    from pipelines.writing import EncodeJob

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
    from pipelines.readers.work import source_readings
    from pipelines.tokenizers.files import cutting_rules

    return source_readings(run.config.input, **cutting_rules(model))


def note_tokens(run: Run, manifest: Mapping[str, Any]) -> None:
    """Puts what is in the dataset into the summary."""
    totals = manifest["totals"]
    run.note_documents(totals)
    tokens = totals["tokens"]
    run.summary = replace(
        run.summary,
        tokens=tokens,
        bytes_per_token=totals["text_bytes"] / tokens if tokens else None,
        train_rows=totals["train_rows"],
        validation_rows=totals["validation_rows"],
        outputs={
            **run.summary.outputs,
            "tokenizer": run.tokenizer_directory.url,
            "tokens": run.tokens.url,
            **({"rejects": run.rejects.url} if totals["reasons"] else {}),
        },
    )
