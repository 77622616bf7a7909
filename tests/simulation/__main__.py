"""Simulate whole builds, each from a seed: `python tests/simulation --seconds 600 --seed 1`.

It is a program of its own, because the commands run in forks: a process that has started gRPC, as
Beam does, cannot be forked.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

# For the imports below.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from episode import run_episode  # noqa: E402
from inline_runner import inline_runner  # noqa: E402


def main() -> None:
    """Run episodes until the time is over. Show seeds that fail, and what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0, help="go on for this long")
    parser.add_argument("--episodes", type=int, default=1, help="at least this many")
    parser.add_argument("--seed", type=int, default=1, help="of the first episode")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    ends: Counter[tuple[str, str]] = Counter()
    failed, commands = [], 0
    for seed in itertools.count(given.seed):
        with tempfile.TemporaryDirectory() as folder, inline_runner():
            try:
                outcomes = run_episode(seed, Path(folder).resolve() / "episode")
            except Exception:
                traceback.print_exc()
                print(f"repeat: .venv/bin/python tests/simulation --seed {seed}", file=sys.stderr)
                failed.append(seed)
            else:
                ends += outcomes.ends
                commands += outcomes.commands
        if time.monotonic() >= end and seed + 1 >= given.seed + given.episodes:
            break
    print(f"{seed - given.seed + 1} episodes from seed {given.seed}, {commands} commands")
    for (kind, how), number in sorted(ends.items()):
        print(f"{number:6}  {kind}: {how}")
    if failed:
        sys.exit(f"failed: seeds {', '.join(map(str, failed))}")


if __name__ == "__main__":
    main()
