"""The post_processor of tokenizer.json: the special tokens around a text.

A `TemplateProcessing` puts special tokens around one text (`single`), or around two (`pair`). A
tokenizer has the ids of the former (`prepend`, `append`); other templates for one text are refused.
The template for two texts determines no ids here, so any is accepted, with any types; the writer
derives it from `single`, with each text's own tokens, of type 0 and of type 1. `RobertaProcessing`
and `BertProcessing` put one token before and one after a text. `ByteLevel` as a post-processor
moves offsets, not ids, and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bpe_core.formats.files import Location, malformed, quoted
from bpe_core.formats.json_values import list_of, object_of, steps_of
from bpe_core.model import TokenizerModel

Around = tuple[tuple[int, ...], tuple[int, ...]]
# Of RobertaProcessing and BertProcessing: before and after a text.
_PAIR_KEYS = ("cls", "sep")


def post_processor_of(model: TokenizerModel, texts: Mapping[int, str]) -> dict[str, object] | None:
    """Return the post_processor that adds the tokenizer's `prepend` and `append`, or None.

    Args:
        model: The tokenizer.
        texts: Texts of these ids.
    """
    if not model.prepend and not model.append:
        return None
    before, after = ([texts[i] for i in ids] for ids in (model.prepend, model.append))
    used = sorted({*model.prepend, *model.append})
    return {
        "type": "TemplateProcessing",
        "single": _template(before, after, "A", 0),
        "pair": _template(before, after, "A", 0) + _template(before, after, "B", 1),
        "special_tokens": {
            texts[i]: {"id": texts[i], "ids": [i], "tokens": [texts[i]]} for i in used
        },
    }


def around_of(location: Location, post_processor: Any, special_ids: set[int]) -> Around:
    """Return the ids that a post_processor puts before and after a text.

    Raises:
        FormatError: It does something else, or adds ids that are not special tokens.
    """
    if post_processor is None:
        return (), ()
    steps = steps_of(location, "post_processor", post_processor, "processors")
    templates = [step for step in steps if step.get("type") != "ByteLevel"]
    types = [step.get("type") for step in templates]
    if not templates:
        return (), ()
    if types == ["TemplateProcessing"]:
        return _around(location, templates[0], special_ids)
    if types in (["RobertaProcessing"], ["BertProcessing"]):
        before, after = (_pair_id(location, templates[0], key, special_ids) for key in _PAIR_KEYS)
        return (before,), (after,)
    raise malformed(
        location,
        "post_processor",
        "ByteLevel and one TemplateProcessing, RobertaProcessing or BertProcessing",
        quoted(types),
    )


def _template(
    before: Sequence[str], after: Sequence[str], sequence: str, type_id: int
) -> list[dict[str, dict[str, object]]]:
    def token(text: str) -> dict[str, dict[str, object]]:
        return {"SpecialToken": {"id": text, "type_id": type_id}}

    middle: dict[str, dict[str, object]] = {"Sequence": {"id": sequence, "type_id": type_id}}
    return [*map(token, before), middle, *map(token, after)]


def _around(location: Location, template: dict[str, Any], special_ids: set[int]) -> Around:
    single = list_of(location, "post_processor.single", template.get("single"))
    middle = [
        i for i, piece in enumerate(single) if isinstance(piece, dict) and "Sequence" in piece
    ]
    at = middle[0] if len(middle) == 1 else 0
    before, after = _names(location, single[:at]), _names(location, single[at + 1 :])
    expected = _template(before, after, "A", 0)
    if list(map(_without_type, single)) != expected:
        raise malformed(
            location,
            "post_processor.single",
            f"special tokens around one text, as in {quoted(expected)}",
            quoted(single),
        )
    _check_pieces(location, template.get("pair"))
    tokens = object_of(
        location, "post_processor.special_tokens", template.get("special_tokens", {})
    )

    def ids_of(names: list[str]) -> tuple[int, ...]:
        return tuple(i for name in names for i in _ids(location, name, tokens, special_ids))

    return ids_of(before), ids_of(after)


def _without_type(piece: Any) -> Any:
    """Return the piece of a template with type 0."""
    if not isinstance(piece, dict):
        return piece
    return {
        kind: {**value, "type_id": 0}
        if isinstance(value, dict) and type(value.get("type_id")) is int
        else value
        for kind, value in piece.items()
    }


def _pair_id(location: Location, processor: dict[str, Any], key: str, special_ids: set[int]) -> int:
    """Return the id in a pair of text and id."""
    found = list_of(location, f"post_processor.{key}", processor.get(key))
    token_id = found[1] if len(found) == 2 else None
    if type(token_id) is not int or token_id not in special_ids:
        raise malformed(
            location, f"post_processor.{key}", "an added token with its id", quoted(found)
        )
    return token_id


def _check_pieces(location: Location, pair: Any) -> None:
    for piece in list_of(location, "post_processor.pair", pair):
        kinds = [*piece.items()] if isinstance(piece, dict) else []
        known = len(kinds) == 1 and kinds[0][0] in ("SpecialToken", "Sequence")
        value = kinds[0][1] if known else None
        if not isinstance(value, dict) or not isinstance(value.get("id"), str):
            raise malformed(
                location, "post_processor.pair", "special tokens and texts", quoted(piece)
            )


def _names(location: Location, pieces: list[Any]) -> list[str]:
    names = []
    for piece in pieces:
        token = piece.get("SpecialToken") if isinstance(piece, dict) else None
        name = token.get("id") if isinstance(token, dict) else None
        if not isinstance(name, str):
            raise malformed(
                location, "post_processor.single", "special tokens and one text", quoted(piece)
            )
        names.append(name)
    return names


def _ids(location: Location, name: str, tokens: dict[str, Any], special_ids: set[int]) -> list[int]:
    where = f"post_processor.special_tokens[{name!r}]"
    ids = list_of(location, f"{where}.ids", object_of(location, where, tokens.get(name)).get("ids"))
    for token_id in ids:
        if type(token_id) is not int or token_id not in special_ids:
            raise malformed(location, f"{where}.ids", "ids of added tokens", quoted(token_id))
    return ids
