"""Manifests: whether they are whole, and as a copy that was kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pipelines.config.fingerprints import differences, fingerprint
from pipelines.errors import InputError, OutputError
from pipelines.manifest.models import MANIFESTS, RunRecord, Stage, problem_of
from pipelines.manifest.records import MANIFEST, RUN
from pipelines.storage.directory import Directory
from pipelines.verification.findings import Findings

_SHOWN_DIFFERENCES: Final = 5


def read_manifests(output: Directory, findings: Findings) -> dict[Stage, dict[str, Any]]:
    """The manifests that are whole, by stage; notes what is wrong with others."""
    found: dict[Stage, dict[str, Any]] = {}
    begun = False
    for stage, model in MANIFESTS.items():
        directory = output / stage
        names = directory.sizes()
        begun |= bool(names)
        if MANIFEST not in names:
            if names:
                findings.note(stage, "not finished: there is no manifest.json")
            continue
        findings.result.stages.append(stage)
        data = directory.read_bytes(MANIFEST)
        problem = problem_of(data, model)
        if problem is not None:
            findings.note(f"{stage}/{MANIFEST}", f"{problem}; the stage was not verified")
            continue
        found[stage] = json.loads(data)
        _check_run(directory, names, found[stage], stage, findings)
        findings.add(files=1, bytes=len(data))
    if not begun:
        raise InputError(
            "There is no build to verify.",
            expected="the output of a build, with counts/, tokenizer/ or tokens/",
            where=output.url,
            hint="Check the path; it is `output` of the configuration.",
        )
    return found


def _check_run(
    directory: Directory,
    names: Mapping[str, int],
    manifest: Mapping[str, Any],
    stage: Stage,
    findings: Findings,
) -> None:
    where = f"{stage}/{RUN}"
    if RUN not in names:
        findings.note(where, "missing")
        return
    data = directory.read_bytes(RUN)
    problem = problem_of(data, RunRecord)
    if problem is not None:
        findings.note(where, problem)
        return
    findings.add(files=1, bytes=len(data))
    record = json.loads(data)
    if record["stage"] != stage or record["manifest"] != manifest["checksum"]:
        findings.note(
            where,
            f"of a {record['stage']} manifest with checksum {record['manifest']}, but "
            f"{stage}/{MANIFEST} has {manifest['checksum']}",
        )


def check_against(
    manifests: Mapping[Stage, Mapping[str, Any]],
    against: str,
    output: Directory,
    findings: Findings,
) -> None:
    """Notes in what the manifest of a stage differs from a copy.

    Raises:
        InputError: the copy is none.
    """
    kept = _kept_manifest(against)
    stage = kept["stage"]
    if stage not in manifests:
        findings.note(f"{stage}/{MANIFEST}", f"none that is whole, unlike {against}")
        return
    found = [str(d) for d in differences(kept, manifests[stage])]
    for difference in found[:_SHOWN_DIFFERENCES]:
        findings.note(f"{stage}/{MANIFEST}", f"not as {against}: {difference}")
    if len(found) > _SHOWN_DIFFERENCES:
        more = len(found) - _SHOWN_DIFFERENCES
        findings.note(f"{stage}/{MANIFEST}", f"not as {against}: {more:,} more differences")


def _kept_manifest(against: str) -> dict[str, Any]:
    parent, slash, name = against.rpartition("/")
    try:
        data = Directory(url=parent or slash or ".").find_bytes(name)
        found = "no such file" if data is None else None
    except OutputError as error:
        found = error.found or "what can't be read"
    kept: Any = None
    if found is None:
        try:
            kept = json.loads(data or b"")
        except (ValueError, RecursionError) as error:
            found = f"no JSON: {error}"
    if found is None and (not isinstance(kept, dict) or kept.get("stage") not in [*MANIFESTS]):
        found = "a file without the `stage` of a manifest"
    if found is None:
        content = {key: value for key, value in kept.items() if key != "checksum"}
        if kept.get("checksum") != fingerprint(content):
            found = "a damaged one: its checksum is that of something else"
    if found is not None:
        raise InputError(
            "What to verify against is no manifest.",
            expected="a copy of counts/, tokenizer/ or tokens/manifest.json",
            found=found,
            where=against,
            hint="Give the path of the copy.",
        )
    return dict(kept)
