"""`beam-bpe verify`: whether an output is whole, and what its manifests say it is.

Everything is held against something that was written apart from it: bytes of files against the
manifests' checksums, rows against footers, totals against rows, statistics against ids, documents
against their sources (`sources.py`). A file whose bytes are wrong is not looked into.
Files are verified side by side, a row group of each in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bpe_core.errors import BpeError
from pipelines.dataset.reading import SPLITS, TokenDataset, model_of
from pipelines.errors import InputError, in_a_line
from pipelines.exports.export import BEGUN
from pipelines.exports.export import MANIFEST as MANIFEST_OF_EXPORT
from pipelines.manifest.models import MANIFESTS, Stage
from pipelines.manifest.names import STATISTICS_FILE
from pipelines.manifest.records import MANIFEST, RUN
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Model
from pipelines.verification.counts import check_counts, check_shard, check_tokenizer
from pipelines.verification.exports import verify_export
from pipelines.verification.files import check_file, check_names, listed_files
from pipelines.verification.findings import Findings, Verification, run_side_by_side
from pipelines.verification.manifests import check_against, read_manifests
from pipelines.verification.rejects import check_rejects
from pipelines.verification.tokens import TokenFiles, check_tokens

if TYPE_CHECKING:
    from pipelines.config import BuildConfig


def verify(
    output: Directory,
    *,
    against: str | None = None,
    tokenizer: str | None = None,
    sources: bool = False,
    sample: int | None = None,
    config: BuildConfig | None = None,
) -> Verification:
    """Verifies all stages of a build that are finished, or the files of an export.

    Args:
        output: of the build, or the destination of the export.
        against: path or URL of a manifest kept elsewhere, which that of the same stage must equal.
        tokenizer: directory of the tokenizer; None: the one in the output, or where the build
            found it.
        sources: compare documents with their sources, all unless there is a `sample`.
        sample: number of documents to compare.
        config: where the sources are; None: where the build found them.

    Raises:
        InputError: there is no build, `against` is no manifest, or an input file is nowhere.
        ConfigError: the tokenizer is not there.
    """
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
    jobs = [job for stage in manifests for job in _jobs(output, stage, manifests[stage], findings)]
    model = token_files = None
    if "tokens" in manifests:
        model = _model(output, manifests["tokens"], tokenizer, findings)
        token_files = _token_files(output, manifests["tokens"], model, findings)
        entries = manifests["tokens"]["files"]
        jobs += [
            partial(
                check_file,
                output / "tokens",
                f"tokens/{entry['name']}",
                entry,
                findings,
                None if token_files is None else partial(token_files.check, entry["name"]),
            )
            for split in SPLITS
            for entry in entries[split]
        ]
    run_side_by_side("verifying files", jobs)
    if "counts" in manifests:
        check_counts(manifests["counts"], findings)
    if "tokenizer" in manifests:
        check_tokenizer(output, manifests, findings)
    if "tokens" in manifests:
        check_tokens(manifests, findings)
    if token_files is not None:
        token_files.finish()
    if model is not None and (sources or sample is not None):
        damaged = {problem.file.partition("/")[0] for problem in findings.result.problems}
        if damaged.isdisjoint({"tokens", "rejects"}):
            from pipelines.verification.sources import verify_sources  # imports Beam

            dataset = TokenDataset.open(output.url, output.storage_options)
            verify_sources(dataset, model, findings, config=config, sample=sample)
    findings.result.problems.sort()
    return findings.result


def _jobs(
    output: Directory, stage: Stage, manifest: Mapping[str, Any], findings: Findings
) -> Iterator[Callable[[], None]]:
    """What verifies each file of a stage; token files have their own."""
    for directory, entry in listed_files(stage, manifest):
        check: Callable[[], None] | None = None
        if stage == "counts" and directory == "counts":
            check = partial(check_shard, output / directory, entry, manifest, findings)
        elif directory == "rejects":
            check = partial(check_rejects, output / directory, entry, manifest, findings)
        elif stage == "tokens" and not STATISTICS_FILE.fullmatch(entry["name"]):
            continue
        yield partial(
            check_file, output / directory, f"{directory}/{entry['name']}", entry, findings, check
        )


def _model(
    output: Directory, manifest: Mapping[str, Any], tokenizer: str | None, findings: Findings
) -> Model | None:
    """The tokenizer; None, and a note, if it is damaged or nowhere and none was given."""
    try:
        return model_of(output, manifest, tokenizer)
    except (BpeError, OSError, pa.ArrowException) as error:
        if tokenizer is not None:
            raise
        where = "tokenizer" if (output / "tokenizer").sizes() else f"tokens/{RUN}"
        findings.note(where, f"the rows were not verified (--tokenizer DIR): {in_a_line(error)}")
    except (KeyError, TypeError) as error:
        where = f"tokens/{MANIFEST}"
        findings.note(where, f"the rows were not verified: configuration: no {error}")
    return None


def _token_files(
    output: Directory, manifest: Mapping[str, Any], model: Model | None, findings: Findings
) -> TokenFiles | None:
    if model is None:
        return None
    try:
        return TokenFiles(output, manifest, model, findings)
    except (InputError, KeyError, TypeError) as error:
        findings.note(f"tokens/{MANIFEST}", f"the rows were not verified: {in_a_line(error)}")
        return None
