"""Merge sections of sorted runs into shards of counts.

Tasks of a build and documents of a user's pipeline are counted into the same runs, and their shards
are merged and checked in the same way: see `merge_shard`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import xxhash
from numpy.typing import NDArray

from bpe_core._native import CountMerger
from bpe_core.count_groups import MAX_GROUPS, Group
from bpe_core.errors import BpeError
from pipelines.accounting import DocumentTotals, sum_hashes
from pipelines.counting.jobs import CountRules, Expected, Section
from pipelines.counting.shard_files import (
    ROW_GROUP_BYTES,
    ROW_GROUP_ENTRIES,
    ROW_GROUP_ROWS,
    CountColumns,
    CountsFile,
    shard_name,
)
from pipelines.errors import IncompleteCountsError, OutputError, PipelineError
from pipelines.manifest.entries import GroupName
from pipelines.manifest.names import new_run_name
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task

MERGED_AT_ONCE: Final = 256

# Limit of the buffers of a merge together; upper and lower limit of the buffer of a section.
_BUFFER_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 256 << 10
_SMALLEST_CHUNK_BYTES: Final = 16 << 10
_GROUP_TOTALS: Final = ("distinct_pretokens", "pretokens", "bytes")
_LIMITS: Final = (ROW_GROUP_ROWS, ROW_GROUP_BYTES, ROW_GROUP_ENTRIES)


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """Contribution of one commit or bundle to a shard: its sections, and the content of their runs.

    Descriptors are the only data of a count that is shuffled.

    Attributes:
        items, items_hash: Number of tasks or documents in the runs, and the sum of their hashes
            modulo 2^128; compare `Expected`.
        documents, hash_sum: The same of the documents.
        sections: The shard's sections.
        sources: Totals of the documents of each source. Only a build's first shard gets them: one
            entry is enough to return them to the launcher.
        long_pretokens: Number of skipped pre-tokens, also only for the first shard.
        groups: Number of documents of each group, also only for the first shard.
    """

    items: int
    items_hash: int
    documents: int
    hash_sum: int
    sections: tuple[Section, ...]
    sources: tuple[DocumentTotals, ...] = ()
    long_pretokens: int = 0
    groups: Mapping[Group, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the descriptor as JSON, without default values."""
        values: dict[str, Any] = {
            "items": self.items,
            "items_hash": f"{self.items_hash:032x}",
            "documents": self.documents,
            "hash_sum": f"{self.hash_sum:032x}",
            "sections": [asdict(section) for section in self.sections],
        }
        if self.sources:
            values["sources"] = [totals.to_json() for totals in self.sources]
            values["long_pretokens"] = self.long_pretokens
            values["groups"] = [[*group, number] for group, number in self.groups.items()]
        return json.dumps(values).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Descriptor:
        """Return the descriptor that `to_bytes` wrote."""
        values = json.loads(data)
        return cls(
            items=values["items"],
            items_hash=int(values["items_hash"], 16),
            documents=values["documents"],
            hash_sum=int(values["hash_sum"], 16),
            sections=tuple(Section(**section) for section in values["sections"]),
            sources=tuple(map(DocumentTotals.from_json, values.get("sources", ()))),
            long_pretokens=values.get("long_pretokens", 0),
            groups={Group(source, value): n for source, value, n in values.get("groups", ())},
        )

    @classmethod
    def read_all(cls, texts: Iterable[bytes]) -> list[Descriptor]:
        """Return the descriptors of a shard, without the empty text that every shard gets."""
        return [cls.from_bytes(text) for text in texts if text]


