"""Stage that encodes the corpus into token files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pipelines.accounting import check_accounts
from pipelines.config.fingerprints import fingerprint
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import InputError, OutputError
from pipelines.manifest import generations
from pipelines.manifest.entries import TaskEntry
from pipelines.manifest.models import TokensManifest
from pipelines.manifest.names import BASE, DOCUMENT_FREQUENCY, ENTRIES, ENTRY_FILES, REPORT
from pipelines.manifest.stage import COUNT, ENCODE, Identity
from pipelines.manifest.stage_records import Remains, load_manifest, load_plan
from pipelines.manifest.stage_writing import begin_stage, discard_stage
from pipelines.metrics import PipelineRun
from pipelines.readers.kept_columns import find_kept_columns
from pipelines.readers.tasks import TaskWork
from pipelines.stages.context import BuildContext
from pipelines.stages.growth import reuse_tokenizer
from pipelines.stages.imports import import_tokenizer
from pipelines.stages.inputs import Inputs
from pipelines.stages.jobs import (
    check_affixes,
    encode_configuration,
    encode_job,
    list_works,
    load_model,
)
from pipelines.stages.lifecycle import StageResult, find_finished, finish
from pipelines.stages.output import (
    Output,
    check_thresholds,
    discard_count_rejects,
    remove_scratch,
    remove_unlisted,
)
from pipelines.stages.submit import submit
from pipelines.stages.task_runs import run_tasks
from pipelines.stages.train import train
from pipelines.storage.directory import Directory
from pipelines.storage.locks import OutputLock
from pipelines.tasks.plan import BY_STORED_BYTES, Plan
from pipelines.tokenizers.files import Model, counts_fingerprint
from pipelines.writing.content import tokens_content, write_merged_statistics
from pipelines.writing.encoder import keep_tokenizer
from pipelines.writing.jobs import EncodeJob
from pipelines.writing.tasks import finished_entries, write_tasks


def encode(context: BuildContext) -> None:
    """Encode the files that are not encoded yet. Train the tokenizer first if necessary."""
    config, inputs, output = context.config, context.inputs, context.output
    trained = None
    if config.tokenizer.path is not None:
        model = import_tokenizer(context)
    else:
        if not reuse_tokenizer(context):
            trained = train(context)
        model = load_model(output.encoder)
    check_affixes(config.encode, model)
    identity = Identity.of(encode_configuration(config, model), inputs.listed)
    manifest = find_finished(context, ENCODE, identity, discard_tokens)
    if manifest is not None and context.command == "add":
        context.report.add_warnings(
            ["nothing was added: input.files matches no file that the dataset lacks"]
        )
    if manifest is None:
        limits = inputs.limits
        started = time.monotonic()
        earlier = load_manifest(ENCODE, output.tokens)
        if earlier is None:
            if isinstance(load_plan(ENCODE, output.tokens), TokensManifest):
                # A restart was interrupted. Its remaining files may have names of other tasks.
                context.report.add_warnings(discard_tokens(output, context.lock))
            begin_stage(
                output.tokens,
                identity,
                limits,
                len(inputs.plan.tasks),
                inputs.commits,
                task_rule=inputs.task_rule,
            )
        manifest, result = _encode_generation(context, identity, model, earlier)
        if trained is not None and config.counts.path is None:
            _check_corpus(output, manifest, trained.configuration["corpus"])
        name = None if earlier is None else f"{ENCODE.name} {generations.next_name(earlier)}"
        finish(context, ENCODE, identity, manifest, result, started, name=name)
    if output.rejects.exists() and context.lock.try_acquire():
        discard_count_rejects(output)
    conclude(context, manifest)


def conclude(context: BuildContext, manifest: TokensManifest) -> None:
    """Remove temporary files of a finished dataset, and add the dataset to the report."""
    output, lock = context.output, context.lock
    context.report.add_warnings(remove_scratch(output.tokens / ENTRIES, ENTRY_FILES, lock))
    remove_unlisted(output, manifest, lock)
    context.report.add_dataset(manifest, output)


def discard_tokens(output: Output, lock: OutputLock) -> list[str]:
    """Remove the files of the stage and the rejects. Return warnings."""
    lock.acquire()
    remains = Remains.load(ENCODE, output.tokens)
    declared = remains.declared
    warnings = remove_scratch(output.tokens / ENTRIES, ENTRY_FILES, lock)
    if isinstance(declared, TokensManifest):
        generations.remove(generations.find_unlisted(output.tokens, output.rejects, declared))
        tokens, rejects = generations.patterns_of_listed(declared)
    else:
        tasks = None if declared is None else declared.tasks
        tokens, rejects = generations.patterns_of_tasks(tasks)
    output.rejects.remove_files(remains.select(output.rejects, rejects))
    output.tokens.remove(DOCUMENT_FREQUENCY)
    output.root.remove(REPORT)
    discard_stage(ENCODE, output.tokens, tokens)
    discard_count_rejects(output)
    output.rejects.remove_if_empty()
    return warnings


def _encode_generation(
    context: BuildContext,
    identity: Identity,
    model: Model,
    earlier: TokensManifest | None,
) -> tuple[TokensManifest, StageResult]:
    """Encode all files or, for an existing dataset, the files that its manifest does not list."""
    config, inputs, output = context.config, context.inputs, context.output
    name, plan = BASE, inputs.plan
    if earlier is not None:
        name, plan = _plan_generation(inputs, output, identity, earlier)
    works = list_works(plan)
    job = encode_job(
        config,
        output,
        model,
        configuration=identity.configuration_fingerprint,
        plan_id=plan.plan_id(_rules_fingerprint(identity, name)),
        generation=name,
        most_documents=None if earlier is not None else _count_judged(output),
        kept=_find_kept_columns(context, plan, earlier),
    )
    entries, result = write_tokens(context, job, works, model, earlier)
    statistics = write_merged_statistics(job, entries, model)
    manifest = generations.add_generation(
        earlier,
        tokens_content(entries, plan.files, config.input, statistics, name),
        name=name,
        tasks=len(works),
        configuration=identity.configuration,
        tokenizer=model.fingerprint,
        counts=counts_fingerprint(job.tokenizer),
    )
    names = [file.name for file in manifest.files.rejects]
    check_thresholds(config, output.rejects, manifest, names)
    check_accounts(manifest.to_json())
    run = {
        "limits": inputs.limits,
        "commits": inputs.commits,
        "tokenizer": job.tokenizer.url,
    }
    return manifest, replace(result, run=run)


def _find_kept_columns(
    context: BuildContext, plan: Plan, earlier: TokensManifest | None
) -> pa.Schema | None:
    """Return the columns of records that the token files of a plan keep, or None."""
    root = context.output.root
    known = None
    if earlier is not None:
        known = TokenDataset.open(root.url, root.storage_options).kept_columns
    return find_kept_columns(context.config.input, plan.files, known)


def _plan_generation(
    inputs: Inputs, output: Output, identity: Identity, earlier: TokensManifest
) -> tuple[str, Plan]:
    """Return the name and the plan of the generation that follows an existing dataset.

    A generation has no `_plan.json`. An earlier version has begun it if it has scratch of that
    plan.
    """
    name = generations.next_name(earlier)
    rules = _rules_fingerprint(identity, name)
    former = inputs.plan_added(earlier, output.tokens.url, BY_STORED_BYTES)
    if (output.tokens / ENTRIES / former.plan_id(rules)).exists():
        return name, former
    return name, inputs.plan_added(earlier, output.tokens.url)


def write_tokens(
    context: BuildContext,
    job: EncodeJob,
    works: Sequence[TaskWork],
    model: Model,
    earlier: TokensManifest | None,
) -> tuple[dict[int, TaskEntry], StageResult]:
    """Run the unfinished tasks. Return the entries of all tasks, and a result for this invocation.

    Args:
        context: Context of the command.
        job: Job of the tasks.
        works: The tasks.
        model: Tokenizer that encodes.
        earlier: Manifest of the dataset that the tasks extend, or None if they start one.
    """
    rejects = context.output.rejects
    finished = finished_entries(job, len(works))
    if earlier is not None:
        keep = [file.name for entry in finished.values() for file in entry.dataset_files]
        unlisted = generations.find_unlisted(job.tokens, rejects, earlier, keep)
        generations.remove(unlisted)
    left = [work for work in works if work.index not in finished]
    run = PipelineRun()
    if left:
        keep_tokenizer(job.tokenizer, model)
        if context.no_wait:
            submit(context, ENCODE, context.pipelines.encode(left, job))
        run = run_tasks(
            context,
            left,
            lambda pipelines, queue: pipelines.encode(left, job, queue),
            partial(write_tasks, job),
            title="encoding",
        )
    entries = finished_entries(job, len(works))
    _check_complete(job.tokens, len(entries), len(works))
    if any(entry.rejects for entry in entries.values()):
        rejects.sync()
    fresh = sum(entries[work.index].totals.document_totals().all_bytes for work in left)
    result = StageResult(resumed=bool(finished), bytes=fresh, pipeline=run)
    return entries, result


def _count_judged(output: Output) -> int | None:
    """Return the number of documents that counting kept or rejected, or None without counts."""
    counted = load_manifest(COUNT, output.counts)
    if counted is None:
        return None
    totals = counted.totals
    return totals.documents + totals.rejected


def _rules_fingerprint(identity: Identity, generation: str) -> str:
    """Return the fingerprint of everything but the inputs that determines a generation's files."""
    made_by = identity.configuration_fingerprint
    if generation == BASE:
        return made_by
    return fingerprint({"configuration": made_by, "generation": generation})


