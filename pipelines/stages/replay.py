"""The stage that encodes rejected documents after all, as a generation of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from pipelines.console.summary import StageState, StageSummary
from pipelines.dataset.names import ENTRY_FILES
from pipelines.stages.encode import (
    check_affixes,
    encode_configuration,
    encode_job,
    note_tokens,
    readings,
    write_tokens,
)
from pipelines.stages.run import Run, importing


def replay(run: Run, repaired: Mapping[str, str]) -> None:
    """Makes a generation of rejected documents, if any are to be taken."""
    with importing():
        from pipelines import manifest as records
        from pipelines.rejects import replay as replaying

    model = run.load_model()
    check_affixes(run, model)
    configuration = encode_configuration(run, model)

    def planned() -> tuple[replaying.Replay, replaying.Job]:
        dataset = replaying.Dataset(
            tokens=run.tokens,
            rejects=run.rejects,
            manifest=records.dataset_manifest(run.tokens),
            run=run.tokens.read_json(records.RUN) or {},
        )
        records.check_replayable(run.tokens, dataset.manifest, configuration)
        sources = run.config.input
        listed = {file.label: file for file in run.listed.files}
        again = replaying.Replay(
            dataset=dataset,
            configuration=configuration,
            sources=sources,
            readings=readings(run, model),
            listed=listed,
            repaired={
                **replaying.repaired_before(repaired, dataset, configuration, sources, listed),
                **replaying.find_repaired(repaired, dataset, sources),
            },
        )
        return again, again.plan()

    again, work = planned()
    begun = time.monotonic()
    if work.parts:
        run.lock.acquire()
        if records.dataset_manifest(run.tokens) != again.dataset.manifest:
            again, work = planned()  # another build has changed it meanwhile
    if work.parts:
        job = replace(
            encode_job(
                run,
                records.Identity(configuration=configuration, inputs={}, marks={}),
                model,
                again.plan_id(work),
                again.name,
            ),
            is_replay=True,
        )
        work.write(job.entries, run.rejects)
        entries, made = write_tokens(run, job, work.works, model, again.dataset.manifest)
        content = again.content(job, work, entries, model)
        seconds = time.monotonic() - begun
        facts = {
            **run.facts(seconds, made),
            "tokenizer": job.tokenizer.url,
            "limits": again.dataset.run.get("limits", {}),
            "repaired_marks": again.repaired_marks,
            "repaired_locations": again.repaired_locations,
        }
        manifest = records.finish_stage(run.tokens, again.identity, content, facts)
        run.note_made(f"replay {again.name}", seconds, made)
    else:
        manifest = dict(again.dataset.manifest)
        state: StageState = "nothing taken" if work.left else "already finished"
        run.note_stage(StageSummary(name="replay", state=state))
    run.remove_scratch(run.tokens / "_tasks", ENTRY_FILES)
    run.remove_unlisted(manifest)
    note_tokens(run, manifest)
    run.summary = replace(run.summary, warnings=(*run.summary.warnings, *work.warnings))
