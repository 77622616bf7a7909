"""The tokenizer in the page gives the ids of Python, in a real browser."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import sentencepiece
from added_tokens import CHARACTERS, SETS, library, read
from character_support import FALLBACKS, STEPS, character_json, read_json
from core_support import FRAGMENTS, published_tokenizer
from page_support import browser, build_hostile, opened_page
from profiles import PROFILE, seldom

from bpe_core import (
    BPETokenizer,
    count_pretokens,
    pattern_with_rules,
    train_from_counts,
)
from bpe_core.buffers import to_binary
from bpe_core.model import TokenizerModel
from bpe_core.patterns import PATTERNS, superword_pattern
from pipelines.pages.collect import collect
from pipelines.pages.encoder import encoder_data
from pipelines.pages.report import make_report
from pipelines.pages.templates import embed_json, read_asset

pytestmark = [pytest.mark.process, pytest.mark.slow]

TEXTS_OF_EACH = 10_000 if PROFILE == "nightly" else 150
SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "vocab"
TEXT = (Path(__file__).parents[3] / "examples" / "data" / "kjv-00.txt").read_text("utf-8")[:60_000]
SCRIPTS = ["encoder.js", "encoder-box.js"]
SPECIALS = ["<|end|>", "<|end|><|end|>", "<think>"]
RANGES = [(0x20, 0x7F), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]
MORE_TEXT = "cafe\u0301 \u212b Ångström ﬁ “a” ‘b’ 世界 12345 don't DON'T мир  \n\n\t x = 0;\r\n"
WHOLE = [" Ångström".encode(), b" zq"]
CUSTOM = {
    "words": r"\w+|\s+",
    "gaps": r"[a-z]+",
    "behind": r"(?<=[a-z])[A-Z]+|\w+?|\d{2}",
    "far": r"\w+(?=\s+\w+\d)|\s|\w",
    "chain": r"\p{N}{1,3}(?#then)[一-龥]+(?#then)\s?\p{L}+|\s+(?!\S)|\s+",
    "bytes": r"\s?\S+(?#then bytes)[A-Za-zĠ]+|[^a-z]",
    "superwords": superword_pattern("o200k"),
    "rules": pattern_with_rules("cl100k", split_categories=True, max_digits=2),
}


@cache
def trained(pattern: str, normalizer: str | None = None, **rules: Any) -> TokenizerModel:
    counts = count_pretokens(
        [TEXT, *[MORE_TEXT] * 9],
        pattern=pattern,
        normalizer=normalizer,
        special_tokens=SPECIALS,
        **rules,
    )
    return train_from_counts(counts, 700, SPECIALS).model


def with_whole_tokens() -> TokenizerModel:
    """Return a model with tokens that no merge makes, and `ignore_merges`."""
    model = trained("gpt2")
    ids = np.array([5_000, 70_000], np.int64)
    return replace(
        model,
        token_ids=np.concatenate([model.token_ids, ids]),
        token_bytes=to_binary(
            [*[token for _, token in model.tokens], " Ångström".encode(), b" zq"]
        ),
        ignore_merges=True,
    )


def without_bytes() -> TokenizerModel:
    """Return a model without ids for some bytes."""
    tokens = [(300 + byte, bytes([byte])) for byte in range(0x20, 0x7B)] + [(9, b"th"), (8, b"the")]
    merges = [(300 + ord("t"), 300 + ord("h"), 9), (9, 300 + ord("e"), 8)]
    return TokenizerModel.from_tokens(tokens, merges, special_tokens={"<unk>": 3}, unknown_id=3)


def with_flags(name: str, normalizer: str | None) -> TokenizerModel:
    """Return a model whose added tokens have the flags of a published kind."""
    with TemporaryDirectory() as folder:
        return read(library(SETS[name], normalizer), Path(folder)).model


def of_characters_with_flags() -> TokenizerModel:
    """Return a model that merges characters, with flags of its added tokens."""
    model = read_json(json.dumps(character_json(added=[("<s>", True), ("</s>", True)]))).model
    flags = {"<s>": frozenset({"rstrip"}), "</s>": frozenset({"lstrip", "single_word"})}
    return replace(model, token_flags=flags)


@cache
def of_sentencepiece(**options: Any) -> TokenizerModel:
    """Return a model that SentencePiece trained, with its tables and rules."""
    file = BytesIO()
    settings = {"model_type": "bpe", "vocab_size": 600, "hard_vocab_limit": False, **options}
    lines = [*TEXT[:20_000].splitlines(), *[MORE_TEXT] * 3]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=file, minloglevel=2, **settings
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        path.write_bytes(file.getvalue())
        return BPETokenizer.from_sentencepiece(path).model


MODELS = {
    "flags-characters": of_characters_with_flags,
    "nmt_nfkc": lambda: of_sentencepiece(byte_fallback=True),
    "nmt_nfkc_cf": lambda: of_sentencepiece(normalization_rule_name="nmt_nfkc_cf"),
    "removed-spaces": lambda: of_sentencepiece(
        normalization_rule_name="identity", remove_extra_whitespaces=True
    ),
    **{name: lambda name=name: trained(name) for name in PATTERNS},
    **{name: lambda pattern=pattern: trained(pattern) for name, pattern in CUSTOM.items()},
    "nfc": lambda: trained("o200k", "nfc"),
    "nfkc": lambda: trained("gpt2", "nfkc", normalize_quotes=True),
    "quotes": lambda: trained("gpt2", normalize_quotes=True),
    "whole": with_whole_tokens,
    "unknown": without_bytes,
    "prefix": lambda: replace(trained("gpt2"), prefix_space=True),
    "dropped": lambda: replace(trained(r"\w+|[^\w\s]+"), drop_white_space=True),
}
VARIANTS = {
    **{
        f"flags-{name}-{normalizer}": lambda name=name, normalizer=normalizer: with_flags(
            name, normalizer
        )
        for normalizer in (None, "NFC")
        for name in SETS
    },
    **{
        f"characters-{steps}-{fallback}": lambda steps=steps, fallback=fallback: (
            read_json(json.dumps(character_json(steps, fallback))).model
        )
        for steps in STEPS
        for fallback in FALLBACKS
    },
}


def random_texts(model: TokenizerModel, n: int) -> list[str]:
    rng = random.Random(n)
    tokens = [token.decode("utf-8", "ignore") for _, token in model.tokens]
    pieces = [
        *FRAGMENTS,
        *MORE_TEXT.split(" "),
        *SPECIALS,
        *model.special_tokens,
        *CHARACTERS,
        *["aaaa", "ab1", "𑗉̇", "\ufeff", "\ud800"],
    ]
    texts = []
    for _ in range(n):
        drawn = [
            rng.choice(rng.choice([pieces, tokens]))
            if rng.random() < 0.8
            else chr(rng.randrange(*rng.choice(RANGES)))
            for _ in range(rng.randrange(20))
        ]
        texts.append("".join(drawn))
    return [*texts, "", "a" * 3000, " " * 500, TEXT[:3000]]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text("<!doctype html><title>page</title>")
    with opened_page(chromium, file) as (opened, _):
        yield opened


def load(page: Any, model: TokenizerModel) -> None:
    """Make a model the tokenizer of a page."""
    data = embed_json(encoder_data(model))
    element = f'<script type="application/json" id="encoder-data">{data}</script>'
    page.set_content(f"{element}<script>{read_asset('encoder.js')}</script>")


def check(page: Any, model: TokenizerModel) -> None:
    load(page, model)
    texts = random_texts(model, TEXTS_OF_EACH)
    expected = BPETokenizer.from_model(model).encode_batch(texts)
    script = "texts => JSON.parse(texts).map((text) => window.beamBpe.encode(text))"
    found = page.evaluate(script, json.dumps(texts))  # JSON keeps lone surrogates
    wrong = [text for text, a, b in zip(texts, expected, found, strict=True) if a != b]
    assert wrong == []


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_those_of_python(name: str, page: Any) -> None:
    check(page, MODELS[name]())


@pytest.mark.parametrize("name", seldom(VARIANTS, 4))
def test_ids_are_those_of_python_by_every_rule(name: str, page: Any) -> None:
    check(page, VARIANTS[name]())


@pytest.mark.nightly
@pytest.mark.skipif(not SHARED.exists(), reason="needs the published vocabularies")
@pytest.mark.parametrize("name", ["r50k", "cl100k", "o200k"])
def test_ids_of_published_vocabularies_are_those_of_python(name: str, page: Any) -> None:
    tokenizer = published_tokenizer(name, str(SHARED / f"{name}_base.tiktoken"))
    assert len(json.dumps(encoder_data(tokenizer.model))) < 9 * len(tokenizer)
    check(page, tokenizer.model)


@pytest.mark.parametrize("name", ["o200k", "none", "dropped"])
def test_tokens_have_their_places_in_the_text(name: str, page: Any) -> None:
    model = MODELS[name]()
    load(page, model)
    for text in ["", "a 世界 🌍<think>é", TEXT[:500], MORE_TEXT]:
        tokens = page.evaluate("text => window.beamBpe.tokens(text)", text)
        assert [token["id"] for token in tokens] == BPETokenizer.from_model(model).encode(text)
        units = text.encode("utf-16-le")
        for token in tokens:
            found = text.encode()[token["byteStart"] : token["byteEnd"]]
            assert found == bytes.fromhex(token["bytes"])
            if token["text"] is not None:
                found = units[2 * token["start"] : 2 * token["end"]]
                assert found.decode("utf-16-le") == token["text"]
        if not model.drop_white_space:
            places = [0, *(token["byteEnd"] for token in tokens)]
            assert places == [*(token["byteStart"] for token in tokens), len(text.encode())]
            assert [token["end"] for token in tokens[-1:]] == [len(units) // 2][: len(tokens)]


def test_a_merge_tree_has_the_merges_that_make_its_token(page: Any) -> None:
    model = trained("gpt2")
    load(page, model)
    parts = {result: (rank, left, right) for rank, (left, right, result) in
             reversed(list(enumerate(model.merges.tolist())))}  # fmt: skip

    def check_tree(tree: dict[str, Any]) -> None:
        assert bytes.fromhex(tree["bytes"]) == model.vocab[tree["id"]]
        if tree["id"] not in parts:
            assert "left" not in tree
            return
        rank, left, right = parts[tree["id"]]
        assert (tree["rank"], tree["left"]["id"], tree["right"]["id"]) == (rank, left, right)
        check_tree(tree["left"])
        check_tree(tree["right"])

    for tree in page.evaluate("ids => ids.map((id) => window.beamBpe.tree(id))", [*model.vocab]):
        check_tree(tree)
    assert page.evaluate("window.beamBpe.tree(10 ** 6)") is None


def test_text_in_which_no_match_ends_takes_no_quadratic_time(page: Any) -> None:
    load(page, trained("a+b|."))
    script = "() => { const t = performance.now(); window.beamBpe.encode('a'.repeat(200_000)); "
    assert page.evaluate(script + "return performance.now() - t; }") < 5_000


def test_tokenizers_that_a_page_cannot_hold_are_refused(page: Any) -> None:
    flags = {"<s>": frozenset({"normalized"})}
    model = replace(of_characters_with_flags(), token_flags=flags)
    assert "in normalized text" in encoder_data(model)["reason"]
    load(page, trained(r"(\w)\1|."))
    assert "not compiled" in page.evaluate("window.beamBpe.reason")
    with pytest.raises(Exception, match="This page cannot encode with the tokenizer: its split"):
        page.evaluate("window.beamBpe.encode('a')")


def test_the_box_shows_what_is_typed(chromium: Any, tmp_path: Path) -> None:
    output = build_hostile(tmp_path)
    file = tmp_path / "report.html"
    file.write_text(make_report(collect(str(output))), "utf-8")
    tokenizer = BPETokenizer.load(output)
    with opened_page(chromium, file) as (page, errors):
        box = page.locator("#encoder-box")
        text = "the \u202e</script>\x1b é the"
        box.get_by_label("Text").fill(text)
        expected = tokenizer.encode(text)
        spans = box.locator(".bpe-tokens > span")
        spans.nth(len(expected) - 1).wait_for()
        assert box.get_by_label("Ids").input_value() == " ".join(map(str, expected))
        assert f"{len(expected)} tokens" in box.locator("output").inner_text()
        assert "\\u202e" in spans.all_inner_texts() or "\u202e" not in box.inner_text()
        spans.first.focus()
        page.keyboard.press("ArrowRight")
        shown = box.locator(".merge-tree > li").inner_text()
        assert f"id {expected[1]}" in shown
        assert errors == []


def test_a_long_text_is_drawn_as_far_as_it_is_seen(chromium: Any, tmp_path: Path) -> None:
    file = tmp_path / "box.html"
    data = embed_json(encoder_data(trained("gpt2")))
    scripts = "".join(f"<script>{read_asset(name)}</script>" for name in SCRIPTS)
    file.write_text(
        f"<!doctype html><style>{read_asset('style.css')}</style><div id='encoder-box'></div>"
        f'<script type="application/json" id="encoder-data">{data}</script>{scripts}',
        "utf-8",
    )
    text = TEXT[:40_000]
    ids = BPETokenizer.from_model(trained("gpt2")).encode(text)
    with opened_page(chromium, file) as (page, errors):
        page.get_by_label("Text").fill(text)
        rest = page.get_by_text("Scroll to see")
        rest.wait_for()
        spans = page.locator(".bpe-tokens > span")
        drawn = spans.count()
        assert 100 < drawn < 2_000
        assert f"{len(ids) - drawn:,} more tokens" in rest.inner_text()
        spans.nth(drawn - 1).scroll_into_view_if_needed()
        spans.nth(drawn).wait_for()
        at = spans.count() - 1
        spans.nth(at).focus()
        for step in range(2):
            page.keyboard.press("ArrowRight")
            focused = page.evaluate("document.activeElement.title")
            assert focused.startswith(f"id {ids[at + step + 1]},")
        page.get_by_role("button", name="Copy the ids").click()
        page.wait_for_function(
            "n => document.querySelector('button').textContent === 'Copied' || "
            "document.getElementById('encoder-ids').value.split(' ').length === n",
            arg=len(ids),
        )
        assert errors == []
