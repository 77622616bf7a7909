"""The call of `tiktoken.Encoding` that belongs to a .tiktoken file, as a Python module.

Ranks alone are not a tokenizer: the module adds the pattern and the special tokens, to be imported
or copied. Nothing in this package runs the module.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from bpe_core.formats.files import CannotHoldError
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern
from bpe_core.split_patterns.parser import parse
from bpe_core.split_patterns.program import may_be_empty
from bpe_core.split_patterns.syntax import UnsupportedPatternError
from bpe_core.split_patterns.translation import translate


def call_name(ranks_name: str) -> str:
    """Return the name of the module that belongs to a file of ranks.

    Example:
        >>> call_name("tokenizer.tiktoken")
        'tokenizer_tiktoken.py'
    """
    return ranks_name.removesuffix(".tiktoken") + "_tiktoken.py"


def tiktoken_call(model: TokenizerModel, ranks_name: str) -> bytes:
    """Return the module, to be stored beside the file of ranks.

    Raises:
        CannotHoldError: tiktoken has no pattern that splits like this tokenizer's, or it may find
            other special tokens.
    """
    _check_not_begun_by_another(model.special_tokens)
    name = ranks_name.removesuffix(".tiktoken")
    specials = "".join(f"        {text!r}: {i},\n" for text, i in model.special_tokens.items())
    return f'''\
"""tiktoken's encoding of the ranks beside this file."""

import base64
from pathlib import Path

import tiktoken

_RANKS = Path(__file__).with_name({ranks_name!r}).read_bytes()

encoding = tiktoken.Encoding(
    name={name!r},
    pat_str={pat_str(model.pattern)!r},
    mergeable_ranks={{
        base64.b64decode(token): int(rank)
        for token, rank in map(bytes.split, _RANKS.splitlines())
    }},
    special_tokens={{
{specials}    }},
)
'''.encode()


def _check_not_begun_by_another(special_tokens: Iterable[str]) -> None:
    """Refuse a special token that is a prefix of another: tiktoken uses the one it tries first."""
    # In sorted order, texts with a common prefix follow that prefix.
    for text, following in pairwise(sorted(special_tokens)):
        if following.startswith(text):
            raise CannotHoldError(
                f"the special token {text!r} begins another, {following!r}, and tiktoken does not "
                "look for the longest first"
            )


def pat_str(pattern: str) -> str:
    """Return the pattern in the form for tiktoken.

    Raises:
        CannotHoldError: There is none that splits in the same way.
    """
    resolved = resolve_pattern(pattern)
    if resolved.name is not None:
        return resolved.regex
    if len(resolved.steps) > 1:
        raise CannotHoldError("the pattern is a chain of several, and tiktoken takes one")
    try:
        if may_be_empty(parse(pattern, "regex")):
            raise CannotHoldError("the pattern may match nothing, which tiktoken cannot encode")
        translated = translate(pattern, "regex", "fancy_regex")
    except UnsupportedPatternError as error:
        raise CannotHoldError(
            f"the custom pattern may mean something else to tiktoken: {error}"
        ) from None
    # tiktoken drops unmatched text; here it is a separate pre-token.
    return rf"{translated}|(?:(?!{translated})[\s\S])+"
