"""Errors of the pipelines and the exit codes of the command `beam-bpe`.

    BpeError                             raised by bpe_core itself
    └── PipelineError                    the root of everything below
        ├── ConfigError
        ├── DifferentConfigurationError
        ├── InputError
        │   ├── BadFileError
        │   │   ├── DamagedFileError
        │   │   ├── ChangedFileError
        │   │   │   └── VanishedFileError
        │   │   └── ForbiddenFileError
        │   ├── UnreadableFileError
        │   │   └── ForbiddenFileError
        │   ├── ExpansionError
        │   └── BadFileLimitError
        ├── OutputError
        ├── RejectLimitError
        ├── IncompleteCountsError
        ├── WorkerDiedError
        ├── TooLargeError
        ├── AccountingError
        ├── NotWholeError
        ├── WorkerVersionError
        └── JobFailedError

Each has the exit code of its class; `EXIT_CODES` has the meaning of each code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from bpe_core.errors import BpeError, SlowPatternError
from pipelines.redaction import redact

CORE_ERROR_EXIT_CODE: Final = 9
INTERRUPTED_EXIT_CODE: Final = 130
TERMINATED_EXIT_CODE: Final = 143

# `beam-bpe --help` shows these, and so does the table in docs/configuration.md.
EXIT_CODES: Final[Mapping[int, str]] = {
    0: "done",
    1: "unexpected error, shown with its traceback",
    2: "wrong configuration or command line",
    3: "the output belongs to another configuration",
    4: "input or a tokenizer file missing, unreadable or corrupt",
    5: "the output cannot be written",
    6: "more documents rejected than encode.max_reject_fraction allows",
    7: "counts incomplete",
    8: "the working process died",
    CORE_ERROR_EXIT_CODE: "invalid tokenizer or pattern, or a format that cannot hold a tokenizer",
    10: "a stage needs more memory than is available",
    11: "documents or bytes of the input are unaccounted for",
    12: "verification found a problem",
    13: "a worker has other versions of the software",
    14: "the engine failed or cancelled a job",
    INTERRUPTED_EXIT_CODE: "interrupted from the keyboard",
    TERMINATED_EXIT_CODE: "terminated by SIGTERM",
}

# Reasons of rejects that stand for a file, or the rest of one, that cannot be read.
DAMAGED_FILE: Final = "damaged_file"
VANISHED_FILE: Final = "vanished_file"
CHANGED_FILE: Final = "changed_file"
UNREADABLE_FILE: Final = "unreadable_file"


class PipelineError(BpeError):
    """Root of the errors that a user of the pipelines can cause and fix.

    The text has a line for the message and one for each part that is given: expected, found,
    where, what to do. Values of credentials are redacted.

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
        # The full text, because Beam recreates an error of a worker from its arguments.
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

    def to_json(self) -> dict[str, str | int | None]:
        """Return the parts of the text and the exit code as JSON values."""
        parts = {
            "message": self.message,
            "expected": self.expected,
            "found": self.found,
            "where": self.where,
            "hint": self.hint,
        }
        redacted = {key: None if text is None else redact(text) for key, text in parts.items()}
        return {**redacted, "exit_code": self.exit_code}


class ConfigError(PipelineError):
    """The configuration file, an override or the command line is wrong."""

    exit_code = 2


class DifferentConfigurationError(PipelineError):
    """The output was made with another configuration or from other inputs; nothing was changed."""

    exit_code = 3


class InputError(PipelineError):
    """An input file is missing, unreadable or corrupt, or contains what the rules refuse."""

    exit_code = 4


class OutputError(PipelineError):
    """The output cannot be written: no permission, disk full, or not a directory."""

    exit_code = 5


class DamagedOutputError(OutputError):
    """A JSON file of the output cannot be parsed, or is not what builds write."""


class RejectLimitError(PipelineError):
    """A larger share of the documents was rejected than `encode.max_reject_fraction` allows."""

    exit_code = 6


class IncompleteCountsError(PipelineError):
    """A shard of the counts does not contain every task exactly once."""

    exit_code = 7


class WorkerDiedError(PipelineError):
    """The working process was killed by a signal, or exited without reporting its end."""

    exit_code = 8


class TooLargeError(PipelineError):
    """A stage would need more memory than there is; it was not begun."""

    exit_code = 10


class AccountingError(PipelineError):
    """Documents or bytes of the input are not accounted for in the output."""

    exit_code = 11


class NotWholeError(PipelineError):
    """`beam-bpe verify` found a problem in an output."""

    exit_code = 12


class WorkerVersionError(PipelineError):
    """A worker has other versions than the launcher, so its bytes could differ."""

    exit_code = 13


class JobFailedError(PipelineError):
    """An engine ended a job: it lost workers or lacked resources, or someone cancelled it."""

    exit_code = 14


def shortened(
    items: Sequence[str], limit: int, *, total: int | None = None, separator: str = ", "
) -> str:
    """Join the first items for a message, and add how many more there are.

    Args:
        items: Items to list, the most important first.
        limit: Number of items to show.
        total: Number of items there are, if `items` are not all of them.
        separator: Text between two items.

    Example:
        >>> shortened(["a.txt", "b.txt", "c.txt"], 2), shortened(["a.txt"], 2)
        ('a.txt, b.txt, and 1 more', 'a.txt')
    """
    shown = items[:limit]
    more = (len(items) if total is None else total) - len(shown)
    return separator.join([*shown, *([f"and {more:,} more"] if more > 0 else [])])


def to_one_line(error: BaseException) -> str:
    """Return the text of an error in one line, without place and advice."""
    if not isinstance(error, PipelineError):
        return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    said = {"expected": error.expected, "found": error.found}
    message = error.message.removesuffix(".")
    return "; ".join([message, *(f"{key} {text}" for key, text in said.items() if text)])


def slow_pattern_error(error: SlowPatternError, document: str) -> InputError:
    """Return the error for a document that the split pattern does not split in time."""
    return InputError(
        "The split pattern backtracks too long in a document.",
        expected=f"at most {error.seconds:.0f} s for {error.chars:,} characters: 10 s, and 10 for "
        "each million",
        found="no end of it",
        where=document,
        hint="Change tokenizer.pattern, such as repeats within repeats, or remove the document.",
    )


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED_EXIT_CODE
    if isinstance(error, PipelineError):
        return error.exit_code
    return CORE_ERROR_EXIT_CODE if isinstance(error, BpeError) else 1


class BadFileError(InputError):
    """A file cannot be read, or not to its end, because of the file itself."""

    reason: ClassVar[str]


class DamagedFileError(BadFileError):
    """A file is malformed for its format or compression, or is truncated."""

    reason = DAMAGED_FILE


class ChangedFileError(BadFileError):
    """A file has changed since the work was planned."""

    reason = CHANGED_FILE


class VanishedFileError(ChangedFileError):
    """A file has disappeared since the work was planned."""

    reason = VANISHED_FILE


class UnreadableFileError(InputError):
    """A file cannot be read because its storage keeps failing.

    The build ends, and the same command resumes it when the storage works again.
    """


class ForbiddenFileError(BadFileError, UnreadableFileError):
    """The permissions of a file forbid reading it."""

    reason = UNREADABLE_FILE


class ExpansionError(InputError):
    """A file expands to more text than `input.max_expansion` allows; see `storage.expansion`.

    Not a bad file: `input.max_bad_files` does not allow it, so the limit decides about no output.
    """


class BadFileLimitError(InputError):
    """More files of a source are bad than `input.max_bad_files` allows."""
