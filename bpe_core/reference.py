"""The algorithms in plain Python, to read and to test against.

Every function here is slow and short. The native code must give the same results; if the two
differ, this module defines the correct result. Read it from top to bottom:

1. documents: `split_documents`
2. pre-tokens: `split_special`, `split_pretokens`, `count_pretokens`
3. learning merges: `learn_merges` from bytes, `learn_symbol_merges` from any symbols, and the
   complete training: `build_vocab`, `train`; for equal compression of several groups of text,
   `learn_parity_merges`; learning on across words: `superword_runs`, `count_superwords`,
   `learn_superwords`
4. ids: `encode`, `encode_with_ranks`, `decode`
5. merged characters, as in SentencePiece's BPE: `train_characters`, `merges_of_tokens`,
   `encode_characters`
6. the same text at another size of the vocabulary: `use_at_size`
7. long documents: `cut_places`, `cut_places_of_vocabulary`
8. rows for training: `best_fit_rows`

A token is represented by its bytes. That is enough because no two tokens have the same bytes; ids
exist only in a vocabulary. Special tokens are separate: they are text and have their own ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby, pairwise, product
from typing import Any, Literal, NamedTuple, TypeVar

import regex

from bpe_core.characters import SPACE_SIGN, CharacterRules
from bpe_core.errors import SpecialTokenError, UnknownTokenError
from bpe_core.patterns import resolve_pattern, superword_pattern

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
    "count_superwords",
    "cut_places",
    "cut_places_of_vocabulary",
    "decode",
    "encode",
    "encode_characters",
    "encode_with_ranks",
    "is_blank",
    "learn_merges",
    "learn_parity_merges",
    "learn_superwords",
    "learn_symbol_merges",
    "merge_pair",
    "merges_of_tokens",
    "printable_stand_ins",
    "prune_merges",
    "required_merges",
    "split_documents",
    "split_pretokens",
    "split_special",
    "superword_runs",
    "train",
    "train_characters",
    "use_at_size",
]

Pair = tuple[bytes, bytes]
TieBreak = Literal["lexicographic", "first_id", "huggingface", "first_seen"]
StopReason = Literal["vocab_size_reached", "below_min_frequency", "no_pairs_left"]
AllowedSpecial = Literal["all", "none", "none_raise"] | Collection[str]
Token = TypeVar("Token", int, bytes)
G = TypeVar("G")


# ---- documents


def split_documents(data: bytes, separator: bytes | Sequence[bytes]) -> list[bytes]:
    r"""Split a file into its documents.

    The text after the last separator is a document only if it is not empty. Two adjacent separators
    enclose an empty document, which is part of the result.

    Args:
        data: The whole file.
        separator: One or several separators. The leftmost match wins; of several that start at the
            same position, the longest. A separator must not be empty, and must not end with the
            start of itself or of another one, because matches would then depend on where the search
            starts. One repeated byte is allowed if no other separator contains that byte: it is
            matched from the start of its run.

    Raises:
        ValueError: A separator is empty, or separators overlap.

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
    """Cut text at its special tokens: the leftmost first; at the same position, the longest.

    Args:
        text: Any text.
        special_tokens: The special tokens, none of them empty.

    Returns:
        The parts in order, each with True if it is a special token. No part is empty.

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
    """Split text into pre-tokens. Merges never cross the boundary between two pre-tokens.

    Args:
        text: Text without special tokens.
        pattern: A name in `bpe_core.PATTERNS`, or a regular expression of the `regex` module. A
            chain (`bpe_core.patterns`) has several steps; each splits the results of the previous
            one.

    Returns:
        The matches of the pattern and the unmatched text between them, in order. Joined, they are
        the text. An empty match cuts the text at its place, unless another match just ended there.

    Example:
        >>> split_pretokens("it's  here", "gpt2")
        ['it', "'s", ' ', ' here']
    """
    pieces = [text] if text else []
    for step in resolve_pattern(pattern).steps:
        pieces = [part for piece in pieces for part in _split(piece, step.regex)]
    return pieces


def _split(text: str, expression: str) -> list[str]:
    pretokens = []
    end = at = 0
    while at <= len(text) and (match := regex.search(expression, text, pos=at)):
        if match.start() == match.end() == end:
            at += 1
            continue
        pretokens += [text[end : match.start()], match.group()]
        end = at = match.end()
    return [pretoken for pretoken in [*pretokens, text[end:]] if pretoken]


def count_pretokens(
    documents: Iterable[str], *, pattern: str = "gpt2", special_tokens: Collection[str] = ()
) -> dict[bytes, int]:
    """Count how often each pre-token occurs, in the order of first occurrence.

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


