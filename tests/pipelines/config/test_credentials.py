"""Values from the environment, and keeping them out of what people see."""

from __future__ import annotations

import io
import sys
import traceback
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from pipelines import redaction
from pipelines.config import load_config
from pipelines.config.credentials import expanded, references
from pipelines.errors import ConfigError, InputError
from pipelines.redaction import (
    redact,
    redact_error,
    redacted_output,
    remember,
)
from pipelines.storage.filesystems import locate


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())


def test_references_are_replaced_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME_1", "value one")
    monkeypatch.setenv("OTHER", "")
    options = {
        "a": "${NAME_1}",
        "b": {"c": ["x${NAME_1}y${OTHER}", 1, None, True]},
        "d": "$NAME_1 $${NAME_1} $$ $",
    }
    assert expanded(options) == {
        "a": "value one",
        "b": {"c": ["xvalue oney", 1, None, True]},
        "d": "$NAME_1 ${NAME_1} $$ $",
    }
    assert redact("x value one y") == "x *** y"


def test_a_missing_variable_is_an_error_that_names_key_and_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ConfigError, match=r"storage_options.b.0(.|\n)*NOT_SET to be set"):
        expanded({"b": ["${NOT_SET}"]})
    with pytest.raises(ConfigError, match="without a name"):
        locate("memory://x", {"a": "${}"})


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A-B}", "${A:-b}", "x ${A b}"])
def test_what_is_no_name_is_refused(text: str) -> None:
    assert list(references({"k": text})) == [(("k",), "")]


def test_the_configuration_is_refused_with_every_missing_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IS_SET", "1234")
    for name in ("NOT_A", "NOT_B"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "a.yaml"
    path.write_text(
        "output: ${NOT_A}\n"
        "output_storage_options: {a: '${IS_SET}', b: '${NOT_A}'}\n"
        "input:\n"
        "- {name: x, files: [a], storage_options: {h: [1, '${NOT_B}', '$${NOT_A}', '${oh no}']}}\n"
    )
    with pytest.raises(ConfigError) as error:
        load_config(path)
    text = str(error.value)
    assert text.startswith("3 errors")
    assert "output_storage_options.b\n  expected: the environment variable NOT_A" in text
    assert f"{path}:2:42" in text
    assert "input[0].storage_options.h[1]\n  expected: the environment variable NOT_B" in text
    assert "input[0].storage_options.h[3]\n  expected: ${NAME}" in text


def test_the_configuration_keeps_references_and_elsewhere_they_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IS_SET", "geheim")
    path = tmp_path / "a.yaml"
    path.write_text("output: 'o-${IS_SET}'\ninput: {files: [a], storage_options: {k: '${IS_SET}'}}")
    config = load_config(path, ["output_storage_options.k=${IS_SET}"])
    assert config.output == "o-${IS_SET}"
    assert config.input[0].storage_options == {"k": "${IS_SET}"}
    assert config.output_storage_options == {"k": "${IS_SET}"}


def test_literal_secrets_are_scrubbed_and_addresses_are_not() -> None:
    expanded(
        {
            "secret": "pa$$word",
            "endpoint_url": "http://host",
            "client_kwargs": {"region_name": "us-east-1"},
            "token": "google_default",
        }
    )
    assert redact("pa$$word http://host us-east-1 google_default") == (
        "*** http://host us-east-1 google_default"
    )


def test_every_form_of_a_secret_is_scrubbed() -> None:
    secret = "a+b/c=d'e\"f\\g h"
    remember(secret)
    remember("abc")  # too short to hide
    for shown in (secret, quote_plus(secret), repr(secret), repr([secret])):
        assert "c=d" not in redact(shown)
        assert "e%22f" not in redact(shown)
    assert redact("abc") == "abc"


def test_errors_are_scrubbed_with_what_they_follow_from() -> None:
    remember("geheim")
    error = InputError("Bad geheim.", found="geheim", where="geheim", hint="geheim")
    assert "geheim" not in str(error)
    try:
        try:
            raise ValueError("geheim", 1)
        except ValueError as first:
            raise KeyError("geheim") from first
    except KeyError as second:
        redact_error(second)
        shown = "".join(traceback.format_exception(second)).replace('"geheim"', "")
    assert "geheim" not in shown


def test_output_is_scrubbed_while_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    remember("geheim")
    with redacted_output():
        print("geheim")
        sys.stdout.writelines(["geheim\n"])
        assert not sys.stdout.isatty()
    print("geheim")
    assert out.getvalue() == "***\n***\ngeheim\n"
