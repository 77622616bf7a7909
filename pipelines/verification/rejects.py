"""Files of rejects, compared with the manifest that lists them."""

from __future__ import annotations

import json

from pipelines.manifest.entries import TableEntry
from pipelines.manifest.generations import record_of
from pipelines.manifest.models import TokensManifest
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.verification.findings import Findings, compare


def check_rejects(
    directory: Directory, entry: TableEntry, manifest: TokensManifest, findings: Findings
) -> None:
    """Check the footer and the number of rows of a file of rejects."""
    where = f"rejects/{entry.name}"
    with open_parquet(directory, entry.name) as parquet:
        footer = footer_of(parquet)
        rows = sum(
            parquet.read_row_group(number, use_threads=False).num_rows
            for number in range(parquet.num_row_groups)
        )
    expected = {
        "totals": json.dumps({"rows": entry.rows}),
        "configuration": record_of(manifest, entry.name).configuration_fingerprint,
        "tokenizer": manifest.tokenizer,
    }
    compare(where, findings, footer, expected)
    compare(where, findings, {"rows": rows}, {"rows": entry.rows})
