"""Keys of `tokenizer` about groups of counts: mixtures of them, and their equal compression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from pipelines.config.validation import did_you_mean, refusal
from pipelines.config.values import Section, Text
from pipelines.config.yaml_document import KeyPath, Problem, describe_value

_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_KEYS = ("by", "temperature", "shares")


class MixtureConfig(Section):
    """Proportions of groups of counts in training."""

    # The section may contain names of groups besides its keys.
    model_config = ConfigDict(
        json_schema_extra={"additionalProperties": {"type": "number", "minimum": 0}}
    )

    by: Text = Field(
        default="source",
        description="Groups of the mixture: `source`, or the field of `counts.group_by`, whose "
        "values are the names.",
    )
    temperature: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="Instead of shares, an exponent: shares are proportional to bytes^temperature, "
        "from 0 (equal shares) to 1 (those of the corpus).",
    )
    shares: dict[str, _Share] | None = Field(
        default=None,
        description="Share of the bytes of each group, by name; 0 leaves a group out. Only the "
        "proportions matter. Names may also stand in `mixture` itself.",
    )

    @model_validator(mode="before")
    @classmethod
    def _collect_shares(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        named = {name: share for name, share in value.items() if name not in _KEYS}
        if not named:
            return value
        if value.get("shares") is not None:
            raise refusal(
                Problem(
                    (),
                    expected="all names in shares, or all in mixture",
                    found=f"{', '.join(map(str, named))} beside shares",
                    hint="Move them to tokenizer.mixture.shares.",
                )
            )
        others = {key: value[key] for key in _KEYS[:2] if key in value}
        return {**others, "shares": named}

    @model_validator(mode="after")
    def _check(self) -> MixtureConfig:
        if (self.temperature is None) == (self.shares is None):
            raise refusal(
                Problem(
                    (),
                    expected="a share for each name, or a temperature",
                    found="neither" if self.shares is None else "both",
                )
            )
        return self


class ParityConfig(Section):
    """Equal compression of groups of counts."""

    by: Text = Field(
        default="source",
        description="Groups to compress equally: `source`, or the field of `counts.group_by`, "
        "whose values are the names.",
    )
    ratios: dict[str, _Ratio] | None = Field(
        default=None,
        description="Intended compression of each group in bytes a token, by name. Only the "
        "proportions matter. null: equal.",
    )
    development: Text | None = Field(
        default=None,
        description="Name of a source with parallel text, the same in all values of `by`: instead "
        "of by ratios, groups are compared by their numbers of tokens in it. Nothing is learned "
        "from this source.",
    )
    global_merges: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Number of first merges learned from all groups together."
    )
    window_size: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Number of successive merges of which one group may get only `alpha` times its "
        "equal share; null: no limit.",
    )
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=2.0, description="See window_size."
    )


def group_problems(
    section: MixtureConfig | ParityConfig,
    path: KeyPath,
    sources: Sequence[str | None],
    group_by: str | None,
) -> Iterator[Problem]:
    """Yield what is wrong with the groups of a section before anything is counted.

    Args:
        section: Section of the tokenizer.
        path: Path of its key.
        sources: Names of the sources.
        group_by: Value of `counts.group_by`.
    """
    key = path[-1]
    if section.by == "source" and len(sources) < 2:
        yield Problem(
            path,
            expected="several sources, or `by` with the field of counts.group_by",
            found="one source",
            hint="Divide `input` into sources with names, or set counts.group_by to a field of "
            f"the records and {key}.by to the same.",
        )
        return
    if section.by not in ("source", group_by):
        known = ["source", *([] if group_by is None else [group_by])]
        yield Problem(
            (*path, "by"),
            expected=" or ".join(known) + ", by which counts are kept apart",
            found=describe_value(section.by),
            hint=did_you_mean(section.by, known) or f"Set counts.group_by: {section.by}.",
        )
        return
    if section.by != "source":
        return  # values are known when the text is counted
    named = section.shares if isinstance(section, MixtureConfig) else section.ratios
    names = [name for name in sources if name is not None]
    if named is not None:
        yield from _name_problems(named, names, path)


def _name_problems(
    given: Mapping[str, float], names: Sequence[str], path: KeyPath
) -> Iterator[Problem]:
    missing = [name for name in names if name not in given]
    for name in given:
        if name not in names:
            yield Problem(
                (*path, name),
                expected=f"the name of a source: {', '.join(names)}",
                found=describe_value(name),
                hint=did_you_mean(name, missing or names),
            )
    if missing:
        what = "share" if path[-1] == "mixture" else "ratio"
        yield Problem(
            path,
            expected=f"a {what} for each source",
            found=f"none for {', '.join(missing)}",
            hint="The share 0 leaves a source out." if what == "share" else None,
        )
