"""Random builds with random faults keep every promise, and the simulation notices broken ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import model
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from build_support import ROOT, config_for
from corpus import END, SPECIAL_TOKENS, Planted, Source
from inline_runner import inline_runner
from model import Broken, Model, Trained
from profiles import times

from bpe_core import PretokenCounts
from pipelines import build

pytestmark = [pytest.mark.process, pytest.mark.slow]

TEXTS = [b"the cat sat on the mat", b"", b"bad \xff", b"the dog and the cat"]


def test_simulated_datasets_keep_every_promise() -> None:
    given = ["--seed", "1000", "--episodes", str(times(1))]
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "simulation", *given],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "data").mkdir()
    (folder / "data" / "s-0.txt").write_bytes(b"".join(text + END.encode() for text in TEXTS))
    config = config_for(
        folder,
        input={"name": "s"},
        tokenizer={"vocab_size": 262, "special_tokens": list(SPECIAL_TOKENS)},
        encode={"append": END, "max_reject_fraction": 1.0},
        report=False,
    )
    with inline_runner():
        build.build(config)
    return folder / "out"


def check_all(output: Path) -> None:
    documents = [Planted(text) for text in TEXTS]
    expected = Model.of([Source("s", "text", {}, {"s/s-0.txt": documents})], "reject")
    trained = Trained.of(expected.counts("gpt2"), 262, "gpt2")
    model.check_counts(output, expected, "gpt2")
    model.check_tokenizer(output, trained)
    model.check_tokens(output, expected, trained)
    model.check_totals(output, expected)
    model.check_rejects(output, expected)
    model.check_nothing_left(output)


def change_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def change_counts(output: Path) -> None:
    counts = PretokenCounts.load(output / "counts")
    (path,) = (output / "counts").glob("shard-00000-*.parquet")
    assert len(counts)
    change_table(
        path,
        lambda table: table.set_column(
            table.schema.get_field_index("count"),
            table.schema.field("count"),
            pc.add(table["count"], pa.scalar(1, table.schema.field("count").type)),
        ),
    )


def tokens_of(output: Path) -> Path:
    (path,) = (output / "tokens").glob("train-*.parquet")
    return path


def change_id(table: pa.Table) -> pa.Table:
    ids = table["input_ids"].to_pylist()
    ids[0][0] ^= 1
    column = pa.array(ids, table.schema.field("input_ids").type)
    return table.set_column(0, table.schema.field("input_ids"), column)


def change_merges(output: Path) -> None:
    path = output / "tokenizer" / "tokenizer.tiktoken"
    lines = path.read_text().splitlines()
    first, second = lines[-2].split(), lines[-1].split()
    path.write_text("\n".join([*lines[:-2], f"{second[0]} {first[1]}", f"{first[0]} {second[1]}"]))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a count": change_counts,
    "a merge": change_merges,
    "an id": lambda output: change_table(tokens_of(output), change_id),
    "a missing document": lambda output: change_table(
        tokens_of(output), lambda table: table.slice(1)
    ),
    "a repeated document": lambda output: change_table(
        tokens_of(output), lambda table: pa.concat_tables([table, table.slice(0, 1)])
    ),
    "documents in another order": lambda output: change_table(
        tokens_of(output),
        lambda table: table.set_column(
            table.schema.get_field_index("offset"), "offset", table["offset"].take([1, 0])
        ),
    ),
    "a missing reject": lambda output: shutil.rmtree(output / "rejects"),
    "a temporary file": lambda output: (output / "tokens" / "_plan.json").write_text("{}"),
}


def test_what_a_build_makes_is_what_the_model_expects(output: Path) -> None:
    check_all(output)


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_output_is_noticed(change: str, output: Path, tmp_path: Path) -> None:
    copy = tmp_path / "out"
    shutil.copytree(output, copy)
    CHANGES[change](copy)
    with pytest.raises(Broken):
        check_all(copy)
