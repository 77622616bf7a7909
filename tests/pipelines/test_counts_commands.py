"""`beam-bpe counts`: what is combined file by file equals what is combined in memory, and a sum
has the bytes of a count of both corpora."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from operator import add, sub
from pathlib import Path

import pytest
from build_support import command as beam_bpe
from build_support import some_text, write_corpus
from grouped_counts_support import GROUPED, Grouped, counts_of
from hypothesis import assume, given
from hypothesis import strategies as st

from bpe_core import BPETokenizer, Group, PretokenCounts
from pipelines.counting import shard_files, shards, streams
from pipelines.counting.algebra import MERGE, SUBTRACT, Operation, combine_to_output
from pipelines.counting.given import GivenCounts
from pipelines.storage.directory import Directory


def run(*arguments: object) -> str:
    done = beam_bpe("counts", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(*arguments: object) -> tuple[int, str]:
    done = beam_bpe("counts", *arguments)
    return done.returncode, done.stderr


def shard_bytes(output: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (output / "counts").glob("*.parquet")}


def write_output(counts: PretokenCounts, directory: Path, number: int) -> GivenCounts:
    """Write counts as an output with so many shards."""
    directory.mkdir()
    counts.save(directory / "all.parquet")
    whole = GivenCounts.open(str(directory / "all.parquet"))
    combine_to_output([whole], MERGE, Directory(url=str(directory / "out")), number)
    return GivenCounts.open(str(directory / "out"))


def combine(
    directory: Path, counts: Sequence[GivenCounts], operation: Operation, number: int
) -> PretokenCounts:
    combine_to_output(counts, operation, Directory(url=str(directory)), number)
    return PretokenCounts.load(directory / "counts")


# ---- the same as in memory


@pytest.mark.slow
@given(
    one=GROUPED,
    other=GROUPED,
    numbers=st.tuples(*[st.integers(1, 6)] * 3),
    documents=st.tuples(st.booleans(), st.booleans()),
    plain=st.booleans(),
)
def test_combining_files_equals_combining_in_memory(
    one: Grouped,
    other: Grouped,
    numbers: tuple[int, int, int],
    documents: tuple[bool, bool],
    plain: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    assume(len({group.value is None for _, group in [*one, *other]}) < 2)
    root = tmp_path_factory.mktemp("combined")
    a = counts_of(one, documents=documents[0])
    b = counts_of(other, documents=documents[1])
    if plain:
        b = PretokenCounts.from_mapping(dict(b.items()), {"pattern": "gpt2"})
    given_a, given_b = (
        write_output(a, root / "a", numbers[0]),
        write_output(b, root / "b", numbers[1]),
    )
    both = combine(root / "both", [given_a, given_b], MERGE, numbers[2])
    assert both == a + b
    merged = GivenCounts.open(str(root / "both"))
    assert combine(root / "left", [merged, given_b], SUBTRACT, numbers[0]) == a + b - b
    half = Operation(name="scale", combine=lambda parts: parts[0] * 0.5)
    assert combine(root / "half", [merged], half, 2) == both * 0.5


@pytest.mark.parametrize("numbers", list(product((1, 3, 4), (1, 6), (2, 3))), ids=str)
def test_a_sum_does_not_depend_on_shards(
    numbers: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor on the rows that are in memory at once."""
    monkeypatch.setattr(streams, "_ROWS_IN_MEMORY", 8)
    monkeypatch.setattr(streams, "_FEWEST_ROWS", 3)
    a = PretokenCounts.from_mapping({b"%d" % (i * i): i + 1 for i in range(60)})
    b = PretokenCounts.from_mapping({b"%d" % (3 * i): 7 for i in range(60)})
    parts = [
        write_output(a, tmp_path / "a", numbers[0]),
        write_output(b, tmp_path / "b", numbers[1]),
    ]
    assert combine(tmp_path / "both", parts, MERGE, numbers[2]) == a + b
    direct = write_output(a + b, tmp_path / "direct", numbers[2])
    for name, data in shard_bytes(tmp_path / "direct" / "out").items():
        assert (tmp_path / "both" / "counts" / name).read_bytes() == data
    assert direct.rows == len(a + b)


