"""Counts and the tokenizer trained from them, compared with their manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bpe_core._native import scan_documents
from bpe_core.count_files import file_schema
from bpe_core.count_groups import entries_of_file, find_problem, groups_to_text, sum_entries
from bpe_core.errors import BpeError
from pipelines.accounting import check_accounts
from pipelines.config.fingerprints import differences, fingerprint
from pipelines.errors import PipelineError
from pipelines.manifest.entries import ShardEntry
from pipelines.manifest.models import (
    Counted,
    CountsManifest,
    ImportedManifest,
    SuperwordsManifest,
    TokenizerManifest,
    TokensManifest,
    TrainedFiles,
)
from pipelines.manifest.names import MANIFEST
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tokenizers.files import TRAINING, load_model
from pipelines.verification.contradictions import find_contradictions
from pipelines.verification.findings import Findings, compare


class CountShards:
    """Checks of the shards of counts, which may run side by side, and of their sums."""

    def __init__(self, directory: Directory, manifest: Counted, findings: Findings) -> None:
        self._directory = directory
        self._manifest = manifest
        self._findings = findings
        self._groups = tuple(entry.group for entry in manifest.groups or ())
        self._number_of = {group: number for number, group in enumerate(self._groups)}
        # Of each shard, the rows, pre-tokens and bytes of each group.
        self._sums: list[NDArray[np.int64]] = []

    def check(self, entry: ShardEntry) -> None:
        """Check the rows of a shard: sorted, counted, in the shard that they belong to."""
        self._sums.append(self._check_rows(entry))

    def finish(self) -> None:
        """Compare the sums of all shards with the manifest, unless a shard is damaged."""
        if len(self._sums) < len(self._manifest.shards):
            return
        whole = np.sum(self._sums, axis=0)
        for entry, sums in zip(self._manifest.groups or (), whole.T.tolist(), strict=True):
            names = ("distinct_pretokens", "pretokens", "bytes")
            found = dict(zip(names, sums, strict=True))
            group = tuple(filter(None, entry.group))
            where = f"{self._manifest.directory_name}/{MANIFEST}, group {group}"
            compare(where, self._findings, found, entry.to_json(*names))

    def _check_rows(self, entry: ShardEntry) -> NDArray[np.int64]:
        """Check the rows of a shard. Return the sums of the groups."""
        where = f"{self._manifest.directory_name}/{entry.name}"
        manifest, findings = self._manifest, self._findings
        shards = len(manifest.shards)
        shard = [listed.name for listed in manifest.shards].index(entry.name)
        rows = pretokens = 0
        sums = np.zeros((3, len(self._groups)), np.int64)
        last: bytes | None = None
        with open_parquet(self._directory, entry.name) as parquet:
            self._check_footer(parquet, where, entry, shard)
            for number in range(parquet.num_row_groups):
                table = parquet.read_row_group(number, use_threads=False).combine_chunks()
                if not table.num_rows:
                    continue
                keys = table["pretoken"].chunk(0)
                counts = table["count"].to_numpy()
                rows += table.num_rows
                pretokens += sum(counts.tolist())
                if counts.min() < 1:
                    findings.note(where, "a count below 1")
                ascending = pc.all(pc.less(keys[:-1], keys[1:])).as_py() is not False
                if not ascending or (last is not None and not last < keys[0].as_py()):
                    findings.note(where, "pre-tokens are not ascending")
                last = keys[len(keys) - 1].as_py()
                offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset :][: len(keys) + 1]
                data = keys.buffers()[2] or b""
                _, hashes = scan_documents(memoryview(data), offsets[:-1], offsets[1:])
                if (hashes[:, 1] % np.uint64(shards) != np.uint64(shard)).any():
                    findings.note(where, "a pre-token that belongs to another shard")
                documents = (
                    table["documents"].to_numpy() if "documents" in table.schema.names else None
                )
                if documents is not None and ((documents < 1) | (documents > counts)).any():
                    findings.note(where, "documents below 1, or more than occurrences")
                if "groups" in table.schema.names:
                    sums += self._check_groups(table, where, np.diff(offsets))
        compare(
            where,
            findings,
            {"rows": rows, "pretokens": pretokens},
            {"rows": entry.rows, "pretokens": entry.pretokens},
        )
        return sums

    def _check_groups(
        self, table: pa.Table, where: str, lengths: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Check the groups of rows, whose pre-tokens have these lengths. Return their sums."""
        sums = np.zeros((3, len(self._groups)), np.int64)
        found, columns = entries_of_file(table["groups"], where)
        if not self._number_of.keys() >= set(found):
            self._findings.note(where, "a group that the manifest does not list")
            return sums
        numbers = np.array([self._number_of[group] for group in found], np.int32)
        columns = replace(columns, groups=numbers[columns.groups])
        problem = find_problem(columns, len(self._groups))
        if problem is None:
            if (sum_entries(columns.counts, columns.offsets) != table["count"].to_numpy()).any():
                problem = "counts of groups that do not add up to the count"
            elif columns.documents is not None:
                documents = sum_entries(columns.documents, columns.offsets)
                if (documents != table["documents"].to_numpy()).any():
                    problem = "documents of groups that do not add up"
        if problem is not None:
            self._findings.note(where, problem)
            return sums
        sums[0] = np.bincount(columns.groups, minlength=len(self._groups))
        np.add.at(sums[1], columns.groups, columns.counts)
        np.add.at(sums[2], columns.groups, columns.counts * lengths[columns.rows()])
        return sums

    def _check_footer(
        self, parquet: pq.ParquetFile, where: str, entry: ShardEntry, shard: int
    ) -> None:
        manifest, findings = self._manifest, self._findings
        # A shard depends only on documents and pattern, so it names no other versions.
        _, _, pyarrow = parquet.metadata.created_by.rpartition(" version ")
        expected = {"software.pyarrow": manifest.software.pyarrow}
        compare(where, findings, {"software.pyarrow": pyarrow}, expected)
        settings = manifest.configuration.get("counts", {})
        of_groups = {} if manifest.groups is None else {"groups": groups_to_text(self._groups)}
        compare(
            where,
            findings,
            footer_of(parquet),
            {
                "corpus": manifest.corpus,
                "special_tokens": json.dumps(
                    manifest.configuration["tokenizer"]["special_tokens"], ensure_ascii=False
                ),
                "shard": f"{shard} of {len(manifest.shards)}",
                "totals": json.dumps({"rows": entry.rows, "pretokens": entry.pretokens}),
                **of_groups,
            },
        )
        schema = file_schema(
            grouped=manifest.groups is not None,
            by_value="group_by" in settings,
            documents=settings.get("document_frequency", False),
        )
        if not parquet.schema_arrow.equals(schema):
            findings.note(where, f"the columns {schema.names} are expected")


