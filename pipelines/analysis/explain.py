"""`beam-bpe explain`: why a token is in the vocabulary, and how it is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import reduce
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.buffers import from_arrow, to_arrow
from bpe_core.errors import TrainingError
from bpe_core.extending import smallest_vocabulary
from bpe_core.merge_steps import EncodingTracer, MergeStep
from bpe_core.model import TokenizerModel
from bpe_core.short_repr import short_repr
from bpe_core.visible_text import visible
from pipelines.analysis.document_frequency import find_document_frequency
from pipelines.analysis.pretokens import PretokensWithToken, find_pretokens_with, groups_to_json
from pipelines.analysis.subjects import Subject
from pipelines.analysis.tokens import bytes_of_ids, quote_token, token_to_json
from pipelines.dataset.reading import TokenDataset
from pipelines.dataset.report import read_all_statistics
from pipelines.errors import ConfigError
from pipelines.manifest.names import SIZES
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = ["TokenExplanation", "explain_token", "find_token"]

Kind: TypeAlias = Literal["special", "byte", "character", "merge", "whole"]

_PRETOKENS_SHOWN: Final = 10
_GROUPS_SHOWN: Final = 10
_NEAREST_SHOWN: Final = 5
_LONGEST_COMPARED: Final = 64  # characters
_MOST_COMPARED: Final = 2000  # tokens
_KINDS: Final[Mapping[Kind, str]] = {
    "special": "special token",
    "byte": "byte",
    "character": "character",
    "merge": "merge",
    "whole": "a token of whole pre-tokens, which no merges make",
}


@dataclass(frozen=True, kw_only=True)
class EncodingUse:
    """Use of a token in the token files.

    Attributes:
        tokens: occurrences of its id.
        of: occurrences of all ids.
        place: 1 for the id with most occurrences, 2 for the next, ….
    """

    tokens: int
    of: int
    place: int


@dataclass(frozen=True, kw_only=True)
class DocumentUse:
    """Documents of a split with a token; `first_row` is the first row of the split with it."""

    split: str
    documents: int
    of: int
    first_row: int | None


@short_repr
@dataclass(frozen=True, kw_only=True)
class TokenExplanation:
    """A token: how training made it and where the corpus has it.

    Attributes:
        model: the tokenizer.
        token_id, token: id and bytes.
        kind: how it is made.
        steps: the merges that make it from its own bytes, in order.
        vocab_size: the smallest size of the vocabulary that has it, for a trained tokenizer.
        sizes: True for the smaller sizes of the same training (`tokenizer.vocab_size` as a list)
            that have it.
        pretokens: pre-tokens whose encoding has it; None without counts.
        not_counted: the reason why there are counts, but no `pretokens`.
        encoding: its use in the token files; None without statistics.
        documents: documents that have it, by split; None without token files.
    """

    model: TokenizerModel
    token_id: int
    token: bytes
    kind: Kind
    steps: tuple[MergeStep, ...]
    vocab_size: int | None
    sizes: Mapping[int, bool]
    pretokens: PretokensWithToken | None
    not_counted: str | None
    encoding: EncodingUse | None
    documents: tuple[DocumentUse, ...] | None

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {
            **token_to_json(self.token_id, self.token),
            "kind": self.kind,
            "required": self._is_required,
            "merges": [self._step_to_json(step) for step in self.steps],
            "vocab_size": self.vocab_size,
            "sizes": [{"vocab_size": n, "contains": has} for n, has in self.sizes.items()],
            "pretokens": None if self.pretokens is None else self.pretokens.to_json(),
            "not_counted": self.not_counted,
            "encoding": None
            if self.encoding is None
            else {
                "tokens": self.encoding.tokens,
                "of": self.encoding.of,
                "place": self.encoding.place,
            },
            "documents": None
            if self.documents is None
            else [
                {
                    "split": use.split,
                    "documents": use.documents,
                    "of": use.of,
                    "first_row": use.first_row,
                }
                for use in self.documents
            ],
        }

    def __str__(self) -> str:
        """Return the explanation as text."""
        return "\n".join(self._lines())

    @property
    def _is_required(self) -> bool:
        """True if the configuration requires the token."""
        required = (self.model.training_options or {}).get("required_tokens", ())
        return self.token.decode("utf-8", "replace") in required

    def _step_to_json(self, step: MergeStep) -> dict[str, Any]:
        ids = (step.left, step.right, step.result)
        left, right, result = (
            token_to_json(i, token)
            for i, token in zip(ids, bytes_of_ids(self.model, ids), strict=True)
        )
        return {
            "rank": step.rank,
            "count": self._count_of(step.rank),
            "left": left,
            "right": right,
            "result": result,
        }

    def _count_of(self, rank: int) -> int | None:
        """Return how often a merge's pair occurred when it was learned; None if unknown."""
        counts = self.model.merge_counts
        return None if counts is None or not counts[rank] else int(counts[rank])

    def _lines(self) -> Iterator[str]:
        yield f"token        {self.token_id} {quote_token(self.token)}, bytes {self.token.hex(' ')}"
        required = ", of tokenizer.required_tokens" if self._is_required else ""
        yield f"kind         {_KINDS[self.kind]}{required}"
        if self.vocab_size is not None:
            yield f"in           vocabularies of {self.vocab_size:,} ids and more"
        for size, has in self.sizes.items():
            yield f"size {size:<7,} {'has it' if has else 'does not have it'}"
        if self.steps:
            yield ""
            yield from self._tree()
        elif self.kind == "merge":
            yield "merges       its own bytes become other tokens: no text is encoded as it"
        yield from self._pretoken_lines()
        if self.encoding is not None:
            use = self.encoding
            yield ""
            yield (
                f"encoding     uses it {use.tokens:,} times, {_percent(use.tokens, use.of)} of all "
                f"tokens; place {use.place:,} of {len(self.model):,} ids"
            )
        for found in self.documents or ():
            yield (
                f"documents    {found.documents:,} of {found.of:,} in {found.split}"
                + ("" if found.first_row is None else f", the first in row {found.first_row:,}")
            )

    def _pretoken_lines(self) -> Iterator[str]:
        if self.not_counted is not None:
            yield ""
            yield f"pre-tokens   not searched: {self.not_counted}"
        if (found := self.pretokens) is None:
            return
        yield ""
        yield (
            f"pre-tokens   {found.distinct:,} that have it, which occur {found.count:,} times; "
            f"encoding them uses it {found.uses:,} times"
        )
        yield from _group_lines(groups_to_json(found.groups), found.uses)
        for pretoken in found.top:
            yield f"  {pretoken.count:>12,}  {quote_token(pretoken.text)}"
            if len(pretoken.groups) > 1:
                yield from _group_lines(groups_to_json(pretoken.groups), pretoken.count, " " * 12)

    def _tree(self) -> Iterator[str]:
        """Yield the tree of merges, the token itself at the top."""
        # A node is the index of the step that made it, or the id of a token that none made.
        nodes: list[tuple[int | None, int]] = [(None, i) for i in self._start()]
        children: list[tuple[tuple[int | None, int], tuple[int | None, int]]] = []
        for number, step in enumerate(self.steps):
            at = step.position
            children.append((nodes[at], nodes[at + 1]))
            nodes[at : at + 2] = [(number, step.result)]
        ids = {i for pair in children for _, i in pair} | {self.token_id}
        ordered = sorted(ids)
        texts = dict(zip(ordered, bytes_of_ids(self.model, ordered), strict=True))
        yield "merges       of its own bytes"
        waiting: list[tuple[tuple[int | None, int], str, str]] = [(nodes[0], "  ", "  ")]
        while waiting:
            (number_, token_id), first, rest = waiting.pop()
            text = f"{first}{token_id} {quote_token(texts[token_id])}"
            if number_ is None:
                yield text
                continue
            rank = self.steps[number_].rank
            count = self._count_of(rank)
            yield f"{text}  rank {rank:,}" + ("" if count is None else f", count {count:,}")
            left, right = children[number_]
            waiting.append((right, f"{rest}└ ", f"{rest}  "))
            waiting.append((left, f"{rest}├ ", f"{rest}│ "))

    def _start(self) -> Sequence[int]:
        return EncodingTracer(self.model).trace_merges(self.token).start


