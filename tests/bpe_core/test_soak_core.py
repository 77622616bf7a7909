"""The promises of exactness on whole texts: run by `make soak`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from core_support import (
    huggingface_merges,
    minbpe_merges,
    published_tokenizer,
    tiktoken_encoding,
)

from bpe_core import (
    PATTERNS,
    BPETokenizer,
    count_pretokens,
    reference,
    train_bpe,
    train_from_counts,
)

pytestmark = pytest.mark.soak

END = b"<|endoftext|>"
BATCH = 500  # documents


@pytest.fixture(params=["prose", "multilingual"])
def whole_text(request: pytest.FixtureRequest, shared_text: Callable[[str], bytes]) -> bytes:
    return shared_text(request.param)


@pytest.fixture
def prose_path(shared_text: Callable[[str], bytes], tmp_path: Path) -> Path:
    path = tmp_path / "prose.txt"
    path.write_bytes(shared_text("prose"))
    return path


def batches(text: bytes) -> Iterator[list[bytes]]:
    documents = text.split(END)
    for i in range(0, len(documents), BATCH):
        yield documents[i : i + BATCH]


@pytest.mark.parametrize("name", ["r50k", "cl100k", "o200k"])
def test_ids_equal_those_of_tiktoken_document_by_document(
    name: str, whole_text: bytes, published_vocabulary: Callable[[str], Path]
) -> None:
    path = str(published_vocabulary(name))
    ours, peer = published_tokenizer(name, path), tiktoken_encoding(name, path)
    for documents in batches(whole_text):
        ids, offsets = ours.encode_batch_to_numpy(documents)
        texts = [document.decode() for document in documents]
        for i, expected in enumerate(peer.encode_ordinary_batch(texts, num_threads=2)):
            assert np.array_equal(ids[offsets[i] : offsets[i + 1]], expected)
        assert ours.decode_bytes(ids) == b"".join(documents)


@pytest.mark.parametrize("tie_break", ["lexicographic", "first_id", "huggingface"])
def test_2000_merges_equal_the_reference(tie_break: Any, kjv_documents: list[bytes]) -> None:
    counts = count_pretokens(kjv_documents)
    expected = reference.learn_merges(counts.items(), 2256, tie_break=tie_break)
    found = train_from_counts(counts, 2256, tie_break=tie_break)
    assert (found.merges, found.merge_counts) == (expected.merges, expected.counts)


def test_10000_merges_equal_those_of_hugging_face(prose_path: Path) -> None:
    _, merges = train_bpe(prose_path, 10_257, [END.decode()], tie_break="huggingface")
    documents = prose_path.read_bytes().split(END)
    expected = huggingface_merges((document.decode() for document in documents), 10_000)
    assert merges == expected


def test_8000_merges_equal_those_of_rustbpe(prose_path: Path) -> None:
    rustbpe = pytest.importorskip("rustbpe")
    documents = [document.decode() for document in prose_path.read_bytes().split(END)]
    peer = rustbpe.Tokenizer()
    peer.train_from_iterator(iter(documents), 8256, pattern=PATTERNS["gpt2"])
    expected = [bytes(token) for token, _ in peer.get_mergeable_ranks()][256:]
    _, merges = train_bpe(prose_path, 8257, [END.decode()], tie_break="first_id")
    assert [left + right for left, right in merges] == expected


@pytest.mark.parametrize(("pattern", "merges"), [("none", 100), ("cl100k", 40)])
def test_merges_of_4_mb_equal_those_of_minbpe(
    pattern: str, merges: int, kjv: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "kjv.txt"
    path.write_bytes(kjv)
    chunks = reference.split_pretokens(kjv.decode(), pattern)
    expected = minbpe_merges((chunk.encode() for chunk in chunks), merges)
    assert train_bpe(path, 256 + merges, pattern=pattern, tie_break="first_seen")[1] == expected
    # Of a smaller part to the last merge, where nearly all are ties.
    part = kjv[:20_000]
    path.write_bytes(part)
    chunks = reference.split_pretokens(part.decode(), pattern)
    expected = minbpe_merges((chunk.encode() for chunk in chunks), 3000)
    found = train_bpe(path, 256 + len(expected), pattern=pattern, tie_break="first_seen")[1]
    assert found == expected


def test_a_trained_tokenizer_gives_every_text_back(
    whole_text: bytes, prose_path: Path, tmp_path: Path
) -> None:
    """And has the ids of Hugging Face's tokenizers with the exported file, on a part of it."""
    vocab, merges = train_bpe(prose_path, 32_000, [END.decode()])
    ours = BPETokenizer(vocab, merges, [END.decode()])
    whole = ours.encode_to_numpy(whole_text)
    assert ours.decode_bytes(whole) == whole_text
    documents = whole_text.split(END)
    ids, offsets = ours.encode_batch_to_numpy(documents)
    assert np.array_equal(whole[whole != 0], ids)
    ours.save(tmp_path)
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    some = range(0, len(documents), 20)
    texts = [documents[i].decode() for i in some]
    for i, expected in zip(some, peer.encode_batch(texts), strict=True):
        assert ids[offsets[i] : offsets[i + 1]].tolist() == expected.ids


def test_a_text_in_parts_has_the_ids_of_the_whole(
    whole_text: bytes, published_vocabulary: Callable[[str], Path]
) -> None:
    ours = published_tokenizer("o200k", str(published_vocabulary("o200k")))
    text = whole_text.decode()
    rng = np.random.default_rng(1)
    places = np.sort(rng.integers(0, len(text), 20_000)).tolist()
    parts = (text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True))
    found = np.fromiter(ours.encode_iterable(parts), np.uint32)
    assert np.array_equal(found, ours.encode_to_numpy(text))


@pytest.mark.parametrize("pattern", ["gpt2", "o200k"])
def test_threads_and_pieces_of_a_file_change_no_counts(prose_path: Path, pattern: str) -> None:
    documents = prose_path.read_bytes().split(END)
    expected = count_pretokens(documents, pattern=pattern, num_threads=1)
    for num_threads in (1, 2, 4):
        found = count_pretokens(
            prose_path, pattern=pattern, special_tokens=[END.decode()], num_threads=num_threads
        )
        assert found == expected


@pytest.mark.parametrize("vocabulary", ["r50k", "cl100k", "o200k"])
def test_a_tokenizer_in_use_gives_the_ids_of_a_new_one(
    vocabulary: str, shared_text: Callable[..., bytes], published_vocabulary: Callable[[str], Path]
) -> None:
    path = str(published_vocabulary(vocabulary))
    model = published_tokenizer(vocabulary, path).model
    used = BPETokenizer.from_model(model)
    texts = [shared_text(name, 8_000_000) for name in ("multilingual", "prose", "multilingual")]
    for text in texts:
        expected = BPETokenizer.from_model(model).encode_to_numpy(text)
        assert np.array_equal(np.fromiter(used.encode_iterable([text]), np.uint32), expected)
        assert np.array_equal(used.encode_to_numpy(text), expected)
        documents = text.split(END)
        ids, _ = used.encode_batch_to_numpy(documents)
        fresh, _ = BPETokenizer.from_model(model).encode_batch_to_numpy(documents, num_threads=1)
        assert np.array_equal(ids, fresh)
