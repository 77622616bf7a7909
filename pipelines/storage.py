"""The output directory on any fsspec storage: files that appear whole or not at all.

Local files are written beside their final name, under one that begins with `.`, and renamed; on
object stores a file becomes visible when its upload is complete.
"""

from __future__ import annotations

import errno
import io
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import fsspec
import xxhash
from fsspec.implementations.local import LocalFileSystem

from pipelines.errors import OutputError

_LEFTOVER = re.compile(r"\.(.+\.[0-9a-f]{16}\.tmp|probe-[0-9a-f]{16})")


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A directory of the output, named by a path or fsspec URL.

    Attributes:
        url: absolute path or URL.
        storage_options: of its file system; never shown.
    """

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __truediv__(self, name: str) -> Self:
        """The directory `name` below this one."""
        return type(self)(
            url=f"{self.url.rstrip('/')}/{name}", storage_options=self.storage_options
        )

    @cached_property
    def _located(self) -> tuple[fsspec.AbstractFileSystem, str]:
        filesystem, root = fsspec.core.url_to_fs(self.url, **self.storage_options)
        return filesystem, root.rstrip("/")

    @property
    def _is_local(self) -> bool:
        return isinstance(self._located[0], LocalFileSystem)

    def path(self, name: str) -> str:
        """The path or URL of a file, for people and other tools."""
        return f"{self.url.rstrip('/')}/{name}"

    def create(self) -> None:
        """Makes the directory where the storage has directories.

        Raises:
            OutputError: it can't be made or written to.
        """
        filesystem, root = self._located
        with self.output_errors(""):
            filesystem.makedirs(root, exist_ok=True)
            if self._is_local:  # a directory may be there and yet be closed to us
                probe = Path(root) / f".probe-{secrets.token_hex(8)}"
                probe.touch()
                probe.unlink()

    def sizes(self) -> dict[str, int]:
        """Names and sizes of the files in the directory itself; none if it is not there.

        Raises:
            OutputError: it can't be read.
        """
        filesystem, root = self._located
        filesystem.invalidate_cache(root)
        try:
            entries = filesystem.ls(root, detail=True)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise _unreadable(self.url, error) from error
        return {
            entry["name"].rpartition("/")[2]: entry["size"]
            for entry in entries
            if entry["type"] == "file"
        }

    @contextmanager
    def write(self, name: str) -> Iterator[HashingFile]:
        """A file to write, which gets its name when the block ends without an error.

        Raises:
            OutputError: the disk is full, or the storage refuses.
        """
        filesystem, root = self._located
        with self.output_errors(name):
            if self._is_local:
                final = Path(root) / name
                final.parent.mkdir(parents=True, exist_ok=True)
                temporary = final.parent / f".{final.name}.{secrets.token_hex(8)}.tmp"
                try:
                    with temporary.open("wb") as file:
                        yield HashingFile(file)
                    temporary.replace(final)
                finally:
                    temporary.unlink(missing_ok=True)
            else:
                file = filesystem.open(f"{root}/{name}", "wb")
                try:
                    yield HashingFile(file)
                except BaseException:
                    file.discard()
                    file.closed = True  # or its end would upload what is left in its buffer
                    raise
                file.close()

    def write_bytes(self, name: str, data: bytes) -> None:
        """Writes a small file."""
        with self.write(name) as file:
            file.write(data)

    def write_json(self, name: str, value: object) -> None:
        """Writes JSON for people and programs: sorted keys, indented."""
        text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
        self.write_bytes(name, text.encode() + b"\n")

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file that `write_json` wrote, or None if there is no such file.

        Raises:
            OutputError: it is damaged or can't be read.
        """
        filesystem, root = self._located
        try:
            value = json.loads(filesystem.cat_file(f"{root}/{name}"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(self.path(name), error) from error
        except ValueError as error:
            raise OutputError(
                "A file of the output is damaged.",
                expected="JSON",
                found=str(error),
                where=self.path(name),
                hint="Remove it, or begin anew with --restart.",
            ) from None
        if not isinstance(value, dict):
            raise OutputError(
                "A file of the output is damaged.",
                expected="a JSON object",
                found=type(value).__name__,
                where=self.path(name),
                hint="Remove it, or begin anew with --restart.",
            )
        return value

    def read_bytes(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end) of a file, fewer where it ends; no file stays open.

        Raises:
            OutputError: it is not there or can't be read.
        """
        filesystem, root = self._located
        try:
            data: bytes = filesystem.cat_file(f"{root}/{name}", start=start, end=end)
        except OSError as error:
            raise _unreadable(self.path(name), error) from error
        return data

    def remove(self, name: str) -> None:
        """Removes a file if it is there."""
        filesystem, root = self._located
        try:
            filesystem.rm_file(f"{root}/{name}")
        except FileNotFoundError:
            return

    def remove_leftovers(self) -> None:
        """Removes what killed writers left: files that never got their name."""
        for name in self.sizes():
            if _LEFTOVER.fullmatch(name):
                self.remove(name)

    def remove_all(self) -> None:
        """Removes the directory with all that is in it. Only for directories that are all ours."""
        filesystem, root = self._located
        if filesystem.exists(root):
            filesystem.rm(root, recursive=True)

    def remove_if_empty(self) -> None:
        """Removes the directory if nothing is in it and the storage has directories."""
        filesystem, root = self._located
        if self._is_local and filesystem.isdir(root) and not filesystem.ls(root):
            filesystem.rmdir(root)

    @contextmanager
    def output_errors(self, name: str) -> Iterator[None]:
        """Turns the errors of what writes into the directory into OutputError.

        Args:
            name: the file that is written; empty: the directory, or several.
        """
        try:
            yield
        except OSError as error:
            hint = "Check the path and its permissions."
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                hint = "Make room and run the same command again: what is finished is kept."
            raise OutputError(
                "The output can't be written.",
                found=f"{type(error).__name__}: {error.strerror or error}",
                where=self.path(name) if name else self.url,
                hint=hint,
            ) from error


def _unreadable(where: str, error: OSError) -> OutputError:
    return OutputError(
        "The output can't be read.",
        found=f"{type(error).__name__}: {error.strerror or error}",
        where=where,
        hint="Check the path and its permissions; what is missing is made again after --restart.",
    )


class HashingFile(io.RawIOBase):
    """Passes writes on and keeps the size and the xxh3-128 of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hasher = xxhash.xxh3_128()
        self.size = 0

    def write(self, data: Any) -> int:
        """Writes all of the data."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._hasher.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        """The number of bytes written."""
        return self.size

    def writable(self) -> bool:
        """Yes."""
        return True

    @property
    def hexdigest(self) -> str:
        """The xxh3-128, in hex, of what was written so far."""
        return str(self._hasher.hexdigest())
