"""The tables of docs/scale.md: formulas applied to the measurements of extrapolate.py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpe_core.memory import training_memory

MERGED_AT_ONCE = 256  # sections per round
_READ_BYTES = 64 << 10  # per read of a section, if this many are merged
_FITTED_POINTS = 5  # at the end of the curve: its slope there determines the extrapolation
_FITTED_TRAININGS = 2  # the largest measurements

_WORKERS = (100, 10_000)
_TRAINED_ON = {"64 GB": 64 * 10**9, "1 TB": 10**12, "100 TB": 10**14}
_SHOWN_MIN_COUNTS = (1, 2, 5, 10, 20)
_MACHINES = {"256 GB": 256 * 10**9, "1 TB": 10**12}
_TRAINED_WITH = "1 TB"  # memory for training in the table of costs

Found = Mapping[str, Any]


@dataclass(frozen=True)
class Build:
    """A corpus and the configuration that it is built with."""

    name: str
    size: int
    range_bytes: int
    shards: int
    checkpoint_bytes: int
    memory: int

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return math.ceil(self.size / self.range_bytes)

    def commits(self, workers: int) -> list[float]:
        """Return the bytes of text in each commit of one worker."""
        share = self.size / workers
        whole = int(share // self.checkpoint_bytes)
        return [self.checkpoint_bytes] * whole + [share - whole * self.checkpoint_bytes]


BUILDS = (
    Build("1 TB", 10**12, 64 << 20, 64, 8 << 30, 512 << 20),
    Build("100 TB", 10**14, 1 << 30, 1024, 16 << 30, 2 << 30),
)


# --- formulas --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heaps:
    """Heaps' law: distinct = K · bytes^β."""

    k: float
    beta: float

    @classmethod
    def fitted(cls, points: Sequence[Mapping[str, float]]) -> Heaps:
        """Fit the law to the end of a curve, by least squares on the logarithms."""
        return cls(*power(points[-_FITTED_POINTS:], "bytes", "distinct"))

    def distinct(self, size: float) -> float:
        """Return the number of distinct pre-tokens in a text of this size."""
        return self.k * size**self.beta

    def size(self, distinct: float) -> float:
        """Return the size of the text with this many distinct pre-tokens."""
        return float((distinct / self.k) ** (1 / self.beta))


def power(rows: Sequence[Mapping[str, float]], of: str, key: str) -> tuple[float, float]:
    """Fit key = a · of^b by least squares on the logarithms; return a and b."""
    x = [math.log(row[of]) for row in rows]
    y = [math.log(row[key]) for row in rows]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    b = sum((p - mean_x) * (q - mean_y) for p, q in zip(x, y, strict=True)) / sum(
        (p - mean_x) ** 2 for p in x
    )
    return math.exp(mean_y - b * mean_x), b


