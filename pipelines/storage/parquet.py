"""Parquet files of an output: reading from any storage, and writing files of ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipelines.errors import OutputError
from pipelines.storage.directory import Directory, Writable
from pipelines.storage.remote_files import StoredHandle, open_stored


@contextmanager
def open_parquet(
    directory: Directory, name: str, size: int | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of the output while the block runs.

    Args:
        directory: Directory of the file.
        name: Name of the file.
        size: Size of the file if known, which saves a request.

    Raises:
        OSError, ArrowException: It does not exist, or is not a Parquet file.
    """
    stored = open_stored(directory.path(name), directory.storage_options, size=size)
    try:
        # Read-ahead buffers would hold whole row groups of every open file.
        yield pq.ParquetFile(pa.PythonFile(StoredHandle(stored), "r"), pre_buffer=False)
    finally:
        stored.close()


class ParquetOutput:
    """Parquet file of an output that gets its name when it is complete, and leaves no partial file.

    Args:
        directory: Directory of the file.
        name: Name of the file.
        schema: Schema of its columns.
        metadata: Metadata of build and task for the footer.
        settings: Settings of the writer, besides those of all files of ids.
    """

    def __init__(
        self,
        directory: Writable,
        name: str,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        **settings: Any,
    ) -> None:
        self._name = name
        with ExitStack() as stack:  # writing the first bytes may already fail on a full disk
            self._file = stack.enter_context(directory.write(name))
            self._writer = stack.enter_context(
                pq.ParquetWriter(
                    pa.PythonFile(self._file, "w"),
                    schema.with_metadata(metadata),
                    compression="zstd",
                    compression_level=1,
                    use_byte_stream_split=["input_ids.list.element"],
                    write_statistics=False,
                    **settings,
                )
            )
            self._stack = stack.pop_all()

    def _close(self, totals: Mapping[str, int]) -> None:
        """Write the footer. The file still has its temporary name."""
        self._writer.add_key_value_metadata({"bpe.totals": json.dumps(totals)})
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)


def footer_of(parquet: pq.ParquetFile) -> dict[str, str]:
    """Return the metadata of build and task in the footer of a file, without the prefix `bpe.`."""
    return {
        key.decode().removeprefix("bpe."): value.decode()
        for key, value in (parquet.metadata.metadata or {}).items()
        if key.startswith(b"bpe.")
    }


def is_of_a_build(directory: Directory, name: str) -> bool:
    """Return True if a build wrote this file, according to its footer."""
    try:
        with open_parquet(directory, name) as parquet:
            return "format" in footer_of(parquet)
    except (OSError, pa.ArrowException, ValueError):
        return False


def read_table(directory: Directory, name: str, columns: list[str] | None = None) -> pa.Table:
    """Return the table in a small Parquet file of the output.

    Raises:
        OutputError: It does not exist.
    """
    return pq.read_table(pa.BufferReader(directory.read_bytes(name)), columns=columns)


def listed_bytes(
    directory: Directory, name: str, *, size: int, xxh3_128: str, what: str, hint: str
) -> bytes:
    """Return the bytes of a small file after comparing them with its entry in a manifest.

    Args:
        directory: Directory of the file.
        name: Name of the file.
        size, xxh3_128: Values in its entry.
        what: Type of the file, for the error.
        hint: Advice for the user if the file is damaged.

    Raises:
        OutputError: The file is missing or damaged.
    """
    data = directory.read_bytes(name)
    found = xxhash.xxh3_128_hexdigest(data)
    if found != xxh3_128:
        raise OutputError(
            f"{what} is damaged.",
            expected=f"{size:,} bytes with xxh3-128 {xxh3_128}",
            found=f"{len(data):,} bytes with {found}",
            where=directory.path(name),
            hint=hint,
        )
    return data
