"""The exceptions of bpe_core.

::

    BpeError                      root of the errors that this project raises deliberately
    ├── InvalidPatternError       a split pattern that does not compile or cannot split text
    ├── SlowPatternError          a split pattern that backtracks too long in a text
    ├── InvalidTokenizerError     a vocabulary, merges or special tokens that contradict each
    │                             other, or an unknown normalizer
    ├── InvalidUtf8Error          text that must be UTF-8 but is not
    ├── SpecialTokenError         a special token in text where it is not allowed
    ├── UnknownTokenError         a byte without an id, or an id without bytes
    │   └── UnknownCharacterError a character without an id
    ├── TrainingError             training that cannot start or continue
    │   └── CountOverflowError    a count that does not fit into 64 bits
    ├── FormatError               a damaged file, or one of another format
    └── HubError                  a repository of the Hub that cannot be read

All of them except BpeError and HubError, an OSError, are also ValueErrors. A message contains what
was expected, what was found, where, and what to do.
"""

from __future__ import annotations

__all__ = [
    "BpeError",
    "CountOverflowError",
    "FormatError",
    "HubError",
    "InvalidPatternError",
    "InvalidTokenizerError",
    "InvalidUtf8Error",
    "SlowPatternError",
    "SpecialTokenError",
    "TrainingError",
    "UnknownCharacterError",
    "UnknownTokenError",
]


class BpeError(Exception):
    """Root of the errors that this project raises deliberately."""


class InvalidPatternError(BpeError, ValueError):
    """A split pattern that does not compile or cannot split text."""


class SlowPatternError(BpeError, ValueError):
    """A split pattern that backtracks too long in a text; see `patterns.split_custom`.

    Attributes:
        seconds: the limit for this text.
        chars: length of the text.
        document: number of the document that contains it, among those that were given.
    """

    def __init__(
        self, message: str, seconds: float = 0.0, chars: int = 0, document: int = 0
    ) -> None:
        super().__init__(message, seconds, chars, document)
        self.seconds = seconds
        self.chars = chars
        self.document = document

    def __str__(self) -> str:
        return str(self.args[0])


class InvalidTokenizerError(BpeError, ValueError):
    """A vocabulary, merges or special tokens that contradict each other; an unknown normalizer."""


class InvalidUtf8Error(BpeError, ValueError):
    """Text that must be UTF-8 but is not."""


class SpecialTokenError(BpeError, ValueError):
    """A special token in text where it is not allowed."""


class UnknownTokenError(BpeError, ValueError):
    """A byte without an id, or an id without bytes."""


class UnknownCharacterError(UnknownTokenError):
    """A character without an id.

    Attributes:
        found: description of the character and its word.
        document: number of the document that contains it.
    """

    def __init__(self, message: str, found: str = "", document: int = 0) -> None:
        super().__init__(message, found, document)
        self.found = found
        self.document = document

    def __str__(self) -> str:
        return str(self.args[0])


class TrainingError(BpeError, ValueError):
    """Training that cannot start or continue."""


class CountOverflowError(TrainingError):
    """A count that does not fit into 64 bits."""


class FormatError(BpeError, ValueError):
    """A damaged file, or one of another format."""


class HubError(BpeError, OSError):
    """A repository of the Hugging Face Hub that is missing, not permitted or unreachable."""
