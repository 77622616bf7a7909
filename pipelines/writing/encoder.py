"""Batches of documents to rows of token ids."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Literal

import numpy as np

from bpe_core import BPETokenizer
from bpe_core.errors import SpecialTokenError, UnknownCharacterError
from bpe_core.special_tokens import special_set
from pipelines.batches import DocumentBatch
from pipelines.errors import DifferentConfigurationError, InputError
from pipelines.readers.tasks import refuse_special_tokens
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Model, Tokenizer, load_model, tokenizer_of
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.writing.jobs import EncodeJob
from pipelines.writing.rows import TokenRows


class DocumentEncoder:
    """Encodes batches by the rules of a build, with a tokenizer that threads may share.

    Args:
        tokenizer: what encodes.
        prepend, append: special tokens put around each document, or None.
        special_tokens_in_text: "split", "text", "reject" or "error".
        dtype: of the ids.
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
        self._specials = special_set(list(special_tokens))
        self._allowed: Literal["all", "none"] = (
            "all" if special_tokens_in_text == "split" else "none"
        )
        self._prepend = _affix(special_tokens, "prepend", prepend)
        self._append = _affix(special_tokens, "append", append)

    @classmethod
    def of_job(cls, job: EncodeJob) -> DocumentEncoder:
        """The encoder of a build."""
        return cls(
            load_tokenizer(job.tokenizer, job.tokenizer_fingerprint),
            prepend=job.prepend,
            append=job.append,
            special_tokens_in_text=job.special_tokens_in_text,
            dtype=np.uint16 if job.id_type == "uint16" else np.uint32,
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids that it gives."""
        tokenizer = self._tokenizer
        return Vocabulary(tokenizer.model if isinstance(tokenizer, BPETokenizer) else tokenizer)

    def refuse(self, batch: DocumentBatch) -> DocumentBatch:
        """The batch without the documents that the policy on special tokens rejects."""
        return refuse_special_tokens(batch, self._specials, self._policy)

    def encode(self, batch: DocumentBatch) -> TokenRows:
        """The ids of a batch's documents.

        Raises:
            InputError: a character has no id, and the tokenizer has no token for the unknown.
        """
        try:
            ids, offsets = self._tokenizer.encode_documents(
                batch.data,
                batch.starts,
                batch.ends,
                allowed_special=self._allowed,
                prepend=self._prepend if batch.part == 0 else (),
                append=self._append if batch.last else (),
                dtype=self._dtype,
            )
        except UnknownCharacterError as error:
            raise InputError(
                "A document has a character that is not in the vocabulary.",
                expected="characters of the alphabet (tokenizer.unk_token: null)",
                found=error.found,
                where=batch.where(error.document),
                hint="Set tokenizer.unk_token, leave tokenizer.limit_alphabet and "
                "tokenizer.min_count as they are by default, or mend the text.",
            ) from None
        return TokenRows(
            ids=ids,
            offsets=offsets,
            num_bytes=batch.num_bytes,
            places=batch.offsets,
            hashes=batch.hashes,
            source=batch.source,
            part=batch.part,
            record_ids=batch.ids,
        )


def _affix(special_tokens: Mapping[str, int], key: str, token: str | None) -> list[int]:
    if token is None:
        return []
    if token not in special_tokens:
        raise SpecialTokenError(
            f"{key}: expected a special token of the tokenizer "
            f"({', '.join(map(repr, special_tokens)) or 'it has none'}), found {token!r}"
        )
    return [special_tokens[token]]


def load_tokenizer(directory: Directory, fingerprint: str) -> Tokenizer:
    """The tokenizer of a build, once a process.

    Raises:
        DifferentConfigurationError: another tokenizer is there than the fingerprint says.
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
    """Has the workers of this process take the tokenizer from here, and no other from before."""
    _LOADED.clear()
    _LOADED[directory.url, model.fingerprint] = tokenizer_of(model)


_LOADING = threading.Lock()
_LOADED: dict[tuple[str, str], Tokenizer] = {}
