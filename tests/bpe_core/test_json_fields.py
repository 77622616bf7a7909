"""Fields of JSON lines, as Python's json and Arrow's reader find them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core._native import JsonFields, unescape_json

ABSENT, TEXT, ESCAPED, INTEGER, OTHER, BLANK = range(6)
PATHS = [["text"], ["id"], ["meta", "url"], ["meta", "é.\n"]]


def find(line: bytes, paths: list[list[str]] = PATHS, *, portable: bool = False) -> list[Any]:
    """Of each field the kind and, of texts and numbers, the bytes."""
    fields = JsonFields([[key.encode() for key in path] for path in paths], portable)
    # What is around a line must not matter.
    data = np.frombuffer(b'{"' + line + b'"}', np.uint8).copy()
    starts, ends, kinds = fields.find(data, np.array([2]), np.array([2 + len(line)]))
    assert starts.shape == ends.shape == kinds.shape == (len(paths), 1)
    assert (starts >= 2).all() and (starts <= ends).all() and (ends <= 2 + len(line)).all()
    escaped = kinds == ESCAPED
    ends[escaped] = unescape_json(data, starts[escaped], ends[escaped])
    found = []
    for start, end, kind in zip(starts[:, 0], ends[:, 0], kinds[:, 0], strict=True):
        has_bytes = kind in (TEXT, ESCAPED, INTEGER)
        found.append((int(kind), data[start:end].tobytes()) if has_bytes else int(kind))
    return found


def one(line: bytes) -> Any:
    return find(line, [["text"]])[0]


def python_reads(line: bytes) -> bytes | None:
    """The text of a line by Python's json; None if there is none."""
    try:
        record = json.loads(line.decode("utf-8", "surrogateescape"), parse_int=str)
    except (ValueError, RecursionError):
        return None
    value = record.get("text") if isinstance(record, dict) else None
    if not isinstance(value, str):
        return None
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def arrow_reads(line: bytes) -> bytes | None:
    """The text of a line by Arrow's reader; None if there is none."""
    try:
        table = pa.json.read_json(
            pa.BufferReader(line),
            pa.json.ReadOptions(use_threads=False, block_size=len(line) + 1),
            pa.json.ParseOptions(
                explicit_schema=pa.schema([("text", pa.string())]),
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != 1:
        return None
    text: bytes | None = table.column(0).combine_chunks().view(pa.binary())[0].as_py()
    return text


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=80),
    st.sampled_from(["\\", '"', "/", "\x00\x1f", "\U0001f600", "é" * 40, "\n" * 40]),
)
KEYS = st.one_of(st.sampled_from(["text", "id", "meta", "url", "é.\n", ""]), st.text(max_size=40))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
RECORDS = st.dictionaries(KEYS, VALUES, max_size=6)


def means(record: dict[str, Any], path: list[str]) -> Any:
    """What `find` should say of a field, but for how a text is written."""
    value: Any = record
    for key in path:
        if value is None:
            return ABSENT
        if not isinstance(value, dict):
            return OTHER
        value = value.get(key)
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    return OTHER


@pytest.mark.slow
@settings(max_examples=times(2))
@given(
    record=RECORDS,
    ascii_only=st.booleans(),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\r : ")]),
    around=st.sampled_from([(b"", b""), (b" \t", b"\r"), (b"", b" " * 40)]),
)
def test_fields_are_found_as_python_reads_them(
    record: dict[str, Any],
    ascii_only: bool,
    separators: tuple[str, str],
    around: tuple[bytes, bytes],
) -> None:
    text = json.dumps(record, ensure_ascii=ascii_only, separators=separators)
    line = around[0] + text.encode() + around[1]
    found = find(line)
    assert found == find(line, portable=True)
    expected = [means(record, path) for path in PATHS]
    meta = record.get("meta")
    if meta is not None and not isinstance(meta, dict):
        expected = [OTHER] * len(PATHS)  # such a line is left to others
    assert [field if isinstance(field, int) else field[1] for field in found] == expected


