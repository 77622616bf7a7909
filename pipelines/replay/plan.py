"""Planning a replay by policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.accounting import check_accounts
from pipelines.config import SourceConfig
from pipelines.config.fingerprints import fingerprint
from pipelines.errors import InputError
from pipelines.manifest import generations
from pipelines.manifest.stage import Identity
from pipelines.readers.tasks import SourceReading
from pipelines.replay.content import content_after
from pipelines.replay.job import Account, Dataset, Job, Rejects
from pipelines.replay.repaired_files import plan_repaired
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tasks.listing import InputFile
from pipelines.tokenizers.files import Model
from pipelines.writing.content import tokens_content, write_merged_statistics
from pipelines.writing.jobs import EncodeJob
from pipelines.writing.replayed import IntArray, Taken


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
        changed = content_after(self.dataset.manifest, work, content, generation)
        check_accounts({**self.dataset.manifest, **changed})
        return changed


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
        rejects = Rejects.read(dataset.rejects, name)
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
        plan_repaired(
            job,
            known,
            dataset=dataset,
            repaired=repaired,
            sources=replay.sources,
            readings=replay.readings,
        )
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