def count_groups(
    documents: Iterable[tuple[G, str]],
    *,
    pattern: str = "gpt2",
    special_tokens: Collection[str] = (),
) -> dict[bytes, dict[G, tuple[int, int]]]:
    """Count how often each pre-token occurs in each group, and in how many of its documents.

    Example:
        >>> count_groups([("books", "a a"), ("web", "a"), ("web", "a")])[b"a"]
        {'books': (1, 1), 'web': (2, 2)}
    """
    groups: dict[bytes, dict[G, tuple[int, int]]] = {}
    for group, document in documents:
        found = count_pretokens([document], pattern=pattern, special_tokens=special_tokens)
        for word, number in found.items():
            count, with_it = groups.setdefault(word, {}).get(group, (0, 0))
            groups[word][group] = (count + number, with_it + 1)
    return groups


def subtract_counts(counts: Mapping[bytes, int], part: Mapping[bytes, int]) -> dict[bytes, int]:
    """Subtract counts that are a part of others. What becomes 0 is left out.

    Example:
        >>> subtract_counts({b"low": 5, b"new": 1}, {b"low": 2, b"new": 1})
        {b'low': 3}
    """
    left = {key: counts.get(key, 0) - part.get(key, 0) for key in {**counts, **part}}
    if any(count < 0 for count in left.values()):
        raise ValueError("these counts are not a part of the others")
    return {key: count for key, count in left.items() if count}


def scale_counts(counts: Mapping[bytes, int], factor: Fraction) -> dict[bytes, int]:
    """Multiply counts by a fraction, rounded, halves to even. What becomes 0 is left out.

    Example:
        >>> scale_counts({b"low": 5, b"new": 1}, Fraction(1, 2))
        {b'low': 2}
    """
    scaled = {key: round(count * factor) for key, count in counts.items()}
    return {key: count for key, count in scaled.items() if count}


def most_frequent(counts: Mapping[bytes, int], number: int) -> list[tuple[bytes, int]]:
    """Return the pre-tokens with the highest counts, in descending order; ties by bytes.

    Example:
        >>> most_frequent({b"low": 5, b"new": 2, b"lower": 2}, 2)
        [(b'low', 5), (b'lower', 2)]
    """
    return sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:number]


# ---- learning merges


