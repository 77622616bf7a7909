from __future__ import annotations

import dataclasses
import doctest
import json
import re
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bpe_core._native import separator_problem
from bpe_core.patterns import PATTERNS
from pipelines import errors, supervisor
from pipelines.cli import render as summary
from pipelines.config import (
    BuildConfig,
    SourceConfig,
    build,
    load_config,
    values,
)
from pipelines.config import (
    fingerprints as identity,
)
from pipelines.config import (
    yaml_document as yaml_source,
)
from pipelines.config.fingerprints import (
    counts_configuration,
    differences,
    fingerprint,
    tokenizer_configuration,
    tokenizer_settings,
    tokens_configuration,
)
from pipelines.config.schema import json_schema
from pipelines.config.values import PATTERN_NAMES, parse_size, split_glob
from pipelines.errors import ConfigError

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))
MINIMAL = "output: out\ninput:\n  files: ['*.txt']\n"


def load(directory: Path, text: str, *overrides: str) -> BuildConfig:
    file = directory / "build.yaml"
    file.write_text(text, "utf-8")
    return load_config(file, overrides)


def refusal(directory: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(directory, text, *overrides)
    return str(error.value)


# --- defaults, shapes, paths


def test_defaults_are_those_of_the_documentation(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)
    assert config.input[0].separator == "<|endoftext|>"
    assert config.input[0].range_bytes == 64 << 20
    assert config.input[0].max_document_bytes == 1 << 30
    assert config.tokenizer.special_tokens == ("<|endoftext|>",)
    assert config.counts.memory == 512 << 20
    assert config.counts.checkpoint_bytes == 8 << 30
    assert config.encode.append == "<|endoftext|>"
    assert config.beam.workers == 0


def test_one_source_and_a_list_of_sources_are_read_alike(tmp_path: Path) -> None:
    one = load(tmp_path, MINIMAL)
    listed = load(tmp_path, "output: out\ninput: [{files: ['*.txt']}]\n")
    assert one.input == listed.input
    two = "output: out\ninput: [{name: a, files: [a.txt]}, {name: b, files: [b.txt]}]\n"
    assert [source.name for source in load(tmp_path, two).input] == ["a", "b"]


def test_several_sources_need_different_names(tmp_path: Path) -> None:
    text = "output: out\ninput: [{files: [a]}, {name: b, files: [b]}, {name: b, files: [c]}]\n"
    message = refusal(tmp_path, text)
    assert "input[0].name" in message
    assert "input[2].name" in message
    assert "the name of input[1]" in message


def test_relative_paths_are_relative_to_the_file_also_in_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "configs"
    directory.mkdir()
    (directory / "build.yaml").write_text(MINIMAL, "utf-8")
    monkeypatch.chdir(tmp_path)
    config = load_config("configs/build.yaml", ["output=../elsewhere"])
    assert config.output_path == str(tmp_path / "elsewhere")
    assert config.resolve("/data/a.txt") == "/data/a.txt"
    assert config.resolve("s3://bucket/../a") == "s3://bucket/../a"
    assert config.resolve_glob("../*.txt") == str(tmp_path / "*.txt")


def test_a_folder_with_glob_characters_in_its_name_is_taken_literally(tmp_path: Path) -> None:
    directory = tmp_path / "run [1]*"
    directory.mkdir()
    (directory / "a.txt").touch()
    pattern = load(directory, MINIMAL).resolve_glob("*.txt")
    assert list(Path("/").glob(pattern.removeprefix("/"))) == [directory / "a.txt"]


def test_the_configuration_is_frozen(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        config.output = "other"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (7, 7),
        ("7B", 7),
        ("64KiB", 64 << 10),
        ("64MiB", 64 << 20),
        ("8GiB", 8 << 30),
        ("1TiB", 1 << 40),
        ("1MB", 1_000_000),
        ("1 kB", 1000),
        ("1.5GiB", 3 << 29),
        ("0.1MB", 100_000),
        ("1.5GB", 1_500_000_000),
        ("64M", 64_000_000),
        ("2_000", 2000),
        ("1_024 KiB", 1 << 20),
    ],
)
def test_sizes_are_ints_or_numbers_with_a_unit(text: int | str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "-1MiB", "1 mib", "1Mb", "0.3B", "1e6", "1Mi", "_1", "1__0", "٣", True, 1.5, None],
)
def test_what_is_no_size_is_refused(tmp_path: Path, text: object) -> None:
    message = refusal(tmp_path, MINIMAL + f"  range_bytes: {json.dumps(text)}\n")
    assert "input.range_bytes" in message
    assert "build.yaml:4:3" in message
    assert "expected: a size such as 64MiB" in message
    assert "found: " in message


def test_numbers_of_ids_have_units_without_bytes(tmp_path: Path) -> None:
    text = MINIMAL + "tokenizer: {vocab_size: 32k}\n"
    assert load(tmp_path, text).tokenizer.vocab_size == 32_000
    assert load(tmp_path, text, "tokenizer.vocab_size=50_257").tokenizer.vocab_size == 50_257
    jsonschema.validate(yaml.safe_load(text), json_schema())
    for wrong in ("32KiB", "32kB", "0.0001k", "3 apples"):
        message = refusal(tmp_path, text, f"tokenizer.vocab_size={wrong}")
        assert "--set tokenizer.vocab_size" in message
        assert "expected: a whole number such as 32k" in message
        assert f"'{wrong}' (a string)" in message
    assert "at most 2147483647" in refusal(tmp_path, text, "tokenizer.vocab_size=3G")


def test_the_spelling_of_a_number_is_no_part_of_an_identity(tmp_path: Path) -> None:
    spelled = "tokenizer: {vocab_size: 32k}\ncounts: {max_pretoken_bytes: 1MiB}\n"
    plain = "tokenizer: {vocab_size: 32000}\ncounts: {max_pretoken_bytes: 1048576}\n"
    assert identities(load(tmp_path, MINIMAL + spelled)) == identities(
        load(tmp_path, MINIMAL + plain)
    )


