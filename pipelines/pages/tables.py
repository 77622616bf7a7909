"""Tables and figures of pages: records, and how each of their values is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pipelines.console.units import format_bytes

__all__ = ["Column", "Figure", "Format", "Record", "Table"]

Record: TypeAlias = Mapping[str, Any]
Format: TypeAlias = Literal[
    "text", "cell", "token", "number", "ratio", "percent", "bytes", "seconds", "rate"
]

_NOTHING: Final = "–"
_FORMATS: Final[Mapping[Format, Callable[[Any], str]]] = {
    "text": str,
    "token": str,
    "cell": str,
    "number": "{:,}".format,
    "ratio": "{:.3f}".format,
    "percent": "{:.1%}".format,
    "bytes": format_bytes,
    "seconds": "{:,.1f}".format,
    "rate": "{:,.1f}".format,
}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: key of its value in a record.
        label: heading; "" for none.
        format: how its values are shown; None is a dash.
    """

    key: str
    label: str
    format: Format = "number"

    @property
    def is_text(self) -> bool:
        """True if values are aligned as text."""
        return self.format in ("text", "token")

    def show(self, record: Record) -> Any:
        """Return the value of a record as text; what is no string stays."""
        value = record[self.key]
        if value is None:
            return _NOTHING
        return value if self.is_text else _FORMATS[self.format](value)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table: the first column names the rows."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Record]
    text: str = ""
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Figure(Table):
    """A chart with its table; `name` is that of the chart in `charts.js`, which gets the rows."""

    name: str
