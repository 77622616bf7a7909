"""Parquet files of an output: opened over any storage, read by ranges; files of ids as written."""

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
from pipelines.storage.directory import Directory
from pipelines.storage.remote_files import StoredHandle, open_stored


@contextmanager
def open_parquet(
    directory: Directory, name: str, size: int | None = None
) -> Iterator[pq.ParquetFile]:
    """A Parquet file of the output, open while the block runs.

    Args:
        directory: of the file.
        name: of the file.
        size: in bytes, if it is known; then nobody asks the storage for it.

    Raises:
        OSError, ArrowException: it is not there, or no Parquet.
    """
    stored = open_stored(directory.path(name), directory.storage_options, size=size)
    try:
        # Without read-ahead buffers, which hold whole row groups of every file at work.
        yield pq.ParquetFile(pa.PythonFile(StoredHandle(stored), "r"), pre_buffer=False)
    finally:
        stored.close()


class ParquetOutput:
    """A Parquet file of an output that gets its name when it is whole; nothing of it stays before.

    Args:
        directory: that it is in.
        name: of the file.
        schema: of its columns.
        metadata: what its footer says of build and task.
        settings: of the writer, besides those of all files of ids.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        **settings: Any,
    ) -> None:
        self._name = name
        with ExitStack() as stack:  # the first bytes may already find a full disk
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
        """Completes the bytes; the file still has its temporary name."""
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
    """What the footer of a file says of build and task, without `bpe.`."""
    return {
        key.decode().removeprefix("bpe."): value.decode()
        for key, value in (parquet.metadata.metadata or {}).items()
        if key.startswith(b"bpe.")
    }


def is_of_a_build(directory: Directory, name: str) -> bool:
    """Whether a build wrote a file, by its footer."""
    try:
        with open_parquet(directory, name) as parquet:
            return "format" in footer_of(parquet)
    except (OSError, pa.ArrowException, ValueError):
        return False


def read_table(directory: Directory, name: str, columns: list[str] | None = None) -> pa.Table:
    """A small Parquet file of the output.

    Raises:
        OutputError: it is not there.
    """
    return pq.read_table(pa.BufferReader(directory.read_bytes(name)), columns=columns)


def listed_bytes(directory: Directory, entry: Mapping[str, Any], *, what: str, hint: str) -> bytes:
    """The bytes of a small file, which are those that its entry of a manifest says.

    Args:
        directory: of the file.
        entry: with `name`, `bytes` and `xxh3_128`.
        what: it is, in the message.
        hint: what to do where it is damaged.

    Raises:
        OutputError: it is missing or damaged.
    """
    data = directory.read_bytes(entry["name"])
    found = xxhash.xxh3_128_hexdigest(data)
    if found != entry["xxh3_128"]:
        raise OutputError(
            f"{what} is damaged.",
            expected=f"{entry['bytes']:,} bytes with xxh3-128 {entry['xxh3_128']}",
            found=f"{len(data):,} bytes with {found}",
            where=directory.path(entry["name"]),
            hint=hint,
        )
    return data
