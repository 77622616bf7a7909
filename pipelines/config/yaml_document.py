"""Configuration text as plain values with the positions of their keys.

`YamlDocument.from_file` reads YAML, and `YamlDocument.override` applies one `--set key=value`. Both
record the line and column, or the override, of every key. A `Problem` is one thing that is wrong
with a key, and `raise_problems` turns any number of them into one ConfigError.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml

from pipelines.config.credentials import missing_variable, references
from pipelines.errors import ConfigError

KeyPath = tuple[str | int, ...]

_PATH_STEP = re.compile(r"(?:^|\.)([^.\[\]=]+)|\[(\d+)\]")
_NULL_TEXTS = frozenset({"", "~", "null", "Null", "NULL"})
_LONGEST_SHOWN = 80
_MOST_SHOWN = 50
_LARGEST_FILE: Final = 16 << 20
_EXTENSIONS: Final = (".yaml", ".yml")
# A key of a configuration, in a file with another extension.
_KEY: Final = re.compile(r"\b(output|input|tokenizer)[\"']?\s*:")

# A configuration needs a fraction of these. Aliases could make a small file infinitely long;
# nesting without a limit exceeds Python's recursion, and long numbers take too long to parse.
_DEEPEST: Final = 100
_MOST_REPEATED: Final = 10_000
_LONGEST_NUMBER: Final = 1_000
_LONGEST_INDEX: Final = 9

_YAML: Final = "tag:yaml.org,2002:"
_NUMBERS: Final = frozenset(f"{_YAML}{kind}" for kind in ("int", "float", "timestamp"))


def format_path(path: KeyPath) -> str:
    """Return the path of a key as users write it.

    >>> format_path(("input", 0, "range_bytes"))
    'input[0].range_bytes'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def shorten(text: str) -> str:
    """Return the text, shortened to the length that messages show."""
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _shortened(path: KeyPath) -> KeyPath:
    return tuple(shorten(step) if isinstance(step, str) else step for step in path)


def is_secret(path: KeyPath) -> bool:
    """Return True if the value of this key may be or contain a credential.

    This is so below storage_options, output_storage_options and beam.options, even if misspelt.
    """
    return any(isinstance(step, str) and "option" in step for step in path)


def describe_value(value: object) -> str:
    """Return a value as messages show it: shortened, and with its type if that is not obvious."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean)"
    if isinstance(value, dict):
        keys = ", ".join(map(str, islice(value, _LONGEST_SHOWN)))
        return f"a mapping with the keys {shorten(keys)}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    kind = {str: " (a string)", int: "", float: ""}.get(type(value), f" (a {type(value).__name__})")
    return shorten(repr(value)) + kind


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the configuration.

    Attributes:
        path: The key, relative to the part of the configuration that was checked.
        expected: A description of correct values.
        found: The actual value, or None if showing the key's value is enough.
        hint: Advice for the user.
        where: File, line and column, or the `--set` text.
    """

    path: KeyPath
    expected: str
    found: str | None = None
    hint: str | None = None
    where: str | None = None


def _not_a_configuration(path: Path) -> ConfigError:
    return ConfigError(
        "The file is not a configuration.",
        expected="a YAML file with keys such as `output:` and `input:`",
        where=str(path),
        hint="A configuration for files of a corpus is written by "
        f"`beam-bpe init {shlex.quote(str(path))}`.",
    )


def _advise_path(path: Path) -> str:
    """Return the advice for a configuration that does not exist."""
    beside = {}
    with suppress(OSError):
        beside = {one.stem: one for one in path.parent.iterdir() if one.suffix in _EXTENSIONS}
    matches = difflib.get_close_matches(path.stem, sorted(beside), n=1)
    if matches:
        return f"Did you mean {beside[matches[0]]}?"
    return "Check the path of CONFIG, or write a configuration: `beam-bpe init FILES`."


def raise_problems(problems: Sequence[Problem], file: str) -> None:
    """Raise one ConfigError that shows every problem. Do nothing if there are no problems."""
    if not problems:
        return
    errors = [
        ConfigError(
            format_path(_shortened(problem.path)) or "The configuration",
            expected=problem.expected,
            found=problem.found,
            where=problem.where,
            hint=problem.hint,
        )
        for problem in problems[:_MOST_SHOWN]
    ]
    heading = "1 error" if len(problems) == 1 else f"{len(problems):,} errors"
    if len(problems) > _MOST_SHOWN:
        heading += f", of which these are the first {_MOST_SHOWN},"
    heading += " in the configuration" + (f" {file}" if file else "")
    raise ConfigError("\n\n".join([f"{heading}:", *(str(error) for error in errors)]))


