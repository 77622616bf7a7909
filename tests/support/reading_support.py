"""Files with separators and their documents, for tests of readers."""

from __future__ import annotations

from pathlib import Path

from build_support import input_file
from hypothesis import strategies as st

from bpe_core import reference
from pipelines.tasks.listing import InputFile

SEPARATORS = [b"\n", b"\n\n", b"|", b"<|endoftext|>", "§é".encode()]
SEVERAL = [
    (b"\n", b"\r\n"),
    (b"ab", b"abc", b"xabcy", b"de"),
    (b"||", b"|||", b"<"),
    (b"\n\n", b"=="),
    (b"<|a|>", b"<|b|>", b"|"),
]
SPECIALS = (b"<|a|>", b"<|a|>b", b"b c")
BOM = b"\xef\xbb\xbf"


def make_file(folder: Path, stored: bytes, compression: str | None = None) -> InputFile:
    return input_file(folder / "file", stored, compression, "web")


def expected_documents(
    data: bytes, separator: bytes | tuple[bytes, ...] | None, strip_bom: bool
) -> list[tuple[int, bytes]]:
    """Return offset and text of every document, including empty ones, by plain rules."""
    offset = origin = len(BOM) if strip_bom and data.startswith(BOM) else 0
    data = data[offset:]
    if separator is None:
        return [(offset, data)] if data else []
    documents = []
    separators = (separator,) if isinstance(separator, bytes) else separator
    for text in reference.split_documents(data, separators):
        documents.append((offset, text))
        offset += len(text)
        longest = max(
            (s for s in separators if data.startswith(s, offset - origin)), key=len, default=b""
        )
        offset += len(longest)
    return documents


def file_contents(separator: bytes | tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Return files full of separators, parts of them, special tokens, letters and invalid bytes."""
    separators = (separator,) if isinstance(separator, bytes) else separator
    parts = [
        *separators,
        *separators,
        *[part for s in separators for part in (s[:1], s[-1:], s[:-1])],
        *SPECIALS,
        b"a",
        b" ",
        b"word by word ",
        b"abc'def ",
        "é".encode(),
        "e\u0301 ".encode(),
        "中".encode(),
    ]
    return st.tuples(
        st.sampled_from([b"", BOM, BOM[:2]]),
        st.lists(st.sampled_from(parts), max_size=30),
        st.lists(st.sampled_from([*parts, b"\xff", b"\xe4\xb8"]), max_size=8),
    ).map(lambda lists: lists[0] + b"".join([*lists[1], *lists[2]]))


cases = st.sampled_from(SEPARATORS).flatmap(
    lambda separator: st.tuples(st.just(separator), file_contents(separator))
)

several_cases = st.sampled_from(SEVERAL).flatmap(
    lambda separators: st.tuples(st.just(separators), file_contents(separators))
)
