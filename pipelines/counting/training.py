"""Learn tokenizers from loaded counts, as configured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bpe_core import (
    BPETokenizer,
    CharBPETokenizer,
    train_characters_from_counts,
    train_from_counts,
)
from bpe_core.counts import PretokenCounts
from bpe_core.training import Progress, TrainingResult
from pipelines.config import BuildConfig, TokenizerConfig
from pipelines.config.fingerprints import tokenizer_configuration
from pipelines.counting.given import GivenCounts
from pipelines.counting.training_counts import TrainingCounts
from pipelines.tokenizers.files import Model


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


def training_configuration(config: BuildConfig, given: GivenCounts) -> dict[str, Any]:
    """Return the canonical configuration of training, which determines the tokenizer's bytes.

    Args:
        config: Configuration of the build.
        given: The counts.
    """
    configuration = tokenizer_configuration(config, given.shards)
    # Given counts do not follow from the inputs.
    identity = {} if config.counts.path is None else {"given_counts": given.fingerprint}
    return {**configuration, "corpus": given.corpus, **identity}


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
