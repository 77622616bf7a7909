"""Stage that trains the first round, and counts runs of its words, for superwords.

It is a part of training. Its directory contains the tokenizer of the first round, which workers
load, and the shards of counted runs.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bpe_core.formats import TOKENIZER_FILES
from bpe_core.superwords import MOST_RUN_WORDS
from pipelines.config import BuildConfig
from pipelines.config.fingerprints import tokenizer_configuration
from pipelines.counting.content import counts_content
from pipelines.counting.given import GivenCounts
from pipelines.errors import InputError, PipelineError
from pipelines.manifest.models import SuperwordsManifest, TokenizerContent
from pipelines.manifest.names import RUN_FILES, RUNS
from pipelines.manifest.stage import SUPERWORDS, Identity
from pipelines.manifest.stage_comparison import find_finished_manifest
from pipelines.manifest.stage_writing import begin_stage, discard_stage
from pipelines.stages.context import BuildContext
from pipelines.stages.count import count_works
from pipelines.stages.jobs import list_works, superwords_job
from pipelines.stages.learn import SCRATCH, SCRATCH_FILES, find_trained, keep_trained, learn
from pipelines.stages.lifecycle import StageResult, find_finished, finish
from pipelines.stages.output import Output, remove_scratch
from pipelines.stages.submit import submit
from pipelines.storage.locks import OutputLock


def count_superwords(context: BuildContext, given: GivenCounts) -> SuperwordsManifest:
    """Train the first round and count its runs unless this is already done. Return the manifest."""
    inputs, output = context.inputs, context.output
    configuration = superwords_configuration(context.config, inputs.shards, given.corpus)
    identity = Identity.of(configuration, inputs.listed)
    manifest = find_finished(context, SUPERWORDS, identity, discard_superwords)
    if manifest is None:
        started = time.monotonic()
        begin_stage(
            output.superwords,
            identity,
            inputs.limits,
            len(inputs.plan.tasks),
            inputs.commits,
            task_rule=inputs.task_rule,
        )
        manifest, result = _count_tasks(context, given, identity)
        finish(context, SUPERWORDS, identity, manifest, result, started)
    context.report.add_warnings(_remove_scratch(output, context.lock))
    return manifest


def superwords_configuration(
    config: BuildConfig, shards: int, corpus: str | None
) -> dict[str, Any]:
    """Return everything that determines the tokenizer of the first round, and the runs."""
    first = config.model_copy(update={"tokenizer": config.tokenizer.first_round})
    return {
        **tokenizer_configuration(first, shards),
        "corpus": corpus,
        "run_words": MOST_RUN_WORDS,
    }


def discard_superwords(output: Output, lock: OutputLock) -> list[str]:
    """Remove the files of the stage. Return warnings."""
    lock.acquire()
    warnings = _remove_scratch(output, lock)
    tokenizer = "|".join(map(re.escape, sorted(TOKENIZER_FILES)))
    discard_stage(SUPERWORDS, output.superwords, rf"shard-\d+-of-\d+\.parquet|{tokenizer}")
    return warnings


def discard_other_superwords(context: BuildContext, output: Output, lock: OutputLock) -> list[str]:
    """Remove the files of the stage unless they are finished, and those of the configuration.

    A second round with other rules can begin with them. Return warnings.
    """
    with suppress(PipelineError):
        config, inputs = context.config, context.inputs
        if config.counts.path is None:
            given = GivenCounts.open(output.root.url, output.root.storage_options)
        else:
            given = GivenCounts.of_build(config, output.root)
        if config.tokenizer.superwords is not None:
            found = superwords_configuration(config, inputs.shards, given.corpus)
            identity = Identity.of(found, inputs.listed)
            if find_finished_manifest(SUPERWORDS, output.superwords, identity) is not None:
                return []
    return discard_superwords(output, lock)


def _remove_scratch(output: Output, lock: OutputLock) -> list[str]:
    return [
        *remove_scratch(output.superwords / RUNS, RUN_FILES, lock),
        *remove_scratch(output.superwords / SCRATCH, SCRATCH_FILES, lock),
    ]


def _count_tasks(
    context: BuildContext, given: GivenCounts, identity: Identity
) -> tuple[SuperwordsManifest, StageResult]:
    """Train, count the tasks that no commit contains, and merge the shards. Return the manifest."""
    config, inputs, output = context.config, context.inputs, context.output
    first = _train_first_round(context, given, identity)
    works = list_works(inputs.plan)
    job = superwords_job(
        config,
        output,
        inputs.plan,
        works,
        identity.configuration_fingerprint,
        first.fingerprint,
        shards=inputs.shards,
    )
    result = count_works(
        context,
        job,
        works,
        title="counting superwords",
        submit_steps=lambda steps: submit(context, SUPERWORDS, steps),
    )
    content = counts_content(job, config.input, inputs.planned_bytes)
    if content.corpus != given.corpus:
        raise InputError(
            "The documents of the second count are not those of the first.",
            expected=f"number and sum of hashes {given.corpus}",
            found=content.corpus,
            where=output.superwords.url,
            hint="The input changed in the meantime. When it is complete, run `beam-bpe build "
            "CONFIG --restart`.",
        )
    manifest = SuperwordsManifest.seal(
        identity.configuration,
        inputs=dict(identity.inputs),
        tokenizer=first.fingerprint,
        vocab_size=first.vocab_size,
        tokenizer_files=first.files,
        **content.fields(),
    )
    result = replace(
        result,
        bytes=manifest.totals.document_totals().all_bytes + result.bytes,
        run={"limits": inputs.limits, "commits": inputs.commits, "tasks": len(works)},
    )
    return manifest, result


def _train_first_round(
    context: BuildContext, given: GivenCounts, identity: Identity
) -> TokenizerContent:
    """Train unless this is already done. Return the facts about the tokenizer."""
    directory, configuration = context.output.superwords, identity.configuration
    content = find_trained(directory, configuration, given)
    if content is None:
        first = context.config.tokenizer.first_round
        content = learn(first, given, directory, configuration)
        keep_trained(directory, configuration, content)
    return content
