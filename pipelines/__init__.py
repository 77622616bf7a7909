"""Beam pipelines that train a byte-pair-encoding tokenizer on a corpus and encode the corpus.

    import pipelines

    summary = pipelines.build("configs/quickstart.yaml")
    tokenizer = summary.load_tokenizer()

    from pipelines import CountPretokens, EncodeDocuments, ReadDocuments, WriteTokenShards

Importing this package loads neither Beam nor pyarrow; the first use of one of its names does.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bpe_core.late_names import load_name

if TYPE_CHECKING:
    from pipelines.build import CallableModule, plan
    from pipelines.transforms import (
        CountPretokens,
        EncodeDocuments,
        ReadDocuments,
        WriteTokenShards,
    )
    from pipelines.verification.verify import verify

    build: CallableModule

__all__ = [
    "CountPretokens",
    "EncodeDocuments",
    "ReadDocuments",
    "WriteTokenShards",
    "build",
    "plan",
    "verify",
]

_MODULES: Final = {
    "plan": "build",
    "verify": "verification.verify",
    **dict.fromkeys(
        ("CountPretokens", "EncodeDocuments", "ReadDocuments", "WriteTokenShards"), "transforms"
    ),
}


def __getattr__(name: str) -> Any:
    if name == "build":
        return import_module(f"{__name__}.build")  # the module, which can be called
    return load_name(globals(), _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Beam's import warns that a Google client is missing, which nothing here needs.
logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())
