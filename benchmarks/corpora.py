"""The texts and vocabularies of the benchmarks.

English and multilingual text come from ../shared/data if it exists; otherwise the corpus in
examples/data replaces the English text. Source code is the corpus that fetch_code.py makes; the
text of 64 MB consists of documents spread evenly over it. Without this corpus, the Python files of
this machine replace it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard
from fetch_code import CODE_CORPUS, SEPARATOR, corpus, python_sources

if TYPE_CHECKING:
    from bpe_core import BPETokenizer

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
MADE = ROOT / "out" / "benchmarks"  # generated and unpacked texts

CODE_BYTES = 64_000_000
QUICK_BYTES = 8_000_000
VOCAB_SIZE = 32_000  # of trained tokenizers
QUICK_VOCAB_SIZE = 8_000
PATTERNS = {"r50k": "gpt2", "cl100k": "cl100k", "o200k": "o200k"}
SPECIAL_IDS = {"r50k": 50256, "cl100k": 100257, "o200k": 199999}  # ids of SEPARATOR
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class Text:
    """A file of documents separated by SEPARATOR."""

    name: str
    path: str
    bytes: int


@dataclass(frozen=True)
class Vocabulary:
    """A .tiktoken file of ranks."""

    name: str
    path: str
    pattern: str

    def load(self) -> BPETokenizer:
        """Load a new tokenizer of ours; SEPARATOR is a special token if the vocabulary has it."""
        from bpe_core import BPETokenizer

        special_id = SPECIAL_IDS.get(self.name)
        specials = None if special_id is None else {SEPARATOR.decode(): special_id}
        return BPETokenizer.from_tiktoken(self.path, pattern=self.pattern, special_tokens=specials)

    @property
    def saved(self) -> Path:
        """The directory that `save` writes to."""
        return MADE / f"{self.name}-saved"

    def save(self) -> None:
        """Write the vocabulary in all formats."""
        self.load().save(self.saved)


def texts(*, quick: bool) -> list[Text]:
    """Return English, multilingual text and code, or little English text if `quick`.

    Missing texts are generated.
    """
    MADE.mkdir(parents=True, exist_ok=True)
    made = []
    for name in ("prose", "multilingual"):
        packed = SHARED / f"{name}.txt.zst"
        if packed.is_file():
            data = zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read()
            made.append(_written(name, data))
    if not made:
        made.append(_written("kjv", example_text(ROOT / "examples" / "data")))
    if quick:
        return [part_of(made[0], QUICK_BYTES)]
    return [*made, _code()]


def _code() -> Text:
    if CODE_CORPUS.is_file():
        return _written("code", spread(documents(CODE_CORPUS), _size(CODE_CORPUS), CODE_BYTES))
    return _written("code", b"".join(corpus(python_sources(), CODE_BYTES)))


def large(texts: Sequence[Text]) -> Text:
    """Return the corpus of code if it exists, else all texts joined."""
    if CODE_CORPUS.is_file():
        return Text("code, 1 GB", str(CODE_CORPUS), _size(CODE_CORPUS))
    if len(texts) == 1:
        return texts[0]
    return _written("all", b"".join(_ended(Path(text.path).read_bytes()) for text in texts))


def part_of(text: Text, limit: int) -> Text:
    """Return at most `limit` bytes of documents spread evenly over a text."""
    if text.bytes <= limit:
        return text
    size = f"{limit // 1_000_000} MB"
    return _written(f"{text.name}, {size}", spread(documents(text.path), text.bytes, limit))


def documents(path: str | Path) -> Iterator[bytes]:
    """Yield the documents of a file that are not empty, with a few MB of it in memory."""
    rest = b""
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            *whole, rest = (rest + block).split(SEPARATOR)
            yield from filter(None, whole)
    if rest:
        yield rest


def spread(documents: Iterable[bytes], size: int, limit: int) -> bytes:
    """Return every n-th document, each followed by SEPARATOR, in at most `limit` bytes.

    Args:
        documents: all documents in order.
        size: size of all documents, including separators.
        limit: maximum size of the result. n is the smallest number with `size` / n <= `limit`.
    """
    every = -(-size // limit)
    parts: list[bytes] = []
    room = limit
    for index, document in enumerate(documents):
        if index % every == 0:
            room -= len(document) + len(SEPARATOR)
            if room < 0:
                break
            parts += [document, SEPARATOR]
    return b"".join(parts)


def _size(path: Path) -> int:
    return path.stat().st_size


def _ended(data: bytes) -> bytes:
    return data if data.endswith(SEPARATOR) else data + SEPARATOR


def _written(name: str, data: bytes) -> Text:
    path = MADE / f"{name.replace(', ', '-').replace(' ', '').lower()}.txt"
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)
    return Text(name, str(path), len(data))


def example_text(directory: Path) -> bytes:
    """Return the shards of the example corpus, concatenated."""
    parts = []
    for path in sorted(directory.glob("*.txt*")):
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        parts.append(data)
    return b"".join(parts)


def vocabularies(text: Text) -> list[Vocabulary]:
    """Return the published vocabularies that exist, else one of 8,192 ids trained on the text."""
    published = [
        Vocabulary(name, str(path), pattern)
        for name, pattern in PATTERNS.items()
        if (path := SHARED / "vocab" / f"{name}_base.tiktoken").is_file()
    ]
    return published or [_trained(text)]


@functools.cache
def _trained(text: Text) -> Vocabulary:
    from bpe_core import count_pretokens, train_from_counts

    directory = MADE / "trained-8k"
    train_from_counts(count_pretokens(Path(text.path)), 8192).tokenizer().save(directory)
    return Vocabulary("trained-8k", str(directory / "tokenizer.tiktoken"), "gpt2")


def as_json(value: Text | Vocabulary) -> dict[str, str | int]:
    return asdict(value)
