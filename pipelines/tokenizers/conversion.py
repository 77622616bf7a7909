"""Conversion of tokenizer files between formats, for `beam-bpe convert`.

The result is written only after two checks: read back, it is the same tokenizer, and the library
that defines the format, if it is installed, returns the same ids.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bpe_core import formats
from bpe_core.errors import BpeError
from bpe_core.formats import CannotHoldError, FormatName, TokenizerFile, WrittenFormat
from bpe_core.formats.arrow import arrow_bytes
from bpe_core.formats.files import join, names_in, read_bytes, read_text, write_files
from bpe_core.formats.gpt2 import vocab_merges_bytes
from bpe_core.formats.huggingface import huggingface_bytes, tokenizer_config_bytes
from bpe_core.formats.ranks import tiktoken_bytes
from bpe_core.formats.sentencepiece import sentencepiece_bytes
from bpe_core.formats.tiktoken_call import call_name, tiktoken_call
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern
from bpe_core.short_repr import short_repr
from pipelines.errors import ConfigError, OutputError
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import format_affixes
from pipelines.tokenizers.peer_check import Checked, check_with_library
from pipelines.tokenizers.samples import SAMPLE
from pipelines.tokenizers.sources import SourceOptions, input_errors, read_source

__all__ = ["Conversion", "Request", "convert", "format_conversion"]


@short_repr
@dataclass(frozen=True, kw_only=True)
class Request:
    """Conversion to be made.

    Attributes:
        source: file or directory in any format, as a path or fsspec URL.
        destination: directory, or file with the extension of the format.
        to: format to write.
        source_format: format of the source; None to detect it.
        merges: the merges.txt of a vocab.json; None for the one beside it.
        pattern: name or regular expression of the pattern, for formats that do not contain it.
        special_tokens: special tokens as NAME=ID or NAME, for formats that do not contain them.
        sample: UTF-8 file for checking the result; None for a built-in text.
    """

    source: str
    destination: str
    to: WrittenFormat
    source_format: FormatName | None = None
    merges: str | None = None
    pattern: str | None = None
    special_tokens: Sequence[str] = ()
    sample: str | None = None


@short_repr
@dataclass(frozen=True, kw_only=True)
class Conversion:
    """Result of a conversion.

    Attributes:
        source: the file that was read.
        model: the tokenizer.
        source_checked: result of the check of the source with the library that owns its format;
            None for this package's own format.
        written: paths or URLs of the files.
        checked: result of the check with the library; None for this package's own format.
        notes: notes for the user, such as properties that the format cannot store.
    """

    source: TokenizerFile
    model: TokenizerModel
    source_checked: Checked | None
    written: tuple[str, ...]
    checked: Checked | None
    notes: tuple[str, ...]


def convert(request: Request) -> Conversion:
    """Read a tokenizer, convert it, check the result, and write it.

    Raises:
        ConfigError: options for the source are missing, or do not apply to its format.
        InputError: the source or the sample is unreadable or malformed.
        CannotHoldError: the format cannot store the tokenizer, or the library returns other ids.
        OutputError: the result cannot be written, or its names are taken by other files.
    """
    _check_destination(request.to, request.destination)
    sample = SAMPLE if request.sample is None else _read_sample(request.sample)
    options = SourceOptions(
        format=request.source_format,
        merges=request.merges,
        pattern=request.pattern,
        special_tokens=_parse_special_tokens(request.special_tokens),
    )
    read = read_source(request.source, options, sample)
    source, model = read.file, read.model
    with tempfile.TemporaryDirectory() as name:
        staging = Path(name)
        try:
            directory, names = _stage(request.to, model, request.destination, staging)
        except CannotHoldError as error:
            hint = _suggest_specials(request.to, model) if source.format == "gpt2" else ""
            raise CannotHoldError(
                f"the format {request.to} cannot store this tokenizer: {error}; nothing was written"
                + hint
            ) from None
        _check_read_back(request.to, model, staging, names)
        paths = [staging / name for name in names]
        checked = check_with_library(request.to, paths, model, sample)
        contents = {path.name: path.read_bytes() for path in staging.iterdir()}
    _write(directory, contents)
    return Conversion(
        source=source,
        model=model,
        source_checked=read.checked,
        written=tuple(join(directory, name).removeprefix("./") for name in sorted(contents)),
        checked=checked,
        notes=tuple(_list_notes(source, model, request)),
    )


# Reading.


def _parse_special_tokens(given: Sequence[str]) -> dict[str, int] | list[str]:
    with_ids: dict[str, int] = {}
    without_ids: list[str] = []
    for option in given:
        with_id = re.fullmatch(r"(.+)=(\d{1,10})", option, re.DOTALL)
        text = with_id[1] if with_id else option
        if not text or text in with_ids or text in without_ids:
            raise ConfigError(
                "A special token is empty or named twice.", where=f"--special {option}"
            )
        if with_id:
            with_ids[text] = int(with_id[2])
        else:
            without_ids.append(text)
    if with_ids and without_ids:
        raise ConfigError(
            "Some special tokens have ids and others have none.",
            expected="NAME=ID for all of them, or NAME for all",
            found=f"--special {without_ids[0]}",
        )
    return with_ids or without_ids


def _read_sample(location: str) -> str:
    with input_errors(location, "The sample cannot be read."):
        return read_text(location)


# Writing.

_ENDINGS: dict[WrittenFormat, str] = {
    "arrow": ".arrow",
    "huggingface": ".json",
    "tiktoken": ".tiktoken",
    "minbpe": ".model",
    "sentencepiece": ".model",
}
# Extensions of tokenizer files: nobody means a directory by such a name.
_FILE_ENDINGS = (*_ENDINGS.values(), ".txt", ".vocab", ".py")


def _check_destination(to: WrittenFormat, destination: str) -> None:
    ending = _ENDINGS.get(to)
    other = next((e for e in _FILE_ENDINGS if e != ending and destination.endswith(e)), None)
    if other is None:
        return
    with Directory(url=destination).output_errors(""):
        is_directory = names_in(destination) is not None
    if not is_directory:
        raise ConfigError(
            f"DEST ends in {other}, but --to {to} writes no such file.",
            expected="a directory" + (f", or a file name that ends in {ending}" if ending else ""),
            found=destination,
            where="DEST",
            hint=f"If DEST is a directory, add a slash: {destination}/",
        )


def _stage(
    to: WrittenFormat, model: TokenizerModel, destination: str, staging: Path
) -> tuple[str, list[str]]:
    """Write the files into `staging`.

    Returns:
        The directory of the destination, and the names of the format's own files.

    Raises:
        CannotHoldError: the format cannot store the tokenizer.
    """
    ending = _ENDINGS.get(to)
    if ending is not None and destination.endswith(ending):
        directory, _, name = destination.rpartition("/")
        directory = directory or "."
    elif to == "arrow":
        formats.save_tokenizer(model, staging)
        return destination, ["tokenizer.arrow"]
    else:
        directory, name = destination, f"tokenizer{ending or ''}"
    contents, names = _make_contents(to, model, name)
    write_files(staging, contents)
    return directory, names


def _make_contents(
    to: WrittenFormat, model: TokenizerModel, name: str
) -> tuple[dict[str, bytes], list[str]]:
    if to == "arrow":
        return {name: arrow_bytes(model)}, [name]
    if to == "huggingface":
        contents = {name: huggingface_bytes(model)}
        if name == "tokenizer.json":
            contents["tokenizer_config.json"] = tokenizer_config_bytes(model)
        return contents, [name]
    if to == "tiktoken":
        ranks = tiktoken_bytes(model)
        return {name: ranks, call_name(name): tiktoken_call(model, name)}, [name]
    if to == "minbpe":
        names = [name, name.removesuffix(".model") + ".vocab"]
        return dict(zip(names, formats.minbpe_bytes(model), strict=True)), names
    if to == "sentencepiece":
        return {name: sentencepiece_bytes(model)}, [name]
    if resolve_pattern(model.pattern).name != "gpt2":
        raise CannotHoldError(
            "readers of vocab.json and merges.txt always split text with GPT-2's pattern, but this "
            f"tokenizer uses {model.pattern!r}"
        )
    names = ["vocab.json", "merges.txt"]
    return dict(zip(names, vocab_merges_bytes(model), strict=True)), names


def _check_read_back(
    to: WrittenFormat, model: TokenizerModel, staging: Path, names: list[str]
) -> None:
    paths = [staging / name for name in names]
    specials = model.special_tokens
    readers: dict[WrittenFormat, Callable[[], TokenizerModel]] = {
        "arrow": lambda: formats.read_arrow(paths[0]),
        "huggingface": lambda: formats.read_huggingface(paths[0]),
        "minbpe": lambda: formats.read_minbpe(paths[0]),
        "sentencepiece": lambda: formats.read_sentencepiece(paths[0]),
        "gpt2": lambda: formats.read_vocab_merges(
            paths[0], paths[1], list(specials), pattern=model.pattern
        ),
        "tiktoken": lambda: formats.read_tiktoken(
            paths[0], pattern=model.pattern, special_tokens=specials
        ),
    }
    back = readers[to]()
    is_equal = _encodes_equally(back, model)
    if to in ("arrow", "huggingface"):
        is_equal = is_equal and _has_equal_affixes(back, model)
    if not is_equal:
        raise CannotHoldError(
            f"read back, the result is another tokenizer ({back!r}) than the source ({model!r}); "
            "nothing was written. This is a defect of this program: please report it"
        )


def _encodes_equally(a: TokenizerModel, b: TokenizerModel) -> bool:
    """Return True if two tokenizers have the same tokens and settings.

    Merges may differ: of several merges with the same result, ranks keep only the one that applies.
    """
    return (
        a.vocab == b.vocab
        and a.specials_in_text == b.specials_in_text
        and (a.normalizer, a.normalize_quotes) == (b.normalizer, b.normalize_quotes)
        and resolve_pattern(a.pattern) == resolve_pattern(b.pattern)
        and a.space_rules == b.space_rules
    )


def _has_equal_affixes(a: TokenizerModel, b: TokenizerModel) -> bool:
    """Return True if two tokenizers agree in the properties that do not affect ids of text."""
    return (a.prepend, a.append, a.nonspecial_tokens) == (b.prepend, b.append, b.nonspecial_tokens)


def _write(directory: str, contents: dict[str, bytes]) -> None:
    with Directory(url=directory).output_errors(""):
        present = names_in(directory) or []
        for name in sorted(contents.keys() & set(present)):
            if read_bytes(join(directory, name)) != contents[name]:
                raise OutputError(
                    "A file with this name and other content already exists.",
                    where=join(directory, name),
                    hint="Remove it, or choose another DEST; nothing was written.",
                )
        write_files(directory, contents)


# Notes for the user.


def _list_notes(source: TokenizerFile, model: TokenizerModel, request: Request) -> Iterator[str]:
    if source.format == "gpt2" and (unmerged := _find_unmerged(model)):
        yield (
            f"{len(unmerged)} entries are neither bytes nor results of merges, such as "
            f"{unmerged[0][0]!r}; --special makes them special tokens"
        )
    if request.to == "arrow":
        return
    texts = {i: text for text, i in model.special_tokens.items()}
    if request.to != "huggingface":
        for name, ids in (("before", model.prepend), ("after", model.append)):
            if ids:
                shown = " ".join(texts[i] for i in ids)
                yield f"the format does not store that {shown} belongs {name} a text"
        if model.nonspecial_tokens:
            yield (
                "the format does not store which special tokens decoding keeps: "
                f"{len(model.nonspecial_tokens)} of {len(texts)}"
            )
    if request.to == "gpt2" and texts:
        yield "the format does not store which tokens are special: name them when reading it"
    if model.merge_counts is not None or model.tie_break is not None:
        yield "the format does not store information about training; tokenizer.arrow does"


def _suggest_specials(to: WrittenFormat, model: TokenizerModel) -> str:
    """Return advice to name special tokens, if the conversion would then succeed; else ""."""
    unmerged = _find_unmerged(model)
    try:
        _make_contents(
            to, model.with_special_tokens({**model.special_tokens, **dict(unmerged)}), ""
        )
    except BpeError:
        return ""
    options = " ".join(f"--special {shlex.quote(f'{text}={i}')}" for text, i in unmerged[:4])
    more = " ..." if len(unmerged) > 4 else ""
    return f". vocab.json does not store which tokens are special: name them, {options}{more}"


def _find_unmerged(model: TokenizerModel) -> list[tuple[str, int]]:
    """Return tokens with ids that are neither bytes nor results of merges."""
    made = set(model.merges[:, 2].tolist())
    return [
        (token.decode("utf-8", "replace"), i)
        for i, token in model.tokens
        if len(token) > 1 and i not in made
    ]


def format_conversion(conversion: Conversion) -> str:
    """Format the result: files read and written, checks, notes, and keys of a configuration."""
    source, checked = conversion.source, conversion.checked
    lines = [
        f"read {source.location} ({source.format}): {conversion.model!r}",
        *(f"wrote {path}" for path in conversion.written),
    ]
    if conversion.source_checked is not None:
        lines.append(_format_check("the source", conversion.source_checked))
    if checked is None:
        lines.append("checked: read back, it is the same tokenizer")
    else:
        suffix = "" if checked.ids is not None else "; read back, it is the same tokenizer"
        lines.append(_format_check("the result", checked) + suffix)
    lines += [f"note: {note}" for note in conversion.notes]
    if conversion.model.special_tokens:
        lines.append(f"to encode a corpus with it: {format_affixes(conversion.model)}")
    return "\n".join(lines)


def _format_check(subject: str, checked: Checked) -> str:
    if checked.ids is None:
        return f"not checked: {subject} with {checked.library}, {checked.reason}"
    return f"checked: for {subject}, {checked.library} returns the same {checked.ids:,} ids"
