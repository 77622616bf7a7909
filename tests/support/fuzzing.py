"""Randomly damaged files, and the promises that readers and builds must keep for them.

`make fuzz` runs this file; tests run a few hundred builds of it. Everything follows from a seed,
which failures name: `python tests/support/fuzzing.py --builds 1 --seed SEED` repeats one.
"""

from __future__ import annotations

import argparse
import bz2
import faulthandler
import gzip
import io
import itertools
import json
import lzma
import random
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from build_support import config_for, input_file, some_text
from inline_runner import inline_runner

from bpe_core import BPETokenizer
from bpe_core.errors import BpeError
from pipelines import build
from pipelines.errors import (
    BadFileError,
    ChangedFileError,
    ExpansionError,
    PipelineError,
    UnreadableFileError,
)
from pipelines.readers import ReadOptions, read_range
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.tasks.plan import Range, is_splittable

SEPARATOR = b"<|endoftext|>"
SECONDS_FOR_ONE = 60

# --- files --------------------------------------------------------------------------------------

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def text_file(documents: Sequence[bytes]) -> bytes:
    return b"".join(document + SEPARATOR for document in documents)


def json_file(documents: Sequence[bytes]) -> bytes:
    return b"".join(
        json.dumps({"id": i, "text": text.decode()}).encode() + b"\n"
        for i, text in enumerate(documents)
    )


def table_of(documents: Sequence[bytes]) -> pa.Table:
    return pa.table({"text": [text.decode() for text in documents], "id": range(len(documents))})


def parquet_file(table: pa.Table, generator: random.Random) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        row_group_size=generator.choice([3, 1000]),
        compression=generator.choice(["none", "snappy", "zstd"]),
        use_dictionary=generator.random() < 0.5,
        data_page_version=generator.choice(["1.0", "2.0"]),
        data_page_size=generator.choice([100, 1 << 20]),
        write_page_checksum=generator.random() < 0.5,
    )
    return sink.getvalue()


def arrow_file(table: pa.Table, generator: random.Random) -> bytes:
    if generator.random() < 0.3:
        table = table.set_column(0, "text", table["text"].dictionary_encode())
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=generator.choice([None, "lz4", "zstd"]))
    new = generator.choice([pa.ipc.new_file, pa.ipc.new_stream])
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=generator.choice([3, 1000]))
    return sink.getvalue()


FORMS = {"text": ".txt", "jsonl": ".jsonl", "parquet": ".parquet", "arrow": ".arrow"}


def contents(form: str, suffix: str, documents: Sequence[bytes], generator: random.Random) -> bytes:
    """Return a file of this format with these documents, sometimes of several members."""
    if form == "parquet":
        return parquet_file(table_of(documents), generator)
    if form == "arrow":
        return arrow_file(table_of(documents), generator)
    data = text_file(documents) if form == "text" else json_file(documents)
    cut = generator.choice([0, generator.randrange(len(data) + 1)])
    compress = COMPRESSORS[suffix]
    return (compress(data[:cut]) if cut else b"") + compress(data[cut:])


