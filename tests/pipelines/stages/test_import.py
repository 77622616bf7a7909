"""Builds that encode with a published tokenizer import it into their output, checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from build_support import checksums, config_for, some_text, write_corpus
from hub_server import TOKEN, HubServer, hub_server, use_hub

from bpe_core import BPETokenizer
from bpe_core.formats import ranks_config
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.formats.outline import Outline
from bpe_core.formats.pre_tokenizer import BYTE_LEVEL
from pipelines import build
from pipelines.config import BuildConfig, TokenizerConfig
from pipelines.config.build import EncodeConfig
from pipelines.errors import ConfigError, DifferentConfigurationError, InputError, PipelineError
from pipelines.manifest.schema import json_schema
from pipelines.stages.context import BuildContext
from pipelines.stages.imports import outline_encoder
from pipelines.storage.directory import Directory
from pipelines.tokenizers.sources import read_outline, read_source
from pipelines.verification.verify import verify

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def published(kjv_tokenizer: BPETokenizer) -> bytes:
    return huggingface_bytes(kjv_tokenizer.model)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server() as server:
        use_hub(monkeypatch, server.url, tmp_path / "cache")
        yield server


def config_with(directory: Path, path: object, **sections: Any) -> BuildConfig:
    if not (directory / "data").exists():
        write_corpus(directory / "data", {"a.txt": some_text(12), "b.txt": some_text(5)})
    sections["tokenizer"] = TokenizerConfig(path=str(path))
    return config_for(directory).model_copy(update=sections)


def manifest_of(directory: Path, stage: str = "tokenizer") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "out" / stage / "manifest.json").read_text())
    return found


def stages_of(config: BuildConfig, **options: Any) -> list[tuple[str, str]]:
    return [(stage.name, stage.state) for stage in build.build(config, **options).stages]


@pytest.mark.slow
def test_a_file_is_imported_checked_and_recorded(published: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(published)
    config = config_with(tmp_path, tmp_path / "tokenizer.json")
    assert build.plan(config).id_type == "uint16"
    assert stages_of(config) == [("import", "done"), ("encode", "done")]
    manifest = manifest_of(tmp_path)
    [source] = manifest["imported_from"]["files"]
    assert (manifest["imported_from"]["format"], source["name"]) == (
        "huggingface",
        "tokenizer.json",
    )
    assert str(tmp_path) not in json.dumps(manifest)
    assert manifest["fingerprint"] == manifest_of(tmp_path, "tokens")["tokenizer"]
    run = json.loads((tmp_path / "out" / "tokenizer" / "run.json").read_text())
    assert run["checked"].startswith("checked: tokenizers ")
    jsonschema.validate(manifest, json_schema())
    assert verify(Directory(url=str(tmp_path / "out"))).problems == []
    before = checksums(tmp_path / "out", but=())
    assert stages_of(config) == [("import", "already finished"), ("encode", "already finished")]
    assert checksums(tmp_path / "out", but=()) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        [{**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True}],
        [{"type": "WhitespaceSplit"}, BYTE_LEVEL],
    ],
)
def test_a_tokenizer_that_adds_or_drops_spaces_builds_and_verifies(
    steps: list[dict[str, Any]], published: bytes, tmp_path: Path
) -> None:
    file = json.loads(published)
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    config = config_with(tmp_path, tmp_path / "tokenizer.json")
    assert stages_of(config) == [("import", "done"), ("encode", "done")]
    found = verify(Directory(url=str(tmp_path / "out")), sources=True, config=config)
    assert found.problems == []


@pytest.mark.slow
def test_a_damaged_import_is_found(published: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(published)
    build.build(config_with(tmp_path, tmp_path / "tokenizer.json"))
    (tmp_path / "out" / "tokenizer" / "vocab.json").write_bytes(b"{}")
    found = verify(Directory(url=str(tmp_path / "out"))).problems
    assert [problem.file for problem in found] == ["tokenizer/vocab.json"]


@pytest.mark.slow
def test_the_source_may_move_but_not_change(
    published: bytes, kjv_tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_bytes(published)
    build.build(config_with(tmp_path, tmp_path / "one"))
    config = config_with(tmp_path, tmp_path / "two")
    assert {state for _, state in stages_of(config)} == {"already finished"}
    other = kjv_tokenizer.model.with_special_tokens({END: 0, "<other>": 9000})
    (tmp_path / "two" / "tokenizer.json").write_bytes(huggingface_bytes(other))
    before = checksums(tmp_path / "out", but=())
    with pytest.raises(DifferentConfigurationError, match="tokenizer"):
        build.build(config)
    assert build.plan(config).refusal is not None
    assert checksums(tmp_path / "out", but=()) == before
    assert dict(stages_of(config, restart=True)) == {"import": "done", "encode": "done"}
    assert manifest_of(tmp_path, "tokens")["tokenizer"] == other.fingerprint


@pytest.mark.slow
def test_a_vocab_with_merges_beside_it_is_imported_once(
    kjv_tokenizer: BPETokenizer, published: bytes, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    kjv_tokenizer.save(files)
    config = config_with(tmp_path, files / "vocab.json", encode=EncodeConfig(append=None))
    assert stages_of(config) == [("import", "done"), ("encode", "done")]
    assert stages_of(config) == [("import", "already finished"), ("encode", "already finished")]
    (tmp_path / "other.json").write_bytes(published)
    other = config_with(tmp_path, tmp_path / "other.json", encode=EncodeConfig(append=None))
    with pytest.raises(DifferentConfigurationError):
        build.build(other)


@pytest.mark.slow
def test_a_published_encoding_needs_no_pattern(
    kjv_tokenizer: BPETokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kjv_tokenizer.save(tmp_path)
    ranks = tmp_path / "tokenizer.tiktoken"
    digest = hashlib.sha256(ranks.read_bytes()).hexdigest()
    specials = dict(kjv_tokenizer.special_tokens)
    config = config_with(tmp_path, ranks)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ConfigError, match=r"beam-bpe convert .*\.tiktoken .*--pattern cl100k"):
        build.plan(config)
    monkeypatch.setattr(ranks_config, "_PUBLISHED", {digest: ("gpt2", specials)})
    assert build.build(config).train_rows > 0
    read = BPETokenizer.load(tmp_path / "out")
    assert (read.pattern, dict(read.special_tokens)) == ("gpt2", specials)
    assert [file["name"] for file in manifest_of(tmp_path)["imported_from"]["files"]] == [
        "tokenizer.tiktoken"
    ]


@pytest.mark.slow
def test_a_trained_tokenizer_in_the_output_stays(published: bytes, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(12), "b.txt": some_text(5)})
    build.train(config_for(tmp_path))
    (tmp_path / "tokenizer.json").write_bytes(published)
    config = config_with(tmp_path, tmp_path / "tokenizer.json")
    before = checksums(tmp_path / "out", but=())
    for restart in (False, True):
        with pytest.raises(DifferentConfigurationError, match="The output has another tokenizer"):
            build.build(config, restart=restart)
    assert checksums(tmp_path / "out", but=()) == before
    own = config_with(tmp_path, tmp_path / "out" / "tokenizer")
    assert stages_of(own) == [("encode", "done")]
    assert stages_of(own, restart=True) == [("encode", "done")]


@pytest.mark.slow
def test_training_does_not_overwrite_an_imported_tokenizer(
    published: bytes, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(published)
    build.encode(config_with(tmp_path, tmp_path / "tokenizer.json"))
    before = checksums(tmp_path / "out" / "tokenizer", but=())
    with pytest.raises(DifferentConfigurationError):
        build.train(config_for(tmp_path))
    assert checksums(tmp_path / "out" / "tokenizer", but=()) == before


@pytest.mark.slow
def test_an_interrupted_build_keeps_the_commit_it_began_with(
    hub: HubServer, published: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = hub.add("org/model", {"tokenizer.json": published}, private=True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    config = config_with(tmp_path, "hf://org/model")
    with monkeypatch.context() as patched:
        patched.setattr(
            "pipelines.stages.encode.write_tokens", lambda *_: (_ for _ in ()).throw(OSError("cut"))
        )
        with pytest.raises(OSError, match="cut"):
            build.build(config)
    first = repository.refs["main"]
    repository.commit({"tokenizer.json": b"{}"})
    hub.requests.clear()
    assert stages_of(config) == [("import", "already finished"), ("encode", "done")]
    assert hub.requests == []
    imported = manifest_of(tmp_path)["imported_from"]
    assert (imported["repository"], imported["commit"]) == ("org/model", first)
    assert manifest_of(tmp_path)["configuration"] == {"tokenizer": {"path": "hf://org/model"}}
    pinned = config_with(tmp_path, f"hf://org/model@{first}")
    assert {state for _, state in stages_of(pinned)} == {"already finished"}
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()
    with pytest.raises(PipelineError, match="The tokenizer cannot be read"):
        build.build(config, restart=True)


def test_a_tokenizer_that_does_not_fit_leaves_no_trace(published: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(published)
    config = config_with(
        tmp_path, tmp_path / "tokenizer.json", encode=EncodeConfig(append="<missing>")
    )
    with pytest.raises(ConfigError, match="not a special token"):
        build.build(config)
    assert not (tmp_path / "out" / "tokenizer").exists()


@pytest.mark.slow
def test_a_tokenizer_on_another_storage_is_imported(published: bytes, tmp_path: Path) -> None:
    import fsspec

    with fsspec.open("memory://published/tokenizer.json", "wb") as file:
        file.write(published)
    for number, path in enumerate(("memory://published", "memory://published/tokenizer.json")):
        directory = tmp_path / str(number)
        directory.mkdir()
        build.build(config_with(directory, path))
        assert manifest_of(directory)["imported_from"]["format"] == "huggingface"


def test_an_outline_is_read_without_the_vocabulary_and_merges(
    published: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(published)
    config = config_with(tmp_path, tmp_path / "tokenizer.json")
    whole = read_source(str(tmp_path / "tokenizer.json"), compare=False).model

    def refused(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the tokenizer was read whole")

    monkeypatch.setattr("pipelines.stages.output.read_source", refused)
    monkeypatch.setattr("bpe_core.formats.outline.read_tokenizer", refused)
    outline = outline_encoder(BuildContext.of(config).output)
    assert outline == Outline(whole.pattern, whole.max_id)
    assert outline == read_outline(str(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"ByteLevel"', b'"UnicodeScripts"', "pre_tokenizer: expected"),
        (b'"id": 0,', b'"id": "0",', r"added_tokens\[0\].id: expected an id"),
        (b'"added_tokens"', b"added_tokens", "expected JSON"),
    ],
)
def test_a_plan_names_what_is_wrong_with_a_tokenizer(
    old: bytes, new: bytes, message: str, published: bytes, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(published.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        build.plan(config_with(tmp_path, tmp_path / "tokenizer.json"))
