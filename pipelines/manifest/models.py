"""The form of `manifest.json` and `run.json`: what is documented, and what is read is held against.

Each is a JSON object with a `checksum` of all else in it, written in one form (sorted keys, two
spaces), so that no byte of it can change unnoticed.

    python -m pipelines.manifest.models > configs/manifest.schema.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import models_json_schema

from pipelines.config.fingerprints import fingerprint
from pipelines.storage.directory import json_bytes

FORMAT_VERSION: Final = 2
Stage: TypeAlias = Literal["counts", "tokenizer", "tokens"]

# Plain names: nothing that leads out of the directory, and nothing hidden.
FileName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$", description="In the directory.")
]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="xxh3-128, in hexadecimal.")]
Number = Annotated[int, Field(ge=0)]


Corpus = Annotated[
    str,
    Field(
        pattern=r"^[0-9]+-[0-9a-f]{32}$",
        description="Number of kept documents and sum of their hashes.",
    ),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ListedFile(_Part):
    """A file of the output: its name, its size in bytes, and the xxh3-128 of its bytes."""

    name: FileName
    bytes: Number
    xxh3_128: Digest


class TableFile(ListedFile):
    """A Parquet file of the output."""

    rows: Number


class ShardFile(TableFile):
    """A shard of the counts; `pretokens` is the sum of its counts."""

    pretokens: Number


class TokenFile(TableFile):
    """A token file; `documents` are rows with part 0, `text_bytes` those of the source text."""

    documents: Number
    tokens: Number
    text_bytes: Number


class DocumentNumbers(_Part):
    """What became of documents, and of the bytes of their source text.

    Documents in the input are the kept (`documents`), the empty, the rejected and the not
    selected ones. For text and JSON lines the four numbers of bytes are together the decompressed
    files.
    """

    documents: Number
    empty: Number
    rejected: Number
    not_selected: Number
    bytes: Annotated[int, Field(ge=0, description="Of the kept documents.")]
    rejected_bytes: Number
    not_selected_bytes: Number
    framing_bytes: Annotated[int, Field(description="What stands between and around documents.")]
    rows: Annotated[
        int, Field(ge=0, description="Of Parquet and Arrow files, as their footers say; else 0.")
    ]


PlannedBytes = Annotated[
    int | None,
    Field(description="What the bytes must add up to; null: not known before, or no such form."),
]


class RepairedFile(_Part):
    """A repaired input file; `generation` is what was made of it."""

    size: Number
    generation: str


class InputFile(DocumentNumbers):
    """An input file, by its label in the column `source`."""

    name: str
    size: Annotated[int, Field(ge=0, description="Bytes, as stored.")]
    generation: str
    planned_bytes: PlannedBytes
    unread: Annotated[bool, Field(description="Left out by a selection without being read.")]
    bad: Annotated[bool, Field(description="Damaged; what could be read of it was used.")]
    repaired: Annotated[
        RepairedFile | None, Field(description="What took its place in a replay.")
    ] = None
    refused: Annotated[
        Corpus | None, Field(description="Of documents rejected for special tokens, if any are.")
    ] = None


class Totals(DocumentNumbers):
    """Of several files; `hash_sum` is of the kept documents' xxh3-128, modulo 2^128."""

    hash_sum: Digest
    bad_files: list[str]
    reasons: Annotated[
        dict[str, Number], Field(description="Of rejects: numbers by reason (docs/bad-data.md).")
    ]


class Source(Totals):
    """What became of one configured source."""

    name: str | None
    planned_bytes: PlannedBytes


class CountsTotals(Totals):
    """Of all inputs, and of the shards."""

    distinct_pretokens: Number
    pretokens: Number
    long_pretokens: Annotated[int, Field(ge=0, description="Not counted: too long.")]


class TokensTotals(Totals):
    """Of all inputs, and of the token files."""

    train_rows: Number
    validation_rows: Number
    tokens: Number
    text_bytes: Number