# --- errors


def test_an_unknown_key_is_named_with_its_place_and_the_nearest_known_key(tmp_path: Path) -> None:
    message = refusal(tmp_path, MINIMAL + "  range_byte: 1\n")
    assert "input.range_byte" in message
    assert f"{tmp_path}/build.yaml:4:3" in message
    assert "Did you mean range_bytes?" in message


def test_a_key_in_the_wrong_section_is_sent_to_the_right_one(tmp_path: Path) -> None:
    assert "Did you mean tokenizer.vocab_size?" in refusal(tmp_path, MINIMAL + "vocab_size: 3\n")


def test_all_errors_of_a_file_are_shown_at_once(tmp_path: Path) -> None:
    text = """\
output: 3
input:
  - name: a
    files: []
    separator: abab
  - files: [b.txt, '']
    invalid_utf8: rejct
tokenizer:
  pattern: gtp2
  tie_break: first_seen
  min_count: 0
  special_tokens: [a, b, a, '']
  min_count: 1
counts: {shards: 65537, memory: 1KiB, on_long_pretoken: ignore}
encode: {validation_fraction: 1.0, max_reject_fraction: 2}
beam: {workers: "4", runner: SparkRunner}
"""
    message = refusal(tmp_path, text)
    for expected in (
        "16 errors",
        "tokenizer.min_count\n  expected: every key once\n  found: the key twice; first at",
        "output\n  expected: text\n  found: 3",
        "input[0].files\n  expected: a list of at least 1\n  found: a list of 0",
        "input[0].separator",
        "input[1].files[1]\n  expected: non-empty text",
        "input[1].invalid_utf8\n  expected: 'reject', 'replace' or 'error'\n  found: 'rejct'",
        "Did you mean reject?",
        "did you mean 'gpt2'?",
        "which counts do not keep",
        "counts.shards\n  expected: at most 65536",
        "counts.memory\n  expected: at least 65536\n  found: 1024",
        "encode.validation_fraction\n  expected: less than 1",
        "encode.max_reject_fraction\n  expected: at most 1",
        "beam.workers\n  expected: a whole number\n  found: '4' (a string)",
        "beam.runner\n  expected: 'DirectRunner', 'FlinkRunner', 'PrismRunner', "
        "'PortableRunner' or 'DataflowRunner'",
    ):
        assert expected in message, expected


def test_missing_keys_are_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, "input: {separator: null}\n")
    assert "\noutput\n" in message
    assert "\ninput.files\n" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not a mapping"),
        ("- a", "a list of 1"),
        ("output: [a\ninput: b", "build.yaml:2:6"),
        ("output: !custom a", "build.yaml:1:9"),
        ("output: &a [*a]", "contains itself"),
        ('output: "\\ud800"', "surrogate"),
        ("{[a]: b}", "build.yaml:1:2"),
        ("output: a\x01", "U+0001"),
    ],
)
def test_text_that_is_no_yaml_mapping_is_refused_with_its_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert expected in refusal(tmp_path, text)


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            load_config(path)
    (tmp_path / "latin.yaml").write_bytes(b"output: caf\xe9\n")
    with pytest.raises(ConfigError, match="0xe9 at byte 11"):
        load_config(tmp_path / "latin.yaml")


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([*BuildConfig.model_fields, "files", "separator", "path", "options", "x"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
))  # fmt: skip
def test_whatever_the_values_are_only_configuration_errors_are_raised(values: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "build.yaml"
        file.write_text(yaml.safe_dump(values, allow_unicode=True), "utf-8")
        try:
            load_config(file)
        except ConfigError as error:
            assert str(file) in str(error)


# --- impossible combinations


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("tokenizer.vocab_size=256", "tokenizer.vocab_size"),
        ("tokenizer.vocab_size=70000", "encode.id_type"),
        ("tokenizer.special_tokens=[<|endoftext|>, <|endoftext|>]", "tokenizer.special_tokens[1]"),
        ("tokenizer.special_tokens=['<|endoftext|>', '']", "tokenizer.special_tokens[1]"),
        ("encode.prepend=<|start|>", "encode.prepend"),
        ("tokenizer.special_tokens=[]", "encode.append"),
        ("tokenizer.pattern='('", "tokenizer.pattern"),
        ("tokenizer.pattern=gpt-2", "tokenizer.pattern"),
        ("tokenizer.min_count=0", "tokenizer.min_count"),
        ("tokenizer.tie_break=first_seen", "tokenizer.tie_break"),
        ("input.separator=abcab", "input.separator"),
        ("input.separator=''", "input.separator"),
        ("input.format=csv", "input.format"),
        ("counts.shards=0", "counts.shards"),
        ("encode.validation_fraction=-0.1", "encode.validation_fraction"),
        ("encode.max_reject_fraction=.nan", "encode.max_reject_fraction"),
    ],
)
def test_impossible_combinations_name_the_key_and_the_override(
    tmp_path: Path, override: str, key: str
) -> None:
    message = refusal(tmp_path, MINIMAL, "encode.id_type=uint16", override)
    assert f"\n{key}\n" in message
    if key != "encode.append" and key != "encode.id_type":
        assert f"where: --set {override}" in message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["tokenizer.special_tokens=[a, b, a]", "encode.append=a"],
            "tokenizer.special_tokens[2]\n  expected: every special token once\n"
            "  found: 'a' (a string), also special_tokens[0]",
        ),
        (
            ["input.separator=['|', '|']"],
            "input.separator[1]\n  expected: every separator once\n"
            "  found: '|' (a string), also separator[0]",
        ),
        (
            ["input.format=jsonl", "input.text_field=[title, body, title]"],
            "input.text_field[2]\n  expected: every field once\n"
            "  found: 'title' (a string), also text_field[0]",
        ),
    ],
)
def test_what_is_there_twice_is_called_what_it_is(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    assert message in refusal(tmp_path, MINIMAL, *overrides)


def test_a_finished_tokenizer_excludes_the_keys_of_training(tmp_path: Path) -> None:
    text = MINIMAL + "tokenizer: {path: tok, vocab_size: 300, min_count: 2}\n"
    message = refusal(tmp_path, text)
    assert "tokenizer.vocab_size" in message
    assert "tokenizer.min_count" in message
    config = load(tmp_path, MINIMAL + "tokenizer: {path: tok}\nencode: {append: <s>}\n")
    assert config.tokenizer.path == "tok"


@pytest.mark.parametrize("separator", ["\n", "\n\n", "a", "<|endoftext|>", "ab", "\r\n", "é"])
def test_separators_that_cannot_overlap_or_repeat_one_byte_are_taken(
    tmp_path: Path, separator: str
) -> None:
    config = load(tmp_path, MINIMAL, f"input.separator={json.dumps(separator)}")
    assert config.input[0].separator == separator


def test_a_custom_regex_is_taken_as_it_is(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL, r"tokenizer.pattern='\p{L}+|\s+(?!\S)'")
    assert config.tokenizer.pattern == r"\p{L}+|\s+(?!\S)"


def test_the_named_patterns_are_those_of_bpe_core() -> None:
    assert tuple(PATTERNS) == PATTERN_NAMES


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3, unique=True))
def test_several_separators_are_refused_by_the_rule_of_the_readers(separators: list[str]) -> None:
    source = {"files": ["a"], "separator": separators}
    if separator_problem([separator.encode() for separator in separators]) is None:
        found = SourceConfig.model_validate(source).separators
        assert found == tuple(separator.encode() for separator in separators)
    else:
        with pytest.raises(ValueError, match="overlap"):
            SourceConfig.model_validate(source)


