"""Repaired files of a replay, found by their labels and aligned with the dataset."""

from __future__ import annotations

import difflib
import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.accounting import DocumentTotals
from pipelines.config import SourceConfig
from pipelines.config.values import escape, is_url, unescape
from pipelines.errors import ConfigError, InputError
from pipelines.manifest import generations
from pipelines.manifest.entries import InputEntry
from pipelines.manifest.models import TokensManifest
from pipelines.readers.tasks import SourceReading, TaskWork, read_task
from pipelines.replay.alignment import Known, Located, NotAlignedError, align
from pipelines.replay.job import ExistingDataset, Job, Rejects
from pipelines.storage import archives
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tasks.listing import InputFile, NoInputError, list_files
from pipelines.tasks.plan import COLUMN_FORMATS, plan_tasks
from pipelines.writing.replayed import IntArray, Intervals

_SHOWN = 8


def by_label(given: Mapping[str, str], manifest: TokensManifest) -> dict[str, str]:
    """Return the paths by labels of the dataset, which may hold `=` as NAME of NAME=PATH cannot."""
    labels = manifest.inputs_by_label
    found = {}
    for name, path in given.items():
        parts = f"{name}={path}".split("=")
        texts = (("=".join(parts[:end]), "=".join(parts[end:])) for end in range(1, len(parts)))
        known = (text for text in texts if text[0] in labels)
        label, at = next(known, (name, path))
        found[label] = at
    return found


def find_repaired(
    given: Mapping[str, str], dataset: ExistingDataset, sources: Sequence[SourceConfig]
) -> dict[str, InputFile]:
    """Return the repaired files, by the labels of the files that they replace.

    Raises:
        ConfigError: a label is not that of an input file.
        InputError: there is no such file.
    """
    found = {}
    inputs = dataset.manifest.inputs_by_label
    for label, path in given.items():
        if label not in inputs:
            names = sorted(inputs)
            near = sorted(difflib.get_close_matches(label, names, n=_SHOWN)) or names[:_SHOWN]
            raise ConfigError(
                "--source does not name an input file of the dataset.",
                expected="NAME=PATH with a name from the column `source`, such as "
                + ", ".join(near),
                found=label,
            )
        number, source = next(
            (i, source)
            for i, source in enumerate(sources)
            if source.name is None or label.startswith(f"{source.name}/")
        )
        if source.limit_documents is not None or source.limit_bytes is not None:
            raise ConfigError(
                "Files of a source with a limit cannot be replaced by repaired ones.",
                found=f"input[{number}].limit_documents or limit_bytes",
                where=f"--source {label}={path}",
                hint="Start again: `beam-bpe encode CONFIG --restart`.",
            )
        if not is_url(path):
            path = str(Path(os.path.expanduser(path)).absolute())  # noqa: PTH111
        pattern = _pattern_of(path)
        alone = source.model_copy(update={"files": (pattern,), "include": (), "exclude": ()})
        if not is_url(path):  # the options are those of the storage of the source
            alone = alone.model_copy(update={"storage_options": {}})
        try:
            [file] = list_files(alone, index=number)
        except InputError as error:
            raise InputError(
                "The repaired file was not found."
                if isinstance(error, NoInputError)
                else error.message,
                expected=error.expected,
                found=error.found,
                where=f"--source {label}={path}",
                hint="Check the path; a relative one is resolved in the current directory.",
            ) from None
        name = label if source.name is None else label.removeprefix(f"{source.name}/")
        found[label] = replace(file, name=name)
    return found


def _pattern_of(url: str) -> str:
    """Return the pattern that matches this file alone."""
    parts = archives.split_url(url)
    if parts is None:
        return glob.escape(url)
    protocol, name, archive = parts
    return f"{protocol}://{escape(unescape(name))}::{archive}"


