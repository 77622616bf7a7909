"""File system behind a path or URL: its options, its package, and its version tags of files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pipelines.config.credentials import expanded
from pipelines.config.values import is_url, protocol_of
from pipelines.errors import ConfigError

CONNECT_SECONDS: Final = 10
# Seconds without a byte from the server.
SILENT_SECONDS: Final = 30
_CONNECTIONS: Final = 64

# By protocol: the extra of this package, and the package that the extra installs.
_EXTRAS: Final = {
    **dict.fromkeys(("s3", "s3a"), ("s3", "s3fs")),
    **dict.fromkeys(("gs", "gcs"), ("gcs", "gcsfs")),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), ("azure", "adlfs")),
    **dict.fromkeys(("http", "https"), ("http", "aiohttp")),
    "hf": ("hub", "huggingface_hub"),
}
LOCAL: Final = frozenset({"file", "local"})
OBJECT_STORES: Final = frozenset({*_EXTRAS} - {"http", "https", "hf"})

# fsspec's options for local files; it silently accepts any other option, too.
_LOCAL_OPTIONS: Final = frozenset(
    {
        "auto_mkdir",
        "use_listings_cache",
        "listings_expiry_time",
        "max_paths",
        "skip_instance_cache",
    }
)

# Attributes of file systems that distinguish two services of one kind.
_SERVICE: Final = ("endpoint_url", "account_name", "host", "project")

# File systems' names for a value that changes with a file's content, the most reliable first.
_VERSION_KEYS: Final = (
    "ETag",
    "blob_id",  # of the Hub
    "etag",
    "md5Hash",
    "md5",
    "checksum",
    "Content-MD5",
    "generation",
    "mtime",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "updated",
    "modified",
    "created",
)


def locate(url: str, options: Mapping[str, Any]) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system of a path or fsspec URL, and the path in it.

    Options may be grouped under the name of their protocol, as chained URLs need it. Values may be
    `${NAME}`, from the environment. The default time limits are ours; libraries that allow it leave
    repeating to `retries.py`, and cache no listings.

    Raises:
        ConfigError: A package or an environment variable is missing, or an option does not apply to
            local files.
        ValueError: The protocol is unknown, or its library refuses the options.
    """
    given = expanded(options)
    protocol = protocol_of(url)
    if protocol in LOCAL:
        _check_local_options(given, url)
        return LocalFileSystem(**given), _local_path(url)
    if protocol in _EXTRAS:
        given = {**given.pop(protocol, {}), **given}
    try:
        if protocol in _EXTRAS:
            given = _DEFAULTS.get(protocol, _with_no_listings)(given)
        filesystem, path = _located(url, given)
    except ImportError as error:
        raise _missing_package(protocol, url, error) from None
    if protocol in ("s3", "s3a"):
        filesystem.retries = 1
    return filesystem, path


def _local_path(url: str) -> str:
    path = url.partition("://")[2] if is_url(url) else os.path.expanduser(url)  # noqa: PTH111
    absolute = path if path.startswith("/") else os.path.abspath(path)  # noqa: PTH100
    return absolute.rstrip("/") or "/"


def _located(url: str, options: Mapping[str, Any]) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return fsspec's file system and path, but do not let `::` in a name start another URL."""
    *wrappers, last = split_chain(url)
    head, separator, rest = last.partition("::")
    if not separator or any("://" in link for link in wrappers):
        filesystem, path = fsspec.core.url_to_fs(url, **options)
        return filesystem, str(path)
    filesystem, path = fsspec.core.url_to_fs("::".join([*wrappers, f"{head}_"]), **options)
    return filesystem, f"{path[:-1]}{separator}{rest}"


def split_chain(url: str) -> list[str]:
    """Return the links of a chained URL, outermost first; any other URL or path is one link.

    Protocols that wrap another file system start a chain. For all others, `::` is part of a name.

    >>> split_chain("zip://a.txt::/data/b::c.zip"), split_chain("memory://a::b")
    (['zip://a.txt', '/data/b::c.zip'], ['memory://a::b'])
    """
    links: list[str] = []
    while _wraps(protocol_of(url)) and "::" in url:
        head, _, url = url.partition("::")
        links.append(head)
    return [*links, url]


