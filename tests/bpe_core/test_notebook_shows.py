"""Tokenizers and texts as notebooks show them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from bpe_core import BasicTokenizer, BPETokenizer, CharBPETokenizer, RegexTokenizer
from bpe_core.notebook_tables import facts_table
from bpe_core.token_colours import TOKEN_STYLE, ColouredTokens, token_spans_html
from bpe_core.visible_text import format_token

_BYTES = {i: bytes([i]) for i in range(256)}


def byte_tokenizer() -> BPETokenizer:
    return BPETokenizer(_BYTES | {256: b"hi"}, [(b"h", b"i")], ["<s>", "</script>"])


class _Cells(HTMLParser):
    """Texts of the cells of a table, and its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("th", "td"):
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data

    def facts(self) -> dict[str, str]:
        return dict(zip(self.texts[::2], self.texts[1::2], strict=True))


def test_shown_text_has_its_ids_and_tokens_as_lines_and_in_colours() -> None:
    tokenizer = byte_tokenizer()
    shown = tokenizer.show("hi\n<s>é")
    assert shown.ids == tokenizer.encode("hi\n<s>é") and len(shown) == 5
    assert b"".join(shown.tokens) == "hi\n<s>é".encode()
    assert repr(shown).splitlines() == ['256\t"hi"', '10\t"\\n"', '257\t"<s>"', '195\t"\\xc3"',
                                        '169\t"\\xa9"']  # fmt: skip
    page = shown._repr_html_()
    assert TOKEN_STYLE in page and "5 tokens, 8 bytes, 1.60 bytes a token" in page
    assert token_spans_html(list(zip(shown.ids, shown.tokens, strict=True))) in page


def test_special_tokens_are_ordinary_text_if_asked() -> None:
    assert len(byte_tokenizer().show("<s>", "none")) == 3


def test_long_texts_are_shown_in_part() -> None:
    shown = ColouredTokens([7] * 5_010, [b"a"] * 5_010)
    assert repr(shown).splitlines()[199:] == [format_token(7, b"a"), "… 4,810 more tokens"]
    page = shown._repr_html_()
    assert page.count("<span title") == 5_000 and page.endswith("<p>… 10 more tokens</p>")


def test_an_empty_text_has_no_tokens() -> None:
    shown = byte_tokenizer().show("")
    assert repr(shown) == "" and "0 tokens, 0 bytes<" in shown._repr_html_()


def test_table_of_a_tokenizer() -> None:
    cells = _Cells(byte_tokenizer()._repr_html_())
    assert cells.facts() == {
        "tokens": "259",
        "merges": "1",
        "special tokens": "<s> = 257\n</script> = 258",
        "pattern": "gpt2",
    }
    assert cells.tags == {"table", "caption", "b", "tbody", "tr", "th", "td"}


def test_table_names_some_of_many_special_tokens() -> None:
    tokenizer = BPETokenizer(_BYTES, [], [f"<{i}>" for i in range(300)], normalizer="nfc")
    facts = _Cells(tokenizer._repr_html_()).facts()
    assert facts["special tokens"].splitlines()[7:] == ["<7> = 263", "… 292 more"]
    assert facts["normalizer"] == "nfc"


@pytest.mark.parametrize("kind", [BasicTokenizer, RegexTokenizer])
def test_tokenizers_of_minbpe_show_themselves(
    kind: type[BasicTokenizer] | type[RegexTokenizer],
) -> None:
    tokenizer = kind()
    tokenizer.train("the cat the cat", 260)
    assert tokenizer.show("the cat").ids == tokenizer.encode("the cat")
    facts = _Cells(tokenizer._repr_html_()).facts()
    assert facts["merges"] == "4" and ("pattern" in facts) == (kind is RegexTokenizer)


def test_character_tokenizers_show_themselves() -> None:
    tokenizer = CharBPETokenizer(unk_token=None)
    assert _Cells(tokenizer._repr_html_()).facts()["tokens"] == "0"
    tokenizer.train(["ab ab abc"], 20)
    shown = tokenizer.show("ab d")
    assert shown.ids == tokenizer.encode("ab d") and shown.ids[1] == -1
    assert shown.tokens[1] == "\ufffd".encode()
    assert _Cells(tokenizer._repr_html_()).facts()["method"] == "merges"


def test_facts_are_escaped_and_short() -> None:
    facts = {"<b>": "\u202e</td>", "long": "x" * 1000, "list": [1] * 1000, "none": None}
    cells = _Cells(facts_table("<i>", facts))
    assert cells.facts() == {
        "<b>": "\\u202e</td>",
        "long": "x" * 199 + "…",
        "list": "<list of 1000>",
    }
    assert "i" not in cells.tags
