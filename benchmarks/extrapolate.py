"""Extrapolate the cost of a build of 1 TB and of 100 TB from measurements.

    .venv/bin/python benchmarks/extrapolate.py measure    # writes scale.json
    .venv/bin/python benchmarks/extrapolate.py write      # writes the tables of docs/scale.md

Measurements:

- the number of distinct pre-tokens in growing parts of the shared texts, and how many of them reach
  each minimum frequency;
- the sizes of run files and descriptors, and the capacity of a table;
- the speed of merging runs;
- training on synthetic counts of up to 60 million distinct pre-tokens;
- the effect of `tokenizer.min_count`.

The formulas of scale_tables.py derive all other figures from these and from the size of the corpus.
Synthetic pre-tokens join the start of one real pre-token to the end of another, so that pairs are
about as frequent as in text; their counts follow Zipf's law. Times are processor time, so that they
stay meaningful while other work runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import command
import corpora
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from corpora import Text
from measure import machine, peak
from scale_tables import MERGED_AT_ONCE, render

from bpe_core import PretokenCounts, count_pretokens, train_from_counts
from bpe_core._native import PretokenTable
from bpe_core.memory import available_memory, training_memory
from pipelines.config import TokenizerConfig
from pipelines.counting.commits import count_tasks
from pipelines.counting.given import GivenCounts
from pipelines.counting.jobs import CountJob, Section
from pipelines.counting.load import load_counts
from pipelines.counting.shards import write_shard
from pipelines.counting.training_counts import load_training_counts
from pipelines.readers.tasks import TaskWork
from pipelines.storage.directory import Directory

if TYPE_CHECKING:
    from bpe_core.training import TrainingResult

T = TypeVar("T")

HERE = Path(__file__).parent
MEASURED = HERE / "scale.json"
PAGE = HERE.parent / "docs" / "scale.md"

_SPECIAL_TOKENS = (corpora.SEPARATOR.decode(),)
_SMALLEST_PART = 1_000_000
_SYNTHETIC = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 60_000_000)
_VOCAB_SIZE = 32_000
_ZIPF = 1.2
_MIN_COUNTS = (1, 2, 3, 5, 10, 20, 50, 100)
_FILTER = 10  # min_count for measuring the time of reading
_ENCODED_BYTES = 32 << 20

_SHARDS = 64
_TABLE_MEMORY = 512 << 20
_TABLE_PRETOKENS = 10_000_000  # more than the table holds
# (Bytes of text per run, shards). Sections are at most as large as in a build of 100 TB.
_MERGED = ((4 << 20, 4), (1 << 20, 2))
_SMALL_TABLES = (4 << 20, 8 << 20, 16 << 20)


# --- measuring -------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """Return all measurements that the tables are made from."""
    texts = corpora.texts(quick=False)
    large = corpora.large(texts)
    texts = [text for text in texts if text.name != "code"] + [large]
    counted = [_counted(text) for text in texts]
    return {
        "machine": machine(),
        "heaps": [_curve(text) for text in texts],
        "runs": [runs for runs, _ in counted],
        "descriptors": counted[-1][1],
        "table": _in_a_process("table"),
        "small_tables": [_runs(text, memory) for text in texts[:-1] for memory in _SMALL_TABLES],
        "merging": [_merging(large, *how) for how in _MERGED],
        "training": [_training(number) for number in _SYNTHETIC if _fits(number)],
        "min_count": [_min_counts(text) for text in texts],
        "speed": _speed(),
    }


def _curve(text: Text) -> dict[str, Any]:
    """Count distinct pre-tokens of prefixes that double in size and end at a document's end."""
    data = Path(text.path).read_bytes()
    wanted, done, counts, points = _SMALLEST_PART, 0, None, []
    while done < len(data):
        end = data.find(corpora.SEPARATOR, wanted)
        size = len(data) if end < 0 else end + len(corpora.SEPARATOR)
        part = count_pretokens([data[done:size]], special_tokens=_SPECIAL_TOKENS)
        counts = part if counts is None else counts + part
        points.append(
            {
                "bytes": size,
                "distinct": len(counts),
                "distinct_bytes": _key_bytes(counts),
                "pretokens": int(counts.total()),
                "kept": {str(least): len(counts.prune(least)) for least in _MIN_COUNTS},
            }
        )
        done = size
        while wanted <= done:
            wanted *= 2
    return {"text": text.name, "points": points}


