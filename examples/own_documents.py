"""Documents from anywhere: count, train, encode and write shards in Beam pipelines of one's own.

python examples/own_documents.py [DIRECTORY]

DIRECTORY, out/own-documents if it is not given, must not hold the files of an earlier run.
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
    """Lines that another source could give as well, and a filter: any transform may be here."""
    return (
        pipeline
        | "ReadLines" >> beam.io.ReadFromText(str(CORPUS / "kjv-00.txt"))
        | "LongOnes" >> beam.Filter(lambda line: len(line) > 40)
    )


def show(shard: beam.Row) -> None:
    sys.stdout.write(f"{shard.name}: {shard.rows:,} rows, {shard.tokens:,} tokens\n")


def main(directory: str) -> None:
    """Trains on the lines, then encodes them into two shards."""
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
