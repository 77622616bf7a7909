"""Replaying: the documents that a dataset rejected, encoded after all, as a generation of its own.

They are taken from where they were found, under a changed policy, or from a repaired file that is
aligned with what the dataset knows of the old one (`alignment`). What is rejected still goes into
new files of rejects, which take the place of those that it was in.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.accounting import NUMBERS, DocumentTotals, check_accounts
from pipelines.config import SourceConfig
from pipelines.config.identity import fingerprint
from pipelines.config.values import is_url
from pipelines.dataset import generations
from pipelines.dataset.names import task_name
from pipelines.dataset.parquet_files import footer_of, open_parquet, read_table
from pipelines.errors import ConfigError, InputError
from pipelines.manifest import Identity
from pipelines.readers.work import SourceReading, TaskWork, read_task
from pipelines.rejects.alignment import Known, Located, NotAlignedError, align
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.rejects.taking import IntArray, Taken, write_taken
from pipelines.storage.directory import Directory
from pipelines.tasks import COLUMN_FORMATS, InputFile, NoInputError, list_files, plan_tasks
from pipelines.tokenizers.files import Model
from pipelines.writing import EncodeJob, tokens_content, write_merged_statistics

_SHOWN = 8
_BYTES = ("bytes", "rejected_bytes", "not_selected_bytes", "framing_bytes")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What is there.

    Attributes:
        tokens, rejects: its directories.
        manifest: of the token files.
        run: its `run.json`; empty if it is not there.
    """

    tokens: Directory
    rejects: Directory
    manifest: Mapping[str, Any]
    run: Mapping[str, Any]

    @property
    def inputs(self) -> dict[str, Mapping[str, Any]]:
        """The input files of the manifest, by label."""
        return {file["name"]: file for file in self.manifest["inputs"]}


@dataclass(kw_only=True)
class Account:
    """What of a file is replayed.

    Attributes:
        file: that is read.
        rejected, rejected_bytes: documents that were rejected and are taken, and their lengths.
        reasons: why they were, with the rests of files.
        whole: what all of a repaired file holds; None if the file is the same.
    """

    file: InputFile
    rejected: int = 0
    rejected_bytes: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    whole: DocumentTotals | None = None


