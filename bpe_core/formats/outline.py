"""The pattern and the largest id of a tokenizer, without reading its vocabulary and merges."""

from __future__ import annotations

from dataclasses import dataclass

from bpe_core._native import find_outline
from bpe_core.formats.characters import merges_characters
from bpe_core.formats.detection import TokenizerFile
from bpe_core.formats.files import malformed, parse_json_object, quoted, read_bytes
from bpe_core.formats.json_values import list_of, object_of
from bpe_core.formats.pre_tokenizer import splitting_of
from bpe_core.formats.reading import read_tokenizer

__all__ = ["Outline", "read_outline"]


@dataclass(frozen=True)
class Outline:
    """The parts of a tokenizer by which a build is planned.

    Attributes:
        pattern: Name or regular expression of the split pattern; None if the tokenizer merges
            characters, which has none.
        max_id: The largest id.
    """

    pattern: str | None
    max_id: int


def read_outline(file: TokenizerFile) -> Outline:
    """Read the outline of a tokenizer. Of a tokenizer.json the large parts are skipped.

    Raises:
        FormatError: The file is damaged, has another format, or splits text in a way that is not
            supported.
        OSError: The file cannot be read.
    """
    found = None
    if file.format == "huggingface":
        data = read_bytes(file.location)
        found = find_outline(data)
    if found is None:
        model = read_tokenizer(file)
        return Outline(model.pattern if model.characters is None else None, model.max_id)
    vocab, merges, largest = found
    (first, empty), (second, other) = sorted([(vocab, b"{}"), (merges, b"[]")])
    parts = [data[: first[0]], empty, data[first[1] : second[0]], other, data[second[1] :]]
    root = parse_json_object(file.location, b"".join(parts))
    for i, entry in enumerate(
        list_of(file.location, "added_tokens", root.get("added_tokens") or [])
    ):
        where = f"added_tokens[{i}]"
        token_id = object_of(file.location, where, entry).get("id")
        if type(token_id) is not int:
            raise malformed(file.location, f"{where}.id", "an id", quoted(token_id))
        largest = max(largest, token_id)
    if merges_characters(root):
        return Outline(None, largest)
    return Outline(splitting_of(file.location, root.get("pre_tokenizer")).pattern, largest)
