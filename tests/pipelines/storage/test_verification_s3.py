"""`verify`, `inspect` and `report` of an output on S3: what they find, and what they read of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_support import config_for, some_text, write_corpus
from storage_support import S3

from pipelines import build
from pipelines.dataset.inspection import Inspector
from pipelines.dataset.reading import TokenDataset
from pipelines.dataset.report import report
from pipelines.storage.directory import Directory
from pipelines.verification.findings import Verification
from pipelines.verification.verify import verify


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    documents = [*some_text(300), b"a bad \xff one", *some_text(300, start=300)]
    write_corpus(folder / "data", {"a.txt": documents})
    encode = {"validation_fraction": 0.1, "max_reject_fraction": 0.1}
    config = config_for(folder, input={"range_bytes": 60_000}, encode=encode, beam={"workers": 1})
    build.build(config)
    return folder / "out"


@pytest.fixture
def output(s3: S3, built: Path) -> Directory:
    """The same output on S3."""
    for path in built.rglob("*"):
        if path.is_file():
            s3.put(f"out/{path.relative_to(built)}", path.read_bytes())
    s3.server.forget()
    return Directory(url=f"{s3.url}/out", storage_options=s3.options)


def problems(found: Verification) -> dict[str, str]:
    return {problem.file: problem.message for problem in found.problems}


@pytest.mark.slow
def test_verifying_finds_the_same_there_as_here(s3: S3, output: Directory, built: Path) -> None:
    here, there = verify(Directory(url=str(built)), sources=True), verify(output, sources=True)
    assert not there.problems
    assert {**vars(there), "output": ""} == {**vars(here), "output": ""}
    ends = ("tokens/run.json", "-of-00002.parquet", "tokenizer.arrow", "out/rejects/")
    for number, end in enumerate(ends):
        name = next(name for name in sorted(s3.names) if end in name)
        whole = s3.get(name)
        damaged = bytearray(whole)
        damaged[number * 7919 % len(damaged)] ^= 1 << number % 8
        s3.put(name, bytes(damaged))
        assert name.removeprefix("out/") in problems(verify(output)), name
        s3.put(name, whole)
    s3.backend.delete_object(s3.bucket, "out/tokens/statistics.parquet")
    s3.put("out/tokens/more.txt", b"mine")
    found = problems(verify(output))
    assert found["tokens/statistics.parquet"] == "missing"
    assert found["tokens/more.txt"] == "not listed in the manifest"


@pytest.mark.slow
def test_verifying_reads_each_byte_a_few_times_and_by_ranges(s3: S3, output: Directory) -> None:
    size = sum(len(s3.get(name)) for name in s3.names)
    s3.server.forget()
    verify(output)
    # Once for the checksum, once to look into it, footers more often; a tokenizer is small.
    assert sum(seen.sent for seen in s3.server.requests) < 4 * size
    assert not [seen for seen in s3.server.requests if seen.method not in ("GET", "HEAD", "POST")]


@pytest.mark.slow
def test_documents_are_found_and_reported_there_as_here(
    s3: S3, output: Directory, built: Path
) -> None:
    def inspectors() -> list[Inspector]:
        datasets = [
            TokenDataset.open(str(built)),
            TokenDataset.open(output.url, output.storage_options),
        ]
        return [Inspector(d, d.find_model()) for d in datasets]

    here, there = inspectors()
    s3.server.forget()
    for place in ("a.txt:0", "a.txt:103000"):
        try:
            found = here.with_name(place)
        except Exception as error:  # whatever it is, it is the same
            with pytest.raises(type(error)):
                there.with_name(place)
        else:
            assert there.with_name(place) == found
            assert there.read(found, 50) == here.read(found, 50)
    assert there.search("thought of 12", 3) == here.search("thought of 12", 3)
    reports = [
        report(dataset, dataset.find_model())
        for dataset in (
            TokenDataset.open(str(built)),
            TokenDataset.open(output.url, output.storage_options),
        )
    ]
    assert {**reports[0], "output": ""} == {**reports[1], "output": ""}


@pytest.mark.slow
def test_looking_at_a_row_reads_little(s3: S3, output: Directory) -> None:
    dataset = TokenDataset.open(output.url, output.storage_options)
    inspector = Inspector(dataset, dataset.find_model())
    largest = max(dataset.files, key=lambda file: file.size)
    s3.server.forget()
    place = inspector.at_row(largest.split, 0)
    assert not s3.server.requests
    inspector.read(place, 20)
    assert sum(seen.sent for seen in s3.server.requests) < 2 * largest.size + 200_000