def find_token(
    model: TokenizerModel,
    *,
    text: str | None = None,
    token_id: int | None = None,
    token: bytes | None = None,
) -> int:
    """Return the id of a token, given by its text, its id or its bytes.

    Raises:
        ConfigError: the tokenizer has no such token, or several.
    """
    if token_id is not None:
        known = token_id in model.special_tokens.values() or bool(
            np.isin(token_id, model.token_ids)
        )
        if known:
            return token_id
        raise ConfigError(
            "The tokenizer does not have this id.",
            expected=f"an id of its {len(model):,} tokens, up to {model.max_id}",
            found=str(token_id),
            where="--id",
            hint="Give the text of a token instead, `beam-bpe explain OUTPUT TEXT`. `beam-bpe why "
            "OUTPUT TEXT` shows the ids of any text.",
        )
    wanted = token if token is not None else (text or "").encode("utf-8", "surrogateescape")
    ids = model.ids_of(wanted)
    if text is not None and text in model.special_tokens:
        ids.append(model.special_tokens[text])
    if len(set(ids)) == 1:
        return ids[0]
    if ids:
        raise ConfigError(
            "Several tokens have these bytes.",
            expected="--id with one of them",
            found=", ".join(map(str, sorted(set(ids)))),
        )
    raise _not_a_token(model, wanted)


