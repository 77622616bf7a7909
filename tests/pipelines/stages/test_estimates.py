"""Estimates of plans, from samples, beside what builds of the same corpora make."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from build_support import EXAMPLES, ROOT, config_for, some_text, write_corpus

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.stages.estimates import Estimate
from pipelines.storage import remote_files
from pipelines.writing.token_file import TokenFile

SHARED = ROOT.parent / "shared" / "data"
END = b"<|endoftext|>"
# Of builds with 8,192 ids: documents, bytes of text, distinct pre-tokens, bytes of token files.
BUILT = {
    "kjv": (1_189, 4_136_661, 14_176, 1_200_562),
    "prose": (11_492, 63_850_187, 458_380, 25_942_402),
    "multilingual": (1_354, 31_966_212, 417_540, 13_945_493),
}


def read_text(name: str) -> bytes:
    if name == "kjv":
        parts = sorted(EXAMPLES.glob("kjv-*"))
        files = [path.read_bytes() for path in parts]
        return b"".join(
            zstandard.decompress(data, 1 << 26) if path.suffix == ".zst" else data
            for path, data in zip(parts, files, strict=True)
        )
    path = SHARED / f"{name}.txt.zst"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def write_text(folder: Path, text: bytes) -> dict[str, Any]:
    (folder / "a.txt").write_bytes(text)
    return {"format": "text"}


def in_parts(text: bytes, parts: int) -> list[list[str]]:
    documents = [document.decode("utf-8", "replace") for document in text.split(END) if document]
    bounds = [len(documents) * i // parts for i in range(parts + 1)]
    return [documents[bounds[i] : bounds[i + 1]] for i in range(parts)]


def write_json(folder: Path, text: bytes) -> dict[str, Any]:
    for number, documents in enumerate(in_parts(text, 8)):
        lines = "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in documents)
        data = zstandard.compress(lines.encode(), 1)
        (folder / f"{number}.jsonl.zst").write_bytes(data)
    return {"format": "jsonl"}


def write_parquet(folder: Path, text: bytes) -> dict[str, Any]:
    for number, documents in enumerate(in_parts(text, 8)):
        table = pa.table({"id": list(range(len(documents))), "text": documents})
        pq.write_table(table, folder / f"{number}.parquet", compression="zstd", row_group_size=500)
    return {"format": "parquet"}


def estimate(folder: Path, source: dict[str, Any], **sections: Any) -> Estimate:
    config = BuildConfig.model_validate(
        {
            "output": str(folder.parent / "out"),
            "input": {"files": [f"{folder}/*"], **source},
            "tokenizer": {"vocab_size": 8192},
            "beam": {"workers": 2},
            **sections,
        }
    )
    plan = build.plan(config)
    assert plan.refusal is None
    assert plan.estimate is not None
    return plan.estimate


def within_30_percent(found: Estimate, built: tuple[int, int, int, int]) -> bool:
    expected = (
        found.documents,
        found.text_bytes,
        found.distinct_pretokens,
        found.token_file_bytes,
    )
    return all(
        guess is not None and 0.7 * real <= guess <= 1.3 * real
        for guess, real in zip(expected, built, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_text, write_json, write_parquet])
@pytest.mark.parametrize("name", BUILT)
def test_estimates_are_within_30_percent_of_what_a_build_makes(
    name: str, write: Callable[[Path, bytes], dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    found = estimate(folder, write(folder, read_text(name)))
    assert within_30_percent(found, BUILT[name]), found
    assert found.sampled_bytes <= 40_000_000
    assert found.exact == (name == "kjv")


@pytest.mark.slow
@pytest.mark.parametrize("documents", [False, True])
def test_the_size_of_counts_by_group_is_estimated(documents: bool, tmp_path: Path) -> None:
    sources = [
        {
            "name": f"part-{number}",
            "files": [str(EXAMPLES / f"kjv-{number}.txt*")],
            "separator": "<|endoftext|>",
        }
        for number in ("00", "01", "02")
    ]
    counts = {"shards": 1, "document_frequency": documents}
    config = config_for(tmp_path, input=sources, counts=counts)
    found = build.plan(config).estimate
    assert found is not None
    build.count(config)
    (shard,) = (tmp_path / "out" / "counts").glob("shard-*")
    assert 0.7 * shard.stat().st_size <= found.count_file_bytes <= 1.3 * shard.stat().st_size


@pytest.mark.slow
def test_an_estimate_of_a_small_corpus_is_exact(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(50), "b.txt": some_text(9, start=50)})
    config = config_for(tmp_path)
    found = build.plan(config).estimate
    assert found is not None
    summary = build.build(config)
    assert (found.documents, found.text_bytes) == (summary.documents, summary.bytes)
    assert found.distinct_pretokens == summary.distinct_pretokens
    assert found.exact
    assert build.plan(config).estimate is None  # nothing is left to do


def test_an_estimate_shows_time_and_memory_of_each_stage(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(50)})
    found = build.plan(config_for(tmp_path)).estimate
    assert found is not None
    assert found.seconds.keys() == found.memory.keys() == {"count", "train", "encode"}
    assert found.workers == 2
    assert found.elapsed is not None
    assert found.elapsed > 0
    assert found.core_hours > 0
    elsewhere = config_for(tmp_path, beam={"runner": "FlinkRunner", "workers": 0})
    of_engine = build.plan(elsewhere).estimate
    assert of_engine is not None
    assert of_engine.elapsed is None


def test_files_of_one_document_each_are_counted(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {f"{i}.txt": some_text(20) for i in range(30)})
    found = build.plan(config_for(tmp_path, input={"separator": None})).estimate
    assert found is not None
    assert found.documents == 30


def test_a_selection_lowers_the_tokens_and_not_the_documents(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(400)})
    whole = build.plan(config_for(tmp_path)).estimate
    half = build.plan(config_for(tmp_path, input={"sample_fraction": 0.5})).estimate
    assert whole is not None
    assert half is not None
    assert half.documents == whole.documents == 400
    assert half.tokens is not None
    assert whole.tokens is not None
    assert 0.3 < half.tokens / whole.tokens < 0.7


@pytest.mark.slow
def test_a_finished_tokenizer_is_used_for_the_estimate(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(50)})
    config = config_for(tmp_path)
    build.build(config)
    values = config.model_dump(mode="json", exclude_unset=True)
    values |= {
        "output": str(tmp_path / "again"),
        "tokenizer": {"path": str(tmp_path / "out" / "tokenizer")},
    }
    found = build.plan(BuildConfig.model_validate(values)).estimate
    summary = build.build(config)
    assert found is not None
    assert found.tokens == summary.tokens
    assert found.distinct_pretokens is None
    assert found.seconds.keys() == {"encode"}


def test_the_cost_of_the_first_documents_is_not_taken_for_that_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_bytes(END.join(some_text(3_000)))
    add = TokenFile.add
    slept: list[None] = []

    def add_with_a_slow_start(self: TokenFile, rows: Any) -> None:
        if not slept:
            slept.append(time.sleep(0.3))
        add(self, rows)

    monkeypatch.setattr(TokenFile, "add", add_with_a_slow_start)
    found = build.plan(config_for(tmp_path)).estimate
    assert slept
    assert found is not None
    assert found.seconds["encode"] < 0.3


@pytest.mark.slow
def test_a_sample_of_a_large_file_reads_a_few_mb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file is sampled at many places, a compressed one at its beginning."""
    (tmp_path / "data").mkdir()
    generator = random.Random(1)
    documents = [b" ".join(b"%x" % generator.getrandbits(24) for _ in range(60))] * 40_000
    for i in range(0, len(documents), 5):
        documents[i] = generator.randbytes(200).hex().encode()
    text = END.join(documents)
    (tmp_path / "data" / "a.txt").write_bytes(text)
    (tmp_path / "data" / "b.txt.zst").write_bytes(zstandard.compress(text, 1))
    read: list[tuple[int, int]] = []
    real = remote_files._LocalFile.read_into

    def recording(self: Any, view: memoryview, offset: int) -> None:
        read.append((offset, len(view)))
        real(self, view, offset)

    monkeypatch.setattr(remote_files._LocalFile, "read_into", recording)
    found = build.plan(config_for(tmp_path, input={"range_bytes": 1 << 26})).estimate
    assert found is not None
    assert sum(length for _, length in read) < 10 << 20
    assert len({offset for offset, _ in read}) > 30
    assert abs(found.documents / 80_000 - 1) < 0.3


