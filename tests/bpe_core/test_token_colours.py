"""Tokens in colours: every byte is shown, and no text becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe_core.token_colours import TOKEN_STYLE, token_spans_html
from bpe_core.visible_text import escape, format_token, is_visible, visible

_MARKUP = [b"</script>", b"<!--", b'" onclick="x', b"&amp;", b"\xe2\x80\xae", b"\xf0\x9f", b"\r\n"]
_TEXTS = st.text(max_size=6).map(str.encode)
_TOKENS = st.lists(
    st.tuples(st.integers(0, 300_000), st.binary(max_size=6) | _TEXTS | st.sampled_from(_MARKUP)),
    max_size=12,
)


class _Page(HTMLParser):
    """Titles and texts of the tokens of a page, and the tags in it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.titles: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"class", "dir", "title", "translate"}
        self.tags.add(tag)
        if title := dict(attrs).get("title"):
            self.titles.append(title)
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data


@given(_TOKENS)
def test_page_has_the_text_of_each_token_and_no_other_markup(
    tokens: list[tuple[int, bytes]],
) -> None:
    page = _Page(token_spans_html(tokens))
    assert page.tags <= {"span", "i"}
    assert page.texts == [visible(token) for _, token in tokens]
    assert page.titles == [f"id {i}, bytes {token.hex(' ')}" for i, token in tokens]


@given(_TOKENS)
def test_page_has_no_character_that_cannot_be_seen(tokens: list[tuple[int, bytes]]) -> None:
    assert all(map(is_visible, token_spans_html(tokens)))


def test_long_tokens_have_short_titles() -> None:
    page = _Page(token_spans_html([(7, b"=" * 5000)]))
    assert page.texts == ["=" * 5000]
    assert len(page.titles[0]) < 200


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_the_contrast_of_wcag_aaa(scheme: str) -> None:
    style = TOKEN_STYLE.partition("@media")[0 if scheme == "light" else 2]
    (text,) = re.findall(r"[ ;]color: (#\w{6})", style)
    backgrounds = re.findall(r"background: (#\w{6})", style)
    assert len(set(backgrounds)) == 5
    for background in backgrounds:
        dark, light = sorted(map(_luminance, (text, background)))
        assert (light + 0.05) / (dark + 0.05) >= 7


def test_line_of_a_token_is_one_line() -> None:
    assert format_token(7, b"a\n\t\r\xff") == '7\t"a\\n\\t\\x0d\\xff"'
    assert escape("\u2066") == "\\u2066"
