"""Builds with `tokenizer.unit: character`: from sharded text to tokens of characters and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.testing.util import assert_that
from build_support import (
    EXAMPLES,
    ROOT,
    SEPARATOR,
    checksums,
    command,
    config_for,
    some_text,
    write_corpus,
)

from bpe_core import CharBPETokenizer, PretokenCounts
from pipelines import build
from pipelines.config import BuildConfig, SourceConfig, load_config
from pipelines.errors import ConfigError, DifferentConfigurationError, InputError
from pipelines.transforms import EncodeDocuments, ReadDocuments

CORPUS = {f"{name}.txt": some_text(20, start=20 * i) for i, name in enumerate("abc")}
DOCUMENTS = [document.decode() for name in sorted(CORPUS) for document in CORPUS[name]]
CHARACTERS: dict[str, Any] = {"unit": "character", "vocab_size": 60}
MINIMAL = "output: out\ninput:\n  files: [a.txt]\n"


def character_config(directory: Path, **sections: Any) -> BuildConfig:
    sections["tokenizer"] = CHARACTERS | sections.get("tokenizer", {})
    return config_for(directory, **sections)


def rows_of(directory: Path) -> list[dict[str, Any]]:
    files = sorted((directory / "out" / "tokens").glob("train-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("characters")
    write_corpus(directory / "data", CORPUS)
    build.build(character_config(directory))
    return directory


@pytest.mark.slow
def test_rows_are_what_the_tokenizer_makes_of_documents(built: Path) -> None:
    tokenizer = CharBPETokenizer.load(built / "out" / "tokenizer")
    end = tokenizer.special_tokens[SEPARATOR]
    rows = rows_of(built)
    assert [row["input_ids"] for row in rows] == [
        [*tokenizer.encode(document), end] for document in DOCUMENTS
    ]
    assert [tokenizer.decode(row["input_ids"][:-1]) for row in rows] == [
        " ".join(document.split()) for document in DOCUMENTS
    ]
    assert [row["num_bytes"] for row in rows] == [len(text.encode()) for text in DOCUMENTS]
    assert [row["num_tokens"] for row in rows] == [len(row["input_ids"]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("tie_break", ["lexicographic", "first_id"])
@pytest.mark.parametrize("end_of_word_as", ["symbol", "suffix"])
def test_the_tokenizer_is_that_of_the_text_in_memory(
    tmp_path: Path, tie_break: Any, end_of_word_as: Any
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    keys = {"tie_break": tie_break, "end_of_word_as": end_of_word_as, "limit_alphabet": 20}
    build.build(character_config(tmp_path, tokenizer=keys))
    expected = CharBPETokenizer(end_of_word_as=end_of_word_as, special_tokens=[SEPARATOR])
    expected.train(DOCUMENTS, 60, min_frequency=1, limit_alphabet=20, tie_break=tie_break)
    found = CharBPETokenizer.load(tmp_path / "out" / "tokenizer")
    assert found.merges == expected.merges
    assert found.vocab == expected.vocab


def test_the_directory_has_the_formats_that_hold_it_and_the_reasons_for_others(
    built: Path,
) -> None:
    directory = built / "out" / "tokenizer"
    names = {path.name for path in directory.iterdir()}
    assert names == {"char_bpe.json", "training.json", "manifest.json", "run.json"}
    training = json.loads((directory / "training.json").read_text())
    assert training["files"] == ["char_bpe.json"]
    assert set(training["not_written"]) == {
        *["tokenizer.arrow", "tokenizer.json", "tokenizer.tiktoken", "vocab.json + merges.txt"]
    }
    assert "smallest tokens are characters" in training["not_written"]["tokenizer.arrow"]
    assert training["tokenizer"]["end_of_word"] == "</w>"
    assert training["training"]["stop_reason"] == "vocab_size_reached"


@pytest.mark.slow
def test_files_are_the_same_with_any_number_of_workers(built: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.build(character_config(tmp_path, beam={"workers": 1}, counts={"memory": 65536}))
    assert checksums(tmp_path / "out") == checksums(built / "out")


@pytest.mark.slow
def test_documents_above_the_read_buffer_are_cut_between_words(tmp_path: Path) -> None:
    long = "foo-bar's naïve日本 " * 250_000
    write_corpus(tmp_path / "data", {"a.txt": [b"short", long.encode(), b"foo-bar's"]})
    config = character_config(
        tmp_path, input={"range_bytes": 1 << 20}, tokenizer={"vocab_size": 24}
    )
    build.build(config)
    tokenizer = CharBPETokenizer.load(tmp_path / "out" / "tokenizer")
    rows = rows_of(tmp_path)
    assert [row["part"] for row in rows] == [0, 0, 1, 0]
    assert [*rows[1]["input_ids"], *rows[2]["input_ids"][:-1]] == tokenizer.encode(long)
    words = {word.decode() for word, _ in PretokenCounts.load(tmp_path / "out" / "counts").items()}
    assert words == {" ", "short", "foo-bar's", "naïve日本"}


@pytest.mark.parametrize("policy", ["split", "text"])
def test_special_tokens_in_text_follow_the_policy(tmp_path: Path, policy: str) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"the<|s|>cat |", b"<|s|>", b"the cats"]})
    keys = {"special_tokens": [SEPARATOR, "<|s|>"], "vocab_size": 60}
    encode = {"special_tokens_in_text": policy, "prepend": "<|s|>"}
    build.build(character_config(tmp_path, tokenizer=keys, encode=encode))
    tokenizer = CharBPETokenizer.load(tmp_path / "out" / "tokenizer")
    rows = [row["input_ids"] for row in rows_of(tmp_path)]
    assert [row[0] for row in rows] == [1, 1, 1]
    assert [row[1:-1].count(1) for row in rows] == ([1, 1, 0] if policy == "split" else [0, 0, 0])
    if policy == "text":
        # Text was cut at special tokens in training, so of these characters only s is known.
        assert tokenizer.decode(rows[1][1:-1]) == "<unk>|s|<unk>"


@pytest.mark.slow
def test_an_unknown_character_is_the_unknown_token_or_an_error_that_names_it(
    tmp_path: Path,
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"aa bb aa bb", "aa cé bb".encode()]})
    keys = {"limit_alphabet": 2, "vocab_size": 8}
    build.build(character_config(tmp_path, tokenizer=keys))
    tokenizer = CharBPETokenizer.load(tmp_path / "out" / "tokenizer")
    decoded = [tokenizer.decode(row["input_ids"][:-1]) for row in rows_of(tmp_path)]
    assert decoded == ["aa bb aa bb", "aa <unk><unk> bb"]
    config = character_config(
        tmp_path, tokenizer={**keys, "unk_token": None}, output=str(tmp_path / "2")
    )
    with pytest.raises(InputError) as caught:
        build.build(config)
    assert "'c' (U+0063) in the word 'cé'" in str(caught.value)
    assert "a.txt, document at offset 24" in str(caught.value)


def test_a_character_tokenizer_may_be_given_by_its_path(built: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    tokenizer = CharBPETokenizer.huggingface()
    tokenizer.train(DOCUMENTS, 200)
    tokenizer.save(tmp_path / "mine")
    for path in (built / "out" / "tokenizer", tmp_path / "mine"):
        values = {
            "output": str(tmp_path / path.name / "out"),
            "input": {"files": [str(tmp_path / "data" / "*")]},
            "tokenizer": {"path": str(path)},
            "encode": {"append": None},
        }
        build.build(BuildConfig.model_validate(values))
        expected = CharBPETokenizer.load(path)
        rows = rows_of(tmp_path / path.name)
        assert [row["input_ids"] for row in rows] == [expected.encode(text) for text in DOCUMENTS]


@pytest.mark.beam
def test_the_transform_encodes_with_a_character_tokenizer(built: Path) -> None:
    tokenizer = CharBPETokenizer.load(built / "out" / "tokenizer")
    expected = sorted(tuple(tokenizer.encode(text)) for text in DOCUMENTS)
    sources = [SourceConfig(files=(str(built / "data" / "*"),))]

    def check(found: list[Any]) -> None:
        assert sorted(tuple(row.input_ids) for row in found) == expected

    with beam.Pipeline() as pipeline:
        encoded = (
            pipeline
            | ReadDocuments(sources=sources, pattern=tokenizer.pattern)
            | EncodeDocuments(tokenizer=str(built / "out" / "tokenizer"), as_rows=True)
        )
        assert_that(encoded.tokens, check)


def test_another_unit_is_another_configuration(built: Path) -> None:
    with pytest.raises(DifferentConfigurationError, match='unit: "character" → "byte"'):
        build.build(config_for(built))
    with pytest.raises(DifferentConfigurationError, match="end_of_word"):
        build.build(character_config(built, tokenizer={"end_of_word": "_"}))


@pytest.mark.parametrize(
    ("keys", "key", "expected"),
    [
        ("unit: character, pattern: gpt2", "pattern", "tokenizer.unit: byte for this key"),
        ("end_of_word: _", "end_of_word", "tokenizer.unit: character for this key"),
        ("unit: byte, unk_token: <u>", "unk_token", "tokenizer.unit: character for this key"),
        ("limit_alphabet: 5", "limit_alphabet", "tokenizer.unit: character for this key"),
        ("unit: character, tie_break: huggingface", "tie_break", "'lexicographic' or 'first_id'"),
        (
            "unit: character, tie_break: first_seen",
            "tie_break",
            "'lexicographic' or 'first_id' with unit: character\n  found: 'first_seen'",
        ),
        ("unit: character, tie_break: [a]", "tie_break", "expected: 'lexicographic' or 'first_id'"),
        ("unit: character, tie_break: first_is", "tie_break", "Did you mean first_id?"),
        ("unit: character, end_of_word: 'a b'", "end_of_word", "text without whitespace"),
        ("unit: character, end_of_word: <unk>", "end_of_word", "a text different from unk_token"),
        (
            "unit: character, end_of_word: null, end_of_word_as: suffix",
            "end_of_word_as",
            "end_of_word to be set",
        ),
        ("unit: character, vocab_size: 3", "vocab_size", "at least 4: 1 special tokens, 2 for"),
        ("unit: word", "unit", "'byte' or 'character'"),
    ],
)
def test_keys_that_make_no_sense_together_are_refused(
    tmp_path: Path, keys: str, key: str, expected: str
) -> None:
    path = tmp_path / "build.yaml"
    path.write_text(f"{MINIMAL}tokenizer: {{{keys}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert f"\ntokenizer.{key}\n" in message
    assert expected in message


def test_a_vocabulary_smaller_than_the_alphabet_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    from bpe_core.errors import TrainingError

    with pytest.raises(TrainingError, match="limit the alphabet with limit_alphabet"):
        build.build(character_config(tmp_path, tokenizer={"vocab_size": 10}))


@pytest.mark.slow
def test_the_example_configuration_builds_and_says_how_to_go_on(tmp_path: Path) -> None:
    path = ROOT / "configs" / "character.yaml"
    ran = command("build", path, "--set", f"output={tmp_path}/out", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "next\nbeam-bpe inspect out --row 0" in ran.stdout
    tokenizer = CharBPETokenizer.load(tmp_path / "out" / "tokenizer")
    assert len(tokenizer) == yaml.safe_load(path.read_text())["tokenizer"]["vocab_size"]
    separator = tokenizer.special_tokens[SEPARATOR]
    first = (EXAMPLES / "kjv-00.txt").read_text("utf-8").split(SEPARATOR)
    rows = [row for row in rows_of(tmp_path) if row["source"] == "kjv-00.txt"]
    texts = [text for text in first if text.strip("\n")]
    assert len(rows) == len([text for text in first if text])
    for row, text in zip(rows, texts, strict=True):
        assert row["input_ids"][-1] == separator
        assert tokenizer.decode(row["input_ids"][:-1]) == " ".join(text.split())
