"""The algorithms in plain Python: to be read, and the oracle of the tests.

Every function here is slow and short. The native code must give the same results; where the two
differ, this module says what is meant. Read it from top to bottom:

1. documents: `split_documents`
2. pre-tokens: `split_special`, `split_pretokens`, `count_pretokens`
3. learning merges: `learn_merges` from bytes, `learn_symbol_merges` from any symbols, and all of
   training together: `build_vocab`, `train`
4. ids: `encode`, `encode_with_ranks`, `decode`
5. long documents: `cut_places`
6. rows for training: `best_fit_rows`

A token is represented by its bytes. That is enough, since there is one token per byte sequence;
ids exist only in a vocabulary. Special tokens are apart: text, with ids of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Literal, NamedTuple, TypeVar

import regex

from bpe_core.errors import SpecialTokenError, UnknownTokenError
from bpe_core.patterns import resolve_pattern

__all__ = [
    "LearnedMerges",
    "LearnedSymbols",
    "Pair",
    "TieBreak",
    "apply_merges",
    "apply_ranks",
    "best_fit_rows",
    "build_vocab",
    "count_pairs",
    "count_pretokens",
    "cut_places",
    "decode",
    "encode",
    "encode_with_ranks",
    "is_blank",
    "learn_merges",
    "learn_symbol_merges",
    "merge_pair",
    "printable_stand_ins",
    "split_documents",
    "split_pretokens",
    "split_special",
    "train",
]

Pair = tuple[bytes, bytes]
TieBreak = Literal["lexicographic", "first_id", "huggingface", "first_seen"]
StopReason = Literal["vocab_size_reached", "below_min_frequency", "no_pairs_left"]
AllowedSpecial = Literal["all", "none", "none_raise"] | Collection[str]
Token = TypeVar("Token", int, bytes)


# ---- documents


def split_documents(data: bytes, separator: bytes | Sequence[bytes]) -> list[bytes]:
    r"""The documents of a file: what stands between separators.

    What follows the last separator is a document only if it is not empty. Two separators in a row
    enclose an empty document, which is in the list.

    Args:
        data: the whole file.
        separator: one or several, of which the leftmost counts, at one place the longest. None is
            empty, and none ends as it or another begins, since where it stands would depend on
            where the search begins. One byte repeated is allowed, if no other separator holds that
            byte: it is matched from the start of its run.

    Raises:
        ValueError: separators that are empty or overlap.

    Example:
        >>> split_documents(b"one\n\ntwo\r\n", [b"\n", b"\r\n"])
        [b'one', b'', b'two']
    """
    separators = [separator] if isinstance(separator, bytes) else list(separator)
    if not separators or not all(separators) or _may_overlap(separators):
        raise ValueError(
            f"separator: expected bytes that cannot overlap themselves or each other, "
            f"found {separator!r}"
        )
    longest_first = sorted(separators, key=len, reverse=True)
    documents = regex.split(b"|".join(map(regex.escape, longest_first)), data)
    if not documents[-1]:
        documents.pop()
    return documents


def _may_overlap(separators: Sequence[bytes]) -> bool:
    for left, right in product(separators, repeat=2):
        is_run = len(set(left)) == 1
        if is_run and set(left) == set(right):
            continue
        if any(right.startswith(left[-n:]) for n in range(1, min(len(left), len(right)))):
            return True
        if is_run and len(left) > 1 and left[:1] in right:
            return True
    return False


# ---- pre-tokens


def split_special(text: str, special_tokens: Iterable[str]) -> list[tuple[str, bool]]:
    """Cuts text at its special tokens: the leftmost first, at one place the longest.

    Args:
        text: any text.
        special_tokens: none of them empty.

    Returns:
        The pieces in order, each with whether it is a special token. No piece is empty.

    Example:
        >>> split_special("a<s><s>b", ["<s>", "<s><s>"])
        [('a', False), ('<s><s>', True), ('b', False)]
    """
    longest_first = sorted(special_tokens, key=len, reverse=True)
    if not longest_first:
        return [(text, False)] if text else []
    either = "|".join(regex.escape(token) for token in longest_first)
    # With a group around the separator, split gives text, separator, text, ..., text.
    pieces = regex.split(f"({either})", text)
    return [(piece, i % 2 == 1) for i, piece in enumerate(pieces) if piece]


def split_pretokens(text: str, pattern: str) -> list[str]:
    """Splits text into the pre-tokens that merges never cross.

    Args:
        text: text without special tokens.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression of the `regex` module. Of a
            chain (`bpe_core.patterns`), each step splits what the one before it left.

    Returns:
        The matches and, between them, what the pattern leaves unmatched; joined, they are the text.
        Empty matches are ignored.

    Example:
        >>> split_pretokens("it's  here", "gpt2")
        ['it', "'s", ' ', ' here']
    """
    pieces = [text] if text else []
    for step in resolve_pattern(pattern).steps:
        pieces = [part for piece in pieces for part in _split(piece, step)]
    return pieces


def _split(text: str, expression: str) -> list[str]:
    pretokens = []
    end = 0
    for match in regex.finditer(expression, text):
        if match.end() == match.start():
            continue
        if match.start() > end:
            pretokens.append(text[end : match.start()])
        pretokens.append(match.group())
        end = match.end()
    if end < len(text):
        pretokens.append(text[end:])
    return pretokens


def count_pretokens(
    documents: Iterable[str], *, pattern: str = "gpt2", special_tokens: Collection[str] = ()
) -> dict[bytes, int]:
    """How often each pre-token occurs, in the order of first occurrence.

    Text is cut at special tokens, which are not counted.

    Example:
        >>> count_pretokens(["a a<s>a"], special_tokens=["<s>"])
        {b'a': 2, b' a': 1}
    """
    counts: Counter[bytes] = Counter()
    for document in documents:
        for piece, is_special in split_special(document, special_tokens):
            if not is_special:
                counts.update(word.encode() for word in split_pretokens(piece, pattern))
    return dict(counts)


# ---- learning merges


class LearnedMerges(NamedTuple):
    """What `learn_merges` found: merges in order, their pairs' counts, why it stopped."""

    merges: list[Pair]
    counts: list[int]
    stop_reason: StopReason


