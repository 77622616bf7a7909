"""Which files there are, and how they are cut into ranges and tasks.

A range is a byte interval of one file; a task is consecutive ranges of one source, together up to
`range_bytes`: the unit of work, of resuming and of output. Both follow from the inputs and the
configuration alone, never from runner or workers.
"""

from __future__ import annotations

import glob
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import fsspec
import xxhash
from fsspec.utils import glob_translate

from pipelines.errors import ConfigError, InputError
from pipelines.storage import archives
from pipelines.storage.filesystems import OBJECT_STORES, is_local, locate, mark_of
from pipelines.storage.retries import describe, persistently
from pipelines.storage.stored import local_mark

COMPRESSION_OF_EXTENSION: Final = {
    "gz": "gzip",
    "gzip": "gzip",
    "bgz": "gzip",
    "zst": "zstd",
    "zstd": "zstd",
    "bz2": "bz2",
    "xz": "xz",
}

# Forms in which what is read is found by the file's footer.
COLUMN_FORMATS: Final = ("parquet", "arrow")

# A wildcard, or a character that is escaped by standing alone in brackets.
_WILDCARD: Final = re.compile(r"\[([*?\[])\]|[*?\[]")

_SHOWN_NEIGHBOURS: Final = 8

# With the pattern `none` every document is one pre-token, kept in memory while its counts are.
LARGEST_WITHOUT_PATTERN: Final = 1 << 30


class NoInputError(InputError):
    """A pattern of the input matches no file."""


class Form(Protocol):
    """What decides whether a file can be cut into ranges."""

    @property
    def format(self) -> str:
        """ "text", "jsonl", "parquet" or "arrow"."""

    @property
    def separator(self) -> object:
        """Of text, what separates documents; None: every file is one."""


