"""Train a tokenizer on text files, encode and decode with it, and save it.

python examples/train_and_encode.py [DIRECTORY]

DIRECTORY is the directory to save the tokenizer in; the default is out/train_and_encode.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bpe_core import BPETokenizer, train_bpe

CORPUS = Path(__file__).parent / "data"
END = "<|endoftext|>"


def main(directory: Path) -> None:
    """Train on the uncompressed shards, because `train_bpe` does not decompress files."""
    files = sorted(CORPUS.glob("kjv-*.txt"))
    vocab, merges = train_bpe(files, 4096, [END])
    print(f"{len(vocab):,} ids, {len(merges):,} merges; the first: {merges[:3]}")

    tokenizer = BPETokenizer(vocab, merges, [END])
    ids = tokenizer.encode(f"In the beginning{END}")
    print(ids, [vocab[token_id] for token_id in ids])
    assert tokenizer.decode(ids) == f"In the beginning{END}"

    documents = [text for text in files[0].read_bytes().split(END.encode()) if text]
    ids_of_all, offsets = tokenizer.encode_batch_to_numpy(documents)
    print(f"{len(documents):,} documents are {len(ids_of_all):,} tokens; the first: {offsets[1]:,}")

    not_written = tokenizer.save(directory)
    print("saved:", *sorted(path.name for path in directory.iterdir()), not_written or "")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/train_and_encode"))
