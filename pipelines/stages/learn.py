"""Training from the counts of a build, in the launcher or on a worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from bpe_core import BPETokenizer, train_superwords
from bpe_core.counts import PretokenCounts
from bpe_core.mixtures import Mixture
from bpe_core.model import TokenizerModel
from pipelines.config import TokenizerConfig
from pipelines.config.fingerprints import fingerprint
from pipelines.console import progress
from pipelines.counting.given import GivenCounts
from pipelines.counting.training import Trained, train_models
from pipelines.counting.training_counts import load_training_counts
from pipelines.manifest.models import SuperwordsManifest, TokenizerContent
from pipelines.manifest.names import SIZES
from pipelines.manifest.records import Record
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task
from pipelines.tokenizers.files import load_model, save_tokenizer
from pipelines.versions import deciding_versions

# Contains a worker's entry until the launcher writes the manifest.
SCRATCH: Final = "_training"
_ENTRY: Final = "entry.json"
SCRATCH_FILES: Final = re.escape(_ENTRY)


@dataclass(frozen=True)
class SecondRound:
    """The finished first round: the directory of its tokenizer and runs, and their manifest."""

    directory: Directory
    manifest: SuperwordsManifest

    @property
    def runs(self) -> GivenCounts:
        """The counted runs."""
        return GivenCounts.listed(self.directory, self.manifest)


class _Entry(Record):
    """Result of `learn` on a worker, with the fingerprint of the configuration."""

    configuration: str
    content: TokenizerContent


def find_trained(
    directory: Directory, configuration: Mapping[str, Any], given: GivenCounts
) -> TokenizerContent | None:
    """Return the result that `keep_trained` stored, or None.

    It is used only if it belongs to these counts and all its files are intact.
    """
    entry = _Entry.load_file(directory / SCRATCH, _ENTRY)
    if entry is None:
        return None
    content = entry.content
    if entry.configuration != fingerprint(configuration) or content.counts != given.fingerprint:
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
    given: GivenCounts,
    directory: Directory,
    configuration: Mapping[str, Any],
    second: SecondRound | None = None,
) -> TokenizerContent:
    """Learn the merges and write the tokenizers' files. Return the content of the manifest.

    Args:
        config: Configuration of the tokenizer.
        given: The counts.
        directory: Directory of the tokenizer.
        configuration: Canonical configuration of training.
        second: The first round of training and its runs, to go on with; None to train alone.
    """
    progress.describe("loading counts")
    pretokens = load_training_counts(given if second is None else second.runs, config)
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
        sizes.append(_write(model, size, place, given, alone, pretokens.mixture))
    content = {
        **_write(trained, largest, directory, given, configuration, pretokens.mixture),
        "counts": given.fingerprint,
        **({} if pretokens.mixture is None else {"mixture": pretokens.mixture.to_json()}),
        **({"sizes": sizes} if sizes else {}),
    }
    return TokenizerContent.model_validate(content)


def _write(
    trained: Trained,
    size: int,
    directory: Directory,
    given: GivenCounts,
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
        "counts": given.fingerprint,
        **({} if mixture is None else {"mixture": mixture.to_json()}),
        **facts,
    }
    files, not_written = save_tokenizer(trained.model, directory, {"training": training})
    fingerprint = trained.model.fingerprint
    return {**facts, "fingerprint": fingerprint, "files": files, "not_written": not_written}


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
