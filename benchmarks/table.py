"""The table in README.md, from results.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BEGIN = "<!-- table: begin -->"
END = "<!-- table: end -->"
HERE = Path(__file__).parent
_SPREAD_SHOWN = 0.1


def render(results: Mapping[str, Any]) -> str:
    """The table and what stands above it, in Markdown."""
    machine = results["machine"]
    texts = ", ".join(f"{name} ({size / 1e6:.0f} MB)" for name, size in results["texts"].items())
    packages = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}; {packages}. "
        f"Texts: {texts}. Taken on {results['date']}, load before {machine['load_before']}.",
        "",
        "| work | text | threads | bpe-beam | gigatoken | ratio | same result | others |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in results["rows"]]
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    ours, peer, *others = row["sides"].items()
    cells = [
        row["work"],
        row["text"],
        str(row["threads"]),
        _figure(ours[1]),
        _figure(peer[1]),
        f"{row['ratio']:.2f}",
        "yes" if row["difference"] is None else row["difference"],
        ", ".join(f"{name} {_figure(figures)}" for name, figures in others),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _figure(side: Mapping[str, Any]) -> str:
    """Rate and seconds; the spread where it is large; memory where it was measured."""
    text = f"{side['mb_per_second']:.4g} MB/s ({side['median']:.2f} s"
    spread = (side["highest"] - side["lowest"]) / side["median"]
    if spread > _SPREAD_SHOWN:
        text += f", ±{spread / 2:.0%}"
    if "peak_bytes" in side:
        text += f", {side['peak_bytes'] / 1e6:.0f} MB"
    return text + ")"


def with_table(readme: str, results: Mapping[str, Any]) -> str:
    """README.md with the table of these results."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{render(results)}\n\n{END}{after}"


def print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        print(_line(row), flush=True)
