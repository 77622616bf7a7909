"""Checks of samples against the configuration: mistakes that would end the build, and warnings."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from bpe_core.mixtures import check_names
from bpe_core.special_tokens import special_set
from pipelines.batches import Reject
from pipelines.config import BuildConfig, SourceConfig
from pipelines.config.validation import did_you_mean
from pipelines.config.values import column_name
from pipelines.errors import ConfigError, InputError, PipelineError, shortened, to_one_line
from pipelines.probing.contents import Content, is_page, looks_like_json_lines, recognize
from pipelines.probing.samples import FileSample
from pipelines.readers.fields import no_such_field
from pipelines.readers.json_lines import no_field_of_text, parse_records
from pipelines.readers.options import InvalidDocumentError
from pipelines.readers.tasks import refuse_special_tokens
from pipelines.rejects.reasons import INVALID_UTF8, MALFORMED_JSON, MISSING_FIELD, SPECIAL_TOKEN
from pipelines.rejects.thresholds import describe_reject, reject_error
from pipelines.tasks.listing import COMPRESSION_OF_EXTENSION, compression_of
from pipelines.tasks.plan import COLUMN_FORMATS

_RECORDS: Final = 1000
# A special token that occurs more often than this in the sampled text is probably a word.
_BYTES_BETWEEN_SPECIALS: Final = 10_000
_LEAST_TEXT: Final = 100_000
_VALUES_SHOWN: Final = 12


class Checks:
    """Problems found in the samples of a build's input.

    Args:
        config: Configuration of the build.
        samples: Samples of all sources, in the order of the files.
        specials: Special tokens that are found in text.
    """

    def __init__(
        self, config: BuildConfig, samples: Sequence[FileSample], specials: Sequence[str]
    ) -> None:
        self._config = config
        self._specials = specials
        self._limit = config.encode.max_reject_fraction
        self._samples = samples

    def find_problem(self) -> PipelineError | None:
        """Return the first error with which the build would end, or None."""
        return next(self._problems(), None)

    def _problems(self) -> Iterator[PipelineError]:
        for number, source in enumerate(self._config.input):
            samples = [sample for sample in self._samples if sample.file.source == number]
            yield from self._contradictions(samples, source)
            for sample in samples:
                if sample.fault is not None and not source.max_bad_files:
                    yield sample.fault
                yield from self._problems_of_records(sample, source)
                yield from self._problems_of_rejects(sample, source)
        yield from self._problems_of_groups()

    def _contradictions(
        self, samples: Sequence[FileSample], source: SourceConfig
    ) -> Iterator[PipelineError]:
        """Yield errors for files whose bytes contradict the configuration.

        If files or documents may be bad, some of the files may be of another kind, but not all.
        """
        found = [self._find_contradiction(sample, source) for sample in samples]
        wrong = [error for error in found if error is not None]
        tolerant = source.max_bad_files > 0 or self._limit > 0
        if not tolerant or (len(wrong) == len(samples) and self._limit < 1):
            yield from wrong

    # --- the content of files

    def _find_contradiction(self, sample: FileSample, source: SourceConfig) -> InputError | None:
        """Return the error for a file whose bytes contradict its format or compression."""
        file = sample.file
        content = recognize(sample.head)
        compression = file.compression
        of_columns = source.format in COLUMN_FORMATS
        if of_columns:
            if content is not None and content.format == source.format:
                return None
            if content is None and sample.fault is None:  # such as an empty stream
                return None
            return self._contradiction(sample, content or _describe_text(sample.head), source)
        if compression is not None and (content is None or content.compression != compression):
            return self._contradiction(sample, content or _describe_text(sample.head), source)
        if compression is None and content is not None and (content.compression or content.format):
            return self._contradiction(sample, content, source)
        inner = recognize(sample.text_head)
        if inner is not None and inner.compression is None:
            return self._contradiction(sample, inner, source, inside=compression)
        return None

    def _contradiction(
        self,
        sample: FileSample,
        content: Content,
        source: SourceConfig,
        inside: str | None = None,
    ) -> InputError:
        file = sample.file
        extension = compression_of(file.name)
        expected = _FORMATS[source.format]
        why = f"{self._key(file.source, 'format')}: {source.format}"
        if source.format not in COLUMN_FORMATS and inside is None:
            if file.compression is not None:
                expected = f"{file.compression} data"
                why = f"{self._key(file.source, 'compression')}: {source.compression}"
                if source.compression == "infer":
                    why = f"the extension of {file.name}"
            elif content.compression is not None and source.compression == "none":
                why = f"{self._key(file.source, 'compression')}: none"
        found = content.name + (f", inside {inside} data" if inside else "")
        hint = content.hint
        if content.compression is not None:
            hint = f"Set {self._key(file.source, 'compression')}: {content.compression}"
            renamed = {v: k for k, v in reversed(COMPRESSION_OF_EXTENSION.items())}
            if source.compression == "infer":
                hint += f", or name the file .{renamed[content.compression]}"
            if source.format in COLUMN_FORMATS:
                hint = "Decompress the file"
            hint += "."
        elif content.format is not None and content.format != source.format:
            hint = f"Set {self._key(file.source, 'format')}: {content.format}."
        elif content.name == _PLAIN and file.compression is not None:
            hint = f"Set {self._key(file.source, 'compression')}: none."
            if extension is not None and source.compression == "infer":
                hint = f"Rename the file, or set {self._key(file.source, 'compression')}: none."
        return InputError(
            f"An input file is not {expected}, but {found}.",
            expected=f"{expected} ({why})",
            found=found,
            where=file.url,
            hint=hint,
        )

    # --- fields of records

    def _problems_of_records(
        self, sample: FileSample, source: SourceConfig
    ) -> Iterator[PipelineError]:
        """Yield errors for fields that no record of a file of JSON lines has."""
        file = sample.file
        if source.format != "jsonl":
            return
        of = source.name or file.name
        kept = sum(map(len, sample.batches))
        missing = [reject for reject in sample.rejects if reject.reason == MISSING_FIELD]
        enough = self._limit == 0 or (self._limit < 1 and len(missing) >= _RECORDS)
        if missing and len(missing) == sample.documents and enough:
            key = self._key(file.source, "text_field")
            yield no_field_of_text(
                self._records(sample), source.text_fields, of=of, where=file.url, key=key
            )
        ids = source.id_path
        if ids is not None and kept and all(_has_no_ids(batch.ids) for batch in sample.batches):
            records = self._records(sample)
            if records and not any(ids[0] in record for record in records):
                key = self._key(file.source, "id_field")
                yield no_such_field(ids, records, of=of, key=key, where=file.url)

    def _records(self, sample: FileSample) -> list[dict[str, Any]]:
        return list(islice(parse_records(sample.lines), _RECORDS))

    # --- groups of counts

    def _group_values(self) -> dict[str, int] | None:
        """Return the number of documents of each value of `counts.group_by`; None if unknown."""
        config = self._config
        keeps = any(source.keep_columns for source in config.input)
        given = config.tokenizer.path is not None or config.counts.path is not None
        if config.counts.group_by is None or given or keeps:
            return None
        section = config.tokenizer.parity
        skipped = None if section is None else section.development
        found: Counter[str] = Counter()
        for sample in self._samples:
            if config.input[sample.file.source].name != skipped or skipped is None:
                for batch in sample.batches:
                    column = (
                        [None] * len(batch) if batch.kept is None else batch.kept[0].to_pylist()
                    )
                    found.update(value or "" for value in column)
        return found

    def _problems_of_groups(self) -> Iterator[PipelineError]:
        """Yield errors for a field that no record has, and values without a share or ratio."""
        values, config = self._group_values(), self._config
        path = config.counts.group_path
        if not values or path is None:
            return
        records = [r for sample in self._samples for r in self._records(sample)]
        if set(values) == {""} and records and not any(path[0] in r for r in records):
            file = self._samples[0].file
            yield no_such_field(
                path, records, of="the input", key="counts.group_by", where=file.url
            )
        for key, by, given in self._named_groups():
            if by != "source" and (problem := check_names(given, {*values, *given}, values)):
                kind = "share" if key == "mixture" else "ratio"
                known = [json.dumps(value, ensure_ascii=False) for value in sorted(values)]
                without = 'Records without the field have the value "".' if "" in values else None
                other = next((name for name in given if name not in values), "")
                yield ConfigError(
                    f"The values of {by} do not fit tokenizer.{key}.",
                    expected=f"a {kind} for each of {shortened(known, _VALUES_SHOWN)}, values in "
                    "samples of the input",
                    found=problem,
                    where=f"tokenizer.{key}",
                    hint=did_you_mean(other, sorted(values.keys() - given.keys())) or without,
                )

    def _warnings_of_groups(self) -> Iterator[str]:
        values = self._group_values()
        for key, by, given in self._named_groups():
            unseen = [name for name, share in given.items() if share and name not in (values or ())]
            if values and by != "source" and unseen:
                near = did_you_mean(unseen[0], sorted(values.keys() - given.keys())) or ""
                yield (
                    f"tokenizer.{key} has {shortened(unseen, _VALUES_SHOWN)}, which no sampled "
                    f"record has in {by}. Training ends with an error if there are none. {near}"
                ).rstrip()

    def _named_groups(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield the section of shares or ratios, what they are of, and those by name."""
        mixture, parity = self._config.tokenizer.mixture, self._config.tokenizer.parity
        if mixture is not None and mixture.shares is not None:
            yield "mixture", mixture.by, mixture.shares
        if parity is not None and parity.ratios is not None:
            yield "parity", parity.by, parity.ratios

    # --- rejects

    def _problems_of_rejects(
        self, sample: FileSample, source: SourceConfig
    ) -> Iterator[PipelineError]:
        """Yield the error for rejects in a sample, if the first one ends the build."""
        file, rejects = sample.file, sample.rejects
        invalid = [reject for reject in rejects if reject.reason == INVALID_UTF8]
        if invalid and source.invalid_utf8 == "error":
            yield _invalid_text(invalid[0], sample, source)
        try:
            rejects = [*rejects, *self._refused(sample)]
        except InputError as error:
            yield error
        if not rejects or self._limit > 0:
            return
        reject = min(rejects, key=lambda reject: reject.offset)
        if reject.reason == MALFORMED_JSON and len(rejects) == sample.documents:
            yield self._not_json_lines(sample, reject)
        hint = None
        if reject.reason == INVALID_UTF8:
            hint = _advise_encoding(sample, self._key(file.source, "invalid_utf8"))
        yield reject_error(
            reject, where=file.url, found=len(rejects), of=sample.documents, hint=hint
        )

    def _refused(self, sample: FileSample) -> list[Reject]:
        """Return the rejects by the policy on special tokens.

        Raises:
            InputError: The policy is `error`, and a document contains one.
        """
        policy = self._config.encode.special_tokens_in_text
        specials = special_set(list(self._specials))
        refused = (refuse_special_tokens(batch, specials, policy) for batch in sample.batches)
        rejects = (reject for batch in refused for reject in batch.rejects)
        return [reject for reject in rejects if reject.reason == SPECIAL_TOKEN]

    def _not_json_lines(self, sample: FileSample, reject: Reject) -> InputError:
        """Return the error for a file of which no line is an object of JSON."""
        text = sample.text_head.lstrip()
        key = self._key(sample.file.source, "format")
        what, hint = "", f"Set {key} to the format of the file."
        if text.startswith(b"["):
            what, hint = ", but an array of JSON", "Write a record per line: jq -c '.[]' OLD > NEW."
        elif text.startswith(b"{"):
            what = ", but JSON with records of several lines"
            hint = "Write a record per line: jq -c . OLD > NEW."
        elif is_page(text):
            what, hint = ", but an HTML page", "Download the file again."
        return InputError(
            f"An input file is not JSON lines{what}.",
            expected=f"an object of JSON in each line ({key}: jsonl)",
            found=describe_reject(reject),
            where=sample.file.url,
            hint=hint,
        )

    # --- warnings

    def warnings(self) -> Iterator[str]:
        """Yield what a user should read before the start."""
        for number, source in enumerate(self._config.input):
            samples = [sample for sample in self._samples if sample.file.source == number]
            yield from self._warnings_of_source(source, samples)
            yield from self._warnings_of_kept_columns(number, source, samples)
        yield from self._warnings_of_groups()
        yield from self._warnings_of_special_tokens()
        yield from self._warnings_of_doubles()

    def _warnings_of_source(
        self, source: SourceConfig, samples: Sequence[FileSample]
    ) -> Iterator[str]:
        name = f" of {source.name}" if source.name else ""
        bad = [sample for sample in samples if sample.fault is not None]
        if bad:
            fault = bad[0].fault
            assert fault is not None
            yield (
                f"{len(bad):,} of {len(samples):,} sampled files{name} cannot be read: "
                f"{bad[0].file.name}: {to_one_line(fault)}"
            )
        documents = sum(sample.documents for sample in samples)
        rejects = [reject for sample in samples for reject in sample.rejects]
        if rejects:
            share = len(rejects) / documents
            above = f", above encode.max_reject_fraction: {self._limit:g}"
            yield (
                f"{len(rejects):,} of {documents:,} sampled documents{name} would be rejected "
                f"({share:.1%}{above if share > self._limit else ''}), such as "
                f"{describe_reject(rejects[0])}"
            )
        selected = documents - sum(sample.not_selected for sample in samples)
        if documents and not selected:
            keys = ", ".join(source.selection)
            yield f"none of {documents:,} sampled documents{name} is selected ({keys})"
        if source.format == "text":
            yield from self._warnings_of_text(source, samples, name)
        named = Counter(
            sample.file.name.rpartition(".")[2].lower()
            for sample in samples
            if _is_named_otherwise(sample.file.name, source.format)
        )
        for extension, number in named.items():
            yield (
                f"{number:,} of {len(samples):,} sampled files{name} are named .{extension}, and "
                f"are read as {source.format}"
            )

    def _warnings_of_kept_columns(
        self, number: int, source: SourceConfig, samples: Sequence[FileSample]
    ) -> Iterator[str]:
        """Yield fields to keep that no sampled record has, or only as null."""
        kept = [batch.kept for sample in samples for batch in sample.batches if batch.kept]
        records = sum(batch.num_rows for batch in kept)
        for text in source.keep_columns:
            name = column_name(text)
            if records and all(batch[name].null_count == batch.num_rows for batch in kept):
                yield (
                    f"none of {records:,} sampled records has a value in the field {text} "
                    f"({self._key(number, 'keep_columns')}): its column may be null throughout"
                )

    def _warnings_of_text(
        self, source: SourceConfig, samples: Sequence[FileSample], name: str
    ) -> Iterator[str]:
        heads = [sample for sample in samples if looks_like_json_lines(sample.text_head)]
        if heads:
            yield (
                f"{heads[0].file.name} looks like JSON lines, and is read as text{name}. If that "
                "is not intended, set input.format: jsonl."
            )
        text = sum(sample.text_bytes for sample in samples)
        documents = sum(sample.documents for sample in samples)
        starts = sum(sample.complete or not sample.stored for sample in samples)
        if source.separator is not None and text >= _LEAST_TEXT and documents <= starts:
            shown = json.dumps(source.separator, ensure_ascii=False)
            yield (
                f"the separator {shown} does not occur in the {text:,} sampled bytes{name}: each "
                "file would be one document. Set input.separator to the text between documents, "
                "or to null for one document per file."
            )

    def _warnings_of_special_tokens(self) -> Iterator[str]:
        if self._config.tokenizer.path is not None:
            return
        text = sum(sample.text_bytes for sample in self._samples)
        for token in self._config.tokenizer.special_tokens:
            found = _count(token, self._samples)
            often = found * _BYTES_BETWEEN_SPECIALS > text > 0 and found > 1
            word = token.replace(" ", "").isalnum()
            if not (often or word):
                continue
            shown = json.dumps(token, ensure_ascii=False)
            looks = ", which looks like a word of the text," if word else ""
            occurs = f"occurs {found:,} times in {text:,} sampled bytes, and " if found else ""
            advice = "Special tokens usually look like <|endoftext|>."
            if not word:
                advice = "If these are ordinary text, choose another special token."
            yield (
                f"the special token {shown}{looks} {occurs}is cut out of the text wherever it "
                f"occurs. {advice}"
            )

    def _warnings_of_doubles(self) -> Iterator[str]:
        seen: dict[str, int] = {}
        for sample in self._samples:
            first = seen.setdefault(sample.file.url, sample.file.source)
            if first != sample.file.source:
                names = [self._config.input[i].name for i in (first, sample.file.source)]
                yield f"{sample.file.url} is read twice, by the sources {names[0]} and {names[1]}"
                return

    def _key(self, source: int, key: str) -> str:
        return f"input[{source}].{key}" if len(self._config.input) > 1 else f"input.{key}"


