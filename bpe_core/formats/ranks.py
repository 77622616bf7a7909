"""tokenizer.tiktoken: one line a token, its bytes in base64 and its rank, which is its id.

tiktoken has no list of merges. It joins, again and again, the two neighbours whose bytes together
have the lowest rank, the leftmost such place first; and a pre-token that has a rank is one token
at once. This module turns ranks into merges, and tells when merges are the same as ranks.

**Why merges can say what ranks say.** Take any text and a moment when tiktoken joins `p` and `q`
into `t`. Nothing was ever joined across the two ends of this place, and of the joins within it,
each was the lowest and leftmost there. So they are the joins, in the same order, that the bytes of
`t` alone go through. There is one such course, so there is one `(p, q)`: each token has at most one
last join, whatever stands around it. The merges `(p, q) -> t`, in order of rank, therefore do
what the ranks do; and other ways to split `t` that are listed beside it, at the same rank, never
apply. A token that its own bytes do not reach is never made by joining; tiktoken gives it only to
a pre-token of exactly its bytes (`ignore_merges`).

The same holds of merges by pairs: of several merges that make the same bytes only one ever
applies. So a tokenizer trained here, whose merges make each byte sequence from bytes that reach
it, has in its ids the ranks that mean the same; that is checked for every tokenizer, not assumed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import Encoder, last_joins
from bpe_core.buffers import concatenate
from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    built,
    malformed,
    quoted,
    read_bytes,
    refuse_normalization,
    write_file,
)
from bpe_core.model import MAX_ID, TokenizerModel
from bpe_core.patterns import pattern_of_tiktoken

# Joining takes time quadratic in the length of a token. The longest published one has 128 bytes.
MAX_TOKEN_BYTES = 4096


def read_tiktoken(
    location: Location, *, pattern: str, special_tokens: Mapping[str, int] | None = None
) -> TokenizerModel:
    """Reads a .tiktoken file.

    Args:
        location: the file.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression; the file does not say.
        special_tokens: text to id; the file holds none.

    Raises:
        FormatError: a line is not a token and a rank, or the tokens contradict each other.
        OSError: as opening it does.
    """
    ids, tokens = _read_ranks(location)
    return model_of_ranks(
        location,
        ids,
        tokens,
        pattern=pattern_of_tiktoken(pattern),
        special_tokens=special_tokens or {},
    )


def model_of_ranks(
    location: Location,
    token_ids: NDArray[np.int64],
    tokens: pa.BinaryArray,
    *,
    pattern: str,
    special_tokens: Mapping[str, int],
) -> TokenizerModel:
    """Return the tokenizer that does what ranks do.

    Args:
        location: the file, for errors.
        token_ids: int64[n], ascending in the order of the ranks.
        tokens: their bytes, n values.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression.
        special_tokens: text to id.

    Raises:
        FormatError: the tokens contradict each other.
    """
    merges = merges_of_ranks(token_ids, tokens)
    unreached = int(np.sum(pc.binary_length(tokens).to_numpy() > 1)) > len(merges)
    return built(
        location,
        lambda: TokenizerModel(
            token_ids=token_ids,
            token_bytes=tokens,
            merges=merges,
            special_tokens=special_tokens,
            pattern=pattern,
            ignore_merges=unreached,
        ),
    )


def write_tiktoken(model: TokenizerModel, location: Location) -> None:
    """Writes a .tiktoken file of the ordinary tokens, lowest rank first.

    Raises:
        CannotHoldError: tiktoken would give other ids; the message says why.
    """
    write_file(location, tiktoken_bytes(model))


def tiktoken_bytes(model: TokenizerModel) -> bytes:
    """The contents of tokenizer.tiktoken."""
    refuse_normalization(model)
    tokens = model.tokens
    missing = set(range(256)) - {token[0] for _, token in tokens if len(token) == 1}
    if missing:
        raise CannotHoldError(
            f"the byte 0x{min(missing):02X} has no id; tiktoken fails at a byte without a rank"
        )
    reason = why_not_ranks(model)
    if reason is not None:
        raise CannotHoldError(reason)
    return b"".join(b"%b %d\n" % (base64.b64encode(token), i) for i, token in tokens)


def why_not_ranks(model: TokenizerModel) -> str | None:
    """Why the ids of a tokenizer are not ranks that mean the same; None if they are.

    They are if no two ids have the same bytes, if the merges' results are in order of id, if every
    last join of the ranks is among the merges, and if each token is reached by its own bytes or
    `ignore_merges` is set.
    """
    if model.equal_ids is not None:
        first, second = model.equal_ids
        return f"ids {first} and {second} have the same bytes, and those have one rank"
    results = model.merges[:, 2]
    if np.any(np.diff(results) < 0):
        rank = int(np.argmax(np.diff(results) < 0)) + 1
        return (
            f"merge {rank} makes id {results[rank]}, after one that makes id {results[rank - 1]}; "
            "in ranks the ids of merges follow their order"
        )
    by_id = dict(model.tokens)
    longest = max(map(len, by_id.values()), default=0)
    if longest > MAX_TOKEN_BYTES:
        return f"a token has {longest} bytes; beyond {MAX_TOKEN_BYTES} it is not checked"
    if _reached_by_its_only_merge(model):
        return None
    joins = merges_of_ranks(model.token_ids, model.token_bytes)
    merges = set(map(tuple, model.merges.tolist()))
    for left, right, result in joins.tolist():
        if (left, right, result) not in merges:
            return (
                f"ranks would join {by_id[left]!r} and {by_id[right]!r} into id {result}, which is "
                "no merge of this tokenizer"
            )
    unreached = {i for i, token in by_id.items() if len(token) > 1}.difference(joins[:, 2].tolist())
    if unreached and not model.ignore_merges:
        token = by_id[min(unreached)]
        return (
            f"the bytes of id {min(unreached)}, {token!r}, do not merge into it; tiktoken would "
            "give that id to a pre-token of these bytes"
        )
    return None


def _reached_by_its_only_merge(model: TokenizerModel) -> bool:
    """Whether each token above a byte is made by one merge and by merging its own bytes.

    Then, results being in order of id, ranks mean the same. Of tokens in this order: as long as
    two parts of a token's bytes are joined into an earlier token, that is its only join and its
    only merge, in ranks and merges alike; so the last join is the token's own merge.
    """
    tokens = model.tokens
    longer = [(i, token) for i, token in tokens if len(token) > 1]
    if sorted(model.merges[:, 2].tolist()) != [i for i, _ in longer]:
        return False
    left, right, result = model.merges.astype(np.uint32).T.copy()
    encoder = Encoder(model.byte_ids, left, right, result, MAX_ID, None)
    data, offsets = concatenate([token for _, token in longer])
    no_specials = np.full(len(longer), -1, np.int64)
    ids, _ = encoder.encode_spans(data, offsets[:-1], offsets[1:], no_specials)
    return bool(np.array_equal(ids, [i for i, _ in longer]))


def merges_of_ranks(token_ids: NDArray[np.int64], tokens: pa.BinaryArray) -> NDArray[np.int64]:
    """The last join of each token that its own bytes reach, by rank.

    Args:
        token_ids: int64[n], ascending: ids, which are ranks.
        tokens: their bytes, n values.

    Returns:
        int64[m, 3], the ids of (left, right, token): the two parts into which
        `bpe_core.reference.apply_ranks` joins the token's bytes by the other ranks.

    Example:
        >>> tokens = pa.array([b"a", b"b", b"ab", b"abab", b"bb"], pa.binary())
        >>> merges_of_ranks(np.arange(5), tokens).tolist()
        [[0, 1, 2], [2, 2, 3], [1, 1, 4]]
    """
    left, right = last_joins(*concatenate(cast("list[bytes]", tokens.to_pylist())))
    reached = left >= 0
    return np.stack([token_ids[left[reached]], token_ids[right[reached]], token_ids[reached]], 1)


def _read_ranks(location: Location) -> tuple[NDArray[np.int64], pa.BinaryArray]:
    """The ranks, ascending, and the tokens that have them."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_bytes(location).split(b"\n"), 1):
        try:
            encoded, digits = line.split()
            token = binascii.a2b_base64(encoded, strict_mode=True)
            rank = int(digits) if digits.isdigit() else -1
        except ValueError:
            if not line.strip():
                continue
            token, rank = b"", -1
        if not token or not 0 <= rank <= MAX_ID:
            raise malformed(
                location, f"line {number}", "a token in base64, a space and its rank", quoted(line)
            )
        if len(token) > MAX_TOKEN_BYTES:
            raise malformed(
                location,
                f"line {number}",
                f"a token of at most {MAX_TOKEN_BYTES} bytes",
                f"one of {len(token)}",
            )
        if token in ranks:
            raise malformed(location, f"line {number}", "each token once", f"{quoted(token)} again")
        ranks[token] = rank
    if not ranks:
        raise malformed(location, "", "lines of a token in base64 and its rank", "none")
    ids = np.fromiter(ranks.values(), np.int64, len(ranks))
    order = np.argsort(ids, kind="stable")
    return ids[order], pa.array(ranks, pa.binary()).take(pa.array(order))
