"""tokenizer.tiktoken: one line per token, its bytes in base64 and its rank, which is its id.

tiktoken has no list of merges. It repeatedly joins the two neighbours whose joined bytes have the
lowest rank, at the leftmost such position; and a pre-token that has a rank becomes that token at
once. This module converts ranks to merges, and determines when merges are equivalent to ranks.

**Merges can express ranks.** Take any text and the moment when tiktoken joins `p` and `q` into `t`.
No earlier join crossed either end of this part of the text, and each join inside it was the lowest
and leftmost there. So they are the joins, in the same order, that the bytes of `t` alone go
through. There is only one such sequence, so there is one `(p, q)`: each token has at most one last
join, whatever text surrounds it. Therefore the merges `(p, q) -> t`, in order of rank, have the
same effect as the ranks; and other ways to split `t` that are listed with the same rank never
apply. A token that its own bytes do not merge into is never made by joining; tiktoken only gives it
to a pre-token of exactly its bytes (`ignore_merges`).

The same applies to merges by pairs: of several merges that make the same bytes only one ever
applies. So a tokenizer trained here, whose merges make each byte sequence from bytes that merge
into it, has ids that are the equivalent ranks; this is checked for every tokenizer, not assumed.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core._native import Encoder, last_joins, rank_lines
from bpe_core.buffers import flatten, lengths_of, to_arrow, to_binary
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
from bpe_core.model import MAX_ID, TokenizerModel, byte_ids_of
from bpe_core.patterns import pattern_of_tiktoken

# Joining takes time quadratic in the length of a token. The longest published one has 128 bytes.
MAX_TOKEN_BYTES = 4096


def read_tiktoken(
    location: Location, *, pattern: str, special_tokens: Mapping[str, int] | None = None
) -> TokenizerModel:
    """Read a .tiktoken file.

    Args:
        location: The file.
        pattern: A name in `bpe_core.PATTERNS`, or a regular expression; the file contains none.
        special_tokens: Text to id; the file contains none.

    Raises:
        FormatError: A line is not a token and a rank, or the tokens contradict each other.
        OSError: The file cannot be opened.
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
    """Return the tokenizer that is equivalent to ranks.

    Args:
        location: The file, for errors.
        token_ids: int64[n], ascending in the order of the ranks.
        tokens: The tokens' bytes, n values.
        pattern: A name in `bpe_core.PATTERNS`, or a regular expression.
        special_tokens: Text to id.

    Raises:
        FormatError: The tokens contradict each other.
    """
    merges = merges_of_ranks(token_ids, tokens)
    unreached = int(np.sum(lengths_of(tokens) > 1)) > len(merges)
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
    """Write a .tiktoken file of the ordinary tokens, lowest rank first.

    Raises:
        CannotHoldError: tiktoken would give other ids; the message contains the reason.
    """
    write_file(location, tiktoken_bytes(model))


def tiktoken_bytes(model: TokenizerModel) -> bytes:
    """Return the contents of tokenizer.tiktoken."""
    refuse_normalization(model)
    missing = np.flatnonzero(model.byte_ids < 0)
    if len(missing):
        raise CannotHoldError(
            f"the byte 0x{missing[0]:02X} has no id; tiktoken fails at a byte without a rank"
        )
    reason = why_not_ranks(model)
    if reason is not None:
        raise CannotHoldError(reason)
    return rank_lines(*flatten(model.token_bytes), model.token_ids)


def why_not_ranks(model: TokenizerModel) -> str | None:
    """Return the reason why ids are not equivalent ranks, or None if they are.

    They are if no two ids have the same bytes, the merges' results are in order of id, every last
    join of the ranks is among the merges, and each token is the result of merging its own bytes or
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
    longest = int(lengths_of(model.token_bytes).max(initial=0))
    if longest > MAX_TOKEN_BYTES:
        return f"a token has {longest} bytes; beyond {MAX_TOKEN_BYTES} it is not checked"
    if _reached_by_its_only_merge(model):
        return None
    joins = merges_of_ranks(model.token_ids, model.token_bytes)
    by_id = dict(model.tokens)
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
    """Return True if each longer token has one merge, and its own bytes merge into it.

    Then, if results are in order of id, ranks are equivalent. Proof by this order: as long as two
    parts of a token's bytes are joined into an earlier token, that is its only join and its only
    merge, for ranks and merges alike; so the last join is the token's own merge.
    """
    longer = model.token_ids[lengths_of(model.token_bytes) > 1]
    if not np.array_equal(np.sort(model.merges[:, 2]), longer):
        return False
    return makes_its_tokens(model.token_ids, model.token_bytes, model.merges)


def makes_its_tokens(
    token_ids: NDArray[np.int64], tokens: pa.BinaryArray, merges: NDArray[np.int64]
) -> bool:
    """Return True if the merges make each token from its own bytes."""
    left, right, result = merges.astype(np.uint32).T.copy()
    byte_ids = byte_ids_of(token_ids, tokens)
    encoder = Encoder(byte_ids, left, right, result, MAX_ID, None, cache_entries=1)
    return not encoder.set_whole_tokens(*flatten(tokens), token_ids.astype(np.uint32))


def merges_of_ranks(token_ids: NDArray[np.int64], tokens: pa.BinaryArray) -> NDArray[np.int64]:
    """Return the last join of each token that its own bytes merge into, by rank.

    Args:
        token_ids: int64[n], ascending: ids, which are ranks.
        tokens: The tokens' bytes, n values.

    Returns:
        int64[m, 3], the ids of (left, right, token): the two parts into which
        `bpe_core.reference.apply_ranks` joins the token's bytes by the other ranks.

    Example:
        >>> tokens = pa.array([b"a", b"b", b"ab", b"abab", b"bb"], pa.binary())
        >>> merges_of_ranks(np.arange(5), tokens).tolist()
        [[0, 1, 2], [2, 2, 3], [1, 1, 4]]
    """
    left, right = last_joins(*flatten(tokens))
    reached = left >= 0
    return np.stack([token_ids[left[reached]], token_ids[right[reached]], token_ids[reached]], 1)


def _read_ranks(location: Location) -> tuple[NDArray[np.int64], pa.BinaryArray]:
    """Return the ranks, ascending, and their tokens."""
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
    return ids[order], to_binary(list(ranks)).take(to_arrow(order))