@pytest.mark.parametrize(
    ("overrides", "shown"),
    [
        (["input.format=jsonl", "input.separator='|'"], ["input.separator", "belongs to text"]),
        (["input.text_field=body"], ["input.text_field", "jsonl, parquet, arrow", "'body'"]),
        (["input.format=arrow", "input.strip_bom=true"], ["input.strip_bom", "belongs to text"]),
        (["input.format=parquet", "input.compression=zstd"], ["compresses its columns"]),
        (["input.format=jsonl", "input.join=' '"], ["a list of fields", "one field"]),
        (["input.format=jsonl", "input.text_field=a..b"], ["names of fields"]),
        (
            ["input.format=jsonl", "input.text_field=[a, a.b]"],
            ["different fields, none of them inside another"],
        ),
        (["input.format=jsonl", "input.text_field=[]"], ["at least one"]),
        (["input.format=jsonl", "input.id_field=3"], ["input.id_field", "or null", "3"]),
        (["input.separator=[a, ab, ba]"], ["overlap each other", "'ab' and 'ba'"]),
        (["input.separator=[a, a]"], ["once"]),
    ],
)
def test_keys_of_forms_that_make_no_sense_are_refused_with_the_reason(
    tmp_path: Path, overrides: list[str], shown: list[str]
) -> None:
    message = refusal(tmp_path, MINIMAL, *overrides)
    for text in shown:
        assert text in message


def test_paths_of_fields_may_hold_dots(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL, "input.format=jsonl", r"input.text_field=['a.b', 'c\.d.e']")
    assert config.input[0].text_fields == (("a", "b"), ("c.d", "e"))


@given(st.text("ab", min_size=1, max_size=9))
def test_separators_are_refused_by_the_rule_of_the_readers(separator: str) -> None:
    source = {"files": ["a"], "separator": separator}
    if separator_problem(separator.encode()) is None:
        SourceConfig.model_validate(source)
    else:
        with pytest.raises(ValueError, match="overlap itself"):
            SourceConfig.model_validate(source)


def test_anchors_aliases_and_merge_keys_are_understood_and_keep_their_places(
    tmp_path: Path,
) -> None:
    text = """\
output: out
input:
  - &books {name: books, files: [b.txt], range_bytes: 1MiB}
  - {<<: *books, name: notes, strip_bom: 3}
"""
    message = refusal(tmp_path, text)
    assert "1 error in" in message
    assert "input[1].strip_bom" in message
    assert "build.yaml:4:31" in message
    config = load(tmp_path, text, "input[1].strip_bom=true")
    assert config.input[1].range_bytes == 1 << 20
    assert config.input[0].strip_bom is False


# --- overrides


def test_alias_to_merged_mapping_gives_no_key_twice(tmp_path: Path) -> None:
    text = """\
output: out
input: {files: ['*.txt']}
output_storage_options:
  - &base {a: 1}
  - &more {<<: *base, a: 2}
  - *more
  - {<<: *more}
"""
    assert "twice" not in refusal(tmp_path, text)


NESTED = ("[" * 3000, "]" * 3000)


def aliases(text: str, levels: int, first: str) -> str:
    """Lists of aliases of lists of aliases."""
    lines = [f"a0: &a0 {first}\n"]
    for level in range(1, levels):
        repeated = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {text.format(f'[{repeated}]')}\n")
    return "".join(lines)


