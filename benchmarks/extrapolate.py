"""What would a build of 1 TB or of 100 TB take? Measured here, extrapolated by formula.

    .venv/bin/python benchmarks/extrapolate.py measure    # writes scale.json
    .venv/bin/python benchmarks/extrapolate.py write      # writes the tables of docs/scale.md

Measured are: how many distinct pre-tokens growing parts of the shared texts have; what a run file,
a commit and a descriptor take; the merge stage on synthetic counts of up to 30 million distinct
pre-tokens; and what `tokenizer.min_count` changes. All else follows from these and from the size of
the corpus. Synthetic pre-tokens join the beginning of one real pre-token to the end of another, so
that pairs are about as frequent as in text; their counts fall as Zipf's law has it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import command
import corpora
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from corpora import Text
from measure import machine, peak

from bpe_core import PretokenCounts, count_pretokens, train_from_counts
from bpe_core.memory import training_memory

HERE = Path(__file__).parent
MEASURED = HERE / "scale.json"
PAGE = HERE.parent / "docs" / "scale.md"

_SPECIAL_TOKENS = (corpora.SEPARATOR.decode(),)
_SMALLEST_PART = 1_000_000
_FITTED_DECADES = 1.5  # of the end of the curve: what is extrapolated bends there, not at the start
_SYNTHETIC = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
_VOCAB_SIZE = 32_000
_ZIPF = 1.2
_MIN_COUNTS = (1, 2, 3, 5, 10)
_ENCODED_BYTES = 32 << 20

_CORPORA = {"1 TB": 10**12, "100 TB": 10**14}
_RANGE_BYTES = {"1 TB": 64 << 20, "100 TB": 1 << 30}
_WORKERS = (100, 10_000)
_CHECKPOINT_BYTES = 8 << 30
_TABLE_MEMORY = 512 << 20
_SHARDS = 64


# --- measuring -------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """All that the tables are made from."""
    texts = corpora.texts(quick=False)
    large = corpora.large(texts)
    texts = [text for text in texts if text.name != "code"] + [large]
    return {
        "machine": machine(),
        "heaps": [_curve(text) for text in texts],
        "runs": _runs(large),
        "merging": [_in_a_process("learn", number) for number in _SYNTHETIC],
        "min_count": [_min_counts(text) for text in texts],
        "speed": _speed(),
    }


def _curve(text: Text) -> dict[str, Any]:
    """Distinct pre-tokens, and their bytes, of parts from the start that double in size."""
    data = Path(text.path).read_bytes()
    size, done, counts, points = _SMALLEST_PART, 0, None, []
    while done < len(data):
        size = min(size, len(data))
        part = count_pretokens(
            [data[done:size]],
            special_tokens=_SPECIAL_TOKENS,
            errors="ignore",  # at the cuts
        )
        counts = part if counts is None else counts + part
        key_bytes = counts.to_arrow()["pretoken"]
        points.append(
            {
                "bytes": size,
                "distinct": len(counts),
                "distinct_bytes": int(pc.sum(pc.binary_length(key_bytes)).as_py()),
                "pretokens": int(counts.total()),
            }
        )
        done, size = size, 2 * size
    return {"text": text.name, "points": points}


def _runs(text: Text) -> dict[str, Any]:
    """Sizes of what counting one text leaves, with tables of two sizes."""
    from pipelines.config import BuildConfig
    from pipelines.counting import CountJob, count_tasks
    from pipelines.readers.work import TaskWork, source_readings
    from pipelines.storage.directory import Directory
    from pipelines.tasks import list_files, plan_tasks

    source = {"files": [text.path], "separator": corpora.SEPARATOR.decode()}
    config = BuildConfig.model_validate({"output": text.path, "input": source})
    plan = plan_tasks(list_files(config.input[0]), config.input)
    works = [TaskWork.of_plan(plan, task) for task in plan.tasks]
    tokenizer = config.tokenizer
    with command.scratch() as scratch:
        output = Directory(url=scratch)
        job = CountJob(
            counts=output / "counts",
            rejects=output / "rejects",
            configuration="benchmark",
            plan_id="benchmark",
            num_tasks=len(works),
            tasks_hash=0,
            pattern=tokenizer.pattern,
            special_tokens=tokenizer.special_tokens,
            shards=_SHARDS,
            memory=_TABLE_MEMORY,
            checkpoint_bytes=_CHECKPOINT_BYTES,
            max_pretoken_bytes=config.counts.max_pretoken_bytes,
            on_long_pretoken="error",
            readings=source_readings(config.input, tokenizer.pattern, tokenizer.special_tokens),
        )
        descriptors = list(count_tasks(job, works))
        sizes = job.runs.sizes()
    runs = {name: size for name, size in sizes.items() if name.startswith("run-")}
    distinct = len(count_pretokens(text.path, special_tokens=_SPECIAL_TOKENS))
    return {
        "text": text.name,
        "bytes": text.bytes,
        "distinct": distinct,
        "task_descriptor_bytes": max(len(work.to_bytes()) for work in works),
        "run_files": len(runs),
        "run_bytes": sum(runs.values()),
        "descriptors": len(descriptors),
        "descriptor_bytes": max(len(descriptor) for _, descriptor in descriptors),
        "commit_bytes": max(size for name, size in sizes.items() if name.startswith("commit-")),
    }


def _in_a_process(what: str, number: int) -> dict[str, Any]:
    """A measurement in a process of its own, for its peak of memory."""
    arguments = [sys.executable, __file__, what, str(number)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def learn(number: int) -> dict[str, Any]:
    """The merge stage on so many synthetic pre-tokens."""
    counts = synthetic(number)
    key_bytes = int(pc.sum(pc.binary_length(counts.to_arrow()["pretoken"])).as_py())
    pa.default_memory_pool().release_unused()
    _forget_peak()
    begun = time.perf_counter()
    result = train_from_counts(counts, _VOCAB_SIZE, _SPECIAL_TOKENS)
    seconds = time.perf_counter() - begun
    return {
        "distinct": len(counts),
        "distinct_bytes": key_bytes,
        "merges": len(result.merges),
        "seconds": round(seconds, 2),
        "peak_bytes": peak(),
        "estimated_bytes": training_memory(len(counts), key_bytes),
    }


def _forget_peak() -> None:
    """Lets the kernel measure the peak of memory from now on (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def synthetic(number: int) -> PretokenCounts:
    """Counts of distinct made-up pre-tokens.

    A real one's beginning joined to another's end, both chosen as often as they occur, roughly; the
    count of the r-th is that of Zipf's law, at least 1.
    """
    real = _real_pretokens()
    generator = np.random.default_rng(1)
    made: pa.Array = real
    while len(made) < number:
        wanted = min(2 * (number - len(made)) + 1000, 4_000_000)
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
    table = pa.table({"pretoken": made, "count": frequencies})
    return PretokenCounts.from_arrow(table.sort_by("pretoken"))


def _sliced(values: pa.Array, begins: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> pa.Array:
    """Bytes `begin` to `end` of each value."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    data = np.frombuffer(values.buffers()[2], np.uint8)
    lengths = ends - begins
    new = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(offsets[:-1] + begins - new[:-1], lengths) + np.arange(new[-1])
    buffers = [None, pa.py_buffer(new.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _real_pretokens() -> pa.Array:
    """The pre-tokens of the shared texts, most frequent first."""
    counts: PretokenCounts | None = None
    for text in corpora.texts(quick=False):
        found = count_pretokens(text.path, special_tokens=_SPECIAL_TOKENS)
        counts = found if counts is None else counts + found
    assert counts is not None
    table = counts.to_arrow().sort_by([("count", "descending"), ("pretoken", "ascending")])
    return table["pretoken"].combine_chunks().cast(pa.binary())


def _min_counts(text: Text) -> dict[str, Any]:
    """What is left of pre-tokens and merges when rare pre-tokens are dropped."""
    counts = count_pretokens(text.path, special_tokens=_SPECIAL_TOKENS)
    every, rows = None, []
    data = Path(text.path).read_bytes()[:_ENCODED_BYTES].decode("utf-8", "ignore").encode()
    for least in _MIN_COUNTS:
        kept = counts.prune(least)
        begun = time.perf_counter()
        result = train_from_counts(kept, _VOCAB_SIZE, _SPECIAL_TOKENS)
        seconds = time.perf_counter() - begun
        if every is None:
            every = result
        same = sum(1 for _ in _common(every.merges, result.merges))
        ids = result.tokenizer().encode_batch_to_numpy([data])[0]
        rows.append(
            {
                "min_count": least,
                "distinct": len(kept),
                "pretokens": int(kept.total()),
                "seconds": round(seconds, 3),
                "merges": len(result.merges),
                "same_from_the_first": same,
                "shared": len(set(every.merges) & set(result.merges)),
                "bytes_per_token": round(len(data) / len(ids), 5),
            }
        )
    return {"text": text.name, "rows": rows}


def _common(one: Sequence[Any], other: Sequence[Any]) -> Iterator[Any]:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return
        yield a


def _speed() -> dict[str, float]:
    """MB a second and core, of the stages on this machine as the benchmarks found them."""
    rows = json.loads((HERE / "results.json").read_text())["rows"]
    found = {}
    for stage in ("count", "encode"):
        (row,) = (r for r in rows if r["work"] == f"beam-bpe {stage}, 2 workers, the stage")
        (workers,) = (side for name, side in row["sides"].items() if name.startswith("2"))
        found[stage] = round(workers["mb_per_second"] / 2, 1)
    return found


# --- extrapolating ---------------------------------------------------------------------------


def heaps(curve: Mapping[str, Any]) -> tuple[float, float]:
    """K and β of distinct = K · bytes^β, by least squares on the end of a curve's logarithms."""
    points = curve["points"]
    start = points[-1]["bytes"] / 10**_FITTED_DECADES
    chosen = [point for point in points if point["bytes"] >= start]
    x = [math.log(point["bytes"]) for point in chosen]
    y = [math.log(point["distinct"]) for point in chosen]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    beta = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )
    return math.exp(mean_y - beta * mean_x), beta


def power(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[float, float]:
    """a and b of value = a · distinct^b, through the two largest measurements."""
    first, last = rows[-2], rows[-1]
    b = math.log(last[key] / first[key]) / math.log(last["distinct"] / first["distinct"])
    return last[key] / last["distinct"] ** b, b


def render(found: Mapping[str, Any]) -> str:
    """The tables, in Markdown."""
    return "\n\n".join(
        [
            f"Measured on {found['machine']['cpu']}, {found['machine']['cores']} cores.",
            "**Distinct pre-tokens** (pattern `gpt2`), by Heaps' law `K · bytes^β` fitted on the "
            f"last {_FITTED_DECADES} decades of each text:",
            _heaps_table(found),
            "**Work, files and descriptors**, of which only descriptors go through a shuffle:",
            _work_table(found),
            "**Learning 32,000 ids** in one process, from synthetic counts:",
            _merging_table(found),
            "**The merge stage for a corpus**, extrapolated:",
            _stage_table(found),
            "**`tokenizer.min_count`**: pre-tokens that occur less often are dropped while the "
            "shards are read; the counts stay complete:",
            _min_count_table(found),
            "**Computing time**, at the speed of this machine's cores ("
            + " and ".join(f"{speed:.0f}" for speed in found["speed"].values())
            + " MB a second and core):",
            _cost_table(found),
        ]
    )


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _heaps_table(found: Mapping[str, Any]) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for curve in found["heaps"]:
            k, beta = heaps(curve)
            last = curve["points"][-1]
            yield (
                curve["text"],
                _size(last["bytes"]),
                f"{last['distinct']:,}",
                f"{k:.3g}",
                f"{beta:.3f}",
                *(_number(k * size**beta) for size in _CORPORA.values()),
            )

    head = ["text", "size", "distinct", "K", "β", *(f"at {name}" for name in _CORPORA)]
    return _table(head, rows())


def _distinct(found: Mapping[str, Any], text: str, size: float) -> float:
    (curve,) = (curve for curve in found["heaps"] if curve["text"] == text)
    k, beta = heaps(curve)
    return k * size**beta


def _work_table(found: Mapping[str, Any]) -> str:
    runs = found["runs"]
    per_entry = runs["run_bytes"] / runs["distinct"]

    def rows() -> Iterator[Sequence[str]]:
        for name, size in _CORPORA.items():
            for workers in _WORKERS:
                tasks = math.ceil(size / _RANGE_BYTES[name])
                of_a_worker = size / workers
                commit = min(_CHECKPOINT_BYTES, of_a_worker)
                commits = workers * math.ceil(of_a_worker / _CHECKPOINT_BYTES)
                entries = _distinct(found, runs["text"], commit)
                yield (
                    name,
                    f"{workers:,}",
                    f"{_size(_RANGE_BYTES[name], binary=True)}",
                    f"{tasks:,}",
                    _size(tasks * runs["task_descriptor_bytes"]),
                    f"{commits:,}",
                    _number(entries),
                    _size(commits * entries * per_entry),
                    f"{commits * _SHARDS:,}",
                    _size(commits * _SHARDS * runs["descriptor_bytes"]),
                )

    head = [
        "corpus",
        "workers",
        "`range_bytes`",
        "tasks",
        "their descriptors",
        "commits",
        "entries of one",
        "run files",
        "section descriptors",
        "their bytes",
    ]
    return _table(head, rows())


def _merging_table(found: Mapping[str, Any]) -> str:
    return _table(
        ["distinct pre-tokens", "their bytes", "seconds", "peak memory", "estimated beforehand"],
        (
            (
                f"{row['distinct']:,}",
                _size(row["distinct_bytes"]),
                f"{row['seconds']:.1f}",
                _size(row["peak_bytes"]),
                _size(row["estimated_bytes"]),
            )
            for row in found["merging"]
        ),
    )


def _stage_table(found: Mapping[str, Any]) -> str:
    merging = found["merging"]
    length = merging[-1]["distinct_bytes"] / merging[-1]["distinct"]
    a, b = power(merging, "seconds")

    def rows() -> Iterator[Sequence[str]]:
        for name, size in _CORPORA.items():
            for curve in found["heaps"]:
                distinct = _distinct(found, curve["text"], size)
                yield (
                    name,
                    curve["text"],
                    _number(distinct),
                    _size(training_memory(int(distinct), int(distinct * length))),
                    _duration(a * distinct**b),
                )

    return _table(["corpus", "as", "distinct", "memory", "time"], rows()) + (
        f"\n\nTime is `{a:.2g} · distinct^{b:.2f}` seconds, through the two largest measurements; "
        "memory the estimate that the stage makes before it begins."
    )


def _min_count_table(found: Mapping[str, Any]) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for of in found["min_count"]:
            first = of["rows"][0]
            for row in of["rows"]:
                yield (
                    of["text"],
                    str(row["min_count"]),
                    f"{row['distinct']:,} ({row['distinct'] / first['distinct']:.0%})",
                    f"{row['pretokens'] / first['pretokens']:.2%}",
                    f"{row['seconds']:.2f}",
                    f"{row['same_from_the_first']:,}",
                    f"{row['shared'] / first['merges']:.2%}",
                    f"{row['bytes_per_token'] / first['bytes_per_token'] - 1:+.3%}",
                )

    head = [
        "text",
        "`min_count`",
        "distinct left",
        "occurrences left",
        "seconds",
        "merges alike from the first",
        "merges in common",
        "bytes a token",
    ]
    return _table(head, rows())


def _cost_table(found: Mapping[str, Any]) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for name, size in _CORPORA.items():
            hours = {stage: size / (speed * 1e6) / 3600 for stage, speed in found["speed"].items()}
            for workers in _WORKERS:
                yield (
                    name,
                    f"{workers:,}",
                    *(f"{_number(hours[stage])} h" for stage in ("count", "encode")),
                    *(_duration(3600 * hours[stage] / workers) for stage in ("count", "encode")),
                )

    head = ["corpus", "workers", "counting", "encoding", "counting takes", "encoding takes"]
    return _table(head, rows())


def _number(value: float) -> str:
    """Two digits that count, with a unit."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return (
                f"{value / factor:.2g} {unit}"
                if value < 100 * factor
                else f"{value / factor:.0f} {unit}"
            )
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _size(value: float, *, binary: bool = False) -> str:
    base, names = (
        (1024, ("B", "KiB", "MiB", "GiB", "TiB"))
        if binary
        else (1000, ("B", "kB", "MB", "GB", "TB"))
    )
    for name in names:
        if value < base or name == names[-1]:
            return f"{value:.3g} {name}" if value < 999.5 else f"{value:.0f} {name}"
        value /= base
    raise AssertionError


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return (
                f"{seconds / length:.2g} {unit}"
                if seconds < 100 * length
                else f"{seconds / length:.0f} {unit}"
            )
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:.0f} s"


def write() -> None:
    """Puts the tables into the page."""
    begin, end = "<!-- scale: begin -->", "<!-- scale: end -->"
    head, _, rest = PAGE.read_text("utf-8").partition(begin)
    _, _, tail = rest.partition(end)
    tables = render(json.loads(MEASURED.read_text()))
    PAGE.write_text(f"{head}{begin}\n\n{tables}\n\n{end}{tail}", "utf-8")


def main(arguments: Sequence[str]) -> None:
    """One of the commands above; `learn N` prints one measurement."""
    match arguments:
        case ["measure"]:
            MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
            write()
        case ["write"]:
            write()
        case ["learn", number]:
            print(json.dumps(learn(int(number))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