def repaired_before(
    given: Mapping[str, str],
    dataset: ExistingDataset,
    configuration: Mapping[str, Any],
    sources: Sequence[SourceConfig],
    listed: Mapping[str, InputFile],
) -> dict[str, InputFile]:
    """Return files of earlier repairs that have rejects of another policy, if unchanged.

    They are looked up among the input files and at their earlier locations.
    """
    manifest = dataset.manifest
    before = {file.name: file.repaired.size for file in manifest.inputs if file.repaired}
    wanted: set[str] = set()
    policy = generations.policy_of(configuration)
    for file in manifest.files.rejects if before.keys() - given.keys() else ():
        made_by = generations.generation_of(file.name)
        if generations.policy_of_generation(manifest, made_by) != policy:
            wanted.update(Rejects.read(dataset.rejects, file.name).labels)
    marks = {} if dataset.run is None else dataset.run.repaired_marks
    urls = {} if dataset.run is None else dataset.run.repaired_locations
    found = {}
    for label in sorted(wanted & before.keys() - given.keys()):
        candidates = [listed[label]] if label in listed else []
        if label in urls:
            with suppress(InputError):
                candidates += find_repaired({label: urls[label]}, dataset, sources).values()
        for file_there in candidates:
            if (file_there.size, file_there.version_tag) == (before[label], marks.get(label)):
                found[label] = file_there
                break
    return found


def plan_repaired(
    job: Job,
    known: Mapping[str, list[tuple[IntArray, ...]]],
    *,
    dataset: ExistingDataset,
    repaired: Mapping[str, InputFile],
    sources: Sequence[SourceConfig],
    readings: Sequence[SourceReading],
) -> None:
    """Add the parts of repaired files that contain the rejected documents to the job.

    Args:
        job: job with an account of each repaired file.
        known: by label, the offsets of rejects, the offsets of unread ends, and lengths.
        dataset: dataset of the replay; `repaired`, `sources` and `readings` are those of the
            replay.
    """
    ordered = sorted(repaired.values(), key=lambda file: (file.source, file.label))
    plan = plan_tasks(ordered, sources)
    strict = [replace(r, options=replace(r.options, keep_readable=False)) for r in readings]
    works = [TaskWork.of_plan(plan, task) for task in plan.tasks]
    located = [_locate(work, strict) for work in works]
    # Readers yield no offsets of documents that are not selected.
    whole_files = [replace(r, options=r.options.without_selection) for r in strict]
    selected = [file.label for file in ordered if not sources[file.source].selection]
    everything = [
        found if all(label in selected for label in found) else _locate(work, whole_files)
        for work, found in zip(works, located, strict=True)
    ]
    rows = _known_rows(dataset, set(repaired))
    of_tasks: list[dict[str, Intervals]] = [{} for _ in works]
    for label, file in repaired.items():
        whole = DocumentTotals.sum_of(
            totals for found in located for name, (_, totals) in found.items() if name == label
        )
        job.accounts[label].whole = whole
        places = [found[label][0] for found in located if label in found]
        exact, rests = (_all(known[label], i) for i in (0, 1))
        unsorted = _all(known[label], 0, sort=False)
        lengths = _all(known[label], 2, sort=False)[np.argsort(unsorted, kind="stable")]
        source, was = sources[file.source], dataset.manifest.inputs_by_label[label]
        more_empty = whole.empty - was.empty
        all_places = _all([(f[label][0].places,) for f in everything if label in f], 0)
        taken = _aligned(
            Known(
                rows=rows[label][0],
                row_bytes=rows[label][1],
                rejects=exact,
                rests=rests,
                is_first=was.repaired is None,
                reject_bytes=lengths,
                framing=min(map(len, source.separators or (b"\n",))),
            ),
            Located(
                places=_all([(p.places,) for p in places], 0),
                lengths=_all([(p.lengths,) for p in places], 0, sort=False),
                more_left_out=_left_out(whole) - _left_out(was),
                all_places=None if more_empty else all_places,
            ),
            file,
            source,
        )
        for number, found in enumerate(located):
            if label in found:
                of_tasks[number][label] = _part_of(taken, found[label][0].places)
    for work, taken_of_task in zip(works, of_tasks, strict=True):
        parts = tuple(part for part in work.parts if len(taken_of_task[part[0].label]))
        if parts:
            job.parts.append(parts)
            job.taken.append({part[0].label: taken_of_task[part[0].label] for part in parts})
    if not job.parts:  # nothing follows the damage, but the rejects must be written
        job.parts.append(works[0].parts[:1])
        job.taken.append({works[0].parts[0][0].label: _part_of(taken, np.empty(0, np.int64))})


def _left_out(numbers: DocumentTotals | InputEntry) -> int:
    return numbers.empty + numbers.not_selected


def _all(parts: Sequence[tuple[IntArray, ...]], index: int, *, sort: bool = True) -> IntArray:
    arrays = [np.empty(0, np.int64), *(part[index] for part in parts)]
    together = np.concatenate(arrays)
    return np.sort(together) if sort else together


