"""CharBPETokenizer: byte-pair encoding whose smallest tokens are characters."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from bpe_core.buffers import concatenate, to_utf8
from bpe_core.char_bpe import files
from bpe_core.char_bpe.encoder import UNKNOWN
from bpe_core.char_bpe.settings import (
    WORD_END,
    EndOfWordAs,
    Method,
    Settings,
    UnicodeNormalizer,
    Words,
    check_choice,
)
from bpe_core.char_bpe.training import (
    CharTieBreak,
    CountedWords,
    Options,
    WordCounter,
    learn,
    words_of_counts,
)
from bpe_core.char_bpe.vocabulary import Vocabulary
from bpe_core.cores import check_num_threads
from bpe_core.counts import PretokenCounts
from bpe_core.errors import (
    InvalidTokenizerError,
    TrainingError,
    UnknownCharacterError,
    UnknownTokenError,
)
from bpe_core.formats.files import Location
from bpe_core.formats.reading import enter_output
from bpe_core.notebook_tables import tokenizer_table
from bpe_core.patterns import WHITESPACE_WORDS
from bpe_core.short_repr import format_fields
from bpe_core.token_colours import ColouredTokens
from bpe_core.training import STOP_REASONS, Progress, report_progress

__all__ = ["CharBPETokenizer"]

_BATCH_BYTES = 4 << 20
_STOP_REASONS = {
    **STOP_REASONS,
    "max_merges_reached": "there are as many merges as asked for",
}


class CharBPETokenizer:
    """Tokenizer that merges characters, as BPE was first used on words.

    A new one has no tokens: `train` it, or make one with `from_vocab`, `from_huggingface` or
    `load`. Three published tokenizers, which differ in every step, are available by name:
    `words_longest_first`, `text_left_to_right`, `huggingface`.

    Args:
        unk_token: The token of characters that have no id; None: their id is -1.
        end_of_word: The marker for the end of each word; None: no marker, and decoding joins words
            without a space.
        end_of_word_as: "symbol": the marker is a separate token that merges like any other;
            "suffix": it belongs to the last character, so that `w` and `w</w>` are two characters.
        words: "whitespace": words as `str.split` returns them; "bert": as Hugging Face's BERT
            normalizer and pre-tokenizer together (punctuation and Chinese characters are words,
            control characters are removed); "whole_text": a text is one word.
        lowercase: Convert text to lower case before anything else, character by character.
        unicode_normalizer: "nfc", "nfd", "nfkc", "nfkd" (of the installed Python's Unicode) or
            None.
        special_tokens: Texts that are found in text before everything else and become their ids,
            the first of the vocabulary.
        method: The default method of `encode`.

    Raises:
        InvalidTokenizerError: An argument is invalid.
        SpecialTokenError: A special token is empty or given twice.

    Source: R. Sennrich, B. Haddow, A. Birch, Neural Machine Translation of Rare Words with Subword
    Units, 2016.

    Example:
        >>> tokenizer = CharBPETokenizer()
        >>> tokenizer.train("low low low lower lowest", vocab_size=13)
        >>> tokenizer.merges
        [('l', 'o'), ('lo', 'w'), ('low', '</w>'), ('low', 'e')]
        >>> [tokenizer.id_to_token(i) for i in tokenizer.encode("low lows!")]
        ['low</w>', 'low', 's', '<unk>', '</w>']
        >>> tokenizer.decode(tokenizer.encode("lower low"))
        'lower low'
    """

    def __init__(
        self,
        unk_token: str | None = "<unk>",
        end_of_word: str | None = "</w>",
        end_of_word_as: EndOfWordAs = "symbol",
        words: Words = "whitespace",
        lowercase: bool = False,
        unicode_normalizer: UnicodeNormalizer | None = None,
        *,
        special_tokens: Iterable[str] = (),
        method: Method = "merges",
    ) -> None:
        self._settings = Settings(
            unk_token=unk_token,
            end_of_word=end_of_word,
            end_of_word_as=end_of_word_as,
            words=words,
            lowercase=lowercase,
            unicode_normalizer=unicode_normalizer,
            special_tokens=special_tokens,  # type: ignore[arg-type]
            method=method,
        )
        self._state: Vocabulary | None = None

    # --- the published ones

    @classmethod
    def words_longest_first(cls) -> CharBPETokenizer:
        """Return a tokenizer with `</w>` as a symbol, which replaces the longest tokens first.

        In each word, the longest token that occurs anywhere in it is replaced first, then the
        longest in the rest, and so on; of equally long ones, the more frequent. Only tokens that
        remain in the training words take part. The rest is `<unk>`.
        """
        return cls(method="longest_first")

    @classmethod
    def text_left_to_right(cls) -> CharBPETokenizer:
        """Return a tokenizer of whole texts that takes the longest token at each position.

        The id of an unknown character is -1.
        """
        return cls(unk_token=None, end_of_word=None, words="whole_text", method="left_to_right")

    @classmethod
    def huggingface(
        cls,
        *,
        lowercase: bool = False,
        unicode_normalizer: UnicodeNormalizer | None = None,
    ) -> CharBPETokenizer:
        """Return a tokenizer like `tokenizers.CharBPETokenizer`: suffix `</w>`, BERT's words."""
        return cls(
            end_of_word_as="suffix",
            words="bert",
            lowercase=lowercase,
            unicode_normalizer=unicode_normalizer,
            special_tokens=["<unk>"],
        )

    # --- with a vocabulary

    @classmethod
    def from_vocab(
        cls,
        vocab: Mapping[str, int],
        merges: Iterable[tuple[str, str]],
        **settings: Any,
    ) -> CharBPETokenizer:
        """Return a tokenizer with these tokens and ids, and merges in order of rank.

        Args:
            vocab: Token to id; includes `unk_token` and all special tokens.
            merges: Pairs of tokens. Of a pair that occurs twice, the last rank counts.
            settings: The arguments of the class.

        Raises:
            InvalidTokenizerError: An id occurs twice, or a merge has tokens outside of the
                vocabulary.
        """
        tokenizer = cls(**settings)
        tokenizer._state = Vocabulary(
            settings=tokenizer._settings, vocab=vocab, merges=tuple(merges)
        )
        return tokenizer

    @classmethod
    def from_huggingface(
        cls,
        vocab_filepath: str | os.PathLike[str],
        merges_filepath: str | os.PathLike[str],
        **settings: Any,
    ) -> CharBPETokenizer:
        """Return the tokenizer in files of `tokenizers.CharBPETokenizer`, with the same ids.

        Args:
            vocab_filepath: vocab.json, token to id.
            merges_filepath: merges.txt, one pair per line.
            settings: Arguments of the class that differ from those of `huggingface`, such as
                lowercase=True, words="whitespace" (its `split_on_whitespace_only` without
                `bert_normalizer`), end_of_word="</s>" (its `suffix`).

        Raises:
            FormatError: A file is invalid.
            OSError: A file cannot be read.
        """
        unk_token = settings.get("unk_token", "<unk>")
        defaults = {
            "end_of_word_as": "suffix",
            "words": "bert",
            "special_tokens": [] if unk_token is None else [unk_token],
        }
        tokenizer = cls(**{**defaults, **settings})
        vocab, merges = files.read_huggingface(vocab_filepath, merges_filepath)
        with files.named(vocab_filepath):
            tokenizer._state = Vocabulary(
                settings=tokenizer._settings, vocab=vocab, merges=tuple(merges)
            )
        return tokenizer

    @classmethod
    def load(cls, directory: Location) -> CharBPETokenizer:
        """Load a tokenizer from a directory that `save` or a build wrote, or from a build's output.

        Raises:
            FormatError: A file is invalid.
            OSError: A file cannot be read.
        """
        directory = enter_output(directory)
        content = files.read(directory)
        with files.named(directory):
            tokenizer = cls(**content["settings"])
            tokenizer._state = Vocabulary(settings=tokenizer._settings, **content["vocabulary"])
        files.check_fingerprint(directory, content, tokenizer.fingerprint)
        return tokenizer

    def save(
        self, directory: Location, training: Mapping[str, object] | None = None
    ) -> dict[str, str]:
        """Write char_bpe.json and, if possible, the two files that Hugging Face's class reads.

        Files of another tokenizer in the directory are removed, also those of a byte-level one.

        Args:
            directory: The directory, which is made if it does not exist.
            training: Additional content of training.json, which is only written if this is given.

        Returns:
            The reasons why formats were not written, by the names of their files.
        """
        return files.write(
            directory, self._settings, self._trained().as_json(), self.fingerprint, training
        )

    # --- training

    def train(
        self,
        texts: str | Iterable[str],
        vocab_size: int,
        *,
        min_frequency: int = 2,
        max_merges: int | None = None,
        limit_alphabet: int | None = None,
        tie_break: CharTieBreak = "first_seen",
        verbose: bool = False,
    ) -> None:
        """Learn a vocabulary, and replace the existing one.

        Args:
            texts: One text or several. No merge crosses from one to another.
            vocab_size: The number of tokens at which to stop: special tokens, `unk_token`, the
                alphabet, the end of a word (as a suffix: every character that words end with, a
                second time), merges.
            min_frequency: Stop when the most frequent pair occurs less often.
            max_merges: Stop after this many merges.
            limit_alphabet: Keep only this many characters, the most frequent ones.
            tie_break: The choice among equally frequent pairs. "first_seen": the pair that occurs
                first in the words as merged so far, in the order in which the words first occurred;
                "lexicographic": the greatest; "first_id": the one with the smallest ids.
            verbose: Print each merge.

        Raises:
            TrainingError: An argument is invalid, or the vocabulary is too small for the alphabet.
        """
        options = Options(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            max_merges=max_merges,
            limit_alphabet=limit_alphabet,
            tie_break=tie_break,
        )
        counter = WordCounter()
        if isinstance(texts, str):
            texts = [texts]
        elif isinstance(texts, bytes | bytearray | memoryview) or not isinstance(texts, Iterable):
            raise TrainingError(
                f"texts: expected str or an iterable of str, found {type(texts).__name__}"
            )
        for segments in self._segments(texts):
            data, offsets = concatenate(segments)
            bounds = offsets[:-1], offsets[1:]
            counter.add(*self._settings.marked(data, *bounds, find_specials=False))
        self._learn(counter.counted(), options, verbose)

    def train_from_counts(
        self,
        counts: PretokenCounts,
        vocab_size: int,
        *,
        min_frequency: int = 2,
        max_merges: int | None = None,
        limit_alphabet: int | None = None,
        tie_break: CharTieBreak = "lexicographic",
        max_token_bytes: int | None = None,
        forbidden_tokens: Iterable[str] = (),
        verbose: bool = False,
        progress: Progress = False,
    ) -> None:
        """Learn a vocabulary, like `train`, from counts with the pattern "whitespace_words".

        Args:
            counts: Result of `count_pretokens`; whitespace among the pre-tokens is ignored.
            tie_break: "lexicographic" or "first_id": counts do not keep the order of the text.
            max_token_bytes: Skip merges that would make a longer token; the end of a word counts
                with the bytes of its text.
            forbidden_tokens: Skip merges that would make one of these tokens.
            progress: True to show progress, or a function called with (merges made, merges wanted),
                and with the newest token if it has a third parameter.

        Raises:
            TrainingError: See `train`; or the counts have another pattern, or the tie-break is
                "first_seen".
        """
        if tie_break == "first_seen":
            raise TrainingError(
                "tie_break: first_seen needs the order of the text, which counts do not keep; "
                "expected lexicographic or first_id"
            )
        pattern = counts.metadata.get("pattern", WHITESPACE_WORDS)
        if pattern != WHITESPACE_WORDS or self._settings.words != "whitespace":
            raise TrainingError(
                f"counts: expected counts of whitespace words (pattern {WHITESPACE_WORDS!r}) for "
                f"a tokenizer with words='whitespace', found pattern {pattern!r} and "
                f"words={self._settings.words!r}"
            )
        normalized = counts.metadata.get("normalizer", "null") != "null" or (
            counts.metadata.get("normalize_quotes", "false") != "false"
        )
        if self._settings.normalizes or normalized:
            raise TrainingError(
                "counts: expected counts of unchanged text, for a tokenizer that does not change "
                "text, found "
                + (
                    "counts of normalized text"
                    if normalized
                    else "a tokenizer that lowers or normalizes it"
                )
            )
        options = Options(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            max_merges=max_merges,
            limit_alphabet=limit_alphabet,
            tie_break=tie_break,
            max_token_bytes=max_token_bytes,
            forbidden_tokens=tuple(forbidden_tokens),
        )
        self._learn(words_of_counts(counts), options, verbose, progress)

    def _segments(self, texts: Iterable[str]) -> Iterator[list[bytes]]:
        """Yield the text between special tokens, in batches of a few MB."""
        batch: list[bytes] = []
        size = 0
        for text in texts:
            if not isinstance(text, str):
                raise TrainingError(f"texts: expected str, found {type(text).__name__}")
            parts = self._settings.split_special_tokens(to_utf8(text))
            batch += [part for part, is_special in parts if not is_special]
            size += len(text)
            if size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        yield batch

    def _learn(
        self,
        words: CountedWords,
        options: Options,
        verbose: bool,
        progress: Progress = False,
    ) -> None:
        settings = self._settings
        made = 0

        def log(left: str, right: str, count: int, tokens: int) -> None:
            nonlocal made
            made += 1
            pair = f"{left!r} + {right!r} -> {left + right!r}"
            print(f"merge {made}: {pair} ({count:,} times), {tokens:,} tokens")

        with report_progress(progress, options.vocab_size) as report:
            learned = learn(words, settings, options, log if verbose else None, report)
        state = Vocabulary(
            settings=settings,
            vocab=learned.vocab,
            merges=tuple(learned.merges),
            merge_counts=tuple(learned.merge_counts),
            stop_reason=learned.stop_reason,
            tie_break=options.tie_break,
        )
        self._state = state.with_longest_first(words)

    # --- what is in it

    @property
    def vocab(self) -> dict[str, int]:
        """Return token to id."""
        return dict(self._trained().vocab)

    @property
    def merges(self) -> list[tuple[str, str]]:
        """Return pairs of tokens in order of rank."""
        return list(self._trained().merges)

    @property
    def merge_counts(self) -> list[int] | None:
        """Return how often each merge's pair occurred when it was learned, or None if unknown."""
        counts = self._trained().merge_counts
        return None if counts is None else list(counts)

    @property
    def stop_reason(self) -> str | None:
        """Return why training stopped, or None if unknown.

        "vocab_size_reached", "max_merges_reached", "below_min_frequency" or "no_pairs_left".
        """
        return None if self._state is None else self._state.stop_reason

    def explain_stop(self) -> str:
        """Return why training stopped, as a phrase."""
        reason = self._trained().stop_reason
        return "unknown" if reason is None else _STOP_REASONS[reason]

    @property
    def pattern(self) -> str:
        """Return the pattern that splits text into words, or "none"."""
        return WHITESPACE_WORDS if self._settings.words == "whitespace" else "none"

    @property
    def special_tokens(self) -> dict[str, int]:
        """Return the special tokens' ids."""
        vocab = self._trained().vocab
        return {token: vocab[token] for token in self._settings.special_tokens}

    @property
    def unk_token(self) -> str | None:
        """Return the token of characters without an id."""
        return self._settings.unk_token

    @property
    def end_of_word(self) -> str | None:
        """Return the marker for the end of a word."""
        return self._settings.end_of_word

    @property
    def method(self) -> Method:
        """Return the default method of `encode`."""
        return self._settings.method

    @property
    def max_id(self) -> int:
        """Return the largest id, or -1 if there are no tokens."""
        return self._trained().max_id

    @property
    def fingerprint(self) -> str:
        """Return the XXH3-128, in hex, of everything that determines ids."""
        return files.fingerprint(self._settings, self._trained().as_json())

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, or None if there is no such token."""
        return self._trained().vocab.get(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Return the token of an id, or None if there is no such id."""
        return self._trained().token_of.get(token_id)

    @property
    def vocab_size(self) -> int:
        """The number of tokens; the same as `len(tokenizer)`."""
        return len(self)

    def __len__(self) -> int:
        """Return the number of tokens."""
        return 0 if self._state is None else len(self._state.vocab)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CharBPETokenizer):
            return NotImplemented
        return self._settings == other._settings and self._state == other._state

    __hash__ = None  # type: ignore[assignment]  # `train` changes it

    def __reduce__(self) -> tuple[object, ...]:
        # Native tables are rebuilt when it is unpickled, for example in another process.
        content = None if self._state is None else self._state.as_json()
        return functools.partial(_rebuilt, type(self)), (self._settings.as_json(), content)

    def __repr__(self) -> str:
        merges = 0 if self._state is None else len(self._state.merges)
        sizes = f"{len(self)} tokens", f"{merges} merges"
        return format_fields("CharBPETokenizer", self._settings.as_json(), *sizes)

    def _repr_html_(self) -> str:
        settings = self._settings.as_json()
        del settings["special_tokens"]
        return tokenizer_table(
            type(self).__name__,
            tokens=len(self),
            merges=0 if self._state is None else len(self._state.merges),
            specials={} if self._state is None else self.special_tokens,
            rules={name.replace("_", " "): value for name, value in settings.items()},
        )

    # --- encoding

    def encode(self, text: str, *, method: Method | None = None) -> list[int]:
        """Return the ids of a text.

        The marker for the end of a word is not searched in the text: if a text contains the
        characters of `end_of_word`, they are ordinary characters. Tokens are distinguished only by
        their text, so if training merged such characters, the result is the same token as an end of
        a word.

        Args:
            text: Any text; lone surrogates become U+FFFD.
            method: "merges": apply the merges of training in order; "longest_first": in each word,
                use the longest token first, wherever it occurs; "left_to_right": at each position,
                use the longest token. None: the tokenizer's default.

        Returns:
            Ids; for a character without one, the id of `unk_token`, or -1.

        Raises:
            InvalidTokenizerError: The method is unknown, or the tokenizer has no vocabulary.
        """
        data = to_utf8(text)
        bounds = np.array([0], np.int64), np.array([len(data)], np.int64)
        ids: list[int] = self._encode(data, *bounds, method=method)[0].tolist()
        return ids

    def show(self, text: str, *, method: Method | None = None) -> ColouredTokens:
        """Return the tokens of a text for a look at them: in colours in a notebook, or as lines.

        A character without an id is shown as U+FFFD. Arguments and errors are those of `encode`.
        """
        ids = self.encode(text, method=method)
        return ColouredTokens(ids, [(self.id_to_token(i) or "\ufffd").encode() for i in ids])

    def encode_documents(
        self,
        data: bytes | memoryview | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        allowed_special: str = "all",
        prepend: Sequence[int] = (),
        append: Sequence[int] = (),
        dtype: type[np.uint16] | type[np.uint32] = np.uint32,
        num_threads: int = 1,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of documents data[starts[i]:ends[i]], which must be UTF-8.

        Args:
            data: One buffer.
            starts, ends: int64[n].
            allowed_special: "all", or "none" to treat special tokens as ordinary text.
            prepend, append: Ids of special tokens put before and after each document.
            dtype: Type of the ids; uint16 needs all of them below 65,536.
            num_threads: Number of threads for encoding by merges; 0 for all cores.

        Returns:
            (ids dtype[m], offsets int64[n + 1]).

        Raises:
            UnknownCharacterError: A character has no id, and `unk_token` is None.
            InvalidTokenizerError: uint16 with larger ids.
            ValueError: `num_threads` is negative.
        """
        if dtype is np.uint16 and self.max_id > 0xFFFF:
            raise InvalidTokenizerError(
                f"dtype: expected uint32 for ids up to {self.max_id}, found uint16"
            )
        ids, offsets = self._encode(
            data,
            starts,
            ends,
            find_specials=allowed_special == "all",
            prepend=prepend,
            append=append,
            num_threads=num_threads,
        )
        if self._settings.unk_token is None and len(ids) and ids.min() < 0:
            document = int(np.searchsorted(offsets, np.argmin(ids >= 0), side="right")) - 1
            text = bytes(data[starts[document] : ends[document]])
            segments = [text]
            if allowed_special == "all":
                parts = self._settings.split_special_tokens(text)
                segments = [part for part, is_special in parts if not is_special]
            found = self._unknown_among(segments)
            raise UnknownCharacterError(
                f"document {document}: expected characters of this vocabulary, found {found}; "
                "give an unk_token, or train on text that contains the character",
                found,
                document,
            )
        return ids.astype(dtype), offsets

    def _encode(
        self,
        data: bytes | memoryview | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        method: Method | None = None,
        find_specials: bool = True,
        prepend: Sequence[int] = (),
        append: Sequence[int] = (),
        num_threads: int = 1,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        if method is None:
            method = self._settings.method
        check_choice("method", method, get_args(Method))
        check_num_threads(num_threads)
        marked, bounds = self._settings.marked(data, starts, ends, find_specials=find_specials)
        return self._trained().encode(
            marked,
            bounds,
            method,
            prepend=prepend,
            append=append,
            num_threads=num_threads,
        )

    def _unknown_among(self, segments: Sequence[bytes]) -> str:
        """Describe the first character without an id, and its word."""
        data, offsets = concatenate(segments)
        marked, _ = self._settings.marked(data, offsets[:-1], offsets[1:], find_specials=False)
        for word in marked.tobytes().split(bytes([WORD_END])):
            ids = self._encode_word(word)
            if UNKNOWN not in ids:
                continue
            text = word.decode("utf-8", "replace")
            before = [self._trained().token_of[i] for i in ids[: ids.index(UNKNOWN)]]
            at = sum(len(token.removesuffix(self._settings.end_of_word or "")) for token in before)
            if at == len(text):
                return f"the end of the word {text[:100]!r}"
            return f"{text[at]!r} (U+{ord(text[at]):04X}) in the word {text[:100]!r}"
        raise AssertionError("there is a character without an id")

    def _encode_word(self, word: bytes) -> list[int]:
        marked = np.frombuffer(word + bytes([WORD_END]), np.uint8)
        bounds = np.array([0, len(marked)], np.int64)
        ids, _ = self._trained().encode(
            marked, bounds, self._settings.method, prepend=(), append=(), num_threads=1
        )
        found: list[int] = ids.tolist()
        return found

    def decode(self, ids: Iterable[int] | NDArray[np.integer], unknown: str = "error") -> str:
        """Decode ids to text. Each end of a word becomes a space, except at the end of the text.

        The whitespace between words is not in the ids, so it is not restored. A token whose text
        ends with `end_of_word` is the end of a word.

        Args:
            ids: Any iterable of int, or a numpy array.
            unknown: "error" to raise an error, or "skip" to ignore ids that are not in the
                vocabulary, such as -1.

        Raises:
            UnknownTokenError: An id is not in the vocabulary, with "error".
        """
        if unknown not in ("error", "skip"):
            raise ValueError(f"unknown: expected 'error' or 'skip', found {unknown!r}")
        values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        text_of = self._trained().text_of
        if unknown == "skip":
            values = [i for i in values if i in text_of]
        try:
            text = "".join(map(text_of.__getitem__, values))
        except KeyError as error:
            raise UnknownTokenError(
                f"id {error.args[0]!r}: expected an id of this vocabulary ({len(self)} tokens, "
                f"the largest id is {self.max_id}); unknown='skip' ignores it"
            ) from None
        return text if self._settings.end_of_word is None else text.removesuffix(" ")

    def _trained(self) -> Vocabulary:
        if self._state is None:
            raise InvalidTokenizerError(
                "expected a tokenizer with a vocabulary, found a new one; train it, or make one "
                "with from_vocab, from_huggingface or load"
            )
        return self._state


def _rebuilt(
    cls: type[CharBPETokenizer], settings: dict[str, Any], content: dict[str, Any] | None
) -> CharBPETokenizer:
    tokenizer = cls(**settings)
    if content is not None:
        tokenizer._state = Vocabulary(settings=tokenizer._settings, **content)
    return tokenizer
