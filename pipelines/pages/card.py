"""Dataset cards: README.md with the YAML front matter that the Hugging Face Hub reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from bpe_core.visible_text import visible
from pipelines.console.tables import format_markdown_code, format_markdown_table
from pipelines.console.units import format_bytes
from pipelines.errors import InputError
from pipelines.pages.report_data import ReportData

__all__ = ["make_card"]

_SOURCES_SHOWN: Final = 50
# Categories of the Hub, by the smallest number of rows that is too many for each.
_CATEGORIES: Final = {
    10**3: "n<1K",
    10**4: "1K<n<10K",
    10**5: "10K<n<100K",
    10**6: "100K<n<1M",
    10**7: "1M<n<10M",
    10**8: "10M<n<100M",
    10**9: "100M<n<1B",
    10**10: "1B<n<10B",
    10**11: "10B<n<100B",
    10**12: "100B<n<1T",
}


def make_card(data: ReportData) -> str:
    """Return the card of a dataset, for a repository with the directories of its output.

    Raises:
        InputError: There are no token files.
    """
    if not data.splits:
        raise InputError(
            "There is no dataset to describe.",
            expected="the output of a build, with finished token files",
            where=data.location,
            hint="Check the path, or finish the build: `beam-bpe encode CONFIG`.",
        )
    front = yaml.safe_dump(_front_matter(data), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n".join([*_lines(data), ""])


def _front_matter(data: ReportData) -> dict[str, Any]:
    rows = sum(split.rows for split in data.splits)
    category = next((name for most, name in _CATEGORIES.items() if rows < most), "n>1T")
    return {
        "pretty_name": visible(data.name),
        "tags": ["bpe-beam", "tokenized"],
        "task_categories": ["text-generation"],
        "size_categories": [category],
        "configs": [
            {
                "config_name": "default",
                "data_files": [
                    {"split": split.name, "path": f"tokens/{split.name}-*.parquet"}
                    for split in data.splits
                ],
            }
        ],
    }


def _lines(data: ReportData) -> Iterator[str]:
    yield f"# {_text(data.name)}"
    yield ""
    yield (
        f"Token ids of a text corpus, encoded by bpe-beam {data.version}: "
        + ", ".join(f"{number} {label}" for label, number in data.headline.items())
        + ". `tokens/manifest.json` lists the files with their checksums."
    )
    yield from _section(
        "Splits",
        ["split", "rows", "documents", "tokens", "size of the files"],
        [
            [
                split.name,
                f"{split.rows:,}",
                f"{split.documents:,}",
                f"{split.tokens:,}",
                format_bytes(split.bytes),
            ]
            for split in data.splits
        ],
    )
    yield from _section(
        "Sources",
        ["source", "documents", "bytes of text", "tokens", "bytes per token", "left out"],
        [
            [
                format_markdown_code(source.name),
                f"{source.documents:,}",
                f"{source.bytes:,}",
                "" if source.tokens is None else f"{source.tokens:,}",
                "" if source.bytes_per_token is None else f"{source.bytes_per_token:.3f}",
                f"{source.rejected:,} rejected, {source.empty:,} empty, "
                f"{source.not_selected:,} not selected",
            ]
            for source in data.sources[:_SOURCES_SHOWN]
        ],
    )
    for title, facts in data.facts.items():
        rows = [
            [label, format_markdown_code(value)]
            for label, value in facts.items()
            if label != "location"  # a path of the machine that wrote the card
        ]
        yield from _section(title, ["", ""], rows)
    yield from _USE


_USE: Final = (
    "",
    "## Use",
    "",
    "```python",
    "from pathlib import Path",
    "import pyarrow.parquet as pq",
    "from bpe_core import BPETokenizer",
    "",
    'tokenizer = BPETokenizer.load("tokenizer")',
    'files = sorted(Path("tokens").glob("train-*.parquet"))',
    'ids = pq.read_table(files[0])["input_ids"][0].as_py()',
    "print(tokenizer.decode(ids))",
    "```",
)


def _section(title: str, heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    if rows:
        yield from ("", f"## {title}", "")
        yield from format_markdown_table(heads, rows)


def _text(text: str) -> str:
    """Return a name from elsewhere as text in Markdown, without markup of its own."""
    return "".join(f"\\{c}" if c in _MARKUP else c for c in visible(text)).replace("\n", " ")


_MARKUP: Final = frozenset("\\`*_{}[]<>()#+!|")
