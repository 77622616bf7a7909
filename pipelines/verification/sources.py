"""`beam-bpe verify --sources` and `--sample N`: documents compared with their source files.

The files are read as the build read them. The ids, without prepended and appended ones, are decoded
and must yield the text of the document, after the normalization or repair in the configuration. If
decoding does not restore a text (characters as smallest tokens, bytes without an id), the text is
encoded again and must yield the ids. Either all documents of each task are compared, or a sample of
N, spread evenly over the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core import BPETokenizer
from bpe_core.errors import BpeError
from bpe_core.normalization import native_normalizer
from bpe_core.special_tokens import special_set
from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch, Reject
from pipelines.config import BuildConfig, SourceConfig
from pipelines.config.fingerprints import source_of
from pipelines.dataset.reading import TokenChunk, TokenDataset, TokenFile
from pipelines.errors import InputError, shortened, to_one_line
from pipelines.manifest.generations import policy_of_generation, with_policy
from pipelines.manifest.models import TokensManifest
from pipelines.manifest.names import BASE, MANIFEST, RUN, source_name
from pipelines.manifest.run_record import RunRecord
from pipelines.readers.kept_columns import same_columns
from pipelines.readers.source_limits import limit_files
from pipelines.readers.tasks import (
    SourceReading,
    TaskWork,
    keep_columns,
    read_task,
    source_readings,
)
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tasks.listing import InputFile, compression_of, list_files
from pipelines.tasks.plan import COLUMN_FORMATS, is_splittable
from pipelines.tokenizers.files import Model, cutting_rules, make_tokenizer
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.verification.findings import Findings, run_side_by_side
from pipelines.writing.encoder import DocumentEncoder

_COLUMNS: Final = ("source", "offset", "part", "num_bytes")


def verify_sources(
    dataset: TokenDataset,
    model: Model,
    findings: Findings,
    *,
    config: BuildConfig | None = None,
    sample: int | None = None,
) -> None:
    """Compare documents with their sources and note the differences.

    Args:
        dataset: whose files are intact.
        model: the tokenizer that it was encoded with.
        findings: for the problems.
        config: names the locations of the files and their storage options; None: the files are
            where the build found them.
        sample: number of documents; None: all documents, the rejected ones included.

    Raises:
        InputError: the location of a file is unknown.
    """
    manifest = dataset.require_manifest()
    files = _input_files(dataset, manifest, config)
    sources = _Sources(dataset, manifest, model, files, config)
    findings.add(documents=0)
    if sample is None:
        jobs = [_WholeTask(sources, findings, group).run for group in _tasks(dataset).values()]
    else:
        jobs = [
            partial(_check_sample, sources, findings, file, rows)
            for file, rows in _sampled(dataset, sample)
        ]
    run_side_by_side("comparing documents", jobs)
    if sample is None and not findings.result.problems:
        _check_corpus(sources, findings)


# --- input files -----------------------------------------------------------------------------


def _input_files(
    dataset: TokenDataset, manifest: TokensManifest, config: BuildConfig | None
) -> dict[str, InputFile]:
    """Return the present input files, by label."""
    entries = manifest.inputs_by_label
    found: dict[str, InputFile] = {}
    if config is not None:
        for index, source in enumerate(config.input):
            for file in list_files(source, index=index, resolve=config.resolve_glob):
                found[file.label] = replace(file, version_tag="")
    else:
        record = RunRecord.load(dataset.tokens)
        configured = manifest.configured_sources
        names = [source["name"] for source in configured]
        for label, url in ({} if record is None else record.locations).items():
            name = source_name(label, names)
            index = names.index(name)
            short = label if name is None else label[len(name) + 1 :]
            found[label] = InputFile(
                source=index,
                source_name=name,
                url=url,
                name=short,
                size=entries[label].size if label in entries else 0,
                version_tag="",
                compression=compression_of(short, configured[index].get("compression", "none")),
            )
    missing = sorted(entries.keys() - found.keys())
    if missing:
        raise InputError(
            "The location of an input file is unknown.",
            expected=f"the location of {shortened(missing, 1)}",
            where=f"{dataset.tokens.path(RUN)}" if config is None else "input.files",
            hint="Give the configuration that reads them: --config CONFIG.",
        )
    return {
        file.label: file for file in _limited([found[label] for label in entries], manifest, config)
    }


def _limited(
    files: Sequence[InputFile], manifest: TokensManifest, config: BuildConfig | None
) -> Iterator[InputFile]:
    """Yield the files up to the limits of their sources."""
    entries = manifest.inputs_by_label
    sources = _configured(manifest, manifest.configuration, config)
    first = [file for file in files if entries[file.label].generation == BASE]
    yield from limit_files(first, sources, {})[0]
    yield from (file for file in files if entries[file.label].generation != BASE)


def _configured(
    manifest: TokensManifest, configuration: Mapping[str, Any], config: BuildConfig | None
) -> list[SourceConfig]:
    """Return the sources as the build read them, with the options of their storage.

    They may have as many bad files as they had.
    """
    bad = {source.name: len(source.bad_files) for source in manifest.sources}
    options: dict[str | None, Mapping[str, Any]] = {}
    if config is not None:
        options = {source.name: source.storage_options for source in config.input}
    return [
        source_of(
            source,
            storage_options=dict(options.get(source["name"], {})),
            max_bad_files=bad.get(source["name"], 0),
        )
        for source in configuration["input"]
    ]


@dataclass
class _Sources:
    """The sources of a dataset, and the rules of its generations."""

    dataset: TokenDataset
    manifest: TokensManifest
    model: Model
    files: Mapping[str, InputFile]
    config: BuildConfig | None

    def __post_init__(self) -> None:
        self._vocabulary = Vocabulary(self.model)
        self._tokenizer = make_tokenizer(self.model)
        self._rules: dict[str, _Rules] = {}
        self._kinds = {made.name: made.kind for made in self.manifest.generations}
        self._repaired = {file.name for file in self.manifest.inputs if file.repaired}
        self.totals: dict[str, DocumentTotals] = {}

    def rules(self, generation: str) -> _Rules:
        """Return the rules of a generation."""
        if generation not in self._rules:
            policy = policy_of_generation(self.manifest, generation)
            configuration = with_policy(self.manifest.configuration, policy)
            first = next(file for file in self.dataset.files if file.generation == generation)
            kept = self.dataset.kept_columns_of(first)
            readings = self._readings(configuration, kept)
            self._rules[generation] = _Rules(self, configuration, readings, self._vocabulary, kept)
        return self._rules[generation]

    def _readings(
        self, configuration: Mapping[str, Any], kept: pa.Schema
    ) -> tuple[SourceReading, ...]:
        sources = _configured(self.manifest, configuration, self.config)
        return keep_columns(source_readings(sources, **cutting_rules(self.model)), sources, kept)

    def is_replay(self, generation: str) -> bool:
        """Return True if a generation is a replay of rejects."""
        return self._kinds[generation] == "replay"

    def is_replaced(self, file: TokenFile) -> bool:
        """Return True if a repaired file has replaced a source of a file's task."""
        # Either file may be there now, and offsets are those of the first one.
        return any(part.label in self._repaired for part, _, _ in self.work(file).parts)

    @property
    def superseded(self) -> set[str]:
        """Names of files of rejects that those of a replay have replaced."""
        return {name for made in self.manifest.generations for name in made.of or ()}

    def work(self, file: TokenFile) -> TaskWork:
        """Return the task of a token file, from its footer."""
        with open_parquet(self.dataset.tokens, file.name) as parquet:
            task = json.loads(footer_of(parquet)["task"])
        parts = tuple((self.files[label], start, end) for label, start, end in task["inputs"])
        return TaskWork(index=task["index"], of=task["of"], hash=0, parts=parts)


