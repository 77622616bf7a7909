"""Counts and the tokenizer that was learned from them, held against their manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from bpe_core._native import scan_documents
from bpe_core.errors import BpeError
from pipelines.accounting import check_accounts
from pipelines.config.fingerprints import differences, fingerprint
from pipelines.errors import PipelineError
from pipelines.manifest.models import Stage
from pipelines.manifest.records import MANIFEST
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tokenizers.files import TRAINING, load_model
from pipelines.verification.contradictions import contradictions
from pipelines.verification.findings import Findings, compare, entry_of


def check_shard(
    directory: Directory,
    entry: Mapping[str, Any],
    manifest: Mapping[str, Any],
    findings: Findings,
) -> None:
    """Verifies the rows of a shard: sorted, counted, in the shard that they belong to."""
    where = f"counts/{entry['name']}"
    shards = len(manifest["shards"])
    shard = [listed["name"] for listed in manifest["shards"]].index(entry["name"])
    rows = pretokens = 0
    last: bytes | None = None
    with open_parquet(directory, entry["name"]) as parquet:
        totals = json.dumps({key: entry[key] for key in ("rows", "pretokens")})
        footer = footer_of(parquet)
        # A shard depends on documents and pattern alone, and says no more.
        _, _, pyarrow = parquet.metadata.created_by.rpartition(" version ")
        compare(where, findings, {"software.pyarrow": pyarrow}, _pyarrow(manifest))
        compare(
            where,
            findings,
            footer,
            {
                "corpus": manifest["corpus"],
                "special_tokens": json.dumps(
                    manifest["configuration"]["tokenizer"]["special_tokens"], ensure_ascii=False
                ),
                "shard": f"{shard} of {shards}",
                "totals": totals,
            },
        )
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
                findings.note(where, "a pre-token that belongs into another shard")
    compare(
        where,
        findings,
        {"rows": rows, "pretokens": pretokens},
        entry_of(entry, "rows", "pretokens"),
    )


def _pyarrow(manifest: Mapping[str, Any]) -> dict[str, str]:
    return {"software.pyarrow": manifest["software"]["pyarrow"]}


def check_counts(manifest: Mapping[str, Any], findings: Findings) -> None:
    """Verifies what the manifest of the counts says in all."""
    where = f"counts/{MANIFEST}"
    shards = manifest["shards"]
    content = entry_of(manifest, "corpus", "sources", "shards", "totals")
    expected = {
        "configuration_fingerprint": fingerprint(manifest["configuration"]),
        "fingerprint": fingerprint(content),
    }
    compare(where, findings, manifest, expected)
    totals = {
        "distinct_pretokens": sum(shard["rows"] for shard in shards),
        "pretokens": sum(shard["pretokens"] for shard in shards),
    }
    compare(where, findings, manifest["totals"], totals)
    said = {"counts.shards": manifest["configuration"].get("counts", {}).get("shards")}
    compare(where, findings, said, {"counts.shards": len(shards)})
    check_accounts_of(where, manifest, findings)
    for contradiction in contradictions(manifest):
        findings.note(where, contradiction)


def check_accounts_of(where: str, manifest: Mapping[str, Any], findings: Findings) -> None:
    """Notes what does not add up in a manifest."""
    try:
        check_accounts(manifest)
    except PipelineError as error:
        findings.note(where, f"{error.where}: {error.found}, where {error.expected} are expected")
    except (KeyError, TypeError, ValueError) as error:
        findings.note(where, f"accounts that can't be understood: {error!r}")


def check_tokenizer(
    output: Directory, manifests: Mapping[Stage, Mapping[str, Any]], findings: Findings
) -> None:
    """Verifies that the tokenizer can be loaded and is the one of its manifest."""
    manifest = manifests["tokenizer"]
    where = f"tokenizer/{MANIFEST}"
    damaged = {problem.file.partition("/")[0] for problem in findings.result.problems}
    if "tokenizer" not in damaged:
        try:
            model = load_model(output / "tokenizer")
        except (BpeError, OSError) as error:
            findings.note("tokenizer", f"can't be loaded: {error}")
        else:
            found = {"fingerprint": model.fingerprint, "vocab_size": len(model)}
            compare("tokenizer", findings, found, entry_of(manifest, *found))
    expected = {"configuration_fingerprint": fingerprint(manifest["configuration"])}
    if "counts" in manifests:
        expected["counts"] = manifests["counts"]["fingerprint"]
        _check_configurations(manifests, findings)
    if "tokenizer" not in damaged:
        _check_training(output / "tokenizer", manifest, findings)
    compare(where, findings, manifest, expected)


def _check_training(directory: Directory, manifest: Mapping[str, Any], findings: Findings) -> None:
    """What training.json says besides, held against the manifest."""
    try:
        said = directory.read_json(TRAINING) or {}
        found = {**said["training"], "not_written": said["not_written"]}
    except (BpeError, KeyError, TypeError) as error:
        findings.note(f"tokenizer/{TRAINING}", f"can't be understood: {error}")
        return
    keys = [key for key in found if key in manifest]
    compare(f"tokenizer/{TRAINING}", findings, found, entry_of(manifest, *keys))


def _check_configurations(manifests: Mapping[Stage, Mapping[str, Any]], findings: Findings) -> None:
    """The configuration of the counts is a part of that of the tokenizer."""
    counts, tokenizer = (manifests[stage]["configuration"] for stage in ("counts", "tokenizer"))
    if tokenizer["tokenizer"].get("unit") == "character":  # which has no pattern of bytes
        pattern = counts["tokenizer"]["pattern"]
        tokenizer = {**tokenizer, "tokenizer": {**tokenizer["tokenizer"], "pattern": pattern}}
    for difference in differences(counts, part_of(tokenizer, counts)):
        where = f"tokenizer/{MANIFEST}"
        findings.note(where, f"another configuration than counts/{MANIFEST} has: {difference}")


def part_of(configuration: Any, pattern: Any) -> Any:
    """The keys of a configuration that another one has too.

    >>> part_of({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 0}})
    {'a': {'b': 1}}
    """
    if not isinstance(configuration, Mapping) or not isinstance(pattern, Mapping):
        return configuration
    both = [key for key in pattern if key in configuration]
    return {key: part_of(configuration[key], pattern[key]) for key in both}
