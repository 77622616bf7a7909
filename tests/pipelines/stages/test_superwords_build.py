"""Builds with `tokenizer.superwords`: a second count, and tokens of several words."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from build_support import EXAMPLES, SEPARATOR, checksums, some_text, write_corpus
from build_support import command as beam_bpe

import pipelines
from bpe_core import (
    BPETokenizer,
    PretokenCounts,
    count_pretokens,
    count_superwords,
    train_from_counts,
    train_superwords,
)
from pipelines.build import build, train
from pipelines.config import read_config
from pipelines.errors import ConfigError, DifferentConfigurationError
from pipelines.stages import superwords

BEFORE, SIZE = 420, 470


def values_of(directory: Path, output: str = "out", **sections: Any) -> dict[str, Any]:
    if not (directory / "data").exists():
        text = (EXAMPLES / "kjv-00.txt").read_bytes()[:24000].split(SEPARATOR.encode())
        write_corpus(directory / "data", {"a.txt": text[:3], "b.txt": [*text[3:], *some_text(4)]})
    values: dict[str, Any] = {
        "output": str(directory / output),
        "input": {"files": [str(directory / "data" / "*.txt")], "separator": SEPARATOR},
        "tokenizer": {
            "vocab_size": SIZE,
            "pattern": "cl100k",
            "superwords": {"max_words": 3, "vocab_size_before": BEFORE},
        },
        "counts": {"shards": 2},
        "beam": {"workers": 1},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    return values


def documents_of(directory: Path) -> list[bytes]:
    files = sorted((directory / "data").iterdir())
    parts = [part for file in files for part in file.read_bytes().split(SEPARATOR.encode())]
    return [part for part in parts if part]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("superwords")
    build(values_of(directory))
    return directory


def test_a_build_learns_what_the_python_functions_learn(built: Path) -> None:
    documents = documents_of(built)
    counts = count_pretokens(documents, pattern="cl100k", special_tokens=[SEPARATOR])
    first = train_from_counts(counts, BEFORE, [SEPARATOR]).tokenizer()
    runs = count_superwords(documents, first)
    expected = train_superwords(runs, SIZE, first, max_words=3)
    output = built / "out"
    for name, model in (("superwords", first.model), ("tokenizer", expected.model)):
        assert BPETokenizer.load(output / name).model.fingerprint == model.fingerprint
    counted = PretokenCounts.load(output / "superwords")
    assert dict(counted.items()) == dict(runs.items())
    assert counted.metadata["superwords"] == runs.metadata["superwords"]
    assert any(token.count(b" ") > 1 for _, token in expected.model.tokens)


def test_given_counts_make_the_same_superwords(built: Path) -> None:
    train(values_of(built, "given", counts={"path": str(built / "out" / "counts")}))
    fingerprints = {
        BPETokenizer.load(built / output / "tokenizer").model.fingerprint
        for output in ("out", "given")
    }
    assert len(fingerprints) == 1


def test_a_finished_build_is_intact_and_not_repeated(built: Path) -> None:
    before = checksums(built / "out")
    assert not pipelines.verify(str(built / "out")).problems
    assert [stage.state for stage in build(values_of(built)).stages] == ["already finished"] * 4
    assert checksums(built / "out") == before


def test_tasks_and_workers_change_nothing(built: Path) -> None:
    build(values_of(built, "small", input={"range_bytes": 4000}))
    names = ("manifest.json", "run.json")
    for place in ("superwords", "tokenizer"):
        assert checksums(built / "small" / place, but=names) == checksums(
            built / "out" / place, but=names
        )


def test_a_build_that_was_interrupted_goes_on(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(built / "data", tmp_path / "data")
    values = values_of(tmp_path)

    class Interrupted(Exception):
        pass

    def interrupt(*_: object, **__: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(superwords, "counts_content", interrupt)
        with pytest.raises(Interrupted):
            build(values)
    with monkeypatch.context() as patched:
        patched.setattr(superwords, "learn", interrupt)  # the first round is not trained again
        patched.setattr("pipelines.stages.pipelines.Pipelines.run_tasks", interrupt)
        with pytest.raises(Interrupted):
            build(values)  # encoding
    states = {stage.name: stage.state for stage in build(values).stages}
    assert states["superwords"] == states["train"] == "already finished"
    assert checksums(tmp_path / "out" / "tokens") == checksums(built / "out" / "tokens")
    assert not (tmp_path / "out" / "superwords" / "_runs").exists()


def test_another_second_round_keeps_the_runs_and_another_first_is_refused(built: Path) -> None:
    values = values_of(built, "changed")
    train(values)
    rules = values["tokenizer"]
    with pytest.raises(DifferentConfigurationError, match="max_words: 3 → 2"):
        train(
            {
                **values,
                "tokenizer": {**rules, "superwords": {"max_words": 2, "vocab_size_before": BEFORE}},
            }
        )
    shorter = {"max_words": 2, "vocab_size_before": BEFORE}
    summary = train({**values, "tokenizer": {**rules, "superwords": shorter}}, restart=True)
    assert [stage.state for stage in summary.stages] == ["already finished"] * 2 + ["done"]
    other = {**values, "tokenizer": {**rules, "superwords": {"vocab_size_before": 400}}}
    with pytest.raises(DifferentConfigurationError, match="vocab_size: 420 → 400") as caught:
        train(other)
    assert "`beam-bpe train CONFIG --restart`" in str(caught.value)
    train(other, restart=True)
    assert len(BPETokenizer.load(built / "changed" / "superwords").vocab) == 400
    assert not pipelines.verify(str(built / "changed")).problems


def test_numbers_of_documents_change_nothing(built: Path) -> None:
    build(values_of(built, "documents", counts={"document_frequency": True}))
    assert not pipelines.verify(str(built / "documents")).problems
    expected = BPETokenizer.load(built / "out" / "tokenizer")
    assert BPETokenizer.load(built / "documents" / "tokenizer").vocab == expected.vocab


def test_a_mixture_weights_both_rounds(built: Path) -> None:
    sources = [
        {"name": name, "files": [str(built / "data" / f"{name}.txt")], "separator": SEPARATOR}
        for name in "ab"
    ]
    shares = {"a": 0.1, "b": 0.9}
    values = values_of(built, "mixed", tokenizer={"mixture": shares})
    build({**values, "input": sources})
    assert not pipelines.verify(str(built / "mixed")).problems
    output = built / "mixed"
    counts, runs = (PretokenCounts.load(output / name) for name in ("counts", "superwords"))
    first = train_from_counts(counts.mix(shares), BEFORE, [SEPARATOR]).tokenizer()
    assert BPETokenizer.load(output / "superwords").merges == first.merges
    expected = train_superwords(runs.mix(shares), SIZE, first, max_words=3)
    assert BPETokenizer.load(output / "tokenizer").merges == expected.merges


def test_damage_is_found(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "out", tmp_path / "out")
    shard = tmp_path / "out" / "superwords" / "shard-00000-of-00002.parquet"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    (tmp_path / "out" / "superwords" / "tokenizer.arrow").unlink()
    problems = {problem.file for problem in pipelines.verify(str(tmp_path / "out")).problems}
    assert problems >= {"superwords/shard-00000-of-00002.parquet", "superwords/tokenizer.arrow"}


def test_a_plan_knows_the_stage(built: Path) -> None:
    found = beam_bpe("plan", write_yaml(built, values_of(built)))
    assert found.returncode == 0, found.stderr


def write_yaml(directory: Path, values: dict[str, Any]) -> str:
    path = directory / "build.yaml"
    path.write_text(json.dumps(values), "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({"pattern": r"\S+"}, "tokenizer.superwords.*a named pattern that splits text into words"),
        ({"unit": "character", "pattern": "gpt2"}, "tokenizer.superwords.*unit: byte for this key"),
        ({"vocab_size": [400, 500]}, "vocab_size.*one number with superwords"),
        ({"parity": {}}, "tokenizer.parity.*null with superwords"),
        ({"base": "/somewhere"}, "tokenizer.base.*null with superwords"),
        ({"train_where": "worker"}, "train_where.*launcher with superwords"),
        ({"superwords": {"vocab_size_before": 200}}, "vocab_size_before.*257"),
        ({"superwords": {"vocab_size_before": 471}}, "vocab_size_before.*to vocab_size, 470"),
        ({"superwords": {"max_words": 1}}, "max_words"),
    ],
)
def test_what_superwords_cannot_be_combined_with(
    tmp_path: Path, rules: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(values_of(tmp_path, tokenizer=rules))
    assert re.search(problem, str(caught.value), re.DOTALL), str(caught.value)


def test_four_fifths_are_learned_in_the_first_round_by_default(tmp_path: Path) -> None:
    config = read_config(values_of(tmp_path, tokenizer={"vocab_size": 1000, "superwords": {}}))
    assert config.tokenizer.first_round.vocab_size == 800
    assert config.tokenizer.first_round.superwords is None


def test_sizes_and_explanations_say_that_counts_do_not_determine_superwords(built: Path) -> None:
    output = str(built / "out")
    sizes = beam_bpe("sizes", output, "--vocab", "300")
    assert "Sizes are not compared for tokenizers with superwords" in sizes.stderr
    explained = beam_bpe("explain", output, " of the")
    assert explained.returncode == 0, explained.stderr
    assert "found superwords, tokens of several pre-tokens" in explained.stdout
