"""The records that a build leaves on disk: `manifest.json` and `run.json` of each stage.

These models are the records: code reads their attributes, and JSON exists only in the files. The
published JSON schema is generated from them (`python -m pipelines.manifest`).

A manifest lists every file of its stage with size and xxh3-128 and has a checksum of its own
content; `run.json` names that checksum. Both files have one canonical form (sorted keys, two
spaces), so that a change of any byte shows in the checksum or in the form. Manifests from elsewhere
are untrusted: names of files are plain names, and unknown keys and wrong types are errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import models_json_schema

from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.errors import DamagedOutputError
from pipelines.manifest.names import RUN
from pipelines.storage.directory import Directory, json_bytes
from pipelines.tasks.plan import BY_STORED_BYTES, TaskRule
from pipelines.versions import deciding_versions

FORMAT_VERSION: Final = 2
StageDirectory: TypeAlias = Literal["counts", "tokenizer", "tokens"]
Split: TypeAlias = Literal["train", "validation"]

# Plain names: no path that leaves the directory, and no hidden file.
FileName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$",
        description="Name of a file in its directory.",
    ),
]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="xxh3-128, in hexadecimal.")]


def _check_64_bits(number: int) -> int:
    if number >> 63:
        raise ValueError("more than 63 bits")
    return number


Number = Annotated[int, Field(ge=0), AfterValidator(_check_64_bits)]


Corpus = Annotated[
    str,
    Field(
        pattern=r"^[0-9]+-[0-9a-f]{32}$",
        description="Number of kept documents, `-`, sum of their hashes modulo 2^128.",
    ),
]


class Record(BaseModel):
    """A JSON object in a file, or a part of one.

    A key with the default None is absent from the JSON unless it was given.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def to_json(self, *keys: str) -> dict[str, Any]:
        """Return the JSON values of all keys that were given, or of these keys."""
        return self.model_dump(by_alias=True, exclude_unset=True, include=set(keys) or None)

    def fields(self) -> dict[str, Any]:
        """Return the values of the fields that were given, for a record with more fields."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Return the record in the bytes of a file.

        Args:
            data: JSON.
            where: path or URL of the file, for the error.

        Raises:
            OutputError: the bytes are not JSON, or not such a record.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise DamagedOutputError(
                "A file of the output is damaged.",
                expected="JSON as beam-bpe writes it",
                found=first_problem(error),
                where=where,
                hint="Restore it, or start again with --restart.",
            ) from None

    @classmethod
    def load_file(cls, directory: Directory, name: str) -> Self | None:
        """Return the record in a file, or None if there is no such file.

        Raises:
            OutputError: the file is not such a record.
        """
        data = directory.find_bytes(name)
        return None if data is None else cls.parse(data, directory.path(name))

    @classmethod
    def load_files(cls, directory: Directory, names: Sequence[str]) -> Iterator[Self | None]:
        """Yield the records in files, or None for files that do not exist.

        Raises:
            OutputError: a file is not such a record.
        """
        for value in directory.read_json_files(names, cls):
            yield None if value is None else cls.model_validate(value)


def _fits(form: type[Record]) -> AfterValidator:
    """Return a validator for objects that stay dicts, of which code uses the keys of a model."""

    def check(value: dict[str, Any]) -> dict[str, Any]:
        try:
            form.model_validate(value)
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None
        return value

    return AfterValidator(check)


class _ConfiguredSource(Record):
    model_config = ConfigDict(extra="allow")

    name: str | None


class _CountsSettings(Record):
    model_config = ConfigDict(extra="allow")

    shards: Annotated[int, Field(ge=1, le=65536)]


class _StageConfiguration(Record):
    """The settings that determine the bytes of a stage, as far as every stage has them."""

    model_config = ConfigDict(extra="allow")

    input: list[_ConfiguredSource] = []
    counts: _CountsSettings = _CountsSettings(shards=1)
    encode: dict[str, Any] = {}


class _TokensConfiguration(_StageConfiguration):
    """The settings that determine the bytes of token files."""

    input: list[_ConfiguredSource]
    encode: dict[str, Any]
    tokenizer: str
    id_type: Literal["uint16", "uint32"]


class _FirstTokensConfiguration(_StageConfiguration):
    """The settings in a manifest of format 1 that are needed to read its token files."""

    tokenizer: str
    id_type: Literal["uint16", "uint32"]


class _Policy(Record):
    """Rules for invalid documents, for each source by its name, and for encoding."""

    input: dict[str, dict[str, Any]]
    encode: dict[str, Any]


Configuration = Annotated[dict[str, Any], _fits(_StageConfiguration)]
TokensConfiguration = Annotated[dict[str, Any], _fits(_TokensConfiguration)]
Policy = Annotated[dict[str, Any], _fits(_Policy)]


def present(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None, for keys that are absent rather than null.

    >>> present(policy=None, of=["a"])
    {'of': ['a']}
    """
    return {name: value for name, value in fields.items() if value is not None}


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a record in one line: the key and what is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, first["loc"]))
    return f"{key}: {first['msg']}" if key else first["msg"]


