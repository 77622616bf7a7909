"""Build the extension bpe_core._native with setuptools and the headers of pybind11.

A file is compiled again only if it, a header it includes or the flags changed. ccache is used where
it is installed, unless CXX names a compiler. The wheel of a clone contains both packages; those of
a release are built from the trees that deploy/distributions.py writes.

Environment switches, for development only:

    BPE_SANITIZE=address,undefined   (or thread) compiles with those sanitizers
    BPE_DEBUG=1                      no optimization, with assertions
    BPE_BUILD_JOBS=1                 the number of files compiled at once; default: all processors
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pybind11
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

NATIVE = Path("bpe_core/native")
BINDINGS = NATIVE / "bindings" / "module.cpp"
# Started first, so that no processor waits for them at the end.
SLOWEST = ["module.cpp", "scanner_avx2.cpp", "merge_learner.cpp", "encode_segment_avx2.cpp"]

os.chdir(Path(__file__).parent)
if sys.byteorder != "little":
    sys.exit("bpe-beam: the native code stores little-endian integers; this machine is big-endian")

COMPILE_FLAGS = ["-O3", "-g0"]
LINK_FLAGS: list[str] = []
if os.environ.get("BPE_DEBUG"):
    COMPILE_FLAGS = ["-O0", "-g", "-UNDEBUG", "-DBPE_DEBUG=1"]
if sanitizers := os.environ.get("BPE_SANITIZE"):
    LINK_FLAGS = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    COMPILE_FLAGS = ["-O1", "-g", "-fno-omit-frame-pointer", *LINK_FLAGS]


class BuildNative(build_ext):
    """Compile what changed, several files at a time, and link."""

    def build_extension(self, ext: Extension) -> None:
        """Write the shared library of one extension."""
        compiler = self.compiler.compiler_so_cxx
        flags = ["-std=c++20", "-fvisibility=hidden", "-Wall", "-Wextra"]
        if "CXX" not in os.environ and shutil.which("ccache"):
            compiler = ["ccache", *compiler]
            os.environ.setdefault("CCACHE_BASEDIR", str(Path.cwd()))
        if "BPE_WHEEL_TARGET" in os.environ:
            # Not the flags of this Python: all but the bindings is the same for every version.
            compiler = [compiler[0], "-fPIC", "-fwrapv", "-DNDEBUG"]
        # Not in build_temp, which an editable installation removes.
        objects = Path(self.get_finalized_command("build").build_base, "objects")
        units = [
            Unit(source, [*compiler, *flags, *flags_of(source)], objects)
            for source in map(Path, ext.sources)
        ]
        changed = [unit for unit in units if unit.is_outdated()]
        if changed:
            compile_units(changed, int(os.environ.get("BPE_BUILD_JOBS") or os.cpu_count() or 1))
        linked = copy.copy(ext)
        linked.sources = []
        linked.extra_objects = [str(unit.object) for unit in units]
        # Objects of other flags can be older than what was linked last.
        self.force = self.compiler.force = True
        super().build_extension(linked)


def flags_of(source: Path) -> list[str]:
    """Return the flags of one file; only those of the bindings find Python's headers."""
    if source != BINDINGS:
        return COMPILE_FLAGS
    paths = sysconfig.get_paths()
    folders = [str(NATIVE), pybind11.get_include(), paths["include"], paths["platinclude"]]
    return [*COMPILE_FLAGS, *(f"-I{folder}" for folder in dict.fromkeys(folders))]


