"""`beam-bpe sizes`: the numbers are those of builds of each size."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build_support import checksums, some_text, write_corpus
from build_support import command as beam_bpe

from bpe_core import BPETokenizer, PretokenCounts, UseCounter, train_from_counts
from bpe_core.count_groups import Group, GroupColumns
from pipelines.analysis.sizes import measure_sizes

END = "<|endoftext|>"
DOCUMENTS = 12


def write_config(directory: Path, **tokenizer: Any) -> Path:
    write_corpus(directory / "data", {"a.txt": some_text(DOCUMENTS)})
    config = directory / "build.yaml"
    settings = {"vocab_size": 290, **tokenizer}
    config.write_text(
        "output: out\ninput: {files: [data/*.txt]}\ncounts: {shards: 2}\n"
        f"tokenizer: {json.dumps(settings)}\nencode: {{append: {END}}}\n"
    )
    return config


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration and its finished output."""
    config = write_config(tmp_path_factory.mktemp("sizes"))
    done = beam_bpe("build", config, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return config


def sizes_of(place: Path, vocab: str, *arguments: str) -> list[dict[str, Any]]:
    done = beam_bpe("sizes", place, "--vocab", vocab, "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert list(found) == ["sizes"]
    sizes: list[dict[str, Any]] = found["sizes"]
    return sizes


@pytest.mark.slow
def test_predicted_tokens_are_the_encoded_ones(built: Path) -> None:
    """For the finished size and a smaller one, which is built to compare. Nothing is written."""
    output = built.parent / "out"
    before = checksums(output)
    smaller, finished = sizes_of(output, "290,270")
    assert [smaller["vocab_size"], finished["vocab_size"]] == [270, 290]
    assert checksums(output) == before
    again = built.parent / "smaller"
    given = ("--set", f"output={again}", "--set", "tokenizer.vocab_size=270")
    assert beam_bpe("build", built, "-q", *given).returncode == 0
    for size, place in ((finished, output), (smaller, again)):
        totals = json.loads((place / "tokens/manifest.json").read_text())["totals"]
        use = size["sources"]["*.txt"]
        assert use == size["total"]
        # The token after each document is not a token of its text.
        assert use["tokens"] == totals["tokens"] - DOCUMENTS
        assert use["bytes"] == totals["bytes"]
        report = json.loads(beam_bpe("report", place, "--json").stdout)
        assert use["used_ids"] == report["vocabulary"]["used"] - 1


@pytest.mark.slow
def test_sizes_with_required_tokens_are_those_of_builds(tmp_path: Path) -> None:
    config = write_config(tmp_path, required_tokens=[" zebra"], vocab_size=[270, 290])
    assert beam_bpe("build", config, "-q").returncode == 0
    output = tmp_path / "out"
    small, large = sizes_of(output, "270,290")
    manifest = json.loads((output / "tokens/manifest.json").read_text())
    assert large["total"]["tokens"] == manifest["totals"]["tokens"] - DOCUMENTS
    counts = PretokenCounts.load(output / "counts")
    tokenizer = BPETokenizer.load(output / "tokenizer/sizes/270")
    assert small["total"]["tokens"] == UseCounter(tokenizer).count(counts).tokens
    assert sizes_of(config, "270,290") == [small, large]


@pytest.mark.slow
def test_a_larger_size_is_trained_in_memory(built: Path) -> None:
    output = built.parent / "out"
    [of_output] = sizes_of(output, "300")
    [of_config] = sizes_of(built, "300")
    [built_alone] = sizes_of(built, "300", "--set", "tokenizer.vocab_size=300")
    assert of_output == of_config == built_alone
    [most] = sizes_of(output, "1M")
    assert (most["vocab_size"], most["total"]["fertility"]) == (1_000_000, 1.0)
    assert most["ids"] < 1000
    done = beam_bpe("sizes", output, "--vocab", "300,1M")
    assert f"Training ends at {most['ids']:,} ids" in done.stdout
    assert done.stdout.startswith("*.txt\n  vocabulary  ")


@pytest.mark.slow
def test_other_rules_than_those_of_the_tokenizer_are_applied(built: Path) -> None:
    """The finished tokenizer has other merges, so that one is trained to compare."""
    short = ("--set", "tokenizer.max_token_bytes=2")
    [limited] = sizes_of(built, "290", *short)
    [finished] = sizes_of(built, "290")
    assert limited["total"]["tokens"] > finished["total"]["tokens"]


@pytest.mark.slow
def test_the_corpus_is_counted_first(tmp_path: Path) -> None:
    config = write_config(tmp_path, min_count=2)
    found = sizes_of(config, "260,290")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "configuration.json",
        "counts",
    ]
    # The rules are in configuration.json; the input is not needed any more.
    shutil.rmtree(tmp_path / "data")
    assert sizes_of(tmp_path / "out", "260,290") == found


@pytest.mark.parametrize(
    ("vocab", "tokenizer", "message"),
    [
        ("100", {}, "expected: 257 (256 bytes and the special tokens) to 2,147,483,647"),
        ("300", {"unit": "character"}, "found: unit: character\n"),
        ("300", {"superwords": {}, "vocab_size": 400}, "found: superwords of at most 4 words\n"),
        (
            "300",
            {"unit": "character", "metaspace": True, "vocab_size": 400},
            "found: unit: character, metaspace: true",
        ),
    ],
)
def test_impossible_sizes_are_refused(
    tmp_path: Path, vocab: str, tokenizer: dict[str, Any], message: str
) -> None:
    config = write_config(tmp_path, **tokenizer)
    done = beam_bpe("sizes", config, "--vocab", vocab)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_output_without_counts_is_refused(tmp_path: Path) -> None:
    done = beam_bpe("sizes", tmp_path, "--vocab", "300")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: There are no counts.")
    assert "Count the corpus: `beam-bpe count CONFIG`" in done.stderr
    done = beam_bpe("sizes", tmp_path, "--vocab", "8k,many")
    assert done.returncode == 2
    assert "expected a whole number such as 32k" in done.stderr
    done = beam_bpe("sizes", tmp_path, "--vocab", "300", "--set", "output=x")
    assert done.returncode == 2
    assert "expected: a configuration file, or no --set" in done.stderr


def test_each_source_and_value_has_its_own_numbers() -> None:
    counts = PretokenCounts.from_group_columns(
        np.frombuffer(b"lownew", np.uint8),
        np.array([0, 3, 6]),
        [Group("", ""), Group("", "de")],
        GroupColumns(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([3, 4, 5])),
    )
    tokenizer = train_from_counts(counts, 258).tokenizer()
    report = measure_sizes(tokenizer, counts, [258, 256], "*.txt")
    [small, _] = report.to_json()["sizes"]
    assert small["vocab_size"] == 256
    [(name, use)] = small["sources"].items()
    assert (name, use["tokens"], use["pretokens"]) == ("*.txt", 36, 12)
    assert {value: use["tokens"] for value, use in use["values"].items()} == {"": 9, "de": 27}
    lines = str(report).splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "*.txt",
        "*.txt, (no value)",
        "*.txt, de",
        "bytes per token",
    ]


