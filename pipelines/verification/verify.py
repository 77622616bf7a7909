"""`beam-bpe verify`: whether an output is whole, and what its manifests say it is.

Everything is held against something that was written apart from it: bytes of files against the
manifests' checksums, rows against footers, totals against rows, statistics against ids, documents
against their sources (`verification_sources`). A file whose bytes are wrong is not looked into.
Files are verified side by side, a row group of each in memory.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from bpe_core._native import scan_documents
from bpe_core.cores import usable_cores
from bpe_core.errors import BpeError
from pipelines.accounting import check_accounts
from pipelines.config.identity import differences, fingerprint
from pipelines.console import progress
from pipelines.dataset.generations import generation_of
from pipelines.dataset.names import STATISTICS_FILE
from pipelines.dataset.reading import SPLITS, TokenChunk, TokenDataset, TokenFile
from pipelines.dataset.statistics import Statistics, read_statistics
from pipelines.dataset.token_schema import schema
from pipelines.dataset.vocabulary import Vocabulary
from pipelines.errors import InputError, OutputError, PipelineError
from pipelines.exports.export import BEGUN, present_files
from pipelines.exports.export import MANIFEST as MANIFEST_OF_EXPORT
from pipelines.manifest import MANIFEST, RUN
from pipelines.manifest_schema import MANIFESTS, RunRecord, Stage, problem_of
from pipelines.storage.directory import Directory
from pipelines.storage.stored import StoredHandle, open_stored
from pipelines.tokenizers.files import Model, load_model
from pipelines.verification.manifests import contradictions

if TYPE_CHECKING:
    from pipelines.config import BuildConfig

_CHUNK_BYTES: Final = 4 << 20
_SHOWN_DIFFERENCES: Final = 5
_EXPORT: Final = "export"
_NAME_IN_EXPORT: Final = re.compile(r"((train|validation)/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, order=True)
class Problem:
    """Something that is wrong: the file, by its path below the output, and what."""

    file: str
    message: str


@dataclass(kw_only=True)
class Verification:
    """What was looked at, and what is wrong.

    Attributes:
        output: what was verified.
        stages: those that are finished.
        files, bytes: whose checksums were computed.
        rows, tokens: of token files that were looked into.
        documents: that were compared with their source; None: none was to be.
        unread_tasks: whose sources were not read, since a repaired file took the place of one.
        problems: in order of files.
    """

    output: str
    stages: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    rows: int = 0
    tokens: int = 0
    documents: int | None = None
    unread_tasks: int = 0
    problems: list[Problem] = field(default_factory=list)

    def __str__(self) -> str:
        """A page for people."""
        looked = [f"stages: {', '.join(self.stages) or 'none is finished'}"]
        looked.append(f"checksums: {self.files:,} files, {self.bytes:,} bytes")
        if self.stages == [_EXPORT]:
            looked = [f"export: {looked[1]}"]
        if "tokens" in self.stages:
            looked.append(f"rows: {self.rows:,}, with {self.tokens:,} ids")
        compared = (
            "none (--sources, --sample N)" if self.documents is None else f"{self.documents:,}"
        )
        if self.stages != [_EXPORT]:
            looked.append(f"documents compared with their source: {compared}")
        if self.unread_tasks:
            looked.append(
                f"tasks of files that were repaired since, not compared: {self.unread_tasks:,}"
            )
        if not self.problems:
            but = " but for the tasks that were not compared" if self.unread_tasks else ""
            return "\n".join([*looked, f"{self.output} is whole{but}."])
        lines = [f"{problem.file}: {problem.message}" for problem in self.problems]
        number = f"{len(lines):,} problem{'s' if len(lines) > 1 else ''}"
        return "\n".join([*looked, f"{self.output} is not whole: {number}", *lines])


class Findings:
    """Where problems and amounts are noted, from any thread."""

    def __init__(self, result: Verification) -> None:
        self.result = result
        self.lock = threading.Lock()

    def note(self, file: str, message: str) -> None:
        """Something is wrong."""
        with self.lock:
            self.result.problems.append(Problem(file, message))

    def add(self, **amounts: int) -> None:
        """So much more was looked at."""
        with self.lock:
            for name, amount in amounts.items():
                setattr(self.result, name, (getattr(self.result, name) or 0) + amount)


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
        _verify_export(output, findings, only_bytes=not (against or sources or sample))
        return findings.result
    manifests = _manifests(output, findings)
    if against is not None:
        _check_against(manifests, against, output, findings)
    _check_names(output, manifests, findings)
    jobs = [job for stage in manifests for job in _jobs(output, stage, manifests[stage], findings)]
    model = token_files = None
    if "tokens" in manifests:
        model = _model(output, manifests["tokens"], tokenizer, findings)
        token_files = _token_files(output, manifests["tokens"], model, findings)
        entries = manifests["tokens"]["files"]
        jobs += [
            partial(
                _check_file,
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
        _check_counts(manifests["counts"], findings)
    if "tokenizer" in manifests:
        _check_tokenizer(output, manifests, findings)
    if "tokens" in manifests:
        _check_tokens(manifests, findings)
    if token_files is not None:
        token_files.finish()
    if model is not None and (sources or sample is not None):
        damaged = {problem.file.partition("/")[0] for problem in findings.result.problems}
        if damaged.isdisjoint({"tokens", "rejects"}):
            from pipelines.verification.sources import verify_sources  # imports Beam

            dataset = open_dataset(output)
            verify_sources(dataset, model, findings, config=config, sample=sample)
    findings.result.problems.sort()
    return findings.result


def run_side_by_side(what: str, jobs: Sequence[Callable[[], None]]) -> None:
    """Runs jobs in as many threads as there are cores; an error in one ends all."""
    with (
        progress.shown(what, len(jobs)),
        ThreadPoolExecutor(usable_cores()) as threads,
    ):
        running = [threads.submit(job) for job in jobs]
        try:
            for done in running:
                done.result()
                progress.advance()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


# --- manifests -------------------------------------------------------------------------------


def _manifests(output: Directory, findings: Findings) -> dict[Stage, dict[str, Any]]:
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


def _check_against(
    manifests: Mapping[Stage, Mapping[str, Any]],
    against: str,
    output: Directory,
    findings: Findings,
) -> None:
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
) -> _TokenFiles | None:
    if model is None:
        return None
    try:
        return _TokenFiles(output, manifest, model, findings)
    except (InputError, KeyError, TypeError) as error:
        findings.note(f"tokens/{MANIFEST}", f"the rows were not verified: {in_a_line(error)}")
        return None


def in_a_line(error: BaseException) -> str:
    """What an error says is wrong, without line breaks and without advice."""
    if not isinstance(error, PipelineError):
        return "; ".join(line.strip() for line in str(error).splitlines())
    said = {"expected": error.expected, "found": error.found}
    return "; ".join([error.message, *(f"{key} {text}" for key, text in said.items() if text)])


def model_of(output: Directory, manifest: Mapping[str, Any], tokenizer: str | None) -> Model:
    """The tokenizer that the token files were encoded with: as given, or where the build had it.

    Raises:
        ConfigError: it is not there, or is another one.
    """
    if tokenizer is None and not (output / "tokenizer").sizes():
        record = (output / "tokens").read_json(RUN) or {}
        noted = record.get("tokenizer")
        tokenizer = noted if isinstance(noted, str) else None
    dataset = TokenDataset(output=output, manifest=manifest, files=(), dtype=np.dtype(np.uint32))
    return dataset.model(tokenizer)


# --- files -----------------------------------------------------------------------------------


def _listed(stage: Stage, manifest: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The files of a stage, as (directory, entry)."""
    if stage == "counts":
        rejects = [("rejects", entry) for entry in manifest.get("rejects", ())]
        return [*(("counts", entry) for entry in manifest["shards"]), *rejects]
    if stage == "tokenizer":
        return [("tokenizer", entry) for entry in manifest["files"]]
    files = manifest["files"]
    return [
        (directory, entry)
        for kind, directory in (
            ("train", "tokens"),
            ("validation", "tokens"),
            ("statistics", "tokens"),
            ("rejects", "rejects"),
        )
        for entry in files[kind]
    ]


