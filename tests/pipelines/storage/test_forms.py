"""The same 10,000 documents, in every form, compressed in every way, on every storage."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard
from build_support import config_for, encode_job, works_of
from storage_support import S3, Web

from bpe_core import BPETokenizer, count_pretokens, train_from_counts
from pipelines import build
from pipelines.config import BuildConfig
from pipelines.writing.tasks import write_task

TEXTS = [f"Document {i}: {'wörd ' * (i % 7)}{i * 7919 % 10_007}" for i in range(10_000)]
FEW = TEXTS[:12]  # for the form in which each is a file
MANY_BUILT = 500
STORAGES = ["local", "memory", "s3", "http", "zip", "tar"]


def in_members(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Compresses in three members, or frames, one after the other."""

    def compressed(data: bytes) -> bytes:
        third = len(data) // 3
        parts = (data[:third], data[third : 2 * third], data[2 * third :])
        return b"".join(map(compress, parts))

    return compressed


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": in_members(lambda data: gzip.compress(data, 1)),
    ".zst": in_members(zstandard.compress),
    ".bz2": in_members(lambda data: bz2.compress(data, 1)),
    ".xz": in_members(lambda data: lzma.compress(data, preset=0)),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "text": {"separator": "<|endoftext|>"},
    "several": {"separator": ["<|endoftext|>", "\f"]},
    "lines": {"separator": "\n"},
    "jsonl": {"format": "jsonl", "text_field": "doc.text"},
    "parquet": {"format": "parquet"},
    "arrow": {"format": "arrow"},
}


def encoded(form: str, texts: list[str]) -> bytes:
    if form in ("parquet", "arrow"):
        return columns(form, texts)
    if form == "several":
        ends = ["\f" if i % 3 else "<|endoftext|>" for i in range(len(texts))]
        return "".join(text + end for text, end in zip(texts, ends, strict=True)).encode()
    if form == "jsonl":
        records = ({"id": i, "doc": {"text": text}} for i, text in enumerate(texts))
        return "".join(json.dumps(record) + "\n" for record in records).encode()
    end = str(OPTIONS[form]["separator"])
    return "".join(text + end for text in texts).encode()


def columns(form: str, texts: list[str]) -> bytes:
    table = pa.table({"number": range(len(texts)), "text": texts})
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, sink, row_group_size=999)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=999)
    return bytes(sink.getvalue().to_pybytes())


def all_files(texts: list[str]) -> dict[str, bytes]:
    """Every form, compressed in every way in which it can be, by names of folder and file."""
    files = {}
    for form in OPTIONS:
        data = encoded(form, texts)
        for end, compress in COMPRESS.items():
            if not end or form not in ("parquet", "arrow"):
                files[f"{form}/all{end}"] = compress(data)
    for end, compress in COMPRESS.items():
        for i, text in enumerate(FEW):
            files[f"files{end[1:]}/{i:05d}{end}"] = compress(text.encode())
    return files


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return all_files(TEXTS)


Store = Callable[[Mapping[str, bytes]], tuple[Callable[[str], str], dict[str, Any]]]


