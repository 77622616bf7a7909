"""Render results.json as the tables in benchmarks/README.md, README.md and docs/comparison.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import corpora
from measure import ROUNDS

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
BEGIN = "<!-- benchmarks: begin -->"
END = "<!-- benchmarks: end -->"
_SPREAD_SHOWN = 0.1
_MET, _BELOW, _MISSED = "met", "below target", "**missed**"
_STATED = ("tiktoken", "quicktok-v1", "bpe-openai", "tokenizers")
# Questions about this package beside others, and the parts of a row's name that tell rows apart.
_OF_PEERS = ("count", "learn", "train", "encode", "short", "batch", "pipeline", "pack")
_VARIANT = re.compile(r",? (?:gpt2|r50k|cl100k|o200k)\b|, [\d,]+ bytes")

Row = Mapping[str, Any]


def render(results: Mapping[str, Any]) -> str:
    """Return the tables and the text above them in Markdown."""
    rows = results["rows"]
    held = [row for row in rows if row["comparisons"]]
    stated = [row for row in rows if not row["comparisons"] and not row["limits"]]
    limited = [row for row in rows if row["limits"]]
    verdicts = [
        judge(item["ratio"], item["target"], item["least"])
        for row in held
        for item in row["comparisons"]
        if item["ratio"] is not None and item["target"]
    ]
    met, below, missed = (verdicts.count(verdict) for verdict in (_MET, _BELOW, _MISSED))
    parts = [
        _environment(results),
        f"Of {len(verdicts)} ratios, {met} meet their target, {below} are below it but acceptable, "
        f"and {missed} are below the acceptable minimum.",
        _table(
            "work|text|threads|bpe-beam|against||ratio|target (minimum)||same result",
            (line for row in held for line in _comparisons(row)),
        ),
        "Limits:",
        _table(
            "work|text|threads|found|limit|",
            (line for row in limited for line in _limits(row)),
        ),
        "Rows without a target, on a part of each text:",
        _table(f"work|text|threads|bpe-beam|{'|'.join(_STATED)}|same result", map(_stated, stated)),
    ]
    return "\n\n".join(parts)


def render_short(results: Mapping[str, Any]) -> str:
    """Return the table of the project's README.md.

    It has one row for each question: of those with a headline, the one with the lowest ratio.
    """
    lowest: dict[str, tuple[Row, Row]] = {}
    for row in results["rows"]:
        if not row["headline"]:
            continue
        for item in row["comparisons"]:
            if item["of"] == "seconds" and item["ratio"] is not None:
                known = lowest.get(row["question"])
                if known is None or item["ratio"] < known[1]["ratio"]:
                    lowest[row["question"]] = row, item
    rows = [row for row, _ in lowest.values()]
    lines = [_headline(row, item) for row, item in lowest.values()]
    machine = results["machine"]
    few = any(side["runs"] < ROUNDS for row in rows for side in row["sides"].values())
    warning = f" Provisional: some figures have fewer than {ROUNDS} samples." if few else ""
    return "\n\n".join(
        [
            f"On {machine['cpu']}, {machine['cores']} cores ({_dates(results['rows'])}).{warning}",
            _table("work|text|threads|bpe-beam|against||ratio", lines),
        ]
    )


def render_peers(results: Mapping[str, Any]) -> str:
    """Return the table of docs/comparison.md: the range of the ratios of each work and peer."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in results["rows"]:
        if row["question"] in _OF_PEERS:
            work = _VARIANT.sub("", row["work"])
            for peer, of, ratio in _ratios(row):
                name = f"{work}, peak memory" if of == "peak_bytes" else work
                ratios.setdefault((name, peer), []).append(ratio)
    lines = (
        [
            work,
            peer,
            str(len(found)),
            " to ".join(f"{r:.1f}" for r in sorted({min(found), max(found)})),
        ]
        for (work, peer), found in ratios.items()
    )
    return f"{_environment(results)}\n\n{_table('work|against|rows|ratio', lines)}"


def _ratios(row: Row) -> Iterable[tuple[str, str, float]]:
    """Yield each peer of a row with a ratio, also where the row states no target."""
    if row["comparisons"]:
        for item in row["comparisons"]:
            if item["ratio"] is not None:
                yield item["against"], item["of"], item["ratio"]
        return
    ours, *peers = row["sides"]
    for peer in peers:
        yield peer, "seconds", row["sides"][peer]["median"] / row["sides"][ours]["median"]


def _environment(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    texts = ", ".join(f"{name} ({size / 1e6:.0f} MB)" for name, size in results["texts"].items())
    packages = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    loads = [row["load_before"] for row in results["rows"]]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}; {packages}. On this machine, two threads that only compute do "
        f"{machine['two_threads']} times the work of one. Texts: {texts}. "
        f"Measured on {_dates(results['rows'])}; load before a row: {min(loads)} to {max(loads)}."
    )


