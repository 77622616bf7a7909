"""tokenizer.json files of the kinds that are published give the library's ids, and survive.

The files are made by the library itself, small, with the settings that the published ones have: the
pre-tokenizers, post-processors, added tokens and flags are theirs, the vocabularies are trained on
the example corpus.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_support import texts
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bpe_core import BPETokenizer, formats
from bpe_core.errors import FormatError
from bpe_core.formats.huggingface import huggingface_bytes, tokenizer_config_bytes
from bpe_core.model import TokenizerModel
from bpe_core.patterns import PATTERNS, THEN

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
DEEPSEEK_CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-\ud7ff]+"]

TEXT = (
    "In the beginning, it's 1234567 and WE'LL see:\n\n  don't!  \t x²½ ٣٤ "
    "漢字かな・カナ 12漢字 'ſ 'K.\r\n"
    " !import os; a.b(c)/d\n\n\n  The end...   "
)

UNNORMALIZED = [
    *[
        "e",
        "\u0301",
        "\u0323",
        "\u0307",
        "\u1112",
        "\u1161",
        "\u11ab",
        "\u212a",
        "\u0958",
        "\ufb01",
    ],
    *[
        "½",
        "①",
        "１２",
        "ｶﾞ",
        "\u3000",
        "<think>",
        "<|im_end|>",
        " ",
        "\n",
        "1",
        "'s",
        "\u037e",
        "…",
    ],
]


def splits(*expressions: str, use_regex: bool = False) -> Any:
    """Splits, one after another, then bytes."""
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex),
        ]
    )


def digits(individual: bool) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=individual),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )


STYLES: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": lambda: splits(LLAMA3),
    "qwen2": lambda: splits(QWEN2),
    "o200k": lambda: splits(O200K),
    "tekken": lambda: splits(TEKKEN),
    "smollm": lambda: digits(individual=True),
    "starcoder": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "digits together": lambda: digits(individual=False),
    "deepseek": lambda: splits(*DEEPSEEK),
    "deepseek coder": lambda: pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(e), "isolated") for e in DEEPSEEK_CODER),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
    "minicpm": lambda: splits(r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")),
    "split, then GPT-2's": lambda: splits("[\r\n]", use_regex=True),
    "roberta": lambda: pre_tokenizers.ByteLevel(add_prefix_space=True),
    "falcon": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
    "words and signs": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
    "words": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "bytes, then digits": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Whitespace(),
        ]
    ),
    "one text": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
}
NAMED = {"gpt2": "gpt2", "llama3": "llama3", "qwen2": "qwen2", "o200k": "o200k", "one text": "none"}


@pytest.fixture(scope="module")
def text(kjv: bytes) -> str:
    """What the vocabularies are trained on, and what is encoded: prose, and some of everything."""
    return kjv[:60_000].decode("utf-8", "ignore").replace("<|endoftext|>", "\n") + 20 * TEXT


@pytest.fixture(scope="module")
def trained(text: str) -> Callable[[str], Tokenizer]:
    made: dict[str, str] = {}

    def train(style: str) -> Tokenizer:
        if style not in made:
            tokenizer = Tokenizer(models.BPE(ignore_merges=style == "llama3"))
            tokenizer.pre_tokenizer = STYLES[style]()
            tokenizer.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(
                vocab_size=700,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                show_progress=False,
            )
            tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
            made[style] = tokenizer.to_str()
        return Tokenizer.from_str(made[style])

    return train


def read(tokenizer: Tokenizer, folder: Path) -> BPETokenizer:
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return BPETokenizer.from_huggingface(path)


def rewritten(ours: BPETokenizer) -> Tokenizer:
    """The library's tokenizer from what this package writes."""
    return Tokenizer.from_str(huggingface_bytes(ours.model).decode())


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


