"""From one format of tokenizer files to another: what `beam-bpe convert` does.

A result is written under its final name only after two checks: read back it is the same tokenizer,
and the library that owns the format, where it is installed, gives the same ids.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bpe_core import BPETokenizer, formats
from bpe_core.errors import BpeError, FormatError, InvalidPatternError, InvalidTokenizerError
from bpe_core.formats import CannotHoldError, FormatName, TokenizerFile
from bpe_core.formats.arrow import arrow_bytes
from bpe_core.formats.files import join, names_in, read_bytes, read_text, write_files
from bpe_core.formats.gpt2 import vocab_merges_bytes
from bpe_core.formats.huggingface import huggingface_bytes, tokenizer_config_bytes
from bpe_core.formats.ranks import tiktoken_bytes
from bpe_core.formats.tiktoken_call import call_name, tiktoken_call
from bpe_core.model import TokenizerModel
from bpe_core.patterns import PATTERNS, resolve_pattern
from pipelines.errors import ConfigError, InputError, OutputError
from pipelines.storage.directory import Directory
from pipelines.tokenizers.peer_check import SAMPLE, Checked, check_with_library

__all__ = ["Conversion", "Request", "convert", "shown"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be converted.

    Attributes:
        source: a file or directory of any format, a path or fsspec URL.
        destination: a directory, or a file with the ending of the format.
        to: the format to write.
        source_format: the format of the source; None: as its contents say.
        merges: the merges.txt of a vocab.json; None: the one beside it.
        pattern: of formats that do not say it, a name or a regular expression.
        special_tokens: likewise, NAME=ID or NAME.
        sample: a UTF-8 file to check the result with; None: a built-in text.
    """

    source: str
    destination: str
    to: FormatName
    source_format: FormatName | None = None
    merges: str | None = None
    pattern: str | None = None
    special_tokens: Sequence[str] = ()
    sample: str | None = None


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What was done.

    Attributes:
        source: what was read.
        model: the tokenizer.
        written: the files, by path or URL.
        checked: how the check with the library went; None: the format is this package's own.
        notes: what a person should know, such as what the format does not hold.
    """

    source: TokenizerFile
    model: TokenizerModel
    written: tuple[str, ...]
    checked: Checked | None
    notes: tuple[str, ...]


def convert(request: Request) -> Conversion:
    """Reads a tokenizer, writes it in another format, and checks the result.

    Raises:
        ConfigError: options that the source needs are missing, or do not belong to it.
        InputError: the source or the sample cannot be read or is malformed.
        CannotHoldError: the format cannot hold the tokenizer, or the library gives other ids.
        OutputError: the result cannot be written, or other files have its names.
    """
    _check_destination(request.to, request.destination)
    source, model = _read(request)
    sample = SAMPLE if request.sample is None else _sample(request.sample)
    with tempfile.TemporaryDirectory() as name:
        staging = Path(name)
        try:
            directory, names = _stage(request.to, model, request.destination, staging)
        except CannotHoldError as error:
            hint = _hint_at_specials(request.to, model) if source.format == "gpt2" else ""
            raise CannotHoldError(
                f"the format {request.to} cannot hold this tokenizer: {error}; nothing was written"
                + hint
            ) from None
        _check_read_back(request.to, model, staging, names)
        checked = None
        if request.to != "arrow":
            checked = check_with_library(request.to, staging, names, model, sample)
        contents = {path.name: path.read_bytes() for path in staging.iterdir()}
    _write(directory, contents)
    return Conversion(
        source=source,
        model=model,
        written=tuple(join(directory, name).removeprefix("./") for name in sorted(contents)),
        checked=checked,
        notes=tuple(_notes(source, model, request)),
    )


# Reading.


def _read(request: Request) -> tuple[TokenizerFile, TokenizerModel]:
    with _input_errors(request.source):
        source = formats.find_tokenizer(request.source, request.source_format)
    _check_options(request, source.format)
    pattern = request.pattern or "gpt2"
    if request.pattern is not None:
        try:
            resolve_pattern(request.pattern)
        except InvalidPatternError as error:
            raise ConfigError(
                "The pattern is wrong.", found=str(error), where="--pattern"
            ) from None
    specials = _special_tokens(request.special_tokens)
    readers: dict[FormatName, Callable[[], TokenizerModel]] = {
        "arrow": lambda: formats.read_arrow(source.location),
        "huggingface": lambda: formats.read_huggingface(source.location),
        "minbpe": lambda: formats.read_minbpe(source.location),
        "gpt2": lambda: formats.read_vocab_merges(
            source.location, _merges_of(request, source), specials, pattern=pattern
        ),
        "tiktoken": lambda: (
            BPETokenizer.from_tiktoken(
                source.location, pattern=pattern, special_tokens=specials
            ).model
        ),
    }
    with _input_errors(source.location):
        return source, readers[source.format]()


def _check_options(request: Request, found: FormatName) -> None:
    if found == "tiktoken" and request.pattern is None:
        raise ConfigError(
            "A .tiktoken file does not say how text is split.",
            expected=f"--pattern with one of {', '.join(PATTERNS)}, or a regular expression",
            where=request.source,
            hint="Name special tokens too: --special '<|endoftext|>=199999'.",
        )
    given = {
        "--pattern": request.pattern is not None and found not in ("gpt2", "tiktoken"),
        "--special": bool(request.special_tokens) and found not in ("gpt2", "tiktoken"),
        "--merges": request.merges is not None and found != "gpt2",
    }
    for option, wrong in given.items():
        if wrong:
            raise ConfigError(
                f"{option} is not for a source of the format {found}, which says it itself.",
                where=request.source,
                hint=f"Leave {option} out.",
            )


def _special_tokens(given: Sequence[str]) -> dict[str, int] | list[str]:
    stated: dict[str, int] = {}
    alone: list[str] = []
    for option in given:
        with_id = re.fullmatch(r"(.+)=(\d{1,10})", option, re.DOTALL)
        text = with_id[1] if with_id else option
        if not text or text in stated or text in alone:
            raise ConfigError(
                "A special token is empty or named twice.", where=f"--special {option}"
            )
        if with_id:
            stated[text] = int(with_id[2])
        else:
            alone.append(text)
    if stated and alone:
        raise ConfigError(
            "Some special tokens have ids and some have none.",
            expected="NAME=ID for all of them, or NAME for all",
            found=f"--special {alone[0]}",
        )
    return stated or alone


def _merges_of(request: Request, source: TokenizerFile) -> str:
    if request.merges is not None:
        return request.merges
    directory, slash, name = source.location.rpartition("/")
    if "vocab" not in name:
        raise ConfigError(
            "A vocab.json needs its merges.txt.",
            expected="--merges FILE",
            where=source.location,
        )
    merges = name.replace("vocab", "merges").removesuffix(".json") + ".txt"
    return f"{directory}{slash}{merges}"


def _sample(location: str) -> str:
    with _input_errors(location, "The sample can't be used."):
        return read_text(location)


@contextmanager
def _input_errors(
    location: str, problem: str = "No tokenizer can be read from it."
) -> Iterator[None]:
    try:
        yield
    except (FormatError, InvalidTokenizerError) as error:
        raise InputError(f"{problem} {error}", where=location) from None
    except (OSError, ImportError, ValueError) as error:  # fsspec: unknown or missing file systems
        raise InputError(
            "The file can't be read.", found=f"{type(error).__name__}: {error}", where=location
        ) from None


# Writing.

_ENDINGS: dict[FormatName, str] = {
    "arrow": ".arrow",
    "huggingface": ".json",
    "tiktoken": ".tiktoken",
    "minbpe": ".model",
}
# Of files that belong to tokenizers: nobody means a directory by such a name.
_OF_FILES = (*_ENDINGS.values(), ".txt", ".vocab", ".py")


def _check_destination(to: FormatName, destination: str) -> None:
    ending = _ENDINGS.get(to)
    other = next((e for e in _OF_FILES if e != ending and destination.endswith(e)), None)
    if other is None:
        return
    with Directory(url=destination).output_errors(""):
        is_directory = names_in(destination) is not None
    if not is_directory:
        raise ConfigError(
            f"DEST ends in {other}, like a file of another kind than --to {to} writes.",
            expected="a directory" + (f", or a file's name ending in {ending}" if ending else ""),
            found=destination,
            where="DEST",
            hint=f"Put a slash at the end if it is to be a directory: {destination}/",
        )


def _stage(
    to: FormatName, model: TokenizerModel, destination: str, staging: Path
) -> tuple[str, list[str]]:
    """Writes the files into `staging`.

    Returns:
        The directory that they are for, and the names that the format itself has.

    Raises:
        CannotHoldError: the format cannot hold the tokenizer.
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
    contents, names = _contents(to, model, name)
    write_files(staging, contents)
    return directory, names


