"""One run of the command: what all stages share, and how a stage begins and ends."""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from bpe_core.cores import usable_cores
from pipelines.config import BuildConfig
from pipelines.config.values import UINT16_IDS, protocol_of
from pipelines.errors import ConfigError, DifferentConfigurationError
from pipelines.stages.summary import BuildSummary, StageSummary
from pipelines.storage.directory import Directory
from pipelines.storage.locks import OutputLock
from pipelines.tasks.listing import InputFile, leave_out_output, list_files
from pipelines.tasks.plan import Plan, check_size_without_pattern, plan_tasks

if TYPE_CHECKING:
    from pipelines.manifest.stage import Identity
    from pipelines.metrics import Measured
    from pipelines.storage.locks import Guard
    from pipelines.tokenizers.files import Model


@contextmanager
def importing() -> Iterator[None]:
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


_FILES_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a stage made: its part of the manifest and of run.json, and what to tell of the run."""

    content: Mapping[str, Any]
    resumed: bool = False
    bytes: int = 0
    measured: Measured | None = None
    run: Mapping[str, Any] = field(default_factory=dict)


class Submitted(Exception):  # noqa: N818  # not an error
    """Ends a command that has submitted a job and does not wait for it."""


class Run:
    """One run of the command: the configuration, the plan, and what the stages found.

    Args:
        config: of the build.
        beam_args: options of Beam.
        command: "count", "train", "encode" or "build".
        no_wait: submit the first pipeline that is needed, and end.
        take_over: take the output from a job that has not said that it is finished.
        guard: of the build for which a worker goes on; None: this is a build of its own.
    """

    def __init__(
        self,
        config: BuildConfig,
        beam_args: Sequence[str] = (),
        command: str = "build",
        *,
        no_wait: bool = False,
        take_over: bool = False,
        guard: Guard | None = None,
    ) -> None:
        self.config = config
        self.command = command
        self.beam_args = tuple(beam_args)
        self.no_wait = no_wait
        self.repaired: tuple[str, ...] = ()  # files that a replay takes
        output = Directory(url=config.output_path, storage_options=config.output_storage_options)
        self.lock = OutputLock(output, take_over=take_over)
        output = replace(output, guard=self.lock.guard if guard is None else guard)
        self.counts = output / "counts"
        self.tokenizer = output / "tokenizer"
        self.tokens = output / "tokens"
        self.rejects = output / "rejects"
        self.output = output
        self.summary = BuildSummary()

    @cached_property
    def listed(self) -> Plan:
        """The plan as if the sources had no limits."""
        return plan_tasks(self._found[0], self.config.input)

    @property
    def skipped(self) -> int:
        """Number of files that the sources' patterns match in the output of this build."""
        return len(self._found[1])

    @cached_property
    def _found(self) -> tuple[list[InputFile], list[InputFile]]:
        """The input files, and those that are files of the output."""
        sources = self.config.input
        files = [
            file
            for i, source in enumerate(sources)
            for file in list_files(source, index=i, resolve=self.config.resolve_glob)
        ]
        return leave_out_output(files, sources, self.output)

    @cached_property
    def limited(self) -> tuple[Sequence[InputFile], Mapping[str, Any]]:
        """The files up to the limits of their sources, and what was found of these."""
        sources = self.config.input
        if all(source.limit_documents is None and source.limit_bytes is None for source in sources):
            return self.listed.files, {}
        with importing():
            from pipelines.manifest import stage as manifest
            from pipelines.readers import source_limits as limits

        known = manifest.kept_limits((self.counts, self.tokens))
        return limits.limit_files(self.listed.files, sources, known)

    @cached_property
    def plan(self) -> Plan:
        """The work, up to the limits of the sources."""
        files, limits = self.limited
        return plan_tasks(files, self.config.input) if limits else self.listed

    def check_inputs_and_options(self) -> None:
        """Before anything is removed: are there inputs, and does Beam know its options?"""
        _ = self.listed
        self.check_size()
        if self._has_options:
            from pipelines import runners

            options = runners.options_of(
                self.config.beam, self.beam_args, self.places, no_wait=self.no_wait
            )
            if not self.no_wait:
                runners.check_waits(options)

    @property
    def _has_options(self) -> bool:
        """Whether anything is said to Beam but the number of workers."""
        beam = self.config.beam
        return bool(self.beam_args or beam.options or beam.runner != "DirectRunner" or self.no_wait)

    @cached_property
    def workers(self) -> int | None:
        """How many there are; None: the engine decides."""
        beam = self.config.beam
        if not self._has_options:
            return beam.workers or usable_cores()
        from pipelines import runners

        return runners.workers_of(beam, runners.options_of(beam, self.beam_args))

    @property
    def places(self) -> tuple[str, ...]:
        """Where workers read and write."""
        return (
            self.output.url,
            self.tokenizer_directory.url,
            *(self.config.resolve_glob(file) for s in self.config.input for file in s.files),
            *self.repaired,
        )

    def check_size(self) -> None:
        """Whether so much can be counted with the pattern, where that is to be done."""
        tokenizer = self.config.tokenizer
        if tokenizer.path is None and tokenizer.pattern == "none":
            check_size_without_pattern(sum(task.size for task in self.plan.tasks))

    @property
    def tokenizer_directory(self) -> Directory:
        """Of the tokenizer that encodes: the configured one, or the one that was trained."""
        path = self.config.tokenizer.path
        if path is None:
            return self.tokenizer
        url = self.config.resolve(path)
        same = protocol_of(url) == protocol_of(self.output.url)
        return Directory(url=url, storage_options=self.output.storage_options if same else {})

    def finished_dataset(self) -> dict[str, Any] | None:
        """The manifest of the token files, if there is one."""
        from pipelines.manifest.records import read_manifest

        found = read_manifest(self.tokens)
        return found if found is not None and "generations" in found else None

    def plan_of_added(self, earlier: Mapping[str, Any]) -> Plan:
        """The work on the files that a manifest does not list."""
        known = {file["name"] for file in earlier["inputs"]}
        files = [file for file in self.listed.files if file.label not in known]
        for file in files:
            source = self.config.input[file.source]
            if source.limit_documents is not None or source.limit_bytes is not None:
                raise DifferentConfigurationError(
                    "Files were added to a source with a limit: its first documents are others.",
                    expected="no limit_documents nor limit_bytes in a source that grows",
                    found=f"{file.label}, which the dataset does not have",
                    where=self.tokens.url,
                    hint="Leave the added files out (input.exclude), make a source of their own of "
                    "them, or begin anew: `beam-bpe encode CONFIG --restart`.",
                )
        return plan_tasks(files, self.config.input)

    def stage(
        self,
        name: str,
        directory: Directory,
        configuration: Mapping[str, Any],
        make: Callable[[Identity], Made],
        grow: Callable[[Identity, Mapping[str, Any]], Made] | None = None,
    ) -> dict[str, Any]:
        """Makes a stage's output unless it is finished; gives its manifest.

        Args:
            name: of the stage.
            directory: of its output.
            configuration: what decides its bytes.
            make: makes it.
            grow: makes a further generation, given the manifest of the earlier ones.
        """
        from pipelines.manifest import generations
        from pipelines.manifest import stage as records

        identity = records.Identity.of(configuration, self.listed)
        for _ in range(2):  # a second time under the lock: another may have made it meanwhile
            earlier = records.finished_manifest(
                directory, identity, may_grow=grow is not None, command=self.command
            )
            known = {} if earlier is None else records.inputs_of(earlier)
            if earlier is not None and not (grow and identity.inputs.keys() - known.keys()):
                records.remove_remains(directory, self.lock.try_acquire)
                self.note_stage(StageSummary(name=name, state="already finished"))
                return earlier
            self.lock.acquire()
        limits = {} if name == "train" else self.limited[1]
        begun = time.monotonic()
        if earlier is None:
            tasks = None if name == "train" else len(self.plan.tasks)
            records.begin_stage(directory, identity, limits, tasks)
            made = make(identity)
        else:
            assert grow is not None, "a stage that can't grow is finished by its manifest"
            made = grow(identity, earlier)
            name = f"{name} {generations.next_name(earlier)}"
        seconds = time.monotonic() - begun
        content = {"stage": directory.name, **made.content}
        facts = {**self.facts(seconds, made), "limits": limits, **made.run}
        if name == "count":
            facts["tasks"] = len(self.plan.tasks)  # of which the names of files of rejects are
        manifest = records.finish_stage(directory, identity, content, facts)
        self.note_made(name, seconds, made)
        return manifest

    def remove_scratch(self, directory: Directory, ours: str) -> None:
        """Removes what a finished stage needs no more, unless another build is at work.

        Args:
            directory: of the stage, for what is there until it is finished.
            ours: a regex of the paths of what the build writes there; other files stay, and the
                summary says so.
        """
        if directory.exists() and self.lock.try_acquire():
            foreign = directory.remove_below(ours)
            if foreign:
                left = len(foreign) - _FILES_SHOWN
                shown = ", ".join(foreign[:_FILES_SHOWN]) + (f" and {left:,} more" * (left > 0))
                warning = f"{directory.url} stays: no build wrote {shown}"
                if warning not in self.summary.warnings:
                    warnings = (*self.summary.warnings, warning)
                    self.summary = replace(self.summary, warnings=warnings)

    def discard_count_rejects(self) -> None:
        """Removes the rejects that counting noted, by the names that its tasks gave them."""
        from pipelines.manifest.stage import tasks_of
        from pipelines.storage.parquet import is_of_a_build

        tasks = tasks_of(self.counts)
        of = r"\d{5,}" if tasks is None else f"{tasks:05d}"
        ours = re.compile(rf"count-\d{{5,}}-of-{of}\.parquet")
        found = [name for name in self.rejects.sizes() if ours.fullmatch(name)]
        if tasks is None:  # counted by an earlier version, which did not note it
            found = [name for name in found if is_of_a_build(self.rejects, name)]
        self.rejects.remove_files(found)
        self.rejects.remove_leftovers()
        self.rejects.remove_if_empty()

    def remove_unlisted(self, manifest: Mapping[str, Any]) -> None:
        """Removes what unfinished generations left, unless another build is at work."""
        from pipelines.manifest import generations

        unlisted = generations.unlisted(self.tokens, self.rejects, manifest)
        if unlisted and self.lock.try_acquire():
            generations.remove(unlisted)

    def note_stage(self, stage: StageSummary) -> None:
        """Adds a stage to the summary."""
        self.summary = replace(self.summary, stages=(*self.summary.stages, stage))

    def note_made(self, name: str, seconds: float, made: Made) -> None:
        """Adds a stage that did something to the summary."""
        self.note_stage(
            StageSummary(
                name=name,
                state="resumed" if made.resumed else "done",
                seconds=seconds,
                bytes=made.bytes,
                parts={} if made.measured is None else made.measured.seconds,
            )
        )

    def note_documents(self, totals: Mapping[str, Any]) -> None:
        """Puts the accounts of the documents into the summary."""
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

    def facts(self, seconds: float, made: Made) -> dict[str, Any]:
        """What run.json says of a stage, whichever it is."""
        return {
            "seconds": round(seconds, 3),
            "runner": self.config.beam.runner,
            "workers": self.workers,
            "metrics": None if made.measured is None else made.measured.to_json(),
        }

    def check_limits(self, content: Mapping[str, Any], names: Sequence[str]) -> None:
        """Whether more is bad than the configuration allows; `names`: the files of rejects."""
        from pipelines.rejects import thresholds as reject_limits

        config = self.config
        reject_limits.check_bad_files(content["sources"], config.input, self.rejects, names)
        limit = config.encode.max_reject_fraction
        reject_limits.check_rejects(content["totals"], limit, self.rejects, names)

    def load_model(self) -> Model:
        """The tokenizer to encode with."""
        from pipelines.tokenizers.files import load_model

        try:
            return load_model(self.tokenizer_directory)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(
                "There is no tokenizer.",
                expected="a directory with tokenizer.arrow or char_bpe.json",
                found="none",
                where=f"tokenizer.path: {self.tokenizer_directory.url}",
                hint="Check the path, or remove it to train a tokenizer.",
            ) from None

    def id_type(self, model: Model) -> str:
        """The type of ids that is asked for or, if any will do, that they need."""
        asked = self.config.encode.id_type
        if asked == "auto":
            return "uint16" if model.max_id < UINT16_IDS else "uint32"
        if asked == "uint16" and model.max_id >= UINT16_IDS:
            raise ConfigError(
                "The ids do not fit the type asked for.",
                expected=f"uint32 or auto, for ids up to {model.max_id}",
                found="uint16",
                where="encode.id_type",
                hint="Change encode.id_type.",
            )
        return asked