def learn_merges(
    words: Iterable[tuple[bytes, int]],
    num_tokens: int,
    *,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Collection[bytes] = (),
    forbid_whitespace_tokens: bool = False,
) -> LearnedMerges:
    """Byte-pair encoding: merges the most frequent pair of adjacent tokens, again and again.

    Every word starts as its single bytes. In each step all pairs are counted, overlapping ones too
    (`aaa` has (a, a) twice); then the best is merged in every word, left to right without overlap.

    Args:
        words: pre-tokens with their counts. Their order matters to `first_seen` alone.
        num_tokens: the number of tokens, bytes included, at which to stop.
        tie_break: which of equally frequent pairs is merged. `lexicographic`: the greatest (bytes
            of left, bytes of right). `first_id`: the one whose tokens were made first, left before
            right. `huggingface`: the same with single bytes first, in the order of
            `printable_stand_ins`. `first_seen`: the one that comes first in the words as they are.
        min_frequency: stop when the best pair is rarer. A pair of count 0 is never merged.
        max_token_bytes: pairs whose result would be longer are passed over.
        forbidden_tokens: pairs whose result would be one of these are passed over.
        forbid_whitespace_tokens: pairs whose result `is_blank` are passed over.

    Example:
        >>> learn_merges([(b"abab", 1), (b"b", 5)], 257).merges
        [(b'a', b'b')]

    Source: P. Gage, A New Algorithm for Data Compression, 1994; R. Sennrich, B. Haddow, A. Birch,
    Neural Machine Translation of Rare Words with Subword Units, 2016.
    """
    learned = learn_symbol_merges(
        [bytes([byte]) for byte in range(256)],
        words,
        num_tokens,
        tie_break=tie_break,
        min_frequency=min_frequency,
        max_token_bytes=max_token_bytes,
        forbidden_tokens=forbidden_tokens,
        forbid_whitespace_tokens=forbid_whitespace_tokens,
    )
    merges = [(learned.symbols[left], learned.symbols[right]) for left, right, _ in learned.merges]
    return LearnedMerges(merges, learned.counts, learned.stop_reason)


class LearnedSymbols(NamedTuple):
    """What `learn_symbol_merges` found: the bytes of all symbols, merges (left, right, result)."""

    symbols: list[bytes]
    merges: list[tuple[int, int, int]]
    counts: list[int]
    stop_reason: StopReason


