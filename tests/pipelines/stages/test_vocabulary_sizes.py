"""A list of sizes in `tokenizer.vocab_size`: a tokenizer of each, any of which encodes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from build_support import checksums, some_text, write_corpus
from build_support import command as beam_bpe

import pipelines
from bpe_core import BPETokenizer
from pipelines.build import build
from pipelines.config import read_config
from pipelines.dataset.tokenizers import open_tokenizer
from pipelines.errors import ConfigError, DifferentConfigurationError

END = "<|endoftext|>"
SIZES = (270, 280, 300)


def values_of(directory: Path, output: str = "out", **sections: Any) -> dict[str, Any]:
    if not (directory / "data").exists():
        write_corpus(directory / "data", {"a.txt": some_text(12)})
    values: dict[str, Any] = {
        "output": str(directory / output),
        "input": {"files": [str(directory / "data" / "*.txt")]},
        "tokenizer": {"vocab_size": list(SIZES)},
        "counts": {"shards": 1},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    return values


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a build of three sizes, encoded with the second."""
    directory = tmp_path_factory.mktemp("ladder")
    build(values_of(directory, encode={"vocab_size": 280}))
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["byte", "character", "metaspace"])
def test_each_smaller_tokenizer_is_one_trained_to_that_size_alone(
    tmp_path: Path, unit: str
) -> None:
    rules: dict[str, Any] = {
        "byte": {},
        "character": {"unit": "character", "vocab_size": [50, 60, 70]},
        "metaspace": {"unit": "character", "metaspace": True, "vocab_size": [300, 310, 320]},
    }[unit]
    ladder = values_of(tmp_path, tokenizer=rules)
    pipelines.build.train(ladder)
    tokenizer = tmp_path / "out" / "tokenizer"
    *smaller, largest = rules.get("vocab_size", SIZES)
    assert sorted(path.name for path in (tokenizer / "sizes").iterdir()) == list(map(str, smaller))
    for size in (*smaller, largest):
        alone = values_of(tmp_path, f"alone-{size}", tokenizer={**rules, "vocab_size": size})
        pipelines.build.train(alone)
        expected = checksums(
            tmp_path / f"alone-{size}" / "tokenizer", but=("manifest.json", "run.json")
        )
        place = tokenizer / "sizes" / str(size) if size != largest else tokenizer
        found = checksums(place, but=("manifest.json", "run.json"))
        if size == largest:  # its training.json contains the list
            for files in (expected, found):
                files.pop("training.json")
        assert expected == {name: found[name] for name in expected}
        assert size == largest or found == expected
    assert not pipelines.verify(tmp_path / "out").problems


@pytest.mark.slow
@pytest.mark.parametrize("rules", [{"mixture": {"a": 0.3, "b": 0.7}}, {"parity": {}}], ids=str)
def test_rules_about_sources_hold_for_every_size(tmp_path: Path, rules: dict[str, Any]) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(9), "b.txt": some_text(9, start=30)})
    sources = [
        {"name": name, "files": [str(tmp_path / "data" / f"{name}.txt")], "separator": END}
        for name in "ab"
    ]
    ladder = {**values_of(tmp_path, tokenizer=rules), "input": sources}
    pipelines.build.train(ladder)
    alone = values_of(tmp_path, "alone", tokenizer={**rules, "vocab_size": 270})
    pipelines.build.train({**alone, "input": sources})
    records = ("manifest.json", "run.json")
    found = checksums(tmp_path / "out" / "tokenizer" / "sizes" / "270", but=records)
    assert found == checksums(tmp_path / "alone" / "tokenizer", but=records)
    wanted = list(SIZES)
    of_ladder = pipelines.build.sizes(ladder, wanted)
    assert (
        of_ladder.to_json() == pipelines.build.sizes({**alone, "input": sources}, wanted).to_json()
    )
    assert list(of_ladder.to_json()["sizes"][0]["sources"]) == ["a", "b"]


