"""The stage that learns merges from the counts; in one process, here or on a worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipelines.stages.context import Made, Run, importing
from pipelines.stages.count import count
from pipelines.stages.learn import _ENTRY, _SCRATCH, learn, trained_before, training_configuration


def train(run: Run) -> dict[str, Any]:
    """Trains if that is not done yet; gives the manifest."""
    counted = count(run)
    manifest = run.stage(
        "train",
        run.tokenizer,
        training_configuration(run.config, counted),
        lambda identity: _run_train(run, counted, identity.configuration),
    )
    run.remove_scratch(run.tokenizer / _SCRATCH, re.escape(_ENTRY))
    _note_tokenizer(run, manifest)
    return manifest


def discard_tokenizer(run: Run) -> None:
    """Removes what the stage wrote."""
    from bpe_core.formats import TOKENIZER_FILES
    from pipelines.manifest.stage import discard_stage

    run.lock.acquire()
    run.remove_scratch(run.tokenizer / _SCRATCH, re.escape(_ENTRY))
    discard_stage(run.tokenizer, "|".join(map(re.escape, sorted(TOKENIZER_FILES))))


def _run_train(run: Run, counted: Mapping[str, Any], configuration: Mapping[str, Any]) -> Made:
    content = trained_before(run, configuration, counted)
    if content is not None:
        return Made(content=content, resumed=True)
    if run.config.tokenizer.train_where == "launcher":
        return Made(content=learn(run, counted, configuration))
    _train_on_worker(run)
    content = trained_before(run, configuration, counted)
    assert content is not None, "a finished pipeline has written the tokenizer and its entry"
    return Made(content=content)


def _train_on_worker(run: Run) -> None:
    with importing():
        import apache_beam as beam

        from pipelines import runners
        from pipelines.stages.submit import submit
        from pipelines.stages.train_job import TrainJob
        from pipelines.stages.transforms import TrainTokenizer

    begin = "Begin" >> beam.Create([b""], reshuffle=False)
    if run.no_wait:
        submit(run, "train", lambda pipeline: pipeline | begin)
    with runners.pipeline(run.config.beam, run.beam_args, run.places) as pipeline:
        _ = pipeline | begin | "TrainTokenizer" >> TrainTokenizer(job=TrainJob.of(run))


def _note_tokenizer(run: Run, manifest: Mapping[str, Any]) -> None:
    warnings = run.summary.warnings
    if manifest["vocab_size"] < manifest["vocab_size_asked_for"]:
        warnings += (
            f"the corpus is too small for the vocabulary: training reached "
            f"{manifest['vocab_size']:,} of {manifest['vocab_size_asked_for']:,} ids "
            f"({manifest['stopped_because']})",
        )
    run.summary = replace(
        run.summary,
        merges=manifest["merges"],
        stop_reason=manifest["stopped_because"],
        vocab_size=manifest["vocab_size"],
        outputs={**run.summary.outputs, "tokenizer": run.tokenizer.url},
        warnings=warnings,
    )
