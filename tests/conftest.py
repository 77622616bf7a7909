"""Texts, vocabularies and a tokenizer that many tests share.

The tests work with examples/data and generated text alone. The larger texts and the published
vocabularies in ../shared/data are used where they are present; tests that need them are skipped
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import zstandard
from hypothesis import settings

from bpe_core import BPETokenizer, train_bpe

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "data"
SHARED = ROOT.parent / "shared" / "data"
SEPARATOR = b"<|endoftext|>"

# An example's time says little where tests share their cores.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The engines begin: their tests take longest, and the others then fill both processes."""
    items.sort(key=lambda item: "engines" not in item.path.parts)


@pytest.fixture(scope="session")
def kjv_shards() -> list[Path]:
    """The files of the example corpus, in order; one is compressed with zstd."""
    return sorted(EXAMPLES.glob("kjv-*.txt*"))


@pytest.fixture(scope="session")
def kjv(kjv_shards: list[Path]) -> bytes:
    """The text of the example corpus: 4 MB, separators in it."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in kjv_shards]
        readers = [
            zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file
            for path, file in zip(kjv_shards, files, strict=True)
        ]
        return b"".join(reader.read() for reader in readers)


@pytest.fixture(scope="session")
def kjv_documents(kjv: bytes) -> list[bytes]:
    """The documents of the example corpus."""
    return [document for document in kjv.split(SEPARATOR) if document]


@pytest.fixture(scope="session")
def kjv_path(kjv: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example corpus as one file."""
    path = tmp_path_factory.mktemp("kjv") / "kjv.txt"
    path.write_bytes(kjv)
    return path


@pytest.fixture(scope="session")
def kjv_tokenizer(kjv_path: Path) -> BPETokenizer:
    """A tokenizer of 2,000 ids, trained on the example corpus."""
    vocab, merges = train_bpe(kjv_path, 2000, [SEPARATOR.decode()])
    return BPETokenizer(vocab, merges, [SEPARATOR.decode()])


@pytest.fixture(scope="session")
def shared_text() -> Callable[..., bytes]:
    """shared_text("prose") or ("multilingual"): that text, or its first `limit` bytes."""

    def read(name: str, limit: int = -1) -> bytes:
        path = SHARED / f"{name}.txt.zst"
        if not path.exists():
            pytest.skip(f"needs {name}.txt.zst in ../shared/data")
        with path.open("rb") as file:
            text = zstandard.ZstdDecompressor().stream_reader(file).read(limit)
        return text if limit < 0 else text[: text.rfind(SEPARATOR)]

    return read


@pytest.fixture(scope="session")
def published_vocabulary() -> Callable[[str], Path]:
    """published_vocabulary("r50k"): the .tiktoken file of that name."""

    def find(name: str) -> Path:
        path = SHARED / "vocab" / f"{name}_base.tiktoken"
        if not path.exists():
            pytest.skip(f"needs {path.name} in ../shared/data/vocab")
        return path

    return find