# ---- the same as counting


@pytest.fixture
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (7, 40, 9)
    for name, limit in zip(("ROWS", "BYTES", "ENTRIES"), limits, strict=True):
        monkeypatch.setattr(shard_files, f"ROW_GROUP_{name}", limit)
    monkeypatch.setattr(shards, "_LIMITS", limits)


def records(documents: Sequence[bytes]) -> bytes:
    languages = ("de", "en", "", "fr")
    lines = (
        json.dumps({"text": text.decode(), "lang": languages[i % 4]})
        for i, text in enumerate(documents)
    )
    return "\n".join(lines).encode() + b"\n"


def count(directory: Path, name: str, files: Sequence[str], counts: dict[str, object]) -> Path:
    source = {"files": [f"data/{file}" for file in files], "format": "jsonl"}
    config = directory / f"{name}.yaml"
    config.write_text(json.dumps({"output": name, "input": [source], "counts": counts}))
    done = beam_bpe("count", config, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return directory / name


@pytest.mark.slow
@pytest.mark.usefixtures("small_row_groups")
@pytest.mark.parametrize(
    "extra", [{}, {"group_by": "lang"}, {"group_by": "lang", "document_frequency": True}], ids=str
)
def test_a_sum_has_the_bytes_of_a_count_of_both(extra: dict[str, object], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jsonl").write_bytes(records(some_text(9)))
    (data / "b.jsonl").write_bytes(records(some_text(8, start=9)))
    a = count(tmp_path, "a", ["a.jsonl"], {"shards": 2, **extra})
    b = count(tmp_path, "b", ["b.jsonl"], {"shards": 3, **extra})
    both = count(tmp_path, "both", ["*.jsonl"], {"shards": 2, **extra})
    run("merge", a, b / "counts", "--output", tmp_path / "sum", "--shards", 2)
    assert shard_bytes(tmp_path / "sum") == shard_bytes(both)
    run("subtract", tmp_path / "sum", b, "-o", tmp_path / "left", "--shards", 2)
    assert shard_bytes(tmp_path / "left") == shard_bytes(a)
    manifests = [
        json.loads((p / "counts/manifest.json").read_bytes()) for p in (tmp_path / "sum", both)
    ]
    for key in ("corpus", "totals", "shards", "groups"):
        assert manifests[0].get(key) == manifests[1].get(key)


# ---- commands


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished counts, a and b."""
    root = tmp_path_factory.mktemp("corpora")
    for name, start in (("a", 0), ("b", 7)):
        write_corpus(root / "data" / name, {"x.txt": some_text(6, start=start)})
        (root / f"{name}.yaml").write_text(
            f"output: {name}\ninput: {{files: [data/{name}/*]}}\ncounts: {{shards: 2}}\n"
            "tokenizer: {vocab_size: 300}\n"
        )
        assert beam_bpe("count", root / f"{name}.yaml", "-q").returncode == 0
    return root


@pytest.fixture
def loaded(corpora: Path) -> Callable[[str], PretokenCounts]:
    return lambda name: PretokenCounts.load(corpora / name / "counts")


OPERATIONS: dict[str, Callable[[PretokenCounts], PretokenCounts]] = {
    "scale --by 1/3": lambda counts: counts * (1 / 3),
    "prune --min-count 4": lambda counts: counts.prune(4),
    "filter --script Han --max-bytes 9": lambda c: c.filter(script="Han", max_bytes=9),
    "filter --regex ^\\s?[a-m] --min-bytes 2": lambda c: c.filter(regex=r"^\s?[a-m]", min_bytes=2),
}


@pytest.mark.parametrize("arguments", OPERATIONS)
def test_commands_equal_the_functions(
    arguments: str, corpora: Path, loaded: Callable[[str], PretokenCounts], tmp_path: Path
) -> None:
    name, *options = arguments.split(" ")
    expected = OPERATIONS[arguments](loaded("a"))
    shown = run(name, corpora / "a", *options, "-o", tmp_path / "out")
    assert shown.startswith(
        f"counts: {len(expected):,} distinct pre-tokens, {expected.total():,} in"
    )
    assert PretokenCounts.load(tmp_path / "out/counts") == expected
    run(name, corpora / "a/counts", *options, "-o", tmp_path / "one.parquet")
    assert PretokenCounts.load(tmp_path / "one.parquet") == expected
    assert beam_bpe("verify", tmp_path / "out").returncode == 0


def test_several_counts_are_merged_and_subtracted(
    corpora: Path, loaded: Callable[[str], PretokenCounts], tmp_path: Path
) -> None:
    a, b = loaded("a"), loaded("b")
    b.save(tmp_path / "b.parquet")
    run("merge", corpora / "a", tmp_path / "b.parquet", corpora / "a", "-o", tmp_path / "m.parquet")
    assert PretokenCounts.load(tmp_path / "m.parquet") == reduce(add, [a, b, a])
    run("subtract", tmp_path / "m.parquet", corpora / "a", corpora / "b", "-o", tmp_path / "out")
    assert PretokenCounts.load(tmp_path / "out/counts") == reduce(sub, [a + b + a, a, b])


def test_tables(corpora: Path, loaded: Callable[[str], PretokenCounts]) -> None:
    a, b = loaded("a"), loaded("b")
    shown = json.loads(run("top", corpora / "a", "-n", "3", "--json"))
    _, _, numbers = a.top(3).columns()
    assert shown["total"] == a.total()
    assert [row["count"] for row in shown["pretokens"]] == numbers.tolist()
    assert "share" in run("top", corpora / "a").splitlines()[0]

    shown = json.loads(run("diff", corpora / "a", corpora / "b", "-n", 500, "--json"))
    assert shown["totals"] == [a.total(), b.total()]
    of_a, of_b = dict(a.items()), dict(b.items())
    found = {row["pretoken"].encode(): tuple(row["counts"]) for row in shown["pretokens"]}
    assert found == {key: (of_a.get(key, 0), of_b.get(key, 0)) for key in of_a | of_b}
    differences = [abs(one - other) for one, other in (row["shares"] for row in shown["pretokens"])]
    assert differences == pytest.approx(sorted(differences, reverse=True))

    shown = json.loads(run("show", corpora / "a", " cat", " nowhere", "--json"))
    assert [row["count"] for row in shown["pretokens"]] == [of_a[b" cat"], 0]
    assert '" nowhere"' in run("show", corpora / "a", " nowhere")


def test_show_has_groups_and_documents(tmp_path: Path) -> None:
    grouped = {(b" low", Group("web", "de")): (3, 1), (b" low", Group("web", "")): (4, 2)}
    write_output(counts_of(grouped), tmp_path / "g", 3)
    (row,) = json.loads(run("show", tmp_path / "g/out", " low", "--json"))["pretokens"]
    assert (row["count"], row["documents"]) == (7, 3)
    assert row["groups"][0] == {"source": "web", "value": "", "count": 4, "documents": 2}
    assert "web, (no value)" in run("show", tmp_path / "g/out", " low")


def test_a_finished_result_is_kept_and_another_is_refused(corpora: Path, tmp_path: Path) -> None:
    arguments = ("scale", corpora / "a", "-o", tmp_path / "out", "--by")
    run(*arguments, "0.5")
    before = shard_bytes(tmp_path / "out")
    run(*arguments, "1/2")
    code, error = refused(*arguments, "2")
    assert (code, shard_bytes(tmp_path / "out")) == (5, before)
    assert "The output has counts already; nothing was changed." in error
    run("top", corpora / "a", "-n", 1)
    code, error = refused("merge", corpora / "a", "-o", corpora / "a")
    assert (code, "has counts already" in error) == (5, True)
    run("merge", corpora / "a", "-o", tmp_path / "x.parquet")
    assert refused("merge", corpora / "a", "-o", tmp_path / "x.parquet")[0] == 5


def test_an_interrupted_result_is_written_again(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("merge", corpora / "a", corpora / "b", "-o", tmp_path / "out")
    run(*arguments)
    whole = shard_bytes(tmp_path / "out")
    counts = tmp_path / "out/counts"
    plan = json.loads((counts / "manifest.json").read_bytes())
    (counts / "manifest.json").unlink()
    (counts / "_plan.json").write_text(
        json.dumps({"format": 2, "configuration": plan["configuration"], "inputs": {}})
    )
    (counts / "shard-00001-of-00002.parquet").unlink()
    run(*arguments)
    assert shard_bytes(tmp_path / "out") == whole


def test_bad_input_is_refused(corpora: Path, tmp_path: Path) -> None:
    output = ("-o", tmp_path / "out")
    cases: list[tuple[tuple[object, ...], str]] = [
        (("top", tmp_path), "There are no counts."),
        (("top", tmp_path / "no.parquet"), "no such file"),
        (("scale", corpora / "a", "--by", "half", *output), "The factor is not a number"),
        (
            ("scale", corpora / "a", "--by", "-1", *output),
            "The factor is not a number of at least 0.",
        ),
        (("filter", corpora / "a", "--script", "Klingon", *output), "a script of Unicode"),
        (("filter", corpora / "a", "--source", "web", *output), "not kept apart by source"),
        (("subtract", corpora / "a", corpora / "b", *output), "to subtract a part of the counts"),
        (("show", corpora / "a", ""), "A pre-token is empty."),
        (("merge", corpora / "a", "--shards", 2, "-o", tmp_path / "x.parquet"), "has no shards"),
    ]
    for arguments, problem in cases:
        code, error = refused(*arguments)
        assert code in (2, 4), arguments
        assert problem in error.replace("\n", " "), error
        assert "Traceback" not in error


def test_unknown_groups_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    counts_of({(b"x", Group("web", "de")): (1, 1), (b"y", Group("books", "en")): (1, 1)}).save(
        tmp_path / "x.parquet"
    )
    for option, wrong, known in (("--source", "wbe", "web"), ("--value", "d", "de")):
        output = ("-o", tmp_path / "out")
        code, error = refused("filter", tmp_path / "x.parquet", option, wrong, *output)
        assert (code, "expected: one of " in error) == (2, True)
        assert f"Did you mean {known}?" in error


def test_counts_with_other_groups_are_compared(tmp_path: Path) -> None:
    counts_of({(b"x", Group("web", "de")): (3, 1), (b"y", Group("web", "en")): (1, 1)}).save(
        tmp_path / "by-lang.parquet"
    )
    counts_of({(b"x", Group("web")): (1, 1), (b"y", Group("books")): (1, 1)}).save(
        tmp_path / "by-source.parquet"
    )
    done = beam_bpe(
        "counts", "diff", tmp_path / "by-lang.parquet", tmp_path / "by-source.parquet", "--json"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["pretokens"]
    assert {row["pretoken"]: row["counts"] for row in rows} == {"x": [3, 1], "y": [1, 1]}


def test_other_rules_are_refused_by_both_names(corpora: Path, tmp_path: Path) -> None:
    PretokenCounts.from_mapping({b"x": 1}, {"pattern": "cl100k"}).save(tmp_path / "x.parquet")
    for command in ("merge", "diff"):
        output = [] if command == "diff" else ["-o", tmp_path / "out"]
        code, error = refused(command, corpora / "a", tmp_path / "x.parquet", *output)
        assert code == 2
        assert "gpt2 and cl100k" in error
    a = counts_of({(b"x", Group("web", "de")): (1, 1)})
    b = counts_of({(b"y", Group("web")): (1, 1)})
    a.save(tmp_path / "a.parquet")
    b.save(tmp_path / "b.parquet")
    error = refused("merge", tmp_path / "a.parquet", tmp_path / "b.parquet", "-o", tmp_path / "o")[
        1
    ]
    assert "The counts are grouped by different fields." in error


def test_damage_is_noticed(corpora: Path, tmp_path: Path) -> None:
    run("merge", corpora / "a", "-o", tmp_path / "out")
    shard = tmp_path / "out/counts/shard-00000-of-00002.parquet"
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    code, error = refused("top", tmp_path / "out")
    assert (code, "A file of counts is damaged." in error) == (5, True)
    shard.write_bytes(data[:-4])
    assert "missing or of another size" in refused("top", tmp_path / "out")[1]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    code, error = refused("top", tmp_path / "bad.parquet")
    assert (code, "The counts cannot be read." in error) == (4, True)


# ---- training


def train_config(root: Path, name: str, counts: str, **tokenizer: object) -> Path:
    config = root / f"{name}.yaml"
    config.write_text(
        json.dumps(
            {
                "output": name,
                "input": [{"files": ["data/*/*"]}],
                "tokenizer": {"vocab_size": 300, **tokenizer},
                "counts": {"path": counts} if counts else {"shards": 2},
            }
        )
    )
    return config


@pytest.mark.slow
def test_a_sum_trains_the_tokenizer_of_both(corpora: Path, tmp_path: Path) -> None:
    shutil.copytree(corpora / "data", tmp_path / "data")
    run("merge", corpora / "a", corpora / "b", "-o", tmp_path / "sum")
    direct = train_config(tmp_path, "direct", "")
    given = train_config(tmp_path, "given", "sum")
    for config in (direct, given):
        assert beam_bpe("build", config, "-q").returncode == 0
    files = [tmp_path / output / "tokenizer/tokenizer.json" for output in ("direct", "given")]
    assert len({file.read_bytes() for file in files}) == 1
    assert not (tmp_path / "given/counts").exists()
    assert beam_bpe("verify", tmp_path / "given").returncode == 0
    again = beam_bpe("build", given)
    assert "already finished" in again.stdout + again.stderr
    # Other counts are another configuration, and are not removed by --restart.
    run("scale", corpora / "a", "--by", 2, "-o", tmp_path / "twice")
    train_config(tmp_path, "given", "twice")
    assert "given_counts" in beam_bpe("train", given).stderr
    assert beam_bpe("train", given, "--restart", "-q").returncode == 0
    assert (tmp_path / "twice/counts/manifest.json").exists()


def test_given_counts_that_do_not_fit_are_refused(corpora: Path, tmp_path: Path) -> None:
    shutil.copytree(corpora / "data", tmp_path / "data")
    run("merge", corpora / "a", "-o", tmp_path / "sum")
    PretokenCounts.load(tmp_path / "sum/counts").save(tmp_path / "sum.parquet")
    for counts, command, problem in (
        ("sum", "count", "There is nothing to count."),
        ("no", "train", "There are no counts."),
        ("no", "train", "Change counts.path, or remove it"),
        ("sum.parquet", "train", "Counts without a manifest cannot be trained from."),
    ):
        done = beam_bpe(command, train_config(tmp_path, "out", counts))
        assert (done.returncode > 0, problem in done.stderr) == (True, True), done.stderr
    done = beam_bpe("train", train_config(tmp_path, "out", "sum", pattern="cl100k"))
    assert done.returncode == 2
    assert "found cl100k and gpt2" in done.stderr
    assert "where: counts.path:" in done.stderr


def test_sizes_are_compared_on_given_counts(corpora: Path, tmp_path: Path) -> None:
    shutil.copytree(corpora / "data", tmp_path / "data")
    run("merge", corpora / "a", "-o", tmp_path / "sum")
    done = beam_bpe("sizes", train_config(tmp_path, "out", "sum"), "--vocab", "260,280", "--json")
    assert done.returncode == 0, done.stderr
    counted = PretokenCounts.load(tmp_path / "sum/counts")
    text = sum(len(pretoken) * count for pretoken, count in counted.items())
    sizes = json.loads(done.stdout)["sizes"]
    assert [size["vocab_size"] for size in sizes] == [260, 280]
    assert {source["bytes"] for size in sizes for source in size["sources"].values()} == {text}


def test_analyses_of_an_output_use_the_counts_that_it_was_trained_from(
    corpora: Path, tmp_path: Path
) -> None:
    shutil.copytree(corpora / "data", tmp_path / "data")
    shutil.copytree(corpora / "a/counts", tmp_path / "elsewhere/counts")
    assert beam_bpe("train", train_config(tmp_path, "out", "elsewhere"), "-q").returncode == 0
    token = find_newest(tmp_path / "out")
    sizes = beam_bpe("sizes", tmp_path / "out", "--vocab", "260,264", "--json")
    assert sizes.returncode == 0, sizes.stderr
    tokens = json.loads(sizes.stdout)["sizes"][0]["total"]["tokens"]
    assert beam_bpe("evaluate", tmp_path / "out", "--json").returncode == 0
    explained = beam_bpe("explain", tmp_path / "out", "--id", token, "--json")
    assert explained.returncode == 0, explained.stderr
    uses = json.loads(explained.stdout)["pretokens"]["uses"]
    assert 0 < uses < tokens
    suspects = beam_bpe("explain", tmp_path / "out", "--suspects")
    assert "neither counts" not in suspects.stdout
    pruned = beam_bpe(
        "prune", tmp_path / "out", "--keep-used", 1, "--output", tmp_path / "p", "--json"
    )
    assert json.loads(pruned.stdout)["uses"] > 0
    shutil.rmtree(tmp_path / "elsewhere")
    gone = beam_bpe("sizes", tmp_path / "out", "--vocab", "260")
    assert (gone.returncode, "was trained from counts there" in gone.stderr) == (4, True)
    explained = beam_bpe("explain", tmp_path / "out", "--id", token)
    assert "pre-tokens   not searched: none, though" in explained.stdout


def find_newest(output: Path) -> int:
    """Return the id of the newest token of an output."""
    return max(BPETokenizer.load(output).vocab)


@pytest.mark.slow
def test_a_mixture_of_given_counts_has_their_groups(corpora: Path, tmp_path: Path) -> None:
    """The input, one source without groups, is only encoded."""
    shutil.copytree(corpora / "data", tmp_path / "data")
    groups = {
        (text, Group(source)): (n, n)
        for source, words in (("web", b" the| of| and"), ("code", b"def| return|self"))
        for n, text in enumerate(words.split(b"|"), 20)
    }
    counts = counts_of(groups)
    counts.metadata["special_tokens"] = '["<|endoftext|>"]'
    counts.save(tmp_path / "counts.parquet")
    run("merge", tmp_path / "counts.parquet", "-o", tmp_path / "given")
    mixture = {"web": 0, "code": 1}
    config = train_config(tmp_path, "out", "given", mixture=mixture, min_documents=21)
    done = beam_bpe("train", config)
    assert done.returncode == 0, done.stderr
    tokens = BPETokenizer.load(tmp_path / "out").vocab.values()
    assert b" return" in tokens
    assert not {b" the", b"def"} & set(tokens)
    wrong = train_config(tmp_path, "wrong", "given", mixture={"web": 1, "cod": 1})
    for command in ("plan", "train"):
        refused = beam_bpe(command, wrong)
        assert (refused.returncode, "did you mean 'code'?" in refused.stderr) == (2, True)
