"""The forms that token files are exported to, and the options that each of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from pipelines.errors import ConfigError
from pipelines.exports.dataset import SPLITS

FormatName: TypeAlias = Literal["megatron", "nanogpt", "llm.c", "npy", "mds"]
IdType: TypeAlias = Literal["uint16", "uint32", "int32"]
Split: TypeAlias = Literal["train", "validation", "all"]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A form of export.

    Attributes:
        module: in `pipelines.exports`; its `write_split` writes a split.
        options: of `ExportOptions`, those that it takes, with their values where none are given.
        files: a regex that matches the names of its files, below the destination.
        id_types: those that its ids can have.
        by_default: of them, the one for ids of a type, where none is asked for.
        has_boundaries: whether its files tell where documents begin.
    """

    module: str
    options: Mapping[str, Any]
    files: str
    id_types: tuple[IdType, ...]
    by_default: Mapping[str, IdType]
    has_boundaries: bool = True


# int32 is what training programs have instead of uint32.
_SMALLEST: Final[Mapping[str, IdType]] = {"uint16": "uint16", "uint32": "int32"}
_SAME: Final[Mapping[str, IdType]] = {"uint16": "uint16", "uint32": "uint32"}

FORMATS: Final[Mapping[str, Format]] = {
    "megatron": Format(
        module="megatron",
        options={"id_type": None},
        files=r"(train|validation)\.(bin|idx)",
        id_types=("uint16", "int32"),
        by_default=_SMALLEST,
    ),
    "nanogpt": Format(
        module="nanogpt",
        options={"id_type": None},
        files=r"(train|val)\.bin",
        id_types=("uint16", "uint32", "int32"),
        # The program reads uint16: whoever has changed that asks for another type.
        by_default={"uint16": "uint16"},
        has_boundaries=False,
    ),
    "llm.c": Format(
        module="llmc",
        options={"id_type": None, "max_tokens": 100_000_000},
        files=r"(train|val)_\d+\.bin",
        id_types=("uint16", "uint32"),
        by_default=_SAME,
        has_boundaries=False,
    ),
    "npy": Format(
        module="npy",
        options={"id_type": None},
        files=r"(train|validation)(\.offsets)?\.npy",
        id_types=("uint16", "uint32", "int32"),
        by_default=_SAME,
    ),
    "mds": Format(
        module="mds",
        options={"id_type": None, "sequence_length": None, "shard_bytes": 1 << 26},
        files=r"(train|validation)/(shard\.\d+\.mds|index\.json)",
        id_types=("uint16", "uint32", "int32"),
        by_default=_SMALLEST,
    ),
}


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is exported, and how. Options of formats are None where they are not given.

    Attributes:
        to: the format.
        split: "train", "validation", or "all": both, each in files of its own.
        id_type: of the ids that are written: "uint16", "uint32" or "int32".
        max_tokens: ids of a file at most.
        sequence_length: ids of a sample; None: a sample is a document.
        shard_bytes: of a shard at most, unless one sample is larger.

    Raises:
        ConfigError: an option does not belong to the format, or its value is none.
    """

    to: FormatName
    split: Split = "all"
    id_type: IdType | None = None
    max_tokens: int | None = None
    sequence_length: int | None = None
    shard_bytes: int | None = None

    def __post_init__(self) -> None:
        self._check_choice("to", FORMATS)
        self._check_choice("split", get_args(Split))
        for name, value in self._given().items():
            owners = [form for form, known in FORMATS.items() if name in known.options]
            if self.to not in owners:
                raise ConfigError(
                    "An option does not belong to the format.",
                    expected=f"{_flag(name)} with --to {' or '.join(owners)}",
                    found=f"--to {self.to} {_flag(name)} {value}",
                    hint="Leave the option out, or choose that format.",
                )
            if type(value) is int and value < 1:
                raise ConfigError(
                    "An option has a value that makes no sense.",
                    expected="a whole number above 0",
                    found=f"{_flag(name)} {value}",
                )

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are exported."""
        return SPLITS if self.split == "all" else (self.split,)

    @property
    def format(self) -> Format:
        """The form that is written."""
        return FORMATS[self.to]

    def resolved(self, dtype: str) -> dict[str, Any]:
        """The options of the format, each with its value.

        Args:
            dtype: of the ids of the token files: "uint16" or "uint32".

        Raises:
            ConfigError: the format has no type for these ids, or not the one asked for.
        """
        form = self.format
        values = {**form.options, **self._given()}
        if "id_type" in values:
            known = form.id_types if self.id_type is not None else tuple(form.by_default)
            if (self.id_type or dtype) not in known:
                raise ConfigError(
                    "The ids do not fit the format.",
                    expected=f"{' or '.join(known)} ids for --to {self.to}",
                    found=f"{self.id_type or dtype}",
                    hint="Ask for a type that the format and your program have with --id-type "
                    f"{'|'.join(form.id_types)}, or choose another format.",
                )
            values["id_type"] = self.id_type or form.by_default[dtype]
        return values

    def _given(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name not in ("to", "split") and value is not None
        }

    def _check_choice(self, name: str, choices: Any) -> None:
        if getattr(self, name) not in choices:
            raise ConfigError(
                "An option has a value that is not known.",
                expected=f"{_flag(name)} {'|'.join(choices)}",
                found=f"{_flag(name)} {getattr(self, name)}",
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