# Pre-tokenizers.


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_every_published_kind_of_pre_tokenizer_gives_the_librarys_ids(
    style: str, trained: Callable[[str], Tokenizer], text: str, tmp_path: Path
) -> None:
    theirs = trained(style)
    ours = read(theirs, tmp_path)
    if style in NAMED:
        assert ours.pattern in (NAMED[style], "cl100k")
    text = text[-30_000:] if style != "one text" else text[-2_000:]
    expected = ids_of(theirs, text)
    assert ours.encode(text) == expected
    assert ids_of(rewritten(ours), text) == expected
    assert read(rewritten(ours), tmp_path).model == ours.model

    @settings(max_examples=times(0.6))
    @given(texts)
    def on_random_text(sample: str) -> None:
        expected = ids_of(theirs, sample)
        assert ours.encode(sample) == expected
        assert ids_of(rewritten_once, sample) == expected

    rewritten_once = rewritten(ours)
    on_random_text()


@pytest.mark.soak
@pytest.mark.parametrize("style", STYLES)
def test_chains_of_splits_on_much_random_text(
    style: str, trained: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    theirs = trained(style)
    ours = read(theirs, tmp_path)

    @settings(max_examples=times(30))
    @given(texts)
    def on_random_text(sample: str) -> None:
        assert ours.encode(sample) == ids_of(theirs, sample)

    on_random_text()


def test_the_published_spellings_are_the_named_patterns() -> None:
    assert LLAMA3 == PATTERNS["llama3"] == PATTERNS["cl100k"]
    assert PATTERNS["qwen2"] == QWEN2
    assert PATTERNS["o200k"] == O200K


def test_a_chain_is_one_pattern_of_several_steps(
    trained: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    ours = read(trained("smollm"), tmp_path)
    assert ours.pattern == rf"\p{{N}}{THEN}{PATTERNS['gpt2']}"
    # The digit ends the text for the step after it: two spaces stay together.
    assert ours.decode(ours.encode("a  1")) == "a  1"
    assert ours.encode("a  1") == [*ours.encode("a"), *ours.encode("  "), *ours.encode("1")]


def test_sequences_may_hold_sequences(trained: Callable[[str], Tokenizer], tmp_path: Path) -> None:
    theirs = trained("deepseek")
    root = json.loads(theirs.to_str())
    *first, last = root["pre_tokenizer"]["pretokenizers"]
    nested = {"type": "Sequence", "pretokenizers": first[1:]}
    root["pre_tokenizer"]["pretokenizers"] = [first[0], nested, last]
    assert read(Tokenizer.from_str(json.dumps(root)), tmp_path) is not None
    (tmp_path / "nested.json").write_text(json.dumps(root))
    nested_model = formats.read_huggingface(tmp_path / "nested.json")
    assert nested_model == formats.read_huggingface(tmp_path / "tokenizer.json")


def test_a_split_at_a_literal_text_is_read(
    trained: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    theirs = trained("llama3")
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(".*", "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ours = read(theirs, tmp_path)
    for sample in ("abc.*the.the", ".*.*", "", "the beginning. * the"):
        assert ours.encode(sample) == ids_of(theirs, sample)


@pytest.mark.parametrize("style", ["roberta", "words", "words and signs"])
def test_offsets_leave_out_spaces_that_the_text_does_not_have(
    style: str, trained: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    theirs = trained(style)
    theirs.add_special_tokens([AddedToken("<mask>", lstrip=style == "roberta")])
    ours = read(theirs, tmp_path)
    sample = "In the<mask>beginning  of<mask> it\n\nall"
    if style == "roberta":  # the mask takes the space before it
        with pytest.raises(ValueError, match="white space that special tokens take"):
            ours.encode_with_offsets("In <mask>")
    expected = theirs.encode(sample, add_special_tokens=False)
    ids, offsets = ours.encode_with_offsets(sample)
    assert ids.tolist() == expected.ids
    assert offsets[:-1].tolist() == [begin for begin, _ in expected.offsets]
    assert offsets[-1] == len(sample)
    assert ours.decode(ids) == ours.normalize(sample) == theirs.decode(ids, False)
    assert list(ours.encode_iterable(sample)) == expected.ids
    assert ours.truncate(sample, 4).startswith("In")
    assert len(ours.encode(ours.truncate(sample, 4))) <= 4


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()], "a space before every piece"),
        ([pre_tokenizers.Digits(), pre_tokenizers.Whitespace()], "one ByteLevel"),
        (
            [pre_tokenizers.Digits(), pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(False)],
            "Whitespace as the first step",
        ),
        (
            [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(False), pre_tokenizers.Digits()],
            "ByteLevel as the last step behind Whitespace",
        ),
        (
            [pre_tokenizers.Punctuation("removed"), pre_tokenizers.ByteLevel(False)],
            "drops no text|drops text",
        ),
    ],
)
def test_what_cannot_be_exact_is_refused_by_name(
    steps: list[Any], message: str, trained: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    theirs = trained("gpt2")
    theirs.pre_tokenizer = pre_tokenizers.Sequence(steps)
    with pytest.raises(FormatError, match=message):
        read(theirs, tmp_path)


# What a file of Llama 3's kind has beside that.


@pytest.fixture(scope="module")
def llama3(trained: Callable[[str], Tokenizer]) -> Tokenizer:
    """256 reserved tokens outside of the vocabulary, a template, tokens that no merge makes."""
    root = json.loads(trained("llama3").to_str())
    vocab = root["model"]["vocab"]
    for token in ("ĠJehoshaphat", "zzz", "123"):
        vocab.setdefault(token, len(vocab))
    tokenizer = Tokenizer.from_str(json.dumps(root))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>"]
    names += [f"<|reserved_special_token_{i}|>" for i in range(252)]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    begin = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{begin} $A",
                pair=f"{begin} $A {begin}:1 $B:1",
                special_tokens=[(begin, tokenizer.token_to_id(begin))],
            ),
        ]
    )
    return tokenizer


