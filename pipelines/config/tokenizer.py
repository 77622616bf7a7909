"""The section `tokenizer`: what is trained, or what there is to encode with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from bpe_core.errors import InvalidPatternError
from pipelines.config.validation import refusal
from pipelines.config.values import (
    BYTE_KEYS,
    BYTE_TOKENS,
    CHARACTER_KEYS,
    LARGEST_VOCABULARY,
    PATTERN_NAMES,
    Section,
    Text,
    TieBreak,
    check_no_white_space,
    check_pattern,
    check_special_tokens,
    check_tie_break,
)
from pipelines.config.yaml_document import Problem, describe_value


class RulesConfig(Section):
    """What must not come together in one token."""

    split_categories: bool = Field(
        default=False,
        description="Letters, numbers and other characters are never in one token; a space in "
        "front stays. Not for the pattern `none` and custom ones.",
    )
    max_digits: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Most digits of a number in one token, in groups from the left; null: as many "
        "as the pattern has. Not for the pattern `none` and custom ones.",
    )
    forbid_whitespace_tokens: bool = Field(
        default=False,
        description="Merges must not make tokens of white space and control characters alone.",
    )


class TokenizerConfig(Section):
    """The tokenizer: how to train it, or where to find a finished one (`path`)."""

    path: Text | None = Field(
        default=None,
        description="Directory or URL of a finished tokenizer to encode with: one that has "
        "tokenizer.arrow or char_bpe.json. Nothing is trained then, and no other key of this "
        "section may be given.",
    )
    unit: Literal["byte", "character"] = Field(
        default="byte",
        description="The smallest tokens: the 256 bytes, or the characters of the corpus, whose "
        "words stand between white space (white space itself is not encoded).",
    )
    pattern: Annotated[Text, BeforeValidator(check_pattern, json_schema_input_type=Text)] = Field(
        default="gpt2",
        description="How text is split into pre-tokens: "
        + ", ".join(PATTERN_NAMES)
        + ", or a regex.",
    )
    special_tokens: Annotated[
        tuple[Text, ...], Strict(False), AfterValidator(check_special_tokens)
    ] = Field(
        default=("<|endoftext|>",),
        description="Special tokens. They get the first ids, in this order, and are cut out of "
        "the training text.",
    )
    normalizer: Literal["none", "nfc", "nfkc"] = Field(
        default="none",
        description="Unicode normalization form (of Unicode 16.0) of the text between special "
        "tokens, in counting and in encoding.",
    )
    normalize_quotes: bool = Field(
        default=False, description="Whether typographic quotes become ' and \" after that."
    )
    rules: RulesConfig = Field(
        default_factory=RulesConfig, description="What must not come together in one token."
    )
    unk_token: Annotated[Text, AfterValidator(check_no_white_space)] | None = Field(
        default="<unk>",
        description="With unit: character, the token of characters that have none; null: such a "
        "character is an error.",
    )
    end_of_word: Annotated[Text, AfterValidator(check_no_white_space)] | None = Field(
        default="</w>",
        description="With unit: character, what marks the end of each word in tokens; null: "
        "nothing does, and decoding puts words together without a space.",
    )
    end_of_word_as: Literal["symbol", "suffix"] = Field(
        default="symbol",
        description="With unit: character, whether the end of a word is a token of its own, or "
        "belongs to the word's last character.",
    )
    limit_alphabet: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="With unit: character, the number of characters that have tokens, the most "
        "frequent ones; null: all.",
    )
    vocab_size: Annotated[int, Field(ge=1, le=LARGEST_VOCABULARY)] = Field(
        default=32000,
        description="Number of ids: special tokens, 256 bytes (or the token for the unknown, the "
        "alphabet and the end of a word), and merges.",
    )
    tie_break: Annotated[
        TieBreak,
        BeforeValidator(check_tie_break, json_schema_input_type=TieBreak),
    ] = Field(
        default="lexicographic",
        description="Which of equally frequent pairs is merged first: the greatest bytes, the "
        "smallest ids, or as Hugging Face tokenizers does.",
    )
    min_frequency: Annotated[int, Field(ge=1)] = Field(
        default=1, description="Occurrences of a pair: training stops below it."
    )
    min_count: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Occurrences of a pre-token: rarer ones are dropped before training.",
    )
    max_token_bytes: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Length of the longest token that merges may make, in bytes."
    )
    forbidden_tokens: Annotated[tuple[Text, ...], Strict(False)] = Field(
        default=(), description="Tokens that merges must not make."
    )
    train_where: Literal["launcher", "worker"] = Field(
        default="launcher",
        description="Where merges are learned: in the command, or as one step of a pipeline on a "
        "worker, which needs the memory for it. The tokenizer is the same.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is not None:
            return self._check_nothing_is_trained()
        problems = [*self._unit_problems(), *self._vocab_size_problems(), *self._rules_problems()]
        if problems:
            raise refusal(*problems)
        return self

    @property
    def effective_pattern(self) -> str:
        """The pattern by which text is counted: `pattern` with its rules, or white-space words."""
        from bpe_core.patterns import WHITESPACE_WORDS, pattern_with_rules  # slow to import

        if self.unit == "character":
            return WHITESPACE_WORDS
        return pattern_with_rules(
            self.pattern,
            split_categories=self.rules.split_categories,
            max_digits=self.rules.max_digits,
        )

    @property
    def normalization_form(self) -> str | None:
        """The normalizer as `bpe_core` has it."""
        return None if self.normalizer == "none" else self.normalizer

    def _vocab_size_problems(self) -> Iterator[Problem]:
        specials = len(self.special_tokens)
        if self.unit == "byte":
            smallest, what = BYTE_TOKENS + specials, f"256 bytes and {specials} special tokens"
        else:
            others = {self.unk_token, self.end_of_word} - {None, *self.special_tokens}
            smallest = specials + len(others) + 1
            what = f"{specials} special tokens, {len(others)} for the unknown and for ends of "
            what += "words, and an alphabet"
        if self.vocab_size < smallest:
            yield Problem(
                ("vocab_size",),
                expected=f"at least {smallest}: {what}",
                found=str(self.vocab_size),
            )

    def _unit_problems(self) -> Iterator[Problem]:
        other, keys = ("character", CHARACTER_KEYS) if self.unit == "byte" else ("byte", BYTE_KEYS)
        for key in keys:
            if key in self.model_fields_set:
                yield Problem(
                    (key,),
                    expected=f"tokenizer.unit: {other} for this key",
                    found=f"unit: {self.unit}" + ("" if self.unit == "character" else ", or none"),
                    hint=f"Remove {key}, or set tokenizer.unit: {other}.",
                )
        if self.unit == "byte":
            return
        if self.end_of_word is None and "end_of_word_as" in self.model_fields_set:
            yield Problem(
                ("end_of_word_as",),
                expected="an end_of_word that it says something of",
                found="end_of_word: null",
                hint="Remove end_of_word_as, or set end_of_word.",
            )
        if self.end_of_word in {self.unk_token, *self.special_tokens} - {None}:
            yield Problem(
                ("end_of_word",),
                expected="another text than unk_token and the special tokens",
                found=describe_value(self.end_of_word),
            )

    def _rules_problems(self) -> Iterator[Problem]:
        for key in ("split_categories", "max_digits"):
            if self.unit == "character" or not getattr(self.rules, key):
                continue
            try:
                _ = self.effective_pattern
            except InvalidPatternError as error:
                yield Problem(
                    ("rules", key),
                    expected="one of the named patterns that split",
                    found=f"pattern: {describe_value(self.pattern)}",
                    hint=f"{error}.",
                )

    def _check_nothing_is_trained(self) -> Self:
        problems = [
            Problem(
                (key,),
                expected="tokenizer.path alone: the finished tokenizer decides everything else",
                found=f"both path and {key}",
                hint=f"Remove {key}, or remove path to train a tokenizer.",
            )
            for key in type(self).model_fields
            if key in self.model_fields_set - {"path"}
        ]
        if problems:
            raise refusal(*problems)
        return self
