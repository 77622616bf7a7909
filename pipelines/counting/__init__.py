"""Counting: tasks or documents → sorted runs → shards of counts.

Counts go through files, not through a Beam shuffle, which the local runner keeps in memory: tables
and runs bound the memory, and only small descriptors are shuffled.

`table` counts the groups of a corpus into runs; `commits` makes repeating the tasks of a build
safe; `documents` counts the documents of a user's pipeline; `shards` checks and merges the runs of
both. `given` opens finished counts, wherever they are; `load` reads them for training, and
`training` learns from them; `algebra` combines them.
"""

from pipelines.counting.commits import (
    Commit,
    TaskCounter,
    count_tasks,
    merge_commits,
    read_commit,
    usable_commits,
)
from pipelines.counting.jobs import CountJob, CountRules, Section
from pipelines.counting.load import load_counts
from pipelines.counting.shard_files import shard_name
from pipelines.counting.shards import merge_shard, write_shard
from pipelines.counting.table import PretokenCounter

__all__ = [
    "Commit",
    "CountJob",
    "CountRules",
    "PretokenCounter",
    "Section",
    "TaskCounter",
    "count_tasks",
    "load_counts",
    "merge_commits",
    "merge_shard",
    "read_commit",
    "shard_name",
    "usable_commits",
    "write_shard",
]
