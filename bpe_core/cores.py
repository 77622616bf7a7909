"""How many cores there are to use."""

from __future__ import annotations

import os

__all__ = ["check_num_threads", "usable_cores"]


def check_num_threads(num_threads: int) -> None:
    """Refuses a negative number of threads.

    Raises:
        ValueError: it is neither 0, for all cores, nor above.
    """
    if num_threads < 0:
        raise ValueError(f"num_threads: expected 0 (all cores) or more, found {num_threads}")


def usable_cores() -> int:
    """The number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
