"""Published tokenizers: from a path, URL or repository of the Hub to a model, checked.

A source is read as the library that owns its format reads it. If that library is installed, both
encode a text with every class of characters and every special token, and must return the same ids.
"""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import fsspec
import xxhash

from bpe_core import formats
from bpe_core.errors import FormatError, InvalidPatternError, InvalidTokenizerError
from bpe_core.formats import FormatName, TokenizerFile
from bpe_core.formats.detection import names_of_tokenizer
from bpe_core.formats.files import MAX_FILE_BYTES, join, read_bytes
from bpe_core.formats.outline import Outline
from bpe_core.formats.outline import read_outline as read_file_outline
from bpe_core.formats.ranks_config import CONFIG, RanksConfig, find_ranks_config
from bpe_core.formats.reading import enter_output, merges_name
from bpe_core.model import TokenizerModel
from bpe_core.patterns import PATTERNS, resolve_pattern
from bpe_core.pretrained import choose_files, companions
from bpe_core.short_repr import short_repr
from pipelines.config.validation import did_you_mean
from pipelines.config.values import is_url
from pipelines.errors import ConfigError, InputError, shortened
from pipelines.storage.directory import Directory
from pipelines.storage.filesystems import locate
from pipelines.storage.hub import (
    Repository,
    hub_errors,
    hub_library,
    is_hub,
    is_offline,
    is_repository,
    read_info,
)
from pipelines.tokenizers.peer_check import Checked, check_with_library
from pipelines.tokenizers.samples import SAMPLE

# Files of this package, which are not imported.
_OWN: Final = frozenset({"tokenizer.arrow", "char_bpe.json"})


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Facts about a source that its files do not contain, from the user.

    Attributes:
        format: format of the source; None to detect it.
        merges: the merges.txt of a vocab.json; None for the one beside it.
        pattern: name or regular expression of the pattern, for formats that do not contain it.
        special_tokens: text to id, or texts alone; for formats that do not contain them.
    """

    format: FormatName | None = None
    merges: str | None = None
    pattern: str | None = None
    special_tokens: Mapping[str, int] | Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file of a source: its name, size in bytes, and xxh3-128."""

    name: str
    bytes: int
    xxh3_128: str


@short_repr
@dataclass(frozen=True, kw_only=True)
class ReadSource:
    """A tokenizer that was read from a source.

    Attributes:
        file: the file that was read, as the user knows it.
        model: the tokenizer.
        files: all files that it was read from.
        repository: repository of the Hub, with its commit; None for other sources.
        checked: result of the check with the library that owns the format; None for this package's
            own format, and if it was left out.
    """

    file: TokenizerFile
    model: TokenizerModel
    files: tuple[SourceFile, ...]
    repository: Repository | None
    checked: Checked | None


def is_published(place: Directory) -> bool:
    """Return True for a tokenizer that has to be imported.

    Return False for a directory of this package, and if there are no tokenizer files.
    """
    if is_hub(place.url):
        return True
    try:
        names = _list_names(place.url, place.storage_options)
        if names is None:  # a file, or nothing
            filesystem, path = locate(place.url, place.storage_options)
            return bool(filesystem.exists(path))
    except (OSError, ValueError):  # reported where the tokenizer is loaded
        return False
    return _OWN.isdisjoint(names) and bool(names_of_tokenizer(names))


def missing_tokenizer(place: Directory, where: str) -> ConfigError:
    """Return the error for a place without a tokenizer, with the files found there.

    Args:
        place: directory that was to contain the tokenizer.
        where: the key or argument with the place.
    """
    try:
        names = _list_names(place.url, place.storage_options)
    except (OSError, ValueError):
        names = None
    hint = None
    if names is None:
        found = "nothing at this path"
        folder, _, name = place.url.rpartition("/")
        with suppress(OSError, ValueError):
            beside = _list_names(folder or "/", place.storage_options)
            hint = did_you_mean(name, beside or [])
            repository = f"hf://{folder.rpartition('/')[2]}/{name}"
            if beside is None and is_repository(repository):
                hint = f"Check the path. For a repository of the Hugging Face Hub: {repository}."
    elif not names:
        found = "an empty directory"
    else:
        found = f"a directory with {shortened(sorted(names), 8)}"
        if "tokenizer" in names:
            hint = f"For the tokenizer of a build: {place.url}/tokenizer."
    return ConfigError(
        "There is no tokenizer.",
        expected="a directory with tokenizer.arrow or char_bpe.json, a published tokenizer or "
        "hf://ORG/NAME",
        found=found,
        where=where,
        hint=hint or "Check the path.",
    )


