"""Checks of tokenizer files with the library that defines their format."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from bpe_core import BPETokenizer
from bpe_core.formats import CannotHoldError, FormatName
from bpe_core.formats.tiktoken_call import pat_str
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern

__all__ = ["Checked", "check_with_library"]

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Result of a check.

    Attributes:
        library: name and version of the library; only the name if it is not installed.
        ids: number of compared ids; None if they were not compared.
        reason: why they were not compared, as a phrase.
    """

    library: str
    ids: int | None
    reason: str = "which is not installed"

    def __str__(self) -> str:
        """Return the result as a phrase."""
        if self.ids is None:
            return f"not checked with {self.library}, {self.reason}"
        return f"checked: {self.library} returns the same {self.ids:,} ids"


def check_with_library(
    format_: FormatName,
    paths: Sequence[Path],
    model: TokenizerModel,
    text: str,
    *,
    is_source: bool = False,
) -> Checked | None:
    """Encode a text and every special token with the library, and compare the ids with ours.

    Args:
        format_: format of the files.
        paths: the files, in the order of the format.
        model: the tokenizer that the files should contain.
        text: text to encode.
        is_source: True if the model was read from the files; False if they were written from it.

    Returns:
        The result; None for the format that no other library has.

    Raises:
        CannotHoldError: the library returns other ids, or cannot load the files.
    """
    if format_ not in _LIBRARIES:
        return None
    name = _LIBRARIES[format_]
    try:
        library = import_module(name)
    except ImportError:
        return Checked(library=_distribution(name), ids=None)
    installed = f"{_distribution(name)} {_version(name)}".rstrip()
    if is_source and (reason := _why_not(format_, model)) is not None:
        return Checked(library=installed, ids=None, reason=reason)
    if format_ not in _WITHOUT_SPECIAL_TOKENS:
        text += "".join(f" {special}a{special}\n" for special in model.special_tokens)
    result = "source" if is_source else "result"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            encode = _ENCODERS[format_](library, list(paths), model)
            found = encode(text)
    except Exception as error:  # libraries raise any exception, even Exception itself
        raise CannotHoldError(
            f"{installed} cannot load the {result}: {type(error).__name__}: {error}"
        ) from error
    specials: Literal["all", "none"] = "none" if format_ in _WITHOUT_SPECIAL_TOKENS else "all"
    ours = BPETokenizer.from_model(model).encode(text, allowed_special=specials)
    if found != ours:
        raise CannotHoldError(
            f"{installed} returns other ids: {_describe_difference(model, ours, found)}"
        )
    return Checked(library=installed, ids=len(ours))


def _why_not(format_: FormatName, model: TokenizerModel) -> str | None:
    """Return the reason why the library cannot encode as a source means; None if it can."""
    if format_ == "gpt2" and resolve_pattern(model.pattern).name != "gpt2":
        return "which always splits with GPT-2's pattern"
    if format_ == "tiktoken":
        try:
            pat_str(model.pattern)
        except CannotHoldError as error:
            return f"as {error}"
    return None


def _huggingface(library: Any, paths: list[Path], model: TokenizerModel) -> Encode:
    tokenizer = library.Tokenizer.from_file(str(paths[0]))
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _gpt2(library: Any, paths: list[Path], model: TokenizerModel) -> Encode:
    tokenizer = library.ByteLevelBPETokenizer(*map(str, paths))
    tokenizer.add_special_tokens(
        [library.AddedToken(text, normalized=False) for text in model.special_tokens]
    )
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _tiktoken(library: Any, paths: list[Path], model: TokenizerModel) -> Encode:
    lines = map(bytes.split, paths[0].read_bytes().splitlines())
    encoding = library.Encoding(
        "converted",
        pat_str=pat_str(model.pattern),
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
        special_tokens=dict(model.special_tokens),
    )
    return lambda text: list(encoding.encode(text, allowed_special="all"))


def _minbpe(library: Any, paths: list[Path], model: TokenizerModel) -> Encode:
    if model.pattern == "none":
        tokenizer, arguments = library.BasicTokenizer(), []
    else:
        tokenizer, arguments = library.RegexTokenizer(), ["all"]
    tokenizer.load(str(paths[0]))
    return lambda text: list(tokenizer.encode(text, *arguments))


def _sentencepiece(library: Any, paths: list[Path], model: TokenizerModel) -> Encode:
    processor = library.SentencePieceProcessor(model_file=str(paths[0]))
    return lambda text: list(processor.encode(text))


def _tekken(library: Any, paths: list[Path], model: TokenizerModel) -> Encode:
    tokenizer = library.Tekkenizer.from_file(paths[0])
    # It does not find special tokens in a text: their ids are compared one by one.
    for text, token_id in model.special_tokens.items():
        found = tokenizer.get_special_token(text)
        if found != token_id:
            raise ValueError(f"the special token {text!r} has the id {found}, not {token_id}")
    return lambda text: list(tokenizer.encode(text, bos=False, eos=False))


_LIBRARIES: dict[FormatName, str] = {
    "huggingface": "tokenizers",
    "gpt2": "tokenizers",
    "tiktoken": "tiktoken",
    "minbpe": "minbpe",
    "sentencepiece": "sentencepiece",
    "tekken": "mistral_common.tokens.tokenizers.tekken",
}
# Libraries that do not find special tokens in a text.
_WITHOUT_SPECIAL_TOKENS = frozenset({"tekken"})
_ENCODERS: dict[FormatName, Callable[[Any, list[Path], TokenizerModel], Encode]] = {
    "huggingface": _huggingface,
    "gpt2": _gpt2,
    "tiktoken": _tiktoken,
    "minbpe": _minbpe,
    "sentencepiece": _sentencepiece,
    "tekken": _tekken,
}


def _distribution(name: str) -> str:
    """Return the name of the package that a module is in, as users install it."""
    return name.partition(".")[0].replace("_", "-")


def _version(name: str) -> str:
    try:
        return version(_distribution(name))
    except PackageNotFoundError:  # a checkout
        return ""


def _describe_difference(model: TokenizerModel, ours: list[int], found: list[int]) -> str:
    pairs = enumerate(zip(ours, found, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(found)))
    before = b"".join(model.vocab[i] for i in ours[max(at - 8, 0) : at])
    return (
        f"after {before.decode('utf-8', 'replace')!r} it returns {found[at : at + 4]}, and this "
        f"package {ours[at : at + 4]}; nothing was written"
    )
