"""Builds that choose what to learn from: mixtures, boilerplate left out, and parity of groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from build_support import some_text, write_corpus

from bpe_core import BPETokenizer, ParityRules, PretokenCounts, train_from_counts
from pipelines import build
from pipelines.errors import ConfigError

END = "<|endoftext|>"
SPECIALS = [END]


def values_of(directory: Path, output: str = "out", **sections: Any) -> dict[str, Any]:
    """Return a configuration of two sources, records in two languages and text."""
    if not (directory / "books").exists():
        write_corpus(directory / "books", {"a.txt": some_text(12)})
        (directory / "chat").mkdir()
        texts = [text.decode() for text in some_text(6, start=20)]
        records = [
            {"text": text if i % 2 else text.swapcase(), "lang": ("de", "en")[i % 2]}
            for i, text in enumerate(texts)
        ]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (directory / "chat" / "a.jsonl").write_text(lines, "utf-8")
    values: dict[str, Any] = {
        "output": str(directory / output),
        "input": [
            {
                "name": "books",
                "files": [str(directory / "books" / "*")],
                "format": "text",
                "separator": END,
            },
            {"name": "chat", "files": [str(directory / "chat" / "*")], "format": "jsonl"},
        ],
        "tokenizer": {"vocab_size": 320},
        "counts": {"shards": 2},
    }
    for name, section in sections.items():
        replaces = isinstance(section, list)
        values[name] = section if replaces else {**values.get(name, {}), **section}
    return values


def merges_of(values: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    return BPETokenizer.load(Path(values["output"]) / "tokenizer").model.merge_bytes


def counts_of(values: dict[str, Any]) -> PretokenCounts:
    return PretokenCounts.load(Path(values["output"]) / "counts")


def record_of(values: dict[str, Any], name: str = "manifest.json") -> dict[str, Any]:
    path = Path(values["output"]) / "tokenizer" / name
    return dict(json.loads(path.read_text("utf-8")))


def test_a_mixture_trains_what_mixed_counts_train(tmp_path: Path) -> None:
    rules = {"mixture": {"books": 0.2, "chat": 0.8}, "min_count": 2, "min_frequency": 3}
    values = values_of(tmp_path, tokenizer=rules)
    build.train(values)
    counts = counts_of(values).prune(2)
    mixed = counts.mix({"books": 0.2, "chat": 0.8})
    result = train_from_counts(mixed, 320, SPECIALS, min_frequency=3)
    assert merges_of(values) == result.merges != train_from_counts(counts, 320, SPECIALS).merges

    mixture = record_of(values)["mixture"]
    assert record_of(values, "training.json")["training"]["mixture"] == mixture
    assert 2 ** mixture["scale_bits"] == mixed.unit
    sizes = {name: group["bytes"] for name, group in mixture["groups"].items()}
    columns = counts.group_columns()
    assert columns is not None
    weighted = {name: group["bytes"] * group["weight"] for name, group in mixture["groups"].items()}
    assert sum(sizes.values()) == sum(len(key) * count for key, count in counts.items())
    assert weighted["chat"] / sum(weighted.values()) == pytest.approx(0.8, rel=1e-8)


@pytest.mark.slow
def test_shards_the_order_of_sources_and_the_place_of_training_change_nothing(
    tmp_path: Path,
) -> None:
    rules: dict[str, Any] = {"mixture": {"by": "lang", "temperature": 0.3}}
    counts: dict[str, Any] = {"group_by": "lang"}
    one = values_of(tmp_path, tokenizer=rules, counts={**counts, "shards": 1})
    other = values_of(
        tmp_path,
        "other",
        tokenizer={**rules, "train_where": "worker"},
        counts={**counts, "shards": 3},
        input=values_of(tmp_path)["input"][::-1],
    )
    for values in (one, other):
        build.train(values)
    names = ("tokenizer.json", "merges.txt")
    for name in names:
        files = [Path(values["output"]) / "tokenizer" / name for values in (one, other)]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert record_of(one)["mixture"] == record_of(other)["mixture"]


def test_values_of_a_field_that_are_not_named_stop_training_and_keep_the_counts(
    tmp_path: Path,
) -> None:
    counts = {"group_by": "lang"}
    rules: dict[str, Any] = {"mixture": {"by": "lang", "de": 1, "eng": 1}}
    values = values_of(tmp_path, tokenizer=rules, counts=counts)
    with pytest.raises(ConfigError, match=r"The values of lang do not fit tokenizer\.mixture"):
        build.train(values)  # by samples, before anything is counted
    assert not (tmp_path / "out").exists()
    build.count(values_of(tmp_path, counts=counts))
    with pytest.raises(ConfigError) as caught:
        build.train(values)
    message = str(caught.value)
    assert "do not fit tokenizer.mixture" in message
    assert "'eng', unknown (did you mean 'en'?); none for '', 'en'" in message
    planned = build.plan(values)
    assert "none for '', 'en'" in str(planned.refusal)
    before = (tmp_path / "out" / "counts" / "manifest.json").stat().st_mtime_ns

    rules = {"mixture": {"by": "lang", "shares": {"": 0, "de": 1, "en": 1}}}
    values = values_of(tmp_path, tokenizer=rules, counts=counts)
    build.train(values)
    assert (tmp_path / "out" / "counts" / "manifest.json").stat().st_mtime_ns == before
    mixed = counts_of(values).mix({"": 0, "de": 1, "en": 1}, by="lang")
    assert merges_of(values) == train_from_counts(mixed, 320, SPECIALS).merges


def test_boilerplate_of_one_document_gives_no_token(tmp_path: Path) -> None:
    planted = tmp_path / "books" / "planted.txt"
    values_of(tmp_path)
    planted.write_text("Qzxwvj Kqjzyx\n" * 3000, "utf-8")
    numbers = {"document_frequency": True}
    plain = values_of(tmp_path, counts=numbers, tokenizer={"vocab_size": 420})
    clean = values_of(
        tmp_path, "clean", counts=numbers, tokenizer={"vocab_size": 420, "min_documents": 2}
    )
    for values in (plain, clean):
        build.train(values)
    with_it = {left + right for left, right in merges_of(plain)}
    without = {left + right for left, right in merges_of(clean)}
    assert {b"Qzxwvj", b" Kqjzyx"} <= with_it
    assert not any(part in token for token in without for part in (b"zx", b"wv", b"qj"))

    counts = counts_of(clean)
    documents = counts.documents()
    assert documents is not None
    keys, offsets, numbers_of = counts.columns()
    kept = {
        keys[offsets[i] : offsets[i + 1]].tobytes(): int(numbers_of[i])
        for i in range(len(counts))
        if documents[i] >= 2
    }
    alone = train_from_counts(PretokenCounts.from_mapping(kept), 420, SPECIALS)
    assert merges_of(clean) == alone.merges


def test_strings_of_one_source_give_no_token(tmp_path: Path) -> None:
    values_of(tmp_path)
    lines = [json.dumps({"text": "Qzxwvj " * 900}) + "\n"] * 3
    (tmp_path / "chat" / "planted.jsonl").write_text("".join(lines), "utf-8")
    values = values_of(tmp_path, tokenizer={"min_sources": 2, "mixture": {"temperature": 0.5}})
    build.train(values)
    assert not any(b"zx" in left + right for left, right in merges_of(values))


@pytest.mark.parametrize("parallel", [False, True], ids=["ratios", "development"])
def test_parity_trains_what_grouped_counts_train(tmp_path: Path, *, parallel: bool) -> None:
    rules: dict[str, Any] = {"by": "lang", "ratios": {"": 1, "de": 1.5, "en": 1}}
    expected = ParityRules(by="lang", ratios=rules["ratios"])
    if parallel:
        text = [{"text": "Der Baum und", "lang": "de"}, {"text": "the tree", "lang": "en"}]
        values_of(tmp_path)
        (tmp_path / "same.jsonl").write_text("".join(json.dumps(r) + "\n" for r in text), "utf-8")
        rules = {"by": "lang", "development": "same", "global_merges": 5, "window_size": 9}
    values = values_of(tmp_path, tokenizer={"parity": rules}, counts={"group_by": "lang"})
    if parallel:
        same = {"name": "same", "files": [str(tmp_path / "same.jsonl")], "format": "jsonl"}
        values["input"] = [values["input"][1], same]
    build.train(values)
    counts = counts_of(values)
    if parallel:
        expected = ParityRules(
            by="lang", development=counts.select(source="same"), global_merges=5, window_size=9
        )
        counts = counts.select(source="chat")
    result = train_from_counts(counts, 320, SPECIALS, parity=expected)
    assert merges_of(values) == result.merges
    assert result.merges != train_from_counts(counts, 320, SPECIALS).merges


def test_former_counts_without_groups_are_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_of(tmp_path)
    with monkeypatch.context() as former:
        former.setattr("pipelines.stages.jobs.is_grouped", lambda config: False)
        build.count(values)
    mixed = values_of(tmp_path, tokenizer={"mixture": {"books": 1, "chat": 1}})
    with pytest.raises(ConfigError, match="beam-bpe count CONFIG --restart"):
        build.train(mixed)
