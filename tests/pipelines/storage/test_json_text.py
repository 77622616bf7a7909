"""JSON that people read: the same values, sorted keys, an item a line, little memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.storage.json_text import encoded

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    text = b"".join(encoded(value)).decode()
    assert json.loads(text) == value


@pytest.mark.slow
def test_many_entries_come_in_blocks_with_a_line_each() -> None:
    entries = [{"name": f"{i}.txt", "bytes": i} for i in range(100_000)]
    blocks = list(encoded({"files": entries, "totals": {"z": 1, "é": 2}}))
    assert len(blocks) > 3
    lines = b"".join(blocks).decode().splitlines()
    assert lines[:3] == ["{", '  "files": [', '    {"bytes": 0, "name": "0.txt"},']
    assert lines[-6:] == ["  ],", '  "totals": {', '    "z": 1,', '    "é": 2', "  }", "}"]
    assert len(lines) == 100_000 + 8