@cache
def _wraps(protocol: str) -> bool:
    try:
        kinds = inspect.getmro(fsspec.get_filesystem_class(protocol))
    except (ImportError, ValueError):  # reported when it is opened
        return False
    makers = [vars(kind)["__init__"] for kind in kinds if "__init__" in vars(kind)]
    parameters = {name for maker in makers for name in inspect.signature(maker).parameters}
    return not parameters.isdisjoint(("fo", "target_protocol"))


def plain_path(url: str) -> str | None:
    """Return a local path that needs no help of fsspec, or None for other URLs (see `locate`).

    >>> plain_path("/data/a"), plain_path("file:///data/a"), plain_path("s3://bucket/a")
    ('/data/a', '/data/a', None)
    """
    path = url.removeprefix("file://")
    return path if path.startswith("/") else None


def is_local(filesystem: fsspec.AbstractFileSystem) -> bool:
    """Return True if its files are on a disk of this machine."""
    return isinstance(filesystem, LocalFileSystem)


def protocols(filesystem: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    """Return all names of a file system's protocol."""
    names = filesystem.protocol
    return (names,) if isinstance(names, str) else tuple(names)


def same_storage(one: fsspec.AbstractFileSystem, other: fsspec.AbstractFileSystem) -> bool:
    """Return True if equal paths in two file systems are the same file, as far as is known."""
    if type(one) is not type(other):
        return False
    return all(getattr(one, name, None) == getattr(other, name, None) for name in _SERVICE)


def version_tag_of(info: Mapping[str, Any]) -> str:
    """Return a version tag from a storage's information on a file, or ""."""
    key = next((key for key in _VERSION_KEYS if info.get(key) is not None), None)
    value = None if key is None else info[key]
    if key == "created" and isinstance(value, datetime):  # in listings of the memory file system
        value = value.timestamp()
    return "" if key is None else f"{key}={value}"


def _with_no_listings(options: dict[str, Any]) -> dict[str, Any]:
    # Other processes may write in the meantime, and no folder is listed twice for one purpose.
    return {"use_listings_cache": False, **options}


def _s3_options(options: dict[str, Any]) -> dict[str, Any]:
    config = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": SILENT_SECONDS,
        "max_pool_connections": _CONNECTIONS,
        "retries": {"total_max_attempts": 1},
        **options.get("config_kwargs", {}),
    }
    return {**_with_no_listings(options), "config_kwargs": config}


def _http_options(options: dict[str, Any]) -> dict[str, Any]:
    import aiohttp

    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS
    )
    client = {"timeout": timeout, **options.get("client_kwargs", {})}
    return {**_with_no_listings(options), "client_kwargs": client}


_DEFAULTS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    **dict.fromkeys(("s3", "s3a"), _s3_options),
    **dict.fromkeys(("http", "https"), _http_options),
    "hf": dict,  # files at a commit never change, so their listings may be kept
}


def _check_local_options(options: Mapping[str, Any], url: str) -> None:
    unknown = sorted(str(key) for key in options if key not in _LOCAL_OPTIONS)
    if unknown:
        raise ConfigError(
            "The storage options contain options that do not apply to local files.",
            expected=f"no storage_options, or some of {', '.join(sorted(_LOCAL_OPTIONS))}",
            found=", ".join(f"storage_options.{key}" for key in unknown),
            where=url,
            hint="Remove it, or correct the path if it should be a URL; files in different "
            "storages "
            "need separate sources.",
        )


def _missing_package(protocol: str, url: str, error: ImportError) -> ConfigError:
    extra, package = _EXTRAS.get(protocol, (None, None))
    return ConfigError(
        f"A package for {protocol}:// is not installed.",
        expected=package,
        found=str(error),
        where=url,
        hint="Install the package in the message, also on the workers."
        if extra is None
        else f"pip install {package} (the extra `{extra}` of this package), also on the workers.",
    )