@settings(max_examples=times(4))
@given(
    record=st.fixed_dictionaries(
        {"n": SCALARS, "text": st.text(max_size=40)}, optional={"m": VALUES}
    ),
    ascii_only=st.booleans(),
    changes=st.lists(
        st.tuples(
            st.integers(0, 200),
            st.integers(0, 2),
            st.sampled_from([*(bytes([b]) for b in b'{}[]",:\\ utn0-.eEIN\n\x00\x1f\xff'),
                             b"\\u12", b"\\ud800", b"\\udc00", b"Inf", b"-NaN", b"null"]),
        ),
        max_size=3,
    ),
)  # fmt: skip
def test_a_changed_line_gives_the_text_that_others_read_or_none(
    record: dict[str, Any], ascii_only: bool, changes: list[tuple[int, int, bytes]]
) -> None:
    line = json.dumps(record, ensure_ascii=ascii_only).encode()
    for place, removed, added in changes:
        place %= len(line) + 1
        line = line[:place] + added + line[place + removed :]
    found = one(line)
    assert found == find(line, [["text"]], portable=True)[0]
    if not isinstance(found, int) and found[0] != INTEGER:
        # Python takes what Arrow refuses (numbers that no double holds), and the other way round.
        read = python_reads(line)
        assert found[1] == (arrow_reads(line) if read is None else read)
    elif line.strip() and not isinstance(found, int) and arrow_reads(line) is not None:
        pytest.fail(f"{line!r} is no number")
    elif found == ABSENT:
        assert arrow_reads(line) is None and python_reads(line) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"text":"a"}', (TEXT, b"a")),
        (b'{"text":""}', (TEXT, b"")),
        (rb'{"text":"\"\\\/\b\f\n\r\t"}', (ESCAPED, b'"\\/\b\f\n\r\t')),
        (rb'{"text":"\u0000\u00e9\u20AC\ud83d\ude00!"}', (ESCAPED, "\0é€😀!".encode())),
        (rb'{"te\u0078t":"a"}', (TEXT, b"a")),
        (rb'{"te\ud800t":"a"}', ABSENT),
        (b'{"text":"\xff"}', (TEXT, b"\xff")),
        (b'{"text":"\x7f"}', (TEXT, b"\x7f")),
        (b'{"text":12345678901234567890123}', (INTEGER, b"12345678901234567890123")),
        (b'{"text":-0}', (INTEGER, b"0")),
        (b'{"text":-10}', (INTEGER, b"-10")),
        (b'{"text":null}', ABSENT),
        (b"{}", ABSENT),
        (b'{"text":1.0}', OTHER),
        (b'{"text":1e5}', OTHER),
        (b'{"text":NaN}', OTHER),
        (b'{"text":[1]}', OTHER),
        (b'{"text":true}', OTHER),
        (b'{"text":"a","x":1e999}', (TEXT, b"a")),
        (b'{"text":"a","x":[-Infinity, Inf, -NaN, {"y": [[], {}, ""]}]}', (TEXT, b"a")),
        (b"", BLANK),
        (b" \t\r", BLANK),
        # What it is not sure of, or what is no JSON.
        (b'{"text":"a","text":"b"}', OTHER),
        (rb'{"text":"\ud800"}', OTHER),
        (rb'{"text":"\udc00\ud800"}', OTHER),
        (rb'{"text":"\u00g0"}', OTHER),
        (rb'{"text":"\x"}', OTHER),
        (b'{"text":"a\\', OTHER),
        (b'{"text":"a\\u12', OTHER),
        (b'{"text":"a', OTHER),
        (b'{"text":"a\tb"}', OTHER),
        (b'{"text":"a"', OTHER),
        (b'{"text":"a"}}', OTHER),
        (b'{"text":"a"}{"text":"b"}', OTHER),
        (b'{"text":"a",}', OTHER),
        (b'{"text":"a","x":01}', OTHER),
        (b'{"text":"a","x":1.}', OTHER),
        (b'{"text":"a","x":.5}', OTHER),
        (b'{"text":"a","x":+1}', OTHER),
        (b'{"text":"a","x":-}', OTHER),
        (b'{"text":"a","x":1e}', OTHER),
        (b'{"text":"a","x":nan}', OTHER),
        (b'{"text":"a","x":Infi}', OTHER),
        (b'{"text":"a","x":[1,]}', OTHER),
        (b'{"text":"a","x":[1}}', OTHER),
        (b'{"text":"a","x":{"y":1]}', OTHER),
        (b'{"text":"a","x":{1:2}}', OTHER),
        (b'{"text":"a","x":tru}', OTHER),
        (b'{"text":"a" "x":1}', OTHER),
        (b'{"text"}', OTHER),
        (b'{"text":}', OTHER),
        (b"[1]", OTHER),
        (b"null", OTHER),
    ],
)  # fmt: skip
@pytest.mark.parametrize("portable", [False, True])
def test_what_a_line_holds(line: bytes, expected: Any, portable: bool) -> None:
    assert find(line, [["text"]], portable=portable) == [expected]


