"""Configuration text as plain values that remember where they stand.

`ConfigSource.from_file` reads YAML, `ConfigSource.override` applies one `--set key=value`; both
note for every key the line and column, or the override, that it comes from. `Problem` is one thing
that is wrong with a key, and `raise_problems` turns any number of them into one ConfigError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipelines.config.credentials import missing_variable, references
from pipelines.errors import ConfigError

KeyPath = tuple[str | int, ...]

_PATH_STEP = re.compile(r"(?:^|\.)([^.\[\]=]+)|\[(\d+)\]")
_NULL_TEXTS = frozenset({"", "~", "null", "Null", "NULL"})
_LONGEST_SHOWN = 80


def format_path(path: KeyPath) -> str:
    """The path of a key as users write it.

    >>> format_path(("input", 0, "range_bytes"))
    'input[0].range_bytes'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def is_secret(path: KeyPath) -> bool:
    """Whether the value of this key may be a credential, or hold one.

    That is so below storage_options, output_storage_options and beam.options, also misspelt.
    """
    return any(isinstance(step, str) and "option" in step for step in path)


def describe_value(value: object) -> str:
    """A value as a message shows it, shortened, with its kind where that is not plain."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean)"
    if isinstance(value, dict):
        return "a mapping with the keys " + ", ".join(map(str, value)) if value else "{}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    kind = {str: " (a string)", int: "", float: ""}.get(type(value), f" (a {type(value).__name__})")
    text = repr(value)
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "…"
    return text + kind


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the configuration.

    Attributes:
        path: the key, relative to the part of the configuration that was checked.
        expected: what would be right.
        found: what there is; None where showing the value says enough.
        hint: what to do about it.
        where: file, line and column, or the `--set` text.
    """

    path: KeyPath
    expected: str
    found: str | None = None
    hint: str | None = None
    where: str | None = None


def raise_problems(problems: Sequence[Problem], file: str) -> None:
    """Raise one ConfigError that shows every problem; do nothing if there is none."""
    if not problems:
        return
    errors = [
        ConfigError(
            format_path(problem.path) or "The configuration",
            expected=problem.expected,
            found=problem.found,
            where=problem.where,
            hint=problem.hint,
        )
        for problem in problems
    ]
    heading = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    raise ConfigError(
        "\n\n".join([f"{heading} in the configuration {file}:", *(str(error) for error in errors)])
    )


