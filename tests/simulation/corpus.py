"""Random corpora of planted documents, so that the outcome of each is known."""

from __future__ import annotations

import io
import json
import random
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from fuzzing import COMPRESSORS, FORMS, arrow_file, parquet_file

END: Final = "<|endoftext|>"
PAD: Final = "<|pad|>"
SPECIAL_TOKENS: Final = (END, PAD)

_WORDS: Final = (
    "the cat sat on a mat and thought of 12 3456 don't I'll café naïve Straße 漢字 かな привет\n",
    "  two spaces\ttab\r\n int main(){return 0;} ---- 😀👩‍👩‍👧 \u200b e\u0301 …",
)


@dataclass(frozen=True)
class Planted:
    """Document of a file.

    Attributes:
        text: Its bytes, which may be invalid UTF-8; None if there is no text to keep.
        reject: Reason for which it is rejected, whatever the policy; "" if it is not.
    """

    text: bytes | None
    reject: str = ""

    def outcome(self, invalid_utf8: str) -> bytes | str:
        """Return the text that is kept, empty for an empty document, or the reason of a reject."""
        if self.reject:
            return self.reject
        assert self.text is not None
        try:
            self.text.decode()
        except UnicodeDecodeError:
            if invalid_utf8 == "reject":
                return "invalid_utf8"
            return self.text.decode(errors="replace").encode()
        return self.text


@dataclass
class Source:
    """Source of the configuration, and the documents of each of its files."""

    name: str
    form: str
    settings: dict[str, Any]
    files: dict[str, list[Planted]]


def random_source(generator: random.Random, folder: Path, name: str) -> Source:
    """Write the files of a source."""
    form = generator.choice(list(FORMS))
    separator = generator.choice([END, "\n\x00", "<->"])
    settings: dict[str, Any] = {
        "name": name,
        "format": form,
        "range_bytes": generator.choice([200, 900, 5000]),
    }
    if form == "text":
        settings["separator"] = separator
    source = Source(name, form, settings, {})
    packed = generator.choice(["", "", "", "zip", "tar"])
    inside = f"{name}.{packed}" if packed else ""
    settings["files"] = [
        f"{packed}://*::{folder / inside}" if packed else str(folder / f"{name}-*")
    ]
    contents = {}
    for number in range(generator.choice([1, 2, 3])):
        file, documents, data = random_file(generator, source, number)
        source.files[f"{name}/{file}"] = documents
        contents[file] = data
    if packed:
        write_archive(folder / inside, packed, contents)
    else:
        for file, data in contents.items():
            (folder / file).write_bytes(data)
    return source


def random_file(
    generator: random.Random, source: Source, number: int
) -> tuple[str, list[Planted], bytes]:
    """Return name, documents and bytes of a file."""
    suffix = generator.choice(list(COMPRESSORS)) if source.form in ("text", "jsonl") else ""
    documents = [random_document(generator, source.form) for _ in range(generator.randrange(1, 9))]
    separator = source.settings.get("separator", "")
    data = file_content(source.form, documents, separator, generator)
    return (
        f"{source.name}-{number}{FORMS[source.form]}{suffix}",
        documents,
        COMPRESSORS[suffix](data),
    )


def random_document(generator: random.Random, form: str) -> Planted:
    """Return a document, mostly a good one."""
    kind = generator.random()
    if kind < 0.08:
        return Planted(b"")
    if kind < 0.2 and form == "text":
        return Planted(random_text(generator) + generator.choice([b"\xff", b"\xe6\xbc"]) + b" x")
    if kind < 0.2 and form == "jsonl":
        reasons = ["malformed_json", "missing_field", "null_field", "wrong_field_type"]
        return Planted(None, generator.choice(reasons))
    if kind < 0.2:
        return Planted(None, "null_field")
    text = random_text(generator)
    if kind < 0.3:
        text += PAD.encode() + random_text(generator)
    return Planted(text)


def random_text(generator: random.Random) -> bytes:
    """Return words, sometimes many or one again and again."""
    words = generator.choice(_WORDS).split(" ")
    if generator.random() < 0.05:
        words = [generator.choice(words)]
    return " ".join(generator.choices(words, k=generator.choice([1, 5, 30, 200]))).encode()


def file_content(
    form: str, documents: list[Planted], separator: str, generator: random.Random
) -> bytes:
    """Return the file of this format with these documents."""
    if form == "text":
        return b"".join((document.text or b"") + separator.encode() for document in documents)
    if form == "jsonl":
        return b"".join(json_line(document) for document in documents)
    texts = [None if document.text is None else document.text.decode() for document in documents]
    table = pa.table({"text": pa.array(texts, pa.string())})
    return (parquet_file if form == "parquet" else arrow_file)(table, generator)


def json_line(document: Planted) -> bytes:
    """Return the line of a document, or the planted mistake."""
    mistakes: dict[str, bytes] = {
        "malformed_json": b'{"text": "no end',
        "missing_field": b'{"other": "text"}',
        "null_field": b'{"text": null}',
        "wrong_field_type": b'{"text": 5}',
    }
    if document.reject:
        return mistakes[document.reject] + b"\n"
    assert document.text is not None
    return json.dumps({"text": document.text.decode(), "n": 1}).encode() + b"\n"


def write_archive(path: Path, kind: str, contents: dict[str, bytes]) -> None:
    """Write files into a zip or tar."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in contents.items():
                archive.writestr(name, data)
        return
    with tarfile.open(path, "w") as packed:
        for name, data in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