def _key_bytes(counts: PretokenCounts) -> int:
    return int(pc.sum(pc.binary_length(counts.to_arrow()["pretoken"])).as_py())


def _counted(text: Text) -> tuple[dict[str, Any], dict[str, Any]]:
    """Count a text as one commit of one run; return the sizes of run file and descriptors."""
    with command.scratch() as scratch:
        job, works = _count_job(scratch, text.path, shards=_SHARDS)
        descriptors = [descriptor for _, descriptor in count_tasks(job, works)]
        sizes = job.runs.sizes()
    (run_bytes,) = (size for name, size in sizes.items() if name.startswith("run-"))
    (section,) = json.loads(descriptors[-1])["sections"]
    runs = {
        "text": text.name,
        "bytes": text.bytes,
        "distinct": len(count_pretokens(text.path, special_tokens=_SPECIAL_TOKENS)),
        "run_bytes": run_bytes,
    }
    return runs, {
        "task_bytes": max(len(work.to_bytes()) for work in works),
        "commit_bytes": round(sum(map(len, descriptors)) / len(descriptors)),
        "section_bytes": len(json.dumps(section)),
    }


def _runs(text: Text, memory: int) -> dict[str, Any]:
    """Count a text that fills the table more than once; return number and size of the runs."""
    with command.scratch() as scratch:
        job, works = _count_job(scratch, text.path, shards=_SHARDS, memory=memory)
        list(count_tasks(job, works))
        sizes = [size for name, size in job.runs.sizes().items() if name.startswith("run-")]
    return {
        "text": text.name,
        "bytes": text.bytes,
        "memory": memory,
        "runs": len(sizes),
        "run_bytes": sum(sizes),
    }


def _count_job(
    directory: str,
    path: str,
    *,
    shards: int,
    range_bytes: int = 64 << 20,
    checkpoint_bytes: int = 8 << 30,
    memory: int = _TABLE_MEMORY,
) -> tuple[CountJob, list[TaskWork]]:
    """Return the job that counts a text into a directory, and its tasks."""
    separator = corpora.SEPARATOR.decode()
    source = {"files": [path], "separator": separator, "range_bytes": range_bytes}
    counts = {"shards": shards, "memory": memory, "checkpoint_bytes": checkpoint_bytes}
    return command.count_job(directory, source, counts)


def _merging(text: Text, range_bytes: int, shards: int) -> dict[str, Any]:
    """Measure merging all shards of a text in which every task is a commit."""
    with command.scratch() as scratch:
        job, works = _count_job(
            scratch, text.path, shards=shards, range_bytes=range_bytes, checkpoint_bytes=1
        )
        sections: list[list[Section]] = [[] for _ in range(shards)]
        for shard, descriptor in count_tasks(job, works):
            sections[shard] += [Section(**found) for found in json.loads(descriptor)["sections"]]
        timed = [_timed(write_shard, job, shard, of, "") for shard, of in enumerate(sections)]
    run_bytes = sum(section.length for of in sections for section in of)
    number = max(map(len, sections))
    return {
        "text": text.name,
        "rounds": 1 if number <= MERGED_AT_ONCE else 2,
        "sections": number,
        "section_bytes": round(run_bytes / sum(map(len, sections))),
        "run_bytes": run_bytes,
        "distinct": sum(entry["rows"] for _, entry in timed),
        "seconds": round(sum(seconds for seconds, _ in timed), 3),
    }


def _timed(work: Callable[..., T], *arguments: Any) -> tuple[float, T]:
    """Call a function; return the processor time of this process in seconds, and the result."""
    begun = time.process_time()
    result = work(*arguments)
    return time.process_time() - begun, result