def test_llama_3s_kind_of_file_is_read_whole(llama3: Tokenizer, text: str, tmp_path: Path) -> None:
    ours = read(llama3, tmp_path)
    begin = llama3.token_to_id("<|begin_of_text|>")
    assert ours.model.ignore_merges
    assert len(ours.special_tokens) == 256
    assert (ours.prepend, ours.append) == ((begin,), ())
    sample = f"<|start_header_id|>{text[:5000]} Jehoshaphat zzz 123<|eot_id|><|eot_id|>x"
    assert ours.encode(sample) == ids_of(llama3, sample)
    assert [*ours.prepend, *ours.encode(sample)] == llama3.encode(sample).ids


def test_what_llama_3s_kind_of_file_prepends_is_written_back(
    llama3: Tokenizer, tmp_path: Path
) -> None:
    ours = read(llama3, tmp_path)
    again = rewritten(ours)
    sample = "In the beginning<|eot_id|>"
    assert again.encode(sample).ids == llama3.encode(sample).ids
    assert again.encode(sample, "and so on").ids == llama3.encode(sample, "and so on").ids
    assert again.encode(sample, "so").type_ids == llama3.encode(sample, "so").type_ids
    formats.save_tokenizer(ours.model, tmp_path / "saved")
    loaded = BPETokenizer.load(tmp_path / "saved")
    assert loaded.model == ours.model
    assert loaded.prepend == ours.prepend
    training = json.loads((tmp_path / "saved" / "training.json").read_bytes())
    assert training["tokenizer"]["prepend"] == list(ours.prepend)


def test_tokens_before_and_after_a_text_are_kept_in_order(
    llama3: Tokenizer, tmp_path: Path
) -> None:
    llama3 = Tokenizer.from_str(llama3.to_str())
    names = ["<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|end_of_text|>"]
    a, b, c, d = names
    llama3.post_processor = processors.TemplateProcessing(
        single=f"{a} {b} $A {c} {d} {c}",
        pair=f"{a} {b} $A {c} {d} {c} {a}:1 {b}:1 $B:1 {c}:1 {d}:1 {c}:1",
        special_tokens=[(name, llama3.token_to_id(name)) for name in names],
    )
    ours = read(llama3, tmp_path)
    assert [*ours.prepend, *ours.encode("x"), *ours.append] == llama3.encode("x").ids
    assert rewritten(ours).encode("x", "y").ids == llama3.encode("x", "y").ids


