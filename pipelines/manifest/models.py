"""The models of `manifest.json` and `run.json`, which the JSON schema and all checks are based on.

Each file is a JSON object with a `checksum` of all other keys, written in one canonical form
(sorted keys, two spaces), so that a change of any byte is detected.

    python -m pipelines.manifest.models > configs/manifest.schema.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.json_schema import models_json_schema

from pipelines.config.fingerprints import fingerprint
from pipelines.storage.directory import json_bytes

FORMAT_VERSION: Final = 2
Stage: TypeAlias = Literal["counts", "tokenizer", "tokens"]

# Plain names: no path that leaves the directory, and no hidden file.
FileName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$",
        description="Name of a file in its directory.",
    ),
]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="xxh3-128, in hexadecimal.")]
Number = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]


Corpus = Annotated[
    str,
    Field(
        pattern=r"^[0-9]+-[0-9a-f]{32}$",
        description="Number of kept documents, `-`, sum of their hashes modulo 2^128.",
    ),
]


def _check_nesting(value: Any, deepest: int = 30) -> Any:
    """Raise an error for JSON that is nested deeper than any that builds write."""
    if not deepest:
        raise ValueError("nested too deep")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        _check_nesting(item, deepest - 1)
    return value


Settings = Annotated[dict[str, Any], BeforeValidator(_check_nesting)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ListedFile(_Part):
    """A file of the output: name, size in bytes, xxh3-128 of the bytes."""

    name: FileName
    bytes: Number
    xxh3_128: Digest


class TableFile(ListedFile):
    """A Parquet file of the output."""

    rows: Number


class ShardFile(TableFile):
    """A shard of the counts; `pretokens` is the sum of the counts."""

    pretokens: Number


class TokenFile(TableFile):
    """A token file; `documents` counts rows with part 0, `text_bytes` the source text."""

    documents: Number
    tokens: Number
    text_bytes: Number


class DocumentNumbers(_Part):
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


class RepairedFile(_Part):
    """A repaired input file; `generation` contains its replayed documents."""

    size: Number
    generation: str


class InputFile(DocumentNumbers):
    """An input file; `name` is its label in the column `source`."""

    name: str
    size: Annotated[int, Field(ge=0, description="Bytes as stored, compressed or not.")]
    generation: str
    planned_bytes: PlannedBytes
    unread: Annotated[bool, Field(description="Not read, because a selection ends before it.")]
    bad: Annotated[bool, Field(description="Damaged; its readable part was used.")]
    repaired: Annotated[
        RepairedFile | None, Field(description="The file that replaced it in a replay.")
    ] = None
    refused: Annotated[
        Corpus | None,
        Field(description="Its documents rejected for special tokens; present if there are any."),
    ] = None


class Totals(DocumentNumbers):
    """Numbers of several files; `hash_sum` is the sum of the kept documents' xxh3-128 mod 2^128."""

    hash_sum: Digest
    bad_files: list[str]
    reasons: Annotated[
        dict[str, Number], Field(description="Number of rejects by reason (docs/bad-data.md).")
    ]


class Source(Totals):
    """Numbers of one configured source."""

    name: str | None
    planned_bytes: PlannedBytes


class CountsTotals(Totals):
    """Numbers of all inputs and of the shards."""

    distinct_pretokens: Number
    pretokens: Number
    long_pretokens: Annotated[int, Field(ge=0, description="Too long, not counted.")]


class TokensTotals(Totals):
    """Numbers of all inputs and of the token files."""

    train_rows: Number
    validation_rows: Number
    tokens: Number
    text_bytes: Number


class TokensFiles(_Part):
    """The files in `tokens/` and `rejects/`."""

    train: list[TokenFile]
    validation: list[TokenFile]
    rejects: list[TableFile]
    statistics: list[TableFile]


class Policy(_Part):
    """Rules for invalid documents: of sources by their name, and of encoding."""

    input: dict[str, dict[str, Any]]
    encode: dict[str, Any]


class Generation(_Part):
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


class Software(_Part):
    """Versions that determine the bytes of the output."""

    bpe_beam: Annotated[str, Field(alias="bpe-beam")]
    pyarrow: str
    zstd: str
    unicode: str
    regex: str


