from __future__ import annotations

import importlib.util
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_normalization import normalizes_alike
from profiles import seldom, share, times

from bpe_core import (
    BPETokenizer,
    PretokenCounts,
    count_pretokens,
    pattern_with_rules,
    reference,
    train_bpe,
    train_from_counts,
)
from bpe_core._native import Normalizer, safe_cut, split_pretokens
from bpe_core.errors import InvalidTokenizerError, TrainingError
from bpe_core.normalization import NORMALIZERS, QUOTES, native_normalizer
from bpe_core.patterns import resolve_pattern
from bpe_core.special_tokens import special_set, split_special_tokens

unicodedata2 = pytest.importorskip("unicodedata2", reason="says what Unicode 16.0 is")

NATIVE = Path(__file__).parents[2] / "bpe_core" / "native"
EVERYTHING = [*range(0xD800), *range(0xE000, 0x110000)]
Normalize = Callable[[str], str]


def expected(form: str | None, quotes: bool, text: str) -> str:
    """The definition, by the package that the tables come from."""
    if form is not None:
        text = unicodedata2.normalize(form.upper(), text)
    return text.translate(str.maketrans(QUOTES)) if quotes else text


def natively(form: str | None, quotes: bool, text: str) -> str:
    return Normalizer(form, quotes).normalize(text.encode()).decode()


def check(text: str) -> None:
    for form in (None, *NORMALIZERS):
        for quotes in (False, True):
            assert natively(form, quotes, text) == expected(form, quotes, text), ascii(text)


def corpora() -> list[Path]:
    root = Path(__file__).parents[2]
    return sorted([*root.glob("examples/data/*.txt"), *root.glob("../shared/data/*.zst")])


def beginning_of(path: Path, size: int) -> str:
    if path.suffix == ".zst":
        zstandard = pytest.importorskip("zstandard")
        with path.open("rb") as file:
            sample = zstandard.ZstdDecompressor().stream_reader(file).read(size)
    else:
        sample = path.read_bytes()[:size]
    return str(sample.decode(errors="ignore"))


@pytest.mark.parametrize("path", corpora(), ids=lambda path: path.name)
def test_real_text_becomes_what_unicode_16_says(path: Path) -> None:
    check(beginning_of(path, times(20_000)))


# ---- tables