@pytest.mark.slow
def test_the_configured_size_encodes(built: Path) -> None:
    output = built / "out"
    build(values_of(built, "alone", tokenizer={"vocab_size": 280}))
    alone = built / "alone"
    files = checksums(output / "tokens", but=("run.json", "manifest.json"))
    assert files == checksums(alone / "tokens", but=("run.json", "manifest.json"))
    encoder = BPETokenizer.load(alone)
    assert len(encoder) == 280
    assert BPETokenizer.load(output) == open_tokenizer(str(output)) == encoder
    assert len(BPETokenizer.load(output / "tokenizer")) == 300
    assert not pipelines.verify(output).problems
    done = beam_bpe("inspect", output, "--row", "0")
    assert (done.returncode, done.stderr) == (0, "")
    summary = build(values_of(built, encode={"vocab_size": 280}))
    assert {stage.state for stage in summary.stages} == {"already finished"}
    assert len(summary.load_tokenizer()) == 280
    with pytest.raises(DifferentConfigurationError):
        build(values_of(built))


@pytest.mark.slow
def test_the_largest_size_encodes_by_default(tmp_path: Path) -> None:
    build(values_of(tmp_path))
    assert len(BPETokenizer.load(tmp_path / "out")) == 300
    manifest = json.loads((tmp_path / "out/tokens/manifest.json").read_text())
    assert "vocab_size" not in manifest["configuration"]["encode"]


@pytest.mark.slow
def test_a_worker_trains_the_same_tokenizers(built: Path, tmp_path: Path) -> None:
    settings = {"train_where": "worker"}
    build(values_of(tmp_path, tokenizer=settings, encode={"vocab_size": 280}))
    assert checksums(tmp_path / "out" / "tokenizer") == checksums(built / "out" / "tokenizer")
    assert len(BPETokenizer.load(tmp_path / "out")) == 280


@pytest.mark.slow
def test_damage_to_a_smaller_tokenizer_is_found(built: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    shutil.copytree(built / "out", output)
    place = output / "tokenizer" / "sizes"
    (place / "270" / "merges.txt").write_text("damaged")
    (place / "280" / "vocab.json").unlink()
    (place / "300").mkdir()
    (place / "other.txt").touch()
    problems = {problem.file: problem.message for problem in pipelines.verify(output).problems}
    assert problems.keys() == {
        "tokenizer/sizes/270/merges.txt",
        "tokenizer/sizes/280/vocab.json",
        "tokenizer/sizes/300",
        "tokenizer/sizes/other.txt",
    }
    values = values_of(built, encode={"vocab_size": 280})
    with pytest.raises(pipelines.errors.OutputError, match=r"sizes/270/merges\.txt"):
        build({**values, "output": str(output)})


@pytest.mark.slow
def test_a_restart_removes_the_sizes_and_nothing_else(tmp_path: Path) -> None:
    pipelines.build.train(values_of(tmp_path))
    place = tmp_path / "out" / "tokenizer" / "sizes"
    (place / "notes.txt").touch()
    one = values_of(tmp_path, tokenizer={"vocab_size": 290})
    summary = pipelines.build.train(one, restart=True)
    assert [path.name for path in place.iterdir()] == ["notes.txt"]
    assert any("files that no build wrote: notes.txt" in text for text in summary.warnings)
    (place / "notes.txt").unlink()
    pipelines.build.train(values_of(tmp_path), restart=True)
    pipelines.build.train(one, restart=True)
    assert not place.exists()


def test_sizes_are_read_in_any_form(tmp_path: Path) -> None:
    def sizes(value: object) -> tuple[int, ...]:
        return read_config(
            values_of(tmp_path, tokenizer={"vocab_size": value})
        ).tokenizer.vocab_sizes

    assert sizes("32k") == sizes([32000]) == sizes([32_000, "32k"]) == (32000,)
    assert sizes(["16k", "8k", 300]) == (300, 8000, 16000)
    for expected, wrong in {
        "a size or a list of at least one": [],
        "a whole number such as 32k": [300, "many"],
        "at most 2147483647": ["3G", 300],
        "at least 257": [300, 256],
    }.items():
        with pytest.raises(ConfigError) as caught:
            sizes(wrong)
        assert "tokenizer.vocab_size" in str(caught.value)
        assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"encode": {"vocab_size": 290}},
            "one of the sizes in tokenizer.vocab_size, 270, 280, 300",
        ),
        ({"encode": {"vocab_size": 0}}, "at least 1"),
    ],
)
def test_sizes_that_are_not_trained_cannot_encode(
    tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(values_of(tmp_path, **sections))
    assert message in str(caught.value)
    assert "encode.vocab_size" in str(caught.value)
    values = values_of(tmp_path, encode={"vocab_size": 300})
    with pytest.raises(ConfigError, match=r"null with tokenizer\.path"):
        read_config({**values, "tokenizer": {"path": "other"}})
