"""Consistency of the rows of a token file: parts, affixes, offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.dataset.reading import TokenChunk
from pipelines.errors import shortened
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.verification.findings import Findings


@dataclass(frozen=True, kw_only=True)
class Places:
    """The offsets at which documents of an input file may begin.

    Attributes:
        first, end: the interval of the task.
        framing: least number of bytes between two documents; None: offsets are not bytes, so
            nothing follows from lengths.
    """

    first: int = 0
    end: int = np.iinfo(np.int64).max
    framing: int | None = None


class Rows:
    """The check of the rows of a file, in order: parts, affixes, offsets."""

    def __init__(
        self,
        where: str,
        findings: Findings,
        affixes: Sequence[int | None],
        inputs: Mapping[str, Places],
        vocabulary: Vocabulary,
    ) -> None:
        self._vocabulary = vocabulary
        self._where = where
        self._findings = findings
        self._prepend, self._append = affixes
        self._inputs = inputs
        self._reach = 0  # the end of the last row in its source
        self._open_bytes = 0  # of the last row's document, so far
        self._row = 0
        self._last: tuple[str, int, int] | None = None  # source, offset, part
        self._last_id: int | None = None
        self.documents = 0
        self.text_bytes = 0

    def check(self, chunk: TokenChunk) -> bool:
        """Check the next row group. Return False if its values cannot be counted."""
        if not len(chunk):
            return True
        starts = chunk.starts
        self.documents += int(starts.sum())
        self.text_bytes += int(chunk.column("num_bytes").sum())
        sources = chunk.columns["source"].to_numpy(zero_copy_only=False)
        offsets, parts = chunk.column("offset"), chunk.column("part")
        unknown = sorted(set(sources.tolist()) - self._inputs.keys())
        if unknown:
            self._note(0, f"of {unknown[0]!r}, which is not among the inputs of its task")
        before_source = np.append(self._last[0] if self._last else "", sources[:-1])
        before_offset = np.append(self._last[1] if self._last else -1, offsets[:-1])
        before_part = np.append(self._last[2] if self._last else -1, parts[:-1])
        same_source = before_source == sources
        same = same_source & (before_offset == offsets)
        self._note_first(
            ~starts & ~(same & (parts == before_part + 1)), "a part that does not follow its first"
        )
        self._note_first(
            starts & same_source & (offsets <= before_offset), "a document out of order"
        )
        self._check_places(chunk, starts, same_source)
        self._check_affixes(chunk, starts)
        is_fit = self._check_values(chunk)
        self._last = (str(sources[-1]), int(offsets[-1]), int(parts[-1]))
        self._row += len(chunk)
        return is_fit

    def _check_places(
        self, chunk: TokenChunk, starts: NDArray[np.bool_], same_source: NDArray[np.bool_]
    ) -> None:
        """Check that documents begin in the interval of their task, each after the last one."""
        offsets, sizes = chunk.column("offset"), chunk.column("num_bytes")
        done = np.cumsum(sizes)
        begins = np.maximum.accumulate(np.where(starts, np.arange(len(chunk)), -1))
        before = np.where(begins >= 0, (done - sizes)[begins], -self._open_bytes)
        reach = offsets + done - before
        reach_before = np.append(self._reach, reach[:-1])
        outside, within = np.zeros((2, len(chunk)), np.bool_)
        nothing = Places()
        for label, first, end in chunk.runs_of_sources():
            places = self._inputs.get(label, nothing)
            at = offsets[first:end]
            outside[first:end] = (at < places.first) | (at >= places.end)
            if places.framing is not None:
                within[first:end] = at < reach_before[first:end] + places.framing
        self._note_first(starts & outside, "a document outside the interval of its task")
        self._note_first(
            starts & same_source & within, "a document that begins before the previous one ends"
        )
        self._reach, self._open_bytes = int(reach[-1]), int((done - before)[-1])

    def _check_values(self, chunk: TokenChunk) -> bool:
        """Return True if all ids and numbers are valid."""
        is_fit = True
        wrong = np.flatnonzero(self._vocabulary.rows_of(chunk.ids) < 0)
        if len(wrong):
            row = int(np.searchsorted(chunk.offsets, wrong[0], side="right")) - 1
            message = f"id {int(chunk.ids[wrong[0]])} is not in the vocabulary"
            self._note(row, shortened([message], 1, total=len(wrong)))
            is_fit = False
        for name in ("num_bytes", "offset", "part"):
            negative = chunk.column(name) < 0
            if negative.any():
                self._note_first(negative, f"{name} below 0")
                is_fit = False
        return is_fit

    def _check_affixes(self, chunk: TokenChunk, starts: NDArray[np.bool_]) -> None:
        begin, end = chunk.offsets[:-1], chunk.offsets[1:]
        filled = end > begin
        if self._prepend is not None:
            right = np.zeros(len(chunk), np.bool_)
            right[filled] = chunk.ids[begin[filled]] == self._prepend
            self._note_first(starts & ~right, "a document without the prepended token")
        if self._append is not None:
            right = np.zeros(len(chunk), np.bool_)
            right[filled] = chunk.ids[end[filled] - 1] == self._append
            is_last = np.append(starts[1:], False)  # the next chunk decides about the last row
            is_last[-1] = False
            self._note_first(is_last & ~right, "a document without the appended token")
            if starts[0] and self._last is not None:
                self._check_last()
            self._last_id = int(chunk.ids[end[-1] - 1]) if filled[-1] else None

    def _check_last(self) -> None:
        if self._append is not None and self._last_id != self._append:
            self._note(-1, "a document without the appended token")

    def finish(self) -> None:
        """Check the last document, when there are no more rows."""
        if self._last is not None:
            self._check_last()

    def _note_first(self, wrong: NDArray[np.bool_], message: str) -> None:
        if wrong.any():
            total = int(wrong.sum())
            self._note(int(np.argmax(wrong)), shortened([message], 1, total=total))

    def _note(self, row: int, message: str) -> None:
        self._findings.note(self._where, f"row {self._row + row:,}: {message}")
