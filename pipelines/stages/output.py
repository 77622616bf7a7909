"""Directories of a build's output, and removal of files from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

from bpe_core.formats.outline import Outline
from pipelines.config import BuildConfig
from pipelines.manifest import generations
from pipelines.manifest.models import CountsManifest, TokensManifest
from pipelines.manifest.names import SIZES
from pipelines.manifest.stage import COUNT, ENCODE, SUPERWORDS, TRAIN, Stage
from pipelines.manifest.stage_facts import read_number_of_tasks
from pipelines.rejects.thresholds import check_bad_files, check_rejects
from pipelines.storage.directory import Directory
from pipelines.storage.locks import Guard, OutputLock
from pipelines.storage.parquet import is_of_a_build
from pipelines.tokenizers.files import Model
from pipelines.tokenizers.sources import is_published, read_outline, read_source

_FILES_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class Output:
    """Directories that a build writes, and the tokenizer that it encodes with.

    Attributes:
        root: Parent of all of them. Files appear in it only while the build holds the lock.
        configured: Place that `tokenizer.path` names, perhaps a file; None if the build trains.
        size: Size of the trained tokenizer that encodes; None for the largest.
    """

    root: Directory
    configured: Directory | None
    size: int | None = None

    @classmethod
    def of(cls, config: BuildConfig, guard: Guard) -> Self:
        """Return the output of a build, guarded by its lock."""
        root = replace(guard.output, guard=guard)
        path = config.tokenizer.path
        if path is None:
            is_largest = config.encoded_vocab_size == config.tokenizer.largest_vocab_size
            size = None if is_largest else config.encoded_vocab_size
            return cls(root=root, configured=None, size=size)
        return cls(root=root, configured=root.elsewhere(config.resolve(path)))

    @cached_property
    def imported(self) -> Directory | None:
        """The place of a published tokenizer that the build imports; None if it imports none."""
        if self.configured is None:
            return None
        return self.configured if is_published(self.configured) else None

    @cached_property
    def published(self) -> Model:
        """The published tokenizer as it is at its source, unchecked."""
        assert self.imported is not None
        source = self.imported
        return read_source(source.url, storage_options=source.storage_options, compare=False).model

    @cached_property
    def outline(self) -> Outline:
        """As much of the published tokenizer as a plan needs."""
        assert self.imported is not None
        source = self.imported
        return read_outline(source.url, source.storage_options)

    @property
    def encoder(self) -> Directory:
        """The directory of the tokenizer that encodes: the configured, imported or trained one."""
        if self.configured is not None and self.imported is None:
            return self.configured
        return self.tokenizer if self.size is None else self.tokenizer / f"{SIZES}/{self.size}"

    def of_stage(self, stage: Stage[Any]) -> Directory:
        """Return the directory of a stage."""
        return self.root / stage.directory

    @property
    def counts(self) -> Directory:
        """Return the directory of the counts."""
        return self.of_stage(COUNT)

    @property
    def superwords(self) -> Directory:
        """Return the directory of the tokenizer of the first round, and of the runs."""
        return self.of_stage(SUPERWORDS)

    @property
    def tokenizer(self) -> Directory:
        """Return the directory of the trained or imported tokenizer."""
        return self.of_stage(TRAIN)

    @property
    def tokens(self) -> Directory:
        """Return the directory of the token files."""
        return self.of_stage(ENCODE)

    @property
    def rejects(self) -> Directory:
        """Return the directory of rejected documents."""
        return self.root / "rejects"


def check_thresholds(
    config: BuildConfig,
    rejects: Directory,
    manifest: CountsManifest | TokensManifest,
    names: Sequence[str],
) -> None:
    """Check that no more files are bad or documents rejected than the configuration allows.

    Args:
        config: Configuration of the build.
        rejects: Directory of the files of rejects.
        manifest: Manifest of the stage.
        names: Names of the stage's files of rejects.

    Raises:
        BadFileLimitError: Too many files of a source are bad.
        RejectLimitError: Too many documents are rejected.
    """
    bad_files = [source.bad_files for source in manifest.sources]
    check_bad_files(bad_files, config.input, rejects, names)
    totals, limit = manifest.totals, config.encode.max_reject_fraction
    check_rejects(totals.documents, totals.rejected, limit, rejects, names)


def remove_scratch(scratch: Directory, ours: str, lock: OutputLock) -> list[str]:
    """Remove temporary files of a finished stage, unless another build holds the lock.

    Args:
        scratch: Directory to remove.
        ours: A regex that matches the paths of files that builds write there; others stay.
        lock: Lock of the output.

    Returns:
        Warnings: one if files stay.
    """
    if not (scratch.exists() and lock.try_acquire()):
        return []
    foreign = scratch.remove_below(ours)
    if not foreign:
        return []
    left = len(foreign) - _FILES_SHOWN
    shown = ", ".join(foreign[:_FILES_SHOWN]) + (f" and {left:,} more" * (left > 0))
    return [f"{scratch.url} was not removed: it contains files that no build wrote: {shown}"]


def discard_count_rejects(output: Output) -> None:
    """Remove the rejects of counting, by the names that its tasks gave them."""
    rejects, tasks = output.rejects, read_number_of_tasks(output.counts)
    of = r"\d{5,}" if tasks is None else f"{tasks:05d}"
    ours = re.compile(rf"count-\d{{5,}}-of-{of}\.parquet")
    found = [name for name in rejects.sizes() if ours.fullmatch(name)]
    if tasks is None:  # an earlier version, which did not record the number, did the counting
        found = [name for name in found if is_of_a_build(rejects, name)]
    rejects.remove_files(found)
    rejects.remove_leftovers()
    rejects.remove_if_empty()


def remove_unlisted(output: Output, manifest: TokensManifest, lock: OutputLock) -> None:
    """Remove files of unfinished generations and writers, unless another build holds the lock."""
    unlisted = generations.find_unlisted(output.tokens, output.rejects, manifest)
    if (unlisted or output.rejects.leftovers()) and lock.try_acquire():
        generations.remove(unlisted)
        output.rejects.remove_leftovers()