def learn_symbol_merges(
    initial: Sequence[bytes],
    words: Iterable[tuple[Sequence[int], int]],
    num_symbols: int,
    *,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Collection[bytes] = (),
    forbid_whitespace_tokens: bool = False,
    always_new: bool = False,
) -> LearnedSymbols:
    """The same with any symbols in the place of the 256 bytes: characters, or tokens.

    Args:
        initial: the bytes of the symbols that there are, which are numbered from 0.
        words: each as the numbers of its symbols, with its count.
        num_symbols: the number of symbols at which to stop.
        always_new: a merge makes a symbol of its own. Otherwise a result whose bytes are a symbol
            already is that symbol (of several, the first), and the merge adds none.

    The other arguments are those of `learn_merges`.

    Example:
        >>> learn_symbol_merges([b"a", b"bc", b"abc"], [([0, 1], 2)], 4).merges
        [(0, 1, 2)]
        >>> learn_symbol_merges([b"a", b"bc", b"abc"], [([0, 1], 2)], 4, always_new=True).merges
        [(0, 1, 3)]
    """
    split_words = [(list(word), count) for word, count in words]
    symbols = list(initial)
    learned = LearnedSymbols(symbols, [], [], "vocab_size_reached")
    order = _pair_order(tie_break, symbols)

    def allowed(pair: tuple[int, int]) -> bool:
        made = symbols[pair[0]] + symbols[pair[1]]
        short = max_token_bytes is None or len(made) <= max_token_bytes
        blank = forbid_whitespace_tokens and is_blank(made)
        return short and not blank and made not in forbidden_tokens

    while len(symbols) < num_symbols:
        pairs = {pair: n for pair, n in count_pairs(split_words).items() if allowed(pair)}
        if not pairs:
            return learned._replace(stop_reason="no_pairs_left")
        most = max(pairs.values())
        if most < min_frequency:
            return learned._replace(stop_reason="below_min_frequency")
        left, right = max((pair for pair, n in pairs.items() if n == most), key=order)
        made = symbols[left] + symbols[right]
        if always_new or made not in symbols:
            symbols.append(made)
            result = len(symbols) - 1
        else:
            result = symbols.index(made)
        for word, _ in split_words:
            merge_pair(word, (left, right), result)
        learned.merges.append((left, right, result))
        learned.counts.append(most)
    return learned


def is_blank(token: bytes) -> bool:
    r"""Whether bytes are white space (White_Space) or control characters (Cc) alone.

    Bytes that are not whole UTF-8 characters are not blank.

    Example:
        >>> is_blank(b" \n"), is_blank(b" a"), is_blank("\u2003".encode()), is_blank(b"\xe2\x80")
        (True, False, True, False)
    """
    try:
        return regex.fullmatch(r"[\p{White_Space}\p{Cc}]+", token.decode()) is not None
    except UnicodeDecodeError:
        return False


def count_pairs(words: Iterable[tuple[Sequence[Token], int]]) -> dict[tuple[Token, Token], int]:
    """How often each pair of adjacent tokens occurs, in the order of first occurrence.

    Args:
        words: each as its tokens (their bytes or numbers), with its count.
    """
    counts: dict[tuple[Token, Token], int] = {}
    for word, count in words:
        for pair in pairwise(word):
            counts[pair] = counts.get(pair, 0) + count
    return counts


def merge_pair(word: list[Token], pair: tuple[Token, Token], result: Token) -> None:
    """Puts `result` in the place of a pair in a word, in place, left to right without overlap.

    Example:
        >>> word = [b"a", b"a", b"a"]
        >>> merge_pair(word, (b"a", b"a"), b"aa")
        >>> word
        [b'aa', b'a']
    """
    if pair[0] not in word:
        return
    i = 0
    while i + 1 < len(word):
        if (word[i], word[i + 1]) == pair:
            word[i : i + 2] = [result]
        i += 1


