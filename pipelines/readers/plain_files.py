"""Files for commands that take them without a configuration: their names, blocks and beginnings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.config import SourceConfig
from pipelines.config.values import escape, is_url
from pipelines.errors import InputError
from pipelines.readers.streams import ByteArray, open_stream
from pipelines.tasks.listing import InputFile, NoInputError, list_files

BLOCK_BYTES: Final = 1 << 20


def find_files(name: str) -> Iterator[tuple[str, InputFile]]:
    """Yield each file of an argument, with the name to show.

    Args:
        name: Path, glob or URL.

    Raises:
        InputError: No file matches.
    """
    for file in list_named(escape(name) if Path(name).is_file() else name):
        yield name if file.url == _make_absolute(name) else file.url, file


def list_named(pattern: str, exclude: tuple[str, ...] = ()) -> list[InputFile]:
    """Return the files that a pattern of the command line matches, sorted.

    Raises:
        InputError: There are none.
    """
    try:
        return list_files(SourceConfig(files=(pattern,), exclude=exclude), resolve=_make_absolute)
    except NoInputError as error:
        raise InputError(
            "There are no such files.",
            expected="files, globs of files, or folders of this machine",
            found=error.found,
            where=pattern,
            hint=error.hint,
        ) from None


def _make_absolute(pattern: str) -> str:
    return pattern if is_url(pattern) else os.path.abspath(pattern)  # noqa: PTH100, without ".."


def read_blocks(file: InputFile) -> Iterator[ByteArray]:
    """Yield the decompressed blocks of a file. The memory of one is used again for the next.

    Raises:
        InputError: It cannot be read.
    """
    stream = open_stream(file, {}, BLOCK_BYTES)
    block = np.empty(BLOCK_BYTES, np.uint8)
    try:
        while done := stream.read_into(block):
            yield block[:done]
    finally:
        stream.close()


def read_start(file: InputFile, size: int) -> bytes:
    """Return the first bytes of a file, decompressed.

    Raises:
        InputError: It cannot be read.
    """
    stream = open_stream(file, {}, size)
    block = np.empty(size, np.uint8)
    done = 0
    try:
        while done < size and (got := stream.read_into(block[done:])):
            done += got
    finally:
        stream.close()
    return block[:done].tobytes()
