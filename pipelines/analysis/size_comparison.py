"""Vocabularies of several sizes, compared by the counts of a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from bpe_core import BPETokenizer
from bpe_core.model import TokenizerModel
from pipelines.analysis.sizes import SizesReport, measure_sizes
from pipelines.config import BuildConfig, TokenizerConfig
from pipelines.config.fingerprints import tokenizer_settings
from pipelines.config.values import LARGEST_VOCABULARY
from pipelines.console import progress
from pipelines.counting.given import GivenCounts
from pipelines.counting.load import load_all_columns
from pipelines.counting.training import train_models, training_configuration
from pipelines.counting.training_counts import load_training_counts
from pipelines.errors import ConfigError, InputError
from pipelines.manifest.models import CountsManifest, TokenizerManifest, manifest_model
from pipelines.manifest.names import CONFIGURATION, MANIFEST
from pipelines.manifest.records import load_sealed
from pipelines.manifest.stage import TRAIN
from pipelines.manifest.stage_records import load_manifest
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import load_model

_FILES_SHOWN: Final = 3


def compare_sizes(
    root: Directory, sizes: Sequence[int], config: BuildConfig | None = None
) -> SizesReport:
    """Return what vocabularies of several sizes make of the counted corpus of an output.

    The finished tokenizer answers for its size and smaller ones. For a larger one, a tokenizer is
    trained in memory. Nothing is written.

    Args:
        root: The output, with finished counts.
        sizes: Sizes of the vocabulary.
        config: Configuration of the build, whose counts these are; None for the rules by which the
            output was trained.

    Raises:
        ConfigError: A size is not possible, or the tokenizer does not merge bytes.
        InputError: There are no counts, or no rules of training.
    """
    if config is not None and config.counts.path is not None:
        given = GivenCounts.of_build(config, root)
    else:
        given = GivenCounts.open(root.url, root.storage_options)
    trained = _load_trained(root, given)
    settings = _find_settings(root, trained) if config is None else config.tokenizer
    check_compares(settings, sizes)
    progress.describe("loading counts")
    model = None
    if trained is not None and (config is None or _is_alike(trained, config, given)):
        model = _load_large_enough(root, sizes, trained)
    if model is None and settings.base is not None and settings.base_model is None:
        raise InputError(
            "These sizes extend a tokenizer that only the configuration names.",
            expected="sizes up to that of a finished tokenizer without required tokens, or a "
            "configuration",
            found=", ".join(f"{size:,}" for size in sizes),
            where=root.url,
            hint="Give the configuration: `beam-bpe sizes CONFIG`.",
        )
    models = [model] if model is not None else _train(settings, given, sizes)
    tokenizers = [BPETokenizer.from_model(model) for model in models]
    counts, name = load_all_columns(given), _name_sources(given)
    if len(tokenizers) == 1:
        return measure_sizes(tokenizers[0], counts, sizes, name)
    measured = [
        measure_sizes(tokenizer, counts, [size], name).sizes[0]
        for tokenizer, size in zip(tokenizers, sorted(set(sizes)), strict=True)
    ]
    return SizesReport(sizes=measured, name=name)


_START: Final = ("the tokens of tokenizer.base", "256 bytes")


def check_compares(settings: TokenizerConfig, sizes: Sequence[int]) -> None:
    """Check that a tokenizer of these rules can have these sizes.

    Raises:
        ConfigError: It cannot, or it does not merge bytes.
    """
    if settings.unit != "byte":
        raise ConfigError(
            "Sizes are compared only for tokenizers that merge bytes.",
            expected="tokenizer.unit: byte",
            found=f"unit: {settings.unit}" + ", metaspace: true" * settings.metaspace,
            hint="Build each size, and compare the reports: `beam-bpe report OUTPUT`.",
        )
    if settings.superwords is not None:
        raise ConfigError(
            "Sizes are not compared for tokenizers with superwords.",
            expected="no tokenizer.superwords: counts of pre-tokens do not determine such tokens",
            found=f"superwords of at most {settings.superwords.max_words} words",
            hint="Build each size, and compare the reports: `beam-bpe report OUTPUT`.",
        )
    least = len(settings.special_tokens) + (
        256 if settings.base_model is None else len(settings.base_model.token_ids)
    )
    for size in sizes:
        if not least <= size <= LARGEST_VOCABULARY:
            raise ConfigError(
                "A size of the vocabulary is not possible.",
                expected=f"{least} ({_START[settings.base is None]} and the special tokens) to "
                f"{LARGEST_VOCABULARY:,}",
                found=str(size),
                where="--vocab",
            )


def _load_trained(root: Directory, given: GivenCounts) -> TokenizerManifest | None:
    """Return the manifest of the tokenizer, or None if it was not trained from the counts."""
    directory = root / TRAIN.directory
    data = directory.find_bytes(MANIFEST)
    if data is None or manifest_model(TRAIN.directory, data) is not TokenizerManifest:
        return None
    manifest = load_manifest(TRAIN, directory)
    return manifest if manifest is not None and manifest.counts == given.fingerprint else None


def _find_settings(root: Directory, trained: TokenizerManifest | None) -> TokenizerConfig:
    """Return the rules of training of an output."""
    try:
        recorded = (
            load_sealed(root.find_bytes(CONFIGURATION) or b"")
            if trained is None
            else trained.configuration
        )
        return tokenizer_settings(recorded["tokenizer"])
    except (ValueError, KeyError, TypeError):
        raise InputError(
            "The rules of training are not known.",
            expected=f"a trained tokenizer, or {CONFIGURATION}",
            found="neither",
            where=root.url,
            hint="Give the configuration: `beam-bpe sizes CONFIG`.",
        ) from None


def _is_alike(trained: TokenizerManifest, config: BuildConfig, given: GivenCounts) -> bool:
    """Return True if a tokenizer was trained as configured, apart from its size."""

    def rules(configuration: Mapping[str, Any]) -> dict[str, Any]:
        return {**configuration["tokenizer"], "vocab_size": None}

    return rules(trained.configuration) == rules(training_configuration(config, given))


def _load_large_enough(
    root: Directory, sizes: Sequence[int], trained: TokenizerManifest
) -> TokenizerModel | None:
    """Return the finished tokenizer if its first merges are those of all sizes, else None."""
    if trained.configuration["tokenizer"].get("required_tokens"):
        return None  # required tokens follow fewer learned merges at each smaller size
    model = load_model(root / TRAIN.directory)
    assert isinstance(model, TokenizerModel), "its unit was checked"
    is_largest = model.stop_reason != "vocab_size_reached"
    return model if is_largest or len(model) >= max(sizes) else None


def _train(
    settings: TokenizerConfig, given: GivenCounts, sizes: Sequence[int]
) -> list[TokenizerModel]:
    """Train a tokenizer that has all sizes or, with required tokens, one of each size."""
    counts = load_training_counts(given, settings)
    wanted = sorted(set(sizes)) if settings.required_tokens else [max(sizes)]
    several = settings.model_copy(update={"vocab_size": tuple(wanted)})
    merges = max(sizes) - len(settings.special_tokens) - 256
    with progress.show("training", merges, local=True):
        trained = train_models(several, counts, progress.show_merges)
    models = [one.model for one in trained]
    assert all(isinstance(model, TokenizerModel) for model in models), "the unit was checked"
    return cast("list[TokenizerModel]", models)


def _name_sources(given: GivenCounts) -> str:
    """Return the names of the sources; a single one without a name is named by its files."""
    manifest = given.manifest
    sources = manifest.configured_sources if isinstance(manifest, CountsManifest) else ()
    names = [
        source["name"] or ", ".join(source.get("files", ["text"])[:_FILES_SHOWN])
        for source in sources
    ]
    return ", ".join(names) or "text"
