"""Names of the files of a dataset."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Final

MANIFEST: Final = "manifest.json"
RUN: Final = "run.json"
PLAN: Final = "_plan.json"
# The effective configuration, at the root of an output.
CONFIGURATION: Final = "configuration.json"
# A page about the dataset, there too; it contains times and paths.
REPORT: Final = "report.html"

# The generation that a dataset begins with; those that follow are add001, add002, ….
BASE: Final = "base"

# Smaller tokenizers of the same training, in a directory for each size below `tokenizer/`.
SIZES: Final = "sizes"

TOKEN_FILE: Final = re.compile(r"(train|validation)-(add\d{3,}-)?\d{5,}-of-\d{5,}\.parquet")
STATISTICS_FILE: Final = re.compile(r"statistics(-add\d{3,})?\.parquet")
# A cache in `tokens/`, which `beam-bpe explain` writes.
DOCUMENT_FREQUENCY: Final = "_documents.parquet"
# Scratch, in a directory for each plan below these: sorted runs and commits of counting, and
# entries of encoded tasks.
RUNS: Final = "_runs"
ENTRIES: Final = "_tasks"
RUN_FILE: Final = re.compile(r"run-[0-9a-f]{32}\.bin")
# Below counts/: an update until it takes the place of the former counts.
SHARD_FILE: Final = re.compile(r"shard-\d{5,}-of-(\d{5,})\.parquet")
UPDATE: Final = "_update"
# Beside the runs of a plan that are kept: the tasks of each file.
KEPT_FILES: Final = "files.json"
# What workers note until a stage is finished, by paths below counts/_runs and tokens/_tasks.
_PLAN: Final = r"[0-9a-f]{32}"
COMMIT_FILE: Final = re.compile(r"commit-[0-9a-f]{32}\.json")
RUN_FILES: Final = (
    rf"{_PLAN}/({RUN_FILE.pattern}|{COMMIT_FILE.pattern}|"
    r"files\.json|shard-\d{5,}-of-\d{5,}\.parquet\.json|count-\d{5,}-of-\d{5,}\.parquet)"
)
UPDATE_FILES: Final = (
    r"((added|new|removed-\d+)/shard-\d{5,}-of-\d{5,}\.parquet)|manifest\.json|_plan\.json"
)
ENTRY_FILE: Final = re.compile(r"\d{5,}-of-\d{5,}\.json")
ENTRY_FILES: Final = rf"{_PLAN}/\d{{5,}}-of-\d{{5,}}\.(json|(statistics|taken|carried)\.parquet)"

REJECT_FILE: Final = re.compile(r"(add\d{3,}-)?\d{5,}-of-\d{5,}\.parquet")


def token_file_name(split: str, index: int, of: int, generation: str = BASE) -> str:
    """Return the name of a task's token file.

    >>> token_file_name("train", 12, 480), token_file_name("train", 0, 7, "add001")
    ('train-00012-of-00480.parquet', 'train-add001-00000-of-00007.parquet')
    """
    return f"{split}-{task_name(index, of, generation)}.parquet"


def task_name(index: int, of: int, generation: str = BASE) -> str:
    """Return the part of file names that identifies a task.

    >>> task_name(12, 480), task_name(0, 7, "add001")
    ('00012-of-00480', 'add001-00000-of-00007')
    """
    prefix = "" if generation == BASE else f"{generation}-"
    return f"{prefix}{index:05d}-of-{of:05d}"


def new_run_name() -> str:
    """Return a name for a sorted run that no other attempt, repeated or not, uses."""
    return f"run-{secrets.token_hex(16)}.bin"


def statistics_file_name(generation: str = BASE) -> str:
    """Return the name of a generation's file of statistics.

    >>> statistics_file_name(), statistics_file_name("add001")
    ('statistics.parquet', 'statistics-add001.parquet')
    """
    return "statistics.parquet" if generation == BASE else f"statistics-{generation}.parquet"


def source_name(label: str, names: Sequence[str | None]) -> str | None:
    """Return the name of the configured source in a label, or None if the source has no name.

    >>> source_name("books/a/b.txt", ["web", "books"]), source_name("a/b.txt", [None])
    ('books', None)
    """
    name = label.partition("/")[0]
    return name if name in names else None