class _Rules:
    """Rules of a generation for refusing, splitting and encoding documents."""

    def __init__(
        self,
        sources: _Sources,
        configuration: Mapping[str, Any],
        readings: tuple[SourceReading, ...],
        vocabulary: Vocabulary,
        kept: pa.Schema,
    ) -> None:
        self.kept: list[str] = kept.names
        encode = configuration["encode"]
        self.readings = readings
        self.validation_fraction: float = encode["validation_fraction"]
        self.encoder = DocumentEncoder(
            sources._tokenizer,
            prepend=encode["prepend"],
            append=encode["append"],
            special_tokens_in_text=encode["special_tokens_in_text"],
            dtype=np.uint16 if configuration["id_type"] == "uint16" else np.uint32,
        )
        self._affixes = encode["prepend"] is not None, encode["append"] is not None
        self._vocabulary = vocabulary
        model = sources.model
        tokenizer = sources._tokenizer
        self._restores = (
            isinstance(tokenizer, BPETokenizer)
            and tokenizer.model.characters is None
            and not tokenizer.model.token_flags
            and not tokenizer.model.space_rules
            and len(np.flatnonzero(tokenizer.model.byte_ids >= 0)) == 256
        )
        rules = cutting_rules(model)
        self._normalizer = native_normalizer(rules["normalizer"], rules["normalize_quotes"])
        splits = encode["special_tokens_in_text"] == "split"
        self._specials = special_set(list(rules["special_tokens"]) if splits else [])

    def differing(self, batch: DocumentBatch, rows: _RowsOfBatch) -> int | None:
        """Return the first document of a batch whose ids differ from those of its row, if any."""
        if not self._restores:
            expected = self.encoder.encode(batch)
            if len(expected.ids) == len(rows.ids) and (
                np.array_equal(expected.ids, rows.ids)
                and np.array_equal(expected.offsets, rows.offsets)
            ):
                return None
            return self._first_differing(
                [expected.ids[a:b].tobytes() for a, b in _spans(expected.offsets)],
                [rows.ids[a:b].tobytes() for a, b in _spans(rows.offsets)],
            )
        texts = [self._normal(batch.document(i)) for i in range(len(batch))]
        kept, offsets = self._without_affixes(rows, batch)
        data, bounds = self._vocabulary.decode(kept)
        if data.tobytes() == b"".join(texts):
            ends = bounds[offsets[1:]]
            if np.array_equal(np.cumsum([len(text) for text in texts]), ends):
                return None
        places = bounds[offsets]
        return self._first_differing(texts, [data[a:b].tobytes() for a, b in _spans(places)])

    def _without_affixes(
        self, rows: _RowsOfBatch, batch: DocumentBatch
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        keep = np.ones(len(rows.ids), np.bool_)
        lengths = np.diff(rows.offsets)
        filled = np.flatnonzero(lengths > 0)
        if self._affixes[0] and batch.part == 0:
            keep[rows.offsets[:-1][filled]] = False
        if self._affixes[1] and batch.last:
            keep[rows.offsets[1:][filled] - 1] = False
        kept_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep)])
        return rows.ids[keep], kept_before[rows.offsets]

    def _normal(self, text: bytes) -> bytes:
        """Return the decoded form of a text: normalized, except for special tokens."""
        if self._normalizer is None:
            return text
        parts: list[bytes] = []
        done = 0
        for begin, end, _ in [*self._specials.find_all(text), (len(text), len(text), -1)]:
            parts += [self._normalizer.normalize(text[done:begin]), text[begin:end]]
            done = end
        return b"".join(parts)

    @staticmethod
    def _first_differing(expected: Sequence[bytes], found: Sequence[bytes]) -> int:
        pairs = zip(expected, found, strict=True)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), 0)


