"""Base of pydantic models that are built when they are first used, since many commands use few."""

from __future__ import annotations

import threading
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

__all__ = ["DeferredModel"]

# Before 2.14, pydantic does not build a model safely while other threads use it for the first time.
_BUILDING: Final = threading.RLock()


class DeferredModel(BaseModel):
    """Model whose validator is built by the first use, also if several threads begin to use it."""

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def model_rebuild(cls, **options: Any) -> bool | None:
        """Build the model unless it is built."""
        with _BUILDING:
            return super().model_rebuild(**options)
