"""Tokenizers are loaded from outputs, or the error says why not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bpe_core import BPETokenizer, formats, train_from_iterator
from pipelines.errors import OutputError
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import load_model


def test_a_tokenizer_on_a_failing_disk_is_an_error_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BPETokenizer.from_model(train_from_iterator(["the cat"], 258).model).save(tmp_path)
    directory = Directory(url=str(tmp_path))
    assert load_model(directory).max_id == 257

    def failing(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(formats, "load_tokenizer", failing)
    with pytest.raises(OutputError, match="cannot be read") as caught:
        load_model(directory)
    assert caught.value.where == str(tmp_path / "tokenizer.arrow")
