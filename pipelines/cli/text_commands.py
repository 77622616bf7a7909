"""The commands that encode texts of pipes and files: tokenize, count-tokens."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from bpe_core.errors import InvalidUtf8Error
from bpe_core.visible_text import format_token, visible
from pipelines.cli.options import Debug
from pipelines.cli.output import print_note
from pipelines.cli.process import closed_pipe_accepted, leave_at_once, report_errors
from pipelines.errors import ConfigError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipelines.tasks.listing import InputFile
    from pipelines.tokenizers.files import Tokenizer
    from pipelines.tokenizers.streams import StreamEncoder

    # Sums of a file by their keys in JSON.
    _Count: TypeAlias = dict[str, str | int]


_READ_BYTES: Final = 1 << 20
_STANDARD_INPUT: Final = "-"

TokenizerArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOKENIZER",
        help="A tokenizer: a directory or file of any format that `convert` reads, the output of a "
        "build, a URL, or hf://ORG/NAME@REVISION on the Hugging Face Hub.",
        show_default=False,
    ),
]
Ordinary = Annotated[
    bool, typer.Option("--ordinary", help="Encode special tokens in the text as ordinary text.")
]


def tokenize(
    tokenizer: TokenizerArgument,
    ids: Annotated[
        bool, typer.Option("--ids", help="Print the ids, separated by spaces. The default.")
    ] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Print a line for each token: its id, a tab, its text.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print a JSON object for each token, one a line: `id`, `token`, and `bytes` in "
            "hexadecimal.",
        ),
    ] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="Read ids, and print their text.")
    ] = False,
    ordinary: Ordinary = False,
    debug: Debug = False,
) -> None:
    """Encode standard input, which is one text, and print its ids."""
    with leave_at_once(), report_errors(debug), closed_pipe_accepted():
        if ids + tokens + as_json + decode > 1:
            raise ConfigError(
                "It is not clear what to print.",
                expected="at most one of --ids, --tokens, --json and --decode",
            )
        from pipelines.dataset.tokenizers import open_tokenizer
        from pipelines.tokenizers.streams import StreamEncoder, decode_stream, token_bytes

        opened = open_tokenizer(tokenizer)
        if decode:
            for text in decode_stream(opened, _standard_input()):
                sys.stdout.buffer.write(text)
            sys.stdout.flush()
            return
        with _text_of("standard input"):
            encoded = StreamEncoder(opened, ordinary=ordinary).encode(_standard_input())
            if tokens or as_json:
                format_line = _json_line if as_json else _text_line
                _print_tokens(encoded, lambda i: format_line(i, token_bytes(opened, i)))
            else:
                _print_ids(encoded)
        sys.stdout.flush()


def count_tokens(
    tokenizer: TokenizerArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILES]...",
            help="Files: paths, globs or URLs, also compressed ones; -: standard input. "
            "Each is one text.",
            show_default="standard input",
        ),
    ] = None,
    text_field: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Count the texts in this field of records (JSON lines, Parquet, Arrow), such as "
            "text or doc.text.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with all figures.")
    ] = False,
    ordinary: Ordinary = False,
    debug: Debug = False,
) -> None:
    """Count the tokens of files, each and in total."""
    with leave_at_once(), report_errors(debug), closed_pipe_accepted():
        from pipelines.dataset.tokenizers import open_tokenizer
        from pipelines.tokenizers.streams import StreamEncoder

        if text_field is not None and (not files or _STANDARD_INPUT in files):
            raise ConfigError(
                "Records are read from files.",
                expected="files with --text-field",
                found="standard input",
                hint="Name the files, or take the field out first: jq -r .text.",
            )
        try:
            opened = open_tokenizer(tokenizer)
        except InputError as error:
            if not files:  # the argument may have been meant as a file to count
                error.hint = "Name the tokenizer first: beam-bpe count-tokens TOKENIZER FILES."
            raise
        if text_field is None:
            found = _count_texts(StreamEncoder(opened, ordinary=ordinary), files)
        else:
            found = _count_fields(opened, files or (), text_field, ordinary=ordinary)
        counted = []
        for count in found:
            counted.append(count)
            if not as_json:
                shown = f"{count['tokens']}\t{visible(str(count['file']))}"
                typer.echo(shown if files else count["tokens"])
        names = ("tokens", "bytes", *(("documents", "rejects") if text_field is not None else ()))
        total = {name: sum(int(count[name]) for count in counted) for name in names}
        if as_json:
            typer.echo(json.dumps({"files": counted, **total}))
        elif len(counted) > 1:
            typer.echo(f"{total['tokens']}\ttotal")


def _count_texts(encoder: StreamEncoder, files: list[str] | None) -> Iterator[_Count]:
    """Yield the sums of each file, which is one text, or of standard input."""
    from pipelines.dataset.record_tokens import advise_field
    from pipelines.readers.plain_files import find_files, read_blocks

    for argument in files or [_STANDARD_INPUT]:
        if argument == _STANDARD_INPUT:
            inputs: Iterable[tuple[str, InputFile | None]] = ((argument, None),)
        else:
            inputs = find_files(argument)
        for name, file in inputs:
            advice = None if file is None else advise_field(file)
            with _text_of(name, advice):
                blocks = _standard_input() if file is None else read_blocks(file)
                number, size = encoder.count(blocks)
            if advice is not None:
                print_note(f"{name} is counted as text, with all its markup: {advice}.")
            yield {"file": name, "tokens": number, "bytes": size}


def _count_fields(
    tokenizer: Tokenizer, files: Sequence[str], text_field: str, *, ordinary: bool
) -> Iterator[_Count]:
    """Yield the sums of a field of each file's records."""
    from pipelines.dataset.record_tokens import count_records
    from pipelines.readers.plain_files import find_files

    for argument in files:
        for name, file in find_files(argument):
            found = count_records(tokenizer, file, text_field, ordinary=ordinary)
            if found.rejects:
                records = "record has" if found.rejects == 1 else "records have"
                print_note(f"{found.rejects:,} {records} no text, such as {found.example}")
            yield {
                "file": name,
                "tokens": found.tokens,
                "bytes": found.bytes,
                "documents": found.documents,
                "rejects": found.rejects,
            }


