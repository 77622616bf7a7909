"""Peak memory of counting and encoding in a fresh process: it does not grow with the input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_support import EXAMPLES, PACKAGES, ROOT

from bpe_core import (
    BPETokenizer,
    count_pretokens,
    train_characters_from_counts,
    train_from_counts,
)
from bpe_core.patterns import resolve_pattern

MiB = 1 << 20
MB = 1_000_000

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(), reason="needs /proc for the peak of memory"
    ),
]

# Counts and encodes without Beam, in one worker; prints the peak before and after, in KiB.
_CHILD = """
import json, sys
from pathlib import Path
from build_support import count_job, encode_job, works_of
from pipelines.config import BuildConfig
from pipelines.counting.commits import count_tasks
from pipelines.writing.tasks import write_task
from bpe_core import BPETokenizer

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

config = BuildConfig.model_validate(json.loads(sys.argv[1]))
tokenizer = Path(sys.argv[2])
begin = peak()
works = works_of(config)
for _ in count_tasks(count_job(config, works), works):
    pass
job = encode_job(config, tokenizer, BPETokenizer.load(tokenizer).model.fingerprint)
documents = sum(write_task(job, work)["train"]["documents"] for work in works)
print(json.dumps([begin, peak(), documents]))
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    train_from_counts(count_pretokens([text(MB).encode()]), 1000).tokenizer().save(directory)
    return directory


