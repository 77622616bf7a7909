"""The texts and vocabularies that the benchmarks use.

English and multilingual text come from ../shared/data when that is there. Source code is made from
this machine: the standard library and the installed packages. Without shared data the corpus of
examples/data stands in for English.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import zstandard

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
MADE = ROOT / "out" / "benchmarks"  # where texts are unpacked and made

SEPARATOR = b"<|endoftext|>"
CODE_BYTES = 64_000_000
QUICK_BYTES = 8_000_000
VOCAB_SIZE = 32_000  # that is trained
QUICK_VOCAB_SIZE = 8_000
PATTERNS = {"r50k": "gpt2", "cl100k": "cl100k", "o200k": "o200k"}


@dataclass(frozen=True)
class Text:
    """A file of documents with SEPARATOR between them."""

    name: str
    path: str
    bytes: int

    def read(self) -> bytes:
        return Path(self.path).read_bytes()


@dataclass(frozen=True)
class Vocabulary:
    """A .tiktoken file of ranks."""

    name: str
    path: str
    pattern: str


def texts(*, quick: bool) -> list[Text]:
    """Every text there is, each at most QUICK_BYTES if `quick`; made when it is not there yet."""
    MADE.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in ("prose", "multilingual"):
        packed = SHARED / f"{name}.txt.zst"
        if packed.is_file():
            found[name] = zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read()
    if not found:
        found["kjv"] = example_text(ROOT / "examples" / "data")
    paths = sysconfig.get_paths()
    found["code"] = source_text([Path(paths["stdlib"]), Path(paths["purelib"])], CODE_BYTES)
    return [
        _written(name, beginning(data, QUICK_BYTES) if quick else data, quick)
        for name, data in found.items()
    ]


def joined(texts: Sequence[Text], *, quick: bool) -> Text:
    """All texts as one."""
    if len(texts) == 1:
        return texts[0]
    return _written("all", b"".join(_ended(text.read()) for text in texts), quick)


def _ended(data: bytes) -> bytes:
    return data if data.endswith(SEPARATOR) else data + SEPARATOR


def _written(name: str, data: bytes, quick: bool) -> Text:
    path = MADE / f"{name}{'-quick' if quick else ''}.txt"
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)
    return Text(name, str(path), len(data))


def example_text(directory: Path) -> bytes:
    """The shards of the example corpus, one after another."""
    parts = []
    for path in sorted(directory.glob("*.txt*")):
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        parts.append(data)
    return b"".join(parts)


def source_text(directories: Iterable[Path], limit: int) -> bytes:
    """Python files, in order of path below their directory, each content once, at most `limit`.

    A file that is not UTF-8 or has the separator in it is left out.
    """
    seen: set[bytes] = set()
    parts: list[bytes] = []
    size = 0
    for data in _sources(directories):
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest in seen or SEPARATOR in data or not data or not _is_utf8(data):
            continue
        if size + len(data) + len(SEPARATOR) > limit:
            break
        seen.add(digest)
        parts += [data, SEPARATOR]
        size += len(data) + len(SEPARATOR)
    return b"".join(parts)


def _sources(directories: Iterable[Path]) -> Iterator[bytes]:
    for directory in directories:
        files = directory.rglob("*.py")
        for path in sorted(files, key=lambda path: path.relative_to(directory).as_posix()):
            # The standard library's directory may have that of installed packages in it.
            if "site-packages" not in path.relative_to(directory).parts:
                yield path.read_bytes()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def beginning(data: bytes, limit: int) -> bytes:
    """The documents at the beginning of a text that fit into `limit` bytes."""
    if len(data) <= limit:
        return data
    return data[: data.rfind(SEPARATOR, 0, limit) + len(SEPARATOR)]


def vocabularies(text: Text) -> list[Vocabulary]:
    """The published vocabularies that are there; else one of 8,192 ids, trained on the text."""
    published = [
        Vocabulary(name, str(path), pattern)
        for name, pattern in PATTERNS.items()
        if (path := SHARED / "vocab" / f"{name}_base.tiktoken").is_file()
    ]
    if published:
        return published
    from bpe_core import count_pretokens, train_from_counts

    directory = MADE / f"{text.name}-8k"
    train_from_counts(count_pretokens(Path(text.path)), 8192).tokenizer().save(directory)
    return [Vocabulary("trained-8k", str(directory / "tokenizer.tiktoken"), "gpt2")]


def as_json(value: Text | Vocabulary) -> dict[str, str | int]:
    return asdict(value)
