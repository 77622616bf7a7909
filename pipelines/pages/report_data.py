"""Content of the report page: numbers and samples of an output, as values.

Only manifests, statistics, `run.json`, the tokenizer, counts up to a limit and a few documents are
read, never the corpus. What an output lacks is None or empty, with a note that states why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from bpe_core.short_repr import short_repr
from bpe_core.visible_text import visible

__all__ = [
    "Bucket",
    "CurvePoint",
    "Group",
    "RankPoint",
    "ReportData",
    "Sample",
    "SourceRow",
    "SplitRow",
    "Step",
    "TimeRow",
    "TokenRow",
    "Tokens",
]

_SIGNS: Final = str.maketrans({"\n": "↵", "\t": "⇥"})
_LONGEST_SHOWN: Final = 64


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the build: its name, its main number with a unit, and facts below."""

    name: str
    number: int | None
    unit: str
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SplitRow:
    """A split of the token files; `bytes` is the size of its files."""

    name: str
    rows: int
    documents: int
    tokens: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A source of documents; `tokens` is None if nothing was encoded.

    `selection` has the keys of the configuration that select documents.
    """

    name: str
    files: int
    stored_bytes: int
    documents: int
    bytes: int
    rejected: int
    empty: int
    not_selected: int
    tokens: int | None
    selection: Mapping[str, Any]

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text of a token, on average."""
        return self.bytes / self.tokens if self.tokens else None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Documents of a source from `at_least` to below `below`; the last bucket may be open."""

    source: str
    at_least: float
    below: float | None
    documents: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Bytes of a token of a source's text, on average, with a vocabulary of so many ids."""

    source: str
    ids: int
    bytes_per_token: float


@dataclass(frozen=True, kw_only=True)
class RankPoint:
    """An id by its rank in frequency, and the share of all tokens up to this rank."""

    rank: int
    uses: int
    share: float
    token: str


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ids with something in common; `tokens` is None if their use is unknown."""

    name: str
    ids: int
    tokens: int | None


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """A token: its bytes in hexadecimal, its uses, and a remark."""

    id: int
    hex: str
    uses: int | None
    remark: str = ""

    @property
    def token(self) -> bytes:
        """Its bytes."""
        return bytes.fromhex(self.hex)

    @property
    def shown(self) -> str:
        """Its text on a line, cut if it is long."""
        text = visible(self.token).translate(_SIGNS)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"

    @property
    def title(self) -> str:
        """Its id and the first of its bytes."""
        more = " …" if len(self.token) > _LONGEST_SHOWN else ""
        return f"id {self.id}, bytes {self.token[:_LONGEST_SHOWN].hex(' ')}{more}"


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Tables of tokens.

    Attributes:
        used: number of ids that occur; None if unknown.
        unused: number of the others.
        frequent, longest, rarest, never: rows of the tables; of `never`, single bytes are last.
        suspects: tokens that look like mistakes, the most suspicious first.
        suspect_reasons: number of such tokens by reason.
    """

    used: int | None
    unused: int | None
    frequent: tuple[TokenRow, ...]
    longest: tuple[TokenRow, ...]
    rarest: tuple[TokenRow, ...]
    never: tuple[TokenRow, ...]
    suspects: tuple[TokenRow, ...]
    suspect_reasons: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The beginning of a document: ids and bytes, in hexadecimal, of its first tokens."""

    source: str
    file: str
    offset: int
    tokens: int
    num_bytes: int
    shown: tuple[tuple[int, str], ...]

    @property
    def pairs(self) -> list[tuple[int, bytes]]:
        """The ids and bytes of the first tokens."""
        return [(token_id, bytes.fromhex(text)) for token_id, text in self.shown]


@dataclass(frozen=True, kw_only=True)
class TimeRow:
    """Time of a stage in its last run, or of a part of it over all its workers together."""

    stage: str
    part: str | None
    seconds: float
    megabytes_per_second: float | None
    runner: str
    workers: int | None
    finished: str


@short_repr
@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Content of the report page.

    Attributes:
        name: short name of the output or tokenizer.
        location: path or URL.
        made: time of the report in UTC, ISO 8601.
        version: version of this package.
        headline: the most important numbers, formatted, by label.
        steps: the build from its input to its token files.
        splits: splits of the token files that have rows.
        sources: sources, in the order of the configuration.
        reasons: number of rejects by reason.
        bad_files, unread_files: number of damaged input files, and of those that a limit left out.
        lengths, ratios: documents by tokens, and by bytes per token.
        curve: bytes per token by size of the vocabulary.
        ranks: ids by frequency, at ranks that grow by a factor.
        scripts, kinds: ids and tokens by script and kind.
        tokens: tables of tokens; None without a tokenizer.
        samples: documents, by source.
        times: times of the stages.
        encoder: the tokenizer for the encoder box (`pages/encoder.py`); None without a tokenizer.
        facts: about tokenizer, dataset and software, by title and label.
        notes: why something is missing or limited, by name of the section.
    """

    name: str
    location: str
    made: str
    version: str
    headline: Mapping[str, str]
    steps: tuple[Step, ...]
    splits: tuple[SplitRow, ...]
    sources: tuple[SourceRow, ...]
    reasons: Mapping[str, int]
    bad_files: int
    unread_files: int
    lengths: tuple[Bucket, ...]
    ratios: tuple[Bucket, ...]
    curve: tuple[CurvePoint, ...]
    ranks: tuple[RankPoint, ...]
    scripts: tuple[Group, ...]
    kinds: tuple[Group, ...]
    tokens: Tokens | None
    samples: tuple[Sample, ...]
    times: tuple[TimeRow, ...]
    encoder: Mapping[str, Any] | None
    facts: Mapping[str, Mapping[str, str]]
    notes: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        return asdict(self)
