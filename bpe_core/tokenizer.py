"""BPETokenizer: text to ids and back."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, islice
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpe_core import formats
from bpe_core._native import Encoder, SpecialSet
from bpe_core.buffers import joined, to_utf8
from bpe_core.cores import check_num_threads
from bpe_core.documents import Documents, buffer_of, check_spans
from bpe_core.errors import (
    InvalidTokenizerError,
    InvalidUtf8Error,
    SpecialTokenError,
    UnknownTokenError,
)
from bpe_core.model import TokenizerModel, check_vocab
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import resolve_pattern, split_custom
from bpe_core.special_tokens import check_special_tokens, special_set
from bpe_core.streaming import TextStream
from bpe_core.token_lengths import TokenLengths, character_places

__all__ = ["AllowedSpecial", "BPETokenizer"]

AllowedSpecial: TypeAlias = 'Literal["all", "none", "none_raise"] | set[str] | frozenset[str]'
_Ids: TypeAlias = "NDArray[np.uint16] | NDArray[np.uint32]"


class BPETokenizer:
    """A byte-level BPE tokenizer.

    A pre-token's bytes are merged by rank: the merge of lowest rank first, of equal ranks the
    leftmost. Special tokens are found in text first, the longest where one begins another, and
    become their ids.

    A tokenizer never changes; many threads may use one at the same time. It can be pickled and
    copied; two are equal if their models are.

    Args:
        vocab: id to bytes; may hold special tokens too.
        merges: pairs of bytes in order of rank.
        special_tokens: texts, or texts with their ids. Those that the vocabulary lacks get the ids
            max(id) + 1, … in the order given. A special token whose bytes are a byte or a merge's
            result has an id of its own, which ordinary text never gets.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression.
        unknown_id: given to bytes without an id; None: they are an error.
        normalizer: "nfc" or "nfkc": text between special tokens is brought into this Unicode
            normalization form (of Unicode 16.0) before it is split; None: it stays as it is.
        normalize_quotes: typographic quotes become ' and " after that.

    Raises:
        InvalidTokenizerError: vocabulary, merges and special tokens that contradict each other, or
            an unknown normalizer.
        SpecialTokenError: an empty special token, or one given twice.
        InvalidPatternError: a pattern that does not compile.

    Example:
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"hi"}
        >>> tokenizer = BPETokenizer(vocab, [(b"h", b"i")], ["<|end|>"])
        >>> tokenizer.encode("hi!<|end|>")
        [256, 33, 257]
        >>> tokenizer.decode([256, 33, 257])
        'hi!<|end|>'
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
        *,
        pattern: str = "gpt2",
        unknown_id: int | None = None,
        normalizer: str | None = None,
        normalize_quotes: bool = False,
    ) -> None:
        check_vocab(vocab.items())
        merges = list(merges)
        specials = _special_ids(vocab, merges, special_tokens or ())
        model = TokenizerModel.from_vocab(
            vocab,
            merges,
            specials,
            pattern=pattern,
            normalizer=normalizer,
            normalize_quotes=normalize_quotes,
            unknown_id=unknown_id,
        )
        self._set_model(model)

    @classmethod
    def from_model(cls, model: TokenizerModel, *, unknown_id: int | None = None) -> BPETokenizer:
        """A tokenizer from a tokenizer as data, with its `unknown_id` unless another is given."""
        if unknown_id is not None:
            model = dataclasses.replace(model, unknown_id=unknown_id)
        tokenizer = cls.__new__(cls)
        tokenizer._set_model(model)
        return tokenizer

    @classmethod
    def from_files(
        cls,
        vocab_filepath: str | os.PathLike[str],
        merges_filepath: str | os.PathLike[str],
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
        *,
        pattern: str = "gpt2",
    ) -> BPETokenizer:
        """From GPT-2's vocab.json and merges.txt.

        Raises:
            FormatError: a file that is not what it should be.
            OSError: a file that cannot be read.
        """
        return cls.from_model(
            formats.read_vocab_merges(
                vocab_filepath, merges_filepath, special_tokens, pattern=pattern
            )
        )

    @classmethod
    def from_tiktoken(
        cls,
        path: str | os.PathLike[str],
        *,
        pattern: str,
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
    ) -> BPETokenizer:
        """From a .tiktoken file of ranks.

        Args:
            path: the file.
            pattern: a name of `bpe_core.PATTERNS` or a regular expression; the file does not say.
                `cl100k` is taken as tiktoken has it, `cl100k_tiktoken`.
            special_tokens: texts with their ids, or texts alone, which get the ids max(id) + 1, ….

        Raises:
            FormatError: a file that is not what it should be.
            OSError: a file that cannot be read.
        """
        model = formats.read_tiktoken(
            path, pattern="cl100k_tiktoken" if pattern == "cl100k" else pattern
        )
        if not isinstance(special_tokens, Mapping):
            specials = check_special_tokens(special_tokens or ())
            special_tokens = {text: model.max_id + 1 + i for i, text in enumerate(specials)}
        return cls.from_model(dataclasses.replace(model, special_tokens=special_tokens))

    @classmethod
    def from_huggingface(cls, path: str | os.PathLike[str]) -> BPETokenizer:
        """From a tokenizer.json of Hugging Face tokenizers that is byte-level BPE.

        Args:
            path: the file, or a directory with a tokenizer.json.

        Raises:
            FormatError: a file that is not what it should be, or that asks for what a byte-level
                BPE tokenizer does not do; names it.
            OSError: a file that cannot be read.
        """
        file = formats.find_tokenizer(path, "huggingface")
        return cls.from_model(formats.read_huggingface(file.location))

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> BPETokenizer:
        """From a directory that `save` or a build wrote.

        Raises:
            FormatError: a file that is not what it should be.
            OSError: a file that cannot be read.
        """
        return cls.from_model(formats.load_tokenizer(directory))

    def save(self, directory: str | os.PathLike[str]) -> dict[str, str]:
        """Writes the tokenizer in all formats that can hold it.

        Returns:
            The formats that cannot, each with the reason.
        """
        return formats.save_tokenizer(self.model, directory)

    @property
    def model(self) -> TokenizerModel:
        """The tokenizer as data."""
        return self._model

    @cached_property
    def vocab(self) -> dict[int, bytes]:
        """Id to bytes, special tokens too: a copy, which decoding does not use."""
        return dict(self._bytes_by_id)

    @cached_property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """Pairs of bytes in order of rank."""
        return self._model.merge_bytes

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens' ids."""
        return dict(self._model.special_tokens)

    @property
    def prepend(self) -> tuple[int, ...]:
        """The ids that belong before a text, as a tokenizer.json said; `encode` adds none."""
        return self._model.prepend

    @property
    def append(self) -> tuple[int, ...]:
        """The ids that belong after a text, as a tokenizer.json said; `encode` adds none."""
        return self._model.append

    @property
    def pattern(self) -> str:
        """The split pattern: a name of `bpe_core.PATTERNS` or a regular expression."""
        return self._model.pattern

    @property
    def unknown_id(self) -> int | None:
        """The id given to bytes without one; None: they are an error."""
        return self._model.unknown_id

    @property
    def normalizer(self) -> str | None:
        """The Unicode normalization form of text before it is split: "nfc", "nfkc" or None."""
        return self._model.normalizer

    @property
    def normalize_quotes(self) -> bool:
        """Whether typographic quotes become ' and " before text is split."""
        return self._model.normalize_quotes

    def __len__(self) -> int:
        """The number of tokens, special ones too."""
        return len(self._model)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BPETokenizer):
            return NotImplemented
        return self._model == other._model

    def __hash__(self) -> int:
        return hash(self._model)

    def __reduce__(self) -> tuple[object, ...]:
        # Native tables are made anew where it is unpickled, in another process for example.
        return type(self).from_model, (self._model,)

    def __repr__(self) -> str:
        unknown = "" if self.unknown_id is None else f", unknown_id={self.unknown_id}"
        return f"BPETokenizer({self._model!r}{unknown})"

    def encode(self, text: str | bytes, allowed_special: AllowedSpecial = "all") -> list[int]:
        """The ids of a text.

        Args:
            text: str (lone surrogates become U+FFFD) or UTF-8 bytes.
            allowed_special: which special tokens of the text become their ids: "all", "none", or a
                set of them; others are ordinary text. "none_raise": one in the text is an error.

        Raises:
            SpecialTokenError: a special token in the text with "none_raise"; an unknown one in
                the set.
            UnknownTokenError: a byte without an id.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> tokenizer.encode("a<s>"), tokenizer.encode("<s>", allowed_special="none")
            ([97, 256], [60, 115, 62])
        """
        if self._split_regex is not None or allowed_special == "none_raise":
            ids: list[int] = self.encode_to_numpy(text, allowed_special).tolist()
            return ids
        specials = self._specials(allowed_special)
        try:
            return self._encoder.encode_text(text, specials)
        except UnicodeEncodeError:
            return self._encoder.encode_text(to_utf8(text), specials)

    def encode_ordinary(self, text: str | bytes) -> list[int]:
        """The ids of a text in which special tokens are ordinary text."""
        return self.encode(text, "none")

    def encode_to_numpy(
        self, text: str | bytes, allowed_special: AllowedSpecial = "all"
    ) -> NDArray[np.uint32]:
        """As `encode`, as uint32[n]."""
        data = to_utf8(text)
        bounds = np.array([0], np.int64), np.array([len(data)], np.int64)
        ids, _ = self._encode(data, *bounds, allowed_special)
        return ids.astype(np.uint32, copy=False)

    def encode_batch_to_numpy(
        self,
        documents: Documents,
        *,
        allowed_special: AllowedSpecial = "all",
        num_threads: int = 0,
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of many documents in one array.

        Args:
            documents: a list of str or of bytes, or (buffer, offsets): document i is
                buffer[offsets[i]:offsets[i + 1]], offsets int64[n + 1] or a list of ints.
            allowed_special: as in `encode`.
            num_threads: 0 for all cores.

        Returns:
            (ids uint32[m], offsets int64[n + 1]): document i has ids[offsets[i]:offsets[i + 1]].

        Raises:
            SpecialTokenError, UnknownTokenError: as in `encode`.
            TypeError: documents of another type, or offsets that are not integers.
            ValueError: `num_threads` is negative, or offsets lie outside of the buffer.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [])
            >>> ids, offsets = tokenizer.encode_batch_to_numpy(["ab", "", "c"])
            >>> ids.tolist(), offsets.tolist()
            ([97, 98, 99], [0, 2, 2, 3])
        """
        data, bounds = buffer_of(documents)
        ids, offsets = self._encode(
            data, bounds[:-1], bounds[1:], allowed_special, num_threads=num_threads
        )
        return ids.astype(np.uint32, copy=False), offsets

    def encode_documents(
        self,
        data: bytes | memoryview | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        allowed_special: AllowedSpecial = "all",
        prepend: Sequence[int] = (),
        append: Sequence[int] = (),
        dtype: type[np.uint16] | type[np.uint32] = np.uint32,
        num_threads: int = 1,
    ) -> tuple[_Ids, NDArray[np.int64]]:
        """The ids of documents data[starts[i]:ends[i]], which must be UTF-8.

        Args:
            data: one buffer.
            starts, ends: int64[n].
            allowed_special: as in `encode`.
            prepend, append: ids put before and after each document.
            dtype: of the ids; uint16 needs all of them below 65,536.
            num_threads: 0 for all cores.

        Returns:
            (ids dtype[m], offsets int64[n + 1]).

        Raises:
            InvalidTokenizerError: uint16 with larger ids.
            ValueError: `num_threads` is negative, or a document lies outside of the data.
            SpecialTokenError, UnknownTokenError: as in `encode`.
        """
        largest = max([self._model.max_id, *prepend, *append])
        if dtype is np.uint16 and largest > 0xFFFF:
            raise InvalidTokenizerError(
                f"dtype: expected uint32 for ids up to {largest}, found uint16"
            )
        return self._encode(
            data,
            starts,
            ends,
            allowed_special,
            prepend=prepend,
            append=append,
            bits=16 if dtype is np.uint16 else 32,
            num_threads=num_threads,
        )

    def encode_iterable(self, iterable: Iterable[str] | Iterable[bytes]) -> Iterator[int]:
        """The ids of a text that comes in parts, such as an open file, lazily.

        The ids are those of the parts joined, wherever the parts were cut: in the middle of a
        special token, of a run of spaces, of a surrogate pair or of a character's UTF-8. Text is
        held back until a place at which a cut changes nothing. Memory is that of the tokenizer and
        of some 1 MB more, unless a stretch without such a place is longer than that; for pattern
        none and custom patterns these are ends of special tokens only.

        Args:
            iterable: str or UTF-8 bytes, as in `encode`.

        Raises:
            TypeError: no iterable, or a part that is neither str nor bytes; when it is reached.
            UnknownTokenError: a byte without an id; when it is reached.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> list(tokenizer.encode_iterable(["a<", "s>b"]))
            [97, 256, 98]
        """
        parts: Iterator[str | bytes] = iter(iterable)  # at once: what is no iterable is refused
        return self._stream(self._all_specials).encode(parts)

    def encode_with_offsets(
        self, text: str | bytes, allowed_special: AllowedSpecial = "all"
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of a text, and where their tokens begin and end in it.

        The offsets are in what was given: characters of a str, bytes of UTF-8 bytes. Token i is
        text[offsets[i]:offsets[i + 1]], and these slices joined are the text. Of a character that
        several tokens share, the whole belongs to the one with its first byte; the slices of the
        others that end or lie inside of it have nothing of it, and may be empty.

        Args:
            text, allowed_special: as in `encode`.

        Returns:
            (ids uint32[n], offsets int64[n + 1]).

        Raises:
            SpecialTokenError, UnknownTokenError: as in `encode`.
            ValueError: the normalizer changes the text.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> ids, offsets = tokenizer.encode_with_offsets("é<s>!")
            >>> ids.tolist(), offsets.tolist()
            ([195, 169, 256, 33], [0, 1, 1, 4, 5])
            >>> tokenizer.encode_with_offsets("é<s>!".encode())[1].tolist()
            [0, 1, 2, 5, 6]
        """
        data = to_utf8(text)
        self._check_is_normal(data)
        ids = self._marking.encode_to_numpy(data, allowed_special)
        bounds = self._places(ids)
        if (unknown_id := self.unknown_id) is not None:
            ids = np.where(ids == self._marking.unknown_id, unknown_id, ids)
            ids = ids.astype(np.uint32)
        return ids, character_places(text, data, bounds) if isinstance(text, str) else bounds

    def truncate(self, text: str, max_tokens: int, allowed_special: AllowedSpecial = "all") -> str:
        """The longest beginning of a text that consists of its first tokens, at most `max_tokens`.

        It never ends inside a character, and encoded again it has at most `max_tokens` ids. For
        that it may end some tokens earlier: before a character whose bytes are several tokens, or
        where the text that follows decided how the beginning was split. Encoding stops soon after
        `max_tokens` tokens, but for pattern none and custom patterns, which look at the whole text.

        Args:
            text: a str.
            max_tokens: 0 or more.
            allowed_special: as in `encode`.

        Raises:
            TypeError: the text is no str.
            ValueError: `max_tokens` is negative, or the normalizer changes the text.
            SpecialTokenError, UnknownTokenError: as in `encode`.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> tokenizer.truncate("<s>né<s>", 3), tokenizer.truncate("<s>né<s>", 4)
            ('<s>n', '<s>né')
        """
        if not isinstance(text, str):
            raise TypeError(f"expected a text as str, found {type(text).__name__}")
        if max_tokens < 0:
            raise ValueError(f"max_tokens: expected 0 or more, found {max_tokens}")
        self._check_is_normal(text)
        specials = self._specials(allowed_special)
        if allowed_special == "none_raise":
            data = to_utf8(text)
            self._check_no_specials(data, np.array([0]), np.array([len(data)]))
        ids = list(islice(self._marking._stream(specials).encode([text]), max_tokens + 1))
        if len(ids) <= max_tokens:
            return text
        bounds = self._places(np.array(ids[:max_tokens], np.int64))
        head = text[: bounds[-1] + 1]  # no character has less than a byte
        data = to_utf8(head)
        between = (np.frombuffer(data, np.uint8)[bounds] & 0xC0) != 0x80
        for end in character_places(head, data, bounds[between])[::-1].tolist():
            if self.count_tokens(text[:end], allowed_special) <= max_tokens:
                return text[:end]
        return ""

    def normalize(self, text: str | bytes) -> str:
        """The text as it is encoded: normalized, but for the special tokens in it.

        It is what `decode` gives for the ids of `text`.

        Example:
            >>> vocab = {i: bytes([i]) for i in range(256)}
            >>> BPETokenizer(vocab, [], ["<ﬁ>"], normalizer="nfkc").normalize("ﬁne<ﬁ>")
            'fine<ﬁ>'
        """
        data = to_utf8(text)
        parts: list[str] = []
        done = 0
        for begin, end, _ in [*self._all_specials.find_all(data), (len(data), len(data), -1)]:
            parts.append(self._normalized(data[done:begin].decode("utf-8", "replace")))
            parts.append(data[begin:end].decode())
            done = end
        return "".join(parts)

    def count_tokens(self, text: str | bytes, allowed_special: AllowedSpecial = "all") -> int:
        """The number of ids of a text; arguments and errors are those of `encode`."""
        return len(self.encode_to_numpy(text, allowed_special))

    def count_tokens_batch(
        self,
        documents: Documents,
        *,
        allowed_special: AllowedSpecial = "all",
        num_threads: int = 0,
    ) -> NDArray[np.int64]:
        """int64[n], the number of ids of each document.

        Arguments and errors are those of `encode_batch_to_numpy`.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [])
            >>> tokenizer.count_tokens_batch(["ab", "", "c"]).tolist()
            [2, 0, 1]
        """
        _, offsets = self.encode_batch_to_numpy(
            documents, allowed_special=allowed_special, num_threads=num_threads
        )
        return np.diff(offsets)

    def token_to_id(self, token: str | bytes) -> int | None:
        """The id of one token, None if there is no such token.

        A str is a special token if there is one of this text, or else an ordinary token; bytes are
        an ordinary token, or else a special one. It matters only where both have the same bytes.

        Raises:
            TypeError: neither str nor bytes.

        Example:
            >>> tokenizer = BPETokenizer({0: b"a", 1: b"\\xff"}, [], ["<s>", "a"])
            >>> tokenizer.token_to_id("<s>"), tokenizer.token_to_id(b"\\xff")
            (2, 1)
            >>> tokenizer.token_to_id("a"), tokenizer.token_to_id(b"a"), tokenizer.token_to_id("b")
            (3, 0, None)
        """
        data = to_utf8(token)
        ordinary = self._ordinary_ids.get(data)
        special = self._ids_of_specials.get(data)
        first, second = (special, ordinary) if isinstance(token, str) else (ordinary, special)
        return second if first is None else first

    def id_to_bytes(self, token_id: int) -> bytes:
        """The bytes of one id.

        Raises:
            UnknownTokenError: an id that the vocabulary does not have.

        Example:
            >>> BPETokenizer({0: b"a", 1: b"\\xff"}, []).id_to_bytes(1)
            b'\\xff'
        """
        return self.decode_bytes((token_id,))

    def decode_bytes(self, ids: Iterable[int] | NDArray[np.integer]) -> bytes:
        """The bytes of ids.

        Raises:
            UnknownTokenError: an id that the vocabulary does not have.
            TypeError: an array that is not of integers in one dimension.
        """
        values = _listed_ids(ids) if isinstance(ids, np.ndarray) else ids
        try:
            return b"".join(map(self._bytes_by_id.__getitem__, values))
        except KeyError as error:
            raise UnknownTokenError(
                f"id {error.args[0]!r}: expected an id of this vocabulary "
                f"({len(self)} tokens, the largest id is {max(self._bytes_by_id, default=-1)})"
            ) from None

    def decode(self, ids: Iterable[int] | NDArray[np.integer], errors: str = "replace") -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD, or as `errors` says.

        With a normalizer it is the normalized text (`normalize`), not the text as it was.

        Raises:
            UnknownTokenError, TypeError: as in `decode_bytes`.
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    @cached_property
    def _bytes_by_id(self) -> dict[int, bytes]:
        return self._model.vocab

    @cached_property
    def _ordinary_ids(self) -> dict[bytes, int]:
        """The ids of ordinary tokens; of equal ones the least."""
        return {token: token_id for token_id, token in reversed(self._model.tokens)}

    @cached_property
    def _ids_of_specials(self) -> dict[bytes, int]:
        return {text.encode(): token_id for text, token_id in self._model.special_tokens.items()}

    @cached_property
    def _lengths(self) -> TokenLengths:
        return TokenLengths(self._model)

    @cached_property
    def _marking(self) -> BPETokenizer:
        """This tokenizer; if it gives unknown bytes an id that a token has, one that doesn't."""
        if self.unknown_id is None:
            return self
        free = next(i for i in count() if i not in self._bytes_by_id)
        return BPETokenizer.from_model(self._model, unknown_id=free)

    def _places(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """int64[n + 1], where the tokens of ids that `_marking` gave begin and end in bytes."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self._lengths.of(ids))])

    def _set_model(self, model: TokenizerModel) -> None:
        self._model = model
        self._normalizer = native_normalizer(model.normalizer, model.normalize_quotes)
        resolved = resolve_pattern(model.pattern)
        self._split_regex = None if resolved.native is not None else resolved.regex
        left, right, result = (model.merges[:, i].astype(np.uint32) for i in range(3))
        self._encoder = Encoder(
            model.byte_ids,
            left,
            right,
            result,
            -1 if model.unknown_id is None else model.unknown_id,
            resolved.native,
            normalizer=self._normalizer,
        )
        if model.ignore_merges:
            keys, offsets = joined(model.token_bytes.to_pylist())
            self._encoder.set_whole_tokens(keys, offsets, model.token_ids.astype(np.uint32))
        self._special_sets: dict[frozenset[str], SpecialSet] = {}
        self._all_specials = self._special_set(frozenset(model.special_tokens))
        self._no_specials = self._special_set(frozenset())

    def _special_set(self, texts: frozenset[str]) -> SpecialSet:
        if texts not in self._special_sets:
            ids = {t: i for t, i in self._model.special_tokens.items() if t in texts}
            self._special_sets[texts] = special_set(list(ids), list(ids.values()))
        return self._special_sets[texts]

    def _specials(self, allowed: AllowedSpecial) -> SpecialSet:
        if allowed == "all":
            return self._all_specials
        if allowed in ("none", "none_raise"):
            return self._no_specials
        if isinstance(allowed, (set, frozenset)):
            if unknown := sorted(allowed - self._model.special_tokens.keys()):
                raise SpecialTokenError(
                    f"allowed_special: expected special tokens of this tokenizer, found {unknown}"
                )
            return self._special_set(frozenset(allowed))
        raise SpecialTokenError(
            f'allowed_special: expected "all", "none", "none_raise" or a set, found {allowed!r}'
        )

    def _check_no_specials(
        self,
        data: bytes | memoryview | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        places = self._all_specials.find_first(data, starts, ends)
        if not (places >= 0).any():
            return
        document = int(np.argmax(places >= 0))
        place = int(places[document])
        rest = bytes(data[starts[document] + place : ends[document]])
        _, length, _ = self._all_specials.find_all(rest)[0]
        where = f"document {document}, byte {place}" if len(places) > 1 else f"byte {place}"
        raise SpecialTokenError(
            f"{where} of the text: expected no special token, found {rest[:length].decode()!r}; "
            "allow it, or encode it as ordinary text"
        )

    def _encode(
        self,
        data: bytes | memoryview | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        allowed: AllowedSpecial,
        *,
        prepend: Sequence[int] = (),
        append: Sequence[int] = (),
        bits: int = 32,
        num_threads: int = 1,
    ) -> tuple[_Ids, NDArray[np.int64]]:
        check_num_threads(num_threads)
        specials = self._specials(allowed)
        if allowed == "none_raise":
            self._check_no_specials(data, starts, ends)
        if self._split_regex is None:
            return self._encoder.encode_documents(
                data, starts, ends, specials, prepend, append, bits, num_threads
            )
        ids, offsets = self._encode_custom(data, starts, ends, specials, prepend, append)
        return (ids.astype(np.uint16) if bits == 16 else ids), offsets

    def _encode_custom(
        self,
        data: bytes | memoryview | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        specials: SpecialSet,
        prepend: Sequence[int] = (),
        append: Sequence[int] = (),
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """By a custom pattern: `regex` finds the pre-tokens, the encoder merges them."""
        check_spans(len(data), starts, ends)
        texts: list[bytes] = []
        bounds: list[NDArray[np.int64]] = []
        special_ids: list[NDArray[np.int64]] = []
        spans_after: list[int] = []
        ids_of_specials: list[int] = []  # copied from the set at the first match
        at = spans = 0

        def add(cuts: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
            nonlocal spans
            bounds.append(cuts)
            special_ids.append(ids)
            spans += len(ids)

        def add_ids(ids: Sequence[int]) -> None:
            add(np.full(len(ids), at, np.int64), np.array(ids, np.int64))

        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            text = bytes(data[start:end])
            add_ids(prepend)
            done = 0
            for begin, stop, index in [*specials.find_all(text), (len(text), len(text), -1)]:
                part = self._normalized(_decoded(text, done, begin))
                cuts = split_custom(self._split_regex or "", part)
                add(cuts[:-1] + at, np.full(len(cuts) - 1, -1, np.int64))
                texts.append(part.encode())
                at += len(texts[-1])
                if index >= 0:
                    ids_of_specials = ids_of_specials or specials.ids
                    add_ids([ids_of_specials[index]])
                done = stop
            add_ids(append)
            spans_after.append(spans)
        begins = np.concatenate([*bounds, np.array([at], np.int64)])
        all_ids = np.concatenate([*special_ids, np.zeros(0, np.int64)])
        ids, offsets = self._encoder.encode_spans(b"".join(texts), begins[:-1], begins[1:], all_ids)
        return ids, offsets[np.array([0, *spans_after], np.int64)]

    def _check_is_normal(self, text: str | bytes) -> None:
        if self._normalizer is None:
            return
        data = to_utf8(text)
        if self._normalizer.normalize(data) != data:
            raise ValueError(
                "text: expected one that the normalizer leaves as it is, since tokens are of the "
                "normalized text, found another; give `tokenizer.normalize(text)`"
            )

    def _normalized(self, part: str) -> str:
        """Text without special tokens, normalized."""
        if self._normalizer is None:
            return part
        return self._normalizer.normalize(part.encode()).decode()

    def _stream(self, specials: SpecialSet) -> TextStream:
        def encode_custom(text: bytes) -> NDArray[np.uint32]:
            bounds = np.array([0, len(text)])
            return self._encode_custom(text, bounds[:1], bounds[1:], specials)[0]

        return TextStream(
            self._encoder,
            specials,
            self._normalizer,
            has_safe_cuts=resolve_pattern(self._model.pattern).has_safe_cuts,
            encode_custom=None if self._split_regex is None else encode_custom,
        )


def _listed_ids(ids: NDArray[np.integer]) -> list[int]:
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and len(ids)):
        raise TypeError(
            f"ids: expected an array of integers in one dimension, found {ids.dtype}"
            f"{list(ids.shape)}"
        )
    values: list[int] = ids.tolist()
    return values


def _decoded(text: bytes, begin: int, end: int) -> str:
    try:
        return text[begin:end].decode()
    except UnicodeDecodeError as error:
        at = begin + error.start
        raise InvalidUtf8Error(
            f"byte {at} of the text: expected UTF-8, found 0x{text[at : at + 4].hex().upper()}; "
            "repair the text: a regular expression splits characters"
        ) from None


def _special_ids(
    vocab: Mapping[int, bytes],
    merges: Iterable[tuple[bytes, bytes]],
    special_tokens: Iterable[str] | Mapping[str, int],
) -> dict[str, int]:
    """The id of each special token: its own entry of the vocabulary, or a new id."""
    if isinstance(special_tokens, Mapping):
        check_special_tokens(special_tokens)
        for text, token_id in special_tokens.items():
            found = vocab.get(token_id)
            if found is not None and found != text.encode():
                raise InvalidTokenizerError(
                    f"special token {text!r}: expected an id of its own, found {token_id}, which "
                    f"the vocabulary has as {found!r}"
                )
        return dict(special_tokens)
    specials = check_special_tokens(special_tokens)
    entries: dict[bytes, list[int]] = {text.encode(): [] for text in specials}
    for token_id, token in vocab.items():
        if token in entries:
            entries[token].append(token_id)
    ordinary = {bytes([b]) for b in range(256)} | {left + right for left, right in merges}
    next_id = max(vocab, default=-1) + 1
    ids: dict[str, int] = {}
    for text in specials:
        own = sorted(entries[text.encode()])
        # Where ordinary text can become these bytes too, one entry is that of ordinary text.
        if len(own) > (text.encode() in ordinary):
            ids[text] = own[0]
        else:
            ids[text] = next_id
            next_id += 1
    return ids
