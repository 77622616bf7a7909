"""Output directory on any fsspec storage, whose files appear complete or not at all.

Writing does not wait for the network, a failed upload is repeated without repeating the work, and
partial files are never visible: a local file is written beside its final name, under a name that
starts with `.`, and renamed once the disk has it. For other storages a file is written to a local
temporary file, and becomes visible when its upload is complete (`uploads.py`).
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Protocol, Self

import fsspec
import xxhash
from pydantic import BaseModel, ValidationError

from bpe_core.short_repr import short_repr
from pipelines.config.values import protocol_of
from pipelines.errors import DamagedOutputError, OutputError
from pipelines.storage import json_text
from pipelines.storage.filesystems import LOCAL, OBJECT_STORES, is_local, locate, protocols
from pipelines.storage.remote_files import read_range
from pipelines.storage.retries import describe, persistently
from pipelines.storage.uploads import create, shows_unfinished, temporary_path, upload
from pipelines.supervisor import STATUS_VARIABLE

# Number of small remote files to read concurrently.
_READS_AT_ONCE: Final = 16
_READS_AHEAD: Final = 256
REMOVE_OR_RESTART: Final = "Remove it, or start over with --restart."
_WILDCARDS: Final = frozenset("*?[")
_LEFTOVER = re.compile(r"\.(.+\.[0-9a-f]{16}\.tmp|probe-[0-9a-f]{16})")


class WriteGuard(Protocol):
    """Condition for writing and removing files, such as a lock that must still be held."""

    def check(self) -> None:
        """Raise OutputError if the condition no longer holds."""


class Writable(Protocol):
    """Place for files."""

    def write(self, name: str) -> AbstractContextManager[HashingFile]:
        """Open a file to write, while the block runs."""


@short_repr
@dataclass(frozen=True, kw_only=True)
class Directory:
    """Directory of the output, identified by a path or fsspec URL.

    Attributes:
        url: Absolute path or URL.
        storage_options: Options of its file system; never shown.
        guard: Condition for giving a file its name or removing it, or None.
    """

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    guard: WriteGuard | None = None

    @classmethod
    def given(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Return the directory at a path or URL; options are for remote storage alone."""
        is_local = protocol_of(url) in LOCAL
        return cls(url=url, storage_options={} if is_local else storage_options or {})

    def __truediv__(self, name: str) -> Self:
        """Return the subdirectory `name`."""
        return replace(self, url=f"{self.url.rstrip('/')}/{name}")

    def elsewhere(self, url: str) -> Directory:
        """Return the directory at another absolute path or URL.

        It has the same options if it is on a storage of the same kind, else none.
        """
        is_alike = protocol_of(url) == protocol_of(self.url)
        return Directory(url=url, storage_options=self.storage_options if is_alike else {})

    @property
    def _located(self) -> tuple[fsspec.AbstractFileSystem, str]:
        # Not cached: a file system contains the values of secrets, which must not be pickled.
        try:
            filesystem, root = locate(self.url, self.storage_options)
        except ValueError as error:
            raise OutputError(
                "The output cannot be reached.",
                found=describe(error),
                where=self.url,
                hint="Check the address and output_storage_options.",
            ) from error
        return filesystem, root.rstrip("/")

    @property
    def is_local(self) -> bool:
        """Return True if it is on a disk of this machine."""
        return is_local(self._located[0])

    @property
    def name(self) -> str:
        """Return the last part of its path."""
        return self.url.rstrip("/").rpartition("/")[2]

    def path(self, name: str) -> str:
        """Return the path or URL of a file, for people and other tools."""
        return f"{self.url.rstrip('/')}/{name}"

    def local_path(self, name: str) -> Path:
        """Return the path of a file in a directory that `is_local`."""
        return Path(self._located[1]) / name

    def create(self) -> None:
        """Make the directory, if the storage has directories.

        Raises:
            OutputError: It cannot be made or written to.
        """
        filesystem, root = self._located
        if not OBJECT_STORES.isdisjoint(protocols(filesystem)):
            return  # the user did not ask to create a bucket
        with self.output_errors(""):
            filesystem.makedirs(root, exist_ok=True)
            if is_local(filesystem):  # the directory may exist but not be writable
                probe = Path(root) / f".probe-{secrets.token_hex(8)}"
                probe.touch()
                probe.unlink(missing_ok=True)  # another build may have removed it at its end

    def check_place(self) -> None:
        """Check that no file is where the directory, or one above it, has to be.

        Raises:
            OutputError: There is one.
        """
        if not self.is_local:
            return
        place = self.local_path("")
        for path in (place, *place.parents):
            if path.is_dir():
                return
            if os.path.lexists(path):
                link = path.is_symlink() and not path.exists()
                what = "a broken link" if link else "a file"
                raise OutputError(
                    f"{path} is {what}, so the output {self.url} cannot be made.",
                    expected="a directory, or a path at which one can be made",
                    found=what,
                    where=str(path),
                    hint="Choose another output.",
                )

    def check_writable(self) -> None:
        """Write a small file into the directory, or where it has to be made, and remove it.

        Raises:
            OutputError: It cannot be written or removed.
        """
        self.check_place()
        filesystem, place = self._located
        name = f".probe-{secrets.token_hex(8)}"
        with self.output_errors(""):
            while self._has_directories and place.strip("/") and not filesystem.isdir(place):
                place = place.rpartition("/")[0]
            if is_local(filesystem):
                probe = Path(place or "/") / name
                probe.touch()
                probe.unlink(missing_ok=True)
            else:
                persistently(lambda: filesystem.pipe_file(f"{place}/{name}", b""))
                persistently(lambda: filesystem.rm_file(f"{place}/{name}"))

    def exists(self) -> bool:
        """Return True if there is anything at this path.

        Raises:
            OutputError: The storage did not answer.
        """
        filesystem, root = self._located
        filesystem.invalidate_cache(root)
        with self.reading_errors(""):
            return bool(persistently(lambda: filesystem.exists(root)))

    def sizes(self) -> dict[str, int]:
        """Return names and sizes of the files directly in the directory; none if it does not exist.

        Raises:
            OutputError: It cannot be read.
        """
        names = {
            entry["name"].rpartition("/")[2]: entry["size"]
            for entry in self._entries()
            if entry["type"] == "file"
        }
        names.pop("", None)  # an entry for the directory itself
        return names

    def other_names(self) -> list[str]:
        """Return the names of everything else in the directory, such as subdirectories.

        Raises:
            OutputError: It cannot be read.
        """
        root = self._located[1]
        others = [entry["name"].rstrip("/") for entry in self._entries() if entry["type"] != "file"]
        return sorted(name.rpartition("/")[2] for name in others if name != root)

    def _entries(self) -> list[dict[str, Any]]:
        filesystem, root = self._located
        filesystem.invalidate_cache(root)
        entries: list[dict[str, Any]] = []
        with self.reading_errors(""), suppress(FileNotFoundError):
            entries = persistently(lambda: filesystem.ls(root, detail=True))
        return entries

    @contextmanager
    def write(self, name: str) -> Iterator[HashingFile]:
        """Open a file to write. It gets its name when the block ends without an error.

        Raises:
            OutputError: The disk is full, or the storage refuses.
        """
        filesystem, root = self._located
        with self.output_errors(name):
            if is_local(filesystem):
                final = Path(root) / name
                final.parent.mkdir(parents=True, exist_ok=True)
                temporary = Path(temporary_path(str(final)))
                try:
                    with temporary.open("wb") as file:
                        yield HashingFile(file)
                        file.flush()
                        # Otherwise, after a loss of power, the name could refer to bytes that were
                        # never written.
                        os.fsync(file.fileno())
                    self._check_guard()
                    temporary.replace(final)
                finally:
                    temporary.unlink(missing_ok=True)
            else:
                # The parent of this process removes files there, even if this process is killed.
                place = os.environ.get(STATUS_VARIABLE)
                with tempfile.NamedTemporaryFile("wb", prefix="beam-bpe-", dir=place) as spool:
                    yield HashingFile(spool)
                    spool.flush()
                    self._check_guard()
                    upload(filesystem, Path(spool.name), f"{root}/{name}")

    def create_file(self, name: str, data: bytes) -> bool:
        """Write a small file unless it exists. Return True if it was written.

        If the storage supports conditional writes, only one of several concurrent writers succeeds.
        """
        filesystem, root = self._located
        with self.output_errors(name):
            return create(filesystem, f"{root}/{name}", data)

    def sync(self) -> None:
        """Make renames and removals so far survive a loss of power."""
        filesystem, root = self._located
        if not is_local(filesystem):
            return
        with self.output_errors(""):
            directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _check_guard(self) -> None:
        if self.guard is not None:
            self.guard.check()

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a small file."""
        with self.write(name) as file:
            file.write(data)

    def write_json(self, name: str, value: object) -> None:
        """Write JSON with sorted keys, indented objects, and one list item per line."""
        with self.write(name) as file:
            for block in json_text.encoded(value):
                file.write(block)

    def read_json(
        self, name: str, form: type[BaseModel] | None = None, *, hint: str = REMOVE_OR_RESTART
    ) -> dict[str, Any] | None:
        """Return the object in a JSON file that `write_json` wrote, or None if there is no file.

        Args:
            name: Name of the file.
            form: Model that the object must fit, or None for any object.
            hint: Advice for the user if the file is damaged.

        Raises:
            DamagedOutputError: It is not JSON, not an object, or does not fit the model.
            OutputError: It cannot be read.
        """
        data = self.find_bytes(name)
        if data is None:
            return None
        try:
            if form is not None:  # this also limits the nesting of values
                form.model_validate_json(data)
            value = json.loads(data)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            found = ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))
        except (ValueError, RecursionError) as error:
            found = str(error)
        else:
            if isinstance(value, dict):
                return value
            found = type(value).__name__
        raise DamagedOutputError(
            "A file of the output is damaged.",
            expected="JSON as beam-bpe writes it",
            found=found,
            where=self.path(name),
            hint=hint,
        )

    def read_json_files(
        self, names: Sequence[str], form: type[BaseModel] | None = None
    ) -> Iterator[dict[str, Any] | None]:
        """Yield the result of `read_json` for each name, reading remote files concurrently."""
        read = partial(self.read_json, form=form)
        if self.is_local:
            yield from map(read, names)
            return
        with ThreadPoolExecutor(_READS_AT_ONCE) as threads:
            for start in range(0, len(names), _READS_AHEAD):  # in batches, to limit memory
                yield from threads.map(read, names[start : start + _READS_AHEAD])

    def read_bytes(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of a file, fewer at its end. No file stays open.

        Raises:
            OutputError: It does not exist or cannot be read.
        """
        filesystem, root = self._located
        with self.reading_errors(name):
            return persistently(lambda: read_range(filesystem, f"{root}/{name}", start, end))

    def find_bytes(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it does not exist.

        Raises:
            OutputError: It cannot be read.
        """
        filesystem, root = self._located
        with self.reading_errors(name), suppress(FileNotFoundError):
            return persistently(lambda: read_range(filesystem, f"{root}/{name}"))
        return None

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        self.remove_files([name])

    def remove_files(self, names: Sequence[str]) -> None:
        """Remove those of the files that exist, up to a thousand per request.

        Raises:
            OutputError: The storage refuses.
        """
        filesystem, root = self._located
        paths = [f"{root}/{name}" for name in names]
        if paths:
            self._check_guard()
        with self.output_errors(names[0] if len(names) == 1 else ""):
            removals = [partial(filesystem.rm_file, path) for path in paths]
            # fsspec treats several paths as patterns.
            if paths and not self._has_directories and _WILDCARDS.isdisjoint(root):
                removals = [partial(filesystem.rm, paths)]
            for removal in removals:
                with suppress(FileNotFoundError):
                    persistently(removal)

    def leftovers(self) -> list[str]:
        """Return the names of temporary files that killed writers left."""
        if not shows_unfinished(self._located[0]):
            return []
        return [name for name in self.sizes() if _LEFTOVER.fullmatch(name)]

    def remove_leftovers(self) -> None:
        """Remove temporary files that killed writers left."""
        self.remove_files(self.leftovers())

    def remove_below(self, ours: str) -> list[str]:
        """Remove files in the directory and below it, then empty directories.

        Args:
            ours: A regex that matches the relative paths of files to remove. Temporary files of
                killed writers for such files are removed, too.

        Returns:
            The sorted paths of the remaining files. If there are none, the directory is removed.

        Raises:
            OutputError: The storage refuses.
        """
        self._check_guard()
        files, directories = self._below()
        removed = [path for path in files if re.fullmatch(ours, _path_of(path))]
        self.remove_files(removed)
        filesystem, root = self._located
        if self._has_directories:
            for path in directories:
                with suppress(OSError):  # it is not empty
                    filesystem.rmdir(f"{root}/{path}".rstrip("/"))
        return sorted(set(files).difference(removed))

    def paths_below(self) -> list[str]:
        """Return the relative paths of the files in the directory and below it, sorted."""
        return sorted(self._below()[0])

    @property
    def _has_directories(self) -> bool:
        return OBJECT_STORES.isdisjoint(protocols(self._located[0]))

    def _below(self) -> tuple[list[str], list[str]]:
        """Return the paths of all files at any depth, and of all directories, deepest first."""
        filesystem, root = self._located
        with self.output_errors(""):
            if is_local(filesystem):  # fsspec's search would follow links out of the directory
                walked = list(os.walk(root, topdown=False))
                directories = [at for at, _, _ in walked]
                below = [f"{at}/{name}" for at, _, names in walked for name in names]
                named = [f"{at}/{name}" for at, names, _ in walked for name in names]
                below += filter(os.path.islink, named)
            else:
                filesystem.invalidate_cache(root)
                find = partial(filesystem.find, root, detail=True)
                entries = persistently(partial(find, withdirs=self._has_directories))
                kinds = {path.rstrip("/"): entry["type"] for path, entry in entries.items()}
                below = [path for path, kind in kinds.items() if kind != "directory"]
                others = {path for path, kind in kinds.items() if kind == "directory"}
                directories = sorted({*others, root}, key=len, reverse=True)
        start = len(root) + 1
        files = [path[start:] for path in below if len(path) >= start]
        return files, [path[start:] for path in directories]

    def remove_if_empty(self) -> None:
        """Remove the directory if it is empty and the storage has directories."""
        filesystem, root = self._located
        if is_local(filesystem) and filesystem.isdir(root) and not filesystem.ls(root):
            filesystem.rmdir(root)

    @contextmanager
    def reading_errors(self, name: str) -> Iterator[None]:
        """Turn errors of reading the directory into OutputError.

        Args:
            name: The file that is read, or "" for the directory.
        """
        try:
            yield
        except OSError as error:
            raise OutputError(
                "The output cannot be read.",
                found=_said(error),
                where=self.path(name) if name else self.url,
                hint="Check the path, its permissions and output_storage_options. Missing files "
                "are written again with --restart.",
            ) from error

    @contextmanager
    def output_errors(self, name: str) -> Iterator[None]:
        """Turn errors of writing into the directory into OutputError.

        Args:
            name: The file that is written, or "" for the directory or several files.
        """
        try:
            yield
        except OSError as error:
            hint = "Check the path and its permissions, and output_storage_options."
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                hint = "Free some space and run the same command again; finished work is kept."
                if not self.is_local:
                    hint = f"Free some space in {tempfile.gettempdir()}, or set TMPDIR. {hint}"
            raise OutputError(
                "The output cannot be written.",
                found=_said(error),
                where=self.path(name) if name else self.url,
                hint=hint,
            ) from error


def _path_of(path: str) -> str:
    """Return a path; for a temporary file of a killed writer, the path of the intended file.

    >>> _path_of("a/.run.bin.0123456789abcdef.tmp")
    'a/run.bin'
    """
    at, slash, name = path.rpartition("/")
    left = _LEFTOVER.fullmatch(name)
    return f"{at}{slash}{name[1:].rsplit('.', 2)[0]}" if left and name.endswith(".tmp") else path


def json_bytes(value: object) -> bytes:
    """Return the bytes that `write_json` writes; equal values have equal bytes.

    >>> json_bytes({"b": [1], "a": "é"})
    b'{\\n  "a": "\\xc3\\xa9",\\n  "b": [1]\\n}\\n'
    """
    return b"".join(json_text.encoded(value))


def _said(error: OSError) -> str:
    return f"{type(error).__name__}: {error.strerror}" if error.strerror else describe(error)


class HashingFile(io.RawIOBase):
    """File that passes writes on, and records the size and the xxh3-128 of the bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hasher = xxhash.xxh3_128()
        self.size = 0

    def write(self, data: Any) -> int:
        """Write all of the data."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._hasher.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def hexdigest(self) -> str:
        """Return the xxh3-128 of all bytes written so far, in hex."""
        return str(self._hasher.hexdigest())
