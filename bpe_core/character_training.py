"""Training of tokenizers that merge characters, from counted pre-tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.char_bpe.settings import Settings
from bpe_core.char_bpe.training import CountedWords, Options, character_counts, learn
from bpe_core.character_encoding import merges_of_pieces
from bpe_core.characters import SPACE_SIGN, CharacterRules
from bpe_core.counts import PretokenCounts
from bpe_core.errors import TrainingError
from bpe_core.model import TokenizerModel
from bpe_core.training import Progress, StopReason, TrainingResult, report_progress

__all__ = ["train_characters_from_counts"]

_BYTES = 256


def train_characters_from_counts(
    counts: PretokenCounts,
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    *,
    unk_token: str = "<unk>",
    byte_fallback: bool = True,
    character_coverage: float = 1.0,
    tie_break: Literal["lexicographic", "first_id"] = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[str] = (),
    progress: Progress = False,
) -> TrainingResult:
    """Train a tokenizer that merges characters, of SentencePiece's kind.

    Merges are learned within the pre-tokens that were counted. Encoding does not split text by the
    pattern; a space is a character like others, and files write it as the sign ▁. `save` writes a
    tokenizer.json and a tokenizer.model, for Hugging Face's tokenizers and for SentencePiece.

    Ids: special tokens in the order given, the unknown token, the 256 bytes, characters by code
    point, merges in order.

    Args:
        counts: result of `count_pretokens`, by any pattern.
        vocab_size: number of ids.
        special_tokens: texts that become their ids in text.
        unk_token: text of the unknown token. Text never becomes it.
        byte_fallback: characters without a token become the tokens of their bytes; false: they
            become the unknown token, several in a row one.
        character_coverage: share of all counted characters that get tokens, most frequent first.
        tie_break: rule for choosing between equally frequent pairs, as in `train_from_counts`.
        min_frequency: training stops below this number of occurrences of a pair.
        max_token_bytes: maximum length of a token that merges may make.
        forbidden_tokens: tokens that merges must not make.
        progress: as in `train_from_counts`.

    Raises:
        TrainingError: an argument is invalid, a pre-token is not UTF-8, or the vocabulary is too
            small.

    Example:
        >>> counts = PretokenCounts.from_mapping({b" low": 5, b" lower": 2})
        >>> result = train_characters_from_counts(counts, 266)
        >>> tokenizer = result.tokenizer()
        >>> tokenizer.decode(tokenizer.encode(" lower é")), result.merges[0]
        (' lower é', (b'l', b'o'))
    """
    if not 0 < character_coverage <= 1:
        raise TrainingError(
            f"character_coverage: expected a number above 0 and up to 1, found {character_coverage}"
        )
    settings = Settings(
        unk_token=unk_token,
        end_of_word=None,
        end_of_word_as="symbol",
        words="whitespace",
        lowercase=False,
        unicode_normalizer=None,
        special_tokens=tuple(special_tokens),
        method="merges",
    )
    words = _words_of(counts)
    num_bytes = _BYTES if byte_fallback else 0
    first = len(settings.reserved) + num_bytes
    if vocab_size <= first:
        raise TrainingError(
            f"vocab_size: expected more than {first}, the special tokens"
            f"{' and the 256 bytes' * byte_fallback}, found {vocab_size}"
        )
    options = Options(
        vocab_size=vocab_size - num_bytes,
        min_frequency=min_frequency,
        max_merges=None,
        limit_alphabet=_covering(words, settings, character_coverage),
        tie_break=tie_break,
        max_token_bytes=max_token_bytes,
        forbidden_tokens=tuple(forbidden_tokens),
    )
    with report_progress(progress, vocab_size - first) as report:
        learned = learn(words, settings, options, on_step=report)
    if " " not in learned.vocab:
        raise TrainingError(
            "counts: expected the space among the characters that get tokens, found none; count "
            "text by a pattern that keeps spaces, or raise character_coverage"
        )
    specials = {text: learned.vocab[text] for text in settings.reserved}
    ids = {text: i + num_bytes for text, i in learned.vocab.items() if text not in specials}
    byte_ids = range(len(specials), len(specials) + num_bytes)
    made = dict.fromkeys("".join(pair) for pair in learned.merges)
    merges = merges_of_pieces(ids, list(made))
    counted = dict(zip(map("".join, learned.merges[::-1]), learned.merge_counts[::-1], strict=True))
    text_of = {i: text for text, i in ids.items()}
    merge_counts = [counted[text_of[result]] for _, _, result in merges]
    normalizer = counts.metadata.get("normalizer")
    model = TokenizerModel.from_tokens(
        [
            *((i, text.encode()) for text, i in ids.items()),
            *((i, bytes([byte])) for byte, i in enumerate(byte_ids)),
        ],
        merges,
        special_tokens=specials,
        pattern="none",
        tie_break=tie_break,
        merge_counts=merge_counts,
        stop_reason=learned.stop_reason,
        counts_fingerprint=counts.metadata.get("fingerprint"),
        training_options={
            "unit": "character",
            "byte_fallback": byte_fallback,
            "character_coverage": character_coverage,
            "min_frequency": min_frequency,
        },
        normalizer=None if normalizer == "null" else normalizer,
        normalize_quotes=counts.metadata.get("normalize_quotes") == "true",
        unknown_id=specials[unk_token],
        characters=CharacterRules(
            byte_ids=tuple(byte_ids), fuse_unknown=True, hidden_tokens=frozenset([unk_token])
        ),
    )
    return TrainingResult(
        model=model,
        merge_counts=merge_counts,
        stop_reason=cast("StopReason", learned.stop_reason),
    )


def _words_of(counts: PretokenCounts) -> CountedWords:
    """Return the counted pre-tokens as words of characters, with spaces for the sign ▁."""
    table = counts.to_arrow()
    try:
        texts = table["pretoken"].cast(pa.large_string())
    except pa.ArrowInvalid:
        raise TrainingError("counts: expected pre-tokens in UTF-8, found others") from None
    spaced = pc.replace_substring(texts, SPACE_SIGN, " ").cast(pa.large_binary())
    plain = table.set_column(table.schema.get_field_index("pretoken"), "pretoken", spaced)
    keys, offsets, numbers = PretokenCounts(plain).columns()
    return CountedWords(
        text=keys[offsets[0] : offsets[-1]].tobytes(),
        offsets=offsets - offsets[0],
        counts=numbers,
        unit=counts.unit,
    )


def _covering(words: CountedWords, settings: Settings, coverage: float) -> int | None:
    """Return how many of the most frequent characters make up this share of the text."""
    frequencies = np.sort(character_counts(words, settings))[::-1]
    if coverage == 1 or not len(frequencies):
        return None
    return int(np.searchsorted(np.cumsum(frequencies), coverage * frequencies.sum())) + 1
