"""The exceptions of bpe_core.

::

    BpeError                      everything this project raises on purpose
    ├── InvalidPatternError       a split pattern that does not compile
    ├── InvalidTokenizerError     a vocabulary, merges or special tokens that contradict each
    │                             other, or an unknown normalizer
    ├── InvalidUtf8Error          text that must be UTF-8 and is not
    ├── SpecialTokenError         a special token in text where it is not allowed
    ├── UnknownTokenError         a byte without an id, or an id without bytes
    │   └── UnknownCharacterError a character without an id
    ├── TrainingError             training that cannot start or go on
    │   └── CountOverflowError    a count that does not fit 64 bits
    └── FormatError               a file that is not what it should be

All but BpeError itself are ValueErrors too. Messages say what was expected, what was found, where,
and what to do.
"""

from __future__ import annotations

__all__ = [
    "BpeError",
    "CountOverflowError",
    "FormatError",
    "InvalidPatternError",
    "InvalidTokenizerError",
    "InvalidUtf8Error",
    "SpecialTokenError",
    "TrainingError",
    "UnknownCharacterError",
    "UnknownTokenError",
]


class BpeError(Exception):
    """Root of the exceptions that this project raises on purpose."""


class InvalidPatternError(BpeError, ValueError):
    """A split pattern that does not compile."""


class InvalidTokenizerError(BpeError, ValueError):
    """A vocabulary, merges or special tokens that contradict each other; an unknown normalizer."""


class InvalidUtf8Error(BpeError, ValueError):
    """Text that must be UTF-8 and is not."""


class SpecialTokenError(BpeError, ValueError):
    """A special token in text where it is not allowed."""


class UnknownTokenError(BpeError, ValueError):
    """A byte without an id, or an id without bytes."""


class UnknownCharacterError(UnknownTokenError):
    """A character without an id.

    Attributes:
        found: the character and its word, in words.
        document: the number of the document that has it.
    """

    def __init__(self, message: str, found: str = "", document: int = 0) -> None:
        super().__init__(message, found, document)
        self.found = found
        self.document = document

    def __str__(self) -> str:
        return str(self.args[0])


class TrainingError(BpeError, ValueError):
    """Training that cannot start or go on."""


class CountOverflowError(TrainingError):
    """A count that does not fit 64 bits."""


class FormatError(BpeError, ValueError):
    """A file that is not what it should be."""
