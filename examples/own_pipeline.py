"""A custom Beam pipeline that prints the tokens of each input file and the rejected documents.

python examples/own_pipeline.py [TOKENIZER]

TOKENIZER is the directory of a tokenizer; the default is out/quickstart/tokenizer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import apache_beam as beam

from bpe_core import BPETokenizer
from pipelines import runners
from pipelines.batches import Reject
from pipelines.config import BeamConfig, SourceConfig
from pipelines.transforms import EncodeDocuments, ReadDocuments
from pipelines.writing import TokenRows

CORPUS = Path(__file__).parent / "data"
END = "<|endoftext|>"


def show(file: str, numbers: tuple[int, int]) -> None:
    documents, tokens = numbers
    # One write per line, because several workers print at the same time.
    sys.stdout.write(f"{file}: {documents:,} documents, {tokens:,} tokens\n")


def count_rows(rows: TokenRows) -> tuple[str, tuple[int, int]]:
    """Count the rows and the ids of a batch, whose documents are all of one file."""
    return rows.sources[0].as_py(), (len(rows), len(rows.ids))


def show_reject(reject: Reject) -> None:
    sys.stdout.write(f"{reject.source}, byte {reject.offset:,}: {reject.message}\n")


def main(directory: str) -> None:
    """Read the example corpus, including its compressed shard, and print a line for each file."""
    tokenizer = BPETokenizer.load(directory)
    source = SourceConfig(files=(f"{CORPUS}/*.txt*",), separator=END, range_bytes=1 << 20)
    # Like beam.Pipeline(), but on all cores of this machine.
    with runners.pipeline(BeamConfig()) as pipeline:
        encoded = (
            pipeline
            | "Read"
            >> ReadDocuments(
                sources=[source],
                pattern=tokenizer.pattern,
                special_tokens=tuple(tokenizer.special_tokens),
            )
            | "Encode" >> EncodeDocuments(tokenizer=directory, append=END)
        )
        _ = (
            encoded.tokens
            | "Number" >> beam.Map(count_rows)
            | "OfEachFile" >> beam.CombinePerKey(beam.combiners.TupleCombineFn(sum, sum))
            | "Show" >> beam.MapTuple(show)
        )
        _ = encoded.rejects | "ShowRejects" >> beam.Map(show_reject)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "out/quickstart/tokenizer")
