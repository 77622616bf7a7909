"""minbpe's tokenizers with minbpe's interface, on the native core.

=================  ==============================================================================
BasicTokenizer     merges across the whole text: no pattern, no special tokens in text
RegexTokenizer     text is split by a pattern first, and special tokens become their ids
GPT4Tokenizer      GPT-4's vocabulary, cl100k_base; the ids of tiktoken
=================  ==============================================================================

Programs written for minbpe work here with other imports, and their tokenizers have the same merges,
ids and files. Where minbpe fails an assertion or is silently wrong, these classes raise errors.

Source: https://github.com/karpathy/minbpe
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import MergeLearner
from bpe_core.counting import ordered_pretokens
from bpe_core.errors import (
    FormatError,
    InvalidTokenizerError,
    InvalidUtf8Error,
    TrainingError,
)
from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    built,
    malformed,
    quoted,
    read_bytes,
    write_file,
)
from bpe_core.formats.minbpe import (
    MinbpeModel,
    Pair,
    minbpe_model,
    model_file_bytes,
    model_of,
    read_model_file,
    render_token,
    replace_control_characters,
    split_pattern,
    vocab_file_bytes,
    write_both,
)
from bpe_core.formats.ranks import read_tiktoken
from bpe_core.model import MOST_TOKEN_BYTES, TokenizerModel
from bpe_core.notebook_tables import tokenizer_table
from bpe_core.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, resolve_pattern
from bpe_core.short_repr import shorten
from bpe_core.token_colours import ColouredTokens
from bpe_core.tokenizer import AllowedSpecial, BPETokenizer

__all__ = [
    "GPT2_SPLIT_PATTERN",
    "GPT4_SPECIAL_TOKENS",
    "GPT4_SPLIT_PATTERN",
    "BasicTokenizer",
    "GPT4Tokenizer",
    "RegexTokenizer",
    "get_stats",
    "merge",
    "render_token",
    "replace_control_characters",
]

GPT4_SPECIAL_TOKENS = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}

_CL100K_URL = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
_CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"

_MERGES_A_STEP = 256  # learned between two lines of output

_Self = TypeVar("_Self", bound="_Tokenizer")


def get_stats(ids: Sequence[int], counts: dict[Pair, int] | None = None) -> dict[Pair, int]:
    """Count each pair of adjacent ids, with overlap, in the order of first occurrence.

    Args:
        ids: Any ids.
        counts: If given, counts are added to it, and it is returned.

    Example:
        >>> get_stats([1, 2, 3, 1, 2])
        {(1, 2): 2, (2, 3): 1, (3, 1): 1}
    """
    counts = {} if counts is None else counts
    for pair in pairwise(ids):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def merge(ids: Sequence[int], pair: Pair, idx: int) -> list[int]:
    """Replace every occurrence of a pair by one id, from left to right without overlap.

    Example:
        >>> merge([1, 2, 3, 1, 2], (1, 2), 4)
        [4, 3, 4]
    """
    left, right = pair
    merged: list[int] = []
    at = 0
    while at < len(ids):
        if at + 1 < len(ids) and ids[at] == left and ids[at + 1] == right:
            merged.append(idx)
            at += 2
        else:
            merged.append(ids[at])
            at += 1
    return merged


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    """State of a tokenizer, replaced as a whole so that other threads never see a mixture."""

    tokenizer: BPETokenizer
    special_tokens: dict[str, int]  # in the order they were registered
    specials_in_vocab: bool  # True after loading, False after training, as in minbpe

    @property
    def model(self) -> TokenizerModel:
        return self.tokenizer.model

    @property
    def pattern(self) -> str:
        return "" if self.model.pattern == "none" else self.model.pattern

    @cached_property
    def merges(self) -> dict[Pair, int]:
        return {(left, right): result for left, right, result in self.model.merges.tolist()}

    @cached_property
    def vocab(self) -> dict[int, bytes]:
        specials = self.special_tokens if self.specials_in_vocab else {}
        return dict(self.model.tokens) | {i: text.encode() for text, i in specials.items()}


class _Tokenizer:
    """Base class of the three tokenizers."""

    _splits: ClassVar[bool]  # by a pattern
    _state: _State

    @classmethod
    def from_model(cls: type[_Self], model: TokenizerModel) -> _Self:
        """Return the tokenizer for a model, such as `BPETokenizer.model`.

        Raises:
            CannotHoldError: The class cannot represent this tokenizer; the message contains the
                reason.
        """
        found = minbpe_model(model)
        if (reason := cls._why_not_pattern(found.pattern)) is not None:
            raise CannotHoldError(reason)
        tokenizer = cls.__new__(cls)
        tokenizer._become(dataclasses.replace(model, pattern=found.pattern or "none"))
        return tokenizer

    @property
    def model(self) -> TokenizerModel:
        """Return the tokenizer as data."""
        return self._state.model

    @property
    def pattern(self) -> str:
        """Return the regular expression that splits text, or "" if text is not split."""
        return self._state.pattern

    @property
    def merges(self) -> Mapping[Pair, int]:
        """Return the merged pairs of ids in order, with the id of each result."""
        return MappingProxyType(self._state.merges)

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """Return id to bytes. As in minbpe, only a loaded tokenizer includes special tokens."""
        return MappingProxyType(self._state.vocab)

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Return the special tokens' ids, in the order in which they were registered."""
        return MappingProxyType(self._state.special_tokens)

    @property
    def inverse_special_tokens(self) -> Mapping[int, str]:
        """Return id to text of the special tokens."""
        return MappingProxyType({i: text for text, i in self._state.special_tokens.items()})

    def train(self, text: str, vocab_size: int, verbose: bool = False) -> None:
        """Learn merges from a text, and replace those learned before.

        The most frequent pair of adjacent ids, counted with overlap, becomes a new id, repeatedly,
        even if it occurs only once. Of equally frequent pairs, the one that occurs first in the
        text as merged so far is merged. Special tokens in the text are ordinary text.

        Args:
            text: The text to learn from.
            vocab_size: The number of ids to reach: 256 bytes and the merges.
            verbose: Print each merge with its count.

        Raises:
            TrainingError: vocab_size is below 256, larger than the merges of the text allow, or
                larger than the id of a special token. The tokenizer is not changed.
            InvalidUtf8Error: The text contains a lone surrogate.
        """
        specials = self._state.special_tokens
        _check_vocab_size(vocab_size, specials)
        learned = _learned(text, self._state.model.pattern, vocab_size, verbose)
        model = dataclasses.replace(learned, special_tokens=specials)
        self._become(model, specials, specials_in_vocab=False)

    def decode(self, ids: Iterable[int] | NDArray[np.integer]) -> str:
        """Decode ids to text. Bytes that are not UTF-8 become U+FFFD.

        Raises:
            UnknownTokenError: The tokenizer does not have an id; the message contains it.
        """
        return self._state.tokenizer.decode(ids)

    def show(self, text: str) -> ColouredTokens:
        """Return the tokens of a text for a look at them: in colours in a notebook, or as lines.

        Special tokens in the text become their ids.
        """
        return self._state.tokenizer.show(text)

    def save(self, file_prefix: Location) -> None:
        """Write `file_prefix` + ".model", for `load`, and `file_prefix` + ".vocab", for people.

        Both have the same bytes as the files that minbpe writes for this tokenizer.

        Raises:
            CannotHoldError: The format cannot represent this tokenizer; nothing was written.
        """
        state = self._state
        values = MinbpeModel(
            pattern=state.pattern,
            special_tokens=state.special_tokens,
            merges=list(state.merges),
        )
        write_both(
            file_prefix,
            model_file_bytes(values),
            vocab_file_bytes(state.vocab, state.merges),
        )

    def load(self, model_file: Location) -> None:
        """Load a `.model` file, including its pattern and special tokens.

        Raises:
            FormatError: The file is invalid. The tokenizer is not changed.
            OSError: The file cannot be read.
        """
        found = read_model_file(model_file)
        if (reason := self._why_not_pattern(found.pattern)) is not None:
            raise FormatError(f"{os.fspath(model_file)}: line 2: {reason}")
        model = built(model_file, lambda: model_of(found))
        self._become(model, found.special_tokens)

    def __eq__(self, other: object) -> bool:
        """Return True if the other has the same class and gives the same ids."""
        if type(other) is not type(self):
            return NotImplemented
        return self.model.fingerprint == other.model.fingerprint

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def __repr__(self) -> str:
        model = self.model
        pattern = resolve_pattern(model.pattern).name or model.pattern
        return (
            f"{type(self).__name__}({len(model)} tokens, {len(model.special_tokens)} of them "
            f"special, {len(model.merges)} merges, pattern {shorten(pattern, 100)})"
        )

    def _repr_html_(self) -> str:
        return tokenizer_table(
            type(self).__name__,
            tokens=len(self.model),
            merges=len(self.model.merges),
            specials=self.special_tokens,
            rules={"pattern": self.pattern or None},
        )

    @classmethod
    def _why_not_pattern(cls, pattern: str) -> str | None:
        if bool(pattern) == cls._splits:
            return None
        if pattern:
            return f"expected no pattern, found {quoted(pattern)}; a RegexTokenizer splits by it"
        return "expected a pattern, found none; a BasicTokenizer has none"

    def _become(
        self,
        model: TokenizerModel,
        special_tokens: Mapping[str, int] | None = None,
        specials_in_vocab: bool = True,
    ) -> None:
        specials = model.special_tokens if special_tokens is None else special_tokens
        self._state = _State(BPETokenizer.from_model(model), dict(specials), specials_in_vocab)


