"""`beam-bpe prune`: a tokenizer without the tokens that its corpus hardly uses."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bpe_core.buffers import to_arrow
from bpe_core.errors import InvalidTokenizerError, TrainingError
from bpe_core.formats import TOKENIZER_FILES
from bpe_core.model import TokenizerModel
from bpe_core.pruning import PrunedTokenizer, most_used_tokens, prune_tokenizer
from bpe_core.short_repr import short_repr
from pipelines.analysis.subjects import Subject
from pipelines.analysis.token_uses import count_uses, read_uses
from pipelines.analysis.tokens import bytes_of_ids
from pipelines.counting.given import GivenCounts
from pipelines.errors import ConfigError, OutputError
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import save_tokenizer
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = ["Pruning", "prune"]

_TABLE: Final = "ids.parquet"
_NEW_TO_OLD: Final = "new_to_old.npy"
_OLD_TO_NEW: Final = "old_to_new.npy"


@short_repr
@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Result of pruning.

    Attributes:
        directory: path or URL of the files.
        before: number of ids of the tokenizer.
        pruned: the pruned tokenizer, with the map of ids.
        uses: number of uses of all ordinary tokens, and of those that were kept.
        files: names of the files.
        not_written: files of formats that cannot hold the tokenizer, with the reasons.
    """

    directory: str
    before: int
    pruned: PrunedTokenizer
    uses: tuple[int, int]
    files: tuple[str, ...]
    not_written: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "output": self.directory,
            "ids_before": self.before,
            "ids": len(self.pruned.new_to_old),
            "merges": len(self.pruned.model.merges),
            "fingerprint": self.pruned.model.fingerprint,
            "uses": self.uses[0],
            "uses_of_kept": self.uses[1],
            "files": list(self.files),
            "not_written": self.not_written,
        }

    def __str__(self) -> str:
        """Return the result as text."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        kept = len(self.pruned.new_to_old)
        yield f"ids      {self.before:,} → {kept:,}; {len(self.pruned.model.merges):,} merges"
        share = self.uses[1] / self.uses[0] if self.uses[0] else 1.0
        yield f"uses     {share:.3%} of {self.uses[0]:,} are of tokens that stay"
        yield f"output   {self.directory}"
        yield f"files    {', '.join(self.files)}"
        for name, reason in self.not_written.items():
            yield f"without  {name}: {reason}"


def prune(
    subject: Subject,
    destination: Directory,
    *,
    keep_used: int | None = None,
    vocab_size: int | None = None,
    counts: GivenCounts | None = None,
) -> Pruning:
    """Write a tokenizer without tokens that are hardly used, and the map of its ids.

    Args:
        subject: the tokenizer, in the output of a build.
        destination: directory to write, without a tokenizer.
        keep_used: keep tokens with at least this number of uses, and what they are made of.
        vocab_size: keep the most used tokens up to this number of ids.
        counts: counts that decide, instead of those of the output and its token files.

    Raises:
        ConfigError: there are no numbers of uses, or the size is too small.
        InputError, OutputError: a file is damaged, or cannot be written.
    """
    model = subject.model
    _check_destination(destination)
    uses = _find_uses(subject, counts)
    try:
        kept = uses >= (keep_used or 0)
        if vocab_size is not None:
            kept = most_used_tokens(model, uses, vocab_size)
        pruned = prune_tokenizer(model, kept)
    except InvalidTokenizerError as error:
        raise ConfigError(
            "The tokenizer cannot be pruned.", found=str(error), where=subject.location
        ) from None
    files, not_written = save_tokenizer(pruned.model, destination)
    maps = {
        _TABLE: _table_bytes(model, pruned, uses),
        _NEW_TO_OLD: _array_bytes(pruned.new_to_old),
        _OLD_TO_NEW: _array_bytes(pruned.old_to_new),
    }
    for name, data in maps.items():
        with destination.write(name) as file:
            file.write(data)
    stays = pruned.old_to_new[model.token_ids] >= 0
    return Pruning(
        directory=destination.url,
        before=len(model),
        pruned=pruned,
        uses=(int(uses.sum()), int(uses[stays].sum())),
        files=tuple(sorted([*(file["name"] for file in files), *maps])),
        not_written=not_written,
    )


def _check_destination(destination: Directory) -> None:
    ours = TOKENIZER_FILES | {_TABLE, _NEW_TO_OLD, _OLD_TO_NEW}
    if found := sorted(ours & destination.sizes().keys()):
        raise OutputError(
            "There is a tokenizer already.",
            expected="an empty directory, or one that does not exist",
            found=", ".join(found[:3]),
            where=destination.url,
            hint="Choose another directory for --output.",
        )


def _find_uses(subject: Subject, counts: GivenCounts | None) -> NDArray[np.int64]:
    """Return the uses of the ordinary tokens by given counts, in the token files, or by counts."""
    if subject.dataset is not None and counts is None:
        return read_uses(subject.dataset, subject.model)
    counts = counts or subject.counts
    if counts is None:
        raise ConfigError(
            "It is not known how often the tokens are used.",
            expected="the output of a build with counts or token files",
            found=subject.lost_counts or ("neither" if subject.output else "a tokenizer alone"),
            where=subject.location,
            hint="Give an output whose text was counted by the pattern of the tokenizer: "
            "--counts OUTPUT.",
        )
    try:
        return count_uses(subject.model, counts).uses
    except TrainingError as error:
        raise ConfigError(
            "The counts are not those of this tokenizer.",
            expected="text that was counted as the tokenizer splits it",
            found=str(error).removeprefix("tokenizer: "),
            where=counts.url,
            hint="Give an output whose text was counted by its pattern: --counts OUTPUT; or encode "
            "text with the tokenizer, and prune by its token files.",
        ) from None


def _table_bytes(model: TokenizerModel, pruned: PrunedTokenizer, uses: NDArray[np.int64]) -> bytes:
    """Return a Parquet file with a row for each id of the original, ascending."""
    ids = Vocabulary(model).ids
    all_uses = np.zeros(model.max_id + 1, np.int64)
    all_uses[model.token_ids] = uses
    table = pa.table(
        {
            "old_id": to_arrow(ids),
            "new_id": to_arrow(pruned.old_to_new[ids]),
            "bytes": pa.array(bytes_of_ids(model, ids.tolist()), pa.binary()),
            "special": to_arrow(np.isin(ids, list(model.special_tokens.values()))),
            "uses": to_arrow(all_uses[ids]),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _array_bytes(values: NDArray[np.int64]) -> bytes:
    file = io.BytesIO()
    np.save(file, values.astype("<i8"))
    return file.getvalue()
