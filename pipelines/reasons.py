"""Why a document is rejected: the values of the column `reason` in the files of rejects."""

from __future__ import annotations

from typing import Final

INVALID_UTF8: Final = "invalid_utf8"
MALFORMED_JSON: Final = "malformed_json"
MISSING_FIELD: Final = "missing_field"
NULL_FIELD: Final = "null_field"
WRONG_FIELD_TYPE: Final = "wrong_field_type"
TOO_LONG: Final = "too_long"
SPECIAL_TOKEN: Final = "special_token"

REASONS: Final = {
    INVALID_UTF8: "the text is not valid UTF-8, and `input.invalid_utf8` is `reject`",
    MALFORMED_JSON: "a line of a JSON lines file is no JSON object",
    MISSING_FIELD: "a record lacks a field of `input.text_field`",
    NULL_FIELD: "a field of `input.text_field` is null in a record",
    WRONG_FIELD_TYPE: "a field of `input.text_field` is no text, or the field of `input.id_field` "
    "neither text nor a whole number, in a line of a JSON lines file",
    TOO_LONG: "a line, or the text of a record, is longer than `input.max_document_bytes`",
    SPECIAL_TOKEN: "the text holds a special token, and `encode.special_tokens_in_text` is "
    "`reject`",
}
