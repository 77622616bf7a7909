"""Small datasets of token files for tests of exports, without a build."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.manifest.names import token_file_name
from pipelines.manifest.token_schema import schema
from pipelines.storage.directory import Directory
from pipelines.writing.jobs import EncodeJob
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_file import TokenFile

# A file is a list of documents, a document a list of its parts, a part a list of ids.
Document = Sequence[Sequence[int]]


def documents(number: int, seed: int = 0, most: int = 60, vocabulary: int = 5000) -> list[Document]:
    """Return random documents; some contain only the id that ends every document."""
    random = np.random.default_rng(seed)
    return [
        [[*random.integers(1, vocabulary, random.integers(0, most)).tolist(), 0]]
        for _ in range(number)
    ]


def write_dataset(
    output: Path,
    splits: Mapping[str, Sequence[Sequence[Document]]],
    id_type: str = "uint16",
) -> Path:
    """Write token files and their manifest like `beam-bpe encode`."""
    tokens = Directory(url=str(output / "tokens"))
    job = EncodeJob(
        tokens=tokens,
        rejects=tokens,
        tokenizer=tokens,
        tokenizer_fingerprint="0" * 32,
        configuration="1" * 32,
        plan_id="plan",
        prepend=None,
        append=None,
        special_tokens_in_text="split",
        id_type=id_type,
        validation_fraction=0.0,
        readings=(),
    )
    entries = {
        split: [
            _write_file(job, token_file_name(split, index, len(files)), file)
            for index, file in enumerate(files)
        ]
        for split, files in splits.items()
    }
    manifest = {
        "format": 1,
        "configuration": {
            "tokenizer": job.tokenizer_fingerprint,
            "id_type": id_type,
            "encode": {"prepend": None, "append": None},
        },
        "configuration_fingerprint": job.configuration,
        "files": {"train": [], "validation": [], "rejects": [], **entries},
        "totals": {"tokens": sum(f["tokens"] for files in entries.values() for f in files)},
    }
    tokens.write_json("manifest.json", manifest)
    return output


def change_manifest(output: Path, **values: Any) -> None:
    """Write the manifest again with other values."""
    path = output / "tokens" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def repeat_file(output: Path, times: int) -> Path:
    """Repeat the dataset's only file, without using more disk space."""
    manifest = json.loads((output / "tokens" / "manifest.json").read_text())
    [entry] = manifest["files"]["train"]
    first = output / "tokens" / entry["name"]
    names = [token_file_name("train", index, times) for index in range(times)]
    for name in names:
        os.link(first, output / "tokens" / name)
    files = {"train": [{**entry, "name": name} for name in names]}
    change_manifest(output, files=files, totals={"tokens": times * entry["tokens"]})
    return output


def _write_file(job: EncodeJob, name: str, file: Sequence[Document]) -> dict[str, Any]:
    with TokenFile(job.tokens, name, schema(job.id_type, record_ids=job.record_ids), {}) as writer:
        for rows in _rows(file, np.uint16 if job.id_type == "uint16" else np.uint32):
            writer.add(rows)
        writer.finish()
    return writer.entry


def _rows(file: Sequence[Document], dtype: type[Any]) -> Iterator[TokenRows]:
    """Yield rows; adjacent documents of one part are in one batch."""
    for whole, run in groupby(enumerate(file), lambda numbered: len(numbered[1]) == 1):
        numbered = list(run)
        if whole:
            yield _batch([document[0] for _, document in numbered], numbered[0][0], 0, dtype)
            continue
        for place, document in numbered:
            for part, ids in enumerate(document):
                yield _batch([ids], place, part, dtype)


def _batch(rows: Sequence[Sequence[int]], place: int, part: int, dtype: type[Any]) -> TokenRows:
    lengths = np.array([len(row) for row in rows], np.int64)
    return TokenRows(
        ids=np.concatenate([np.asarray(row, dtype) for row in rows]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        num_bytes=3 * lengths,
        positions=np.arange(place, place + len(rows)),
        hashes=np.zeros((len(rows), 2), np.uint64),
        parts=np.full(len(rows), part, np.int32),
        sources=pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), ["text"]),
    )
