"""`beam-bpe compare` shows two outputs or tokenizers side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build_support import command as beam_bpe
from build_support import config_for, some_text, write_corpus
from page_support import Page, build_hostile

from pipelines import build
from pipelines.pages.comparison import compare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("compared")
    write_corpus(folder / "data", {"a.txt": some_text(30)})
    build.build(config_for(folder, output=str(folder / "small"), encode={"append": None}))
    return build_hostile(folder), folder / "small"


def test_two_outputs_side_by_side(outputs: tuple[Path, Path]) -> None:
    found = compare(*map(str, outputs))
    assert found.names == ("out", "small")
    assert found.notes == ()
    vocabulary = found.vocabulary
    assert vocabulary is not None
    assert vocabulary.shared + vocabulary.only[0] == 340
    assert vocabulary.shared + vocabulary.only[1] == 300
    assert [text.description for text in found.texts] == ["counts of out", "counts of small"]
    for text in found.texts:
        assert all(size > first > 0 and size > second > 0 for _, size, first, second in text.groups)
    assert "Bytes per token of the same text" in str(found)
    page = Page(found.to_html())
    assert page.open == []
    assert not {"img", "b"} & set(page.names)
    json.dumps(found.to_json(), allow_nan=False)


def test_the_same_tokenizer_has_no_difference(outputs: tuple[Path, Path]) -> None:
    _, small = outputs
    found = compare(str(small), str(small / "tokenizer" / "tokenizer.json"))
    assert found.vocabulary is not None
    assert found.vocabulary.only == (0, 0)
    assert found.vocabulary.same_ids == found.vocabulary.shared == 300
    assert found.vocabulary.same_merges == 300 - 256 - 1
    (text,) = found.texts
    assert all(first == second for _, _, first, second in text.groups)


def test_the_command_prints_and_writes(outputs: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = beam_bpe("compare", *outputs, "--html", page)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Numbers\n")
    assert Page(page.read_text("utf-8")).open == []
    done = beam_bpe("compare", *outputs, "--json")
    found = json.loads(done.stdout)
    assert found.keys() == {"names", "reports", "vocabulary", "texts", "notes"}


def test_wrong_calls_are_explained(outputs: tuple[Path, Path], tmp_path: Path) -> None:
    done = beam_bpe("compare", outputs[0], outputs[0])
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is nothing to compare." in done.stderr
    done = beam_bpe("compare", outputs[0], tmp_path / "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    done = beam_bpe("compare", *outputs, "--html", tmp_path / "missing" / "page.html")
    assert (done.returncode, done.stdout) == (2, "")