def text(size: int) -> str:
    """Text of about so many bytes, in one line."""
    examples = b" ".join(path.read_bytes() for path in sorted(EXAMPLES.glob("*.txt")))
    line = examples.replace(b"<|endoftext|>", b" ").replace(b"\n", b" ").decode()
    return (line * (size // len(line) + 1))[:size]


def growth(tmp_path: Path, tokenizer: Path, source: dict[str, object], documents: int) -> int:
    """By how many bytes the peak of a process rises that counts and encodes the source."""
    config: dict[str, object] = {
        "output": str(tmp_path / "out"),
        "input": source,
        "counts": {"shards": 4},
    }
    config["encode"] = {"append": None}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(config), str(tokenizer)],
        env={"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{PACKAGES}:{ROOT / 'tests/support'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    begin, peak, found = json.loads(done.stdout.splitlines()[-1])
    assert found == documents
    return int(peak - begin) * 1024


def write_document(path: Path, size: int) -> None:
    block = text(4 * MB).encode()
    with path.open("wb") as file:
        for begin in range(0, size, len(block)):
            file.write(block[: size - begin])


def growths_of_a_document(tmp_path: Path, tokenizer: Path, *sizes: int) -> list[int]:
    path = tmp_path / "document.txt"
    found = []
    for size in sizes:
        write_document(path, size)
        source: dict[str, object] = {"files": [str(path)], "separator": None}
        found.append(growth(tmp_path, tokenizer, source, 1))
    return found


def test_memory_does_not_grow_with_a_document(tmp_path: Path, tokenizer: Path) -> None:
    small, large = growths_of_a_document(tmp_path, tokenizer, 20 * MB, 80 * MB)
    assert large < 1.25 * small + 16 * MiB
    assert large < 256 * MiB


@pytest.mark.soak
def test_memory_does_not_grow_with_a_document_of_2_gb(tmp_path: Path, tokenizer: Path) -> None:
    small, large = growths_of_a_document(tmp_path, tokenizer, 400 * MB, 2000 * MB)
    print(f"\n400 MB: {small / MiB:.0f} MiB; 2 GB: {large / MiB:.0f} MiB")
    assert large < 1.1 * small + 16 * MiB


def train_automaton(sample: bytes) -> BPETokenizer:
    """Train with a pattern that is compiled: letters with marks, single digits, symbols."""
    pattern = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
    assert resolve_pattern(pattern).tier == "automaton"
    return train_from_counts(count_pretokens([sample], pattern=pattern), 1000).tokenizer()


def train_characters(sample: bytes) -> BPETokenizer:
    return train_characters_from_counts(count_pretokens([sample]), 1000).tokenizer()


def train_without_pattern(sample: bytes) -> BPETokenizer:
    counts = count_pretokens([sample[:100_000]], pattern="none")
    return train_from_counts(counts, 1000).tokenizer()


@pytest.mark.soak
@pytest.mark.parametrize("train", [train_automaton, train_characters, train_without_pattern])
def test_memory_does_not_grow_with_a_document_of_400_mb(
    train: Callable[[bytes], BPETokenizer], tmp_path: Path
) -> None:
    train(text(MB).encode()).save(tmp_path / "tokenizer")
    small, large = growths_of_a_document(tmp_path, tmp_path / "tokenizer", 40 * MB, 400 * MB)
    print(f"\n{train.__name__}: 40 MB: {small / MiB:.0f} MiB; 400 MB: {large / MiB:.0f} MiB")
    assert large < 1.25 * small + 16 * MiB
    assert large < 256 * MiB


def growth_of_lines(tmp_path: Path, tokenizer: Path, form: str, lines: int) -> int:
    line = text(10 * MB)
    path = tmp_path / f"lines.{form}"
    with path.open("w") as file:
        for number in range(lines):
            record = {"id": number, "text": line}
            file.write((json.dumps(record) if form == "jsonl" else line) + "\n")
    source: dict[str, object] = {"files": [str(path)], "separator": "\n"}
    if form == "jsonl":
        source = {"files": [str(path)], "format": "jsonl", "text_field": "text"}
    return growth(tmp_path, tokenizer, source, lines)


@pytest.mark.parametrize("form", ["jsonl", pytest.param("txt", marks=pytest.mark.soak)])
@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_lines_of_10_mb(
    form: str, tmp_path: Path, tokenizer: Path
) -> None:
    few, many = (growth_of_lines(tmp_path, tokenizer, form, lines) for lines in (3, 10))
    assert many < 1.25 * few + 32 * MiB
    assert many < 384 * MiB


def growth_of_a_row_group(tmp_path: Path, tokenizer: Path, rows: int, **options: int) -> int:
    line = text(5000 + rows)
    texts = pa.array([line[i : i + 5000] for i in range(rows)], pa.large_string())
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=rows, **options)
    assert pq.ParquetFile(path).num_row_groups == 1
    source: dict[str, object] = {"files": [str(path)], "format": "parquet", "text_field": "text"}
    return growth(tmp_path, tokenizer, source, rows)


@pytest.mark.parametrize(
    ("small", "large"), [(6000, 24_000), pytest.param(40_000, 200_000, marks=pytest.mark.soak)]
)
@pytest.mark.nightly
def test_memory_does_not_grow_with_a_row_group(
    small: int, large: int, tmp_path: Path, tokenizer: Path
) -> None:
    found = [growth_of_a_row_group(tmp_path, tokenizer, rows) for rows in (small, large)]
    print(f"\n{large:,} rows of 5 kB: {found[1] / MiB:.0f} MiB")
    assert found[1] < 1.25 * found[0] + 32 * MiB


@pytest.mark.parametrize(
    ("few", "many"), [(200, 3000), pytest.param(1000, 100_000, marks=pytest.mark.soak)]
)
@pytest.mark.nightly
def test_a_file_more_takes_a_few_kilobytes(
    few: int, many: int, tmp_path: Path, tokenizer: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    found = []
    for begin, end in ((0, few), (few, many)):
        for number in range(begin, end):
            (data / f"{number:06d}.txt").write_text(f"a document with the number {number}")
        source: dict[str, object] = {"files": [f"{data}/*.txt"], "separator": None}
        found.append(growth(tmp_path, tokenizer, source, end))
    print(f"\n{many:,} files: {found[1] / MiB:.0f} MiB")
    assert found[1] - found[0] < 16 * MiB + 4096 * (many - few)
