"""The manifests of the stages: `manifest.json`, and the JSON that it consists of.

These models are the manifests: code reads their attributes, and JSON exists only in the files. A
manifest lists every file of its stage with size and xxh3-128 and has a checksum of its own content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field

from bpe_core.count_groups import Group
from pipelines.config.fingerprints import fingerprint
from pipelines.manifest.entries import (
    CountsTotals,
    DatasetFiles,
    FileEntry,
    GroupEntry,
    InputEntry,
    MixtureEntry,
    ShardEntry,
    SourceEntry,
    TokenFileEntry,
    TokensTotals,
)
from pipelines.manifest.names import SIZES
from pipelines.manifest.records import Corpus, Digest, Number, Record, fits, load_json
from pipelines.versions import deciding_versions

FORMAT_VERSION: Final = 2
StageDirectory: TypeAlias = Literal["counts", "superwords", "tokenizer", "tokens"]


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


Configuration = Annotated[dict[str, Any], fits(_StageConfiguration)]
TokensConfiguration = Annotated[dict[str, Any], fits(_TokensConfiguration)]
Policy = Annotated[dict[str, Any], fits(_Policy)]


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
    groups: Annotated[
        list[GroupEntry] | None,
        Field(
            description="Documents whose counts are kept apart, by source and value; present if "
            "there are several sources, or counts.group_by."
        ),
    ] = None
    fingerprint: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Fingerprint of the counts.")
    ]

    @property
    def group_bytes(self) -> dict[Group, int] | None:
        """Return the bytes of each group, or None if counts are not kept apart."""
        if self.groups is None:
            return None
        return {entry.group: entry.bytes for entry in self.groups}


class CountsManifest(CountsContent, _StageOfSizes):
    """`counts/manifest.json`."""

    directory_name: ClassVar[StageDirectory] = "counts"

    stage: Literal["counts"]

    def listed_files(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the shards."""
        return (("counts", shard) for shard in self.shards)


class TrainedFiles(Record):
    """The files of a trained tokenizer, and facts about it."""

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


class TokenizerContent(TrainedFiles):
    """The result of training, without inputs and configuration."""

    counts: Annotated[
        str, Field(pattern=r"^[0-9a-f]{32}$", description="Fingerprint of the counts.")
    ]
    mixture: Annotated[
        MixtureEntry | None,
        Field(description="Weights of the groups of counts; present if tokenizer.mixture is set."),
    ] = None
    sizes: Annotated[
        list[TrainedFiles],
        Field(
            description="Smaller tokenizers of the same training, ascending, in `sizes/SIZE/`; "
            "present if several sizes are configured."
        ),
    ] = []

    def of_all_sizes(self) -> Iterator[tuple[str, TrainedFiles]]:
        """Yield the tokenizers, each with its directory's path below the stage's, the largest last.

        The path of the largest is empty.
        """
        for size in self.sizes:
            yield f"{SIZES}/{size.vocab_size_asked_for}", size
        yield "", self


class SuperwordsManifest(CountsContent, _StageOfSizes):
    """`superwords/manifest.json`: the tokenizer of the first round, and the runs counted with it.

    Its totals of pre-tokens are those of the runs.
    """

    directory_name: ClassVar[StageDirectory] = "superwords"

    stage: Literal["superwords"]
    tokenizer: Annotated[
        str,
        Field(
            pattern=r"^[0-9a-f]{32}$",
            description="Fingerprint of the tokenizer of the first round.",
        ),
    ]
    vocab_size: Annotated[Number, Field(description="Number of its ids.")]
    tokenizer_files: Annotated[list[FileEntry], Field(min_length=1, description="Its files.")]

    def listed_files(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the shards, and the files of the tokenizer."""
        yield from (("superwords", shard) for shard in self.shards)
        yield from (("superwords", file) for file in self.tokenizer_files)


Counted: TypeAlias = CountsManifest | SuperwordsManifest


class TokenizerManifest(TokenizerContent, _StageOfSizes):
    """`tokenizer/manifest.json`."""

    directory_name: ClassVar[StageDirectory] = "tokenizer"

    stage: Literal["tokenizer"]

    def listed_files(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the files of the tokenizer and of its smaller sizes."""
        for place, trained in self.of_all_sizes():
            for file in trained.files:
                yield f"tokenizer/{place}".rstrip("/"), file


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
    configuration: Annotated[dict[str, Any], fits(_FirstTokensConfiguration)]
    configuration_fingerprint: Digest
    files: FirstTokensFiles
    totals: FirstTokensTotals


MANIFESTS: Final[Mapping[StageDirectory, type[Manifest]]] = {
    model.directory_name: model
    for model in (CountsManifest, SuperwordsManifest, TokenizerManifest, TokensManifest)
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
