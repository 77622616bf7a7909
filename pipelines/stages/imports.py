"""Import of a published tokenizer: read it, check it, write it into the output.

It is part of encoding. An imported tokenizer is not read again: a resumed build encodes with the
tokenizer of its start, even if the branch of the repository has changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import xxhash

from bpe_core.formats import TOKENIZER_FILES
from bpe_core.formats.outline import Outline
from pipelines.errors import DamagedOutputError
from pipelines.manifest.models import ImportedManifest
from pipelines.manifest.stage import ENCODE, IMPORT, Identity
from pipelines.manifest.stage_comparison import find_finished_manifest
from pipelines.manifest.stage_records import load_declaration, load_manifest
from pipelines.manifest.stage_writing import begin_stage, discard_stage
from pipelines.stages.context import BuildContext
from pipelines.stages.jobs import check_affixes, encode_configuration, load_model
from pipelines.stages.lifecycle import StageResult, find_finished, finish
from pipelines.stages.output import Output
from pipelines.storage.directory import Directory
from pipelines.storage.filesystems import locate
from pipelines.storage.hub import Repository, is_hub
from pipelines.storage.locks import OutputLock
from pipelines.tokenizers.files import Model, save_tokenizer
from pipelines.tokenizers.sources import ReadSource, read_source


def load_encoder(output: Output) -> Model:
    """Return the tokenizer that encodes, from the output if it has been imported.

    Raises:
        ConfigError: The tokenizer is missing.
        InputError: it cannot be read.
    """
    return load_model(output.encoder) if _has_encoder(output) else output.published


def outline_encoder(output: Output) -> Model | Outline:
    """Return the tokenizer that encodes, or its outline if it has yet to be imported.

    Raises:
        ConfigError: The tokenizer is missing.
        InputError: it cannot be read.
    """
    return load_model(output.encoder) if _has_encoder(output) else output.outline


def _has_encoder(output: Output) -> bool:
    source = output.imported
    return source is None or _find_imported(output, source) is not None


def import_tokenizer(context: BuildContext) -> Model:
    """Import the tokenizer at `tokenizer.path` unless this is already done. Return it."""
    output = context.output
    source = output.imported
    if source is None:
        return load_model(output.encoder)
    found = _find_imported(output, source)
    if found is not None:
        identity = Identity(configuration=found.configuration, inputs={}, marks={})
        if find_finished(context, IMPORT, identity, discard_imported) is not None:
            return load_model(output.encoder)
    started = time.monotonic()
    read = _read(source)
    _check_fits(context, read.model)
    configuration = _configuration(source, read)
    identity = Identity(configuration=configuration, inputs={}, marks={})
    if find_finished(context, IMPORT, identity, discard_imported) is None:
        begin_stage(output.tokenizer, identity)
        imported_from = _describe(read)
        files, not_written = save_tokenizer(
            read.model, output.tokenizer, {"imported_from": imported_from}
        )
        manifest = ImportedManifest.seal(
            configuration,
            imported_from=imported_from,
            fingerprint=read.model.fingerprint,
            files=files,
            vocab_size=len(read.model),
            not_written=not_written,
        )
        run = {} if read.checked is None else {"checked": str(read.checked)}
        finish(context, IMPORT, identity, manifest, StageResult(run=run), started)
    if read.checked is not None and read.checked.ids is None:
        context.report.add_warnings([f"the tokenizer was {read.checked}"])
    return read.model


def discard_imported(output: Output, lock: OutputLock) -> list[str]:
    """Remove an imported tokenizer from the output. Return warnings.

    Raises:
        DifferentConfigurationError: the output has a trained tokenizer.
    """
    if output.imported is None:
        return []
    lock.acquire()
    with suppress(DamagedOutputError):
        load_declaration(IMPORT, output.tokenizer)
    discard_stage(IMPORT, output.tokenizer, "|".join(map(re.escape, sorted(TOKENIZER_FILES))))
    return []


def _read(source: Directory) -> ReadSource:
    return read_source(source.url, storage_options=source.storage_options)


def _check_fits(context: BuildContext, model: Model) -> None:
    """Check that the output can store the tokenizer, before anything is written."""
    check_affixes(context.config.encode, model)
    identity = Identity.of(encode_configuration(context.config, model), context.inputs.listed)
    find_finished_manifest(ENCODE, context.output.tokens, identity, command=context.command)


def _find_imported(output: Output, source: Directory) -> ImportedManifest | None:
    """Return the manifest of the tokenizer in the output if it was imported from a source."""
    manifest = load_manifest(IMPORT, output.tokenizer)
    if manifest is None:
        return None
    imported = manifest.imported_from
    if is_hub(source.url):
        asked = Repository.parse(source.url, "model")
        if asked.is_pinned:
            same = (imported.repository, imported.commit) == (asked.name, asked.revision)
        else:
            same = manifest.configuration == _configuration_of_repository(asked)
        return manifest if same else None
    for file in imported.files:
        if _checksum(source, file.name) != file.xxh3_128:
            return None
    return manifest


def _checksum(source: Directory, name: str) -> str | None:
    """Return the checksum of a file of a source (a directory, or a file beside it), or None."""
    filesystem, path = locate(source.url, source.storage_options)
    place = source
    if not filesystem.isdir(path):
        folder = source.url.rpartition("/")[0]
        place = Directory(url=folder or "/", storage_options=source.storage_options)
    data = place.find_bytes(name)
    return None if data is None else xxhash.xxh3_128_hexdigest(data)


def _configuration(source: Directory, read: ReadSource) -> dict[str, Any]:
    """Return everything that determines the imported tokenizer, without paths of this machine."""
    if read.repository is not None:
        return _configuration_of_repository(Repository.parse(source.url, "model"))
    return {"tokenizer": {"files": {file.name: file.xxh3_128 for file in read.files}}}


def _configuration_of_repository(repository: Repository) -> dict[str, Any]:
    return {"tokenizer": {"path": str(repository)}}


def _describe(read: ReadSource) -> Mapping[str, Any]:
    described: dict[str, Any] = {
        "format": read.file.format,
        "files": [
            {"name": file.name, "bytes": file.bytes, "xxh3_128": file.xxh3_128}
            for file in read.files
        ],
    }
    if read.repository is not None:
        described |= {"repository": read.repository.name, "commit": read.repository.revision}
    return described
