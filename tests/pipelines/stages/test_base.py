"""Builds that extend a tokenizer: `tokenizer.base`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from build_support import checksums, some_text, write_corpus
from build_support import command as beam_bpe

from bpe_core import BPETokenizer, PretokenCounts, train_from_counts
from bpe_core.patterns import PATTERNS
from pipelines import build
from pipelines.errors import ConfigError, DifferentConfigurationError

END = "<|endoftext|>"
WORDS = [("the", 6), (" the", 9), (" cat", 5), (" sat", 4), (" mat", 3)]


def make_base(place: Path, **options: Any) -> BPETokenizer:
    """A tokenizer as others publish them: with gaps between ids, special tokens at the end."""
    counts = PretokenCounts.from_mapping({text.encode(): n for text, n in WORDS})
    made = train_from_counts(counts, 262)
    vocab = {i + 3: token for i, token in made.vocab.items()}
    settings = {"pattern": PATTERNS["o200k"], "normalizer": "nfc", **options}
    base = BPETokenizer(vocab, made.merges, {"<s>": 400, "<e>": 402}, **settings)
    base.save(place)
    (place / "tokenizer.arrow").unlink()
    for name in ("vocab.json", "merges.txt", "tokenizer.tiktoken"):
        (place / name).unlink(missing_ok=True)
    return BPETokenizer.load(place)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "data", {"a.txt": [*some_text(8), b"the<s>zoo cafe\xcc\x81"]})
    return tmp_path


def config_of(directory: Path, **tokenizer: Any) -> dict[str, Any]:
    return {
        "output": str(directory / "out"),
        "input": {"files": [str(directory / "data" / "*.txt")]},
        "counts": {"shards": 2},
        "tokenizer": {"base": str(directory / "base"), "vocab_size": 275, **tokenizer},
        "encode": {"append": None},
    }


@pytest.mark.slow
def test_a_build_extends_a_tokenizer(directory: Path) -> None:
    """It keeps all ids and merges, and is what Python's `base=` makes of the same counts."""
    base = make_base(directory / "base")
    summary = build(config_of(directory))
    extended = summary.load_tokenizer()
    assert isinstance(extended, BPETokenizer)
    assert len(extended.model) == 275
    assert base.vocab.items() <= extended.vocab.items()
    assert extended.merges[: len(base.merges)] == base.merges
    assert extended.special_tokens == {"<s>": 400, "<e>": 402}
    assert min(i for i in extended.vocab if i not in base.vocab) == 403
    assert (extended.pattern, extended.normalizer) == ("o200k", "nfc")
    counts = PretokenCounts.load(directory / "out" / "counts")
    pretokens = {text.decode() for text, _ in counts.items()}
    assert {"zoo", " caf\u00e9"} <= pretokens  # cut at <s>, and normalized
    assert not any("<s>" in text for text in pretokens)
    again = train_from_counts(counts, 275, base=base).model
    assert again.fingerprint == extended.model.fingerprint
    text = "zz<s> xyy"
    assert extended.encode(text) == base.encode(text)


@pytest.mark.slow
def test_counts_are_those_of_the_same_settings_by_hand(directory: Path) -> None:
    base = make_base(directory / "base")
    build(config_of(directory))
    by_hand = config_of(directory) | {"output": str(directory / "by_hand")}
    by_hand["tokenizer"] = {
        "pattern": base.pattern,
        "normalizer": "nfc",
        "special_tokens": ["<s>", "<e>"],
        "vocab_size": 270,
    }
    build.count(by_hand)
    first, second = (checksums(directory / name / "counts") for name in ("out", "by_hand"))
    assert first == second


@pytest.mark.slow
def test_special_tokens_are_added(directory: Path) -> None:
    make_base(directory / "base")
    config = config_of(directory, special_tokens=["<e>", END]) | {"encode": {"append": END}}
    extended = build(config).load_tokenizer()
    assert isinstance(extended, BPETokenizer)
    assert extended.special_tokens == {"<s>": 400, "<e>": 402, END: 403}


@pytest.mark.slow
def test_required_tokens_are_tokens(directory: Path) -> None:
    """Beside the base's, at the same size; what its pattern splits is refused."""
    base = make_base(directory / "base")
    extended = build.train(config_of(directory, required_tokens=[" zebra", "the"])).load_tokenizer()
    assert isinstance(extended, BPETokenizer)
    assert len(extended.model) == 275
    assert base.vocab.items() <= extended.vocab.items()
    assert [len(extended.encode(text)) for text in (" zebra", "the")] == [1, 1]
    with pytest.raises(ConfigError, match="the pattern splits it"):
        build.plan(config_of(directory, required_tokens=["New York"]))


