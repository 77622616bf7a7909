"""Training from loaded counts, in the launcher or on a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from pipelines.config.fingerprints import fingerprint, tokenizer_configuration
from pipelines.manifest.models import TrainedEntry
from pipelines.stages.context import Run

if TYPE_CHECKING:
    from bpe_core.counts import PretokenCounts
    from pipelines.config import BuildConfig
    from pipelines.tokenizers.files import Model


# What a worker has made, until the command has written the manifest.
_SCRATCH = "_training"
_ENTRY = "entry.json"


@dataclass(frozen=True, kw_only=True)
class _Trained:
    """A trained tokenizer of either unit, and what to tell of it."""

    merges: int
    stop_reason: str
    stopped_because: str
    model: Model


def training_configuration(config: BuildConfig, counted: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the bytes of a tokenizer trained from counts with this manifest."""
    return {**tokenizer_configuration(config), "corpus": counted["corpus"]}


def trained_before(
    run: Run, configuration: Mapping[str, Any], counted: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What `learn` gave on a worker, if that is done and all files are there and whole."""
    found = (run.tokenizer / _SCRATCH).read_json(_ENTRY, TrainedEntry) or {}
    content: dict[str, Any] = found.get("content", {})
    if found.get("configuration") != fingerprint(configuration):
        return None
    if content.get("counts") != counted["fingerprint"]:
        return None
    present = run.tokenizer.sizes()
    whole = all(
        present.get(file["name"]) == file["bytes"]
        and xxhash.xxh3_128_hexdigest(run.tokenizer.read_bytes(file["name"])) == file["xxh3_128"]
        for file in content["files"]
    )
    return content if whole else None


def keep_trained(run: Run, configuration: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Notes, on a worker, what `learn` gave, for the command that goes on."""
    entry = {"configuration": fingerprint(configuration), "content": content}
    (run.tokenizer / _SCRATCH).write_json(_ENTRY, entry)


def learn(run: Run, counted: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Learns the merges and writes the tokenizer's files; gives its part of the manifest."""
    from pipelines.counting.load import load_counts
    from pipelines.tokenizers.files import save_tokenizer
    from pipelines.versions import deciding_versions

    tokenizer = run.config.tokenizer
    counts = load_counts(run.counts, counted, min_count=tokenizer.min_count)
    learn = _train_bytes if tokenizer.unit == "byte" else _train_characters
    trained = learn(run, counts)
    training = {
        "configuration": configuration,
        "software": dict(deciding_versions()),
        "counts": counted["fingerprint"],
        "merges": trained.merges,
        "stop_reason": trained.stop_reason,
        "stopped_because": trained.stopped_because,
        "vocab_size": len(trained.model),
        "vocab_size_asked_for": tokenizer.vocab_size,
    }
    files, not_written = save_tokenizer(trained.model, run.tokenizer, {"training": training})
    for key in ("configuration", "software"):  # every manifest has them
        training.pop(key)
    return {
        **training,
        "fingerprint": trained.model.fingerprint,
        "files": files,
        "not_written": not_written,
    }


def _train_bytes(run: Run, counts: PretokenCounts) -> _Trained:
    from bpe_core import train_from_counts
    from pipelines.console import progress
    from pipelines.supervisor import current_task

    tokenizer = run.config.tokenizer
    wanted = tokenizer.vocab_size - 256 - len(tokenizer.special_tokens)
    with current_task("learning merges"), progress.shown("learning merges", wanted) as show:
        result = train_from_counts(
            counts,
            tokenizer.vocab_size,
            tokenizer.special_tokens,
            tie_break=tokenizer.tie_break,
            min_frequency=tokenizer.min_frequency,
            max_token_bytes=tokenizer.max_token_bytes,
            forbidden_tokens=[token.encode() for token in tokenizer.forbidden_tokens],
            forbid_whitespace_tokens=tokenizer.rules.forbid_whitespace_tokens,
            progress=show,
        )
    return _Trained(
        merges=len(result.merges),
        stop_reason=result.stop_reason,
        stopped_because=result.explain_stop(),
        model=result.model,
    )


def _train_characters(run: Run, counts: PretokenCounts) -> _Trained:
    from bpe_core import CharBPETokenizer
    from pipelines.console import progress
    from pipelines.supervisor import current_task

    asked = run.config.tokenizer
    tokenizer = CharBPETokenizer(
        asked.unk_token,
        asked.end_of_word,
        asked.end_of_word_as,
        special_tokens=asked.special_tokens,
    )
    wanted = asked.vocab_size - len(asked.special_tokens)
    with current_task("learning merges"), progress.shown("learning merges", wanted) as show:
        tokenizer.train_from_counts(
            counts,
            asked.vocab_size,
            tie_break=asked.tie_break,  # type: ignore[arg-type]  # huggingface is refused
            min_frequency=asked.min_frequency,
            limit_alphabet=asked.limit_alphabet,
            max_token_bytes=asked.max_token_bytes,
            forbidden_tokens=asked.forbidden_tokens,
            progress=show,
        )
    return _Trained(
        merges=len(tokenizer.merges),
        stop_reason=str(tokenizer.stop_reason),
        stopped_because=tokenizer.explain_stop(),
        model=tokenizer,
    )