@pytest.mark.parametrize(
    "pair",
    [
        None,  # the library's own: $A:0 $B:1
        "{a} $A $B",
        "{a} $A {b} $B:1 {b}:1",
        "$B:1 {b}:3 $A",
    ],
)
def test_the_template_for_two_texts_may_be_any(
    pair: str | None, llama3: Tokenizer, tmp_path: Path
) -> None:
    llama3 = Tokenizer.from_str(llama3.to_str())
    a, b = "<|begin_of_text|>", "<|eot_id|>"
    special_tokens = [(name, llama3.token_to_id(name)) for name in (a, b)]
    given = {} if pair is None else {"pair": pair.format(a=a, b=b)}
    llama3.post_processor = processors.TemplateProcessing(
        single=f"{a} $A", special_tokens=special_tokens, **given
    )
    ours = read(llama3, tmp_path)
    assert [*ours.prepend, *ours.encode("In the"), *ours.append] == llama3.encode("In the").ids
    begin = llama3.token_to_id(a)
    written = rewritten(ours)
    assert written.encode("In the").ids == llama3.encode("In the").ids
    assert written.encode("x", "y").ids == [begin, *ours.encode("x"), begin, *ours.encode("y")]


@pytest.mark.parametrize("kind", ["types", "roberta", "bert"])
def test_other_templates_of_one_text_give_the_same_ids(
    kind: str, llama3: Tokenizer, tmp_path: Path
) -> None:
    llama3 = Tokenizer.from_str(llama3.to_str())
    a, b = "<|begin_of_text|>", "<|eot_id|>"
    ids = [(name, llama3.token_to_id(name)) for name in (a, b)]
    llama3.post_processor = {
        "types": processors.TemplateProcessing(single=f"{a}:2 $A {b}:1", special_tokens=ids),
        "roberta": processors.RobertaProcessing(ids[1], ids[0]),
        "bert": processors.BertProcessing(ids[1], ids[0]),
    }[kind]
    ours = read(llama3, tmp_path)
    assert [*ours.prepend, *ours.encode("In the"), *ours.append] == llama3.encode("In the").ids
    assert rewritten(ours).encode("In the").ids == llama3.encode("In the").ids


def test_entries_that_no_text_becomes_are_left_out(
    trained: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    """Command R+ has some: they are neither of stand-ins nor added tokens."""
    root = json.loads(trained("llama3").to_str())
    root["model"]["vocab"] |= {"\u200d": 100_000, "the end": 100_001}
    (tmp_path / "tokenizer.json").write_text(json.dumps(root))
    whole = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = BPETokenizer.from_huggingface(tmp_path)
    text = "the end \u200d the end"
    assert ours.encode(text) == whole.encode(text, add_special_tokens=False).ids
    assert 100_000 not in ours.vocab


def test_a_directory_with_the_file_may_be_named(llama3: Tokenizer, tmp_path: Path) -> None:
    llama3.save(str(tmp_path / "tokenizer.json"))
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        (tmp_path / name).touch()
    named = BPETokenizer.from_huggingface(tmp_path / "tokenizer.json")
    assert BPETokenizer.from_huggingface(tmp_path) == named
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(FormatError, match="none of them of the format huggingface"):
        BPETokenizer.from_huggingface(tmp_path)
    with pytest.raises(FileNotFoundError):
        BPETokenizer.from_huggingface(tmp_path / "tokenizer.json")


# Templates that are refused.


def template(single: list[Any], pair: list[Any], **tokens: Any) -> dict[str, Any]:
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": tokens,
    }


