"""The exceptions of bpe_core.

::

    BpeError                      everything this project raises on purpose
    ├── InvalidPatternError       a split pattern that does not compile
    ├── InvalidTokenizerError     a vocabulary, merges or special tokens that contradict each
    │                             other, or an unknown normalizer
    ├── InvalidUtf8Error          text that must be UTF-8 and is not
    ├── SpecialTokenError         a special token in text where it is not allowed
    ├── UnknownTokenError         a byte without an id, or an id without bytes
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


class TrainingError(BpeError, ValueError):
    """Training that cannot start or go on."""


class CountOverflowError(TrainingError):
    """A count that does not fit 64 bits."""


class FormatError(BpeError, ValueError):
    """A file that is not what it should be."""
