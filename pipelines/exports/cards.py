"""Cards of exported datasets: README.md with the YAML that the Hugging Face Hub reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import yaml

from pipelines.console.tables import format_markdown_code, format_markdown_table
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import PipelineError
from pipelines.exports.records import ExportManifest
from pipelines.manifest.models import ImportedManifest, TokensManifest
from pipelines.manifest.run_record import RunRecord
from pipelines.manifest.stage import ENCODE, IMPORT
from pipelines.manifest.stage_records import load_manifest
from pipelines.storage.hub import Repository

MARK: Final = "<!-- beam-bpe export -->"
_SOURCES_SHOWN: Final = 50


def write_card(
    dataset: TokenDataset, manifest: ExportManifest, files: Path, repository: Repository
) -> str:
    """Return the card of an export.

    Args:
        dataset: The exported dataset.
        manifest: Content of the export's export.json.
        files: Local directory of the exported files.
        repository: The repository that the card describes.
    """
    front = yaml.safe_dump(_front_matter(manifest, repository), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n{MARK}\n\n" + "\n".join(
        [*_lines(dataset, manifest, files, repository), ""]
    )


def _front_matter(manifest: ExportManifest, repository: Repository) -> dict[str, Any]:
    front: dict[str, Any] = {"tags": ["bpe-beam", "tokenized"]}
    names = manifest.names
    if not all(name.endswith(".parquet") for name in names):
        return front
    folder = f"{repository.path}/" if repository.path else ""
    front["configs"] = [
        {
            "config_name": "default",
            "data_files": [
                {"split": split, "path": f"{folder}{split}-*.parquet"} for split in manifest.splits
            ],
        }
    ]
    return front


def _lines(
    dataset: TokenDataset, manifest: ExportManifest, files: Path, repository: Repository
) -> Iterator[str]:
    tokens = sum(content["tokens"] for content in manifest.splits.values())
    yield f"# {repository.name.partition('/')[2]}"
    yield ""
    yield (
        f"{tokens:,} token ids in the format `{manifest.to}`, encoded by "
        "bpe-beam. `export.json` lists the files with their "
        "checksums."
    )
    yield from _splits(manifest)
    yield from _columns(manifest, files)
    yield from _tokenizer(dataset)
    yield from _corpus(dataset)
    yield from _options(manifest)


def _splits(manifest: ExportManifest) -> Iterator[str]:
    splits = manifest.splits
    keys = list(dict.fromkeys(key for content in splits.values() for key in content))
    yield from _table(
        "Splits",
        ["split", *(key.replace("_", " ") for key in keys)],
        [
            [split, *(f"{content[key]:,}" if key in content else "" for key in keys)]
            for split, content in splits.items()
        ],
    )


def _columns(manifest: ExportManifest, files: Path) -> Iterator[str]:
    name = manifest.files[0].name
    if name.endswith(".parquet"):
        columns = pq.read_schema(files / name)
        yield from _table(
            "Columns", ["column", "type"], [[f"`{c.name}`", f"`{c.type}`"] for c in columns]
        )


def _tokenizer(dataset: TokenDataset) -> Iterator[str]:
    facts = {"fingerprint": f"`{dataset.configuration['tokenizer']}`"}
    try:
        model = dataset.find_model()
        facts["ids"] = f"{len(model):,}"
        imported = load_manifest(IMPORT, dataset.output / "tokenizer")
    except (PipelineError, OSError):  # trained here, or elsewhere by now
        imported = None
    if isinstance(imported, ImportedManifest):
        source = imported.imported_from
        facts["files"] = ", ".join(f"`{file.name}`" for file in source.files)
        if source.repository is not None:
            facts["repository"] = f"`{source.repository}` at commit `{source.commit}`"
    encode = dataset.configuration["encode"]
    facts |= {
        f"{place} each document": f"`{encode[key]}`"
        for key, place in (("prepend", "before"), ("append", "after"))
        if encode.get(key)
    }
    yield from _table("Tokenizer", ["", ""], [list(fact) for fact in facts.items()])


def _corpus(dataset: TokenDataset) -> Iterator[str]:
    try:
        manifest = load_manifest(ENCODE, dataset.tokens)
        run = RunRecord.load(dataset.tokens)
    except PipelineError:  # of an earlier version
        return
    if not isinstance(manifest, TokensManifest):
        return
    rows = [
        [
            format_markdown_code(source.name or "corpus"),
            f"{source.documents:,}",
            f"{source.bytes:,}",
            f"{source.rejected:,}",
        ]
        for source in manifest.sources[:_SOURCES_SHOWN]
    ]
    yield from _table(
        "Corpus", ["source", "documents", "bytes of text", "rejected documents"], rows
    )
    commits = {} if run is None else run.commits
    yield ""
    for url, commit in sorted(commits.items()):
        yield f"- `{url}` at commit `{commit}`"


def _options(manifest: ExportManifest) -> Iterator[str]:
    options = {key: value for key, value in manifest.options.items() if value is not None}
    if options:
        yield from _table(
            "Options",
            ["option", "value"],
            [[f"`{key}`", format_markdown_code(v)] for key, v in options.items()],
        )


def _table(title: str, heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield from format_markdown_table(heads, rows)