class Unit:
    """One file to compile, and its object, which is kept apart from those of other commands."""

    def __init__(self, source: Path, command: Sequence[str], folder: Path) -> None:
        self.source = source
        self.command = command
        digest = hashlib.sha256("\0".join(command).encode()).hexdigest()
        self.object = (folder / digest[:16] / source.name).with_suffix(".o")
        self.dependencies = self.object.with_suffix(".d")

    def is_outdated(self) -> bool:
        """Return whether the object is missing or older than a file that it was made from."""
        try:
            made = self.object.stat().st_mtime_ns
            rule = self.dependencies.read_text().replace("\\\n", " ").partition(": ")[2]
            paths = [path.replace("\\ ", " ") for path in re.split(r"(?<!\\)\s+", rule.strip())]
            return any(Path(path).stat().st_mtime_ns > made for path in paths)
        except FileNotFoundError:
            return True

    def compile(self) -> str:
        """Write the object and return the compiler's warnings; raise CompileError."""
        began = time.time_ns()
        self.object.parent.mkdir(parents=True, exist_ok=True)
        # Another process may compile the same file.
        made = self.object.with_suffix(f".{os.getpid()}.o")
        dependencies = made.with_suffix(".d")
        done = subprocess.run(
            [*self.command, "-c", str(self.source), "-o", str(made), "-MD", "-MF", dependencies],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            print(done.stdout, flush=True)
            raise CompileError(f"{self.source} can't be compiled; the compiler's lines are above")
        # What is edited meanwhile is newer than the object.
        os.utime(made, ns=(began, began))
        dependencies.replace(self.dependencies)
        made.replace(self.object)
        return done.stdout


def compile_units(units: list[Unit], at_once: int) -> None:
    """Compile files, and show on a terminal how many are done."""
    units.sort(key=lambda unit: [unit.source.name != name for name in SLOWEST])
    files = f"{len(units)} file{'s'[: len(units) != 1]} of C++"
    print(f"compiling {files}, {at_once} at a time", flush=True)
    with ThreadPoolExecutor(at_once) as pool:
        compilations = [pool.submit(unit.compile) for unit in units]
        for done, compilation in enumerate(as_completed(compilations), 1):
            try:
                warnings = compilation.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            if warnings:
                print(warnings, flush=True)
            elif sys.stdout.isatty():
                end = "\n" if done == len(units) else "\r"
                print(f"compiled {done} of {len(units)}", end=end, flush=True)


class BundledWheel(bdist_wheel):
    """Build a wheel, and declare the distribution bpe-core in it if it contains both packages."""

    def write_wheelfile(self, wheelfile_base: str, *given: Any, **named: Any) -> None:
        """Write the file WHEEL, which is the last before the archive is made."""
        super().write_wheelfile(wheelfile_base, *given, **named)
        project = tomllib.loads(Path("pyproject.toml").read_text())
        core = project["tool"].get("bpe-core")
        # An editable installation also calls this, with another folder.
        if core and Path(wheelfile_base).parent == Path(self.bdist_dir):
            version = project["project"]["version"]
            info = f"{self.wheel_dist_name}.data/platlib/bpe_core-{version}.dist-info"
            folder = Path(wheelfile_base).parent / info
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "METADATA").write_text(core_metadata(project["project"], core))
            (folder / "INSTALLER").write_text("bpe-beam\n")
            # No RECORD: the files belong to bpe-beam, and installers refuse to replace or remove
            # a distribution without RECORD.


def core_metadata(project: dict[str, Any], core: dict[str, Any]) -> str:
    """Return the metadata of bpe-core, by which other packages find that it is installed."""
    lines = [
        "Metadata-Version: 2.1",
        "Name: bpe-core",
        f"Version: {project['version']}",
        f"Summary: {core['description']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [
        f"Requires-Dist: {requirement}"
        for requirement in project["dependencies"]
        if re.split(r"[^\w.-]", requirement)[0] in core["dependencies"]
    ]
    return "\n".join(lines) + "\n"


setup(
    ext_modules=[
        Extension(
            "bpe_core._native",
            sorted(map(str, [*NATIVE.glob("*.cpp"), BINDINGS])),
            # Of the source distribution; what an object depends on is known by its compiler.
            depends=sorted(map(str, [*NATIVE.glob("**/*.hpp"), *NATIVE.glob("bindings/*.cpp")])),
            extra_link_args=LINK_FLAGS,
            language="c++",
        )
    ],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": BundledWheel},
)
