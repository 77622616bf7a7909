"""Token files: footers, columns and statistics, held against the manifest."""

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
from pipelines.config.values import several
from pipelines.dataset.reading import TokenDataset, TokenFile
from pipelines.manifest.generations import record_of
from pipelines.manifest.models import Stage
from pipelines.manifest.names import source_name
from pipelines.manifest.records import MANIFEST
from pipelines.manifest.token_schema import schema
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tasks.listing import compression_of
from pipelines.tasks.plan import COLUMN_FORMATS
from pipelines.tokenizers.files import Model
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.verification.contradictions import contradictions
from pipelines.verification.counts import check_accounts_of
from pipelines.verification.findings import Findings, check_software, compare, entry_of
from pipelines.verification.rows import Places, Rows
from pipelines.writing.statistics import Statistics, read_statistics


class TokenFiles:
    """Verifies the rows of the token files, and counts anew what the statistics say of them."""

    def __init__(
        self, output: Directory, manifest: Mapping[str, Any], model: Model, findings: Findings
    ) -> None:
        self._output = output
        self._manifest = manifest
        self._findings = findings
        self._vocabulary = Vocabulary(model)
        self._dataset = TokenDataset.open(output.url, output.storage_options)
        self._files = {file.name: file for file in self._dataset.files}
        names = [source["name"] for source in manifest["configuration"]["input"]]
        self._source_names: Sequence[str | None] = names
        self._sources = dict(zip(names, manifest["configuration"]["input"], strict=True))
        self._affixes = [self._dataset.affix_id(key, model) for key in ("prepend", "append")]
        self._lock = threading.Lock()
        self._labels: set[str] = set()  # of input files, in footers
        self._amounts: Counter[tuple[str, str]] = Counter()  # by label: documents, bytes
        self._statistics = {
            generation["name"]: Statistics(self._vocabulary)
            for generation in manifest["generations"]
        }

    def check(self, name: str) -> None:
        """Verifies the rows of a file."""
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
                continue  # nothing that could be counted
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
        """Where documents of the inputs of a task may begin."""
        is_replay = record_of(self._manifest, file.name)["kind"] == "replay"
        found: dict[str, Places] = {}
        for label, start, end in task.get("inputs", ()):
            name = source_name(label, self._source_names)
            source = self._sources.get(name)
            # Of a replay: places of the file as it was first. Of columns: numbers of rows.
            if is_replay or source is None or source["format"] in COLUMN_FORMATS:
                found[label] = Places()
                continue
            is_stored_so = compression_of(label, source["compression"]) is None
            places = Places(
                first=start,
                end=end if is_stored_so else Places.end,
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
                "configuration": generation["configuration_fingerprint"],
                "tokenizer": self._manifest["tokenizer"],
                "totals": json.dumps(totals),
            },
        )
        compare(where, self._findings, task, {"index": file.index, "of": generation["tasks"]})
        return task

    def _check_columns(self, found: pa.Schema, where: str) -> None:
        configuration = self._manifest["configuration"]
        # Sources with ids may have been added after a generation without.
        may_have_ids = any(source.get("id_field") for source in configuration["input"])
        expected = schema(configuration["id_type"], record_ids=may_have_ids and "id" in found.names)
        if not found.equals(expected):
            columns = [
                ", ".join(f"{column.name} {column.type}" for column in of)
                for of in (found, expected)
            ]
            self._findings.note(where, f"columns {columns[0]}, where {columns[1]} are expected")

    def finish(self) -> None:
        """Once all files are done: what they hold of each input file, and the statistics."""
        damaged = {problem.file for problem in self._findings.result.problems}
        if any(file.startswith("tokens/") for file in damaged):
            return  # nothing that they could be held against
        inputs = {file["name"]: file for file in self._manifest["inputs"]}
        for label in sorted(self._labels - inputs.keys()):
            self._findings.note(
                f"tokens/{MANIFEST}", f"no input {label}, of which there are token files"
            )
        for label, file in inputs.items():
            for key in ("documents", "bytes"):
                found = self._amounts[label, key]
                if found != file[key]:
                    self._findings.note(
                        f"tokens/{MANIFEST}",
                        f"input {label}: {key}: {file[key]}, where the token files hold {found}",
                    )
        splits = ["train"]
        if self._manifest["configuration"]["encode"]["validation_fraction"] > 0:
            splits.append("validation")
        for entry, (name, counted) in zip(
            self._manifest["files"]["statistics"], self._statistics.items(), strict=True
        ):
            where = f"tokens/{entry['name']}"
            if name == self._manifest["generations"][-1]["name"]:
                with open_parquet(self._dataset.tokens, entry["name"]) as parquet:
                    footer = footer_of(parquet)
                check_software(where, self._findings, footer, self._manifest)
                if "counts" in footer:  # files of earlier versions do not say it
                    counts = {"counts": footer["counts"] or None}
                    compare(where, self._findings, counts, entry_of(self._manifest, "counts"))
            said = read_statistics(self._dataset.tokens, entry).replace_schema_metadata(None)
            found = pa.concat_tables(counted.tables(name, splits=splits))
            for statistic in pc.unique(found["statistic"]).to_pylist():
                parts = [
                    table.filter(pc.equal(table["statistic"], statistic)).combine_chunks()
                    for table in (said, found)
                ]
                if not parts[0].equals(parts[1]):
                    self._findings.note(where, f"{statistic}: not what the token files hold")
            if said.num_rows != found.num_rows:
                self._findings.note(
                    where, f"{said.num_rows:,} rows, where {found.num_rows:,} are expected"
                )


def _framing(source: Mapping[str, Any]) -> int:
    """Bytes at least between two documents of a file, or behind a line's text."""
    if source["format"] != "text":
        return 1  # a line holds more than its text, and ends
    separators = several(source["separator"]) if source["separator"] is not None else ()
    return min((len(separator.encode()) for separator in separators), default=0)


def check_tokens(manifests: Mapping[Stage, Mapping[str, Any]], findings: Findings) -> None:
    """Verifies what the manifest of the token files says in all."""
    manifest = manifests["tokens"]
    where = f"tokens/{MANIFEST}"
    files = manifest["files"]
    both = [*files["train"], *files["validation"]]
    totals = {
        "train_rows": sum(file["rows"] for file in files["train"]),
        "validation_rows": sum(file["rows"] for file in files["validation"]),
        "tokens": sum(file["tokens"] for file in both),
        "text_bytes": sum(file["text_bytes"] for file in both),
    }
    compare(where, findings, manifest["totals"], totals)
    expected = {"configuration_fingerprint": fingerprint(manifest["configuration"])}
    if "tokenizer" in manifests:
        expected["tokenizer"] = manifests["tokenizer"]["fingerprint"]
    compare(where, findings, manifest, expected)
    check_accounts_of(where, manifest, findings)
    for contradiction in contradictions(manifest):
        findings.note(where, contradiction)