def check_counts(manifest: Counted, findings: Findings) -> None:
    """Check the fingerprints and totals in the manifest of the counts."""
    where = f"{manifest.directory_name}/{MANIFEST}"
    expected: dict[str, object] = {
        "configuration_fingerprint": fingerprint(manifest.configuration),
        "fingerprint": fingerprint(
            manifest.to_json("corpus", "sources", "shards", "totals", "groups")
        ),
    }
    compare(where, findings, manifest.to_json(*expected), expected)
    totals = {
        "distinct_pretokens": sum(shard.rows for shard in manifest.shards),
        "pretokens": sum(shard.pretokens for shard in manifest.shards),
    }
    compare(where, findings, manifest.totals.to_json(*totals), totals)
    configured = {"counts.shards": manifest.configuration.get("counts", {}).get("shards")}
    compare(where, findings, configured, {"counts.shards": len(manifest.shards)})
    check_sums(manifest, findings)


def check_first_round(
    output: Directory,
    manifest: SuperwordsManifest,
    counts: CountsManifest | None,
    findings: Findings,
) -> None:
    """Check the tokenizer with which runs were counted, and that they are of the same documents."""
    where = f"superwords/{MANIFEST}"
    damaged = {problem.file.partition("/")[0] for problem in findings.result.problems}
    if "superwords" not in damaged:
        try:
            model = load_model(output / "superwords")
        except (BpeError, OSError) as error:
            findings.note("superwords", f"cannot be loaded: {error}")
        else:
            found = {"tokenizer": model.fingerprint, "vocab_size": len(model)}
            compare("superwords", findings, found, manifest.to_json(*found))
    if counts is not None:
        compare(where, findings, {"corpus": manifest.corpus}, {"corpus": counts.corpus})


