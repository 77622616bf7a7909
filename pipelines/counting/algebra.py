"""Counts made from other counts, file by file in bounded memory: sums, differences, selections.

The rows are combined by `PretokenCounts`, window by window, so that the result is that of the same
operation in memory; a sum has the bytes of a count of all texts together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from math import gcd
from operator import add, sub
from typing import Any, Final

import numpy as np

from bpe_core import PretokenCounts
from bpe_core._native import scan_documents
from bpe_core.count_groups import Group
from bpe_core.counts import sum_counts
from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.console import progress
from pipelines.counting.given import GivenCounts
from pipelines.counting.shard_files import CountColumns, CountsFile, RowGroups, shard_name
from pipelines.counting.streams import read_windows
from pipelines.errors import ConfigError, OutputError
from pipelines.manifest.entries import GroupEntry, GroupName
from pipelines.manifest.models import CountsManifest
from pipelines.manifest.stage import COUNT, Identity
from pipelines.manifest.stage_records import load_declaration
from pipelines.manifest.stage_writing import begin_stage, finish_stage
from pipelines.storage.directory import Directory
from pipelines.storage.locks import OutputLock

_FILES_AT_ONCE: Final = 32
_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Function of counts that acts on each pre-token alone.

    Attributes:
        name: Name of the command.
        combine: The function, for rows of each of the counts.
        arguments: JSON values that determine the result, besides the counts.
        signs: +1 or -1 for the documents of each of the counts; the last one is repeated.
        source, value: Groups that are kept.
    """

    name: str
    combine: Callable[[list[PretokenCounts]], PretokenCounts]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    signs: tuple[int, ...] = (1,)
    source: str | None = None
    value: str | None = None

    def sign(self, number: int) -> int:
        """Return the sign of one of the counts."""
        return self.signs[min(number, len(self.signs) - 1)]


MERGE: Final = Operation(name="merge", combine=sum_counts)
SUBTRACT: Final = Operation(
    name="subtract", combine=lambda parts: reduce(sub, parts), signs=(1, -1)
)


def describe_columns(counts: Sequence[GivenCounts], operation: Operation) -> CountColumns:
    """Return the columns of a result: those that all counts with rows have.

    Raises:
        ConfigError: Counts are grouped by different fields.
    """
    parts = [given for given in counts if given.rows] or counts[:1]
    if not all(given.empty.groups for given in parts):
        return CountColumns(documents=all(given.has_documents for given in parts))
    fields = {given.metadata.get("group_by", "the source alone"): given.url for given in parts}
    if len(fields) > 1:
        raise ConfigError(
            "The counts are grouped by different fields.",
            expected="the same counts.group_by",
            found=", ".join(f"{name} ({url})" for name, url in sorted(fields.items())),
            hint="Count one of them again.",
        )
    groups = sorted({group for given in parts for group in given.empty.groups})
    sums = _sum_known_groups(counts, operation)
    groups = [group for group in groups if sums.get(group, 1)]
    kept = tuple(
        group
        for group in groups
        if operation.source in (None, group.source) and operation.value in (None, group.value)
    )
    return CountColumns(
        grouped=True,
        groups=kept,
        by_value=parts[0].empty.groups[0].value is not None,
        documents=all(given.has_documents for given in parts),
    )


def combine_to_file(
    counts: Sequence[GivenCounts], operation: Operation, directory: Directory, name: str
) -> dict[str, Any]:
    """Write the result into one file. Return the file's entry.

    Raises:
        OutputError: The file exists.
    """
    if name in directory.sizes():
        raise OutputError(
            "The output exists.",
            expected="the name of a file that does not exist",
            where=directory.path(name),
            hint="Choose another name, or remove the file.",
        )
    combination = Combination(counts, operation)
    (entry,) = combination.write(directory, {0: name}, 1)
    return entry


def combine_to_output(
    counts: Sequence[GivenCounts],
    operation: Operation,
    root: Directory,
    shards: int | None = None,
) -> CountsManifest:
    """Write the result as the counts of an output, unless they are there. Return the manifest.

    Args:
        counts: Counts to combine.
        operation: How to combine them.
        root: The output.
        shards: Number of shards; None for the largest number of the counts.

    Raises:
        OutputError: The output has other counts, or another build writes to it.
    """
    started = time.monotonic()
    combination = Combination(counts, operation)
    number = shards or max(given.shards for given in counts)
    configuration = {
        **combination.describe(number),
        "operation": {
            "name": operation.name,
            **operation.arguments,
            "of": [_identify(given) for given in counts],
        },
    }
    with OutputLock(root) as lock:
        directory = replace(root, guard=lock.guard) / COUNT.directory
        found = _find_counts(directory, configuration)
        if found is not None:
            return found
        lock.acquire()
        _find_counts(directory, configuration)  # another command may have written some
        identity = Identity(configuration=configuration, inputs={}, marks={})
        begin_stage(directory, identity)
        names = {shard: shard_name(shard, number) for shard in range(number)}
        entries = combination.write(directory, names, number)
        manifest = combination.seal(entries, configuration)
        run = {
            "seconds": round(time.monotonic() - started, 3),
            "runner": "none",
            "workers": 1,
            "metrics": None,
            "limits": {},
        }
        finish_stage(COUNT, directory, identity, manifest, run)
    return manifest