def printable_stand_ins() -> dict[int, str]:
    """The printable character that stands for each byte in GPT-2's vocabulary files.

    Bytes that Latin-1 prints stand for themselves, the others for U+0100 and on.

    Example:
        >>> printable_stand_ins()[ord(" ")]
        'Ġ'

    Source: `bytes_to_unicode` of https://github.com/openai/gpt-2, described in its paper, 2019.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1)]
    printable += range(ord("®"), ord("ÿ") + 1)
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {byte: chr(byte) for byte in printable}
    return stand_ins | {byte: chr(256 + i) for i, byte in enumerate(others)}


def _pair_order(tie_break: TieBreak, symbols: Sequence[bytes]) -> Callable[[tuple[int, int]], Any]:
    """Of equally frequent pairs, the first with the greatest value is merged."""
    if tie_break == "lexicographic":
        return lambda pair: (symbols[pair[0]], symbols[pair[1]], -pair[0], -pair[1])
    if tie_break == "first_seen":
        return lambda pair: 0
    if tie_break == "first_id":
        return lambda pair: (-pair[0], -pair[1])
    stand_ins = printable_stand_ins()
    in_order = sorted(range(256), key=lambda byte: stand_ins[byte])

    def place(symbol: int) -> int:
        token = symbols[symbol]
        return in_order.index(token[0]) if len(token) == 1 else 256 + symbol

    return lambda pair: (-place(pair[0]), -place(pair[1]), -pair[0], -pair[1])


def build_vocab(special_tokens: Iterable[str], merges: Iterable[Pair]) -> dict[int, bytes]:
    """The bytes of every id: special tokens first, then the 256 bytes, then merges in order.

    Merges that make bytes which have an id already get none. Special tokens are a space of their
    own: one may have the bytes of an ordinary token, and each keeps its id.

    Example:
        >>> vocab = build_vocab(["<s>"], [(b"a", b"b")])
        >>> vocab[0], vocab[1], vocab[257]
        (b'<s>', b'\\x00', b'ab')
    """
    ordinary = dict.fromkeys(bytes([byte]) for byte in range(256))
    ordinary |= dict.fromkeys(left + right for left, right in merges)
    return dict(enumerate([*(token.encode() for token in special_tokens), *ordinary]))


def train(
    documents: Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    *,
    pattern: str = "gpt2",
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
) -> tuple[dict[int, bytes], list[Pair]]:
    """A vocabulary and merges from text.

    Args:
        vocab_size: number of ids, special tokens and bytes included.

    The other arguments are those of `count_pretokens` and `learn_merges`.

    Example:
        >>> vocab, merges = train(["abab"], 258, ["<s>"])
        >>> merges
        [(b'a', b'b')]
    """
    counts = count_pretokens(documents, pattern=pattern, special_tokens=special_tokens)
    merges = learn_merges(
        counts.items(),
        vocab_size - len(special_tokens),
        tie_break=tie_break,
        min_frequency=min_frequency,
        max_token_bytes=max_token_bytes,
    ).merges
    return build_vocab(special_tokens, merges), merges


# ---- ids


def encode(
    text: str,
    vocab: Mapping[int, bytes],
    merges: Iterable[Pair],
    special_tokens: Mapping[str, int],
    *,
    pattern: str = "gpt2",
    allowed_special: AllowedSpecial = "all",
) -> list[int]:
    """Text to ids by merges.

    Args:
        text: any text.
        vocab: id to bytes.
        merges: in order of rank. Of a pair given twice the last place counts.
        special_tokens: text to id.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression.
        allowed_special: which special tokens in the text become their ids: "all", "none",
            "none_raise" (an error if there is one) or these; others are ordinary text.

    Raises:
        SpecialTokenError: a special token in the text, with "none_raise".
        UnknownTokenError: a byte without an id.
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return _encode(
        text,
        vocab,
        special_tokens,
        pattern,
        allowed_special,
        lambda pretoken: apply_merges(pretoken, ranks),
    )


def encode_with_ranks(
    text: str,
    ranks: Mapping[bytes, int],
    special_tokens: Mapping[str, int],
    *,
    pattern: str = "gpt2",
    allowed_special: AllowedSpecial = "all",
) -> list[int]:
    """Text to ids as tiktoken does it, by the ranks of tokens, which are their ids too.

    A pre-token that is a token is that token. Otherwise of all adjacent pairs the one whose bytes,
    joined, have the lowest rank is merged. Arguments and errors are those of `encode`.
    """
    return _encode(
        text,
        {rank: token for token, rank in ranks.items()},
        special_tokens,
        pattern,
        allowed_special,
        lambda pretoken: [pretoken] if pretoken in ranks else apply_ranks(pretoken, ranks),
    )


def apply_merges(pretoken: bytes, ranks: Mapping[Pair, int]) -> list[bytes]:
    """The tokens of a pre-token: as long as there is one, the pair of lowest rank is merged.

    If it stands in several places, the leftmost is merged, and then all pairs are looked at again.

    Args:
        pretoken: its bytes.
        ranks: the place of each merge.

    Example:
        >>> apply_merges(b"aab", {(b"a", b"b"): 0, (b"a", b"a"): 1})
        [b'a', b'ab']
    """
    return _merge_lowest(pretoken, ranks.get)