def _check_complete(tokens: Directory, found: int, tasks: int) -> None:
    if found == tasks:
        return
    raise OutputError(
        "Files of finished tasks are missing or have changed.",
        expected=f"the files of {tasks:,} tasks",
        found=f"the files of {found:,}",
        where=tokens.url,
        hint="Another program writes into the output. Run the same command again: it writes the "
        "missing files again.",
    )


def _check_corpus(output: Output, manifest: TokensManifest, counted: str) -> None:
    """Check that the encoded documents are those on which the tokenizer was trained."""
    if counted in generations.possible_corpora(manifest):
        return
    raise InputError(
        "The encoded documents are not the counted ones.",
        expected=f"number and sum of hashes {counted}",
        found=manifest.corpus + _describe_other_bad_files(output.counts, manifest),
        where=output.tokens.url,
        hint="The input changed in the meantime. When it is complete, run the command again with "
        "--restart.",
    )


def _describe_other_bad_files(counts: Directory, manifest: TokensManifest) -> str:
    """Describe the files that only counting or only encoding could read."""
    counted = load_manifest(COUNT, counts)
    before = set() if counted is None else set(counted.totals.bad_files)
    other = sorted(before.symmetric_difference(manifest.totals.bad_files))
    return f"; bad in only one of the two stages: {', '.join(other[:10])}" if other else ""
