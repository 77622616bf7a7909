"""Listing of the input files that the patterns of a configuration match."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.utils import glob_translate

from bpe_core.short_repr import short_repr
from pipelines.config import SourceConfig
from pipelines.config.source import FollowLinks
from pipelines.config.values import is_url, protocol_of, unescape, wildcard_in
from pipelines.errors import InputError, shortened
from pipelines.storage import archives
from pipelines.storage.directory import Directory
from pipelines.storage.expansion import check_expansion
from pipelines.storage.filesystems import (
    LOCAL,
    OBJECT_STORES,
    is_local,
    locate,
    plain_path,
    same_storage,
    split_chain,
    version_tag_of,
)
from pipelines.storage.hub import pin
from pipelines.storage.locks import FINISHED, LOCK
from pipelines.storage.remote_files import local_version_tag
from pipelines.storage.retries import describe, persistently
from pipelines.tasks.local_files import LinkCheck, find_local

COMPRESSION_OF_EXTENSION: Final = {
    "gz": "gzip",
    "gzip": "gzip",
    "bgz": "gzip",
    "zst": "zstd",
    "zstd": "zstd",
    "bz2": "bz2",
    "xz": "xz",
}

_SHOWN_NEIGHBOURS: Final = 8
# Names that builds write into the directory of an output.
_WRITTEN: Final = frozenset(
    {
        "counts",
        "superwords",
        "tokenizer",
        "tokens",
        "rejects",
        "configuration.json",
        "report.html",
        LOCK,
        FINISHED,
    }
)


class NoInputError(InputError):
    """A pattern of the input matches no file."""


@short_repr
@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """File of the input, as found when the work was planned.

    Attributes:
        source: Index of its source in the configuration.
        source_name: Name of that source, or None.
        url: Path of the local disk, or fsspec URL.
        name: Its path below the fixed part of the pattern that found it.
        size: Size as stored (compressed, if it is).
        version_tag: A text that changes with the file: its ETag, checksum or
            modification time.
        compression: "gzip", "zstd", "bz2", "xz" or None.
        stop: Position (see `DocumentBatch.offsets`) from which on a limit of its source excludes
            all documents. 0 if the file is not read, None if it is read completely.
        end: Number of stored bytes in which all documents before `stop` start, or None for all.
    """

    source: int
    source_name: str | None
    url: str
    name: str
    size: int
    version_tag: str
    compression: str | None
    stop: int | None = None
    end: int | None = None

    @property
    def unread(self) -> bool:
        """Return True if a limit of its source ends before the file."""
        return self.stop == 0

    @property
    def label(self) -> str:
        """Return the name for the column `source`: source and file, never a full path."""
        return self.name if self.source_name is None else f"{self.source_name}/{self.name}"


def list_files(
    source: SourceConfig,
    *,
    index: int = 0,
    resolve: Callable[[str], str] = str,
    commits: dict[str, str] | None = None,
) -> list[InputFile]:
    """Return the files that match the patterns of a source, sorted by path, each once.

    Patterns are paths of the local disk or fsspec URLs, with `*`, `?`, `[…]` and `**` (any number
    of folders); `[*]`, `[?]`, `[[]` and `[:]` stand for these characters. Folders are skipped.

    Args:
        source: Source of the configuration.
        index: Its index there, for messages and for `InputFile.source`.
        resolve: Function that makes a pattern absolute.
        commits: Commit of each repository of the Hub (`hub.pin`). New ones are added.

    Raises:
        NoInputError: A pattern matches no file, or `include` and `exclude` exclude all of them.
        InputError: A match is not a regular file or has an unknown size, two files have the same
            name, or the storage cannot be listed.
    """
    found: dict[str, InputFile] = {}
    same_name: dict[str, Sequence[archives.Member]] = {}
    faults: dict[str, InputError] = {}
    commits = {} if commits is None else commits
    for number, text in enumerate(source.files):
        where = f"input[{index}].files[{number}]"
        pattern = pin(resolve(text), source.storage_options, commits)
        for entry in _list_pattern(pattern, source, where):
            same_name[entry.url] = entry.same_name
            if entry.fault is not None:
                faults[entry.url] = entry.fault
            found[entry.url] = InputFile(
                source=index,
                source_name=source.name,
                url=entry.url,
                name=entry.name,
                size=entry.size,
                version_tag=entry.version_tag,
                compression=compression_of(entry.name, source.compression),
            )
    files = sorted(_chosen(source, found.values(), index), key=lambda file: file.url)
    for file in files:
        if file.url in faults:
            raise faults[file.url]
        if same_name[file.url]:
            raise _several_members(file, same_name[file.url], index)
    _check_names(files, index)
    return files


def _chosen(source: SourceConfig, files: Collection[InputFile], index: int) -> list[InputFile]:
    """Return the files that `include` and `exclude` select."""
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
            "include and exclude select no file of a source.",
            expected="at least one file",
            found=f"{len(files):,} matches of input.files, such as "
            + shortened(sorted(file.name for file in files), _SHOWN_NEIGHBOURS),
            where=f"input[{index}].include" if source.include else f"input[{index}].exclude",
            hint="The globs must match these names completely; `**/` stands for any folders.",
        )
    return chosen


def _several_members(file: InputFile, members: Sequence[archives.Member], index: int) -> InputError:
    """Return the error for a name that occurs several times in an archive."""
    places = [f"{member.size:,} bytes at byte {member.offset:,}" for member in members]
    return InputError(
        "An archive contains several files with the same name.",
        expected="different names for the files of an archive",
        found=f"{len(members)} files {file.name}: {shortened(places, _SHOWN_NEIGHBOURS)}",
        where=file.url,
        hint="Create the archive again with the right files (unpacking keeps the last of "
        f"each name), or exclude the name with input[{index}].exclude.",
    )


def leave_out_output(
    files: Sequence[InputFile], sources: Sequence[SourceConfig], output: Directory
) -> tuple[list[InputFile], list[InputFile]]:
    """Divide listed files into input and files of the output, which is never its own input.

    A pattern that starts above the output reaches the whole output. One that starts inside the
    output is meant for files that others keep there: only files that builds write are left out.

    Args:
        files: Files of all sources.
        sources: Sources of the configuration.
        output: Directory of the build.

    Returns:
        The input files and those that were left out, both in order.

    Raises:
        NoInputError: All files of a source are in the output.
    """
    is_own = _OwnFiles(output, sources)
    own = [file for file in files if is_own(file)]
    if not own:
        return list(files), own
    left_out = {(file.source, file.url) for file in own}
    left = [file for file in files if (file.source, file.url) not in left_out]
    for source in {file.source for file in own} - {file.source for file in left}:
        raise NoInputError(
            "All files of a source are in the output of this build, which is never its own input.",
            expected="at least one other file",
            found=shortened(
                [file.name for file in own if file.source == source], _SHOWN_NEIGHBOURS
            ),
            where=f"input[{source}].files",
            hint=f"Change the patterns, or choose a different output from {output.url}.",
        )
    return left, own


class _OwnFiles:
    """Predicate for input files that belong to an output."""

    def __init__(self, output: Directory, sources: Sequence[SourceConfig]) -> None:
        self._options = [source.storage_options for source in sources]
        self._is_local = output.is_local
        self._filesystem, self._root = locate(output.url, output.storage_options)
        self._folders: dict[str, str] = {}
        if self._is_local:
            self._root = os.path.realpath(self._root)

    def __call__(self, file: InputFile) -> bool:
        place = self._place_in_output(file.url, file.source)
        if place is None:
            return False
        above = file.url[: len(file.url) - len(file.name)]
        begins_inside = self._place_in_output(f"{above.rstrip('/')}/x", file.source) is not None
        return not begins_inside or place.partition("/")[0] in _WRITTEN

    def _place_in_output(self, url: str, source: int) -> str | None:
        """Return the path of a file relative to the output, or None if it is elsewhere."""
        root = f"{self._root.rstrip('/')}/"
        if self._is_local != (protocol_of(url) in LOCAL):
            return None
        if self._is_local:
            path = self._resolved(plain_path(url) or locate(url, {})[1])
        elif root.lstrip("/") not in url:
            return None
        else:
            filesystem, path = locate(url, self._options[source])
            if not same_storage(filesystem, self._filesystem):
                return None
        return path.removeprefix(root) if path.startswith(root) else None

    def _resolved(self, path: str) -> str:
        """Resolve links to folders in a local path, looking up each folder only once."""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder or "/")
        return f"{self._folders[folder].rstrip('/')}/{name}"


def compression_of(name: str, stated: str = "infer") -> str | None:
    """Return the compression of a file: the configured one, or by its extension; None for none.

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
    version_tag: str
    # Files of an archive with the same name, at different positions.
    same_name: Sequence[archives.Member] = ()
    fault: InputError | None = None  # why it cannot be a file of the input


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Parts of a pattern: `url` = `before` + `fixed` + wildcards + `after`."""

    text: str
    before: str  # links of a chained URL that have no path ("simplecache::")
    fixed: str  # up to and including the last "/" before the first wildcard
    after: str  # links of a chained URL that contain the files ("::/data/a.zip")
    literal: str | None  # the path itself if there is no wildcard

    @classmethod
    def parse(cls, text: str) -> _Pattern:
        links = split_chain(text)
        number = next((i for i, link in enumerate(links) if "/" in link or "." in link), 0)
        link = links[number]
        wildcard = wildcard_in(link)
        fixed = unescape(link[:wildcard])
        return cls(
            text=text,
            before="".join(f"{before}::" for before in links[:number]),
            fixed=fixed[: fixed.rfind("/") + 1],
            after="".join(f"::{after}" for after in links[number + 1 :]),
            literal=fixed if wildcard is None else None,
        )

    def url(self, name: str) -> str:
        return f"{self.before}{self.fixed}{name}{self.after}"


def _list_pattern(text: str, source: SourceConfig, where: str) -> list[_Entry]:
    pattern = _Pattern.parse(text)
    options = source.storage_options
    try:
        if archives.split_url(text) is not None:
            entries = list(_list_archive(pattern, options, source.max_expansion))
        else:
            filesystem, _ = locate(text, options)
            if is_local(filesystem) and not pattern.after:
                entries = list(_list_local(pattern, where, source.follow_links))
            else:
                entries = list(_list_remote(pattern, options, where))
    except (OSError, ValueError) as error:
        raise InputError(
            "The input cannot be listed.",
            found=describe(error),
            where=f"{where}: {text}",
            hint="Check the address, the permissions and input.storage_options.",
        ) from error
    if not entries:
        raise _nothing_found(pattern, options, where)
    _check_encoding(entries, where)
    return entries


def _check_encoding(entries: Sequence[_Entry], where: str) -> None:
    """Check that names are UTF-8, since they are written into files of the output."""
    for entry in entries:
        try:
            entry.url.encode()
        except UnicodeEncodeError:
            raise InputError(
                "The name of an input file is not UTF-8.",
                expected="a path in UTF-8; manifests and token files contain it",
                found=ascii(os.fsencode(entry.url))[1:],
                where=where,
                hint="Rename the file or folder, or change the pattern.",
            ) from None


def _list_archive(
    pattern: _Pattern, options: Mapping[str, Any], max_expansion: int
) -> Iterator[_Entry]:
    parts = archives.split_url(pattern.text)
    assert parts is not None
    protocol, path, archive = parts
    options = archives.archive_options(options)
    found = archives.contents(protocol, archive, options, max_expansion)
    # Entries can mean the same bytes, so that together they are larger than each says.
    text_bytes = sum(member.size for member in found.members.values())
    check_expansion(archive, found.size, text_bytes, max_expansion, "files")
    fixed = len(pattern.fixed.partition("://")[2].lstrip("/"))
    matching = None if pattern.literal is None else pattern.literal.partition("://")[2].lstrip("/")
    regex = re.compile(glob_translate(path))
    for name, member in found.members.items():
        if name == matching if matching is not None else regex.match(name):
            url = archives.member_url(protocol, name, archive)
            same = found.repeated.get(name, ())
            yield _Entry(url, name[fixed:], member.size, found.version_tag, same)


def _list_local(pattern: _Pattern, where: str, follow_links: FollowLinks) -> Iterator[_Entry]:
    scheme = "".join(pattern.text.partition("://")[:2]) if is_url(pattern.text) else ""
    fixed = pattern.fixed.removeprefix(scheme)
    paths: Iterable[tuple[str, InputError | None]]
    if pattern.literal is None:
        links = LinkCheck(fixed, where, follow_links)
        paths = find_local(pattern.text.removeprefix(scheme), links)
    else:
        paths = [(pattern.literal.removeprefix(scheme), None)]
    for path, fault in paths:
        url, name = f"./{path}" if is_url(path) else path, path[len(fixed) :]
        try:
            status = os.stat(path)  # noqa: PTH116, a Path would be slower
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                raise
            if Path(path).is_symlink():
                yield _Entry(url, name, 0, "", fault=_broken_link(path, where))
            continue
        if stat.S_ISDIR(status.st_mode):
            continue
        if fault is None and not stat.S_ISREG(status.st_mode):
            fault = _special_file(path, status, where)
        yield _Entry(url, name, status.st_size, local_version_tag(status), fault=fault)


def _broken_link(path: str, where: str) -> InputError:
    return InputError(
        "An input file is a broken link.",
        where=path,
        hint="Remove the link, restore the file that it points to, or exclude it with "
        f"{_exclude_key(where)}.",
    )


def _special_file(path: str, status: os.stat_result, where: str) -> InputError:
    return InputError(
        "An input is not a regular file.",
        expected="a file",
        found=f"a special file (mode {stat.filemode(status.st_mode)})",
        where=path,
        hint=f"Change the pattern {where}, or exclude it with {_exclude_key(where)}.",
    )


def _exclude_key(where: str) -> str:
    return where.rpartition(".files")[0] + ".exclude"


def _list_remote(pattern: _Pattern, options: Mapping[str, Any], where: str) -> Iterator[_Entry]:
    fixed = locate(pattern.url(""), options)[1].rstrip("/")
    found: dict[str, dict[str, Any]]
    if pattern.literal is None:
        filesystem, path = locate(pattern.text, options)
        try:
            found = persistently(lambda: _glob(filesystem, path))
        except FileNotFoundError:
            return
    else:
        name = pattern.literal.removeprefix(pattern.fixed)
        filesystem, path = locate(pattern.url(name), options)
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
                "The size of an input file is unknown: its server does not report it.",
                where=pattern.url(name),
                hint=f"Copy the file to another storage and change {where}.",
            )
        yield _Entry(pattern.url(name), name, int(info["size"]), version_tag_of(info))


def _glob(filesystem: fsspec.AbstractFileSystem, path: str) -> dict[str, dict[str, Any]]:
    """Return the matching files and folders, each with the storage's information on it.

    An object store has no folders. If several parts of a path have wildcards, one listing of all
    names with the fixed prefix, a thousand per request, needs fewer requests than visiting each
    folder. If only the last part has wildcards, its folder is listed directly; fsspec's search
    would look the folder up once more.
    """
    wildcard = re.search(r"[*?[]", path)
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
    hint = "Check the path. A path in a configuration is relative to the configuration's folder."
    try:
        if (parts := archives.split_url(pattern.text)) is not None:
            members = archives.contents(parts[0], parts[2], archives.archive_options(options))
            return _no_match(pattern, where, f"it contains {_list_names(members.members)}")
        filesystem, path = locate(folder or ".", options)
        literal = None if pattern.literal is None else filesystem._strip_protocol(pattern.literal)
        if literal is not None and filesystem.isdir(literal):
            found = f"{pattern.literal} is a folder"
            hint = "Add /* for the files in it, or /**/* for all files below it."
        elif filesystem.isdir(path):
            entries = filesystem.ls(path, detail=False)
            names = [entry.rstrip("/").rpartition("/")[2] for entry in entries]
            found = f"{folder} contains {_list_names(names)}"
        else:
            found = f"there is no folder {folder}"
    except (OSError, ValueError) as error:
        found = f"{folder} cannot be listed ({describe(error)})"
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


def _list_names(names: Iterable[str]) -> str:
    return shortened(sorted(names), _SHOWN_NEIGHBOURS) or "nothing"


def _check_names(files: Iterable[InputFile], index: int) -> None:
    """Check that the column `source` distinguishes the files of a source."""
    url_of: dict[str, str] = {}
    for file in files:
        other = url_of.setdefault(file.name, file.url)
        if other != file.url:
            raise InputError(
                "Two files of one source have the same name below their patterns.",
                expected="different names, which the column `source` can distinguish",
                found=f"{file.name} for both {other} and {file.url}",
                where=f"input[{index}].files",
                hint="Make two named sources of them, or use one pattern with a "
                "wildcard for the folder.",
            )
