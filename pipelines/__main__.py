"""Entry point of `python -m pipelines`, the same command as `beam-bpe`."""

from __future__ import annotations

from pipelines.cli import main

if __name__ == "__main__":
    main()
