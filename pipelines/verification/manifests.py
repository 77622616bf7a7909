"""The manifests of an output: intact, and equal to a copy kept elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pipelines.config.fingerprints import differences, fingerprint
from pipelines.errors import InputError, OutputError
from pipelines.manifest.models import (
    MANIFESTS,
    Counted,
    CountsManifest,
    ImportedManifest,
    Manifest,
    StageDirectory,
    SuperwordsManifest,
    TokenizerManifest,
    TokensManifest,
    manifest_model,
)
from pipelines.manifest.names import CONFIGURATION, MANIFEST, RUN
from pipelines.manifest.records import load_json, load_sealed, parse_sealed
from pipelines.manifest.run_record import RunRecord
from pipelines.storage.directory import Directory
from pipelines.verification.findings import Findings

_SHOWN_DIFFERENCES: Final = 5


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """The intact manifests of an output."""

    counts: CountsManifest | None = None
    superwords: SuperwordsManifest | None = None
    tokenizer: TokenizerManifest | ImportedManifest | None = None
    tokens: TokensManifest | None = None

    @property
    def counted(self) -> list[Counted]:
        """Return the manifests of counts, of pre-tokens and of runs of words."""
        return [found for found in (self.counts, self.superwords) if found is not None]

    def __iter__(self) -> Iterator[Manifest]:
        """Yield the manifests in the order of the stages."""
        for manifest in (self.counts, self.superwords, self.tokenizer, self.tokens):
            if manifest is not None:
                yield manifest


def read_manifests(output: Directory, findings: Findings) -> Manifests:
    """Return the intact manifests of an output and note the problems of others.

    Raises:
        InputError: the output contains no build.
    """
    found: dict[StageDirectory, Manifest] = {}
    is_begun = False
    for stage in MANIFESTS:
        directory = output / stage
        names = directory.sizes()
        is_begun |= bool(names)
        if MANIFEST not in names:
            if names:
                findings.note(stage, "not finished: there is no manifest.json")
            continue
        findings.result.stages.append(stage)
        data = directory.read_bytes(MANIFEST)
        try:
            manifest = found[stage] = parse_sealed(manifest_model(stage, data), data)
        except ValueError as error:
            findings.note(f"{stage}/{MANIFEST}", f"{error}; the stage was not verified")
            continue
        findings.add(files=1, bytes=len(data))
        if RUN in names:
            _check_run(directory.read_bytes(RUN), manifest, findings)
        else:
            findings.note(f"{stage}/{RUN}", "missing")
    if not is_begun:
        raise InputError(
            "There is no build to verify.",
            expected="the output of a build, with counts/, tokenizer/ or tokens/",
            where=output.url,
            hint="Check the path; it is `output` of the configuration.",
        )
    return Manifests(**found)  # type: ignore[arg-type]  # each has the type of its stage


def check_configuration(output: Directory, findings: Findings) -> None:
    """Note damage of the record of the effective configuration, which older outputs lack."""
    data = output.find_bytes(CONFIGURATION)
    if data is None:
        return
    try:
        load_sealed(data)
    except ValueError as error:
        findings.note(CONFIGURATION, str(error))
        return
    findings.add(files=1, bytes=len(data))


def _check_run(data: bytes, manifest: Manifest, findings: Findings) -> None:
    stage = manifest.directory_name
    where = f"{stage}/{RUN}"
    try:
        record = parse_sealed(RunRecord, data)
    except ValueError as error:
        findings.note(where, str(error))
        return
    findings.add(files=1, bytes=len(data))
    if record.stage != stage or record.manifest != manifest.checksum:
        findings.note(
            where,
            f"names a manifest of {record.stage} with checksum {record.manifest}, but "
            f"{stage}/{MANIFEST} has {manifest.checksum}",
        )


def check_against(
    manifests: Manifests, against: str, output: Directory, findings: Findings
) -> None:
    """Note the differences between the manifest of a stage and a copy of it.

    Raises:
        InputError: the copy is not a manifest.
    """
    copy = _read_copy(against)
    stage = copy["stage"]
    where = f"{stage}/{MANIFEST}"
    present = {manifest.directory_name: manifest for manifest in manifests}
    if stage not in present:
        findings.note(where, f"missing or damaged, unlike {against}")
        return
    found = [str(difference) for difference in differences(copy, present[stage].to_json())]
    for difference in found[:_SHOWN_DIFFERENCES]:
        findings.note(where, f"differs from {against}: {difference}")
    if len(found) > _SHOWN_DIFFERENCES:
        more = len(found) - _SHOWN_DIFFERENCES
        findings.note(where, f"differs from {against}: {more:,} more differences")


def _read_copy(against: str) -> dict[str, Any]:
    """Return the JSON values of a copy, whose form may differ from that of builds."""
    parent, slash, name = against.rpartition("/")
    try:
        data = Directory(url=parent or slash or ".").find_bytes(name)
        found = "no such file" if data is None else None
    except OutputError as error:
        data, found = None, error.found or "an unreadable file"
    copy: dict[str, Any] = {}
    if data is not None:
        try:
            copy = load_json(data)
        except ValueError as error:
            found = str(error)
        else:
            content = {key: value for key, value in copy.items() if key != "checksum"}
            if copy.get("stage") not in [*MANIFESTS]:
                found = "a file without the `stage` of a manifest"
            elif copy.get("checksum") != fingerprint(content):
                found = "a damaged manifest, whose checksum is that of other content"
    if found is not None:
        raise InputError(
            "The copy to verify against is not a manifest.",
            expected="a copy of counts/, tokenizer/ or tokens/manifest.json",
            found=found,
            where=against,
            hint="Give the path of the copy.",
        )
    return copy