@dataclass
class ConfigSource:
    """The plain values of a configuration and the place of every key.

    Attributes:
        file: the name of the configuration file, as the user gave it.
        values: nested dicts and lists of scalars.
        places: for each key path, where it was written.
        problems: what is wrong with the text itself (keys given twice, unreadable scalars).
    """

    file: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _overridden: set[KeyPath] = field(default_factory=set)

    @classmethod
    def from_file(cls, path: Path) -> ConfigSource:
        """Read a YAML file. ConfigError if it can't be read or is no mapping."""
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise ConfigError(
                f"The configuration file can't be read: {error.strerror}.",
                expected="a YAML file",
                where=str(path),
                hint="Check the path of CONFIG.",
            ) from None
        except UnicodeDecodeError as error:
            raise ConfigError(
                "The configuration file is not UTF-8.",
                found=f"the byte 0x{error.object[error.start]:02x} at byte {error.start}",
                where=str(path),
                hint="Save the file as UTF-8.",
            ) from None
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

    def override(self, text: str) -> None:
        """Apply `key=value`, as given to `--set`: a dotted key, and a YAML value.

        >>> source = ConfigSource("a.yaml", {"input": [{"files": ["*.txt"]}]})
        >>> source.override("input[0].range_bytes=1MiB")
        >>> source.values
        {'input': [{'files': ['*.txt'], 'range_bytes': '1MiB'}]}
        """
        key, equals, value_text = text.partition("=")
        path = _parse_path(key.strip())
        shown = f"--set {key.strip()}" + ("=…" if is_secret(path) else f"={value_text}")
        if not equals or not path:
            raise ConfigError(
                "An override can't be read.",
                expected="--set KEY=VALUE, with a key such as tokenizer.vocab_size or "
                "input[0].range_bytes",
                found=f"--set {key}" + ("" if not equals else "=…"),
            )
        for place in [place for place in self.places if place[: len(path)] == path]:
            del self.places[place]
        value = self._parse(value_text, path, shown)
        if value is None and value_text.strip() not in _NULL_TEXTS:
            raise ConfigError(
                "The value of an override is empty, because YAML takes it for a comment.",
                where=shown,
                hint=f"Quote it: --set '{key.strip()}=\"{value_text.strip()}\"'.",
            )
        self._assign(path, value, shown)
        self.places[path] = shown
        self._overridden |= {path[:end] for end in range(1, len(path) + 1)}

    def leave_out_of_file(self, section: str) -> None:
        """Removes the keys of a section that stand in the file and not in an override.

        >>> source = ConfigSource("a.yaml", {"tokenizer": {"vocab_size": 300}})
        >>> source.override("tokenizer.path=out/tokenizer")
        >>> source.leave_out_of_file("tokenizer")
        >>> source.values
        {'tokenizer': {'path': 'out/tokenizer'}}
        """
        values = self.values[section]
        for key in [key for key in values if (section, key) not in self._overridden]:
            del values[key]
            for place in [place for place in self.places if place[:2] == (section, key)]:
                del self.places[place]

    def environment_problems(self) -> Iterator[Problem]:
        """References `${NAME}` in storage options that have no value. Elsewhere they are text."""
        for path, value in _storage_options(self.values, ()):
            for key, name in references(value):
                if name not in os.environ:
                    expected, found, hint = missing_variable(name)
                    yield Problem((*path, *key), expected, found, hint, self.where((*path, *key)))

    def where(self, path: KeyPath) -> str:
        """Where the key was written, or the nearest key above it."""
        for length in range(len(path), 0, -1):
            if place := self.places.get(path[:length]):
                return place
        return f"{self.file}:1:1"

    def _parse(self, text: str, path: KeyPath, override: str | None = None) -> Any:
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            return None if node is None else self._value(loader, node, path, override, ())
        except yaml.MarkedYAMLError as error:
            raise ConfigError(
                f"The configuration is not valid YAML: {error.problem}.",
                where=override or self._place(error.problem_mark),
                hint="Check quotes, brackets and indentation there.",
            ) from None
        except yaml.reader.ReaderError as error:
            raise ConfigError(
                f"The configuration is not valid YAML: {error.reason}.",
                found=f"the character U+{error.character:04X} at position {error.position}",
                where=override or self.file,
            ) from None

    def _place(self, mark: yaml.Mark | None) -> str:
        return self.file if mark is None else f"{self.file}:{mark.line + 1}:{mark.column + 1}"

    def _value(
        self,
        loader: yaml.SafeLoader,
        node: yaml.Node,
        path: KeyPath,
        override: str | None,
        ancestors: tuple[yaml.Node, ...],
    ) -> Any:
        if any(node is ancestor for ancestor in ancestors):
            raise yaml.constructor.ConstructorError(
                None, None, "an alias that contains itself", node.start_mark
            )
        ancestors = (*ancestors, node)
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            mapping: dict[str, Any] = {}
            for key, key_node, value_node in self._keys(loader, node, path, override):
                place = override or self._place(key_node.start_mark)
                self.places[(*path, key)] = place
                mapping[key] = self._value(loader, value_node, (*path, key), override, ancestors)
            return mapping
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            items = []
            for index, item in enumerate(node.value):
                self.places[(*path, index)] = override or self._place(item.start_mark)
                items.append(self._value(loader, item, (*path, index), override, ancestors))
            return items
        return self._scalar(loader, node, path, override)

    def _keys(
        self, loader: yaml.SafeLoader, node: yaml.MappingNode, path: KeyPath, override: str | None
    ) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """The keys of a mapping with `<<` merged in; keys given twice become problems."""
        first: dict[str, yaml.Node] = {}
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in first:
                self.problems.append(
                    Problem(
                        (*path, key),
                        expected="every key once",
                        found=f"the key twice; first at {self._place(first[key].start_mark)}",
                        hint="Remove one of the two.",
                        where=override or self._place(key_node.start_mark),
                    )
                )
            first.setdefault(key, key_node)
        loader.flatten_mapping(node)
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key that is not a word", key_node.start_mark
                )
            yield str(key_node.value), key_node, value_node

    def _scalar(
        self, loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath, override: str | None
    ) -> Any:
        try:
            value = loader.construct_object(node)
        except ValueError:  # for example a date with a thirteenth month
            value = node.value
        if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            self.problems.append(
                Problem(
                    path,
                    expected="text that can be written as UTF-8",
                    found="an escape of half a character (a surrogate)",
                    hint="Write the character itself, or \\U with eight digits.",
                    where=override or self._place(node.start_mark),
                )
            )
            return value.encode("utf-8", "replace").decode()
        return value

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
                self.places[path[: depth + 1]] = shown
            if last:
                parent[step] = value
            else:
                parent = parent[step]

    def _no_such_element(self, path: KeyPath, parent: object, shown: str) -> ConfigError:
        name = format_path(path[:-1])
        secret = is_secret(path[:-1])
        return ConfigError(
            f"An override names {format_path(path)}, which there is not.",
            expected=f"an element of {name}, such as {name}[0]"
            if isinstance(parent, list)
            else f"{name} to be a {'list' if isinstance(path[-1], int) else 'mapping'}",
            found="another value" if secret else f"{name} is {describe_value(parent)}",
            where=shown,
        )


def _storage_options(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    """The values of storage_options and output_storage_options, wherever they stand."""
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
    """The steps of `input[0].range_bytes`; () if the text is no path."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PATH_STEP.match(text, position)
        if match is None:
            return ()
        steps.append(match[1] if match[2] is None else int(match[2]))
        position = match.end()
    return tuple(steps) if steps and isinstance(steps[0], str) else ()
