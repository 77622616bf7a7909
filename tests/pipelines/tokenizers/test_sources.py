"""Tokenizers from everywhere: files, directories and repositories of the Hub, checked."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import TOKEN, HubServer, hub_server, use_hub

from bpe_core import BPETokenizer, formats
from bpe_core.formats import CannotHoldError
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.formats.ranks_config import KIMI
from bpe_core.model import TokenizerModel
from pipelines.config import EncodeConfig
from pipelines.errors import ConfigError, InputError
from pipelines.stages.jobs import check_affixes
from pipelines.storage.directory import Directory
from pipelines.tokenizers import peer_check
from pipelines.tokenizers.conversion import Request, convert
from pipelines.tokenizers.sources import SourceOptions, missing_tokenizer, read_source

PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="module")
def model(kjv_tokenizer: BPETokenizer) -> TokenizerModel:
    merges = kjv_tokenizer.merges[:60]
    tokens = {i: bytes([i]) for i in range(256)}
    tokens |= {256 + i: left + right for i, (left, right) in enumerate(merges)}
    return BPETokenizer(tokens, merges, {"<|end|>": 316}, pattern="cl100k").model


@pytest.fixture(scope="module")
def published(model: TokenizerModel) -> bytes:
    return huggingface_bytes(model)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server() as server:
        use_hub(monkeypatch, server.url, tmp_path / "cache")
        yield server


def tekken_file(model: TokenizerModel, **changes: Any) -> dict[str, Any]:
    """A tekken.json with more ranks than the vocabulary has."""
    ranks = [token for _, token in model.tokens] + [b"never", b"there"]
    file: dict[str, Any] = {
        "config": {
            "pattern": PATTERN,
            "num_vocab_tokens": len(ranks),
            "default_vocab_size": 20 + len(ranks) - 2,
            "default_num_special_tokens": 20,
            "version": "v11",
        },
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for i, token in enumerate(ranks)
        ],
        "special_tokens": [
            {"rank": i, "token_str": text, "is_control": text != "[IMG]"}
            for i, text in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[IMG]"])
        ],
    }
    return {**file, **changes}


# --- tekken.json


@pytest.mark.slow
def test_a_tekken_file_gives_the_ids_of_mistral_common(
    model: TokenizerModel, tmp_path: Path
) -> None:
    pytest.importorskip("mistral_common")
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(tekken_file(model)))
    read = read_source(str(tmp_path))
    assert read.checked is not None
    assert read.checked.ids is not None
    assert read.checked.library.startswith("mistral-common ")
    found = read.model
    assert found.max_id == 20 + 256 + 60 - 1
    assert found.special_tokens["[INST]"] == 3
    assert found.special_tokens["<SPECIAL_19>"] == 19
    assert found.nonspecial_tokens == {"[IMG]"}
    assert b"never" not in found.vocab.values()


def test_the_first_tekken_files_have_the_special_tokens_of_their_version(
    model: TokenizerModel, tmp_path: Path
) -> None:
    file = tekken_file(model)
    del file["special_tokens"]
    file["config"]["version"] = "v3"
    (tmp_path / "tekken.json").write_text(json.dumps(file))
    found = formats.read_tekken(tmp_path / "tekken.json")
    assert found.special_tokens["[TOOL_CONTENT]"] == 19
    assert found.special_tokens["</s>"] == 2


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("config", {"pattern": ""}, r"config\.pattern: expected a regular expression"),
        ("config", {"pattern": r"\p{L}+", "default_num_special_tokens": -1}, "a number from 0"),
        (
            "config",
            {"pattern": r"(a)\1", "default_num_special_tokens": 1, "default_vocab_size": 2},
            "found an escape",
        ),
        (
            "config",
            {"pattern": r"\p{L}+", "default_num_special_tokens": 20, "default_vocab_size": 900},
            r"config\.default_vocab_size: expected 20 special tokens and 256 to 318",
        ),
        ("special_tokens", None, "expected a list, in version 'v11', found none"),
        ("special_tokens", [{"rank": 0, "token_str": ""}], "expected a text, each once"),
        ("special_tokens", [{"rank": 1, "token_str": "a"}], r"special_tokens\[0\]\.rank"),
        ("special_tokens", [{"rank": 0, "token_str": "<SPECIAL_7>"}], "rank 7 alone, found rank 0"),
        ("vocab", [], "256 to 0 of the tokens in vocab, found 336"),
        ("vocab", [{"rank": 0, "token_bytes": "!"}] * 400, "1 to 4096 bytes in base64"),
        ("vocab", [{"rank": 0, "token_bytes": "YQ=="}] * 400, "expected the byte 0x00"),
    ],
)
def test_malformed_tekken_files_are_refused(
    part: str, value: Any, message: str, model: TokenizerModel, tmp_path: Path
) -> None:
    file = tekken_file(model)
    file[part] = {**file[part], **value} if isinstance(value, dict) else value
    (tmp_path / "tekken.json").write_text(json.dumps(file))
    with pytest.raises(InputError, match=message):
        read_source(str(tmp_path / "tekken.json"))


# --- ranks with tokenizer_config.json


def ranks_folder(model: TokenizerModel, folder: Path, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [b"%b %d\n" % (base64.b64encode(token), i) for i, token in model.tokens]
    (folder / "tiktoken.model").write_bytes(b"".join(lines))
    added = {
        "316": {"content": "[BOS]", "special": True, "lstrip": False},
        "318": {"content": "<tool>", "special": False},
    }
    settings = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": added, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_ranks_with_a_tokenizer_config_need_no_options(
    model: TokenizerModel, tmp_path: Path
) -> None:
    read = read_source(str(ranks_folder(model, tmp_path)))
    assert read.file.format == "tiktoken"
    assert read.checked is not None
    assert read.checked.ids is not None
    assert [file.name for file in read.files] == ["tiktoken.model", "tokenizer_config.json"]
    found = read.model
    assert found.pattern == KIMI
    assert found.special_tokens["[BOS]"] == 316
    assert found.special_tokens["<|reserved_token_317|>"] == 317
    assert found.special_tokens["<tool>"] == 318
    assert len(found.special_tokens) == 256
    assert found.nonspecial_tokens == {"<tool>"}
    assert BPETokenizer.from_model(found).encode("[BOS]a<tool>") == [316, 97, 318]


def test_the_options_of_the_user_precede_the_tokenizer_config(
    model: TokenizerModel, tmp_path: Path
) -> None:
    folder = str(ranks_folder(model, tmp_path))
    options = SourceOptions(pattern="gpt2", special_tokens={"<s>": 400})
    found = read_source(folder, options).model
    assert (found.pattern, dict(found.special_tokens)) == ("gpt2", {"<s>": 400})


def test_an_unknown_class_of_ranks_needs_a_pattern(model: TokenizerModel, tmp_path: Path) -> None:
    folder = str(ranks_folder(model, tmp_path, tokenizer_class="NewTokenizer"))
    with pytest.raises(ConfigError, match="'NewTokenizer' is not a class that is known"):
        read_source(folder)
    found = read_source(folder, SourceOptions(pattern="o200k")).model
    assert dict(found.special_tokens) == {"[BOS]": 316, "<tool>": 318}


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"x": {"content": "a"}}, "expected ids, found 'x'"),
        ({"316": {"content": ""}}, "expected a text, found ''"),
        ({"316": {"content": "a", "rstrip": True}}, "expected false, found True"),
        ({"316": {"content": "a"}, "317": {"content": "a"}}, "'a' again"),
        ({"5": {"content": "<s>"}}, "found 5 twice"),
    ],
)
def test_malformed_added_tokens_of_ranks_are_refused(
    added: dict[str, Any], message: str, model: TokenizerModel, tmp_path: Path
) -> None:
    folder = ranks_folder(model, tmp_path, added_tokens_decoder=added)
    with pytest.raises(InputError, match=message):
        read_source(str(folder))


# --- the check of the source


def test_a_source_that_its_library_reads_otherwise_is_refused_for_any_destination(
    model: TokenizerModel, published: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(published)
    encode = peer_check._ENCODERS["huggingface"]

    def wrong(*arguments: Any) -> Callable[[str], list[int]]:
        ids = encode(*arguments)
        return lambda text: [*ids(text)[:20], 7]

    monkeypatch.setitem(peer_check._ENCODERS, "huggingface", wrong)
    with pytest.raises(CannotHoldError, match=r"tokenizers .* returns other ids: after"):
        convert(
            Request(
                source=str(tmp_path / "tokenizer.json"),
                destination=str(tmp_path / "out"),
                to="arrow",
            )
        )
    assert not (tmp_path / "out").exists()


def test_the_check_covers_every_category_of_characters_and_every_special_token() -> None:
    import unicodedata

    from pipelines.tokenizers.samples import SAMPLE

    categories = {unicodedata.category(character) for character in SAMPLE}
    assert {"Cn", "Co", "Cs"}.isdisjoint(categories)
    assert len(categories) == 27


# --- the Hub


@pytest.mark.slow
def test_a_repository_gives_the_tokenizer_at_its_commit(
    hub: HubServer, published: bytes, model: TokenizerModel
) -> None:
    repository = hub.add(
        "org/model",
        {"tokenizer.json": published, "tokenizer.model": b"?", "model.safetensors": b"0" * 99},
    )
    first = repository.refs["main"]
    repository.commit({"tokenizer.json": b"{}"})
    read = read_source(f"hf://org/model@{first}")
    assert read.model.fingerprint == model.fingerprint
    assert read.repository is not None
    assert read.repository.revision == first
    assert [file.name for file in read.files] == ["tokenizer.json"]
    assert read.file.location == f"hf://org/model@{first}/tokenizer.json"
    assert hub.count("resolve.*(safetensors|tokenizer.model)") == 0


@pytest.mark.slow
def test_a_commit_in_the_cache_needs_no_network(
    hub: HubServer, published: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hub.add("org/model", {"tokenizer.json": published}).refs["main"]
    read_source("hf://org/model")
    hub.requests.clear()
    read_source(f"hf://org/model@{first}")
    assert hub.requests == []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    read = read_source("hf://org/model")
    assert read.repository is not None
    assert read.repository.revision == first
    assert hub.requests == []
    with pytest.raises(InputError, match="not in the cache of the Hub's library"):
        read_source("hf://org/other")


@pytest.mark.slow
def test_a_folder_or_file_of_a_repository_can_be_named(
    hub: HubServer, published: bytes, model: TokenizerModel
) -> None:
    ranks = b"".join(b"%b %d\n" % (base64.b64encode(token), i) for i, token in model.tokens)
    hub.add("org/model", {"a/tokenizer.json": published, "b/tokenizer.model": ranks})
    assert read_source("hf://org/model/a").file.format == "huggingface"
    options = SourceOptions(pattern="llama3")
    read = read_source("hf://org/model/b/tokenizer.model", options)
    assert read.file.format == "tiktoken"
    with pytest.raises(InputError, match="has no file of a tokenizer"):
        read_source("hf://org/model")
    with pytest.raises(InputError, match="file was not found in the repository"):
        read_source("hf://org/model/c")


@pytest.mark.slow
def test_a_private_repository_is_read_with_the_token_which_no_message_shows(
    hub: HubServer, published: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/private", {"tokenizer.json": published}, private=True)
    with pytest.raises(InputError, match="a private one that this token may not read"):
        read_source("hf://org/private")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    read = read_source("hf://org/private")
    assert TOKEN not in repr(read)


@pytest.mark.slow
def test_what_the_hub_refuses_is_said_in_words(hub: HubServer, published: bytes) -> None:
    hub.add("org/model", {"tokenizer.json": published})
    hub.add("org/gated", {"tokenizer.json": published}, gated=True)
    hub.fail[r"GET /api/models/org/broken"] = 400
    for url, message in {
        "hf://org/nothing": "The repository was not found",
        "hf://org/model@nothing": "none called nothing",
        "hf://org/gated": "may not be used with this token",
        "hf://org/broken": "HTTP 400",
    }.items():
        with pytest.raises(InputError, match=message) as raised:
            read_source(url)
        assert hub.url not in str(raised.value)


def test_a_hub_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub_server() as server:
        url = server.url
    use_hub(monkeypatch, url, tmp_path / "cache")
    with pytest.raises(InputError, match="The Hub cannot be reached"):
        read_source("hf://org/model")


@pytest.mark.slow
@pytest.mark.process
def test_the_library_is_complete_in_a_new_process() -> None:
    """Its modules are loaded when they are first needed, which other tests may have done."""
    program = "from pipelines.storage.hub import hub_library, is_offline; is_offline(); " + (
        "library = hub_library(); library.errors, library.hf_api.RepoFile, library.HfApi"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "url", ["hf://name", "hf://datasets/org/name", "hf://hf_secret@org/name", "hf://"]
)
def test_addresses_of_no_model_are_refused_without_their_credentials(url: str) -> None:
    with pytest.raises(ConfigError, match="not the address of a model repository") as raised:
        read_source(url)
    assert "hf_secret" not in str(raised.value)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="the extra `hub` of this package"):
        read_source("hf://org/model")


# --- places without a tokenizer


def test_what_is_there_instead_of_a_tokenizer_is_named(tmp_path: Path) -> None:
    def message(path: Path) -> str:
        return str(missing_tokenizer(Directory(url=str(path)), "tokenizer.path"))

    (tmp_path / "tokens").mkdir()
    assert "found: an empty directory" in message(tmp_path / "tokens")
    assert "found: nothing at this path" in message(tmp_path / "tokns")
    assert "Did you mean tokens?" in message(tmp_path / "tokns")
    assert "Check the path." in message(tmp_path / "no" / "folder")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "README.md").touch()
    output = message(tmp_path)
    assert "found: a directory with README.md, tokenizer, tokens" in output
    assert f"For the tokenizer of a build: {tmp_path}/tokenizer." in output


def test_the_own_tokens_of_a_tokenizer_are_suggested() -> None:
    specials = {"<s>": 256, "</s>": 257, **{f"<extra{i}>": 300 + i for i in range(100)}}
    tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], specials)
    with pytest.raises(ConfigError, match=r"or null") as caught:
        check_affixes(EncodeConfig(), tokenizer.model)
    message = str(caught.value)
    assert 'suggests encode.prepend: "<s>" and encode.append: "</s>".' in message
    assert "and 90 more, or null" in message