# At most a second on any machine: each takes some hundredths.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "overrides", "problem", "place"),
    [
        (f"x: {NESTED[0]}{NESTED[1]}", (), "nested more than 100 deep", ":4:103"),
        ("x: " + "{a: " * 3000, (), "nested more than 100 deep", ":4:397"),
        ("x:\n" + "".join(" " * i + "-\n" for i in range(1, 999)), (), "100 deep", ":104:101"),
        (aliases("{}", 9, "[1, 1]"), (), "aliases repeat more than 10,000 values", "build.yaml:5:"),
        (aliases("{{<<: {}}}", 9, "{k: 1}"), (), "more than 10,000 values", "build.yaml:5:"),
        ("a: &a {<<: *a}", (), "an alias that contains itself", ":4:4"),
        ("".join(f"a{i}: &a{i} {'[' * 90}{f'*a{i - 1}' if i else ''}{']' * 90}\n"
                 for i in range(60)), (), "nested more than 100 deep", "build.yaml:4:"),
        (f"counts: {{shards: 0x{'f' * 100_000}}}", (), "'0xffff", ":4:10"),
        (f"counts: {{shards: 1{':1' * 100_000}}}", (), "'1:1:1", ":4:10"),
        (f"counts: {{memory: {'1' * 5000}MiB}}", (), "a size such as 64MiB", ":4:10"),
        ("counts: {memory: 100000000TiB}", (), "at most 9223372036854775807", ":4:10"),
        ("counts: {shards: !!bool abc}", (), "a whole number", ":4:10"),
        ("x: !!set {a}", (), "tag tag:yaml.org,2002:set", ":4:4"),
        (f"? {'k' * 100_000}\n: 1\n", (), "one of the keys", ":4:3"),
        ("", (f"beam.options.a={NESTED[0]}{NESTED[1]}",), "100 deep", "--set beam.options.a"),
        ("", (f"beam.options{'.a' * 100_000}=1",), "cannot be parsed", "--set beam.options.a.a"),
        ("", (f"input[{'9' * 5000}]=1",), "cannot be parsed", "--set input[999"),
    ],
    ids=["lists", "mappings", "block", "aliases", "merges", "self", "chain", "hex", "base 60",
         "digits", "size", "tag", "set", "key", "--set value", "--set key", "--set index"],
)  # fmt: skip
def test_endless_configurations_are_refused_with_their_place(
    text: str, overrides: tuple[str, ...], problem: str, place: str, tmp_path: Path
) -> None:
    begun = time.process_time()
    message = refusal(tmp_path, MINIMAL + text, *overrides)
    assert time.process_time() - begun < 1
    assert problem in message
    assert place in message
    assert len(message) < 5000


def test_large_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "build.yaml").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="too large"):
        load_config(tmp_path / "build.yaml")


def test_many_special_tokens_take_linear_time() -> None:
    tokens = tuple(f"token {number}" for number in range(100_000))
    begun = time.process_time()
    config = BuildConfig.model_validate(
        {
            "output": "out",
            "input": {"files": ["a"]},
            "tokenizer": {"special_tokens": tokens, "vocab_size": 200_000},
            "encode": {"append": tokens[-1]},
        }
    )
    assert time.process_time() - begun < 1
    assert config.tokenizer.special_tokens == tokens


def test_overrides_are_yaml_values_and_win_over_the_file(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "output: out\ninput: [{name: a, files: [a]}, {name: b, files: [b]}]\n",
        "input[1].range_bytes=1MiB",
        "encode.append=null",
        "tokenizer.special_tokens=[<|a|>, <|b|>]",
        'input[0].separator="\\n"',
        "encode.prepend=",
        "counts={shards: 3}",
        "counts.memory=1GiB",
    )
    assert config.input[1].range_bytes == 1 << 20
    assert config.encode.append is None
    assert config.encode.prepend is None
    assert config.tokenizer.special_tokens == ("<|a|>", "<|b|>")
    assert config.input[0].separator == "\n"
    assert (config.counts.shards, config.counts.memory) == (3, 1 << 30)


@pytest.mark.parametrize(
    "override",
    [
        "output",
        "=3",
        "a..b=3",
        "[0].x=3",
        "input[7].files=[a]",
        "output.x=3",
        "input[0]=3",
        "encode.append=#",
        "encode.append=[a",
    ],
)
def test_an_override_that_cannot_be_applied_is_named(tmp_path: Path, override: str) -> None:
    assert f"--set {override.partition('=')[0]}" in refusal(tmp_path, MINIMAL, override)


# --- secrets


def test_credentials_are_in_no_text_error_or_identity(tmp_path: Path) -> None:
    text = """\
output: out
output_storage_options: {key: GEHEIM}
input: {files: [a], storage_options: {key: GEHEIM}}
beam: {options: {password: GEHEIM}}
"""
    config = load(tmp_path, text)
    assert config.input[0].storage_options == {"key": "GEHEIM"}
    identity = [tokenizer_configuration(config, SHARDS), tokens_configuration(config, "00")]
    assert "GEHEIM" not in f"{config!r} {config} {identity}"
    for override in (
        "input.storage_options=GEHEIM",
        "output_storage_options=GEHEIM",
        "output_storage_options=[GEHEIM",
        "input.storage_option.key=GEHEIM",
        "input.storage_options.key.more=GEHEIM",
        "beam.options=GEHEIM",
    ):
        assert "GEHEIM" not in refusal(tmp_path, text, override), override
    with pytest.raises(ValueError) as error:
        BuildConfig.model_validate({"output_storage_options": "GEHEIM"})
    assert "GEHEIM" not in str(error.value)


# --- identity

