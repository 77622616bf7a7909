"""Train minbpe's tokenizers, save them in its format, and convert one to other formats.

python examples/minbpe_tokenizers.py [DIRECTORY]

DIRECTORY is the directory to write the files to; the default is out/minbpe.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bpe_core import BasicTokenizer, BPETokenizer, RegexTokenizer

CORPUS = Path(__file__).parent / "data"
SIZE = 1024
END = "<|endoftext|>"


def main(directory: Path) -> None:
    """Train on one shard, with and without a pattern."""
    text = (CORPUS / "kjv-00.txt").read_text("utf-8").replace(END, "\n")
    verse = "In the beginning God created the heaven and the earth."
    for tokenizer, name in [(BasicTokenizer(), "basic"), (RegexTokenizer(), "regex")]:
        tokenizer.train(text, SIZE)
        print(tokenizer)
        print("the last merges:", [tokenizer.vocab[i] for i in range(SIZE - 4, SIZE)])
        ids = tokenizer.encode(verse)
        assert tokenizer.decode(ids) == verse
        print(f"{len(verse)} characters are {len(ids)} tokens")
        tokenizer.save(directory / name)

    tokenizer = RegexTokenizer()
    tokenizer.load(directory / "regex.model")
    tokenizer.register_special_tokens({END: SIZE})
    ids = tokenizer.encode(verse + END, allowed_special="all")
    assert ids == BPETokenizer.from_model(tokenizer.model).encode(verse + END)
    BPETokenizer.from_model(tokenizer.model).save(directory / "all_formats")
    print("saved:", *sorted(path.name for path in directory.rglob("*.*")))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/minbpe"))
