"""`beam-bpe explain --suspects`: which tokens are listed, why, and in which order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from build_support import command as beam_bpe
from build_support import some_text, write_corpus

from bpe_core import BPETokenizer, PretokenCounts, train_characters_from_counts


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a build of two sources."""
    directory = tmp_path_factory.mktemp("suspects")
    write_corpus(directory / "a", {"a.txt": some_text(9)})
    write_corpus(directory / "b", {"b.txt": [b"zzz only here, zzz", b"the zzz"]})
    (directory / "build.yaml").write_text(
        "output: out\ninput:\n- {name: a, files: [a/*.txt]}\n- {name: b, files: [b/*.txt]}\n"
        "tokenizer: {vocab_size: 310}\nencode: {append: null}\n"
    )
    done = beam_bpe("build", directory / "build.yaml", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return directory / "out"


def suspects(place: Path) -> dict[str, Any]:
    done = beam_bpe("explain", place, "--suspects", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_reasons_are_those_of_the_counts(output: Path) -> None:
    tokenizer = BPETokenizer.load(output)
    model = tokenizer.model
    counts = PretokenCounts.load(output / "counts")
    uses: dict[str, dict[int, int]] = {"a": {}, "b": {}}
    for source in uses:
        for text, n in counts.select(source=source).items():
            for i in tokenizer.encode_ordinary(text.decode()):
                uses[source][i] = uses[source].get(i, 0) + n
    merged = dict(zip(model.merges[:, 2].tolist(), model.merge_counts.tolist(), strict=True))  # type: ignore[union-attr]
    found = suspects(output)
    assert (found["of"], found["missing"]) == (len(model.merges), [])
    tokens = {name: sum(uses[name].values()) for name in uses}
    listed = {one["id"]: one for one in found["suspects"]}
    for token_id in model.merges[:, 2].tolist():
        of_sources = [name for name in uses if token_id in uses[name]]
        total = sum(uses[name][token_id] for name in of_sources)
        reasons = []
        if total == 0:
            reasons.append("unused")
        elif total < merged[token_id] / 100:
            reasons.append("hardly_used")
        if len(of_sources) == 1:
            [own] = of_sources
            elsewhere = sum(tokens.values()) - tokens[own]
            if total * elsewhere / tokens[own] >= 20:
                reasons.append("one_source")
        assert (token_id in listed) is bool(reasons)
        if reasons:
            one = listed[token_id]
            assert (one["reasons"], one["uses"]) == (reasons, total)
            assert one["merge_count"] == merged[token_id]
            assert one["source"] == (of_sources[0] if len(of_sources) == 1 else None)
    assert "b" in {one["source"] for one in found["suspects"]}


def test_the_strongest_reason_comes_first(output: Path) -> None:
    strength = ["unreachable", "unused", "hardly_used", "one_source"]
    ranks = [strength.index(one["reasons"][0]) for one in suspects(output)["suspects"]]
    assert ranks == sorted(ranks)
    shown = beam_bpe("explain", output, "--suspects", "--limit", 1).stdout
    assert "encoding never uses it" in shown
    assert f"and {len(ranks) - 1} more: --limit N, --json" in shown


def test_tokens_that_no_text_reaches_are_listed_without_counts(tmp_path: Path) -> None:
    """Here `abc` is made of `a` and `bc`, but `ab` is merged first."""
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"bc", 258: b"abc"}
    merges = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")]
    BPETokenizer(vocab, merges).save(tmp_path)
    found = suspects(tmp_path)
    assert [(one["id"], one["reasons"], one["uses"]) for one in found["suspects"]] == [
        (258, ["unreachable"], None)
    ]
    assert found["missing"] == ["uses: there are neither counts nor token files"]
    shown = beam_bpe("explain", tmp_path, "--suspects").stdout
    assert '"abc": its own bytes become other tokens' in shown
    single = beam_bpe("explain", tmp_path, "abc").stdout
    assert "its own bytes become other tokens" in single


def test_tokenizers_of_characters_are_refused(tmp_path: Path) -> None:
    counts = PretokenCounts.from_mapping({b" the": 9})
    train_characters_from_counts(counts, 280, unk_token="<unk>").tokenizer().save(tmp_path)
    done = beam_bpe("explain", tmp_path, "--suspects")
    assert done.returncode == 2
    assert "one that merges characters" in done.stderr


def test_of_the_tokens_of_one_source_the_most_concentrated_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A menu that two documents repeat is more surprising than words that all documents have."""
    words = [b" apple pear", b" plum cherry"] * 40
    write_corpus(tmp_path / "a", {"a.txt": [*words, *[b" ZQMENU" * 30] * 2]})
    write_corpus(tmp_path / "b", {"b.txt": [b" nut leaf" * 30] * 9})
    (tmp_path / "build.yaml").write_text(
        "output: out\ninput:\n- {name: a, files: [a/*.txt]}\n- {name: b, files: [b/*.txt]}\n"
        "tokenizer: {vocab_size: 290}\ncounts: {document_frequency: true}\n"
    )
    assert beam_bpe("train", tmp_path / "build.yaml", "-q").returncode == 0
    monkeypatch.setattr("pipelines.analysis.suspects._OF_A_SOURCE", 1)
    found = suspects(tmp_path / "out")
    alone = [one for one in found["suspects"] if "one_source" in one["reasons"]]
    assert [(one["token"], one["source"]) for one in alone if one["source"] == "a"] == [
        (" ZQMENU", "a")
    ]
    assert any(one["most_documents"] == 2 for one in alone)
    assert found["missing"][0].startswith("a: ")
    shown = beam_bpe("explain", tmp_path / "out", "--suspects", "--limit", 99).stdout
    assert '" ZQMENU": only a has it, in 2 documents at most' in shown
    assert "not listed: a: " in shown