def _spans(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    return zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)


@dataclass(frozen=True, kw_only=True)
class _RowsOfBatch:
    """The rows of a token file that must be those of a batch."""

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    kept: pa.Table


# --- complete tasks --------------------------------------------------------------------------


def _tasks(dataset: TokenDataset) -> dict[tuple[str, int], dict[str, TokenFile]]:
    """Return the token files of each task by split; tasks by generation and index."""
    found: dict[tuple[str, int], dict[str, TokenFile]] = {}
    for file in dataset.files:
        found.setdefault((file.generation, file.index), {})[file.split] = file
    return found


class _Cursor:
    """A cursor over the rows of a token file."""

    def __init__(self, dataset: TokenDataset, file: TokenFile, kept: Sequence[str]) -> None:
        self.name = file.name
        self.row = 0
        self._kept = list(kept)
        self._chunks = dataset.file_chunks(file, [*_COLUMNS, *kept])
        self._chunk: TokenChunk | None = None
        self._at = 0

    def take(self, number: int) -> tuple[_RowsOfBatch, dict[str, NDArray[Any]]] | None:
        """Return the next rows, or None if fewer are left."""
        ids: list[NDArray[Any]] = []
        lengths: list[NDArray[np.int64]] = []
        columns: dict[str, list[NDArray[Any]]] = {name: [] for name in _COLUMNS}
        kept: list[pa.Table] = []
        left = number
        while left:
            if self._chunk is None or self._at == len(self._chunk):
                self._chunk, self._at = next(self._chunks, None), 0
                if self._chunk is None:
                    return None
                continue
            end = min(self._at + left, len(self._chunk))
            offsets = self._chunk.offsets[self._at : end + 1]
            ids.append(self._chunk.ids[offsets[0] : offsets[-1]])
            lengths.append(np.diff(offsets))
            for name, parts in columns.items():
                column = self._chunk.columns[name].to_numpy(zero_copy_only=False)
                parts.append(column[self._at : end])
            kept.append(self._chunk.columns.select(self._kept)[self._at : end])
            left -= end - self._at
            self._at = end
        self.row += number
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        rows = _RowsOfBatch(ids=np.concatenate(ids), offsets=offsets, kept=pa.concat_tables(kept))
        return rows, joined

    @property
    def at_end(self) -> bool:
        """True if there are no more rows."""
        return self.take(1) is None