class BasicTokenizer(_Tokenizer):
    """Byte-pair encoding of whole texts, without a pattern and without special tokens.

    Example:
        >>> tokenizer = BasicTokenizer()
        >>> tokenizer.train("aaabdaaabac", 256 + 3)
        >>> tokenizer.encode("aaabdaaabac")
        [258, 100, 258, 97, 99]
        >>> tokenizer.decode([258, 100, 258, 97, 99])
        'aaabdaaabac'
    """

    _splits = False

    def __init__(self) -> None:
        self._become(model_of(MinbpeModel(pattern="")))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. Lone surrogates become U+FFFD."""
        return self._state.tokenizer.encode_ordinary(text)


class RegexTokenizer(_Tokenizer):
    """Byte-pair encoding of text that is split by a pattern, with special tokens.

    Args:
        pattern: A regular expression in the syntax of the package `regex`, or a name in
            `bpe_core.PATTERNS`; None for `GPT4_SPLIT_PATTERN`. Unmatched text between matches is
            kept as separate parts.

    Raises:
        InvalidPatternError: The pattern does not compile.

    Example:
        >>> tokenizer = RegexTokenizer()
        >>> tokenizer.train("low lower lowest", 256 + 3)
        >>> tokenizer.register_special_tokens({"<|endoftext|>": 1000})
        >>> tokenizer.encode("lowest<|endoftext|>", allowed_special="all")
        [257, 101, 115, 116, 1000]
    """

    _splits = True

    def __init__(self, pattern: str | None = None) -> None:
        found = split_pattern(GPT4_SPLIT_PATTERN if pattern is None else pattern)
        self._become(model_of(MinbpeModel(pattern=found)))

    def register_special_tokens(self, special_tokens: Mapping[str, int]) -> None:
        """Replace the special tokens.

        Args:
            special_tokens: Text to id, such as {"<|endoftext|>": 100257}.

        Raises:
            InvalidTokenizerError: A byte, a merge or another special token has the same id, or a
                text is empty.
            TypeError: The argument is not a mapping.
        """
        if not isinstance(special_tokens, Mapping):
            raise TypeError(
                "special_tokens: expected a mapping of texts to ids, such as "
                f'{{"<|endoftext|>": 100257}}, found {type(special_tokens).__name__}'
            )
        state = self._state
        least = 256 + len(state.merges)
        for text, token_id in special_tokens.items():
            if isinstance(token_id, int) and 0 <= token_id < least:
                raise InvalidTokenizerError(
                    f"special token {text!r}: expected an id that no byte or merge has: {least} or "
                    f"above, found {token_id}"
                )
        self._become(
            dataclasses.replace(state.model, special_tokens=special_tokens),
            special_tokens,
            state.specials_in_vocab,
        )

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are ordinary text."""
        return self._state.tokenizer.encode_ordinary(text)

    def encode(self, text: str, allowed_special: AllowedSpecial = "none_raise") -> list[int]:
        """Return the ids of a text. Lone surrogates become U+FFFD.

        Args:
            text: Any text.
            allowed_special: The special tokens that are replaced by their ids: "all", "none", or a
                set. Unregistered members of the set are ignored, and other special tokens are
                ordinary text. Of several that start at the same position, the longest is replaced.
                "none_raise": a special token in the text is an error.

        Raises:
            SpecialTokenError: A special token in the text with "none_raise", or an invalid value.
        """
        state = self._state
        if isinstance(allowed_special, (set, frozenset)):
            allowed_special = allowed_special & state.special_tokens.keys()
        return state.tokenizer.encode(text, allowed_special)


