"""Make the corpus of source code: 1 GB of files without duplicates.

python benchmarks/fetch_code.py

The corpus contains the Python files of the standard library and of the installed packages, then the
sources in Debian's packages linux-source, golang-src and rust-src. apt-get downloads the packages;
nothing is installed. It needs the package lists (`apt-get update`, once, as root), but not root.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

CODE_CORPUS = Path(__file__).resolve().parent.parent / "out" / "benchmarks" / "code-1gb.txt"
SEPARATOR = b"<|endoftext|>"
PACKAGES = ("golang-src", "rust-src", "linux-source")
CORPUS_BYTES = 1_000_000_000
MAX_FILE_BYTES = 1_000_000  # larger files are mostly generated tables, seldom code
_TOOLS = ("apt-get", "apt-cache", "dpkg-deb")
_SUFFIXES = frozenset(
    {".asm", ".awk", ".c", ".cc", ".cpp", ".cxx", ".dts", ".dtsi", ".go", ".h", ".hh", ".hpp"}
    | {".hxx", ".inc", ".java", ".js", ".l", ".lua", ".m4", ".mjs", ".pl", ".pm", ".py", ".pyi"}
    | {".pyx", ".rb", ".rs", ".s", ".sh", ".sql", ".ts", ".y"}
)


class CannotFetchError(Exception):
    """A requirement is missing; the message names it."""


def main() -> None:
    """Write the corpus to the path that the benchmarks read."""
    CODE_CORPUS.parent.mkdir(parents=True, exist_ok=True)
    partial = CODE_CORPUS.with_suffix(".partial")
    try:
        with (
            tempfile.TemporaryDirectory(dir=CODE_CORPUS.parent) as scratch,
            partial.open("wb") as file,
        ):
            file.writelines(corpus(all_sources(Path(scratch)), CORPUS_BYTES))
        size = partial.stat().st_size
        if size < 0.99 * CORPUS_BYTES:
            raise CannotFetchError(
                f"expected {CORPUS_BYTES:,} bytes of source code, found {size:,} in Python's "
                f"libraries and the packages {', '.join(PACKAGES)}"
            )
        partial.replace(CODE_CORPUS)
    except CannotFetchError as error:
        sys.exit(f"bench-data: {error}")
    finally:
        partial.unlink(missing_ok=True)
    print(f"{CODE_CORPUS}: {CODE_CORPUS.stat().st_size:,} bytes")


def corpus(files: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Yield complete files without duplicates, each followed by SEPARATOR, up to `limit` bytes.

    Files are skipped that are empty, above MAX_FILE_BYTES, not UTF-8, or contain the separator.
    """
    seen: set[bytes] = set()
    size = 0
    for data in files:
        digest = hashlib.blake2b(data, digest_size=16).digest()
        fits = 0 < len(data) <= MAX_FILE_BYTES
        if not fits or digest in seen or SEPARATOR in data or not _is_utf8(data):
            continue
        size += len(data) + len(SEPARATOR)
        if size > limit:
            return
        seen.add(digest)
        yield data + SEPARATOR


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def python_sources() -> Iterator[bytes]:
    """Yield the files of the standard library, then those of the installed packages."""
    paths = sysconfig.get_paths()
    library, packages = Path(paths["stdlib"]), Path(paths["purelib"])
    for directory in (library, packages):
        for path in source_files(directory):
            # Some installations have the directory of the packages inside that of the library.
            if directory == packages or "site-packages" not in path.relative_to(directory).parts:
                yield path.read_bytes()


def all_sources(scratch: Path) -> Iterator[bytes]:
    """Yield Python's own sources, then those of PACKAGES, each downloaded on demand."""
    yield from python_sources()
    for package in PACKAGES:
        directory = scratch / package
        _download(package, directory)
        for archive in sorted(directory.glob("*.deb")):
            _run("dpkg-deb", "-x", archive.name, "files", directory=directory)
            archive.unlink()
        yield from _unpacked_sources(directory / "files")
        shutil.rmtree(directory)


def _unpacked_sources(directory: Path) -> Iterator[bytes]:
    for path in source_files(directory):
        yield path.read_bytes()
    for path in sorted(directory.rglob("*.tar.*")):
        with tarfile.open(path, "r|*") as archive:  # as a stream, in the order of the archive
            for member in archive:
                is_source = Path(member.name).suffix.lower() in _SUFFIXES
                if member.isfile() and is_source and (file := archive.extractfile(member)):
                    yield file.read()


def source_files(directory: Path) -> list[Path]:
    """Return the source files below a directory, sorted by path."""
    return sorted(
        (
            path
            for path in directory.rglob("*")
            if path.suffix.lower() in _SUFFIXES and path.is_file() and not path.is_symlink()
        ),
        key=lambda path: path.relative_to(directory).as_posix(),
    )


def _download(package: str, directory: Path) -> None:
    """Download a package, and the package with the sources if it only depends on that one."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise CannotFetchError(
            f"needs a Debian or Ubuntu system: {', '.join(missing)} not found. Without the corpus "
            "`make bench` leaves out the rows for 1 GB of code."
        )
    directory.mkdir()
    depends = _run("apt-cache", "depends", "--important", package, directory=directory)
    names = [line.partition("Depends:")[2].strip() for line in depends.splitlines()]
    sources = [name for name in names if "source" in name or name.endswith("-src")]
    _run("apt-get", "download", package, *sources, directory=directory)


def _run(*command: str, directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotFetchError(
            f"`{' '.join(command)}` failed:\n{done.stderr.strip()}\n"
            "If it does not know the package: `apt-get update` as root, then again."
        )
    return done.stdout


if __name__ == "__main__":
    main()
