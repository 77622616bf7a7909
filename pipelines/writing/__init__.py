"""Writing: a task → its token files, its rejects and its entry; token rows → token files.

`encoder` turns batches into rows, `token_file` writes rows to a file, `tasks` writes the files of a
task, `content` makes the manifest's part for all tasks. `token_order`, `token_runs` and
`token_shards` write the files of a user's pipeline, which has no tasks.
"""

from pipelines.writing.content import tokens_content, write_merged_statistics
from pipelines.writing.encoder import DocumentEncoder, load_tokenizer
from pipelines.writing.jobs import EncodeJob
from pipelines.writing.rows import TokenRows
from pipelines.writing.tasks import finished_entries, write_task
from pipelines.writing.token_file import TokenFile

__all__ = [
    "DocumentEncoder",
    "EncodeJob",
    "TokenFile",
    "TokenRows",
    "finished_entries",
    "load_tokenizer",
    "tokens_content",
    "write_merged_statistics",
    "write_task",
]