class GPT4Tokenizer(RegexTokenizer):
    """GPT-4's tokenizer, with the ids of tiktoken's cl100k_base.

    It cannot be trained, saved or loaded; `save_vocab` writes its tokens for people. Its `vocab`
    has the bytes of each id. Its `pattern` is tiktoken's current form of cl100k without possessive
    quantifiers, so that ids are the same; it differs from `GPT4_SPLIT_PATTERN` for whitespace at
    the end of the text.

    Args:
        ranks_path: The published file cl100k_base.tiktoken; None for the file in tiktoken's cache,
            which exists after tiktoken has used it once.

    Attributes:
        byte_shuffle: The id of each single byte; GPT-4's are not in order.
        inverse_byte_shuffle: The byte of each of these ids.

    Raises:
        FileNotFoundError: No path is given, and there is no such file in the cache.
        FormatError: The file differs from the published one.
    """

    def __init__(self, ranks_path: Location | None = None) -> None:
        path = _cached_ranks() if ranks_path is None else ranks_path
        _check_ranks(path)
        model = read_tiktoken(
            path,
            pattern=split_pattern("cl100k_tiktoken"),
            special_tokens=GPT4_SPECIAL_TOKENS,
        )
        self._become(model, specials_in_vocab=False)
        self.byte_shuffle = {token[0]: i for i, token in model.tokens if len(token) == 1}
        self.inverse_byte_shuffle = {i: byte for byte, i in self.byte_shuffle.items()}

    @classmethod
    def from_model(cls, model: TokenizerModel) -> NoReturn:
        """Raise an error: there is only one GPT-4 tokenizer."""
        raise NotImplementedError(
            "GPT4Tokenizer can only be made from cl100k_base; use RegexTokenizer.from_model"
        )

    def train(self, text: str, vocab_size: int, verbose: bool = False) -> NoReturn:
        """Raise an error: the tokenizer is already trained."""
        raise NotImplementedError("GPT4Tokenizer is already trained; train a RegexTokenizer")

    def save(self, file_prefix: Location) -> NoReturn:
        """Raise an error: the file format requires the ids of bytes to be in order."""
        raise NotImplementedError(
            "GPT4Tokenizer cannot be saved: in minbpe's format ids 0 to 255 are the bytes in "
            "order; save_vocab writes its tokens, and "
            "BPETokenizer.from_model(tokenizer.model).save "
            "writes it in other formats"
        )

    def load(self, model_file: Location) -> NoReturn:
        """Raise an error: there is only one GPT-4 tokenizer."""
        raise NotImplementedError(
            "GPT4Tokenizer cannot be loaded; use RegexTokenizer for .model files, or give the "
            "file of ranks to the constructor"
        )

    def save_vocab(self, vocab_file: Location) -> None:
        """Write the tokens for people, in the form of the `.vocab` files.

        As in minbpe, the bytes come first, then merges, and special tokens are left out.
        """
        write_file(vocab_file, vocab_file_bytes(self._state.vocab, self._state.merges))


