"""How fast are ids packed into rows of 2,048, and in how much memory?

All cases pack the dataset of a build:

- as the command, from Parquet to Parquet;
- as a function, from a file of ids to a file of rows, which are the input and the output of
  datatrove's merger (`shuffle_chunk_size`, in order);
- without writing anything, like llm-foundry's `ConcatTokensDataset`, which gets the ids instead of
  tokenizing.

Ours always includes the lengths of the documents with the rows. datatrove's merger writes the ends
of the documents, llm-foundry drops them, and neither has Parquet or checksums: in the comparison
with the command, datatrove copies a binary file. Only one module of llm-foundry is loaded, since
the package requires torch.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import command
import corpora
import numpy as np
import pyarrow.parquet as pq
import xxhash
import yaml
from corpora import QUICK_VOCAB_SIZE, VOCAB_SIZE, Text
from measure import OURS, Case, Limit, Outcome, Outputs, Target, peak, script_main

from pipelines.exports.packing import Stretch, concatenated_rows

_LENGTH = 2048
_TOKENS = 1_000_000_000
_READ_IDS = 1 << 20
_COMMAND = "beam-bpe export --to packed, whole process"
_FILES = "pack a file of ids to a file of rows"
_MEMORY = "pack ids to rows, writing nothing"
_SIDES: dict[str, dict[str, tuple[float, float] | None]] = {
    _COMMAND: {"datatrove": None, "llm-foundry": (5, 1)},
    _FILES: {"datatrove": (1, 1)},
    _MEMORY: {"llm-foundry": (5, 5)},
}


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure, after building the dataset if it does not exist."""
    text = texts[0] if quick else corpora.large(texts)
    vocab_size = QUICK_VOCAB_SIZE if quick else VOCAB_SIZE
    directory = _dataset(text, vocab_size, 0 if quick else _TOKENS)
    tokens = _tokens(directory)
    for what, others in _SIDES.items():
        yield Case(
            work=f"{what}, rows of {_LENGTH:,}",
            text=f"{tokens / 1e6:,.0f} M ids, uint16",
            path=str(directory),
            bytes=2 * tokens,
            threads=2 if what == _COMMAND else 1,
            sides=(OURS, *others),
            targets={side: [Target(*ratios)] for side, ratios in others.items() if ratios},
            limits=[Limit(800_000_000)] if what == _COMMAND else [],
            headline=["pack"],
            options={"vocab_size": vocab_size, "what": what},
        )


