"""`BPETokenizer.load` and `from_pretrained`: any file, directory, output or repository."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_server import HubServer, hub_server, use_hub

from bpe_core import BPETokenizer, formats, train_from_iterator
from bpe_core.errors import FormatError, HubError
from bpe_core.formats.sentencepiece import sentencepiece_bytes

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    return train_from_iterator(["low lower lowest new newer"], 262, [END]).tokenizer()


@pytest.fixture
def output(tokenizer: BPETokenizer, tmp_path: Path) -> Path:
    """The output of a build."""
    (tmp_path / "out" / "tokens").mkdir(parents=True)
    tokenizer.save(tmp_path / "out" / "tokenizer")
    return tmp_path / "out"


def test_outputs_and_their_tokenizers_are_loaded(tokenizer: BPETokenizer, output: Path) -> None:
    for source in (
        output,
        str(output),
        f"{output}/",
        output / "tokenizer",
        output / "tokenizer" / "tokenizer.arrow",
        output / "tokenizer" / "tokenizer.json",
    ):
        loaded = BPETokenizer.load(source)
        assert loaded.vocab == tokenizer.vocab
        assert loaded.special_tokens == tokenizer.special_tokens


def test_a_published_tokenizer_is_loaded_from_its_directory_or_file(
    tokenizer: BPETokenizer, output: Path, tmp_path: Path
) -> None:
    text = f"low lower{END} \u00e9"
    published = tmp_path / "published"
    published.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (published / name).write_bytes((output / "tokenizer" / name).read_bytes())
    assert BPETokenizer.load(published).encode(text) == tokenizer.encode(text)
    gpt2 = tmp_path / "gpt2"
    gpt2.mkdir()
    for name in ("vocab.json", "merges.txt"):
        (gpt2 / name).write_bytes((output / "tokenizer" / name).read_bytes())
    for source in (gpt2, gpt2 / "vocab.json"):
        assert BPETokenizer.load(source).encode("low lower") == tokenizer.encode("low lower")
    minbpe = tmp_path / "minbpe"
    minbpe.mkdir()
    plain = BPETokenizer({i: bytes([i]) for i in range(256)} | {256: b"lo"}, [(b"l", b"o")])
    formats.write_minbpe(plain.model, minbpe / "tokenizer")
    for source in (minbpe, minbpe / "tokenizer.model"):
        assert BPETokenizer.load(source).encode("lo low") == plain.encode("lo low")


def test_ranks_need_a_pattern(tokenizer: BPETokenizer, output: Path, tmp_path: Path) -> None:
    ranks = tmp_path / "some.tiktoken"
    ranks.write_bytes((output / "tokenizer" / "tokenizer.tiktoken").read_bytes())
    with pytest.raises(FormatError, match=r"use BPETokenizer\.from_tiktoken\(path, pattern=…"):
        BPETokenizer.load(ranks)
    config = {"tokenizer_class": "ChatGLM4Tokenizer", "added_tokens_decoder": {}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert BPETokenizer.load(ranks).pattern == "llama3"


def test_what_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No tokenizer is here: '.*nothing'"):
        BPETokenizer.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"Hub: from_pretrained\('Qwen/Qwen3-0.6B'\)"):
        BPETokenizer.load("Qwen/Qwen3-0.6B")
    with pytest.raises(FormatError, match="found none of them: the directory is empty"):
        BPETokenizer.load(tmp_path)
    for name in ("config.json", "README.md"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(FormatError, match=r"found none of them, only README\.md, config\.json"):
        BPETokenizer.load(tmp_path)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(FormatError, match=r"use BPETokenizer\.from_files\(vocab, merges\)"):
        BPETokenizer.load(tmp_path / "other.json")


# --- repositories of the Hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server() as server:
        use_hub(monkeypatch, server.url, tmp_path / "cache")
        yield server


@pytest.mark.slow
def test_repositories_are_downloaded_and_then_cached(
    hub: HubServer, tokenizer: BPETokenizer, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (output / "tokenizer" / "tokenizer.json").read_bytes()
    files = {"tokenizer.json": data, "model.safetensors": b"x" * 1000, "old/tokenizer.json": data}
    hub.add("org/name", files)
    assert BPETokenizer.from_pretrained("org/name").vocab == tokenizer.vocab
    for name in ("hf://org/name", "org/name/old", "hf://org/name@main/old/tokenizer.json"):
        assert BPETokenizer.from_pretrained(name).vocab == tokenizer.vocab
    assert BPETokenizer.from_pretrained("org/name", revision="main").vocab == tokenizer.vocab
    assert hub.count("model.safetensors") == 0
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert BPETokenizer.from_pretrained("org/name").vocab == tokenizer.vocab


def test_repositories_without_a_tokenizer(hub: HubServer, tmp_path: Path) -> None:
    hub.add("org/model", {"README.md": b"", "model.safetensors": b""})
    with pytest.raises(FormatError, match=r"found README\.md, model\.safetensors; name a folder"):
        BPETokenizer.from_pretrained("org/model")
    for name in ("name", str(tmp_path), "./org/name", ""):
        with pytest.raises(ValueError, match="takes the name of a repository as ORG/NAME"):
            BPETokenizer.from_pretrained(name)


def test_the_library_of_the_hub_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        BPETokenizer.from_pretrained("org/name")


def test_sentencepiece_models_are_loaded(tmp_path: Path) -> None:
    from bpe_core import PretokenCounts, train_characters_from_counts

    counts = PretokenCounts.from_mapping({"▁low".encode(): 5, "▁lower".encode(): 2})
    model = train_characters_from_counts(counts, 300).model
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_bytes(model))
    for source in (tmp_path, tmp_path / "tokenizer.model"):
        assert BPETokenizer.load(source).encode("low lower") == BPETokenizer.from_model(
            model
        ).encode("low lower")


@pytest.mark.parametrize(
    ("name", "revision", "message"),
    [
        ("org/other", None, r"hf://org/other: The repository was not found: .*Check the name"),
        ("org/gated", None, r"may not be used with this token: .*Accept the conditions"),
        ("org/model", "v9", r"hf://org/model@v9: The revision was not found: .*none called v9"),
    ],
)
def test_errors_of_the_hub_are_ours(
    hub: HubServer, name: str, revision: str | None, message: str
) -> None:
    hub.add("org/model", {"tokenizer.json": b"{}"})
    hub.add("org/gated", {"tokenizer.json": b"{}"}, gated=True)
    with pytest.raises(HubError, match=message):
        BPETokenizer.from_pretrained(name, revision=revision)


def test_a_hub_without_a_network_is_our_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_hub(monkeypatch, "http://127.0.0.1:9", tmp_path / "cache")
    with pytest.raises(HubError, match=r"The Hub cannot be reached: .*HF_ENDPOINT"):
        BPETokenizer.from_pretrained("org/name")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match=r"not in the cache .*HF_HUB_OFFLINE is set"):
        BPETokenizer.from_pretrained("org/name")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r50k", "cl100k", "o200k"])
def test_encodings_of_tiktoken_are_recognized(
    published_vocabulary: Callable[[str], Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    constants = pytest.importorskip("tiktoken_ext.openai_public")
    path = published_vocabulary(name)

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        ranks: dict[bytes, int] = tiktoken.load.load_tiktoken_bpe(str(path), expected_hash)
        return ranks

    monkeypatch.setattr(constants, "load_tiktoken_bpe", load)
    theirs = tiktoken.Encoding(**getattr(constants, f"{name}_base")())
    ours = BPETokenizer.load(path)
    assert dict(ours.special_tokens) == theirs._special_tokens
    text = "It's 2026 \r\n\u4f60\u597d  <|endoftext|>"
    assert ours.encode(text) == theirs.encode(text, allowed_special="all")
