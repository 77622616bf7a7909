"""BPETokenizer: text to ids and back."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, islice, pairwise
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from bpe_core import formats
from bpe_core._native import Encoder, SpecialSet
from bpe_core.buffers import flatten, to_utf8
from bpe_core.byte_spaces import find_places, without_white_space
from bpe_core.character_encoding import (
    set_space_prefix,
    spaced_text,
    with_building_rules,
    with_unknown_lengths,
)
from bpe_core.cores import check_num_threads
from bpe_core.custom_encoding import CustomEncoder, find_encoded_segments, find_segments
from bpe_core.decoding import TokenDecoder
from bpe_core.documents import DocumentBuffer, Documents, read_documents, to_buffer
from bpe_core.errors import InvalidTokenizerError, SpecialTokenError
from bpe_core.model import TokenizerModel, check_vocab
from bpe_core.notebook_tables import tokenizer_table
from bpe_core.patterns import resolve_pattern, warn_of_slow_pattern
from bpe_core.pretrained import download_tokenizer
from bpe_core.special_tokens import (
    added_token_set,
    assign_special_ids,
)
from bpe_core.streaming import TextStream
from bpe_core.token_colours import ColouredTokens
from bpe_core.token_lengths import TokenLengths, to_character_offsets
from bpe_core.vocabulary_cuts import shows_segments, vocabulary_splitter
from bpe_core.wrong_calls import attribute_error, check_one_text, wrong_text

__all__ = ["AllowedSpecial", "BPETokenizer"]

AllowedSpecial: TypeAlias = 'Literal["all", "none", "none_raise"] | set[str] | frozenset[str]'
# Endings of file names, which are not names of directories.
_FILES: Final = (".json", ".arrow", ".model", ".tiktoken")
_Ids: TypeAlias = "NDArray[np.uint16] | NDArray[np.uint32]"


class _NamesOfOthers(type):
    """Class of `BPETokenizer`, which explains names of other libraries."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            raise attribute_error(cls.__name__, name)


