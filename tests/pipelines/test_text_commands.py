"""`beam-bpe tokenize` and `beam-bpe count-tokens`, in this process."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_support import command as beam_bpe
from build_support import some_text, write_corpus

from bpe_core import BPETokenizer
from pipelines import supervisor
from pipelines.cli import main

TEXT = b"the cat sat on a mat<|endoftext|>caf\xc3\xa9\n"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a build."""
    directory = tmp_path_factory.mktemp("build")
    write_corpus(directory / "data", {"a.txt": some_text(12)})
    (directory / "build.yaml").write_text(
        "output: out\ninput: {files: [data/*.txt]}\ncounts: {shards: 1}\n"
        "tokenizer: {vocab_size: 300, special_tokens: [<|endoftext|>]}\n"
    )
    assert beam_bpe("build", directory / "build.yaml").returncode == 0
    return directory / "out"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs a command on a standard input, and returns its exit code and output."""
    monkeypatch.setattr(supervisor, "leave", sys.exit)

    def call(*arguments: object, text: bytes = TEXT) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        code = left.value.code
        return code if isinstance(code, int) else 0, out.decode(), err.decode()

    return call


@pytest.mark.parametrize("place", ["", "tokenizer", "tokenizer/tokenizer.json"])
def test_ids_of_standard_input(run: Run, output: Path, place: str) -> None:
    ids = BPETokenizer.load(output / "tokenizer").encode(TEXT)
    expected = (0, " ".join(map(str, ids)) + "\n", "")
    assert run("tokenize", output / place) == run("tokenize", output / place, "--ids") == expected


def test_decoding_restores_the_text(run: Run, output: Path) -> None:
    ids = run("tokenize", output)[1]
    assert run("tokenize", output, "--decode", text=ids.encode()) == (0, TEXT.decode(), "")


def test_tokens_have_a_line_each(run: Run, output: Path) -> None:
    tokenizer = BPETokenizer.load(output / "tokenizer")
    code, out, err = run("tokenize", output, "--tokens")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert [int(line.split("\t")[0]) for line in lines] == tokenizer.encode(TEXT)
    assert lines[-1].endswith('\t"\\n"')
    assert any(line.endswith('\t"<|endoftext|>"') for line in lines)


def test_tokens_as_json_have_their_bytes(run: Run, output: Path) -> None:
    found = [json.loads(line) for line in run("tokenize", output, "--json")[1].splitlines()]
    assert b"".join(bytes.fromhex(one["bytes"]) for one in found) == TEXT
    assert {tuple(one) for one in found} == {("id", "token", "bytes")}


def test_special_tokens_are_ordinary_text_on_request(run: Run, output: Path) -> None:
    with_special = run("tokenize", output)[1].split()
    assert len(run("tokenize", output, "--ordinary")[1].split()) > len(with_special)


def test_text_that_is_not_utf8_is_an_error_of_the_input(run: Run, output: Path) -> None:
    for name in ("tokenize", "count-tokens"):
        code, out, err = run(name, output, text=b"abc\xff")
        assert (code, out) == (4, "")
        assert "byte 3 of the text: expected UTF-8, found the bytes ff" in err


def test_one_form_of_output_at_a_time(run: Run, output: Path) -> None:
    assert run("tokenize", output, "--json", "--decode")[0] == 2


def test_no_tokenizer_is_an_error_of_the_command_line(run: Run, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        code, _, err = run("tokenize", place)
        assert code == 2
        assert "There is no tokenizer." in err


def test_files_without_a_tokenizer_get_advice(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT)
    code, _, err = run("count-tokens", tmp_path / "a.txt")
    assert code == 4
    assert "beam-bpe count-tokens TOKENIZER FILES" in err


def test_tokens_of_files_and_in_total(run: Run, output: Path, tmp_path: Path) -> None:
    number = len(BPETokenizer.load(output / "tokenizer").encode(TEXT))
    (tmp_path / "a[1].txt").write_bytes(TEXT)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(TEXT))
    names = [tmp_path / "a[1].txt", tmp_path / "*.gz", "-"]
    shown = [tmp_path / "a[1].txt", tmp_path / "b.txt.gz", "-", "total"]
    numbers = [number, number, number, 3 * number]
    expected = "".join(f"{n}\t{name}\n" for n, name in zip(numbers, shown, strict=True))
    assert run("count-tokens", output, *names) == (0, expected, "")
    assert run("count-tokens", output) == (0, f"{number}\n", "")


def test_counts_as_json(run: Run, output: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    number, size = len(BPETokenizer.load(output / "tokenizer").encode(TEXT)), len(TEXT)
    assert json.loads(run("count-tokens", output, path, "--json")[1]) == {
        "files": [{"file": str(path), "tokens": number, "bytes": size}],
        "tokens": number,
        "bytes": size,
    }


RECORDS = [{"doc": {"text": "the cat sat"}}, {"doc": {"text": "on a <|endoftext|> mat"}}]
PROBLEM = {"doc": {"text": None}}


def records_file(folder: Path, form: str, records: list[dict[str, Any]]) -> Path:
    path = folder / f"a.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        text = "".join(json.dumps(record) + "\n" for record in records).encode()
        path.write_bytes(gzip.compress(text) if form == "jsonl.gz" else text)
    return path


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "parquet"])
@pytest.mark.parametrize("options", [(), ("--ordinary",)])
def test_tokens_of_a_field(
    run: Run, output: Path, tmp_path: Path, form: str, options: tuple[str, ...]
) -> None:
    path = records_file(tmp_path, form, [*RECORDS, PROBLEM])
    tokenizer = BPETokenizer.load(output)
    encode = tokenizer.encode_ordinary if options else tokenizer.encode
    number = sum(len(encode(record["doc"]["text"])) for record in RECORDS)
    arguments = ("count-tokens", output, path, "--text-field", "doc.text", *options)
    code, out, err = run(*arguments)
    assert (code, out) == (0, f"{number}\t{path}\n")
    assert "note: 1 record has no text, such as a." in err
    assert "null_field" in err
    found = json.loads(run(*arguments, "--json", "-q")[1])
    sums = {"tokens": number, "bytes": 33, "documents": 2, "rejects": 1}
    assert found == {"files": [{"file": str(path), **sums}], **sums}


def test_long_texts_of_a_field_are_cut_without_a_difference(
    run: Run, output: Path, tmp_path: Path
) -> None:
    text = "the cat sat on a mat " * 250_000
    path = records_file(tmp_path, "jsonl", [{"text": text}])
    number = len(BPETokenizer.load(output).encode_to_numpy(text))
    found = run("count-tokens", output, path, "--text-field", "text")
    assert found == (0, f"{number}\t{path}\n", "")


@pytest.mark.parametrize(
    ("data", "field", "said"),
    [
        (b'{"text": "a"}\n', "body", ('"body" (--text-field)', "Did you mean text?")),
        (b"the cat\n", "text", ("No record has a text.", "without --text-field")),
        (b'{"text": "a"}\n', "a..b", ("This is not the name of a field.",)),
    ],
)
def test_a_wrong_field_is_an_error(
    run: Run, output: Path, tmp_path: Path, data: bytes, field: str, said: tuple[str, ...]
) -> None:
    (tmp_path / "a").write_bytes(data)
    code, out, err = run("count-tokens", output, tmp_path / "a", "--text-field", field)
    assert (code in (2, 4), out) == (True, "")
    for text in said:
        assert text in err


def test_records_without_a_field_are_noted(run: Run, output: Path, tmp_path: Path) -> None:
    path = records_file(tmp_path, "jsonl", RECORDS)
    code, out, err = run("count-tokens", output, path)
    assert (code, out.count("\n")) == (0, 1)
    assert err.startswith(f"note: {path} is counted as text, with all its markup: ")
    assert "--text-field FIELD" in err
    assert run("count-tokens", output, path, "--quiet") == (0, out, "")
    code, _, err = run("count-tokens", output, records_file(tmp_path, "parquet", RECORDS))
    assert code == 4
    assert "what to do: Count the tokens of a field" in err


def test_standard_input_has_no_fields(run: Run, output: Path) -> None:
    assert run("count-tokens", output, "--text-field", "text")[0] == 2


def test_errors_are_logged(run: Run, output: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    for command in ("count-tokens", "tokenize"):
        assert run(command, output, "--log", log, text=b"abc\xff")[0] == 4
    assert log.read_text().count(" ERROR error: The input is not text in UTF-8.") == 2


def test_a_missing_file_is_an_error_of_the_input(run: Run, output: Path, tmp_path: Path) -> None:
    code, _, err = run("count-tokens", output, tmp_path / "none.txt")
    assert code == 4
    assert "none.txt" in err
