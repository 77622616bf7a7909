"""How fast are input formats read and counted, compared to the same documents as plain text?

One worker, without Beam, in a process with the memory settings of the command. The same run also
measures the unavoidable steps of a format alone: its decompression, its parser (native code that
finds the field in JSON lines; pyarrow reading the column, including decompression), and both, one
after the other. A format that is slower than 70 % of text is bounded by one of them. pyarrow's JSON
reader is measured for comparison with the parser of JSON lines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import command
import corpora
import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import zstandard
from corpora import Text
from measure import OURS, Case, Outcome, Target, script_main

from bpe_core._native import JsonFields, split_documents, unescape_json
from pipelines.counting.commits import TaskCounter, usable_commits
from pipelines.supervisor import MEMORY_SETTINGS

_FORMS = ("txt.zst", "jsonl", "jsonl.zst", "zstd.parquet", "snappy.parquet")
_PLAIN = "text"
_ALONE = {
    "txt.zst": ["decompression"],
    "jsonl": ["parser", "pyarrow's JSON reader"],
    "jsonl.zst": ["decompression", "parser", "decompression + parser"],
}
_BLOCK_BYTES = 2 << 20
_ESCAPED = 2  # the kind of a field with escapes
_RANGE_BYTES = 1 << 30  # makes each file one task


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure."""
    for text in texts:
        for form in _FORMS if not quick else ("jsonl.zst", "snappy.parquet"):
            alone = _ALONE.get(form, ["parser"])
            yield Case(
                work=f"read and count, {form}",
                text=text.name,
                path=text.path,
                bytes=text.bytes,
                threads=1,
                sides=(OURS, _PLAIN, *alone),
                targets={_PLAIN: [Target(0.7, 0.7)], **{name: [Target(0, 0)] for name in alone}},
                not_compared=dict.fromkeys(alone, "counts nothing"),
                environment=MEMORY_SETTINGS,
                options={"form": form},
            )


def prepare(case: Case) -> None:
    """Write the documents in the format of the case."""
    path = _path(case)
    if path.is_file() and path.stat().st_mtime > Path(case.path).stat().st_mtime:
        return
    documents = [document.decode() for document in corpora.documents(case.path)]
    if path.suffix == ".parquet":
        table = pa.table({"id": pa.array(range(len(documents))), "text": documents})
        pq.write_table(table, path, compression=case.options["form"].partition(".")[0])
        return
    if case.options["form"].startswith("txt"):
        data = Path(case.path).read_bytes()
    else:
        records = ({"id": i, "text": text} for i, text in enumerate(documents))
        data = "".join(f"{json.dumps(r, ensure_ascii=False)}\n" for r in records).encode()
    if path.suffix == ".zst":
        data = zstandard.ZstdCompressor(3).compress(data)
    path.write_bytes(data)


def _path(case: Case) -> Path:
    return corpora.MADE / f"{Path(case.path).stem}.form.{case.options['form']}"


def _count(path: Path, form: str) -> Outcome:
    source: dict[str, object] = {"files": [str(path)], "range_bytes": _RANGE_BYTES, "format": form}
    if form == "text":
        source["separator"] = corpora.SEPARATOR.decode()
    with command.scratch() as scratch:
        job, works = command.count_job(scratch, source)
        counter = TaskCounter(job)
        begun = time.perf_counter()
        for work in works:
            for _ in counter.count(work):
                pass
        seconds = time.perf_counter() - begun
        list(counter.commit())
        counter.close()
        (commit,) = usable_commits(job)
    found = [commit.totals.corpus_fingerprint]
    return Outcome({"count": seconds}, lambda: {"documents and their hashes": found})


def run_ours(case: Case) -> Outcome:
    form = case.options["form"]
    formats = {"parquet": "parquet", "jsonl": "jsonl"}
    return _count(_path(case), next((formats[k] for k in formats if k in form), "text"))


def run_text(case: Case) -> Outcome:
    return _count(Path(case.path), "text")


def _timed(work: Callable[[], object]) -> Outcome:
    begun = time.perf_counter()
    work()
    return Outcome({"count": time.perf_counter() - begun})


def _decompressed(path: Path) -> Iterator[np.ndarray]:
    """Yield the decompressed blocks of a file, in a reused buffer."""
    block = np.empty(_BLOCK_BYTES, np.uint8)
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as text:
        while got := text.readinto(block):
            yield block[:got]


def _parse(blocks: Iterator[np.ndarray]) -> None:
    """Find the texts in blocks of lines, in place. Lines that a block cuts may be ignored here."""
    fields = JsonFields([[b"text"]])
    for block in blocks:
        starts, ends, *_ = split_documents(
            block, b"\n", 0, 0, len(block), len(block), len(block), False
        )
        starts, ends, kinds = fields.find(block, starts, ends)
        escaped = kinds == _ESCAPED
        unescape_json(block, starts[escaped], ends[escaped])


def run_decompression(case: Case) -> Outcome:
    def decompress() -> None:
        for _ in _decompressed(_path(case)):
            pass

    return _timed(decompress)


def run_decompression_and_parser(case: Case) -> Outcome:
    return _timed(lambda: _parse(_decompressed(_path(case))))


def _lines(case: Case) -> bytes:
    lines = _path(case).read_bytes()
    if _path(case).suffix == ".zst":
        lines = zstandard.ZstdDecompressor().stream_reader(lines).read()
    return lines


def run_parser(case: Case) -> Outcome:
    if case.options["form"].endswith("parquet"):
        return _timed(lambda: _read_column(_path(case)))
    lines = np.frombuffer(_lines(case), np.uint8).copy()
    blocks = (lines[i : i + _BLOCK_BYTES] for i in range(0, len(lines), _BLOCK_BYTES))
    return _timed(lambda: _parse(blocks))


def run_pyarrow_json(case: Case) -> Outcome:
    lines = _lines(case)

    def parse() -> None:
        reader = pa.json.open_json(
            pa.BufferReader(lines),
            pa.json.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            pa.json.ParseOptions(
                explicit_schema=pa.schema([("text", pa.string())]),
                unexpected_field_behavior="ignore",
            ),
        )
        for _ in reader:
            pass

    return _timed(parse)


def _read_column(path: Path) -> None:
    file = pq.ParquetFile(path)
    for _ in file.iter_batches(1024, columns=["text"], use_threads=False):
        pass


SIDES = {
    OURS: run_ours,
    _PLAIN: run_text,
    "decompression": run_decompression,
    "parser": run_parser,
    "decompression + parser": run_decompression_and_parser,
    "pyarrow's JSON reader": run_pyarrow_json,
}

if __name__ == "__main__":
    script_main(SIDES)
