"""`beam-bpe evaluate`: measures of tokenizers beside each other, on the same text.

docs/evaluating.md defines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bpe_core import BPETokenizer
from bpe_core.evaluation import TokenUse, gini, renyi_efficiency
from bpe_core.reachability import Reachability, find_unreachable
from bpe_core.short_repr import short_repr
from bpe_core.text_measures import TextSize, find_scripts
from bpe_core.token_probes import (
    NumberSplits,
    SpaceTokens,
    measure_spaces,
    name_grouping,
    split_numbers,
)
from pipelines.analysis.evaluation_texts import EvaluationText
from pipelines.config.validation import did_you_mean
from pipelines.errors import ConfigError, shortened
from pipelines.tokenizers.files import Tokenizer, model_of
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = [
    "RARE",
    "Evaluation",
    "GroupMeasures",
    "TokenizerMeasures",
    "count_scripts",
    "evaluate",
    "shorten_locations",
]

RARE: Final = 10  # ids that occur fewer times are rare
_WHITE_SPACE: Final = b" \t\n\v\f\r"
# Names of files and directories that are the same for many tokenizers.
_GENERIC: Final = ("tokenizer", "tekken", "vocab.json")


@short_repr
@dataclass(frozen=True, kw_only=True)
class GroupMeasures:
    """Measures of a tokenizer on a group of the text, or on all of it.

    Attributes:
        size: Size of the text.
        use: Use of the ids by the text.
        vocab_size: Number of ids.
        lone_words: True if words were encoded alone, apart from the text.
    """

    size: TextSize
    use: TokenUse
    vocab_size: int
    lone_words: bool

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.use.tokens

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of a token on average."""
        return _divide(self.size.bytes, self.tokens)

    @property
    def tokens_per_byte(self) -> float | None:
        """Tokens of a byte on average."""
        return _divide(self.tokens, self.size.bytes)

    @property
    def tokens_per_word(self) -> float | None:
        """Tokens of a word on average; of text in files, all tokens count."""
        return _divide(self.tokens if self.lone_words else self.use.word_tokens, self.size.words)

    @property
    def single_token_words(self) -> float | None:
        """Share of the words that are one token."""
        return _divide(self.use.single_token_words, self.size.words)

    def to_json(self) -> dict[str, Any]:
        """Return the measures as JSON values; None for those without a denominator."""
        counts = self.use.counts
        lone = {"tokens_per_lone_word": _divide(self.use.word_tokens, self.size.words)}
        return {
            "tokens": self.tokens,
            "bytes_per_token": self.bytes_per_token,
            "characters_per_token": _divide(self.size.characters, self.tokens),
            "tokens_per_byte": self.tokens_per_byte,
            "tokens_per_character": _divide(self.tokens, self.size.characters),
            "tokens_per_word": self.tokens_per_word,
            **(lone if self.lone_words else {}),
            "single_token_words": self.single_token_words,
            "renyi_efficiency": renyi_efficiency(counts, self.vocab_size),
            "shannon_efficiency": renyi_efficiency(counts, self.vocab_size, alpha=1),
            "used_ids": len(counts),
        }


