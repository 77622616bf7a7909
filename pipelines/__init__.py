"""Beam pipelines that train a byte-pair-encoding tokenizer on a corpus and encode the corpus.

    from pipelines import CountPretokens, EncodeDocuments, ReadDocuments, WriteTokenShards

Importing this package loads neither Beam nor pyarrow; the first use of one of these names does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.transforms import (
        CountPretokens,
        EncodeDocuments,
        ReadDocuments,
        WriteTokenShards,
    )

__all__ = ["CountPretokens", "EncodeDocuments", "ReadDocuments", "WriteTokenShards"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipelines import transforms

    value = getattr(transforms, name)
    globals()[name] = value
    return value
