"""Recognition of a file's content by its first bytes."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

# Long enough for every mark, that of tar included, and for the first record of most files.
HEAD_BYTES: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Content:
    """Kind of content that is not plain text.

    Attributes:
        name: Name for messages, with its article if it has one.
        compression: Value of `input.compression` that reads it, or None.
        format: Value of `input.format` that reads it, or None.
        hint: Advice for content that no setting reads; "" otherwise.
    """

    name: str
    compression: str | None = None
    format: str | None = None
    hint: str = ""


NOT_TEXT: Final = "Exclude it from input.files, or extract its text first."
_UTF16: Final = "Convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW."

# By the bytes at the start of a file that is not UTF-8, or has control characters.
_MARKS: Final[tuple[tuple[bytes, Content], ...]] = (
    (b"\x1f\x8b", Content(name="gzip data", compression="gzip")),
    (b"\x28\xb5\x2f\xfd", Content(name="zstd data", compression="zstd")),
    (b"BZh", Content(name="bz2 data", compression="bz2")),
    (b"\xfd7zXZ\0", Content(name="xz data", compression="xz")),
    (b"PAR1", Content(name="a Parquet file", format="parquet")),
    (b"ARROW1", Content(name="an Arrow IPC file", format="arrow")),
    (b"\xff\xff\xff\xff", Content(name="an Arrow IPC stream", format="arrow")),
    (b"FEA1", Content(name="a Feather file of version 1", hint="Convert it to Parquet.")),
    (b"PK\x03\x04", Content(name="a zip archive", hint="Read the files in it: zip://*::ARCHIVE.")),
    (b"7z\xbc\xaf\x27\x1c", Content(name="a 7z archive", hint="Unpack it.")),
    (b"Rar!\x1a\x07", Content(name="a RAR archive", hint="Unpack it.")),
    (b"\x04\x22\x4d\x18", Content(name="lz4 data", hint="Decompress it, or use zstd.")),
    (b"\xff\x06\0\0sNaPpY", Content(name="snappy data", hint="Decompress it, or use zstd.")),
    (b"Obj\x01", Content(name="an Avro file", hint="Convert it to Parquet.")),
    (b"ORC", Content(name="an ORC file", hint="Convert it to Parquet.")),
    (b"\x93NUMPY", Content(name="a NumPy file", hint=NOT_TEXT)),
    (b"SQLite format 3\0", Content(name="an SQLite database", hint=NOT_TEXT)),
    (b"\x89HDF\r\n\x1a\n", Content(name="an HDF5 file", hint=NOT_TEXT)),
    (b"%PDF-", Content(name="a PDF document", hint=NOT_TEXT)),
    (b"\x89PNG\r\n", Content(name="a PNG image", hint=NOT_TEXT)),
    (b"\xff\xd8\xff", Content(name="a JPEG image", hint=NOT_TEXT)),
    (b"\x7fELF", Content(name="a program", hint=NOT_TEXT)),
    (b"\xff\xfe", Content(name="UTF-16 text", hint=_UTF16)),
    (b"\xfe\xff", Content(name="UTF-16 text", hint=_UTF16)),
)
_TAR: Final = Content(name="a tar archive", hint="Read the files in it: tar://*::ARCHIVE.")
_WIDE: Final = Content(name="UTF-16 text", hint=_UTF16)
_LFS: Final = Content(
    name="a pointer of Git LFS, not the file itself", hint="Get the file: git lfs pull."
)
_TAR_MARK: Final = (257, b"ustar")
_LFS_MARK: Final = b"version https://git-lfs.github.com/spec/"
_CONTROLS: Final = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_WIDE_LETTERS: Final = re.compile(rb"[\x20-\x7e\r\n\t]\0")


def recognize(head: bytes) -> Content | None:
    """Return the content of a file that begins with these bytes, or None if it may be text.

    >>> recognize(b"PAR1\\x15").name, recognize(b"PAR1 is text."), recognize(b"a\\0b\\0c\\0").name
    ('a Parquet file', None, 'UTF-16 text')
    """
    if head.startswith(_LFS_MARK):
        return _LFS
    if not _CONTROLS.search(head) and _is_utf8(head):
        return None
    for mark, content in _MARKS:
        if head.startswith(mark):
            return content
    at, mark = _TAR_MARK
    if head[at : at + len(mark)] == mark:
        return _TAR
    letters = max(len(_WIDE_LETTERS.findall(head[start:])) for start in (0, 1))
    return _WIDE if 3 * letters > len(head) else None


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def is_page(head: bytes) -> bool:
    """Return True for an HTML page, which a failed download leaves in place of a file."""
    return head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))


def looks_like_json_lines(text: bytes) -> bool:
    """Return True if the first two lines of a text are objects of JSON."""
    lines = text.split(b"\n", 2)[:2]
    return len(lines) == 2 and all(
        line.startswith(b'{"') and line.rstrip().endswith(b"}") for line in lines
    )