class ConfiguredSource(BaseModel):
    """Settings of a source; those that its files are read with are keys too."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: str | None


class StageConfiguration(BaseModel):
    """Settings that determine the bytes of a stage, with defaults filled in."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    input: list[ConfiguredSource]


class CountsSettings(BaseModel):
    """Settings of counting; others are keys too."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    shards: Annotated[int, Field(ge=1, le=65536)]


class CountsConfiguration(StageConfiguration):
    """Settings that determine the bytes of counts or of a tokenizer trained from them."""

    tokenizer: dict[str, Any]
    counts: CountsSettings


class TokensConfiguration(StageConfiguration):
    """Settings that determine the bytes of token files."""

    tokenizer: str
    encode: dict[str, Any]
    id_type: Literal["uint16", "uint32"]


class _Manifest(_Part):
    format: Literal[2]
    configuration_fingerprint: Digest
    software: Software
    checksum: Annotated[
        str,
        Field(
            pattern=r"^[0-9a-f]{32}$",
            description="xxh3-128 of all other keys as JSON with sorted keys and no white space.",
        ),
    ]


Sizes = Annotated[
    dict[str, Number], Field(description="Size in bytes of each input file, by its label.")
]


class CountsManifest(_Manifest):
    """`counts/manifest.json`."""

    configuration: Annotated[CountsConfiguration, BeforeValidator(_check_nesting)]
    stage: Literal["counts"]
    inputs: Sizes
    sources: list[Source]
    corpus: Corpus
    shards: Annotated[list[ShardFile], Field(min_length=1)]
    totals: CountsTotals
    fingerprint: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Fingerprint of the counts.")
    ]


class TokenizerManifest(_Manifest):
    """`tokenizer/manifest.json`."""

    configuration: Annotated[CountsConfiguration, BeforeValidator(_check_nesting)]
    stage: Literal["tokenizer"]
    inputs: Sizes
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
    files: Annotated[list[ListedFile], Field(min_length=1)]
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


class TokensManifest(_Manifest):
    """`tokens/manifest.json`."""

    stage: Literal["tokens"]
    configuration: Annotated[TokensConfiguration, BeforeValidator(_check_nesting)]
    tokenizer: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Fingerprint of the tokenizer.")
    ]
    counts: Annotated[
        str | None,
        Field(description="Fingerprint of the counts; null if the tokenizer does not name them."),
    ]
    generations: Annotated[list[Generation], Field(min_length=1)]
    inputs: list[InputFile]
    sources: list[Source]
    corpus: Corpus
    files: TokensFiles
    totals: TokensTotals


class SectionRecord(_Part):
    """A sorted section of a run."""

    run: FileName
    offset: Number
    length: Number
    hash: str


class CommitRecord(_Part):
    """What a worker notes of tasks that it has counted: their hashes by index, and the runs."""

    plan_id: str
    tasks: dict[Annotated[str, Field(pattern=r"^[0-9]{1,12}$")], Digest]
    runs: list[list[SectionRecord]]
    sources: list[Totals]
    long_pretokens: Number
    fingerprint: Digest


class ShardEntry(ShardFile):
    """What a worker notes of a shard; the first one has the totals of the sources."""

    sources: list[Totals] = []
    long_pretokens: Number = 0


class TaskEntry(_Part):
    """What a worker notes of a task that is encoded."""

    index: Number
    source: Number
    totals: Totals
    inputs: dict[str, DocumentNumbers]
    refused: dict[str, Corpus]
    train: TokenFile
    validation: TokenFile | None
    rejects: TableFile | None
    statistics: TableFile


class TrainedContent(_Part):
    """The part of `tokenizer/manifest.json` that training gives."""

    counts: Digest
    fingerprint: Digest
    files: list[ListedFile]
    merges: Number
    vocab_size: Number
    vocab_size_asked_for: Number
    stop_reason: str
    stopped_because: str
    not_written: dict[str, str]


class TrainedEntry(_Part):
    """What a worker notes of a tokenizer that it has trained."""

    configuration: Digest
    content: TrainedContent


class ExportedFile(_Part):
    """A file of an export, also in the directory of a split."""

    name: Annotated[str, Field(pattern=r"^((train|validation)/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
    bytes: Number
    xxh3_128: Digest


class _ExportedRows(TableFile):
    tokens: Number


class WriteEntry(_Part):
    """What a worker notes of a file of rows that it has exported in the order of the corpus."""

    documents: Number
    file: _ExportedRows


class GatherEntry(_Part):
    """What a worker notes of a file of rows that it has gathered from runs."""

    file: _ExportedRows


class _ExportRun(_Part):
    name: FileName
    bytes: Number
    index: Number
    flushes: Number


class ScatterEntry(_Part):
    """What a worker notes of a run of rows that are to be gathered."""

    documents: Number
    run: _ExportRun
    buckets: list[Number]


class ExportIdentity(BaseModel):
    """What decides the bytes of an export; `_export.json` while it is being made."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    format: int
    to: str
    split: str
    options: Settings
    dataset: dict[str, str]


