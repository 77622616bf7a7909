"""`beam-bpe explain` and `beam-bpe why` on a finished build, and on a tokenizer alone."""

from __future__ import annotations

import doctest
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_support import command as beam_bpe
from build_support import some_text, write_corpus
from hypothesis import given
from hypothesis import strategies as st

from bpe_core import BPETokenizer, PretokenCounts, train_from_counts
from bpe_core._native import add_document_frequency
from pipelines.analysis import tokens
from pipelines.analysis.pretokens import find_pretokens_with
from pipelines.counting.given import GivenCounts
from pipelines.dataset.reading import SPLITS, TokenDataset
from pipelines.manifest.names import DOCUMENT_FREQUENCY

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a build with both splits."""
    directory = tmp_path_factory.mktemp("explain")
    write_corpus(directory / "data", {"a.txt": some_text(9), "b.txt": some_text(6, start=9)})
    (directory / "build.yaml").write_text(
        "output: out\ninput: {files: [data/*.txt], range_bytes: 2000}\ncounts: {shards: 2}\n"
        "tokenizer: {vocab_size: 310}\n"
        f"encode: {{append: {END}, validation_fraction: 0.3}}\n"
    )
    done = beam_bpe("build", directory / "build.yaml", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return directory / "out"


def explain(output: Path, *arguments: object) -> dict[str, Any]:
    done = beam_bpe("explain", output, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def error_of(*arguments: object) -> str:
    done = beam_bpe(*arguments)
    assert done.returncode in (2, 4), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_numbers_of_a_token(output: Path) -> None:
    """Pre-tokens, uses and documents are those of the counts and of the token files."""
    tokenizer = BPETokenizer.load(output)
    counts = PretokenCounts.load(output / "counts")
    token_id = tokenizer.encode(" mat")[0]
    found = explain(output, " mat", "--limit", 2)
    assert (found["id"], found["kind"], bytes.fromhex(found["bytes"])) == (
        token_id,
        "merge",
        b" mat",
    )
    uses = {
        text: n
        for text, n in counts.items()
        if token_id in tokenizer.encode_ordinary(text.decode())
    }
    top = sorted(uses, key=lambda text: (-uses[text], text))[:2]
    pretokens = found["pretokens"]
    assert pretokens["distinct"] == len(uses)
    assert pretokens["count"] == pretokens["uses"] == sum(uses.values())
    assert [one["pretoken"].encode() for one in pretokens["top"]] == top
    dataset = TokenDataset.open(str(output))
    rows = {
        split: [
            chunk.ids[first:end].tolist()
            for chunk in dataset.chunks(split)
            for first, end in zip(chunk.offsets, chunk.offsets[1:], strict=False)
        ]
        for split in SPLITS
    }
    ids = Counter(i for of_split in rows.values() for row in of_split for i in row)
    assert found["encoding"]["tokens"] == ids[token_id] == pretokens["uses"]
    assert found["encoding"]["of"] == ids.total()
    assert found["encoding"]["place"] == 1 + sum(n > ids[token_id] for n in ids.values())
    assert [one["split"] for one in found["documents"]] == [*SPLITS]
    for one in found["documents"]:
        having = [i for i, row in enumerate(rows[one["split"]]) if token_id in row]
        assert (one["documents"], one["of"]) == (len(having), len(rows[one["split"]]))
        assert one["first_row"] == (having[0] if having else None)


def test_merges_make_the_token_from_its_bytes(output: Path) -> None:
    model = BPETokenizer.load(output).model
    made = {bytes([byte]) for byte in range(256)}
    found = explain(output, " mat")
    for merge in found["merges"]:
        left, right, result = (
            bytes.fromhex(merge[s]["bytes"]) for s in ("left", "right", "result")
        )
        assert {left, right} <= made
        assert result == left + right
        assert merge["count"] == model.merge_counts[merge["rank"]]  # type: ignore[index]
        made.add(result)
    assert result == b" mat"
    # The vocabulary of this size has it as its last token.
    assert found["vocab_size"] == 257 + merge["rank"] + 1 == found["id"] + 1


def test_a_token_may_be_given_in_three_ways(output: Path) -> None:
    by_text = explain(output, " mat")
    assert explain(output, "--id", by_text["id"]) == by_text
    assert explain(output, "--bytes", by_text["bytes"]) == by_text


def test_special_tokens_and_bytes(output: Path) -> None:
    special = explain(output, END)
    assert (special["id"], special["kind"], special["merges"]) == (0, "special", [])
    assert special["not_counted"] is not None
    assert sum(one["documents"] for one in special["documents"]) == 15
    unused = explain(output, "--bytes", "00")
    assert (unused["kind"], unused["pretokens"]["distinct"]) == ("byte", 0)
    assert [one["first_row"] for one in unused["documents"]] == [None, None]


@pytest.mark.slow
def test_documents_are_read_once(output: Path, tmp_path: Path) -> None:
    """The cache is of one dataset, is not part of the output, and may be missing or damaged."""
    copy = Path(shutil.copytree(output, tmp_path / "out"))
    cache = copy / "tokens" / DOCUMENT_FREQUENCY
    cache.unlink(missing_ok=True)
    assert explain(copy, " mat", "--no-documents")["documents"] is None
    assert not cache.exists()
    found = explain(copy, " mat")["documents"]
    assert beam_bpe("verify", copy).returncode == 0
    written = cache.read_bytes()
    table = pq.read_table(pa.BufferReader(written))
    doubled = table.set_column(
        2, "documents", pa.array([2 * n.as_py() for n in table["documents"]])
    )
    pq.write_table(doubled, cache)
    assert explain(copy, " mat")["documents"][0]["documents"] == 2 * found[0]["documents"]
    for damaged in (
        doubled.replace_schema_metadata({b"bpe.dataset": b"another"}),
        table.drop_columns("documents"),
    ):
        pq.write_table(damaged, cache)
        assert explain(copy, " mat")["documents"] == found
    cache.write_bytes(b"PAR1")
    assert explain(copy, " mat")["documents"] == found
    assert cache.read_bytes() == written
    config = output.parent / "build.yaml"
    again = beam_bpe("encode", config, "--set", f"output={copy}", "--restart", "-q")
    assert again.returncode == 0, again.stderr
    assert not cache.exists()


def test_text_that_is_not_a_token_shows_its_encoding(output: Path) -> None:
    message = error_of("explain", output, " mats")
    ids = BPETokenizer.load(output).encode(" mats")
    assert f'" mats", which is encoded as {ids[0]} " mat", {ids[1]} "s"' in message
    assert f'{ids[0]} " mat"' in message.partition("The nearest tokens are")[2]
    assert "encoded as nothing" in error_of("explain", output, "")
    assert r'"\xff" + "\xff"' not in error_of("explain", output, "--bytes", "ffff")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of TOKEN, --id N, --bytes HEX and --suspects"),
        (["--suspects", "--id", 1], "one of TOKEN, --id N, --bytes HEX and --suspects"),
        (["a", "--id", 1], "one of TOKEN, --id N, --bytes HEX and --suspects"),
        (["--id", 310], "an id of its 310 tokens, up to 309"),
        (["--bytes", "2g"], "The bytes are not hexadecimal."),
    ],
)
def test_wrong_tokens_are_refused(output: Path, arguments: list[object], message: str) -> None:
    assert message in error_of("explain", output, *arguments)


def test_a_place_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    assert "There is no tokenizer." in error_of("explain", tmp_path / "none", "a")
    assert "There is no tokenizer." in error_of("why", tmp_path, "a")


def test_a_damaged_shard_is_an_error(output: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(output, tmp_path / "out"))
    (copy / "counts" / "shard-00001-of-00002.parquet").write_bytes(b"damaged")
    done = beam_bpe("explain", copy, " mat")
    assert done.returncode == 5
    assert "A file of counts is damaged." in done.stderr


def test_explanation_as_text(output: Path) -> None:
    done = beam_bpe("explain", output, " mat")
    found = explain(output, " mat")
    assert f'token        {found["id"]} " mat", bytes 20 6d 61 74' in done.stdout
    assert f"├ {found['merges'][-1]['left']['id']} " in done.stdout
    assert f"encoding     uses it {found['encoding']['tokens']:,} times" in done.stdout


def test_sizes_that_have_the_token(output: Path, tmp_path: Path) -> None:
    """The smaller tokenizers of one training have it from its rank on."""
    found = explain(output, " mat")
    size = found["vocab_size"]
    given = (
        "--set",
        f"output={tmp_path}",
        "--set",
        f"tokenizer.vocab_size=[{size - 1},{size},310]",
    )
    assert beam_bpe("train", output.parent / "build.yaml", "-q", *given).returncode == 0
    ladder = explain(tmp_path, " mat")
    assert ladder["sizes"] == [
        {"vocab_size": size - 1, "contains": False},
        {"vocab_size": size, "contains": True},
    ]
    for one in ladder["sizes"]:
        tokenizer = BPETokenizer.load(tmp_path / "tokenizer" / "sizes" / str(one["vocab_size"]))
        assert (found["id"] in tokenizer.vocab) is one["contains"]
    assert ladder["documents"] is None


def test_required_tokens_are_named(tmp_path: Path) -> None:
    counts = PretokenCounts.from_mapping({b" cat": 2})
    result = train_from_counts(counts, 260, required_tokens=[b"xyz"])
    result.tokenizer().save(tmp_path)
    assert explain(tmp_path, "xyz")["required"] is True
    assert "of tokenizer.required_tokens" in beam_bpe("explain", tmp_path, "xyz").stdout
    assert explain(tmp_path, "x")["required"] is False


def test_groups_are_added_up(tmp_path: Path) -> None:
    """Counts that are kept apart are shown so, for each pre-token and for the token."""
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab"}
    model = BPETokenizer(vocab, [(b"a", b"b")]).model
    group = pa.struct([("source", pa.dictionary(pa.int32(), pa.string())), ("count", pa.int64())])
    table = pa.table(
        {
            "pretoken": pa.array([b"ab", b"abab", b"b"], pa.large_binary()),
            "count": pa.array([5, 2, 4]),
            "groups": pa.array(
                [
                    [{"source": "de", "count": 1}, {"source": "en", "count": 4}],
                    [{"source": "de", "count": 2}],
                    [{"source": "en", "count": 4}],
                ],
                pa.list_(group),
            ),
        }
    )
    pq.write_table(table, tmp_path / "shard.parquet")
    found = find_pretokens_with(model, 256, GivenCounts.open(str(tmp_path / "shard.parquet")), 5)
    assert (found.distinct, found.count, found.uses) == (2, 7, 9)
    assert found.groups == {("de", None): 5, ("en", None): 4}
    assert [dict(one.groups) for one in found.top] == [
        {("de", None): 1, ("en", None): 4},
        {("de", None): 2},
    ]


documents = st.lists(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1), max_size=6)


@pytest.mark.slow
@given(documents, st.sampled_from([np.uint16, np.uint32]))
def test_document_frequency(found: list[list[list[int]]], dtype: type) -> None:
    """Documents have several rows, which are added in blocks of any size."""
    counted, first, last = np.zeros(6, np.int64), np.full(6, -1, np.int64), np.full(6, -1, np.int64)
    number = 0
    for document, rows in enumerate(found):
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        ids = np.array([i for row in rows for i in row], dtype)
        numbers = np.full(len(rows), document, np.int64)
        add_document_frequency(ids, offsets, numbers, number, counted, first, last)
        number += len(rows)
    sets = [{i for row in rows for i in row} for rows in found]
    assert counted.tolist() == [sum(i in having for having in sets) for i in range(6)]
    flat = [row for rows in found for row in rows]
    assert first.tolist() == [next((n for n, r in enumerate(flat) if i in r), -1) for i in range(6)]


def test_document_frequency_checks_its_arguments() -> None:
    def add(ids: list[int], offsets: list[int], size: int = 3) -> None:
        table = [np.zeros(size, np.int64) for _ in range(3)]
        rows = np.zeros(len(offsets) - 1, np.int64)
        add_document_frequency(np.array(ids, np.uint16), np.array(offsets), rows, 0, *table)

    with pytest.raises(ValueError, match="ids below 3, found 7"):
        add([1, 7], [0, 2])
    for offsets in ([0, 3], [0, 2, 1, 2], [1, 2]):
        with pytest.raises(ValueError, match="ascending offsets"):
            add([1, 2], offsets)


# --- why


def test_why_shows_the_steps(output: Path) -> None:
    tokenizer = BPETokenizer.load(output)
    text = f"the mat{END}caf\u00e9"
    done = beam_bpe("why", output, text, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["ids"] == tokenizer.encode(text)
    assert [part.get("pretoken", part.get("special")) for part in found["parts"]][:3] == [
        "the",
        " mat",
        END,
    ]
    ranks = {pair: rank for rank, pair in enumerate(tokenizer.model.merge_bytes)}
    for part in found["parts"]:
        for merge in part["merges"]:
            pair = bytes.fromhex(merge["left"]["bytes"]), bytes.fromhex(merge["right"]["bytes"])
            assert ranks[pair] == merge["rank"]
    ordinary = json.loads(beam_bpe("why", output, text, "--ordinary", "--json").stdout)
    assert ordinary["ids"] == tokenizer.encode_ordinary(text)
    shown = beam_bpe("why", output, text).stdout
    assert f'" mat": {found["parts"][1]["ids"][0]} " mat"' in shown
    assert f'"{END}": special token 0' in shown


def test_why_of_a_published_tokenizer(tmp_path: Path) -> None:
    """Normalization, whole tokens and control characters are shown."""
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"hi", 257: b"fine"}
    BPETokenizer(vocab, [(b"h", b"i")], normalizer="nfkc").save(tmp_path)
    (tmp_path / "tokenizer.arrow").unlink()
    shown = beam_bpe("why", tmp_path / "tokenizer.json", "hi\n\ufb01").stdout
    assert 'split as   "hi\\nfi"' in shown
    assert '"h" + "i" → 256' in shown


def test_why_of_no_text_and_of_text_that_is_not_unicode(output: Path) -> None:
    assert json.loads(beam_bpe("why", output, "", "--json").stdout)["ids"] == []
    found = json.loads(beam_bpe("why", output, "a\udcff", "--json").stdout)
    assert found["ids"] == BPETokenizer.load(output).encode("a\ufffd")
    assert r'"a\xff", which is encoded as' in error_of("explain", output, "a\udcff")


def test_why_refuses_tokenizers_of_words(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(2)})
    (tmp_path / "build.yaml").write_text(
        "output: out\ninput: {files: [data/*.txt]}\ntokenizer: {unit: character, vocab_size: 60}\n"
    )
    assert beam_bpe("train", tmp_path / "build.yaml", "-q").returncode == 0
    assert "words of characters" in error_of("why", tmp_path / "out", "the")


def test_examples_of_tokens() -> None:
    assert doctest.testmod(tokens).failed == 0
