"""`beam-bpe verify`: checks that an output is intact and matches its manifests.

Each fact is compared with another one that was written independently: bytes with checksums, footers
and rows with entries, software and counts with footers and `training.json`, offsets with lengths,
statistics with ids, and texts, read again, with decoded ids (`sources.py`). The content of a file
with a wrong checksum is not parsed. Files are verified in parallel, a row group of each in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from bpe_core.errors import BpeError
from pipelines.dataset.reading import TokenDataset, find_model
from pipelines.errors import InputError, to_one_line
from pipelines.exports.export import BEGUN, output_directory
from pipelines.exports.export import MANIFEST as MANIFEST_OF_EXPORT
from pipelines.manifest.models import MANIFESTS, Counted, TokensManifest
from pipelines.manifest.names import MANIFEST, RUN
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Model
from pipelines.verification.counts import (
    CountShards,
    check_counts,
    check_first_round,
    check_tokenizer,
)
from pipelines.verification.exports import verify_export
from pipelines.verification.files import check_file, check_names
from pipelines.verification.findings import Findings, Verification, run_side_by_side
from pipelines.verification.manifests import (
    Manifests,
    check_against,
    check_configuration,
    read_manifests,
)
from pipelines.verification.rejects import check_rejects
from pipelines.verification.sources import verify_sources
from pipelines.verification.tokens import TokenFiles, check_tokens

if TYPE_CHECKING:
    from pipelines.config import BuildConfig


def verify(
    output: Directory | str | os.PathLike[str],
    *,
    against: str | None = None,
    tokenizer: str | None = None,
    sources: bool = False,
    sample: int | None = None,
    config: BuildConfig | None = None,
) -> Verification:
    """Verify all finished stages of a build, or the files of an export.

    Args:
        output: output of the build, or destination of the export; a path is a local one or a URL.
        against: path or URL of a copy of a manifest, which must equal that of the same stage.
        tokenizer: directory of the tokenizer, or None for `tokenizer/` in the output, else the
            location known to the build.
        sources: True to compare documents with their sources, all of them unless `sample` is given.
        sample: number of documents to compare with their sources.
        config: configuration with the locations of the sources, or None if they have not moved.

    Raises:
        InputError: there is no build, `against` is not a manifest, or an input file is missing.
        ConfigError: the tokenizer is missing.

    Example:
        found = pipelines.verify("out/quickstart")
        assert not found.problems, found
    """
    if not isinstance(output, Directory):
        output = output_directory(os.fspath(output), None)
    findings = Findings(Verification(output=output.url))
    if not {MANIFEST_OF_EXPORT, BEGUN}.isdisjoint(output.sizes()) and not any(
        (output / stage).sizes() for stage in MANIFESTS
    ):
        verify_export(output, findings, only_bytes=not (against or sources or sample))
        return findings.result
    manifests = read_manifests(output, findings)
    if against is not None:
        check_against(manifests, against, output, findings)
    check_names(output, manifests, findings)
    check_configuration(output, findings)
    model = token_files = None
    if manifests.tokens is not None:
        model = _find_model(output, manifests.tokens, tokenizer, findings)
        token_files = _token_files(output, manifests.tokens, model, findings)
    counts = [
        (manifest, CountShards(output / manifest.directory_name, manifest, findings))
        for manifest in manifests.counted
    ]
    jobs = _jobs(output, manifests, counts, token_files, findings)
    run_side_by_side("verifying files", list(jobs))
    for manifest, shards in counts:
        check_counts(manifest, findings)
        shards.finish()
    if manifests.superwords is not None:
        check_first_round(output, manifests.superwords, manifests.counts, findings)
    if manifests.tokenizer is not None:
        check_tokenizer(output, manifests.tokenizer, manifests.counts, findings)
    if manifests.tokens is not None:
        check_tokens(manifests.tokens, manifests.tokenizer, findings)
    if token_files is not None:
        token_files.finish()
    if model is not None and (sources or sample is not None):
        damaged = {problem.file.partition("/")[0] for problem in findings.result.problems}
        if damaged.isdisjoint({"tokens", "rejects"}):
            dataset = TokenDataset.open(output.url, output.storage_options)
            verify_sources(dataset, model, findings, config=config, sample=sample)
    findings.result.problems.sort()
    return findings.result


def _jobs(
    output: Directory,
    manifests: Manifests,
    counts: Sequence[tuple[Counted, CountShards]],
    token_files: TokenFiles | None,
    findings: Findings,
) -> Iterator[Callable[[], None]]:
    """Yield a check for each listed file, of its bytes and of its content."""
    checks: dict[str, Callable[[], None]] = {}
    for counted, shards in counts:
        for shard in counted.shards:
            checks[f"{counted.directory_name}/{shard.name}"] = partial(shards.check, shard)
    if manifests.tokens is not None:
        for table in manifests.tokens.files.rejects:
            checks[f"rejects/{table.name}"] = partial(
                check_rejects, output / "rejects", table, manifests.tokens, findings
            )
        if token_files is not None:
            for file in manifests.tokens.files.token_files:
                checks[f"tokens/{file.name}"] = partial(token_files.check, file.name)
    for manifest in manifests:
        for directory, entry in manifest.listed_files():
            where = f"{directory}/{entry.name}"
            yield partial(check_file, output / directory, where, entry, findings, checks.get(where))


def _find_model(
    output: Directory, manifest: TokensManifest, tokenizer: str | None, findings: Findings
) -> Model | None:
    """Return the tokenizer; note its absence or damage, unless it was given."""
    try:
        return find_model(output, manifest.configuration["tokenizer"], tokenizer)
    except (BpeError, OSError, pa.ArrowException) as error:
        if tokenizer is not None:
            raise
        where = "tokenizer" if (output / "tokenizer").sizes() else f"tokens/{RUN}"
        findings.note(where, f"the rows were not verified (--tokenizer DIR): {to_one_line(error)}")
    except (KeyError, TypeError) as error:
        where = f"tokens/{MANIFEST}"
        findings.note(where, f"the rows were not verified: configuration: no {error}")
    return None


def _token_files(
    output: Directory, manifest: TokensManifest, model: Model | None, findings: Findings
) -> TokenFiles | None:
    if model is None:
        return None
    try:
        return TokenFiles(output, manifest, model, findings)
    except (InputError, KeyError, TypeError) as error:
        findings.note(f"tokens/{MANIFEST}", f"the rows were not verified: {to_one_line(error)}")
        return None
