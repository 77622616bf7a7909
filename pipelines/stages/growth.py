"""Datasets whose input has grown since their tokenizer was trained."""

from __future__ import annotations

from dataclasses import replace

from pipelines.config import BuildConfig
from pipelines.config.fingerprints import counts_configuration
from pipelines.counting.given import GivenCounts
from pipelines.counting.training import training_configuration
from pipelines.errors import InputError
from pipelines.manifest.models import CountsManifest, TokenizerManifest
from pipelines.manifest.names import MANIFEST
from pipelines.manifest.stage import COUNT, ENCODE, TRAIN, Identity
from pipelines.manifest.stage_comparison import find_finished_manifest
from pipelines.manifest.stage_records import load_manifest
from pipelines.stages.context import BuildContext
from pipelines.stages.inputs import Inputs
from pipelines.stages.output import Output
from pipelines.stages.summary import StageSummary


def reuse_tokenizer(context: BuildContext) -> bool:
    """Return True if a dataset keeps the tokenizer that was trained before its input grew.

    That is so once the added files are encoded, and for the command that adds them.

    Raises:
        DifferentConfigurationError: more than the added files has changed.
        InputError: there is no dataset to add to.
    """
    adds = context.command == "add"
    output = context.output
    if adds and MANIFEST not in output.tokens.sizes():
        raise InputError(
            "There is no finished dataset to add files to.",
            expected="manifest.json",
            where=output.tokens.url,
            hint="Make it: `beam-bpe build CONFIG`.",
        )
    found = find_former_training(context.config, context.inputs, output, context.command, adds=adds)
    if found is None:
        return False
    counted, trained = found
    for stage in (COUNT, TRAIN):
        context.report.add_stage(StageSummary(name=stage.name, state="already finished"))
    context.report.add_counts(counted, output.counts)
    context.report.add_tokenizer(trained, output)
    return True


def find_former_training(
    config: BuildConfig, inputs: Inputs, output: Output, command: str, *, adds: bool = False
) -> tuple[CountsManifest, TokenizerManifest] | None:
    """Return the records of counting and training if they lack files that the dataset contains.

    Args:
        config: Configuration of the build.
        inputs: Inputs of the build.
        output: Output of the build.
        command: Command that the user ran, for hints.
        adds: True if the dataset is about to get the files.

    Raises:
        DifferentConfigurationError: more than the added files has changed.
        OutputError: files are missing.
    """
    if not all(MANIFEST in place.sizes() for place in (output.tokens, output.tokenizer)):
        return None
    # Manifests of many inputs take long to load: most commands need this one alone.
    counted = load_manifest(COUNT, output.counts)
    listed = {file.label for file in inputs.listed.files}
    if counted is None or listed <= counted.input_sizes.keys():
        return None
    if not adds:
        dataset = load_manifest(ENCODE, output.tokens)
        if dataset is None or not listed <= dataset.input_sizes.keys():
            return None
    may_grow = replace(COUNT, may_grow=True), replace(TRAIN, may_grow=True)
    configuration = counts_configuration(config, inputs.shards)
    identity = Identity.of(configuration, inputs.listed)
    counts = find_finished_manifest(may_grow[0], output.counts, identity, command=command)
    assert counts is not None, "it was loaded above"
    given = GivenCounts.listed(output.counts, counts)
    identity = Identity.of(training_configuration(config, given), inputs.listed)
    trained = find_finished_manifest(may_grow[1], output.tokenizer, identity, command=command)
    return None if trained is None else (counts, trained)
