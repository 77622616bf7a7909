"""The forms that token files are exported to, and the options that each of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, get_args

import numpy as np

from pipelines.choices import ExportFormat, IdType, Packing, Split
from pipelines.dataset.reading import SPLITS
from pipelines.errors import ConfigError


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
        runs_pipelines: whether its files are written by the workers of a Beam pipeline.
    """

    module: str
    options: Mapping[str, Any]
    files: str
    id_types: tuple[IdType, ...]
    by_default: Mapping[str, IdType]
    has_boundaries: bool = True
    runs_pipelines: bool = False


# int32 is what training programs have instead of uint32.
_SMALLEST: Final[Mapping[str, IdType]] = {"uint16": "uint16", "uint32": "int32"}
_SAME: Final[Mapping[str, IdType]] = {"uint16": "uint16", "uint32": "uint32"}
_MAY_BE_0: Final = ("pad_id", "shuffle_seed")
# A row is made in memory.
_MOST_SEQUENCE_LENGTH: Final = 1 << 24
_TOKEN_FILES: Final = r"(train|validation)-\d+-of-\d+\.parquet"

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
    "documents": Format(
        module="documents",
        options={"shuffle_seed": None, "files": None, "row_group_rows": None},
        files=_TOKEN_FILES,
        id_types=("uint16", "uint32"),
        by_default=_SAME,
        runs_pipelines=True,
    ),
    "packed": Format(
        module="packed",
        options={
            "sequence_length": 2048,
            "packing": "concatenate",
            "packing_window": None,
            "pad_id": None,
            "position_ids": False,
            "shuffle_seed": None,
            "files": None,
            "row_group_rows": None,
        },
        files=_TOKEN_FILES,
        id_types=("uint16", "uint32"),
        by_default=_SAME,
        runs_pipelines=True,
    ),
}
_PACKING_WINDOW: Final = 4096


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is exported, and how. Options of formats are None where they are not given.

    Attributes:
        to: the format.
        split: "train", "validation", or "all": both, each in files of its own.
        id_type: of the ids that are written: "uint16", "uint32" or "int32".
        max_tokens: ids of a file at most.
        sequence_length: ids of a sample, or of a packed row; None: a sample is a document.
        shard_bytes: of a shard at most, unless one sample is larger.
        packing: "concatenate" cuts the ids of all documents into rows, "best-fit" puts documents
            together and cuts none that fits.
        packing_window: number of documents that best fit puts together.
        pad_id: what fills packed rows up; None: some are shorter.
        position_ids: a column with the ids' places in their documents.
        shuffle_seed: rows in an order that follows from it; None: in the order of the corpus.
        files: number of files of the training split; those of validation are about as large.
        row_group_rows: rows of a row group of Parquet.

    Raises:
        ConfigError: an option does not belong to the format, or its value is none.
    """

    to: ExportFormat
    split: Split = "all"
    id_type: IdType | None = None
    max_tokens: int | None = None
    sequence_length: int | None = None
    shard_bytes: int | None = None
    packing: Packing | None = None
    packing_window: int | None = None
    pad_id: int | None = None
    position_ids: bool | None = None
    shuffle_seed: int | None = None
    files: int | None = None
    row_group_rows: int | None = None

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
            least = 0 if name in _MAY_BE_0 else 1
            if type(value) is int and value < least:
                raise _senseless(f"a whole number, {least} or above", name, value)
        if self.to == "packed":
            self._check_packing()

    def _check_packing(self) -> None:
        if self.packing is not None:
            self._check_choice("packing", get_args(Packing))
        if self.packing_window is not None and self.packing != "best-fit":
            raise _senseless("it with --packing best-fit", "packing_window", self.packing_window)
        if (self.sequence_length or 0) > _MOST_SEQUENCE_LENGTH:
            expected = f"at most {_MOST_SEQUENCE_LENGTH:,}"
            raise _senseless(expected, "sequence_length", self.sequence_length)

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
            ConfigError: the format has no type for these ids, or not the one asked for, or the
                padding does not fit it.
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
        if values.get("packing") == "best-fit" and values["packing_window"] is None:
            values["packing_window"] = _PACKING_WINDOW
        if self.pad_id is not None and self.pad_id > np.iinfo(dtype).max:
            raise _senseless(f"an id that {dtype} holds, as the ids are", "pad_id", self.pad_id)
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


def _senseless(expected: str, name: str, value: object) -> ConfigError:
    return ConfigError(
        "An option has a value that makes no sense.",
        expected=expected,
        found=f"{_flag(name)} {value}",
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