class Source(Form, Protocol):
    """What this module needs to know of a configured source."""

    @property
    def name(self) -> str | None:
        """Its name in the output; None for an only source without one."""

    @property
    def files(self) -> Sequence[str]:
        """Patterns of its files."""

    @property
    def include(self) -> Sequence[str]:
        """Globs of which a name must match one; none: any name will do."""

    @property
    def exclude(self) -> Sequence[str]:
        """Globs of which a name must match none."""

    @property
    def compression(self) -> str:
        """Of all files, or "none", or "infer": by extension."""

    @property
    def range_bytes(self) -> int:
        """Size of a range and limit of a task."""

    @property
    def max_bad_files(self) -> int:
        """How many of its files may be bad."""

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """Options of the file system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """A file of the input as it was found when the work was planned.

    Attributes:
        source: index of its source in the configuration.
        source_name: name of that source; None if it has none.
        url: where it is: a path of the local disk or an fsspec URL.
        name: its path below the fixed part of the pattern that found it.
        size: bytes, as stored (compressed, if it is).
        mark: a text that changes when the file does: its ETag or checksum, else its modification
            time.
        compression: "gzip", "zstd", "bz2", "xz" or None.
        stop: the place (see `DocumentBatch.offsets`) from which on a limit of its source leaves all
            documents unread; 0: the file is not read; None: all of it is.
        end: stored bytes in which all documents before `stop` begin; None: all.
    """

    source: int
    source_name: str | None
    url: str
    name: str
    size: int
    mark: str
    compression: str | None
    stop: int | None = None
    end: int | None = None

    @property
    def unread(self) -> bool:
        """Whether a limit of its source ends before the file."""
        return self.stop == 0

    @property
    def label(self) -> str:
        """The name in the column `source` of the output: source and file, never a whole path."""
        return self.name if self.source_name is None else f"{self.source_name}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The bytes [start, end) of the file with index `file`: the documents that begin there."""

    file: int
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Consecutive ranges of one source. `size` is the sum of their bytes."""

    index: int
    ranges: tuple[Range, ...]
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All files and all tasks; the indices of tasks and of files are places in these tuples."""

    files: tuple[InputFile, ...]
    tasks: tuple[Task, ...]

    def plan_id(self, rules_fingerprint: str) -> str:
        """32 hexadecimal digits that identify files, ranges and the rules of a stage."""
        return plan_id(self.digest, rules_fingerprint)

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that identify files and ranges.

        The xxh3-128 of one line of JSON for each file (source, name, size, mark) and for each task
        (its ranges). Files are named without their folder, so moving the corpus keeps the identity
        while the marks stay.
        """
        hasher = xxhash.xxh3_128()
        for file in self.files:
            hasher.update(_json_line(["file", *_file_identity(file)]))
        for task in self.tasks:
            ranges = [[part.file, part.start, part.end] for part in task.ranges]
            hasher.update(_json_line(["task", *ranges]))
        return str(hasher.hexdigest())

    def task_hash(self, task: Task) -> int:
        """A number below 2**128 that identifies the work of a task: its files and ranges.

        Sums of these numbers, modulo 2**128, show whether every task was done exactly once.
        """
        ranges = [
            [*_file_identity(self.files[part.file]), part.start, part.end] for part in task.ranges
        ]
        return int(xxhash.xxh3_128_intdigest(_json_line(ranges)))


def plan_id(digest: str, rules_fingerprint: str) -> str:
    """What `Plan.plan_id` gives, for those who know no more of the plan than its digest."""
    line = _json_line(["plan", rules_fingerprint, digest])
    return str(xxhash.xxh3_128_hexdigest(line))


def _file_identity(file: InputFile) -> list[str | int | None]:
    limit = [] if file.stop is None else [file.stop]
    return [file.source_name, file.name, file.size, file.mark, *limit]


def _json_line(values: list[Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


# --- listing ---------------------------------------------------------------------------------


def list_files(
    source: Source, *, index: int = 0, resolve: Callable[[str], str] = str
) -> list[InputFile]:
    """The files that the patterns of a source match, sorted by path, each once.

    Patterns are paths of the local disk or fsspec URLs, with `*`, `?`, `[…]` and `**` (any number
    of folders); `[*]`, `[?]` and `[[]` are these characters themselves. Folders are skipped.

    Args:
        source: a source of the configuration.
        index: its place there, for messages and for `InputFile.source`.
        resolve: makes a pattern absolute.

    Raises:
        NoInputError: a pattern matches no file, or `include` and `exclude` leave none.
        InputError: a match is no regular file or has no known size, two files have one name, or
            the storage can't be listed.
    """
    found: dict[str, InputFile] = {}
    for number, pattern in enumerate(source.files):
        where = f"input[{index}].files[{number}]"
        for entry in _list_pattern(resolve(pattern), source.storage_options, where):
            found[entry.url] = InputFile(
                source=index,
                source_name=source.name,
                url=entry.url,
                name=entry.name,
                size=entry.size,
                mark=entry.mark,
                compression=compression_of(entry.name, source.compression),
            )
    files = sorted(_chosen(source, found.values(), index), key=lambda file: file.url)
    _check_names(files, index)
    return files


def _chosen(source: Source, files: Collection[InputFile], index: int) -> list[InputFile]:
    """The files that `include` and `exclude` leave."""
    included = [re.compile(glob_translate(pattern)).match for pattern in source.include]
    excluded = [re.compile(glob_translate(pattern)).match for pattern in source.exclude]
    chosen = [
        file
        for file in files
        if (not included or any(matches(file.name) for matches in included))
        and not any(matches(file.name) for matches in excluded)
    ]
    if not chosen:
        raise NoInputError(
            "include and exclude leave no file of a source.",
            expected="at least one file",
            found=f"{len(files):,} that match input.files, such as "
            + _shortened(sorted(file.name for file in files)),
            where=f"input[{index}].include" if source.include else f"input[{index}].exclude",
            hint="The globs must match the whole of these names; `**/` stands for any folders.",
        )
    return chosen


def compression_of(name: str, stated: str = "infer") -> str | None:
    """The compression of a file: as stated, or by its extension; None: it is not compressed.

    >>> compression_of("a.txt.zst"), compression_of("a.txt"), compression_of("a.gz", "none")
    ('zstd', None, None)
    """
    if stated == "none":
        return None
    if stated != "infer":
        return stated
    return COMPRESSION_OF_EXTENSION.get(name.rpartition(".")[2].lower())


@dataclass(frozen=True, slots=True)
class _Entry:
    url: str
    name: str
    size: int
    mark: str


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern in its parts: `url` = `before` + `fixed` + wildcards + `after`."""

    text: str
    before: str  # links of a chained URL that have no path ("simplecache::")
    fixed: str  # up to and with the last "/" before the first wildcard
    after: str  # links of a chained URL that the files lie in ("::/data/a.zip")
    literal: str | None  # the path itself if there is no wildcard

    @classmethod
    def parse(cls, text: str) -> _Pattern:
        links = text.split("::")
        number = next((i for i, link in enumerate(links) if "/" in link or "." in link), 0)
        link = links[number]
        wildcard = next((found for found in _WILDCARD.finditer(link) if not found[1]), None)
        fixed = _unescape(link if wildcard is None else link[: wildcard.start()])
        return cls(
            text=text,
            before="".join(f"{before}::" for before in links[:number]),
            fixed=fixed[: fixed.rfind("/") + 1],
            after="".join(f"::{after}" for after in links[number + 1 :]),
            literal=fixed if wildcard is None else None,
        )

    def url(self, name: str) -> str:
        return f"{self.before}{self.fixed}{name}{self.after}"