def _in_a_process(*arguments: str) -> dict[str, Any]:
    """Run a measurement in a separate process, to measure its peak memory."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _fits(number: int) -> bool:
    """Return whether memory suffices to train on this many pre-tokens; print a note if not."""
    available = available_memory()
    fits = available is None or training_memory(number, 10 * number) < available
    if not fits:
        print(f"left out for want of memory: {number:,} pre-tokens", file=sys.stderr)
    return fits


def _training(number: int) -> dict[str, Any]:
    """Measure training on this many synthetic pre-tokens, in shards."""
    with command.scratch() as scratch:
        shards = _in_a_process("shards", str(number), scratch)
        Path(scratch, "shards.json").write_text(json.dumps(shards))
        return _in_a_process("train", scratch)


def write_shards(number: int, directory: str) -> dict[str, Any]:
    """Write synthetic counts as counting does; return a manifest of them."""
    empty = Path(directory, "empty.txt")
    empty.touch()
    job, _ = _count_job(directory, str(empty), shards=_SHARDS)
    table = synthetic(number)
    entries = []
    for shard in range(_SHARDS):
        part = table.take(pa.array(np.arange(shard, number, _SHARDS)))
        counts = PretokenTable(None, [])
        counts.add_counts(*PretokenCounts.from_arrow(part).columns())
        (packed,) = counts.pack_sections(1)
        run = f"run-{shard:032x}.bin"
        with job.runs.write(run) as file:
            file.write(packed)
        digest = xxhash.xxh3_128_hexdigest(packed)
        section = Section(run=run, offset=0, length=len(packed), hash=digest)
        entries.append(write_shard(job, shard, [section], ""))
    return {"shards": entries, "fingerprint": ""}


def train(directory: str) -> dict[str, Any]:
    """Measure the training stage on the counts in a directory."""
    manifest = json.loads(Path(directory, "shards.json").read_text())
    output = Directory(url=directory) / "counts"
    reading, counts = _timed(load_counts, output, manifest)
    learning, result = _timed(_learned, counts)
    peak_bytes, distinct, key_bytes = peak(), len(counts), _key_bytes(counts)
    del counts
    given, rules = GivenCounts.open(output.url), TokenizerConfig(min_count=_FILTER)
    filtering, _ = _timed(load_training_counts, given, rules)
    return {
        "distinct": distinct,
        "distinct_bytes": key_bytes,
        "shard_bytes": sum(shard["bytes"] for shard in manifest["shards"]),
        "merges": len(result.merges),
        "read_seconds": round(reading, 2),
        "filtered_seconds": round(filtering, 2),
        "seconds": round(learning, 2),
        "peak_bytes": peak_bytes,
        "estimated_bytes": training_memory(distinct, key_bytes),
    }


def _learned(counts: PretokenCounts) -> TrainingResult:
    return train_from_counts(counts, _VOCAB_SIZE, _SPECIAL_TOKENS)


def fill_table() -> dict[str, Any]:
    """Measure how many pre-tokens a table holds until it is full."""
    pretokens = synthetic(_TABLE_PRETOKENS)["pretoken"].combine_chunks()
    offsets = np.frombuffer(pretokens.buffers()[1], np.int32)[: len(pretokens) + 1].astype(np.int64)
    table = PretokenTable("gpt2", [])
    done, _ = table.add_documents(
        pretokens.buffers()[2].to_pybytes(), offsets[:-1], offsets[1:], 0, _TABLE_MEMORY
    )
    assert done < len(pretokens), "the table is not full"
    return {"memory": _TABLE_MEMORY, "entries": len(table), "bytes": table.memory_bytes}


def synthetic(number: int) -> pa.Table:
    """Return counts of distinct synthetic pre-tokens.

    Each joins the start of a real pre-token to the end of another, both drawn roughly by frequency.
    The count of the r-th follows Zipf's law and is at least 1.
    """
    real = _real_pretokens()
    generator = np.random.default_rng(1)
    made: pa.Array = real
    while len(made) < number:
        wanted = min(2 * (number - len(made)) + 1000, 6_000_000)
        halves = [
            real.take(pa.array((generator.random(wanted) ** 3 * len(real)).astype(np.int64)))
            for _ in range(2)
        ]
        lengths = [np.asarray(pc.binary_length(half)) for half in halves]
        joined = pc.binary_join_element_wise(
            _sliced(halves[0], np.zeros(wanted, np.int64), (lengths[0] + 1) // 2),
            _sliced(halves[1], lengths[1] // 2, lengths[1]),
            b"",
        )
        made = pa.concat_arrays([made, joined]).unique()
    made = made.slice(0, number)
    ranks = np.arange(1, number + 1, dtype=np.float64)
    frequencies = np.maximum(1, (number**_ZIPF / 4) / ranks**_ZIPF).astype(np.int64)
    return pa.table({"pretoken": made, "count": frequencies})


def _sliced(values: pa.Array, begins: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> pa.Array:
    """Return bytes `begin` to `end` of each value."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    data = np.frombuffer(values.buffers()[2], np.uint8)
    lengths = ends - begins
    new = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(offsets[:-1] + begins - new[:-1], lengths) + np.arange(new[-1])
    buffers = [None, pa.py_buffer(new.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _real_pretokens() -> pa.Array:
    """Return the pre-tokens of the shared texts, most frequent first."""
    counts: PretokenCounts | None = None
    for text in corpora.texts(quick=False):
        found = count_pretokens(text.path, special_tokens=_SPECIAL_TOKENS)
        counts = found if counts is None else counts + found
    assert counts is not None
    table = counts.to_arrow().sort_by([("count", "descending"), ("pretoken", "ascending")])
    return table["pretoken"].combine_chunks().cast(pa.binary())


def _min_counts(text: Text) -> dict[str, Any]:
    """Measure how pre-tokens and merges change when rare pre-tokens are dropped."""
    counts = count_pretokens(text.path, special_tokens=_SPECIAL_TOKENS)
    every, rows = None, []
    data = Path(text.path).read_bytes()[:_ENCODED_BYTES].decode("utf-8", "ignore").encode()
    for least in _MIN_COUNTS:
        kept = counts.prune(least)
        timed = [_timed(_learned, kept) for _ in range(3)]
        seconds, result = min(timed, key=lambda one: one[0])
        if every is None:
            every = result
        same = sum(1 for _ in _common(every.merges, result.merges))
        ids = result.tokenizer().encode_batch_to_numpy([data])[0]
        rows.append(
            {
                "min_count": least,
                "distinct": len(kept),
                "distinct_bytes": _key_bytes(kept),
                "pretokens": int(kept.total()),
                "seconds": round(seconds, 3),
                "merges": len(result.merges),
                "same_from_the_first": same,
                "shared": len(set(every.merges) & set(result.merges)),
                "shared_tokens": len(_tokens(every.merges) & _tokens(result.merges)),
                "bytes_per_token": round(len(data) / len(ids), 5),
            }
        )
    return {"text": text.name, "rows": rows}


def _common(one: Sequence[Any], other: Sequence[Any]) -> Iterator[Any]:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return
        yield a


def _tokens(merges: Sequence[tuple[bytes, bytes]]) -> set[bytes]:
    return {left + right for left, right in merges}


def _speed() -> dict[str, float]:
    """Return MB per second and core of the stages, from the results of the benchmarks."""
    rows = json.loads((HERE / "results.json").read_text())["rows"]
    found = {}
    for stage in ("count", "encode"):
        (row,) = (r for r in rows if r["work"] == f"beam-bpe {stage}, 2 workers, the stage")
        (workers,) = (side for name, side in row["sides"].items() if name.startswith("2"))
        found[stage] = round(workers["mb_per_second"] / 2, 1)
    return found


# --- the page --------------------------------------------------------------------------------


def write() -> None:
    """Write the tables into the page."""
    begin, end = "<!-- scale: begin -->", "<!-- scale: end -->"
    head, _, rest = PAGE.read_text("utf-8").partition(begin)
    _, _, tail = rest.partition(end)
    tables = render(json.loads(MEASURED.read_text()))
    PAGE.write_text(f"{head}{begin}\n\n{tables}\n\n{end}{tail}", "utf-8")


def main(arguments: Sequence[str]) -> None:
    """Run a command above. The other commands print one measurement each for `measure`, as JSON."""
    match arguments:
        case ["measure"]:
            MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
            write()
        case ["write"]:
            write()
        case ["table"]:
            print(json.dumps(fill_table()))
        case ["shards", number, directory]:
            print(json.dumps(write_shards(int(number), directory)))
        case ["train", directory]:
            print(json.dumps(train(directory)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