class TokensFiles(_Part):
    """The files of `tokens/`, and those of `rejects/`."""

    train: list[TokenFile]
    validation: list[TokenFile]
    rejects: list[TableFile]
    statistics: list[TableFile]


class Generation(_Part):
    """Inputs that were encoded together: `base`, then those added later."""

    name: Annotated[str, Field(pattern=r"^(base|add[0-9]{3,9})$")]
    kind: Annotated[
        Literal["base", "added", "replay"], Field(description="Of what: all files, more, rejects.")
    ]
    tasks: Number
    configuration_fingerprint: Digest
    corpus: Corpus
    corpus_read: Annotated[
        Corpus | None,
        Field(description="With the documents that were refused for special tokens, if any were."),
    ] = None
    policy: Annotated[
        dict[str, Any] | None,
        Field(description="What became of wrong documents, where that was not as for the first."),
    ] = None
    of: Annotated[
        list[str] | None,
        Field(description="Of a replay: the files of rejects that its own take the place of."),
    ] = None


class Software(_Part):
    """Versions of what decides the bytes of the output."""

    bpe_beam: Annotated[str, Field(alias="bpe-beam")]
    pyarrow: str
    zstd: str
    unicode: str
    regex: str


class _Manifest(_Part):
    format: Literal[2]
    configuration: Annotated[
        dict[str, Any], Field(description="Canonical: what has no influence is left out.")
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


Sizes = Annotated[dict[str, Number], Field(description="Of each input file, by its label.")]


class CountsManifest(_Manifest):
    """`counts/manifest.json`."""

    stage: Literal["counts"]
    inputs: Sizes
    sources: list[Source]
    corpus: Corpus
    shards: list[ShardFile]
    totals: CountsTotals
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="Of the counts.")]


class TokenizerManifest(_Manifest):
    """`tokenizer/manifest.json`."""

    stage: Literal["tokenizer"]
    inputs: Sizes
    counts: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="Their fingerprint.")]
    fingerprint: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Of what decides the ids of a text.")
    ]
    files: list[ListedFile]
    merges: Number
    vocab_size: Number
    vocab_size_asked_for: Number
    stop_reason: str
    stopped_because: str
    not_written: Annotated[
        dict[str, str], Field(description="Formats that can't hold the tokenizer, and why.")
    ]


class TokensManifest(_Manifest):
    """`tokens/manifest.json`."""

    stage: Literal["tokens"]
    tokenizer: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Fingerprint of what encoded.")
    ]
    counts: Annotated[
        str | None,
        Field(description="Fingerprint of the counts; null: the tokenizer does not say."),
    ]
    generations: list[Generation]
    inputs: list[InputFile]
    sources: list[Source]
    corpus: Corpus
    files: TokensFiles
    totals: TokensTotals


class Distribution(BaseModel):
    """The values of a metric that tells times: their number, sum, least and greatest."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    count: Number
    sum: Number
    min: Number
    max: Number


class RunRecord(BaseModel):
    """`run.json`: what depends on the machine and the moment; no output depends on it."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    stage: Stage
    manifest: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="The checksum of the manifest.")
    ]
    finished: Annotated[str, Field(description="Time in UTC, ISO 8601.")]
    seconds: float | int
    runner: str
    workers: Annotated[
        int | None, Field(description="How many there were; null: the engine decided.")
    ]
    output: str
    metrics: Annotated[
        dict[str, int | Distribution] | None,
        Field(description="What the workers did and how long it took; null: nobody told."),
    ] = None
    marks: Annotated[dict[str, str], Field(description="ETag or time of change of each input.")]
    locations: Annotated[
        dict[str, str], Field(description="Path or URL of each input, without credentials.")
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
        "description": "See docs/manifest.md. $defs has each by its name.",
        "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in models],
        "$defs": schema["$defs"],
    }


def main() -> None:
    """Write the JSON schema to standard output."""
    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