class ExportManifest(ExportIdentity):
    """`export.json`."""

    splits: dict[str, dict[str, int]]
    files: Annotated[list[ExportedFile], Field(min_length=1)]


class Plan(BaseModel):
    """`_plan.json`: what an unfinished stage was begun with."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    format: Literal[2]
    configuration: Annotated[StageConfiguration, BeforeValidator(_check_nesting)]
    inputs: Sizes
    marks: dict[str, str] = {}
    limits: Settings = {}
    tasks: Number | None = None


class RunFacts(BaseModel):
    """The part of `run.json` that later commands use."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    marks: dict[str, str] = {}
    locations: dict[str, str] = {}
    repaired_marks: dict[str, str] = {}
    repaired_locations: dict[str, str] = {}
    limits: Settings = {}
    tasks: Number | None = None
    tokenizer: str | None = None


class Distribution(BaseModel):
    """Number, sum, minimum and maximum of the values of a distribution metric."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    count: Number
    sum: Number
    min: Number
    max: Number


class RunRecord(BaseModel):
    """`run.json`: facts of one run, which depend on the machine and the moment."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    stage: Stage
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
        dict[str, int | Distribution] | None,
        Field(description="Work of the workers and its duration; null if it was not reported."),
    ] = None
    marks: Annotated[dict[str, str], Field(description="ETag or modification time of each input.")]
    locations: Annotated[
        dict[str, str],
        Field(description="Path or URL of each input, if it contains no credentials."),
    ]
    software: dict[str, str]
    checksum: Digest


MANIFESTS: Final[Mapping[Stage, type[_Manifest]]] = {
    "counts": CountsManifest,
    "tokenizer": TokenizerManifest,
    "tokens": TokensManifest,
}


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its checksum.

    >>> sealed({"a": 1})["checksum"] == fingerprint({"a": 1})
    True
    """
    return {**content, "checksum": fingerprint(content)}


def problem_of_seal(data: bytes) -> str | None:
    """What is wrong with the bytes of a JSON object with a checksum, None if nothing is.

    >>> problem_of_seal(b"{}"), problem_of_seal(json_bytes(sealed({"a": 1})))
    ('no checksum', None)
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    if not isinstance(value, dict):
        return f"no JSON object, but {type(value).__name__}"
    content = {key: item for key, item in value.items() if key != "checksum"}
    if "checksum" not in value:
        return "no checksum"
    if value["checksum"] != fingerprint(content):
        return f"checksum {fingerprint(content)} of its content, where it says {value['checksum']}"
    if json_bytes(value) != data:
        return "its content is whole, but not written as builds write it"
    return None


def problem_of(data: bytes, model: type[BaseModel]) -> str | None:
    """What is wrong with the bytes of a `manifest.json` or `run.json`, None if nothing is.

    >>> problem_of(b"{}", CountsManifest)
    'no checksum'
    """
    problem = problem_of_seal(data)
    if problem is not None:
        return problem
    try:
        model.model_validate(json.loads(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


def json_schema() -> dict[str, Any]:
    """The JSON schema of the three manifests and of `run.json`."""
    models: list[type[BaseModel]] = [*MANIFESTS.values(), RunRecord]
    _, schema = models_json_schema([(model, "validation") for model in models])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "manifest.json and run.json of beam-bpe",
        "description": "See docs/manifest.md. $defs contains each model by its name.",
        "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in models],
        "$defs": schema["$defs"],
    }


def main() -> None:
    """Write the JSON schema to standard output."""
    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
