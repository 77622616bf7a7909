"""Errors of the pipelines and the exit codes of the command `beam-bpe`.

    BpeError                             what bpe_core finds wrong itself               exit code 9
    └── PipelineError                    root of everything below                                 1
        ├── ConfigError                  the configuration or the command line                    2
        ├── DifferentConfigurationError  the output belongs to another configuration              3
        ├── InputError                   an input file is missing, unreadable or corrupt          4
        ├── OutputError                  the output can't be written                              5
        ├── RejectLimitError             more documents rejected than allowed                     6
        ├── IncompleteCountsError        a count shard lacks tasks or holds one twice             7
        ├── WorkerDiedError              the process doing the work died of a signal              8
        ├── TooLargeError                a stage would take more memory than there is            10
        ├── AccountingError              documents or bytes of the input are unaccounted for  11
        ├── NotWholeError                an output is not what its manifests say                 12
        ├── WorkerVersionError           a worker has other software than the command            13
        └── JobFailedError               an engine gave up a job, or somebody cancelled it       14

0 is success, 1 an unexpected error (a traceback is shown), 130 an interruption by the keyboard, 143
by SIGTERM.
"""

from __future__ import annotations

from typing import ClassVar, Final

from bpe_core.errors import BpeError
from pipelines.redaction import redact

CORE_ERROR_EXIT_CODE = 9
INTERRUPTED_EXIT_CODE = 130
TERMINATED_EXIT_CODE = 143

# Reasons of rejects for files that can't be read, or not to their end.
DAMAGED_FILE: Final = "damaged_file"
VANISHED_FILE: Final = "vanished_file"
CHANGED_FILE: Final = "changed_file"
UNREADABLE_FILE: Final = "unreadable_file"


class PipelineError(BpeError):
    """Root of the errors that a user of the pipelines can cause and fix.

    The text states the problem, then on separate lines what was expected, what was found, where,
    and what to do; missing parts are omitted. Values of credentials are redacted.

    >>> print(InputError("No file matches the pattern.", where="input.files[0]",
    ...                  hint="Check the path; it is relative to the configuration file."))
    No file matches the pattern.
      where: input.files[0]
      what to do: Check the path; it is relative to the configuration file.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.expected = expected
        self.found = found
        self.where = where
        self.hint = hint
        # The complete text, because Beam recreates an error of a worker from its arguments.
        super().__init__(str(self))

    def __str__(self) -> str:
        parts = (
            ("expected", self.expected),
            ("found", self.found),
            ("where", self.where),
            ("what to do", self.hint),
        )
        lines = [self.message, *(f"  {label}: {text}" for label, text in parts if text is not None)]
        return redact("\n".join(lines))


class ConfigError(PipelineError):
    """The configuration file, an override or the command line is wrong."""

    exit_code = 2


class DifferentConfigurationError(PipelineError):
    """The output was made with another configuration or from other inputs; nothing was changed."""

    exit_code = 3


class InputError(PipelineError):
    """An input file is missing, unreadable or corrupt, or its content is refused by the rules."""

    exit_code = 4


class OutputError(PipelineError):
    """The output can't be written: no permission, full disk, or not a directory."""

    exit_code = 5


class RejectLimitError(PipelineError):
    """The share of rejected documents exceeds `encode.max_reject_fraction`."""

    exit_code = 6


class IncompleteCountsError(PipelineError):
    """A shard of the counts does not contain every task exactly once."""

    exit_code = 7


class WorkerDiedError(PipelineError):
    """The working process was killed by a signal or exited without reporting its end."""

    exit_code = 8


class TooLargeError(PipelineError):
    """A stage would need more memory than there is; it is refused before it allocates it."""

    exit_code = 10


class AccountingError(PipelineError):
    """Documents or bytes of the input are unaccounted for in the output."""

    exit_code = 11


class NotWholeError(PipelineError):
    """`beam-bpe verify` found a problem in an output."""

    exit_code = 12


class WorkerVersionError(PipelineError):
    """A worker has other versions than the launcher, so its bytes could differ."""

    exit_code = 13


class JobFailedError(PipelineError):
    """An engine ended a job: it lost workers, lacked resources, or the job was cancelled."""

    exit_code = 14


def to_one_line(error: BaseException) -> str:
    """Return the problem of an error on one line, without the advice."""
    if not isinstance(error, PipelineError):
        return "; ".join(line.strip() for line in str(error).splitlines())
    details = {"expected": error.expected, "found": error.found}
    return "; ".join([error.message, *(f"{key} {text}" for key, text in details.items() if text)])


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of the command for this error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED_EXIT_CODE
    if isinstance(error, PipelineError):
        return error.exit_code
    return CORE_ERROR_EXIT_CODE if isinstance(error, BpeError) else 1


class BadFileError(InputError):
    """A file can't be read, or not to its end, and the fault is in the file itself."""

    reason: ClassVar[str]


class DamagedFileError(BadFileError):
    """A file does not have its format or compression, or is truncated."""

    reason = DAMAGED_FILE


class ChangedFileError(BadFileError):
    """A file has changed since the work was planned."""

    reason = CHANGED_FILE


class VanishedFileError(ChangedFileError):
    """A file no longer exists that existed when the work was planned."""

    reason = VANISHED_FILE


class UnreadableFileError(InputError):
    """A file can't be read because its storage keeps failing.

    The fault is not in the file, so the build ends; it continues when the storage is available.
    """


class ForbiddenFileError(BadFileError, UnreadableFileError):
    """Permission to read a file is denied."""

    reason = UNREADABLE_FILE


class BadFileLimitError(InputError):
    """A source has more bad files than `input.max_bad_files` allows."""
