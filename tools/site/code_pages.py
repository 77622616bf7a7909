"""Pages of the reference that are made from the code: commands, and messages of errors."""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import typer.main

import bpe_core.errors
import pipelines.errors
from pipelines.cli import app

ROOT = Path(__file__).resolve().parents[2]
_MESSAGES_PANEL = "Messages"
_UNKNOWN = "…"
_CODE = re.compile(r"(`[^`]*`)")
_MORE = re.compile(r"^(?P<help>.*?)(?:  \[(?P<more>[^\[\]]*)\])?$", re.DOTALL)
_MARKUP = re.compile(r"([<*\\\[\]|])")


def render_commands() -> str:
    """Return the page of all commands with their arguments and options."""
    root = typer.main.get_command(app)
    parts = [
        "# Commands and options",
        "`beam-bpe COMMAND --help` prints the same. [Commands](../commands.md) explains them by "
        "topic.",
    ]
    with root.make_context("beam-bpe", [], resilient_parsing=True) as top:
        shared = {}
        for command, context in _commands(root, top):
            parts += [f"## {context.command_path.removeprefix('beam-bpe ')}", _escape(command.help)]
            usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
            parts.append(f"```text\n{usage}\n```")
            own = []
            for parameter in command.get_params(context):
                record = parameter.get_help_record(context)
                if getattr(parameter, "rich_help_panel", None) == _MESSAGES_PANEL:
                    shared[record[0]] = record
                elif record and "--help" not in parameter.opts:
                    own.append(record)
            parts.append(_table(own))
        parts += [
            "## Options for messages",
            "The commands with progress or warnings also have these:",
            _table(list(shared.values())),
        ]
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    for name, command in group.commands.items():
        inner = command.make_context(name, [], resilient_parsing=True, parent=context)
        if hasattr(command, "commands"):
            yield from _commands(command, inner)
        else:
            yield command, inner


def _table(records: list[tuple[str, str]]) -> str:
    lines = ["| argument or option | meaning | |", "|---|---|---|"]
    for names, text in records:
        found = _MORE.match(text)
        assert found
        lines.append(f"| `{names}` | {_escape(found['help'])} | {_escape(found['more'] or '')} |")
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Return text in Markdown, in one line, with its code unchanged."""
    pieces = _CODE.split(" ".join(text.split()))
    return "".join(
        piece if piece.startswith("`") else _MARKUP.sub(r"\\\1", piece) for piece in pieces
    )


def render_messages() -> str:
    """Return the page of the messages of errors, by class, with what to do about each."""
    found: defaultdict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for folder in ("bpe_core", "pipelines"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name, message, hint in find_messages(ast.parse(path.read_text("utf-8"))):
                found[name][message].add(hint)
    parts = [
        "# Messages",
        f"All messages of errors, with what to do. `{_UNKNOWN}` stands for what the program puts "
        "in: a file, a key, a number. An error also shows what was expected, what was found, and "
        "where. "
        "[Errors and exit codes](../errors.md) explains the codes.",
    ]
    for name, error in sorted(_errors().items(), key=_code_and_name):
        if name not in found:
            continue
        code = pipelines.errors.exit_code_of(error("…"))
        parts += [
            f"## {name}",
            f"{_escape((error.__doc__ or '').partition(chr(10) * 2)[0])} Exit code {code}.",
        ]
        parts.append(_messages_table(found[name]))
    return "\n\n".join(parts) + "\n"


def _messages_table(found: Mapping[str, Set[str]]) -> str:
    rows = [(message, " ".join(sorted(hints))) for message, hints in sorted(found.items())]
    columns = 2 if any(hint for _, hint in rows) else 1  # the message contains it
    head = [("message", "what to do"), ("---", "---")]
    lines = [*head, *((_escape(message), _escape(hint)) for message, hint in rows)]
    return "\n".join(f"| {' | '.join(line[:columns])} |" for line in lines)


def _errors() -> dict[str, type[Exception]]:
    """Return the exceptions of both packages by name."""
    return {
        name: value
        for module in (bpe_core.errors, pipelines.errors)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, bpe_core.errors.BpeError)
    }


def _code_and_name(item: tuple[str, type[Exception]]) -> tuple[float, str]:
    return getattr(item[1], "exit_code", math.inf), item[0]  # those of bpe_core at the end


def find_messages(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield class, message and remedy (or expected value) of the errors that a module creates."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in _errors() and (message := _text(node.args[0])).strip(f"{_UNKNOWN}:. "):
            given = {keyword.arg: _text(keyword.value) for keyword in node.keywords}
            expected = f"Expected: {given['expected']}." if "expected" in given else ""
            yield name, message, given.get("hint", expected)


def _text(node: ast.expr) -> str:
    """Return a text of the program, with `…` for what is not constant."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=orelse):
            return " / ".join(filter(None, (_text(body), _text(orelse))))
    return _UNKNOWN


if __name__ == "__main__":
    print(render_commands(), render_messages(), sep="\n")
