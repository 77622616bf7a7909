"""Docstrings of this project, in the notation that the reference of the site reads."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:\n((?:(?: {4}.*)?(?:\n|\Z))+)", re.MULTILINE)
_DOCTEST = re.compile(r"^>>> .*\n?(?:\S.*\n?)*", re.MULTILINE)
_TABLE = re.compile(
    r"^(?:={3,} +)+={3,}\n(?:.+\n)+?(?:={3,} +)+={3,}\n(?:.+\n)+?(?:={3,} +)+={3,}$", re.M
)


class HouseDocstrings(griffe.Extension):
    """Extension that makes code of the examples and tables in docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            text = _EXAMPLE.sub(_rewrite_example, obj.docstring.value)
            text = _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```\n", text)
            obj.docstring.value = _TABLE.sub(lambda found: f"```text\n{found[0]}\n```", text)


def _rewrite_example(found: re.Match[str]) -> str:
    code = found[1].rstrip()
    if ">>>" in code:
        return f"Examples:\n{code}\n"
    return f"Examples:\n    ```python\n{code}\n    ```\n"
