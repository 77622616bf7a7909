"""Files of tokenizers: reading and writing them, and the content of each format.

==================  ==============================================  ===========================
file                contains                                        read by
==================  ==============================================  ===========================
tokenizer.arrow     everything                                      this package
tokenizer.json      ids, merges, special tokens, pattern,           Hugging Face tokenizers,
                    normalizer, template                            transformers
vocab.json,         ids and merges                                  GPT-2's encoder, transformers
merges.txt
tokenizer.tiktoken  ranks of ordinary tokens                        tiktoken
tekken.json         ranks, special tokens, pattern (only read)      mistral-common
*.model, *.vocab    ids, merges, special tokens, pattern            minbpe (the .vocab: people)
*.model             ids, merges, special tokens                     SentencePiece
training.json       a summary                                       people
==================  ==============================================  ===========================

Every reader raises `FormatError` for an invalid file, with the file, the line or row, the expected
value and the value found. Every writer raises `CannotHoldError` with the reason if the format
cannot represent the tokenizer. Paths are local ones or fsspec URLs.
"""

from __future__ import annotations

from bpe_core.formats.arrow import read_arrow, write_arrow
from bpe_core.formats.detection import (
    FORMATS,
    WRITTEN_FORMATS,
    FormatName,
    TokenizerFile,
    WrittenFormat,
    find_tokenizer,
)
from bpe_core.formats.directory import TOKENIZER_FILES, load_tokenizer, save_tokenizer
from bpe_core.formats.files import CannotHoldError
from bpe_core.formats.gpt2 import read_vocab_merges, write_vocab_merges
from bpe_core.formats.huggingface import read_huggingface, write_huggingface
from bpe_core.formats.minbpe import minbpe_bytes, read_minbpe, write_minbpe
from bpe_core.formats.ranks import read_tiktoken, write_tiktoken
from bpe_core.formats.reading import load_any, read_ranks, read_tokenizer
from bpe_core.formats.sentencepiece import read_sentencepiece, write_sentencepiece
from bpe_core.formats.tekken import read_tekken

__all__ = [
    "FORMATS",
    "TOKENIZER_FILES",
    "WRITTEN_FORMATS",
    "CannotHoldError",
    "FormatName",
    "TokenizerFile",
    "WrittenFormat",
    "find_tokenizer",
    "load_any",
    "load_tokenizer",
    "minbpe_bytes",
    "read_arrow",
    "read_huggingface",
    "read_minbpe",
    "read_ranks",
    "read_sentencepiece",
    "read_tekken",
    "read_tiktoken",
    "read_tokenizer",
    "read_vocab_merges",
    "save_tokenizer",
    "write_arrow",
    "write_huggingface",
    "write_minbpe",
    "write_sentencepiece",
    "write_tiktoken",
    "write_vocab_merges",
]
