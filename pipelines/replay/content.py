"""The content of the manifest after a replay."""

from __future__ import annotations

from collections import Counter

from pipelines.accounting import NUMBERS, DocumentTotals
from pipelines.manifest.entries import InputEntry, RepairedInput
from pipelines.manifest.generations import sum_content
from pipelines.manifest.models import GenerationContent, TokensManifest
from pipelines.manifest.records import present
from pipelines.replay.job import BYTE_KEYS, Account, Job


def content_after(
    earlier: TokensManifest, job: Job, content: GenerationContent, name: str
) -> GenerationContent:
    """Return the content of a dataset after a replay.

    The numbers of an input file change by the documents that moved, and its bytes still add up to
    the file, or to the repaired file.

    Args:
        earlier: the manifest before the replay.
        job: job of the replayed documents.
        content: content of the generation alone.
        name: name of the generation.
    """
    moved = {file.name: file for file in content.inputs}
    of_sources = {source.name: source.document_totals() for source in earlier.sources}
    for source in content.sources:
        # Hashes, reasons and files that are still bad; numbers follow from the input files below.
        added = source.document_totals()
        of_sources[source.name].add(
            DocumentTotals(
                hash_sum=added.hash_sum, bad_files=added.bad_files, reasons=added.reasons
            )
        )
    inputs = []
    for file in earlier.inputs:
        account = job.accounts.get(file.name)
        if account is None:
            inputs.append(file)
            continue
        changed = _changed_input(file, moved[file.name], account, name)
        inputs.append(changed)
        of_source = of_sources[account.file.source_name]
        for key in NUMBERS:
            difference = getattr(changed, key) - getattr(file, key)
            setattr(of_source, key, getattr(of_source, key) + difference)
        of_source.reasons = dict(Counter(of_source.reasons) - account.reasons)
        if account.whole is not None:
            of_source.bad_files -= {file.name}
    return sum_content(of_sources, inputs, earlier, content, job.superseded)


def _changed_input(was: InputEntry, moved: InputEntry, account: Account, name: str) -> InputEntry:
    """Return the entry of an input file after the generation with this name replayed from it."""
    repaired, bad, planned_bytes = was.repaired, was.bad, was.planned_bytes
    if account.whole is not None:
        repaired = RepairedInput(size=account.file.size, generation=name)
        bad, planned_bytes = False, moved.planned_bytes
    return InputEntry.model_validate(
        {
            **was.to_json("name", "size", "generation", "unread"),
            "planned_bytes": planned_bytes,
            "bad": bad,
            **_numbers(was, moved, account),
            # All refused documents were replayed; `moved` has those that were refused again.
            **present(repaired=repaired, refused=moved.refused),
        }
    )


def _numbers(was: InputEntry, moved: InputEntry, account: Account) -> dict[str, int]:
    """Return the numbers of an input file, whose bytes still add up to the file."""
    new: dict[str, int] = {key: getattr(was, key) + getattr(moved, key) for key in NUMBERS}
    new["rejected"] -= account.rejected
    new["rejected_bytes"] -= account.rejected_bytes
    size = sum(getattr(was, key) for key in BYTE_KEYS)
    if account.whole is not None:
        for key in set(NUMBERS) - {"documents", "rejected", "bytes", "rejected_bytes"}:
            new[key] = getattr(account.whole, key)
        size = account.whole.file_bytes
    new["framing_bytes"] = size - sum(new[key] for key in BYTE_KEYS if key != "framing_bytes")
    return new
