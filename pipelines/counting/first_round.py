"""The tokenizer of the first round, with which workers find runs of words for superwords."""

from __future__ import annotations

import threading
from typing import Final

from bpe_core._native import SuperwordRuns
from bpe_core.model import TokenizerModel
from bpe_core.superwords import make_superword_runs
from pipelines.counting.jobs import FirstRound
from pipelines.errors import DifferentConfigurationError
from pipelines.tokenizers.files import load_model

_LOADING: Final = threading.Lock()
_LOADED: Final[dict[tuple[str, str], SuperwordRuns]] = {}


def load_runs(first: FirstRound) -> SuperwordRuns:
    """Return what finds runs of words, which is made once per process.

    Raises:
        DifferentConfigurationError: The directory contains another tokenizer.
    """
    key = (first.directory.url, first.fingerprint)
    with _LOADING:
        if key not in _LOADED:
            model = load_model(first.directory)
            if not isinstance(model, TokenizerModel) or model.fingerprint != first.fingerprint:
                raise DifferentConfigurationError(
                    "The tokenizer of the first round has changed since counting began.",
                    expected=f"fingerprint {first.fingerprint}",
                    found=model.fingerprint,
                    where=first.directory.url,
                    hint="Start training over: `beam-bpe train CONFIG --restart`.",
                )
            _LOADED.clear()
            _LOADED[key] = make_superword_runs(model)
        return _LOADED[key]
