"""Convert a tokenizer to the formats of other libraries and compare the ids.

python examples/convert_tokenizer.py [DIRECTORY]

Trains a small tokenizer and writes it as tokenizer.json, as .tiktoken with the matching call of
tiktoken, and as vocab.json with merges.txt. DIRECTORY is the directory to write to; the default is
out/convert_tokenizer. The command `beam-bpe convert` does the same for files.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import tiktoken
from tokenizers import Tokenizer

from bpe_core import BPETokenizer, formats, train_bpe

CORPUS = Path(__file__).parent / "data"
END = "<|endoftext|>"
TEXT = f"In the beginning God created the heaven and the earth.{END}It's 1234."


def main(directory: Path) -> None:
    """Train and write a tokenizer, then encode one text with each library."""
    vocab, merges = train_bpe(sorted(CORPUS.glob("kjv-*.txt"))[:1], 1000, [END], pattern="o200k")
    tokenizer = BPETokenizer(vocab, merges, [END], pattern="o200k")
    ids = tokenizer.encode(TEXT)
    print(f"{len(ids)} ids: {ids[:8]} ...")

    not_written = formats.save_tokenizer(tokenizer.model, directory)
    print("written:", *sorted(path.name for path in directory.iterdir()), not_written or "")

    theirs = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert theirs.encode(TEXT).ids == ids
    print("tokenizers gives the same ids")

    encoding = runpy.run_path(str(directory / "tokenizer_tiktoken.py"))["encoding"]
    assert isinstance(encoding, tiktoken.Encoding)
    assert encoding.encode(TEXT, allowed_special="all") == ids
    print("tiktoken gives the same ids")

    # Reading a file back gives the same tokenizer.
    from_json = BPETokenizer.from_huggingface(directory / "tokenizer.json")
    from_ranks = BPETokenizer.from_tiktoken(
        directory / "tokenizer.tiktoken",
        pattern=tokenizer.model.pattern,
        special_tokens=tokenizer.special_tokens,
    )
    print("read back:", from_json.encode(TEXT) == ids, from_ranks.encode(TEXT) == ids)

    try:
        formats.write_minbpe(tokenizer.model, directory / "tokenizer")
    except formats.CannotHoldError as error:
        print("minbpe:", error)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/convert_tokenizer"))
