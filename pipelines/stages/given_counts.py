"""Counts that a build trains from instead of counting its input: `counts.path`."""

from __future__ import annotations

import json

from bpe_core import PretokenCounts
from bpe_core.counts import normalization_metadata
from bpe_core.errors import TrainingError
from pipelines.config import BuildConfig
from pipelines.config.values import protocol_of
from pipelines.counting.given import GivenCounts
from pipelines.errors import ConfigError, InputError
from pipelines.manifest.models import CountsManifest
from pipelines.stages.output import Output
from pipelines.storage.directory import Directory


def counts_directory(config: BuildConfig, output: Output) -> Directory:
    """Return the directory of the counts that a build trains from."""
    if config.counts.path is None:
        return output.counts
    return open_given_counts(config, output)[1]


def open_given_counts(config: BuildConfig, output: Output) -> tuple[CountsManifest, Directory]:
    """Return the manifest and the directory of the counts at `counts.path`.

    Raises:
        ConfigError: They have no manifest, or were counted by other rules.
        InputError: There are no finished counts.
    """
    path = config.counts.path
    assert path is not None
    url = config.resolve(path)
    same_storage = protocol_of(url) == protocol_of(output.root.url)
    try:
        given = GivenCounts.open(url, output.root.storage_options if same_storage else {})
    except InputError as error:  # counting by this configuration is refused, too
        error.hint = "Change counts.path, or remove it to count the input."
        raise
    if given.manifest is None:
        raise ConfigError(
            "Counts without a manifest cannot be trained from.",
            expected="a directory that `beam-bpe count` or `beam-bpe counts` wrote",
            found=given.url,
            where="counts.path",
            hint=f"Write one: `beam-bpe counts merge {path} --output DIR`.",
        )
    tokenizer = config.tokenizer
    wanted = {
        "pattern": tokenizer.effective_pattern,
        "special_tokens": json.dumps(tokenizer.special_tokens, ensure_ascii=False),
        **normalization_metadata(tokenizer.normalization_form, tokenizer.normalize_quotes),
    }
    try:
        PretokenCounts.from_mapping({}, wanted) + given.empty  # refuses other rules by name
    except TrainingError as error:
        raise ConfigError(
            "The counts were counted by other rules than those of the configuration.",
            expected="counts by the pattern, special tokens and normalization of `tokenizer`",
            found=f"{error} (configuration and counts)",
            where=f"counts.path: {given.url}",
            hint="Change `tokenizer`, or give counts by its rules.",
        ) from None
    return given.manifest, given.directory