def _check_names(
    output: Directory, manifests: Mapping[Stage, Mapping[str, Any]], findings: Findings
) -> None:
    """Notes files that are missing, and those that no manifest lists.

    What begins with `.` or `_` is temporary, and no reader of the dataset takes it.
    """
    known: dict[str, set[str]] = {stage: {MANIFEST, RUN} for stage in manifests}
    for stage, manifest in manifests.items():
        for directory, entry in _listed(stage, manifest):
            known.setdefault(directory, set()).add(entry["name"])
    if "tokens" in manifests:
        known.setdefault("rejects", set())
    for directory, names in known.items():
        present = (output / directory).sizes()
        for name in sorted(names - present.keys()):
            findings.note(f"{directory}/{name}", "missing")
        for name in sorted(present.keys() - names):
            if not name.startswith((".", "_")):
                findings.note(f"{directory}/{name}", "not listed in the manifest")
        for name in (output / directory).others():
            if not name.startswith((".", "_")):
                findings.note(f"{directory}/{name}", "not a file, and of no build")
    for name in sorted({*output.sizes(), *output.others()} - {*MANIFESTS, "rejects"}):
        if not name.startswith((".", "_")):
            findings.note(name, "not of a build")


def _jobs(
    output: Directory, stage: Stage, manifest: Mapping[str, Any], findings: Findings
) -> Iterator[Callable[[], None]]:
    """What verifies each file of a stage; token files have their own."""
    for directory, entry in _listed(stage, manifest):
        check: Callable[[], None] | None = None
        if stage == "counts" and directory == "counts":
            check = partial(_check_shard, output / directory, entry, manifest, findings)
        elif directory == "rejects":
            check = partial(_check_rejects, output / directory, entry, manifest, findings)
        elif stage == "tokens" and not STATISTICS_FILE.fullmatch(entry["name"]):
            continue
        yield partial(
            _check_file, output / directory, f"{directory}/{entry['name']}", entry, findings, check
        )