def _contents(
    to: FormatName, model: TokenizerModel, name: str
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
    if resolve_pattern(model.pattern).name != "gpt2":
        raise CannotHoldError(
            "vocab.json and merges.txt name no pattern, and what reads them splits by GPT-2's, but "
            f"this tokenizer by {model.pattern!r}"
        )
    names = ["vocab.json", "merges.txt"]
    return dict(zip(names, vocab_merges_bytes(model), strict=True)), names


def _check_read_back(
    to: FormatName, model: TokenizerModel, staging: Path, names: list[str]
) -> None:
    paths = [staging / name for name in names]
    specials = model.special_tokens
    readers: dict[FormatName, Callable[[], TokenizerModel]] = {
        "arrow": lambda: formats.read_arrow(paths[0]),
        "huggingface": lambda: formats.read_huggingface(paths[0]),
        "minbpe": lambda: formats.read_minbpe(paths[0]),
        "gpt2": lambda: formats.read_vocab_merges(
            paths[0], paths[1], list(specials), pattern=model.pattern
        ),
        "tiktoken": lambda: formats.read_tiktoken(
            paths[0], pattern=model.pattern, special_tokens=specials
        ),
    }
    back = readers[to]()
    alike = _alike(back, model)
    if to in ("arrow", "huggingface"):
        alike = alike and _same_around(back, model)
    if not alike:
        raise CannotHoldError(
            f"read back, the result is another tokenizer ({back!r}) than what was read "
            f"({model!r}); nothing was written. This is a mistake of the program: please report it"
        )


def _alike(a: TokenizerModel, b: TokenizerModel) -> bool:
    """Whether two tokenizers have the same tokens and settings.

    Not of the same merges: ranks keep of several that make the same bytes the one that applies.
    """
    return (
        a.vocab == b.vocab
        and a.special_tokens == b.special_tokens
        and (a.normalizer, a.normalize_quotes) == (b.normalizer, b.normalize_quotes)
        and resolve_pattern(a.pattern) == resolve_pattern(b.pattern)
    )


def _same_around(a: TokenizerModel, b: TokenizerModel) -> bool:
    """Whether two tokenizers have the same beside what decides ids."""
    return (a.prepend, a.append, a.nonspecial_tokens) == (b.prepend, b.append, b.nonspecial_tokens)


def _write(directory: str, contents: dict[str, bytes]) -> None:
    with Directory(url=directory).output_errors(""):
        present = names_in(directory) or []
        for name in sorted(contents.keys() & set(present)):
            if read_bytes(join(directory, name)) != contents[name]:
                raise OutputError(
                    "A file of this name is there already, with other contents.",
                    where=join(directory, name),
                    hint="Remove it, or choose another DEST; nothing was written.",
                )
        write_files(directory, contents)


# What a person should know.


def _notes(source: TokenizerFile, model: TokenizerModel, request: Request) -> Iterator[str]:
    if source.format == "gpt2" and (apart := _apart(model)):
        yield (
            f"{len(apart)} entries are no bytes and no merges, such as {apart[0][0]!r}; --special "
            "makes them special tokens"
        )
    if request.to == "arrow":
        return
    texts = {i: text for text, i in model.special_tokens.items()}
    if request.to != "huggingface":
        for name, ids in (("before", model.prepend), ("after", model.append)):
            if ids:
                shown = " ".join(texts[i] for i in ids)
                yield f"the format does not say that {shown} belongs {name} a text"
        if model.nonspecial_tokens:
            yield (
                f"the format does not say which of the special tokens decoding keeps: "
                f"{len(model.nonspecial_tokens)} of {len(texts)}"
            )
    if request.to == "gpt2" and texts:
        yield "the format does not say which tokens are special: name them when reading it"
    if model.merge_counts is not None or model.tie_break is not None:
        yield "how training went stays in tokenizer.arrow"


def _hint_at_specials(to: FormatName, model: TokenizerModel) -> str:
    """How to name the special tokens of a vocab.json, if the format can hold it with them."""
    apart = _apart(model)
    try:
        _contents(to, model.with_special_tokens({**model.special_tokens, **dict(apart)}), "")
    except BpeError:
        return ""
    options = " ".join(f"--special {shlex.quote(f'{text}={i}')}" for text, i in apart[:4])
    more = " ..." if len(apart) > 4 else ""
    return f". vocab.json does not say which tokens are special: name them, {options}{more}"


def _apart(model: TokenizerModel) -> list[tuple[str, int]]:
    """The tokens, with their ids, that are no bytes and no results of merges."""
    made = set(model.merges[:, 2].tolist())
    return [
        (token.decode("utf-8", "replace"), i)
        for i, token in model.tokens
        if len(token) > 1 and i not in made
    ]


def shown(conversion: Conversion) -> str:
    """A conversion in words: what was read, written and checked, and what the format lacks."""
    source, checked = conversion.source, conversion.checked
    lines = [
        f"read {source.location} ({source.format}): {conversion.model!r}",
        *(f"wrote {path}" for path in conversion.written),
    ]
    if checked is None:
        lines.append("checked: read back, it is the same tokenizer")
    elif checked.ids is None:
        lines.append(
            f"not checked with {checked.library}, which is not installed; read back, it is the "
            "same tokenizer"
        )
    else:
        lines.append(f"checked: {checked.library} gives the same {checked.ids:,} ids of a sample")
    return "\n".join([*lines, *(f"note: {note}" for note in conversion.notes)])