@pytest.mark.parametrize("length", [*range(31, 36), 63, 64, 65, 1000])
def test_texts_end_at_any_place_of_a_block(length: int) -> None:
    for tail, kind, text in ((b"", TEXT, b""), (b"\\n", ESCAPED, b"\n"), (b"\\u00e9" * 9, ESCAPED,
                              "é".encode() * 9)):  # fmt: skip
        line = b'{"text":"' + b"x" * length + tail + b'"}'
        assert one(line) == (kind, b"x" * length + text)
        assert one(line[:-2]) == OTHER


def test_nesting_has_no_limit() -> None:
    deep = 200_000
    assert one(b'{"x":' + b"[" * deep + b"]" * deep + b',"text":"a"}') == (TEXT, b"a")
    assert one(b'{"x":' + b'{"":[' * deep + b"0" + b"]}" * deep + b',"text":"a"}') == (TEXT, b"a")
    assert one(b'{"x":' + b"[" * deep + b"]" * (deep - 1) + b',"text":"a"}') == OTHER


def test_objects_on_a_path_stand_once_and_are_objects() -> None:
    paths = [["a", "b"], ["a", "c"]]
    assert find(b'{"a":{"c":1,"b":"x"}}', paths) == [(TEXT, b"x"), (INTEGER, b"1")]
    assert find(b'{"a":null,"b":"x"}', paths) == [ABSENT, ABSENT]
    assert find(b'{"a":{"b":"x"},"a":{}}', paths) == [OTHER, OTHER]
    assert find(b'{"a":"x"}', paths) == [OTHER, OTHER]
    assert find(b'{"a":{"b":"x"}}', [["a"], ["a", "b"]]) == [OTHER, OTHER]


def test_paths_and_places_are_checked() -> None:
    with pytest.raises(ValueError, match="must have a key"):
        JsonFields([[]])
    with pytest.raises(ValueError, match="there twice"):
        JsonFields([[b"a"], [b"a"]])
    fields = JsonFields([[b"a"]])
    with pytest.raises(ValueError, match="lies outside"):
        fields.find(b"{}", np.array([0]), np.array([3]))
    data = np.frombuffer(rb"\n\q", np.uint8).copy()
    with pytest.raises(ValueError, match="lies outside"):
        unescape_json(data, np.array([2]), np.array([5]))
    with pytest.raises(ValueError, match="begins no escape"):
        unescape_json(data, np.array([0]), np.array([4]))
    with pytest.raises(ValueError):
        unescape_json(np.frombuffer(rb"\n", np.uint8), np.array([0]), np.array([2]))