def _not_a_token(model: TokenizerModel, wanted: bytes) -> ConfigError:
    """Return the error for text that is not a token, with its encoding and similar tokens."""
    try:
        ids = [i for part in EncodingTracer(model).trace(wanted) for i in part.ids]
    except ValueError:  # bytes that are not text
        ids = list(EncodingTracer(model).trace_merges(wanted).ids) if wanted else []
    shown = [
        f"{i} {quote_token(token)}" for i, token in zip(ids, bytes_of_ids(model, ids), strict=True)
    ]
    found = f"{quote_token(wanted)}, which is encoded as {', '.join(shown) or 'nothing'}"
    near = ", ".join(f"{i} {quote_token(token)}" for i, token in _find_nearest(model, wanted))
    return ConfigError(
        "This text is not a token.",
        expected="the text of one token, --id N, or --bytes HEX",
        found=found,
        where="TOKEN",
        hint=f"The nearest tokens are {near}. `beam-bpe why` shows the steps." if near else None,
    )


def _find_nearest(model: TokenizerModel, wanted: bytes) -> list[tuple[int, bytes]]:
    """Return the tokens that are most like some bytes, of those that contain their first ones."""
    core = wanted.decode("utf-8", "replace").strip()[:_LONGEST_COMPARED]
    # The longest common beginning first, until there are enough to choose from.
    for length in range(len(core), 0, -1):
        start = core[:length]
        rows = _find_containing(model, {start, start.lower(), start.upper(), start.capitalize()})
        if len(rows) >= _NEAREST_SHOWN or (length == 1 and len(rows)):
            break
    else:
        return []
    rows = rows[:_MOST_COMPARED]
    tokens = model.token_bytes.take(to_arrow(rows)).to_pylist()

    def likeness(item: tuple[int, bytes]) -> tuple[float, int]:
        text = item[1].decode("utf-8", "replace").strip().lower()
        return -SequenceMatcher(None, core.lower(), text, autojunk=False).ratio(), item[0]

    found = zip(model.token_ids[rows].tolist(), tokens, strict=True)
    return sorted(found, key=likeness)[:_NEAREST_SHOWN]


def _find_containing(model: TokenizerModel, texts: Iterable[str]) -> NDArray[np.integer]:
    """Return the rows of the ordinary tokens that contain one of the texts."""
    found = [pc.match_substring(model.token_bytes, text.encode()) for text in sorted(texts)]
    return from_arrow(pc.indices_nonzero(reduce(pc.or_, found)))


