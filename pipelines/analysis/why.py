"""`beam-bpe why`: the pre-tokens of a text and the merges that make its tokens, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bpe_core.buffers import to_utf8
from bpe_core.errors import InvalidUtf8Error, UnknownTokenError
from bpe_core.merge_steps import EncodingTracer, MergeStep, TracedPretoken, TracedSpecial
from bpe_core.model import TokenizerModel
from bpe_core.short_repr import short_repr
from pipelines.analysis.tokens import bytes_of_ids, quote_token, token_to_json
from pipelines.errors import InputError

__all__ = ["EncodingSteps", "explain_encoding"]


@short_repr
@dataclass(frozen=True, kw_only=True)
class EncodingSteps:
    """The way of a text to its ids.

    Attributes:
        model: the tokenizer.
        text: the text as it was given.
        parts: its pre-tokens and special tokens.
    """

    model: TokenizerModel
    text: str
    parts: tuple[TracedPretoken | TracedSpecial, ...]

    @property
    def ids(self) -> list[int]:
        """The ids of the text."""
        return [i for part in self.parts for i in part.ids]

    @property
    def split_text(self) -> bytes:
        """The text that was split: normalized, with the spaces that the tokenizer adds."""
        return b"".join(
            part.text.encode() if isinstance(part, TracedSpecial) else part.text
            for part in self.parts
        )

    def to_json(self) -> dict[str, Any]:
        """Return the steps as JSON values."""
        return {
            "text": self.text,
            "split_text": self.split_text.decode("utf-8", "replace"),
            "pattern": self.model.pattern,
            "normalizer": self.model.normalizer,
            "normalize_quotes": self.model.normalize_quotes,
            "ids": self.ids,
            "parts": list(map(self._part_to_json, self.parts)),
        }

    def __str__(self) -> str:
        """Return the steps as text."""
        return "\n".join(self._lines())

    def _part_to_json(self, part: TracedPretoken | TracedSpecial) -> dict[str, Any]:
        if isinstance(part, TracedSpecial):
            return {"special": part.text, "ids": [part.id], "merges": []}
        return {
            "pretoken": part.text.decode("utf-8", "replace"),
            "bytes": part.text.hex(),
            "is_whole": part.is_whole,
            "ids": list(part.ids),
            "tokens": [token_to_json(i, self._tokens[i]) for i in part.ids],
            "merges": [self._step_to_json(step) for step in part.steps],
        }

    def _step_to_json(self, step: MergeStep) -> dict[str, Any]:
        return {
            "rank": step.rank,
            "position": step.position,
            "left": token_to_json(step.left, self._tokens[step.left]),
            "right": token_to_json(step.right, self._tokens[step.right]),
            "result": token_to_json(step.result, self._tokens[step.result]),
        }

    def _lines(self) -> Iterator[str]:
        yield f"text       {quote_token(self.text.encode())}"
        if self.split_text != self.text.encode():
            yield f"split as   {quote_token(self.split_text)}"
        pretokens = sum(isinstance(part, TracedPretoken) for part in self.parts)
        yield f"pre-tokens {pretokens:,}; tokens {len(self.ids):,}"
        for part in self.parts:
            yield ""
            if isinstance(part, TracedSpecial):
                yield f"{quote_token(part.text.encode())}: special token {part.id}"
            else:
                yield from self._pretoken_lines(part)

    def _pretoken_lines(self, part: TracedPretoken) -> Iterator[str]:
        yield f"{quote_token(part.text)}: " + ", ".join(map(self._show, part.ids))
        if part.is_whole:
            yield "  a pre-token that is a token becomes it, without merges (ignore_merges)"
            return
        if not part.steps:
            yield "  no merge applies"
            return
        width = len(f"{max(step.rank for step in part.steps):,}")
        symbols = list(part.start)
        yield f"  {'':>{width + 5}}  {self._join(symbols)}"
        for step in part.steps:
            symbols[step.position : step.position + 2] = [step.result]
            pair = f"{self._quote(step.left)} + {self._quote(step.right)}"
            yield f"  rank {step.rank:>{width},}  {self._join(symbols)}   {pair} → {step.result}"

    def _join(self, ids: list[int]) -> str:
        return " ".join(map(self._quote, ids))

    def _quote(self, token_id: int) -> str:
        return quote_token(self._tokens[token_id])

    def _show(self, token_id: int) -> str:
        return f"{token_id} {self._quote(token_id)}"

    @cached_property
    def _tokens(self) -> dict[int, bytes]:
        """The bytes of all ids of the steps."""
        ids = set(self.ids)
        for part in self.parts:
            if isinstance(part, TracedPretoken):
                ids.update(part.start)
                ids.update(i for step in part.steps for i in (step.left, step.right, step.result))
        ordered = sorted(ids)
        return dict(zip(ordered, bytes_of_ids(self.model, ordered), strict=True))


def explain_encoding(model: TokenizerModel, text: str, *, ordinary: bool = False) -> EncodingSteps:
    """Return the way of a text to its ids.

    Args:
        model: the tokenizer.
        text: the text.
        ordinary: treat special tokens in the text as ordinary text.

    Raises:
        InputError: the text is not Unicode, or has a byte without an id.
    """
    # Arguments that are not UTF-8 have lone surrogates.
    text = to_utf8(text).decode()
    try:
        parts = tuple(EncodingTracer(model).trace(text, ordinary=ordinary))
    except (InvalidUtf8Error, UnknownTokenError) as error:
        raise InputError(
            "The tokenizer cannot encode the text.", found=str(error), where="TEXT"
        ) from None
    return EncodingSteps(model=model, text=text, parts=parts)
