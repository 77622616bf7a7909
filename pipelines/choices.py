"""Choices that the command line shares with the modules that act on them.

This module imports nothing else: `beam-bpe --help` shows the choices without loading what they
choose from.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Runner: TypeAlias = Literal[
    "DirectRunner", "FlinkRunner", "PrismRunner", "PortableRunner", "DataflowRunner"
]
OneSplit: TypeAlias = Literal["train", "validation"]
Split: TypeAlias = Literal["train", "validation", "all"]
ExportFormat: TypeAlias = Literal[
    "megatron", "nanogpt", "llm.c", "npy", "mds", "documents", "packed"
]
IdType: TypeAlias = Literal["uint16", "uint32", "int32"]
CountsFormat: TypeAlias = Literal["sentencepiece", "tokenizers"]
ProgressMode: TypeAlias = Literal["auto", "bar", "plain", "json", "none"]
Packing: TypeAlias = Literal["concatenate", "best-fit"]
# As `bpe_core.formats` has them, whose package takes long to import.
WrittenTokenizerFormat: TypeAlias = Literal[
    "arrow", "huggingface", "gpt2", "tiktoken", "minbpe", "sentencepiece"
]
TokenizerFormat: TypeAlias = Literal[WrittenTokenizerFormat, "tekken"]
