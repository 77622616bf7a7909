"""Memory of whole builds. Run with `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from build_support import EXAMPLES, ROOT

pytestmark = pytest.mark.soak

MB = 1_000_000
SAMPLE_SECONDS = 0.05


def prose() -> bytes:
    """The 64 MB text where it is, else what is in the examples."""
    shared = ROOT.parent / "shared" / "data"
    for packed in (Path("/tmp/data/prose.txt"), shared / "prose.txt"):
        if packed.exists():
            return packed.read_bytes()
    return b"".join(path.read_bytes() for path in sorted(EXAMPLES.glob("*.txt")))


def write_text(path: Path, size: int) -> None:
    text = prose()
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
