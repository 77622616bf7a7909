"""The complete configuration, and its loading from a file."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    Strict,
    ValidationError,
    model_validator,
)

from pipelines.choices import Runner
from pipelines.config.mixture import group_problems
from pipelines.config.source import SourceConfig
from pipelines.config.tokenizer import TokenizerConfig
from pipelines.config.validation import did_you_mean, problems_of, refusal
from pipelines.config.values import (
    UINT16_IDS,
    Fraction,
    MemorySize,
    Number,
    Options,
    Section,
    Shards,
    Size,
    Text,
    check_id_field,
    is_inside,
    is_url,
    options_key,
    parse_field_path,
    protocol_of,
    size_key,
)
from pipelines.config.yaml_document import Problem, YamlDocument, describe_value, raise_problems
from pipelines.errors import ConfigError, shortened

_SIZES_SHOWN: Final = 12


class CountsConfig(Section):
    """Counting of pre-tokens."""

    path: Text | None = Field(
        default=None,
        description="Directory of finished counts to train from, which `beam-bpe count` or "
        "`beam-bpe counts` wrote; null: count the input.",
    )
    shards: Shards | None = Field(
        default=None,
        description="Number of Parquet files that hold the counts; null: one for each 64 MiB of "
        "text, at most 64.",
    )
    memory: MemorySize = size_key(
        "512MiB",
        "Memory for the count tables of one process, in bytes; its workers share it.",
    )
    checkpoint_bytes: Size = size_key(
        "8GiB",
        "Bytes of text that a worker counts before it commits its finished tasks; committed tasks "
        "are not repeated.",
    )
    max_pretoken_bytes: Size = size_key("1MiB", "Maximum length of a pre-token, in bytes.")
    on_long_pretoken: Literal["error", "skip"] = Field(
        default="error",
        description="Action for longer pre-tokens: stop with an error (error), or leave them out "
        "of the counts (skip).",
    )
    keep_file_counts: bool = Field(
        default=False,
        description="Keep the sorted counts of each file below `counts/`, so that `count --update` "
        "can subtract files that changed or were removed.",
    )
    group_by: Annotated[Any, PlainValidator(check_id_field, json_schema_input_type=Text | None)] = (
        Field(
            default=None,
            description="Field of the records, such as `lang`, by whose text counts are kept apart "
            "too; null: by source alone, if there are several. A record without it has the text "
            '`""`.',
        )
    )
    document_frequency: bool = Field(
        default=False,
        description="Count the documents with each pre-token, too.",
    )

    @property
    def group_path(self) -> tuple[str, ...] | None:
        """Return the path in `group_by`."""
        return None if self.group_by is None else parse_field_path(self.group_by)


class EncodeConfig(Section):
    """Encoding into token files."""

    prepend: Text | None = Field(
        default=None, description="Special token to put before every document; null: none."
    )
    append: Text | None = Field(
        default="<|endoftext|>",
        description="Special token to put after every document; null: none.",
    )
    special_tokens_in_text: Literal["split", "text", "reject", "error"] = Field(
        default="split",
        description="Action for special tokens found in the text of a document: replace them with "
        "their ids (split), encode them as ordinary text (text), reject the document (reject), or "
        "stop with an error (error). Counting always splits text at them.",
    )
    vocab_size: Number | None = Field(
        default=None,
        description="Size of the tokenizer to encode with, one of the list tokenizer.vocab_size; "
        "null: the largest.",
    )
    id_type: Literal["auto", "uint16", "uint32"] = Field(
        default="auto",
        description="Integer type of the token ids; auto: the smallest that fits the largest id.",
    )
    validation_fraction: Annotated[Fraction, Field(lt=1.0)] = Field(
        default=0.0,
        description="Share of the documents (0 to below 1) to write to the validation files.",
    )
    max_reject_fraction: Fraction = Field(
        default=0.0,
        description="Maximum share (0 to 1) of rejected documents among the kept and rejected "
        "ones; the build fails above it.",
    )


class BeamConfig(Section):
    """Runner and parallelism of the pipelines. Does not affect any output."""

    runner: Runner = Field(default="DirectRunner", description="Name of the Beam runner.")
    workers: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Number of workers; 0: all cores with DirectRunner, otherwise the runner's "
        "default.",
    )
    options: Options = options_key("Beam pipeline options, by name.")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, Mapping | SourceConfig) else value


class BuildConfig(Section):
    """Configuration of a build: a tokenizer trained on a corpus, and the corpus encoded with it.

    >>> config = BuildConfig(output="out", input={"files": ["data/*.txt"]})
    >>> config.tokenizer.vocab_size, config.input[0].range_bytes
    (32000, 67108864)
    """

    output: Text = Field(
        description="Directory or fsspec URL for all output. A relative path is relative to the "
        "configuration file."
    )
    output_storage_options: Options = options_key(
        "Options of the fsspec file system of `output`; `${NAME}` in a value stands for that "
        "environment variable."
    )
    input: Annotated[
        tuple[SourceConfig, ...],
        Strict(False),
        Field(min_length=1),
        BeforeValidator(
            _as_list,
            json_schema_input_type=SourceConfig
            | Annotated[list[SourceConfig], Field(min_length=1)],
        ),
    ] = Field(description="One source of documents, or a list of sources, each with a name.")
    tokenizer: TokenizerConfig = Field(
        default_factory=TokenizerConfig, description="The tokenizer to train or to use."
    )
    counts: CountsConfig = Field(
        default_factory=CountsConfig, description="Counting of pre-tokens."
    )
    encode: EncodeConfig = Field(
        default_factory=EncodeConfig, description="Encoding into token files."
    )
    beam: BeamConfig = Field(
        default_factory=BeamConfig, description="Runner and parallelism of the pipelines."
    )
    report: bool = Field(
        default=True,
        description="Write `report.html`, a page about the dataset, when a build is finished.",
    )

    _base_dir: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def base_dir(self) -> Path:
        """Return the directory of the configuration file, the base of relative paths."""
        return self._base_dir

    @property
    def output_path(self) -> str:
        """Return `output` as an absolute path, or unchanged if it is a URL."""
        return self.resolve(self.output)

    def resolve(self, path: str) -> str:
        """Return a path of the configuration as an absolute path, or unchanged if it is a URL."""
        if is_url(path):
            return path
        return os.path.normpath(os.path.join(self.base_dir, os.path.expanduser(path)))  # noqa: PTH111, PTH118

    def resolve_glob(self, pattern: str) -> str:
        """Resolve a glob like a path, with the special characters of the base directory escaped."""
        if is_url(pattern):
            return pattern
        base = glob.escape(str(self.base_dir))
        return os.path.normpath(os.path.join(base, os.path.expanduser(pattern)))  # noqa: PTH111, PTH118

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = [
            *self._source_name_problems(),
            *self._group_problems(),
            *self._special_token_problems(),
            *self._vocab_size_problems(),
            *self._training_problems(),
        ]
        if protocol_of(self.output) == "hf":
            problems.append(
                Problem(
                    ("output",),
                    expected="a directory, or the URL of a storage that builds can write to",
                    found=describe_value(self.output),
                    hint="Build elsewhere, and upload the result: `beam-bpe export OUTPUT "
                    "hf://datasets/ORG/NAME --to documents`.",
                )
            )
        trained = self.tokenizer.path is None
        if trained and self.encode.id_type == "uint16" and self.encoded_vocab_size > UINT16_IDS:
            problems.append(
                Problem(
                    ("encode", "id_type"),
                    expected=f"uint32 or auto: ids up to {self.encoded_vocab_size - 1} do not "
                    "fit uint16",
                    found="'uint16'",
                    hint=f"Change id_type, or tokenizer.vocab_size to at most {UINT16_IDS}.",
                )
            )
        if problems:
            raise refusal(*problems)
        return self

    @property
    def encoded_vocab_size(self) -> int:
        """Return the size of the trained tokenizer that encodes."""
        return self.encode.vocab_size or self.tokenizer.largest_vocab_size

    def _vocab_size_problems(self) -> Iterator[Problem]:
        size = self.encode.vocab_size
        if size is None:
            return
        if self.tokenizer.path is not None:
            yield Problem(
                ("encode", "vocab_size"),
                expected="null with tokenizer.path, a finished tokenizer of one size",
                found=str(size),
            )
        elif size not in self.tokenizer.vocab_sizes:
            yield Problem(
                ("encode", "vocab_size"),
                expected="one of the sizes in tokenizer.vocab_size, "
                f"{shortened(list(map(str, self.tokenizer.vocab_sizes)), _SIZES_SHOWN)}, or null",
                found=str(size),
                hint="Add it to tokenizer.vocab_size.",
            )

    def _source_name_problems(self) -> Iterator[Problem]:
        if len(self.input) == 1:
            return
        first: dict[str, int] = {}
        for index, source in enumerate(self.input):
            if source.name is None:
                yield Problem(
                    ("input", index, "name"),
                    expected="a name for each of several sources",
                    found="no name",
                    hint="Add `name:`; the column `source` of the output contains it.",
                )
            elif source.name in first:
                yield Problem(
                    ("input", index, "name"),
                    expected="a different name for each source",
                    found=f"{source.name!r}, the name of input[{first[source.name]}]",
                )
            else:
                first[source.name] = index

    def _group_problems(self) -> Iterator[Problem]:
        path = self.counts.group_path
        if path is None:
            return
        records = [source for source in self.input if source.format != "text"]
        if not records:
            yield Problem(
                ("counts", "group_by"),
                expected="null for text files, which have no records with fields",
                found=describe_value(self.counts.group_by),
                hint="Remove counts.group_by: several sources are counted apart by their names.",
            )
        for source in records:
            for other in (
                *source.text_fields,
                *([] if source.id_path is None else [source.id_path]),
            ):
                if path != other and is_inside(path, other):
                    yield Problem(
                        ("counts", "group_by"),
                        expected="a field that is not inside text_field or id_field, nor around it",
                        found=describe_value(self.counts.group_by),
                    )

    def _training_problems(self) -> Iterator[Problem]:
        """Yield the keys of training that need counts of groups or documents which there are not.

        Those of groups are `mixture`, `parity` and `min_sources`. The groups of counts at
        `counts.path` are checked when they are opened.
        """
        if self.counts.path is not None:
            return
        tokenizer, sources = self.tokenizer, [source.name for source in self.input]
        for key in ("mixture", "parity"):
            section = getattr(tokenizer, key)
            if section is not None:
                path = ("tokenizer", key)
                yield from group_problems(section, path, sources, self.counts.group_by)
        if tokenizer.parity is not None and tokenizer.parity.development is not None:
            yield from self._development_problems(tokenizer.parity.development)
        if tokenizer.min_documents > 1 and not self.counts.document_frequency:
            yield Problem(
                ("tokenizer", "min_documents"),
                expected="counts.document_frequency: true, so that documents are counted",
                found=f"min_documents: {tokenizer.min_documents} without it",
                hint="Set counts.document_frequency: true; the text is counted again.",
            )
        if tokenizer.min_sources > len(sources):
            yield Problem(
                ("tokenizer", "min_sources"),
                expected=f"at most {len(sources)}, the number of sources",
                found=str(tokenizer.min_sources),
            )

    def _development_problems(self, name: str) -> Iterator[Problem]:
        path = ("tokenizer", "parity", "development")
        names = [source.name for source in self.input if source.name is not None]
        if self.tokenizer.parity is not None and self.tokenizer.parity.by == "source":
            yield Problem(
                path,
                expected="`by` with the field of counts.group_by, whose values the text has too",
                found="by: source",
            )
        elif name not in names or len(names) < 2:
            yield Problem(
                path,
                expected="the name of one of several sources",
                found=describe_value(name),
                hint=did_you_mean(name, names),
            )

    def _special_token_problems(self) -> Iterator[Problem]:
        if self.tokenizer.path is not None or self.tokenizer.base is not None:
            return
        for key in ("prepend", "append"):
            token = getattr(self.encode, key)
            if token is not None and token not in self.tokenizer.special_tokens:
                given = key in self.encode.model_fields_set
                yield Problem(
                    ("encode", key),
                    expected="one of tokenizer.special_tokens "
                    f"({json.dumps(self.tokenizer.special_tokens, ensure_ascii=False)}), or null",
                    found=describe_value(token) + ("" if given else ", the default"),
                    hint=did_you_mean(token, self.tokenizer.special_tokens)
                    or f"Add it to tokenizer.special_tokens, or set encode.{key}.",
                )


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> BuildConfig:
    """Read a configuration file and apply overrides of the form `key=value`.

    An override of `tokenizer.path` replaces the whole tokenizer section of the file. Relative
    paths, also those in overrides, are relative to the configuration file.

    Raises:
        ConfigError: Something is wrong; the error lists each problem with its key and position.
    """
    source = YamlDocument.from_file(Path(path))
    for override in overrides:
        source.override(override)
    given = {override.partition("=")[0].strip() for override in overrides}
    if "tokenizer.path" in given and source.values["tokenizer"]["path"] is not None:
        source.leave_out_of_file("tokenizer")
    return _validate(source, Path(path).absolute().parent)


def read_config(given: BuildConfig | Mapping[str, Any] | str | os.PathLike[str]) -> BuildConfig:
    """Return a configuration, given as such, as the path of its file, or as its keys and values.

    Relative paths of a mapping are relative to the current directory.

    Raises:
        ConfigError: Something is wrong; the error lists each problem with its key.

    Example:
        >>> config = read_config({"output": "out", "input": {"files": ["*.txt"], "format": "text"}})
        >>> config.input[0].files
        ('*.txt',)
    """
    if isinstance(given, BuildConfig):
        return given
    if isinstance(given, (str, os.PathLike)):
        return load_config(Path(given))
    if not isinstance(given, Mapping):
        raise ConfigError(
            "This is not the configuration of a build.",
            expected="the path of a YAML file, or a dict with its keys and values",
            found=type(given).__name__,
        )
    return _validate(YamlDocument.from_values(given), Path.cwd())


def _validate(source: YamlDocument, base_dir: Path) -> BuildConfig:
    problems = [*source.problems, *source.environment_problems()]
    config = None
    try:
        config = BuildConfig.model_validate(source.values)
    except ValidationError as error:
        problems += problems_of(error, source, tuple(known_keys()))
    raise_problems(problems, source.file)
    assert config is not None
    config._base_dir = base_dir
    return config


def known_keys(
    model: type[BaseModel] = BuildConfig, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all keys. Those of a source follow `input` without an index."""
    for name, info in model.model_fields.items():
        yield (*path, name)
        section = SourceConfig if name == "input" else info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from known_keys(section, (*path, name))
