"""Collection of the report page's content from an output, or from a tokenizer alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core import BPETokenizer, CharBPETokenizer
from bpe_core.errors import BpeError
from bpe_core.model import TokenizerModel
from bpe_core.visible_text import visible
from pipelines.analysis.evaluation import count_scripts, shorten_locations
from pipelines.analysis.sizes import measure_sizes
from pipelines.analysis.subjects import Subject
from pipelines.analysis.suspects import Reason, find_suspects
from pipelines.analysis.token_kinds import TOKEN_KINDS, classify_token
from pipelines.analysis.token_uses import count_uses
from pipelines.config.source import SELECTION_KEYS
from pipelines.console.units import format_bytes
from pipelines.counting.given import GivenCounts
from pipelines.counting.load import load_all_columns
from pipelines.dataset.inspection import Inspector, Place
from pipelines.dataset.reading import SPLITS, TokenDataset
from pipelines.dataset.report import read_all_statistics
from pipelines.dataset.tokenizers import find_model
from pipelines.errors import ConfigError, InputError
from pipelines.manifest.entries import CorpusTotals, SourceEntry
from pipelines.manifest.models import (
    MANIFESTS,
    CountsManifest,
    ImportedManifest,
    TokenizerManifest,
    TokensManifest,
    manifest_model,
)
from pipelines.manifest.names import MANIFEST, RUN, source_name
from pipelines.manifest.records import parse_sealed
from pipelines.manifest.run_record import RunRecord
from pipelines.manifest.stage import COUNT, IMPORT, TRAIN
from pipelines.manifest.stage_records import load_manifest
from pipelines.manifest.stage_writing import may_contain_credentials
from pipelines.metrics import Measured
from pipelines.pages.encoder import encoder_data
from pipelines.pages.report_data import (
    Bucket,
    CurvePoint,
    Group,
    RankPoint,
    ReportData,
    Sample,
    SourceRow,
    SplitRow,
    Step,
    TimeRow,
    TokenRow,
    Tokens,
)
from pipelines.redaction import REDACTED, redact
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Model
from pipelines.tokenizers.sources import is_published
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.versions import deciding_versions
from pipelines.writing.statistics import Statistics

__all__ = ["FoundOutput", "collect", "collect_found", "find_output"]

# Distinct pre-tokens up to which all counts are read; it takes some seconds.
_MOST_PRETOKENS: Final = 1_000_000
_ROWS: Final = 24  # of each table of tokens
_NEVER_SHOWN: Final = 60
_SOURCES_IN_CHARTS: Final = 7  # the other sources are one
_SAMPLED_SOURCES: Final = 12
_SAMPLES_OF_SOURCE: Final = 3
_SAMPLE_TOKENS: Final = 400
_OTHERS: Final = "other sources"
_ALL: Final = "all"
_RANKS: Final = 240
_SIZES: Final = 12
_ONLY_SOURCE: Final = "one_source"
_BYTES: Final = 256
_REASONS: Final[Mapping[Reason, str]] = {
    "unreachable": "its own bytes become other tokens",
    "unused": "never used",
    "hardly_used": "hardly used",
    _ONLY_SOURCE: "in one source only",
}


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
        if self.statistics is not None:
            return self.statistics.all_uses()
        return None if self.vocabulary is None else _count_uses(self, self.vocabulary)

    def name_source(self, name: str | None) -> str:
        """Return the name of a source; a single one has none."""
        return name or _ALL


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
    sources = tuple(_list_sources(found, statistics))
    shown = _choose_sources(sources)
    return ReportData(
        name=found.name,
        location=found.location,
        made=(made or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC"),
        version=deciding_versions()["bpe-beam"],
        headline=dict(_headline(found, sources)),
        steps=tuple(_list_steps(found)),
        splits=tuple(_list_splits(found)),
        sources=sources,
        reasons={} if found.documents is None else dict(found.documents.totals.reasons),
        bad_files=0 if found.documents is None else len(found.documents.totals.bad_files),
        unread_files=0 if found.tokens is None else sum(f.unread for f in found.tokens.inputs),
        lengths=tuple(_buckets(statistics, "tokens_per_document", shown)),
        ratios=tuple(_buckets(statistics, "bytes_per_token", shown)),
        curve=tuple(_draw_curve(found, shown)),
        ranks=() if uses is None or vocabulary is None else tuple(_rank(vocabulary, uses)),
        scripts=() if vocabulary is None else tuple(_group_scripts(vocabulary, uses)),
        kinds=() if vocabulary is None else tuple(_group_kinds(found, vocabulary, uses)),
        tokens=None if vocabulary is None else _list_tokens(found, vocabulary, uses),
        samples=tuple(_read_samples(found, statistics)),
        times=tuple(_list_times(found)),
        encoder=None if found.model is None else encoder_data(found.model),
        facts=_list_facts(found),
        notes=found.notes,
    )


# --- opening


def find_output(
    location: str, storage_options: Mapping[str, Any] | None = None, tokenizer: str | None = None
) -> FoundOutput:
    """Return what is at a path or URL; arguments and errors are those of `collect`."""
    options = storage_options or {}
    place = Directory(url=location, storage_options=dict(options))
    shown = _show_location(location)
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
        counts = GivenCounts.find(place.url, options)
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


def _show_location(location: str) -> str:
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


# --- what was built


def _headline(found: FoundOutput, sources: Sequence[SourceRow]) -> Iterator[tuple[str, str]]:
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


def _list_steps(found: FoundOutput) -> Iterator[Step]:
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
            facts.append("in another place: " + _show_location(found.counts.url))
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


def _list_splits(found: FoundOutput) -> Iterator[SplitRow]:
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


def _list_sources(found: FoundOutput, statistics: Statistics | None) -> Iterator[SourceRow]:
    manifest = found.documents
    if manifest is None:
        return
    names = [source["name"] for source in manifest.configured_sources]
    selections = {
        source["name"]: {key: source[key] for key in SELECTION_KEYS if source.get(key)}
        for source in manifest.configured_sources
    }
    files: Counter[str | None] = Counter()
    stored: Counter[str | None] = Counter()
    for label, sizes in manifest.input_sizes.items():
        name = source_name(label, names)
        files[name] += 1
        stored[name] += sizes[0]
    tokens: Counter[str | None] = Counter()
    for (_, name, _), sums in ({} if statistics is None else statistics.files).items():
        tokens[name] += int(sums[1])
    for entry in manifest.sources:
        yield _source_row(
            found,
            entry,
            files=files[entry.name],
            stored_bytes=stored[entry.name],
            tokens=None if statistics is None else tokens[entry.name],
            selection=selections.get(entry.name, {}),
        )


def _source_row(found: FoundOutput, entry: SourceEntry, **others: Any) -> SourceRow:
    return SourceRow(
        name=found.name_source(entry.name),
        documents=entry.documents,
        bytes=entry.bytes,
        rejected=entry.rejected,
        empty=entry.empty,
        not_selected=entry.not_selected,
        **others,
    )


def _choose_sources(sources: Sequence[SourceRow]) -> dict[str, str]:
    """Return the name in charts of each source: its own for the largest, one for the others."""
    ordered = sorted(sources, key=lambda source: -(source.tokens or source.bytes))
    most = _SOURCES_IN_CHARTS if len(ordered) > _SOURCES_IN_CHARTS + 1 else len(ordered)
    return {
        source.name: source.name if place < most else _OTHERS
        for place, source in enumerate(ordered)
    }


def _buckets(
    statistics: Statistics | None, name: str, shown: Mapping[str, str]
) -> Iterator[Bucket]:
    """Yield the buckets of a histogram, by source, over all splits."""
    found: dict[tuple[str, float, float | None], NDArray[np.int64]] = {}
    for table in () if statistics is None else statistics.tables():
        for row in table.filter(pc.equal(table["statistic"], name)).to_pylist():
            source = shown[row["source"] or _ALL]
            key = (source, row["at_least"], row["below"])
            sums = found.setdefault(key, np.zeros(2, np.int64))
            sums += [row["documents"], row["tokens"]]
    order = list(dict.fromkeys(shown.values()))
    for (source, at_least, below), sums in sorted(
        found.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
    ):
        documents, tokens = sums.tolist()
        yield Bucket(
            source=source, at_least=at_least, below=below, documents=documents, tokens=tokens
        )


# --- the vocabulary


def _count_uses(found: FoundOutput, vocabulary: Vocabulary) -> NDArray[np.int64] | None:
    """Return the uses of each id by the counted text, or None and a note."""
    model = found.model
    if found.counts is None or not isinstance(model, TokenizerModel):
        found.notes["uses"] = "How often ids are used is not known: there are no token files."
        return None
    if not found.has_few_counts:
        found.notes["uses"] = _too_many(found, "beam-bpe evaluate")
        return None
    try:
        counted = count_uses(model, found.counts)
    except BpeError as error:
        found.notes["uses"] = f"Uses of ids cannot be found from the counts: {error}"
        return None
    uses = np.zeros(len(vocabulary), np.int64)
    uses[vocabulary.rows_of(model.token_ids)] = counted.uses
    found.notes["uses"] = "Nothing was encoded: uses are those in the counted text."
    return uses


def _too_many(found: FoundOutput, command: str) -> str:
    return (
        f"There are {found.pretokens:,} distinct pre-tokens, more than the "
        f"{_MOST_PRETOKENS:,} that a page reads. `{command} {found.location}` reads all."
    )


def _draw_curve(found: FoundOutput, shown: Mapping[str, str]) -> Iterator[CurvePoint]:
    """Yield bytes per token by size of the vocabulary, of all text and of each source."""
    model = found.model
    if found.counts is None or model is None:
        found.notes["curve"] = "Sizes are compared by counts, which this output does not have."
        return
    if not isinstance(model, TokenizerModel) or model.characters is not None:
        found.notes["curve"] = "Sizes are compared for tokenizers that merge bytes."
        return
    if not found.has_few_counts:
        found.notes["curve"] = _too_many(found, "beam-bpe sizes")
        return
    least = len(model.special_tokens) + _BYTES
    most = len(model)
    if most <= least:
        found.notes["curve"] = "The tokenizer has no merges."
        return
    sizes = sorted(set(np.geomspace(least, most, _SIZES).round().astype(int).tolist()))
    try:
        counts = load_all_columns(found.counts)
        measured = measure_sizes(BPETokenizer.from_model(model), counts, sizes, _ALL).sizes
    except BpeError as error:
        found.notes["curve"] = f"Sizes cannot be compared: {error}"
        return
    for size in measured:
        yield CurvePoint(source=_ALL, ids=size.ids, bytes_per_token=size.total.bytes_per_token)
        for name, use in size.sources.items() if len(size.sources) > 1 else ():
            if shown.get(name) == name:
                yield CurvePoint(source=name, ids=size.ids, bytes_per_token=use.bytes_per_token)


def _rank(vocabulary: Vocabulary, uses: NDArray[np.int64]) -> Iterator[RankPoint]:
    order = np.argsort(-uses, kind="stable")
    ordered = uses[order]
    used = int((uses > 0).sum())
    if not used:
        return
    shares = np.cumsum(ordered) / ordered.sum()
    for place in sorted(set(np.geomspace(1, used, _RANKS).round().astype(int).tolist())):
        row = int(order[place - 1])
        yield RankPoint(
            rank=place,
            uses=int(ordered[place - 1]),
            share=float(shares[place - 1]),
            token=visible(vocabulary.token(int(vocabulary.ids[row])) or b""),
        )


def _group_scripts(vocabulary: Vocabulary, uses: NDArray[np.int64] | None) -> Iterator[Group]:
    data, bounds = vocabulary.decode(vocabulary.ids)
    rows = np.arange(len(vocabulary))
    weights = np.zeros(len(rows), np.int64) if uses is None else uses
    found = list(count_scripts(data, bounds, rows, weights))
    for script, ids, tokens in found if uses is not None else sorted(found, key=lambda f: -f[1]):
        yield Group(
            name="no script" if script is None else script.replace("_", " "),
            ids=ids,
            tokens=None if uses is None else tokens,
        )


def _group_kinds(
    found: FoundOutput, vocabulary: Vocabulary, uses: NDArray[np.int64] | None
) -> Iterator[Group]:
    assert found.model is not None
    special = set(found.model.special_tokens.values())
    ids: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    texts = vocabulary.tokens()
    for row, (token_id, token) in enumerate(zip(vocabulary.ids.tolist(), texts, strict=True)):
        kind = TOKEN_KINDS["special" if token_id in special else classify_token(token)]
        ids[kind] += 1
        tokens[kind] += 0 if uses is None else int(uses[row])
    for kind, number in ids.most_common():
        yield Group(name=kind, ids=number, tokens=None if uses is None else tokens[kind])


def _list_tokens(
    found: FoundOutput, vocabulary: Vocabulary, uses: NDArray[np.int64] | None
) -> Tokens:
    assert found.model is not None
    texts = vocabulary.tokens()
    lengths = np.array([len(text) for text in texts], np.int64)
    is_special = np.isin(vocabulary.ids, list(found.model.special_tokens.values()))
    ordinary = np.where(is_special, -1, lengths)

    def rows(order: NDArray[np.integer], number: int = _ROWS) -> tuple[TokenRow, ...]:
        return tuple(
            TokenRow(
                id=int(vocabulary.ids[row]),
                hex=texts[row].hex(),
                uses=None if uses is None else int(uses[row]),
            )
            for row in order[:number].tolist()
        )

    never = frequent = rarest = np.zeros(0, np.int64)
    if uses is not None:
        by_use = np.argsort(-uses, kind="stable")
        frequent = by_use[uses[by_use] > 0]
        rarest = frequent[::-1]
        never = np.flatnonzero(uses == 0)
        never = never[np.argsort(lengths[never] == 1, kind="stable")]  # bytes last
    suspects, reasons = _list_suspects(found, vocabulary, uses)
    return Tokens(
        used=None if uses is None else len(frequent),
        unused=None if uses is None else len(never),
        frequent=rows(frequent),
        longest=rows(np.argsort(-ordinary, kind="stable")),
        rarest=rows(rarest),
        never=rows(never, _NEVER_SHOWN),
        suspects=suspects,
        suspect_reasons=reasons,
    )


def _list_suspects(
    found: FoundOutput, vocabulary: Vocabulary, uses: NDArray[np.int64] | None
) -> tuple[tuple[TokenRow, ...], dict[str, int]]:
    """Return the first suspicious tokens, and the number of them by reason."""
    model = found.model
    if not isinstance(model, TokenizerModel) or model.characters is not None:
        found.notes["suspects"] = "Only tokenizers that merge bytes are examined."
        return (), {}
    subject = Subject(
        location=found.location,
        model=model,
        output=found.output,
        # Statistics have the uses, too, at a fraction of the time.
        counts=found.counts if found.has_few_counts and found.tokens is None else None,
        lost_counts=found.lost_counts,
        dataset=None if found.tokens is None else found.dataset,
    )
    ordinary = None if uses is None else uses[vocabulary.rows_of(model.token_ids)]
    suspects = find_suspects(subject, ordinary)
    if suspects.missing:
        found.notes["suspects"] = "Not examined: " + "; ".join(suspects.missing) + "."
    reasons = Counter(reason for token in suspects.tokens for reason in token.reasons)
    worst = [token for token in suspects.tokens if token.reasons != (_ONLY_SOURCE,)]
    return tuple(
        TokenRow(
            id=token.token_id,
            hex=token.token.hex(),
            uses=token.uses,
            remark=", ".join(_REASONS[reason] for reason in token.reasons),
        )
        for token in worst[:_ROWS]
    ), {text: reasons[reason] for reason, text in _REASONS.items() if reasons[reason]}


# --- documents and times


def _read_samples(found: FoundOutput, statistics: Statistics | None) -> Iterator[Sample]:
    """Yield some documents of each source of the training split, evenly apart."""
    if found.dataset is None or found.model is None or statistics is None:
        found.notes["samples"] = "There are no token files to show documents of."
        return
    inspector = Inspector(found.dataset, found.model)
    documents: Counter[str] = Counter()
    for (split, name, _), sums in statistics.files.items():
        documents[found.name_source(name)] += int(sums[0]) if split == "train" else 0
    names = [found.name_source(entry.name) for entry in found.dataset.require_manifest().sources]
    firsts = [0, *accumulate(documents[name] for name in names)]
    if len(found.dataset.require_manifest().generations) > 1:
        # Documents that were added later come after those of all sources.
        found.notes["samples"] = "Sources of documents are those at even distances in the dataset."
    for name, first in list(zip(names, firsts, strict=False))[:_SAMPLED_SOURCES]:
        number = min(documents[name], _SAMPLES_OF_SOURCE)
        for index in range(number):
            place = _find_document(
                found.dataset, first + (2 * index + 1) * documents[name] // (2 * number)
            )
            document = inspector.read(place, _SAMPLE_TOKENS)
            configured = [source["name"] for source in found.dataset.configuration["input"]]
            yield Sample(
                source=found.name_source(source_name(document.source, configured)),
                file=document.source,
                offset=document.offset,
                tokens=document.tokens,
                num_bytes=document.num_bytes,
                shown=tuple(
                    (i, token.hex()) for i, token in zip(document.ids, document.shown, strict=True)
                ),
            )


def _find_document(dataset: TokenDataset, number: int) -> Place:
    """Return the row near that of a document; a long document has several rows."""
    for file in dataset.of_split("train"):
        if number < file.documents:
            return Place(file=file, row=number * file.rows // file.documents)
        number -= file.documents
    raise InputError(
        "The statistics do not match the token files.",
        expected=f"{dataset.num_documents('train'):,} documents",
        found=f"{number:,} more",
        where=dataset.tokens.url,
        hint="`beam-bpe verify OUTPUT` shows which file is damaged.",
    )


def _list_times(found: FoundOutput) -> Iterator[TimeRow]:
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


def _list_facts(found: FoundOutput) -> dict[str, dict[str, str]]:
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
