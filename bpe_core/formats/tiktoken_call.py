"""The call of `tiktoken.Encoding` that goes with a .tiktoken file, as a Python module.

Ranks alone are no tokenizer: the pattern and the special tokens stand here, ready to be imported or
copied. Nothing in this package runs the module.
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
    """The name of the module that goes with a file of ranks.

    Example:
        >>> call_name("tokenizer.tiktoken")
        'tokenizer_tiktoken.py'
    """
    return ranks_name.removesuffix(".tiktoken") + "_tiktoken.py"


def tiktoken_call(model: TokenizerModel, ranks_name: str) -> bytes:
    """The module, to stand beside the file of ranks.

    Raises:
        CannotHoldError: tiktoken has no pattern that splits as this tokenizer's does, or it may
            find other special tokens.
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
    """Refuses a special token that begins another: tiktoken takes whichever it tries first."""
    # In order, what begins with a text follows it.
    for text, following in pairwise(sorted(special_tokens)):
        if following.startswith(text):
            raise CannotHoldError(
                f"the special token {text!r} begins another, {following!r}, and tiktoken does not "
                "look for the longest first"
            )


def pat_str(pattern: str) -> str:
    """The pattern as tiktoken is to be given it.

    Raises:
        CannotHoldError: it has none that splits alike.
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
    # tiktoken drops what its pattern leaves unmatched; here that is a pre-token of its own.
    return rf"{translated}|(?:(?!{translated})[\s\S])+"