class BPETokenizer(TokenDecoder, metaclass=_NamesOfOthers):
    """A byte-level BPE tokenizer.

    Special tokens in the text become their ids first, the longest if one begins another. The bytes
    of each pre-token between them are then merged by rank: the merge of lowest rank first, of
    equal ranks the leftmost.

    A tokenizer never changes, and many threads may use one at the same time. It can be pickled and
    copied. Two tokenizers are equal if their models are.

    Args:
        vocab: id to bytes; may contain special tokens too.
        merges: pairs of bytes in order of rank.
        special_tokens: texts, or texts with their ids. Texts that the vocabulary lacks get the ids
            max(id) + 1, … in the order given. A special token whose bytes are a single byte or the
            result of a merge gets a separate id, which ordinary text never gets.
        pattern: a name in `bpe_core.PATTERNS` or a regular expression.
        unknown_id: id for bytes that have none; None: such bytes are an error.
        normalizer: "nfc" or "nfkc": Unicode normalization form (of Unicode 16.0) that text between
            special tokens is converted to before it is split; None: the text is not changed.
        normalize_quotes: replace typographic quotes by ' and " after that.

    Raises:
        InvalidTokenizerError: vocabulary, merges and special tokens contradict each other, or the
            normalizer is unknown.
        SpecialTokenError: a special token is empty or given twice.
        InvalidPatternError: the pattern is neither a name nor a usable regular expression.

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
        specials = assign_special_ids(vocab, merges, special_tokens or ())
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
        """Create a tokenizer from a model, with the model's `unknown_id` unless one is given."""
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
        """Load a tokenizer from GPT-2's vocab.json and merges.txt.

        Raises:
            FormatError: a file is damaged or has another format.
            OSError: a file cannot be read.
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
        """Load a tokenizer from a .tiktoken file of ranks.

        Args:
            path: path of the file.
            pattern: a name in `bpe_core.PATTERNS` or a regular expression, since the file contains
                none. `cl100k` means tiktoken's variant of it, `cl100k_tiktoken`.
            special_tokens: texts with their ids, or only texts, which get the ids max(id) + 1, ….

        Raises:
            FormatError: the file is damaged or has another format.
            OSError: the file cannot be read.
        """
        return cls.from_model(formats.read_ranks(path, pattern, special_tokens or ()))

    @classmethod
    def from_huggingface(cls, path: str | os.PathLike[str]) -> BPETokenizer:
        """Load a byte-level BPE tokenizer from a tokenizer.json of Hugging Face tokenizers.

        Args:
            path: path of the file, or of a directory with a tokenizer.json.

        Raises:
            FormatError: the file is damaged, has another format, or has a feature that this class
                does not support, which the message names.
            OSError: the file cannot be read.
        """
        file = formats.find_tokenizer(path, "huggingface")
        return cls.from_model(formats.read_huggingface(file.location))

    @classmethod
    def from_sentencepiece(cls, path: str | os.PathLike[str]) -> BPETokenizer:
        """Load a tokenizer from a `.model` of SentencePiece's BPE.

        User-defined pieces become special tokens. Control pieces and the unknown piece do too, but
        text never becomes them, as in SentencePiece, unless `allowed_special` names them.

        Raises:
            FormatError: the file is damaged, has another format, or has a feature that this class
                does not support, which the message names.
            OSError: the file cannot be read.
        """
        return cls.from_model(formats.read_sentencepiece(path))

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> BPETokenizer:
        """Load a tokenizer from the output of a build, or from files of any format.

        Args:
            source: the output of a build; a directory that `save` or a build wrote, or one with a
                published tokenizer; or a file: tokenizer.arrow, tokenizer.json, tekken.json,
                vocab.json with its merges.txt beside it, a `.model` of SentencePiece or minbpe, or
                ranks of tiktoken with a tokenizer_config.json whose class is known.

        Raises:
            FormatError: there is no tokenizer or several; a file is damaged, or does not contain
                everything (see `from_tiktoken`, `from_files`).
            OSError: a file is missing or cannot be read.

        Example:
            tokenizer = BPETokenizer.load("out/quickstart")
        """
        return cls.from_model(formats.load_any(source))

    @classmethod
    def from_pretrained(cls, name: str, *, revision: str | None = None) -> BPETokenizer:
        """Load a tokenizer from a repository of the Hugging Face Hub.

        The library `huggingface_hub` downloads the tokenizer's files into its cache, with the
        user's token; with HF_HUB_OFFLINE=1 it only reads the cache.

        Args:
            name: ORG/NAME, or `hf://ORG/NAME[@REVISION][/PATH]`.
            revision: a branch, tag or commit; None for the default branch.

        Raises:
            ImportError: `huggingface_hub` is not installed.
            FormatError: the repository has no tokenizer, or one that this class does not support.
            ValueError: the name is not that of a repository.
            HubError: the repository is missing, not permitted or unreachable.

        Example:
            tokenizer = BPETokenizer.from_pretrained("Qwen/Qwen3-0.6B")
        """
        return cls.from_model(formats.load_any(download_tokenizer(name, revision)))

    def save(self, directory: str | os.PathLike[str]) -> dict[str, str]:
        """Write the tokenizer in all formats that can hold it.

        Returns:
            Each format that cannot, with the reason.

        Raises:
            ValueError: The directory has the name of a file.
        """
        name = os.fspath(directory)
        if name.endswith(_FILES):
            raise ValueError(
                f"save writes a directory with all formats, found {name!r}; give the name of a "
                "directory, which will contain tokenizer.json and others"
            )
        return formats.save_tokenizer(self.model, directory)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BPETokenizer):
            return NotImplemented
        return self._model == other._model

    def __hash__(self) -> int:
        return hash(self._model)

    def __reduce__(self) -> tuple[object, ...]:
        # Native tables cannot be pickled; they are built again from the model.
        return type(self).from_model, (self._model,)

    def __repr__(self) -> str:
        unknown = "" if self.unknown_id is None else f", unknown_id={self.unknown_id}"
        return f"BPETokenizer({self._model!r}{unknown})"

    def _repr_html_(self) -> str:
        return tokenizer_table(
            type(self).__name__,
            tokens=len(self),
            merges=len(self._model.merges),
            specials=self._model.special_tokens,
            rules={
                "pattern": self.pattern,
                "normalizer": self.normalizer,
                "normalizes quotes": self.normalize_quotes,
                "unknown id": self.unknown_id,
            },
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise attribute_error(type(self).__name__, name)

    def encode(self, text: str | bytes, allowed_special: AllowedSpecial = "all") -> list[int]:
        """Return the ids of a text.

        Args:
            text: str (lone surrogates become U+FFFD) or UTF-8 bytes.
            allowed_special: special tokens that become their ids: "all", "none", or a set of them;
                the others are ordinary text, as control tokens of SentencePiece are with "all".
                "none_raise": a special token in the text is an error.

        Raises:
            SpecialTokenError: the text contains a special token, with "none_raise"; the set
                contains an unknown one.
            UnknownTokenError: a byte has no id.
            TypeError: the text is neither str nor bytes.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> tokenizer.encode("a<s>"), tokenizer.encode("<s>", allowed_special="none")
            ([97, 256], [60, 115, 62])
        """
        if self._custom is not None or allowed_special == "none_raise":
            check_one_text(text, "encode", "encode_batch")
            ids: list[int] = self.encode_to_numpy(text, allowed_special).tolist()
            return ids
        specials = self._specials(allowed_special)
        try:
            return self._encoder.encode_text(text, specials)
        except UnicodeEncodeError:
            return self._encoder.encode_text(to_utf8(text), specials)
        except TypeError:
            raise wrong_text(text, "encode", "encode_batch") from None

    def encode_ordinary(self, text: str | bytes) -> list[int]:
        """Return the ids of a text in which special tokens are ordinary text."""
        return self.encode(text, "none")

    def encode_batch(
        self,
        documents: Documents,
        *,
        allowed_special: AllowedSpecial = "all",
        num_threads: int = 0,
    ) -> list[list[int]]:
        """Return the ids of many documents, a list for each.

        Arguments and errors are those of `encode_batch_to_numpy`, which is faster.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [])
            >>> tokenizer.encode_batch(["ab", "", "c"])
            [[97, 98], [], [99]]
        """
        given = read_documents(documents, "encode_batch", "encode")
        check_num_threads(num_threads)
        specials = self._specials(allowed_special)
        if self._reads_in_place(given, allowed_special):
            lists = self._encoder.encode_text_lists(given, specials, num_threads)
            if lists is not None:
                return lists
        data, bounds = to_buffer(given)
        if self._custom is None:
            if allowed_special == "none_raise":
                self._check_no_specials(data, bounds[:-1], bounds[1:])
            return self._encoder.encode_lists(data, bounds[:-1], bounds[1:], specials, num_threads)
        ids, offsets = self._encode(data, bounds[:-1], bounds[1:], allowed_special)
        return [ids[begin:end].tolist() for begin, end in pairwise(offsets.tolist())]

    def encode_to_numpy(
        self, text: str | bytes, allowed_special: AllowedSpecial = "all"
    ) -> NDArray[np.uint32]:
        """Encode as `encode` does; return uint32[n]."""
        check_one_text(text, "encode_to_numpy", "encode_batch_to_numpy")
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
        """Return the ids of many documents in one array.

        Args:
            documents: a list of str or of bytes, or (buffer, offsets): document i is
                buffer[offsets[i]:offsets[i + 1]], offsets int64[n + 1] or a list of ints.
            allowed_special: see `encode`.
            num_threads: 0 for all cores.

        Returns:
            (ids uint32[m], offsets int64[n + 1]): document i has ids[offsets[i]:offsets[i + 1]].

        Raises:
            SpecialTokenError, UnknownTokenError: see `encode`.
            TypeError: documents have another type, or offsets are not integers.
            ValueError: `num_threads` is negative, or offsets are outside of the buffer.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [])
            >>> ids, offsets = tokenizer.encode_batch_to_numpy(["ab", "", "c"])
            >>> ids.tolist(), offsets.tolist()
            ([97, 98, 99], [0, 2, 2, 3])
        """
        given = read_documents(documents, "encode_batch_to_numpy", "encode_to_numpy")
        return self._encode_batch(given, allowed_special, num_threads)

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
        continues: bool = False,
    ) -> tuple[_Ids, NDArray[np.int64]]:
        """Return the ids of documents data[starts[i]:ends[i]], which must be UTF-8.

        Args:
            data: a buffer with the texts of all documents.
            starts, ends: int64[n], bounds of the documents.
            allowed_special: see `encode`.
            prepend, append: ids to put before and after each document.
            dtype: type of the ids; uint16 requires that all are below 65,536.
            num_threads: 0 for all cores.
            continues: the documents are later parts of longer ones, so that no space is put before
                them.

        Returns:
            (ids dtype[m], offsets int64[n + 1]).

        Raises:
            InvalidTokenizerError: an id does not fit into uint16.
            ValueError: `num_threads` is negative, or a document lies outside of the data.
            SpecialTokenError, UnknownTokenError: see `encode`.
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
            continues=continues,
        )

    def encode_iterable(self, iterable: Iterable[str] | Iterable[bytes]) -> Iterator[int]:
        """Yield the ids of a text that comes in parts, such as an open file.

        The ids are those of the parts joined, wherever the parts were cut: in the middle of a
        special token, of a run of spaces, of a surrogate pair or of a character's UTF-8. Text is
        held back up to an offset where a cut changes no ids. This takes about 1 MB of memory, or
        more if a stretch of text without such an offset is longer. For patterns that are not
        compiled only the ends of special tokens are such offsets.

        Args:
            iterable: str or UTF-8 bytes, as in `encode`.

        Raises:
            TypeError: the argument is not iterable; a part is neither str nor bytes, raised when it
                is reached.
            UnknownTokenError: a byte has no id; raised when it is reached.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> list(tokenizer.encode_iterable(["a<", "s>b"]))
            [97, 256, 98]
        """
        parts: Iterator[str | bytes] = iter(iterable)  # here, so that a TypeError comes at once
        return self._stream(self._all_specials).encode(parts)

    def encode_with_offsets(
        self, text: str | bytes, allowed_special: AllowedSpecial = "all"
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the ids of a text, and the offsets at which their tokens begin and end in it.

        Offsets count characters of a str, or bytes of UTF-8 bytes. Token i is
        text[offsets[i]:offsets[i + 1]], and these slices joined are the text. A character that
        several tokens share belongs to the token with its first byte; the slices of the others do
        not contain it and may be empty.

        Args:
            text, allowed_special: see `encode`.

        Returns:
            (ids uint32[n], offsets int64[n + 1]).

        Raises:
            SpecialTokenError, UnknownTokenError: see `encode`.
            ValueError: the normalizer changes the text.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> ids, offsets = tokenizer.encode_with_offsets("é<s>!")
            >>> ids.tolist(), offsets.tolist()
            ([195, 169, 256, 33], [0, 1, 1, 4, 5])
            >>> tokenizer.encode_with_offsets("é<s>!".encode())[1].tolist()
            [0, 1, 2, 5, 6]
        """
        check_one_text(text, "encode_with_offsets")
        data = to_utf8(text)
        self._check_normalized(data)
        ids = self._marking.encode_to_numpy(data, allowed_special)
        bounds = self._find_bounds(ids, data, self._specials(allowed_special))
        if (unknown_id := self.unknown_id) is not None:
            ids = np.where(ids == self._marking.unknown_id, unknown_id, ids)
            ids = ids.astype(np.uint32)
        return ids, to_character_offsets(text, data, bounds) if isinstance(text, str) else bounds

    def show(self, text: str | bytes, allowed_special: AllowedSpecial = "all") -> ColouredTokens:
        """Return the tokens of a text for a look at them: in colours in a notebook, or as lines.

        Arguments and errors are those of `encode`.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> tokenizer.show("é<s>")  # doctest: +NORMALIZE_WHITESPACE
            195\t"\\xc3"
            169\t"\\xa9"
            256\t"<s>"
        """
        ids = self.encode(text, allowed_special)
        return ColouredTokens(ids, self.decode_tokens_bytes(ids))

    def truncate(self, text: str, max_tokens: int, allowed_special: AllowedSpecial = "all") -> str:
        """Return the longest prefix of a text that consists of its first `max_tokens` tokens.

        The prefix never ends inside a character, and encoded again it has at most `max_tokens` ids.
        For this it may end some tokens earlier: before a character whose bytes are several tokens,
        or if the following text affected how the prefix was split. Encoding stops soon after
        `max_tokens` tokens, except for patterns without safe cuts, which need the whole text.

        Args:
            text: a str.
            max_tokens: 0 or more.
            allowed_special: see `encode`.

        Raises:
            TypeError: the text is not a str.
            ValueError: `max_tokens` is negative, or the normalizer changes the text.
            SpecialTokenError, UnknownTokenError: see `encode`.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
            >>> tokenizer.truncate("<s>né<s>", 3), tokenizer.truncate("<s>né<s>", 4)
            ('<s>n', '<s>né')
        """
        if not isinstance(text, str):
            raise TypeError(f"truncate takes one str, found {type(text).__name__}")
        if max_tokens < 0:
            raise ValueError(f"max_tokens: expected 0 or more, found {max_tokens}")
        self._check_normalized(text)
        specials = self._specials(allowed_special)
        if allowed_special == "none_raise":
            data = to_utf8(text)
            self._check_no_specials(data, np.array([0]), np.array([len(data)]))
        ids = list(islice(self._marking._stream(specials).encode([text]), max_tokens + 1))
        if len(ids) <= max_tokens:
            return text
        bounds = self._find_bounds(np.array(ids[:max_tokens], np.int64), to_utf8(text), specials)
        head = text[: bounds[-1] + 1]  # a character has at least one byte
        data = to_utf8(head)
        between = (np.frombuffer(data, np.uint8)[bounds] & 0xC0) != 0x80
        for end in to_character_offsets(head, data, bounds[between])[::-1].tolist():
            if self.count_tokens(text[:end], allowed_special) <= max_tokens:
                return text[:end]
        return ""

    def normalize(self, text: str | bytes) -> str:
        """Return the text as it is encoded: normalized except for the special tokens in it.

        `decode` returns the same text for the ids of `text`.

        Example:
            >>> vocab = {i: bytes([i]) for i in range(256)}
            >>> BPETokenizer(vocab, [], ["<ﬁ>"], normalizer="nfkc").normalize("ﬁne<ﬁ>")
            'fine<ﬁ>'
        """
        data = to_utf8(text).decode("utf-8", "replace").encode()
        parts: list[str] = []
        rules = self._model.characters
        for part, special_id in find_encoded_segments(data, self._model, self._all_specials):
            parts.append(without_white_space(part) if self._model.drop_white_space else part)
            if special_id is not None:
                parts.append(
                    self._model.bytes_of_special(self._tokens.special_texts[special_id]).decode()
                )
        normal = "".join(parts)
        return normal.removeprefix(" ") if rules is not None and rules.strip_prefix else normal

    def count_tokens(self, text: str | bytes, allowed_special: AllowedSpecial = "all") -> int:
        """Return the number of ids of a text; arguments and errors are those of `encode`."""
        check_one_text(text, "count_tokens", "count_tokens_batch")
        return len(self.encode_to_numpy(text, allowed_special))

    def count_tokens_batch(
        self,
        documents: Documents,
        *,
        allowed_special: AllowedSpecial = "all",
        num_threads: int = 0,
    ) -> NDArray[np.int64]:
        """Return int64[n], the number of ids of each document.

        Arguments and errors are those of `encode_batch_to_numpy`.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [])
            >>> tokenizer.count_tokens_batch(["ab", "", "c"]).tolist()
            [2, 0, 1]
        """
        given = read_documents(documents, "count_tokens_batch", "count_tokens")
        return np.diff(self._encode_batch(given, allowed_special, num_threads)[1])

    @cached_property
    def _lengths(self) -> TokenLengths:
        return TokenLengths(self._model)

    @cached_property
    def _marking(self) -> BPETokenizer:
        """This tokenizer with an `unknown_id` that no token has, to recognize unknown bytes."""
        if self.unknown_id is None:
            return self
        free = next(i for i in count() if i not in self._tokens.by_id)
        return BPETokenizer.from_model(self._model, unknown_id=free)

    def _find_bounds(
        self, ids: NDArray[np.integer], data: bytes, specials: SpecialSet
    ) -> NDArray[np.int64]:
        """Return int64[n + 1], offsets in a text at which its first tokens begin and end.

        Args:
            ids: n ids by `_marking`.
            data: the text.
            specials: special tokens that were found in it.
        """
        lengths = self._lengths.look_up(ids)
        if (rules := self._model.characters) is None:
            found: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
            if not self._model.space_rules:
                return found
            texts = self._tokens.special_texts
            segments = (
                (part, 0 if special_id is None else len(texts[special_id].encode()))
                for part, special_id in find_segments(data, specials, self._normalizer)
            )
            return find_places(segments, self._model)[found]
        text = spaced_text(data, specials, rules)
        is_unknown = ids == self._marking.unknown_id
        lengths = with_unknown_lengths(text, lengths, is_unknown, self._model)
        bounds: NDArray[np.int64] = text.places[np.concatenate([[0], np.cumsum(lengths)])]
        return bounds

    def _set_model(self, model: TokenizerModel) -> None:
        self._model = model
        self._normalizer = model.native_normalizer
        resolved = resolve_pattern(model.pattern)
        warn_of_slow_pattern(resolved)
        splitter = vocabulary_splitter(model)
        has_cuts = resolved.has_safe_cuts if splitter is None else splitter.has_cuts
        has_cuts = has_cuts and shows_segments(model)
        scanner = splitter or resolved.scanner
        self._cut_by = scanner if has_cuts else None
        byte_ids, merges = with_building_rules(model)
        left, right, result = (merges[:, i].astype(np.uint32) for i in range(3))
        self._encoder = Encoder(
            byte_ids,
            left,
            right,
            result,
            -1 if model.unknown_id is None else model.unknown_id,
            scanner,
            normalizer=self._normalizer,
            join_unknown=model.characters is not None and not model.characters.byte_ids,
        )
        self._custom = (
            None
            if resolved.scanner is not None
            else CustomEncoder(self._encoder, resolved.regex, self._normalizer)
        )
        if model.characters is not None:
            set_space_prefix(self._encoder, model.characters)
        if model.prefix_space:
            self._encoder.set_space_prefix("byte_level", False)
        if model.drop_white_space:
            self._encoder.drop_white_space()
        if model.ignore_merges:
            keys, offsets = flatten(model.token_bytes)
            self._encoder.set_whole_tokens(keys, offsets, model.token_ids.astype(np.uint32))
        self._special_sets: dict[frozenset[str], SpecialSet] = {}
        self._all_specials = self._special_set(frozenset(model.specials_in_text))
        self._no_specials = self._special_set(frozenset())

    def _special_set(self, texts: frozenset[str]) -> SpecialSet:
        if texts not in self._special_sets:
            ids = {t: i for t, i in self._model.special_tokens.items() if t in texts}
            self._special_sets[texts] = added_token_set(
                ids, self._model.token_flags, self._normalizer
            )
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
        offsets = self._all_specials.find_first(data, starts, ends)
        if not (offsets >= 0).any():
            return
        document = int(np.argmax(offsets >= 0))
        offset = int(offsets[document])
        rest = bytes(data[starts[document] + offset : ends[document]])
        _, length, _ = self._all_specials.find_all(rest)[0]
        where = f"document {document}, byte {offset}" if len(offsets) > 1 else f"byte {offset}"
        raise SpecialTokenError(
            f"{where} of the text: expected no special token, found {rest[:length].decode()!r}; "
            "allow it, or encode it as ordinary text"
        )

    def _reads_in_place(
        self, documents: Sequence[object] | DocumentBuffer, allowed: AllowedSpecial
    ) -> TypeGuard[Sequence[object]]:
        """Return True for texts that native code reads where they are."""
        is_buffer = isinstance(documents, DocumentBuffer)
        return not is_buffer and self._custom is None and allowed != "none_raise"

    def _encode_batch(
        self,
        documents: Sequence[object] | DocumentBuffer,
        allowed: AllowedSpecial,
        num_threads: int,
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        check_num_threads(num_threads)
        if self._reads_in_place(documents, allowed):
            found = self._encoder.encode_texts(documents, self._specials(allowed), num_threads)
            if found is not None:
                return found
        data, bounds = to_buffer(documents)
        ids, offsets = self._encode(data, bounds[:-1], bounds[1:], allowed, num_threads=num_threads)
        return ids.astype(np.uint32, copy=False), offsets

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
        continues: bool = False,
    ) -> tuple[_Ids, NDArray[np.int64]]:
        check_num_threads(num_threads)
        specials = self._specials(allowed)
        if allowed == "none_raise":
            self._check_no_specials(data, starts, ends)
        if self._custom is None:
            return self._encoder.encode_documents(
                data, starts, ends, specials, prepend, append, bits, num_threads, continues
            )
        ids, offsets = self._custom.encode(data, starts, ends, specials, prepend, append)
        return (ids.astype(np.uint16) if bits == 16 else ids), offsets

    def _encoded_text(self, text: bytes) -> bytes:
        """Return the parts of a text that tokens stand for, without spaces that encoding adds."""
        parts: list[bytes] = []
        for part, special_id in find_segments(text, self._all_specials, self._normalizer):
            parts.append(part.encode())
            if special_id is not None:
                parts.append(self._tokens.special_texts[special_id].encode())
        return b"".join(parts)

    def _check_normalized(self, text: str | bytes) -> None:
        data = to_utf8(text)
        if self._model.token_flags and self._encoded_text(data) != data:
            raise ValueError(
                "text: expected normalized text without white space that special tokens take, "
                "found other text; give `tokenizer.normalize(text)`"
            )
        if self._normalizer is None:
            return
        if self._normalizer.normalize(data) != data:
            raise ValueError(
                "text: expected normalized text, since tokens are parts of that, found text that "
                "the normalizer changes; give `tokenizer.normalize(text)`"
            )

    def _stream(self, specials: SpecialSet) -> TextStream:
        return TextStream(
            self._encoder,
            specials,
            self._normalizer,
            self._cut_by,
            after_special=not self._model.prefix_space,
            custom=self._custom,
        )
