"""Tables of facts about an object, which notebooks show in its place."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from bpe_core.short_repr import shorten
from bpe_core.visible_text import visible

__all__ = ["facts_table", "tokenizer_table"]

_CELL: Final = "text-align: left; vertical-align: top; white-space: pre-wrap"
_MOST_SPECIAL: Final = 8
_MOST_CHARACTERS: Final = 200


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """Return a table with a row for each fact that is not None, as HTML.

    Example:
        >>> facts_table("Size", {"tokens": 5, "pattern": None}).count("<tr>")
        1
    """
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL}">{_html(name)}</th>'
        f'<td style="{_CELL}">{_html(value)}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    caption = f'<caption style="{_CELL}"><b>{_html(title)}</b></caption>'
    return f"<table>{caption}<tbody>{rows}</tbody></table>"


def tokenizer_table(
    kind: str, *, tokens: int, merges: int, specials: Mapping[str, int], rules: Mapping[str, object]
) -> str:
    """Return the table of a tokenizer as HTML.

    Args:
        kind: name of its class.
        tokens, merges: numbers of them.
        specials: special tokens with their ids.
        rules: further facts by name, of which those that are None or False are left out.
    """
    shown = [f"{text} = {token_id}" for text, token_id in list(specials.items())[:_MOST_SPECIAL]]
    more = len(specials) - len(shown)
    return facts_table(
        kind,
        {
            "tokens": tokens,
            "merges": merges,
            "special tokens": "\n".join([*shown, *([f"… {more:,} more"] if more else [])]) or None,
            **{name: None if value is False else value for name, value in rules.items()},
        },
    )


def _html(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if not isinstance(value, str):
        return escape(shorten(value, _MOST_CHARACTERS))
    text = visible(value)
    return escape(text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…")
