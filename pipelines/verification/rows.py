"""Rows of a token file, held against each other: parts, affixes, places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.dataset.reading import TokenChunk
from pipelines.dataset.vocabulary import Vocabulary
from pipelines.verification.findings import Findings


class Rows:
    """Checks rows of a file in order: parts, affixes, places."""

    def __init__(
        self,
        where: str,
        findings: Findings,
        affixes: Sequence[int | None],
        task: Mapping[str, Any],
        vocabulary: Vocabulary,
    ) -> None:
        self._vocabulary = vocabulary
        self._where = where
        self._findings = findings
        self._prepend, self._append = affixes
        self._inputs = {label for label, _, _ in task.get("inputs", ())}
        self._row = 0
        self._last: tuple[str, int, int] | None = None  # source, offset, part
        self._last_id: int | None = None
        self.documents = 0
        self.text_bytes = 0

    def check(self, chunk: TokenChunk) -> bool:
        """The next row group; whether it is fit to be counted."""
        if not len(chunk):
            return True
        starts = chunk.starts
        self.documents += int(starts.sum())
        self.text_bytes += int(chunk.column("num_bytes").sum())
        sources = chunk.columns["source"].to_numpy(zero_copy_only=False)
        offsets, parts = chunk.column("offset"), chunk.column("part")
        unknown = sorted(set(sources.tolist()) - self._inputs)
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
        self._check_affixes(chunk, starts)
        is_fit = self._check_values(chunk)
        self._last = (str(sources[-1]), int(offsets[-1]), int(parts[-1]))
        self._row += len(chunk)
        return is_fit

    def _check_values(self, chunk: TokenChunk) -> bool:
        """Whether ids and numbers are such as can be."""
        is_fit = True
        wrong = np.flatnonzero(self._vocabulary.rows_of(chunk.ids) < 0)
        if len(wrong):
            row = int(np.searchsorted(chunk.offsets, wrong[0], side="right")) - 1
            more = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
            self._note(row, f"id {int(chunk.ids[wrong[0]])} is not in the vocabulary{more}")
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
            self._note_first(starts & ~right, "a document without what is prepended")
        if self._append is not None:
            right = np.zeros(len(chunk), np.bool_)
            right[filled] = chunk.ids[end[filled] - 1] == self._append
            is_last = np.append(starts[1:], False)  # of the chunk's last row the next will tell
            is_last[-1] = False
            self._note_first(is_last & ~right, "a document without what is appended")
            if starts[0] and self._last is not None:
                self._check_last()
            self._last_id = int(chunk.ids[end[-1] - 1]) if filled[-1] else None

    def _check_last(self) -> None:
        if self._append is not None and self._last_id != self._append:
            self._note(-1, "a document without what is appended")

    def finish(self) -> None:
        """There are no more rows."""
        if self._last is not None:
            self._check_last()

    def _note_first(self, wrong: NDArray[np.bool_], message: str) -> None:
        if wrong.any():
            more = int(wrong.sum()) - 1
            also = f" (and {more:,} more)" if more else ""
            self._note(int(np.argmax(wrong)), message + also)

    def _note(self, row: int, message: str) -> None:
        self._findings.note(self._where, f"row {self._row + row:,}: {message}")