def _check_file(
    directory: Directory,
    where: str,
    entry: Mapping[str, Any],
    findings: Findings,
    look_into: Callable[[], None] | None,
) -> None:
    """Checks the bytes of a file, and what is in it if they are right."""
    hasher = xxhash.xxh3_128()
    size = 0
    try:
        stored = open_stored(directory.path(entry["name"]), directory.storage_options)
        try:
            buffer = memoryview(bytearray(min(_CHUNK_BYTES, stored.size)))
            while size < stored.size:
                data = buffer[: stored.size - size]
                stored.read_into(data, size)
                hasher.update(data)
                size += len(data)
        finally:
            stored.close()
    except FileNotFoundError:
        return  # noted as missing
    except OSError as error:
        findings.note(where, f"can't be read: {error}")
        return
    findings.add(files=1, bytes=size)
    if size != entry["bytes"]:
        findings.note(where, f"{size:,} bytes, where the manifest says {entry['bytes']:,}")
        return
    if hasher.hexdigest() != entry["xxh3_128"]:
        findings.note(
            where,
            f"damaged: xxh3-128 {hasher.hexdigest()}, where the manifest says {entry['xxh3_128']}",
        )
        return
    if look_into is not None:
        try:
            look_into()
        except BpeError as error:
            findings.note(where, in_a_line(error))
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            findings.note(where, f"can't be understood: {type(error).__name__}: {error}")


def footer_of(parquet: pq.ParquetFile) -> dict[str, str]:
    """What the footer of a file says of build and task, without `bpe.`."""
    return {
        key.decode().removeprefix("bpe."): value.decode()
        for key, value in (parquet.metadata.metadata or {}).items()
        if key.startswith(b"bpe.")
    }