class LearnedMerges(NamedTuple):
    """Result of `learn_merges`: merges in order, the counts of their pairs, and why it stopped."""

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
    """Learn byte-pair encoding: merge the most frequent pair of adjacent tokens, repeatedly.

    At first, each byte of a word is a token. Each step counts all pairs of adjacent tokens,
    including overlapping ones (`aaa` contains (a, a) twice). Then it merges the most frequent pair
    in every word, from left to right and without overlap.

    Args:
        words: Pre-tokens with their counts. Their order only matters for `first_seen`.
        num_tokens: The number of tokens, including the 256 bytes, at which to stop.
        tie_break: The choice among equally frequent pairs. `lexicographic`: the greatest (bytes of
            left, bytes of right). `first_id`: the pair whose left token was created first; of
            several, whose right token was. `huggingface`: the same, except that single bytes are in
            the order of `printable_stand_ins`. `first_seen`: the pair that occurs first in the
            words as merged so far.
        min_frequency: Stop when the most frequent pair occurs less often. A pair with the count 0
            is never merged.
        max_token_bytes: Skip pairs whose result would be longer.
        forbidden_tokens: Skip pairs whose result would be one of these.
        forbid_whitespace_tokens: Skip pairs whose result `is_blank`.

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
    """Result of `learn_symbol_merges`: bytes of all symbols, and merges (left, right, result)."""

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
    max_initial_symbols: int | None = None,
) -> LearnedSymbols:
    """Learn merges from any initial symbols, such as characters or tokens, instead of bytes.

    Args:
        initial: The bytes of the initial symbols, which are numbered from 0.
        words: Each word as the numbers of its symbols, with its count.
        num_symbols: The number of symbols at which to stop.
        always_new: If true, every merge creates a new symbol. Otherwise, if the bytes of the result
            already are a symbol, the result is that symbol (of several, the first), and the number
            of symbols does not grow.
        max_initial_symbols: Skip pairs whose result would consist of more initial symbols.

    The other arguments are those of `learn_merges`.

    Example:
        >>> learn_symbol_merges([b"a", b"bc", b"abc"], [([0, 1], 2)], 4).merges
        [(0, 1, 2)]
        >>> learn_symbol_merges([b"a", b"bc", b"abc"], [([0, 1], 2)], 4, always_new=True).merges
        [(0, 1, 3)]
    """
    split_words = [(list(word), count) for word, count in words]
    symbols = list(initial)
    sizes = [1] * len(symbols)  # in initial symbols
    learned = LearnedSymbols(symbols, [], [], "vocab_size_reached")
    order = _pair_order(tie_break, symbols)

    def allowed(pair: tuple[int, int]) -> bool:
        made = symbols[pair[0]] + symbols[pair[1]]
        short = max_token_bytes is None or len(made) <= max_token_bytes
        blank = forbid_whitespace_tokens and is_blank(made)
        if max_initial_symbols is not None:
            short = short and sizes[pair[0]] + sizes[pair[1]] <= max_initial_symbols
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
            sizes.append(sizes[left] + sizes[right])
            result = len(symbols) - 1
        else:
            result = symbols.index(made)
        for word, _ in split_words:
            merge_pair(word, (left, right), result)
        learned.merges.append((left, right, result))
        learned.counts.append(most)
    return learned


def learn_parity_merges(
    words: Iterable[tuple[bytes, Sequence[int]]],
    num_tokens: int,
    *,
    ratios: Sequence[float] = (),
    development: Iterable[tuple[bytes, Sequence[int]]] = (),
    global_merges: int = 0,
    window_size: int = 0,
    alpha: float = 2.0,
    tie_break: Literal["lexicographic", "first_id", "huggingface"] = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Collection[bytes] = (),
) -> LearnedMerges:
    """Learn merges that compress several groups of text, such as languages, equally well.

    Each step chooses the group that is compressed least and merges the most frequent pair of this
    group, in the words of all groups. The compression of a group is its number of bytes divided by
    its number of tokens. A group without a pair to merge is not chosen again.

    Args:
        words: Pre-tokens with their counts, one for each group.
        num_tokens: The number of tokens, including the 256 bytes, at which to stop.
        ratios: By group, the intended compression, of which only the proportions matter: the
            compression of a group is divided by its ratio.
        development: Without ratios: parallel text, the same in each group, with counts as `words`.
            The group with the most tokens in its text is compressed least. Nothing is learned from
            this text.
        global_merges: The first merges are those of the most frequent pairs of all groups together.
        window_size: If not 0, a group is passed over while more than `alpha / groups` of the last
            `window_size` choices were this group. If all are passed over, the last one is chosen.
        alpha: See `window_size`.
        tie_break: The choice among equally frequent pairs, as in `learn_merges`, except that
            `huggingface` is the greatest pair of texts, written with `printable_stand_ins`.
        min_frequency: Of a pair, in the chosen group.

    The other arguments are those of `learn_merges`. The counts of the result are sums of all
    groups.

    Example:
        >>> learn_parity_merges([(b"aab", (9, 0)), (b"cde", (0, 1))], 258, ratios=(1, 1)).merges
        [(b'a', b'b'), (b'd', b'e')]

    Source: N. Foroutan et al., Parity-Aware Byte-Pair Encoding: Improving Cross-lingual Fairness in
    Tokenization, arXiv 2508.04796, 2025.
    """
    learned_from = [([*word], tuple(counts)) for word, counts in words]
    measured_by = learned_from if ratios else [([*word], tuple(n)) for word, n in development]
    num_groups = max((len(counts) for _, counts in learned_from), default=0)
    symbols = [bytes([byte]) for byte in range(256)]
    learned = LearnedMerges([], [], "vocab_size_reached")
    stand_ins = printable_stand_ins()

    def order(pair: tuple[int, int]) -> Any:
        if tie_break == "huggingface":
            return ["".join(stand_ins[byte] for byte in symbols[side]) for side in pair]
        return _pair_order(tie_break, symbols)(pair)

    def allowed(pair: tuple[int, int]) -> bool:
        made = symbols[pair[0]] + symbols[pair[1]]
        short = max_token_bytes is None or len(made) <= max_token_bytes
        return short and made not in forbidden_tokens

    def count(group: int | None) -> dict[tuple[int, int], int]:
        counted = [(word, sum(n) if group is None else n[group]) for word, n in learned_from]
        return {pair: n for pair, n in count_pairs(counted).items() if n and allowed(pair)}

    def find_best(group: int | None) -> tuple[int, int] | None:
        pairs = count(group)
        most = max(pairs.values(), default=0)
        if most < max(min_frequency, 1):
            return None
        return max((pair for pair, n in pairs.items() if n == most), key=order)

    def measure(group: int) -> int:
        return sum(len(word) * counts[group] for word, counts in measured_by)

    lengths = [measure(group) for group in range(num_groups)]
    left = [group for group in range(num_groups) if lengths[group] or not ratios]
    recent: list[int] = []

    def by_compression(group: int) -> float:
        return lengths[group] / measure(group) / ratios[group] if ratios else -measure(group)

    def choose_group() -> int:
        group = left[0]
        for group in sorted(left, key=by_compression):
            if not window_size or recent.count(group) / window_size <= alpha / num_groups:
                break
        recent.append(group)
        del recent[:-window_size]
        return group

    while len(symbols) < num_tokens:
        best = None
        if len(learned.merges) < global_merges:
            best = find_best(None)
        else:
            while left and best is None:
                group = choose_group()
                best = find_best(group)
                if best is None:
                    left.remove(group)
        if best is None:
            reason: StopReason = "below_min_frequency" if count(None) else "no_pairs_left"
            return learned._replace(stop_reason=reason)
        symbols.append(symbols[best[0]] + symbols[best[1]])
        learned.merges.append((symbols[best[0]], symbols[best[1]]))
        learned.counts.append(count(None)[best])
        for word, _ in learned_from:
            merge_pair(word, best, len(symbols) - 1)
        for word, _ in measured_by if not ratios else ():
            merge_pair(word, best, len(symbols) - 1)
    return learned


def superword_runs(
    text: str, tokens: Collection[bytes], pattern: str, most_words: int
) -> list[list[bytes]]:
    """Return the runs of a text from which superwords are learned.

    A run is consecutive words between which `superword_pattern` does not split, each of which is a
    token. Runs are cut from the left into pieces of at most `most_words`; of one word there is
    nothing to learn.

    Args:
        text: Text without special tokens.
        tokens: The pre-tokens that the trained tokenizer encodes as one token.
        pattern: The pattern of the trained tokenizer.
        most_words: The number of words in a piece.

    Example:
        >>> superword_runs("one of the best, by far", {b"one", b" of", b" the", b" far"}, "gpt2", 2)
        [[b'one', b' of']]
    """
    pieces = []
    for chunk in split_pretokens(text, superword_pattern(pattern)):
        words = [word.encode() for word in split_pretokens(chunk, pattern)]
        for is_token, group in groupby(words, tokens.__contains__):
            run = list(group) if is_token else []
            pieces += [run[i : i + most_words] for i in range(0, len(run), most_words)]
    return [piece for piece in pieces if len(piece) > 1]


def count_superwords(
    documents: Iterable[str],
    merges: Sequence[Pair],
    *,
    pattern: str = "gpt2",
    special_tokens: Iterable[str] = (),
    most_words: int,
) -> Counter[tuple[bytes, ...]]:
    """Count the runs of documents that were trained with these merges; see `superword_runs`."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    made = {bytes([byte]) for byte in range(256)} | {left + right for left, right in merges}
    tokens = {token for token in made if apply_merges(token, ranks) == [token]}
    counts: Counter[tuple[bytes, ...]] = Counter()
    for document in documents:
        for part, is_special in split_special(document, special_tokens):
            if not is_special:
                counts.update(map(tuple, superword_runs(part, tokens, pattern, most_words)))
    return counts