class Combination:
    """Result of an operation on counts."""

    def __init__(self, counts: Sequence[GivenCounts], operation: Operation) -> None:
        self._counts = counts
        self._operation = operation
        self._columns = describe_columns(counts, operation)
        reduce(add, (given.empty for given in counts))  # checks that all were counted alike
        known = {"special_tokens": "[]"}
        known |= {key: text for given in reversed(counts) for key, text in given.metadata.items()}
        self.metadata = {
            key: known[key]
            for key in {**counts[0].metadata, **known}
            if key != "group_by" or self._columns.grouped
        }

    def describe(self, shards: int) -> dict[str, Any]:
        """Return how text was counted, in the form of a configuration."""
        metadata = self.metadata
        counts: dict[str, Any] = {"shards": shards}
        if "group_by" in metadata:
            counts["group_by"] = metadata["group_by"]
        if self._columns.documents:
            counts["document_frequency"] = True
        tokenizer = {
            "pattern": metadata.get("pattern"),
            "special_tokens": json.loads(metadata["special_tokens"]),
        }
        for key, default in (("normalizer", "null"), ("normalize_quotes", "false")):
            if metadata.get(key, default) != default:
                tokenizer[key] = metadata[key]
        sources = [{"name": name, "format": "counts"} for name in self._of_sources()]
        return {"input": sources, "tokenizer": tokenizer, "counts": counts}

    def write(
        self, directory: Directory, names: Mapping[int, str], shards: int
    ) -> list[dict[str, Any]]:
        """Write the files of all shards. Return their entries, in order."""
        step = gcd(shards, *(given.shards for given in self._counts))
        entries: dict[int, dict[str, Any]] = {}
        with progress.show(f"{self._operation.name} counts", shards, local=True):
            for first in range(step):
                of_class = range(first, shards, step)
                for start in range(0, len(of_class), _FILES_AT_ONCE):
                    some = of_class[start : start + _FILES_AT_ONCE]
                    entries.update(self._write_some(directory, names, shards, some, step))
                    progress.advance(len(some))
        return [entry for _, entry in sorted(entries.items())]

    def _write_some(
        self,
        directory: Directory,
        names: Mapping[int, str],
        shards: int,
        some: Sequence[int],
        step: int,
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Write shards that consist of rows of the same files. Yield their entries."""
        with ExitStack() as stack:
            files = {}
            for shard in some:
                metadata = {**self.metadata, "corpus": self._totals().corpus_fingerprint}
                if shards > 1 or names[shard] == shard_name(shard, shards):
                    metadata["shard"] = f"{shard} of {shards}"
                file = CountsFile(directory, names[shard], metadata, self._columns)
                files[shard] = stack.enter_context(file), RowGroups(file, self._columns)
            for window in read_windows(self._counts, some[0] % step, step):
                rows = self._operation.combine(window)
                for shard, part in _split(rows, shards, some, step):
                    files[shard][1].add(part)
            sums = {shard: groups.finish() for shard, (_, groups) in files.items()}
        for shard, (file, _) in files.items():
            yield shard, {**file.entry(), **sums[shard]}

    def _totals(self) -> DocumentTotals:
        return DocumentTotals.sum_of(self._of_sources().values())

    def _of_sources(self) -> dict[str | None, DocumentTotals]:
        """Return the totals of the documents of each source."""
        sums: dict[str | None, DocumentTotals] = {}
        for number, given in enumerate(self._counts):
            for name, totals in _sources_of(given):
                whole = sums.setdefault(name, DocumentTotals())
                if self._operation.sign(number) > 0:
                    whole.add(totals)
                else:
                    whole.subtract(totals)
        kept = self._operation.source
        return {name: sums[name] for name in sums if kept in (None, name)} or sums

    def seal(
        self,
        entries: Sequence[Mapping[str, Any]],
        configuration: Mapping[str, Any],
        inputs: Mapping[str, int] | None = None,
        planned_bytes: Mapping[str | None, int | None] | None = None,
    ) -> CountsManifest:
        """Return the manifest of the written files.

        Args:
            entries: Entries of the files.
            configuration: What determines their bytes.
            inputs: Sizes of the counted files, if they are known.
            planned_bytes: Expected bytes of each source, if they are known.
        """
        planned = planned_bytes or {}
        totals = self._totals()
        long_pretokens = sum(
            self._operation.sign(number) * given.manifest.totals.long_pretokens
            for number, given in enumerate(self._counts)
            if given.manifest is not None
        )
        content: dict[str, Any] = {
            "corpus": totals.corpus_fingerprint,
            "sources": [
                {"name": name, "planned_bytes": planned.get(name), **of_source.to_json()}
                for name, of_source in self._of_sources().items()
            ],
            "shards": [{k: v for k, v in entry.items() if k != "groups"} for entry in entries],
            "totals": {
                **totals.to_json(),
                "distinct_pretokens": sum(entry["rows"] for entry in entries),
                "pretokens": sum(entry["pretokens"] for entry in entries),
                "long_pretokens": max(long_pretokens, 0),
            },
        }
        if self._columns.grouped:
            content["groups"] = list(self.sum_groups(entries))
        content["fingerprint"] = fingerprint(content)
        return CountsManifest.seal(configuration, inputs=dict(inputs or {}), **content)

    def sum_groups(self, entries: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the entries of the groups in the manifest, from those of the files."""
        documents = self._documents_of_groups()
        sums = {group: np.zeros(3, object) for group in self._columns.groups}
        names = ("distinct_pretokens", "pretokens", "bytes")
        for numbers in (numbers for entry in entries for numbers in entry["groups"]):
            group = Group(numbers["source"], numbers.get("value"))
            sums[group] += [numbers[name] for name in names]
        for group, of_group in sums.items():
            yield {
                **GroupName.name(group),
                "documents": max(documents.get(group, 0), 0),
                **dict(zip(names, map(int, of_group), strict=True)),
            }

    def _documents_of_groups(self) -> dict[Group, int]:
        documents: dict[Group, int] = {}
        for number, given in enumerate(self._counts):
            entries: Sequence[GroupEntry] = (given.manifest and given.manifest.groups) or ()
            for entry in entries:
                signed = self._operation.sign(number) * entry.documents
                documents[entry.group] = documents.get(entry.group, 0) + signed
        return documents


def _split(
    rows: PretokenCounts, shards: int, some: Sequence[int], step: int
) -> Iterator[tuple[int, PretokenCounts]]:
    """Yield the rows of each of some shards; with as many steps as shards they are all of one."""
    if shards == step or not len(rows):
        yield some[0], rows
        return
    keys, offsets, _ = rows.columns()
    _, hashes = scan_documents(keys, offsets[:-1], offsets[1:])
    numbers = hashes[:, 1] % np.uint64(shards)
    for shard in some:
        yield shard, rows.rows(numbers == shard)


def _sum_known_groups(counts: Sequence[GivenCounts], operation: Operation) -> dict[Group, int]:
    """Return the pre-tokens of each group of a sum or difference, if manifests contain them."""
    sums: dict[Group, int] = {}
    if operation.name not in ("merge", "subtract"):
        return sums
    for number, given in enumerate(counts):
        if given.manifest is None:
            return {}
        for entry in given.manifest.groups or ():
            signed = operation.sign(number) * entry.pretokens
            sums[entry.group] = sums.get(entry.group, 0) + signed
    return sums


def _sources_of(given: GivenCounts) -> Iterator[tuple[str | None, DocumentTotals]]:
    if given.manifest is None:
        yield None, DocumentTotals.of_corpora([given.corpus])
        return
    for source in given.manifest.sources:
        yield source.name, source.document_totals()


def _identify(given: GivenCounts) -> str:
    """Return the fingerprint of counts, or what a file without a manifest has instead."""
    if given.manifest is not None:
        return given.manifest.fingerprint
    sizes = given.directory.sizes()
    return fingerprint({"corpus": given.corpus, "sizes": [sizes[name] for name in given.names]})


def _find_counts(directory: Directory, configuration: Mapping[str, Any]) -> CountsManifest | None:
    """Return the manifest if this command has written the counts; None if there are no counts.

    Raises:
        OutputError: There are other counts, or other files.
    """
    names = directory.sizes()
    there = load_declaration(COUNT, directory)
    if there is not None and there.configuration == configuration:
        return there if isinstance(there, CountsManifest) else None
    others = sorted(name for name in names if not name.startswith((".", "_")))
    if there is not None and not isinstance(there, CountsManifest) and not others:
        return None  # begun by a command that has written nothing
    if others:
        raise OutputError(
            "The output has counts already; nothing was changed.",
            expected="a directory without counts, or with counts of the same command",
            found=", ".join(others[:_SHOWN]) + ", …" * (len(others) > _SHOWN),
            where=directory.url,
            hint="Choose another output.",
        )
    return None