@contextmanager
def open_parquet(directory: Directory, name: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file of the output, open while the block runs."""
    stored = open_stored(directory.path(name), directory.storage_options)
    try:
        yield pq.ParquetFile(pa.PythonFile(StoredHandle(stored), "r"), pre_buffer=False)
    finally:
        stored.close()


def _compare(
    where: str, findings: Findings, found: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    for key, value in expected.items():
        if found.get(key) != value:
            findings.note(where, f"{key}: {found.get(key)}, where {value} is expected")


# --- exports ---------------------------------------------------------------------------------


def _verify_export(output: Directory, findings: Findings, *, only_bytes: bool) -> None:
    """Holds the files of an export against its export.json."""
    if not only_bytes:
        raise InputError(
            "An export has only checksums to be verified.",
            expected="the output of a build, for --against, --sources and --sample",
            where=output.url,
            hint="Verify the output of the build that was exported, or leave the option out.",
        )
    findings.result.stages.append(_EXPORT)
    data = output.find_bytes(MANIFEST_OF_EXPORT)
    if data is None:
        findings.note(MANIFEST_OF_EXPORT, "missing: the export is not finished")
        return
    findings.add(files=1, bytes=len(data))
    try:
        entries = {entry["name"]: entry for entry in json.loads(data)["files"]}
        for name, entry in entries.items():
            if not _NAME_IN_EXPORT.fullmatch(name):
                raise ValueError(f"the name {name!r}")
            if type(entry["bytes"]) is not int or not isinstance(entry["xxh3_128"], str):
                raise ValueError(f"the entry of {name}")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        findings.note(MANIFEST_OF_EXPORT, f"can't be understood: {type(error).__name__}: {error}")
        return
    present = present_files(output).keys() - {MANIFEST_OF_EXPORT}
    for name in sorted(entries.keys() - present):
        findings.note(name, "missing")
    for name in sorted(present - entries.keys()):
        findings.note(name, f"not listed in {MANIFEST_OF_EXPORT}")
    for name in output.others():
        if name not in SPLITS and not name.startswith((".", "_")):
            findings.note(name, "not of an export")
    run_side_by_side(
        "verifying files",
        [
            partial(_check_file, output, name, entry, findings, None)
            for name, entry in entries.items()
            if name in present
        ],
    )
    findings.result.problems.sort()


# --- counts, tokenizer, rejects --------------------------------------------------------------


def _check_shard(
    directory: Directory,
    entry: Mapping[str, Any],
    manifest: Mapping[str, Any],
    findings: Findings,
) -> None:
    where = f"counts/{entry['name']}"
    shards = len(manifest["shards"])
    shard = [listed["name"] for listed in manifest["shards"]].index(entry["name"])
    rows = pretokens = 0
    last: bytes | None = None
    with open_parquet(directory, entry["name"]) as parquet:
        totals = json.dumps({key: entry[key] for key in ("rows", "pretokens")})
        _compare(
            where,
            findings,
            footer_of(parquet),
            {
                "corpus": manifest["corpus"],
                "shard": f"{shard} of {shards}",
                "totals": totals,
            },
        )
        for number in range(parquet.num_row_groups):
            table = parquet.read_row_group(number, use_threads=False).combine_chunks()
            if not table.num_rows:
                continue
            keys = table["pretoken"].chunk(0)
            counts = table["count"].to_numpy()
            rows += table.num_rows
            pretokens += sum(counts.tolist())
            if counts.min() < 1:
                findings.note(where, "a count below 1")
            ascending = pc.all(pc.less(keys[:-1], keys[1:])).as_py() is not False
            if not ascending or (last is not None and not last < keys[0].as_py()):
                findings.note(where, "pre-tokens are not ascending")
            last = keys[len(keys) - 1].as_py()
            offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset :][: len(keys) + 1]
            data = keys.buffers()[2] or b""
            _, hashes = scan_documents(memoryview(data), offsets[:-1], offsets[1:])
            if (hashes[:, 1] % np.uint64(shards) != np.uint64(shard)).any():
                findings.note(where, "a pre-token that belongs into another shard")
    _compare(
        where,
        findings,
        {"rows": rows, "pretokens": pretokens},
        entry_of(entry, "rows", "pretokens"),
    )


def entry_of(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Some keys of an entry of a manifest."""
    return {key: entry[key] for key in keys}


def _check_counts(manifest: Mapping[str, Any], findings: Findings) -> None:
    where = f"counts/{MANIFEST}"
    shards = manifest["shards"]
    content = entry_of(manifest, "corpus", "sources", "shards", "totals")
    expected = {
        "configuration_fingerprint": fingerprint(manifest["configuration"]),
        "fingerprint": fingerprint(content),
    }
    _compare(where, findings, manifest, expected)
    totals = {
        "distinct_pretokens": sum(shard["rows"] for shard in shards),
        "pretokens": sum(shard["pretokens"] for shard in shards),
    }
    _compare(where, findings, manifest["totals"], totals)
    _check_accounts(where, manifest, findings)
    for contradiction in contradictions(manifest):
        findings.note(where, contradiction)


def _check_accounts(where: str, manifest: Mapping[str, Any], findings: Findings) -> None:
    try:
        check_accounts(manifest)
    except PipelineError as error:
        findings.note(where, f"{error.where}: {error.found}, where {error.expected} are expected")
    except (KeyError, TypeError, ValueError) as error:
        findings.note(where, f"accounts that can't be understood: {error!r}")


def _check_tokenizer(
    output: Directory, manifests: Mapping[Stage, Mapping[str, Any]], findings: Findings
) -> None:
    manifest = manifests["tokenizer"]
    where = f"tokenizer/{MANIFEST}"
    damaged = {problem.file.partition("/")[0] for problem in findings.result.problems}
    if "tokenizer" not in damaged:
        try:
            model = load_model(output / "tokenizer")
        except (BpeError, OSError) as error:
            findings.note("tokenizer", f"can't be loaded: {error}")
        else:
            found = {"fingerprint": model.fingerprint, "vocab_size": len(model)}
            _compare("tokenizer", findings, found, entry_of(manifest, *found))
    expected = {"configuration_fingerprint": fingerprint(manifest["configuration"])}
    if "counts" in manifests:
        expected["counts"] = manifests["counts"]["fingerprint"]
    _compare(where, findings, manifest, expected)


def _check_rejects(
    directory: Directory,
    entry: Mapping[str, Any],
    manifest: Mapping[str, Any],
    findings: Findings,
) -> None:
    where = f"rejects/{entry['name']}"
    with open_parquet(directory, entry["name"]) as parquet:
        footer = footer_of(parquet)
        rows = sum(
            parquet.read_row_group(number, use_threads=False).num_rows
            for number in range(parquet.num_row_groups)
        )
    expected = {"totals": json.dumps({"rows": entry["rows"]})}
    if "generations" in manifest:
        expected["configuration"] = _generation(manifest, entry["name"])[
            "configuration_fingerprint"
        ]
        expected["tokenizer"] = manifest["tokenizer"]
    else:
        expected["configuration"] = manifest["configuration_fingerprint"]
    _compare(where, findings, footer, expected)
    _compare(where, findings, {"rows": rows}, entry_of(entry, "rows"))


def _generation(manifest: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    name = generation_of(file)
    for generation in manifest["generations"]:
        if generation["name"] == name:
            found: Mapping[str, Any] = generation
            return found
    raise InputError(f"The manifest does not list {name}, the generation of the file.")


# --- token files -----------------------------------------------------------------------------


class _TokenFiles:
    """Verifies the rows of the token files, and counts anew what the statistics say of them."""

    def __init__(
        self, output: Directory, manifest: Mapping[str, Any], model: Model, findings: Findings
    ) -> None:
        self._output = output
        self._manifest = manifest
        self._findings = findings
        self._vocabulary = Vocabulary(model)
        self._dataset = open_dataset(output)
        self._files = {file.name: file for file in self._dataset.files}
        names = [source["name"] for source in manifest["configuration"]["input"]]
        self._source_names: Sequence[str | None] = names
        self._affixes = [self._dataset.affix_id(key, model) for key in ("prepend", "append")]
        self._lock = threading.Lock()
        self._labels: set[str] = set()  # of input files, in footers
        self._amounts: Counter[tuple[str, str]] = Counter()  # by label: documents, bytes
        self._statistics = {
            generation["name"]: Statistics(self._vocabulary)
            for generation in manifest["generations"]
        }

    def check(self, name: str) -> None:
        """Verifies the rows of a file."""
        self._check(self._files[name])

    def _check(self, file: TokenFile) -> None:
        where = f"tokens/{file.name}"
        task = self._check_footer(file, where)
        statistics = Statistics(self._vocabulary)
        rows = _Rows(where, self._findings, self._affixes, task, self._vocabulary)
        of_labels: dict[str, list[int]] = {}
        columns = ["source", "offset", "part", "num_bytes"]
        for chunk in self._dataset.file_chunks(file, columns):
            if not rows.check(chunk):
                continue  # nothing that could be counted
            for label, first, end in runs_of_sources(chunk):
                starts = chunk.offsets[first : end + 1]
                of_label = of_labels.setdefault(label, [0, 0])
                of_label[0] += int(chunk.starts[first:end].sum())
                of_label[1] += int(chunk.column("num_bytes")[first:end].sum())
                statistics.add_rows(
                    file.split,
                    source_name(label, self._source_names),
                    label,
                    ids=chunk.ids[starts[0] : starts[-1]],
                    lengths=np.diff(starts),
                    num_bytes=chunk.column("num_bytes")[first:end],
                    offsets=chunk.column("offset")[first:end],
                    begins=chunk.starts[first:end],
                )
        statistics.finish()
        rows.finish()
        found = {"documents": rows.documents, "text_bytes": rows.text_bytes}
        expected = {"documents": file.documents, "text_bytes": file.text_bytes}
        _compare(where, self._findings, found, expected)
        self._findings.add(rows=file.rows, tokens=file.tokens)
        tables = list(statistics.tables(file.generation))
        with self._lock:
            self._labels |= {label for label, _, _ in task.get("inputs", ())}
            for label, amounts in of_labels.items():
                for key, amount in zip(("documents", "bytes"), amounts, strict=True):
                    self._amounts[label, key] += amount
            for table in tables:
                self._statistics[file.generation].add_table(table)

    def _check_footer(self, file: TokenFile, where: str) -> Mapping[str, Any]:
        generation = _generation(self._manifest, file.name)
        with open_parquet(self._dataset.tokens, file.name) as parquet:
            footer = footer_of(parquet)
            self._check_columns(parquet.schema_arrow, where)
        task: Mapping[str, Any] = json.loads(footer.get("task", "{}"))
        totals = {"rows": file.rows, "tokens": file.tokens, "bytes": file.text_bytes}
        _compare(
            where,
            self._findings,
            footer,
            {
                "configuration": generation["configuration_fingerprint"],
                "tokenizer": self._manifest["tokenizer"],
                "totals": json.dumps(totals),
            },
        )
        _compare(where, self._findings, task, {"index": file.index, "of": generation["tasks"]})
        return task

    def _check_columns(self, found: pa.Schema, where: str) -> None:
        configuration = self._manifest["configuration"]
        # Sources with ids may have been added after a generation without.
        may_have_ids = any(source.get("id_field") for source in configuration["input"])
        expected = schema(configuration["id_type"], record_ids=may_have_ids and "id" in found.names)
        if not found.equals(expected):
            columns = [
                ", ".join(f"{column.name} {column.type}" for column in of)
                for of in (found, expected)
            ]
            self._findings.note(where, f"columns {columns[0]}, where {columns[1]} are expected")

    def finish(self) -> None:
        """Once all files are done: what they hold of each input file, and the statistics."""
        damaged = {problem.file for problem in self._findings.result.problems}
        if any(file.startswith("tokens/") for file in damaged):
            return  # nothing that they could be held against
        inputs = {file["name"]: file for file in self._manifest["inputs"]}
        for label in sorted(self._labels - inputs.keys()):
            self._findings.note(
                f"tokens/{MANIFEST}", f"no input {label}, of which there are token files"
            )
        for label, file in inputs.items():
            for key in ("documents", "bytes"):
                found = self._amounts[label, key]
                if found != file[key]:
                    self._findings.note(
                        f"tokens/{MANIFEST}",
                        f"input {label}: {key}: {file[key]}, where the token files hold {found}",
                    )
        splits = ["train"]
        if self._manifest["configuration"]["encode"]["validation_fraction"] > 0:
            splits.append("validation")
        for entry, (name, counted) in zip(
            self._manifest["files"]["statistics"], self._statistics.items(), strict=True
        ):
            where = f"tokens/{entry['name']}"
            said = read_statistics(self._dataset.tokens, entry).replace_schema_metadata(None)
            found = pa.concat_tables(counted.tables(name, splits=splits))
            for statistic in pc.unique(found["statistic"]).to_pylist():
                parts = [
                    table.filter(pc.equal(table["statistic"], statistic)).combine_chunks()
                    for table in (said, found)
                ]
                if not parts[0].equals(parts[1]):
                    self._findings.note(where, f"{statistic}: not what the token files hold")
            if said.num_rows != found.num_rows:
                self._findings.note(
                    where, f"{said.num_rows:,} rows, where {found.num_rows:,} are expected"
                )


class _Rows:
    """Checks rows of a file in order: parts, affixes, places."""

    def __init__(
        self,
        where: str,
        findings: Findings,
        affixes: Sequence[int | None],
        task: Mapping[str, Any],
        vocabulary: Vocabulary,
    ) -> None:
        self._vocabulary = vocabulary
        self._where = where
        self._findings = findings
        self._prepend, self._append = affixes
        self._inputs = {label for label, _, _ in task.get("inputs", ())}
        self._row = 0
        self._last: tuple[str, int, int] | None = None  # source, offset, part
        self._last_id: int | None = None
        self.documents = 0
        self.text_bytes = 0

    def check(self, chunk: TokenChunk) -> bool:
        """The next row group; whether it is fit to be counted."""
        if not len(chunk):
            return True
        starts = chunk.starts
        self.documents += int(starts.sum())
        self.text_bytes += int(chunk.column("num_bytes").sum())
        sources = chunk.columns["source"].to_numpy(zero_copy_only=False)
        offsets, parts = chunk.column("offset"), chunk.column("part")
        unknown = sorted(set(sources.tolist()) - self._inputs)
        if unknown:
            self._note(0, f"of {unknown[0]!r}, which is not among the inputs of its task")
        before_source = np.append(self._last[0] if self._last else "", sources[:-1])
        before_offset = np.append(self._last[1] if self._last else -1, offsets[:-1])
        before_part = np.append(self._last[2] if self._last else -1, parts[:-1])
        same_source = before_source == sources
        same = same_source & (before_offset == offsets)
        self._note_first(
            ~starts & ~(same & (parts == before_part + 1)), "a part that does not follow its first"
        )
        self._note_first(
            starts & same_source & (offsets <= before_offset), "a document out of order"
        )
        self._check_affixes(chunk, starts)
        is_fit = self._check_values(chunk)
        self._last = (str(sources[-1]), int(offsets[-1]), int(parts[-1]))
        self._row += len(chunk)
        return is_fit

    def _check_values(self, chunk: TokenChunk) -> bool:
        """Whether ids and numbers are such as can be."""
        is_fit = True
        wrong = np.flatnonzero(self._vocabulary.rows_of(chunk.ids) < 0)
        if len(wrong):
            row = int(np.searchsorted(chunk.offsets, wrong[0], side="right")) - 1
            more = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
            self._note(row, f"id {int(chunk.ids[wrong[0]])} is not in the vocabulary{more}")
            is_fit = False
        for name in ("num_bytes", "offset", "part"):
            negative = chunk.column(name) < 0
            if negative.any():
                self._note_first(negative, f"{name} below 0")
                is_fit = False
        return is_fit

    def _check_affixes(self, chunk: TokenChunk, starts: NDArray[np.bool_]) -> None:
        begin, end = chunk.offsets[:-1], chunk.offsets[1:]
        filled = end > begin
        if self._prepend is not None:
            right = np.zeros(len(chunk), np.bool_)
            right[filled] = chunk.ids[begin[filled]] == self._prepend
            self._note_first(starts & ~right, "a document without what is prepended")
        if self._append is not None:
            right = np.zeros(len(chunk), np.bool_)
            right[filled] = chunk.ids[end[filled] - 1] == self._append
            is_last = np.append(starts[1:], False)  # of the chunk's last row the next will tell
            is_last[-1] = False
            self._note_first(is_last & ~right, "a document without what is appended")
            if starts[0] and self._last is not None:
                self._check_last()
            self._last_id = int(chunk.ids[end[-1] - 1]) if filled[-1] else None

    def _check_last(self) -> None:
        if self._append is not None and self._last_id != self._append:
            self._note(-1, "a document without what is appended")

    def finish(self) -> None:
        """There are no more rows."""
        if self._last is not None:
            self._check_last()

    def _note_first(self, wrong: NDArray[np.bool_], message: str) -> None:
        if wrong.any():
            more = int(wrong.sum()) - 1
            also = f" (and {more:,} more)" if more else ""
            self._note(int(np.argmax(wrong)), message + also)

    def _note(self, row: int, message: str) -> None:
        self._findings.note(self._where, f"row {self._row + row:,}: {message}")


def runs_of_sources(chunk: TokenChunk) -> Iterator[tuple[str, int, int]]:
    """The rows of a chunk by their label, as (label, first row, row after the last)."""
    column = chunk.columns["source"].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    codes = column.indices.to_numpy()
    labels = column.dictionary.to_pylist()
    bounds = np.flatnonzero(np.diff(codes)) + 1
    edges = [0, *bounds.tolist(), len(codes)]
    for first, end in pairwise(edges):
        if end > first:
            yield labels[codes[first]], first, end


def source_name(label: str, names: Sequence[str | None]) -> str | None:
    """The name of the configured source in a label; None: the only source has no name.

    >>> source_name("books/a/b.txt", ["web", "books"]), source_name("a/b.txt", [None])
    ('books', None)
    """
    name = label.partition("/")[0]
    return name if name in names else None


def open_dataset(output: Directory) -> TokenDataset:
    """The token files of a build."""
    return TokenDataset.open(output.url, output.storage_options)


def _check_tokens(manifests: Mapping[Stage, Mapping[str, Any]], findings: Findings) -> None:
    manifest = manifests["tokens"]
    where = f"tokens/{MANIFEST}"
    files = manifest["files"]
    both = [*files["train"], *files["validation"]]
    totals = {
        "train_rows": sum(file["rows"] for file in files["train"]),
        "validation_rows": sum(file["rows"] for file in files["validation"]),
        "tokens": sum(file["tokens"] for file in both),
        "text_bytes": sum(file["text_bytes"] for file in both),
    }
    _compare(where, findings, manifest["totals"], totals)
    expected = {"configuration_fingerprint": fingerprint(manifest["configuration"])}
    if "tokenizer" in manifests:
        expected["tokenizer"] = manifests["tokenizer"]["fingerprint"]
    _compare(where, findings, manifest, expected)
    _check_accounts(where, manifest, findings)
    for contradiction in contradictions(manifest):
        findings.note(where, contradiction)