def learn_superwords(
    runs: Mapping[tuple[bytes, ...], int],
    merges: Sequence[Pair],
    num_tokens: int,
    *,
    max_words: int,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
) -> LearnedMerges:
    """Learn merges that join whole words, after `merges`, which made the words.

    A pair is skipped if it would join more than `max_words` words, or if its bytes already are a
    token of the first training, as these come first.

    Args:
        runs: Counted runs of `count_superwords`.
        merges: The merges of the first training.
        num_tokens: The number of tokens at which to stop: 256 bytes, first and new ones.
        max_words: The number of words in a token.
        tie_break, min_frequency: See `learn_merges`.

    Returns:
        The new merges.
    """
    tokens = list(build_vocab((), merges).values())
    numbers = {token: number for number, token in enumerate(tokens)}
    learned = learn_symbol_merges(
        tokens,
        [([numbers[word] for word in run], count) for run, count in runs.items()],
        num_tokens,
        tie_break=tie_break,
        min_frequency=min_frequency,
        forbidden_tokens=set(tokens),
        max_initial_symbols=max_words,
    )
    pairs = [(learned.symbols[left], learned.symbols[right]) for left, right, _ in learned.merges]
    return LearnedMerges(pairs, learned.counts, learned.stop_reason)


def is_blank(token: bytes) -> bool:
    r"""Return True if all characters are whitespace (White_Space) or control characters (Cc).

    Bytes that are not complete UTF-8 characters are not blank.

    Example:
        >>> is_blank(b" \n"), is_blank(b" a"), is_blank("\u2003".encode()), is_blank(b"\xe2\x80")
        (True, False, True, False)
    """
    try:
        return regex.fullmatch(r"[\p{White_Space}\p{Cc}]+", token.decode()) is not None
    except UnicodeDecodeError:
        return False


