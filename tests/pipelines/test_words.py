"""`beam-bpe counts export`: counted words for the trainers of other libraries."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
from build_support import PACKAGES, some_text, write_corpus
from build_support import command as beam_bpe

from pipelines.build import count
from pipelines.config import BuildConfig
from pipelines.counting.given import GivenCounts
from pipelines.counting.load import load_all_columns
from pipelines.counting.words import Words, write_words
from pipelines.storage.directory import Directory


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """An output with counts, some of words that are in no file of tab-separated values."""
    directory = tmp_path_factory.mktemp("words")
    odd = [b"tab\there\nand\0NUL \xff"]
    write_corpus(directory / "data", {"a.txt": some_text(20), "b.txt": odd})
    count(
        BuildConfig.model_validate(
            {
                "output": str(directory / "out"),
                "input": {"files": [str(directory / "data" / "*")], "invalid_utf8": "replace"},
                "counts": {"shards": 3},
            }
        )
    )
    return Directory(url=str(directory / "out"))


def written(root: Directory, to: str, most: int = 10**9) -> tuple[Words, list[str]]:
    file = io.BytesIO()
    found = write_words(GivenCounts.open(root.url), to, file, most=most)  # type: ignore[arg-type]
    return found, file.getvalue().decode().splitlines()


def counts_of(root: Directory) -> dict[str, int]:
    counts = load_all_columns(GivenCounts.open(root.url))
    return {word.decode(): n for word, n in counts.items()}


@pytest.mark.slow
def test_sentencepiece_gets_every_word_with_its_count(counted: Directory) -> None:
    expected = counts_of(counted)
    left_out = {word for word in expected if any(c in word for c in "\t\n\0")}
    assert left_out
    found, lines = written(counted, "sentencepiece")
    words = {word: int(n) for word, n in (line.split("\t") for line in lines)}
    assert words == {word: n for word, n in expected.items() if word not in left_out}
    assert (found.words, found.occurrences) == (len(words), sum(words.values()))
    assert sum(n for n, _ in found.left_out.values()) == len(left_out)
    assert set(found.left_out) == {"a newline", "a tab", "NUL"}
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        input_format="tsv",
        model_writer=model,
        model_type="unigram",
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    trained = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    assert trained.encode("the cat")


@pytest.mark.slow
@pytest.mark.parametrize("most", [10**9, 500, 20])
def test_counts_for_tokenizers_keep_their_proportions(counted: Directory, most: int) -> None:
    expected = counts_of(counted)
    total = sum(expected.values())
    found, lines = written(counted, "tokenizers", most)
    words = {row["word"]: row["count"] for row in map(json.loads, lines)}
    factor = min(1, most / total)
    rounded = {word: int(n * factor + 0.5) for word, n in expected.items()}
    assert words == {word: n for word, n in rounded.items() if n}
    missing = sum(n for word, n in expected.items() if word not in words)
    assert sum(n for _, n in found.left_out.values()) == missing


@pytest.mark.slow
def test_a_file_of_counts_has_the_same_words(counted: Directory, tmp_path: Path) -> None:
    merged = tmp_path / "merged.parquet"
    assert beam_bpe("counts", "merge", counted.url, "-o", merged).returncode == 0
    file = io.BytesIO()
    found = write_words(GivenCounts.open(str(merged)), "sentencepiece", file)
    expected, lines = written(counted, "sentencepiece")
    assert found == expected
    assert sorted(file.getvalue().decode().splitlines()) == sorted(lines)


def test_numbers_of_words_are_a_sentence() -> None:
    words = Words(words=2, occurrences=1500)
    assert str(words) == "2 words with 1,500 occurrences"
    words.leave_out("a tab", 3)
    words.leave_out("a tab", 4)
    assert str(words).endswith("; left out: 2 with a tab (7 occurrences)")


@pytest.mark.process
def test_the_command_prints_words_and_reports_what_it_leaves_out(counted: Directory) -> None:
    _, lines = written(counted, "sentencepiece")
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", "counts", "export", counted.url, "--to=sentencepiece"],
        cwd=PACKAGES,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == lines
    assert done.stderr.startswith(f"{len(lines)} words with ")
    assert "with a tab (" in done.stderr


def test_outputs_without_counts_are_refused(tmp_path: Path) -> None:
    done = beam_bpe("counts", "export", tmp_path, "--to", "tokenizers")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: There are no counts.")
    done = beam_bpe("counts", "export", tmp_path, "--to", "fasttext")
    assert done.returncode == 2