def _check_vocab_size(vocab_size: int, special_tokens: Mapping[str, int]) -> None:
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, (int, np.integer)):
        raise TrainingError(f"vocab_size: expected an integer, found {vocab_size!r}")
    if vocab_size < 256:
        raise TrainingError(
            f"vocab_size: expected at least 256, the number of bytes, found {vocab_size}"
        )
    for text, token_id in special_tokens.items():
        if token_id < vocab_size:
            raise TrainingError(
                f"vocab_size: expected at most {token_id}, the id of the special token {text!r}, "
                f"found {vocab_size}; register special tokens after training"
            )


def _learned(text: str, pattern: str, vocab_size: int, verbose: bool) -> TokenizerModel:
    """Return the tokenizer after training on a text, without special tokens."""
    words = ordered_pretokens([_encoded(text)], pattern=pattern)
    learner = MergeLearner(*words.columns(), "first_seen", always_new=True)
    goes_on = True
    while goes_on:
        first = learner.num_symbols
        goes_on = learner.learn(vocab_size, _MERGES_A_STEP)
        if verbose:
            _print_merges(learner, first - 256, vocab_size - 256)
        if learner.symbol_bytes > MOST_TOKEN_BYTES:
            raise TrainingError(
                f"vocab_size: expected less than {learner.num_symbols}, because the text is then "
                "merged into "
                f"tokens of more than {MOST_TOKEN_BYTES:,} bytes in all, found {vocab_size}"
            )
    if learner.num_symbols < vocab_size:
        raise TrainingError(
            f"vocab_size: expected at most {learner.num_symbols}, because the text has no pair "
            "left to "
            f"merge after {learner.num_symbols - 256} merges, found {vocab_size}"
        )
    left, right, result, counts = learner.merges()
    model = TokenizerModel.from_tokens(
        ((i, learner.symbol(i)) for i in range(learner.num_symbols)),
        np.column_stack([left, right, result]).tolist(),
        pattern=pattern,
        tie_break="first_seen",
        merge_counts=counts.tolist(),
        stop_reason=learner.stop_reason,
    )
    return dataclasses.replace(model, applied_counts=learner.applied_counts())