NO_INFLUENCE = {
    "tokenizer.train_where": "worker",
    "input.max_bad_files": 3,
    "input.max_expansion": 2000,
    "input.follow_links": "anywhere",
    "output": "elsewhere",
    "output_storage_options": {"a": 1},
    "counts.path": "elsewhere",
    "counts.keep_file_counts": True,
    "report": False,
    "counts.memory": "1GiB",
    "counts.checkpoint_bytes": "1MiB",
    "beam.workers": 3,
    "beam.options": {"a": 1},
    "input.storage_options": {"a": 1},
    "input.include": ["a*"],
    "input.exclude": ["b*"],
    "encode.vocab_size": 32000,  # the fingerprint of the tokenizer is that of the chosen size
}
ONLY_TOKENS = {
    "input.range_bytes": "1MiB",
    "encode.append": None,
    "encode.prepend": "<|endoftext|>",
    "encode.id_type": "uint32",
    "encode.validation_fraction": 0.5,
    "encode.special_tokens_in_text": "text",
}
ONLY_TOKENIZER = {
    "tokenizer.base": "elsewhere",
    "tokenizer.required_tokens": ["abc"],
    "tokenizer.vocab_size": 300,
    "tokenizer.tie_break": "first_id",
    "tokenizer.min_frequency": 2,
    "tokenizer.min_count": 2,
    "tokenizer.max_token_bytes": 8,
    "tokenizer.forbidden_tokens": ["a"],
    "tokenizer.rules.forbid_whitespace_tokens": True,
    "tokenizer.superwords.max_words": 3,
    "tokenizer.superwords.vocab_size_before": 290,
}
# With two sources, counts by lang, and numbers of documents.
TWO_SOURCES = """
output: out
input:
- {name: a, files: [a.jsonl], format: jsonl}
- {name: b, files: [b.jsonl], format: jsonl}
counts: {group_by: lang, document_frequency: true}
"""
OF_GROUPS = {
    "tokenizer.min_documents": 2,
    "tokenizer.min_sources": 2,
    "tokenizer.mixture": {"a": 0.5, "b": 0.5},
    "tokenizer.parity": {},
}
_SECTIONS = {"tokenizer.mixture", "tokenizer.parity"}
OF_MIXTURE = {
    "tokenizer.mixture.by": "lang",
    "tokenizer.mixture.shares": {"a": 1, "b": 3},
    "tokenizer.mixture.temperature": 0.7,
}
OF_PARITY = {
    "tokenizer.parity.by": "lang",
    "tokenizer.parity.ratios": {"a": 1, "b": 2},
    "tokenizer.parity.development": "b",
    "tokenizer.parity.global_merges": 3,
    "tokenizer.parity.window_size": 3,
    "tokenizer.parity.alpha": 1.5,
}
ONLY_CHARACTER_TOKENIZER = {
    "tokenizer.unk_token": None,
    "tokenizer.end_of_word": "_",
    "tokenizer.end_of_word_as": "suffix",
    "tokenizer.limit_alphabet": 99,
}
ONLY_METASPACE = {
    "tokenizer.byte_fallback": False,
    "tokenizer.character_coverage": 0.5,
}
COUNTS = {
    "tokenizer.unit": "character",
    "tokenizer.pattern": "cl100k",
    "tokenizer.special_tokens": ["<|endoftext|>", "b"],
    "tokenizer.normalizer": "nfc",
    "tokenizer.normalize_quotes": True,
    "tokenizer.rules.split_categories": True,
    "tokenizer.rules.max_digits": 3,
    "counts.shards": 3,
    "counts.max_pretoken_bytes": 99,
    "counts.on_long_pretoken": "skip",
    "counts.document_frequency": True,
    "input.files": ["*.md"],
    "input.separator": None,
    "input.compression": "none",
    "input.invalid_utf8": "error",
    "input.strip_bom": True,
    "input.max_document_bytes": 9,
    "input.limit_documents": 9,
    "input.limit_bytes": 9,
    "input.sample_fraction": 0.5,
    "input.min_chars": 9,
    "input.max_chars": 9,
    "input.name": "x",
}


SHARDS = 64


def identities(config: BuildConfig) -> tuple[str, str, str]:
    return (
        fingerprint(counts_configuration(config, config.counts.shards or SHARDS)),
        fingerprint(tokenizer_configuration(config, config.counts.shards or SHARDS)),
        fingerprint(tokens_configuration(config, "00")),
    )


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        (NO_INFLUENCE | {"encode.max_reject_fraction": 0.5}, (False, False, False)),
        (ONLY_TOKENS, (False, False, True)),
        (ONLY_TOKENIZER, (False, True, False)),
        (COUNTS, (True, True, None)),
    ],
)
def test_each_identity_changes_with_the_keys_it_depends_on(
    tmp_path: Path, changes: dict[str, object], changed: tuple[bool, ...]
) -> None:
    base = identities(load(tmp_path, MINIMAL))
    for key, value in changes.items():
        other = identities(load(tmp_path, MINIMAL, f"{key}={json.dumps(value)}"))
        for old, new, expected in zip(base, other, changed, strict=True):
            assert expected is None or (old != new) is expected, key


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        *((None, *change) for change in OF_GROUPS.items()),
        *(("mixture: {temperature: 0.5}", *change) for change in OF_MIXTURE.items()),
        *(("parity: {by: lang}", *change) for change in OF_PARITY.items()),
    ],
)
def test_keys_of_groups_change_the_tokenizer_alone(
    tmp_path: Path, section: str | None, key: str, value: object
) -> None:
    text = TWO_SOURCES + f"tokenizer: {{{section or ''}}}\n"
    others = {
        "tokenizer.mixture.shares": ["tokenizer.mixture.temperature=null"],
        "tokenizer.parity.by": ["tokenizer.parity.global_merges=1"],
        "tokenizer.parity.ratios": ["tokenizer.parity.by=source"],
    }
    base = identities(load(tmp_path, text))
    changed = load(tmp_path, text, f"{key}={json.dumps(value)}", *others.get(key, []))
    other = identities(changed)
    assert [old != new for old, new in zip(base, other, strict=True)] == [False, True, False]
    recorded = tokenizer_configuration(changed, 1)["tokenizer"]
    assert tokenizer_settings(recorded) == changed.tokenizer


