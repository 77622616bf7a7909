"""Exports to datasets of the Hugging Face Hub: written locally, uploaded as commits, with a card.

The first commit contains `_export.json`, which describes the export in progress; the last one
contains `export.json` and the card. An interrupted upload is continued: files that are already
there with the same content are not uploaded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pipelines.config import BeamConfig
from pipelines.config.credentials import expanded
from pipelines.config.fingerprints import fingerprint
from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import ConfigError, OutputError, shortened
from pipelines.exports.cards import MARK, write_card
from pipelines.exports.export import (
    BEGUN,
    MANIFEST,
    Exported,
    check_same_export,
    export,
    export_identity,
)
from pipelines.exports.formats import ExportOptions
from pipelines.exports.records import ExportIdentity, ExportManifest
from pipelines.redaction import remember
from pipelines.storage.directory import Directory, json_bytes
from pipelines.storage.hub import Repository, hub_errors, hub_library

CARD: Final = "README.md"
_OF_THE_HUB: Final = frozenset({".gitattributes", CARD})
# A commit ends with the file that reaches one of them.
_FILES_OF_A_COMMIT: Final = 50
_BYTES_OF_A_COMMIT: Final = 8 << 30
_CHUNK_BYTES: Final = 4 << 20
_SHOWN: Final = 3


def export_to_hub(
    dataset: TokenDataset,
    repository: Repository,
    options: ExportOptions,
    storage_options: Mapping[str, Any],
    *,
    restart: bool = False,
    beam: BeamConfig | None = None,
    beam_args: Sequence[str] = (),
) -> Exported:
    """Write a dataset in another format into a dataset repository.

    A repository that does not exist is made, private. A finished export is not repeated.

    Args:
        dataset: The output of `beam-bpe encode`.
        repository: The destination, at a branch.
        options: Splits, format and options of the format.
        storage_options: `token` and `endpoint` of the Hub, if they are not the library's own.
        restart: Replace the export in the destination.
        beam, beam_args: See `export`.

    Raises:
        ConfigError: There is nothing to export, or the revision is a commit.
        DifferentConfigurationError: The destination has another export.
        OutputError: The destination has other files, or cannot be reached or written.
    """
    if repository.is_pinned:
        raise ConfigError(
            "A commit cannot be changed.",
            expected="a branch after @, or none",
            found=str(repository.revision),
            where=str(repository),
        )
    remote = _Remote(repository, storage_options)
    identity = export_identity(dataset, options)
    remote.create()
    files = remote.list_files()
    manifest = None if restart else _finished(remote, files, identity)
    place = Directory(url=str(repository))
    if manifest is not None:
        return Exported(directory=place, content=manifest, was_there=True, warnings=())
    staging = _staging(dataset, repository, identity)
    made = export(dataset, Directory(url=str(staging)), options, beam=beam, beam_args=beam_args)
    warnings = _upload(remote, files, staging, made.content, identity, dataset)
    shutil.rmtree(staging)
    return replace(made, directory=place, was_there=False, warnings=(*made.warnings, *warnings))


def _finished(
    remote: _Remote, files: Mapping[str, _RemoteFile], identity: ExportIdentity
) -> ExportManifest | None:
    """Return the manifest of the same export, or None if it is not finished."""
    name = MANIFEST if MANIFEST in files else BEGUN
    if name not in files:
        foreign = sorted(files.keys() - _OF_THE_HUB)
        if not foreign:
            return None
        raise OutputError(
            "The destination has files that no export wrote.",
            expected="an empty repository or folder, or one with an export.json",
            found=shortened(foreign, _SHOWN),
            where=str(remote.repository),
            hint="Choose another destination, such as a folder: hf://datasets/ORG/NAME/FOLDER.",
        )
    found = remote.read_record(name)
    check_same_export(found, identity, str(remote.repository))
    if name == BEGUN:
        return None
    return ExportManifest.parse(json_bytes(found), f"{remote.repository}/{name}")


def _upload(
    remote: _Remote,
    files: Mapping[str, _RemoteFile],
    staging: Path,
    manifest: ExportManifest,
    identity: ExportIdentity,
    dataset: TokenDataset,
) -> list[str]:
    """Upload the files of an export as commits; return warnings."""
    names = manifest.names
    left = [name for name in names if not _is_same(files.get(name), staging / name)]
    is_begun = BEGUN in files and MANIFEST not in files
    stale = sorted(files.keys() - {*names, BEGUN, *_OF_THE_HUB})
    if stale or not is_begun:
        remote.commit(
            {BEGUN: json_bytes(identity.to_json())}, stale, f"Begin an export to {identity.to}"
        )
    total = sum((staging / name).stat().st_size for name in left)
    with progress.show("uploading", total) as set_done:
        done, uploaded = len(names) - len(left), 0
        for batch in _batches(staging, left):
            done += len(batch)
            remote.commit(
                {name: staging / name for name in batch}, (), f"Add {done} of {len(names)} files"
            )
            uploaded += sum((staging / name).stat().st_size for name in batch)
            set_done(uploaded, total)
    last: dict[str, bytes | Path] = {MANIFEST: staging / MANIFEST}
    warnings = []
    if CARD not in files or MARK in remote.read(CARD):
        last[CARD] = write_card(dataset, manifest, staging, remote.repository).encode()
    else:
        warnings.append(f"{CARD} stays: it is not of an export")
    remote.commit(last, [BEGUN], f"Finish the export of {len(names)} files")
    return warnings


def _batches(staging: Path, names: Sequence[str]) -> Iterator[list[str]]:
    left = iter(names)
    while batch := list(islice(left, 1)):
        size = (staging / batch[0]).stat().st_size
        while size < _BYTES_OF_A_COMMIT and len(batch) < _FILES_OF_A_COMMIT:
            following = next(left, None)
            if following is None:
                break
            batch.append(following)
            size += (staging / following).stat().st_size
        yield batch


def _staging(dataset: TokenDataset, repository: Repository, identity: ExportIdentity) -> Path:
    """Return the local directory of an export to the Hub, the same for the same command."""
    name = fingerprint({"output": dataset.output.url, "to": str(repository), **identity.to_json()})
    if dataset.output.is_local:
        return dataset.output.local_path(f"_hub-{name}")  # on a disk that holds the token files
    return Path(tempfile.gettempdir(), f"beam-bpe-{os.getuid()}-hub-{name}")


# --- the repository -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _RemoteFile:
    """A file of a repository; `sha256` if it is a large one, else `blob_id` is git's hash."""

    size: int
    sha256: str | None
    blob_id: str


