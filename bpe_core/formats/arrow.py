"""tokenizer.arrow: an Arrow IPC file that contains all parts of a tokenizer.

Columns: id uint32, bytes binary, left uint32, right uint32 (null if no merge made the token),
special bool, count int64 (how often the merge's pair occurred; null if unknown). A merge was
applied as often as its pair occurred, except for pairs of two equal tokens, whose occurrences
overlap: the metadata `applied_counts` have the numbers of those that differ, by rank. Rows: special
tokens by id, then tokens that no merge makes by id, then merges in order of rank. A merge whose
result already exists is a separate row with the same id and bytes.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.buffers import from_arrow, to_arrow, to_binary
from bpe_core.characters import CharacterRules
from bpe_core.formats.files import (
    Location,
    built,
    dump_json,
    malformed,
    quoted,
    read_bytes,
    write_file,
)
from bpe_core.model import TokenizerModel

Item = TypeVar("Item", int, str)

_FORMAT = "bpe-beam tokenizer"
# Version 2 is version 1 with `characters`, so that older releases do not read it as bytes.
_VERSION, _VERSION_OF_CHARACTERS = "1", "2"
_FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.uint32(), nullable=False),
    pa.field("bytes", pa.binary(), nullable=False),
    pa.field("left", pa.uint32()),
    pa.field("right", pa.uint32()),
    pa.field("special", pa.bool_(), nullable=False),
    pa.field("count", pa.int64()),
]
_SCHEMA = pa.schema(_FIELDS)
_TEXTS = ("tie_break", "stop_reason", "counts_fingerprint", "normalizer", "bos_token", "eos_token")


def write_arrow(model: TokenizerModel, location: Location) -> None:
    """Write tokenizer.arrow. The same model gives the same bytes with the same pyarrow."""
    write_file(location, arrow_bytes(model))


def arrow_bytes(model: TokenizerModel) -> bytes:
    """Return the contents of tokenizer.arrow."""
    specials = list(model.special_tokens.items())
    plain = ~np.isin(model.token_ids, model.merges[:, 2])
    unmerged = len(specials) + int(plain.sum())
    counts = model.merge_counts
    no_counts = pa.nulls(len(model.merges), pa.int64())
    merge_counts = no_counts if counts is None else to_arrow(counts)
    ids = np.concatenate([[i for _, i in specials], model.token_ids[plain], model.merges[:, 2]])
    tokens = [
        to_binary([text.encode() for text, _ in specials]),
        model.token_bytes.filter(to_arrow(plain)),
        model.bytes_of(model.merges[:, 2]),
    ]
    no_parts = pa.nulls(unmerged, pa.uint32())
    left, right = (to_arrow(model.merges[:, i].astype(np.uint32)) for i in (0, 1))
    columns: list[pa.Array[Any]] = [
        to_arrow(ids.astype(np.uint32)),
        pa.concat_arrays(tokens),
        _joined(no_parts, left),
        _joined(no_parts, right),
        to_arrow(np.arange(len(ids)) < len(specials)),
        _joined(pa.nulls(unmerged, pa.int64()), merge_counts),
    ]
    metadata: dict[str | bytes, str | bytes] = {
        "format": _FORMAT,
        "format_version": _VERSION if model.characters is None else _VERSION_OF_CHARACTERS,
        "fingerprint": model.fingerprint,
        "pattern": model.pattern,
        "ignore_merges": json.dumps(model.ignore_merges),
        **{name: value for name in _TEXTS if (value := getattr(model, name)) is not None},
        **({"normalize_quotes": "true"} if model.normalize_quotes else {}),
        **dict.fromkeys(model.space_rules, "true"),
        **({} if model.unknown_id is None else {"unknown_id": str(model.unknown_id)}),
        **({"token_flags": _dump_flags(model)} if model.token_flags else {}),
        **{name: json.dumps(values) for name, values in _lists_of(model).items() if values},
    }
    if model.applied_counts is not None and model.has_overlapping_merges:
        metadata["applied_counts"] = json.dumps(_overlaps_of(model))
    if model.characters is not None:
        metadata["characters"] = json.dumps(model.characters.to_json())
    if model.training_options is not None:
        metadata["training_options"] = dump_json(dict(model.training_options))
    schema = _SCHEMA.with_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue())


def read_arrow(location: Location) -> TokenizerModel:
    """Read tokenizer.arrow.

    Raises:
        FormatError: The file is not a tokenizer.arrow, or its rows contradict each other or its
            fingerprint.
        OSError: The file cannot be opened.
    """
    table = _read_table(location)
    metadata = {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in table.schema.metadata.items()
    }
    model = built(location, lambda: _model_of(table, metadata, location))
    if metadata.get("fingerprint") != model.fingerprint:
        raise malformed(
            location,
            "metadata 'fingerprint'",
            f"{model.fingerprint}, that of the rows",
            quoted(metadata.get("fingerprint")),
        )
    return model


def _read_table(location: Location) -> pa.Table:
    data = read_bytes(location)
    try:
        table = pa.ipc.open_file(data).read_all()
        table.validate(full=True)  # a malformed file must not cause reads beyond its buffers
        table = table.combine_chunks()
        found = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # names that are not UTF-8
        raise malformed(location, "", "an Arrow IPC file", str(error)) from None
    if not table.schema.equals(_SCHEMA):
        names = ", ".join(f"{field.name}: {field.type}" for field in _SCHEMA)
        raise malformed(location, "columns", names, found or "none")
    metadata = table.schema.metadata or {}
    version = metadata.get(b"format"), metadata.get(b"format_version")
    expected = _VERSION_OF_CHARACTERS if b"characters" in metadata else _VERSION
    if version != (_FORMAT.encode(), expected.encode()):
        raise malformed(location, "metadata", f"{_FORMAT!r}, version {expected}", quoted(version))
    for name in ("id", "bytes", "special"):
        if table[name].null_count:
            raise malformed(location, f"column {name!r}", "no nulls", str(table[name].null_count))
    return table


def _model_of(table: pa.Table, metadata: dict[str, str], location: Location) -> TokenizerModel:
    ordinary = table.filter(pc.invert(table["special"])).combine_chunks()
    merges = ordinary.filter(ordinary["left"].is_valid())
    if merges["right"].null_count or ordinary["right"].null_count != ordinary["left"].null_count:
        raise malformed(location, "columns 'left' and 'right'", "both or neither", "one alone")
    ids, first, inverse = np.unique(_column(ordinary, "id"), return_index=True, return_inverse=True)
    all_bytes = _binary(ordinary)
    token_bytes = all_bytes.take(to_arrow(first))
    if len(ids) < len(all_bytes):
        same = pc.equal(token_bytes.take(to_arrow(inverse)), all_bytes)
        if not pc.all(same).as_py():
            at = same.index(False).as_py()
            raise malformed(
                location,
                f"id {ordinary['id'][at]}",
                f"the bytes of its first row, {quoted(token_bytes[inverse[at]].as_py())}",
                quoted(all_bytes[at].as_py()),
            )
    counts = merges["count"]
    if 0 < counts.null_count < len(counts):
        raise malformed(
            location,
            "column 'count'",
            "a count for every merge or none",
            f"{counts.null_count} nulls",
        )
    return TokenizerModel(
        token_ids=ids,
        token_bytes=token_bytes,
        merges=np.stack([_column(merges, name) for name in ("left", "right", "id")], axis=1),
        special_tokens=_specials_of(table.filter(table["special"]), location),
        pattern=_text(metadata, "pattern", location),
        ignore_merges=_text(metadata, "ignore_merges", location) == "true",
        merge_counts=_column(merges, "count") if len(counts) > counts.null_count else None,
        applied_counts=_applied_counts(merges, metadata, location),
        tie_break=metadata.get("tie_break"),
        stop_reason=metadata.get("stop_reason"),
        counts_fingerprint=metadata.get("counts_fingerprint"),
        training_options=_object(metadata, "training_options", location),
        normalizer=metadata.get("normalizer"),
        normalize_quotes=metadata.get("normalize_quotes") == "true",
        prepend=tuple(_list(metadata, "prepend", int, location)),
        append=tuple(_list(metadata, "append", int, location)),
        nonspecial_tokens=frozenset(_list(metadata, "nonspecial_tokens", str, location)),
        token_flags=_token_flags(metadata, location),
        unknown_id=_unknown_id(metadata, location),
        characters=_characters(metadata, location),
        bos_token=metadata.get("bos_token"),
        eos_token=metadata.get("eos_token"),
        prefix_space=metadata.get("prefix_space") == "true",
        drop_white_space=metadata.get("drop_white_space") == "true",
    )


def _overlaps_of(model: TokenizerModel) -> dict[str, int]:
    """Return the applied count of each merge, by rank, if it is not the count of the pair."""
    assert model.applied_counts is not None
    counts = np.zeros(len(model.merges)) if model.merge_counts is None else model.merge_counts
    ranks = np.flatnonzero(model.applied_counts != counts)
    return {str(rank): int(model.applied_counts[rank]) for rank in ranks.tolist()}


def _applied_counts(
    merges: pa.Table, metadata: dict[str, str], location: Location
) -> NDArray[np.int64] | None:
    """Return the applied counts that `_overlaps_of` describes; None if they are not in the file."""
    overlaps = _object(metadata, "applied_counts", location)
    if overlaps is None:
        return None
    counts = merges["count"]
    applied = np.zeros(len(counts), np.int64) if counts.null_count else _column(merges, "count")
    for rank, count in overlaps.items():
        is_rank = rank.isascii() and rank.isdigit() and len(rank) <= 10 and int(rank) < len(applied)
        if not is_rank or type(count) is not int or not 0 <= count < 2**63:
            raise malformed(
                location,
                "metadata 'applied_counts'",
                f"counts by rank, below {len(applied)}",
                quoted(f"{rank}: {count}"),
            )
        applied[int(rank)] = count
    return applied


def _column(table: pa.Table, name: str) -> NDArray[np.int64]:
    values: np.ndarray[tuple[int], np.dtype[np.int64]] = from_arrow(
        _only_chunk(table[name])
    ).astype(np.int64)
    return values


def _only_chunk(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)


def _binary(table: pa.Table) -> pa.BinaryArray:
    column = table["bytes"].combine_chunks()
    return cast("pa.BinaryArray", column)


def _joined(first: pa.Array[Any], second: pa.Array[Any]) -> pa.Array[Any]:
    return pa.concat_arrays([first, second])


def _specials_of(rows: pa.Table, location: Location) -> dict[str, int]:
    specials: dict[str, int] = {}
    ids = cast("list[int]", rows["id"].to_pylist())
    tokens = cast("list[bytes]", rows["bytes"].to_pylist())
    for token_id, token in zip(ids, tokens, strict=True):
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise malformed(location, f"special token {token_id}", "UTF-8", quoted(token)) from None
        if text in specials:
            raise malformed(location, f"special token {token_id}", "each text once", quoted(text))
        specials[text] = token_id
    return specials


def _lists_of(model: TokenizerModel) -> dict[str, list[int] | list[str]]:
    """Return the metadata that are JSON lists and not empty."""
    return {
        "prepend": list(model.prepend),
        "append": list(model.append),
        "nonspecial_tokens": sorted(model.nonspecial_tokens),
    }


def _list(metadata: dict[str, str], key: str, kind: type[Item], location: Location) -> list[Item]:
    text = metadata.get(key, "[]")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or any(type(value) is not kind for value in values):
        raise malformed(
            location, f"metadata {key!r}", f"a JSON list of {kind.__name__}", quoted(text)
        )
    return values


def _dump_flags(model: TokenizerModel) -> str:
    """The flags of special tokens as JSON."""
    return json.dumps({text: sorted(flags) for text, flags in model.token_flags.items()})


def _token_flags(metadata: dict[str, str], location: Location) -> dict[str, frozenset[str]]:
    text = metadata.get("token_flags", "{}")
    try:
        flags = json.loads(text)
        return {token: frozenset(map(str, names)) for token, names in flags.items()}
    except (ValueError, RecursionError, AttributeError, TypeError):
        raise malformed(
            location, "metadata 'token_flags'", "a JSON object of lists", quoted(text)
        ) from None


def _unknown_id(metadata: dict[str, str], location: Location) -> int | None:
    text = metadata.get("unknown_id")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise malformed(location, "metadata 'unknown_id'", "an id", quoted(text))
    return int(text)


def _characters(metadata: dict[str, str], location: Location) -> CharacterRules | None:
    found = _object(metadata, "characters", location)
    return None if found is None else CharacterRules.from_json(found)


def _text(metadata: dict[str, str], key: str, location: Location) -> str:
    if key not in metadata:
        raise malformed(location, "metadata", f"the key {key!r}", quoted(list(metadata)))
    return metadata[key]


def _object(metadata: dict[str, str], key: str, location: Location) -> dict[str, Any] | None:
    """Return the JSON object of a key, or None if the key is missing."""
    text = metadata.get(key)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise malformed(location, f"metadata {key!r}", "a JSON object", quoted(text))
    return value
