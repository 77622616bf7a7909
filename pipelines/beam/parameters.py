"""Parameters of the transforms, declared once and checked like configuration keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final, Literal, TypeVar

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem
from pydantic import AfterValidator, Field, ValidationError, create_model

from pipelines.config import CountsConfig, EncodeConfig, SourceConfig, TokenizerConfig
from pipelines.config.validation import problems_of, refusal
from pipelines.config.values import Section, Shards, Size, Text
from pipelines.config.yaml_document import Problem, YamlDocument, raise_problems
from pipelines.errors import ConfigError

_Model = TypeVar("_Model", bound=Section)


def _check_split(name: str) -> str:
    """Check that the name of a split can be part of a file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise refusal(Problem((), expected="letters, digits, - and _, a letter or digit first"))
    return name


# Parameters that are also configuration keys.
_KEYS: Final[Mapping[type[Section], tuple[str, ...]]] = {
    TokenizerConfig: ("pattern", "special_tokens", "normalize_quotes"),
    CountsConfig: ("max_pretoken_bytes", "on_long_pretoken"),
    EncodeConfig: ("prepend", "append", "special_tokens_in_text", "id_type"),
    SourceConfig: ("invalid_utf8",),
}
_FIELDS: Final[dict[str, Any]] = {
    **{
        name: (model.model_fields[name].annotation, model.model_fields[name])
        for model, names in _KEYS.items()
        for name in names
    },
    "normalizer": (Literal["nfc", "nfkc"] | None, None),
    # A build has a larger default, so that it writes few runs.
    "memory": (Size, CountsConfig.model_fields["memory"].default),
    # Of a transform's input, the size is unknown, so it cannot decide the number.
    "shards": (Shards, 64),
    "num_shards": (Annotated[int, Field(ge=1)], 1),
    "split": (Annotated[Text, AfterValidator(_check_split)], "train"),
}
_PARAMETERS: Final = create_model("Parameters", __base__=Section, **_FIELDS)


class ParameterizedTransform(beam.PTransform):  # type: ignore[misc]
    """Base class of transforms whose parameters are the fields of a dataclass."""

    def check_parameters(self) -> dict[str, Any]:
        """Check the parameters that correspond to configuration keys. Return their values.

        Raises:
            ConfigError: A parameter has a wrong value; the error lists all of them.
        """
        known = [field.name for field in fields(self) if field.name in _PARAMETERS.model_fields]
        given = {name: getattr(self, name) for name in known}
        checked = check_values(_PARAMETERS, given, type(self).__name__)
        return {name: getattr(checked, name) for name in known}

    def display_data(self) -> dict[str, DisplayDataItem]:
        """Return the parameters for the web pages of runners, without storage options."""
        return {
            field.name: DisplayDataItem(_display(getattr(self, field.name))).drop_if_none()
            for field in fields(self)
            if field.repr
        }


@dataclass(kw_only=True)
class TextRules:
    """Parameters of a tokenizer that determine how text is split and where documents are cut.

    Attributes:
        pattern: Name of the pattern that splits text, or a regex.
        special_tokens: Special tokens, at which text is cut.
        normalizer: None, "nfc" or "nfkc".
        normalize_quotes: True to replace typographic quotes by ' and ".
    """

    pattern: str = "gpt2"
    special_tokens: Sequence[str] = ()
    normalizer: str | None = None
    normalize_quotes: bool = False


@dataclass(kw_only=True)
class ElementRules:
    """Parameters for documents that come as elements.

    Attributes:
        text_field: Field of records that contains the text.
        id_field: Field of records that contains the document's own id, or None.
        invalid_utf8: "reject", "replace" or "error", for text that is not valid UTF-8.
    """

    text_field: str = "text"
    id_field: str | None = None
    invalid_utf8: Literal["reject", "replace", "error"] = "reject"


def check_values(model: type[_Model], values: Mapping[str, Any], name: str) -> _Model:
    """Check values with a model of the configuration. Return the model.

    Args:
        model: The model.
        values: Values by key.
        name: Name of the transform, for messages.

    Raises:
        ConfigError: Values are wrong; the error lists all of them.
    """
    given = YamlDocument(f"of {name}", dict(values))
    problems = [*given.environment_problems()]
    checked = None
    try:
        checked = model.model_validate(given.values)
    except ValidationError as error:
        problems += problems_of(error, given, [(key,) for key in model.model_fields])
    # Parameters have no file, so there is no line to show.
    raise_problems([replace(problem, where=None) for problem in problems], given.file)
    assert checked is not None
    return checked


def wrong_value(
    transform: beam.PTransform, name: str, expected: str, found: str, hint: str | None = None
) -> ConfigError:
    """Return the error for a parameter of a transform."""
    return ConfigError(
        f"{type(transform).__name__} has a parameter with a wrong value.",
        expected=expected,
        found=found,
        where=name,
        hint=hint,
    )


def _display(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else str(value)
