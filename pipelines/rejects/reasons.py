"""Why a document, or the rest of a file, is rejected: the column `reason` in files of rejects."""

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

# Such a reject stands for what could not be read of a file: it is no document.
REASONS_OF_FILES: Final = frozenset({DAMAGED_FILE, VANISHED_FILE, CHANGED_FILE, UNREADABLE_FILE})
REASONS: Final = {
    INVALID_UTF8: "the text is not valid UTF-8, and `input.invalid_utf8` is `reject`",
    MALFORMED_JSON: "a line of a JSON lines file is no JSON object",
    MISSING_FIELD: "a record lacks a field of `input.text_field`",
    NULL_FIELD: "a field of `input.text_field` is null in a record",
    WRONG_FIELD_TYPE: "a field of `input.text_field` is no text, or the field of `input.id_field` "
    "neither text nor a whole number, in a line of a JSON lines file",
    TOO_LONG: "a line, the text of a record, or a document that can't be read in pieces is longer "
    "than `input.max_document_bytes`",
    SPECIAL_TOKEN: "the text holds a special token, and `encode.special_tokens_in_text` is "
    "`reject`",
    DAMAGED_FILE: "a file is corrupt, cut short, or lacks a column, from there on; of Parquet also "
    "a row group of it",
    VANISHED_FILE: "a file was gone when it was to be read",
    CHANGED_FILE: "a file's size, modification time or ETag was another than when the work was "
    "planned",
    UNREADABLE_FILE: "a file may not be read",
}