@pytest.mark.parametrize(
    ("section", "messages"),
    [
        ("mixture: {a: 1}", ["tokenizer.mixture", "none for b", "The share 0 leaves"]),
        ("mixture: {a: 1, b: 1, c: 1}", ["the name of a source: a, b", "'c'"]),
        ("mixture: {a: 1, web: 1}", ["'web'", "none for b"]),
        ("mixture: {a: -1, b: 1}", ["tokenizer.mixture.shares.a", "at least 0"]),
        ("mixture: {a: x, b: 1}", ["a number", "'x'"]),
        ("mixture: {a: .nan, b: 1}", ["tokenizer.mixture.shares.a"]),
        ("mixture: {}", ["a share for each name, or a temperature", "neither"]),
        ("mixture: {a: 1, b: 1, temperature: 1}", ["or a temperature", "both"]),
        ("mixture: {shares: {a: 1}, b: 1}", ["all names in shares", "b beside shares"]),
        ("mixture: {temperature: 3}", ["tokenizer.mixture.temperature", "at most 1"]),
        ("mixture: {by: lng, temperature: 1}", ["source or lang", "Did you mean lang?"]),
        ("mixture: 3", ["tokenizer.mixture", "a mapping of keys to values"]),
        ("parity: {by: domain}", ["source or lang", "Set counts.group_by: domain"]),
        ("parity: {ratios: {a: 1}}", ["a ratio for each source", "none for b"]),
        ("parity: {ratios: {a: 0, b: 1}}", ["tokenizer.parity.ratios.a"]),
        ("parity: {development: a}", ["`by` with the field", "by: source"]),
        ("parity: {by: lang, development: c}", ["the name of one of several sources", "'c'"]),
        ("parity: {by: lang, development: a, ratios: {x: 1}}", ["ratios or development", "both"]),
        ("{parity: {}, mixture: {temperature: 1}}", ["parity or mixture"]),
        ("{parity: {}, unit: character}", ["tokenizer.unit: byte for this key"]),
        ("min_sources: 3", ["tokenizer.min_sources", "at most 2, the number of sources"]),
    ],
)
def test_wrong_keys_of_groups_are_named(tmp_path: Path, section: str, messages: list[str]) -> None:
    section = section if section.startswith("{") else f"{{{section}}}"
    found = refusal(tmp_path, TWO_SOURCES + f"tokenizer: {section}\n")
    assert [text for text in messages if text not in found] == []


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("mixture: {a: 1}", "Divide `input` into sources with names"),
        ("parity: {}", "several sources, or `by` with the field of counts.group_by"),
        ("min_documents: 2", "counts.document_frequency: true"),
        ("min_sources: 2", "at most 1, the number of sources"),
    ],
)
def test_keys_that_need_other_counts_are_named(tmp_path: Path, section: str, message: str) -> None:
    assert message in refusal(tmp_path, MINIMAL + f"tokenizer: {{{section}}}\n")


def test_names_that_are_keys_stand_in_shares(tmp_path: Path) -> None:
    text = (
        TWO_SOURCES.replace("name: b", "name: by") + "tokenizer: {mixture: {shares: {by: 1, a: 2}}}"
    )
    mixture = load(tmp_path, text).tokenizer.mixture
    assert mixture is not None
    assert (mixture.by, mixture.shares) == ("source", {"by": 1, "a": 2})


@pytest.mark.parametrize("key", ONLY_CHARACTER_TOKENIZER)
def test_counts_do_not_depend_on_the_keys_of_character_tokenizers(tmp_path: Path, key: str) -> None:
    characters = MINIMAL + "tokenizer: {unit: character}\n"
    base = identities(load(tmp_path, characters))
    override = f"{key}={json.dumps(ONLY_CHARACTER_TOKENIZER[key])}"
    other = identities(load(tmp_path, characters, override))
    assert [old != new for old, new in zip(base, other, strict=True)] == [False, True, False]


@pytest.mark.parametrize("key", ONLY_METASPACE)
def test_counts_do_not_depend_on_the_keys_of_metaspace(tmp_path: Path, key: str) -> None:
    metaspace = MINIMAL + "tokenizer: {unit: character, metaspace: true}\n"
    base = identities(load(tmp_path, metaspace))
    other = identities(load(tmp_path, metaspace, f"{key}={json.dumps(ONLY_METASPACE[key])}"))
    assert [old != new for old, new in zip(base, other, strict=True)] == [False, True, False]


def test_with_metaspace_other_words_are_counted(tmp_path: Path) -> None:
    base = identities(load(tmp_path, MINIMAL + "tokenizer: {unit: character}\n"))
    other = identities(
        load(tmp_path, MINIMAL + "tokenizer: {unit: character}\n", "tokenizer.metaspace=true")
    )
    assert [old != new for old, new in zip(base, other, strict=True)] == [True, True, False]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{metaspace: true}", "tokenizer.unit: character for this key"),
        ("{unit: character, byte_fallback: false}", "tokenizer.metaspace: true for this key"),
        ("{unit: character, metaspace: true, end_of_word: x}", "tokenizer.metaspace: false for"),
        ("{unit: character, metaspace: true, unk_token: null}", "a token, which tokenizers with"),
        ("{unit: character, metaspace: true, vocab_size: 257}", "at least 259"),
        ("{unit: character, metaspace: true, character_coverage: 0}", "character_coverage"),
        (
            "{unit: character, metaspace: true, rules: {forbid_whitespace_tokens: true}}",
            "false with metaspace",
        ),
    ],
)
def test_keys_that_metaspace_does_not_have_are_refused(
    tmp_path: Path, section: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, MINIMAL + f"tokenizer: {section}\n")


def test_metaspace_counts_by_a_pattern_with_its_rules(tmp_path: Path) -> None:
    section = "{unit: character, metaspace: true, pattern: cl100k, rules: {max_digits: 1}}"
    config = load(tmp_path, MINIMAL + f"tokenizer: {section}\n")
    assert config.tokenizer.effective_pattern == "qwen2"


def test_every_key_is_known_to_the_test_of_identities() -> None:
    characters = ONLY_CHARACTER_TOKENIZER | ONLY_METASPACE
    groups = {key for key in OF_GROUPS | OF_MIXTURE | OF_PARITY if key not in _SECTIONS}
    known = {*NO_INFLUENCE, *ONLY_TOKENS, *ONLY_TOKENIZER, *characters, *COUNTS, *groups}
    fixed = {
        *("input.format", "beam.runner", "tokenizer.path", "encode.max_reject_fraction"),
        "tokenizer.metaspace",
    }
    assert set(schema_keys()) == known | fixed | set(OF_RECORDS) | {KEPT, GROUPED}


