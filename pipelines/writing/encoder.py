"""Encoding of document batches into rows of token ids."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final, Literal

import numpy as np

from bpe_core import BPETokenizer
from bpe_core.errors import SlowPatternError, SpecialTokenError, UnknownCharacterError
from bpe_core.special_tokens import special_set
from pipelines.batches import DocumentBatch
from pipelines.errors import DifferentConfigurationError, InputError, slow_pattern_error
from pipelines.readers.tasks import refuse_special_tokens
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import (
    Model,
    Tokenizer,
    load_model,
    make_tokenizer,
    specials_in_text,
)
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.writing.jobs import EncodeJob
from pipelines.writing.rows import TokenRows

# Loaded tokenizers of this process, by the URL of the directory and the fingerprint.
_LOADED: Final[dict[tuple[str, str], Tokenizer]] = {}
_LOADING: Final = threading.Lock()


class DocumentEncoder:
    """Encoder of batches by the rules of a build, with a tokenizer that threads may share.

    Args:
        tokenizer: The tokenizer.
        prepend, append: Special tokens put around each document, or None.
        special_tokens_in_text: "split", "text", "reject" or "error".
        dtype: Type of the ids.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        prepend: str | None,
        append: str | None,
        special_tokens_in_text: str,
        dtype: type[np.uint16] | type[np.uint32] = np.uint32,
    ) -> None:
        self._tokenizer = tokenizer
        self._policy = special_tokens_in_text
        self._dtype = dtype
        special_tokens = tokenizer.special_tokens
        self._specials = special_set(list(specials_in_text(self._model)))
        self._allowed: Literal["all", "none"] = (
            "all" if special_tokens_in_text == "split" else "none"
        )
        self._prepend = _affix_ids(special_tokens, "prepend", prepend)
        self._append = _affix_ids(special_tokens, "append", append)

    @classmethod
    def of_job(cls, job: EncodeJob) -> DocumentEncoder:
        """Return the encoder of a build."""
        return cls(
            load_tokenizer(job.tokenizer, job.tokenizer_fingerprint),
            prepend=job.prepend,
            append=job.append,
            special_tokens_in_text=job.special_tokens_in_text,
            dtype=np.uint16 if job.id_type == "uint16" else np.uint32,
        )

    @property
    def _model(self) -> Model:
        tokenizer = self._tokenizer
        return tokenizer.model if isinstance(tokenizer, BPETokenizer) else tokenizer

    @property
    def vocabulary(self) -> Vocabulary:
        """Return the ids that encoding can produce."""
        return Vocabulary(self._model)

    def refuse(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch without the documents that the policy on special tokens rejects."""
        return refuse_special_tokens(batch, self._specials, self._policy)

    def encode(self, batch: DocumentBatch) -> TokenRows:
        """Encode the documents of a batch.

        Raises:
            InputError: A character has no id, and the tokenizer has no unknown token; or the
                split pattern backtracks too long.
        """
        # What a character-level tokenizer does at the beginning of a text, it does at every word.
        later = {"continues": batch.part > 0} if isinstance(self._tokenizer, BPETokenizer) else {}
        try:
            ids, offsets = self._tokenizer.encode_documents(
                batch.data,
                batch.starts,
                batch.ends,
                allowed_special=self._allowed,
                prepend=self._prepend if batch.part == 0 else (),
                append=self._append if batch.last else (),
                dtype=self._dtype,
                **later,
            )
        except SlowPatternError as error:
            raise slow_pattern_error(error, batch.where(error.document)) from None
        except UnknownCharacterError as error:
            raise InputError(
                "A document contains a character that is not in the vocabulary.",
                expected="characters of the alphabet (tokenizer.unk_token: null)",
                found=error.found,
                where=batch.where(error.document),
                hint="Set tokenizer.unk_token, leave tokenizer.limit_alphabet and "
                "tokenizer.min_count at their defaults, or fix the text.",
            ) from None
        return TokenRows.of_batch(batch, ids, offsets)


def load_tokenizer(directory: Directory, fingerprint: str) -> Tokenizer:
    """Return the tokenizer of a build, which is loaded once per process.

    Raises:
        DifferentConfigurationError: The directory contains a tokenizer with another fingerprint.
    """
    with _LOADING:
        if (directory.url, fingerprint) not in _LOADED:
            model = load_model(directory)
            if model.fingerprint != fingerprint:
                raise DifferentConfigurationError(
                    "The tokenizer has changed since the build was planned.",
                    expected=f"fingerprint {fingerprint}",
                    found=model.fingerprint,
                    where=directory.url,
                    hint="Run the command again.",
                )
            keep_tokenizer(directory, model)
        return _LOADED[directory.url, fingerprint]


def keep_tokenizer(directory: Directory, model: Model) -> None:
    """Store the tokenizer of this process for later calls of `load_tokenizer`."""
    _LOADED.clear()
    _LOADED[directory.url, model.fingerprint] = make_tokenizer(model)


def _affix_ids(special_tokens: Mapping[str, int], key: str, token: str | None) -> list[int]:
    if token is None:
        return []
    if token not in special_tokens:
        raise SpecialTokenError(
            f"{key}: expected a special token of the tokenizer "
            f"({', '.join(map(repr, special_tokens)) or 'it has none'}), found {token!r}"
        )
    return [special_tokens[token]]
