"""Mistakes of a first hour: `plan` finds each at once, with a message that names the mend."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from build_support import command

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "and", "runs", "away"]
TEXTS = [" ".join(WORDS[(i * j) % len(WORDS)] for j in range(1, 40)) for i in range(1, 60)]
RECORDS = [
    {"id": i, "text": text, "lang": "en", "meta": {"url": f"https://a/{i}", "score": 0.5}}
    for i, text in enumerate(TEXTS)
]


def lines(records: list[Any] = RECORDS) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def parquet(**columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns or {"id": list(range(len(TEXTS))), "text": TEXTS}), sink)
    return sink.getvalue()


def arrow() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def archive(kind: str) -> bytes:
    sink = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(sink, "w") as written:
            written.writestr("a.txt", "some text")
    else:
        with tarfile.open(fileobj=sink, mode="w") as packed:
            packed.addfile(tarfile.TarInfo("a.txt"))
    return sink.getvalue()


PROSE = "<|endoftext|>".join(TEXTS).encode()


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A corpus and a configuration with a mistake, the exit code, and parts of the message."""

    files: dict[str, bytes] = field(default_factory=lambda: {"a.jsonl": lines()})
    source: dict[str, Any] = field(default_factory=dict)
    code: int
    said: tuple[str, ...]
    sections: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Path], object] | None = None


