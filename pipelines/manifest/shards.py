"""Files that one transform of a user's pipeline writes, and the listing that completes them.

Such pipelines have no plan and no manifest. A listing, written last, takes their place: it contains
the files, and the totals of the pipeline's input.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pipelines.errors import AccountingError, OutputError
from pipelines.manifest.names import RUN_FILE, RUNS
from pipelines.storage.directory import Directory

_FORMAT_VERSION: Final = "1"


@dataclass(frozen=True, kw_only=True)
class ShardFiles:
    """The place of a transform's shards; small, because it is sent to every worker.

    Attributes:
        output: Directory of the shards.
        runs: Directory of the sorted runs, which no other pipeline uses.
        number: Number of shards.
        prefix: First part of the names of the shards.
        listing: Name of the listing.
    """

    output: Directory
    runs: Directory
    number: int
    prefix: str
    listing: str

    @classmethod
    def below(cls, output: Directory, *, number: int, prefix: str, listing: str) -> Self:
        """Return the files of a pipeline in a directory."""
        runs = output / RUNS / secrets.token_hex(16)
        return cls(output=output, runs=runs, number=number, prefix=prefix, listing=listing)

    def check_vacant(self) -> None:
        """Check that the directory has no files with such names.

        Raises:
            OutputError: It has some.
        """
        present = self._present() | self.output.sizes().keys() & {self.listing}
        if present:
            raise OutputError(
                "The output already contains files with these names.",
                expected=f"none, as files of two pipelines must not be mixed in {self.output.url}",
                found=f"{len(present):,}, such as {min(present)}",
                where=self.output.url,
                hint="Choose another directory, or remove the files.",
            )

    def finish(
        self, entries: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Check the shards against the totals, list them, and remove the runs.

        Args:
            entries: Entries of all shards.
            totals: totals of the pipeline's input. The numbers in the entries must add up to them.

        Returns:
            The entries in order of name.

        Raises:
            AccountingError: The entries do not add up to the totals.
            OutputError: Another pipeline wrote to the directory.
        """
        ordered = sorted((dict(entry) for entry in entries), key=lambda entry: str(entry["name"]))
        self._check_totals(ordered, totals)
        self._check_alone({entry["name"] for entry in ordered})
        listed = {"format_version": _FORMAT_VERSION, "files": ordered, "totals": dict(totals)}
        # A repeated attempt of this step lists the same.
        if self.output.read_json(self.listing) not in (None, listed):
            raise OutputError(
                "Another pipeline has written to the output.",
                expected=f"no {self.listing} but that of this pipeline",
                found=f"another {self.listing}",
                where=self.output.path(self.listing),
                hint="Give each pipeline a directory of its own, and run this one again.",
            )
        self.output.write_json(self.listing, listed)
        self.runs.remove_below(RUN_FILE.pattern)
        (self.output / RUNS).remove_if_empty()
        return ordered

    def _present(self) -> set[str]:
        """Return the files that are named like shards, whatever their number."""
        pattern = re.compile(rf"{re.escape(self.prefix)}-\d+-of-\d+\.parquet")
        return {name for name in self.output.sizes() if pattern.fullmatch(name)}

    def _check_totals(
        self, entries: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]
    ) -> None:
        found = {key: sum(e[key] for e in entries) for key in totals if key in entries[0]}
        if wrong := {key: value for key, value in found.items() if value != totals[key]}:
            raise AccountingError(
                "The shards do not hold what went into the pipeline.",
                expected=", ".join(f"{totals[key]:,} {key}" for key in wrong),
                found=", ".join(f"{value:,} {key}" for key, value in wrong.items()),
                where=self.output.url,
                hint="Run the pipeline again, into an empty directory.",
            )

    def _check_alone(self, names: set[str]) -> None:
        if others := self._present() - names:
            raise OutputError(
                "Files of another pipeline have appeared in the output.",
                expected=f"{len(names):,} files",
                found=f"{len(others):,} others, such as {min(others)}",
                where=self.output.url,
                hint="Give each pipeline a directory of its own, and run this one again.",
            )
