"""The stage that encodes the corpus into token files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelines.config.fingerprints import fingerprint
from pipelines.errors import InputError, OutputError
from pipelines.manifest.names import BASE, ENTRY_FILES
from pipelines.stages.context import Made, Run, importing
from pipelines.stages.jobs import check_affixes, encode_configuration, encode_job
from pipelines.stages.train import train

if TYPE_CHECKING:
    from pipelines.manifest.stage import Identity
    from pipelines.readers.tasks import TaskWork
    from pipelines.tokenizers.files import Model
    from pipelines.writing.jobs import EncodeJob


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


def discard_tokens(run: Run) -> None:
    """Removes what the stage wrote, with the rejects."""
    from pipelines.manifest import generations
    from pipelines.manifest.stage import (
        discard_stage,
        files_of_builds,
        read_for_discarding,
    )

    run.lock.acquire()
    found = read_for_discarding(run.tokens)
    run.remove_scratch(run.tokens / "_tasks", ENTRY_FILES)
    if found and "generations" in found:
        generations.remove(generations.unlisted(run.tokens, run.rejects, found))
    tokens, rejects = generations.names_of(found or {})
    run.rejects.remove_files(files_of_builds(run.rejects, rejects, found))
    discard_stage(run.tokens, tokens)
    run.discard_count_rejects()
    run.rejects.remove_if_empty()


def _run_encode(
    run: Run,
    identity: Identity,
    model: Model,
    counted: str | None,
    earlier: Mapping[str, Any] | None = None,
) -> Made:
    """Encodes all files or, after an earlier manifest, those that it does not list."""
    with importing():
        from pipelines.accounting import check_accounts
        from pipelines.manifest import generations
        from pipelines.readers.tasks import TaskWork
        from pipelines.tokenizers.files import counts_fingerprint
        from pipelines.writing.content import tokens_content, write_merged_statistics

    plan = run.plan if earlier is None else run.plan_of_added(earlier)
    works = [TaskWork.of_plan(plan, task) for task in plan.tasks]
    name = BASE if earlier is None else generations.next_name(earlier)
    job = encode_job(run, identity, model, plan.plan_id(_plan_fingerprint(identity, name)), name)
    entries, made = write_tokens(run, job, works, model, earlier)
    content = tokens_content(entries, plan.files, run.config.input, name)
    content["files"]["statistics"] = [write_merged_statistics(job, entries, model)]
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
    from pipelines import runners
    from pipelines.accounting import DocumentTotals
    from pipelines.beam.metrics import read_metrics
    from pipelines.beam.read_tasks import ReadTasks
    from pipelines.console import progress
    from pipelines.manifest import generations
    from pipelines.stages.submit import submit
    from pipelines.stages.transforms import WriteTasks
    from pipelines.writing.encoder import keep_tokenizer
    from pipelines.writing.tasks import finished_entries

    finished = finished_entries(job, len(works))
    if earlier is not None:
        kept = finished.values()
        generations.remove(generations.unlisted(run.tokens, run.rejects, earlier, kept))
    left = [work for work in works if work.index not in finished]
    measured = None
    if left:
        keep_tokenizer(job.tokenizer, model)

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
    entries = finished_entries(job, len(works))
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
    from pipelines.manifest.records import read_manifest

    counted = read_manifest(run.counts) or {}
    before = set(counted.get("totals", {}).get("bad_files", ()))
    other = sorted(before.symmetric_difference(totals["bad_files"]))
    return f"; bad in one of the two alone: {', '.join(other[:10])}" if other else ""


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
