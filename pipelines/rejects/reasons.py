"""Reasons for rejecting a document or the rest of a file: the column `reason` of reject files.

A fault of a file is a `BadFileError` (`pipelines.errors`). With `input.max_bad_files` above 0 it
becomes a reject for the unreadable rest of the range, which is not a document: it only adds its
file to `bad_files`, a union over ranges, tasks and bundles. A failing storage is nobody's fault and
ends the build.
"""

from __future__ import annotations

from typing import Final

from pipelines.errors import CHANGED_FILE, DAMAGED_FILE, UNREADABLE_FILE, VANISHED_FILE

INVALID_UTF8: Final = "invalid_utf8"
MALFORMED_JSON: Final = "malformed_json"
MISSING_FIELD: Final = "missing_field"
NULL_FIELD: Final = "null_field"
WRONG_FIELD_TYPE: Final = "wrong_field_type"
TOO_LONG: Final = "too_long"
SPECIAL_TOKEN: Final = "special_token"

# Rejects with these reasons stand for the unreadable rest of a file; they are not documents.
REASONS_OF_FILES: Final = frozenset({DAMAGED_FILE, VANISHED_FILE, CHANGED_FILE, UNREADABLE_FILE})
REASONS: Final = {
    INVALID_UTF8: "the text is not valid UTF-8, and `input.invalid_utf8` is `reject`",
    MALFORMED_JSON: "a line of a JSON lines file is not a JSON object",
    MISSING_FIELD: "a record lacks a field of `input.text_field`",
    NULL_FIELD: "a field of `input.text_field` is null",
    WRONG_FIELD_TYPE: "in a JSON lines file, a field of `input.text_field` is not text, or the "
    "field of `input.id_field` is neither text nor an integer",
    TOO_LONG: "a line, the text of a record, or a document that cannot be read in chunks is longer "
    "than `input.max_document_bytes`",
    SPECIAL_TOKEN: "the text contains a special token, and `encode.special_tokens_in_text` is "
    "`reject`",
    DAMAGED_FILE: "the rest of a file is corrupt, truncated, or lacks a column; in Parquet files "
    "also a single row group",
    VANISHED_FILE: "a file no longer exists when it is read",
    CHANGED_FILE: "the size, modification time or ETag of a file differs from the plan",
    UNREADABLE_FILE: "permission to read a file is denied",
}