def runs_of_commit(law: Heaps, size: float, capacity: float) -> tuple[int, float]:
    """Return the number of run files in a commit of this much text, and of all their entries.

    A full table, with `capacity` entries, is written as a run and emptied.
    """
    filling = law.size(capacity)
    full = int(size // filling)
    return full + 1, full * capacity + law.distinct(size - full * filling)


def rounds(sections: int) -> int:
    """Return the number of rounds in which the sections of a shard are merged."""
    number = 1
    while sections > MERGED_AT_ONCE:
        sections = math.ceil(sections / MERGED_AT_ONCE)
        number += 1
    return number


class Training:
    """Distinct pre-tokens, memory and time of training by law, corpus size and min_count."""

    def __init__(self, found: Found) -> None:
        self._found = found
        largest = found["training"][-_FITTED_TRAININGS:]
        self.a, self.b = power(largest, "distinct", "seconds")
        last = largest[-1]
        self.seconds_to_read = {
            filtered: last[key] / last["distinct"]
            for filtered, key in ((False, "read_seconds"), (True, "filtered_seconds"))
        }

    def min_counts(self, text: str) -> list[int]:
        """Return the measured values of min_count."""
        return [row["min_count"] for row in self._rows(text)]

    def kept(self, text: str, size: float, min_count: int) -> float:
        """Return the number of distinct pre-tokens kept, in the proportion of the measured text."""
        row, every = self._row(text, min_count), self._row(text, 1)
        return law_of(self._found, text).distinct(size) * row["distinct"] / every["distinct"]

    def memory(self, text: str, size: float, min_count: int) -> int:
        """Return the memory in bytes, by the estimate that the stage makes before it starts."""
        row = self._row(text, min_count)
        kept = self.kept(text, size, min_count)
        return training_memory(int(kept), int(kept * row["distinct_bytes"] / row["distinct"]))

    def seconds(self, text: str, size: float, min_count: int) -> float:
        """Return the time of reading all counts and learning from those that are kept."""
        every = self.kept(text, size, 1)
        learning = self.a * self.kept(text, size, min_count) ** self.b
        return float(every * self.seconds_to_read[min_count > 1] + learning)

    def fitting(self, text: str, size: float, memory: float) -> int | None:
        """Return the smallest measured min_count that fits in the memory."""
        for min_count in self.min_counts(text):
            if self.memory(text, size, min_count) <= memory:
                return min_count
        return None

    def _rows(self, text: str) -> Sequence[Mapping[str, Any]]:
        (of,) = (of for of in self._found["min_count"] if of["text"] == text)
        rows: Sequence[Mapping[str, Any]] = of["rows"]
        return rows

    def _row(self, text: str, min_count: int) -> Mapping[str, Any]:
        (row,) = (row for row in self._rows(text) if row["min_count"] == min_count)
        return row


@dataclass(frozen=True)
class Merging:
    """Merging the runs of a build into shards.

    Attributes:
        run_bytes: size of all runs.
        sections: number of sections in one shard.
        reads: number of reads of a worker that merges a shard, in the first round.
        hours: processor time for all shards, in hours.
        seconds: duration.
    """

    run_bytes: float
    sections: int
    reads: int
    hours: float
    seconds: float

    @classmethod
    def of(cls, found: Found, build: Build, workers: int, text: str) -> Merging:
        """Compute merging for a build by the law of a text."""
        law, capacity = law_of(found, text), _capacity(found, build.memory)
        runs = [runs_of_commit(law, size, capacity) for size in build.commits(workers)]
        run_bytes = workers * sum(entries for _, entries in runs) * entry_bytes(found, text)
        sections = workers * sum(number for number, _ in runs)
        (measured,) = (row for row in found["merging"] if row["rounds"] == rounds(sections))
        seconds = run_bytes * measured["seconds"] / measured["run_bytes"]
        section_bytes = run_bytes / sections / build.shards
        return cls(
            run_bytes=run_bytes,
            sections=sections,
            reads=sections * math.ceil(section_bytes / _READ_BYTES),
            hours=seconds / 3600,
            seconds=seconds / min(build.shards, workers),
        )


def law_of(found: Found, text: str) -> Heaps:
    """Fit Heaps' law to the curve of a text."""
    (curve,) = (curve for curve in found["heaps"] if curve["text"] == text)
    return Heaps.fitted(curve["points"])


def entry_bytes(found: Found, text: str) -> float:
    """Return the average size of an entry of a run in bytes."""
    (runs,) = (runs for runs in found["runs"] if runs["text"] == text)
    return float(runs["run_bytes"] / runs["distinct"])


def _capacity(found: Found, memory: float) -> float:
    """Return the number of entries in a full table."""
    return float(found["table"]["entries"] * memory / found["table"]["memory"])


def _texts(found: Found) -> list[str]:
    return [curve["text"] for curve in found["heaps"]]


def _largest(found: Found) -> str:
    """Return the text whose law gives the most distinct pre-tokens."""
    return max(_texts(found), key=lambda text: law_of(found, text).distinct(BUILDS[-1].size))


# --- tables ----------------------------------------------------------------------------------


def render(found: Found) -> str:
    """Return the tables in Markdown."""
    largest = _largest(found)
    training = Training(found)
    speeds = " and ".join(f"{speed:.0f}" for speed in found["speed"].values())
    known = training.min_counts(largest)
    return "\n\n".join(
        [
            f"Measured on {found['machine']['cpu']}, {found['machine']['cores']} cores.",
            "**Distinct pre-tokens** (pattern `gpt2`), by Heaps' law `K · bytes^β`, fitted for "
            f"each text to {_FITTED_POINTS} points: the text, its first half, its first quarter "
            "and so on:",
            _heaps_table(found),
            "**Configuration** assumed by the other tables:",
            _configuration_table(),
            "**Counts of one worker** until a commit. When its table is full, the worker writes a "
            "run file and starts an empty table:",
            _held_table(found),
            _small_tables(found),
            "**Tasks, commits and descriptors.** Only descriptors go through a shuffle. The number "
            f"of run files follows the law of {largest} text:",
            _work_table(found),
            "**Merging the shards**, as many at a time as there are shards or workers. Time and "
            f"reads follow the law of {largest} text, which has the most pre-tokens:",
            _merging_table(found),
            _measured_merging(found),
            "**Training 32,000 ids**, measured in one process that reads 64 shards of synthetic "
            "counts and learns merges:",
            _training_table(found),
            "**Training on a corpus**, extrapolated. The columns with a number contain the "
            "distinct pre-tokens kept, memory and time for this `tokenizer.min_count`; the last "
            "columns contain the smallest `min_count` that fits, out of "
            f"{', '.join(map(str, known[:-1]))} and {known[-1]}:",
            _min_count_table(training, found),
            _fitting(training, found),
            f"Learning takes `{training.a:.2g} · kept^{training.b:.2f}` seconds, fitted to the "
            f"{_FITTED_TRAININGS} largest measurements. Reading the shards takes "
            f"{training.seconds_to_read[False] * 1e9:.0f} s for 10^9 pre-tokens, or "
            f"{training.seconds_to_read[True] * 1e9:.0f} s if most are dropped. Memory is the "
            "estimate that the stage makes before it starts.",
            "The share of pre-tokens kept of a corpus is assumed to be the share kept of the "
            "measured text (a stable frequency spectrum). For comparison, this is the error of the "
            "same prediction from a quarter of each text to the whole text:",
            _prediction_table(found),
            _limits_of_shares(found),
            "**What `min_count` changes** in the merges of a text; ranks are counted from 0:",
            _changes_table(found),
            "**Computing time** at the speed of this machine's cores: counting and encoding at "
            f"{speeds} MB per second and core, the rest as above, by the law of {largest} text. "
            "Training is one process with the smallest `min_count` that fits into "
            f"{_TRAINED_WITH} of memory:",
            _cost_table(found, training),
        ]
    )


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _heaps_table(found: Found) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for curve in found["heaps"]:
            law = Heaps.fitted(curve["points"])
            last = curve["points"][-1]
            yield (
                curve["text"],
                _size(last["bytes"]),
                f"{last['distinct']:,}",
                f"{law.k:.3g}",
                f"{law.beta:.3f}",
                *(_number(law.distinct(size)) for size in _TRAINED_ON.values()),
            )

    head = ["text", "size", "distinct", "K", "β", *(f"at {name}" for name in _TRAINED_ON)]
    return _table(head, rows())


def _configuration_table() -> str:
    def rows() -> Iterator[Sequence[str]]:
        for build in BUILDS:
            sizes = (build.range_bytes, build.checkpoint_bytes, build.memory)
            ranges, checkpoint, memory = (_size(size, binary=True) for size in sizes)
            yield build.name, ranges, f"{build.shards:,}", checkpoint, memory

    keys = ["input.range_bytes", "counts.shards", "counts.checkpoint_bytes", "counts.memory"]
    return _table(["corpus", *(f"`{key}`" for key in keys)], rows())


def _held_table(found: Found) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for build in BUILDS:
            size = max(commit for workers in _WORKERS for commit in build.commits(workers))
            capacity = _capacity(found, build.memory)
            for text in _texts(found):
                distinct = law_of(found, text).distinct(size)
                number, entries = runs_of_commit(law_of(found, text), size, capacity)
                yield (
                    build.name,
                    text,
                    _size(size, binary=True),
                    _number(distinct),
                    _size(distinct / capacity * build.memory, binary=True),
                    f"{distinct / capacity:.0%}",
                    f"{number}",
                    _size(entries * entry_bytes(found, text)),
                )

    head = [
        "corpus",
        "like",
        "text per commit",
        "distinct pre-tokens",
        "memory for all of them",
        "share of `counts.memory`",
        "run files",
        "size of run files",
    ]
    return _table(head, rows())


def _small_tables(found: Found) -> str:
    rows = found["small_tables"]
    predicted = [
        runs_of_commit(law_of(found, row["text"]), row["bytes"], _capacity(found, row["memory"]))
        for row in rows
    ]
    off = [
        entries * entry_bytes(found, row["text"]) / row["run_bytes"] - 1
        for (_, entries), row in zip(predicted, rows, strict=True)
    ]
    parts = [
        f"{row['text']} {_size(row['memory'], binary=True)}: {row['runs']} ({number})"
        for (number, _), row in zip(predicted, rows, strict=True)
    ]
    return (
        "Check with small tables, run files written by counting (predicted): "
        f"{', '.join(parts)}. The predicted sizes are off by {min(off):+.0%} to {max(off):+.0%}."
    )


def _work_table(found: Found) -> str:
    descriptors = found["descriptors"]

    def rows() -> Iterator[Sequence[str]]:
        for build in BUILDS:
            for workers in _WORKERS:
                commits = workers * len(build.commits(workers))
                runs = Merging.of(found, build, workers, _largest(found)).sections
                more = (runs - commits) * build.shards * descriptors["section_bytes"]
                of_sections = commits * build.shards * descriptors["commit_bytes"] + more
                yield (
                    build.name,
                    f"{workers:,}",
                    f"{build.tasks:,}",
                    _size(build.tasks * descriptors["task_bytes"]),
                    f"{commits:,}",
                    f"{commits * build.shards:,}",
                    _size(of_sections),
                )

    head = [
        "corpus",
        "workers",
        "tasks",
        "size of their descriptors",
        "commits",
        "descriptors of sections",
        "size of these descriptors",
    ]
    return _table(head, rows())


def _merging_table(found: Found) -> str:
    texts = _texts(found)

    def rows() -> Iterator[Sequence[str]]:
        for build in BUILDS:
            for workers in _WORKERS:
                by_text = {text: Merging.of(found, build, workers, text) for text in texts}
                merging = by_text[_largest(found)]
                yield (
                    build.name,
                    f"{workers:,}",
                    f"{build.shards:,}",
                    *(_size(by_text[text].run_bytes) for text in texts),
                    f"{merging.sections:,}",
                    f"{rounds(merging.sections)}",
                    f"{merging.reads:,}",
                    _duration(merging.seconds),
                )

    head = [
        "corpus",
        "workers",
        "shards",
        *(f"run files like {text}" for text in texts),
        "sections per shard",
        "rounds",
        "reads per shard",
        "time",
    ]
    return _table(head, rows())


def _measured_merging(found: Found) -> str:
    parts = [
        f"{row['run_bytes'] / row['seconds'] / 1e6:.0f} MB of run files per second and core in "
        f"{row['rounds']} round{'s' if row['rounds'] > 1 else ''} "
        f"({row['sections']} sections per shard, {_size(row['section_bytes'])} each)"
        for row in found["merging"]
    ]
    return "Measured: " + ", ".join(parts) + ", from a local disk."


def _training_table(found: Found) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for row in found["training"]:
            yield (
                f"{row['distinct']:,}",
                _size(row["distinct_bytes"]),
                f"{row['read_seconds']:.1f}",
                f"{row['seconds']:.1f}",
                _size(row["peak_bytes"]),
                _size(row["estimated_bytes"]),
            )

    head = [
        "distinct pre-tokens",
        "bytes of pre-tokens",
        "reading, CPU seconds",
        "learning, CPU seconds",
        "peak memory",
        "estimated memory",
    ]
    return _table(head, rows())


def _min_count_table(training: Training, found: Found) -> str:
    def cell(text: str, size: float, min_count: int) -> str:
        of = (text, size, min_count)
        return (
            f"{_number(training.kept(*of))}, {_size(training.memory(*of))}, "
            f"{_duration(training.seconds(*of))}"
        )

    def rows() -> Iterator[Sequence[str]]:
        for name, size in _TRAINED_ON.items():
            for text in _texts(found):
                yield (
                    name,
                    text,
                    *(cell(text, size, min_count) for min_count in _SHOWN_MIN_COUNTS),
                    *(
                        str(training.fitting(text, size, memory) or "none")
                        for memory in _MACHINES.values()
                    ),
                )

    fits = (f"fits {name}" for name in _MACHINES)
    head = ["corpus", "like", *map(str, _SHOWN_MIN_COUNTS), *fits]
    return _table(head, rows())


def _fitting(training: Training, found: Found) -> str:
    """Describe the min_count that suffices for the largest corpus under the law of any text."""
    build = BUILDS[-1]
    needed = []
    for name, memory in _MACHINES.items():
        fitting = [training.fitting(text, build.size, memory) for text in _texts(found)]
        least = [one for one in fitting if one is not None]
        if len(least) == len(fitting):
            needed.append(f"{name} of memory is enough with `min_count` {max(least)}")
    return f"For {build.name} of text like any of these, " + ", and ".join(needed) + "."


def _prediction_table(found: Found) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for curve in found["heaps"]:
            *_, whole = points = curve["points"]
            part = [point for point in points if point["bytes"] < 0.3 * whole["bytes"]]
            grown = Heaps.fitted(part).distinct(whole["bytes"]) / part[-1]["distinct"]
            yield (
                curve["text"],
                _size(part[-1]["bytes"]),
                *(
                    f"{part[-1]['kept'][least] * grown / kept - 1:+.0%}"
                    for least, kept in whole["kept"].items()
                ),
            )

    known = found["heaps"][0]["points"][-1]["kept"]
    return _table(["text", "predicted from", *(f"`min_count` {m}" for m in known)], rows())


def share_kept(beta: float, min_count: int) -> float:
    """Return the limit of the share of pre-tokens kept, if Heaps' law holds with the same β.

    After Karlin, "Central limit theorems for certain infinite urn schemes" (1967).
    """
    return math.exp(math.lgamma(min_count - beta) - math.lgamma(1 - beta) - math.lgamma(min_count))


def _limits_of_shares(found: Found) -> str:
    parts = []
    for curve in found["heaps"]:
        beta, kept = Heaps.fitted(curve["points"]).beta, curve["points"][-1]["kept"]
        shares = " and ".join(
            f"{kept[str(m)] / kept['1']:.1%} (limit {share_kept(beta, m):.1%})" for m in (2, 20)
        )
        parts.append(f"{curve['text']} {shares}")
    return (
        "If Heaps' law continues with the same β, the share kept tends to "
        "`Γ(min_count − β) / (Γ(1 − β) · Γ(min_count))`. The shares used, for 2 and 20, are above "
        f"these limits: {', '.join(parts)}."
    )


def _changes_table(found: Found) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for of in found["min_count"]:
            first = of["rows"][0]
            for row in of["rows"]:
                if row["min_count"] not in _SHOWN_MIN_COUNTS:
                    continue
                same = row["same_from_the_first"]
                yield (
                    of["text"],
                    str(row["min_count"]),
                    f"{row['distinct']:,} ({row['distinct'] / first['distinct']:.0%})",
                    f"{row['pretokens'] / first['pretokens']:.2%}",
                    f"{row['seconds']:.2f}",
                    "none" if same == first["merges"] else f"{same:,}",
                    f"{row['shared'] / first['merges']:.2%}",
                    f"{row['shared_tokens'] / first['merges']:.2%}",
                    f"{row['bytes_per_token'] / first['bytes_per_token'] - 1:+.3%}",
                )

    head = [
        "text",
        "`min_count`",
        "distinct kept",
        "occurrences kept",
        "CPU seconds",
        "first differing rank",
        "merges in common",
        "tokens in common",
        "bytes per token",
    ]
    return _table(head, rows())


def _cost_table(found: Found, training: Training) -> str:
    text = _largest(found)
    speed = found["speed"]

    def rows() -> Iterator[Sequence[str]]:
        for build in BUILDS:
            counting, encoding = (
                build.size / (speed[stage] * 1e6) / 3600 for stage in ("count", "encode")
            )
            least = training.fitting(text, build.size, _MACHINES[_TRAINED_WITH])
            if least is None:
                raise ValueError(f"no known min_count fits {_TRAINED_WITH} for {build.name}")
            learning = training.seconds(text, build.size, least)
            for workers in _WORKERS:
                merging = Merging.of(found, build, workers, text)
                hours = (counting, merging.hours, learning / 3600, encoding)
                times = (
                    3600 * counting / workers,
                    merging.seconds,
                    learning,
                    3600 * encoding / workers,
                )
                yield (
                    build.name,
                    f"{workers:,}",
                    str(least),
                    *map(_number, (*hours, sum(hours))),
                    *map(_duration, times),
                )

    stages = ("counting", "merging", "training", "encoding")
    head = [
        "corpus",
        "workers",
        "`min_count`",
        *(f"{stage}, vCPU-hours" for stage in (*stages, "total")),
        *(f"{stage}, time" for stage in stages),
    ]
    return _table(head, rows())


def _number(value: float) -> str:
    """Format a number with two significant digits and a unit."""
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
