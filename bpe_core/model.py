"""What a tokenizer is, apart from how it encodes: ids, bytes, merges, special tokens, pattern."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from bpe_core.errors import InvalidTokenizerError
from bpe_core.normalization import checked_normalizer
from bpe_core.patterns import resolve_pattern

__all__ = ["MAX_ID", "MOST_TOKEN_BYTES", "TokenizerModel", "check_vocab"]

MAX_ID = 2**31 - 1
_LONG_TOKEN = 256  # bytes
_CHECKED_BYTES = 1 << 24  # of the results of merges that are checked together
MOST_TOKEN_BYTES = 2**31 - 1  # of all ordinary tokens together: what a BinaryArray holds


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenizerModel:
    """A byte-level BPE tokenizer as data; valid as soon as it exists.

    Ordinary tokens are bytes and the results of merges: one id per byte sequence, or one for each
    merge that makes it, as minbpe numbers them. Special tokens are a space of their own: one may
    have the bytes of an ordinary token, under its own id.

    Encoding a pre-token starts with its single bytes and applies, as long as there is one, the
    merge of lowest rank, the leftmost place first. Of several merges that make the same bytes,
    only one can ever apply (`bpe_core.formats.ranks` has the proof).

    Attributes:
        token_ids: int64[n], the ids of the ordinary tokens, ascending.
        token_bytes: their bytes, n binary values.
        merges: int64[m, 3], the ids (left, right, result) in order of rank. No pair comes twice; a
            result may come again.
        special_tokens: text to id, in order of id.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression.
        ignore_merges: a pre-token that is itself a token is that token, whatever the merges make of
            it. It matters only where some token is not what its own bytes merge into.
        tie_break: how training chose between equally frequent pairs; None if unknown.
        merge_counts: int64[m], how often each merge's pair occurred when it was learned (0 where
            that is unknown), or None.
        stop_reason: why training stopped, or None.
        counts_fingerprint: fingerprint of the counts it was trained on, or None.
        training_options: the other options of the training, JSON values by name (min_frequency,
            max_token_bytes, forbidden_tokens, ...), or None.
        normalizer: "nfc" or "nfkc": the Unicode normalization form into which text between special
            tokens is brought before it is split; None: text stays as it is.
        normalize_quotes: typographic quotes become ' and " after that.
        prepend, append: ids of special tokens that belong around a single text. Encoding does not
            add them; they are kept for who does, and for tokenizer.json.
        nonspecial_tokens: those of `special_tokens` that tokenizer.json lists with `"special":
            false`; decoders that leave out special tokens keep them.
        unknown_id: given to bytes without an id, a token's or not; None: such bytes are an error.

    Raises:
        InvalidTokenizerError: ids out of 0 ... 2**31 - 1 or given twice, equal bytes under two
            ordinary ids that are not each the result of a merge, or under any two with
            `ignore_merges`, a merge of unknown tokens or one whose parts do not make its result,
            an empty special token, counts of another length than the merges, an unknown normalizer,
            an unknown_id out of that range, an id to prepend or append or a nonspecial token that
            is no special token's.
        InvalidPatternError: a pattern that is no name and does not compile.

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
    stop_reason: str | None = None
    counts_fingerprint: str | None = None
    training_options: Mapping[str, Any] | None = None
    normalizer: str | None = None
    normalize_quotes: bool = False
    prepend: tuple[int, ...] = ()
    append: tuple[int, ...] = ()
    nonspecial_tokens: frozenset[str] = frozenset()
    unknown_id: int | None = None

    def __post_init__(self) -> None:
        specials = dict(sorted(self.special_tokens.items(), key=lambda item: item[1]))
        object.__setattr__(self, "special_tokens", specials)
        _check_specials(specials)
        object.__setattr__(self, "normalizer", checked_normalizer(self.normalizer))
        _check_unknown_id(self.unknown_id)
        _check_refer_to_specials(specials, self.prepend, self.append, self.nonspecial_tokens)
        _check_ids(self.token_ids, specials)
        _check_token_bytes(self.token_ids, self.token_bytes)
        self._check_merges()
        self._check_equal_bytes()
        resolve_pattern(self.pattern)
        for name in ("token_ids", "merges", "merge_counts"):
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
        unknown_id: int | None = None,
    ) -> TokenizerModel:
        """A model from plain Python values.

        Args:
            tokens: (id, bytes) of the ordinary tokens, in any order.
            merges: ids (left, right, result) in order of rank.
            special_tokens: text to id.

        The other arguments are the attributes of the class.

        Raises:
            InvalidTokenizerError: as the class does.
        """
        tokens = list(tokens)
        check_vocab(tokens)
        ordered = sorted(tokens)
        return cls(
            token_ids=_int64([token_id for token_id, _ in ordered], "token ids"),
            token_bytes=pa.array([token for _, token in ordered], pa.binary()),
            merges=_int64(list(merges), "merges").reshape(-1, 3),
            special_tokens=special_tokens or {},
            pattern=pattern,
            ignore_merges=ignore_merges,
            tie_break=tie_break,
            merge_counts=None if merge_counts is None else _int64(list(merge_counts), "counts"),
            stop_reason=stop_reason,
            counts_fingerprint=counts_fingerprint,
            training_options=training_options,
            normalizer=normalizer,
            normalize_quotes=normalize_quotes,
            prepend=tuple(prepend),
            append=tuple(append),
            nonspecial_tokens=frozenset(nonspecial_tokens),
            unknown_id=unknown_id,
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
        """A model from a vocabulary and merges of bytes, in order of rank.

        Args:
            vocab: id to bytes; ids that are special tokens' are passed over.
            merges: pairs of the bytes of ordinary tokens. Of a pair given twice the last place
                counts, as in GPT-2's and Hugging Face's encoders.
            special_tokens: text to id.
            pattern: a name of `bpe_core.PATTERNS` or a regular expression.
            ignore_merges, normalizer, normalize_quotes, unknown_id: as the attributes of the
                class.

        Raises:
            InvalidTokenizerError: a merge of bytes that have no id; otherwise as the class does.
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
                    f"merge {rank}, {_shown(left)} + {_shown(right)}: expected bytes of ordinary "
                    f"tokens, found no id for {_shown(error.args[0])}; add it to the vocabulary"
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
        """The same with these special tokens; ordinary tokens that have their ids are left out.

        Raises:
            InvalidTokenizerError: a merge has one of these ids, or none of them is one that the
                tokenizer prepends or appends; otherwise as the class does.
        """
        special_ids = np.array(list(special_tokens.values()), np.int64)
        kept = ~np.isin(self.token_ids, special_ids)
        return replace(
            self,
            token_ids=self.token_ids[kept],
            token_bytes=self.token_bytes.filter(pa.array(kept)),
            special_tokens=special_tokens,
            nonspecial_tokens=self.nonspecial_tokens & special_tokens.keys(),
        )

    @cached_property
    def fingerprint(self) -> str:
        """XXH3-128, in hex, of all that decides the ids of `encode`, and of nothing else."""
        digest = xxhash.xxh3_128()
        for part in self._fingerprinted():
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    @cached_property
    def equal_ids(self) -> tuple[int, int] | None:
        """Two ordinary ids of the same bytes, or None: formats keyed by bytes cannot hold such."""
        if _count_distinct(self.token_bytes) == len(self.token_bytes):
            return None
        codes = _codes(self.token_bytes)
        first, second = self.token_ids[codes == codes[_first_repeated(codes)]][:2].tolist()
        return first, second

    @property
    def gives_unknown_id(self) -> bool:
        """Whether there is an `unknown_id` and some byte without an id, so that it decides ids."""
        return self.unknown_id is not None and _count_single_bytes(self.token_bytes) < 256

    @property
    def tokens(self) -> list[tuple[int, bytes]]:
        """The ordinary tokens, (id, bytes), ascending by id."""
        return list(zip(self.token_ids.tolist(), _listed(self.token_bytes), strict=True))

    @property
    def vocab(self) -> dict[int, bytes]:
        """Id to bytes of all tokens, special ones too, ascending by id."""
        specials = [(i, text.encode()) for text, i in self.special_tokens.items()]
        return dict(sorted([*self.tokens, *specials]))

    @property
    def merge_bytes(self) -> list[tuple[bytes, bytes]]:
        """The bytes of each merge's left and right side, in order of rank."""
        left, right = (_listed(self.bytes_of(self.merges[:, i])) for i in (0, 1))
        return list(zip(left, right, strict=True))

    @cached_property
    def max_id(self) -> int:
        """The largest id that a token has or unknown bytes get, -1 if there is none."""
        ordinary = int(self.token_ids[-1]) if len(self.token_ids) else -1
        unknown = -1 if self.unknown_id is None else self.unknown_id
        return max(ordinary, unknown, *self.special_tokens.values(), -1)

    @property
    def byte_ids(self) -> NDArray[np.int64]:
        """int64[256], the id of each single byte; -1 where there is none."""
        ids = np.full(256, -1, np.int64)
        single = pc.equal(pc.binary_length(self.token_bytes), 1).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(single):
            ids[self.token_bytes[row].as_py()[0]] = self.token_ids[row]
        return ids

    def __len__(self) -> int:
        """The number of tokens, special ones too."""
        return len(self.token_ids) + len(self.special_tokens)

    def bytes_of(self, ids: NDArray[np.int64]) -> pa.BinaryArray:
        """The bytes of ordinary tokens, by id.

        Raises:
            InvalidTokenizerError: an id that no ordinary token has.
        """
        return self.token_bytes.take(self._known_rows(ids))

    def _known_rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each id stands in token_ids."""
        rows = self._rows_of(ids)
        known = rows < len(self.token_ids)
        known[known] = self.token_ids[rows[known]] == ids[known]
        if not known.all():
            at = int(np.argmin(known))
            raise InvalidTokenizerError(
                f"expected the id of an ordinary token, found {int(ids[at])} (row {at})"
            )
        return rows

    def _rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each id stands in token_ids, or where it would."""
        if self.max_id >= 4 * len(self) or not len(ids) or ids.min() < 0 or ids.max() > self.max_id:
            return np.searchsorted(self.token_ids, ids)
        # Ids almost without gaps: a table is several times faster than a search.
        rows = np.full(self.max_id + 1, len(self.token_ids), np.int64)
        rows[self.token_ids] = np.arange(len(self.token_ids))
        return rows[ids]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenizerModel):
            return NotImplemented
        return all(
            _same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )

    def __hash__(self) -> int:
        return int(self.fingerprint, 16)

    def __repr__(self) -> str:
        return (
            f"TokenizerModel({len(self)} tokens, {len(self.special_tokens)} of them special, "
            f"{len(self.merges)} merges, pattern {self.pattern!r})"
        )

    def _fingerprinted(self) -> Iterator[bytes | memoryview]:
        # The regular expression, not its name: llama3 and cl100k are one pattern.
        settings: dict[str, object] = {
            "pattern": resolve_pattern(self.pattern).regex,
            "normalizer": self.normalizer,
            "ignore_merges": self.ignore_merges,
            "special_tokens": dict(self.special_tokens),
        }
        if self.normalize_quotes:  # only then: tokenizers without it keep their fingerprints
            settings["normalize_quotes"] = True
        if self.gives_unknown_id:
            settings["unknown_id"] = self.unknown_id
        yield b"bpe tokenizer 1"
        yield json.dumps(settings, sort_keys=True).encode()
        yield self.token_ids.astype("<i8").tobytes()
        yield pc.binary_length(self.token_bytes).to_numpy().astype("<i8").tobytes()
        yield _joined(self.token_bytes)
        yield self.merges.astype("<i8").tobytes()

    def _check_results(self) -> None:
        """That what each merge joins makes its result."""
        sides = []
        for column, name in enumerate(("left", "right", "result")):
            try:
                sides.append(self._known_rows(self.merges[:, column]))
            except InvalidTokenizerError as error:
                raise InvalidTokenizerError(f"merges, {name}: {error}") from None
        lengths = pc.binary_length(self.token_bytes).to_numpy(zero_copy_only=False)
        # A few at a time: tokens may be as long as a text.
        piles = np.cumsum(lengths[sides[2]], dtype=np.int64) // _CHECKED_BYTES
        cuts = [0, *np.flatnonzero(np.diff(piles)) + 1, len(piles)]
        for begin, end in pairwise(cuts):
            left, right, result = (self.token_bytes.take(rows[begin:end]) for rows in sides)
            no_separator = pa.repeat(pa.scalar(b"", pa.binary()), len(left))
            made = pc.binary_join_element_wise(left, right, no_separator)
            wrong = np.flatnonzero(pc.not_equal(made, result).to_numpy(zero_copy_only=False))
            if len(wrong):
                i = int(wrong[0])
                raise InvalidTokenizerError(
                    f"merge {begin + i}: {_shown(left[i].as_py())} + {_shown(right[i].as_py())} "
                    f"makes {_shown(made[i].as_py())}, but its result, id "
                    f"{self.merges[begin + i, 2]}, is {_shown(result[i].as_py())}"
                )

    def _check_merges(self) -> None:
        if self.merges.ndim != 2 or self.merges.shape[1] != 3 or self.merges.dtype != np.int64:
            raise InvalidTokenizerError(
                f"merges: expected int64[m, 3], found {self.merges.dtype}{list(self.merges.shape)}"
            )
        if self.merge_counts is not None and len(self.merge_counts) != len(self.merges):
            raise InvalidTokenizerError(
                f"merge_counts: expected one count for each of {len(self.merges)} merges, found "
                f"{len(self.merge_counts)}"
            )
        self._check_results()
        pairs = self.merges[:, 0] << 32 | self.merges[:, 1]
        twice = _first_repeated(pairs)
        if twice is not None:
            ranks = np.flatnonzero(pairs == pairs[twice]).tolist()
            left, right = self.bytes_of(self.merges[twice, :2]).to_pylist()
            raise InvalidTokenizerError(
                f"merges {ranks[0]} and {ranks[1]} are the same pair, "
                f"{_shown(left)} + {_shown(right)}; leave one out"
            )

    def _check_equal_bytes(self) -> None:
        """Several ids of the same bytes must be told apart by the merges that make them."""
        if self.equal_ids is None:
            return
        codes = _codes(self.token_bytes)
        told_apart = np.isin(self.token_ids, self.merges[:, 2]) & (not self.ignore_merges)
        wrong = np.flatnonzero((np.bincount(codes)[codes] > 1) & ~told_apart)
        if len(wrong):
            rows = np.flatnonzero(codes == codes[wrong[0]])
            raise InvalidTokenizerError(
                f"token ids {self.token_ids[rows[0]]} and {self.token_ids[rows[1]]} have the same "
                f"bytes, {_shown(self.token_bytes[rows[0]].as_py())}; expected one ordinary id for "
                "them, or a merge for each and no ignore_merges"
            )


