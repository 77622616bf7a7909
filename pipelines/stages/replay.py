"""Stage that encodes documents rejected earlier, as a further generation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset
from pipelines.manifest.models import TokensManifest
from pipelines.manifest.run_record import RunRecord
from pipelines.manifest.stage import ENCODE, Identity
from pipelines.manifest.stage_comparison import check_replayable
from pipelines.manifest.stage_records import load_dataset
from pipelines.readers.kept_columns import find_kept_columns
from pipelines.replay.job import ExistingDataset, Job
from pipelines.replay.plan import Replay
from pipelines.replay.repaired_files import by_label, find_repaired, repaired_before
from pipelines.stages.context import BuildContext
from pipelines.stages.encode import conclude, write_tokens
from pipelines.stages.imports import load_encoder
from pipelines.stages.jobs import (
    check_affixes,
    encode_configuration,
    encode_job,
    encode_readings,
)
from pipelines.stages.lifecycle import finish
from pipelines.stages.summary import StageState, StageSummary
from pipelines.tokenizers.files import Model


def replay(context: BuildContext, repaired: Mapping[str, str]) -> None:
    """Add a generation of rejected documents, if any can be replayed.

    Args:
        context: Context of the command.
        repaired: Path or URL of a repaired file, by the label of the file that it replaces.
    """
    model = load_encoder(context.output)
    check_affixes(context.config.encode, model)
    plan, job = _plan_replay(context, model, repaired)
    started = time.monotonic()
    if job.parts:
        context.lock.acquire()
        if load_dataset(context.output.tokens) != plan.dataset.manifest:
            plan, job = _plan_replay(
                context, model, repaired
            )  # another build has changed the dataset
    if job.parts:
        progress.start_stage("replay")
        manifest = _write_generation(context, model, plan, job, started)
    else:
        manifest = plan.dataset.manifest
        state: StageState = "nothing to replay" if job.left else "already finished"
        context.report.add_stage(StageSummary(name="replay", state=state))
    conclude(context, manifest)
    context.report.add_warnings(job.warnings)


def _plan_replay(
    context: BuildContext, model: Model, repaired: Mapping[str, str]
) -> tuple[Replay, Job]:
    """Return the replay for the current dataset, and the job of its tasks."""
    config, output = context.config, context.output
    configuration = encode_configuration(config, model)
    dataset = ExistingDataset(
        tokens=output.tokens,
        rejects=output.rejects,
        manifest=load_dataset(output.tokens),
        run=RunRecord.load(output.tokens),
    )
    check_replayable(output.tokens, dataset.manifest, configuration)
    sources = config.input
    listed = {file.label: file for file in context.inputs.listed.files}
    given = by_label(repaired, dataset.manifest)
    plan = Replay(
        dataset=dataset,
        configuration=configuration,
        sources=sources,
        readings=encode_readings(config, model, _find_kept_columns(context)),
        listed=listed,
        repaired={
            **repaired_before(given, dataset, configuration, sources, listed),
            **find_repaired(given, dataset, sources),
        },
    )
    return plan, plan.plan()


def _find_kept_columns(context: BuildContext) -> pa.Schema | None:
    dataset = TokenDataset.open(context.output.root.url, context.output.root.storage_options)
    return find_kept_columns(context.config.input, (), dataset.kept_columns)


def _write_generation(
    context: BuildContext, model: Model, plan: Replay, job: Job, started: float
) -> TokensManifest:
    """Encode the documents of a replay. Return the manifest that includes them."""
    identity = Identity(configuration=plan.configuration, inputs={}, marks={})
    encoding = encode_job(
        context.config,
        context.output,
        model,
        configuration=identity.configuration_fingerprint,
        plan_id=plan.plan_id(job),
        generation=plan.name,
        kept=_find_kept_columns(context),
    )
    encoding = replace(encoding, is_replay=True, reject_limit=None)
    job.write(encoding.entries, context.output.rejects)
    entries, result = write_tokens(context, encoding, job.works, model, plan.dataset.manifest)
    manifest = plan.manifest(encoding, job, entries, model)
    limits = {} if plan.dataset.run is None else plan.dataset.run.limits
    result = replace(
        result,
        run={
            "tokenizer": encoding.tokenizer.url,
            "limits": limits,
            "repaired_marks": plan.repaired_marks,
            "repaired_locations": plan.repaired_locations,
        },
    )
    return finish(
        context, ENCODE, plan.identity, manifest, result, started, name=f"replay {plan.name}"
    )