def _standard_input() -> Iterator[bytes]:
    return iter(lambda: sys.stdin.buffer.read(_READ_BYTES), b"")


def _print_ids(arrays: Iterable[NDArray[np.uint32]]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    separator = ""
    for ids in arrays:
        if not len(ids):
            continue
        words = pa.array(ids).cast(pa.string())
        line = pc.binary_join(pa.ListArray.from_arrays([0, len(words)], words), " ")[0].as_py()
        sys.stdout.write(separator + line)
        separator = " "
    sys.stdout.write("\n")


def _print_tokens(arrays: Iterable[NDArray[np.uint32]], format_line: Callable[[int], str]) -> None:
    lines: dict[int, str] = {}
    for ids in arrays:
        listed = ids.tolist()
        lines |= {token_id: format_line(token_id) for token_id in set(listed) - lines.keys()}
        sys.stdout.write("".join(map(lines.__getitem__, listed)))


def _text_line(token_id: int, token: bytes) -> str:
    return f"{format_token(token_id, token)}\n"


def _json_line(token_id: int, token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return json.dumps({"id": token_id, "token": text, "bytes": token.hex()}) + "\n"


@contextmanager
def _text_of(name: str, advice: str | None = None) -> Iterator[None]:
    """Report text that is not UTF-8 as an error of the input, with advice."""
    try:
        yield
    except InvalidUtf8Error as error:
        raise InputError(
            "The input is not text in UTF-8.",
            found=str(error),
            where=name,
            hint=None if advice is None else f"{advice[0].upper()}{advice[1:]}.",
        ) from None
