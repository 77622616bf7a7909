"""A tokenizer as data, without its encoder: ids, bytes, merges, special tokens, pattern."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from bpe_core._native import Normalizer, find_wrong_merge, has_equal_keys
from bpe_core.buffers import flatten, from_arrow, lengths_of, to_arrow, to_binary
from bpe_core.characters import SPACE_SIGN, CharacterRules
from bpe_core.errors import InvalidTokenizerError
from bpe_core.normalization import checked_normalizer, native_normalizer
from bpe_core.patterns import SPLITS_AT_WHITE_SPACE, resolve_pattern
from bpe_core.short_repr import shorten
from bpe_core.special_tokens import TOKEN_FLAGS, find_text_end, find_text_start

__all__ = [
    "MAX_ID",
    "MOST_TOKEN_BYTES",
    "SPACE_RULES",
    "TokenizerModel",
    "byte_ids_of",
    "check_vocab",
]

MAX_ID = 2**31 - 1
SPACE_RULES = ("prefix_space", "drop_white_space")
MOST_TOKEN_BYTES = 2**31 - 1  # of all ordinary tokens together: the limit of a BinaryArray


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenizerModel:
    """A BPE tokenizer as data, checked when it is created.

    Ordinary tokens are single bytes and the results of merges. A byte sequence has one id, or one
    for each merge that makes it, as in minbpe. Special tokens are separate: one may have the bytes
    of an ordinary token, under another id.

    With `characters`, merges begin with characters, which are ordinary tokens too, and a special
    token may be an ordinary one as well.

    Encoding starts with the single bytes of a pre-token and repeatedly applies the merge of lowest
    rank, at its leftmost position, until none applies. Of several merges that make the same bytes,
    only one can ever apply (see the proof in `bpe_core.formats.ranks`).

    Attributes:
        token_ids: int64[n], ids of the ordinary tokens, ascending.
        token_bytes: n binary values, bytes of the ordinary tokens.
        merges: int64[m, 3], ids (left, right, result) in order of rank. Pairs are distinct; results
            may repeat.
        special_tokens: text to id, in order of id.
        pattern: a name in `bpe_core.PATTERNS` or a regular expression.
        ignore_merges: a pre-token that is a token becomes that token, whatever its merges make.
            This matters only if some token is not the result of merging its own bytes.
        tie_break: rule by which training chose between equally frequent pairs; None if unknown.
        merge_counts: int64[m], number of occurrences of each merge's pair when it was learned (0 if
            unknown), or None.
        applied_counts: int64[m], number of times that each merge was applied when it was learned (0
            if unknown), or None. It differs from the number of occurrences only for pairs of two
            equal tokens, which may overlap: `aaa` has two pairs, of which one is merged.
        stop_reason: reason for which training stopped, or None.
        counts_fingerprint: fingerprint of the counts used for training, or None.
        training_options: other options of the training, JSON values by name (min_frequency,
            max_token_bytes, forbidden_tokens, ...), or None.
        normalizer: "nfc" or "nfkc": Unicode normalization form that text between special tokens is
            converted to before it is split; None: the text is not changed.
        normalize_quotes: replace typographic quotes by ' and " after that.
        prepend, append: ids of special tokens (with `characters`, of any tokens) that belong around
            a single text. Encoding does not add them; they are kept for callers that do, and for
            tokenizer.json.
        nonspecial_tokens: those of `special_tokens` that tokenizer.json lists with `"special":
            false`; decoders that leave out special tokens keep these.
        token_flags: flags of special tokens, of `bpe_core.special_tokens.TOKEN_FLAGS`, by text.
        unknown_id: id for bytes that have none; another token may have the same id. None: such
            bytes are an error.
        characters: rules of a tokenizer that merges characters; None: it merges bytes.
        prefix_space: text between special tokens gets a space in front unless it begins with one,
            as RoBERTa's.
        drop_white_space: white space has no ids; the pattern, or the first step of the chain, is
            one of `bpe_core.patterns.SPLITS_AT_WHITE_SPACE`.
        bos_token, eos_token: special tokens that the source states to begin and end a text, if they
            differ from those that follow from the rest; or None. They affect no ids.

    Raises:
        InvalidTokenizerError: ids out of 0 ... 2**31 - 1, or an id given twice; equal bytes under
            two ordinary ids, unless each is the result of a merge and `ignore_merges` is false; a
            merge of unknown tokens, or one whose parts do not make its result; an empty special
            token; merge_counts of another length than the merges; an unknown normalizer; an
            unknown_id out of that range; prepend, append, nonspecial_tokens, bos_token or eos_token
            that are not special tokens; `characters` that do not fit the rest.
        InvalidPatternError: the pattern is neither a name nor a usable regular expression.

    Example:
        >>> model = TokenizerModel.from_tokens(
        ...     [(0, b"a"), (1, b"b"), (2, b"ab")], [(0, 1, 2)], special_tokens={"<|end|>": 3}
        ... )
        >>> model.vocab
        {0: b'a', 1: b'b', 2: b'ab', 3: b'<|end|>'}
    """

    token_ids: NDArray[np.int64]
    token_bytes: pa.BinaryArray
    merges: NDArray[np.int64]
    special_tokens: Mapping[str, int]
    pattern: str
    ignore_merges: bool = False
    tie_break: str | None = None
    merge_counts: NDArray[np.int64] | None = None
    applied_counts: NDArray[np.int64] | None = None
    stop_reason: str | None = None
    counts_fingerprint: str | None = None
    training_options: Mapping[str, Any] | None = None
    normalizer: str | None = None
    normalize_quotes: bool = False
    prepend: tuple[int, ...] = ()
    append: tuple[int, ...] = ()
    nonspecial_tokens: frozenset[str] = frozenset()
    token_flags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unknown_id: int | None = None
    characters: CharacterRules | None = None
    prefix_space: bool = False
    drop_white_space: bool = False
    bos_token: str | None = None
    eos_token: str | None = None

    def __post_init__(self) -> None:
        are_apart = self.characters is None
        specials = dict(sorted(self.special_tokens.items(), key=lambda item: item[1]))
        object.__setattr__(self, "special_tokens", specials)
        _check_specials(specials)
        object.__setattr__(self, "normalizer", checked_normalizer(self.normalizer))
        _check_unknown_id(self.unknown_id)
        known = set(specials.values()).union([] if are_apart else self.token_ids.tolist())
        _check_refer_to_tokens(known, self.prepend, self.append)
        _check_nonspecial(specials, self.nonspecial_tokens)
        _check_boundaries(specials, self.bos_token, self.eos_token)
        object.__setattr__(self, "token_flags", _checked_flags(specials, self.token_flags))
        _check_ids(self.token_ids, specials, are_apart=are_apart)
        _check_token_bytes(self.token_ids, self.token_bytes)
        self._check_merges()
        if self.applied_counts is None and not self.has_overlapping_merges:
            object.__setattr__(self, "applied_counts", self.merge_counts)
        self._check_equal_bytes()
        self._check_space_rules()
        if self.characters is not None:
            self.characters.check(self)
        for name in ("token_ids", "merges", "merge_counts", "applied_counts"):
            if (array := getattr(self, name)) is not None:
                view = array.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    @classmethod
    def from_tokens(
        cls,
        tokens: Iterable[tuple[int, bytes]],
        merges: Iterable[tuple[int, int, int]] = (),
        *,
        special_tokens: Mapping[str, int] | None = None,
        pattern: str = "gpt2",
        ignore_merges: bool = False,
        tie_break: str | None = None,
        merge_counts: Iterable[int] | None = None,
        stop_reason: str | None = None,
        counts_fingerprint: str | None = None,
        training_options: Mapping[str, Any] | None = None,
        normalizer: str | None = None,
        normalize_quotes: bool = False,
        prepend: Iterable[int] = (),
        append: Iterable[int] = (),
        nonspecial_tokens: Iterable[str] = (),
        token_flags: Mapping[str, Iterable[str]] | None = None,
        unknown_id: int | None = None,
        characters: CharacterRules | None = None,
        prefix_space: bool = False,
        drop_white_space: bool = False,
    ) -> TokenizerModel:
        """Create a model from plain Python values.

        Args:
            tokens: (id, bytes) of the ordinary tokens, in any order.
            merges: ids (left, right, result) in order of rank.
            special_tokens: text to id.

        The other arguments are the attributes of the class.

        Raises:
            InvalidTokenizerError, InvalidPatternError: see the class.
        """
        tokens = list(tokens)
        check_vocab(tokens)
        ordered = sorted(tokens)
        return cls(
            token_ids=_to_int64([token_id for token_id, _ in ordered], "token ids"),
            token_bytes=to_binary([token for _, token in ordered]),
            merges=_to_int64(list(merges), "merges").reshape(-1, 3),
            special_tokens=special_tokens or {},
            pattern=pattern,
            ignore_merges=ignore_merges,
            tie_break=tie_break,
            merge_counts=None if merge_counts is None else _to_int64(list(merge_counts), "counts"),
            stop_reason=stop_reason,
            counts_fingerprint=counts_fingerprint,
            training_options=training_options,
            normalizer=normalizer,
            normalize_quotes=normalize_quotes,
            prepend=tuple(prepend),
            append=tuple(append),
            nonspecial_tokens=frozenset(nonspecial_tokens),
            token_flags={text: frozenset(flags) for text, flags in (token_flags or {}).items()},
            unknown_id=unknown_id,
            characters=characters,
            prefix_space=prefix_space,
            drop_white_space=drop_white_space,
        )

    @classmethod
    def from_vocab(
        cls,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Mapping[str, int],
        *,
        pattern: str = "gpt2",
        ignore_merges: bool = False,
        normalizer: str | None = None,
        normalize_quotes: bool = False,
        unknown_id: int | None = None,
    ) -> TokenizerModel:
        """Create a model from a vocabulary and merges of bytes, in order of rank.

        Args:
            vocab: id to bytes; entries with the ids of special tokens are skipped.
            merges: pairs of the bytes of ordinary tokens. The last position of a repeated pair
                counts, as in GPT-2's and Hugging Face's encoders.
            special_tokens: text to id.
            pattern: a name in `bpe_core.PATTERNS` or a regular expression.
            ignore_merges, normalizer, normalize_quotes, unknown_id: see the attributes of the
                class.

        Raises:
            InvalidTokenizerError: a merge of bytes that have no id; see also the class.
            InvalidPatternError: see the class.
        """
        special_ids = set(special_tokens.values())
        tokens = [(i, token) for i, token in vocab.items() if i not in special_ids]
        ids = {token: i for i, token in tokens}
        rows: dict[tuple[bytes, bytes], tuple[int, int, int]] = {}
        for rank, (left, right) in enumerate(merges):
            try:
                row = (ids[left], ids[right], ids[left + right])
            except KeyError as error:
                raise InvalidTokenizerError(
                    f"merge {rank}, {_show(left)} + {_show(right)}: expected bytes of ordinary "
                    f"tokens, found no id for {_show(error.args[0])}; add it to the vocabulary"
                ) from None
            rows.pop((left, right), None)
            rows[left, right] = row
        return cls.from_tokens(
            tokens,
            rows.values(),
            special_tokens=special_tokens,
            pattern=pattern,
            ignore_merges=ignore_merges,
            normalizer=normalizer,
            normalize_quotes=normalize_quotes,
            unknown_id=unknown_id,
        )

    def with_special_tokens(self, special_tokens: Mapping[str, int]) -> TokenizerModel:
        """Return the tokenizer with these special tokens, without ordinary tokens of their ids.

        Raises:
            InvalidTokenizerError: a merge uses one of these ids, or an id that the tokenizer
                prepends or appends is not among them; see also the class.
        """
        special_ids = np.array(list(special_tokens.values()), np.int64)
        kept = ~np.isin(self.token_ids, special_ids)
        return replace(
            self,
            token_ids=self.token_ids[kept],
            token_bytes=self.token_bytes.filter(to_arrow(kept)),
            special_tokens=special_tokens,
            nonspecial_tokens=self.nonspecial_tokens & special_tokens.keys(),
            token_flags={t: f for t, f in self.token_flags.items() if t in special_tokens},
            bos_token=self.bos_token if self.bos_token in special_tokens else None,
            eos_token=self.eos_token if self.eos_token in special_tokens else None,
        )

    @cached_property
    def fingerprint(self) -> str:
        """XXH3-128, in hex, of everything that affects the ids of `encode`, and nothing else."""
        digest = xxhash.xxh3_128()
        for part in self._fingerprint_parts():
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    @cached_property
    def equal_ids(self) -> tuple[int, int] | None:
        """Two ordinary ids of equal bytes, which formats keyed by bytes cannot hold; or None."""
        if not has_equal_keys(*flatten(self.token_bytes)):
            return None
        codes = _number_distinct(self.token_bytes)
        first, second = self.token_ids[codes == codes[_find_repeated(codes)]][:2].tolist()
        return first, second

    @property
    def native_normalizer(self) -> Normalizer | None:
        """The normalizer of text between special tokens; None if it is not changed."""
        found = None if self.characters is None else self.characters.normalizer
        return found or native_normalizer(self.normalizer, self.normalize_quotes)

    @property
    def has_overlapping_merges(self) -> bool:
        """True if the occurrences of some merge's pair may overlap, or one pair's counts differ.

        These are merges of two equal tokens, and those of characters, whose counts are of results.
        """
        are_equal = self.merges[:, 0] == self.merges[:, 1]
        return self.characters is not None or bool(are_equal.any())

    @property
    def gives_unknown_id(self) -> bool:
        """True if there is an `unknown_id`, and some byte or character has no other id."""
        if self.unknown_id is None:
            return False
        if self.characters is not None:
            return not self.characters.byte_ids
        return _count_single_bytes(self.token_bytes) < 256

    @property
    def space_rules(self) -> list[str]:
        """The names of those attributes that are set of the two that change spaces of bytes."""
        return [name for name in SPACE_RULES if getattr(self, name)]

    @property
    def specials_in_text(self) -> dict[str, int]:
        """The special tokens that are found in text, with their ids."""
        hidden = () if self.characters is None else self.characters.hidden_tokens
        return {text: i for text, i in self.special_tokens.items() if text not in hidden}

    @property
    def tokens(self) -> list[tuple[int, bytes]]:
        """The ordinary tokens, (id, bytes), ascending by id."""
        return list(zip(self.token_ids.tolist(), _to_list(self.token_bytes), strict=True))

    @property
    def vocab(self) -> dict[int, bytes]:
        """Id to bytes of all tokens, special tokens included, ascending by id."""
        specials = {i: self.bytes_of_special(text) for text, i in self.special_tokens.items()}
        return dict(sorted({**specials, **dict(self.tokens)}.items()))

    @property
    def merge_bytes(self) -> list[tuple[bytes, bytes]]:
        """Bytes of each merge's left and right side, in order of rank."""
        left, right = (_to_list(self.bytes_of(self.merges[:, i])) for i in (0, 1))
        return list(zip(left, right, strict=True))

    @cached_property
    def max_id(self) -> int:
        """The largest id, including `unknown_id`; -1 without any ids."""
        ordinary = int(self.token_ids[-1]) if len(self.token_ids) else -1
        unknown = -1 if self.unknown_id is None else self.unknown_id
        return max(ordinary, unknown, *self.special_tokens.values(), -1)

    @property
    def bos_id(self) -> int | None:
        """The id of the special token that begins a text, None if there is no such token.

        It is `bos_token`, the only one of `prepend`, or else the only special token with a usual
        name.
        """
        return self._find_boundary(self.bos_token, self.prepend, find_text_start)

    @property
    def eos_id(self) -> int | None:
        """The id of the special token that ends a text, None if there is no such token.

        It is `eos_token`, the only one of `append`, or else the only special token with a usual
        name.
        """
        return self._find_boundary(self.eos_token, self.append, find_text_end)

    @property
    def document_boundaries(self) -> tuple[int | None, int | None]:
        """The ids of the special tokens to put before and after a document; None for no token.

        They are those of the template, or with a usual name. `bos_token` and `eos_token` count only
        without these, because they may be those of a chat, or one token for both.
        """
        start = self._find_boundary(None, self.prepend, find_text_start)
        end = self._find_boundary(None, self.append, find_text_end)
        end = self.eos_id if end is None else end
        return (self.bos_id if start is None and self.bos_id != end else start), end

    def _find_boundary(
        self,
        stated: str | None,
        around: tuple[int, ...],
        find: Callable[[Collection[str]], str | None],
    ) -> int | None:
        if stated is not None:
            return self.special_tokens[stated]
        if len(around) == 1:
            return around[0]
        name = find(self.special_tokens.keys() - self.nonspecial_tokens)
        return None if name is None else self.special_tokens[name]

    @property
    def byte_ids(self) -> NDArray[np.int64]:
        """int64[256], id of each single byte, of ASCII's characters where they are tokens.

        -1 if a byte has none.
        """
        if self.characters is None or not self.characters.byte_ids:
            return byte_ids_of(self.token_ids, self.token_bytes)
        substitutes = np.array(self.characters.byte_ids, np.int64)
        kept = ~np.isin(self.token_ids, substitutes)
        own = byte_ids_of(self.token_ids[kept], self.token_bytes.filter(to_arrow(kept)))
        return np.where(own >= 0, own, substitutes)

    def __len__(self) -> int:
        """Return the number of tokens, special tokens included."""
        return self._num_tokens

    def bytes_of(self, ids: NDArray[np.int64]) -> pa.BinaryArray:
        """Return the bytes of ordinary tokens, by id.

        Raises:
            InvalidTokenizerError: no ordinary token has one of the ids.
        """
        return self.token_bytes.take(to_arrow(self._find_known_rows(ids)))

    def ids_of(self, token: bytes) -> list[int]:
        """Return the ids of the ordinary tokens with these bytes, ascending."""
        equal = pc.equal(self.token_bytes, to_binary([token])[0])
        ids: list[int] = self.token_ids[from_arrow(pc.indices_nonzero(equal))].tolist()
        return ids

    def _find_known_rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each id in token_ids; raise InvalidTokenizerError if it has none."""
        rows = self.rows_of(ids)
        known = rows < len(self.token_ids)
        known[known] = self.token_ids[rows[known]] == ids[known]
        if not known.all():
            at = int(np.argmin(known))
            raise InvalidTokenizerError(
                f"expected the id of an ordinary token, found {int(ids[at])} (row {at})"
            )
        return rows

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each id in token_ids; any number for an id that is not in it."""
        if self.max_id >= 4 * len(self) or not len(ids) or ids.min() < 0 or ids.max() > self.max_id:
            return np.searchsorted(self.token_ids, ids)
        # With few gaps between ids, a table is several times faster than a search.
        rows = np.full(self.max_id + 1, len(self.token_ids), np.int64)
        rows[self.token_ids] = np.arange(len(self.token_ids))
        return rows[ids]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenizerModel):
            return NotImplemented
        return all(
            _are_equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        )

    def __hash__(self) -> int:
        return int(self.fingerprint, 16)

    def __repr__(self) -> str:
        return (
            f"TokenizerModel({len(self)} tokens, {len(self.special_tokens)} of them special, "
            f"{len(self.merges)} merges, pattern {shorten(self.pattern, 100)})"
        )

    @cached_property
    def _num_tokens(self) -> int:
        special_ids = np.fromiter(self.special_tokens.values(), np.int64)
        return (
            len(self.token_ids) + len(special_ids) - int(np.isin(special_ids, self.token_ids).sum())
        )

    def bytes_of_special(self, text: str) -> bytes:
        """Return the bytes that a special token decodes to."""
        return (text if self.characters is None else text.replace(SPACE_SIGN, " ")).encode()

    def _fingerprint_parts(self) -> Iterator[bytes | memoryview]:
        # The regular expression, not its name: llama3 and cl100k are one pattern.
        settings: dict[str, object] = {
            "pattern": resolve_pattern(self.pattern).regex,
            "normalizer": self.normalizer,
            "ignore_merges": self.ignore_merges,
            "special_tokens": dict(self.special_tokens),
        }
        # Added later, and only where it is set: older tokenizers keep their fingerprints.
        if self.normalize_quotes:
            settings["normalize_quotes"] = True
        if self.gives_unknown_id:
            settings["unknown_id"] = self.unknown_id
        if self.token_flags:
            settings["token_flags"] = {t: sorted(flags) for t, flags in self.token_flags.items()}
        if self.characters is not None:
            settings["characters"] = self.characters.to_json()
        settings |= dict.fromkeys(self.space_rules, True)
        yield b"bpe tokenizer 1"
        yield json.dumps(settings, sort_keys=True).encode()
        yield self.token_ids.astype("<i8").tobytes()
        yield lengths_of(self.token_bytes).astype("<i8").tobytes()
        yield flatten(self.token_bytes)[0]
        yield self.merges.astype("<i8").tobytes()

    def _check_results(self) -> None:
        """Raise InvalidTokenizerError unless both sides of each merge make its result."""
        sides = []
        for column, name in enumerate(("left", "right", "result")):
            try:
                sides.append(self._find_known_rows(self.merges[:, column]))
            except InvalidTokenizerError as error:
                raise InvalidTokenizerError(f"merges, {name}: {error}") from None
        keys, offsets = flatten(self.token_bytes)
        i = find_wrong_merge(keys, offsets, *sides)
        if i >= 0:
            left, right, result = (self.token_bytes[rows[i]].as_py() for rows in sides)
            raise InvalidTokenizerError(
                f"merge {i}: {_show(left)} + {_show(right)} makes {_show(left + right)}, but its "
                f"result, id {self.merges[i, 2]}, is {_show(result)}"
            )

    def _check_merges(self) -> None:
        if self.merges.ndim != 2 or self.merges.shape[1] != 3 or self.merges.dtype != np.int64:
            raise InvalidTokenizerError(
                f"merges: expected int64[m, 3], found {self.merges.dtype}{list(self.merges.shape)}"
            )
        for name in ("merge_counts", "applied_counts"):
            counts = getattr(self, name)
            if counts is not None and len(counts) != len(self.merges):
                raise InvalidTokenizerError(
                    f"{name}: expected one count for each of {len(self.merges)} merges, found "
                    f"{len(counts)}"
                )
        self._check_results()
        pairs = self.merges[:, 0] << 32 | self.merges[:, 1]
        twice = _find_repeated(pairs)
        if twice is not None:
            ranks = np.flatnonzero(pairs == pairs[twice]).tolist()
            left, right = self.bytes_of(self.merges[twice, :2]).to_pylist()
            raise InvalidTokenizerError(
                f"merges {ranks[0]} and {ranks[1]} are the same pair, "
                f"{_show(left)} + {_show(right)}; leave one out"
            )

    def _check_space_rules(self) -> None:
        resolved = resolve_pattern(self.pattern)
        if len(self.space_rules) > 1:
            raise InvalidTokenizerError(
                "prefix_space, drop_white_space: expected one of them, found both"
            )
        if self.space_rules and resolved.scanner is None:
            raise InvalidTokenizerError(
                f"{self.space_rules[0]}: expected a pattern that is compiled, found one with "
                f"{resolved.obstacle}"
            )
        if not self.drop_white_space:
            return
        first, *others = resolved.steps
        # A step of bytes could cut white space of several bytes, which would then not be known.
        if first.regex not in SPLITS_AT_WHITE_SPACE or any(step.of_bytes for step in others):
            raise InvalidTokenizerError(
                "drop_white_space: expected a pattern that begins with one of the steps "
                f"{list(SPLITS_AT_WHITE_SPACE)} and has none of bytes, found {self.pattern!r}"
            )

    def _check_equal_bytes(self) -> None:
        """Raise InvalidTokenizerError if ids of equal bytes are not made by different merges."""
        substitutes = () if self.characters is None else self.characters.byte_ids
        compared = np.isin(self.token_ids, substitutes, invert=True)
        if not has_equal_keys(*flatten(self.token_bytes.filter(to_arrow(compared)))):
            return
        codes = _number_distinct(self.token_bytes)
        is_distinct = np.isin(self.token_ids, self.merges[:, 2]) & (not self.ignore_merges)
        counts = np.bincount(codes[compared], minlength=len(codes))
        wrong = np.flatnonzero(compared & (counts[codes] > 1) & ~is_distinct)
        if len(wrong):
            rows = np.flatnonzero(compared & (codes == codes[wrong[0]]))
            raise InvalidTokenizerError(
                f"token ids {self.token_ids[rows[0]]} and {self.token_ids[rows[1]]} have the same "
                f"bytes, {_show(self.token_bytes[rows[0]].as_py())}; expected one ordinary id "
                "for them, or a merge for each without ignore_merges"
            )


