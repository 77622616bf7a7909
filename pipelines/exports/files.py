"""Parts used by all formats of an export: output files, and the ids of a split as one stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from pipelines.choices import IdType, Packing
from pipelines.config import BeamConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import ConfigError
from pipelines.exports.records import ExportedFile
from pipelines.storage.directory import Directory, HashingFile

# Directory of the notes and temporary files of pipelines until the export is complete.
WORK: Final = "_work"


class FormatOptions(TypedDict, total=False):
    """The options of a format, each with its value (`ExportOptions.resolve`)."""

    id_type: IdType
    max_tokens: int
    sequence_length: int | None
    shard_bytes: int
    packing: Packing
    packing_window: int | None
    pad_id: int | None
    position_ids: bool
    shuffle_seed: int | None
    files: int | None
    row_group_rows: int | None


@dataclass(frozen=True, kw_only=True)
class Written:
    """Totals of what a format wrote for a split, to compare with the manifest of the token files.

    Attributes:
        documents, tokens: Numbers of documents and ids.
        facts: Other numbers for the manifest of the export.
    """

    documents: int
    tokens: int
    facts: Mapping[str, int]


class ExportFiles:
    """Destination of an export. Files appear atomically, and their checksums are recorded.

    Args:
        directory: The destination.
        beam: How to run pipelines, for formats that need them.
        beam_args: Options of Beam, which override those of `beam`.

    Attributes:
        entries: Entries of the files for the manifest of the export.
    """

    def __init__(
        self, directory: Directory, beam: BeamConfig | None = None, beam_args: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.beam = beam or BeamConfig()
        self.beam_args = beam_args
        self.entries: list[ExportedFile] = []

    @contextmanager
    def write(self, name: str) -> Iterator[HashingFile]:
        """Open a file to write. It gets its name when the block ends without an error."""
        with self.directory.write(name) as file:
            yield file
        self.entries.append(ExportedFile(name=name, bytes=file.size, xxh3_128=file.hexdigest))


class IdStream:
    """Stream of the ids of a split, without regard to rows.

    Args:
        dataset: The dataset.
        split: The split.
        dtype: Type to convert the ids to.
    """

    def __init__(self, dataset: TokenDataset, split: str, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._chunks = dataset.chunks(split, ["part"])
        self._rest: NDArray[Any] = np.empty(0, dtype)
        self._documents = 0
        self._tokens = 0

    def read(self, tokens: int) -> Iterator[NDArray[Any]]:
        """Yield the next ids, in arrays of any length, and fewer only at the end of the split."""
        left = tokens
        while left and self._fill():
            ids = self._rest[:left]
            self._rest = self._rest[left:]
            left -= len(ids)
            self._tokens += len(ids)
            yield ids

    def finish(self, **facts: int) -> Written:
        """Drain the stream. Return the totals of the ids read before this call."""
        while self._fill():
            self._rest = self._rest[:0]
        return Written(documents=self._documents, tokens=self._tokens, facts=facts)

    def _fill(self) -> bool:
        """Get the next chunk if the last one is used up. Return True if there are ids."""
        while not len(self._rest):
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._documents += int(chunk.starts.sum())
            self._rest = convert_ids(chunk.ids, self.dtype)
        return True


def convert_ids(ids: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the ids in a type, without a copy if they have this type.

    Raises:
        ConfigError: An id does not fit.
    """
    if ids.dtype == dtype or not ids.size:
        return ids.astype(dtype, copy=False)
    largest = int(ids.max())
    if largest > np.iinfo(dtype).max:
        raise ConfigError(
            "An id does not fit the type of the export.",
            expected=f"ids up to {np.iinfo(dtype).max:,} ({dtype.name})",
            found=f"{largest:,}",
            hint="Ask for a larger type with --id-type, or choose another format.",
        )
    return ids.astype(dtype)


def write_array(file: HashingFile, array: NDArray[Any]) -> None:
    """Write the bytes of an array, which may be empty."""
    if array.size:
        file.write(np.ascontiguousarray(array))
