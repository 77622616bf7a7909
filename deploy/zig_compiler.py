"""Stands for a C++ compiler whose programs run with glibc 2.28 and newer: clang, from `ziglang`.

`build_wheel.py` names it in CC and CXX, and what it compiles for in BPE_WHEEL_TARGET.
"""

from __future__ import annotations

import os
import sys

# Python was built with another compiler; these options of its are unknown to this one.
_OF_OTHER_COMPILERS = ("-fno-semantic-interposition", "-Wl,--exclude-libs")

arguments = [item for item in sys.argv[1:] if not item.startswith(_OF_OTHER_COMPILERS)]
target = os.environ["BPE_WHEEL_TARGET"]
compiler = [sys.executable, "-m", "ziglang", "c++", "-target", target, "-s"]
os.execv(sys.executable, [*compiler, *arguments])
