"""Collection of what is known about documents: sources, histograms, samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.config.source import SELECTION_KEYS
from pipelines.dataset.inspection import Inspector, Place
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import InputError
from pipelines.manifest.entries import SourceEntry
from pipelines.manifest.names import source_name
from pipelines.pages.found_output import ALL, FoundOutput
from pipelines.pages.report_data import Bucket, Sample, SourceRow
from pipelines.writing.statistics import Statistics

__all__ = ["choose_sources", "list_buckets", "list_sources", "read_samples"]

_SOURCES_IN_CHARTS: Final = 7  # the other sources are one
_SAMPLED_SOURCES: Final = 12
_SAMPLES_OF_SOURCE: Final = 3
_SAMPLE_TOKENS: Final = 400
_OTHERS: Final = "other sources"


def list_sources(found: FoundOutput, statistics: Statistics | None) -> Iterator[SourceRow]:
    """Yield what became of the documents of each source."""
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


def choose_sources(sources: Sequence[SourceRow]) -> dict[str, str]:
    """Return the name in charts of each source: its own for the largest, one for the others."""
    ordered = sorted(sources, key=lambda source: -(source.tokens or source.bytes))
    most = _SOURCES_IN_CHARTS if len(ordered) > _SOURCES_IN_CHARTS + 1 else len(ordered)
    return {
        source.name: source.name if place < most else _OTHERS
        for place, source in enumerate(ordered)
    }


def list_buckets(
    statistics: Statistics | None, name: str, shown: Mapping[str, str]
) -> Iterator[Bucket]:
    """Yield the buckets of a histogram, by source, over all splits."""
    found: dict[tuple[str, float, float | None], NDArray[np.int64]] = {}
    for table in () if statistics is None else statistics.tables():
        for row in table.filter(pc.equal(table["statistic"], name)).to_pylist():
            source = shown[row["source"] or ALL]
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


def read_samples(found: FoundOutput, statistics: Statistics | None) -> Iterator[Sample]:
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