OF_RECORDS = {
    "input.text_field": ["a", "b"],
    "input.join": " ",
    "input.id_field": "id",
}
KEPT = "input.keep_columns"
GROUPED = "counts.group_by"


def test_a_field_to_group_by_changes_counts_and_tokenizer_alone(tmp_path: Path) -> None:
    before = identities(load(tmp_path, MINIMAL, "input.format=jsonl"))
    after = identities(load(tmp_path, MINIMAL, "input.format=jsonl", f"{GROUPED}=lang"))
    assert [old != new for old, new in zip(before, after, strict=True)] == [True, True, False]


@pytest.mark.parametrize("key", OF_RECORDS)
def test_keys_of_records_change_every_identity_and_none_where_they_mean_nothing(
    tmp_path: Path, key: str
) -> None:
    base = ("input.format=jsonl", "input.text_field=[a, c]")
    change = f"{key}={json.dumps(OF_RECORDS[key])}"
    before = identities(load(tmp_path, MINIMAL, *base))
    after = identities(load(tmp_path, MINIMAL, *base, change))
    assert all(old != new for old, new in zip(before, after, strict=True))
    text = counts_configuration(load(tmp_path, MINIMAL), SHARDS)["input"][0]
    assert not {key.removeprefix("input.") for key in OF_RECORDS} & set(text)


def test_columns_that_are_kept_change_only_the_token_files(tmp_path: Path) -> None:
    base = load(tmp_path, MINIMAL, "input.format=jsonl")
    none = load(tmp_path, MINIMAL, "input.format=jsonl", f"{KEPT}=[]")
    kept = load(tmp_path, MINIMAL, "input.format=jsonl", f"{KEPT}=[lang, meta.url]")
    assert identities(base) == identities(none)
    changed = [old != new for old, new in zip(identities(base), identities(kept), strict=True)]
    assert changed == [False, False, True]
    assert kept.input[0].keep_paths == (("lang",), ("meta", "url"))


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ("[source]", "another name than the columns that token files have"),
        ("[id]", "The column id keeps input.id_field."),
        ("[meta, meta.url]", "none of them inside another"),
        (r"[a.b, 'a\.b']", "every column once"),
        ("[text.lang]", "not inside text_field or id_field"),
        ("[a..b]", "names of fields, joined by dots"),
        ("[3]", "text"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(tmp_path: Path, kept: str, message: str) -> None:
    assert message in refusal(tmp_path, MINIMAL, "input.format=jsonl", f"{KEPT}={kept}")


def test_keys_that_were_added_later_leave_fingerprints_as_they_were(tmp_path: Path) -> None:
    overrides = ["normalizer=none", "rules={max_digits: null, split_categories: false}"]
    config = load(tmp_path, MINIMAL, *(f"tokenizer.{override}" for override in overrides))
    assert identities(config) == identities(load(tmp_path, MINIMAL))
    keys = tokenizer_configuration(config, SHARDS)["tokenizer"]
    assert not {"normalizer", "normalize_quotes", "rules"} & keys.keys()
    ruled = load(tmp_path, MINIMAL, "tokenizer.rules.max_digits=3")
    assert counts_configuration(ruled, SHARDS)["tokenizer"]["rules"] == {"max_digits": 3}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("normalizer=nfd", "tokenizer.normalizer"),
        ("normalize_quotes=often", "tokenizer.normalize_quotes"),
        ("rules.max_digits=0", "tokenizer.rules.max_digits"),
        ("rules.digits=3", "max_digits"),
        ("rules={max_digits: 3}", "which splits nothing"),
        ("rules={split_categories: true}", "tokenizer.rules.split_categories"),
    ],
)
def test_wrong_rules_are_named(tmp_path: Path, override: str, message: str) -> None:
    pattern = "none" if override.startswith("rules={") else "gpt2"
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, MINIMAL, f"tokenizer.{override}", f"tokenizer.pattern={pattern}")


def test_the_pattern_with_its_rules(tmp_path: Path) -> None:
    ruled = load(tmp_path, MINIMAL, "tokenizer.rules={split_categories: true, max_digits: 3}")
    assert r"\p{N}{1,3}" in ruled.tokenizer.effective_pattern
    assert "'s" not in ruled.tokenizer.effective_pattern
    assert load(tmp_path, MINIMAL).tokenizer.effective_pattern == "gpt2"


@pytest.mark.parametrize("policy", ["text", "reject", "error"])
def test_the_policy_on_special_tokens_changes_the_token_files_alone(
    policy: str, tmp_path: Path
) -> None:
    base = identities(load(tmp_path, MINIMAL))
    other = identities(load(tmp_path, MINIMAL, f"encode.special_tokens_in_text={policy}"))
    assert [old != new for old, new in zip(base, other, strict=True)] == [False, False, True]


def test_identity_is_the_same_from_another_folder_and_with_defaults_written_out(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    here = load(one, "output: o\ninput: {files: [../data/b*.txt, /data/a.txt]}\n")
    there = load(
        two,
        "output: p\ninput: {files: [/mnt/a.txt, 's3://bucket/b*.txt'], range_bytes: 64MiB}\n"
        "tokenizer: {vocab_size: 32000}\nencode: {append: <|endoftext|>}\n",
    )
    assert identities(here) == identities(there)


def test_the_fingerprint_is_of_the_content_and_not_of_the_order() -> None:
    assert fingerprint({"a": 1, "b": "é"}) == fingerprint({"b": "é", "a": 1})
    assert re.fullmatch("[0-9a-f]{32}", fingerprint({}))
    assert fingerprint({"a": 1}) != fingerprint({"a": "1"})


def test_differences_name_key_old_and_new_value(tmp_path: Path) -> None:
    old = tokenizer_configuration(load(tmp_path, MINIMAL), SHARDS)
    new = tokenizer_configuration(
        load(tmp_path, MINIMAL, "tokenizer.vocab_size=400", "input.separator=null"), SHARDS
    )
    assert differences(old, json.loads(json.dumps(old))) == []
    assert [str(difference) for difference in differences(old, new)] == [
        'input[0].separator: "<|endoftext|>" → null',
        "tokenizer.vocab_size: 32000 → 400",
    ]
    assert str(differences({}, {"a": 1})[0]) == "a: not set → 1"
    assert dataclasses.astuple(differences({"a": [1]}, {"a": [2]})[0]) == ("a", "[1]", "[2]")


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("*.txt", ("", "*.txt")),
        ("a.txt", ("", "a.txt")),
        ("/a.txt", ("", "a.txt")),
        ("../d/a-*/b.txt", ("../d", "a-*/b.txt")),
        ("s3://b/x/**/*.txt", ("s3://b/x", "**/*.txt")),
        ("d/[ab]/c", ("d", "[ab]/c")),
        ("d/ab?", ("d", "ab?")),
        ("run [[]1]/a*", ("run [[]1]", "a*")),
    ],
)
def test_the_fixed_part_of_a_glob_ends_before_its_first_wildcard(
    pattern: str, parts: tuple[str, str]
) -> None:
    assert split_glob(pattern) == parts


