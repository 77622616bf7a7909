"""A user's program with the public transforms, and nothing else of the package: plain Beam.

python tests/engines/own_pipeline.py TOKENIZER OUTPUT [BEAM_OPTIONS]
"""

from __future__ import annotations

import sys

import apache_beam as beam
from build_support import ROOT

from pipelines.batches import DocumentBatch
from pipelines.config import SourceConfig
from pipelines.transforms import CountPretokens, EncodeDocuments, ReadDocuments, WriteTokenShards

END = "<|endoftext|>"


def without_short(batch: DocumentBatch) -> DocumentBatch:
    """The documents of more than 400 bytes."""
    return batch.select(batch.num_bytes > 400)


def main(tokenizer: str, output: str, options: list[str]) -> None:
    """Counts and encodes the documents of files and of elements."""
    source = SourceConfig(files=[f"{ROOT}/examples/data/kjv-0[0-2].txt"], range_bytes=1 << 16)
    with beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(options)) as pipeline:
        documents = (
            pipeline
            | ReadDocuments(sources=[source], special_tokens=[END])
            | "Keep" >> beam.Map(without_short)
        )
        _ = documents | CountPretokens(
            output=f"{output}/counts", special_tokens=[END], shards=3, memory=1 << 16
        )
        encoded = documents | "OfFiles" >> EncodeDocuments(tokenizer=tokenizer, append=END)
        _ = encoded.tokens | "Files" >> WriteTokenShards(output=f"{output}/tokens", num_shards=3)
        rows = (
            pipeline
            | beam.Create([f"document {number} of words" for number in range(50)])
            | "OfTexts" >> EncodeDocuments(tokenizer=tokenizer, as_rows=True)
        )
        _ = rows.tokens | "Rows" >> WriteTokenShards(
            output=f"{output}/tokens", num_shards=2, split="texts", id_type="uint16"
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