def _is_same(remote: _RemoteFile | None, path: Path) -> bool:
    """Return True if a file of the repository has the content of a local one."""
    size = path.stat().st_size
    if remote is None or remote.size != size:
        return False
    if remote.sha256 is not None:
        hasher, wanted = hashlib.sha256(), remote.sha256
    else:
        hasher, wanted = hashlib.sha1(b"blob %d\0" % size), remote.blob_id
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            hasher.update(data)
    return hasher.hexdigest() == wanted


class _Remote:
    """The folder of a dataset repository that an export is uploaded to."""

    def __init__(self, repository: Repository, options: Mapping[str, Any]) -> None:
        self.repository = repository
        given = expanded(options)
        if token := given.get("token"):
            remember(token)
        self._library = hub_library()
        self._api = self._library.HfApi(endpoint=given.get("endpoint"), token=given.get("token"))
        self._where = {
            "repo_id": repository.name,
            "repo_type": repository.kind,
            "revision": repository.revision,
        }
        self._prefix = f"{repository.path}/" if repository.path else ""

    def create(self) -> None:
        """Create the repository, private, if it does not exist."""
        with hub_errors(self.repository, OutputError):
            if not self._api.repo_exists(self.repository.name, repo_type="dataset"):
                self._api.create_repo(
                    self.repository.name, repo_type="dataset", private=True, exist_ok=True
                )

    def list_files(self) -> dict[str, _RemoteFile]:
        """Return the files in the folder, by their paths there."""
        files = {}
        with hub_errors(self.repository, OutputError):
            for entry in self._api.list_repo_tree(**self._where, recursive=True):
                if not isinstance(entry, self._library.hf_api.RepoFile):
                    continue
                if not entry.path.startswith(self._prefix):
                    continue
                files[entry.path.removeprefix(self._prefix)] = _RemoteFile(
                    size=entry.size,
                    sha256=None if entry.lfs is None else entry.lfs.sha256,
                    blob_id=entry.blob_id,
                )
        return files

    def read(self, name: str) -> str:
        """Return the text of a small file."""
        with (
            hub_errors(self.repository, OutputError),
            tempfile.TemporaryDirectory(prefix="beam-bpe-") as local,
        ):
            path = self._api.hf_hub_download(
                filename=self._prefix + name, **self._where, local_dir=local
            )
            return Path(path).read_text("utf-8", "replace")

    def read_record(self, name: str) -> dict[str, Any]:
        """Return the content of export.json or _export.json; empty if it is damaged."""
        try:
            value = json.loads(self.read(name))
        except ValueError:
            value = None
        return value if isinstance(value, dict) else {}

    def commit(
        self, files: Mapping[str, bytes | Path], removed: Sequence[str], message: str
    ) -> None:
        """Add and remove files in one commit."""
        library = self._library
        operations = [
            library.CommitOperationAdd(
                path_in_repo=self._prefix + name,
                path_or_fileobj=data if isinstance(data, bytes) else str(data),
            )
            for name, data in files.items()
        ]
        operations += [
            library.CommitOperationDelete(path_in_repo=self._prefix + name) for name in removed
        ]
        with hub_errors(self.repository, OutputError):
            self._api.create_commit(operations=operations, commit_message=message, **self._where)
