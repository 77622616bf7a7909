"""Beam pipelines that train a byte-pair-encoding tokenizer on a corpus and encode the corpus.

    import pipelines

    summary = pipelines.build("configs/quickstart.yaml")
    tokenizer = summary.load_tokenizer()

    from pipelines import CountPretokens, EncodeDocuments, ReadDocuments, WriteTokenShards

Importing this package loads neither Beam nor pyarrow; the first use of one of its names does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from bpe_core.wrong_calls import package_error

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
    "build": "build",
    "plan": "build",
    "verify": "verification.verify",
    **dict.fromkeys(
        ("CountPretokens", "EncodeDocuments", "ReadDocuments", "WriteTokenShards"), "transforms"
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise package_error(__name__, name)
    from importlib import import_module

    module = import_module(f"{__name__}.{_MODULES[name]}")
    value = module if name == "build" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Beam's import warns that a Google client is missing, which nothing here needs.
logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())
