"""The entry point of a Dataflow Flex Template: converts parameters and runs the command.

Dataflow's launcher starts it with `--NAME=VALUE` for each parameter of flex_template.json and with
options of Beam. It submits one job and does not wait for it. For `build`, the job counts, trains
and encodes, or only counts if `tokenizer_train_where` is `launcher`. When the job has finished, run
`beam-bpe build` with the same configuration anywhere to check it and write the manifests.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

# Parameters of the template, and the configuration keys that they set.
KEYS = {
    "output": "output",
    "input_files": "input.files",
    "input_format": "input.format",
    "input_separator": "input.separator",
    "input_text_field": "input.text_field",
    "input_range_bytes": "input.range_bytes",
    "tokenizer_path": "tokenizer.path",
    "tokenizer_pattern": "tokenizer.pattern",
    "tokenizer_special_tokens": "tokenizer.special_tokens",
    "tokenizer_vocab_size": "tokenizer.vocab_size",
    "tokenizer_train_where": "tokenizer.train_where",
    "counts_shards": "counts.shards",
    "encode_prepend": "encode.prepend",
    "encode_append": "encode.append",
    "encode_validation_fraction": "encode.validation_fraction",
    "max_workers": "beam.workers",
    "sdk_container_image": "beam.options.sdk_container_image",
}
LISTS = ("input_files", "tokenizer_special_tokens")
NUMBERS = (
    "input_range_bytes",  # with or without a unit
    "tokenizer_vocab_size",
    "counts_shards",
    "encode_validation_fraction",
    "max_workers",
)
# Literal text, unless it is `null` or in double quotes, in which YAML's escapes apply.
TEXT_OR_NULL = ("input_separator", "encode_prepend", "encode_append")
STAGES = ("count", "encode", "build")


def parsed(arguments: Sequence[str]) -> tuple[str, dict[str, Any], list[str]]:
    """Return the stage, the configuration, and the remaining arguments, which are for Beam."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--stage", choices=STAGES, required=True)
    for name in KEYS:
        parser.add_argument(f"--{name}", required=name in ("output", "input_files"))
    given, options = parser.parse_known_args(arguments)
    if given.stage == "build" and given.tokenizer_path is None:
        # If this process trained, the template could not submit the encoding afterwards.
        given.tokenizer_train_where = given.tokenizer_train_where or "worker"
    configuration: dict[str, Any] = {"beam": {"runner": "DataflowRunner"}}
    for name, key in KEYS.items():
        text = getattr(given, name)
        if text is None:
            continue
        *sections, last = key.split(".")
        section = configuration
        for part in sections:
            section = section.setdefault(part, {})
        section[last] = value_of(name, text)
    return given.stage, configuration, options


def value_of(name: str, text: str) -> Any:
    r"""Return the configuration value of a parameter; text, such as a regex, is literal.

    >>> value_of("tokenizer_pattern", " ?[a-z]+"), value_of("input_separator", r'"\n"')
    (' ?[a-z]+', '\n')
    """
    if name in LISTS:
        return text.split(",")
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    if name in NUMBERS or (name in TEXT_OR_NULL and (text == "null" or quoted)):
        return yaml.safe_load(text)
    return text


def main() -> None:
    """Replace this process with the command."""
    stage, configuration, options = parsed(sys.argv[1:])
    path = Path(tempfile.mkdtemp()) / "build.yaml"
    path.write_text(yaml.safe_dump(configuration), "utf-8")
    command = ["-m", "pipelines", stage, str(path), "--no-wait", "--", *options]
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    main()
