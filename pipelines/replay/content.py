"""The manifest after a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pipelines.accounting import NUMBERS, DocumentTotals
from pipelines.manifest import generations
from pipelines.replay.job import BYTE_KEYS, Account, Job


def content_after(
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
    size = sum(was[name] for name in BYTE_KEYS)
    if account.whole is not None:
        for name in set(NUMBERS) - {"documents", "rejected", "bytes", "rejected_bytes"}:
            new[name] = getattr(account.whole, name)
        size = account.whole.file_bytes
    new["framing_bytes"] = size - sum(new[name] for name in BYTE_KEYS if name != "framing_bytes")
    return new