# --- files -----------------------------------------------------------------------------------


class FileEntry(Record):
    """A file of the output: name, size in bytes, xxh3-128 of the bytes."""

    name: FileName
    bytes: Number
    xxh3_128: Digest


class TableEntry(FileEntry):
    """A Parquet file of the output."""

    rows: Number


class ShardEntry(TableEntry):
    """A shard of the counts; `pretokens` is the sum of the counts."""

    pretokens: Number


class TokenFileEntry(TableEntry):
    """A token file; `documents` counts rows with part 0, `text_bytes` the source text."""

    documents: Number
    tokens: Number
    text_bytes: Number


class DatasetFiles(Record):
    """The files in `tokens/` and `rejects/`."""

    train: list[TokenFileEntry]
    validation: list[TokenFileEntry]
    rejects: list[TableEntry]
    statistics: list[TableEntry]

    @property
    def token_files(self) -> list[TokenFileEntry]:
        """The token files of both splits."""
        return [*self.train, *self.validation]

    def of_split(self, split: Split) -> list[TokenFileEntry]:
        """Return the token files of a split."""
        return self.train if split == "train" else self.validation


# --- numbers ---------------------------------------------------------------------------------


class DocumentNumbers(Record):
    """Numbers of documents and of bytes of source text, by outcome.

    A document of the input is kept (`documents`), empty, rejected or not selected. For text and
    JSON lines the four numbers of bytes add up to the size of the decompressed files.
    """

    documents: Number
    empty: Number
    rejected: Number
    not_selected: Number
    bytes: Annotated[int, Field(ge=0, description="Source text of the kept documents.")]
    rejected_bytes: Number
    not_selected_bytes: Number
    framing_bytes: Annotated[int, Field(description="Separators and markup around documents.")]
    rows: Annotated[
        int, Field(ge=0, description="Rows of Parquet and Arrow files by their footers; else 0.")
    ]


PlannedBytes = Annotated[
    int | None,
    Field(
        description="Expected sum of the bytes; null if it is unknown in advance, or if the format "
        "has no such sum."
    ),
]


class RepairedInput(Record):
    """A repaired input file; `generation` contains its replayed documents."""

    size: Number
    generation: str


class InputEntry(DocumentNumbers):
    """An input file; `name` is its label in the column `source`."""

    name: str
    size: Annotated[int, Field(ge=0, description="Bytes as stored, compressed or not.")]
    generation: str
    planned_bytes: PlannedBytes
    unread: Annotated[bool, Field(description="Not read, because a selection ends before it.")]
    bad: Annotated[bool, Field(description="Damaged; its readable part was used.")]
    repaired: Annotated[
        RepairedInput | None, Field(description="The file that replaced it in a replay.")
    ] = None
    refused: Annotated[
        Corpus | None,
        Field(description="Its documents rejected for special tokens; present if there are any."),
    ] = None

    @property
    def possible_sizes(self) -> tuple[int, ...]:
        """The size of the file as it was read first and, if it was repaired, as it was then."""
        return (self.size,) if self.repaired is None else (self.size, self.repaired.size)


class CorpusTotals(DocumentNumbers):
    """Numbers of several files; `hash_sum` is the sum of the kept documents' xxh3-128 mod 2^128."""

    hash_sum: Digest
    bad_files: list[str]
    reasons: Annotated[
        dict[str, Number], Field(description="Number of rejects by reason (docs/bad-data.md).")
    ]

    def document_totals(self) -> DocumentTotals:
        """Return the totals as numbers to add up."""
        return DocumentTotals.from_json(self.to_json())


class SourceEntry(CorpusTotals):
    """Numbers of one configured source."""

    name: str | None
    planned_bytes: PlannedBytes