def apply_ranks(pretoken: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """Likewise, but the rank of a pair is that of the token which its bytes, joined, are.

    Args:
        pretoken: its bytes.
        ranks: the rank of each token.

    Example:
        >>> apply_ranks(b"aab", {b"a": 0, b"b": 1, b"ab": 2, b"aa": 3})
        [b'a', b'ab']
    """
    return _merge_lowest(pretoken, lambda pair: ranks.get(pair[0] + pair[1]))


def _merge_lowest(pretoken: bytes, rank_of: Callable[[Pair], int | None]) -> list[bytes]:
    word = [bytes([byte]) for byte in pretoken]
    while True:
        places = [
            (rank, i)
            for i, pair in enumerate(pairwise(word))
            if (rank := rank_of(pair)) is not None
        ]
        if not places:
            return word
        _, i = min(places)
        word[i : i + 2] = [word[i] + word[i + 1]]


def decode(ids: Iterable[int], vocab: Mapping[int, bytes], errors: str = "replace") -> str:
    """Ids to text; `errors` says what to do with bytes that are not UTF-8, as in `bytes.decode`.

    Args:
        ids: any ids, special tokens' too.
        vocab: id to bytes, special tokens' too.
        errors: "replace", "ignore" or "strict".

    Raises:
        UnknownTokenError: an id that is not in the vocabulary.
        UnicodeDecodeError: with "strict".
    """
    parts = []
    for token_id in ids:
        if token_id not in vocab:
            raise UnknownTokenError(f"expected an id of the vocabulary, found {token_id}")
        parts.append(vocab[token_id])
    return b"".join(parts).decode(errors=errors)


def _encode(
    text: str,
    vocab: Mapping[int, bytes],
    special_tokens: Mapping[str, int],
    pattern: str,
    allowed_special: AllowedSpecial,
    split: Callable[[bytes], list[bytes]],
) -> list[int]:
    special_ids = set(special_tokens.values())
    ids = {token: i for i, token in vocab.items() if i not in special_ids}
    found: list[int] = []
    for piece, is_special in split_special(text, _allowed(text, special_tokens, allowed_special)):
        if is_special:
            found.append(special_tokens[piece])
            continue
        for pretoken in split_pretokens(piece, pattern):
            for token in split(pretoken.encode()):
                if token not in ids:
                    raise UnknownTokenError(f"expected a token, found {token!r}, which has no id")
                found.append(ids[token])
    return found


def _allowed(
    text: str, special_tokens: Mapping[str, int], allowed_special: AllowedSpecial
) -> Collection[str]:
    if allowed_special == "all":
        return special_tokens
    if allowed_special == "none":
        return ()
    if allowed_special == "none_raise":
        for token in special_tokens:
            if token in text:
                raise SpecialTokenError(f"expected no special token in the text, found {token!r}")
        return ()
    return [token for token in special_tokens if token in allowed_special]


# ---- long documents


def cut_places(text: str, special_tokens: Collection[str] = ()) -> list[int]:
    """Where text may be cut so that its pieces have the same pre-tokens as the whole.

    After a letter and before a character that is no letter, no mark and no apostrophe, unless a
    special token spans the place. There every named pattern but `none` has a boundary.

    Returns:
        Indices of characters, ascending; a piece may begin at each.

    Example:
        >>> cut_places("it's here, now")
        [4, 9]
    """
    places = []
    start = 0
    for piece, is_special in split_special(text, special_tokens):
        end = start + len(piece)
        for i in range(max(start, 1), end):
            inside = is_special and i > start
            if not inside and regex.match(r"\p{L}[^\p{L}\p{M}']", text[i - 1 : i + 1]):
                places.append(i)
        start = end
    return places


# ---- rows for training


def best_fit_rows(lengths: Sequence[int], capacity: int) -> list[int]:
    """Which pieces of documents share a row, so that few rows are needed: best fit decreasing.

    The pieces from the longest to the shortest, equally long ones in their order. Each goes into
    the row with the least room that it fits into, of several the one that was begun first; where
    it fits into none, it begins a row. In the end rows are numbered by their first piece.

    Source: D. S. Johnson, Near-Optimal Bin Packing Algorithms, 1973.

    Args:
        lengths: of the pieces, from 1 to the capacity.
        capacity: of a row.

    Returns:
        The row of each piece.

    Example:
        >>> best_fit_rows([3, 6, 5, 2], 8)
        [0, 1, 0, 1]
    """
    rooms: list[int] = []
    row_of = [0] * len(lengths)
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = [(room, row) for row, room in enumerate(rooms) if room >= lengths[i]]
        if not fitting:
            rooms.append(capacity)
        row_of[i] = min(fitting)[1] if fitting else len(rooms) - 1
        rooms[row_of[i]] -= lengths[i]
    numbers: dict[int, int] = {}
    return [numbers.setdefault(row, len(numbers)) for row in row_of]
