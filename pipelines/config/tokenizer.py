"""Section `tokenizer`: the tokenizer to train, or a finished one to encode with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, Strict, model_validator

from bpe_core.errors import InvalidPatternError
from pipelines.config.mixture import MixtureConfig, ParityConfig
from pipelines.config.validation import refusal
from pipelines.config.values import (
    BYTE_KEYS,
    BYTE_TOKENS,
    CHARACTER_KEYS,
    METASPACE_KEYS,
    PATTERN_NAMES,
    WORD_KEYS,
    Number,
    Section,
    Size,
    Text,
    TieBreak,
    VocabularySizes,
    check_no_white_space,
    check_pattern,
    check_special_tokens,
    check_tie_break,
)
from pipelines.config.yaml_document import Problem, describe_value

if TYPE_CHECKING:
    from bpe_core.model import TokenizerModel


class RulesConfig(Section):
    """Limits on the text that one token may combine."""

    split_categories: bool = Field(
        default=False,
        description="Never combine letters, numbers and other characters in one token; a leading "
        "space stays. Not available with the pattern `none` or a custom pattern.",
    )
    max_digits: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Maximum number of digits in one token; numbers are grouped from the left. "
        "null: the limit of the pattern. Not available with the pattern `none` or a custom "
        "pattern.",
    )
    forbid_whitespace_tokens: bool = Field(
        default=False,
        description="Do not learn merges that make tokens of only whitespace and control "
        "characters.",
    )


class SuperwordsConfig(Section):
    """A second round of training, on runs of words, that makes tokens of several words."""

    max_words: Annotated[int, Field(ge=2, le=64)] = Field(
        default=4, description="Maximum number of words and signs in one token."
    )
    vocab_size_before: Number | None = Field(
        default=None,
        description="Number of ids after the first round, of the `vocab_size` ids in all. null: "
        "four fifths of vocab_size.",
    )


class TokenizerConfig(Section):
    """The tokenizer: rules of its training, or the location of a finished one (`path`)."""

    path: Text | None = Field(
        default=None,
        description="Finished tokenizer to encode with: a path, URL or `hf://ORG/NAME[@REVISION]` "
        "of a directory or file in any format that is read (docs/pretrained.md). Nothing is "
        "trained, and no other key of this section may be set.",
    )
    base: Text | None = Field(
        default=None,
        description="Tokenizer to extend: a byte-level one, trained or published, in any place and "
        "format that `path` can name. Its ids and merges stay, and training adds tokens up to "
        "`vocab_size`. Text is split and normalized as by it; `special_tokens` are added to its "
        "own (docs/choosing-a-tokenizer.md).",
    )
    unit: Literal["byte", "character"] = Field(
        default="byte",
        description="Smallest tokens: the 256 bytes (byte), or the characters of the corpus "
        "(character). With characters, text is split into words at whitespace, which is not "
        "encoded, unless `metaspace` is set.",
    )
    metaspace: bool = Field(
        default=False,
        description="With unit: character, encode whitespace too, as SentencePiece does: spaces "
        "are characters of tokens, which files write as the sign \u2581. Text is split by "
        "`pattern` to learn merges, but not to encode.",
    )
    byte_fallback: bool = Field(
        default=True,
        description="With metaspace, encode characters that have no token of their own as the "
        "tokens of their bytes; false: as unk_token.",
    )
    character_coverage: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="With metaspace, the share of all characters of the text that get tokens, most "
        "frequent first.",
    )
    pattern: Annotated[Text, BeforeValidator(check_pattern, json_schema_input_type=Text)] = Field(
        default="gpt2",
        description="Pattern that splits text into pre-tokens: "
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
        description="Unicode normalization form (Unicode 16.0) to apply to the text between "
        "special tokens, in counting and in encoding.",
    )
    normalize_quotes: bool = Field(
        default=False,
        description="Replace typographic quotes with ' and \", after the normalizer.",
    )
    rules: RulesConfig = Field(
        default_factory=RulesConfig,
        description="Limits on the text that one token may combine.",
    )
    unk_token: Annotated[Text, AfterValidator(check_no_white_space)] | None = Field(
        default="<unk>",
        description="With unit: character, the token for characters that have no token of their "
        "own; null: such a character is an error.",
    )
    end_of_word: Annotated[Text, AfterValidator(check_no_white_space)] | None = Field(
        default="</w>",
        description="With unit: character, the marker for the end of each word in tokens; null: "
        "no marker, and decoding joins words without a space.",
    )
    end_of_word_as: Literal["symbol", "suffix"] = Field(
        default="symbol",
        description="With unit: character, the form of the end-of-word marker: a token of its own "
        "(symbol), or attached to the last character of the word (suffix).",
    )
    limit_alphabet: Number | None = Field(
        default=None,
        description="With unit: character, the number of characters that get tokens, most "
        "frequent first; null: all.",
    )
    vocab_size: VocabularySizes = Field(
        default=32000,
        description="Number of ids: special tokens, 256 bytes (or the unknown token, the "
        "end-of-word marker and the alphabet), and merges. A list: one training writes a tokenizer "
        "of each size, the largest to `tokenizer/`, the others to `tokenizer/sizes/SIZE/`.",
    )
    tie_break: Annotated[
        TieBreak,
        BeforeValidator(check_tie_break, json_schema_input_type=TieBreak),
    ] = Field(
        default="lexicographic",
        description="Pair to merge first among equally frequent ones: the greatest bytes "
        "(lexicographic), the smallest ids (first_id), or the one that Hugging Face tokenizers "
        "merges (huggingface).",
    )
    min_frequency: Annotated[int, Field(ge=1)] = Field(
        default=1, description="Minimum number of occurrences of a pair; training stops below it."
    )
    min_count: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Minimum number of occurrences of a pre-token; rarer ones are dropped before "
        "training.",
    )
    min_documents: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Minimum number of documents with a pre-token; others are dropped before "
        "training. Above 1 it needs `counts.document_frequency: true`.",
    )
    min_sources: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Minimum number of sources with a pre-token; others are dropped before "
        "training.",
    )
    mixture: MixtureConfig | None = Field(
        default=None,
        description="Proportions of the sources, or of other groups of counts, in training: "
        "`{web: 0.5, code: 0.3, de: 0.2}` (shares of bytes), `{temperature: 0.7}` or "
        "`{by: lang, shares: {…}}` (docs/mixtures.md); null: those of the corpus.",
    )
    parity: ParityConfig | None = Field(
        default=None,
        description="Learn merges that compress all sources, or other groups of counts, equally "
        "well (docs/mixtures.md); null: learn from the sum of all.",
    )
    max_token_bytes: Size | None = Field(
        default=None, description="Maximum length of a token that merges may make, in bytes."
    )
    forbidden_tokens: Annotated[tuple[Text, ...], Strict(False)] = Field(
        default=(), description="Tokens that merges must not make."
    )
    superwords: SuperwordsConfig | None = Field(
        default=None,
        description="Learn tokens of several words, too, from a second count of the corpus "
        "(docs/superwords.md); null: none.",
    )
    required_tokens: Annotated[tuple[Text, ...], Strict(False)] = Field(
        default=(),
        description="Texts that must be tokens. Merges that make them follow the learned ones, of "
        "which there are so many fewer. With unit: byte.",
    )
    train_where: Literal["launcher", "worker"] = Field(
        default="launcher",
        description="Process that learns the merges: the launcher (the beam-bpe command itself), "
        "or a worker, as one step of a pipeline; the worker needs enough memory. The tokenizer is "
        "the same.",
    )

    _base_model: TokenizerModel | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is not None:
            return self._check_nothing_is_trained()
        problems = [
            *self._unit_problems(),
            *self._vocab_size_problems(),
            *self._rules_problems(),
            *self._superwords_problems(),
            *self._base_problems(),
            *(self.required_problems() if self.base is None else ()),
            *self._parity_problems(),
        ]
        if problems:
            raise refusal(*problems)
        return self

    @property
    def base_model(self) -> TokenizerModel | None:
        """Return the tokenizer to extend, once `extending` has set it."""
        return self._base_model

    def extending(self, base: TokenizerModel) -> Self:
        """Return the configuration with a tokenizer that `base` names, and with its settings.

        Special tokens that the configuration sets are added to those of the tokenizer.
        """
        added = self.special_tokens if "special_tokens" in self.model_fields_set else ()
        settings = {
            "pattern": base.pattern,
            "rules": self.rules.model_copy(update={"split_categories": False, "max_digits": None}),
            "normalizer": base.normalizer or "none",
            "normalize_quotes": base.normalize_quotes,
            "special_tokens": tuple(dict.fromkeys([*base.special_tokens, *added])),
        }
        extended = self.model_copy(update=settings)
        extended._base_model = base
        return extended

    @property
    def vocab_sizes(self) -> tuple[int, ...]:
        """Return the sizes of the tokenizers to train, ascending."""
        return self.vocab_size if isinstance(self.vocab_size, tuple) else (self.vocab_size,)

    @property
    def largest_vocab_size(self) -> int:
        """Return the size of the largest tokenizer to train."""
        return self.vocab_sizes[-1]

    def with_vocab_size(self, size: int) -> Self:
        """Return the configuration for one tokenizer of a size."""
        return self.model_copy(update={"vocab_size": size})

    @property
    def first_round(self) -> Self:
        """Return the configuration of the first round of training, without superwords."""
        assert self.superwords is not None
        least = BYTE_TOKENS + len(self.special_tokens)
        size = self.superwords.vocab_size_before or max(least, self.largest_vocab_size * 4 // 5)
        return self.model_copy(update={"vocab_size": size, "superwords": None})

    @property
    def effective_pattern(self) -> str:
        """Return the pattern for counting: `pattern` with its rules, or whitespace words."""
        from bpe_core.patterns import WHITESPACE_WORDS, pattern_with_rules  # slow to import

        if self.unit == "character" and not self.metaspace:
            return WHITESPACE_WORDS
        return pattern_with_rules(
            self.pattern,
            split_categories=self.rules.split_categories,
            max_digits=self.rules.max_digits,
        )

    @property
    def normalization_form(self) -> str | None:
        """Return the normalizer in the form that `bpe_core` expects."""
        return None if self.normalizer == "none" else self.normalizer

    def _vocab_size_problems(self) -> Iterator[Problem]:
        specials = len(self.special_tokens)
        if self.unit == "byte":
            smallest, what = BYTE_TOKENS + specials, f"256 bytes and {specials} special tokens"
        elif self.metaspace:
            num_bytes = BYTE_TOKENS * self.byte_fallback
            others = {self.unk_token} - {None, *self.special_tokens}
            smallest = specials + len(others) + num_bytes + 1
            what = f"{specials} special tokens, {len(others)} for unknown characters, {num_bytes} "
            what += "bytes, and an alphabet"
        else:
            others = {self.unk_token, self.end_of_word} - {None, *self.special_tokens}
            smallest = specials + len(others) + 1
            what = f"{specials} special tokens, {len(others)} for unknown characters and "
            what += "word ends, and an alphabet"
        if self.vocab_sizes[0] < smallest:
            yield Problem(
                ("vocab_size",),
                expected=f"at least {smallest}: {what}",
                found=str(self.vocab_sizes[0]),
            )

    def _unit_problems(self) -> Iterator[Problem]:
        other, keys = ("character", CHARACTER_KEYS) if self.unit == "byte" else ("byte", BYTE_KEYS)
        for key in () if self.unit == "character" and self.metaspace else keys:
            if key in self.model_fields_set:
                yield Problem(
                    (key,),
                    expected=f"tokenizer.unit: {other} for this key",
                    found=f"unit: {self.unit}" + ("" if self.unit == "character" else ", or none"),
                    hint=f"Remove {key}, or set tokenizer.unit: {other}.",
                )
        if self.unit == "byte":
            return
        yield from self._metaspace_problems()
        if self.end_of_word is None and "end_of_word_as" in self.model_fields_set:
            yield Problem(
                ("end_of_word_as",),
                expected="end_of_word to be set, too",
                found="end_of_word: null",
                hint="Remove end_of_word_as, or set end_of_word.",
            )
        if self.metaspace:
            return
        if self.end_of_word in {self.unk_token, *self.special_tokens} - {None}:
            yield Problem(
                ("end_of_word",),
                expected="a text different from unk_token and the special tokens",
                found=describe_value(self.end_of_word),
            )

    def _metaspace_problems(self) -> Iterator[Problem]:
        for key in WORD_KEYS if self.metaspace else METASPACE_KEYS:
            if key in self.model_fields_set:
                wanted = str(not self.metaspace).lower()
                yield Problem(
                    (key,),
                    expected=f"tokenizer.metaspace: {wanted} for this key",
                    found=f"metaspace: {str(self.metaspace).lower()}",
                    hint=f"Remove {key}, or set tokenizer.metaspace: {wanted}.",
                )
        if self.metaspace and self.unk_token is None:
            yield Problem(
                ("unk_token",),
                expected="a token, which tokenizers with metaspace have",
                found="null",
            )
        if self.metaspace and self.rules.forbid_whitespace_tokens:
            yield Problem(
                ("rules", "forbid_whitespace_tokens"),
                expected="false with metaspace",
                found="true",
            )

    def required_problems(self) -> Iterator[Problem]:
        """Yield the required tokens that no text is encoded as, or that another key excludes."""
        if not self.required_tokens:
            return
        from bpe_core.required_tokens import why_never_encoded  # slow to import

        if self.unit != "byte":
            yield Problem(
                ("required_tokens",), expected="unit: byte for this key", found=f"unit: {self.unit}"
            )
            return
        try:
            pattern = self.effective_pattern
        except InvalidPatternError:
            return  # another problem
        longest = self.max_token_bytes
        for number, text in enumerate(self.required_tokens):
            found = why_never_encoded(text, pattern, self.normalization_form, self.normalize_quotes)
            if found is None and text in self.forbidden_tokens:
                found = "forbidden_tokens contains it"
            if found is None and longest is not None and len(text.encode()) > longest:
                found = f"it has {len(text.encode())} bytes, more than max_token_bytes"
            special = next((one for one in self.special_tokens if one in text), None)
            if found is None and special is not None:
                found = f"text is cut at the special token {special}"
            if found is not None:
                yield Problem(
                    ("required_tokens", number),
                    expected="a text that can be encoded as one token",
                    found=f"{describe_value(text)}: {found}",
                    hint="Remove it, or change the other key.",
                )

    def _base_problems(self) -> Iterator[Problem]:
        if self.base is None:
            return
        for key, wanted in (("unit", "byte"), ("train_where", "launcher")):
            if (found := getattr(self, key)) != wanted:
                yield Problem(
                    (key,),
                    expected=f"{wanted} with tokenizer.base",
                    found=found,
                    hint=f"Remove {key}, or remove base.",
                )

    def _rules_problems(self) -> Iterator[Problem]:
        for key in ("split_categories", "max_digits"):
            is_of_words = self.unit == "character" and not self.metaspace
            if is_of_words or not getattr(self.rules, key):
                continue
            try:
                _ = self.effective_pattern
            except InvalidPatternError as error:
                yield Problem(
                    ("rules", key),
                    expected="a named pattern that splits text",
                    found=f"pattern: {describe_value(self.pattern)}",
                    hint=f"{error}.",
                )

    def _superwords_problems(self) -> Iterator[Problem]:
        if self.superwords is None:
            return
        if self.unit == "character":
            yield Problem(
                ("superwords",),
                expected="tokenizer.unit: byte for this key",
                found=f"unit: {self.unit}",
                hint="Remove superwords, or set tokenizer.unit: byte.",
            )
            return
        if isinstance(self.vocab_size, tuple):
            yield Problem(
                ("vocab_size",),
                expected="one number with superwords: each size has a first round and counts of "
                "its own",
                found="several numbers",
                hint="Build each size in an output of its own, with counts.path for all of them.",
            )
            return
        if self.train_where == "worker":
            yield Problem(
                ("train_where",),
                expected="launcher with superwords: the text is counted again between two rounds",
                found=self.train_where,
            )
        if self.base is not None:
            yield Problem(
                ("base",),
                expected="null with superwords: merges of a base may reach across the words that "
                "they join, and change what it encodes",
                found=describe_value(self.base),
            )
        if self.parity is not None:
            yield Problem(
                ("parity",),
                expected="null with superwords: pieces are counted for all groups together",
                found="parity",
            )
        before = self.superwords.vocab_size_before
        least = BYTE_TOKENS + len(self.special_tokens)
        if before is not None and not least <= before <= self.vocab_size:
            yield Problem(
                ("superwords", "vocab_size_before"),
                expected=f"{least:,} (256 bytes and the special tokens) to vocab_size, "
                f"{self.vocab_size:,}",
                found=f"{before:,}",
            )
        from bpe_core.patterns import superword_pattern  # slow to import

        try:
            superword_pattern(self.effective_pattern)
        except InvalidPatternError as error:
            yield Problem(
                ("superwords",),
                expected="a named pattern that splits text into words",
                found=f"pattern: {describe_value(self.pattern)}",
                hint=f"{error}.",
            )

    def _parity_problems(self) -> Iterator[Problem]:
        if self.parity is None:
            return
        if self.mixture is not None:
            yield Problem(
                ("parity",),
                expected="parity or mixture: parity decides by itself how much each group counts",
                found="both",
                hint="Remove one of them.",
            )
        if self.base is not None:
            yield Problem(
                ("parity",),
                expected="parity or base: training for parity starts from bytes",
                found="both",
                hint="Remove one of them.",
            )
        if self.unit != "byte":
            yield Problem(
                ("parity",), expected="tokenizer.unit: byte for this key", found="unit: character"
            )
        if self.parity.development is not None and self.parity.ratios is not None:
            yield Problem(("parity", "development"), expected="ratios or development", found="both")

    def _check_nothing_is_trained(self) -> Self:
        problems = [
            Problem(
                (key,),
                expected="tokenizer.path alone: the finished tokenizer determines everything else",
                found=f"both path and {key}",
                hint=f"Remove {key}, or remove path to train a tokenizer.",
            )
            for key in type(self).model_fields
            if key in self.model_fields_set - {"path"}
        ]
        if problems:
            raise refusal(*problems)
        return self
