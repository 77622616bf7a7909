"""Files of rejects, held against the manifest that lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipelines.manifest.generations import record_of
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.verification.findings import Findings, compare, entry_of


def check_rejects(
    directory: Directory,
    entry: Mapping[str, Any],
    manifest: Mapping[str, Any],
    findings: Findings,
) -> None:
    """Verifies the footer and the number of rows of a file of rejects."""
    where = f"rejects/{entry['name']}"
    with open_parquet(directory, entry["name"]) as parquet:
        footer = footer_of(parquet)
        rows = sum(
            parquet.read_row_group(number, use_threads=False).num_rows
            for number in range(parquet.num_row_groups)
        )
    expected = {"totals": json.dumps({"rows": entry["rows"]})}
    if "generations" in manifest:
        expected["configuration"] = record_of(manifest, entry["name"])["configuration_fingerprint"]
        expected["tokenizer"] = manifest["tokenizer"]
    else:
        expected["configuration"] = manifest["configuration_fingerprint"]
    compare(where, findings, footer, expected)
    compare(where, findings, {"rows": rows}, entry_of(entry, "rows"))
