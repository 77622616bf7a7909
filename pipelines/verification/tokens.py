"""Token files: footers, columns, rows and statistics, compared with the manifest."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.fingerprints import fingerprint
from pipelines.config.values import column_name, several
from pipelines.dataset.reading import TokenDataset, TokenFile
from pipelines.manifest.entries import TableEntry
from pipelines.manifest.generations import record_of
from pipelines.manifest.models import ImportedManifest, TokenizerManifest, TokensManifest
from pipelines.manifest.names import MANIFEST, source_name
from pipelines.manifest.token_schema import schema
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tasks.listing import compression_of
from pipelines.tasks.plan import COLUMN_FORMATS
from pipelines.tokenizers.files import Model
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.verification.counts import check_sums
from pipelines.verification.findings import Findings, check_software, compare
from pipelines.verification.rows import Places, Rows
from pipelines.writing.statistics import Statistics, read_statistics


class TokenFiles:
    """The check of all token files: their rows, and statistics recomputed from them."""

    def __init__(
        self, output: Directory, manifest: TokensManifest, model: Model, findings: Findings
    ) -> None:
        self._output = output
        self._manifest = manifest
        self._findings = findings
        self._vocabulary = Vocabulary(model)
        self._dataset = TokenDataset.open(output.url, output.storage_options)
        self._files = {file.name: file for file in self._dataset.files}
        self._sources = {source["name"]: source for source in manifest.configured_sources}
        self._kept = {
            column_name(text): None
            for source in manifest.configured_sources
            for text in source.get("keep_columns", ())
        }
        self._source_names: Sequence[str | None] = list(self._sources)
        self._affixes = [self._dataset.affix_id(key, model) for key in ("prepend", "append")]
        self._lock = threading.Lock()
        self._labels: set[str] = set()  # labels of input files in footers
        self._amounts: Counter[tuple[str, str]] = Counter()  # documents and bytes, by label
        self._statistics = {
            generation.name: Statistics(self._vocabulary) for generation in manifest.generations
        }

    def check(self, name: str) -> None:
        """Check the rows of a file."""
        self._check(self._files[name])

    def _check(self, file: TokenFile) -> None:
        where = f"tokens/{file.name}"
        task = self._check_footer(file, where)
        statistics = Statistics(self._vocabulary)
        inputs = self._places(file, task)
        rows = Rows(where, self._findings, self._affixes, inputs, self._vocabulary)
        of_labels: dict[str, list[int]] = {}
        columns = ["source", "offset", "part", "num_bytes"]
        for chunk in self._dataset.file_chunks(file, columns):
            if not rows.check(chunk):
                continue  # its values cannot be counted
            for label, first, end in chunk.runs_of_sources():
                starts = chunk.offsets[first : end + 1]
                of_label = of_labels.setdefault(label, [0, 0])
                of_label[0] += int(chunk.starts[first:end].sum())
                of_label[1] += int(chunk.column("num_bytes")[first:end].sum())
                statistics.add_rows(
                    file.split,
                    source_name(label, self._source_names),
                    label,
                    ids=chunk.ids[starts[0] : starts[-1]],
                    lengths=np.diff(starts),
                    num_bytes=chunk.column("num_bytes")[first:end],
                    offsets=chunk.column("offset")[first:end],
                    begins=chunk.starts[first:end],
                )
        statistics.finish()
        rows.finish()
        found = {"documents": rows.documents, "text_bytes": rows.text_bytes}
        expected = {"documents": file.documents, "text_bytes": file.text_bytes}
        compare(where, self._findings, found, expected)
        self._findings.add(rows=file.rows, tokens=file.tokens)
        tables = list(statistics.tables(file.generation))
        with self._lock:
            self._labels |= {label for label, _, _ in task.get("inputs", ())}
            for label, amounts in of_labels.items():
                for key, amount in zip(("documents", "bytes"), amounts, strict=True):
                    self._amounts[label, key] += amount
            for table in tables:
                self._statistics[file.generation].add_table(table)

    def _places(self, file: TokenFile, task: Mapping[str, Any]) -> dict[str, Places]:
        """Return the offsets at which documents of a task may begin, by label."""
        is_replay = record_of(self._manifest, file.name).kind == "replay"
        found: dict[str, Places] = {}
        for label, start, end in task.get("inputs", ()):
            name = source_name(label, self._source_names)
            source = self._sources.get(name)
            # Offsets of a replay are those of the first file; of columns, numbers of rows.
            if is_replay or source is None or source["format"] in COLUMN_FORMATS:
                found[label] = Places()
                continue
            is_uncompressed = compression_of(label, source["compression"]) is None
            places = Places(
                first=start,
                end=end if is_uncompressed else Places.end,
                framing=_framing(source),
            )
            if label in found:
                places = replace(places, first=min(start, found[label].first))
            found[label] = places
        return found

    def _check_footer(self, file: TokenFile, where: str) -> Mapping[str, Any]:
        generation = record_of(self._manifest, file.name)
        with open_parquet(self._dataset.tokens, file.name) as parquet:
            footer = footer_of(parquet)
            self._check_columns(parquet.schema_arrow, where)
        task: Mapping[str, Any] = json.loads(footer.get("task", "{}"))
        totals = {"rows": file.rows, "tokens": file.tokens, "bytes": file.text_bytes}
        compare(
            where,
            self._findings,
            footer,
            {
                "configuration": generation.configuration_fingerprint,
                "tokenizer": self._manifest.tokenizer,
                "totals": json.dumps(totals),
            },
        )
        compare(where, self._findings, task, {"index": file.index, "of": generation.tasks})
        return task

    def _check_columns(self, found: pa.Schema, where: str) -> None:
        configuration = self._manifest.configuration
        # Sources with ids may have been added after a generation without.
        may_have_ids = any(source.get("id_field") for source in self._sources.values())
        expected = schema(
            configuration["id_type"],
            record_ids=may_have_ids and "id" in found.names,
            kept=pa.schema([found.field(name) for name in self._kept if name in found.names]),
        )
        if not found.equals(expected):
            columns = [
                ", ".join(f"{column.name} {column.type}" for column in of)
                for of in (found, expected)
            ]
            self._findings.note(where, f"columns {columns[0]}, but {columns[1]} are expected")

    def finish(self) -> None:
        """Check the numbers of input files and the statistics, when all files are done."""
        damaged = {problem.file for problem in self._findings.result.problems}
        if any(file.startswith("tokens/") for file in damaged):
            return  # their totals cannot be compared
        where = f"tokens/{MANIFEST}"
        inputs = self._manifest.inputs_by_label
        for label in sorted(self._labels - inputs.keys()):
            self._findings.note(where, f"no input {label}, but token files contain its documents")
        for label, file in inputs.items():
            for key, expected in (("documents", file.documents), ("bytes", file.bytes)):
                found = self._amounts[label, key]
                if found != expected:
                    self._findings.note(
                        where, f"input {label}: {key}: {expected}, but the token files have {found}"
                    )
        last = self._manifest.generations[-1].name
        for entry, (name, counted) in zip(
            self._manifest.files.statistics, self._statistics.items(), strict=True
        ):
            self._check_statistics(entry, name, counted, is_last=name == last)

    def _check_statistics(
        self, entry: TableEntry, generation: str, counted: Statistics, *, is_last: bool
    ) -> None:
        where = f"tokens/{entry.name}"
        if is_last:
            with open_parquet(self._dataset.tokens, entry.name) as parquet:
                footer = footer_of(parquet)
            check_software(where, self._findings, footer, self._manifest)
            if "counts" in footer:  # files of earlier versions do not have it
                counts = {"counts": footer["counts"] or None}
                compare(where, self._findings, counts, self._manifest.to_json("counts"))
        splits = ["train"]
        if self._manifest.configuration["encode"]["validation_fraction"] > 0:
            splits.append("validation")
        listed = read_statistics(self._dataset.tokens, entry)
        listed = listed.replace_schema_metadata(None)
        found = pa.concat_tables(counted.tables(generation, splits=splits))
        for statistic in pc.unique(found["statistic"]).to_pylist():
            parts = [
                table.filter(pc.equal(table["statistic"], statistic)).combine_chunks()
                for table in (listed, found)
            ]
            if not parts[0].equals(parts[1]):
                self._findings.note(where, f"{statistic}: differs from the token files")
        if listed.num_rows != found.num_rows:
            self._findings.note(
                where, f"{listed.num_rows:,} rows, but {found.num_rows:,} are expected"
            )


def _framing(source: Mapping[str, Any]) -> int:
    """Return the least number of bytes between two documents of a file."""
    if source["format"] != "text":
        return 1  # a line contains markup and ends with a line break
    separators = several(source["separator"]) if source["separator"] is not None else ()
    return min((len(separator.encode()) for separator in separators), default=0)


def check_tokens(
    manifest: TokensManifest,
    tokenizer: TokenizerManifest | ImportedManifest | None,
    findings: Findings,
) -> None:
    """Check the fingerprints and totals in the manifest of the token files."""
    where = f"tokens/{MANIFEST}"
    files = manifest.files
    totals = {
        "train_rows": sum(file.rows for file in files.train),
        "validation_rows": sum(file.rows for file in files.validation),
        "tokens": sum(file.tokens for file in files.token_files),
        "text_bytes": sum(file.text_bytes for file in files.token_files),
    }
    compare(where, findings, manifest.totals.to_json(*totals), totals)
    expected = {"configuration_fingerprint": fingerprint(manifest.configuration)}
    if tokenizer is not None and manifest.tokenizer not in _smaller_sizes(tokenizer):
        expected["tokenizer"] = tokenizer.fingerprint
    compare(where, findings, manifest.to_json(*expected), expected)
    check_sums(manifest, findings)


def _smaller_sizes(tokenizer: TokenizerManifest | ImportedManifest) -> set[str]:
    """Return the fingerprints of the smaller tokenizers of the same training."""
    if isinstance(tokenizer, ImportedManifest):
        return set()
    return {size.fingerprint for size in tokenizer.sizes}
