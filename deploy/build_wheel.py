"""Build a wheel that installs on any system with glibc 2.28 or newer, without a container.

    python deploy/build_wheel.py [--arch x86_64|aarch64] [--dest dist]

Run it with a Python in which `requirements-wheel.txt` is installed, as `make wheel` does. The
compiler is clang from the package `ziglang`, which contains the headers and symbols of every glibc
and links its own C++ library statically. The wheel is for the Python that runs this script. Nothing
is executed if the wheel is for another architecture; symbols, architecture and tags are checked
for every architecture.
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
# System libraries that every Linux with glibc has.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libdl|libpthread|librt)\.so\.\d+|ld-linux[\w-]*\.so\.\d+"
)


def main() -> None:
    """Build one wheel and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arch", choices=sorted(ELF_MACHINES), default=platform.machine())
    parser.add_argument("--dest", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plain = build(given.arch, Path(scratch))
        check_library(plain, given.arch)
        print(retagged(plain, given.arch, given.dest))


def build(arch: str, scratch: Path) -> Path:
    """Compile for glibc 2.28 and return the wheel, which still has the tag of this system."""
    compiler = scratch / "c++"
    compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{COMPILER}" "$@"\n')
    compiler.chmod(0o755)
    python = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    environment = {
        **os.environ,
        "BPE_WHEEL_TARGET": "{}-linux-gnu.{}.{}".format(arch, *GLIBC),
        "CC": str(compiler),
        "CXX": str(compiler),
        # Overridden, because the default adds the paths of this Python's libraries.
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
    """Check that the compiled module is for this architecture and needs only an old glibc."""
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
    """Tag the wheel for glibc 2.28, check the tag with auditwheel, and move the wheel to `dest`."""
    tag = "manylinux_{}_{}_{}".format(*GLIBC, arch)
    run([sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, str(wheel)])
    [named] = wheel.parent.glob(f"*-{tag}.whl")
    shown = run([sys.executable, "-m", "auditwheel", "show", str(named)])
    found = re.search(rf'platform tag: +"manylinux_2_(\d+)_{arch}"', re.sub(r"\s+", " ", shown))
    require(found is not None and int(found[1]) <= GLIBC[1], f"is not a {tag} wheel: {shown}")
    dest.mkdir(parents=True, exist_ok=True)
    return Path(named).replace(dest / named.name)


def require(holds: bool, otherwise: str) -> None:
    """Exit with an error about the wheel unless the condition holds."""
    if not holds:
        sys.exit(f"The wheel {otherwise}")


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Run a command and return its output. If it fails, print the output and exit."""
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{command[2]} failed")
    return done.stdout


if __name__ == "__main__":
    main()
