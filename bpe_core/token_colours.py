"""Tokens of a text in colours, as HTML for notebooks and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape as escape_html
from itertools import groupby
from typing import Final

from bpe_core.visible_text import escape, format_token, is_visible

__all__ = ["TOKEN_STYLE", "ColouredTokens", "token_spans_html"]

# Pairs of background and text have a contrast of 7 and more (WCAG AAA). A line ends each token, for
# readers who do not see the colours. Nothing takes space, so that letters still join in Arabic.
TOKEN_STYLE: Final = """\
.bpe-tokens {
  display: block; font-family: ui-monospace, monospace; line-height: 1.7;
  overflow-wrap: anywhere; tab-size: 4; white-space: break-spaces;
}
.bpe-tokens > span {
  background: #cfe3ff; border-radius: 3px; box-shadow: inset -1px 0 rgb(0 0 0 / 45%);
  color: #101418;
}
.bpe-tokens > span:nth-child(5n + 2) { background: #d5f2c8; }
.bpe-tokens > span:nth-child(5n + 3) { background: #ffe3b8; }
.bpe-tokens > span:nth-child(5n + 4) { background: #f6d3ea; }
.bpe-tokens > span:nth-child(5n + 5) { background: #c9f0ee; }
.bpe-tokens i { font-style: normal; text-decoration: underline dotted; }
.bpe-tokens i.bpe-break, .bpe-tokens i.bpe-tab { text-decoration: none; }
.bpe-tokens i.bpe-break::before { content: "↵"; content: "↵" / ""; }
.bpe-tokens i.bpe-tab::before { content: "⇥"; content: "⇥" / ""; }
@media (prefers-color-scheme: dark) {
  .bpe-tokens > span {
    background: #173a66; box-shadow: inset -1px 0 rgb(255 255 255 / 45%); color: #f2f5f8;
  }
  .bpe-tokens > span:nth-child(5n + 2) { background: #1f4a1a; }
  .bpe-tokens > span:nth-child(5n + 3) { background: #573c0b; }
  .bpe-tokens > span:nth-child(5n + 4) { background: #5a2148; }
  .bpe-tokens > span:nth-child(5n + 5) { background: #0e4846; }
}
"""
_MOST_TITLE_BYTES: Final = 48
_MOST_LINES: Final = 200
_MOST_SPANS: Final = 5_000
_NOT_UTF8: Final = "\\udc"
_BYTE: Final = "\\x"


@dataclass(frozen=True, repr=False)
class ColouredTokens:
    """Tokens of a text: in colours in a notebook, and elsewhere a line for each.

    Only the first tokens of a long text are shown.

    Attributes:
        ids: ids of the text.
        tokens: bytes of each of them.

    Example:
        >>> ColouredTokens([262, 258], [b"the", b" be"])  # doctest: +NORMALIZE_WHITESPACE
        262\t"the"
        258\t" be"
    """

    ids: list[int]
    tokens: list[bytes]

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)

    def __repr__(self) -> str:
        shown = zip(self.ids[:_MOST_LINES], self.tokens, strict=False)
        lines = [format_token(token_id, token) for token_id, token in shown]
        return "\n".join([*lines, *self._rest(_MOST_LINES)])

    def _repr_html_(self) -> str:
        size = sum(map(len, self.tokens))
        rate = f", {size / len(self):.2f} bytes a token" if len(self) else ""
        shown = list(zip(self.ids[:_MOST_SPANS], self.tokens, strict=False))
        rest = "".join(f"<p>{line}</p>" for line in self._rest(_MOST_SPANS))
        return (
            f"<style>{TOKEN_STYLE}</style>"
            f"<p>{len(self):,} tokens, {size:,} bytes{rate}</p>{token_spans_html(shown)}{rest}"
        )

    def _rest(self, shown: int) -> list[str]:
        return [f"… {len(self) - shown:,} more tokens"] if len(self) > shown else []


def token_spans_html(tokens: Sequence[tuple[int, bytes]]) -> str:
    r"""Return an element with a coloured `<span>` for each token, whose title has its id and bytes.

    The style is `TOKEN_STYLE`. Characters that cannot be seen, and bytes that are only a part of a
    character, are escape sequences in `<i>`. Line breaks and tabs are themselves, after an empty
    `<i class="bpe-break">` or `<i class="bpe-tab">`, whose sign appears by the style alone: copied
    text has none. The result is safe for any bytes, inside any element of a page.

    Args:
        tokens: id and bytes of each token.

    Example:
        >>> token_spans_html([(60, b"<"), (258, b"\xe2\x82")])  # doctest: +NORMALIZE_WHITESPACE
        '<span class="bpe-tokens" dir="auto" translate="no"><span title="id 60,
        bytes 3c">&lt;</span><span title="id 258, bytes e2 82"><i>\\xe2\\x82</i></span></span>'
    """
    spans: dict[tuple[int, bytes], str] = {}
    for token in tokens:
        if token not in spans:
            spans[token] = _span(*token)
    joined = "".join(map(spans.__getitem__, tokens))
    return f'<span class="bpe-tokens" dir="auto" translate="no">{joined}</span>'


def _span(token_id: int, token: bytes) -> str:
    more = " …" if len(token) > _MOST_TITLE_BYTES else ""
    title = f"id {token_id}, bytes {token[:_MOST_TITLE_BYTES].hex(' ')}{more}"
    parts = groupby(token.decode("utf-8", "surrogateescape"), _kind)
    return f'<span title="{title}">{"".join(_part(kind, "".join(p)) for kind, p in parts)}</span>'


def _kind(character: str) -> str:
    if character in "\n\t":
        return character
    return "shown" if is_visible(character) else "escaped"


def _part(kind: str, text: str) -> str:
    if kind == "\n":
        return '<i class="bpe-break"></i>\n' * len(text)
    if kind == "\t":
        return '<i class="bpe-tab"></i>\t' * len(text)
    if kind == "escaped":
        # `surrogateescape` made U+DC80 … U+DCFF of bytes that are not UTF-8.
        return f"<i>{''.join(map(escape, text)).replace(_NOT_UTF8, _BYTE)}</i>"
    return escape_html(text)
