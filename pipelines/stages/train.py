"""Stage that learns merges from the counts, in one process: the launcher or a worker."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bpe_core.formats import TOKENIZER_FILES
from pipelines.config import BuildConfig
from pipelines.counting.given import GivenCounts
from pipelines.counting.training import training_configuration
from pipelines.counting.training_counts import check_groups
from pipelines.manifest.models import (
    SuperwordsManifest,
    TokenizerContent,
    TokenizerManifest,
)
from pipelines.manifest.names import SIZES
from pipelines.manifest.stage import TRAIN, Identity
from pipelines.manifest.stage_records import Remains
from pipelines.manifest.stage_writing import begin_stage, discard_stage, may_contain_credentials
from pipelines.metrics import PipelineRun
from pipelines.stages.context import BuildContext
from pipelines.stages.count import count
from pipelines.stages.learn import (
    SCRATCH,
    SCRATCH_FILES,
    SecondRound,
    find_trained,
    learn,
)
from pipelines.stages.lifecycle import StageResult, find_finished, finish
from pipelines.stages.output import Output, remove_scratch
from pipelines.stages.submit import submit
from pipelines.stages.superwords import count_superwords
from pipelines.stages.train_job import TrainJob
from pipelines.storage.locks import OutputLock


def train(context: BuildContext) -> TokenizerManifest:
    """Train the tokenizer unless this is already done, after counting. Return the manifest."""
    given = count(context)
    output = context.output
    runs = None
    if context.config.tokenizer.superwords is not None:
        runs = count_superwords(context, given)
    configuration = training_configuration(context.config, given)
    identity = Identity.of(configuration, context.inputs.listed)
    if context.config.counts.path is not None and runs is None:  # the input decides nothing
        identity = Identity(configuration=configuration, inputs={}, marks={})
    manifest = find_finished(context, TRAIN, identity, discard_tokenizer)
    if manifest is None:
        assert given.manifest is not None, "they are those of a build, or were checked"
        check_groups(context.config.tokenizer, given.manifest.group_bytes, given.directory.url)
        started = time.monotonic()
        begin_stage(output.tokenizer, identity, commits=context.inputs.commits)
        content, result = _train_where_configured(context, given, configuration, runs)
        manifest = TokenizerManifest.seal(
            configuration, inputs=dict(identity.inputs), **content.fields()
        )
        result = replace(result, run=_name_given(context.config, given))
        finish(context, TRAIN, identity, manifest, result, started)
    context.report.add_warnings(
        remove_scratch(output.tokenizer / SCRATCH, SCRATCH_FILES, context.lock)
    )
    context.report.add_tokenizer(manifest, output)
    return manifest


def _name_given(config: BuildConfig, given: GivenCounts) -> dict[str, str]:
    """Return where given counts are, for the run record; commands that analyze read them there."""
    url = given.directory.url
    return {} if config.counts.path is None or may_contain_credentials(url) else {"counts": url}


def discard_tokenizer(output: Output, lock: OutputLock) -> list[str]:
    """Remove the files of the stage. Return warnings."""
    lock.acquire()
    warnings = remove_scratch(output.tokenizer / SCRATCH, SCRATCH_FILES, lock)
    ours = "|".join(map(re.escape, sorted(TOKENIZER_FILES)))
    if Remains.load(TRAIN, output.tokenizer).is_recorded:
        warnings += remove_scratch(output.tokenizer / SIZES, rf"\d+/({ours})", lock)
    discard_stage(TRAIN, output.tokenizer, ours)
    return warnings


def _train_where_configured(
    context: BuildContext,
    given: GivenCounts,
    configuration: Mapping[str, Any],
    runs: SuperwordsManifest | None,
) -> tuple[TokenizerContent, StageResult]:
    """Train. Return the content of the manifest, and the result of the stage."""
    config, output = context.config.tokenizer, context.output
    content = find_trained(output.tokenizer, configuration, given)
    if content is not None:
        return content, StageResult(resumed=True)
    if config.train_where == "launcher":
        second = None if runs is None else SecondRound(output.superwords, runs)
        content = learn(config, given, output.tokenizer, configuration, second)
        return content, StageResult()
    pipelines = context.pipelines
    if context.no_wait:
        submit(context, TRAIN, pipelines.begin)
    train_job = TrainJob(config=context.config, guard=context.lock.guard)
    _, job = pipelines.run(pipelines.train(train_job))
    content = find_trained(output.tokenizer, configuration, given)
    assert content is not None, "a finished pipeline has written the tokenizer and its entry"
    return content, StageResult(pipeline=PipelineRun(job=job))
