"""The tokenizer that a build extends (`tokenizer.base`)."""

from __future__ import annotations

from collections.abc import Iterator

from bpe_core import CharBPETokenizer
from bpe_core.extending import add_special_tokens
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern
from pipelines.config import BuildConfig, TokenizerConfig
from pipelines.config.yaml_document import format_path
from pipelines.dataset.tokenizers import find_model
from pipelines.errors import ConfigError
from pipelines.stages.jobs import check_affixes
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Model
from pipelines.tokenizers.sources import SourceOptions, read_source

__all__ = ["resolve_base"]


def resolve_base(config: BuildConfig) -> BuildConfig:
    """Return the configuration with the settings of the tokenizer that it extends, if any.

    Text is counted as the tokenizer splits, normalizes and cuts it.

    Raises:
        ConfigError: There is no such tokenizer, it cannot be extended, or a key contradicts it.
        InputError: It cannot be read.
    """
    tokenizer = config.tokenizer
    if tokenizer.base is None or tokenizer.base_model is not None:
        return config
    model = _read_base(config, config.resolve(tokenizer.base))
    if isinstance(model, CharBPETokenizer) or (reason := _why_not(model)) is not None:
        raise ConfigError(
            "This tokenizer cannot be extended.",
            expected="a byte-level tokenizer without rules for spaces",
            found="one that merges characters" if isinstance(model, CharBPETokenizer) else reason,
            where=f"tokenizer.base: {tokenizer.base}",
        )
    for key, expected, found in _contradictions(tokenizer, model):
        raise ConfigError(
            f"tokenizer.{key} contradicts the tokenizer that is extended.",
            expected=f"{expected}, as of tokenizer.base",
            found=found,
            where=f"tokenizer.{key}",
            hint=f"Remove {key}: the text is counted as the tokenizer splits it.",
        )
    extended = tokenizer.extending(model)
    for problem in extended.required_problems():
        raise ConfigError(
            "A required token is never encoded.",
            expected=problem.expected,
            found=problem.found,
            where=f"tokenizer.{format_path(problem.path)}",
            hint=problem.hint,
        )
    start = add_special_tokens(model, extended.special_tokens)
    if (smallest := extended.vocab_sizes[0]) < len(start):
        raise ConfigError(
            "The vocabulary is smaller than that of the tokenizer to extend.",
            expected=f"more than {len(start):,}, the ids of it and of added special tokens",
            found=f"{smallest:,}",
            where="tokenizer.vocab_size",
        )
    check_affixes(config.encode, start)
    return config.model_copy(update={"tokenizer": extended})


def _read_base(config: BuildConfig, url: str) -> Model:
    output = Directory(url=config.output_path, storage_options=config.output_storage_options)
    storage_options = output.elsewhere(url).storage_options
    if url.endswith(".tiktoken") and "pattern" in config.tokenizer.model_fields_set:
        # Ranks contain no pattern.
        options = SourceOptions(pattern=config.tokenizer.pattern)
        return read_source(url, options, storage_options=storage_options, compare=False).model
    return find_model(url, storage_options)


def _why_not(model: TokenizerModel) -> str | None:
    """Return what of a tokenizer counting cannot do, or None."""
    if model.characters is not None:
        return "one that merges characters"
    if model.space_rules:
        return f"one with {model.space_rules[0]}"
    if model.token_flags:
        text = next(iter(model.token_flags))
        return f"one with flags of the special token {text!r}: {', '.join(model.token_flags[text])}"
    return None


def _contradictions(
    config: TokenizerConfig, base: TokenizerModel
) -> Iterator[tuple[str, str, str]]:
    """Yield keys that are set and differ from the tokenizer: key, expected and found."""
    given = config.model_fields_set
    rules = {"split_categories", "max_digits"} & config.rules.model_fields_set
    if "pattern" in given or rules:
        # Ranks are read with tiktoken's variant of a pattern.
        variants = (config.effective_pattern, f"{config.effective_pattern}_tiktoken")
        if not {base.pattern, resolve_pattern(base.pattern).regex}.intersection(
            [*variants, resolve_pattern(config.effective_pattern).regex]
        ):
            key = "pattern" if "pattern" in given else f"rules.{sorted(rules)[0]}"
            yield key, f"the pattern {base.pattern!r}", repr(config.effective_pattern)
    if "normalizer" in given and config.normalization_form != base.normalizer:
        yield "normalizer", base.normalizer or "none", config.normalizer
    if "normalize_quotes" in given and config.normalize_quotes != base.normalize_quotes:
        yield (
            "normalize_quotes",
            str(base.normalize_quotes).lower(),
            str(config.normalize_quotes).lower(),
        )
