"""How documents are read, and what may be wrong with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import xxhash

from pipelines.errors import InputError
from pipelines.readers.selection import ALL, Selection

FieldPath = tuple[str, ...]


class InvalidDocumentError(InputError):
    """A document is not valid UTF-8, and `invalid_utf8` is "error"."""


class LongDocumentError(InputError):
    """A long document has no place where it can be cut."""


def cutting_of(
    regex: str, special_tokens: Sequence[str], normalizer: str | None, normalize_quotes: bool
) -> str:
    """What long documents are cut by: a hash for each of the attributes that decide it.

    Example:
        >>> one = cutting_of("[a-z]+", ["<|end|>", "<|pad|>"], None, False)
        >>> one == cutting_of("[a-z]+", ["<|pad|>", "<|end|>"], None, False)
        True
        >>> different_cutting(one, cutting_of("[a-z]+", [], "nfc", False))
        ['special_tokens', 'normalizer']
    """
    rules = {
        "pattern": regex,
        "special_tokens": sorted(set(special_tokens)),
        "normalizer": normalizer,
        "normalize_quotes": normalize_quotes,
    }
    return " ".join(
        f"{name}:{xxhash.xxh3_64_hexdigest(json.dumps(value).encode())}"
        for name, value in rules.items()
    )


def different_cutting(one: str, other: str) -> list[str]:
    """The attributes in which two texts of `cutting_of` differ."""
    rules = dict(rule.split(":") for rule in one.split())
    others = dict(rule.split(":") for rule in other.split())
    return [name for name, value in rules.items() if others.get(name) != value]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """How documents are read.

    Attributes:
        format: "text", "jsonl", "parquet" or "arrow".
        separator: of text, what separates documents; of several the leftmost counts, at one place
            the longest. None is empty, and none can overlap itself or another, unless it is one
            byte repeated. None: a file is one document.
        strip_bom: whether a byte-order mark at the start of a text file is left out. At the start
            of a JSON lines file it always is.
        text_fields: of records, the paths of the fields that are the text; several are joined.
        join: what stands between the values of several fields.
        id_field: of records, the path of the field that is the record's own id; None: none is.
        selection: which documents are taken. It comes before any judgement: what is not taken is
            neither rejected nor an error, except records whose text can't be read.
        max_documents: the first of a range, as many as that; None: all. Counted before the
            selection, with empty and rejected ones.
        invalid_utf8: "reject" (into `DocumentBatch.rejects`), "replace" (by U+FFFD, as Python's
            `errors="replace"` does) or "error".
        special_tokens: no piece of a document begins or ends inside one.
        cut: whether long documents may be cut into pieces. False for the pattern `none` and for
            custom patterns, which have no known safe place: documents are read whole.
        cut_before_white_space: whether they are cut nowhere else, as white-space words need it.
        normalizer, normalize_quotes: what text will go through; documents are cut only where the
            normalized text can be cut too.
        cutting: what tells these rules of cutting from others, as `cutting_of` gives it.
        max_document_bytes: limit of what is held as a whole: a document that can't be cut, a line
            of JSON, the text of a record. What is longer is rejected.
        read_bytes: how much is read at once.
        piece_bytes: documents longer than this are cut into pieces of about this length.
        keep_readable: of a bad file (`BadFileError`), whether the documents are given that can be
            read, and what is wrong with the rest as a reject.
    """

    format: Literal["text", "jsonl", "parquet", "arrow"] = "text"
    separator: bytes | tuple[bytes, ...] | None = None
    strip_bom: bool = False
    text_fields: tuple[FieldPath, ...] = (("text",),)
    join: bytes = b"\n"
    id_field: FieldPath | None = None
    selection: Selection = ALL
    max_documents: int | None = None
    invalid_utf8: Literal["reject", "replace", "error"] = "reject"
    special_tokens: tuple[bytes, ...] = ()
    cut: bool = True
    cut_before_white_space: bool = False
    normalizer: str | None = None
    normalize_quotes: bool = False
    cutting: str = ""
    max_document_bytes: int = 1 << 30
    read_bytes: int = 2 << 20
    piece_bytes: int = 4 << 20
    keep_readable: bool = False

    @property
    def of_all(self) -> ReadOptions:
        """The same without a selection; what this leaves out is no error."""
        policy: Literal["reject", "replace"] = (
            "replace" if self.invalid_utf8 == "replace" else "reject"
        )
        return replace(self, selection=ALL, invalid_utf8=policy)

    @property
    def longest_common(self) -> int:
        """The length of a document beyond which it is no part of a common batch."""
        return self.piece_bytes if self.cut else self.max_document_bytes
