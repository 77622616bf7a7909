"""Search for files of this disk by a pattern, with a check of the symbolic links on the way."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from fsspec.utils import glob_translate

from pipelines.config.source import FollowLinks
from pipelines.errors import InputError

# Links to folders can lead back to where they are, or multiply with each level.
_MOST_VISITS: Final = 16


class LinkCheck:
    """Check that symbolic links lead to files and folders inside a folder.

    Args:
        folder: The folder.
        where: Key of the configuration that names the files, for messages.
        follow_links: "anywhere" if links may lead out of the folder.
    """

    def __init__(self, folder: str, where: str, follow_links: FollowLinks) -> None:
        self._root = os.path.realpath(folder)
        self._where = where
        self._follow_links = follow_links
        self._faults: dict[str, InputError | None] = {folder: None, folder.rstrip("/"): None}
        self._visits: Counter[str] = Counter()

    def find_fault(self, path: str) -> InputError | None:
        """Return an error if a link on a path below the folder leads out of it."""
        if self._follow_links == "anywhere" or path in self._faults:
            return self._faults.get(path)
        above = os.path.dirname(path)  # noqa: PTH120, Path normalizes
        fault = self._faults[above] = self.find_fault(above)
        if fault is None and os.path.islink(path):  # noqa: PTH114
            return self._check_target(path)
        return fault

    def visit(self, link: str) -> None:
        """Check a link to a folder that is to be searched.

        Raises:
            InputError: It leads out of the folder, or this or another one led to its target often.
        """
        if fault := self.find_fault(link):
            raise fault
        target = os.path.realpath(link)
        self._visits[target] += 1
        if self._visits[target] > _MOST_VISITS:
            raise InputError(
                "Links reach the same folder again and again.",
                expected=f"at most {_MOST_VISITS} ways to a folder below {self._root}",
                found=f"more to {target}, by links to folders that contain links",
                where=link,
                hint=f"Remove the link, or name the folders one by one in {self._where}.",
            )

    def _check_target(self, link: str) -> InputError | None:
        target = os.path.realpath(link)
        if not os.path.lexists(target) or f"{target}/".startswith(f"{self._root.rstrip('/')}/"):
            return None
        return InputError(
            "A link leads out of the input folder.",
            expected=f"links to files and folders below {self._root} (input.follow_links: inside)",
            found=f"a link to {target}",
            where=link,
            hint="Remove the link. If you trust the links there, set input.follow_links: anywhere; "
            "input.exclude excludes some.",
        )


def find_local(pattern: str, links: LinkCheck) -> Iterator[tuple[str, InputError | None]]:
    """Yield the paths that match a pattern, with an error for those that links lead out to.

    Links to folders are followed, unlike by fsspec's search.

    Raises:
        InputError: A link to a folder leads out, or in circles.
        OSError: A folder cannot be read.
    """
    parts = pattern.split("/")
    if "**" not in parts:
        for path in glob.iglob(pattern, include_hidden=True):  # noqa: PTH207
            yield path, links.find_fault(path)
        return
    first = parts.index("**")
    above = "/".join([*parts[:first], ""])
    below = "/".join(part if part == "**" else re.sub(r"\*+", "*", part) for part in parts[first:])
    matches = re.compile(glob_translate(below)).match
    for folder in glob.iglob(above, include_hidden=True) if above else [""]:  # noqa: PTH207
        if fault := links.find_fault(folder.rstrip("/")):
            raise fault
        for path in _walk(folder, links):
            if matches(path[len(folder) :]):
                yield path, links.find_fault(path)


def _walk(folder: str, links: LinkCheck) -> Iterator[str]:
    """Yield the paths of everything below a folder, which ends with a slash, but of no folder."""
    folders = [folder]
    while folders:
        folder = folders.pop()
        with os.scandir(folder or ".") as entries:
            for entry in entries:
                path = folder + entry.name
                if not entry.is_dir():
                    yield path
                    continue
                if entry.is_symlink():
                    links.visit(path)
                folders.append(f"{path}/")