class _Loader(yaml.SafeLoader):
    """PyYAML's loader with a limit on nesting, which records the positions of aliases."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.aliases: dict[int, yaml.Mark] = {}  # the last alias of each node, by the node's id
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        is_alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self._depth == _DEEPEST:
            raise _too_deep(mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias:
            self.aliases[id(node)] = mark
        return node


def _too_deep(mark: yaml.Mark) -> yaml.MarkedYAMLError:
    """Return the error for values that are nested too deeply."""
    return yaml.composer.ComposerError(
        None, None, f"values are nested more than {_DEEPEST} deep", mark
    )


@dataclass
class YamlDocument:
    """Plain values of a configuration, with the position of every key.

    Attributes:
        file: Name of the configuration file, as the user gave it.
        values: Nested dicts and lists of scalars.
        positions: For each key path, where it was written.
        problems: Problems of the text itself: duplicate keys, unreadable scalars.
    """

    file: str
    values: dict[str, Any] = field(default_factory=dict)
    positions: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _overridden: set[KeyPath] = field(default_factory=set)

    @classmethod
    def from_file(cls, path: Path) -> YamlDocument:
        """Read a YAML file.

        Raises:
            ConfigError: It cannot be read, or is not a mapping.
        """
        try:
            with path.open("rb") as file:
                data = file.read(_LARGEST_FILE + 1)
            text = data.decode("utf-8-sig") if len(data) <= _LARGEST_FILE else None
        except OSError as error:
            raise ConfigError(
                f"The configuration file cannot be read: {error.strerror}.",
                expected="a YAML file",
                where=str(path),
                hint=_advise_path(path),
            ) from None
        except UnicodeDecodeError as error:
            if path.suffix.lower() not in _EXTENSIONS:
                raise _not_a_configuration(path) from None
            raise ConfigError(
                "The configuration file is not UTF-8.",
                found=f"the byte 0x{error.object[error.start]:02x} at byte {error.start}",
                where=str(path),
                hint="Save the file as UTF-8.",
            ) from None
        if path.suffix.lower() not in _EXTENSIONS and not _KEY.search(text or ""):
            raise _not_a_configuration(path)
        if text is None:
            raise ConfigError(
                "The configuration file is too large.",
                expected=f"at most {_LARGEST_FILE:,} bytes",
                where=str(path),
                hint="Check the path of CONFIG.",
            )
        source = cls(str(path))
        values = source._parse(text, ())
        if not isinstance(values, dict):
            raise ConfigError(
                "The configuration is not a mapping of keys.",
                expected="keys such as `output:` and `input:`",
                found=describe_value(values),
                where=f"{source.file}:1:1",
            )
        source.values = values
        return source

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> YamlDocument:
        """Return the document of values that a program gives, which have no positions."""
        return cls("", _plain(values))

    def override(self, text: str) -> None:
        """Apply `key=value`, as given to `--set`: a dotted key, and a YAML value.

        >>> source = YamlDocument("a.yaml", {"input": [{"files": ["*.txt"]}]})
        >>> source.override("input[0].range_bytes=1MiB")
        >>> source.values
        {'input': [{'files': ['*.txt'], 'range_bytes': '1MiB'}]}
        """
        key, equals, value_text = text.partition("=")
        path = _parse_path(key.strip())
        value_shown = "…" if is_secret(path) else shorten(value_text)
        shown = f"--set {shorten(key.strip())}={value_shown}"
        if not equals or not path:
            raise ConfigError(
                "An override cannot be parsed.",
                expected="--set KEY=VALUE, with a key such as tokenizer.vocab_size or "
                "input[0].range_bytes",
                found=f"--set {shorten(key)}" + ("" if not equals else "=…"),
            )
        for position in [position for position in self.positions if position[: len(path)] == path]:
            del self.positions[position]
        value = self._parse(value_text, path, shown)
        if value is None and value_text.strip() not in _NULL_TEXTS:
            raise ConfigError(
                "The value of an override is empty, because YAML reads it as a comment.",
                where=shown,
                hint=f"Quote it: --set '{key.strip()}=\"{value_text.strip()}\"'.",
            )
        self._assign(path, value, shown)
        self.positions[path] = shown
        self._overridden |= {path[:end] for end in range(1, len(path) + 1)}

    def leave_out_of_file(self, section: str) -> None:
        """Remove the keys of a section that come from the file and not from an override.

        >>> source = YamlDocument("a.yaml", {"tokenizer": {"vocab_size": 300}})
        >>> source.override("tokenizer.path=out/tokenizer")
        >>> source.leave_out_of_file("tokenizer")
        >>> source.values
        {'tokenizer': {'path': 'out/tokenizer'}}
        """
        values = self.values[section]
        for key in [key for key in values if (section, key) not in self._overridden]:
            del values[key]
            for position in [
                position for position in self.positions if position[:2] == (section, key)
            ]:
                del self.positions[position]

    def environment_problems(self) -> Iterator[Problem]:
        """Yield a problem for each `${NAME}` in storage options without a value.

        Elsewhere, `${NAME}` is ordinary text.
        """
        for path, value in _storage_options(self.values, ()):
            for key, name in references(value):
                if name not in os.environ:
                    expected, found, hint = missing_variable(name)
                    yield Problem((*path, *key), expected, found, hint, self.where((*path, *key)))

    def where(self, path: KeyPath) -> str | None:
        """Return where the key, or its nearest parent that has a position, was written.

        None if a program gave the values.
        """
        if not self.file:
            return None
        for length in range(len(path), 0, -1):
            if position := self.positions.get(path[:length]):
                return position
        return f"{self.file}:1:1"

    def _parse(self, text: str, path: KeyPath, override: str | None = None) -> Any:
        try:
            return _Values(self, _Loader(text), override).parse(path)
        except yaml.MarkedYAMLError as error:
            raise ConfigError(
                f"The configuration is not valid YAML: {error.problem}.",
                where=override or self.position(error.problem_mark),
                hint="Check quotes, brackets and indentation there.",
            ) from None
        except yaml.reader.ReaderError as error:
            raise ConfigError(
                f"The configuration is not valid YAML: {error.reason}.",
                found=f"the character U+{error.character:04X} at position {error.position}",
                where=override or self.file,
            ) from None

    def position(self, mark: yaml.Mark | None) -> str:
        """Return file, line and column of a mark."""
        return self.file if mark is None else f"{self.file}:{mark.line + 1}:{mark.column + 1}"

    def _assign(self, path: KeyPath, value: Any, shown: str) -> None:
        parent: Any = self.values
        for depth, step in enumerate(path):
            last = depth == len(path) - 1
            if isinstance(step, int):
                if not isinstance(parent, list) or step >= len(parent):
                    raise self._no_such_element(path[: depth + 1], parent, shown)
            elif not isinstance(parent, dict):
                raise self._no_such_element(path[: depth + 1], parent, shown)
            elif not last and parent.get(step) is None:
                parent[step] = {}
                self.positions[path[: depth + 1]] = shown
            if last:
                parent[step] = value
            else:
                parent = parent[step]

    def _no_such_element(self, path: KeyPath, parent: object, shown: str) -> ConfigError:
        name = format_path(path[:-1])
        secret = is_secret(path[:-1])
        return ConfigError(
            f"An override refers to {format_path(path)}, which does not exist.",
            expected=f"an element of {name}, such as {name}[0]"
            if isinstance(parent, list)
            else f"{name} to be a {'list' if isinstance(path[-1], int) else 'mapping'}",
            found="another value" if secret else f"{name} is {describe_value(parent)}",
            where=shown,
        )


def _plain(value: Any) -> Any:
    """Return values of a program as YAML has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class _Values:
    """Converter of one YAML text to plain values, which records positions in a document.

    Args:
        source: Document that receives the positions and problems.
        loader: Loader of the text.
        override: The `--set` argument that contains the text, or None for the file.
    """

    def __init__(self, source: YamlDocument, loader: _Loader, override: str | None) -> None:
        self._source = source
        self._loader = loader
        self._override = override
        self._seen: set[int] = set()
        self._told: set[int] = set()
        self._repeated = 0

    def parse(self, path: KeyPath) -> Any:
        """Return the values of the whole text, whose keys are below `path`."""
        node = self._loader.get_single_node()
        return None if node is None else self._value(node, path, ())

    def _value(self, node: yaml.Node, path: KeyPath, ancestors: tuple[yaml.Node, ...]) -> Any:
        self._check_nesting(node, ancestors)
        if id(node) in self._seen:
            self._note_repeated(1, node, ancestors)
        self._seen.add(id(node))
        positions, inner = self._source.positions, (*ancestors, node)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_YAML}map":
            mapping: dict[str, Any] = {}
            for key, (key_node, value_node) in self._entries(node, path, ancestors).items():
                positions[*path, key] = self._place(key_node)
                mapping[key] = self._value(value_node, (*path, key), inner)
            return mapping
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_YAML}seq":
            items = []
            for index, item in enumerate(node.value):
                positions[*path, index] = self._place(item)
                items.append(self._value(item, (*path, index), inner))
            return items
        if not isinstance(node, yaml.ScalarNode):
            raise _unreadable(f"the tag {shorten(node.tag)} on a list or mapping", node)
        return self._scalar(node, path)

    def _place(self, node: yaml.Node) -> str:
        return self._override or self._source.position(node.start_mark)

    def _check_nesting(self, node: yaml.Node, ancestors: tuple[yaml.Node, ...]) -> None:
        """Raise an error for values that aliases nest in themselves, or too deeply."""
        if any(node is ancestor for ancestor in ancestors):
            raise _unreadable("an alias that contains itself", node)
        if len(ancestors) == _DEEPEST:
            raise _too_deep(node.start_mark)

    def _note_repeated(
        self, values: int, node: yaml.Node, ancestors: tuple[yaml.Node, ...]
    ) -> None:
        """Count values that an alias repeats."""
        self._repeated += values
        if self._repeated <= _MOST_REPEATED:
            return
        marks = [self._loader.aliases.get(id(above)) for above in (node, *reversed(ancestors))]
        raise yaml.composer.ComposerError(
            None,
            None,
            f"aliases repeat more than {_MOST_REPEATED:,} values",
            next(filter(None, marks), node.start_mark),
        )

    def _entries(
        self, node: yaml.MappingNode, path: KeyPath, ancestors: tuple[yaml.Node, ...]
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Return keys and values with `<<` merged in. Duplicate keys become problems."""
        self._check_nesting(node, ancestors)
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_YAML}merge":
                is_list = isinstance(value_node, yaml.SequenceNode)
                for other in reversed(value_node.value if is_list else [value_node]):
                    if not isinstance(other, yaml.MappingNode):
                        raise _unreadable("a value of << that is not a mapping", other)
                    entries = self._entries(other, path, (*ancestors, node))
                    self._note_repeated(len(entries), other, ancestors)
                    merged |= entries
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _unreadable("a key that is a list or a mapping", key_node)
            key = str(key_node.value)
            if key in own:
                self._note_twice((*path, key), key_node, own[key][0])
            own[key] = (key_node, value_node)
        return merged | own

    def _note_twice(self, path: KeyPath, key_node: yaml.Node, first: yaml.Node) -> None:
        if id(key_node) in self._told:  # an alias leads here again
            return
        self._told.add(id(key_node))
        self._source.problems.append(
            Problem(
                path,
                expected="every key once",
                found=f"the key twice; first at {self._source.position(first.start_mark)}",
                hint="Remove one of the two.",
                where=self._place(key_node),
            )
        )

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        value: Any = node.value
        if node.tag not in _NUMBERS or len(value) <= _LONGEST_NUMBER:
            # A value that does not parse, such as a date with a thirteenth month, stays text.
            with suppress(ValueError, LookupError, AttributeError, ArithmeticError):
                value = self._loader.construct_object(node)
        if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            self._source.problems.append(
                Problem(
                    path,
                    expected="text that can be written as UTF-8",
                    found="an escape of a lone surrogate (half a character)",
                    hint="Write the character itself, or \\U with eight digits.",
                    where=self._place(node),
                )
            )
            return value.encode("utf-8", "replace").decode()
        return value


def _unreadable(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _storage_options(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    """Yield the values of storage_options and output_storage_options at any depth."""
    children: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for step, child in children:
        if step in ("storage_options", "output_storage_options"):
            yield (*path, step), child
        else:
            yield from _storage_options(child, (*path, step))


def _parse_path(text: str) -> KeyPath:
    """Return the steps of `input[0].range_bytes`, or () if the text is not a path."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PATH_STEP.match(text, position)
        if match is None:
            return ()
        if len(steps) == _DEEPEST or len(match[2] or "") > _LONGEST_INDEX:
            return ()
        steps.append(match[1] if match[2] is None else int(match[2]))
        position = match.end()
    return tuple(steps) if steps and isinstance(steps[0], str) else ()
