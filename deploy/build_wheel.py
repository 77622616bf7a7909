"""Build the wheels of bpe-core, for one Python and platform, and of bpe-beam, without a container.

    python deploy/build_wheel.py [--target linux-x86_64] [--dest dist]

Run it with a Python in which `requirements-wheel.txt` is installed, as `make wheel` does. The
compiler is clang from the package `ziglang`, which contains the headers and symbols of every glibc
and of macOS, and links its own C++ library statically. The wheel of bpe-core is for the Python that
runs this script. Nothing is executed; symbols, architecture and tags are checked on every platform.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

from distributions import ROOT, write_trees
from elftools.elf.elffile import ELFFile
from macholib.mach_o import LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX
from macholib.MachO import MachO

COMPILER = Path(__file__).with_name("zig_compiler.py")
SCRATCH = ROOT / "out" / "wheels"
GLIBC = (2, 28)
MACOS = (11, 0)
# System libraries that every Linux with glibc has, and every macOS.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libdl|libpthread|librt)\.so\.\d+|ld-linux[\w-]*\.so\.\d+"
    r"|/usr/lib/libSystem\.B\.dylib"
)
# The calls of Python are found in the process that imports the module.
MACOS_LINKING = "-Wl,-undefined,dynamic_lookup"


@dataclass(frozen=True)
class Target:
    """A platform, in the words of Python, of wheels, of zig and of the linker's output."""

    platform: str
    tag: str
    zig: str
    suffix: str
    machine: str | int
    link: str = ""


def linux(arch: str, machine: str) -> Target:
    """Return a Linux with glibc."""
    version = ".".join(map(str, GLIBC))
    return Target(
        platform=f"linux-{arch}",
        tag="manylinux_{}_{}_{}".format(*GLIBC, arch),
        zig=f"{arch}-linux-gnu.{version}",
        suffix=f"{arch}-linux-gnu",
        machine=machine,
    )


def macos(arch: str, zig: str, machine: int) -> Target:
    """Return a macOS; `machine` is the CPU type of Mach-O."""
    version = ".".join(map(str, MACOS))
    return Target(
        platform=f"macosx-{version}-{arch}",
        tag="macosx_{}_{}_{}".format(*MACOS, arch),
        zig=f"{zig}-macos.{version}",
        suffix="darwin",
        machine=machine,
        link=MACOS_LINKING,
    )


TARGETS = {
    "linux-x86_64": linux("x86_64", "EM_X86_64"),
    "linux-aarch64": linux("aarch64", "EM_AARCH64"),
    "macos-arm64": macos("arm64", "aarch64", 0x0100000C),
    "macos-x86_64": macos("x86_64", "x86_64", 0x01000007),
}


