"""The stages of a build, put together: count, train, encode.

Each stage asks first whether it is finished, does what is missing, and writes its manifest last.
Beam is imported only where a pipeline runs.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from bpe_core.cores import usable_cores
from pipelines.config import BuildConfig
from pipelines.errors import (
    ConfigError,
    DifferentConfigurationError,
    InputError,
    OutputError,
    PipelineError,
)
from pipelines.filesystems import protocol_of
from pipelines.identity import (
    counts_configuration,
    fingerprint,
    tokenizer_configuration,
    tokens_configuration,
)
from pipelines.locks import OutputLock
from pipelines.names import BASE, token_file_name
from pipelines.storage import Directory
from pipelines.summary import BuildPlan, BuildSummary, PlannedFile, StageState, StageSummary
from pipelines.tasks import (
    InputFile,
    Plan,
    check_size_without_pattern,
    is_splittable,
    list_files,
    plan_tasks,
)

if TYPE_CHECKING:
    from bpe_core.counts import PretokenCounts
    from pipelines.counting import CountJob
    from pipelines.manifest import Identity
    from pipelines.tokenizer_files import Model
    from pipelines.work import SourceReading, TaskWork
    from pipelines.writing import EncodeJob

_UINT16_IDS = 1 << 16
_MASK_128 = (1 << 128) - 1


def plan(config: BuildConfig) -> BuildPlan:
    """What a build would read, do and write; from the inputs' sizes and, if any, their limits."""
    return _Build(config).describe()


