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
from pipelines.redaction import scrub

CORE_ERROR_EXIT_CODE = 9
INTERRUPTED_EXIT_CODE = 130
TERMINATED_EXIT_CODE = 143

# Reasons of rejects for files that can't be read, or not to their end.
DAMAGED_FILE: Final = "damaged_file"
VANISHED_FILE: Final = "vanished_file"
CHANGED_FILE: Final = "changed_file"
UNREADABLE_FILE: Final = "unreadable_file"


class PipelineError(BpeError):
    """Root of the errors that a user of the pipelines can cause and mend.

    The text says what is wrong, then line by line what was expected, what was found, where, and
    what to do; parts that are not given are left out. Values of credentials are left out too.

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
        # Whole, because Beam makes an error of a worker anew from its arguments.
        super().__init__(str(self))

    def __str__(self) -> str:
        parts = (
            ("expected", self.expected),
            ("found", self.found),
            ("where", self.where),
            ("what to do", self.hint),
        )
        lines = [self.message, *(f"  {label}: {text}" for label, text in parts if text is not None)]
        return scrub("\n".join(lines))


class ConfigError(PipelineError):
    """The configuration file, an override or the command line is wrong."""

    exit_code = 2


class DifferentConfigurationError(PipelineError):
    """The output was made with another configuration or from other inputs; nothing was changed."""

    exit_code = 3


class InputError(PipelineError):
    """An input file is missing, can't be read, is corrupt, or holds what the rules refuse."""

    exit_code = 4


class OutputError(PipelineError):
    """The output can't be written: no permission, disk full, or not a directory."""

    exit_code = 5


class DamagedOutputError(OutputError):
    """A JSON file of the output can't be parsed, or is not what builds write."""


class RejectLimitError(PipelineError):
    """A larger share of the documents was rejected than `encode.max_reject_fraction` allows."""

    exit_code = 6


class IncompleteCountsError(PipelineError):
    """A shard of the counts does not hold every task exactly once."""

    exit_code = 7


class WorkerDiedError(PipelineError):
    """The process that does the work was killed by a signal or left without saying how it ended."""

    exit_code = 8


class TooLargeError(PipelineError):
    """A stage would take more memory than there is; refused before it takes it."""

    exit_code = 10


class AccountingError(PipelineError):
    """What went in is not what came out: documents or bytes of the input are not accounted for."""

    exit_code = 11


class NotWholeError(PipelineError):
    """Something is wrong with an output: `beam-bpe verify` found it."""

    exit_code = 12


class WorkerVersionError(PipelineError):
    """A worker runs other versions than the command, so its bytes could differ."""

    exit_code = 13


class JobFailedError(PipelineError):
    """An engine ended a job: it lost workers or lacked resources, or somebody cancelled it."""

    exit_code = 14


def in_a_line(error: BaseException) -> str:
    """What an error says is wrong, without line breaks and without advice."""
    if not isinstance(error, PipelineError):
        return "; ".join(line.strip() for line in str(error).splitlines())
    said = {"expected": error.expected, "found": error.found}
    return "; ".join([error.message, *(f"{key} {text}" for key, text in said.items() if text)])


def exit_code_of(error: BaseException) -> int:
    """The exit code with which the command ends because of this error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED_EXIT_CODE
    if isinstance(error, PipelineError):
        return error.exit_code
    return CORE_ERROR_EXIT_CODE if isinstance(error, BpeError) else 1


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