def merge_shard(
    rules: CountRules, shard: int, descriptors: Sequence[Descriptor], expected: Expected
) -> dict[str, Any]:
    """Check that a shard is complete, merge its sections, and write its file.

    Args:
        rules: How pre-tokens are counted.
        shard: Number of the shard.
        descriptors: Descriptors of all commits or all bundles.
        expected: Required content of their runs.

    Returns:
        The file's entry.

    Raises:
        IncompleteCountsError: Tasks are missing or duplicated, or a run is damaged.
        AccountingError: Documents are missing or duplicated.
    """
    items = sum(found.items for found in descriptors)
    items_hash = sum_hashes(found.items_hash for found in descriptors)
    if (items, items_hash) != (expected.items, expected.hash_sum):
        raise expected.error(shard, items, items_hash, rules.runs.url)
    corpus = DocumentTotals(
        documents=sum(found.documents for found in descriptors),
        hash_sum=sum_hashes(found.hash_sum for found in descriptors),
    ).corpus_fingerprint
    sections = [section for found in descriptors for section in found.sections]
    return write_shard(rules, shard, sections, corpus)


def write_shard(
    rules: CountRules, shard: int, sections: Sequence[Section], corpus: str
) -> dict[str, Any]:
    """Merge sections, in several rounds if necessary, into a shard's file. Return the file's entry.

    Raises:
        IncompleteCountsError: A section is damaged.
    """
    sections = sorted(sections, key=lambda section: (section.run, section.offset))
    scratch: list[str] = []
    try:
        with current_task(f"merging shard {shard} of {rules.shards} of the counts"):
            sections = _merge_until_few(rules, sections, scratch)
            return _write_file(rules, shard, sections, corpus)
    finally:
        rules.runs.remove_files(scratch)


def merge_document_runs(
    rules: CountRules, runs: Sequence[Sequence[Section]]
) -> tuple[Section, ...]:
    """Merge the runs of one document into one run, and remove them. Return its sections.

    Each of its pre-tokens is in one document then, no matter in how many runs it was.
    """
    scratch = [sections[0].run for sections in runs]
    try:
        name = new_run_name()
        merged = []
        with rules.runs.write(name) as file:
            for shard in range(rules.shards):
                sections = _merge_until_few(
                    rules, [run[shard] for run in runs], scratch, same_document=True
                )
                offset = file.size
                digest = xxhash.xxh3_128()
                for packed in SectionMerger(rules, sections, same_document=True).packed():
                    file.write(packed)
                    digest.update(packed)
                merged.append(
                    Section(
                        run=name,
                        offset=offset,
                        length=file.size - offset,
                        hash=digest.hexdigest(),
                    )
                )
        return tuple(merged)
    finally:
        rules.runs.remove_files(scratch)