@pytest.mark.slow
def test_a_finished_build_belongs_to_its_base(directory: Path) -> None:
    base = make_base(directory / "base")
    config = config_of(directory)
    build(config)
    before = checksums(directory / "out")
    assert {stage.state for stage in build(config).stages} == {"already finished"}
    # The same tokenizer in another place and format.
    base.save(directory / "moved")
    build(config_of(directory, base=str(directory / "moved")))
    assert checksums(directory / "out") == before
    vocab = {i: token for i, token in base.vocab.items() if i < 400}
    BPETokenizer(vocab, base.merges[:-1], {"<s>": 400, "<e>": 402}, pattern=base.pattern,
                 normalizer="nfc").save(directory / "other")  # fmt: skip
    with pytest.raises(DifferentConfigurationError, match=r"tokenizer\.base: "):
        build(config_of(directory, base=str(directory / "other")))


@pytest.mark.slow
def test_the_output_of_a_build_is_a_base(directory: Path) -> None:
    config = config_of(directory) | {"output": str(directory / "base")}
    config["tokenizer"] = {"vocab_size": 262}
    build.train(config)
    extended = build.train(config_of(directory)).load_tokenizer()
    assert isinstance(extended, BPETokenizer)
    assert BPETokenizer.load(directory / "base").vocab.items() <= extended.vocab.items()


def test_ranks_need_the_pattern(directory: Path) -> None:
    tokenizer = train_from_counts(PretokenCounts.from_mapping({b"ab": 2}), 257).tokenizer()
    tokenizer.save(directory / "made")
    ranks = str(directory / "made" / "tokenizer.tiktoken")
    with pytest.raises(ConfigError, match="split pattern"):
        build.plan(config_of(directory, base=ranks))
    extended = build.train(config_of(directory, base=ranks, pattern="cl100k")).load_tokenizer()
    assert isinstance(extended, BPETokenizer)
    assert (extended.pattern, extended.vocab[256]) == ("cl100k_tiktoken", b"ab")


@pytest.mark.parametrize(
    ("tokenizer", "options", "message"),
    [
        ({"base": "none"}, {}, "There is no tokenizer"),
        ({"pattern": "gpt2"}, {}, "tokenizer.pattern contradicts"),
        ({"rules": {"max_digits": 1}}, {}, "tokenizer.pattern contradicts|rules.max_digits"),
        ({"normalizer": "none"}, {}, "tokenizer.normalizer contradicts"),
        ({"normalize_quotes": True}, {}, "tokenizer.normalize_quotes contradicts"),
        ({"vocab_size": 263}, {}, "more than 264"),
        ({"unit": "character"}, {}, "byte with tokenizer.base"),
        ({"train_where": "worker"}, {}, "launcher with tokenizer.base"),
        ({"path": "somewhere"}, {}, "tokenizer.path alone"),
    ],
)
def test_contradictions_are_refused(
    directory: Path, tokenizer: Mapping[str, Any], options: Mapping[str, Any], message: str
) -> None:
    make_base(directory / "base", **options)
    with pytest.raises(ConfigError, match=message):
        build.plan(config_of(directory, **tokenizer))


def test_the_same_settings_may_be_repeated(directory: Path) -> None:
    make_base(directory / "base")
    settings = {"pattern": "o200k", "normalizer": "nfc", "normalize_quotes": False}
    assert build.plan(config_of(directory, **settings)).refusal is None


def test_an_affix_must_be_a_special_token_of_the_base(directory: Path) -> None:
    make_base(directory / "base")
    with pytest.raises(ConfigError, match="special token of the tokenizer"):
        build.plan(config_of(directory) | {"encode": {"append": END}})


@pytest.mark.parametrize("flag", ["lstrip", "single_word"])
def test_special_tokens_with_flags_cannot_be_counted(directory: Path, flag: str) -> None:
    make_base(directory / "base")
    file = directory / "base" / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    content["added_tokens"][0][flag] = True
    file.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ConfigError, match=f"flags of the special token '<s>': {flag}"):
        build.plan(config_of(directory))


def test_tokenizers_of_characters_cannot_be_extended(directory: Path) -> None:
    config = config_of(directory) | {"output": str(directory / "base")}
    config["tokenizer"] = {"unit": "character", "vocab_size": 60}
    build.train(config)
    with pytest.raises(ConfigError, match="merges characters"):
        build.plan(config_of(directory))


@pytest.mark.slow
def test_sizes_of_an_extended_tokenizer(directory: Path) -> None:
    """They begin with that of the base; larger ones need the configuration."""
    make_base(directory / "base")
    config = config_of(directory)
    build.train(config)
    with pytest.raises(ConfigError, match="264"):
        build.sizes(config, [263])
    found = build.sizes(config, [264, 270, 275, 280]).to_json()["sizes"]
    assert [size["ids"] for size in found] == [264, 270, 275, 280]
    done = beam_bpe("sizes", directory / "out", "--vocab", "270,275", "--json")
    assert json.loads(done.stdout)["sizes"] == found[1:3]
    larger = beam_bpe("sizes", directory / "out", "--vocab", "280")
    assert larger.returncode == 4
    assert "only the configuration names" in larger.stderr