@dataclass(kw_only=True)
class Job:
    """The tasks of a replay.

    Attributes:
        parts: of each task, what it reads.
        taken: of each task, what it takes, by label.
        carried: rejects that stay, as file and rows; the first task writes them.
        superseded: files of rejects that others take the place of.
        accounts: by label.
        left: of each file that was repaired before, or is damaged, what can't be taken from it.
    """

    parts: list[tuple[tuple[InputFile, int, int], ...]] = field(default_factory=list)
    taken: list[dict[str, Taken]] = field(default_factory=list)
    carried: list[tuple[str, NDArray[np.intp]]] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    accounts: dict[str, Account] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)

    @property
    def works(self) -> list[TaskWork]:
        """The tasks as they are given to workers."""
        of = len(self.parts)
        return [TaskWork(index=i, of=of, hash=0, parts=p) for i, p in enumerate(self.parts)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be taken."""
        return tuple(
            f"{number:,} rejects of {label} stay: they need a repaired file, --source {label}=PATH"
            for label, number in self.left.items()
        )

    def write(self, entries: Directory, rejects: Directory) -> None:
        """Writes what the tasks take, where they look for it."""
        of = len(self.parts)
        for i, taken in enumerate(self.taken):
            write_taken(entries, task_name(i, of), taken, [] if i else self.carried, rejects)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A replay into a dataset.

    Attributes:
        dataset: that is there.
        configuration: canonical, as it is now.
        sources: of the configuration.
        readings: how each is read.
        listed: the input files as they are, by label.
        repaired: files that take the place of others, by the label of these.
    """

    dataset: Dataset
    configuration: Mapping[str, Any]
    sources: Sequence[SourceConfig]
    readings: Sequence[SourceReading]
    listed: Mapping[str, InputFile]
    repaired: Mapping[str, InputFile]

    @property
    def name(self) -> str:
        """Of the generation."""
        return generations.next_name(self.dataset.manifest)

    @property
    def repaired_marks(self) -> dict[str, str]:
        """Marks of the repaired files, by label."""
        return {label: file.mark for label, file in self.repaired.items()}

    @property
    def repaired_locations(self) -> dict[str, str]:
        """Where the repaired files are, by label."""
        return {label: file.url for label, file in self.repaired.items()}

    @property
    def identity(self) -> Identity:
        """Of the dataset as it was; a replay changes neither configuration nor inputs."""
        run = self.dataset.run
        return Identity(
            configuration=self.dataset.manifest["configuration"],
            inputs={},
            marks=run.get("marks", {}),
            locations=run.get("locations", {}),
        )

    def plan(self) -> Job:
        """What is to be read and taken; nothing is written.

        Raises:
            InputError: a file that is to be read again has changed, or a repaired file can't be
                aligned with what is known of the old one.
        """
        return _plan_replay(self)

    def plan_id(self, job: Job) -> str:
        """Of all that decides the files of the generation."""
        rejects = {f["name"]: f["xxh3_128"] for f in self.dataset.manifest["files"]["rejects"]}
        return fingerprint(
            {
                "configuration": self.configuration,
                "generation": self.name,
                "of": {name: rejects[name] for name in job.superseded},
                "repaired": {
                    label: [file.size, file.mark] for label, file in self.repaired.items()
                },
            }
        )

    def content(
        self,
        job: EncodeJob,
        work: Job,
        entries: Mapping[int, Mapping[str, Any]],
        model: Model,
    ) -> dict[str, Any]:
        """The manifest, but for what every manifest has: documents move between its numbers."""
        content = tokens_content(
            entries,
            [account.file for account in work.accounts.values()],
            self.sources,
            self.name,
        )
        content["files"]["statistics"] = [write_merged_statistics(job, entries, model)]
        first = generations.policies(self.dataset.manifest)[0]
        policy = generations.policy_of(self.configuration)
        generation = generations.record(
            self.name,
            "replay",
            tasks=len(work.parts),
            fingerprint=job.configuration,
            corpus=content["corpus"],
            of=work.superseded,
            **({} if policy == first else {"policy": policy}),
        )
        changed = _content(self.dataset.manifest, work, content, generation)
        check_accounts({**self.dataset.manifest, **changed})
        return changed


# --- what was rejected -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Rejects:
    """The rows of a file of rejects: arrays as long as it."""

    name: str
    labels: list[str]
    codes: NDArray[np.int32]
    offsets: IntArray
    lengths: IntArray
    reasons: pa.Array
    is_rest: NDArray[np.bool_]

    @classmethod
    def read(cls, directory: Directory, name: str) -> _Rejects:
        table = read_table(directory, name, ["source", "offset", "length", "reason"])
        sources = table["source"].combine_chunks().dictionary_encode()
        of_files = pa.array(sorted(REASONS_OF_FILES), pa.string())
        return cls(
            name=name,
            labels=sources.dictionary.to_pylist(),
            codes=sources.indices.to_numpy(),
            offsets=table["offset"].to_numpy(),
            lengths=table["length"].to_numpy(),
            reasons=table["reason"].combine_chunks(),
            is_rest=pc.is_in(table["reason"], of_files).combine_chunks().to_numpy(False),
        )

    def of(self, label: str) -> NDArray[np.bool_]:
        if label not in self.labels:
            return np.zeros(len(self.codes), bool)
        found: NDArray[np.bool_] = self.codes == self.labels.index(label)
        return found

    def note(self, rows: NDArray[np.bool_], account: Account) -> None:
        """Adds these rows to what is taken of a file."""
        documents = rows & ~self.is_rest
        account.rejected += int(np.count_nonzero(documents))
        account.rejected_bytes += int(self.lengths[documents].sum())
        counts = self.reasons.filter(pa.array(rows)).value_counts().to_pylist()
        account.reasons += Counter({count["values"]: count["counts"] for count in counts})


# --- planning --------------------------------------------------------------------------------


def _plan_replay(replay: Replay) -> Job:
    dataset, listed, repaired = replay.dataset, replay.listed, replay.repaired
    policy = generations.policy_of(replay.configuration)
    job = Job(accounts={label: Account(file=file) for label, file in repaired.items()})
    known: dict[str, list[tuple[IntArray, ...]]] = {label: [] for label in repaired}
    before = {label for label, file in dataset.inputs.items() if "repaired" in file}
    for file in dataset.manifest["files"]["rejects"]:
        name = file["name"]
        made_by = generations.policy_of_generation(
            dataset.manifest, generations.generation_of(name)
        )
        rejects = _Rejects.read(dataset.rejects, name)
        stays = np.ones(len(rejects.codes), bool)
        taken: dict[str, Taken] = {}
        for label in rejects.labels:
            rows = rejects.of(label)
            if label in repaired:
                rejects.note(rows, job.accounts[label])
                known[label].append(
                    (
                        rejects.offsets[rows & ~rejects.is_rest],
                        rejects.offsets[rows & rejects.is_rest],
                        rejects.lengths[rows & ~rejects.is_rest],
                    )
                )
                stays &= ~rows
                continue
            rests = int(np.count_nonzero(rows & rejects.is_rest))
            rows &= ~rejects.is_rest
            retried = bool(rows.any()) and made_by != policy
            if rests or (retried and label in before):
                job.left[label] += rests + (int(np.count_nonzero(rows)) if label in before else 0)
            if retried and label not in before:
                file_there = _unchanged(dataset, label, listed)
                account = job.accounts.setdefault(label, Account(file=file_there))
                rejects.note(rows, account)
                taken[label] = Taken.at(np.sort(rejects.offsets[rows]))
                stays &= ~rows
        if stays.all():
            continue
        job.superseded.append(name)
        if stays.any():
            job.carried.append((name, np.flatnonzero(stays)))
        if taken:
            job.parts.append(_parts_of(dataset.tokens, name, taken, job.accounts))
            job.taken.append(taken)
    if repaired:
        _plan_repaired(job, replay, known)
    return job


def _unchanged(dataset: Dataset, label: str, listed: Mapping[str, InputFile]) -> InputFile:
    """The input file with that label, which must be the one that was read."""
    size = dataset.inputs[label]["size"]
    mark = dataset.run.get("marks", {}).get(label)
    file = listed.get(label)
    if file is not None and file.size == size and mark in (None, file.mark):
        return file
    found = "none"
    if file is not None:
        found = f"{file.size:,} bytes" + (f", changed since ({mark} → {file.mark})" if mark else "")
    raise InputError(
        "A file with rejected documents is not there as it was.",
        expected=f"{size:,} bytes, as they were read",
        found=found,
        where=label if file is None else f"{label}: {file.url}",
        hint=f"Restore it or, if it is repaired, say so: --source {label}=PATH.",
    )


def _parts_of(
    tokens: Directory, name: str, taken: Mapping[str, Taken], accounts: Mapping[str, Account]
) -> tuple[tuple[InputFile, int, int], ...]:
    """What the task that a file of rejects is of read of these files, as its token file says."""
    train = f"train-{name}"
    with open_parquet(tokens, train) as file:
        inputs = json.loads(footer_of(file)["task"])["inputs"]
    return tuple(
        (accounts[label].file, start, end) for label, start, end in inputs if label in taken
    )


# --- repaired files --------------------------------------------------------------------------


def find_repaired(
    given: Mapping[str, str], dataset: Dataset, sources: Sequence[SourceConfig]
) -> dict[str, InputFile]:
    """The repaired files, by the labels of those that they take the place of.

    Raises:
        ConfigError: a label is that of no input file.
        InputError: there is no such file.
    """
    found = {}
    for label, path in given.items():
        if label not in dataset.inputs:
            names = sorted(dataset.inputs)
            near = sorted(difflib.get_close_matches(label, names, n=_SHOWN)) or names[:_SHOWN]
            raise ConfigError(
                "--source names no input file of the dataset.",
                expected="NAME=PATH with a name as in the column `source`, such as "
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
                "A repaired file can't be taken for one of a source with a limit.",
                found=f"input[{number}].limit_documents or limit_bytes",
                where=f"--source {label}={path}",
                hint="Begin anew: `beam-bpe encode CONFIG --restart`.",
            )
        path = path if is_url(path) else str(Path(path).expanduser().absolute())
        escaped = "".join(f"[{c}]" if c in "*?[" else c for c in path)
        alone = source.model_copy(update={"files": (escaped,), "include": (), "exclude": ()})
        if not is_url(path):  # the options are those of the storage of the source
            alone = alone.model_copy(update={"storage_options": {}})
        try:
            [file] = list_files(alone, index=number)
        except InputError as error:
            raise InputError(
                "The repaired file can't be found."
                if isinstance(error, NoInputError)
                else error.message,
                expected=error.expected,
                found=error.found,
                where=f"--source {label}={path}",
                hint="Check the path; a relative one is sought from where the command runs.",
            ) from None
        name = label if source.name is None else label.removeprefix(f"{source.name}/")
        found[label] = replace(file, name=name)
    return found


def repaired_before(
    given: Mapping[str, str],
    dataset: Dataset,
    configuration: Mapping[str, Any],
    sources: Sequence[SourceConfig],
    listed: Mapping[str, InputFile],
) -> dict[str, InputFile]:
    """Files that were repaired once, with rejects that a changed policy may take, if unchanged.

    They are sought among the input files and where they were when they were given.
    """
    before = {k: f["repaired"]["size"] for k, f in dataset.inputs.items() if f.get("repaired")}
    wanted: set[str] = set()
    policy = generations.policy_of(configuration)
    for file in dataset.manifest["files"]["rejects"] if before.keys() - given.keys() else ():
        made_by = generations.generation_of(file["name"])
        if generations.policy_of_generation(dataset.manifest, made_by) != policy:
            wanted.update(_Rejects.read(dataset.rejects, file["name"]).labels)
    marks, urls = (dataset.run.get(key, {}) for key in ("repaired_marks", "repaired_locations"))
    found = {}
    for label in sorted(wanted & before.keys() - given.keys()):
        candidates = [listed[label]] if label in listed else []
        if label in urls:
            with suppress(InputError):
                candidates += find_repaired({label: urls[label]}, dataset, sources).values()
        for file_there in candidates:
            if (file_there.size, file_there.mark) == (before[label], marks.get(label)):
                found[label] = file_there
                break
    return found


def _plan_repaired(
    job: Job, replay: Replay, known: Mapping[str, list[tuple[IntArray, ...]]]
) -> None:
    repaired, sources = replay.repaired, replay.sources
    ordered = sorted(repaired.values(), key=lambda file: (file.source, file.label))
    plan = plan_tasks(ordered, sources)
    strict = [replace(r, options=replace(r.options, keep_readable=False)) for r in replay.readings]
    works = [TaskWork.of_plan(plan, task) for task in plan.tasks]
    located = [_locate(work, strict) for work in works]
    # Of what is not selected a reader gives no places.
    whole_files = [replace(r, options=r.options.of_all) for r in strict]
    selected = [file.label for file in ordered if not sources[file.source].selection]
    everything = [
        found if all(label in selected for label in found) else _locate(work, whole_files)
        for work, found in zip(works, located, strict=True)
    ]
    rows = _known_rows(replay.dataset, set(repaired))
    of_tasks: list[dict[str, Taken]] = [{} for _ in works]
    for label, file in repaired.items():
        whole = DocumentTotals.sum_of(
            totals for found in located for name, (_, totals) in found.items() if name == label
        )
        job.accounts[label].whole = whole
        places = [found[label][0] for found in located if label in found]
        exact, rests = (_all(known[label], i) for i in (0, 1))
        unsorted = _all(known[label], 0, sort=False)
        lengths = _all(known[label], 2, sort=False)[np.argsort(unsorted, kind="stable")]
        source, was = sources[file.source], replay.dataset.inputs[label]
        more_empty = whole.empty - was["empty"]
        all_places = _all([(f[label][0].places,) for f in everything if label in f], 0)
        taken = _aligned(
            Known(
                rows=rows[label][0],
                row_bytes=rows[label][1],
                rejects=exact,
                rests=rests,
                is_first=not was.get("repaired"),
                reject_bytes=lengths,
                framing=min(map(len, source.separators or (b"\n",))),
            ),
            Located(
                places=_all([(p.places,) for p in places], 0),
                lengths=_all([(p.lengths,) for p in places], 0, sort=False),
                more_left_out=_left_out(whole.numbers()) - _left_out(was),
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
    if not job.parts:  # nothing follows the damage, yet there is something to write
        job.parts.append(works[0].parts[:1])
        job.taken.append({works[0].parts[0][0].label: _part_of(taken, np.empty(0, np.int64))})


def _left_out(account: Mapping[str, Any]) -> int:
    return int(account["empty"] + account["not_selected"])


def _all(parts: Sequence[tuple[IntArray, ...]], index: int, *, sort: bool = True) -> IntArray:
    arrays = [np.empty(0, np.int64), *(part[index] for part in parts)]
    together = np.concatenate(arrays)
    return np.sort(together) if sort else together


def _aligned(known: Known, found: Located, file: InputFile, source: SourceConfig) -> Taken:
    try:
        return align(known, found, by_row=source.format in COLUMN_FORMATS)
    except NotAlignedError as error:
        keys = ", ".join(f"{key}: {value}" for key, value in source.selection.items())
        selected = f"; the selection of its source: {keys}" if keys else ""
        raise InputError(
            "A repaired file does not fit what the dataset has of it; nothing was taken.",
            expected=error.expected,
            found=error.found,
            where=f"{file.label}: {file.url}{selected}",
            hint="Repair the rejected documents alone, each where it stood, or encode everything "
            "anew: `beam-bpe encode CONFIG --restart`.",
        ) from None


def _part_of(taken: Taken, places: IntArray) -> Taken:
    """The intervals in which some of the places lie, with the number of these."""
    index = taken.intervals(places)
    numbers, counts = np.unique(index[index >= 0], return_counts=True)
    return Taken(
        firsts=taken.firsts[numbers],
        ends=taken.ends[numbers],
        shifts=taken.shifts[numbers],
        documents=counts.astype(np.int64),
    )


def _locate(
    work: TaskWork, readings: Sequence[SourceReading]
) -> dict[str, tuple[Located, DocumentTotals]]:
    """Where the documents of a task's files are, and how long, rejected ones too."""
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


def _known_rows(dataset: Dataset, labels: set[str]) -> dict[str, tuple[IntArray, IntArray]]:
    """Places and lengths of the documents of these files that are in the dataset."""
    found: dict[str, list[tuple[IntArray, IntArray]]] = {label: [] for label in labels}
    for split in ("train", "validation"):
        for file in dataset.manifest["files"][split]:
            for label, places, lengths in _rows_of(dataset.tokens, file["name"], labels):
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
    """The same of one token file."""
    with open_parquet(tokens, name) as file:
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


# --- the manifest ----------------------------------------------------------------------------


def _content(
    earlier: Mapping[str, Any],
    job: Job,
    content: Mapping[str, Any],
    generation: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest after a replay.

    Args:
        earlier: the manifest before.
        job: what was taken.
        content: what the generation alone states.
        generation: its record.
    """
    moved = {file["name"]: file for file in content["inputs"]}
    of_sources = {part["name"]: DocumentTotals.from_json(part) for part in earlier["sources"]}
    for part in content["sources"]:  # sums of hashes, reasons and files that are still bad
        of_sources[part["name"]].add(
            DocumentTotals.from_json({**part, **dict.fromkeys(NUMBERS, 0)})
        )
    inputs = []
    for file in earlier["inputs"]:
        account = job.accounts.get(file["name"])
        if account is None:
            inputs.append(file)
            continue
        changed = {**file, **_numbers(file, moved[file["name"]], account)}
        changed.pop("refused", None)  # all of them were taken, and refused again or not
        if "refused" in moved[file["name"]]:
            changed["refused"] = moved[file["name"]]["refused"]
        if account.whole is not None:
            repaired = {"size": account.file.size, "generation": generation["name"]}
            planned = moved[file["name"]]["planned_bytes"]
            changed |= {"bad": False, "repaired": repaired, "planned_bytes": planned}
        inputs.append(changed)
        of_source = of_sources[account.file.source_name]
        for name in NUMBERS:
            setattr(of_source, name, getattr(of_source, name) + changed[name] - file[name])
        of_source.reasons = dict(Counter(of_source.reasons) - account.reasons)
        if account.whole is not None:
            of_source.bad_files -= {file["name"]}
    files = {
        kind: [
            *(f for f in earlier["files"][kind] if f["name"] not in job.superseded),
            *content["files"][kind],
        ]
        for kind in earlier["files"]
    }
    return {
        **{key: earlier[key] for key in ("stage", "tokenizer", "counts")},
        "inputs": inputs,
        "sources": generations.sources_of(of_sources, inputs),
        "files": files,
        "generations": [*earlier["generations"], generation],
        **generations.sums(of_sources.values(), [earlier["totals"], content["totals"]]),
    }


def _numbers(was: Mapping[str, Any], moved: Mapping[str, Any], account: Account) -> dict[str, int]:
    """The numbers of an input file, of which the bytes still are the whole file."""
    new: dict[str, int] = {name: was[name] + moved[name] for name in NUMBERS}
    new["rejected"] -= account.rejected
    new["rejected_bytes"] -= account.rejected_bytes
    size = sum(was[name] for name in _BYTES)
    if account.whole is not None:
        for name in set(NUMBERS) - {"documents", "rejected", "bytes", "rejected_bytes"}:
            new[name] = getattr(account.whole, name)
        size = account.whole.file_bytes
    new["framing_bytes"] = size - sum(new[name] for name in _BYTES if name != "framing_bytes")
    return new