def count(
    config: BuildConfig, *, restart: bool = False, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Counts the pre-tokens of the corpus."""
    build = _Build(config, beam_args, "count")
    build.check_trains()
    build.check_inputs_and_options()
    with build.lock:
        if restart:
            build.discard_counts()
        build.count()
    return build.summary


def train(
    config: BuildConfig, *, restart: bool = False, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Trains the tokenizer; counts first if that is not finished."""
    build = _Build(config, beam_args, "train")
    build.check_trains()
    build.check_inputs_and_options()
    with build.lock:
        if restart:
            build.discard_tokenizer()
        build.train()
    return build.summary


def encode(
    config: BuildConfig, *, restart: bool = False, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Encodes the corpus; counts and trains first if that is not finished."""
    build = _Build(config, beam_args, "encode")
    build.check_inputs_and_options()
    with build.lock:
        if restart:
            build.discard_tokens()
        build.encode()
    return build.summary


def build(
    config: BuildConfig, *, restart: bool = False, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Does everything; what is finished is not done again."""
    whole = _Build(config, beam_args)
    whole.check_inputs_and_options()
    with whole.lock:
        if restart:
            whole.discard_tokens()
            if config.tokenizer.path is None:
                whole.discard_tokenizer()
                whole.discard_counts()
        whole.encode()
    return whole.summary


def replay(
    config: BuildConfig, repaired: Mapping[str, str] | None = None, *, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Encodes rejected documents after all, by a changed policy or from repaired files.

    Args:
        config: of the dataset, but for what decides which documents are rejected.
        repaired: path or URL of a repaired file, by the name of the file in the column `source`.
        beam_args: options of Beam.
    """
    build = _Build(config, beam_args)
    build.check_inputs_and_options()
    with build.lock:
        build.replay(repaired or {})
    return build.summary


@contextmanager
def _importing() -> Iterator[None]:
    """For the import of Beam, of which a third would be looking for garbage.

    Its objects stay: they are set aside, so that later collections leave them out.
    """
    if "apache_beam" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _plan_fingerprint(identity: Identity, generation: str) -> str:
    """Of what decides the files of a generation, but for its inputs."""
    made_by = identity.configuration_fingerprint
    if generation == BASE:
        return made_by
    return fingerprint({"configuration": made_by, "generation": generation})


@dataclass(frozen=True, kw_only=True)
class _Made:
    """What a stage made: its part of the manifest and of run.json, and what to tell of the run."""

    content: Mapping[str, Any]
    resumed: bool = False
    bytes: int = 0
    run: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Trained:
    """A trained tokenizer of either unit, and what to tell of it."""

    merges: int
    stop_reason: str
    stopped_because: str
    model: Model


class _Build:
    """One run of the command: the configuration, the plan, and what the stages found."""

    def __init__(
        self, config: BuildConfig, beam_args: Sequence[str] = (), command: str = "build"
    ) -> None:
        self._config = config
        self._command = command
        self._beam_args = tuple(beam_args)
        output = Directory(url=config.output_path, storage_options=config.output_storage_options)
        self.lock = OutputLock(output)
        output = replace(output, guard=self.lock.guard)
        self._counts = output / "counts"
        self._tokenizer = output / "tokenizer"
        self._tokens = output / "tokens"
        self._rejects = output / "rejects"
        self._output = output
        self.summary = BuildSummary()

    @cached_property
    def _listed(self) -> Plan:
        """The plan as if the sources had no limits."""
        sources = self._config.input
        files = [
            file
            for i, source in enumerate(sources)
            for file in list_files(source, index=i, resolve=self._config.resolve_glob)
        ]
        return plan_tasks(files, sources)

    @cached_property
    def _limited(self) -> tuple[Sequence[InputFile], Mapping[str, Any]]:
        """The files up to the limits of their sources, and what was found of these."""
        sources = self._config.input
        if all(source.limit_documents is None and source.limit_bytes is None for source in sources):
            return self._listed.files, {}
        with _importing():
            from pipelines import limits, manifest

        known = manifest.kept_limits((self._counts, self._tokens))
        return limits.limit_files(self._listed.files, sources, known)

    @cached_property
    def _plan(self) -> Plan:
        files, limits = self._limited
        return plan_tasks(files, self._config.input) if limits else self._listed

    def check_inputs_and_options(self) -> None:
        """Before anything is removed: are there inputs, and does Beam know its options?"""
        _ = self._listed
        self._check_size()
        beam = self._config.beam
        if self._beam_args or beam.options or beam.runner != "DirectRunner":
            from pipelines import runners

            options = runners.options_of(self._config.beam, self._beam_args, self._places)
            runners.check_waits(options)

    @property
    def _places(self) -> tuple[str, ...]:
        """Where workers read and write: one of each storage will do for the input."""
        return (
            self._output.url,
            self._tokenizer_directory.url,
            *(self._config.resolve_glob(s.files[0]) for s in self._config.input),
        )

    def _check_size(self) -> None:
        """Whether so much can be counted with the pattern, where that is to be done."""
        tokenizer = self._config.tokenizer
        if tokenizer.path is None and tokenizer.pattern == "none":
            check_size_without_pattern(sum(task.size for task in self._plan.tasks))

    # Planning

    def _next_generation(self) -> tuple[str, Plan]:
        """The generation that encoding would make, and the work for it; from sizes alone."""
        earlier = self._finished_dataset()
        if earlier is None:
            return BASE, self._plan
        from pipelines import generations

        added = self._plan_of_added(earlier)
        left = {file.label: file.size for file in self._listed.files}
        same = all(
            left.get(file["name"]) in (file["size"], file.get("repaired", {}).get("size", -1))
            for file in earlier["inputs"]
        )
        if not added.files or not same:
            return BASE, self._plan
        return generations.next_name(earlier), added

    def describe(self) -> BuildPlan:
        self._check_size()
        config = self._config
        refusal = self._refusal()
        generation, files_plan = (BASE, self._plan) if refusal else self._next_generation()
        ranges = [0] * len(files_plan.files)
        for task in files_plan.tasks:
            for part in task.ranges:
                ranges[part.file] += 1
        names = self._config.input
        files = tuple(
            PlannedFile(
                path=file.url,
                bytes=file.size,
                compression=file.compression or "none",
                splittable=is_splittable(file.compression, names[file.source]),
                ranges=ranges[i],
                source=file.source_name,
                stop=file.stop,
            )
            for i, file in enumerate(files_plan.files)
        )
        there = None if refusal else self._finished_dataset()
        if there is not None and generation == BASE:
            of = finished = sum(made["tasks"] for made in there["generations"])
            token_files = tuple(
                file["name"] for split in ("train", "validation") for file in there["files"][split]
            )
        else:
            of = len(files_plan.tasks)
            splits = ["train"] + (["validation"] if config.encode.validation_fraction else [])
            token_files = tuple(
                token_file_name(split, i, of, generation) for split in splits for i in range(of)
            )
            present = {} if refusal else self._tokens.sizes()
            finished = sum(name in present for name in token_files[:of])
        return BuildPlan(
            files=files,
            tasks=of,
            finished_tasks=finished,
            shards=config.counts.shards if config.tokenizer.path is None else 0,
            token_files=token_files,
            id_type=self._planned_id_type(),
            output=self._output.url,
            generation=generation,
            selection={source.name or "": source.selection for source in names if source.selection},
            warnings=tuple(self._plan_warnings(files)),
            refusal=refusal,
        )

    def _finished_dataset(self) -> dict[str, Any] | None:
        """The manifest of the token files, if there is one."""
        from pipelines.manifest import MANIFEST

        found = self._tokens.read_json(MANIFEST)
        return found if found is not None and "generations" in found else None

    def _refusal(self) -> PipelineError | None:
        """Why a build would refuse what is in the output; None if it would not."""
        try:
            self._check_output()
        except (DifferentConfigurationError, OutputError) as error:
            return error
        return None

    def _check_output(self) -> None:
        """What the stages check before they begin, as far as it can be known before they ran."""
        from pipelines import manifest as records

        def checked(directory: Directory, configuration: Mapping[str, Any]) -> Any:
            identity = records.Identity.of(configuration, self._listed)
            return records.finished_manifest(
                directory, identity, may_grow=directory is self._tokens, command="build"
            )

        tokenizer = self._config.tokenizer
        trained: Any = None
        if tokenizer.path is None:
            counted = checked(self._counts, counts_configuration(self._config))
            found = records.stated_configuration(self._tokenizer)
            corpus = found.get("corpus") if counted is None else counted["corpus"]
            configuration = {**tokenizer_configuration(self._config), "corpus": corpus}
            trained = checked(self._tokenizer, configuration)
        model = self._load_model() if trained is not None or tokenizer.path is not None else None
        found = records.stated_configuration(self._tokens)
        asked = self._config.encode.id_type
        known = (
            {"tokenizer": found.get("tokenizer", ""), "id_type": found.get("id_type")}
            if model is None
            else {"tokenizer": model.fingerprint, "id_type": self._id_type(model)}
        )
        if model is None and asked != "auto":
            known["id_type"] = asked
        configuration = tokens_configuration(self._config, str(known["tokenizer"]))
        checked(self._tokens, {**configuration, "id_type": known["id_type"]})

    def _planned_id_type(self) -> str:
        if self._config.encode.id_type != "auto":
            return self._config.encode.id_type
        if self._config.tokenizer.path is not None:
            return self._id_type(self._load_model())
        return "uint16" if self._config.tokenizer.vocab_size <= _UINT16_IDS else "uint32"

    def _plan_warnings(self, files: Sequence[PlannedFile]) -> Iterator[str]:
        steps = {source.name: source.range_bytes for source in self._config.input}
        large = [file for file in files if not file.splittable and file.bytes > steps[file.source]]
        if large:
            largest = max(large, key=lambda file: file.bytes)
            yield (
                "files above range_bytes that can't be split (compressed, or a document each): "
                f"{len(large):,}, the largest {largest.path}; each is the work of one worker."
            )

    # Counting

    def check_trains(self) -> None:
        if self._config.tokenizer.path is not None:
            raise ConfigError(
                "Nothing is to be counted or trained.",
                expected="a tokenizer to train",
                found="tokenizer.path, a finished tokenizer",
                hint="Run `beam-bpe encode`, or remove tokenizer.path.",
            )

    def discard_counts(self) -> None:
        from pipelines.manifest import discard_stage, stated

        self.lock.acquire()
        counts = stated(self._counts).get("configuration", {}).get("counts", {})
        of = f"{counts['shards']:05d}" if "shards" in counts else r"\d+"
        discard_stage(self._counts, rf"shard-\d+-of-{of}\.parquet", "_runs")
        self._discard_rejects("count-")

    def count(self) -> dict[str, Any]:
        """Counts what is not counted yet; gives the manifest."""
        manifest = self._stage(
            "count", self._counts, counts_configuration(self._config), self._run_count
        )
        self._remove_scratch(self._counts / "_runs")
        self._note_counts(manifest)
        return manifest

    def _run_count(self, identity: Identity) -> _Made:
        with _importing():
            from pipelines import counting, progress, runners
            from pipelines.accounting import DocumentTotals, check_accounts
            from pipelines.transforms import CountPretokens, ReadTasks
            from pipelines.work import TaskWork

        works = [TaskWork.of_plan(self._plan, task) for task in self._plan.tasks]
        job = self._count_job(identity, [work.hash for work in works])
        commits = counting.usable_commits(job)
        done = {index for commit in commits for index in commit.tasks}
        left = [work for work in works if work.index not in done]
        finished = [d for commit in commits for d in commit.descriptors(job.shards)]
        with (
            progress.shown("counting tasks", len(left)),
            runners.pipeline(self._config.beam, self._beam_args, self._places) as pipeline,
        ):
            tasks = pipeline | "ReadTasks" >> ReadTasks(works=left)
            tasks | "CountPretokens" >> CountPretokens(job=job, finished=finished)
        content = self._counts_content(job)
        ours = re.compile(rf"count-\d+-of-{len(works):05d}\.parquet")
        self._check_limits(content, sorted(filter(ours.fullmatch, self._rejects.sizes())))
        check_accounts(
            {**content, "inputs": identity.inputs, "configuration": identity.configuration}
        )
        earlier = sum(commit.totals.all_bytes for commit in commits)
        fresh = DocumentTotals.from_json(content["totals"]).all_bytes - earlier
        return _Made(content=content, resumed=bool(commits), bytes=fresh)

    def _count_job(self, identity: Identity, task_hashes: Sequence[int]) -> CountJob:
        from pipelines.counting import CountJob
        from pipelines.work import source_readings

        config = self._config
        tokenizer = config.tokenizer
        return CountJob(
            counts=self._counts,
            rejects=self._rejects,
            configuration=identity.configuration_fingerprint,
            plan_id=self._plan.plan_id(identity.configuration_fingerprint),
            num_tasks=len(task_hashes),
            tasks_hash=sum(task_hashes) & _MASK_128,
            pattern=tokenizer.effective_pattern,
            special_tokens=tokenizer.special_tokens,
            normalizer=tokenizer.normalization_form,
            normalize_quotes=tokenizer.normalize_quotes,
            shards=config.counts.shards,
            memory=config.counts.memory,
            checkpoint_bytes=config.counts.checkpoint_bytes,
            max_pretoken_bytes=config.counts.max_pretoken_bytes,
            on_long_pretoken=config.counts.on_long_pretoken,
            readings=source_readings(
                config.input,
                tokenizer.effective_pattern,
                tokenizer.special_tokens,
                normalizer=tokenizer.normalization_form,
                normalize_quotes=tokenizer.normalize_quotes,
            ),
        )

    def _counts_content(self, job: CountJob) -> dict[str, Any]:
        from pipelines.accounting import DocumentTotals, planned_bytes_of_sources
        from pipelines.counting import shard_name

        names = [f"{shard_name(shard, job.shards)}.json" for shard in range(job.shards)]
        entries = []
        for entry in job.runs.read_json_files(names):
            assert entry is not None, "a finished pipeline has written every shard's entry"
            entries.append(entry)
        # The first has been told what it takes one to tell.
        sources = entries[0].pop("sources")
        long_pretokens = entries[0].pop("long_pretokens")
        totals = DocumentTotals.sum_of(map(DocumentTotals.from_json, sources))
        planned = planned_bytes_of_sources(self._plan.files, self._config.input)
        content = {
            "corpus": totals.corpus_fingerprint,
            "sources": [
                {"name": source.name, "planned_bytes": bytes_, **of_it}
                for source, bytes_, of_it in zip(self._config.input, planned, sources, strict=True)
            ],
            "shards": entries,
            "totals": {
                **totals.to_json(),
                "distinct_pretokens": sum(entry["rows"] for entry in entries),
                "pretokens": sum(entry["pretokens"] for entry in entries),
                "long_pretokens": long_pretokens,
            },
        }
        return {**content, "fingerprint": fingerprint(content)}

    def _note_counts(self, manifest: Mapping[str, Any]) -> None:
        totals = manifest["totals"]
        self._note_documents(totals)
        warnings = self.summary.warnings
        if totals["long_pretokens"]:
            warnings += (
                f"{totals['long_pretokens']:,} pre-tokens longer than counts.max_pretoken_bytes "
                "were not counted",
            )
        self.summary = replace(
            self.summary,
            distinct_pretokens=totals["distinct_pretokens"],
            outputs={**self.summary.outputs, "counts": self._counts.url},
            warnings=warnings,
        )

    # Training

    def discard_tokenizer(self) -> None:
        from bpe_core.formats import TOKENIZER_FILES
        from pipelines.manifest import discard_stage

        self.lock.acquire()
        discard_stage(self._tokenizer, "|".join(map(re.escape, sorted(TOKENIZER_FILES))))

    def train(self) -> dict[str, Any]:
        """Trains if that is not done yet; gives the manifest."""
        counted = self.count()
        configuration = {**tokenizer_configuration(self._config), "corpus": counted["corpus"]}
        manifest = self._stage(
            "train",
            self._tokenizer,
            configuration,
            lambda identity: self._run_train(counted, identity.configuration),
        )
        self._note_tokenizer(manifest)
        return manifest

    def _run_train(self, counted: Mapping[str, Any], configuration: Mapping[str, Any]) -> _Made:
        from pipelines.counting import load_counts
        from pipelines.tokenizer_files import save_tokenizer

        tokenizer = self._config.tokenizer
        counts = load_counts(self._counts, counted, min_count=tokenizer.min_count)
        train = self._train_bytes if tokenizer.unit == "byte" else self._train_characters
        trained = train(counts)
        training = {
            "configuration": configuration,
            "counts": counted["fingerprint"],
            "merges": trained.merges,
            "stop_reason": trained.stop_reason,
            "stopped_because": trained.stopped_because,
            "vocab_size": len(trained.model),
            "vocab_size_asked_for": tokenizer.vocab_size,
        }
        files, not_written = save_tokenizer(trained.model, self._tokenizer, {"training": training})
        training.pop("configuration")
        content = {
            **training,
            "fingerprint": trained.model.fingerprint,
            "files": files,
            "not_written": not_written,
        }
        return _Made(content=content)

    def _train_bytes(self, counts: PretokenCounts) -> _Trained:
        from bpe_core import train_from_counts
        from pipelines import progress
        from pipelines.supervisor import current_task

        tokenizer = self._config.tokenizer
        wanted = tokenizer.vocab_size - 256 - len(tokenizer.special_tokens)
        with current_task("learning merges"), progress.shown("learning merges", wanted) as show:
            result = train_from_counts(
                counts,
                tokenizer.vocab_size,
                tokenizer.special_tokens,
                tie_break=tokenizer.tie_break,
                min_frequency=tokenizer.min_frequency,
                max_token_bytes=tokenizer.max_token_bytes,
                forbidden_tokens=[token.encode() for token in tokenizer.forbidden_tokens],
                forbid_whitespace_tokens=tokenizer.rules.forbid_whitespace_tokens,
                progress=show,
            )
        return _Trained(
            merges=len(result.merges),
            stop_reason=result.stop_reason,
            stopped_because=result.explain_stop(),
            model=result.model,
        )

    def _train_characters(self, counts: PretokenCounts) -> _Trained:
        from bpe_core import CharBPETokenizer
        from pipelines import progress
        from pipelines.supervisor import current_task

        asked = self._config.tokenizer
        tokenizer = CharBPETokenizer(
            asked.unk_token,
            asked.end_of_word,
            asked.end_of_word_as,
            special_tokens=asked.special_tokens,
        )
        wanted = asked.vocab_size - len(asked.special_tokens)
        with current_task("learning merges"), progress.shown("learning merges", wanted) as show:
            tokenizer.train_from_counts(
                counts,
                asked.vocab_size,
                tie_break=asked.tie_break,  # type: ignore[arg-type]  # huggingface is refused
                min_frequency=asked.min_frequency,
                limit_alphabet=asked.limit_alphabet,
                max_token_bytes=asked.max_token_bytes,
                forbidden_tokens=asked.forbidden_tokens,
                progress=show,
            )
        return _Trained(
            merges=len(tokenizer.merges),
            stop_reason=str(tokenizer.stop_reason),
            stopped_because=tokenizer.explain_stop(),
            model=tokenizer,
        )

    def _note_tokenizer(self, manifest: Mapping[str, Any]) -> None:
        warnings = self.summary.warnings
        if manifest["vocab_size"] < manifest["vocab_size_asked_for"]:
            warnings += (
                f"the corpus is too small for the vocabulary: training reached "
                f"{manifest['vocab_size']:,} of {manifest['vocab_size_asked_for']:,} ids "
                f"({manifest['stopped_because']})",
            )
        self.summary = replace(
            self.summary,
            merges=manifest["merges"],
            stop_reason=manifest["stopped_because"],
            vocab_size=manifest["vocab_size"],
            outputs={**self.summary.outputs, "tokenizer": self._tokenizer.url},
            warnings=warnings,
        )

    # Encoding

    @property
    def _tokenizer_directory(self) -> Directory:
        """Of the tokenizer that encodes: the configured one, or the one that was trained."""
        path = self._config.tokenizer.path
        if path is None:
            return self._tokenizer
        url = self._config.resolve(path)
        same = protocol_of(url) == protocol_of(self._output.url)
        return Directory(url=url, storage_options=self._output.storage_options if same else {})

    def _load_model(self) -> Model:
        from pipelines.tokenizer_files import load_model

        try:
            return load_model(self._tokenizer_directory)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(
                "There is no tokenizer.",
                expected="a directory with tokenizer.arrow or char_bpe.json",
                found="none",
                where=f"tokenizer.path: {self._tokenizer_directory.url}",
                hint="Check the path, or remove it to train a tokenizer.",
            ) from None

    def _id_type(self, model: Model) -> str:
        asked = self._config.encode.id_type
        if asked == "auto":
            return "uint16" if model.max_id < _UINT16_IDS else "uint32"
        if asked == "uint16" and model.max_id >= _UINT16_IDS:
            raise ConfigError(
                "The ids do not fit the type asked for.",
                expected=f"uint32 or auto, for ids up to {model.max_id}",
                found="uint16",
                where="encode.id_type",
                hint="Change encode.id_type.",
            )
        return asked

    def _check_affixes(self, model: Model) -> None:
        for key in ("prepend", "append"):
            token = getattr(self._config.encode, key)
            if token is not None and token not in model.special_tokens:
                raise ConfigError(
                    "What is put around documents is no special token of the tokenizer.",
                    expected=f"one of {', '.join(map(repr, model.special_tokens))}, or null",
                    found=repr(token),
                    where=f"encode.{key}",
                    hint=f"Change encode.{key}.",
                )

    def discard_tokens(self) -> None:
        from pipelines.generations import names_of
        from pipelines.manifest import discard_stage, stated

        self.lock.acquire()
        tokens, rejects = names_of(stated(self._tokens))
        discard_stage(self._tokens, tokens, "_tasks")
        self._discard_rejects("count-")
        self._rejects.remove_files([n for n in self._rejects.sizes() if re.fullmatch(rejects, n)])
        self._rejects.remove_if_empty()

    def encode(self) -> None:
        """Encodes what is not encoded yet; trains first if the tokenizer is to be trained."""
        from pipelines.tokenizer_files import tokenizer_class

        counted = None
        if self._config.tokenizer.path is None:
            counted = self.train()["configuration"]["corpus"]
        model = self._load_model()
        self._check_affixes(model)
        self.summary = replace(self.summary, tokenizer_class=tokenizer_class(model))
        configuration = {
            **tokens_configuration(self._config, model.fingerprint),
            "id_type": self._id_type(model),
        }
        manifest = self._stage(
            "encode",
            self._tokens,
            configuration,
            lambda identity: self._run_encode(identity, model, counted),
            lambda identity, earlier: self._run_encode(identity, model, counted, earlier),
        )
        self._remove_scratch(self._tokens / "_tasks")
        if self._rejects.exists() and self.lock.try_acquire():
            self._discard_rejects("count-")
        self._remove_unlisted(manifest)
        self._note_tokens(manifest)

    def _run_encode(
        self,
        identity: Identity,
        model: Model,
        counted: str | None,
        earlier: Mapping[str, Any] | None = None,
    ) -> _Made:
        """Encodes all files or, after an earlier manifest, those that it does not list."""
        with _importing():
            from pipelines import generations, writing
            from pipelines.accounting import check_accounts
            from pipelines.tokenizer_files import counts_fingerprint
            from pipelines.work import TaskWork

        plan = self._plan if earlier is None else self._plan_of_added(earlier)
        works = [TaskWork.of_plan(plan, task) for task in plan.tasks]
        name = BASE if earlier is None else generations.next_name(earlier)
        job = self._encode_job(
            identity, model, plan.plan_id(_plan_fingerprint(identity, name)), name
        )
        entries, made = self._write_tokens(job, works, model, earlier)
        content = writing.tokens_content(entries, plan.files, self._config.input, name)
        content["files"]["statistics"] = [writing.write_merged_statistics(job, entries, model)]
        content = {
            **generations.content_of(earlier, content, name, len(works), identity.configuration),
            "tokenizer": model.fingerprint,
            "counts": counts_fingerprint(job.tokenizer),
        }
        self._check_limits(content, [file["name"] for file in content["files"]["rejects"]])
        check_accounts({"configuration": identity.configuration, **content})
        if counted is not None and counted not in generations.corpora(content):
            raise InputError(
                "The documents that were encoded are not those that were counted.",
                expected=f"number and sum of hashes {counted}",
                found=content["corpus"] + self._other_bad_files(content["totals"]),
                where=self._tokens.url,
                hint="The input has changed meanwhile. When it is complete, begin anew with "
                "--restart.",
            )
        return replace(made, content=content, run={"tokenizer": job.tokenizer.url})

    def _plan_of_added(self, earlier: Mapping[str, Any]) -> Plan:
        """The work on the files that a manifest does not list."""
        known = {file["name"] for file in earlier["inputs"]}
        files = [file for file in self._listed.files if file.label not in known]
        for file in files:
            source = self._config.input[file.source]
            if source.limit_documents is not None or source.limit_bytes is not None:
                raise DifferentConfigurationError(
                    "Files were added to a source with a limit: its first documents are others.",
                    expected="no limit_documents nor limit_bytes in a source that grows",
                    found=f"{file.label}, which the dataset does not have",
                    where=self._tokens.url,
                    hint="Leave the added files out (input.exclude), make a source of their own of "
                    "them, or begin anew: `beam-bpe encode CONFIG --restart`.",
                )
        return plan_tasks(files, self._config.input)

    def _write_tokens(
        self,
        job: EncodeJob,
        works: Sequence[TaskWork],
        model: Model,
        earlier: Mapping[str, Any] | None,
    ) -> tuple[dict[int, dict[str, Any]], _Made]:
        """Has the tasks written that are not yet; gives the entries of all."""
        from pipelines import generations, progress, runners, writing
        from pipelines.accounting import DocumentTotals
        from pipelines.transforms import ReadTasks, WriteTokenShards

        finished = writing.finished_entries(job, len(works))
        if earlier is not None:
            kept = finished.values()
            generations.remove(generations.unlisted(self._tokens, self._rejects, earlier, kept))
        left = [work for work in works if work.index not in finished]
        if left:
            writing.keep_tokenizer(job.tokenizer, model)
            with (
                progress.shown("encoding tasks", len(left)),
                runners.pipeline(self._config.beam, self._beam_args, self._places) as pipeline,
            ):
                tasks = pipeline | "ReadTasks" >> ReadTasks(works=left)
                tasks | "WriteTokenShards" >> WriteTokenShards(job=job)
        entries = writing.finished_entries(job, len(works))
        self._check_all_there(len(entries), len(works))
        if any(entry["rejects"] for entry in entries.values()):
            self._rejects.settle()
        fresh = sum(
            DocumentTotals.from_json(entries[work.index]["totals"]).all_bytes for work in left
        )
        return entries, _Made(content={}, resumed=bool(finished), bytes=fresh)

    def _other_bad_files(self, totals: Mapping[str, Any]) -> str:
        """Files that could be read when encoding and not when counting, or the other way round."""
        counted = self._counts.read_json("manifest.json") or {}
        before = set(counted.get("totals", {}).get("bad_files", ()))
        other = sorted(before.symmetric_difference(totals["bad_files"]))
        return f"; bad in one of the two alone: {', '.join(other[:10])}" if other else ""

    def _encode_job(
        self, identity: Identity, model: Model, plan_id: str, generation: str
    ) -> EncodeJob:
        from pipelines.writing import EncodeJob

        encode = self._config.encode
        return EncodeJob(
            tokens=self._tokens,
            rejects=self._rejects,
            tokenizer=self._tokenizer_directory,
            tokenizer_fingerprint=model.fingerprint,
            configuration=identity.configuration_fingerprint,
            plan_id=plan_id,
            generation=generation,
            prepend=encode.prepend,
            append=encode.append,
            special_tokens_in_text=encode.special_tokens_in_text,
            id_type=self._id_type(model),
            validation_fraction=encode.validation_fraction,
            readings=self._readings(model),
        )

    def _readings(self, model: Model) -> tuple[SourceReading, ...]:
        from pipelines.work import source_readings

        return source_readings(
            self._config.input,
            model.pattern,
            tuple(model.special_tokens),
            # Documents are cut by neither of them where characters are the smallest tokens.
            normalizer=getattr(model, "normalizer", None),
            normalize_quotes=getattr(model, "normalize_quotes", False),
        )

    # Replaying

    def replay(self, repaired: Mapping[str, str]) -> None:
        """Makes a generation of rejected documents, if any are to be taken."""
        with _importing():
            from pipelines import manifest as records
            from pipelines import replay

        model = self._load_model()
        self._check_affixes(model)
        configuration = {
            **tokens_configuration(self._config, model.fingerprint),
            "id_type": self._id_type(model),
        }

        def planned() -> tuple[replay.Replay, replay.Job]:
            dataset = replay.Dataset(
                tokens=self._tokens,
                rejects=self._rejects,
                manifest=records.dataset_manifest(self._tokens),
                run=self._tokens.read_json(records.RUN) or {},
            )
            records.check_replayable(self._tokens, dataset.manifest, configuration)
            sources = self._config.input
            listed = {file.label: file for file in self._listed.files}
            run = replay.Replay(
                dataset=dataset,
                configuration=configuration,
                sources=sources,
                readings=self._readings(model),
                listed=listed,
                repaired={
                    **replay.repaired_before(repaired, dataset, configuration, sources, listed),
                    **replay.find_repaired(repaired, dataset, sources),
                },
            )
            return run, run.plan()

        run, work = planned()
        begun = time.monotonic()
        state: StageState
        if work.parts:
            self.lock.acquire()
            if records.dataset_manifest(self._tokens) != run.dataset.manifest:
                run, work = planned()  # another build has changed it meanwhile
        if work.parts:
            job = replace(
                self._encode_job(
                    records.Identity(configuration=configuration, inputs={}, marks={}),
                    model,
                    run.plan_id(work),
                    run.name,
                ),
                is_replay=True,
            )
            work.write(job.entries, self._rejects)
            entries, made = self._write_tokens(job, work.works, model, run.dataset.manifest)
            content = run.content(job, work, entries, model)
            seconds = time.monotonic() - begun
            facts = {
                **self._run_facts(seconds),
                "tokenizer": job.tokenizer.url,
                "limits": run.dataset.run.get("limits", {}),
                "repaired_marks": run.repaired_marks,
                "repaired_locations": run.repaired_locations,
            }
            manifest = records.finish_stage(self._tokens, run.identity, content, facts)
            state = "resumed" if made.resumed else "done"
            self._note_stage(
                StageSummary(
                    name=f"replay {run.name}", state=state, seconds=seconds, bytes=made.bytes
                )
            )
        else:
            manifest = dict(run.dataset.manifest)
            state = "nothing taken" if work.left else "already finished"
            self._note_stage(StageSummary(name="replay", state=state))
        self._remove_scratch(self._tokens / "_tasks")
        self._remove_unlisted(manifest)
        self._note_tokens(manifest)
        self.summary = replace(self.summary, warnings=(*self.summary.warnings, *work.warnings))

    def _note_tokens(self, manifest: Mapping[str, Any]) -> None:
        totals = manifest["totals"]
        self._note_documents(totals)
        tokens = totals["tokens"]
        self.summary = replace(
            self.summary,
            tokens=tokens,
            bytes_per_token=totals["text_bytes"] / tokens if tokens else None,
            train_rows=totals["train_rows"],
            validation_rows=totals["validation_rows"],
            outputs={
                **self.summary.outputs,
                "tokenizer": self._tokenizer_directory.url,
                "tokens": self._tokens.url,
                **({"rejects": self._rejects.url} if totals["reasons"] else {}),
            },
        )

    # Shared

    def _stage(
        self,
        name: str,
        directory: Directory,
        configuration: Mapping[str, Any],
        make: Callable[[Identity], _Made],
        grow: Callable[[Identity, Mapping[str, Any]], _Made] | None = None,
    ) -> dict[str, Any]:
        """Makes a stage's output unless it is finished; gives its manifest.

        Args:
            name: of the stage.
            directory: of its output.
            configuration: what decides its bytes.
            make: makes it.
            grow: makes a further generation, given the manifest of the earlier ones.
        """
        from pipelines import generations
        from pipelines import manifest as records

        identity = records.Identity.of(configuration, self._listed)
        for _ in range(2):  # a second time under the lock: another may have made it meanwhile
            earlier = records.finished_manifest(
                directory, identity, may_grow=grow is not None, command=self._command
            )
            known = {} if earlier is None else records.inputs_of(earlier)
            if earlier is not None and not (grow and identity.inputs.keys() - known.keys()):
                records.remove_remains(directory, self.lock.try_acquire)
                self._note_stage(StageSummary(name=name, state="already finished"))
                return earlier
            self.lock.acquire()
        limits = {} if name == "train" else self._limited[1]
        begun = time.monotonic()
        if earlier is None:
            tasks = None if name == "train" else len(self._plan.tasks)
            records.begin_stage(directory, identity, limits, tasks)
            made = make(identity)
        else:
            assert grow is not None, "a stage that can't grow is finished by its manifest"
            made = grow(identity, earlier)
            name = f"{name} {generations.next_name(earlier)}"
        seconds = time.monotonic() - begun
        content = {"stage": directory.name, **made.content}
        facts = {**self._run_facts(seconds), "limits": limits, **made.run}
        manifest = records.finish_stage(directory, identity, content, facts)
        state: Literal["resumed", "done"] = "resumed" if made.resumed else "done"
        self._note_stage(StageSummary(name=name, state=state, seconds=seconds, bytes=made.bytes))
        return manifest

    def _remove_scratch(self, directory: Directory) -> None:
        """Removes what a finished stage needs no more, unless another build is at work."""
        if directory.exists() and self.lock.try_acquire():
            directory.remove_all()

    def _remove_unlisted(self, manifest: Mapping[str, Any]) -> None:
        """Removes what unfinished generations left, unless another build is at work."""
        from pipelines import generations

        unlisted = generations.unlisted(self._tokens, self._rejects, manifest)
        if unlisted and self.lock.try_acquire():
            generations.remove(unlisted)

    def _check_all_there(self, found: int, tasks: int) -> None:
        if found == tasks:
            return
        raise OutputError(
            "Files of this build are gone or changed, though their tasks had finished.",
            expected=f"those of {tasks:,} tasks",
            found=f"those of {found:,}",
            where=self._tokens.url,
            hint="Something else writes into the output. Run the same command again: what is "
            "missing is made again.",
        )

    def _note_stage(self, stage: StageSummary) -> None:
        self.summary = replace(self.summary, stages=(*self.summary.stages, stage))

    def _note_documents(self, totals: Mapping[str, Any]) -> None:
        from pipelines.accounting import DocumentTotals

        found = DocumentTotals.from_json(totals)
        self.summary = replace(
            self.summary,
            documents=found.all_documents,
            bytes=found.all_bytes,
            framing_bytes=found.framing_bytes,
            empty=found.empty,
            not_selected=found.not_selected,
            rejects=found.rejected,
            reasons=found.reasons,
            bad_files=len(found.bad_files),
        )

    def _run_facts(self, seconds: float) -> dict[str, Any]:
        beam = self._config.beam
        workers = beam.workers or usable_cores()
        return {"seconds": round(seconds, 3), "runner": beam.runner, "workers": workers}

    def _check_limits(self, content: Mapping[str, Any], names: Sequence[str]) -> None:
        """Whether more is bad than the configuration allows; `names`: the files of rejects."""
        from pipelines import reject_limits

        config = self._config
        reject_limits.check_bad_files(content["sources"], config.input, self._rejects, names)
        limit = config.encode.max_reject_fraction
        reject_limits.check_rejects(content["totals"], limit, self._rejects, names)

    def _discard_rejects(self, beginning: str) -> None:
        ours = re.compile(beginning + r"\d+-of-\d+\.parquet")
        self._rejects.remove_files([name for name in self._rejects.sizes() if ours.fullmatch(name)])
        self._rejects.remove_leftovers()
        self._rejects.remove_if_empty()
