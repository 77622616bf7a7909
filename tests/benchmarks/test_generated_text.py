from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import regex

from bpe_core import count_pretokens

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PATTERN = regex.compile(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("generated_text")


def test_the_exact_counts_are_those_of_plain_python_and_of_ours(
    generated: ModuleType, tmp_path: Path
) -> None:
    text = generated.text_of("code", 1, 7)
    expected = dict(text.exact_counts(1))
    numbers = np.arange(text.rare_words.introduced(1)[0])
    words = text.rare_words.spell(numbers)
    assert (text.rare_words.read(words) == numbers).all()
    for word, count in zip(words.tolist(), text.rare_words.counts(numbers, 1), strict=True):
        expected[b" " + word.to_bytes(8, "little")] = int(count)
    plain: Counter[bytes] = Counter()
    good, bad = [], 0
    for document in filter(None, text.read(0, generated.BLOCK_BYTES).split(generated.SEPARATOR)):
        try:
            plain.update(found.encode() for found in PATTERN.findall(document.decode()))
            good.append(document)
        except UnicodeDecodeError:
            bad += 1
    assert dict(plain) == expected
    assert (len(good), bad) == text.exact_documents(1)
    assert bad == 1
    (tmp_path / "text").write_bytes(generated.SEPARATOR.join(good))
    separator = generated.SEPARATOR.decode()
    ours = count_pretokens(tmp_path / "text", special_tokens=[separator])
    found = dict(ours.items())
    assert {key if isinstance(key, bytes) else key.encode(): n for key, n in found.items()} == (
        expected
    )


def test_any_cut_reads_the_same_bytes(generated: ModuleType) -> None:
    recipe = generated.Recipe("code", 1, 7, 2, 2)
    files = generated.GeneratedText(skip_instance_cache=True)
    path = files.ls(recipe.folder, detail=False)[1]
    whole = files.cat_file(path)
    assert len(whole) == recipe.file_bytes == files.info(path)["size"]
    for start, end in ((0, 1), (999_999, 1_000_001), (1_234_567, 2_000_000), (500, 500)):
        assert files.cat_file(path, start, end) == whole[start:end]