class _WholeTask:
    """The comparison of all documents of a task, kept and rejected, with the task's files."""

    def __init__(
        self, sources: _Sources, findings: Findings, files: Mapping[str, TokenFile]
    ) -> None:
        self._sources = sources
        self._findings = findings
        self._files = files

    def run(self) -> None:
        """Read the sources of the task once and compare."""
        train = self._files["train"]
        dataset = self._sources.dataset
        if self._sources.is_replaced(train):
            self._findings.add(unread_tasks=1)
            return
        if self._sources.is_replay(train.generation):  # it has only some documents of its task
            for file in self._files.values():
                _check_sample(self._sources, self._findings, file, range(file.rows))
            return
        rules = self._sources.rules(train.generation)
        cursors = {split: _Cursor(dataset, file, rules.kept) for split, file in self._files.items()}
        rejects = _Rejects(dataset, self._sources.manifest, train, self._sources.superseded)
        totals = DocumentTotals()
        documents = 0
        where = f"tokens/{train.name}"
        try:
            work = self._sources.work(train)
            for batch in read_task(work, rules.readings):
                kept = rules.encoder.refuse(batch)
                totals.add_batch(kept)
                if not rejects.take(kept.rejects):
                    self._findings.note(
                        rejects.where, "other rejects than reading the source yields"
                    )
                    return
                for split, part in _by_split(kept, rules.validation_fraction, cursors):
                    if not self._compare(rules, part, cursors[split]):
                        return
                documents += len(kept) if kept.part == 0 else 0
        except BpeError as error:
            self._findings.note(where, f"its source cannot be read: {to_one_line(error)}")
            return
        finally:
            self._findings.add(documents=documents)
        for cursor in cursors.values():
            if not cursor.at_end:
                self._findings.note(f"tokens/{cursor.name}", "more rows than its source has")
        if not rejects.at_end:
            self._findings.note(rejects.where, "more rejects than its source has")
        with self._findings.lock:
            self._sources.totals.setdefault(train.generation, DocumentTotals()).add(totals)

    def _compare(self, rules: _Rules, batch: DocumentBatch, cursor: _Cursor) -> bool:
        where = f"tokens/{cursor.name}"
        first = cursor.row
        taken = cursor.take(len(batch))
        if taken is None:
            self._findings.note(
                where, f"fewer rows than documents: {batch.source}, offset {batch.offsets[0]:,}"
            )
            return False
        rows, columns = taken
        places = (
            (columns["source"] == batch.source)
            & (columns["offset"] == batch.offsets)
            & (columns["part"] == batch.part)
            & (columns["num_bytes"] == batch.num_bytes)
        )
        if not places.all():
            i = int(np.argmin(places))
            self._findings.note(
                where,
                f"row {first + i:,}: {columns['source'][i]}, offset {columns['offset'][i]:,}, part "
                f"{columns['part'][i]}, {columns['num_bytes'][i]:,} bytes, but the source has "
                f"{batch.source}, offset {batch.offsets[i]:,}, part {batch.part}, "
                f"{batch.num_bytes[i]:,} bytes",
            )
            return False
        if not same_columns(batch, rows.kept):
            self._findings.note(
                where,
                f"rows {first:,} to {first + len(batch) - 1:,}: other values in kept columns than "
                f"{batch.source} has from offset {batch.offsets[0]:,}",
            )
            return False
        differing = rules.differing(batch, rows)
        if differing is not None:
            self._findings.note(
                where,
                f"row {first + differing:,}: ids of another text than {batch.source} has at "
                f"offset {batch.offsets[differing]:,}, part {batch.part}",
            )
            return False
        return True


