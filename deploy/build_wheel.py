"""Builds a wheel that installs wherever glibc is 2.28 or newer, without a container.

    python deploy/build_wheel.py [--arch x86_64|aarch64] [--dest dist]

To be run with a Python that has `requirements-wheel.txt`; `make wheel` does so. The compiler is
clang from the package `ziglang`, which has the headers and symbols of every glibc and links its
own C++ library in. The wheel is for the Python that runs this. For another architecture than this
machine's nothing is run: symbols, architecture and tags are checked all the same.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).parents[1]
COMPILER = Path(__file__).with_name("zig_compiler.py")
GLIBC = (2, 28)
ELF_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
# Of the system, on every Linux with glibc.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libdl|libpthread|librt)\.so\.\d+|ld-linux[\w-]*\.so\.\d+"
)


def main() -> None:
    """Builds one wheel and prints its path."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arch", choices=sorted(ELF_MACHINES), default=platform.machine())
    parser.add_argument("--dest", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plain = build(given.arch, Path(scratch))
        check_library(plain, given.arch)
        print(retagged(plain, given.arch, given.dest))


def build(arch: str, scratch: Path) -> Path:
    """A wheel with the tag of this system; compiled for glibc 2.28."""
    compiler = scratch / "c++"
    compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{COMPILER}" "$@"\n')
    compiler.chmod(0o755)
    python = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    environment = {
        **os.environ,
        "BPE_WHEEL_TARGET": "{}-linux-gnu.{}.{}".format(arch, *GLIBC),
        "CC": str(compiler),
        "CXX": str(compiler),
        # Without the paths of this Python's own libraries.
        "LDSHARED": f"{compiler} -shared",
        "LDCXXSHARED": f"{compiler} -shared",
        "SETUPTOOLS_EXT_SUFFIX": f".{python}-{arch}-linux-gnu.so",
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
    }
    where = ["--outdir", str(scratch), "-C--build-option=build", f"-C--build-option=-b{scratch}/b"]
    run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", *where, str(ROOT)], environment
    )
    [wheel] = scratch.glob("*.whl")
    return wheel


def check_library(wheel: Path, arch: str) -> None:
    """The compiled module is for this architecture and needs nothing but an old glibc."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".so")]
        with archive.open(name) as file:
            library = ELFFile(file)
            machine = library["e_machine"]
            tags = list(library.get_section_by_name(".dynamic").iter_tags())
            needed = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
            paths = [tag for tag in tags if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")]
            symbols = library.get_section_by_name(".gnu.version_r").iter_versions()
            versions = {found.name for _, of_it in symbols for found in of_it}
    others = [name for name in needed if not SYSTEM_LIBRARIES.fullmatch(name)]
    require(machine == ELF_MACHINES[arch], f"is for {machine}, not for {arch}")
    require(not others, f"needs libraries that a system may not have: {others}")
    require(not paths, "looks for libraries in a directory of this machine")
    newest = max(tuple(map(int, version.removeprefix("GLIBC_").split("."))) for version in versions)
    require(newest <= GLIBC, f"needs glibc {newest}")


def retagged(wheel: Path, arch: str, dest: Path) -> Path:
    """The wheel under the tag of glibc 2.28, in `dest`; auditwheel must agree with the tag."""
    tag = "manylinux_{}_{}_{}".format(*GLIBC, arch)
    run([sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, str(wheel)])
    [named] = wheel.parent.glob(f"*-{tag}.whl")
    shown = run([sys.executable, "-m", "auditwheel", "show", str(named)])
    found = re.search(rf'platform tag: +"manylinux_2_(\d+)_{arch}"', re.sub(r"\s+", " ", shown))
    require(found is not None and int(found[1]) <= GLIBC[1], f"is no {tag}: {shown}")
    dest.mkdir(parents=True, exist_ok=True)
    return Path(named).replace(dest / named.name)


def require(holds: bool, otherwise: str) -> None:
    """Ends the program if what was built is not what it should be."""
    if not holds:
        sys.exit(f"The wheel {otherwise}")


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a command prints; shown, with its errors, if it fails."""
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{command[2]} failed")
    return done.stdout


if __name__ == "__main__":
    main()
