"""Files of plain text in blocks, for commands that take files without a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.config import SourceConfig
from pipelines.config.values import escape, is_url
from pipelines.readers.streams import ByteArray, open_stream
from pipelines.tasks.listing import InputFile, list_files

BLOCK_BYTES: Final = 1 << 20
STANDARD_INPUT: Final = "-"  # as the name of a file


def read_files(name: str) -> Iterator[tuple[str, Iterator[ByteArray]]]:
    """Yield the name and the decompressed blocks of each file.

    The memory of a block is used again for the next one.

    Args:
        name: Path, glob or URL.

    Raises:
        InputError: No file matches, or a file cannot be read.
    """
    pattern = escape(name) if Path(name).is_file() else name
    for file in list_files(SourceConfig(files=(pattern,)), resolve=_make_absolute):
        yield name if file.url == _make_absolute(name) else file.url, _read_blocks(file)


def _make_absolute(pattern: str) -> str:
    return pattern if is_url(pattern) else str(Path.cwd() / pattern)


def _read_blocks(file: InputFile) -> Iterator[ByteArray]:
    stream = open_stream(file, {}, BLOCK_BYTES)
    block = np.empty(BLOCK_BYTES, np.uint8)
    try:
        while done := stream.read_into(block):
            yield block[:done]
    finally:
        stream.close()
