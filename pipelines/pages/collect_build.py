"""Collection of what a build did: its steps, times and facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpe_core import CharBPETokenizer
from bpe_core.model import TokenizerModel
from pipelines.console.units import format_bytes
from pipelines.dataset.reading import SPLITS
from pipelines.manifest.entries import CorpusTotals
from pipelines.manifest.models import (
    CountsManifest,
    ImportedManifest,
    TokenizerManifest,
    TokensManifest,
)
from pipelines.manifest.stage import COUNT
from pipelines.metrics import Measured
from pipelines.pages.found_output import FoundOutput, show_location
from pipelines.pages.report_data import SourceRow, SplitRow, Step, TimeRow
from pipelines.tokenizers.files import Model

__all__ = ["list_facts", "list_figures", "list_splits", "list_steps", "list_times"]


def list_figures(found: FoundOutput, sources: Sequence[SourceRow]) -> Iterator[tuple[str, str]]:
    """Yield the most important figures, by name."""
    if sources:
        yield "documents", f"{sum(source.documents for source in sources):,}"
        yield "text", format_bytes(sum(source.bytes for source in sources))
    if found.tokens is not None:
        totals = found.tokens.totals
        yield "tokens", f"{totals.tokens:,}"
        if totals.tokens:
            yield "bytes per token", f"{totals.text_bytes / totals.tokens:.2f}"
    elif found.dataset is not None:
        yield "tokens", f"{sum(file.tokens for file in found.dataset.files):,}"
    if found.counts is not None:
        yield "distinct pre-tokens", f"{found.pretokens:,}"
    if found.vocabulary is not None:
        yield "ids", f"{len(found.vocabulary):,}"


def list_steps(found: FoundOutput) -> Iterator[Step]:
    """Yield the steps from input to token files."""
    manifest = found.documents
    if manifest is not None:
        yield _input_step(found, manifest)
        yield _documents_step(manifest.totals)
    yield _counts_step(found)
    yield _tokenizer_step(found)
    yield _tokens_step(found)


def _input_step(found: FoundOutput, manifest: CountsManifest | TokensManifest) -> Step:
    sizes = [sizes[0] for sizes in manifest.input_sizes.values()]
    facts = [format_bytes(sum(sizes)) + " as stored"]
    if len(manifest.configured_sources) > 1:
        facts.append(f"{len(manifest.configured_sources)} sources")
    generations = () if found.tokens is None else found.tokens.generations
    if len(generations) > 1:
        facts.append(f"{len(generations)} generations: {', '.join(g.name for g in generations)}")
    return Step(name="Input", number=len(sizes), unit=_plural(len(sizes), "file"), facts=(*facts,))


def _documents_step(totals: CorpusTotals) -> Step:
    left_out = {
        "rejected": totals.rejected,
        "empty": totals.empty,
        "not selected": totals.not_selected,
    }
    return Step(
        name="Documents",
        number=totals.documents,
        unit=_plural(totals.documents, "document"),
        facts=(
            format_bytes(totals.bytes) + " of text",
            *(f"{number:,} {what}" for what, number in left_out.items() if number),
        ),
    )


def _counts_step(found: FoundOutput) -> Step:
    name = "Counts"
    if found.counts is not None:
        facts = []
        if found.counted is not None:
            totals = found.counted.totals
            facts.append(f"of {totals.pretokens:,} in the text")
            if totals.long_pretokens:
                facts.append(f"{totals.long_pretokens:,} too long, not counted")
            if found.counted.groups is not None:
                facts.append(f"{len(found.counted.groups):,} groups")
        assert found.output is not None
        if found.counts.directory != found.output / COUNT.directory:
            facts.append("in another place: " + show_location(found.counts.url))
        return Step(name=name, number=found.pretokens, unit="distinct pre-tokens", facts=(*facts,))
    if isinstance(found.trained, TokenizerManifest):
        reason = "The counts that the tokenizer was trained from are in another place, or gone."
        if found.lost_counts is not None:
            reason = f"The counts that the tokenizer was trained from: {found.lost_counts}."
    elif found.trained is not None or found.dataset is not None:
        reason = "Nothing was counted: the tokenizer was not trained by this build."
    else:
        reason = "This is a tokenizer alone: there are no counts."
    found.notes["counts"] = reason
    return Step(name=name, number=None, unit="none here", facts=(reason,))


def _tokenizer_step(found: FoundOutput) -> Step:
    model, trained = found.model, found.trained
    if model is None or found.vocabulary is None:
        found.notes["tokenizer"] = "There is no tokenizer yet: the corpus was only counted."
        return Step(name="Tokenizer", number=None, unit="none yet", facts=())
    facts = []
    if isinstance(trained, TokenizerManifest):
        facts += [f"{trained.merges:,} merges learned", trained.stopped_because]
        if trained.sizes:
            asked = [size.vocab_size_asked_for for size in trained.sizes]
            facts.append("also of " + ", ".join(f"{size:,}" for size in asked) + " ids")
    elif isinstance(trained, ImportedManifest):
        source = trained.imported_from
        facts.append(f"published: {source.repository or source.format}")
    facts.append(_describe_unit(model))
    return Step(
        name="Tokenizer",
        number=len(found.vocabulary),
        unit="ids",
        facts=(*facts,),
    )


def _describe_unit(model: Model) -> str:
    if isinstance(model, CharBPETokenizer):
        return "merges characters of words"
    if model.characters is not None:
        return "merges characters"
    options = model.training_options or {}
    return "merges bytes, with superwords" if options.get("superwords") else "merges bytes"


def _tokens_step(found: FoundOutput) -> Step:
    name = "Token files"
    if found.dataset is None:
        found.notes["tokens"] = "Nothing was encoded: there are no token files."
        return Step(name=name, number=None, unit="none here")
    dataset = found.dataset
    facts = [
        f"{len(dataset.files):,} {_plural(len(dataset.files), 'Parquet file')}, "
        + format_bytes(sum(file.size for file in dataset.files))
    ]
    facts += [
        f"{split}: {documents:,} {_plural(documents, 'document')}"
        for split in SPLITS
        if (documents := dataset.num_documents(split))
    ]
    if found.tokens is None:
        found.notes["tokens"] = (
            "The token files were written by an older version, without statistics: encode again "
            "for the rest of this page."
        )
    return Step(
        name=name,
        number=sum(file.tokens for file in dataset.files),
        unit="tokens",
        facts=(*facts,),
    )


def list_splits(found: FoundOutput) -> Iterator[SplitRow]:
    """Yield the splits that have rows."""
    for split in SPLITS:
        files = () if found.dataset is None else found.dataset.of_split(split)
        if any(file.rows for file in files):
            yield SplitRow(
                name=split,
                rows=sum(file.rows for file in files),
                documents=sum(file.documents for file in files),
                tokens=sum(file.tokens for file in files),
                bytes=sum(file.size for file in files),
            )


def list_times(found: FoundOutput) -> Iterator[TimeRow]:
    """Yield the duration of each stage and of its parts."""
    for run in found.runs.values():
        measured = Measured.from_json(run.model_dump()["metrics"] or {})
        size = measured.counters.get("bytes", 0)
        times: list[tuple[str | None, float]] = [(None, float(run.seconds))]
        times += measured.seconds.items()
        for part, seconds in times:
            yield TimeRow(
                stage=run.stage,
                part=part,
                seconds=seconds,
                megabytes_per_second=size / seconds / 1e6 if size and seconds > 0 else None,
                runner=run.runner,
                workers=run.workers,
                finished=run.finished,
            )


def list_facts(found: FoundOutput) -> dict[str, dict[str, str]]:
    """Return names and values to show by topic."""
    facts: dict[str, dict[str, str]] = {}
    model = found.model
    if model is not None:
        facts["Tokenizer"] = dict(_tokenizer_facts(model, found.trained))
    manifest = found.documents
    if manifest is not None:
        facts["Dataset"] = {
            "location": found.location,
            "configuration fingerprint": manifest.configuration_fingerprint,
            "corpus": manifest.corpus,
        }
        if found.dataset is not None:
            encode = found.dataset.configuration.get("encode", {})
            for key, label in (("prepend", "before each document"), ("append", "after each")):
                if encode.get(key):
                    facts["Dataset"][label] = str(encode[key])
            facts["Dataset"]["type of ids"] = str(found.dataset.dtype)
        facts["Software"] = dict(manifest.software.model_dump(by_alias=True))
    return facts


def _tokenizer_facts(
    model: Model, trained: TokenizerManifest | ImportedManifest | None
) -> Iterator[tuple[str, str]]:
    yield "fingerprint", model.fingerprint
    if isinstance(model, TokenizerModel):
        yield "pattern", model.pattern
        if model.normalizer:
            yield "normalizer", model.normalizer
    specials = list(model.special_tokens)
    if specials:
        more = f" and {len(specials) - 8:,} more" if len(specials) > 8 else ""
        yield "special tokens", " ".join(specials[:8]) + more
    if isinstance(trained, ImportedManifest):
        source = trained.imported_from
        if source.repository:
            yield "repository", f"{source.repository} at commit {source.commit}"
        yield "format", source.format
    if trained is not None:
        for name, reason in trained.not_written.items():
            yield f"no {name}", reason


def _plural(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"