@pytest.fixture(params=STORAGES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """store(files): a function from names to URLs, and the storage options."""

    def put(files: Mapping[str, bytes]) -> tuple[Callable[[str], str], dict[str, Any]]:
        if request.param == "local":
            for name, data in files.items():
                (tmp_path / name).parent.mkdir(exist_ok=True)
                (tmp_path / name).write_bytes(data)
            return lambda name: f"{tmp_path}/{name}", {}
        if request.param == "s3":
            s3: S3 = request.getfixturevalue("s3")
            for name, data in files.items():
                s3.put(name, data)
            return lambda name: f"{s3.url}/{name}", s3.options
        if request.param == "http":
            web: Web = request.getfixturevalue("web")
            web.files.update({f"/{name}": data for name, data in files.items()})
            return lambda name: f"{web.url}/{name}", {}
        if request.param == "memory":
            folder = request.getfixturevalue("memory")
            fsspec.filesystem("memory").pipe({f"{folder}/{n}": d for n, d in files.items()})
            return lambda name: f"{folder}/{name}", {}
        path = tmp_path / f"all.{request.param}"
        path.write_bytes({"zip": zipped, "tar": tarred}[request.param](files))
        return lambda name: f"{request.param}://{name}::{path}", {}

    yield put


def zipped(files: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def tarred(files: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    counts = count_pretokens(TEXTS[:1000], special_tokens=["<|endoftext|>"])
    train_from_counts(counts, 400, ["<|endoftext|>"]).tokenizer().save(directory)
    return directory


def checksum(rows: pa.ListArray) -> tuple[int, str]:
    """Number of rows, and a checksum of the ids of each, in order."""
    hasher = xxhash.xxh3_128(rows.value_lengths().to_numpy().tobytes())
    hasher.update(rows.flatten().to_numpy().tobytes())
    return len(rows), hasher.hexdigest()


def expected(texts: list[str], tokenizer: Path) -> tuple[int, str]:
    """The same of texts that are encoded one by one."""
    model = BPETokenizer.load(tokenizer)
    end = model.special_tokens["<|endoftext|>"]
    ids = pa.list_(pa.field("element", pa.uint16(), nullable=False))
    return checksum(pa.array([[*model.encode(text), end] for text in texts], ids))


def rows_of(config: BuildConfig, tokenizer: Path) -> tuple[int, str]:
    fingerprint = BPETokenizer.load(tokenizer).model.fingerprint
    job = encode_job(config, tokenizer, fingerprint)
    for work in works_of(config):
        write_task(job, work)
    tokens = Path(job.tokens.url)
    tables = [
        pq.read_table(path, columns=["input_ids"])
        for path in sorted(tokens.glob("train-*.parquet"))
    ]
    return checksum(pa.concat_tables(tables)["input_ids"].combine_chunks())


@pytest.mark.slow
def test_the_same_documents_are_the_same_rows_in_every_form_from_every_storage(
    store: Store, files: dict[str, bytes], tokenizer: Path, tmp_path: Path
) -> None:
    url_of, options = store(files)
    all_of_them, few = expected(TEXTS, tokenizer), expected(FEW, tokenizer)
    for number, name in enumerate(name for name in files if "/all" in name):
        form = name.partition("/")[0]
        source = {**OPTIONS[form], "files": [url_of(name)], "storage_options": options}
        config = config_for(
            tmp_path,
            input={**source, "range_bytes": 150_000},
            output=str(tmp_path / f"out-{number}"),
        )
        assert rows_of(config, tokenizer) == all_of_them, name
    for end in COMPRESS:
        names = [name for name in files if name.startswith(f"files{end[1:]}/")]
        source = {"separator": None, "storage_options": options}
        config = config_for(
            tmp_path,
            input={**source, "files": [url_of(name) for name in names]},
            output=str(tmp_path / f"out{end}"),
        )
        assert rows_of(config, tokenizer) == few, end


@pytest.mark.slow
def test_a_build_from_every_storage_makes_the_rows_of_every_form(
    store: Store, tokenizer: Path, tmp_path: Path
) -> None:
    texts = TEXTS[:MANY_BUILT]
    chosen = ["text/all.xz", "several/all", "lines/all.bz2", "jsonl/all.zst", "parquet/all"]
    files = all_files(texts)
    url_of, options = store({name: files[name] for name in chosen})
    sources = [
        {
            **OPTIONS[name.partition("/")[0]],
            "name": name.partition("/")[0],
            "files": [url_of(name)],
            "storage_options": options,
        }
        for name in chosen
    ]
    config = BuildConfig.model_validate(
        {
            "output": str(tmp_path / "out"),
            "input": sources,
            "tokenizer": {"path": str(tokenizer)},
            "beam": {"workers": 2},
        }
    )
    summary = build.build(config)
    assert summary.documents == len(chosen) * MANY_BUILT
    rows = [
        pq.read_table(path, columns=["input_ids"])["input_ids"].to_pylist()
        for path in sorted((tmp_path / "out" / "tokens").glob("train-*.parquet"))
    ]
    model = BPETokenizer.load(tokenizer)
    ids = [[*model.encode(text), model.special_tokens["<|endoftext|>"]] for text in texts]
    assert rows == [ids] * len(chosen)  # one task, one file, a source
    manifest = json.loads((tmp_path / "out" / "tokens" / "manifest.json").read_text())
    assert len({source["hash_sum"] for source in manifest["sources"]}) == 1
