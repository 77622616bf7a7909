"""Collection of the report page's content from an output, or from a tokenizer alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pipelines.pages.collect_build import (
    list_facts,
    list_figures,
    list_splits,
    list_steps,
    list_times,
)
from pipelines.pages.collect_documents import (
    choose_sources,
    list_buckets,
    list_sources,
    read_samples,
)
from pipelines.pages.collect_vocabulary import (
    draw_curve,
    group_kinds,
    group_scripts,
    list_tokens,
    rank_uses,
)
from pipelines.pages.encoder import encoder_data
from pipelines.pages.found_output import FoundOutput, find_output
from pipelines.pages.report_data import ReportData
from pipelines.versions import deciding_versions

__all__ = ["collect", "collect_found"]


def collect(
    location: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    tokenizer: str | None = None,
    made: datetime | None = None,
) -> ReportData:
    """Return the content of the report page of an output, or of a tokenizer.

    Args:
        location: path or URL of an output or a tokenizer, or `hf://ORG/NAME`.
        storage_options: options of its file system.
        tokenizer: directory of the tokenizer that encoded the output, if it has moved.
        made: time of the report; None for now.

    Raises:
        ConfigError: there is neither an output nor a tokenizer.
        InputError, OutputError: a file is damaged or cannot be read.
    """
    return collect_found(find_output(location, storage_options, tokenizer), made)


def collect_found(found: FoundOutput, made: datetime | None = None) -> ReportData:
    """Return the content of the report page of what was found, as `collect` does."""
    vocabulary, statistics, uses = found.vocabulary, found.statistics, found.uses
    sources = tuple(list_sources(found, statistics))
    shown = choose_sources(sources)
    return ReportData(
        name=found.name,
        location=found.location,
        made=(made or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC"),
        version=deciding_versions()["bpe-beam"],
        headline=dict(list_figures(found, sources)),
        steps=tuple(list_steps(found)),
        splits=tuple(list_splits(found)),
        sources=sources,
        reasons={} if found.documents is None else dict(found.documents.totals.reasons),
        bad_files=0 if found.documents is None else len(found.documents.totals.bad_files),
        unread_files=0 if found.tokens is None else sum(f.unread for f in found.tokens.inputs),
        lengths=tuple(list_buckets(statistics, "tokens_per_document", shown)),
        ratios=tuple(list_buckets(statistics, "bytes_per_token", shown)),
        curve=tuple(draw_curve(found, shown)),
        ranks=() if uses is None or vocabulary is None else tuple(rank_uses(vocabulary, uses)),
        scripts=() if vocabulary is None else tuple(group_scripts(vocabulary, uses)),
        kinds=() if vocabulary is None else tuple(group_kinds(found, vocabulary, uses)),
        tokens=None if vocabulary is None else list_tokens(found, vocabulary, uses),
        samples=tuple(read_samples(found, statistics)),
        times=tuple(list_times(found)),
        encoder=None if found.model is None else encoder_data(found.model),
        facts=list_facts(found),
        notes=found.notes,
    )
