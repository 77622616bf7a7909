"""Keys that sort rows into a pseudo-random order determined by a seed."""

from __future__ import annotations

from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

_GOLDEN_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)


def order_keys(seed: int, split: str, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the keys by which a shuffle sorts rows. Different numbers have different keys.

    The state of SplitMix64 starts at a hash of seed and split, and the key of number n is its n-th
    output. The step from state to output is a bijection.

    Source: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.

    Args:
        seed: Seed of the shuffle.
        split: Name of the split. Different splits have different keys.
        numbers: uint64[n].

    Returns:
        uint64[n].

    Example:
        >>> order_keys(0, "train", np.arange(5, dtype=np.uint64)).argsort().tolist()
        [3, 1, 0, 4, 2]
    """
    begin = np.uint64(xxhash.xxh3_64_intdigest(f"{seed}/{split}".encode()))
    with np.errstate(over="ignore"):
        keys = begin + (numbers + np.uint64(1)) * _GOLDEN_GAMMA
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
