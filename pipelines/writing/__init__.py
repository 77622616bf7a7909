"""Writing: a task → its token files, its rejects and an entry."""

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