def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(NATIVE))
    spec = importlib.util.spec_from_file_location(
        "generator", NATIVE / "generate_normalization_tables.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.nightly
def test_the_tables_in_the_repository_are_what_their_generator_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "normalization_tables.cpp"
    generator(monkeypatch).main(["--output", str(output)])
    assert output.read_bytes() == (NATIVE / "normalization_tables.cpp").read_bytes(), (
        "run make tables"
    )


@cache
def composites() -> dict[str, str]:
    """Each primary composite by its two parts."""
    found = {}
    for c in map(chr, EVERYTHING):
        parts = unicodedata2.decomposition(c).split()
        if len(parts) == 2 and "<" not in parts[0] and unicodedata2.normalize("NFC", c) == c:
            found["".join(chr(int(part, 16)) for part in parts)] = c
    return found


def test_composing_never_adds_bytes() -> None:
    assert len(composites()) > 900
    for parts, composite in composites().items():
        assert len(composite.encode()) <= len(parts.encode())


def test_quotes_compose_with_nothing() -> None:
    for parts in composites():
        assert not set(parts) & {*QUOTES, *QUOTES.values()}


# ---- normalizing


@pytest.mark.parametrize("form", [None, *NORMALIZERS])
def test_every_code_point_becomes_what_unicode_16_says(form: str | None) -> None:
    normalizers = {quotes: Normalizer(form, quotes) for quotes in (False, True)}
    for code_point in share(EVERYTHING, 16):
        text = chr(code_point)
        for quotes, normalizer in normalizers.items():
            found = normalizer.normalize(text.encode()).decode()
            assert found == expected(form, quotes, text), hex(code_point)


@pytest.mark.slow
def test_exactly_the_listed_quotes_become_ascii() -> None:
    normalizer = Normalizer(None, quotes=True)
    changed = {}
    for code_point in EVERYTHING:
        text = chr(code_point)
        if (found := normalizer.normalize(text.encode()).decode()) != text:
            changed[text] = found
    assert changed == QUOTES
    assert natively("nfkc", True, "‘a’ “b” «c» ＂d＂ 5′ 6″ ʼn") == '\'a\' "b" "c" "d" 5′ 6′′ ʼn'


@cache
def active_characters() -> list[str]:
    """All that take part in normalization, some that compose more than once, and quotes."""
    seconds = "".join(parts[1] for parts in composites())
    changing = [
        c
        for c in map(chr, EVERYTHING)
        if unicodedata2.combining(c) or unicodedata2.normalize("NFKD", c) != c
    ]
    hangul = [chr(c) for c in [*range(0x1100, 0x1200), *range(0xAC00, 0xAC40), 0xD7A3]]
    return [*changing, *seconds * 4, *hangul * 2, *"aeoAEOsd ='\"<>…", *QUOTES]


@st.deferred
def texts() -> st.SearchStrategy[str]:
    """Text of active and other characters; they are found when a test asks for it."""
    active = active_characters()
    # By index: sampled_from would examine all of them.
    characters = st.integers(0, len(active) - 1).map(active.__getitem__)
    either = st.one_of(characters, st.sampled_from(["x", " ", "\u0301", "\u0323", "\u0345"]))
    return st.one_of(st.lists(either, max_size=30).map("".join), st.text(max_size=30))


@pytest.mark.slow
@settings(max_examples=times(20))
@given(texts)
def test_any_text_becomes_what_unicode_16_says(text: str) -> None:
    check(text)


def test_every_pair_of_a_base_and_a_mark_becomes_what_unicode_16_says() -> None:
    seconds = sorted({parts[1] for parts in composites()})
    firsts = sorted({parts[0] for parts in composites()} | set(composites().values()))
    normalizer = Normalizer("nfc")
    for first in firsts:
        text = "".join(f"{first}{second}." for second in seconds)
        found = normalizer.normalize(text.encode()).decode()
        assert found == unicodedata2.normalize("NFC", text), hex(ord(first))


@pytest.mark.slow
def test_sequences_like_those_of_the_conformance_test_become_what_unicode_16_says() -> None:
    rng = random.Random(16)
    active = active_characters()
    marks = [c for c in active if unicodedata2.combining(c)]
    for c in share(sorted(set(active)), 4):
        check(f"a\u0315\u0300\u05ae{c}b")
        check(f"a{c}\u0315\u0300\u05aeb")
        check(c + rng.choice(marks) + rng.choice(marks) + c)
        for form in ("NFD", "NFKD"):
            check(unicodedata2.normalize(form, c + rng.choice(marks) + rng.choice(active)))


@pytest.mark.slow
@settings(max_examples=times(5))
@given(texts, st.sampled_from([None, *NORMALIZERS]), st.booleans())
def test_what_is_normalized_stays(text: str, form: str | None, quotes: bool) -> None:
    once = natively(form, quotes, text)
    assert natively(form, quotes, once) == once


def test_text_that_stays_is_not_copied() -> None:
    text = ("plain text, é and 漢字, x\u0301 " * 100).encode()
    for form in NORMALIZERS:
        assert Normalizer(form, quotes=True).normalize(text) is text


@settings(max_examples=times(3))
@given(st.lists(st.one_of(st.binary(max_size=6), texts.map(str.encode)), max_size=6))
def test_bytes_that_are_not_utf8_stay_and_part_the_text(pieces: list[bytes]) -> None:
    data = b"\xff".join(pieces)
    for form in NORMALIZERS:
        found = Normalizer(form).normalize(data)
        parts = data.split(b"\xff")
        assert found == b"\xff".join(Normalizer(form).normalize(part) for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("marks", ["\u0301", "\u0301\u0323", "\u0316\u0301\u0345", "\u3099"])
def test_ten_megabytes_of_marks_take_linear_time(marks: str) -> None:
    text = "a" + marks * (10_000_000 // len(marks.encode()))
    start = time.perf_counter()
    found = natively("nfc", False, text)
    # A quarter of a second; quadratic time would be hours.
    assert time.perf_counter() - start < 20
    short = "a" + marks * 1000
    assert found.startswith(unicodedata2.normalize("NFC", short)[:900])


def test_growth_is_bounded() -> None:
    for text in ("\ufdfa" * 1000, "\U0001d160" * 1000, "\u0390\u0344" * 1000):
        assert len(natively("nfkc", False, text).encode()) <= 11 * len(text.encode())
        assert len(natively("nfc", False, text).encode()) <= 3 * len(text.encode())


def test_an_unknown_normalizer_is_refused() -> None:
    with pytest.raises(InvalidTokenizerError, match="expected 'nfc', 'nfkc' or None, found 'NFC'"):
        native_normalizer("NFC", False)
    with pytest.raises(InvalidTokenizerError, match="found 'nfd'"):
        count_pretokens(["a"], normalizer="nfd")


# ---- tokenizers


SPECIALS = ["<|end|>", "<ﬁ>", "<fi>", "“s”", "e\u0301<"]
# Words, their parts and forms that come together only when they are normalized.
PIECES = [
    *SPECIALS,
    *(
        "naïve",
        "nai\u0308ve",
        "e\u0301",
        "e",
        "\u0301",
        "é",
        "ﬁ",
        "㎏",
        "½",
        "①",
        "１２３",
        "12345",
    ),
    *(
        "“",
        "”",
        "‘",
        "’",
        "＇",
        "s",
        "＜",
        "ﬁ>",
        "<",
        "가",
        "\u1100\u1161",
        "\u11a8",
        "\u3099",
        "が",
    ),
    *(" ", "  ", "\n", "\u3000", "\ufdfa", "\u1e9b\u0323", "don’t", "A\u030a", "Å", "漢字", "!?"),
    *("\u0958", "\u0340", "\u2033", "=\u0338", "\u0149", "\ufc5e", "x\u0323\u0302"),
]
SETTINGS = [("nfc", False), ("nfkc", False), ("nfc", True), ("nfkc", True), (None, True)]
SPLITS = [
    "gpt2",
    "cl100k",
    "o200k",
    "none",
    pattern_with_rules("gpt2", split_categories=True, max_digits=3),
    r"\p{L}+|\p{N}|[^\p{L}\p{N}]+",
]

# Each form with two patterns, each pattern with one or two: they meet in `safe_cut` alone.
PAIRS = seldom([(*setting, pattern) for pattern in SPLITS for setting in SETTINGS], 3)


def mixed_text(rng: random.Random, most: int = 30) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(most)))


@cache
def training_counts() -> PretokenCounts:
    rng = random.Random(0)
    words = (natively("nfkc", True, mixed_text(rng, 8)) for _ in range(3000))
    return count_pretokens([*words, *(mixed_text(rng) for _ in range(300))])


@cache
def tokenizer(
    normalizer: str | None = None, normalize_quotes: bool = False, pattern: str = "gpt2"
) -> BPETokenizer:
    result = train_from_counts(training_counts(), 600)
    return BPETokenizer(
        result.vocab,
        result.merges,
        SPECIALS,
        pattern=pattern,
        normalizer=normalizer,
        normalize_quotes=normalize_quotes,
    )


def parts_by_definition(form: str | None, quotes: bool, text: str) -> Iterator[tuple[str, bool]]:
    for part, is_special in split_special_tokens(text.encode(), special_set(SPECIALS)):
        source = part.decode()
        yield (source if is_special else expected(form, quotes, source)), is_special


def ids_by_definition(form: str | None, quotes: bool, pattern: str, text: str) -> list[int]:
    """Special tokens in the source, the text between them normalized, split and merged."""
    plain = tokenizer(pattern=pattern)
    ids: list[int] = []
    for part, is_special in parts_by_definition(form, quotes, text):
        ids += [plain.special_tokens[part]] if is_special else plain.encode_ordinary(part)
    return ids


@pytest.mark.parametrize(("form", "quotes", "pattern"), PAIRS)
def test_text_between_special_tokens_is_normalized_before_it_is_split(
    form: str | None, quotes: bool, pattern: str
) -> None:
    encoder = tokenizer(form, quotes, pattern)
    rng = random.Random(f"{form} {quotes} {pattern}")
    documents = [mixed_text(rng) for _ in range(300)]
    wanted = [ids_by_definition(form, quotes, pattern, text) for text in documents]
    assert [encoder.encode(text) for text in documents] == wanted
    assert [encoder.encode(text.encode()) for text in documents] == wanted
    assert [encoder.encode_to_numpy(text).tolist() for text in documents] == wanted
    for num_threads in (1, 3):
        ids, offsets = encoder.encode_batch_to_numpy(documents, num_threads=num_threads)
        assert ids.tolist() == [*chain.from_iterable(wanted)]
        assert np.diff(offsets).tolist() == list(map(len, wanted))
    for text, ids_of_text in zip(documents, wanted, strict=True):
        shown = "".join(part for part, _ in parts_by_definition(form, quotes, text))
        assert encoder.normalize(text) == encoder.decode(ids_of_text) == shown


@pytest.mark.parametrize(("form", "quotes", "pattern"), PAIRS)
def test_encode_iterable_gives_the_ids_of_the_whole_wherever_it_is_cut(
    form: str | None, quotes: bool, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bpe_core.streaming._STREAM_BYTES", 1)
    encoder = tokenizer(form, quotes, pattern)
    rng = random.Random(f"{form} {quotes} {pattern}")
    for _ in range(100):
        text = mixed_text(rng, 60)
        parts = []
        at = 0
        while at < len(text):
            step = rng.randint(1, 5)
            parts.append(text[at : at + step])
            at += step
        assert list(encoder.encode_iterable(parts)) == encoder.encode(text), ascii(text)


def test_text_that_comes_to_spell_a_special_token_stays_text() -> None:
    encoder = tokenizer("nfkc", True)
    ids = encoder.encode("<ﬁ><fi>＜fi＞<f\u200bi>")
    assert ids[:2] == [encoder.special_tokens["<ﬁ>"], encoder.special_tokens["<fi>"]]
    assert not set(ids[2:]) & set(encoder.special_tokens.values())
    assert encoder.decode(ids) == "<ﬁ><fi><fi><f\u200bi>"
    assert encoder.encode("＜fi＞") == encoder.encode("<fi>", allowed_special="none")


def test_with_special_tokens_as_text_all_of_it_is_normalized() -> None:
    encoder = tokenizer("nfkc", True)
    assert encoder.encode("a<ﬁ>", "none") == encoder.encode("a<fi>", "none")
    assert encoder.encode("a“s”", {"<ﬁ>"}) == encoder.encode('a"s"', {"<ﬁ>"})


@pytest.mark.slow
def test_long_expanding_text_is_encoded_in_threads() -> None:
    encoder = tokenizer("nfkc")
    documents = ["\ufdfa" * 40_000, "plain " * 10_000, "㎏½" * 30_000] * 3
    ids, offsets = encoder.encode_batch_to_numpy(documents, num_threads=4)
    wanted = [tokenizer().encode(expected("nfkc", False, text)) for text in documents]
    assert np.diff(offsets).tolist() == list(map(len, wanted))
    assert ids.tolist() == [*chain.from_iterable(wanted)]
    short = documents[0][:5000]
    wanted_of_short = tokenizer().encode(expected("nfkc", False, short))
    assert encoder.encode(short) == list(encoder.encode_iterable([short])) == wanted_of_short


def test_offsets_are_given_only_in_text_that_stays_as_it_is() -> None:
    encoder = tokenizer("nfc")
    for call in (encoder.encode_with_offsets, partial(encoder.truncate, max_tokens=3)):
        with pytest.raises(ValueError, match=r"give `tokenizer.normalize"):
            call("cafe\u0301")
        call("café")


def test_a_loaded_tokenizer_normalizes_by_itself(tmp_path: Path) -> None:
    encoder = tokenizer("nfkc", True)
    encoder.save(tmp_path)
    loaded = BPETokenizer.load(tmp_path)
    assert (loaded.normalizer, loaded.normalize_quotes) == ("nfkc", True)
    assert loaded.model == encoder.model
    assert loaded.encode("“ﬁne” ½") == encoder.encode("“ﬁne” ½") == tokenizer().encode('"fine" 1⁄2')


def test_one_tokenizer_normalizes_in_many_threads() -> None:
    encoder = tokenizer("nfkc", True)
    text = mixed_text(random.Random(5), 3000)
    wanted = encoder.encode(text)
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: found.append(encoder.encode(text))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 8


# ---- cutting long text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "quotes", "pattern"),
    [(*setting, pattern) for pattern in [*SPLITS[:3], SPLITS[4]] for setting in SETTINGS],
)
def test_a_safe_cut_of_the_source_is_a_boundary_of_the_normalized_text(
    form: str | None, quotes: bool, pattern: str
) -> None:
    normalizer = native_normalizer(form, quotes)
    assert normalizer is not None
    split = partial(split_pretokens, resolve_pattern(pattern).native)
    rng = random.Random(f"{form} {quotes} {pattern}")
    active = active_characters()
    checked = 0
    while checked < 1500:
        letters = "".join(rng.choice(active) + rng.choice(["", "x", "!", " "]) for _ in range(12))
        text = rng.choice([mixed_text(rng), letters]).encode()
        cut = safe_cut(text, True, rng.randrange(len(text) + 1), special_set([]), normalizer)
        if cut is None:
            continue
        whole = normalizer.normalize(text)
        left, right = normalizer.normalize(text[:cut]), normalizer.normalize(text[cut:])
        assert left + right == whole, text.decode()
        assert len(left) in split(whole).tolist(), text.decode()
        checked += 1


def test_what_composes_with_marks_after_a_cut_is_no_letter_and_no_apostrophe() -> None:
    for parts, composite in composites().items():
        if unicodedata2.category(parts[0])[0] not in "LM":
            assert unicodedata2.category(composite)[0] not in "LM"


# ---- counting and training


@pytest.mark.parametrize(("form", "quotes", "pattern"), PAIRS)
def test_counting_normalizes_as_encoding_does(
    form: str | None, quotes: bool, pattern: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{form} {quotes}")
    documents = [mixed_text(rng, 200) for _ in range(30)]
    pieces = [
        part
        for text in documents
        for part, is_special in parts_by_definition(form, quotes, text)
        if not is_special
    ]
    wanted = reference.count_pretokens(pieces, pattern=pattern)
    options: dict[str, Any] = {"special_tokens": SPECIALS, "pattern": pattern}
    found = count_pretokens(documents, normalizer=form, normalize_quotes=quotes, **options)
    assert dict(found.items()) == wanted
    assert found.metadata["normalizer"] == (form or "null")
    assert found.metadata["normalize_quotes"] == str(quotes).lower()
    paths = [tmp_path / f"{i}.txt" for i in range(len(documents))]
    for path, text in zip(paths, documents, strict=True):
        path.write_bytes(text.encode())
    options |= {"normalizer": form, "normalize_quotes": quotes, "num_threads": 2}
    assert count_pretokens(paths, **options) == found


def test_a_long_file_is_counted_in_pieces_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = mixed_text(random.Random(3), 20_000)
    (tmp_path / "long.txt").write_bytes(text.encode())
    options: dict[str, Any] = {"normalizer": "nfkc", "normalize_quotes": True}
    whole = count_pretokens([text], **options)
    monkeypatch.setattr("bpe_core.counting._BATCH_BYTES", 100)
    assert count_pretokens(tmp_path / "long.txt", **options) == whole


def test_counts_that_were_normalized_differently_are_not_added() -> None:
    with pytest.raises(TrainingError, match="same normalizer on both sides, found null and nfc"):
        count_pretokens(["a"]) + count_pretokens(["a"], normalizer="nfc")
    with pytest.raises(TrainingError, match="same normalize_quotes on both sides"):
        count_pretokens(["a"]) + count_pretokens(["a"], normalize_quotes=True)


def test_what_counts_record_is_in_the_trained_tokenizer() -> None:
    counts = count_pretokens(["a b"], normalizer="nfkc", normalize_quotes=True, max_digits=2)
    model = train_from_counts(counts, 257).model
    assert (model.normalizer, model.normalize_quotes) == ("nfkc", True)
    assert model.pattern == pattern_with_rules("gpt2", max_digits=2)
    assert model.fingerprint != train_from_counts(count_pretokens(["a b"]), 257).model.fingerprint


def trained_tokens(text: str, path: Path, **rules: Any) -> set[bytes]:
    path.write_text(text, encoding="utf-8")
    vocab, _ = train_bpe(path, 256 + 12, **rules)
    return set(vocab.values())


@pytest.mark.parametrize(
    ("text", "rules", "only_without", "only_with"),
    [
        ("it's it's 's 's", {"split_categories": True}, b"'s", None),
        ("(a (a (a (a", {"pattern": "cl100k", "split_categories": True}, b"(a", None),
        ("2024 2024 2024", {"max_digits": 3}, b" 2024", b" 202"),
        ("cafe\u0301 cafe\u0301", {"normalizer": "nfc"}, "\u0301".encode(), "é".encode()),
        ("ﬁ ﬁ ﬁ", {"normalizer": "nfkc"}, "ﬁ".encode(), b"fi"),
        ("“a ‘a “a ‘a", {"normalize_quotes": True}, "“".encode(), None),
    ],
)
def test_each_rule_decides_what_is_merged(
    text: str, rules: dict[str, Any], only_without: bytes, only_with: bytes | None, tmp_path: Path
) -> None:
    pattern = {key: value for key, value in rules.items() if key == "pattern"}
    with pytest.warns(UserWarning, match="training reached"):
        without = trained_tokens(text * 2, tmp_path / "text", **pattern)
        ruled = trained_tokens(text * 2, tmp_path / "text", **rules)
    assert only_without in without - ruled
    assert only_with is None or only_with in ruled - without


# ---- Hugging Face


@cache
def known_to_the_library() -> list[str]:
    active = active_characters()
    return [c for c in active if normalizes_alike(c)]


@pytest.mark.nightly
def test_the_characters_that_the_library_does_not_know_are_as_many_as_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "normalization.md").read_text("utf-8")
    newer = [c for c in map(chr, EVERYTHING) if not normalizes_alike(c)]
    unknown = {*newer, *(unicodedata2.normalize("NFD", c)[0] for c in newer)}
    assert f"{len(unknown)} characters" in page
    assert min(map(ord, unknown)) == 0x7FD


@pytest.mark.parametrize(("form", "quotes", "pattern"), PAIRS)
def test_tokenizer_json_gives_the_same_ids(
    form: str | None, quotes: bool, pattern: str, tmp_path: Path
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    encoder = tokenizer(form, quotes, pattern)
    assert "tokenizer.json" not in encoder.save(tmp_path)
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    rng = random.Random(f"{form} {quotes} {pattern}")
    for i in range(400):
        known = "".join(rng.choices(known_to_the_library(), k=20))
        text = mixed_text(rng) if i % 2 else known + mixed_text(rng, 5)
        assert peer.encode(text).ids == encoder.encode(text), ascii(text)
    assert BPETokenizer.from_huggingface(tmp_path / "tokenizer.json").model == encoder.model


@pytest.mark.parametrize("path", corpora(), ids=lambda path: path.name)
def test_tokenizer_json_gives_the_same_ids_on_real_text(path: Path, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    encoder = tokenizer("nfkc", True)
    encoder.save(tmp_path)
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = beginning_of(path, times(10_000))
    assert peer.encode(text).ids == encoder.encode(text)


def test_none_is_no_normalizer() -> None:
    vocab = {i: bytes([i]) for i in range(256)}
    ours = BPETokenizer(vocab, [], normalizer="none")
    assert ours.normalizer is None
    assert ours == BPETokenizer(vocab, [])
    assert ours.model.fingerprint == BPETokenizer(vocab, []).model.fingerprint
    counts = count_pretokens(["a b"], normalizer="none")
    assert counts.metadata == count_pretokens(["a b"]).metadata
    assert train_from_counts(counts, 257).model.normalizer is None
