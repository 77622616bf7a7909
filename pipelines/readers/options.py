"""Options for reading documents, and the errors of documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import xxhash

from bpe_core._native import Splitter
from pipelines.config.values import MAX_EXPANSION
from pipelines.errors import InputError
from pipelines.readers.selection import ALL, Selection

FieldPath = tuple[str, ...]
TokenFlags = tuple[tuple[str, tuple[str, ...]], ...]


class InvalidDocumentError(InputError):
    """A document is not valid UTF-8, and `invalid_utf8` is "error"."""


class LongDocumentError(InputError):
    """A long document cannot be cut within the memory limit."""


def hash_cutting_rules(
    regex: str,
    special_tokens: Sequence[str],
    token_flags: TokenFlags,
    normalizer: str | None,
    normalize_quotes: bool,
    *,
    after_special: bool = True,
) -> str:
    """Return the rules for cutting long documents as text: a hash for each attribute.

    Example:
        >>> one = hash_cutting_rules("[a-z]+", ["<|end|>", "<|pad|>"], (), None, False)
        >>> one == hash_cutting_rules("[a-z]+", ["<|pad|>", "<|end|>"], (), None, False)
        True
        >>> find_different_rules(one, hash_cutting_rules("[a-z]+", [], (), "nfc", False))
        ['special_tokens', 'normalizer']
    """
    rules = {
        "pattern": regex,
        "special_tokens": sorted(set(special_tokens)),
        "token_flags": token_flags,
        "normalizer": normalizer,
        "normalize_quotes": normalize_quotes,
        "after_special": after_special,
    }
    return " ".join(
        f"{name}:{xxhash.xxh3_64_hexdigest(json.dumps(value).encode())}"
        for name, value in rules.items()
    )


def find_different_rules(one: str, other: str) -> list[str]:
    """Return the attributes in which two results of `hash_cutting_rules` differ."""
    rules = dict(rule.split(":") for rule in one.split())
    others = dict(rule.split(":") for rule in other.split())
    return [name for name, value in rules.items() if others.get(name) != value]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """Rules for reading documents.

    Attributes:
        format: "text", "jsonl", "parquet" or "arrow".
        separator: separators between the documents of a text file. The leftmost match counts, at
            one offset the longest. A separator is not empty and cannot overlap itself or another
            one, unless it is one repeated byte. None: a file is one document.
        strip_bom: remove a byte-order mark at the start of a text file. At the start of a JSON
            lines file it is always removed.
        text_fields: paths of the fields of a record that contain the text; several are joined.
        join: bytes between the values of several fields.
        id_field: path of the field with the record's own id, or None.
        keep: paths of the fields of a record that token files keep as columns.
        kept: columns that token files keep of all sources; None if no columns are read.
        selection: rules for selecting documents. Selection comes first: a document that is not
            selected is neither rejected nor an error, except a record without readable text.
        max_documents: number of documents to read from the start of a range, including empty,
            rejected and not selected ones; None: all.
        invalid_utf8: "reject" (into `DocumentBatch.rejects`), "replace" (by U+FFFD, as Python's
            `errors="replace"` does) or "error".
        special_tokens: tokens that no cut may split.
        token_flags: their flags, of `bpe_core.special_tokens.TOKEN_FLAGS`; no cut may change which
            tokens are found by them.
        cut: long documents may be cut into chunks. False for patterns that have no known safe cut:
            documents are read completely.
        pattern: split pattern, which defines where they may be cut.
        splitter: what defines it instead of the pattern, for a tokenizer whose vocabulary does.
        after_special: documents may be cut between a special token and what follows it.
        normalizer, normalize_quotes: normalization that follows; documents are cut only where the
            normalized text can be cut too.
        cutting: identity of these cutting rules, from `hash_cutting_rules`.
        max_document_bytes: limit for everything held in memory as a whole: a document that cannot
            be cut, a line of JSON, the text of a record. Longer ones are rejected.
        max_expansion: limit of the text of a file, as a multiple of its stored size.
        read_bytes: number of bytes per read.
        piece_bytes: documents longer than this are cut into chunks of about this length.
        keep_readable: read the documents of a bad file (`BadFileError`) up to the fault, and
            reject the rest, instead of raising the error.
        expect_fields: raise InputError if the first thousand records of a JSON lines file all lack
            a field of the text.
    """

    format: Literal["text", "jsonl", "parquet", "arrow"] = "text"
    separator: bytes | tuple[bytes, ...] | None = None
    strip_bom: bool = False
    text_fields: tuple[FieldPath, ...] = (("text",),)
    join: bytes = b"\n"
    id_field: FieldPath | None = None
    keep: tuple[FieldPath, ...] = ()
    kept: pa.Schema | None = None
    selection: Selection = ALL
    max_documents: int | None = None
    invalid_utf8: Literal["reject", "replace", "error"] = "reject"
    special_tokens: tuple[bytes, ...] = ()
    token_flags: TokenFlags = ()
    cut: bool = True
    pattern: str = "gpt2"
    splitter: Splitter | None = None
    after_special: bool = True
    normalizer: str | None = None
    normalize_quotes: bool = False
    cutting: str = ""
    max_document_bytes: int = 1 << 30
    max_expansion: int = MAX_EXPANSION
    read_bytes: int = 2 << 20
    piece_bytes: int = 4 << 20
    keep_readable: bool = False
    expect_fields: bool = False

    @property
    def without_selection(self) -> ReadOptions:
        """Options that select all documents; with them, invalid UTF-8 is not an error."""
        policy: Literal["reject", "replace"] = (
            "replace" if self.invalid_utf8 == "replace" else "reject"
        )
        return replace(self, selection=ALL, invalid_utf8=policy)

    @property
    def longest_batched(self) -> int:
        """Length of the longest document that shares a batch with others."""
        return self.piece_bytes if self.cut else self.max_document_bytes