def explain_token(
    subject: Subject, token_id: int, *, limit: int = _PRETOKENS_SHOWN, documents: bool = True
) -> TokenExplanation:
    """Explain a token.

    Args:
        subject: the tokenizer and its output.
        token_id: id of the token.
        limit: number of pre-tokens to list.
        documents: find the documents that have it, for which all token files are read once.

    Raises:
        InputError, OutputError: a file of the output is damaged.
    """
    model = subject.model
    ordinary = bool(np.isin(token_id, model.token_ids))
    (token,) = bytes_of_ids(model, [token_id])
    kind: Kind = "special"
    steps: tuple[MergeStep, ...] = ()
    if ordinary:
        kind, steps = _find_steps(model, token_id, token)
    pretokens, not_counted = None, subject.lost_counts
    if subject.counts is not None:
        if not ordinary:
            not_counted = "special tokens are cut out of the text before it is counted"
        else:
            try:
                pretokens = find_pretokens_with(model, token_id, subject.counts, limit)
            except TrainingError as error:
                not_counted = str(error)
    dataset = subject.dataset
    smallest = smallest_vocabulary(model, token_id if ordinary else None)
    return TokenExplanation(
        model=model,
        token_id=token_id,
        token=token,
        kind=kind,
        steps=steps,
        vocab_size=smallest,
        sizes={} if smallest is None else {n: smallest <= n for n in _list_sizes(subject)},
        pretokens=pretokens,
        not_counted=not_counted,
        encoding=None if dataset is None else _find_use(dataset, model, token_id),
        documents=_find_documents(dataset, model, token_id) if dataset and documents else None,
    )


def _list_sizes(subject: Subject) -> list[int]:
    """Return the sizes of the smaller tokenizers of the same training, ascending."""
    if subject.output is None:
        return []
    names = (subject.output / "tokenizer" / SIZES).other_names()
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _find_steps(
    model: TokenizerModel, token_id: int, token: bytes
) -> tuple[Kind, tuple[MergeStep, ...]]:
    if not np.isin(token_id, model.merges[:, 2]):
        if len(token) == 1:
            return "byte", ()
        return ("whole" if model.characters is None else "character"), ()
    traced = EncodingTracer(model).trace_merges(token)
    return "merge", traced.steps if traced.ids == (token_id,) else ()


def _find_use(dataset: TokenDataset, model: TokenizerModel, token_id: int) -> EncodingUse:
    vocabulary = Vocabulary(model)
    uses = read_all_statistics(dataset, vocabulary).all_uses()
    mine = int(uses[int(vocabulary.rows_of(np.array([token_id]))[0])])
    return EncodingUse(tokens=mine, of=int(uses.sum()), place=int((uses > mine).sum()) + 1)


def _find_documents(
    dataset: TokenDataset, model: TokenizerModel, token_id: int
) -> tuple[DocumentUse, ...]:
    vocabulary = Vocabulary(model)
    row = int(vocabulary.rows_of(np.array([token_id]))[0])
    found = []
    for split, frequency in find_document_frequency(dataset, vocabulary).items():
        first = int(frequency.first_row[row])
        found.append(
            DocumentUse(
                split=split,
                documents=int(frequency.documents[row]),
                of=dataset.num_documents(split),
                first_row=None if first < 0 else first,
            )
        )
    return tuple(found)


def _group_lines(
    groups: Sequence[Mapping[str, Any]], total: int, indent: str = "  "
) -> Iterator[str]:
    for group in groups[:_GROUPS_SHOWN]:
        value = group.get("value")
        name = f"{group['source']} {value or ''}".strip()
        share = _percent(group["count"], total)
        yield f"{indent}{group['count']:>12,}  {share:>6}  in {visible(name) or 'the source'}"
    if len(groups) > _GROUPS_SHOWN:
        yield f"{indent}and {len(groups) - _GROUPS_SHOWN:,} more groups"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