# --- schema, shipped configurations, documentation


def schema_keys() -> dict[str, dict[str, Any]]:
    """Every key that is no section, as a dotted path, with its schema."""
    schema = json_schema()

    def keys_of(section: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, part in section["properties"].items():
            reference = part.get("$ref") or next(
                (option["$ref"] for option in part.get("anyOf", ()) if "$ref" in option), None
            )
            if reference is None:
                yield name, part
            else:
                inner = schema["$defs"][reference.rpartition("/")[2]]
                yield from ((f"{name}.{key}", value) for key, value in keys_of(inner))

    return dict(keys_of(schema))


def test_the_schema_in_the_repository_is_the_one_of_the_code() -> None:
    stored = json.loads((ROOT / "configs" / "build.schema.json").read_text("utf-8"))
    assert stored == json_schema(), "run: make schema"


def test_every_key_has_a_description() -> None:
    assert all(part.get("description") for part in schema_keys().values())


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_configurations_load_fit_the_schema_and_name_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MY_S3_KEY", "MY_S3_SECRET"):
        monkeypatch.setenv(name, "x")
    text = file.read_text("utf-8")
    assert text.startswith("# yaml-language-server: $schema=build.schema.json\n")
    jsonschema.validate(yaml.safe_load(text), json_schema())
    load_config(file)


@pytest.mark.parametrize(
    "text",
    [
        "output: o\ninput: {files: []}",
        "output: o\ninput: {files: [a], range_bytes: 3 apples}",
        "output: o\ninput: {files: [a]}\nmore: 1",
        "output: o\ninput: []",
        "input: {files: [a]}",
    ],
)
def test_the_schema_refuses_what_loading_refuses(tmp_path: Path, text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), json_schema())
    refusal(tmp_path, text)


def in_words(description: str) -> str:
    """Without the marks that only Markdown has."""
    linked = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", description.replace("\\|", "|"))
    return linked.replace("`", "").removesuffix(".")


def test_the_documentation_has_every_description() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z_0-9.]+)` \| .* \| (.+) \|$", text, re.MULTILINE))
    for key, part in schema_keys().items():
        assert in_words(rows[key]).startswith(in_words(part["description"])), key


def test_the_documentation_has_every_key_with_its_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z_0-9.]+)` \| (.+?) \|", text, re.MULTILINE))
    expected = {
        key: f"`{json.dumps(part['default'], ensure_ascii=False)}`" if "default" in part else None
        for key, part in schema_keys().items()
    }
    assert set(rows) == set(expected)
    for key, default in expected.items():
        if default is not None:
            assert rows[key].replace("\\|", "|") == default, key


@pytest.mark.parametrize(
    "module", [build, values, yaml_source, errors, identity, summary, supervisor]
)
def test_examples_in_docstrings_hold(module: types.ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_a_share_may_be_in_percent(tmp_path: Path) -> None:
    config = tmp_path / "build.yaml"
    config.write_text(MINIMAL + "encode: {max_reject_fraction: 0.1%, validation_fraction: 2 %}\n")
    encode = load_config(config).encode
    assert (encode.max_reject_fraction, encode.validation_fraction) == (0.001, 0.02)


@pytest.mark.parametrize("data", [b"In the beginning: God\n created: x: y", b"\xff\xfe", b"PAR1"])
def test_a_file_of_text_is_no_configuration(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="not a configuration") as caught:
        load_config(path)
    assert f"`beam-bpe init {path}`" in str(caught.value)


def test_a_configuration_with_another_extension_is_read(tmp_path: Path) -> None:
    path = tmp_path / "build.conf"
    path.write_text(MINIMAL)
    assert load_config(path).input


def test_a_configuration_that_is_missing_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "build.yaml").write_text(MINIMAL)
    with pytest.raises(ConfigError, match=r"Did you mean .*build\.yaml\?"):
        load_config(tmp_path / "build.yml")
    for other in ("other/build.yml", "mine.yaml"):
        with pytest.raises(ConfigError, match=r"beam-bpe init FILES"):
            load_config(tmp_path / other)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{required_tokens: [New York]}", "the pattern splits it into 'New', ' York'"),
        ("{required_tokens: [abc], forbidden_tokens: [abc]}", "forbidden_tokens contains it"),
        ("{required_tokens: [abc], max_token_bytes: 2}", "more than max_token_bytes"),
        ("{required_tokens: ['\ufb01'], normalizer: nfkc}", "normalization turns it into 'fi'"),
        ("{required_tokens: [s1s], special_tokens: [s1s], pattern: none}", "the special token s1s"),
        ("{required_tokens: [abc], unit: character}", "unit: byte for this key"),
    ],
)
def test_required_tokens_that_text_never_becomes_are_refused(
    tmp_path: Path, section: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, MINIMAL + f"encode: {{append: null}}\ntokenizer: {section}\n")
