"""The stage that encodes rejected documents after all, as a generation of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from pipelines.manifest.names import ENTRY_FILES
from pipelines.stages.context import Run, importing
from pipelines.stages.encode import note_tokens, write_tokens
from pipelines.stages.jobs import check_affixes, encode_configuration, encode_job, readings
from pipelines.stages.summary import StageState, StageSummary


def replay(run: Run, repaired: Mapping[str, str]) -> None:
    """Makes a generation of rejected documents, if any are to be taken."""
    with importing():
        from pipelines.manifest import stage as records
        from pipelines.manifest.records import read_run
        from pipelines.replay.job import Dataset, Job
        from pipelines.replay.plan import Replay
        from pipelines.replay.repaired_files import by_label, find_repaired, repaired_before

    model = run.load_model()
    check_affixes(run, model)
    configuration = encode_configuration(run, model)

    def planned() -> tuple[Replay, Job]:
        dataset = Dataset(
            tokens=run.tokens,
            rejects=run.rejects,
            manifest=records.dataset_manifest(run.tokens),
            run=read_run(run.tokens),
        )
        records.check_replayable(run.tokens, dataset.manifest, configuration)
        sources = run.config.input
        listed = {file.label: file for file in run.listed.files}
        given = by_label(repaired, dataset)
        again = Replay(
            dataset=dataset,
            configuration=configuration,
            sources=sources,
            readings=readings(run, model),
            listed=listed,
            repaired={
                **repaired_before(given, dataset, configuration, sources, listed),
                **find_repaired(given, dataset, sources),
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