def test_rows_are_known_from_footers(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    sink = io.BytesIO()
    texts = [f"document {i} " + "word " * (i % 50) for i in range(30_000)]
    pq.write_table(pa.table({"text": texts}), sink, row_group_size=10_000)
    (tmp_path / "data" / "a.parquet").write_bytes(sink.getvalue())
    found = build.plan(config_for(tmp_path, input={"format": "parquet"})).estimate
    assert found is not None
    assert found.documents == 30_000
    assert abs(found.text_bytes / sum(map(len, texts)) - 1) < 0.1


@pytest.mark.slow
def test_kept_columns_are_in_the_size(tmp_path: Path) -> None:
    texts = [text.decode() for text in some_text(400)]
    records = [{"text": text, "note": str(random.Random(text).random())} for text in texts]
    (tmp_path / "data").mkdir()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "data" / "a.jsonl").write_text(lines)
    source = {"format": "jsonl", "text_field": "text", "keep_columns": ["note"]}
    config = config_for(
        tmp_path, input={"files": [f"{tmp_path}/data/*"], "range_bytes": "1MiB", **source}
    )
    found = build.plan(config).estimate
    assert found is not None
    build.build(config)
    size = sum(path.stat().st_size for path in (tmp_path / "out" / "tokens").glob("train*"))
    assert found.token_file_bytes is not None
    assert 0.7 * size < found.token_file_bytes < 1.3 * size