def _dates(rows: Sequence[Row]) -> str:
    dates = sorted({row["date"] for row in rows})
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def _table(head: str, lines: Iterable[Sequence[str]]) -> str:
    columns = head.split("|")
    return "\n".join(map(_line, [columns, ["---"] * len(columns), *lines]))


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _names(row: Row) -> list[str]:
    return [row["work"], row["text"], str(row["threads"])]


def _comparisons(row: Row) -> Iterable[list[str]]:
    """Yield a line for each ratio or missing peer."""
    ours = next(iter(row["sides"]))
    for item in row["comparisons"]:
        peer, of, ratio = item["against"], item["of"], item["ratio"]
        work, *where = _names(row)
        asked = f"{item['target']:g} ({item['least']:g})" if item["target"] else ""
        start = [work + (", peak memory" if of == "peak_bytes" else ""), *where]
        start += [_figure(row, ours, of), peer]
        if ratio is None:
            yield [*start, row["missing"][peer], "", asked, "", ""]
        else:
            verdict = judge(ratio, item["target"], item["least"])
            same = row["same"][peer] or "yes"
            yield [*start, _figure(row, peer, of), f"{ratio:.2f}", asked, verdict, same]


def _headline(row: Row, item: Row) -> list[str]:
    ours, peer = next(iter(row["sides"])), item["against"]
    figures = [_figure(row, side, short=True) for side in (ours, peer)]
    return [*_names(row), figures[0], peer, figures[1], f"{item['ratio']:.1f}"]


def _limits(row: Row) -> Iterable[list[str]]:
    for item in row["limits"]:
        found, most = item["found"], item["most"]
        seconds = item["of"] == "seconds"
        shown = [f"{value:.2f} s" if seconds else _megabytes(value) for value in (found, most)]
        verdict = _MET if found <= most else _MISSED
        yield [*_names(row), *shown, verdict]


def _stated(row: Row) -> list[str]:
    ours = next(iter(row["sides"]))
    cells = [
        _figure(row, side) if side in row["sides"] else row["missing"].get(side, "")
        for side in (ours, *_STATED)
    ]
    differences = [f"{peer}: {text}" for peer, text in row["same"].items() if text]
    return [*_names(row), *cells, "; ".join(differences) or "yes"]


def judge(ratio: float, target: float, least: float) -> str:
    """Compare a ratio with its target; return an empty string if it has none."""
    if not target:
        return ""
    if ratio >= target:
        return _MET
    return _BELOW if ratio >= least else _MISSED


def _figure(row: Row, side: str, of: str = "seconds", *, short: bool = False) -> str:
    """Format a rate, time or memory; add a large spread and a small number of samples."""
    figures = row["sides"][side]
    if of == "peak_bytes":
        return _megabytes(figures["peak_bytes"])
    seconds = figures["median"]
    text = f"{seconds * 1e6:.3g} µs" if row["unit"] == "µs" else f"{seconds:.3g} s"
    if row.get("items"):
        number, item = row["items"]
        text += f", {seconds / number * 1e6:.3g} µs a {item}"
    if row["unit"] == "MB/s":
        rate = f"{figures['mb_per_second']:.4g} MB/s"
        text = rate if short else f"{rate}, {text}"
    if short:
        return text
    spread = (figures["highest"] - figures["lowest"]) / seconds
    if spread > _SPREAD_SHOWN:
        text += f" ±{spread / 2:.0%}"
    if figures["runs"] < ROUNDS:
        text += f" ({figures['runs']} of {ROUNDS} samples)"
    return text


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


def with_table(readme: str, table: str) -> str:
    """Return a README with the table between its marks."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"expected {BEGIN} and {END} in the README, found only one or none")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def pages(results: Mapping[str, Any]) -> dict[Path, str]:
    """Return the current contents of the files with tables."""
    tables = {
        HERE / "README.md": render(results),
        corpora.ROOT / "README.md": render_short(results),
        corpora.ROOT / "docs" / "comparison.md": render_peers(results),
    }
    return {path: with_table(path.read_text(), table) for path, table in tables.items()}


def print_rows(rows: Iterable[Row]) -> None:
    """Print rows while the benchmarks run."""
    for row in rows:
        ours = next(iter(row["sides"]))
        others = [
            f"{side} {_figure(row, side)}"
            + "".join(
                f", ratio {item['ratio']:.2f} {judge(item['ratio'], item['target'], item['least'])}"
                for item in row["comparisons"]
                if item["against"] == side
            )
            + f" [{row['same'][side] or 'same result'}]"
            for side in row["sides"]
            if side != ours
        ]
        limits = [f"{'; '.join(line[3:])}" for line in _limits(row)]
        missing = [f"{side}: {reason}" for side, reason in row["missing"].items()]
        shown = [f"{ours} {_figure(row, ours)}", *others, *limits, *missing]
        print(f"{', '.join(filter(None, _names(row)))} thread(s): {' | '.join(shown)}", flush=True)