def check_vocab(tokens: Iterable[tuple[int, bytes]]) -> None:
    """Refuses what is not ids and bytes.

    Raises:
        InvalidTokenizerError: a value of another type; shows it.
    """
    for token_id, token in tokens:
        if not isinstance(token_id, (int, np.integer)) or not isinstance(token, bytes):
            raise InvalidTokenizerError(
                f"vocabulary: expected ids (int) with their bytes, found {token_id!r}: {token!r}"
            )


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


def _check_refer_to_specials(
    specials: Mapping[str, int],
    prepend: tuple[int, ...],
    append: tuple[int, ...],
    nonspecial_tokens: frozenset[str],
) -> None:
    ids = set(specials.values())
    for name, around in (("prepend", prepend), ("append", append)):
        for token_id in around:
            if token_id not in ids:
                raise InvalidTokenizerError(
                    f"{name}: expected ids of special tokens, found {token_id!r}"
                )
    if unknown := sorted(nonspecial_tokens - specials.keys()):
        raise InvalidTokenizerError(
            f"nonspecial_tokens: expected some of the special tokens, found {unknown[0]!r}"
        )


def _check_ids(token_ids: NDArray[np.int64], specials: Mapping[str, int]) -> None:
    if token_ids.ndim != 1 or token_ids.dtype != np.int64:
        raise InvalidTokenizerError(
            f"token ids: expected int64[n], found {token_ids.dtype}{list(token_ids.shape)}"
        )
    if len(token_ids) and not 0 <= token_ids.min() <= token_ids.max() <= MAX_ID:
        raise InvalidTokenizerError(
            f"token ids: expected 0 ... {MAX_ID}, found {token_ids.min()} ... {token_ids.max()}"
        )
    ids = np.concatenate([token_ids, np.array(list(specials.values()), np.int64)])
    twice = _first_repeated(ids)
    if twice is not None:
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
        at = int(np.argmin(pc.binary_length(tokens).to_numpy()))
        raise InvalidTokenizerError(f"token id {token_ids[at]}: expected bytes, found none")


