"""The result of a command as a part of a page, which notebooks show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pipelines.pages.tables import Column, Record
from pipelines.pages.templates import render_part

__all__ = ["Link", "make_summary"]


@dataclass(frozen=True)
class Link:
    """Place of a result; `href` is None if a notebook cannot open it."""

    text: str
    href: str | None = None

    @classmethod
    def of(cls, place: str) -> Link:
        """Return the link to a path or URL. Notebooks open URLs, and pages below their directory.

        Example:
            >>> Link.of("https://flink.example/#/job/1").href, Link.of("/elsewhere/a.html").href
            ('https://flink.example/#/job/1', None)
        """
        if place.startswith(("https://", "http://")):
            return cls(place, place)
        path, here = Path(place), Path.cwd()
        if path.suffix == ".html" and path.is_relative_to(here):
            return cls(place, quote(path.relative_to(here).as_posix()))  # never a scheme
        return cls(place)


def make_summary(
    *,
    title: str,
    numbers: Mapping[str, str],
    times: Sequence[Record],
    places: Mapping[str, str],
    warnings: Sequence[str] = (),
) -> str:
    """Return the head of a result as HTML: numbers, times of stages, and where everything is.

    Args:
        title: what it is the result of.
        numbers: the most important numbers, formatted, by label.
        times: `stage`, `seconds`, `megabytes_per_second` and `state` of each stage.
        places: paths and URLs by label.
        warnings: warnings for the user.
    """
    return render_part(
        "summary.html",
        title=title,
        numbers=numbers,
        columns=[
            Column("stage", "stage", "text"),
            Column("seconds", "seconds", "seconds"),
            Column("megabytes_per_second", "MB/s", "rate"),
            Column("state", "state", "text"),
        ],
        rows=times,
        links={label: Link.of(place) for label, place in places.items()},
        warnings=warnings,
    )
