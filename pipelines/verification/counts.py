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
from pipelines.config.identity import fingerprint
from pipelines.dataset.parquet_files import footer_of, open_parquet
from pipelines.errors import PipelineError
from pipelines.manifest import MANIFEST
from pipelines.manifest_schema import Stage
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import load_model
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
        compare(
            where,
            findings,
            footer_of(parquet),
            {
                "corpus": manifest["corpus"],
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
    compare(where, findings, manifest, expected)