def count_pairs(words: Iterable[tuple[Sequence[Token], int]]) -> dict[tuple[Token, Token], int]:
    """Count how often each pair of adjacent tokens occurs, in the order of first occurrence.

    Args:
        words: Each word as its tokens (their bytes or numbers), with its count.
    """
    counts: dict[tuple[Token, Token], int] = {}
    for word, count in words:
        for pair in pairwise(word):
            counts[pair] = counts.get(pair, 0) + count
    return counts


def merge_pair(word: list[Token], pair: tuple[Token, Token], result: Token) -> None:
    """Replace a pair by `result` in a word, in place, from left to right and without overlap.

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
    """Return the printable character that represents each byte in GPT-2's vocabulary files.

    A byte that is a printable character in Latin-1 is represented by that character; the others are
    represented by U+0100, U+0101, and so on.

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
    """Return a sort key: of equally frequent pairs, the first with the greatest key is merged."""
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
    """Return the bytes of every id: special tokens first, then the 256 bytes, then merges in order.

    A merge whose bytes already have an id gets no new one. Special tokens are separate: one may
    have the same bytes as an ordinary token, and each keeps its id.

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
    """Train a vocabulary and merges on text.

    Args:
        vocab_size: The number of ids, including special tokens and bytes.

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
    """Encode text by merges.

    Args:
        text: Any text.
        vocab: Id to bytes.
        merges: Merges in order of rank. Of a pair that occurs twice, the last rank counts.
        special_tokens: Text to id.
        pattern: A name in `bpe_core.PATTERNS`, or a regular expression.
        allowed_special: The special tokens that are replaced by their ids: "all", "none", or a
            collection of them; others are ordinary text. "none_raise": none, and a special token in
            the text is an error.

    Raises:
        SpecialTokenError: The text contains a special token, with "none_raise".
        UnknownTokenError: A byte has no id.
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
    """Encode text like tiktoken, by the ranks of tokens, which are also their ids.

    A pre-token that is a token becomes that token. Otherwise, the adjacent pair whose joined bytes
    have the lowest rank is merged, repeatedly. Arguments and errors are those of `encode`.
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
    """Return the tokens of a pre-token: merge the pair with the lowest rank until none has a rank.

    If the pair occurs several times, only the leftmost occurrence is merged before all pairs are
    compared again.

    Args:
        pretoken: The bytes of the pre-token.
        ranks: The rank of each merge.

    Example:
        >>> apply_merges(b"aab", {(b"a", b"b"): 0, (b"a", b"a"): 1})
        [b'a', b'ab']
    """
    return _merge_lowest([bytes([byte]) for byte in pretoken], ranks.get)