@pytest.mark.slow
def test_each_of_many_small_files_is_a_document(tmp_path: Path) -> None:
    files = {f"{i:04d}.txt": [b"small"] for i in range(400)}
    write_corpus(tmp_path / "data", {**files, "large.txt": [b"the cat sat on the mat " * 40_000]})
    found = build.plan(config_for(tmp_path, input={"range_bytes": 1 << 26})).estimate
    assert found is not None
    assert found.documents == 401


@pytest.mark.slow
@pytest.mark.parametrize(
    "rules",
    [
        {"mixture": {"by": "lang", "en": 0.05, "xx": 0.95}},
        {"mixture": {"by": "lang", "temperature": 0}},
        {"parity": {"by": "lang"}},
    ],
    ids=str,
)
def test_a_mixture_and_given_counts_decide_the_tokens(
    rules: dict[str, Any], tmp_path: Path
) -> None:
    """A language of other letters, a tenth of the text, is nearly all that is learned from."""
    letters = str.maketrans("abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba")
    records = [
        {"text": text.decode().translate(letters) if i % 10 == 0 else text.decode(), "lang": lang}
        for i, text in enumerate(some_text(400))
        for lang in ["en" if i % 10 else "xx"]
    ]
    (tmp_path / "data").mkdir()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "data" / "a.jsonl").write_text(lines)

    def config(name: str, tokenizer: dict[str, Any], **counts: Any) -> BuildConfig:
        return config_for(
            tmp_path,
            output=str(tmp_path / name),
            input={"files": [str(tmp_path / "data/*")], "format": "jsonl"},
            counts={"group_by": "lang", **counts},
            tokenizer=tokenizer,
        )

    mixed = config("mixed", rules)
    estimate = build.plan(mixed).estimate
    plain = build.plan(config("plain", {})).estimate
    tokens = build.build(mixed).tokens
    given = build.plan(config("given", rules, path=str(tmp_path / "mixed"))).estimate
    assert estimate is not None and plain is not None and given is not None
    assert estimate.tokens == pytest.approx(tokens, rel=0.02)
    assert estimate.tokens != pytest.approx(plain.tokens, rel=0.02)
    assert given.tokens == estimate.tokens == tokens
    assert (given.seconds.keys(), given.count_file_bytes) == ({"train", "encode"}, 0)
    assert given.distinct_pretokens == estimate.distinct_pretokens
