"""Builds the extension bpe_core._native with setuptools and pybind11 alone.

Environment switches, for development only:

    BPE_SANITIZE=address,undefined   (or thread) compiles with those sanitizers
    BPE_DEBUG=1                      no optimization, with assertions
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

ROOT = Path(__file__).parent
NATIVE = ROOT / "bpe_core" / "native"

if sys.byteorder != "little":
    sys.exit("bpe-beam: the native code stores little-endian integers; this machine is big-endian")

compile_args = ["-O3", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra"]
link_args: list[str] = []
macros: list[tuple[str, str | None]] = []
if os.environ.get("BPE_DEBUG"):
    compile_args = ["-O0", "-g", "-Wall", "-Wextra", "-UNDEBUG"]
    macros.append(("BPE_DEBUG", "1"))
if sanitizers := os.environ.get("BPE_SANITIZE"):
    flags = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    compile_args = ["-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-Wextra", *flags]
    link_args = flags

ParallelCompile("BPE_BUILD_JOBS", default=os.cpu_count() or 1).install()

setup(
    ext_modules=[
        Pybind11Extension(
            "bpe_core._native",
            sorted(str(path.relative_to(ROOT)) for path in NATIVE.glob("*.cpp")),
            depends=sorted(str(path.relative_to(ROOT)) for path in NATIVE.glob("*.hpp")),
            cxx_std=20,
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            define_macros=macros,
        )
    ],
    cmdclass={"build_ext": build_ext},
)
