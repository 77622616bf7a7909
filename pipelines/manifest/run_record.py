"""Records beside a manifest: `_plan.json` while a stage is unfinished, `run.json` afterwards.

`run.json` names the checksum of its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field

from pipelines.manifest.models import Configuration, Sizes, StageDirectory
from pipelines.manifest.names import RUN
from pipelines.manifest.records import Digest, Number, Record
from pipelines.storage.directory import Directory
from pipelines.tasks.plan import BY_STORED_BYTES, TaskRule


class StagePlan(Record):
    """`_plan.json`: the inputs and the configuration of an unfinished stage."""

    model_config = ConfigDict(extra="allow")

    format: Literal[2]
    configuration: Configuration
    inputs: Sizes
    marks: dict[str, str] = {}
    limits: dict[str, Any] = {}
    tasks: Number | None = None
    commits: dict[str, str] = {}
    # Plans of earlier versions do not name their rule.
    task_rule: TaskRule = BY_STORED_BYTES

    @property
    def input_sizes(self) -> Mapping[str, tuple[int, ...]]:
        """The size of each input file, by label."""
        return {label: (size,) for label, size in self.inputs.items()}


class DistributionEntry(Record):
    """Number, sum, minimum and maximum of the values of a distribution metric."""

    count: Number
    sum: Number
    min: Number
    max: Number


class EngineJobEntry(Record):
    """Job at an engine that did the work of a stage."""

    engine: Annotated[str, Field(description="Flink or Dataflow.")]
    id: Annotated[str, Field(description="The engine's id of the job.")]
    url: Annotated[str, Field(description="Page of the job, without credentials.")]
    state: Annotated[str, Field(description="The last state, in the engine's words.")]
    figures: Annotated[dict[str, float | int], Field(description="The engine's last figures.")]
    messages: Annotated[list[str], Field(description="Warnings and errors of the engine.")] = []


class RunRecord(Record):
    """`run.json`: facts of one run, which depend on the machine and the moment."""

    model_config = ConfigDict(extra="allow")

    stage: StageDirectory
    manifest: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Checksum of the manifest.")
    ]
    finished: Annotated[str, Field(description="Time of the end in UTC, ISO 8601.")]
    seconds: float | int
    runner: str
    workers: Annotated[
        int | None, Field(description="Number of workers; null if the engine decided.")
    ]
    output: str
    metrics: Annotated[
        dict[str, int | DistributionEntry] | None,
        Field(description="Work of the workers and its duration; null if it was not reported."),
    ] = None
    job: Annotated[
        EngineJobEntry | None,
        Field(description="Job at the engine; null if the engine has no page for it."),
    ] = None
    marks: Annotated[dict[str, str], Field(description="ETag or modification time of each input.")]
    locations: Annotated[
        dict[str, str],
        Field(description="Path or URL of each input, if it contains no credentials."),
    ]
    software: dict[str, str]
    tokenizer: Annotated[
        str | None, Field(description="In `tokens/`: path or URL of the tokenizer.")
    ] = None
    counts: Annotated[
        str | None,
        Field(
            description="In `tokenizer/`: path or URL of the counts, if counts.path named them and "
            "it contains no credentials."
        ),
    ] = None
    tasks: Annotated[
        int | None, Field(description="In `counts/`: number of tasks, which rejects are named by.")
    ] = None
    checked: Annotated[
        str | None,
        Field(
            description="In `tokenizer/`: library that returned the same ids as the imported "
            "tokenizer, or why none did."
        ),
    ] = None
    limits: Annotated[
        dict[str, Any], Field(description="Places in files at which the limits of sources end.")
    ] = {}
    commits: Annotated[
        dict[str, str],
        Field(description="Commit of each repository of the Hugging Face Hub, by its URL."),
    ] = {}
    repaired_marks: Annotated[
        dict[str, str], Field(description="`marks` of repaired files, by the label of the input.")
    ] = {}
    repaired_locations: Annotated[
        dict[str, str],
        Field(description="`locations` of repaired files, by the label of the input."),
    ] = {}
    checksum: Digest

    @classmethod
    def load(cls, directory: Directory) -> Self | None:
        """Return the run record in a stage's directory, or None.

        Raises:
            OutputError: the record is damaged.
        """
        return cls.load_file(directory, RUN)
