"""Whole builds of long texts: memory, documents, bytes. Run with `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard
from build_support import EXAMPLES, ROOT, SEPARATOR, checksums, config_for

from bpe_core import BPETokenizer
from pipelines import build

pytestmark = pytest.mark.soak

MB = 1_000_000
SAMPLE_SECONDS = 0.05


def text_of(name: str) -> bytes | None:
    """A text of the shared data, None where it is not."""
    packed = ROOT.parent / "shared" / "data" / f"{name}.txt.zst"
    if not packed.exists():
        return None
    with packed.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def long_text() -> bytes:
    """64 MB of prose where they are, else what is in the examples."""
    examples = (path.read_bytes() for path in sorted(EXAMPLES.glob("*.txt")))
    return text_of("prose") or b"".join(examples)


def write_text(path: Path, size: int) -> None:
    text = long_text()
    with path.open("wb") as file:
        for start in range(0, size, len(text)):
            file.write(text[: size - start])


def memory_of_tree(root: int) -> int:
    """Resident bytes of a process and all below it, now."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except (OSError, ValueError):
                continue
    tree, pages = {root}, 0
    for process in sorted(parents):
        if parents[process] in tree:
            tree.add(process)
    for process in tree:
        try:
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory_of_build(directory: Path, size: int) -> tuple[int, float]:
    """Peak resident bytes of the whole process tree of a build of `size` bytes, and seconds."""
    write_text(directory / f"text-{size}.txt", size)
    (directory / "build.yaml").write_text(
        f"output: out-{size}\n"
        f"input: {{files: [text-{size}.txt]}}\n"
        "tokenizer: {vocab_size: 32000}\n"
        "beam: {workers: 2}\n"
    )
    begun = time.monotonic()
    build = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "build", str(directory / "build.yaml")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    peak = 0
    while build.poll() is None:
        peak = max(peak, memory_of_tree(build.pid))
        time.sleep(SAMPLE_SECONDS)
    assert build.returncode == 0
    return peak, time.monotonic() - begun


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    small, small_seconds = peak_memory_of_build(tmp_path, 100 * MB)
    large, large_seconds = peak_memory_of_build(tmp_path, 1000 * MB)
    print(
        f"\npeak memory of the process tree: {small / MB:.0f} MB for 100 MB of text "
        f"({small_seconds:.1f} s), {large / MB:.0f} MB for 1 GB ({large_seconds:.1f} s), "
        f"ratio {large / small:.3f}"
    )
    assert large <= 1.2 * small


@pytest.mark.parametrize(("name", "pattern"), [("prose", "gpt2"), ("multilingual", "o200k")])
def test_rows_decode_to_the_source_documents_with_any_number_of_workers(
    name: str, pattern: str, tmp_path: Path
) -> None:
    text = text_of(name)
    if text is None:
        pytest.skip("needs ../shared/data")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / f"{name}.txt").write_bytes(text)
    made = []
    for workers in (1, 2, 4):
        config = config_for(
            tmp_path,
            output=str(tmp_path / f"out-{workers}"),
            input={"range_bytes": 4 << 20},
            tokenizer={"vocab_size": 16000, "pattern": pattern},
            counts={"memory": "8MiB", "shards": 16},
            beam={"workers": workers},
        )
        build.build(config)
        made.append(checksums(tmp_path / f"out-{workers}"))
    assert made[0] == made[1] == made[2]
    tokenizer = BPETokenizer.load(tmp_path / "out-1" / "tokenizer")
    offset, documents = 0, iter(text.split(SEPARATOR.encode()))
    for path in sorted((tmp_path / "out-1" / "tokens").glob("train-*")):
        table = pq.read_table(path, columns=["input_ids", "offset"])
        for ids, place in zip(table["input_ids"], table["offset"].to_pylist(), strict=True):
            document = next(documents)
            while not document:
                offset += len(SEPARATOR)
                document = next(documents)
            assert place == offset
            assert tokenizer.decode_bytes(ids.values.to_numpy()[:-1]) == document
            offset += len(document) + len(SEPARATOR)
    assert not any(documents)
