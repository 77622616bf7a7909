"""A sample of the text of a build, decoded from its token files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from numpy.typing import NDArray

from bpe_core.buffers import concatenate
from bpe_core.model import TokenizerModel
from pipelines.analysis.evaluation_texts import Documents, WrittenText
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import ConfigError
from pipelines.manifest.names import source_name
from pipelines.tokenizers.files import Model
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = ["open_sample"]

# Parts of the rows, and what is read of each.
_PARTS: Final = 32
_PART_BYTES: Final = 256 << 10
_PART_ROWS: Final = 1000
_SPLIT: Final = "train"


def open_sample(location: str, storage_options: Mapping[str, Any] | None = None) -> WrittenText:
    """Return a sample of the text that a build encoded: at most 8 MiB, the same at every call.

    It consists of the first documents of 32 equal parts of the training split. The sources with
    documents among them are its groups.

    Raises:
        ConfigError: The text cannot be restored from ids.
        InputError: There are no token files, or they are damaged.
    """
    dataset = TokenDataset.open(location, storage_options)
    model = dataset.find_model()
    _check_restores(model, location)
    texts: dict[str, list[bytes]] = {}
    for name, text in _read_rows(dataset, model):
        texts.setdefault(name, []).append(text)
    return WrittenText(
        "sample",
        f"sample of the text in {location}",
        {name: partial(_join, texts[name]) for name in sorted(texts)},
    )


def _join(texts: Sequence[bytes]) -> list[Documents]:
    data, offsets = concatenate(texts)
    return [Documents(data, offsets[:-1], offsets[1:])]


def _check_restores(model: Model, location: str) -> None:
    """Check that decoding restores every text.

    Raises:
        ConfigError: It does not.
    """
    reason = None
    if not isinstance(model, TokenizerModel) or model.characters is not None:
        reason = "one that merges characters"
    elif model.normalizer is not None or model.normalize_quotes:
        reason = "a normalizer"
    elif model.space_rules:
        reason = model.space_rules[0]
    elif model.gives_unknown_id:
        reason = "unknown bytes"
    if reason is not None:
        raise ConfigError(
            "The text cannot be restored from the token files.",
            expected="a tokenizer whose ids decode to the text that they encode",
            found=reason,
            where=location,
            hint="Evaluate on files: --text FILE.",
        )


def _read_rows(dataset: TokenDataset, model: Model) -> Iterator[tuple[str, bytes]]:
    """Yield the sampled rows: the name of the source, and the text."""
    vocabulary = Vocabulary(model)
    first_id, last_id = (dataset.affix_id(key, model) for key in ("prepend", "append"))
    names = [source["name"] for source in dataset.configuration["input"]]
    rows = dataset.num_rows(_SPLIT)
    parts = min(_PARTS, rows)
    for part in range(parts):
        begin, end = rows * part // parts, rows * (part + 1) // parts
        size = 0
        for label, ids, is_first in _rows_between(dataset, begin, min(end, begin + _PART_ROWS)):
            # What was put around the document, not what is in it.
            start = 1 if is_first and first_id is not None else 0
            stop = len(ids) - (len(ids) > start and ids[-1] == last_id)
            text = vocabulary.decode(ids[start:stop])[0].tobytes()
            yield source_name(label, names) or "all", text
            size += len(text)
            if size >= _PART_BYTES:
                break


def _rows_between(
    dataset: TokenDataset, begin: int, end: int
) -> Iterator[tuple[str, NDArray[Any], bool]]:
    """Yield the label, the ids and whether it begins a document of each of consecutive rows."""
    before = 0
    for file in dataset.of_split(_SPLIT):
        start, stop = max(begin - before, 0), min(end - before, file.rows)
        before += file.rows
        if start >= stop:
            continue
        for chunk in dataset.file_chunks(file, ["source", "part"], start_row=start):
            starts = chunk.starts.tolist()
            for label, first, last in chunk.runs_of_sources():
                for row in range(first, min(last, stop - start)):
                    ids = chunk.ids[chunk.offsets[row] : chunk.offsets[row + 1]]
                    yield label, ids, starts[row]
            start += len(chunk)
            if start >= stop:
                break
