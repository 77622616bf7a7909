"""Counting: tasks → sorted runs and commits → shards of counts."""

from pipelines.counting.commits import (
    Commit,
    TaskCounter,
    count_tasks,
    read_commit,
    usable_commits,
)
from pipelines.counting.jobs import CountJob, Section
from pipelines.counting.load import load_counts
from pipelines.counting.shards import merge_shard, shard_name, write_shard
from pipelines.counting.table import PretokenCounter

__all__ = [
    "Commit",
    "CountJob",
    "PretokenCounter",
    "Section",
    "TaskCounter",
    "count_tasks",
    "load_counts",
    "merge_shard",
    "read_commit",
    "shard_name",
    "usable_commits",
    "write_shard",
]