def _unescape(pattern: str) -> str:
    return _WILDCARD.sub(lambda found: found[1] or found[0], pattern)


def _list_pattern(text: str, options: Mapping[str, Any], where: str) -> list[_Entry]:
    pattern = _Pattern.parse(text)
    try:
        if archives.split_url(text) is not None:
            entries = list(_list_archive(pattern, options))
        else:
            filesystem, path = locate(text, options)
            if is_local(filesystem) and not pattern.after:
                entries = list(_list_local(pattern, where))
            else:
                entries = list(_list_remote(pattern, filesystem, path, where))
    except (OSError, ValueError) as error:
        raise InputError(
            "The input can't be listed.",
            found=describe(error),
            where=f"{where}: {text}",
            hint="Check the address, the permissions and input.storage_options.",
        ) from error
    if not entries:
        raise _nothing_found(pattern, options, where)
    _check_encoding(entries, where)
    return entries


def _check_encoding(entries: Sequence[_Entry], where: str) -> None:
    """Names are written into files of the output, which are UTF-8."""
    for entry in entries:
        try:
            entry.url.encode()
        except UnicodeEncodeError:
            raise InputError(
                "The name of an input file is not UTF-8.",
                expected="a path in UTF-8, to be written into manifests and token files",
                found=ascii(os.fsencode(entry.url))[1:],
                where=where,
                hint="Rename the file or folder, or change the pattern.",
            ) from None


def _list_archive(pattern: _Pattern, options: Mapping[str, Any]) -> Iterator[_Entry]:
    parts = archives.split_url(pattern.text)
    assert parts is not None
    protocol, path, archive = parts
    found = archives.contents(protocol, archive, archives.archive_options(options))
    fixed = len(pattern.fixed.partition("://")[2].lstrip("/"))
    matching = None if pattern.literal is None else pattern.literal.partition("://")[2].lstrip("/")
    regex = re.compile(glob_translate(path))
    for name, member in found.members.items():
        if name == matching if matching is not None else regex.match(name):
            name = name[fixed:]
            yield _Entry(pattern.url(name), name, member.size, found.mark)


def _list_local(pattern: _Pattern, where: str) -> Iterator[_Entry]:
    scheme = "file://" if pattern.fixed.startswith("file://") else ""
    fixed = pattern.fixed.removeprefix(scheme)
    # Unlike that of fsspec, this search follows links to folders.
    paths: Iterable[str]
    if pattern.literal is None:
        text = pattern.text.removeprefix(scheme)
        paths = glob.iglob(text, recursive=True, include_hidden=True)  # noqa: PTH207
    else:
        paths = [pattern.literal.removeprefix(scheme)]
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116, a Path takes longer than that
        except FileNotFoundError:
            if Path(path).is_symlink():
                raise InputError(
                    "An input file is a link to nothing.",
                    where=path,
                    hint="Remove the link or restore what it points to.",
                ) from None
            continue
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                "An input is no regular file.",
                expected="a file",
                found=f"a special file (mode {stat.filemode(status.st_mode)})",
                where=path,
                hint=f"Change the pattern {where}.",
            )
        yield _Entry(path, path[len(fixed) :], status.st_size, local_mark(status))