class CountsTotals(CorpusTotals):
    """Numbers of all inputs and of the shards."""

    distinct_pretokens: Number
    pretokens: Number
    long_pretokens: Annotated[int, Field(ge=0, description="Too long, not counted.")]


class TokensTotals(CorpusTotals):
    """Numbers of all inputs and of the token files."""

    train_rows: Number
    validation_rows: Number
    tokens: Number
    text_bytes: Number


# --- manifests -------------------------------------------------------------------------------


class Generation(Record):
    """An increment of the dataset: inputs that were encoded together."""

    name: Annotated[str, Field(pattern=r"^(base|add[0-9]{3,9})$")]
    kind: Annotated[
        Literal["base", "added", "replay"],
        Field(description="base: the first inputs; added: inputs added later; replay: rejects."),
    ]
    tasks: Number
    configuration_fingerprint: Digest
    corpus: Corpus
    corpus_read: Annotated[
        Corpus | None,
        Field(
            description="Kept documents and those rejected for special tokens; present if there "
            "are such rejects."
        ),
    ] = None
    policy: Annotated[
        Policy | None,
        Field(
            description="Rules for invalid documents, if they differ from those of the first "
            "generation."
        ),
    ] = None
    of: Annotated[
        list[str] | None,
        Field(description="For a replay: the reject files that its own files replace."),
    ] = None


class Software(Record):
    """Versions that determine the bytes of the output."""

    bpe_beam: Annotated[str, Field(alias="bpe-beam")]
    pyarrow: str
    zstd: str
    unicode: str
    regex: str


class Manifest(Record):
    """The keys of every manifest."""

    directory_name: ClassVar[StageDirectory]

    format: Literal[2]
    configuration: Annotated[
        Configuration,
        Field(description="Settings that determine the bytes, with defaults filled in."),
    ]
    configuration_fingerprint: Digest
    software: Software
    checksum: Annotated[
        str,
        Field(
            pattern=r"^[0-9a-f]{32}$",
            description="xxh3-128 of all other keys as JSON with sorted keys and no white space.",
        ),
    ]

    @classmethod
    def seal(cls, configuration: Mapping[str, Any], **fields: Any) -> Self:
        """Return a manifest with the keys that follow from others, the checksum last.

        Args:
            configuration: in canonical form.
            fields: keys of the stage.
        """
        unsealed = cls.model_validate(
            {
                "stage": cls.directory_name,
                "format": FORMAT_VERSION,
                "configuration": dict(configuration),
                "configuration_fingerprint": fingerprint(configuration),
                "software": dict(deciding_versions()),
                "checksum": "0" * 32,
                **fields,
            }
        )
        content = unsealed.to_json()
        content.pop("checksum")
        return unsealed.model_copy(update={"checksum": fingerprint(content)})

    @property
    def input_sizes(self) -> Mapping[str, tuple[int, ...]]:
        """The sizes that each input file may have, by label: as read, and as repaired."""
        raise NotImplementedError

    @property
    def configured_sources(self) -> list[dict[str, Any]]:
        """The sources in the configuration."""
        sources: list[dict[str, Any]] = self.configuration["input"]
        return sources

    def listed_files(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the files of the stage, each with the name of its directory."""
        raise NotImplementedError


Sizes = Annotated[
    dict[str, Number], Field(description="Size in bytes of each input file, by its label.")
]


class _StageOfSizes(Manifest):
    """The key of a stage that lists only the sizes of its inputs."""

    inputs: Sizes

    @property
    def input_sizes(self) -> Mapping[str, tuple[int, ...]]:
        """The size of each input file, by label."""
        return {label: (size,) for label, size in self.inputs.items()}


class CountsContent(Record):
    """The content of the counts, without inputs and configuration."""

    sources: Annotated[list[SourceEntry], Field(min_length=1)]
    corpus: Corpus
    shards: Annotated[list[ShardEntry], Field(min_length=1)]
    totals: CountsTotals
    fingerprint: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Fingerprint of the counts.")
    ]


class CountsManifest(CountsContent, _StageOfSizes):
    """`counts/manifest.json`."""

    directory_name: ClassVar[StageDirectory] = "counts"

    stage: Literal["counts"]

    def listed_files(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the shards."""
        return (("counts", shard) for shard in self.shards)


class TokenizerContent(Record):
    """The result of training, without inputs and configuration."""

    counts: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Fingerprint of the counts.")
    ]
    fingerprint: Annotated[
        str,
        Field(
            pattern=r"^[0-9a-f]{32}$",
            description="Fingerprint of everything that determines the ids of a text.",
        ),
    ]
    files: Annotated[list[FileEntry], Field(min_length=1)]
    merges: Number
    vocab_size: Number
    vocab_size_asked_for: Number
    stop_reason: str
    stopped_because: str
    not_written: Annotated[
        dict[str, str],
        Field(
            description="Files of formats that cannot represent the tokenizer, with the reasons."
        ),
    ]


