"""What a manifest says, held against itself: whoever edits one number must edit all that follow.

Checksums tell accidents; these tell a manifest whose checksums were computed anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.manifest.generations import generation_of, policy_of, with_policy
from pipelines.manifest.names import BASE, statistics_file_name


def contradictions(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What in the manifest of counts or of token files is not as other parts of it say.

    Numbers that `accounting.check_accounts` adds up are left to it.
    """
    try:
        yield from _of_totals(manifest)
        if "generations" in manifest:
            yield from _of_generations(manifest)
            yield from _of_inputs(manifest)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield f"can't be understood: {type(error).__name__}: {error}"


def _of_totals(manifest: Mapping[str, Any]) -> Iterator[str]:
    totals = DocumentTotals.from_json(manifest["totals"])
    of_sources = DocumentTotals.sum_of(map(DocumentTotals.from_json, manifest["sources"]))
    for key in ("hash_sum", "bad_files", "reasons"):
        found, expected = manifest["totals"][key], of_sources.to_json()[key]
        if found != expected:
            yield f"totals.{key}: {found}, where the sources together have {expected}"
    yield from _unequal("corpus", manifest["corpus"], totals.corpus_fingerprint)


def _of_generations(manifest: Mapping[str, Any]) -> Iterator[str]:
    generations = manifest["generations"]
    names = [generation["name"] for generation in generations]
    expected = [BASE, *(f"add{number:03d}" for number in range(1, len(names)))]
    yield from _unequal("generations", names, expected)
    files = [file["name"] for file in manifest["files"]["statistics"]]
    yield from _unequal("files.statistics", files, [statistics_file_name(name) for name in names])
    tasks = {generation["name"]: generation["tasks"] for generation in generations}
    found = Counter(generation_of(file["name"]) for file in manifest["files"]["train"])
    for name in {**tasks, **found}:
        yield from _unequal(f"token files of {name}", found[name], tasks.get(name, 0))
    parts = [generation["corpus"].split("-") for generation in generations]
    together = DocumentTotals(
        documents=sum(int(documents) for documents, _ in parts),
        hash_sum=sum(int(hash_sum, 16) for _, hash_sum in parts) % (1 << 128),
    )
    yield from _unequal("corpus of generations", together.corpus_fingerprint, manifest["corpus"])
    # Sources may have got more patterns, so earlier generations had another configuration.
    configuration = manifest["configuration"]
    last = [generation for generation in generations if generation["kind"] != "replay"][-1]
    made_with = with_policy(configuration, last.get("policy") or policy_of(configuration))
    yield from _unequal(
        f"configuration_fingerprint of {last['name']}",
        last["configuration_fingerprint"],
        fingerprint(made_with),
    )


def _of_inputs(manifest: Mapping[str, Any]) -> Iterator[str]:
    inputs = manifest["inputs"]
    for name, times in Counter(file["name"] for file in inputs).items():
        if times > 1:
            yield f"input {name}: listed {times} times"
    bad = sorted(file["name"] for file in inputs if file["bad"])
    yield from _unequal("totals.bad_files", manifest["totals"]["bad_files"], bad)
    sources = manifest["configuration"]["input"]
    limited = {
        source["name"]
        for source in sources
        if any(key.startswith("limit_") and source[key] is not None for key in source)
    }
    known = {generation["name"] for generation in manifest["generations"]}
    for file in inputs:
        where = f"input {file['name']}"
        if file["generation"] not in known:
            yield f"{where}: of generation {file['generation']}, which is not listed"
        source = None if sources[0]["name"] is None else file["name"].partition("/")[0]
        planned = file["planned_bytes"]
        if planned is not None and source not in limited:
            repaired = file.get("repaired")
            stored = file["size"] if repaired is None else repaired["size"]
            yield from _unequal(f"{where}: size", stored, planned)


def _unequal(what: str, found: object, expected: object) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {found}, where {expected} is expected"
