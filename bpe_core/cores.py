"""The number of cores to use."""

from __future__ import annotations

import os

__all__ = ["check_num_threads", "usable_cores"]


def check_num_threads(num_threads: int) -> None:
    """Raise ValueError if a number of threads is negative; 0 means all cores."""
    if num_threads < 0:
        raise ValueError(f"num_threads: expected 0 (all cores) or more, found {num_threads}")


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
