"""Tokenizer files that are made to do harm take little time, or are refused."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import pytest

from bpe_core import BPETokenizer, train_from_iterator
from bpe_core._native import Normalizer
from bpe_core.errors import FormatError


def table(units: list[int], texts: bytes) -> bytes:
    """Return a table of characters: a trie of Darts, and texts."""
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts


def test_a_trie_that_leads_in_a_circle_takes_linear_time() -> None:
    # From the root an "a" leads to unit 1, and from there to unit 1 again.
    circle = Normalizer.of_table(table([0x60 << 10, 0x61 << 10 | 0x61], b"x\0"), False)
    text = b"a" * 200_000
    begun = time.process_time()
    assert circle.normalize(text) == text
    assert time.process_time() - begun < 2


def test_a_character_does_not_become_a_long_text() -> None:
    units = [0x60 << 10, 0x61 << 10 | 0x61]
    Normalizer.of_table(table(units, b"x" * 1024 + b"\0"), False)
    with pytest.raises(ValueError, match="at most 1,024 bytes"):
        Normalizer.of_table(table(units, b"x" * 1025 + b"\0"), False)


@pytest.mark.parametrize("twice", ["model", "merges"])
def test_keys_that_occur_twice_are_refused(twice: str, tmp_path: Path) -> None:
    trained = train_from_iterator(["the cat sat on the mat"], 264)
    BPETokenizer.from_model(trained.model).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    text = json.dumps({"merges": []})[1:-1] if twice == "merges" else '"model": {}'
    inside = json.dumps(content["model"])
    model = f"{{{text}, {inside[1:]}" if twice == "merges" else f"{inside}, {text}"
    path.write_text(json.dumps({**content, "model": 0}).replace('"model": 0', f'"model": {model}'))
    with pytest.raises(FormatError, match=f"the key '{twice}' twice"):
        BPETokenizer.from_huggingface(path)