def _encoded(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"expected a text as str, found {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidUtf8Error(
            f"character {error.start} of the text: expected Unicode text, found the lone surrogate "
            f"{text[error.start]!r}; replace it"
        ) from None


def _print_merges(learner: MergeLearner, first: int, wanted: int) -> None:
    """Print merges from a given one on, in minbpe's form."""
    columns = [column[first:].tolist() for column in learner.merges()]
    for number, (left, right, made, count) in enumerate(zip(*columns, strict=True), first + 1):
        token = learner.symbol(made)
        print(
            f"merge {number}/{wanted}: ({left}, {right}) -> {made} ({token!r}) "
            f"had {count} occurrences"
        )


def _cached_ranks() -> Path:
    """Return the path of cl100k_base in tiktoken's cache, whose names are SHA-1 of addresses."""
    directory = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if directory is None:
        directory = f"{tempfile.gettempdir()}/data-gym-cache"
    path = Path(directory, hashlib.sha1(_CL100K_URL.encode(), usedforsecurity=False).hexdigest())
    if not directory or not path.is_file():
        raise FileNotFoundError(
            "cl100k_base.tiktoken: expected its path as ranks_path, found None, or the file in "
            f"tiktoken's cache, found no {path}; give the path, or let tiktoken fetch it once: "
            'tiktoken.get_encoding("cl100k_base")'
        )
    return path


def _check_ranks(path: Location) -> None:
    digest = hashlib.sha256(read_bytes(path)).hexdigest()
    if digest != _CL100K_SHA256:
        raise malformed(
            path,
            "",
            f"cl100k_base.tiktoken, of SHA-256 {_CL100K_SHA256}",
            f"a file of {digest}; BPETokenizer.from_tiktoken reads other ranks",
        )
