"""Count, train, encode and write shards in Beam pipelines that read documents from any source.

python examples/own_documents.py [DIRECTORY]

DIRECTORY must not contain the files of an earlier run; the default is out/own-documents.
"""

from __future__ import annotations

import sys
from pathlib import Path

import apache_beam as beam

from bpe_core import PretokenCounts, train_from_counts
from pipelines import (
    CountPretokens,
    EncodeDocuments,
    WriteTokenShards,
    runners,
)
from pipelines.config import BeamConfig

CORPUS = Path(__file__).parent / "data"
END = "<|endoftext|>"


def verses(pipeline: beam.Pipeline) -> beam.PCollection[str]:
    """Read and filter lines. Any source and any transform can take this place."""
    return (
        pipeline
        | "ReadLines" >> beam.io.ReadFromText(str(CORPUS / "kjv-00.txt"))
        | "LongOnes" >> beam.Filter(lambda line: len(line) > 40)
    )


def show(shard: beam.Row) -> None:
    sys.stdout.write(f"{shard.name}: {shard.rows:,} rows, {shard.tokens:,} tokens\n")


def main(directory: str) -> None:
    """Train on the lines, then encode them into two shards."""
    with runners.pipeline(BeamConfig()) as pipeline:
        verses(pipeline) | CountPretokens(
            output=f"{directory}/counts", special_tokens=[END], shards=4
        )
    counts = PretokenCounts.load(f"{directory}/counts")
    trained = train_from_counts(counts, 1000, [END])
    trained.tokenizer().save(f"{directory}/tokenizer")
    with runners.pipeline(BeamConfig()) as pipeline:
        encoded = verses(pipeline) | EncodeDocuments(tokenizer=f"{directory}/tokenizer", append=END)
        shards = encoded.tokens | WriteTokenShards(output=f"{directory}/tokens", num_shards=2)
        _ = shards | "Show" >> beam.Map(show)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "out/own-documents")
