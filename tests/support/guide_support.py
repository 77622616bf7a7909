"""Pages that are run: commands, files and Python of a page, in a reader's order.

Of the fenced blocks of a page,

- `console` is a list of commands. Output follows a command that begins with `$ `; `…` in it stands
  for anything in a line, and alone in a line for any lines. Times and memory may differ;
- `yaml`, `python` and `json` whose first line is `# NAME` become the file NAME, instead of the file
  that an earlier block made; other `python` is executed, in one namespace for the page;
- a block below `<!-- not run: REASON -->` is left out, and one of `text` is no input of a machine.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from build_support import command

from pipelines import runners
from pipelines.config import load_config

_BLOCK: Final = re.compile(
    r"^(?P<note><!-- not run: [^\n]* -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NAME: Final = re.compile(r"# ([\w./-]+\.\w+)\n")
_LANGUAGES: Final = {"console", "java", "mermaid", "python", "sql", "text", "yaml"}
# Times, rates, memory and dates, which differ from machine to machine.
_MEASURED: Final = [
    (re.compile(r"^( *(?:count|train|total|encode|read|merge|write)) +[\d.]+ .*", re.M), r"\1"),
    (re.compile(r"[\d,.]+ (s|ms|min|MB/s|vCPU-hours)\b"), r"# \1"),
    (re.compile(r"[\d,.]+ [kMG]?i?B of memory"), "# of memory"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?"), "#"),
]


@dataclass(frozen=True)
class Block:
    """Fenced block of a page."""

    language: str
    code: str
    line: int
    is_run: bool

    @property
    def file(self) -> str | None:
        """The name of the file that the block shows, if it shows a file."""
        found = _NAME.match(self.code) if self.language in {"yaml", "python"} else None
        return found[1] if found else None

    @property
    def commands(self) -> list[tuple[str, str | None]]:
        """The commands with the output that is shown, or None if none is."""
        code = self.code.replace("\\\n", " ")
        if not code.startswith("$ "):
            return [(line, None) for line in code.splitlines() if line]
        parts = re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]
        return [(line, output) for line, _, output in (part.partition("\n") for part in parts)]


@dataclass
class Page:
    """Page with its blocks, and the namespace of its Python."""

    path: Path
    directory: Path
    variables: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def run(self, not_installed: set[str]) -> None:
        """Run the page's blocks from top to bottom.

        Args:
            not_installed: libraries whose blocks are compiled alone.
        """
        for block in blocks(self.path):
            place = f"{self.path.name}:{block.line}"
            if not block.is_run:
                continue
            if block.file is not None:
                file = self.directory / block.file
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.code, "utf-8")
                if block.language == "yaml":
                    _check_configuration(file)
                else:
                    compile(block.code, place, "exec")
            elif block.language == "console":
                for line, output in block.commands:
                    self.run_line(line, output, place)
            elif block.language == "python":
                program = compile(block.code, place, "exec")
                if not imports(block.code) & not_installed:
                    with chdir(self.directory), redirect_stdout(io.StringIO()):
                        exec(program, self.names)

    def run_line(self, line: str, output: str | None, place: str) -> None:
        """Run a command; compare what it prints with `output`, unless that is None."""
        words = shlex.split(line, comments=True)
        if words[:1] == ["export"]:
            self.variables.update(word.split("=", 1) for word in words[1:])
            return
        if words[:1] == ["cd"]:
            self.directory /= words[1]
            return
        if words[:1] == ["beam-bpe"] and not {"|", ">", "&&"} & set(words):
            done = command(*words[1:], cwd=self.directory, env=self.variables)
        else:
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=self.directory, capture_output=True, text=True, timeout=60, check=False,
                env={**os.environ, **self.variables},
            )  # fmt: skip
        printed = (done.stdout + done.stderr).replace(str(self.directory), "…")
        failed = (
            done.returncode != 0
            and "error:" not in (output or "")
            and "problem" not in (output or "")
        )
        assert not failed, f"{place}: {line}\n{printed}"
        if output is not None:
            problem = difference(output, printed)
            assert problem is None, f"{place}: {line}\n{problem}\nprinted:\n{printed}"


def _check_configuration(file: Path) -> None:
    config = load_config(file)
    places = [config.output_path, *(config.resolve_glob(s.files[0]) for s in config.input)]
    runners.options_of(config.beam, places=places)


def blocks(path: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    text = path.read_text("utf-8")
    for found in _BLOCK.finditer(text):
        language = found["language"]
        line = text.count("\n", 0, found.start("code")) + 1
        assert language in _LANGUAGES, f"{path.name}:{line}: a block of {language or 'nothing'}"
        yield Block(language, found["code"], line, found["note"] is None)


def imports(code: str) -> set[str]:
    """Return the names of the libraries that a block imports at its left edge."""
    return set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE))


def difference(shown: str, printed: str) -> str | None:
    """Return where output differs from what a page shows, or None if it does not."""
    pattern = ""
    for line in _comparable(shown):
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(map(re.escape, line.split("…"))) + "\n"
    text = "".join(f"{line}\n" for line in _comparable(printed))
    if re.fullmatch(pattern, text):
        return None
    known = [re.compile(".*?".join(map(re.escape, line.split("…")))) for line in _comparable(shown)]
    lines = _comparable(printed)
    missing = [line.pattern for line in known if not any(map(line.fullmatch, lines))]
    return "not printed:\n" + "\n".join(re.sub(r"\\(.)", r"\1", line) for line in missing)


def _comparable(text: str) -> list[str]:
    for pattern, replacement in _MEASURED:
        text = pattern.sub(replacement, text)
    return [line.rstrip() for line in text.strip("\n").split("\n")]