class SectionMerger:
    """Merging of sections as streams. A damaged section is an error that names it.

    Args:
        rules: How pre-tokens are counted.
        sections: What to merge.
        same_document: They are all of one document.

    Raises:
        IncompleteCountsError: A section is damaged; also while reading.
        InputError: There are too many groups.
    """

    def __init__(
        self, rules: CountRules, sections: Sequence[Section], *, same_document: bool = False
    ) -> None:
        self._rules = rules
        share = _BUFFER_BYTES // max(len(sections), 1)
        chunk_bytes = max(_SMALLEST_CHUNK_BYTES, min(_CHUNK_BYTES, share))
        readers = [_SectionReader(rules.runs, section, chunk_bytes) for section in sections]
        with self._name_damage():
            self._merger = CountMerger(
                len(readers),
                lambda source: readers[source].read(),
                groups=rules.grouped,
                documents=rules.document_frequency,
                same_document=same_document,
            )
            if len(self._merger.names()) > MAX_GROUPS:
                raise rules.too_many_groups(rules.runs.url)
            self.groups = [rules.group_of(name) for name in self._merger.names()]

    def rows(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield the merged and sorted rows as the columns of up to a row group."""
        while True:
            with self._name_damage():
                rows = self._merger.read(*_LIMITS)
            if not len(rows[2]):
                return
            yield rows

    def packed(self) -> Iterator[bytes]:
        """Yield the parts of a section that contains what these sections contain."""
        yield self._merger.header()
        while True:
            with self._name_damage():
                packed = self._merger.read_packed(*_LIMITS)
            if not packed:
                return
            yield packed

    def totals(self) -> Iterator[dict[str, Any]]:
        """Yield each group with the sums over the rows that were read."""
        for group, totals in zip(self.groups, self._merger.totals(), strict=True):
            yield {**GroupName.name(group), **dict(zip(_GROUP_TOTALS, totals, strict=True))}

    @contextmanager
    def _name_damage(self) -> Iterator[None]:
        try:
            yield
        except (BpeError, PipelineError):
            raise
        except ValueError as error:  # damaged bytes may fail to parse before their hash is checked
            raise _damaged_run(self._rules.runs.url, "sorted counts", str(error)) from None


def _merge_until_few(
    rules: CountRules,
    sections: list[Section],
    scratch: list[str],
    *,
    same_document: bool = False,
) -> list[Section]:
    """Merge sections in rounds until they can be merged at once. New runs are added to `scratch`"""
    while len(sections) > MERGED_AT_ONCE:
        merged = []
        for first in range(0, len(sections), MERGED_AT_ONCE):
            name = new_run_name()
            scratch.append(name)
            some = sections[first : first + MERGED_AT_ONCE]
            with rules.runs.write(name) as file:
                for packed in SectionMerger(rules, some, same_document=same_document).packed():
                    file.write(packed)
            merged.append(Section(run=name, offset=0, length=file.size, hash=file.hexdigest))
        sections = merged
    return sections


def _write_file(
    rules: CountRules, shard: int, sections: Sequence[Section], corpus: str
) -> dict[str, Any]:
    merger = SectionMerger(rules, sections)
    with CountsFile(
        rules.counts,
        shard_name(shard, rules.shards),
        {**rules.metadata, "corpus": corpus, "shard": f"{shard} of {rules.shards}"},
        CountColumns(
            grouped=rules.grouped,
            groups=tuple(merger.groups),
            by_value=rules.group_by is not None,
            documents=rules.document_frequency,
        ),
    ) as file:
        # Row groups depend on the merged sequence alone, so that files do not show how it was
        # counted.
        for columns in merger.rows():
            file.write(columns)
    return {**file.entry(), **({"groups": list(merger.totals())} if rules.grouped else {})}


class _SectionReader:
    """Reader of a section in chunks, which checks its hash at the end.

    It keeps no file open, since a shard may have more sections than a process may open files.
    """

    def __init__(self, runs: Directory, section: Section, chunk_bytes: int) -> None:
        self._runs = runs
        self._section = section
        self._chunk_bytes = chunk_bytes
        self._done = 0
        self._hasher = xxhash.xxh3_128()

    def read(self) -> bytes:
        """Return the next chunk, which is empty at the end."""
        left = self._section.length - self._done
        if left == 0:
            if self._hasher.hexdigest() != self._section.hash:
                raise self._damaged("different bytes")
            return b""
        start = self._section.offset + self._done
        try:
            chunk = self._runs.read_bytes(
                self._section.run, start, start + min(self._chunk_bytes, left)
            )
        except OutputError as error:
            raise self._damaged(str(error.found)) from None
        if not chunk:
            raise self._damaged("a shorter file")
        self._hasher.update(chunk)
        self._done += len(chunk)
        return chunk

    def _damaged(self, found: str) -> IncompleteCountsError:
        section = self._section
        expected = (
            f"{section.length:,} bytes at byte {section.offset:,} with xxh3-128 {section.hash}"
        )
        return _damaged_run(self._runs.path(section.run), expected, found)


def _damaged_run(where: str, expected: str, found: str) -> IncompleteCountsError:
    return IncompleteCountsError(
        "A run of the counts is damaged.",
        expected=expected,
        found=found,
        where=where,
        hint="Start counting over: a build with --restart, a pipeline by running it again.",
    )