def _by_split(
    batch: DocumentBatch, fraction: float, cursors: Mapping[str, object]
) -> list[tuple[str, DocumentBatch]]:
    """Return the parts of a batch by split, as encoding divides it."""
    if "validation" not in cursors:
        parts = [("train", batch)]
    else:
        chosen = batch.hashes[:, 1] < np.uint64(int(fraction * 2.0**64))
        parts = [("train", batch.select(~chosen)), ("validation", batch.select(chosen))]
    return [(split, part) for split, part in parts if len(part)]


class _Rejects:
    """A cursor over the rejects of a task."""

    def __init__(
        self,
        dataset: TokenDataset,
        manifest: TokensManifest,
        train: TokenFile,
        superseded: set[str],
    ) -> None:
        _, _, task = train.name.partition("-")
        self._name = task
        self._unknown = task in superseded
        self.where = f"rejects/{task}"
        listed = {entry.name for entry in manifest.files.rejects}
        self._rows = self._read(dataset) if task in listed else iter(())

    def _read(self, dataset: TokenDataset) -> Iterator[dict[str, Any]]:
        with open_parquet(dataset.output / "rejects", self._name) as parquet:
            for number in range(parquet.num_row_groups):
                yield from parquet.read_row_group(number, use_threads=False).to_pylist()

    def take(self, rejects: Sequence[Reject]) -> bool:
        """Return True if the next rows are these."""
        if self._unknown:
            return True
        return all(next(self._rows, None) == asdict(reject) for reject in rejects)

    @property
    def at_end(self) -> bool:
        """True if there are no more rows."""
        return next(self._rows, None) is None


def _check_corpus(sources: _Sources, findings: Findings) -> None:
    """Check that the hashes of all documents add up to those in the manifest."""
    for generation in sources.manifest.generations:
        if generation.kind == "replay" or findings.result.unread_tasks:
            continue
        found = sources.totals.get(generation.name, DocumentTotals()).corpus_fingerprint
        if found != generation.corpus:
            findings.note(
                f"tokens/{MANIFEST}",
                f"{generation.name}: documents {found}, but {generation.corpus} is expected "
                "(number and sum of hashes)",
            )


# --- samples ---------------------------------------------------------------------------------


