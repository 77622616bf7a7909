"""Character-level BPE: three ways to mark word ends and to encode, and Hugging Face's files.

python examples/character_bpe.py [DIRECTORY]

DIRECTORY is the directory to save the tokenizers in; the default is out/character_bpe.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bpe_core import CharBPETokenizer

CORPUS = Path(__file__).parent / "data" / "kjv-01.txt"
SENTENCE = "In the beginning was naïveté"


def main(directory: Path) -> None:
    """Train the three tokenizers on the same text and show how each one encodes a sentence."""
    text = CORPUS.read_text(encoding="utf-8")
    tokenizers = {
        "words_longest_first": CharBPETokenizer.words_longest_first(),
        "text_left_to_right": CharBPETokenizer.text_left_to_right(),
        "huggingface": CharBPETokenizer.huggingface(),
    }
    for name, tokenizer in tokenizers.items():
        tokenizer.train(text, 1000)
        ids = tokenizer.encode(SENTENCE)
        print(f"{name}: {len(tokenizer):,} tokens, {tokenizer.explain_stop()}")
        print("  ", *(repr(tokenizer.id_to_token(i)) for i in ids))
        print("  ", repr(tokenizer.decode(ids, unknown="skip")))

    # The same vocabulary can also be applied merge by merge, in order of rank.
    words = tokenizers["words_longest_first"]
    by_merges = words.encode(SENTENCE, method="merges")
    print("by merges:", *(words.id_to_token(i) for i in by_merges))

    for name, tokenizer in tokenizers.items():
        tokenizer.save(directory / name)
        assert CharBPETokenizer.load(directory / name) == tokenizer
    files = [directory / "huggingface" / file for file in ("vocab.json", "merges.txt")]
    read = CharBPETokenizer.from_huggingface(*files)
    assert read.encode(text) == tokenizers["huggingface"].encode(text)
    print("saved:", *sorted(path.name for path in directory.iterdir()))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/character_bpe"))
