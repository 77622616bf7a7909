"""Tasks: input files, cut into ranges, grouped into units of work."""

from pipelines.tasks.listing import InputFile, NoInputError, compression_of, list_files
from pipelines.tasks.plan import (
    COLUMN_FORMATS,
    Plan,
    Range,
    Task,
    is_splittable,
    plan_id,
    plan_tasks,
)

__all__ = [
    "COLUMN_FORMATS",
    "InputFile",
    "NoInputError",
    "Plan",
    "Range",
    "Task",
    "compression_of",
    "is_splittable",
    "list_files",
    "plan_id",
    "plan_tasks",
]
