"""Input files of a build, and the tasks over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipelines.accounting import planned_bytes_of_sources
from pipelines.config import BuildConfig
from pipelines.errors import DifferentConfigurationError
from pipelines.manifest.models import TokensManifest
from pipelines.manifest.stage import COUNT, Stage
from pipelines.manifest.stage_facts import (
    read_commits,
    read_limits,
    read_number_of_shards,
    read_task_rule,
)
from pipelines.readers.source_limits import limit_files
from pipelines.storage.directory import Directory
from pipelines.tasks.listing import InputFile, leave_out_output, list_files
from pipelines.tasks.plan import (
    BY_TEXT,
    Plan,
    TaskRule,
    check_size_without_pattern,
    choose_shards,
    estimate_text,
    plan_tasks,
)


@dataclass(frozen=True)
class Inputs:
    """Input files and plan of a build, each determined when first needed.

    Attributes:
        config: Configuration of the build.
        output: Output of the build, whose stages may have recorded where limits of sources end,
            and the commits of repositories of the Hub.
        redone: Stages that are discarded before the command begins.
        may_grow: False for a replay, which reads the commits that the dataset was read at.
    """

    config: BuildConfig
    output: Directory
    redone: tuple[Stage[Any], ...] = ()
    may_grow: bool = True

    @cached_property
    def listed(self) -> Plan:
        """Return the plan without the limits of sources."""
        return plan_tasks(self._found[0], self.config.input, self.task_rule)

    @cached_property
    def task_rule(self) -> TaskRule:
        """Return the rule by which files are cut: the newest, or that of an unfinished stage."""
        return read_task_rule(self.output, self.redone)

    @cached_property
    def shards(self) -> int:
        """Return the number of shards of counts: configured, as there already, or by the text."""
        if self.config.counts.shards is not None:
            return self.config.counts.shards
        there = None if COUNT in self.redone else read_number_of_shards(self.output)
        return there or choose_shards(estimate_text(self.plan.files, self.config.input))

    @cached_property
    def commits(self) -> dict[str, str]:
        """Commit of each repository of the Hub that is read; those of an unfinished build."""
        return read_commits(self.output, self.redone, may_grow=self.may_grow)

    @property
    def skipped(self) -> int:
        """Return the number of files in this build's output that match patterns of the input."""
        return len(self._found[1])

    @cached_property
    def _found(self) -> tuple[list[InputFile], list[InputFile]]:
        """Return the input files, and the matching files that belong to the output."""
        sources = self.config.input
        files = [
            file
            for i, source in enumerate(sources)
            for file in list_files(
                source, index=i, resolve=self.config.resolve_glob, commits=self.commits
            )
        ]
        return leave_out_output(files, sources, self.output)

    @cached_property
    def _limited(self) -> tuple[list[InputFile], Mapping[str, Any]]:
        sources = self.config.input
        if all(source.limit_documents is None and source.limit_bytes is None for source in sources):
            return list(self.listed.files), {}
        return limit_files(self.listed.files, sources, read_limits(self.output))

    @property
    def limits(self) -> Mapping[str, Any]:
        """Return the positions where limits of sources end, as stages record them."""
        return self._limited[1]

    @cached_property
    def plan(self) -> Plan:
        """Return the plan up to the limits of sources."""
        files, limits = self._limited
        return plan_tasks(files, self.config.input, self.task_rule) if limits else self.listed

    @property
    def planned_bytes(self) -> tuple[int | None, ...]:
        """Return how many bytes of each source a stage must process; None if not known yet."""
        return tuple(planned_bytes_of_sources(self.plan.files, self.config.input))

    def check(self) -> None:
        """Check that there are inputs, and that they are not too large to count.

        Raises:
            InputError: A pattern matches no file, or a file cannot be read.
            ConfigError: The documents are too large to be counted without a pattern.
        """
        _ = self.listed
        tokenizer = self.config.tokenizer
        if tokenizer.path is None and tokenizer.pattern == "none":
            check_size_without_pattern(sum(task.size for task in self.plan.tasks))

    def plan_added(self, dataset: TokensManifest, where: str, rule: TaskRule = BY_TEXT) -> Plan:
        """Return the plan of the files that a dataset does not contain.

        Args:
            dataset: Manifest of the token files.
            where: URL of the dataset, for the error.
            rule: Rule by which the files are cut.

        Raises:
            DifferentConfigurationError: Files were added to a source with a limit.
        """
        known = dataset.inputs_by_label
        files = [file for file in self.listed.files if file.label not in known]
        for file in files:
            source = self.config.input[file.source]
            if source.limit_documents is not None or source.limit_bytes is not None:
                raise DifferentConfigurationError(
                    "Files were added to a source with a limit, which changes its first documents.",
                    expected="no limit_documents nor limit_bytes in a source that grows",
                    found=f"{file.label}, which the dataset does not contain",
                    where=where,
                    hint="Exclude the added files (input.exclude), move them to a separate "
                    "source, or start over: `beam-bpe encode CONFIG --restart`.",
                )
        return plan_tasks(files, self.config.input, rule)
