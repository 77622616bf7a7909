"""Builds with finished tokenizers that merge characters, as SentencePiece's BPE does."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from build_support import config_for, with_small_pieces, works_of
from character_support import TEXT, character_json

from bpe_core import BPETokenizer
from pipelines import build
from pipelines.config import BuildConfig
from pipelines.readers.tasks import read_task, source_readings
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import cutting_rules
from pipelines.verification.verify import verify
from pipelines.writing.encoder import DocumentEncoder

DOCUMENTS = [*TEXT.splitlines(), " the <s> earth", "</s>the", "日本語 Ω", "the\n\nearth"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["split", "text"])
def test_rows_have_the_ids_of_their_documents(policy: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(character_json("llama")))
    tokenizer = BPETokenizer.from_huggingface(tmp_path)
    tokenizer.save(tmp_path / "mine")
    (tmp_path / "data").mkdir()
    records = "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS)
    (tmp_path / "data" / "a").write_text(records)
    config = BuildConfig.model_validate(
        {
            "output": str(tmp_path / "out"),
            "input": {"files": [str(tmp_path / "data/*")], "format": "jsonl"},
            "tokenizer": {"path": str(tmp_path / "mine")},
            "encode": {"prepend": "<s>", "append": "</s>", "special_tokens_in_text": policy},
            "beam": {"workers": 1},
        }
    )
    build.build(config)
    output = Directory(url=config.output_path)
    rows = [
        row
        for path in sorted(Path(config.output_path, "tokens").glob("train-*"))
        for row in pq.read_table(path)["input_ids"].to_pylist()
    ]
    first, last = tokenizer.special_tokens["<s>"], tokenizer.special_tokens["</s>"]
    allowed = "all" if policy == "split" else "none"
    assert rows == [
        [first, *tokenizer.encode(text, allowed), last] for text in filter(None, DOCUMENTS)
    ]
    for options in ({"sample": 5}, {"sources": True}):
        found = verify(output, **options)  # type: ignore[arg-type]
        assert not found.problems, str(found)


def test_long_documents_are_encoded_in_parts(tmp_path: Path) -> None:
    text = TEXT.replace("\n", " ") * 20 + " </s> the" + "日本 の " * 50
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text(text)
    config = config_for(tmp_path, input={"separator": None, "range_bytes": 1 << 20})
    for steps in ("llama", "first", "never-split"):
        (tmp_path / "tokenizer.json").write_text(json.dumps(character_json(steps)))
        tokenizer = BPETokenizer.from_huggingface(tmp_path)
        readings = source_readings(config.input, **cutting_rules(tokenizer.model))
        assert pickle.loads(pickle.dumps(readings))[0].options.cut
        small = with_small_pieces(readings, piece_bytes=100, read_bytes=64)
        encoder = DocumentEncoder(
            tokenizer, prepend="<s>", append=None, special_tokens_in_text="split"
        )
        (work,) = works_of(config)
        batches = list(read_task(work, pickle.loads(pickle.dumps(small))))
        assert len(batches) > 20
        ids = np.concatenate([encoder.encode(batch).ids for batch in batches])
        assert ids[1:].tolist() == tokenizer.encode(text)


@pytest.mark.slow
def test_a_build_trains_such_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text(TEXT)
    config = BuildConfig.model_validate(
        {
            "output": str(tmp_path / "out"),
            "input": {"files": [str(tmp_path / "data/*")], "separator": "\n"},
            "tokenizer": {"unit": "character", "metaspace": True, "vocab_size": 400},
            "counts": {"shards": 2},
            "beam": {"workers": 1},
        }
    )
    build.build(config)
    output = Path(config.output_path)
    tokenizer = BPETokenizer.load(output / "tokenizer")
    assert tokenizer.model.characters is not None
    assert BPETokenizer.from_sentencepiece(output / "tokenizer" / "tokenizer.model").encode(
        TEXT
    ) == tokenizer.encode(TEXT)
    (file,) = (output / "tokens").glob("train-*")
    end = tokenizer.special_tokens["<|endoftext|>"]
    assert pq.read_table(file)["input_ids"].to_pylist() == [
        [*tokenizer.encode(line), end] for line in TEXT.split("\n") if line
    ]
    found = verify(Directory(url=config.output_path), sources=True)
    assert not found.problems, str(found)