JSON = {"format": "jsonl"}
MISTAKES = {
    "a field to group by that no record has": Mistake(
        source=JSON,
        sections={"counts": {"group_by": "lnag"}},
        code=4,
        said=('No record of the input has the field "lnag"', "Did you mean lang?"),
    ),
    "a mixture without a value of the field": Mistake(
        source=JSON,
        sections={
            "counts": {"group_by": "lang"},
            "tokenizer": {"mixture": {"by": "lang", "eng": 1}},
        },
        code=2,
        said=("The values of lang do not fit tokenizer.mixture.", "Did you mean en?"),
    ),
    # those of the first user
    "a field that no record has": Mistake(
        source={**JSON, "text_field": "content"},
        code=4,
        said=(
            'No record of a.jsonl has the field "content" (input.text_field).',
            "records with the fields id, text, lang, meta",
            "Did you mean text?",
        ),
    ),
    "Parquet said to be JSON lines": Mistake(
        files={"a.parquet": parquet()},
        source=JSON,
        code=4,
        said=("not JSON lines, but a Parquet file", "Set input.format: parquet."),
    ),
    "gzip said to be zstd": Mistake(
        files={"a.txt": gzip.compress(PROSE)},
        source={"compression": "zstd"},
        code=4,
        said=("not zstd data, but gzip data", "Set input.compression: gzip."),
    ),
    "an output below a file": Mistake(
        sections={"output": "data/a.jsonl/sub"},
        source=JSON,
        code=5,
        said=("a.jsonl is a file, so the output", "Choose another output."),
    ),
    "a typo in a key": Mistake(
        source={**JSON, "text_feild": "text"},
        code=2,
        said=("unknown key text_feild", "Did you mean text_field?"),
    ),
    "a glob that matches nothing": Mistake(
        source={**JSON, "files": ["data/*.json"]},
        code=4,
        said=("No file matches", "data/ contains a.jsonl"),
    ),
    "a folder in place of its files": Mistake(
        source={**JSON, "files": ["data"]}, code=4, said=("is a folder", "Add /* for the files")
    ),
    "a token to append that is not special": Mistake(
        source=JSON,
        sections={"encode": {"append": "<|endoftxt|>"}},
        code=2,
        said=("encode.append", "Did you mean <|endoftext|>?"),
    ),
    "a tokenizer that is not there": Mistake(
        source=JSON,
        sections={"tokenizer": {"path": "nowhere"}},
        code=2,
        said=("There is no tokenizer.", "tokenizer.path"),
    ),
    "a vocabulary smaller than the bytes": Mistake(
        source=JSON,
        sections={"tokenizer": {"vocab_size": 200}},
        code=2,
        said=("tokenizer.vocab_size", "at least 257"),
    ),
    # fields
    "a field in capitals": Mistake(
        source={**JSON, "text_field": "Text"}, code=4, said=('"Text"', "Did you mean text?")
    ),
    "a field of another object": Mistake(
        source={**JSON, "text_field": "meta.text"},
        code=4,
        said=('"meta.text"', "meta.url, meta.score", "input.text_field"),
    ),
    "a field that is a number": Mistake(
        source={**JSON, "text_field": "id"},
        code=6,
        said=("the field id: expected text, found a number", "change input.text_field"),
    ),
    "a field that is an object": Mistake(
        source={**JSON, "text_field": "meta"},
        code=6,
        said=("the field meta: expected text, found an object", "change input.text_field"),
    ),
    "a field that is null": Mistake(
        files={"a.jsonl": lines([{"text": None, "raw": text} for text in TEXTS])},
        source=JSON,
        code=6,
        said=("the field text is null", "set input.text_field"),
    ),
    "an id that no record has": Mistake(
        source={**JSON, "id_field": "uid"},
        code=4,
        said=('"uid" (input.id_field)', "Did you mean id?"),
    ),
    "an id column that no file has": Mistake(
        files={"a.parquet": parquet(doc_id=[1], text=["text"])},
        source={"format": "parquet", "id_field": "key"},
        code=4,
        said=("exactly one column key", "Did you mean doc_id?"),
    ),
    "the name of a repository without hf://": Mistake(
        source=JSON,
        sections={"tokenizer": {"path": "Qwen/Qwen3-0.6B"}},
        code=2,
        said=("nothing at this path", "Hugging Face Hub: hf://Qwen/Qwen3-0.6B."),
    ),
    "one pattern in place of a list": Mistake(
        source={**JSON, "files": "data/*.jsonl"},
        code=2,
        said=("input.files", 'Write a list: ["data/*.jsonl"].'),
    ),
    "a share that is not a number": Mistake(
        source=JSON,
        sections={"encode": {"max_reject_fraction": "few"}},
        code=2,
        said=("encode.max_reject_fraction", "a share such as 0.1%"),
    ),
    "an id that is an object": Mistake(
        source={**JSON, "id_field": "meta"},
        code=6,
        said=("the field meta: expected text or an integer", "input.id_field"),
    ),
    "a column that no file has": Mistake(
        files={"a.parquet": parquet(id=[1], body=["text"])},
        source={"format": "parquet"},
        code=4,
        said=("exactly one column text", "the columns id, body", "Did you mean body?"),
    ),
    "a column of numbers": Mistake(
        files={"a.parquet": parquet()},
        source={"format": "parquet", "text_field": "id"},
        code=4,
        said=("unsupported type", "int64", "Set input.text_field"),
    ),
    "an id column of lists": Mistake(
        files={"a.parquet": parquet(text=["a"], tags=[["x"]])},
        source={"format": "parquet", "id_field": "tags"},
        code=4,
        said=("unsupported type", "input.id_field", "list<"),
    ),
    "a record without the text": Mistake(
        files={"a.jsonl": lines([*RECORDS[:20], {"id": 20}, *RECORDS[20:]])},
        source=JSON,
        code=6,
        said=("1 of 60 documents", "the field text is missing", "it begins '{\"id\": 20}'"),
    ),
    # forms
    "JSON lines said to be Parquet": Mistake(
        source={"format": "parquet"},
        code=4,
        said=("not a Parquet file, but JSON lines", "Set input.format: jsonl."),
    ),
    "Arrow said to be Parquet": Mistake(
        files={"a.parquet": arrow()},
        source={"format": "parquet"},
        code=4,
        said=("but an Arrow IPC file", "Set input.format: arrow."),
    ),
    "Parquet said to be Arrow": Mistake(
        files={"a.arrow": parquet()},
        source={"format": "arrow"},
        code=4,
        said=("but a Parquet file", "Set input.format: parquet."),
    ),
    "Parquet said to be text": Mistake(
        files={"a.parquet": parquet()}, code=4, said=("not text, but a Parquet file",)
    ),
    "an array of JSON": Mistake(
        files={"a.json": json.dumps(RECORDS).encode()},
        source=JSON,
        code=4,
        said=("not JSON lines, but an array of JSON", "jq -c '.[]'"),
    ),
    "JSON over several lines": Mistake(
        files={"a.json": json.dumps(RECORDS[0], indent=2).encode()},
        source=JSON,
        code=4,
        said=("JSON with records of several lines", "jq -c ."),
    ),
    "a table with commas": Mistake(
        files={"a.jsonl": b"id,text\n1,hello\n2,world\n"},
        source=JSON,
        code=4,
        said=("An input file is not JSON lines.", "input.format"),
    ),
    "a page in place of a download": Mistake(
        files={"a.parquet": b"<!DOCTYPE html><html><body>404 Not Found</body></html>"},
        source={"format": "parquet"},
        code=4,
        said=("but an HTML page", "Download the file again."),
    ),
    "a pointer of Git LFS": Mistake(
        files={
            "a.jsonl": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
        },
        source=JSON,
        code=4,
        said=("a pointer of Git LFS", "git lfs pull"),
    ),
    "a PDF document": Mistake(
        files={"a.txt": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"},
        code=4,
        said=("but a PDF document", "Exclude it from input.files"),
    ),
    "a truncated Parquet file": Mistake(
        files={"a.parquet": parquet()[:-20]},
        source={"format": "parquet"},
        code=4,
        said=("damaged, truncated", "Download the file again"),
    ),
    # compressions and archives
    "zstd without its extension": Mistake(
        files={"a.txt": zstandard.compress(PROSE)},
        code=4,
        said=("not text, but zstd data", "Set input.compression: zstd, or name the file .zst"),
    ),
    "xz read as it is": Mistake(
        files={"a.txt.xz": lzma.compress(PROSE)},
        source={"compression": "none"},
        code=4,
        said=("not text, but xz data", "(input.compression: none)", "Set input.compression: xz."),
    ),
    "bz2 named .gz": Mistake(
        files={"a.jsonl.gz": bz2.compress(lines())},
        source=JSON,
        code=4,
        said=("but bz2 data", "the extension of a.jsonl.gz", "input.compression: bz2"),
    ),
    "text named .gz": Mistake(
        files={"a.txt.gz": PROSE},
        code=4,
        said=("not gzip data, but text", "Rename the file, or set input.compression: none."),
    ),
    "half of a gzip file": Mistake(
        files={"a.txt.gz": gzip.compress(PROSE)[:300]},
        code=4,
        said=("corrupt or truncated", "Download the file again"),
    ),
    "a zip archive": Mistake(
        files={"a.zip": archive("zip")}, code=4, said=("but a zip archive", "zip://*::ARCHIVE")
    ),
    "a tar archive inside gzip": Mistake(
        files={"a.tar.gz": gzip.compress(archive("tar"))},
        code=4,
        said=("but a tar archive, inside gzip data", "tar://*::ARCHIVE"),
    ),
    # encodings
    "text in UTF-16": Mistake(
        files={"a.txt": "One document.\n".encode("utf-16") * 20},
        code=4,
        said=("but UTF-16 text", "iconv -f UTF-16 -t UTF-8"),
    ),
    "text in Latin-1": Mistake(
        files={"a.txt": "<|endoftext|>".join(["Café au lait à gogo"] * 20).encode("latin-1")},
        code=6,
        said=("not valid UTF-8", "iconv -f WINDOWS-1252 -t UTF-8"),
    ),
    "an invalid byte where none may be": Mistake(
        files={"a.txt": PROSE + b"<|endoftext|>bad \xff byte"},
        source={"invalid_utf8": "error"},
        code=4,
        said=("not valid UTF-8", "0xff", "set input.invalid_utf8"),
    ),
    # the rest
    "a tokenizer of another kind": Mistake(
        source=JSON,
        sections={"tokenizer": {"path": "data/a.jsonl"}},
        code=4,
        said=("data/a.jsonl",),
    ),
    "a special token in the text that may not be there": Mistake(
        files={"a.jsonl": lines([*RECORDS, {"text": "one <|endoftext|> two"}])},
        source=JSON,
        sections={"encode": {"special_tokens_in_text": "reject"}},
        code=6,
        said=("special_token", "encode.special_tokens_in_text to split"),
    ),
    "an output among system files": Mistake(
        source=JSON,
        sections={"output": "/proc/here"},
        code=5,
        said=("The output cannot be written.", "/proc/here", "Check the path"),
    ),
    "all files of an output": Mistake(
        source={**JSON, "files": ["out/tokens/*"]},
        code=4,
        said=("never its own input", "train-00000-of-00001.parquet"),
        prepare=lambda folder: write(folder, {"out/tokens/train-00000-of-00001.parquet": b"PAR1"}),
    ),
    "a broken link": Mistake(
        source={**JSON, "files": ["data/*"]},
        code=4,
        said=("a broken link", "Remove the link", "exclude it with input[0].exclude"),
        prepare=lambda folder: (folder / "data" / "b.jsonl").symlink_to("nowhere"),
    ),
}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def plant(mistake: Mistake, folder: Path) -> Path:
    """Write the corpus and the configuration; return the path of the latter."""
    write(folder / "data", mistake.files)
    if mistake.prepare is not None:
        mistake.prepare(folder)
    values = {
        "output": "out",
        "input": {"files": ["data/*"], **mistake.source},
        "tokenizer": {"vocab_size": 300},
        **mistake.sections,
    }
    config = folder / "build.yaml"
    config.write_text(yaml.safe_dump(values))
    return config


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", MISTAKES)
def test_plan_finds_a_mistake_and_names_the_mend(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    config = plant(mistake, tmp_path)
    before = listing(tmp_path)
    done = command("plan", config, here=True)
    assert done.returncode == mistake.code, done.stderr
    for text in mistake.said:
        assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "name",
    [
        "a field that no record has",
        "Parquet said to be JSON lines",
        "gzip said to be zstd",
        "an output below a file",
        "text in Latin-1",
    ],
)
def test_a_build_ends_with_the_same_error_before_it_writes(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    config = plant(mistake, tmp_path)
    before = listing(tmp_path)
    planned = command("plan", config, here=True)
    built = command("build", config, here=True)
    assert (built.returncode, built.stderr) == (mistake.code, planned.stderr)
    assert listing(tmp_path) == before


WARNINGS = {
    "a special token that is a word": (
        Mistake(
            source=JSON,
            sections={"tokenizer": {"vocab_size": 300, "special_tokens": ["<|endoftext|>", "the"]}},
            code=0,
            said=('the special token "the", which looks like a word', "occurs", "is cut out"),
        )
    ),
    "a special token that is often in the text": Mistake(
        files={"a.jsonl": lines([{"text": f"{text} <|endoftext|>"} for text in TEXTS])},
        source=JSON,
        code=0,
        said=('the special token "<|endoftext|>" occurs 59 times', "choose another special token"),
    ),
    "a separator that does not occur": Mistake(
        files={"a.txt": "\n\n".join(TEXTS * 20).encode()},
        code=0,
        said=('the separator "<|endoftext|>" does not occur', "Set input.separator"),
    ),
    "JSON lines read as text": Mistake(
        code=0, said=("a.jsonl looks like JSON lines", "input.format: jsonl", "named .jsonl")
    ),
    "a selection of nothing": Mistake(
        source={**JSON, "min_chars": 100_000},
        code=0,
        said=("none of 59 sampled documents is selected (min_chars)",),
    ),
    "a corpus too small for the vocabulary": Mistake(
        source=JSON,
        sections={"tokenizer": {"vocab_size": 50_000}},
        code=0,
        said=("too small for the vocabulary", "of 50,000 ids"),
    ),
    "rejects above the limit": Mistake(
        files={"a.jsonl": lines([*RECORDS[:20], *[{"id": 1}] * 20])},
        source=JSON,
        sections={"encode": {"max_reject_fraction": 0.1}},
        code=0,
        said=("20 of 40 sampled documents would be rejected (50.0%, above", "missing_field"),
    ),
    "a file of another kind among many": Mistake(
        files={**{f"{i}.jsonl": lines() for i in range(3)}, "z.jsonl": b"\x89PNG\r\n\x1a\n\0\0"},
        source={**JSON, "max_bad_files": 1},
        sections={"encode": {"max_reject_fraction": 0.5}},
        code=0,
        said=("sampled documents would be rejected", "z.jsonl, document at offset 0"),
    ),
    "files of the output": Mistake(
        source={"files": ["**/*.txt"]},
        files={"a.txt": PROSE},
        code=0,
        said=("skipped", "1 file of this output"),
        prepare=lambda folder: write(folder, {"out/notes.txt": b"notes"}),
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_plan_warns(name: str, tmp_path: Path) -> None:
    mistake = WARNINGS[name]
    done = command("plan", plant(mistake, tmp_path), here=True)
    assert done.returncode == 0, done.stderr
    for text in mistake.said:
        assert text in done.stdout


def test_two_sources_with_the_same_file_are_said(tmp_path: Path) -> None:
    sources = [{"name": name, "files": ["data/*"], **JSON} for name in ("web", "news")]
    mistake = Mistake(sections={"input": sources}, code=0, said=())
    done = command("plan", plant(mistake, tmp_path), here=True)
    assert "a.jsonl is read twice, by the sources web and news" in done.stdout


def test_the_source_is_named_where_there_are_several(tmp_path: Path) -> None:
    sources = [
        {"name": "news", "files": ["data/*"], **JSON},
        {"name": "web", "files": ["data/*"], **JSON, "text_field": "content"},
    ]
    done = command("plan", plant(Mistake(sections={"input": sources}, code=4, said=()), tmp_path))
    assert 'No record of web has the field "content" (input[1].text_field).' in done.stderr
