"""Names of the files of a dataset."""

from __future__ import annotations

import re
from typing import Final

# The generation that a dataset begins with; those that follow are add001, add002, ….
BASE: Final = "base"

TOKEN_FILE: Final = re.compile(r"(train|validation)-(add\d{3,}-)?\d{5,}-of-\d{5,}\.parquet")
STATISTICS_FILE: Final = re.compile(r"statistics(-add\d{3,})?\.parquet")
REJECT_FILE: Final = re.compile(r"(add\d{3,}-)?\d{5,}-of-\d{5,}\.parquet")


def token_file_name(split: str, index: int, of: int, generation: str = BASE) -> str:
    """The token file of a task.

    >>> token_file_name("train", 12, 480), token_file_name("train", 0, 7, "add001")
    ('train-00012-of-00480.parquet', 'train-add001-00000-of-00007.parquet')
    """
    return f"{split}-{task_name(index, of, generation)}.parquet"


def task_name(index: int, of: int, generation: str = BASE) -> str:
    """A task in the names of its files.

    >>> task_name(12, 480), task_name(0, 7, "add001")
    ('00012-of-00480', 'add001-00000-of-00007')
    """
    prefix = "" if generation == BASE else f"{generation}-"
    return f"{prefix}{index:05d}-of-{of:05d}"


def statistics_file_name(generation: str = BASE) -> str:
    """The statistics of a generation.

    >>> statistics_file_name(), statistics_file_name("add001")
    ('statistics.parquet', 'statistics-add001.parquet')
    """
    return "statistics.parquet" if generation == BASE else f"statistics-{generation}.parquet"
