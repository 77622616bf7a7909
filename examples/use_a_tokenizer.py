"""Use a tokenizer: encode, stream, locate tokens, truncate, count, share it between threads.

python examples/use_a_tokenizer.py [DIRECTORY]

DIRECTORY contains a tokenizer that a build or `save` wrote, such as out/quickstart/tokenizer. By
default, the script trains a small one on the example corpus.
"""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from pathlib import Path

from bpe_core import BPETokenizer, train_bpe

CORPUS = Path(__file__).parent / "data"
END = "<|endoftext|>"


def small_tokenizer() -> BPETokenizer:
    vocab, merges = train_bpe(CORPUS / "kjv-00.txt", 1000, [END])
    return BPETokenizer(vocab, merges, [END])


def main(tokenizer: BPETokenizer) -> None:
    text = f"In the beginning God created the heaven and the earth.{END}"
    ids, offsets = tokenizer.encode_with_offsets(text)
    print(tokenizer)
    for token_id, (begin, end) in zip(ids.tolist(), pairwise(offsets.tolist()), strict=True):
        print(f"{token_id:>6}  {begin:>3}:{end:<3} {text[begin:end]!r}")

    print("five tokens:", repr(tokenizer.truncate(text, 5)))
    print("the id of the special token:", tokenizer.token_to_id(END))

    path = CORPUS / "kjv-00.txt"
    with path.open(
        encoding="utf-8", newline=""
    ) as file:  # reads no more of the file than necessary
        print("the first ids of a file:", *islice(tokenizer.encode_iterable(file), 10))

    documents = path.read_text("utf-8").split(END)
    counts = tokenizer.count_tokens_batch(documents)
    print(f"{len(documents):,} documents, the longest of {counts.max():,} tokens")

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(tokenizer.count_tokens, documents)) == counts.tolist()
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer


if __name__ == "__main__":
    main(BPETokenizer.load(sys.argv[1]) if len(sys.argv) > 1 else small_tokenizer())
