"""Checks of tokenizer files with the library that defines their format."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bpe_core import BPETokenizer
from bpe_core.formats import CannotHoldError, FormatName
from bpe_core.formats.tiktoken_call import pat_str
from bpe_core.model import TokenizerModel

__all__ = ["SAMPLE", "Checked", "check_with_library"]

Encode = Callable[[str], list[int]]

SAMPLE = "\n".join(
    [
        "It's what they'd've said: WE'LL see, I'M sure, don't you? 'Tis so; naïve; caf e\u0301.",
        "\n  def area(r: float) -> float:\n\t\treturn 3.14 * r**2  # 1,000 or 12345678?\r\n\r",
        "{\"key\": [null, -1e-5], 'x_1': `a && b || !c`}; // https://example.org/?q=%20&n=42#top",
        "Жили-были старик со старухой. Η γάτα κοιμάται· अब सो जाओ। แมวกำลังนอนหลับ",
        "猫は縁側で寝ている。고양이가 잔다. 第\uff13个\uff0c共½页。 القط نائم، ١٢٣. החתול ישן.",
        "\u01c4ungla \u01c5 \ufb01n \u017f \u212a \u212b 🙂 👍🏽 👩\u200d👧 🇨🇭 \u00a0\u2028\u3000",
        "\x00\x07\x7f ---===!!!...…—“quoted”   \t \n   \n\n\n end   ",
    ]
)
"""Sample with contractions, digits, code, many scripts, emoji, control characters, white space."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Result of a check.

    Attributes:
        library: name and version of the library; only the name if it is not installed.
        ids: number of compared ids; None if the library is not installed.
    """

    library: str
    ids: int | None


def check_with_library(
    format_: FormatName, directory: Path, files: list[str], model: TokenizerModel, text: str
) -> Checked:
    """Encode a text and every special token with the library, and compare the ids with ours.

    Args:
        format_: format of the files; not `arrow`, which has no other library.
        directory: directory of the files.
        files: names of the files, in the order of the format.
        model: the tokenizer that the files should contain.
        text: text to encode.

    Raises:
        CannotHoldError: the library returns other ids, or cannot load the files.
    """
    name = _LIBRARIES[format_]
    try:
        library = import_module(name)
    except ImportError:
        return Checked(library=name, ids=None)
    installed = f"{name} {_version(name)}".rstrip()
    text += "".join(f" {special}a{special}\n" for special in model.special_tokens)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            encode = _ENCODERS[format_](library, [directory / file for file in files], model)
            found = encode(text)
    except Exception as error:  # libraries raise any exception, even Exception itself
        raise CannotHoldError(
            f"{installed} cannot load the result: {type(error).__name__}: {error}"
        ) from error
    ours = BPETokenizer.from_model(model).encode(text)
    if found != ours:
        raise CannotHoldError(
            f"{installed} returns other ids: {_describe_difference(model, ours, found)}"
        )
    return Checked(library=installed, ids=len(ours))


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


_LIBRARIES: dict[FormatName, str] = {
    "huggingface": "tokenizers",
    "gpt2": "tokenizers",
    "tiktoken": "tiktoken",
    "minbpe": "minbpe",
}
_ENCODERS: dict[FormatName, Callable[[Any, list[Path], TokenizerModel], Encode]] = {
    "huggingface": _huggingface,
    "gpt2": _gpt2,
    "tiktoken": _tiktoken,
    "minbpe": _minbpe,
}


def _version(name: str) -> str:
    try:
        return version(name)
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