def piece(name: str, type_id: int = 0) -> dict[str, Any]:
    kind = "Sequence" if name in "AB" else "SpecialToken"
    return {kind: {"id": name, "type_id": type_id}}


BOS = {"bos": {"id": "bos", "ids": [700], "tokens": ["<|end|>"]}}
ONE = [piece("bos"), piece("A")]
TWO = [*ONE, piece("bos", 1), piece("B", 1)]
REFUSED: list[tuple[Any, str]] = [
    (template(ONE, ["$A"], **BOS), r"post_processor.pair: expected special tokens and texts"),
    (template(ONE, [{"Sequence": 1}], **BOS), r"post_processor.pair: .*, found {'Sequence': 1}"),
    ({**template(ONE, TWO, **BOS), "pair": None}, "post_processor.pair: expected a list"),
    (template([piece("bos")], TWO, **BOS), "post_processor.single: expected"),
    (template([piece("A"), piece("A")], TWO, **BOS), "post_processor.single: expected"),
    (template([piece("B")], TWO, **BOS), "post_processor.single: expected"),
    (template(["x", piece("A")], TWO, **BOS), "special tokens and one text, found 'x'"),
    (template(ONE, TWO), r"special_tokens\['bos'\]: expected an object, found None"),
    (
        template(ONE, TWO, bos={"ids": [0]}),
        r"special_tokens\['bos'\].ids: expected ids of added tokens, found 0",
    ),
    (template(ONE, TWO, bos={"ids": "7"}), "ids: expected a list"),
    ({"type": "RobertaProcessing"}, r"post_processor.cls: expected a list, found None"),
    (
        {"type": "BertProcessing", "cls": ["a", 700], "sep": ["b", 3]},
        "post_processor.sep: expected",
    ),
    ({"type": "BertProcessing", "cls": ["a"], "sep": ["b", 700]}, "post_processor.cls: expected"),
    ({"type": "Sequence", "processors": [template(ONE, TWO, **BOS)] * 2}, "one TemplateProcessing"),
    ({"type": "Sequence", "processors": None}, "post_processor.processors: expected a list"),
    ("bos", "post_processor: expected an object"),
]


@pytest.mark.parametrize(("post_processor", "message"), REFUSED)
def test_a_template_that_does_something_else_is_refused(
    post_processor: Any, message: str, trained: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    root = json.loads(trained("gpt2").to_str())
    added = {"id": 700, "content": "<|end|>", "special": True}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**root, "added_tokens": [added], "post_processor": post_processor}))
    with pytest.raises(FormatError, match=message) as error:
        formats.read_huggingface(path)
    assert str(error.value).startswith(str(path))


def test_a_template_that_adds_nothing_is_none(
    trained: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    root = json.loads(trained("gpt2").to_str())
    root["post_processor"] = template([piece("A")], [piece("A"), piece("B", 1)])
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(root))
    assert formats.read_huggingface(path).prepend == ()


# What a file of Qwen's kind has: NFC, added tokens of both kinds.


