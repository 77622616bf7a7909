"""The functions with vector instructions equal the portable ones, on ARM in an emulator."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "bpe_core" / "native"
SOURCES = [
    ROOT / "tests/native/vector_kernels.cpp",
    *(
        NATIVE / f"{name}.cpp"
        for name in (
            "scanner",
            "scanner_avx2",
            "scanner_neon",
            "spare_memory",
            "special_matcher",
            "unicode_tables",
            "utf8",
            "words",
        )
    ),
]
# The environment of `make wheel` has a compiler for ARM.
ZIG = ROOT / f"out/wheel-venv/{sys.version_info.major}.{sys.version_info.minor}/bin/python"

pytestmark = [pytest.mark.nightly, pytest.mark.process]


def compare(program: Path, compiler: list[str], emulator: list[str], texts: int) -> None:
    """Compile the program of tests/native, and compare the functions on random texts."""
    flags = ["-std=c++20", "-O1", f"-I{NATIVE}", "-o", str(program)]
    subprocess.run([*compiler, *flags, *map(str, SOURCES)], check=True)
    done = subprocess.run(
        [*emulator, str(program), str(texts), "1"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{texts} texts, 18 scanners: equal\n"


def test_functions_for_this_processor_equal_the_portable_ones(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    compare(tmp_path / "program", [compiler], [], 100_000)


def test_functions_for_arm_equal_the_portable_ones(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64")
    if emulator is None or not ZIG.exists():
        pytest.skip("needs qemu-aarch64 (Debian: qemu-user) and the compiler of `make wheel`")
    compiler = [str(ZIG), "-m", "ziglang", "c++", "-target", "aarch64-linux-musl", "-static"]
    compare(tmp_path / "program", compiler, [emulator], 20_000)
