"""The stage that learns merges from the counts; in one process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipelines.config.identity import (
    tokenizer_configuration,
)
from pipelines.stages.count import count
from pipelines.stages.run import Made, Run

if TYPE_CHECKING:
    from bpe_core.counts import PretokenCounts
    from pipelines.tokenizers.files import Model


@dataclass(frozen=True, kw_only=True)
class _Trained:
    """A trained tokenizer of either unit, and what to tell of it."""

    merges: int
    stop_reason: str
    stopped_because: str
    model: Model


def train(run: Run) -> dict[str, Any]:
    """Trains if that is not done yet; gives the manifest."""
    counted = count(run)
    configuration = {**tokenizer_configuration(run.config), "corpus": counted["corpus"]}
    manifest = run.stage(
        "train",
        run.tokenizer,
        configuration,
        lambda identity: _run_train(run, counted, identity.configuration),
    )
    _note_tokenizer(run, manifest)
    return manifest


def discard_tokenizer(run: Run) -> None:
    """Removes what the stage wrote."""
    from bpe_core.formats import TOKENIZER_FILES
    from pipelines.manifest import discard_stage

    run.lock.acquire()
    discard_stage(run.tokenizer, "|".join(map(re.escape, sorted(TOKENIZER_FILES))))


def _run_train(run: Run, counted: Mapping[str, Any], configuration: Mapping[str, Any]) -> Made:
    from pipelines.counting import load_counts
    from pipelines.tokenizers.files import save_tokenizer

    tokenizer = run.config.tokenizer
    counts = load_counts(run.counts, counted, min_count=tokenizer.min_count)
    learn = _train_bytes if tokenizer.unit == "byte" else _train_characters
    trained = learn(run, counts)
    training = {
        "configuration": configuration,
        "counts": counted["fingerprint"],
        "merges": trained.merges,
        "stop_reason": trained.stop_reason,
        "stopped_because": trained.stopped_because,
        "vocab_size": len(trained.model),
        "vocab_size_asked_for": tokenizer.vocab_size,
    }
    files, not_written = save_tokenizer(trained.model, run.tokenizer, {"training": training})
    training.pop("configuration")
    content = {
        **training,
        "fingerprint": trained.model.fingerprint,
        "files": files,
        "not_written": not_written,
    }
    return Made(content=content)


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


def _note_tokenizer(run: Run, manifest: Mapping[str, Any]) -> None:
    warnings = run.summary.warnings
    if manifest["vocab_size"] < manifest["vocab_size_asked_for"]:
        warnings += (
            f"the corpus is too small for the vocabulary: training reached "
            f"{manifest['vocab_size']:,} of {manifest['vocab_size_asked_for']:,} ids "
            f"({manifest['stopped_because']})",
        )
    run.summary = replace(
        run.summary,
        merges=manifest["merges"],
        stop_reason=manifest["stopped_because"],
        vocab_size=manifest["vocab_size"],
        outputs={**run.summary.outputs, "tokenizer": run.tokenizer.url},
        warnings=warnings,
    )