class TokenizerManifest(TokenizerContent, _StageOfSizes):
    """`tokenizer/manifest.json`."""

    directory_name: ClassVar[StageDirectory] = "tokenizer"

    stage: Literal["tokenizer"]

    def listed_files(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the files of the tokenizer."""
        return (("tokenizer", file) for file in self.files)


class ImportedFrom(Record):
    """The source of an imported tokenizer: its format and files, and where the Hub has it."""

    format: str
    files: Annotated[list[FileEntry], Field(min_length=1)]
    repository: Annotated[
        str | None, Field(description="ORG/NAME on the Hugging Face Hub, if it came from there.")
    ] = None
    commit: Annotated[
        str | None, Field(description="Commit of the repository that the files are from.")
    ] = None


class ImportedManifest(Manifest):
    """`tokenizer/manifest.json` of a build that encodes with a published tokenizer."""

    directory_name: ClassVar[StageDirectory] = "tokenizer"

    stage: Literal["tokenizer"]
    imported_from: ImportedFrom
    fingerprint: Annotated[
        str,
        Field(
            pattern=r"^[0-9a-f]{32}$",
            description="Fingerprint of everything that determines the ids of a text.",
        ),
    ]
    files: Annotated[list[FileEntry], Field(min_length=1)]
    vocab_size: Number
    not_written: Annotated[
        dict[str, str],
        Field(
            description="Files of formats that cannot represent the tokenizer, with the reasons."
        ),
    ]

    @property
    def input_sizes(self) -> Mapping[str, tuple[int, ...]]:
        """No sizes: the tokenizer does not depend on the inputs of the build."""
        return {}

    def listed_files(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the files of the tokenizer."""
        return (("tokenizer", file) for file in self.files)


class GenerationContent(Record):
    """The inputs and files of a dataset, or of one generation of it."""

    inputs: list[InputEntry]
    sources: Annotated[list[SourceEntry], Field(min_length=1)]
    corpus: Corpus
    files: DatasetFiles
    totals: TokensTotals


class TokensManifest(GenerationContent, Manifest):
    """`tokens/manifest.json`."""

    directory_name: ClassVar[StageDirectory] = "tokens"

    stage: Literal["tokens"]
    configuration: Annotated[
        TokensConfiguration,
        Field(description="Settings that determine the bytes, with defaults filled in."),
    ]
    tokenizer: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Fingerprint of the tokenizer.")
    ]
    counts: Annotated[
        str | None,
        Field(description="Fingerprint of the counts; null if the tokenizer does not name them."),
    ]
    generations: Annotated[list[Generation], Field(min_length=1)]

    @property
    def input_sizes(self) -> Mapping[str, tuple[int, ...]]:
        """The sizes that each input file may have, by label: as read, and as repaired."""
        return {file.name: file.possible_sizes for file in self.inputs}

    @cached_property
    def inputs_by_label(self) -> dict[str, InputEntry]:
        """The input files by label."""
        return {file.name: file for file in self.inputs}

    def listed_files(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the token files, the statistics and the files of rejects."""
        yield from (("tokens", file) for file in self.files.token_files)
        yield from (("tokens", file) for file in self.files.statistics)
        yield from (("rejects", file) for file in self.files.rejects)


class FirstTokensFiles(Record):
    """The token files in a manifest of format 1."""

    model_config = ConfigDict(extra="ignore")

    train: list[TokenFileEntry]
    validation: list[TokenFileEntry] = []

    @property
    def token_files(self) -> list[TokenFileEntry]:
        """The token files of both splits."""
        return [*self.train, *self.validation]


class FirstTokensTotals(Record):
    """The totals in a manifest of format 1."""

    model_config = ConfigDict(extra="ignore")

    tokens: Number


class FirstTokensManifest(Record):
    """`tokens/manifest.json` of format 1: the keys needed to read its token files."""

    model_config = ConfigDict(extra="ignore")

    format: Literal[1]
    configuration: Annotated[dict[str, Any], _fits(_FirstTokensConfiguration)]
    configuration_fingerprint: Digest
    files: FirstTokensFiles
    totals: FirstTokensTotals


MANIFESTS: Final[Mapping[StageDirectory, type[Manifest]]] = {
    model.directory_name: model for model in (CountsManifest, TokenizerManifest, TokensManifest)
}


def manifest_model(directory: StageDirectory, data: bytes) -> type[Manifest]:
    """Return the model of the manifest in a stage's directory, for these bytes.

    A tokenizer is trained or imported.
    """
    if directory == "tokenizer":
        with suppress(ValueError):
            if "imported_from" in load_json(data):
                return ImportedManifest
    return MANIFESTS[directory]


# --- entries of workers ----------------------------------------------------------------------


class ShardRecord(ShardEntry):
    """The entry of a shard as a worker writes it; that of the first has totals of all."""

    sources: list[CorpusTotals] = []
    long_pretokens: Number = 0

    @property
    def entry(self) -> ShardEntry:
        """The entry in the manifest."""
        return ShardEntry.model_validate(self.to_json(*ShardEntry.model_fields))


class TaskEntry(Record):
    """The files and totals of an encoded task, as a worker writes them.

    `source` is the index of its source, `refused` the corpus of the documents that were rejected
    for special tokens, by input file.
    """

    index: Number
    source: Number
    totals: CorpusTotals
    inputs: dict[str, DocumentNumbers]
    refused: dict[str, Corpus]
    train: TokenFileEntry
    validation: TokenFileEntry | None
    rejects: TableEntry | None
    statistics: TableEntry

    @property
    def dataset_files(self) -> list[TableEntry]:
        """The files of the dataset that the task has written."""
        return [file for file in (self.train, self.validation, self.rejects) if file is not None]


# --- _plan.json ------------------------------------------------------------------------------


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


# --- run.json --------------------------------------------------------------------------------


class DistributionEntry(Record):
    """Number, sum, minimum and maximum of the values of a distribution metric."""

    count: Number
    sum: Number
    min: Number
    max: Number


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
    marks: Annotated[dict[str, str], Field(description="ETag or modification time of each input.")]
    locations: Annotated[
        dict[str, str],
        Field(description="Path or URL of each input, if it contains no credentials."),
    ]
    software: dict[str, str]
    tokenizer: Annotated[
        str | None, Field(description="In `tokens/`: path or URL of the tokenizer.")
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


# --- checksums -------------------------------------------------------------------------------


_R = TypeVar("_R", bound=Record)


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with its checksum.

    >>> sealed({"a": 1})["checksum"] == fingerprint({"a": 1})
    True
    """
    return {**content, "checksum": fingerprint(content)}


def load_json(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file.

    Raises:
        ValueError: the bytes are not a JSON object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} instead of a JSON object")
    return value


def load_sealed(data: bytes) -> dict[str, Any]:
    """Return the JSON object with a checksum in the bytes of a file.

    Raises:
        ValueError: it has another checksum or form than builds write; names the problem.

    >>> load_sealed(json_bytes(sealed({"a": 1})))["a"]
    1
    """
    value = load_json(data)
    if "checksum" not in value:
        raise ValueError("no checksum")
    expected = fingerprint({key: item for key, item in value.items() if key != "checksum"})
    if value["checksum"] != expected:
        raise ValueError(f"checksum {value['checksum']}, but its content has {expected}")
    if json_bytes(value) != data:
        raise ValueError("its content is intact, but not in the form that builds write")
    return value


def parse_sealed(model: type[_R], data: bytes) -> _R:
    """Return the record in the bytes of a `manifest.json` or `run.json`, with all checks.

    Raises:
        ValueError: the bytes are not exactly what a build writes; names the problem.
    """
    value = load_sealed(data)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the three manifests and of `run.json`."""
    models: list[type[BaseModel]] = [*MANIFESTS.values(), ImportedManifest, RunRecord]
    _, schema = models_json_schema([(model, "validation") for model in models])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "manifest.json and run.json of beam-bpe",
        "description": "See docs/manifest.md. $defs contains each model by its name.",
        "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in models],
        "$defs": schema["$defs"],
    }
