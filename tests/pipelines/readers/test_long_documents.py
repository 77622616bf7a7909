"""Chunks of a long document have the ids of the whole: flags of added tokens, the pattern none."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from added_tokens import CHARACTERS, SETS, library, read
from build_support import EXAMPLES, config_for, with_small_pieces, works_of
from profiles import times
from tokenizers import AddedToken, Regex, pre_tokenizers

from bpe_core import BPETokenizer, train_bpe
from bpe_core.model import TokenizerModel
from pipelines.readers.tasks import read_task, source_readings
from pipelines.tokenizers.files import cutting_rules
from pipelines.writing.encoder import DocumentEncoder

# With a pattern that also splits between two spaces.
SPACES_APART = [
    AddedToken("<a>", special=True, normalized=False, lstrip=True),
    AddedToken("<b>", special=True, normalized=False, rstrip=True),
    AddedToken("<c>", special=False, normalized=True, lstrip=True),
    AddedToken("<d>", special=False, normalized=True, rstrip=True),
]


def check(tokenizer: BPETokenizer, text: str, directory: Path, parts: int) -> None:
    """Check that a document in chunks has the ids of the whole."""
    directory.mkdir(exist_ok=True)
    (directory / "data").mkdir(exist_ok=True)
    (directory / "data" / "a").write_text(text)
    config = config_for(directory, input={"separator": None, "range_bytes": 1 << 20})
    readings = source_readings(config.input, **cutting_rules(tokenizer.model))
    small = with_small_pieces(readings, piece_bytes=100, read_bytes=64)
    encoder = DocumentEncoder(tokenizer, prepend=None, append=None, special_tokens_in_text="split")
    (work,) = works_of(config)
    batches = list(read_task(work, pickle.loads(pickle.dumps(small))))
    assert len(batches) >= parts
    ids = np.concatenate([encoder.encode(batch).ids for batch in batches])
    assert ids.tolist() == tokenizer.encode(text)


def random_text(rng: random.Random, tokens: list[AddedToken], pieces: int) -> str:
    """Return words and added tokens between runs of white space, some longer than a chunk."""
    texts = [token.content for token in tokens]
    draws: list[Callable[[], str]] = [
        lambda: rng.choice(CHARACTERS),
        lambda: rng.choice(["ab", "cc.", "a"]),
        lambda: rng.choice(texts),
        lambda: rng.choice([" ", "\n", "\u3000", " \t"]) * rng.choice([1, 2, 3, 150]),
    ]
    return "".join(rng.choice(draws)() for _ in range(pieces))


@pytest.mark.parametrize("normalizer", [None, "NFC"])
@pytest.mark.parametrize("name", SETS)
def test_chunks_have_the_ids_of_the_whole(
    name: str, normalizer: str | None, tmp_path: Path
) -> None:
    tokenizer = read(library(SETS[name], normalizer), tmp_path)
    rng = random.Random(name)
    for i in range(times(0.1)):
        check(tokenizer, random_text(rng, SETS[name], 800), tmp_path / str(i), 8)


@pytest.mark.parametrize("normalizer", [None, "NFC"])
@pytest.mark.parametrize("token", SPACES_APART, ids=lambda token: token.content)
def test_chunks_of_single_spaces_have_the_ids_of_the_whole(
    token: AddedToken, normalizer: str | None, tmp_path: Path
) -> None:
    made = library([token], normalizer)
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\w+|\s|."), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer = read(made, tmp_path)
    rng = random.Random(1)
    for i in range(times(0.1)):
        check(tokenizer, random_text(rng, [token], 800), tmp_path / str(i), 8)


def sequence(*steps: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(list(steps))


STEPS = {
    "falcon": sequence(
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ),
    "words": sequence(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(False)),
    "words and signs": sequence(
        pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(False, use_regex=False)
    ),
    "bytes, then digits": sequence(
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Whitespace(),
    ),
}


@pytest.mark.parametrize("normalizer", [None, "NFC"])
@pytest.mark.parametrize("tokens", ["phi3", "words"])
@pytest.mark.parametrize("name", STEPS)
def test_chunks_have_the_ids_of_the_whole_with_steps_of_words_and_bytes(
    name: str, tokens: str, normalizer: str | None, tmp_path: Path
) -> None:
    made = library(SETS[tokens], normalizer)
    made.pre_tokenizer = STEPS[name]
    tokenizer = read(made, tmp_path)
    rng = random.Random(name)
    parts = 1 if name == "bytes, then digits" else 5  # it has no safe cuts
    for i in range(times(0.1)):
        check(tokenizer, random_text(rng, SETS[tokens], 800), tmp_path / str(i), parts)


@pytest.mark.parametrize("use_regex", [True, False])
@pytest.mark.parametrize("name", ["phi3", "phi4", "words", "mixed"])
def test_chunks_get_no_space_in_front_that_the_whole_has_not(
    name: str, use_regex: bool, tmp_path: Path
) -> None:
    made = library(SETS[name])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=use_regex)
    tokenizer = read(made, tmp_path)
    assert tokenizer.model.prefix_space
    rng = random.Random(name)
    text = random_text(rng, SETS[name], 800)
    check(tokenizer, text, tmp_path, 1 if name == "mixed" else 5)
    tokens = [token.content for token in SETS[name]]
    dense = "".join(rng.choices([*tokens, "b", "cc."], k=20_000))
    for whole in (text, dense):
        parts = (whole[i : i + 1000] for i in range(0, len(whole), 1000))
        assert list(tokenizer.encode_iterable(parts)) == tokenizer.encode(whole)


def test_white_space_of_any_length_is_not_cut_from_the_token_that_takes_it(tmp_path: Path) -> None:
    tokenizer = read(library(SETS["phi4"]), tmp_path)
    run = " " * 5000
    check(tokenizer, f"a.{run}<|im_end|>{run}b. c, d", tmp_path / "a", 1)
    check(tokenizer, f"a{run}b{run}<|im_sep|>{run}c d", tmp_path / "b", 2)


@pytest.mark.parametrize("normalizer", [None, "nfc"])
def test_the_pattern_none_is_cut_where_no_token_crosses(
    normalizer: str | None, tmp_path: Path
) -> None:
    text = "".join(path.read_text()[:3000] for path in sorted(EXAMPLES.glob("*.txt")))
    (tmp_path / "text").write_text(text)
    vocab, merges = train_bpe(tmp_path / "text", 600, ["<s>"], pattern="none")
    tokenizer = BPETokenizer(vocab, merges, ["<s>"], pattern="none", normalizer=normalizer)
    check(tokenizer, f"{text}<s>{text} e\u0301 漢字", tmp_path, 50)


def test_a_document_without_cuts_is_held_whole(tmp_path: Path) -> None:
    tokens = [(i, bytes([i])) for i in range(256)] + [(256, b"ab"), (257, b"ba")]
    model = TokenizerModel.from_tokens(tokens, [(97, 98, 256), (98, 97, 257)], pattern="none")
    check(BPETokenizer.from_model(model), "ab" * 500, tmp_path, 1)
    whole = TokenizerModel.from_tokens(tokens, [], pattern="none", ignore_merges=True)
    (options,) = source_readings(config_for(tmp_path).input, **cutting_rules(whole))
    assert not options.options.cut
