"""An evaluation as tables of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

from bpe_core.token_probes import LONGEST_NUMBER, RUNS, name_grouping
from bpe_core.visible_text import visible
from pipelines.analysis.evaluation import RARE, Evaluation, GroupMeasures, TokenizerMeasures
from pipelines.console.tables import format_table

__all__ = ["Section", "describe_text", "format_evaluation", "list_details", "list_sections"]

_GROUPS_SHOWN: Final = 40
_SCRIPTS_SHOWN: Final = 12
_LEVELS: Final = 4
_RUN: Final = 16
_NOTHING: Final = "–"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of an evaluation: a title, and rows with a label and a cell for each column.

    Attributes:
        title: Title.
        columns: Names of the columns; that of the labels is empty.
        rows: Rows.
        note: Text below the table; "" for none.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def format_evaluation(evaluation: Evaluation) -> str:
    """Return an evaluation as text."""
    lines = [describe_text(evaluation), ""]
    for section in list_sections(evaluation):
        lines.append(visible(section.title))
        rows = [["", *section.columns], *section.rows]
        lines += format_table([[visible(cell) for cell in row] for row in rows])
        lines += [f"  {visible(section.note)}"] * bool(section.note)
        lines.append("")
    return "\n".join(lines[:-1])


def describe_text(evaluation: Evaluation) -> str:
    """Return what the tokenizers were evaluated on, as a line."""
    text = evaluation.text
    size = reduce(add, text.sizes.values())
    return visible(
        f"{text.description}: {size.bytes:,} bytes, {size.characters:,} characters, "
        f"{size.words:,} words (word: {text.word})"
    )


def list_sections(evaluation: Evaluation) -> Iterator[Section]:
    """Yield the tables of an evaluation."""
    found = evaluation.tokenizers
    names = [one.name for one in found]
    rows = [
        [label, *(show(one) for one in found)]
        for label, show in _MEASURES
        if any(show(one) != _NOTHING for one in found)
    ]
    yield Section(title="measures", columns=names, rows=rows)
    groups = list(evaluation.text.sizes)
    if len(groups) > 1:
        shown = groups[:_GROUPS_SHOWN]
        left = len(groups) - len(shown)
        note = f"… and {left:,} more groups: --json" if left else ""
        yield Section(
            title="bytes per token",
            columns=names,
            rows=[[g, *(_number(one.groups[g].bytes_per_token) for one in found)] for g in shown],
            note=note,
        )
        parities = [one.parity(evaluation.reference) for one in found]
        yield Section(
            title=f"tokens per byte, as a multiple of those of {evaluation.reference}",
            columns=names,
            rows=[[g, *(_number(parity[g]) for parity in parities)] for g in shown],
            note=note,
        )
    yield _list_scripts(found)
    if len(found) > 1:
        yield Section(
            title="tokens of a row that the vocabulary of a column has too",
            columns=names,
            rows=[
                [
                    one.name,
                    *(
                        _share(one.overlaps[name][0], sum(one.overlaps[name][:2]))
                        if name in one.overlaps
                        else _NOTHING
                        for name in names
                    ),
                ]
                for one in found
            ],
        )


def list_details(evaluation: Evaluation) -> Iterator[Section]:
    """Yield more tables, for a page."""
    for title, labels, show in (
        (
            "most frequent split of numbers by their digits, and its share",
            [str(digits) for digits in range(1, LONGEST_NUMBER + 1)],
            _show_splits,
        ),
        (
            "tokens of white space",
            [f"{length} {name}" for name in ("spaces", "tabs", "newlines") for length in RUNS],
            _show_spaces,
        ),
        (
            "ids that no text gives, by the reason",
            ["merges", "encoding", "normalizer", "pattern", "(not found, without proof)"],
            _show_reasons,
        ),
    ):
        cells = [show(one) or [_NOTHING] * len(labels) for one in evaluation.tokenizers]
        yield Section(
            title=title,
            columns=[one.name for one in evaluation.tokenizers],
            rows=[list(row) for row in zip(labels, *cells, strict=True)],
        )


def _show_splits(one: TokenizerMeasures) -> list[str]:
    return [f"{'·'.join(map(str, n.split))}, {n.share:.0%}" for n in one.numbers or ()]


def _show_spaces(one: TokenizerMeasures) -> list[str]:
    runs = [] if (found := one.spaces) is None else [found.spaces, found.tabs, found.newlines]
    return [_integer(tokens[length]) for tokens in runs for length in RUNS]


def _show_reasons(one: TokenizerMeasures) -> list[str]:
    if (found := one.reachability) is None:
        return []
    reasons = (found.by_merges, found.by_encoding, found.by_normalizer, found.by_pattern)
    return [_integer(len(ids)) for ids in (*reasons, found.not_found)]


def _list_scripts(found: Sequence[TokenizerMeasures]) -> Section:
    """Return the share of tokens by script; the order is that of the first tokenizer."""
    tokens = [{script: tokens for script, _, tokens in one.scripts} for one in found]
    scripts = list(dict.fromkeys(s for of_one in tokens for s, number in of_one.items() if number))
    return Section(
        title="tokens by script",
        columns=[one.name for one in found],
        rows=[
            [
                script or "none",
                *(
                    _share(of_one.get(script, 0), one.total.tokens)
                    for of_one, one in zip(tokens, found, strict=True)
                ),
            ]
            for script in scripts[:_SCRIPTS_SHOWN]
        ],
        note="" if len(scripts) <= _SCRIPTS_SHOWN else "… and more scripts: --json",
    )


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.3f}"


def _integer(value: int | None) -> str:
    return _NOTHING if value is None else f"{value:,}"


def _share(part: float | None, of: float = 1) -> str:
    return _NOTHING if part is None or not of else f"{part / of:.1%}"


def _of_total(key: str, show: Callable[[float | None], str]) -> Callable[[TokenizerMeasures], str]:
    return lambda one: show(one.total.to_json().get(key))


def _show_unreachable(one: TokenizerMeasures) -> str:
    return _integer(None if one.reachability is None else len(one.reachability.unreachable))


def _show_grouping(one: TokenizerMeasures) -> str:
    return _NOTHING if one.numbers is None else name_grouping(one.numbers)


def _show_digits(one: TokenizerMeasures) -> str:
    if one.numbers is None:
        return _NOTHING
    return _number(sum(n.three_digit_f1 for n in one.numbers) / len(one.numbers))


def _show_code(one: TokenizerMeasures) -> str:
    code: GroupMeasures | None = one.code
    return _NOTHING if code is None else _number(code.bytes_per_token)


_MEASURES: Final[tuple[tuple[str, Callable[[TokenizerMeasures], str]], ...]] = (
    ("ids", lambda one: _integer(one.ids)),
    ("tokens", lambda one: _integer(one.total.tokens)),
    ("bytes per token", _of_total("bytes_per_token", _number)),
    ("characters per token", _of_total("characters_per_token", _number)),
    ("tokens per word", _of_total("tokens_per_word", _number)),
    ("tokens per word alone", _of_total("tokens_per_lone_word", _number)),
    ("words in one token", _of_total("single_token_words", _share)),
    ("Rényi efficiency (2.5)", _of_total("renyi_efficiency", _number)),
    ("Shannon efficiency", _of_total("shannon_efficiency", _number)),
    ("Gini of groups", lambda one: _number(one.gini)),
    ("bytes per token of code", _show_code),
    ("unused ids", lambda one: _share(one.unused_ids, one.ids)),
    (f"ids used under {RARE} times", lambda one: _share(one.rare_ids, one.ids)),
    ("unreachable ids", _show_unreachable),
    ("bytes of an id", lambda one: _number(one.mean_token_bytes)),
    ("white-space tokens", lambda one: _share(one.white_space_tokens)),
    (
        "longest token of spaces",
        lambda one: _integer(None if one.spaces is None else one.spaces.longest_spaces),
    ),
    (
        f"tokens of {_RUN} spaces",
        lambda one: _integer(None if one.spaces is None else one.spaces.spaces[_RUN]),
    ),
    (
        f"tokens of {_LEVELS} levels of indentation",
        lambda one: _integer(None if one.spaces is None else one.spaces.indentation[_LEVELS]),
    ),
    ("digits of numbers", _show_grouping),
    ("three-digit F1", _show_digits),
)