_FORMATS: Final[Mapping[str, str]] = {
    "text": "text",
    "jsonl": "JSON lines",
    "parquet": "a Parquet file",
    "arrow": "an Arrow IPC file",
}
_PLAIN: Final = "text"
# Extensions that belong to one format.
_EXTENSIONS: Final[Mapping[str, str]] = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
    "txt": "text",
}


def _describe_text(head: bytes) -> Content:
    if is_page(head):
        return Content(name="an HTML page", hint="Download the file again.")
    if looks_like_json_lines(head):
        return Content(name="JSON lines", format="jsonl")
    return Content(name=_PLAIN, format="text")


def _is_named_otherwise(name: str, form: str) -> bool:
    parts = name.lower().split(".")
    if len(parts) > 2 and parts[-1] in COMPRESSION_OF_EXTENSION:
        parts.pop()
    return _EXTENSIONS.get(parts[-1], form) != form


def _invalid_text(reject: Reject, sample: FileSample, source: SourceConfig) -> PipelineError:
    """Return the error for invalid UTF-8 with the policy `error`."""
    place = re.search(r"(the bytes .*) at byte ([\d,]+) of the document", reject.message)
    assert place is not None
    byte = int(place[2].replace(",", "")) if source.format == "text" else 0
    unit = "byte" if source.format == "text" else "document at offset"
    return InvalidDocumentError(
        "A document is not valid UTF-8.",
        found=place[0],
        where=f"{sample.file.url}, {unit} {reject.offset + byte:,}",
        hint="Repair the text, or set input.invalid_utf8 to reject or replace.",
    )


def _has_no_ids(ids: Any) -> bool:
    return ids is None or ids.null_count == len(ids)


def _count(token: str, samples: Sequence[FileSample]) -> int:
    data = token.encode()
    specials = special_set([token])
    found = 0
    for sample in samples:
        for batch in sample.batches:
            first = specials.find_first(batch.data, batch.starts, batch.ends)
            for i in np.flatnonzero(first >= 0):
                found += batch.document(int(i)).count(data)
    return found


def _advise_encoding(sample: FileSample, key: str) -> str:
    """Return the advice for text that is not UTF-8."""
    if (
        all(reject.reason == INVALID_UTF8 for reject in sample.rejects)
        and len(sample.rejects) * 2 > sample.documents - sample.empty
    ):
        return (
            "If the text has another encoding, convert it: iconv -f WINDOWS-1252 -t UTF-8 OLD > "
            f"NEW. Otherwise set {key}: replace."
        )
    return f"Repair the text, or set {key}: replace, which puts U+FFFD for invalid bytes."
