"""tokenizer.json as an object, with its merges read separately."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import MergeTexts, find_merges
from bpe_core.errors import FormatError
from bpe_core.formats.files import Location, parse_json_object, read_bytes
from bpe_core.formats.json_values import list_of, object_of

__all__ = ["FileMerges", "read_tokenizer_json"]


@dataclass(frozen=True)
class FileMerges:
    """Array model.merges of a tokenizer.json.

    Attributes:
        location: the file.
        data: contents of the file.
        texts: the merges as native code reads them, or None if they have an unusual form.
    """

    location: Location
    data: bytes
    texts: MergeTexts | None

    def find_rows(
        self,
        keys: bytes | memoryview,
        offsets: NDArray[np.int64],
        ids: NDArray[np.int64],
        *,
        stand_ins: bool,
    ) -> NDArray[np.int64] | None:
        """Return int64[m, 3], the ids (left, right, result) of the merges, in order of rank.

        Of a pair that occurs twice, the last rank counts, as in Hugging Face's encoder.

        Args:
            keys, offsets: bytes of the tokens: token i is keys[offsets[i]:offsets[i + 1]].
            ids: ids of the tokens.
            stand_ins: true if merges are written in GPT-2's stand-ins of these bytes.

        Returns:
            The rows, or None if `sides` must be looked at: a merge is not of these tokens.
        """
        return None if self.texts is None else self.texts.rows(keys, offsets, ids, stand_ins)

    @cached_property
    def sides(self) -> list[list[Any]]:
        """Return the sides of each merge, from "a b" or a list.

        Raises:
            FormatError: model.merges is not a list.
        """
        model = object_of(
            self.location, "model", parse_json_object(self.location, self.data).get("model")
        )
        merges = list_of(self.location, "model.merges", model.get("merges"))
        return [_sides_of(merge) for merge in merges]


def read_tokenizer_json(location: Location) -> tuple[dict[str, Any], FileMerges]:
    """Read a tokenizer.json; its object lacks the merges where they are apart from it.

    Raises:
        FormatError: the file is not a JSON object.
        OSError: as opening it does.
    """
    data = read_bytes(location)
    found = find_merges(data)
    if found is not None:
        begin, end, texts = found
        try:
            root = parse_json_object(location, data[:begin] + b"[]" + data[end:])
            return root, FileMerges(location, data, texts)
        except FormatError:
            pass  # for a message with places of the whole file
    return parse_json_object(location, data), FileMerges(location, data, None)


def _sides_of(merge: Any) -> list[Any]:
    if isinstance(merge, str):
        return merge.split(" ")
    return merge if isinstance(merge, list) else [merge]
