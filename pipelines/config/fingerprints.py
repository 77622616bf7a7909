"""Canonical configurations, which determine the bytes of an output, their fingerprints and diffs.

Defaults are filled in and globs are sorted, without their fixed part, so that two checkouts in
different folders have the same fingerprint. Keys that only say where and how the work is done are
left out. So are `include` and `exclude`: the files that they select are listed as inputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from pipelines.config import BuildConfig, SourceConfig, TokenizerConfig
from pipelines.config.source import SELECTION_KEYS, keys_of_other_formats
from pipelines.config.values import split_glob
from pipelines.config.yaml_document import KeyPath, format_path

# Keys that only say where and how the work is done. The limits on bad files and on expansion
# determine whether a build fails, but never what it writes.
_NO_INFLUENCE_ON_TOKENS: Final = {
    "storage_options",
    "include",
    "exclude",
    "follow_links",
    "max_bad_files",
    "max_expansion",
}
_NO_INFLUENCE_ON_DOCUMENTS: Final = {*_NO_INFLUENCE_ON_TOKENS, "range_bytes", "keep_columns"}
_OF_METASPACE: Final = {"metaspace", "byte_fallback", "character_coverage"}
# Keys of counting that were added later. Without them, fingerprints of older builds stay; counts by
# source need no key, as they are kept apart whenever there are several sources.
_COUNTED_LATER: Final = {"group_by", "document_frequency"}
# Keys that affect training but not counting.
_OF_TRAINING: Final = {
    *("base", "required_tokens", "mixture", "parity", "min_documents", "min_sources"),
    *_OF_METASPACE,
}
_ADDED_LATER: Final = {"normalizer", "normalize_quotes", "rules", *_OF_TRAINING}


def counts_configuration(config: BuildConfig, shards: int) -> dict[str, Any]:
    """Return everything that determines the counts: documents, pattern, rules, number of shards."""
    return {
        "input": _sources(config, leave_out=_NO_INFLUENCE_ON_DOCUMENTS),
        "tokenizer": {
            **config.tokenizer.model_dump(mode="json", include={"unit", "special_tokens"}),
            "pattern": config.tokenizer.effective_pattern
            if config.tokenizer.unit == "character"
            else config.tokenizer.pattern,
            **_set_rules(config, training=False),
        },
        "counts": {
            **config.counts.model_dump(
                mode="json",
                exclude={
                    *("path", "memory", "checkpoint_bytes", "keep_file_counts"),
                    *_COUNTED_LATER,
                },
            ),
            **config.counts.model_dump(mode="json", include=_COUNTED_LATER, exclude_defaults=True),
            "shards": shards,
        },
    }


def tokenizer_configuration(config: BuildConfig, shards: int) -> dict[str, Any]:
    """Return everything that determines a trained tokenizer: counts and rules of training."""
    return {
        **counts_configuration(config, shards),
        "tokenizer": {
            **config.tokenizer.model_dump(
                mode="json", exclude={"path", "train_where", "superwords", *_ADDED_LATER}
            ),
            **_set_rules(config, training=True),
            **_superwords(config),
        },
    }


def tokens_configuration(config: BuildConfig, tokenizer_fingerprint: str) -> dict[str, Any]:
    """Return everything that determines the token files: documents, tasks, tokenizer, rules."""
    return {
        "input": _sources(config, leave_out=_NO_INFLUENCE_ON_TOKENS),
        "tokenizer": tokenizer_fingerprint,
        # The limit on rejects determines whether a build fails, but never what it writes. The
        # tokenizer's fingerprint is that of the chosen size.
        "encode": config.encode.model_dump(
            mode="json", exclude={"max_reject_fraction", "vocab_size"}
        ),
    }


def _set_rules(config: BuildConfig, *, training: bool) -> dict[str, Any]:
    """Return the keys that were added later and do not have their default values.

    Leaving out defaults keeps the fingerprints of older builds. Some of these keys affect training
    but not counting.
    """
    keys = config.tokenizer.model_dump(
        mode="json",
        include=_ADDED_LATER if training else _ADDED_LATER - _OF_TRAINING,
        exclude=None if training else {"rules": {"forbid_whitespace_tokens"}},
        exclude_defaults=True,
    )
    if "base" in keys and (base := config.tokenizer.base_model) is not None:
        keys["base"] = base.fingerprint
    return {key: value for key, value in keys.items() if key != "rules" or value != {}}


def _superwords(config: BuildConfig) -> dict[str, Any]:
    """Return the section about superwords with its size filled in, if there is one."""
    superwords = config.tokenizer.superwords
    if superwords is None:
        return {}
    before = config.tokenizer.first_round.vocab_size
    return {"superwords": {"max_words": superwords.max_words, "vocab_size_before": before}}


def _sources(config: BuildConfig, leave_out: set[str]) -> list[dict[str, Any]]:
    return [
        {
            **source.model_dump(
                mode="json",
                exclude=leave_out
                | {*SELECTION_KEYS, "keep_columns"}
                | keys_of_other_formats(source.format),
            ),
            # Unset keys are left out, so that builds without a selection keep their fingerprints.
            **{key: value for key, value in source.selection.items() if key not in leave_out},
            **_kept_columns(source, leave_out),
            "files": sorted(split_glob(pattern)[1] for pattern in source.files),
        }
        for source in config.input
    ]


def _kept_columns(source: SourceConfig, leave_out: set[str]) -> dict[str, Any]:
    if "keep_columns" in leave_out or not source.keep_columns:
        return {}
    return {"keep_columns": list(source.keep_columns)}


def source_of(canonical: Mapping[str, Any], **others: Any) -> SourceConfig:
    """Return the source configuration for an entry of a canonical configuration.

    Args:
        canonical: The entry, with every key of its format, whether it was set or not.
        others: Keys that canonical configurations leave out.
    """
    # The configuration refuses `join` unless there are several fields to join.
    unused = {"join"} if isinstance(canonical.get("text_field"), str) else set()
    stated = {key: value for key, value in canonical.items() if key not in unused}
    return SourceConfig.model_validate({**stated, **others})


def tokenizer_settings(canonical: Mapping[str, Any]) -> TokenizerConfig:
    """Return the tokenizer configuration for the section of a canonical configuration.

    Keys with their default values are left out, since some are refused beside others.
    """
    defaults = TokenizerConfig().model_dump(mode="json")
    stated = {key: value for key, value in canonical.items() if value != defaults[key]}
    return TokenizerConfig.model_validate(stated)


def fingerprint(mapping: Mapping[str, Any]) -> str:
    """Return the xxh3-128 of the mapping as JSON with sorted keys, in 32 hexadecimal digits."""
    text = json.dumps(mapping, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())


@dataclass(frozen=True)
class Difference:
    """Key whose value differs between an old and a new configuration.

    Attributes:
        key: Dotted path, such as `input[0].separator`.
        old, new: Values as JSON text, or None if the key is missing.
    """

    key: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        old, new = (text if text is not None else "not set" for text in (self.old, self.new))
        return f"{self.key}: {old} → {new}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return the keys whose values differ, sorted by name.

    >>> print(*differences({"a": {"b": 1}}, {"a": {"b": 2, "c": [3]}}), sep="\\n")
    a.b: 1 → 2
    a.c: not set → [3]
    """
    flat_old, flat_new = dict(_leaves(old, ())), dict(_leaves(new, ()))
    return [
        Difference(key, flat_old.get(key), flat_new.get(key))
        for key in sorted(flat_old.keys() | flat_new.keys())
        if flat_old.get(key) != flat_new.get(key)
    ]


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[str, str]]:
    """Yield every key with its value as JSON. A list of plain values is one value."""
    children: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, Mapping):
        children = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        children = enumerate(value)
    else:
        yield format_path(path), json.dumps(value, ensure_ascii=False)
    for step, child in children:
        yield from _leaves(child, (*path, step))
