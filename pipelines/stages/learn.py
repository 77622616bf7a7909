"""Training from the counts of a build, in the launcher or on a worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from bpe_core import (
    BPETokenizer,
    CharBPETokenizer,
    train_characters_from_counts,
    train_from_counts,
    train_superwords,
)
from bpe_core.counts import PretokenCounts
from bpe_core.mixtures import Mixture
from bpe_core.model import TokenizerModel
from bpe_core.training import Progress, TrainingResult
from pipelines.config import BuildConfig, TokenizerConfig
from pipelines.config.fingerprints import fingerprint, tokenizer_configuration
from pipelines.console import progress
from pipelines.counting.training_counts import TrainingCounts, load_training_counts
from pipelines.manifest.models import CountsContent, SuperwordsManifest, TokenizerContent
from pipelines.manifest.names import SIZES
from pipelines.manifest.records import Record
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task
from pipelines.tokenizers.files import Model, load_model, save_tokenizer
from pipelines.versions import deciding_versions

# Contains a worker's entry until the launcher writes the manifest.
SCRATCH: Final = "_training"
_ENTRY: Final = "entry.json"
SCRATCH_FILES: Final = re.escape(_ENTRY)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Trained tokenizer of either unit, and why training stopped."""

    merges: int
    stop_reason: str
    stopped_because: str
    model: Model

    @classmethod
    def of(cls, result: TrainingResult) -> Trained:
        """Return the result of training by bytes, or by characters with white space."""
        return cls(
            merges=len(result.merges),
            stop_reason=result.stop_reason,
            stopped_because=result.explain_stop(),
            model=result.model,
        )


@dataclass(frozen=True)
class SecondRound:
    """The finished first round: the directory of its tokenizer and runs, and their manifest."""

    directory: Directory
    manifest: SuperwordsManifest


class _Entry(Record):
    """Result of `learn` on a worker, with the fingerprint of the configuration."""

    configuration: str
    content: TokenizerContent


def training_configuration(config: BuildConfig, counted: CountsContent) -> dict[str, Any]:
    """Return the canonical configuration of training, which determines the tokenizer's bytes.

    Args:
        config: Configuration of the build.
        counted: Manifest of the counts, or its content.
    """
    configuration = tokenizer_configuration(config, len(counted.shards))
    # Given counts do not follow from the inputs.
    given = {} if config.counts.path is None else {"given_counts": counted.fingerprint}
    return {**configuration, "corpus": counted.corpus, **given}


def find_trained(
    directory: Directory, configuration: Mapping[str, Any], counted: CountsContent
) -> TokenizerContent | None:
    """Return the result that `keep_trained` stored, or None.

    It is used only if it belongs to these counts and all its files are intact.
    """
    entry = _Entry.load_file(directory / SCRATCH, _ENTRY)
    if entry is None:
        return None
    content = entry.content
    if entry.configuration != fingerprint(configuration) or content.counts != counted.fingerprint:
        return None
    intact = all(
        (data := directory.find_bytes(f"{place}/{file.name}".lstrip("/"))) is not None
        and xxhash.xxh3_128_hexdigest(data) == file.xxh3_128
        for place, trained in content.of_all_sizes()
        for file in trained.files
    )
    return content if intact else None


def keep_trained(
    directory: Directory, configuration: Mapping[str, Any], content: TokenizerContent
) -> None:
    """Store the result of `learn` on a worker for the launcher, which writes the manifest."""
    entry = _Entry(configuration=fingerprint(configuration), content=content)
    (directory / SCRATCH).write_json(_ENTRY, entry.to_json())


def learn(
    config: TokenizerConfig,
    counts: Directory,
    directory: Directory,
    counted: CountsContent,
    configuration: Mapping[str, Any],
    second: SecondRound | None = None,
) -> TokenizerContent:
    """Learn the merges and write the tokenizers' files. Return the content of the manifest.

    Args:
        config: Configuration of the tokenizer.
        counts: Directory of the counts.
        directory: Directory of the tokenizer.
        counted: Manifest of the counts, or its content.
        configuration: Canonical configuration of training.
        second: The first round of training and its runs, to go on with; None to train alone.
    """
    progress.describe("loading counts")
    place, found = (counts, counted) if second is None else (second.directory, second.manifest)
    pretokens = load_training_counts(place, found.to_json("shards", "fingerprint"), config)
    ordinary = 256 * (config.unit == "byte")
    if config.base_model is not None:
        ordinary = len(config.base_model.token_ids)
    largest = config.largest_vocab_size
    start = len(config.special_tokens) + ordinary
    wanted = largest - (start if second is None else second.manifest.vocab_size)
    with current_task("learning merges"), progress.show("training", wanted, local=True):
        if second is None:
            *smaller, trained = train_models(config, pretokens, progress.show_merges)
        else:
            smaller, trained = [], _train_superwords(config, second, pretokens.counts)
    sizes = []
    for size, model in zip(config.vocab_sizes, smaller, strict=False):
        # As training to this size alone would write it.
        alone = {
            **configuration,
            "tokenizer": {**configuration["tokenizer"], "vocab_size": size},
        }
        place = directory / f"{SIZES}/{size}"
        sizes.append(_write(model, size, place, counted, alone, pretokens.mixture))
    content = {
        **_write(trained, largest, directory, counted, configuration, pretokens.mixture),
        "counts": counted.fingerprint,
        **({} if pretokens.mixture is None else {"mixture": pretokens.mixture.to_json()}),
        **({"sizes": sizes} if sizes else {}),
    }
    return TokenizerContent.model_validate(content)


