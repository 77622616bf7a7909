"""Contents of outputs and tokenizers, and uses of ids, for pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bpe_core.errors import BpeError
from bpe_core.model import TokenizerModel
from pipelines.analysis.evaluation import shorten_locations
from pipelines.analysis.token_uses import TokenUses, count_uses
from pipelines.counting.given import GivenCounts, RowGroup
from pipelines.dataset.reading import TokenDataset
from pipelines.dataset.report import read_all_statistics
from pipelines.dataset.tokenizers import find_model
from pipelines.errors import ConfigError, InputError
from pipelines.manifest.models import (
    MANIFESTS,
    CountsManifest,
    ImportedManifest,
    TokenizerManifest,
    TokensManifest,
    manifest_model,
)
from pipelines.manifest.names import MANIFEST, RUN
from pipelines.manifest.records import parse_sealed
from pipelines.manifest.run_record import RunRecord
from pipelines.manifest.stage import IMPORT, TRAIN
from pipelines.manifest.stage_records import load_manifest
from pipelines.manifest.stage_writing import may_contain_credentials
from pipelines.redaction import REDACTED, redact
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Model
from pipelines.tokenizers.sources import is_published
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.writing.statistics import Statistics

__all__ = ["ALL", "FoundOutput", "describe_too_many", "find_output", "show_location"]

# Distinct pre-tokens up to which all counts are read; it takes some seconds.
_MOST_PRETOKENS: Final = 1_000_000
ALL: Final = "all"


class _HeldCounts(GivenCounts):
    """Counts whose files stay in memory once they have been read."""

    @cached_property
    def _row_groups(self) -> list[RowGroup]:
        return [*super().row_groups()]

    def row_groups(self) -> Iterator[RowGroup]:
        """Yield the row groups of all files, as `GivenCounts.row_groups` does."""
        return iter(self._row_groups)


@dataclass(frozen=True, kw_only=True)
class FoundOutput:
    """Parts of an output, each None if it is not there."""

    name: str
    location: str
    output: Directory | None
    model: Model | None
    counts: GivenCounts | None
    lost_counts: str | None = None
    trained: TokenizerManifest | ImportedManifest | None = None
    dataset: TokenDataset | None = None
    runs: Mapping[str, RunRecord] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def tokens(self) -> TokensManifest | None:
        """The manifest of the token files, if it has today's format."""
        return None if self.dataset is None else self.dataset.manifest

    @property
    def documents(self) -> CountsManifest | TokensManifest | None:
        """The manifest that has the outcome of each source."""
        return self.tokens or self.counted

    @property
    def counted(self) -> CountsManifest | None:
        """The manifest of the counts, if they have one."""
        manifest = None if self.counts is None else self.counts.manifest
        return manifest if isinstance(manifest, CountsManifest) else None

    @property
    def has_few_counts(self) -> bool:
        """True if there are counts that may all be read."""
        return self.counts is not None and self.pretokens <= _MOST_PRETOKENS

    @property
    def pretokens(self) -> int:
        """The number of distinct pre-tokens that were counted."""
        if self.counted is not None:
            return self.counted.totals.distinct_pretokens
        return 0 if self.counts is None else self.counts.rows

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary of the tokenizer."""
        return None if self.model is None else Vocabulary(self.model)

    @cached_property
    def statistics(self) -> Statistics | None:
        """The statistics of the token files, of all generations."""
        if self.dataset is None or self.tokens is None or self.vocabulary is None:
            return None
        return read_all_statistics(self.dataset, self.vocabulary)

    @cached_property
    def uses(self) -> NDArray[np.int64] | None:
        """Uses of each id of the vocabulary: int64[n]; None if they are unknown."""
        if self.vocabulary is None:
            return None
        if self.statistics is not None:
            return self.statistics.all_uses()
        if self.counted_uses is None or not isinstance(self.model, TokenizerModel):
            return None
        uses = np.zeros(len(self.vocabulary), np.int64)
        uses[self.vocabulary.rows_of(self.model.token_ids)] = self.counted_uses.uses
        return uses

    @cached_property
    def counted_uses(self) -> TokenUses | None:
        """Uses of the ordinary tokens by the counted text, if nothing was encoded and they fit."""
        return _count_uses(self) if self.statistics is None else None

    def name_source(self, name: str | None) -> str:
        """Return the name of a source; a single one has none."""
        return name or ALL


def _count_uses(found: FoundOutput) -> TokenUses | None:
    """Return the uses of the ordinary tokens by the counted text, or None and a note."""
    model = found.model
    if found.counts is None or not isinstance(model, TokenizerModel):
        found.notes["uses"] = "How often ids are used is not known: there are no token files."
        return None
    if not found.has_few_counts:
        found.notes["uses"] = describe_too_many(found, "beam-bpe evaluate")
        return None
    try:
        uses = count_uses(model, found.counts)
    except BpeError as error:
        found.notes["uses"] = f"Uses of ids cannot be found from the counts: {error}"
        return None
    found.notes["uses"] = "Nothing was encoded: uses are those in the counted text."
    return uses


def describe_too_many(found: FoundOutput, command: str) -> str:
    """Return the note about counts that are too many for a page, with the command to use."""
    return (
        f"There are {found.pretokens:,} distinct pre-tokens, more than the "
        f"{_MOST_PRETOKENS:,} that a page reads. `{command} {found.location}` reads all."
    )


def find_output(
    location: str, storage_options: Mapping[str, Any] | None = None, tokenizer: str | None = None
) -> FoundOutput:
    """Return what is at a path or URL; arguments and errors are those of `collect`."""
    options = storage_options or {}
    place = Directory(url=location, storage_options=dict(options))
    shown = show_location(location)
    name = shorten_locations([shown])[0]
    if is_published(place):
        return FoundOutput(
            name=name,
            location=shown,
            output=None,
            model=find_model(location, options),
            counts=None,
        )
    dataset = None
    if place.name == "tokens" or (place / "tokens").find_bytes(MANIFEST) is not None:
        dataset = TokenDataset.open(location, options)
        place = dataset.output
    counts, lost_counts = None, None
    try:
        counts = _HeldCounts.find(place.url, options)
    except InputError as error:
        lost_counts = f"{error.found} ({error.where})"
    model: Model | None = None
    if dataset is not None:
        model = dataset.find_model(tokenizer)
    else:
        try:
            model = find_model(location, options)
        except ConfigError:
            if counts is None:
                raise
    return FoundOutput(
        name=name,
        location=shown,
        output=place,
        model=model,
        counts=counts,
        lost_counts=lost_counts,
        trained=_load_trained(place),
        dataset=dataset,
        runs=dict(_load_runs(place)),
    )


def show_location(location: str) -> str:
    """Return a path or URL without credentials."""
    return REDACTED if may_contain_credentials(location) else redact(location)


def _load_trained(output: Directory) -> TokenizerManifest | ImportedManifest | None:
    directory = output / TRAIN.directory
    data = directory.find_bytes(MANIFEST)
    if data is None:
        return None
    if manifest_model(TRAIN.directory, data) is ImportedManifest:
        return load_manifest(IMPORT, directory)
    return load_manifest(TRAIN, directory)


def _load_runs(output: Directory) -> Iterator[tuple[str, RunRecord]]:
    """Yield the run of each stage that has an intact `run.json`."""
    for stage in MANIFESTS:
        data = (output / stage).find_bytes(RUN)
        with suppress(ValueError):
            yield stage, parse_sealed(RunRecord, data or b"")
