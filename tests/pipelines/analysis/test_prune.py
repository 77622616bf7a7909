"""`beam-bpe prune` on finished builds and on tokenizers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from build_support import command as beam_bpe
from build_support import some_text, write_corpus

from bpe_core import BPETokenizer, PretokenCounts
from pipelines.analysis.subjects import open_subject
from pipelines.analysis.token_uses import count_uses
from pipelines.dataset.reading import TokenDataset

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a build of two sources."""
    directory = tmp_path_factory.mktemp("prune")
    write_corpus(directory / "a", {"a.txt": some_text(9)})
    write_corpus(directory / "b", {"b.txt": [b"zzz only here, zzz", b"the zzz"]})
    (directory / "build.yaml").write_text(
        "output: out\ninput:\n- {name: a, files: [a/*.txt]}\n- {name: b, files: [b/*.txt]}\n"
        "counts: {shards: 2}\ntokenizer: {vocab_size: 310}\nencode: {append: null}\n"
    )
    done = beam_bpe("build", directory / "build.yaml", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return directory / "out"


def prune(source: Path, output: Path, *arguments: object) -> dict[str, Any]:
    done = beam_bpe("prune", source, "--output", output, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def uses_of(output: Path) -> dict[int, int]:
    dataset = TokenDataset.open(str(output))
    ids = np.concatenate([chunk.ids for chunk in dataset.chunks("train")])
    return dict(zip(*(part.tolist() for part in np.unique(ids, return_counts=True)), strict=True))


def test_tokens_that_are_used_stay(output: Path, tmp_path: Path) -> None:
    """With their parts; the corpus is encoded as before, and the maps of ids agree."""
    found = prune(output, tmp_path, "--keep-used", 5)
    old, new = BPETokenizer.load(output), BPETokenizer.load(tmp_path)
    uses = uses_of(output)
    assert {old.vocab[i] for i, n in uses.items() if n >= 5} <= set(new.vocab.values())
    assert 257 < found["ids"] == len(new.model) < found["ids_before"] == len(old.model)
    assert found["uses"] == sum(uses.values())
    new_to_old = np.load(tmp_path / "new_to_old.npy")
    old_to_new = np.load(tmp_path / "old_to_new.npy")
    assert found["uses_of_kept"] == sum(n for i, n in uses.items() if old_to_new[i] >= 0)
    text = "the cat sat on a mat"
    ids = old.encode(text)
    if (old_to_new[ids] >= 0).all():
        assert new.encode(text) == old_to_new[ids].tolist()
    table = pq.read_table(tmp_path / "ids.parquet").to_pylist()
    assert [row["old_id"] for row in table] == sorted(old.vocab)
    for row in table:
        assert row["bytes"] == old.vocab[row["old_id"]]
        assert row["new_id"] == old_to_new[row["old_id"]]
        assert row["special"] is (row["old_id"] == 0)
        assert row["uses"] == (0 if row["special"] else uses.get(row["old_id"], 0))
        if row["new_id"] >= 0:
            assert new.vocab[row["new_id"]] == row["bytes"]
            assert new_to_old[row["new_id"]] == row["old_id"]
    assert {"tokenizer.json", "tokenizer.tiktoken", "vocab.json"} <= set(found["files"])


def test_a_size_is_reached(output: Path, tmp_path: Path) -> None:
    assert prune(output, tmp_path, "--vocab-size", 280)["ids"] == 280
    shown = beam_bpe("prune", output, "--output", tmp_path / "again", "--vocab-size", "0.28k")
    assert "280; 23 merges" in shown.stdout


def test_uses_by_counts_are_those_of_encoding(output: Path, tmp_path: Path) -> None:
    subject = open_subject(str(output))
    assert subject.counts is not None
    found = count_uses(subject.model, subject.counts)
    uses = uses_of(output)
    assert found.uses.tolist() == [uses.get(i, 0) for i in subject.model.token_ids.tolist()]
    assert sorted(found.sources) == ["a", "b"]
    token = subject.model.ids_of(b"zz")[0]
    of_token = found.only_source[subject.model.token_ids == token][0]
    assert found.sources[of_token] == "b"
    same = prune(output, tmp_path / "1", "--keep-used", 3)
    by_counts = prune(output / "tokenizer", tmp_path / "2", "--keep-used", 3, "--counts", output)
    assert same["fingerprint"] == by_counts["fingerprint"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of --keep-used N and --vocab-size N"),
        (["--keep-used", 1, "--vocab-size", 300], "one of --keep-used N and --vocab-size N"),
        (["--vocab-size", 100], "at least 257"),
        (["--keep-used", 1, "--counts", "nothing"], "There are no counts."),
    ],
)
def test_wrong_commands_are_refused(
    output: Path, tmp_path: Path, arguments: list[object], message: str
) -> None:
    done = beam_bpe("prune", output, "--output", tmp_path / "new", *arguments)
    assert done.returncode in (2, 4)
    assert message in done.stderr
    assert not (tmp_path / "new").exists()


def test_uses_must_be_known(output: Path, tmp_path: Path) -> None:
    done = beam_bpe("prune", output / "tokenizer", "--output", tmp_path / "new", "--keep-used", 1)
    assert done.returncode == 2
    assert "--counts OUTPUT" in done.stderr
    vocab = {i: bytes([i]) for i in range(256)}
    BPETokenizer(vocab, [], pattern="cl100k").save(tmp_path / "other")
    arguments = ("--output", tmp_path / "new", "--keep-used", 1, "--counts", output)
    done = beam_bpe("prune", tmp_path / "other", *arguments)
    assert done.returncode == 2
    assert "counts by its pattern" in done.stderr


def test_a_tokenizer_is_not_overwritten(output: Path) -> None:
    done = beam_bpe("prune", output, "--output", output / "tokenizer", "--keep-used", 1)
    assert done.returncode == 5
    assert "There is a tokenizer already." in done.stderr


def test_many_sources_are_counted_in_rounds(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = open_subject(str(output))
    assert subject.counts is not None
    at_once = count_uses(subject.model, subject.counts)
    monkeypatch.setattr("pipelines.analysis.token_uses._SOURCES_AT_ONCE", 1)
    one_by_one = count_uses(subject.model, subject.counts)
    assert np.array_equal(at_once.uses, one_by_one.uses)
    assert np.array_equal(at_once.only_source, one_by_one.only_source)
    assert len(PretokenCounts.load(output / "counts").groups) == 2
