"""Base of the records that a build leaves on disk: checked JSON with a checksum.

A record with a checksum has one canonical form (sorted keys, two spaces), so that a change of any
byte shows in the checksum or in the form. Records from elsewhere are untrusted: names of files are
plain names, and unknown keys and wrong types are errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from bpe_core.short_repr import format_fields
from pipelines.config.deferred_model import DeferredModel
from pipelines.config.fingerprints import fingerprint
from pipelines.errors import DamagedOutputError
from pipelines.storage.directory import Directory, json_bytes

# Plain names: no path that leaves the directory, and no hidden file.
FileName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$",
        description="Name of a file in its directory.",
    ),
]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="xxh3-128, in hexadecimal.")]


def _check_64_bits(number: int) -> int:
    if number >> 63:
        raise ValueError("more than 63 bits")
    return number


Number = Annotated[int, Field(ge=0), AfterValidator(_check_64_bits)]
Corpus = Annotated[
    str,
    Field(
        pattern=r"^[0-9]+-[0-9a-f]{32}$",
        description="Number of kept documents, `-`, sum of their hashes modulo 2^128.",
    ),
]


class Record(DeferredModel):
    """A JSON object in a file, or a part of one.

    A key with the default None is absent from the JSON unless it was given.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def __repr__(self) -> str:
        shown = (name for name, info in type(self).model_fields.items() if info.repr)
        given = {name: getattr(self, name) for name in shown if name in self.model_fields_set}
        return format_fields(type(self).__name__, given)

    def to_json(self, *keys: str) -> dict[str, Any]:
        """Return the JSON values of all keys that were given, or of these keys."""
        return self.model_dump(by_alias=True, exclude_unset=True, include=set(keys) or None)

    def fields(self) -> dict[str, Any]:
        """Return the values of the fields that were given, for a record with more fields."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Return the record in the bytes of a file.

        Args:
            data: JSON.
            where: path or URL of the file, for the error.

        Raises:
            OutputError: the bytes are not JSON, or not such a record.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise DamagedOutputError(
                "A file of the output is damaged.",
                expected="JSON as beam-bpe writes it",
                found=first_problem(error),
                where=where,
                hint="Restore it, or start again with --restart.",
            ) from None

    @classmethod
    def load_file(cls, directory: Directory, name: str) -> Self | None:
        """Return the record in a file, or None if there is no such file.

        Raises:
            OutputError: the file is not such a record.
        """
        data = directory.find_bytes(name)
        return None if data is None else cls.parse(data, directory.path(name))

    @classmethod
    def load_files(cls, directory: Directory, names: Sequence[str]) -> Iterator[Self | None]:
        """Yield the records in files, or None for files that do not exist.

        Raises:
            OutputError: a file is not such a record.
        """
        for value in directory.read_json_files(names, cls):
            yield None if value is None else cls.model_validate(value)


_R = TypeVar("_R", bound=Record)


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a record in one line: the key and what is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, first["loc"]))
    return f"{key}: {first['msg']}" if key else first["msg"]


def present(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None, for keys that are absent rather than null.

    >>> present(policy=None, of=["a"])
    {'of': ['a']}
    """
    return {name: value for name, value in fields.items() if value is not None}


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with its checksum.

    >>> sealed({"a": 1})["checksum"] == fingerprint({"a": 1})
    True
    """
    return {**content, "checksum": fingerprint(content)}


def load_json(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file.

    Raises:
        ValueError: the bytes are not a JSON object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} instead of a JSON object")
    return value


def load_sealed(data: bytes) -> dict[str, Any]:
    """Return the JSON object with a checksum in the bytes of a file.

    Raises:
        ValueError: it has another checksum or form than builds write; names the problem.

    >>> load_sealed(json_bytes(sealed({"a": 1})))["a"]
    1
    """
    value = load_json(data)
    if "checksum" not in value:
        raise ValueError("no checksum")
    expected = fingerprint({key: item for key, item in value.items() if key != "checksum"})
    if value["checksum"] != expected:
        raise ValueError(f"checksum {value['checksum']}, but its content has {expected}")
    if json_bytes(value) != data:
        raise ValueError("its content is intact, but not in the form that builds write")
    return value


def parse_sealed(model: type[_R], data: bytes) -> _R:
    """Return the record in the bytes of a `manifest.json` or `run.json`, with all checks.

    Raises:
        ValueError: the bytes are not exactly what a build writes; names the problem.
    """
    value = load_sealed(data)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def fits(form: type[Record]) -> AfterValidator:
    """Return a validator for objects that stay dicts, but must have the keys of a model."""

    def check(value: dict[str, Any]) -> dict[str, Any]:
        try:
            form.model_validate(value)
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None
        return value

    return AfterValidator(check)