def damaged(data: bytes, generator: random.Random) -> bytes:
    """Return damaged bytes: some flipped, the end cut off, garbage after it, a block of zeros."""
    changed = bytearray(data)
    kind = generator.choice(["flip", "flip", "overwrite", "truncate", "append", "zeros", "swap"])
    place = generator.randrange(len(data) + 1)
    if kind == "flip":
        for _ in range(generator.choice([1, 1, 2, 8])):
            changed[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    elif kind == "overwrite":
        for _ in range(generator.choice([1, 4, 20])):
            changed[generator.randrange(len(data))] = generator.randrange(256)
    elif kind == "truncate":
        del changed[place:]
    elif kind == "append":
        changed += generator.randbytes(generator.choice([1, 9, 300]))
    elif kind == "zeros":
        size = generator.choice([1, 16, 512])
        changed[place : place + generator.choice([0, size])] = bytes(size)
    else:
        size = generator.randrange(1, 40)
        changed[place : place + size] = generator.randbytes(size)
    return bytes(changed)


# --- readers ------------------------------------------------------------------------------------


def fuzz_reader(seed: int, folder: Path) -> None:
    """Read one damaged file in ranges. Raise AssertionError if a promise is broken."""
    generator = random.Random(seed)
    form = generator.choice(list(FORMS))
    suffix = generator.choice(list(COMPRESSORS)) if form in ("text", "jsonl") else ""
    documents = some_text(generator.randrange(1, 12), words=generator.choice([3, 60]))
    data = damaged(contents(form, suffix, documents, generator), generator)
    path = folder / f"file{FORMS[form]}{suffix}"
    compression = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}.get(suffix)
    file = input_file(path, data, compression)
    options = ReadOptions(
        format=form,  # type: ignore[arg-type]
        separator=SEPARATOR,
        id_field=("id",) if form != "text" and generator.random() < 0.3 else None,
        read_bytes=generator.choice([50, 1 << 20]),
        piece_bytes=generator.choice([80, 4 << 20]),
        keep_readable=generator.random() < 0.8,
    )
    cuts = [0, len(data)]
    if is_splittable(compression, options) and generator.random() < 0.5:
        cuts.insert(1, generator.randrange(len(data) + 1))
    try:
        total = 0
        is_bad = False
        for start, end in itertools.pairwise(cuts):
            for batch in read_range(file, Range(file=0, start=start, end=end), options):
                total += int(batch.num_bytes.sum()) + batch.framing_bytes
                for reject in batch.rejects:
                    is_bad |= reject.reason in REASONS_OF_FILES
                    total += 0 if reject.reason in REASONS_OF_FILES else reject.length
                    assert reject.offset >= 0 and reject.length >= 0, reject
                for i in range(len(batch)):
                    assert batch.document(i).decode()
        assert is_bad or total == len(data) or compression or form in ("parquet", "arrow")
    except BadFileError as error:
        assert not options.keep_readable
        assert path.name in str(error)
    except ExpansionError as error:  # damaged sizes look like a compression bomb
        assert path.name in str(error)


# --- builds -------------------------------------------------------------------------------------


@dataclass
class Built:
    """A build from some files: documents of the whole ones, and labels of the damaged ones and of
    those whose bytes are known to add up (text and JSON lines, not compressed).
    """

    config: Any
    whole: dict[str, list[bytes]]
    damaged: frozenset[str]
    plain: frozenset[str]


def random_build(generator: random.Random, folder: Path) -> Built:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    sources = []
    whole: dict[str, list[bytes]] = {}
    suspects = set()
    plain = set()
    for number in range(generator.choice([1, 2, 3])):
        form = generator.choice(list(FORMS))
        name = f"s{number}"
        for i in range(generator.choice([1, 2, 4])):
            suffix = generator.choice(list(COMPRESSORS)) if form in ("text", "jsonl") else ""
            file = f"{name}-{i}{FORMS[form]}{suffix}"
            documents = some_text(generator.randrange(1, 9), start=100 * number + 10 * i)
            data = contents(form, suffix, documents, generator)
            label = f"{name}/{file}"
            if generator.random() < 0.5:
                data = damaged(data, generator)
                suspects.add(label)
            else:
                whole[label] = documents
            if form in ("text", "jsonl") and not suffix:
                plain.add(label)
            (folder / "data" / file).write_bytes(data)
        files = str(folder / "data" / f"{name}-*")
        if generator.random() < 0.2:
            archive = folder / "data" / f"{name}.zip"
            labels = pack(folder / "data", name, archive, generator)
            if generator.random() < 0.5:
                archive.write_bytes(damaged(archive.read_bytes(), generator))
                suspects |= {archive.name, *labels}
                plain.difference_update(labels)
                for label in labels:
                    whole.pop(label, None)
            files = f"zip://*::{archive}"
        sources.append(
            {
                "name": name,
                "files": [files],
                "format": form,
                "range_bytes": generator.choice([300, 5000]),
                "max_bad_files": generator.choice([0, 1, 9, 9]),
                "invalid_utf8": generator.choice(["reject", "reject", "replace"]),
            }
        )
    some = some_text(20, start=900)  # so that there is something to train on
    (folder / "data" / "whole.txt").write_bytes(text_file(some))
    whole["whole/whole.txt"] = some
    plain.add("whole/whole.txt")
    sources.append({"name": "whole", "files": [str(folder / "data" / "whole.txt")]})
    config = config_for(
        folder,
        input=sources,
        tokenizer={"vocab_size": 270},
        counts={"shards": 1, "checkpoint_bytes": generator.choice([1, 1 << 30])},
        encode={"max_reject_fraction": generator.choice([0.1, 1.0, 1.0])},
        beam={"workers": 1},
    )
    return Built(config, whole, frozenset(suspects), frozenset(plain))