@short_repr
@dataclass(frozen=True, kw_only=True)
class TokenizerMeasures:
    """Measures of a tokenizer.

    Attributes:
        name: Short name.
        location: Where it was found.
        fingerprint: Fingerprint of what determines its ids.
        total: Measures on all of the text.
        groups: Measures on each group, by name.
        code: Measures on the groups that look like code together; None without any.
        rare_ids: Ids that occur 1 to 9 times.
        mean_token_bytes: Bytes of a token of the vocabulary on average.
        white_space_tokens: Share of the tokens that are ASCII white space alone.
        scripts: Ids and tokens by script, most tokens first; None for neither.
        reachability: Ids that no text gives; None if that was not determined.
        numbers, spaces: Splits of numbers and white space; None if they were not determined.
        overlaps: Tokens that others have too, by their names.
    """

    name: str
    location: str
    fingerprint: str
    total: GroupMeasures
    groups: Mapping[str, GroupMeasures]
    code: GroupMeasures | None
    rare_ids: int
    mean_token_bytes: float
    white_space_tokens: float | None
    scripts: Sequence[tuple[str | None, int, int]]
    reachability: Reachability | None
    numbers: Sequence[NumberSplits] | None
    spaces: SpaceTokens | None
    overlaps: Mapping[str, tuple[int, int, int]]

    @property
    def ids(self) -> int:
        """The number of ids."""
        return self.total.vocab_size

    @property
    def unused_ids(self) -> int:
        """The number of ids that do not occur."""
        return self.ids - len(self.total.use.ids)

    @property
    def gini(self) -> float | None:
        """The Gini coefficient of the tokens of a byte over the groups."""
        return gini(_known(group.tokens_per_byte for group in self.groups.values()))

    @property
    def gini_of_tokens(self) -> float | None:
        """The Gini coefficient of the tokens of the groups, for parallel texts."""
        return gini(float(group.tokens) for group in self.groups.values())

    def parity(self, reference: str) -> dict[str, float | None]:
        """Return the tokens of a byte of each group, as a multiple of those of a reference."""
        base = self.groups[reference].tokens_per_byte
        return {name: _divide(group.tokens_per_byte, base) for name, group in self.groups.items()}

    def parity_of_tokens(self, reference: str) -> dict[str, float | None]:
        """Return the tokens of each group, as a multiple of those of a reference."""
        base = self.groups[reference].tokens
        return {name: _divide(group.tokens, base) for name, group in self.groups.items()}

    def to_json(self, reference: str) -> dict[str, Any]:
        """Return the measures as JSON values."""
        found = self.reachability
        return {
            "name": self.name,
            "location": self.location,
            "fingerprint": self.fingerprint,
            "ids": self.ids,
            **self.total.to_json(),
            "unused_ids": self.unused_ids,
            "rare_ids": self.rare_ids,
            "unreachable": None if found is None else _reachability_to_json(found),
            "mean_token_bytes": self.mean_token_bytes,
            "white_space_tokens": self.white_space_tokens,
            "gini": self.gini,
            "gini_of_tokens": self.gini_of_tokens,
            "parity": self.parity(reference),
            "parity_of_tokens": self.parity_of_tokens(reference),
            "code": None if self.code is None else self.code.to_json(),
            "groups": {name: group.to_json() for name, group in self.groups.items()},
            "scripts": [
                {"script": script, "ids": ids, "tokens": tokens}
                for script, ids, tokens in self.scripts
            ],
            "numbers": None if self.numbers is None else _numbers_to_json(self.numbers),
            "white_space": None if self.spaces is None else asdict(self.spaces),
            "overlap": {
                name: {"shared": shared, "only_here": here, "only_there": there}
                for name, (shared, here, there) in self.overlaps.items()
            },
        }


@short_repr
@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Measures of tokenizers on the same text.

    Attributes:
        text: The text.
        reference: Name of the group that others are compared with.
        tokenizers: The measures, in the order given.
    """

    text: EvaluationText
    reference: str
    tokenizers: Sequence[TokenizerMeasures]

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON values."""
        text = self.text
        return {
            "text": {
                "kind": text.kind,
                "description": text.description,
                "word": text.word,
                **_size_to_json(reduce(add, text.sizes.values())),
                "groups": {name: _size_to_json(size) for name, size in text.sizes.items()},
                "code_groups": [n for n, size in text.sizes.items() if size.looks_like_code],
            },
            "reference": self.reference,
            "tokenizers": [one.to_json(self.reference) for one in self.tokenizers],
        }


def evaluate(
    tokenizers: Mapping[str, Tokenizer], text: EvaluationText, reference: str | None = None
) -> Evaluation:
    """Return the measures of tokenizers on a text.

    Args:
        tokenizers: The tokenizers, by their locations.
        text: The text.
        reference: Group that others are compared with; None for the first.

    Raises:
        ConfigError: The text has no such group, no words at all, or cannot be used for a tokenizer.
        InputError: A tokenizer cannot encode the text.
    """
    names = list(text.sizes)
    if not any(size.bytes for size in text.sizes.values()):
        raise ConfigError(
            "There is no text to evaluate on.", found="no bytes of text", where=text.description
        )
    if reference is not None and reference not in names:
        raise ConfigError(
            "The text has no such group.",
            expected=f"one of {shortened(names, 12)}",
            found=reference,
            where="--reference",
            hint=did_you_mean(reference, names),
        )
    vocabularies = {name: _tokens_of(tokenizer) for name, tokenizer in tokenizers.items()}
    short = dict(zip(tokenizers, shorten_locations(list(tokenizers)), strict=True))
    measured = []
    for location, tokenizer in tokenizers.items():
        others = {
            short[other]: _compare(vocabularies[location], found)
            for other, found in vocabularies.items()
            if other != location
        }
        uses = text.use(tokenizer, location)
        measured.append(_measure(short[location], location, tokenizer, text, uses, others))
    return Evaluation(text=text, reference=reference or names[0], tokenizers=measured)


def shorten_locations(locations: Sequence[str]) -> list[str]:
    """Return a short name for each tokenizer, or the location where names would be equal.

    >>> shorten_locations(["out/web/", "models/llama3/tokenizer.json", "hf://openai-community/gpt2"])
    ['web', 'llama3', 'gpt2']
    """
    names = []
    for location in locations:
        parts = [part for part in location.rstrip("/").split("/") if part]
        while len(parts) > 1 and parts[-1].startswith(_GENERIC):
            parts.pop()
        names.append(parts[-1] if parts else location)
    repeated = {name for name in names if names.count(name) > 1}
    return [
        location if name in repeated else name
        for name, location in zip(names, locations, strict=True)
    ]


