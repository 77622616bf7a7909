"""Texts, vocabularies and a tokenizer that many tests share.

The tests work with examples/data and generated text alone. The larger texts and the published
vocabularies in ../shared/data are used where they are present; tests that need them are skipped
elsewhere.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, nullcontext
from pathlib import Path

import limits
import pytest
import zstandard

from bpe_core import BPETokenizer, train_bpe

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "data"
SHARED = ROOT.parent / "shared" / "data"
SEPARATOR = b"<|endoftext|>"

FULL = os.environ.get("TESTS") == "nightly"
# Under the sanitizers (tests/sanitize.sh) tests take several times as long.
SANITIZED = "ASAN_OPTIONS" in os.environ

limits.watch_processes()
# Collecting garbage takes half of the time in which modules are imported and tests collected.
gc.disable()

# Tests of progress choose a display; the others are only disturbed by it.
os.environ.setdefault("BEAM_BPE_PROGRESS", "none")

# In memory, where there is such a place: on a disk each fsync takes milliseconds.
if not FULL and os.access("/dev/shm", os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what tests of engines do, and let slow tests begin, so that none comes last."""
    for item in items:
        if item.get_closest_marker("engines") or item.get_closest_marker("smoke"):
            for marker in ("beam", "process", "slow"):
                item.add_marker(marker)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect garbage of tests alone, and in xdist's controller, which collects no tests."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    limits.forget_started()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    exempt = FULL or SANITIZED or item.get_closest_marker("soak") is not None
    with nullcontext() if exempt else limits.limited(item):
        return (yield)


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
