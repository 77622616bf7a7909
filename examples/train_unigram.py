"""Train a Unigram model of SentencePiece from counts, and use it in Hugging Face's tokenizers.

python examples/train_unigram.py [COUNTS]

COUNTS is the directory `counts` of a build, such as out/quickstart/counts. By default, the script
counts the example corpus. It needs `pip install sentencepiece tokenizers`.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from bpe_core import PretokenCounts, count_pretokens

CORPUS = Path(__file__).parent / "data"
END = "<|endoftext|>"
VOCAB_SIZE = 4000
# Characters that a line of tab-separated values cannot contain; they get tokens of their own.
NOT_IN_TSV = ["\t", "\n", "\r"]


def counts_of_example() -> PretokenCounts:
    """Count the uncompressed shards."""
    return count_pretokens(sorted(CORPUS.glob("kjv-*.txt")), special_tokens=[END])


def lines(counts: PretokenCounts) -> Iterator[str]:
    """Yield what `beam-bpe counts export OUTPUT --to sentencepiece` prints."""
    for pretoken, count in counts.items():
        word = pretoken.decode()
        if not any(character in word for character in (*NOT_IN_TSV, "\0")):
            yield f"{word}\t{count}"


def train(counts: PretokenCounts) -> sentencepiece.SentencePieceProcessor:
    """Train on words with the spaces that they have in the text, and change nothing else."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines(counts),
        input_format="tsv",
        model_writer=model,
        model_type="unigram",
        vocab_size=VOCAB_SIZE,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        user_defined_symbols=NOT_IN_TSV,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def to_tokenizers(trained: sentencepiece.SentencePieceProcessor) -> Tokenizer:
    """Return the same model as a tokenizer of Hugging Face's library."""
    pieces = [(trained.id_to_piece(i), trained.get_score(i)) for i in range(trained.vocab_size())]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=trained.unk_id()))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never", split=False)
    return tokenizer


def main(counts: PretokenCounts) -> None:
    """Train, and compare the two libraries on a text."""
    trained = train(counts)
    tokenizer = to_tokenizers(trained)
    text = "And God said,  Let there be light:\nand there was light."
    pieces = trained.encode(text, out_type=str)
    print(f"{trained.vocab_size():,} pieces; {len(pieces)} for the text: {' '.join(pieces)!r}")
    assert trained.decode(trained.encode(text)) == text
    assert tokenizer.encode(text).ids == trained.encode(text)


if __name__ == "__main__":
    main(PretokenCounts.load(sys.argv[1]) if len(sys.argv) > 1 else counts_of_example())
