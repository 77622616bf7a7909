"""State shared by the stages of a command: configuration, inputs, output, lock, report."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from bpe_core.cores import usable_cores
from pipelines.config import BuildConfig
from pipelines.console import progress
from pipelines.manifest.stage import Stage
from pipelines.stages.inputs import Inputs
from pipelines.stages.output import Output
from pipelines.stages.report import Report
from pipelines.storage.directory import Directory
from pipelines.storage.locks import OutputLock
from pipelines.supervisor import deferred_interruption, in_child, pandas_absent

if TYPE_CHECKING:
    from pipelines.stages.pipelines import Pipelines


class Submitted(Exception):  # noqa: N818  # not an error
    """Signal that ends a command after it has submitted a job that it does not wait for."""


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """State of one invocation of a command on a build.

    Attributes:
        config: Configuration of the build.
        inputs: Input files and tasks.
        output: Directories of the output, guarded by the lock.
        lock: Lock of the output.
        report: Collects the summary.
        command: "count", "train", "encode", "build", "add" or "replay".
        beam_args: Beam options, which override those of the configuration.
        no_wait: Submit the first required pipeline, and end.
        repaired: Paths or URLs of repaired files for a replay.
    """

    config: BuildConfig
    inputs: Inputs
    output: Output
    lock: OutputLock
    report: Report
    command: str
    beam_args: tuple[str, ...]
    no_wait: bool
    repaired: tuple[str, ...]

    @classmethod
    def of(
        cls,
        config: BuildConfig,
        command: str = "build",
        beam_args: Sequence[str] = (),
        *,
        no_wait: bool = False,
        take_over: bool = False,
        repaired: Sequence[str] = (),
        redone: Sequence[Stage[Any]] = (),
    ) -> Self:
        """Return the context of a command. Nothing is read or written yet.

        Args:
            config: Configuration of the build.
            command: Name of the command.
            beam_args: Beam options, which override those of the configuration.
            no_wait: Submit the first required pipeline, and end.
            take_over: Take the lock even from a job that has not reported its end.
            repaired: Paths or URLs of repaired files for a replay.
            redone: Stages that are discarded before the command begins.
        """
        root = Directory(url=config.output_path, storage_options=config.output_storage_options)
        lock = OutputLock(root, take_over=take_over)
        output = Output.of(config, lock.guard)
        return cls(
            config=config,
            inputs=Inputs(config, output.root, tuple(redone), may_grow=command != "replay"),
            output=output,
            lock=lock,
            report=Report(root),
            command=command,
            beam_args=tuple(beam_args),
            no_wait=no_wait,
            repaired=tuple(repaired),
        )

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the names of the stages that the command runs, in order."""
        if self.command in ("count", "replay"):
            return (self.command,)
        if self.command == "add":
            return ("encode",)
        superwords = () if self.config.tokenizer.superwords is None else ("superwords",)
        trains = ("count", *superwords, "train")
        if self.command == "train":
            return trains
        imports = () if self.output.imported is None else ("import",)
        return (*(trains if self.config.tokenizer.path is None else imports), "encode")

    def check(self) -> None:
        """Check inputs, output and Beam options before anything is written or removed."""
        self.output.root.check_place()
        self.inputs.check()
        if self._has_beam_options:
            self.pipelines.check_options()

    @cached_property
    def pipelines(self) -> Pipelines:
        """Return the pipelines of the build, run with the options of the command.

        This is the only place where a build imports Beam, which takes longer than everything else
        in a command whose build is finished, in a plan, or with a wrong configuration.
        """
        progress.describe("starting Beam")
        with deferred_interruption(), importing():
            from pipelines.stages.pipelines import Pipelines
        return Pipelines(self.config.beam, self.beam_args, self.places, no_wait=self.no_wait)

    @cached_property
    def workers(self) -> int | None:
        """Return the number of workers, or None if the engine decides it."""
        if self._has_beam_options:
            return self.pipelines.count_workers()
        return self.config.beam.workers or usable_cores()

    @property
    def threads(self) -> int | None:
        """Return the number of workers if they are threads of this process, else None."""
        return None if self._has_beam_options else self.workers

    @property
    def planned_workers(self) -> int | None:
        """Return the number of workers by the configuration, or None if the engine decides it."""
        beam = self.config.beam
        return beam.workers or (usable_cores() if beam.runner == "DirectRunner" else None)

    @property
    def places(self) -> tuple[str, ...]:
        """Return the paths and URLs that workers must reach."""
        config = self.config
        return (
            self.output.root.url,
            self.output.encoder.url,
            *(config.resolve_glob(file) for source in config.input for file in source.files),
            *self.repaired,
        )

    @property
    def _has_beam_options(self) -> bool:
        """Return True if there is a Beam option that only Beam can check (all but the workers)."""
        beam = self.config.beam
        return bool(self.beam_args or beam.options or beam.runner != "DirectRunner" or self.no_wait)


@contextmanager
def importing() -> Iterator[None]:
    """Import Beam faster: without garbage collection, and in a command's child without pandas.

    Collection would take a third of the import time. The imported objects are permanent, so they
    are frozen: later collections skip them. Pipelines of commands have no data frames.
    """
    if "apache_beam" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        with pandas_absent() if in_child() else nullcontext():
            yield
    finally:
        gc.freeze()
        gc.enable()