@pytest.fixture(scope="module")
def qwen(trained: Callable[[str], Tokenizer]) -> Tokenizer:
    tokenizer = Tokenizer.from_str(trained("qwen2").to_str())
    tokenizer.normalizer = normalizers.NFC()
    for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        tokenizer.add_special_tokens([AddedToken(name, normalized=False)])
    for name in ("<tool_call>", "</tool_call>", "<think>"):
        tokenizer.add_tokens([AddedToken(name, normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def test_qwens_kind_of_file_is_read_whole(qwen: Tokenizer, text: str, tmp_path: Path) -> None:
    ours = read(qwen, tmp_path)
    assert ours.pattern == "qwen2"
    assert ours.normalizer == "nfc"
    assert ours.model.nonspecial_tokens == {"<tool_call>", "</tool_call>", "<think>"}
    assert ours.special_tokens["<tool_call>"] == qwen.token_to_id("<tool_call>")
    sample = f"<|im_start|>user\n{text[:3000]}<tool_call>{{}}</tool_call><|im_end|>"
    decomposed = "cafe\u0301 \u1112\u1161\u11ab \u212a\u212b q\u0323\u0307 \u0958 <think>\u0338"
    assert ours.encode(sample + decomposed) == ids_of(qwen, sample + decomposed)
    assert ids_of(rewritten(ours), sample + decomposed) == ids_of(qwen, sample + decomposed)


@pytest.mark.parametrize("normalizer", ["NFC", "NFKC"])
def test_normalizers_give_the_librarys_ids(
    normalizer: str, qwen: Tokenizer, tmp_path: Path
) -> None:
    theirs = Tokenizer.from_str(qwen.to_str())
    theirs.normalizer = getattr(normalizers, normalizer)()
    ours = read(theirs, tmp_path)
    assert ours.normalizer == normalizer.lower()

    @settings(max_examples=times(1))
    @given(st.lists(st.sampled_from(UNNORMALIZED), max_size=12).map("".join))
    def on_text_that_is_not_normalized(sample: str) -> None:
        assert ours.encode(sample) == ids_of(theirs, sample)

    on_text_that_is_not_normalized()


def test_added_tokens_that_are_not_special_survive(qwen: Tokenizer, tmp_path: Path) -> None:
    ours = read(qwen, tmp_path)
    again = rewritten(ours)
    ids = ids_of(qwen, "<|im_start|>a<tool_call>b<think><|im_end|>")
    assert again.decode(ids, skip_special_tokens=True) == qwen.decode(ids) == "a<tool_call>b<think>"
    assert read(again, tmp_path).model == ours.model
    formats.write_arrow(ours.model, tmp_path / "tokenizer.arrow")
    assert formats.read_arrow(tmp_path / "tokenizer.arrow") == ours.model
    assert json.loads(again.to_str())["normalizer"] == {"type": "NFC"}


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word", "normalized"])
def test_flags_of_added_tokens_are_kept(
    flag: str, qwen: Tokenizer, text: str, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_str(qwen.to_str())
    tokenizer.add_tokens([AddedToken("<mask>", **{"normalized": False, flag: True})])
    ours = read(tokenizer, tmp_path)
    assert ours.model.token_flags == {"<mask>": {flag}}
    sample = text[:200].replace(" ", " <mask> ").replace("e", "<mask>e")
    assert ours.encode(sample) == ids_of(tokenizer, sample) == ids_of(rewritten(ours), sample)


# transformers.


def test_transformers_loads_a_saved_directory(llama3: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = read(llama3, tmp_path)
    assert formats.save_tokenizer(ours.model, tmp_path / "saved").keys() == {
        "vocab.json + merges.txt"
    }
    for load in (
        transformers.AutoTokenizer.from_pretrained,
        transformers.PreTrainedTokenizerFast.from_pretrained,
    ):
        theirs = load(str(tmp_path / "saved"))
        sample = "In the  beginning<|eot_id|> , it's !"
        ids = ours.encode(sample)
        assert theirs(sample)["input_ids"] == [*ours.prepend, *ids]
        assert theirs(sample, add_special_tokens=False)["input_ids"] == ids
        assert theirs.decode(ids) == sample
        assert theirs.bos_token == "<|begin_of_text|>"


def test_tokenizer_config_names_what_is_put_around_a_text() -> None:
    tokens = [(i, bytes([i])) for i in range(256)]
    specials = {"<s>": 300, "</s>": 301, "<|endoftext|>": 302}

    def config(**fields: Any) -> dict[str, Any]:
        model = TokenizerModel.from_tokens(tokens, special_tokens=specials, **fields)
        loaded: dict[str, Any] = json.loads(tokenizer_config_bytes(model))
        return loaded

    assert config()["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config(prepend=[300], append=[301])["bos_token"] == "<s>"
    assert config(prepend=[300], append=[301])["eos_token"] == "</s>"
    assert config()["eos_token"] == "<|endoftext|>"
    assert "bos_token" not in config()
    assert "eos_token" not in config(append=[300, 301])
