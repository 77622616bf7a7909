"""`beam-bpe init`: from files to a configuration that builds."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_support import command as beam_bpe
from build_support import some_text

from pipelines.cli import config_commands
from pipelines.config import load_config
from pipelines.errors import InputError
from pipelines.probing.proposals import Proposal, choose_pattern, choose_vocabulary, propose

TEXTS = [text.decode() for text in some_text(12)]
RECORDS = [{"id": i, "lang": "en", "content": text} for i, text in enumerate(TEXTS)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()


def proposed(*arguments: object) -> Proposal:
    """The only proposal for some files."""
    [proposal], skipped = propose([str(argument) for argument in arguments])
    assert skipped == []
    return proposal


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "data", "compression"),
    [
        ("a.jsonl", LINES, None),
        ("a.jsonl.gz", gzip.compress(LINES), None),
        ("a.data", bz2.compress(LINES), "bz2"),
        ("a.gz", LINES, "none"),
        ("a.txt.zst", gzip.compress(LINES), "gzip"),
    ],
)
def test_json_lines_are_found_whatever_the_name(
    tmp_path: Path, name: str, data: bytes, compression: str | None
) -> None:
    found = proposed(write(tmp_path / name, data))
    assert (found.form, found.compression) == ("jsonl", compression)
    assert (found.text_field, found.id_field) == ("content", "id")
    assert list(found.documents) == TEXTS[:3]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columns_are_found(tmp_path: Path, form: str) -> None:
    records = [{"meta": {"url": f"u{i}", "Body": text}} for i, text in enumerate(TEXTS)]
    table = pa.Table.from_pylist(records)
    path = tmp_path / "a.bin"
    if form == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    found = proposed(path)
    assert (found.form, found.text_field, found.id_field) == (form, "meta.Body", None)
    assert list(found.documents) == TEXTS[:3]


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("<|endoftext|>".join(TEXTS), "<|endoftext|>"),
        ("\x0c".join(TEXTS), "\x0c"),
        ("".join(" ".join(text.split()) + "\n" for text in TEXTS * 20), "\n"),
        ("\n\n".join(TEXTS), None),
    ],
)
def test_the_separator_of_text_is_found(tmp_path: Path, text: str, separator: str | None) -> None:
    found = proposed(write(tmp_path / "a.txt", text.encode()))
    assert (found.form, found.separator, found.text_field) == ("text", separator, None)


def test_a_form_feed_in_one_of_many_files_divides_nothing(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path / f"{i}.c", b"int a;\n" + b"\x0c\n" * (i == 1) + b"int b;\n")
    assert proposed(tmp_path).separator is None
    for i in range(3):
        write(tmp_path / f"{i}.c", b"first page\x0csecond page")
    assert proposed(tmp_path).separator == "\x0c"


def test_names_that_a_shell_expanded_become_a_glob(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{i}.txt", b"text") for i in range(4)]
    assert proposed(*files).patterns == (str(tmp_path / "*.txt"),)
    assert proposed(*files[:2]).patterns == tuple(map(str, files[:2]))


def test_a_folder_becomes_a_source_for_each_kind(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b.py", b"x = 1\n")
    write(tmp_path / "c.txt", b"text")
    write(tmp_path / "d.jsonl", LINES)
    write(tmp_path / "e.png", b"\x89PNG\r\n\x1a\n\0\0")
    write(tmp_path / ".git" / "f.txt2", b"hidden")
    proposals, skipped = propose([str(tmp_path)])
    patterns = {proposal.form: proposal.patterns for proposal in proposals}
    assert patterns == {
        "jsonl": (f"{tmp_path}/**/*.jsonl",),
        "text": (f"{tmp_path}/**/*.py", f"{tmp_path}/**/*.txt"),
    }
    [line] = skipped
    assert "e.png" in line or "*.png" in line
    assert "a PNG image" in line


@pytest.mark.parametrize(
    "data", [b"", b"\x89PNG\r\n\x1a\n\0\0", "caf\xe9 ".encode("latin-1") * 9, b'{"a": 1}\n' * 3]
)
def test_files_that_no_build_reads_are_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match=r"None of the files can be read\."):
        propose([str(write(tmp_path / "a", data))])


@pytest.mark.parametrize(
    ("text", "scripts", "pattern"),
    [("the cat", {"Latin": 6}, "gpt2"), ("漢字 и кот", {"Han": 2, "Cyrillic": 4}, "o200k")],
)
def test_scripts_choose_the_pattern(
    tmp_path: Path, text: str, scripts: dict[str, int], pattern: str
) -> None:
    found = proposed(write(tmp_path / "a.txt", text.encode()))
    assert found.scripts == scripts
    assert choose_pattern(found.scripts) == pattern


def test_the_vocabulary_follows_size_and_scripts() -> None:
    sizes = {"2k": 1 << 20, "8k": 10 << 20, "16k": 100 << 20, "32k": 1 << 30}
    for expected, size in sizes.items():
        assert choose_vocabulary([Proposal(patterns=(), files=1, bytes=size)]) == expected
    greek: dict[str, Any] = {"scripts": {"Greek": 9}}
    assert choose_vocabulary([Proposal(patterns=(), files=1, bytes=1 << 30, **greek)]) == "64k"


# --- the command


@pytest.mark.slow
def test_the_configuration_builds(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.jsonl.gz", gzip.compress(LINES))
    write(tmp_path / "data" / "b.txt", "<|endoftext|>".join(TEXTS).encode())
    done = beam_bpe("init", "data", "--vocab-size", "300", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("document 1: ") == 2
    assert f"document 3: {' '.join(TEXTS[2].split())[:300]}" in done.stdout
    assert done.stdout.endswith("written: build.yaml\n\nnext\nbeam-bpe plan build.yaml\n")
    config = load_config(tmp_path / "build.yaml")
    assert [source.name for source in config.input] == ["jsonl", "txt"]
    done = beam_bpe("build", "build.yaml", cwd=tmp_path)
    assert done.returncode == 0
    assert "documents            24\n" in done.stdout


def test_a_configuration_is_replaced_on_request_only(tmp_path: Path) -> None:
    data, config = write(tmp_path / "a.txt", b"the cat"), tmp_path / "new.yaml"
    config.write_text("mine")
    done = beam_bpe("init", data, "--config", config)
    assert done.returncode == 2
    assert config.read_text() == "mine"
    assert beam_bpe("init", data, "--config", config, "--force", "--yes").returncode == 0
    assert load_config(config).input[0].files == ("a.txt",)


def test_a_user_is_asked_for_field_vocabulary_and_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, Any] = {"Field of the text (content, lang)": "lang", "Vocabulary size": "3k"}
    monkeypatch.setattr(config_commands, "_has_user", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda text, default: answers[text])
    monkeypatch.setattr("typer.confirm", lambda text, default: answers.get("consent", False))
    data, config = write(tmp_path / "a.jsonl", LINES), tmp_path / "build.yaml"
    assert beam_bpe("init", data, "--config", config, here=True).returncode == 0
    assert not config.exists()
    answers["consent"] = True
    assert beam_bpe("init", data, "--config", config, here=True).returncode == 0
    written = load_config(config)
    assert (written.input[0].text_field, written.tokenizer.vocab_size) == ("lang", 3000)


def test_the_output_of_a_build_is_not_proposed(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"the cat")
    write(tmp_path / "out" / "tokens" / "manifest.json", b"{}")
    assert proposed(tmp_path).patterns == (f"{tmp_path}/**/*.txt",)


def test_the_configuration_and_hidden_files_are_no_input(tmp_path: Path) -> None:
    for name in ("a.yaml", "build.yaml", ".cache/b.yaml", "old/tokens/manifest.json", "c.json"):
        write(tmp_path / name, b"text: the cat")
    (tmp_path / "d.json").symlink_to("nowhere")
    [found], left_out = propose([str(tmp_path)], tmp_path / "build.yaml")
    assert sorted(found.patterns) == [f"{tmp_path}/**/*.json", f"{tmp_path}/**/*.yaml"]
    assert sorted(found.exclude) == [".cache/**", "build.yaml", "d.json", "old/**"]
    assert found.files == 2
    assert left_out == [f"{tmp_path}/d.json: a broken link"]


def test_many_files_without_an_extension_become_one_glob(tmp_path: Path) -> None:
    for i in range(30):
        write(tmp_path / "include" / f"header{i}", b"// the cat\n")
    write(tmp_path / "include" / "a.h", b"// the dog\n")
    write(tmp_path / "program", b"\x7fELF\0\0")
    proposals, left_out = propose([str(tmp_path)])
    assert {(one.patterns, one.exclude, one.files) for one in proposals} == {
        ((f"{tmp_path}/**/*",), ("**/*.*", "program"), 30),
        ((f"{tmp_path}/**/*.h",), (), 1),
    }
    assert left_out == [f"{tmp_path}/program: It is not text"]


@pytest.mark.parametrize(
    ("name", "data", "note"),
    [
        ("a.csv", b"id,text\n1,a\n", "CSV is read as plain text"),
        ("a.json", b'[\n {"text": "a"}]', "jq -c '.[]' OLD > NEW"),
    ],
)
def test_structured_text_is_noted(tmp_path: Path, name: str, data: bytes, note: str) -> None:
    done = beam_bpe("init", write(tmp_path / name, data), "--config", tmp_path / "build.yaml")
    assert done.returncode == 0
    assert f"{name}: " in done.stdout
    assert note in done.stdout


@pytest.mark.slow
def test_a_finished_tokenizer_encodes(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "<|endoftext|>".join(TEXTS).encode())
    assert beam_bpe("init", "a.txt", "--vocab-size", "300", cwd=tmp_path).returncode == 0
    assert beam_bpe("build", "build.yaml", cwd=tmp_path).returncode == 0
    done = beam_bpe("init", "a.txt", "--tokenizer", "out", "--config", "b.yaml", cwd=tmp_path)
    assert done.returncode == 0
    config = load_config(tmp_path / "b.yaml")
    assert config.tokenizer.path == "out/tokenizer"
    assert (config.encode.prepend, config.encode.append) == (None, "<|endoftext|>")
    assert beam_bpe("plan", "b.yaml", cwd=tmp_path).returncode == 0


def test_a_finished_tokenizer_has_its_own_vocabulary(tmp_path: Path) -> None:
    data = write(tmp_path / "a.txt", b"the cat")
    done = beam_bpe("init", data, "--tokenizer", tmp_path, "--vocab-size", "300")
    assert done.returncode == 2
    assert "Leave out --vocab-size" in done.stderr


def test_names_cannot_change_the_configuration(tmp_path: Path) -> None:
    names = ['a"b: [c].txt', "d\n- e.txt", "f # g.txt", "*h.txt"]
    files = [write(tmp_path / name, b"the cat") for name in names]
    config = tmp_path / "build.yaml"
    assert beam_bpe("init", *files, tmp_path / "a*.txt", "--config", config).returncode == 0
    assert len(load_config(config).input) == 1


def test_no_files_are_an_error(tmp_path: Path) -> None:
    done = beam_bpe("init", tmp_path / "none*.txt", "--config", tmp_path / "build.yaml")
    assert done.returncode == 4
    assert "There are no such files." in done.stderr
    assert not (tmp_path / "build.yaml").exists()


def test_a_folder_of_a_storage_needs_a_glob(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/crawl"
    fsspec.filesystem("memory").pipe(f"{url}/a.txt", b"the cat")
    done = beam_bpe("init", f"{url}/", "--config", tmp_path / "build.yaml")
    assert done.returncode == 4
    assert "crawl/ is a folder" in done.stderr and "Add /* for the files in it" in done.stderr