def main() -> None:
    """Build both wheels and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = f"linux-{platform.machine()}"
    parser.add_argument("--target", choices=sorted(TARGETS), default=default)
    parser.add_argument("--dest", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    core, beam = write_trees(SCRATCH)
    given.dest.mkdir(parents=True, exist_ok=True)
    for wheel in (build_core(core, TARGETS[given.target]), build(beam, {}, SCRATCH / "pure")):
        print(shutil.move(wheel, given.dest / wheel.name))


def build_core(tree: Path, target: Target) -> Path:
    """Compile bpe-core for a platform, check the library, and return the wheel with its tag."""
    scratch = SCRATCH / target.tag
    scratch.mkdir(parents=True, exist_ok=True)
    # At the same path each time: an object is compiled again if its command changes.
    compiler = scratch / "c++"
    compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{COMPILER}" "$@"\n')
    compiler.chmod(0o755)
    python = "-".join(str(sysconfig.get_config_var("SOABI")).split("-")[:2])
    variables = {
        "BPE_WHEEL_TARGET": target.zig,
        "CC": str(compiler),
        "CXX": str(compiler),
        # Overridden, because the default adds the paths of this Python's libraries.
        "LDSHARED": f"{compiler} -shared {target.link}",
        "LDCXXSHARED": f"{compiler} -shared {target.link}",
        "SETUPTOOLS_EXT_SUFFIX": f".{python}-{target.suffix}.so",
        "_PYTHON_HOST_PLATFORM": target.platform,
    }
    wheel = build(tree, variables, scratch)
    library = extract_library(wheel, scratch)
    check = check_macos_library if target.link else check_linux_library
    check(library, target)
    run([sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", target.tag, wheel])
    [named] = scratch.glob(f"*-{target.tag}.whl")
    if not target.link:
        check_with_auditwheel(named, target)
    return named


def build(tree: Path, variables: dict[str, str], scratch: Path) -> Path:
    """Build the wheel of a source tree and return its path; objects are kept in `scratch`."""
    wheels = scratch.glob("*.whl")
    # Modules that were removed from the tree would stay in the wheel.
    for left in [*wheels, *scratch.glob("build/lib*"), *scratch.glob("build/bdist*")]:
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    where = ["--outdir", scratch, "-C--build-option=build", f"-C--build-option=-b{scratch}/build"]
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", *where, tree]
    run(command, {**os.environ, **variables})
    [wheel] = scratch.glob("*.whl")
    return wheel


def extract_library(wheel: Path, scratch: Path) -> Path:
    """Extract the one compiled module of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".so")]
        return Path(archive.extract(name, scratch / "library"))


def check_linux_library(path: Path, target: Target) -> None:
    """Check that a compiled module is for this architecture and needs only an old glibc."""
    with path.open("rb") as file:
        library = ELFFile(file)
        machine = library["e_machine"]
        tags = list(library.get_section_by_name(".dynamic").iter_tags())
        needed = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
        paths = [tag for tag in tags if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")]
        symbols = library.get_section_by_name(".gnu.version_r").iter_versions()
        versions = {found.name for _, of_it in symbols for found in of_it}
    check_contents(machine, needed, target)
    require(not paths, "looks for libraries in a directory of this machine")
    newest = max(tuple(map(int, version.removeprefix("GLIBC_").split("."))) for version in versions)
    require(newest <= GLIBC, f"needs glibc {newest}")


def check_macos_library(path: Path, target: Target) -> None:
    """Check that a compiled module is for this architecture and for an old macOS."""
    [header] = MachO(str(path)).headers
    needed = [name for _, _, name in header.walkRelocatables()]
    check_contents(header.header.cputype, needed, target)
    [oldest] = [
        getattr(command, "minos", None) or command.version
        for load, command, _ in header.commands
        if load.cmd in (LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX)
    ]
    version = (oldest >> 16, (oldest >> 8) & 0xFF)
    require(version <= MACOS, f"needs macOS {version}")


def check_contents(machine: object, needed: list[str], target: Target) -> None:
    """Check the architecture of a compiled module and the libraries that it needs."""
    others = [name for name in needed if not SYSTEM_LIBRARIES.fullmatch(name)]
    require(machine == target.machine, f"is for {machine}, not for {target.platform}")
    require(not others, f"needs libraries that a system may not have: {others}")


def check_with_auditwheel(wheel: Path, target: Target) -> None:
    """Check the tag of a wheel for Linux."""
    shown = re.sub(r"\s+", " ", run([sys.executable, "-m", "auditwheel", "show", wheel]))
    arch = target.platform.removeprefix("linux-")
    found = re.search(rf'platform tag: +"manylinux_2_(\d+)_{arch}"', shown)
    require(found is not None and int(found[1]) <= GLIBC[1], f"is not {target.tag}: {shown}")


def require(holds: bool, otherwise: str) -> None:
    """Exit with an error about the wheel unless the condition holds."""
    if not holds:
        sys.exit(f"The wheel {otherwise}")


def run(command: list[str | Path], environment: dict[str, str] | None = None) -> str:
    """Run a command and return its output. If it fails, print the output and exit."""
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{command[2]} failed")
    return done.stdout


if __name__ == "__main__":
    main()