def _list_remote(
    pattern: _Pattern, filesystem: fsspec.AbstractFileSystem, path: str, where: str
) -> Iterator[_Entry]:
    fixed = filesystem._strip_protocol(pattern.fixed).rstrip("/")
    found: dict[str, dict[str, Any]]
    if pattern.literal is None:
        try:
            found = persistently(lambda: _glob(filesystem, path))
        except FileNotFoundError:
            return
    else:
        path = filesystem._strip_protocol(pattern.literal)
        try:
            found = {path: persistently(lambda: filesystem.info(path))}
        except FileNotFoundError:
            return
    for path, info in found.items():
        if info["type"] == "directory":
            continue
        name = path[len(fixed) :].lstrip("/")
        if info.get("size") is None:
            raise InputError(
                "The size of an input file is unknown: its server does not say it.",
                where=pattern.url(name),
                hint=f"Copy the file to another storage and change {where}.",
            )
        yield _Entry(pattern.url(name), name, int(info["size"]), mark_of(info))


def _glob(filesystem: fsspec.AbstractFileSystem, path: str) -> dict[str, dict[str, Any]]:
    """The files and folders that match, each with what its storage says of it.

    An object store has no folders: with wildcards in several parts of a path, one listing of all
    that begins like the pattern, a thousand objects a request, takes fewer requests than going
    through folders, one request at least for each. With a wildcard in the last part alone its
    folder is listed; fsspec's search would look at the folder once more.
    """
    wildcard = _WILDCARD.search(path)
    assert wildcard is not None
    protocols = filesystem.protocol if isinstance(filesystem.protocol, tuple) else ()
    folder, _, begin = path[: wildcard.start()].rpartition("/")
    in_folders = "/" in path[wildcard.start() :] or "**" in path
    if OBJECT_STORES.isdisjoint(protocols) or not folder or (begin and not in_folders):
        return dict(filesystem.glob(path, detail=True))
    if in_folders:
        found = filesystem.find(folder, detail=True, prefix=begin)
    else:
        found = {info["name"]: info for info in filesystem.ls(folder, detail=True)}
    matches = re.compile(glob_translate(path)).match
    return {name: info for name, info in sorted(found.items()) if matches(name)}


def _nothing_found(pattern: _Pattern, options: Mapping[str, Any], where: str) -> NoInputError:
    folder = pattern.url("")
    hint = "Check the path; relative ones are relative to the configuration file."
    try:
        if (parts := archives.split_url(pattern.text)) is not None:
            members = archives.contents(parts[0], parts[2], archives.archive_options(options))
            return _no_match(pattern, where, f"it holds {_shortened(sorted(members.members))}")
        filesystem, path = locate(folder or ".", options)
        literal = None if pattern.literal is None else filesystem._strip_protocol(pattern.literal)
        if literal is not None and filesystem.isdir(literal):
            found = f"{pattern.literal} is a folder"
            hint = "Name its files: add /* for those in it, /**/* for all below it."
        elif filesystem.isdir(path):
            names = sorted(
                entry.rstrip("/").rpartition("/")[2] for entry in filesystem.ls(path, detail=False)
            )
            found = f"{folder} holds {_shortened(names)}"
        else:
            found = f"there is no folder {folder}"
    except (OSError, ValueError) as error:
        found = f"{folder} can't be listed ({describe(error)})"
    return _no_match(pattern, where, found, hint)


def _no_match(
    pattern: _Pattern, where: str, found: str, hint: str = "Check the path."
) -> NoInputError:
    return NoInputError(
        "No file matches a pattern of the input.",
        expected=f"at least one file that matches {pattern.text}",
        found=found,
        where=where,
        hint=hint,
    )


def _shortened(names: list[str]) -> str:
    if not names:
        return "nothing"
    more = len(names) - _SHOWN_NEIGHBOURS
    return ", ".join(names[:_SHOWN_NEIGHBOURS]) + (f" and {more} more" if more > 0 else "")