def _write(
    trained: Trained,
    size: int,
    directory: Directory,
    counted: CountsContent,
    configuration: Mapping[str, Any],
    mixture: Mixture | None,
) -> dict[str, Any]:
    """Write the files of a tokenizer. Return its entry in the manifest."""
    facts = {
        "merges": trained.merges,
        "stop_reason": trained.stop_reason,
        "stopped_because": trained.stopped_because,
        "vocab_size": len(trained.model),
        "vocab_size_asked_for": size,
    }
    software = dict(deciding_versions())
    training = {
        "configuration": configuration,
        "software": software,
        "counts": counted.fingerprint,
        **({} if mixture is None else {"mixture": mixture.to_json()}),
        **facts,
    }
    files, not_written = save_tokenizer(trained.model, directory, {"training": training})
    fingerprint = trained.model.fingerprint
    return {**facts, "fingerprint": fingerprint, "files": files, "not_written": not_written}


def train_model(config: TokenizerConfig, counts: TrainingCounts, show: Progress = False) -> Trained:
    """Learn the merges of the largest tokenizer of a configuration; see `train_models`."""
    [trained] = train_models(config.with_vocab_size(config.largest_vocab_size), counts, show)
    return trained


def train_models(
    config: TokenizerConfig, counts: TrainingCounts, show: Progress = False
) -> list[Trained]:
    """Learn the merges of tokenizers from counts.

    Args:
        config: Configuration of the tokenizers.
        counts: Counts of the pre-tokens, as the configuration selects and weights them.
        show: Function that receives the merges learned so far, as training calls it.

    Returns:
        A tokenizer for each size, ascending.
    """
    if config.unit == "byte":
        return _train_bytes(config, counts, show)
    # The characters that get tokens may depend on the size, so each size is trained alone.
    train = _train_merged_characters if config.metaspace else _train_characters
    return [train(config, size, counts.counts, show) for size in config.vocab_sizes]


def _train_bytes(config: TokenizerConfig, counts: TrainingCounts, show: Progress) -> list[Trained]:
    results = train_from_counts(
        counts.counts,
        config.vocab_sizes,
        config.special_tokens,
        tie_break=config.tie_break,
        min_frequency=config.min_frequency,
        max_token_bytes=config.max_token_bytes,
        forbidden_tokens=[token.encode() for token in config.forbidden_tokens],
        forbid_whitespace_tokens=config.rules.forbid_whitespace_tokens,
        required_tokens=[token.encode() for token in config.required_tokens],
        base=None if config.base_model is None else BPETokenizer.from_model(config.base_model),
        parity=counts.parity,
        progress=show,
    )
    return [Trained.of(result) for result in results]


def _train_superwords(
    config: TokenizerConfig, second: SecondRound, runs: PretokenCounts
) -> Trained:
    assert config.superwords is not None
    first = load_model(second.directory)
    assert isinstance(first, TokenizerModel), "superwords are of bytes"
    result = train_superwords(
        runs,
        config.largest_vocab_size,
        BPETokenizer.from_model(first),
        max_words=config.superwords.max_words,
        tie_break=config.tie_break,
        min_frequency=config.min_frequency,
        max_token_bytes=config.max_token_bytes,
        forbidden_tokens=[token.encode() for token in config.forbidden_tokens],
        progress=progress.show_merges,
    )
    return Trained.of(result)


def _train_merged_characters(
    config: TokenizerConfig, size: int, counts: PretokenCounts, show: Progress
) -> Trained:
    result = train_characters_from_counts(
        counts,
        size,
        config.special_tokens,
        unk_token=config.unk_token or "",
        byte_fallback=config.byte_fallback,
        character_coverage=config.character_coverage,
        tie_break=config.tie_break,  # type: ignore[arg-type]  # the configuration refuses huggingface
        min_frequency=config.min_frequency,
        max_token_bytes=config.max_token_bytes,
        forbidden_tokens=config.forbidden_tokens,
        progress=show,
    )
    return Trained.of(result)


def _train_characters(
    config: TokenizerConfig, size: int, counts: PretokenCounts, show: Progress
) -> Trained:
    tokenizer = CharBPETokenizer(
        config.unk_token,
        config.end_of_word,
        config.end_of_word_as,
        special_tokens=config.special_tokens,
    )
    tokenizer.train_from_counts(
        counts,
        size,
        tie_break=config.tie_break,  # type: ignore[arg-type]  # the configuration refuses huggingface
        min_frequency=config.min_frequency,
        limit_alphabet=config.limit_alphabet,
        max_token_bytes=config.max_token_bytes,
        forbidden_tokens=config.forbidden_tokens,
        progress=show,
    )
    return Trained(
        merges=len(tokenizer.merges),
        stop_reason=str(tokenizer.stop_reason),
        stopped_because=tokenizer.explain_stop(),
        model=tokenizer,
    )