def _count_distinct(tokens: pa.BinaryArray) -> int:
    """The number of different ones; long ones, some as long as a text, by their hashes."""
    long = pc.binary_length(tokens).to_numpy(zero_copy_only=False) > _LONG_TOKEN
    hashes = {xxhash.xxh3_128_digest(tokens[i].as_buffer()) for i in np.flatnonzero(long)}
    short = tokens.filter(pa.array(~long)) if hashes else tokens
    return len(hashes) + int(pc.count_distinct(short).as_py())


def _count_single_bytes(tokens: pa.BinaryArray) -> int:
    """The number of bytes that are tokens; no two ids have the same one, as no merge makes it."""
    return int(np.count_nonzero(pc.binary_length(tokens).to_numpy(zero_copy_only=False) == 1))


def _codes(tokens: pa.BinaryArray) -> NDArray[np.int64]:
    """A number for each token, the same for equal bytes."""
    codes: NDArray[np.int64] = tokens.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _first_repeated(values: NDArray[np.integer]) -> int | None:
    """An index whose value stands at another index too, or None."""
    ascending = np.sort(values)
    if not np.any(ascending[1:] == ascending[:-1]):
        return None
    order = np.argsort(values, kind="stable")
    return int(order[np.argmax(values[order[1:]] == values[order[:-1]])])


def _int64(values: list[int] | list[tuple[int, int, int]], what: str) -> NDArray[np.int64]:
    try:
        return np.array(values, dtype=np.int64)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidTokenizerError(f"{what}: expected integers below 2**63: {error}") from None


def _listed(values: pa.BinaryArray) -> list[bytes]:
    return cast("list[bytes]", values.to_pylist())


def _joined(values: pa.BinaryArray) -> memoryview:
    """The bytes of all values, one after another."""
    _, offsets, data = values.buffers()
    if offsets is None or data is None or not len(values):
        return memoryview(b"")
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return memoryview(data)[bounds[0] : bounds[-1]]


def _same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, pa.Array) and isinstance(b, pa.Array):
        return bool(a.equals(b))
    return bool(a == b)


def _shown(token: bytes) -> str:
    """The bytes for a message, shortened."""
    return repr(token) if len(token) <= 40 else f"{token[:40]!r}... ({len(token)} bytes)"