def _aligned(known: Known, found: Located, file: InputFile, source: SourceConfig) -> Intervals:
    try:
        return align(known, found, by_row=source.format in COLUMN_FORMATS)
    except NotAlignedError as error:
        keys = ", ".join(f"{key}: {value}" for key, value in source.selection.items())
        selected = f"; the selection of its source: {keys}" if keys else ""
        raise InputError(
            "A repaired file does not match the dataset; nothing was replayed.",
            expected=error.expected,
            found=error.found,
            where=f"{file.label}: {file.url}{selected}",
            hint="Repair only the rejected documents, each in its position, or encode everything "
            "again: `beam-bpe encode CONFIG --restart`.",
        ) from None


def _part_of(taken: Intervals, places: IntArray) -> Intervals:
    """Return the intervals that contain some of the offsets, with their numbers of documents."""
    index = taken.find(places)
    numbers, counts = np.unique(index[index >= 0], return_counts=True)
    return Intervals(
        firsts=taken.firsts[numbers],
        ends=taken.ends[numbers],
        shifts=taken.shifts[numbers],
        documents=counts.astype(np.int64),
    )


def _locate(
    work: TaskWork, readings: Sequence[SourceReading]
) -> dict[str, tuple[Located, DocumentTotals]]:
    """Return offsets and lengths of the documents of a task, rejected ones included, by label."""
    places: dict[str, list[IntArray]] = {file.label: [] for file, _, _ in work.parts}
    lengths: dict[str, list[IntArray]] = {file.label: [] for file, _, _ in work.parts}
    totals = {file.label: DocumentTotals() for file, _, _ in work.parts}
    for batch in read_task(work, readings):
        totals[batch.source].add_batch(batch)
        at = [(reject.offset, reject.length) for reject in batch.rejects]
        rejected = np.array(at, np.int64).reshape(-1, 2)
        if batch.part:
            continue
        kept = batch.num_bytes if batch.whole_bytes is None else np.array([batch.whole_bytes])
        together = np.concatenate([batch.offsets, rejected[:, 0]])
        order = np.argsort(together, kind="stable")
        places[batch.source].append(together[order])
        lengths[batch.source].append(np.concatenate([kept, rejected[:, 1]])[order])
    nothing = np.empty(0, np.int64)
    return {
        label: (
            Located(
                places=np.concatenate([nothing, *places[label]]),
                lengths=np.concatenate([nothing, *lengths[label]]),
            ),
            totals[label],
        )
        for label in places
    }


def _known_rows(dataset: ExistingDataset, labels: set[str]) -> dict[str, tuple[IntArray, IntArray]]:
    """Return offsets and lengths of the documents in the dataset from these files, by label."""
    found: dict[str, list[tuple[IntArray, IntArray]]] = {label: [] for label in labels}
    for file in dataset.manifest.files.token_files:
        for label, places, lengths in _rows_of(dataset.tokens, file.name, labels):
            found[label].append((places, lengths))
    rows = {}
    for label, parts in found.items():
        places, lengths = (_all(parts, i, sort=False) for i in (0, 1))
        order = np.argsort(places, kind="stable")
        rows[label] = places[order], lengths[order]
    return rows


def _rows_of(
    tokens: Directory, name: str, labels: set[str]
) -> Iterator[tuple[str, IntArray, IntArray]]:
    """Yield label, offsets and lengths of the documents in one token file."""
    with tokens.reading_errors(name), open_parquet(tokens, name) as file:
        inputs = json.loads(footer_of(file)["task"])["inputs"]
        for label in sorted(labels.intersection(part[0] for part in inputs)):
            places, lengths = [np.empty(0, np.int64)], [np.empty((2, 0), np.int64)]
            columns = ["source", "offset", "num_bytes", "part"]
            for batch in file.iter_batches(1 << 16, columns=columns):
                rows = batch.filter(pc.equal(batch["source"].cast(pa.string()), label))
                begins = rows["part"].to_numpy() == 0
                offsets, num_bytes = (rows[c].to_numpy() for c in ("offset", "num_bytes"))
                places.append(offsets[begins])
                lengths.append(np.stack([begins.astype(np.int64), num_bytes]))
            begins, num_bytes = np.concatenate(lengths, axis=1)
            document = np.cumsum(begins) - 1
            whole = np.zeros(int(begins.sum()), np.int64)
            np.add.at(whole, document, num_bytes)
            yield label, np.concatenate(places), whole
