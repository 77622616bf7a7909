"""Plan and manifest of a replay.

`offset` is always the position in the original file, whichever file a document was replayed from.
So a document has one name, and a dataset can be aligned with a repaired file again. Only located
documents are replayed: intervals of offsets, in a file beside the entries of tasks.
"""

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
from pipelines.manifest.entries import TaskEntry
from pipelines.manifest.models import Generation, TokensManifest
from pipelines.manifest.records import present
from pipelines.manifest.stage import Identity
from pipelines.readers.tasks import SourceReading
from pipelines.replay.content import content_after
from pipelines.replay.job import Account, ExistingDataset, Job, Rejects
from pipelines.replay.repaired_files import plan_repaired
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tasks.listing import InputFile
from pipelines.tokenizers.files import Model
from pipelines.writing.content import tokens_content, write_merged_statistics
from pipelines.writing.jobs import EncodeJob
from pipelines.writing.replayed import IntArray, Intervals


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A replay into a dataset.

    Attributes:
        dataset: dataset that the replay extends.
        configuration: current canonical configuration.
        sources: sources of the configuration.
        readings: settings for reading each source.
        listed: current input files, by label.
        repaired: repaired files, by the label of the file that each replaces.
    """

    dataset: ExistingDataset
    configuration: Mapping[str, Any]
    sources: Sequence[SourceConfig]
    readings: Sequence[SourceReading]
    listed: Mapping[str, InputFile]
    repaired: Mapping[str, InputFile]

    @property
    def name(self) -> str:
        """The name of the generation."""
        return generations.next_name(self.dataset.manifest)

    @property
    def repaired_marks(self) -> dict[str, str]:
        """Version tags of the repaired files, by label."""
        return {label: file.version_tag for label, file in self.repaired.items()}

    @property
    def repaired_locations(self) -> dict[str, str]:
        """Path or URL of the repaired files, by label."""
        return {label: file.url for label, file in self.repaired.items()}

    @property
    def identity(self) -> Identity:
        """The identity of the dataset; a replay changes neither configuration nor inputs."""
        run = self.dataset.run
        return Identity(
            configuration=self.dataset.manifest.configuration,
            inputs={},
            marks={} if run is None else run.marks,
            locations={} if run is None else run.locations,
        )

    def plan(self) -> Job:
        """Return the documents to replay; nothing is written.

        Raises:
            InputError: a file to read again has changed, or a repaired file cannot be aligned with
                the dataset.
        """
        return _plan_replay(self)

    def plan_id(self, job: Job) -> str:
        """Return the fingerprint of everything that decides the files of the generation."""
        rejects = {file.name: file.xxh3_128 for file in self.dataset.manifest.files.rejects}
        return fingerprint(
            {
                "configuration": self.configuration,
                "generation": self.name,
                "of": {name: rejects[name] for name in job.superseded},
                "repaired": {
                    label: [file.size, file.version_tag] for label, file in self.repaired.items()
                },
            }
        )

    def manifest(
        self,
        job: EncodeJob,
        work: Job,
        entries: Mapping[int, TaskEntry],
        model: Model,
    ) -> TokensManifest:
        """Return the manifest after the replay: documents move between its numbers.

        Raises:
            AccountingError: its numbers do not add up.
        """
        earlier = self.dataset.manifest
        files = [account.file for account in work.accounts.values()]
        statistics = write_merged_statistics(job, entries, model)
        content = tokens_content(entries, files, self.sources, statistics, self.name)
        policy = generations.policy_of(self.configuration)
        is_first = policy == generations.policy_of(earlier.configuration)
        generation = Generation(
            name=self.name,
            kind="replay",
            tasks=len(work.parts),
            configuration_fingerprint=job.configuration,
            corpus=content.corpus,
            of=work.superseded,
            **present(policy=None if is_first else policy),
        )
        manifest = TokensManifest.seal(
            earlier.configuration,
            tokenizer=earlier.tokenizer,
            counts=earlier.counts,
            generations=[*earlier.generations, generation],
            **content_after(earlier, work, content, self.name).fields(),
        )
        check_accounts(manifest.to_json())
        return manifest


def _plan_replay(replay: Replay) -> Job:
    dataset, listed, repaired = replay.dataset, replay.listed, replay.repaired
    manifest = dataset.manifest
    policy = generations.policy_of(replay.configuration)
    job = Job(accounts={label: Account(file=file) for label, file in repaired.items()})
    known: dict[str, list[tuple[IntArray, ...]]] = {label: [] for label in repaired}
    before = {file.name for file in manifest.inputs if file.repaired is not None}
    for file in manifest.files.rejects:
        name = file.name
        made_by = generations.policy_of_generation(manifest, generations.generation_of(name))
        rejects = Rejects.read(dataset.rejects, name)
        stays = np.ones(len(rejects.codes), bool)
        taken: dict[str, Intervals] = {}
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
                taken[label] = Intervals.at(np.sort(rejects.offsets[rows]))
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


def _unchanged(dataset: ExistingDataset, label: str, listed: Mapping[str, InputFile]) -> InputFile:
    """Return the input file with a label, which must be the one that was read."""
    size = dataset.manifest.inputs_by_label[label].size
    version_tag = None if dataset.run is None else dataset.run.marks.get(label)
    file = listed.get(label)
    if file is not None and file.size == size and version_tag in (None, file.version_tag):
        return file
    found = "none"
    if file is not None:
        found = f"{file.size:,} bytes" + (
            f", changed since ({version_tag} → {file.version_tag})" if version_tag else ""
        )
    raise InputError(
        "A file with rejected documents is missing or has changed.",
        expected=f"{size:,} bytes, as when it was read",
        found=found,
        where=label if file is None else f"{label}: {file.url}",
        hint=f"Restore it or, if it was repaired, give its path: --source {label}=PATH.",
    )


def _parts_of(
    tokens: Directory, name: str, taken: Mapping[str, Intervals], accounts: Mapping[str, Account]
) -> tuple[tuple[InputFile, int, int], ...]:
    """Return the ranges that the task of a file of rejects read of these input files."""
    train = f"train-{name}"
    with tokens.reading_errors(train), open_parquet(tokens, train) as file:
        inputs = json.loads(footer_of(file)["task"])["inputs"]
    return tuple(
        (accounts[label].file, start, end) for label, start, end in inputs if label in taken
    )
