"""The same inputs and configuration give the same bytes, however the work was done."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from build_support import EXAMPLES, SEPARATOR, checksums, config_for, finish_counting, works_of
from build_support import count_job as job_of
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import count_pretokens
from bpe_core.counts import PretokenCounts
from pipelines import build
from pipelines.config import BuildConfig, load_config

SIZES = {"tokenizer": {"vocab_size": 2000}, "counts": {"shards": 4}}


def quickstart(directory: Path, **sections: Any) -> BuildConfig:
    """The quickstart's corpus and tasks; fewer shards, and a smaller vocabulary."""
    input_ = {"files": [str(EXAMPLES / "*.txt*")], "range_bytes": 1 << 20}
    given_input = sections.pop("input", {})
    merged = {name: {**values, **sections.pop(name, {})} for name, values in SIZES.items()}
    return config_for(directory, input={**input_, **given_input}, **merged, **sections)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checksums of all files of a build with one worker."""
    directory = tmp_path_factory.mktemp("expected")
    build.build(quickstart(directory, beam={"workers": 1}))
    files = checksums(directory / "out")
    assert {name.partition("/")[0] for name in files} == {"counts", "tokenizer", "tokens"}
    assert "tokens/manifest.json" in files
    assert sum(name.startswith("tokens/train-") for name in files) == 6
    assert not any("/_" in name or "/." in name for name in files)
    return files


@pytest.mark.beam
@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_with_any_number_of_workers(workers: int, tmp_path: Path, expected: dict[str, str]) -> None:
    build.build(quickstart(tmp_path, beam={"workers": workers}))
    assert checksums(tmp_path / "out") == expected


@pytest.mark.slow
def test_in_any_order_of_the_files_given(tmp_path: Path) -> None:
    files = sorted(map(str, EXAMPLES.glob("*.txt*")))
    made = []
    for order, workers in ((files, 1), (files[::-1], 4), (files[1:] + files[:1], 2)):
        directory = tmp_path / str(workers)
        build.build(quickstart(directory, input={"files": order}, beam={"workers": workers}))
        made.append(checksums(directory / "out"))
    assert made[0] == made[1] == made[2]


@pytest.mark.beam
def test_with_every_bundle_run_twice(tmp_path: Path, expected: dict[str, str]) -> None:
    arguments = ("--direct_runner_bundle_repeat=2",)
    build.build(quickstart(tmp_path), beam_args=arguments)
    assert checksums(tmp_path / "out") == expected


@pytest.mark.beam
@pytest.mark.nightly
def test_in_beams_other_running_mode(tmp_path: Path, expected: dict[str, str]) -> None:
    options = ("--direct_running_mode=in_memory", "--direct_num_workers=1")
    build.build(quickstart(tmp_path), beam_args=options)
    assert checksums(tmp_path / "out") == expected


@pytest.mark.slow
def test_from_another_folder_by_a_relative_path(tmp_path: Path, expected: dict[str, str]) -> None:
    moved = tmp_path / "a" / "b"
    moved.mkdir(parents=True)
    shutil.copytree(EXAMPLES, tmp_path / "a" / "corpus")
    (moved / "c.yaml").write_text(
        "output: ../made\n"
        "input: {files: ['../corpus/*.txt*'], range_bytes: 1MiB}\n"
        "tokenizer: {vocab_size: 2000}\n"
        "counts: {shards: 4}\n"
    )
    build.build(load_config(moved / "c.yaml"))
    assert checksums(tmp_path / "a" / "made") == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [
        {"input": {"range_bytes": 64 << 10}},
        {"input": {"range_bytes": 64 << 20}},
        {"counts": {"checkpoint_bytes": 1}},
        {"counts": {"memory": 1 << 16, "checkpoint_bytes": 100_000}, "beam": {"workers": 4}},
    ],
    ids=str,
)
def test_counts_and_tokenizer_do_not_depend_on_ranges_memory_and_commits(
    sections: dict[str, Any],
    tmp_path: Path,
    expected: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So few that the many runs of little memory are merged in rounds of rounds.
    monkeypatch.setattr("pipelines.counting.shards.MERGED_AT_ONCE", 3)
    build.train(quickstart(tmp_path, **sections))
    stages = {
        name: checksum for name, checksum in expected.items() if not name.startswith("tokens/")
    }
    assert checksums(tmp_path / "out") == stages


# --- corpora that hypothesis makes, without Beam

texts = st.text(st.sampled_from("ab é\n.1'漢"), max_size=30).map(str.encode)


@pytest.mark.slow
@settings(max_examples=times(0.4))
@given(
    files=st.lists(st.lists(texts, max_size=6), min_size=1, max_size=4),
    range_bytes=st.integers(1, 80),
    shards=st.integers(1, 5),
    memory=st.sampled_from([1 << 16, 1 << 20]),
    checkpoint_bytes=st.integers(1, 200),
    merged_at_once=st.integers(2, 4),
)
def test_counts_are_those_of_the_documents_one_by_one(
    files: list[list[bytes]],
    range_bytes: int,
    shards: int,
    memory: int,
    checkpoint_bytes: int,
    merged_at_once: int,
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.counting.shards.MERGED_AT_ONCE", merged_at_once)
        directory = Path(name)
        (directory / "data").mkdir()
        for i, documents in enumerate(files):
            text = SEPARATOR.encode().join(documents)
            (directory / "data" / f"{i}.txt").write_bytes(text)
        config = config_for(
            directory,
            input={"range_bytes": range_bytes},
            counts={"shards": shards, "memory": memory, "checkpoint_bytes": checkpoint_bytes},
        )
        works = works_of(config)
        job = job_of(config, works)
        entries = finish_counting(job, works)
        assert len(entries) == shards
        counted = PretokenCounts.load(directory / "out" / "counts")
        whole = [document for documents in files for document in documents if document]
        assert dict(counted.items()) == dict(count_pretokens(whole).items())
        assert sum(source["documents"] for source in entries[0]["sources"]) == len(whole)
