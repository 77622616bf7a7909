"""Registry of export formats: their writers and their options.

Importing it imports all formats. None of them imports Beam, so an export without a pipeline starts
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias, get_args

import numpy as np

from bpe_core.short_repr import short_repr
from pipelines.choices import ExportFormat, IdType, Packing, Split
from pipelines.dataset.reading import SPLITS, TokenDataset
from pipelines.errors import ConfigError
from pipelines.exports import documents, llmc, mds, megatron, nanogpt, npy, packed
from pipelines.exports.files import ExportFiles, FormatOptions, Written

# Writes the files of a split, and reports finished ids to `progress.advance`. The arguments are the
# dataset, the split, which is not empty, the destination, and the format's options, each with a
# value (`ExportOptions.resolve`).
Writer: TypeAlias = Callable[[TokenDataset, str, ExportFiles, FormatOptions], Written]


@dataclass(frozen=True, kw_only=True)
class Format:
    """Format of an export.

    Attributes:
        writer: Function that writes the files of a split.
        options: The fields of `ExportOptions` that apply to it, with their default values.
        files: A regex that matches the names of its files, relative to the destination.
        id_types: Possible types of its ids.
        by_default: The default type for each type of the token files' ids.
        has_boundaries: True if its files show where documents begin.
        runs_pipelines: True if a Beam pipeline writes its files.
    """

    writer: Writer
    options: Mapping[str, Any]
    files: str
    id_types: tuple[IdType, ...]
    by_default: Mapping[str, IdType]
    has_boundaries: bool = True
    runs_pipelines: bool = False


# Training programs support int32 rather than uint32.
_SMALLEST: Final[Mapping[str, IdType]] = {"uint16": "uint16", "uint32": "int32"}
_SAME: Final[Mapping[str, IdType]] = {"uint16": "uint16", "uint32": "uint32"}
_MAY_BE_0: Final = ("pad_id", "shuffle_seed")
# A row is built in memory.
_MOST_SEQUENCE_LENGTH: Final = 1 << 24
_TOKEN_FILES: Final = r"(train|validation)-\d+-of-\d+\.parquet"

FORMATS: Final[Mapping[str, Format]] = {
    "megatron": Format(
        writer=megatron.write_split,
        options={"id_type": None},
        files=r"(train|validation)\.(bin|idx)",
        id_types=("uint16", "int32"),
        by_default=_SMALLEST,
    ),
    "nanogpt": Format(
        writer=nanogpt.write_split,
        options={"id_type": None},
        files=r"(train|val)\.bin",
        id_types=("uint16", "uint32", "int32"),
        # nanoGPT reads uint16. Users with a modified nanoGPT can request another type.
        by_default={"uint16": "uint16"},
        has_boundaries=False,
    ),
    "llm.c": Format(
        writer=llmc.write_split,
        options={"id_type": None, "max_tokens": 100_000_000},
        files=r"(train|val)_\d+\.bin",
        id_types=("uint16", "uint32"),
        by_default=_SAME,
        has_boundaries=False,
    ),
    "npy": Format(
        writer=npy.write_split,
        options={"id_type": None},
        files=r"(train|validation)(\.offsets)?\.npy",
        id_types=("uint16", "uint32", "int32"),
        by_default=_SAME,
    ),
    "mds": Format(
        writer=mds.write_split,
        options={"id_type": None, "sequence_length": None, "shard_bytes": 1 << 26},
        files=r"(train|validation)/(shard\.\d+\.mds|index\.json)",
        id_types=("uint16", "uint32", "int32"),
        by_default=_SMALLEST,
    ),
    "documents": Format(
        writer=documents.write_split,
        options={"shuffle_seed": None, "files": None, "row_group_rows": None},
        files=_TOKEN_FILES,
        id_types=("uint16", "uint32"),
        by_default=_SAME,
        runs_pipelines=True,
    ),
    "packed": Format(
        writer=packed.write_split,
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


@short_repr
@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of an export. Options of a format are None if they are not given.

    Attributes:
        to: The format.
        split: "train", "validation", or "all" for both, each in separate files.
        id_type: Type of the written ids: "uint16", "uint32" or "int32".
        max_tokens: Maximum number of ids in a file.
        sequence_length: Ids of a sample or of a packed row, or None if a sample is a document.
        shard_bytes: Maximum size of a shard, unless one sample is larger.
        packing: "concatenate" cuts the ids of all documents into rows; "best-fit" combines
            documents and cuts none that fits into a row.
        packing_window: Number of documents that best fit combines at a time.
        pad_id: Id that fills packed rows, or None if rows may be shorter.
        position_ids: True to add a column with the position of each id in its document.
        shuffle_seed: Seed of the order of rows, or None for the order of the corpus.
        files: Number of files of the training split. Validation files are about as large.
        row_group_rows: Rows of a Parquet row group.

    Raises:
        ConfigError: An option does not belong to the format, or has an invalid value.
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
            owners = [other for other, known in FORMATS.items() if name in known.options]
            if self.to not in owners:
                raise ConfigError(
                    "An option does not belong to the format.",
                    expected=f"{_flag(name)} with --to {' or '.join(owners)}",
                    found=f"--to {self.to} {_flag(name)} {value}",
                    hint="Remove the option, or choose that format.",
                )
            least = 0 if name in _MAY_BE_0 else 1
            if type(value) is int and value < least:
                raise _invalid(f"a whole number, {least} or above", name, value)
        if self.to == "packed":
            self._check_packing()

    def _check_packing(self) -> None:
        if self.packing is not None:
            self._check_choice("packing", get_args(Packing))
        if self.packing_window is not None and self.packing != "best-fit":
            expected = "--packing-window only with --packing best-fit"
            raise _invalid(expected, "packing_window", self.packing_window)
        if (self.sequence_length or 0) > _MOST_SEQUENCE_LENGTH:
            expected = f"at most {_MOST_SEQUENCE_LENGTH:,}"
            raise _invalid(expected, "sequence_length", self.sequence_length)

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the splits to export."""
        return SPLITS if self.split == "all" else (self.split,)

    @property
    def format(self) -> Format:
        """Return the format."""
        return FORMATS[self.to]

    def resolve(self, dtype: str) -> dict[str, Any]:
        """Return the options of the format, each with its value.

        Args:
            dtype: Type of the ids in the token files: "uint16" or "uint32".

        Raises:
            ConfigError: The format does not support the type of the ids or the requested type, or
                the padding id does not fit.
        """
        written = self.format
        values = {**written.options, **self._given()}
        if "id_type" in values:
            known = written.id_types if self.id_type is not None else tuple(written.by_default)
            if (self.id_type or dtype) not in known:
                raise ConfigError(
                    "The ids do not fit the format.",
                    expected=f"{' or '.join(known)} ids for --to {self.to}",
                    found=f"{self.id_type or dtype}",
                    hint="With --id-type, choose a type that your program supports: "
                    f"{'|'.join(written.id_types)}, or choose another format.",
                )
            values["id_type"] = self.id_type or written.by_default[dtype]
        if values.get("packing") == "best-fit" and values["packing_window"] is None:
            values["packing_window"] = _PACKING_WINDOW
        if self.pad_id is not None and self.pad_id > np.iinfo(dtype).max:
            raise _invalid(f"an id that fits {dtype}, the type of the ids", "pad_id", self.pad_id)
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
                "An option has an unknown value.",
                expected=f"{_flag(name)} {'|'.join(choices)}",
                found=f"{_flag(name)} {getattr(self, name)}",
            )


def _invalid(expected: str, name: str, value: object) -> ConfigError:
    return ConfigError(
        "An option has an invalid value.",
        expected=expected,
        found=f"{_flag(name)} {value}",
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