def _measure(
    name: str,
    location: str,
    tokenizer: Tokenizer,
    text: EvaluationText,
    uses: Mapping[str, TokenUse],
    overlaps: Mapping[str, tuple[int, int, int]],
) -> TokenizerMeasures:
    model = model_of(tokenizer)
    vocabulary = Vocabulary(model)

    def measure(names: Iterable[str]) -> GroupMeasures:
        chosen = list(names)
        return GroupMeasures(
            size=reduce(add, (text.sizes[one] for one in chosen)),
            use=reduce(add, (uses[one] for one in chosen)),
            vocab_size=len(vocabulary),
            lone_words=text.has_lone_words,
        )

    total = measure(text.sizes)
    code = [one for one, size in text.sizes.items() if size.looks_like_code]
    data, bounds = vocabulary.decode(vocabulary.ids)
    lengths = np.diff(bounds)
    is_space = _are_white_space(data, bounds)
    rows = vocabulary.rows_of(total.use.ids)
    bpe = tokenizer if isinstance(tokenizer, BPETokenizer) else None
    return TokenizerMeasures(
        name=name,
        location=location,
        fingerprint=model.fingerprint,
        total=total,
        groups={one: measure([one]) for one in text.sizes},
        code=measure(code) if code else None,
        rare_ids=int((total.use.counts < RARE).sum()),
        mean_token_bytes=float(lengths.mean()),
        white_space_tokens=_divide(int(total.use.counts[is_space[rows]].sum()), total.tokens),
        scripts=list(count_scripts(data, bounds, rows, total.use.counts)),
        reachability=find_unreachable(bpe, total.use.ids) if bpe else None,
        numbers=split_numbers(bpe) if bpe else None,
        spaces=measure_spaces(bpe) if bpe else None,
        overlaps=overlaps,
    )


def count_scripts(
    data: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    rows: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> Iterator[tuple[str | None, int, int]]:
    """Yield scripts with their ids and tokens, most tokens first; None for no script.

    Args:
        data, bounds: Bytes of the ids of a vocabulary, as `Vocabulary.decode` returns them.
        rows: Rows in the vocabulary of the ids that occur.
        counts: Occurrences of each of these.
    """
    has_bytes = np.diff(bounds) > 0
    kept = np.append(bounds[:-1][has_bytes], bounds[-1])
    scripts = np.full(len(has_bytes), -1)
    scripts[has_bytes], names = find_scripts(data, kept)
    ids = np.bincount(scripts + 1, minlength=len(names) + 1)
    tokens = np.zeros(len(names) + 1, np.int64)
    np.add.at(tokens, scripts[rows] + 1, counts)
    for place in np.lexsort((-ids, -tokens)).tolist():
        if ids[place]:
            yield names[place - 1] if place else None, int(ids[place]), int(tokens[place])


def _are_white_space(data: NDArray[np.uint8], bounds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which tokens are ASCII white space alone."""
    others = np.append(0, np.cumsum(~np.isin(data, list(_WHITE_SPACE))))
    found: NDArray[np.bool_] = (others[bounds[1:]] == others[bounds[:-1]]) & (np.diff(bounds) > 0)
    return found


def _tokens_of(tokenizer: Tokenizer) -> frozenset[bytes]:
    return frozenset(Vocabulary(model_of(tokenizer)).tokens())


def _compare(own: frozenset[bytes], other: frozenset[bytes]) -> tuple[int, int, int]:
    """Return the numbers of tokens that are in both, in the first and in the second alone."""
    shared = len(own & other)
    return shared, len(own) - shared, len(other) - shared


def _divide(number: float | None, by: float | None) -> float | None:
    return number / by if number is not None and by else None


def _known(numbers: Iterable[float | None]) -> list[float]:
    return [number for number in numbers if number is not None]


def _size_to_json(size: TextSize) -> dict[str, int]:
    return {"bytes": size.bytes, "characters": size.characters, "words": size.words}


def _reachability_to_json(found: Reachability) -> dict[str, Any]:
    return {
        "by_merges": found.by_merges.tolist(),
        "by_encoding": found.by_encoding.tolist(),
        "by_normalizer": found.by_normalizer.tolist(),
        "by_pattern": found.by_pattern.tolist(),
        "not_found": found.not_found.tolist(),
    }


def _numbers_to_json(numbers: Sequence[NumberSplits]) -> dict[str, Any]:
    return {"grouping": name_grouping(numbers), "lengths": [asdict(one) for one in numbers]}
