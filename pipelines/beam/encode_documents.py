"""The DoFn that encodes documents into token rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines.batches import DocumentBatch
from pipelines.beam.elements import DocumentFn, element_options
from pipelines.beam.metrics import beam_meter
from pipelines.config.values import UINT16_IDS
from pipelines.errors import InputError
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Model, cutting_rules, load_model, make_tokenizer
from pipelines.writing.encoder import DocumentEncoder


class EncodeBatches(DocumentFn):
    """DoFn that encodes documents and yields token rows and rejects.

    Args:
        tokenizer: Directory of the tokenizer.
        prepend, append, special_tokens_in_text: See `DocumentEncoder`.
        text_field, id_field, invalid_utf8: See `ElementRules`.
    """

    consumer = "the tokenizer of EncodeDocuments"

    def __init__(
        self,
        tokenizer: Directory,
        *,
        prepend: str | None,
        append: str | None,
        special_tokens_in_text: str,
        text_field: str,
        id_field: str | None,
        invalid_utf8: str,
    ) -> None:
        super().__init__(text_field, id_field)
        self._directory = tokenizer
        self._prepend = prepend
        self._append = append
        self._policy = special_tokens_in_text
        self._invalid_utf8 = invalid_utf8

    def setup(self) -> None:
        """Load the tokenizer."""
        super().setup()
        model = self._load_model()
        self._encoder = DocumentEncoder(
            make_tokenizer(model),
            prepend=self._prepend,
            append=self._append,
            special_tokens_in_text=self._policy,
            dtype=np.uint16 if model.max_id < UINT16_IDS else np.uint32,
        )
        self.options = element_options(**cutting_rules(model), invalid_utf8=self._invalid_utf8)

    def process_documents(self, batch: DocumentBatch) -> Iterator[Any]:
        """Encode a batch. Yield its rejects and its rows."""
        meter = beam_meter()
        with meter.time("encode"):
            kept = self._encoder.refuse(batch)
        meter.add_batch(kept)
        for reject in kept.rejects:
            yield beam.pvalue.TaggedOutput("rejects", reject)
        if not len(kept):
            return
        with meter.time("encode"):
            rows = self._encoder.encode(kept)
        meter.add(tokens=len(rows.ids))
        meter.report_times()
        yield rows

    def _load_model(self) -> Model:
        try:
            return load_model(self._directory)
        except FileNotFoundError:
            raise InputError(
                "There is no tokenizer.",
                expected="a directory written by a build or by a tokenizer's `save`",
                found="no tokenizer.arrow and no char_bpe.json",
                where=self._directory.url,
                hint="Correct `tokenizer`. A build writes it to the directory "
                "`tokenizer` of its output. All workers must be able to read it.",
            ) from None
