"""A wrapper of the clang in `ziglang`, whose output runs with glibc 2.28 and newer.

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
os.execv(sys.executable, [*compiler, *arguments])
