"""Encode JSON lines and Parquet files whose records have ids, and print the tokens by id.

python examples/records.py [TOKENIZER]

TOKENIZER is the directory of a tokenizer; the default is out/quickstart/tokenizer.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet as pq

import pipelines
from pipelines.config import BuildConfig

RECORDS = Path(__file__).parent / "data" / "genesis.jsonl.gz"


def main(tokenizer: str) -> None:
    """Encode the same records from both formats and print the token counts of the first ones."""
    with tempfile.TemporaryDirectory() as directory:
        parquet = Path(directory) / "genesis.parquet"
        pq.write_table(pa.json.read_json(RECORDS), parquet)
        fields = {"text_field": "content.text", "id_field": "id"}
        config = BuildConfig.model_validate(
            {
                "output": f"{directory}/out",
                "input": [
                    {"name": "lines", "format": "jsonl", "files": [str(RECORDS)], **fields},
                    {"name": "table", "format": "parquet", "files": [str(parquet)], **fields},
                ],
                "tokenizer": {"path": str(Path(tokenizer).absolute())},
            }
        )
        pipelines.build(config)
        files = sorted(map(str, Path(directory).glob("out/tokens/train-*.parquet")))
        table = pa.dataset.dataset(files).to_table(columns=["id", "num_tokens"])
    tokens: dict[str, list[int]] = {}
    for row in table.to_pylist():
        tokens.setdefault(row["id"], []).append(row["num_tokens"])
    for record, (of_lines, of_table) in list(tokens.items())[:5]:
        sys.stdout.write(f"{record}: {of_lines:,} tokens from JSON, {of_table:,} from Parquet\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "out/quickstart/tokenizer")