def read_source(
    location: str,
    options: SourceOptions | None = None,
    sample: str = SAMPLE,
    storage_options: Mapping[str, Any] | None = None,
    *,
    compare: bool = True,
) -> ReadSource:
    """Read a tokenizer, and check it with the library that owns its format.

    Args:
        location: a file, a directory, a URL of one, or `hf://ORG/NAME[@REVISION][/PATH]`.
        options: information that the files do not contain.
        sample: text for the check.
        storage_options: options of the file system.
        compare: False to leave out the check with the library.

    Raises:
        ConfigError: options are missing or do not apply to the format, or the URL is wrong.
        InputError: the source is missing, unreadable or malformed.
        CannotHoldError: the library returns other ids.
    """
    options = options or SourceOptions()
    with _open_locally(location, storage_options or {}) as (local, repository):
        with input_errors(location):
            file = formats.find_tokenizer(enter_output(local), options.format)
        config = _read_config(file, options, location)
        _check_options(file.format, options, config, location)
        with input_errors(file.location if repository is None else str(repository)):
            model = formats.read_tokenizer(
                file,
                merges=_find_merges(file, options) if file.format == "gpt2" else None,
                pattern=options.pattern,
                special_tokens=options.special_tokens,
            )
        paths = _paths(file, options, config)
        checked = None
        if compare:
            checked = check_with_library(file.format, paths, model, sample, is_source=True)
        entries = tuple(_describe_file(path) for path in paths)
    shown = file.location
    if local != location:
        below = Path(file.location).relative_to(local).as_posix()
        shown = join(location, below) if below != "." else location
    return ReadSource(
        file=replace(file, location=shown),
        model=model,
        files=entries,
        repository=repository,
        checked=checked,
    )


def read_outline(location: str, storage_options: Mapping[str, Any] | None = None) -> Outline:
    """Read as much of a tokenizer as a plan needs; arguments and errors are those of `read_source`.

    The file is not checked whole.
    """
    with _open_locally(location, storage_options or {}) as (local, repository):
        with input_errors(location):
            file = formats.find_tokenizer(local)
        config = _read_config(file, SourceOptions(), location)
        _check_options(file.format, SourceOptions(), config, location)
        with input_errors(file.location if repository is None else str(repository)):
            return read_file_outline(file)


@contextmanager
def input_errors(location: str, problem: str = "The tokenizer cannot be read.") -> Iterator[None]:
    """Raise errors of reading as `InputError`."""
    try:
        yield
    except (FormatError, InvalidTokenizerError) as error:
        raise InputError(f"{problem} {error}", where=location) from None
    except (OSError, ImportError, ValueError) as error:  # fsspec: unknown or missing file systems
        raise InputError(
            "The file cannot be read.", found=f"{type(error).__name__}: {error}", where=location
        ) from None


# Getting the files.


@contextmanager
def _open_locally(
    location: str, storage_options: Mapping[str, Any]
) -> Iterator[tuple[str, Repository | None]]:
    """Yield a local path of the source, and its repository at its commit."""
    if is_hub(location):
        repository = Repository.parse(location, "model")
        commit, path = _download(repository)
        yield path, repository.at(commit)
        return
    if not is_url(location) or location.startswith("file://"):
        yield location.removeprefix("file://"), None
        return
    with TemporaryDirectory(prefix="beam-bpe-") as copy:
        with input_errors(location):
            filesystem, path = locate(location, storage_options)
            names = _list_names(location, storage_options)
            folder, _, name = path.rpartition("/")
            if names is None:
                present = _list_names(location.rpartition("/")[0], storage_options) or []
                wanted = companions(name, present)
            else:
                folder, name = path, ""
                wanted = names_of_tokenizer(names)
            for one in wanted:
                Path(copy, one).write_bytes(_read_remote(filesystem, f"{folder}/{one}"))
        yield str(Path(copy, name)), None


def _download(repository: Repository) -> tuple[str, str]:
    """Download the files of a tokenizer; return the commit and their local path."""
    library = hub_library()
    if is_offline() or repository.is_pinned:
        cached = _find_cached(repository)
        if cached is not None:
            return cached
    info = read_info(repository)
    present = [file.rfilename for file in info.siblings or ()]
    path = repository.path
    if path and not any(file == path or file.startswith(f"{path}/") for file in present):
        raise InputError(
            "The file was not found in the repository.",
            expected=path,
            found=f"none in {repository.name} at {repository.revision or 'the default branch'}",
            where=str(repository),
            hint="Check the path.",
        )
    wanted = choose_files(present, path)
    if not wanted:
        raise InputError(
            "The repository has no file of a tokenizer.",
            expected="tokenizer.json, tekken.json, ranks, a .model, or vocab.json and merges.txt",
            found=", ".join(sorted(present)[:8]) or "no files",
            where=str(repository),
            hint="If it is in a folder, name that: hf://ORG/NAME/FOLDER.",
        )
    with hub_errors(repository):
        root = library.snapshot_download(
            repository.name,
            repo_type=repository.kind,
            revision=repository.revision,
            allow_patterns=[glob.escape(file) for file in wanted],
        )
    return Path(root).name, str(Path(root, repository.path))


