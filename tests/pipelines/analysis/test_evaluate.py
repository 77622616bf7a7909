"""`beam-bpe evaluate`: measures on counts, which are those of encoding, and on text."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_support import command as beam_bpe
from build_support import some_text, write_corpus

from bpe_core import BPETokenizer, PretokenCounts
from bpe_core.count_files import columns_to_arrow
from pipelines.analysis import evaluation_sample
from pipelines.analysis.evaluation_sample import open_sample

END = "<|endoftext|>"
PROSE = some_text(12)
CODE = b"def f(x):\n    return {x[0]: (x[1], x[2])} != {};\n" * 20


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a build of two sources."""
    directory = tmp_path_factory.mktemp("evaluate")
    write_corpus(directory / "data", {"a.txt": PROSE})
    write_corpus(directory / "code", {"b.txt": [CODE]})
    (directory / "build.yaml").write_text(
        "output: out\ninput:\n  - {name: prose, files: [data/*.txt]}\n"
        "  - {name: code, files: [code/*.txt]}\ncounts: {shards: 24}\n"
        "tokenizer: {vocab_size: 300}\n"
        f"encode: {{prepend: {END}, append: {END}}}\n"
    )
    done = beam_bpe("build", directory / "build.yaml", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return directory / "out"


def evaluate(*arguments: object) -> dict[str, Any]:
    done = beam_bpe("evaluate", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def write_text(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_bytes(text.encode())
    return path


def test_measures_on_counts_are_those_of_encoding(output: Path) -> None:
    """The text of the sources apart from the token after each document."""
    found = evaluate(output)
    assert found["text"]["kind"] == "counts"
    assert list(found["text"]["groups"]) == ["code", "prose"]
    [one] = found["tokenizers"]
    tokenizer = BPETokenizer.load(output)
    texts = {"prose": b"".join(PROSE), "code": CODE}
    ids = {name: tokenizer.encode(text) for name, text in texts.items()}
    ids["prose"] = [i for text in PROSE for i in tokenizer.encode(text)]
    uses = Counter(ids["prose"]) + Counter(ids["code"])
    size = sum(map(len, texts.values()))
    assert one["tokens"] == uses.total()
    assert found["text"]["bytes"] == size
    assert one["bytes_per_token"] == pytest.approx(size / uses.total())
    assert one["tokens_per_byte"] == pytest.approx(uses.total() / size)
    assert one["used_ids"] == len(uses)
    assert one["unused_ids"] == one["ids"] - len(uses)
    assert one["rare_ids"] == sum(count < 10 for count in uses.values())
    entropy = -sum(n / uses.total() * math.log2(n / uses.total()) for n in uses.values())
    assert one["shannon_efficiency"] == pytest.approx(entropy / math.log2(one["ids"]))
    costs = {name: len(ids[name]) / len(texts[name]) for name in texts}
    assert {n: g["tokens_per_byte"] for n, g in one["groups"].items()} == pytest.approx(costs)
    assert one["parity"] == pytest.approx({n: cost / costs["code"] for n, cost in costs.items()})
    assert found["text"]["code_groups"] == ["code"]
    assert one["code"]["tokens"] == len(ids["code"])
    assert sum(script["tokens"] for script in one["scripts"]) == uses.total()


def test_measures_on_text_are_those_of_each_tokenizer(output: Path, tmp_path: Path) -> None:
    text = "the cat's 12  déjà vu\tthe 漢字 !\n\n"
    file = write_text(tmp_path, "text.txt", text * 30)
    other = write_text(tmp_path, "other.txt", "cat cat mat")
    bytes_alone = tmp_path / "bytes"
    BPETokenizer({i: bytes([i]) for i in range(256)}, [], pattern="llama3").save(bytes_alone)
    found = evaluate(output, "--with", bytes_alone, "--text", file, "--text", other)
    assert [one["name"] for one in found["tokenizers"]] == ["out", "bytes"]
    for one, tokenizer in zip(
        found["tokenizers"], map(BPETokenizer.load, (output, bytes_alone)), strict=True
    ):
        group = one["groups"][str(file)]
        words = (text * 30).split()
        lengths = [len(tokenizer.encode(word)) for word in words]
        tokens = len(tokenizer.encode(text * 30))
        assert group["tokens"] == tokens
        assert group["tokens_per_word"] == pytest.approx(tokens / len(words))
        assert group["tokens_per_lone_word"] == pytest.approx(sum(lengths) / len(words))
        assert group["single_token_words"] == pytest.approx(lengths.count(1) / len(words))
        assert group["characters_per_token"] == pytest.approx(len(text * 30) / tokens)
        parity = one["parity_of_tokens"][str(other)]
        assert parity == pytest.approx(len(tokenizer.encode("cat cat mat")) / tokens)
    trained, plain = found["tokenizers"]
    assert plain["bytes_per_token"] == 1
    assert trained["overlap"]["bytes"] == {"shared": 256, "only_here": 44, "only_there": 0}
    assert plain["overlap"]["out"] == {"shared": 256, "only_here": 0, "only_there": 44}


def test_the_table_has_a_column_for_each_tokenizer(output: Path, tmp_path: Path) -> None:
    shutil.copytree(output / "tokenizer", tmp_path / "copy")
    done = beam_bpe("evaluate", output, "--with", tmp_path / "copy")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"counts of {output}: ")
    cells = [re.split(r"  +", line.strip()) for line in lines if line.startswith("  ")]
    rows = {row[0]: row[-2:] for row in cells}
    assert rows["ids"] == ["300", "300"]
    assert len(set(rows["bytes per token"])) == 1
    assert "bytes per token" in lines
    assert rows["prose"] == rows["prose"][::-1]


class Page(HTMLParser):
    """Rows of the tables of a page, and its attributes; every element must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] in (["td"], ["th"]):
            self.rows[-1].append(data)


def test_the_page_has_the_tables_and_needs_nothing_else(output: Path, tmp_path: Path) -> None:
    shutil.copytree(output / "tokenizer", tmp_path / "<b>&")
    page = tmp_path / "page.html"
    done = beam_bpe("evaluate", output, "--with", tmp_path / "<b>&", "--html", page)
    assert (done.returncode, done.stderr) == (0, "")
    text = page.read_text("utf-8")
    parsed = Page(text)
    assert parsed.open == []
    assert not parsed.attributes & {"src", "style", "onclick"}
    assert 'href="' not in text.replace('href="#', "")
    assert "http://" not in text
    assert "https://" not in text
    assert ["out", "<b>&"] in parsed.rows
    found = evaluate(output)["tokenizers"][0]
    tokens = f"{found['tokens']:,}"
    assert ["tokens", tokens, tokens] in parsed.rows
    assert ["1", "1, 100%", "1, 100%"] in parsed.rows
    assert ["encoding", "13", "13"] in parsed.rows


def test_records_that_are_read_as_text_are_noted(output: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text('{"text": "a"}\n{"text": "b"}\n')
    done = beam_bpe("evaluate", output, "--text", records)
    assert done.returncode == 0
    assert done.stderr.startswith(f"note: {records} is read as text, with all its markup: ")
    assert "--text-field" in done.stderr
    pq.write_table(pa.table({"text": ["é"] * 9}), tmp_path / "table.parquet")
    done = beam_bpe("evaluate", output, "--text", tmp_path / "table.parquet")
    assert (done.returncode, done.stdout) == (4, "")
    assert "--text-field" in done.stderr
    found = evaluate(output, "--text", tmp_path / "table.parquet", "--text-field", "text")
    assert found["text"]["characters"] == 9


def test_a_page_that_cannot_be_written_is_an_error(output: Path, tmp_path: Path) -> None:
    done = beam_bpe("evaluate", output, "--html", tmp_path / "missing" / "page.html")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected: an existing directory" in done.stderr
    done = beam_bpe("evaluate", output, "--html", tmp_path)
    assert (done.returncode, done.stdout) == (5, "")
    assert "The page cannot be written." in done.stderr


def test_counts_of_another_place_and_a_reference(output: Path, tmp_path: Path) -> None:
    sums = PretokenCounts.load(output / "counts")
    keys, offsets, numbers = sums.columns()
    together = PretokenCounts(columns_to_arrow(keys, offsets, numbers), sums.metadata)
    together.save(tmp_path / "counts.parquet")
    found = evaluate(output / "tokenizer", "--counts", output, "--reference", "prose")
    assert found["reference"] == "prose"
    [one] = found["tokenizers"]
    assert one["parity"]["prose"] == 1
    [whole] = evaluate(output, "--counts", tmp_path / "counts.parquet")["tokenizers"]
    assert list(whole["groups"]) == ["all"]
    assert one["tokens"] == whole["tokens"] == whole["groups"]["all"]["tokens"]
    assert one["scripts"] == whole["scripts"]
    # The special token has the first id.
    assert one["unreachable"]["by_encoding"] == [0xC1, 0xC2, *range(0xF6, 0x101)]


def test_weights_of_a_mixture_are_refused(output: Path, tmp_path: Path) -> None:
    counts = PretokenCounts.load(output / "counts")
    counts.mix({"code": 1, "prose": 1}).save(tmp_path / "mixed.parquet")
    done = beam_bpe("evaluate", output, "--counts", tmp_path / "mixed.parquet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "These are weights of a mixture" in done.stderr


def test_a_sample_is_the_text_of_the_build(output: Path, tmp_path: Path) -> None:
    sample = evaluate(output, "--sample")
    assert sample["text"]["kind"] == "sample"
    assert list(sample["text"]["groups"]) == ["code", "prose"]
    (tmp_path / "code").write_bytes(CODE)
    (tmp_path / "prose").write_bytes(b" ".join(PROSE))
    files = [x for name in ("code", "prose") for x in ("--text", tmp_path / name)]
    read = evaluate(output, *files)
    assert (
        sample["tokenizers"][0]["groups"]["code"]
        == read["tokenizers"][0]["groups"][str(tmp_path / "code")]
    )
    groups = sample["text"]["groups"]
    assert groups["prose"]["bytes"] == sum(map(len, PROSE))
    assert groups["prose"]["words"] == sum(len(text.split()) for text in PROSE)


def test_a_sample_is_bounded(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_PARTS", 3), ("_PART_ROWS", 2)):
        monkeypatch.setattr(evaluation_sample, name, value)

    def texts() -> list[bytes]:
        sample = open_sample(str(output))
        documents = [d for texts in sample._groups.values() for d in texts()]
        return [
            bytes(found.data[start:end])
            for found in documents
            for start, end in zip(found.starts, found.ends, strict=True)
        ]

    assert len(texts()) == 6
    assert PROSE[0] in texts()
    monkeypatch.setattr(evaluation_sample, "_PART_BYTES", 1)
    assert len(texts()) == 3


def test_texts_of_records_are_those_of_files(output: Path, tmp_path: Path) -> None:
    records = [json.dumps({"doc": {"text": text.decode()}}) for text in PROSE]
    (tmp_path / "records.jsonl").write_text("\n".join([*records, '{"doc": {}}']))
    for number, text in enumerate(PROSE):
        (tmp_path / f"{number:02}.txt").write_bytes(text)
    field = ("--text", tmp_path / "records.jsonl", "--text-field", "doc.text")
    [of_records] = evaluate(output, *field)["tokenizers"]
    [of_files] = evaluate(output, "--text", tmp_path / "*.txt")["tokenizers"]
    assert list(of_records["groups"].values()) == list(of_files["groups"].values())
    done = beam_bpe("evaluate", output, *field)
    assert "(records without text left out: 1): " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing"], 2, "There is no tokenizer."),
        (["out", "--with", "other"], 2, "expected counts by its pattern"),
        (["out/tokenizer"], 4, "Or evaluate on text: --text FILE."),
        (["out/counts"], 2, "--counts out/counts"),
        (["out", "--text", "missing.txt"], 4, "missing.txt"),
        (["out", "--text", "wrong.txt"], 4, "The input is not text in UTF-8."),
        (["out", "--text", "empty.txt"], 2, "There is no text to evaluate on."),
        (["out", "--reference", "none"], 2, "expected: one of code, prose"),
        (
            ["out", "--counts", "out", "--text", "empty.txt"],
            2,
            "at most one of --counts, --text and",
        ),
        (["out", "--counts", "wrong.txt"], 4, "The counts cannot be read."),
        (["out", "--text-field", "text"], 2, "Records are read from files."),
        (["out", "--text", "-", "--text-field", "text"], 2, "found: standard input"),
        (["out/tokenizer", "--sample"], 4, "There are no finished token files."),
        (["few", "--text", "text.txt"], 4, "The tokenizer cannot encode the text."),
    ],
)
def test_wrong_uses_are_refused(
    output: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: Sequence[str],
    code: int,
    message: str,
) -> None:
    (tmp_path / "out").symlink_to(output)
    BPETokenizer({0: b"a"}, [], pattern="llama3").save(tmp_path / "few")
    BPETokenizer({i: bytes([i]) for i in range(256)}, [], pattern="llama3").save(tmp_path / "other")
    (tmp_path / "wrong.txt").write_bytes(b"caf\xe9")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "text.txt").write_bytes(b"text")
    monkeypatch.chdir(tmp_path)
    done = beam_bpe("evaluate", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