def check_sums(manifest: Counted | TokensManifest, findings: Findings) -> None:
    """Note numbers of a manifest that do not add up, and contradictions."""
    where = f"{manifest.directory_name}/{MANIFEST}"
    try:
        check_accounts(manifest.to_json())
    except PipelineError as error:
        findings.note(where, f"{error.where}: {error.found}, but {error.expected} are expected")
    except (KeyError, TypeError, ValueError) as error:
        findings.note(where, f"unreadable accounts: {error!r}")
    for contradiction in find_contradictions(manifest):
        findings.note(where, contradiction)


def check_tokenizer(
    output: Directory,
    manifest: TokenizerManifest | ImportedManifest,
    counts: CountsManifest | None,
    findings: Findings,
) -> None:
    """Check that the tokenizer can be loaded and is the one of its manifest."""
    where = f"tokenizer/{MANIFEST}"
    damaged = {problem.file.partition("/")[0] for problem in findings.result.problems}
    trained = (
        manifest.of_all_sizes() if isinstance(manifest, TokenizerManifest) else [("", manifest)]
    )
    if "tokenizer" not in damaged:
        for place, listed in trained:
            _check_model(output, f"tokenizer/{place}".rstrip("/"), listed, findings)
    expected = {"configuration_fingerprint": fingerprint(manifest.configuration)}
    if isinstance(manifest, ImportedManifest):
        compare(where, findings, manifest.to_json(*expected), expected)
        return
    if counts is not None:
        expected["counts"] = counts.fingerprint
        _check_configurations(counts, manifest, findings)
    if "tokenizer" not in damaged:
        for place, listed in manifest.of_all_sizes():
            _check_training(output, f"tokenizer/{place}".rstrip("/"), manifest, listed, findings)
    compare(where, findings, manifest.to_json(*expected), expected)


def _check_model(
    output: Directory, place: str, listed: TrainedFiles | ImportedManifest, findings: Findings
) -> None:
    """Check that a tokenizer can be loaded and is the listed one."""
    try:
        model = load_model(output / place)
    except (BpeError, OSError) as error:
        findings.note(place, f"cannot be loaded: {error}")
        return
    found = {"fingerprint": model.fingerprint, "vocab_size": len(model)}
    compare(place, findings, found, listed.to_json(*found))


def _check_training(
    output: Directory,
    place: str,
    manifest: TokenizerManifest,
    listed: TrainedFiles,
    findings: Findings,
) -> None:
    """Compare the facts of training in training.json with the manifest."""
    where = f"{place}/{TRAINING}"
    try:
        content = (output / place).read_json(TRAINING) or {}
        found = {**content["training"], "not_written": content["not_written"]}
    except (BpeError, KeyError, TypeError) as error:
        findings.note(where, f"unreadable content: {error}")
        return
    expected = {**manifest.to_json(), **listed.to_json()}
    if listed is not manifest:
        configuration = manifest.configuration
        size = {**configuration["tokenizer"], "vocab_size": listed.vocab_size_asked_for}
        expected["configuration"] = {**configuration, "tokenizer": size}
    compare(where, findings, found, {key: expected.get(key) for key in found})


def _check_configurations(
    counts: CountsManifest, tokenizer: TokenizerManifest, findings: Findings
) -> None:
    """Check that the configuration of the counts is a part of that of the tokenizer."""
    counted, trained = counts.configuration, tokenizer.configuration
    if trained["tokenizer"].get("unit") == "character":  # which has no pattern of bytes
        pattern = counted["tokenizer"]["pattern"]
        trained = {**trained, "tokenizer": {**trained["tokenizer"], "pattern": pattern}}
    where = f"tokenizer/{MANIFEST}"
    for difference in differences(counted, part_of(trained, counted)):
        findings.note(where, f"differs from the configuration of counts/{MANIFEST}: {difference}")


def part_of(configuration: Any, pattern: Any) -> Any:
    """Return the keys of a configuration that another one has too.

    >>> part_of({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 0}})
    {'a': {'b': 1}}
    """
    if not isinstance(configuration, Mapping) or not isinstance(pattern, Mapping):
        return configuration
    both = [key for key in pattern if key in configuration]
    return {key: part_of(configuration[key], pattern[key]) for key in both}