@pytest.mark.slow
def test_each_source_and_value_has_the_tokens_of_its_own_documents(tmp_path: Path) -> None:
    """Two sources, and a field of their records, are counted apart."""
    for name, start in (("web", 0), ("books", 5)):
        records = [
            {"text": text.decode(), **({"lang": ("de", "en")[i % 2]} if i else {})}
            for i, text in enumerate(some_text(9, start=start))
        ]
        lines = "".join(f"{json.dumps(record)}\n" for record in records)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    config = tmp_path / "build.yaml"
    config.write_text(
        "output: out\n"
        "input:\n"
        "- {name: web, files: [web.jsonl], format: jsonl, keep_columns: [lang]}\n"
        "- {name: books, files: [books.jsonl], format: jsonl, keep_columns: [lang]}\n"
        "counts: {shards: 2, group_by: lang}\n"
        "tokenizer: {vocab_size: 290}\n"
    )
    done = beam_bpe("build", config, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    [size] = sizes_of(tmp_path / "out", "290")
    report = json.loads(beam_bpe("report", tmp_path / "out", "--by", "lang", "--json").stdout)
    expected = {entry["name"]: entry["tokens"] - 9 for entry in report["sources"]}
    assert {name: use["tokens"] for name, use in size["sources"].items()} == expected
    tokens: dict[str, int] = {}
    for use in size["sources"].values():
        for value, of_value in use["values"].items():
            tokens[value] = tokens.get(value, 0) + of_value["tokens"]
    found = report["groups"]["values"]
    assert tokens == {row["value"] or "": row["tokens"] - row["documents"] for row in found}