def _sampled(dataset: TokenDataset, sample: int) -> Iterator[tuple[TokenFile, list[int]]]:
    """Yield rows spread evenly over all files, by file."""
    total = sum(file.rows for file in dataset.files)
    number = min(sample, total)
    chosen = [(2 * i + 1) * total // (2 * number) for i in range(number)]
    first = at = 0
    for file in dataset.files:
        rows = []
        while at < len(chosen) and chosen[at] < first + file.rows:
            rows.append(chosen[at] - first)
            at += 1
        if rows:
            yield file, rows
        first += file.rows


def _check_sample(
    sources: _Sources, findings: Findings, file: TokenFile, rows: Sequence[int]
) -> None:
    """Compare the documents, or parts of documents, in some rows of a file."""
    where = f"tokens/{file.name}"
    rules = sources.rules(file.generation)
    wanted = dict(_rows_by_place(sources.dataset, file, rows, rules.kept))
    try:
        for batch in _batches_with(sources, rules, file, wanted.keys()):
            kept = rules.encoder.refuse(batch)
            for i, offset in enumerate(kept.offsets.tolist()):
                found = wanted.pop((kept.source, offset, kept.part), None)
                if found is None:
                    continue
                row, number, of_row = found
                one = kept.select(np.arange(len(kept)) == i)
                same = number == int(one.num_bytes[0]) and rules.differing(one, of_row) is None
                findings.add(documents=1)
                if not same_columns(one, of_row.kept):
                    findings.note(
                        where,
                        f"row {row:,}: other values in kept columns than {kept.source} has at "
                        f"offset {offset:,}",
                    )
                if not same:
                    findings.note(
                        where,
                        f"row {row:,}: ids of another text than {kept.source} has at offset "
                        f"{offset:,}, part {kept.part}",
                    )
            if not wanted:
                return
    except BpeError as error:
        findings.note(where, f"its source cannot be read: {to_one_line(error)}")
        return
    for (label, offset, part), (row, _, _) in wanted.items():
        findings.note(
            where,
            f"row {row:,}: {label} has no such document at offset {offset:,}, part {part}",
        )


def _rows_by_place(
    dataset: TokenDataset, file: TokenFile, rows: Sequence[int], kept: Sequence[str]
) -> Iterator[tuple[tuple[str, int, int], tuple[int, int, _RowsOfBatch]]]:
    """Yield (source, offset, part) and (row, bytes of text, ids) for ascending rows."""
    left = list(reversed(rows))
    if not left:
        return
    for chunk in dataset.file_chunks(file, [*_COLUMNS, *kept], start_row=left[-1]):
        while left and left[-1] < chunk.first_row + len(chunk):
            row = left.pop()
            i = row - chunk.first_row
            begin, end = chunk.offsets[i : i + 2].tolist()
            place = (
                chunk.columns["source"][i].as_py(),
                int(chunk.column("offset")[i]),
                int(chunk.column("part")[i]),
            )
            ids = chunk.ids[begin:end].copy()  # so that the rest of the row group can go
            values = chunk.columns.select(kept)[i : i + 1]
            bounds = np.array([0, end - begin], np.int64)
            of_row = _RowsOfBatch(ids=ids, offsets=bounds, kept=values)
            yield place, (row, int(chunk.column("num_bytes")[i]), of_row)
        if not left:
            return


def _batches_with(
    sources: _Sources, rules: _Rules, file: TokenFile, places: Any
) -> Iterator[DocumentBatch]:
    """Yield the source's batches that contain the documents at these offsets.

    If a file can be cut anywhere, only the ranges in which they begin are read.
    """
    work = sources.work(file)
    ranges: dict[str, list[tuple[int, int]]] = {}
    for part_file, start, end in work.parts:
        offsets = sorted({o for label, o, _ in places if label == part_file.label})
        form = rules.readings[part_file.source].options
        anywhere = form.format not in COLUMN_FORMATS and is_splittable(part_file.compression, form)
        if offsets:
            ranges[part_file.label] = (
                [(offset, offset + 1) for offset in offsets] if anywhere else [(start, end)]
            )
    for part_file, _, _ in work.parts:
        for start, end in ranges.get(part_file.label, ()):
            yield from read_task(replace(work, parts=((part_file, start, end),)), rules.readings)