def _dataset(text: Text, vocab_size: int, tokens: int) -> Path:
    """Build a dataset from enough copies of the text, and write its ids to a file."""
    directory = corpora.MADE / f"packing-{Path(text.path).stem}-{tokens}"
    if (directory / "ids" / "ids.ds.metadata").is_file():
        return directory
    case = Case(
        work="",
        text="",
        path=text.path,
        bytes=text.bytes,
        threads=2,
        options={"vocab_size": vocab_size},
    )
    command.make_tokenizer(case)
    _encode(case, directory, 1)
    if _tokens(directory) < tokens:
        copies = -(-tokens // _tokens(directory))
        shutil.rmtree(directory / "build")
        _encode(case, directory, copies)
    _write_ids(directory)
    return directory


def _encode(case: Case, directory: Path, copies: int) -> None:
    texts = directory / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    for number in range(copies):
        (texts / f"{number:04d}.txt").unlink(missing_ok=True)
        (texts / f"{number:04d}.txt").symlink_to(case.path)
    config = {
        "output": str(directory / "build"),
        "input": {"files": [str(texts / "*.txt")], "separator": corpora.SEPARATOR.decode()},
        "tokenizer": {"path": str(command.tokenizer_directory(case))},
        "encode": {"append": corpora.SEPARATOR.decode()},
    }
    (directory / "build.yaml").write_text(yaml.safe_dump(config))
    program = str(Path(sys.executable).with_name("beam-bpe"))
    command.run_and_watch([program, "encode", str(directory / "build.yaml")])


def _tokens(directory: Path) -> int:
    manifest = json.loads((directory / "build" / "tokens" / "manifest.json").read_text())
    tokens: int = manifest["totals"]["tokens"]
    return tokens


def _write_ids(directory: Path) -> None:
    """Write the ids in the format of datatrove's own tokenization."""
    ids = directory / "ids"
    ids.mkdir(exist_ok=True)
    ends, end = [], 0
    with (ids / "ids.ds").open("wb") as file:
        for path in sorted((directory / "build" / "tokens").glob("train-*.parquet")):
            table = pq.read_table(path, columns=["input_ids", "num_tokens", "part"])
            table["input_ids"].combine_chunks().flatten().to_numpy().tofile(file)
            lengths = table["num_tokens"].to_numpy().astype(np.uint64)
            lengths = np.add.reduceat(lengths, np.flatnonzero(table["part"].to_numpy() == 0))
            ends.append(np.cumsum(lengths) + np.uint64(end))
            end = int(ends[-1][-1])
    np.concatenate(ends).tofile(ids / "ids.ds.index")
    (ids / "ids.ds.metadata").write_text(f"ids|2\n{end}\n")


def _documents(directory: Path) -> Iterator[np.ndarray]:
    ids = np.memmap(directory / "ids" / "ids.ds", np.uint16, "r")
    begin = 0
    for end in np.fromfile(directory / "ids" / "ids.ds.index", np.uint64).astype(int).tolist():
        yield ids[begin:end]
        begin = end


class _FullRows:
    """The checksum of all rows of full length; the peers drop the last, shorter row."""

    def __init__(self) -> None:
        self._hasher = xxhash.xxh3_128()
        self._tokens = 0

    def add(self, ids: np.ndarray) -> None:
        self._hasher.update(np.ascontiguousarray(ids, np.uint16))
        self._tokens += len(ids)

    def outputs(self) -> Outputs:
        return {"full rows": [self._tokens // _LENGTH, self._hasher.hexdigest()]}


def run_ours(case: Case) -> Outcome:
    run = {_COMMAND: _export, _FILES: _pack_files, _MEMORY: _pack_memory}[case.options["what"]]
    return run(case)


def _export(case: Case) -> Outcome:
    scratch = command.scratch()
    program = str(Path(sys.executable).with_name("beam-bpe"))
    source, destination = f"{case.path}/build", f"{scratch.name}/packed"
    arguments = ["--to", "packed", "--sequence-length", str(_LENGTH), "--workers"]
    run = command.run_and_watch(
        [program, "export", source, destination, *arguments, str(case.threads)]
    )

    def outputs() -> Outputs:
        rows = _FullRows()
        for path in sorted(Path(destination).glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(columns=["input_ids", "num_tokens"]):
                lengths = batch["num_tokens"].to_numpy()
                ids = batch["input_ids"].flatten().to_numpy()
                rows.add(ids[: lengths[lengths == _LENGTH].sum(dtype=np.int64)])
        scratch.cleanup()
        return rows.outputs()

    return Outcome({"pack": run.seconds}, outputs, {"pack": run.peak_bytes})


def _blocks(case: Case) -> Iterator[Any]:
    """Yield blocks of packed rows from the file of ids."""
    source = Path(case.path) / "ids"
    ends = np.fromfile(source / "ids.ds.index", np.uint64).astype(np.int64)
    starts = np.concatenate([[0], ends[:-1]])

    def stretches() -> Iterator[Stretch]:
        first = 0
        with (source / "ids.ds").open("rb") as ids:
            while len(piece := np.fromfile(ids, np.uint16, _READ_IDS)):
                low, high = np.searchsorted(starts, (first, first + len(piece)))
                yield Stretch(ids=piece, starts=starts[low:high] - first)
                first += len(piece)

    return concatenated_rows(stretches(), _LENGTH)


def _pack_files(case: Case) -> Outcome:
    scratch = command.scratch()
    packed = Path(scratch.name) / "rows.bin"
    begun = perf_counter()
    with packed.open("wb") as rows, (Path(scratch.name) / "lengths.bin").open("wb") as lengths:
        for block in _blocks(case):
            rows.write(block.ids.data)
            lengths.write(block.document_lengths.data)
    seconds = perf_counter() - begun
    return Outcome({"pack": seconds}, lambda: _rows_in(packed, scratch), {"pack": peak()})


def _pack_memory(case: Case) -> Outcome:
    begun = perf_counter()
    for _ in _blocks(case):
        pass
    seconds = perf_counter() - begun

    def outputs() -> Outputs:
        found = _FullRows()
        for block in _blocks(case):
            found.add(block.ids[: (block.num_tokens == _LENGTH).sum() * _LENGTH])
        return found.outputs()

    return Outcome({"pack": seconds}, outputs, {"pack": peak()})


def _rows_in(path: Path, scratch: Any) -> Outputs:
    rows = _FullRows()
    ids = np.memmap(path, np.uint16, "r")
    full = len(ids) // _LENGTH * _LENGTH
    for begin in range(0, full, 1 << 24):
        rows.add(ids[begin : min(begin + (1 << 24), full)])
    scratch.cleanup()
    return rows.outputs()


def run_datatrove(case: Case) -> Outcome:
    from datatrove.pipeline.tokens import DocumentTokenizerMerger
    from datatrove.utils.logging import logger

    logger.remove()
    scratch = command.scratch()
    merger = DocumentTokenizerMerger(
        f"{case.path}/ids",
        scratch.name,
        "rows",
        shuffle=False,
        shuffle_chunk_size=_LENGTH,
        progress=False,
    )
    begun = perf_counter()
    merger.run()
    seconds = perf_counter() - begun
    packed = Path(scratch.name) / "000_rows.ds"
    return Outcome({"pack": seconds}, lambda: _rows_in(packed, scratch), {"pack": peak()})


def run_llm_foundry(case: Case) -> Outcome:
    module = _llm_foundry()

    def rows() -> Iterator[Mapping[str, np.ndarray]]:
        documents = ({"text": ids} for ids in _documents(Path(case.path)))
        yield from module.ConcatTokensDataset(documents, _as_list, _LENGTH, "", "", False)

    begun = perf_counter()
    for _ in rows():
        pass
    seconds = perf_counter() - begun

    def outputs() -> Outputs:
        found = _FullRows()
        for row in rows():
            found.add(row["tokens"])
        return found.outputs()

    return Outcome({"pack": seconds}, outputs, {"pack": peak()})


def _as_list(ids: np.ndarray | str, **options: Any) -> dict[str, list[int]]:
    """Replace the tokenizer: return ids unchanged. Text only occurs as empty separators."""
    return {"input_ids": [] if isinstance(ids, str) else ids.tolist()}


def _llm_foundry() -> Any:
    """Load llm-foundry's module of datasets, with stubs for the base classes that it imports."""
    for name, attributes in {
        "datasets": ["Dataset", "IterableDataset"],
        "torch": [],
        "torch.utils": [],
        "torch.utils.data": ["IterableDataset"],
        "transformers": ["PreTrainedTokenizerBase"],
    }.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(dict.fromkeys(attributes, object))
    package = importlib.metadata.distribution("llm-foundry")
    path = package.locate_file("llmfoundry/data/data.py")
    spec = importlib.util.spec_from_file_location("llmfoundry_data", str(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SIDES = {OURS: run_ours, "datatrove": run_datatrove, "llm-foundry": run_llm_foundry}

if __name__ == "__main__":
    script_main(SIDES)
