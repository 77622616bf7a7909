"""What may be wrong with an input file as a whole, and how many such files a build allows.

With `input.max_bad_files: 0` each of these errors ends the build. Otherwise the documents in front
of it are kept, and the rest of the file is one reject.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pipelines.errors import InputError
from pipelines.rejects.reasons import CHANGED_FILE, DAMAGED_FILE, UNREADABLE_FILE, VANISHED_FILE


class BadFileError(InputError):
    """A file can't be read, or not to its end, and that is the file's fault."""

    reason: ClassVar[str]


class DamagedFileError(BadFileError):
    """A file is not what its form or its compression says, or is cut short."""

    reason = DAMAGED_FILE


class ChangedFileError(BadFileError):
    """A file is not what it was when the work was planned."""

    reason = CHANGED_FILE


class VanishedFileError(ChangedFileError):
    """A file that was there when the work was planned is gone."""

    reason = VANISHED_FILE


class UnreadableFileError(InputError):
    """A file can't be read. Where its storage fails again and again, that is not the file's fault:
    the build ends, and goes on when the storage is back.
    """


class ForbiddenFileError(BadFileError, UnreadableFileError):
    """A file may not be read."""

    reason = UNREADABLE_FILE


class BadFileLimitError(InputError):
    """More files of a source are bad than `input.max_bad_files` allows."""


def too_many_bad_files(
    limit: int, files: Sequence[str], number: int, where: str | None = None
) -> BadFileLimitError:
    """The error for more bad files in a source than allowed; `files` are some of them."""
    more = number - len(files)
    return BadFileLimitError(
        "Too many input files are bad.",
        expected=f"at most {limit:,} of a source (input.max_bad_files)",
        found=f"{number:,}\n    "
        + "\n    ".join(files)
        + (f"\n    and {more:,} more" * (more > 0)),
        where=where,
        hint="Get them again or leave them out of input.files, or raise input.max_bad_files and "
        "run the same command again.",
    )