def pack(folder: Path, name: str, archive: Path, generator: random.Random) -> list[str]:
    """Move a source's files into an archive. Return their labels."""
    method = generator.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
    labels = []
    with zipfile.ZipFile(archive, "w", method) as packed:
        for path in sorted(folder.glob(f"{name}-*")):
            packed.write(path, path.name)
            path.unlink()
            labels.append(f"{name}/{path.name}")
    return labels


def fuzz_build(seed: int, folder: Path) -> str:
    """Build from some damaged files. Return "built", or the name of the resulting error."""
    made = random_build(random.Random(seed), folder)
    try:
        build.plan(made.config)
        build.build(made.config)
    except PipelineError as error:
        assert any(label.rpartition("/")[2] in str(error) for label in made.damaged), error
        assert not isinstance(error, ChangedFileError | UnreadableFileError), error
        return type(error).__name__
    check_output(folder / "out", made)
    return "built"


def check_output(output: Path, made: Built) -> None:
    """Check that every document of undamaged files is there, and that totals add up."""
    manifest = json.loads((output / "tokens" / "manifest.json").read_text())
    tokenizer = BPETokenizer.load(output / "tokenizer")
    end = tokenizer.special_tokens["<|endoftext|>"]
    found: dict[str, list[bytes]] = {}
    first_parts: dict[str, int] = {}
    for path in sorted((output / "tokens").glob("train-*.parquet")):
        for row in pq.read_table(path).to_pylist():
            label = row["source"]
            assert row["input_ids"][-1] == end
            found.setdefault(label, []).append(tokenizer.decode_bytes(row["input_ids"][:-1]))
            first_parts[label] = first_parts.get(label, 0) + (row["part"] == 0)
    for label, documents in made.whole.items():
        assert found[label] == documents, label
    rejects: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted((output / "rejects").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            rejects.setdefault(row["source"], []).append(row)
    totals = manifest["totals"]
    bad = set()
    for entry in manifest["inputs"]:
        label = entry["name"]
        rows = rejects.get(label, [])
        of_files = [row for row in rows if row["reason"] in REASONS_OF_FILES]
        assert entry["bad"] == bool(of_files), label
        assert not (entry["bad"] and label in made.whole), label
        bad |= {label} if entry["bad"] else set()
        assert entry["documents"] == first_parts.get(label, 0), label
        assert entry["rejected"] == len(rows) - len(of_files), label
        if label in made.plain:
            names = ("bytes", "rejected_bytes", "not_selected_bytes", "framing_bytes")
            assert sum(entry[name] for name in names) == entry["size"], label
    assert sorted(bad) == totals["bad_files"]
    for name in ("documents", "empty", "rejected", "bytes"):
        assert totals[name] == sum(entry[name] for entry in manifest["inputs"]), name
    assert sum(totals["reasons"].values()) == sum(map(len, rejects.values()))


# --- many of them -------------------------------------------------------------------------------


def _many(kind: str, seeds: range, folder: Path) -> None:
    """Run cases in this process, which native code may crash."""
    outcomes: dict[str, int] = {}
    for seed in seeds:
        print(f"\r{kind} {seed} ", end="", flush=True)
        faulthandler.dump_traceback_later(SECONDS_FOR_ONE, exit=True)
        try:
            if kind == "readers":
                fuzz_reader(seed, folder)
                continue
            if seed % 20:
                with inline_runner():
                    outcome = fuzz_build(seed, folder)
            else:
                outcome = fuzz_build(seed, folder)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        except BpeError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            faulthandler.cancel_dump_traceback_later()
    print("fine", outcomes or "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first one")
    parser.add_argument("--builds", type=int, default=0)
    parser.add_argument("--readers", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="in this process")
    given = parser.parse_args()
    failed = False
    for kind, number in (("readers", given.readers), ("builds", given.builds)):
        end = given.seed + number
        if given.here or number == 1:
            with tempfile.TemporaryDirectory() as folder:
                _many(kind, range(given.seed, end), Path(folder))
            continue
        step = 2000 if kind == "readers" else 200
        for first in range(given.seed, end, step):
            arguments = [f"--{kind}", str(min(step, end - first)), "--seed", str(first), "--here"]
            done = subprocess.run([sys.executable, __file__, *arguments], check=False)
            if done.returncode:
                print(f"\n{kind} from {first}: left with {done.returncode}", file=sys.stderr)
                failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