def check_vocab(tokens: Iterable[tuple[int, bytes]]) -> None:
    """Raise InvalidTokenizerError if a vocabulary has other types than ids and bytes."""
    for token_id, token in tokens:
        if not isinstance(token_id, (int, np.integer)) or not isinstance(token, bytes):
            raise InvalidTokenizerError(
                f"vocabulary: expected ids (int) with their bytes, found {token_id!r}: {token!r}"
            )


def byte_ids_of(token_ids: NDArray[np.int64], tokens: pa.BinaryArray) -> NDArray[np.int64]:
    """Return int64[256], the id of each single byte among the tokens; -1 if it has none."""
    ids = np.full(256, -1, np.int64)
    keys, offsets = flatten(tokens)
    single = np.flatnonzero(np.diff(offsets) == 1)
    ids[np.frombuffer(keys, np.uint8)[offsets[single]]] = token_ids[single]
    return ids


def _check_specials(specials: Mapping[str, int]) -> None:
    for text, token_id in specials.items():
        if not isinstance(text, str) or not text:
            raise InvalidTokenizerError(f"special token: expected a text, found {text!r}")
        if not isinstance(token_id, int) or not 0 <= token_id <= MAX_ID:
            raise InvalidTokenizerError(
                f"special token {text!r}: expected an id of 0 ... {MAX_ID}, found {token_id!r}"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidTokenizerError(
                f"special token {text!r}: expected Unicode text, found a lone surrogate"
            ) from None


def _check_unknown_id(unknown_id: int | None) -> None:
    if unknown_id is None:
        return
    if not isinstance(unknown_id, int) or not 0 <= unknown_id <= MAX_ID:
        raise InvalidTokenizerError(
            f"unknown_id: expected an id of 0 ... {MAX_ID}, or None, found {unknown_id!r}"
        )


def _check_refer_to_tokens(
    known: Collection[int], prepend: tuple[int, ...], append: tuple[int, ...]
) -> None:
    for name, around in (("prepend", prepend), ("append", append)):
        for token_id in around:
            if token_id not in known:
                raise InvalidTokenizerError(
                    f"{name}: expected ids of special tokens, found {token_id!r}"
                )


def _checked_flags(
    specials: Mapping[str, int], token_flags: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """Return the flags that are set, by token."""
    taken = {
        "normalized" in flags: text for text, flags in token_flags.items() if "rstrip" in flags
    }
    for text in specials if taken else ():
        taking = taken.get("normalized" in token_flags.get(text, ()))
        if taking is not None and text[0].isspace():
            raise InvalidTokenizerError(
                f"special token {taking!r}: expected no rstrip, as {text!r} begins with the white "
                "space that it would take"
            )
    for text, flags in token_flags.items():
        if text not in specials or (unknown := sorted(flags - set(TOKEN_FLAGS))):
            raise InvalidTokenizerError(
                f"token_flags: expected {', '.join(TOKEN_FLAGS)} of special tokens, found "
                f"{unknown[0] if text in specials else text!r}"
            )
    return {text: flags for text, flags in sorted(token_flags.items()) if flags}


def _check_nonspecial(specials: Mapping[str, int], nonspecial_tokens: frozenset[str]) -> None:
    if unknown := sorted(nonspecial_tokens - specials.keys()):
        raise InvalidTokenizerError(
            f"nonspecial_tokens: expected some of the special tokens, found {unknown[0]!r}"
        )


def _check_boundaries(specials: Mapping[str, int], *tokens: str | None) -> None:
    for token in tokens:
        if token is not None and token not in specials:
            raise InvalidTokenizerError(
                f"bos_token and eos_token: expected special tokens, found {token!r}"
            )


def _check_ids(
    token_ids: NDArray[np.int64], specials: Mapping[str, int], *, are_apart: bool
) -> None:
    if token_ids.ndim != 1 or token_ids.dtype != np.int64:
        raise InvalidTokenizerError(
            f"token ids: expected int64[n], found {token_ids.dtype}{list(token_ids.shape)}"
        )
    if len(token_ids) and not 0 <= token_ids.min() <= token_ids.max() <= MAX_ID:
        raise InvalidTokenizerError(
            f"token ids: expected 0 ... {MAX_ID}, found {token_ids.min()} ... {token_ids.max()}"
        )
    special_ids = np.array(list(specials.values()), np.int64)
    for ids in (
        [np.concatenate([token_ids, special_ids])] if are_apart else [token_ids, special_ids]
    ):
        twice = _find_repeated(ids)
        if twice is None:
            continue
        names = [repr(text) for text, i in specials.items() if i == ids[twice]]
        whose = ""
        if names:
            whose = f": of the special token {names[0]} and of {[*names, 'an ordinary token'][1]}"
        raise InvalidTokenizerError(
            f"token ids: expected each once, found {ids[twice]} twice{whose}"
        )
    if np.any(np.diff(token_ids) < 0):
        raise InvalidTokenizerError("token ids: expected ascending order; sort the tokens by id")


def _check_token_bytes(token_ids: NDArray[np.int64], tokens: pa.BinaryArray) -> None:
    if not pa.types.is_binary(tokens.type) or len(tokens) != len(token_ids) or tokens.null_count:
        raise InvalidTokenizerError(
            f"token bytes: expected {len(token_ids)} binary values, found {len(tokens)} of type "
            f"{tokens.type} with {tokens.null_count} nulls"
        )
    if len(tokens) and not pc.min(pc.binary_length(tokens)).as_py():
        at = int(np.argmin(lengths_of(tokens)))
        raise InvalidTokenizerError(f"token id {token_ids[at]}: expected bytes, found none")


def _count_single_bytes(tokens: pa.BinaryArray) -> int:
    """Return the number of bytes that are tokens: each has one id, since no merge makes it."""
    return int(np.count_nonzero(np.diff(flatten(tokens)[1]) == 1))


def _number_distinct(tokens: pa.BinaryArray) -> NDArray[np.int64]:
    """Return a number for each token, the same for equal bytes."""
    codes: NDArray[np.int64] = from_arrow(tokens.dictionary_encode().indices).astype(np.int64)
    return codes


def _find_repeated(values: NDArray[np.integer]) -> int | None:
    """Return an index whose value occurs at another index too, or None."""
    ascending = np.sort(values)
    if not np.any(ascending[1:] == ascending[:-1]):
        return None
    order = np.argsort(values, kind="stable")
    return int(order[np.argmax(values[order[1:]] == values[order[:-1]])])


def _to_int64(values: list[int] | list[tuple[int, int, int]], what: str) -> NDArray[np.int64]:
    try:
        return np.array(values, dtype=np.int64)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidTokenizerError(f"{what}: expected integers below 2**63: {error}") from None


def _to_list(values: pa.BinaryArray) -> list[bytes]:
    return cast("list[bytes]", values.to_pylist())


def _are_equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, pa.Array) and isinstance(b, pa.Array):
        return bool(a.equals(b))
    return bool(a == b)


def _show(token: bytes) -> str:
    """Return the bytes as a message shows them."""
    return repr(token) if len(token) <= 40 else f"{token[:40]!r}... ({len(token)} bytes)"
