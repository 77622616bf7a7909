"""A wrapper of the clang in `ziglang`, whose output runs on old versions of the system, too.

`build_wheel.py` sets CC and CXX to this wrapper, and BPE_WHEEL_TARGET to the target.
"""

from __future__ import annotations

import os
import sys

# Python passes options of the compiler that it was built with; clang does not know these.
_OF_OTHER_COMPILERS = ("-fno-semantic-interposition", "-Wl,--exclude-libs")

arguments = [item for item in sys.argv[1:] if not item.startswith(_OF_OTHER_COMPILERS)]
target = os.environ["BPE_WHEEL_TARGET"]
compiler = [sys.executable, "-m", "ziglang", "c++", "-target", target, "-s"]
if "macos" in target:
    # Defined in Python's headers for macOS; those of Linux hide what is not POSIX.
    compiler.append("-D_DARWIN_C_SOURCE=1")
os.execv(sys.executable, [*compiler, *arguments])