def apply_ranks(pretoken: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """Return the tokens of a pre-token like `apply_merges`, with ranks of tokens.

    The rank of a pair is the rank of the token that consists of its joined bytes.

    Args:
        pretoken: The bytes of the pre-token.
        ranks: The rank of each token.

    Example:
        >>> apply_ranks(b"aab", {b"a": 0, b"b": 1, b"ab": 2, b"aa": 3})
        [b'a', b'ab']
    """
    word = [bytes([byte]) for byte in pretoken]
    return _merge_lowest(word, lambda pair: ranks.get(pair[0] + pair[1]))


def _merge_lowest(word: list[bytes], rank_of: Callable[[Pair], int | None]) -> list[bytes]:
    while _merge_lowest_once(word, rank_of) is not None:
        pass
    return word


def _merge_lowest_once(word: list[bytes], rank_of: Callable[[Pair], int | None]) -> bytes | None:
    """Merge the leftmost pair of the lowest rank; return the result, None if no pair has a rank."""
    places = [
        (rank, i) for i, pair in enumerate(pairwise(word)) if (rank := rank_of(pair)) is not None
    ]
    if not places:
        return None
    _, i = min(places)
    word[i : i + 2] = [word[i] + word[i + 1]]
    return word[i]


def prune_merges(merges: Sequence[Pair], kept: Collection[bytes]) -> list[Pair]:
    """Return the merges of a tokenizer that keeps some of its tokens.

    A token keeps the tokens that the merges of its own bytes make on the way to it. The merges
    between tokens that are left stay, in their order.

    Args:
        merges: Merges in order of rank.
        kept: Tokens to keep; single bytes always stay.

    Example:
        >>> prune_merges([(b"a", b"b"), (b"b", b"c"), (b"ab", b"c")], {b"abc"})
        [(b'a', b'b'), (b'ab', b'c')]
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    left = {bytes([byte]) for byte in range(256)} | set(kept)
    for token in kept:
        made: set[bytes] = set()
        word = [bytes([byte]) for byte in token]
        while (step := _merge_lowest_once(word, ranks.get)) is not None:
            made.add(step)
        if word == [token]:
            left |= made
    return [pair for pair in merges if {*pair, b"".join(pair)} <= left]


def required_merges(
    merges: Sequence[Pair], required: Iterable[bytes], forbidden: Collection[bytes] = ()
) -> list[Pair]:
    """Return the merges that make required tokens, to be added after the others.

    As long as a required token is several tokens, the first two of them are merged that make
    neither an existing nor a forbidden token.

    Args:
        merges: Merges in order of rank.
        required: Tokens, in order.
        forbidden: Tokens that no merge may make.

    Raises:
        ValueError: Any two tokens of a required one make an existing or a forbidden token.

    Example:
        >>> required_merges([(b"a", b"b")], [b"abab", b"abc"])
        [(b'ab', b'ab'), (b'ab', b'c')]
    """
    added: list[Pair] = []
    for token in required:
        while True:
            ranks = {pair: rank for rank, pair in enumerate([*merges, *added])}
            word = apply_merges(token, ranks)
            if len(word) == 1:
                break
            known = {left + right for left, right in ranks} | set(forbidden)
            pairs = [pair for pair in pairwise(word) if b"".join(pair) not in known]
            if not pairs:
                raise ValueError(f"{token!r} cannot be made")
            added.append(pairs[0])
    return added


def decode(ids: Iterable[int], vocab: Mapping[int, bytes], errors: str = "replace") -> str:
    """Decode ids to text.

    Args:
        ids: Any ids, including those of special tokens.
        vocab: Id to bytes, including special tokens.
        errors: The treatment of bytes that are not UTF-8, as in `bytes.decode`: "replace", "ignore"
            or "strict".

    Raises:
        UnknownTokenError: An id is not in the vocabulary.
        UnicodeDecodeError: The bytes are not UTF-8, with "strict".
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


# ---- merged characters


def train_characters(
    counts: Mapping[bytes, int],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    *,
    unk_token: str = "<unk>",
    byte_fallback: bool = True,
    character_coverage: float = 1.0,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
) -> tuple[dict[int, bytes], list[Pair]]:
    """Train a vocabulary and merges of characters, as in SentencePiece's BPE.

    Ids: special tokens, the unknown token, the 256 bytes if there is `byte_fallback`, characters by
    code point, merged tokens in the order of learning.

    Args:
        counts: Pre-tokens with their counts. A space is a character like others.
        vocab_size: The number of ids.
        special_tokens: Texts that become their ids in text.
        unk_token: The text of the unknown token.
        byte_fallback: Characters without a token become the tokens of their bytes.
        character_coverage: The share of all counted characters that get tokens, most frequent
            first; of equally frequent ones, the first by code point.

    The other arguments are those of `learn_symbol_merges`.

    Example:
        >>> vocab, merges = train_characters({b" ab": 2}, 6, byte_fallback=False)
        >>> vocab
        {0: b'<unk>', 1: b' ', 2: b'a', 3: b'b', 4: b'ab', 5: b' ab'}
        >>> merges
        [(b'a', b'b'), (b' ', b'ab')]
    """
    reserved = [*special_tokens, unk_token]
    words = [
        (pretoken.decode().replace(SPACE_SIGN, " "), count) for pretoken, count in counts.items()
    ]
    frequencies: Counter[str] = Counter()
    for word, count in words:
        for character in word:
            if character not in reserved:
                frequencies[character] += count
    characters = sorted(_most_frequent(frequencies, character_coverage))
    number_of = {character: number for number, character in enumerate(characters)}
    # Nothing merges with a character that has no token: it ends a part of a word.
    parts = [
        ([number_of[character] for character in part], count)
        for word, count in words
        for is_known, part in groupby(word, number_of.__contains__)
        if is_known
    ]
    before = [token.encode() for token in reserved]
    if byte_fallback:
        before += [bytes([byte]) for byte in range(256)]
    learned = learn_symbol_merges(
        [character.encode() for character in characters],
        parts,
        vocab_size - len(before),
        tie_break=tie_break,
        min_frequency=min_frequency,
        max_token_bytes=max_token_bytes,
        forbidden_tokens=[token.encode() for token in reserved],
    )
    vocab = dict(enumerate([*before, *learned.symbols]))
    return vocab, merges_of_tokens(learned.symbols[len(characters) :])


def _most_frequent(frequencies: Mapping[str, int], coverage: float) -> list[str]:
    """Return the most frequent characters that make up this share of the text."""
    kept: list[str] = []
    covered = 0
    for character in sorted(frequencies, key=lambda c: (-frequencies[c], c)):
        if coverage < 1 and covered >= coverage * sum(frequencies.values()):
            break
        kept.append(character)
        covered += frequencies[character]
    return kept


def merges_of_tokens(tokens: Sequence[bytes]) -> list[Pair]:
    """Return the merges that make tokens of several characters, the best token first.

    Files of SentencePiece list no merges, only tokens in their order: it joins the two adjacent
    tokens that make the best token. A token is made by the pair that is left when its characters
    have been joined by all better tokens; one of which more is left is never made.

    Example:
        >>> merges_of_tokens([b"ab", b"abc", b"xyz"])
        [(b'a', b'b'), (b'ab', b'c')]
    """
    merges = []
    ranks: dict[bytes, int] = {}
    for rank, token in enumerate(tokens):
        characters = [character.encode() for character in token.decode()]
        left = _merge_lowest(characters, lambda pair: ranks.get(pair[0] + pair[1]))
        if len(left) == 2:
            merges.append((left[0], left[1]))
        ranks[token] = rank
    return merges


def encode_characters(
    text: str,
    vocab: Mapping[int, bytes],
    merges: Iterable[Pair],
    special_tokens: Mapping[str, int],
    rules: CharacterRules,
    *,
    unknown_id: int | None = None,
    allowed_special: AllowedSpecial = "all",
) -> list[int]:
    """Encode text by merges of characters.

    Text between special tokens is a segment, which may get a space in front. The sign U+2581 is a
    space too. Characters are merged by rank, like the bytes of a pre-token. A character that the
    vocabulary lacks becomes the tokens of its bytes, or the unknown token.

    Args:
        vocab: Id to bytes, of special tokens only if text is merged into them too.
        rules: How spaces and unknown characters are treated.
        unknown_id: The id for characters that the vocabulary lacks, if there are no tokens for
            bytes.

    The other arguments are those of `encode`.
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    ids = {token: i for i, token in vocab.items() if i not in rules.byte_ids}
    allowed = set(_allowed(text, special_tokens, allowed_special))
    if allowed_special == "all":
        allowed -= rules.hidden_tokens
    found: list[int] = []
    for position, (piece, is_special) in enumerate(_segments(text, allowed)):
        if is_special:
            found.append(special_tokens[piece])
            continue
        segment = _with_space(piece, rules, at_start=position == 0).replace(SPACE_SIGN, " ")
        pretokens = regex.findall(" [^ ]*|[^ ]+", segment) if rules.split_spaces else [segment]
        is_unknown = False  # of the last character
        for pretoken in pretokens:
            for token in _merge_lowest([c.encode() for c in pretoken], ranks.get):
                if token in ids:
                    found.append(ids[token])
                elif rules.byte_ids:
                    found += [rules.byte_ids[byte] for byte in token]
                elif unknown_id is None:
                    raise UnknownTokenError(f"expected a token, found {token!r}, which has no id")
                elif not (is_unknown and rules.fuse_unknown):
                    found.append(unknown_id)
                is_unknown = token not in ids
    return found


def _segments(text: str, special_tokens: Iterable[str]) -> list[tuple[str, bool]]:
    """Return the parts of `split_special`, with an empty segment before a token at the start."""
    parts = split_special(text, special_tokens)
    return [("", False), *parts] if parts and parts[0][1] else parts


def _with_space(segment: str, rules: CharacterRules, *, at_start: bool) -> str:
    """Return a segment with the space that the rules put in front."""
    if rules.prefix == "never" or not (at_start or rules.prefix == "always"):
        return segment
    if not segment:
        return " " if rules.prefix == "document" else ""
    if segment.startswith((" ", SPACE_SIGN)) and not rules.prefix_before_space:
        return segment
    return " " + segment


# ---- sizes of the vocabulary


def use_at_size(
    counts: Mapping[bytes, int], merges: Sequence[Pair], num_merges: int
) -> tuple[Counter[bytes], Counter[bytes]]:
    """Return how often counted pre-tokens contain each token with the first merges alone.

    Args:
        counts: Pre-tokens with their counts.
        merges: Merges in order of rank.
        num_merges: The number of merges to use: all that training to a size makes.

    Returns:
        Occurrences of each token, and the number of pre-tokens that consist of it.

    Example:
        >>> use_at_size({b"low": 5, b"lo": 1}, [(b"l", b"o"), (b"lo", b"w")], 1)
        (Counter({b'lo': 6, b'w': 5}), Counter({b'lo': 1}))
    """
    ranks = {pair: rank for rank, pair in enumerate(merges[:num_merges])}
    occurrences: Counter[bytes] = Counter()
    alone: Counter[bytes] = Counter()
    for pretoken, count in counts.items():
        tokens = apply_merges(pretoken, ranks)
        for token in tokens:
            occurrences[token] += count
        if len(tokens) == 1:
            alone[pretoken] += count
    return occurrences, alone


# ---- long documents


def cut_places_of_vocabulary(text: bytes, tokens: Iterable[bytes]) -> list[int]:
    """Return where text may be cut because no token crosses: merges of the parts are the same.

    Two bytes that stand side by side inside no token stay apart, whatever surrounds them. The same
    holds for characters where characters are merged.

    Args:
        text: Text without special tokens, which is one pre-token.
        tokens: The tokens that merges make.

    Returns:
        Indices of bytes, ascending; a part may start at each of them.

    Example:
        >>> cut_places_of_vocabulary(b"abcab", [b"ab", b"bc"])
        [3]
    """
    joined = {pair for token in tokens for pair in pairwise(token)}
    return [i for i, pair in enumerate(pairwise(text), 1) if pair not in joined]


def cut_places(text: str, special_tokens: Collection[str] = ()) -> list[int]:
    """Return where text may be cut so that the parts have the same pre-tokens as the whole.

    A cut is allowed after a letter and before a character that is not a letter, mark or apostrophe,
    unless it is inside a special token. Every named pattern has a boundary there, `none` excepted.

    Returns:
        Indices of characters, ascending; a part may start at each of them.

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
    """Assign pieces of documents to rows so that few rows are needed: best fit decreasing.

    The pieces are assigned from the longest to the shortest, equally long ones in their order. Each
    goes into the row with the least free space that is sufficient; of several, into the one that
    was started first. If there is none, the piece starts a new row. Finally, rows are numbered in
    the order of their first pieces.

    Source: D. S. Johnson, Near-Optimal Bin Packing Algorithms, 1973.

    Args:
        lengths: The lengths of the pieces, from 1 to the capacity.
        capacity: The capacity of a row.

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