def _check_names(files: Iterable[InputFile], index: int) -> None:
    """The column `source` must tell the files of a source apart."""
    url_of: dict[str, str] = {}
    for file in files:
        other = url_of.setdefault(file.name, file.url)
        if other != file.url:
            raise InputError(
                "Two files of one source have the same name below their patterns.",
                expected="names that tell the files apart in the column `source`",
                found=f"{file.name} for both {other} and {file.url}",
                where=f"input[{index}].files",
                hint="Make two sources of them, each with a name, or use one pattern with a "
                "wildcard for the folder.",
            )


# --- planning --------------------------------------------------------------------------------


def is_splittable(compression: str | None, form: Form) -> bool:
    """Whether a file can be cut into ranges that are read independently.

    Parquet and Arrow files can: which rows lie in a range, a reader finds out from the footer.
    """
    if form.format in COLUMN_FORMATS:
        return True
    return compression is None and (form.format == "jsonl" or form.separator is not None)


def plan_tasks(files: Sequence[InputFile], sources: Sequence[Source]) -> Plan:
    """Cut the files into ranges and group these into tasks.

    Ranges begin at multiples of the source's `range_bytes`; a compressed file, or one that is a
    document as a whole (no separator), is one range; an empty file has none. A task takes ranges in
    order while they belong to one source and are together at most `range_bytes`.

    Args:
        files: in the order of the sources, those of a source sorted.
        sources: of the configuration; `InputFile.source` is an index into them.

    Example: with `range_bytes` 100, files of 250, 30 and 20 bytes give the ranges
    [0, 100), [100, 200), [200, 250), [0, 30), [0, 20) and three tasks of 100 bytes.
    """
    tasks: list[Task] = []
    pending: list[Range] = []
    pending_bytes = 0

    def finish_task() -> None:
        nonlocal pending_bytes
        if pending:
            tasks.append(Task(index=len(tasks), ranges=tuple(pending), size=pending_bytes))
        pending.clear()
        pending_bytes = 0

    previous_source = None
    for number, file in enumerate(files):
        source = sources[file.source]
        _check_columns(file, source)
        splittable = is_splittable(file.compression, source)
        step = source.range_bytes if splittable else max(file.size, 1)
        size = file.size if file.end is None else file.end
        if file.source != previous_source:
            finish_task()
            previous_source = file.source
        # An empty file has nothing to be read, except where it can't be right.
        least = 1 if source.format in COLUMN_FORMATS else 0
        for start in range(0, max(size, least), step):
            end = min(start + step, size)
            if pending_bytes + end - start > source.range_bytes:
                finish_task()
            pending.append(Range(file=number, start=start, end=end))
            pending_bytes += end - start
    finish_task()
    return Plan(files=tuple(files), tasks=tuple(tasks))


def check_size_without_pattern(size: int) -> None:
    """Refuses to count a large corpus with the pattern `none`.

    Args:
        size: bytes of input.

    Raises:
        ConfigError: they are more than `LARGEST_WITHOUT_PATTERN`.
    """
    if size <= LARGEST_WITHOUT_PATTERN:
        return
    raise ConfigError(
        "The corpus is too large for the pattern none, with which every document is one pre-token.",
        expected=f"at most {LARGEST_WITHOUT_PATTERN:,} bytes of input files",
        found=f"{size:,} bytes",
        where="tokenizer.pattern",
        hint="Choose a pattern that splits text, such as gpt2, or train on a part of the files "
        "and encode all with tokenizer.path.",
    )


def _check_columns(file: InputFile, source: Source) -> None:
    """Files of columns can't be compressed as a whole, nor empty, as files of text may be.

    (An empty one is left to its reader, where some files may be bad.)
    """
    if source.format not in COLUMN_FORMATS:
        return
    if not file.size and not source.max_bad_files:
        raise InputError(
            f"An input file is empty, which a {source.format} file can't be.",
            where=file.url,
            hint="Get the file again, or leave it out of input.files.",
        )
    if file.compression is not None:
        raise InputError(
            "A compressed file of columns can't be read.",
            expected=f"a {source.format} file, whose columns are compressed by themselves, since "
            "rows are read at any place of it",
            found=f"{file.compression}, by its extension",
            where=file.url,
            hint="Decompress the file; if it is not compressed in spite of its name, set "
            "input.compression: none.",
        )