def _find_cached(repository: Repository) -> tuple[str, str] | None:
    """Return commit and path of files that the library has in its cache; None if it has none."""
    library = hub_library()
    with hub_errors(repository):
        try:
            root = library.snapshot_download(
                repository.name,
                repo_type=repository.kind,
                revision=repository.revision,
                local_files_only=True,
                allow_patterns=[],
            )
        except library.errors.LocalEntryNotFoundError:
            if is_offline():
                raise
            return None
    path = Path(root, repository.path)
    names = [one.name for one in path.iterdir()] if path.is_dir() else []
    if not path.is_file() and not names_of_tokenizer(names):
        return None
    return Path(root).name, str(path)


def _list_names(location: str, storage_options: Mapping[str, Any]) -> list[str] | None:
    """Return the names in a directory; None if it is none."""
    filesystem, path = locate(location, storage_options)
    if not filesystem.isdir(path):
        return None
    return [name.rstrip("/").rpartition("/")[2] for name in filesystem.ls(path, detail=False)]


def _read_remote(filesystem: fsspec.AbstractFileSystem, path: str) -> bytes:
    if filesystem.size(path) > MAX_FILE_BYTES:
        raise FormatError(
            f"{path}: expected a tokenizer file of at most {MAX_FILE_BYTES} bytes, found a larger "
            "one"
        )
    data: bytes = filesystem.cat_file(path)
    return data


# Reading.


def _read_config(file: TokenizerFile, options: SourceOptions, location: str) -> RanksConfig | None:
    """Return what is known of ranks, or None if the user's options replace it."""
    if file.format != "tiktoken" or options.special_tokens:
        return None
    with input_errors(location):
        return find_ranks_config(file.location, published=options.pattern is None)


def _check_options(
    found: FormatName, options: SourceOptions, config: RanksConfig | None, location: str
) -> None:
    if found == "tiktoken" and options.pattern is None and (config is None or not config.pattern):
        known = "" if config is None else f" {config.class_name!r} is not a class that is known."
        raise ConfigError(
            f"A .tiktoken file does not contain the split pattern.{known}",
            expected=f"--pattern with one of {', '.join(PATTERNS)}, or a regular expression",
            where=location,
            hint="Convert it once, with its special tokens, and use the result: `beam-bpe convert "
            f"{shlex.quote(location)} DIRECTORY --to arrow --pattern cl100k --special "
            "'<|endoftext|>=100257'`.",
        )
    given = {
        "--pattern": options.pattern is not None and found not in ("gpt2", "tiktoken"),
        "--special": bool(options.special_tokens) and found not in ("gpt2", "tiktoken"),
        "--merges": options.merges is not None and found != "gpt2",
    }
    for option, wrong in given.items():
        if wrong:
            raise ConfigError(
                f"{option} does not apply to the format {found}, which contains this information.",
                where=location,
                hint=f"Omit {option}.",
            )
    if options.pattern is not None:
        try:
            resolve_pattern(options.pattern)
        except InvalidPatternError as error:
            raise ConfigError(
                "The pattern is invalid.", found=str(error), where="--pattern"
            ) from None


def _find_merges(file: TokenizerFile, options: SourceOptions) -> str:
    if options.merges is not None:
        return options.merges
    directory, slash, name = file.location.rpartition("/")
    if "vocab" not in name:
        raise ConfigError(
            "A vocab.json needs its merges.txt.",
            expected="--merges FILE",
            where=file.location,
        )
    return f"{directory}{slash}{merges_name(name)}"


def _paths(file: TokenizerFile, options: SourceOptions, config: RanksConfig | None) -> list[Path]:
    """Return the files that a tokenizer was read from, the format's own first."""
    paths = [Path(file.location)]
    if file.format == "gpt2":
        paths.append(Path(_find_merges(file, options)))
    if config is not None and config.is_file:
        paths.append(Path(file.location).with_name(CONFIG))
    return paths


def _describe_file(path: Path) -> SourceFile:
    data = read_bytes(path)
    return SourceFile(name=path.name, bytes=len(data), xxh3_128=xxhash.xxh3_128_hexdigest(data))
