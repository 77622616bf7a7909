"""Subjects of analyses: a tokenizer, with the counts and token files of its output if any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bpe_core import CharBPETokenizer
from bpe_core.model import TokenizerModel
from bpe_core.short_repr import short_repr
from pipelines.counting.given import GivenCounts
from pipelines.dataset.reading import TokenDataset
from pipelines.dataset.tokenizers import find_model
from pipelines.errors import ConfigError, InputError
from pipelines.manifest.names import MANIFEST
from pipelines.storage.directory import Directory
from pipelines.tokenizers.sources import is_published

__all__ = ["Subject", "open_subject"]


@short_repr
@dataclass(frozen=True, kw_only=True)
class Subject:
    """A tokenizer and the output that it belongs to.

    Attributes:
        location: the path or URL that the user gave.
        model: the tokenizer.
        output: directory of the build; None for a tokenizer alone.
        counts: the counts of the output, if there are any; perhaps those at `counts.path`.
        lost_counts: the reason why the counts that it was trained from are not `counts`, or None.
        dataset: the token files in the output, if this tokenizer encoded any.
    """

    location: str
    model: TokenizerModel
    output: Directory | None = None
    counts: GivenCounts | None = None
    lost_counts: str | None = None
    dataset: TokenDataset | None = None


def open_subject(location: str, storage_options: Mapping[str, Any] | None = None) -> Subject:
    """Return the tokenizer in an output, a directory or a file, or on the Hub.

    Args:
        location: path, URL or `hf://ORG/NAME[@REVISION][/PATH]`.
        storage_options: options of its file system.

    Raises:
        ConfigError: no tokenizer is there, or it is of a kind that cannot be analyzed.
        InputError, OutputError: a file is damaged or cannot be read.
    """
    options = storage_options or {}
    model = find_model(location, options)
    if isinstance(model, CharBPETokenizer):
        raise ConfigError(
            "This tokenizer cannot be analyzed.",
            expected="a tokenizer that merges bytes, or characters as SentencePiece does",
            found="one of words of characters (tokenizer.unit: character without metaspace)",
            where=location,
        )
    output = Directory(url=location, storage_options=options)
    if is_published(output):
        return Subject(location=location, model=model)
    counts, lost_counts = None, None
    try:
        counts = GivenCounts.find(location, options)
    except InputError as error:
        lost_counts = f"{error.found} ({error.where})"
    dataset = None
    if (output / "tokens").find_bytes(MANIFEST) is not None:
        dataset = TokenDataset.open(location, options)
        if dataset.configuration["tokenizer"] != model.fingerprint:
            dataset = None
    is_output = counts is not None or dataset is not None
    return Subject(
        location=location,
        model=model,
        output=output if is_output else None,
        counts=counts,
        lost_counts=lost_counts,
        dataset=dataset,
    )
