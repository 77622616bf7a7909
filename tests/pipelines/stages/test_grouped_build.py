"""Builds whose counts are kept apart by group: manifests, verification, and former outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from build_support import config_for, some_text, write_corpus

import pipelines
from pipelines import build
from pipelines.config import BuildConfig
from pipelines.config.fingerprints import fingerprint
from pipelines.manifest.records import sealed
from pipelines.storage.directory import json_bytes


def config_in(directory: Path, **counts: Any) -> BuildConfig:
    write_corpus(directory / "books", {"a.txt": some_text(12)})
    (directory / "chat").mkdir()
    records = [
        {"text": text.decode(), "lang": lang}
        for text, lang in zip(some_text(6, start=20), ["de", "en"] * 3, strict=True)
    ]
    (directory / "chat" / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return config_for(
        directory,
        input=[
            {
                "name": "books",
                "files": [str(directory / "books" / "*")],
                "format": "text",
                "separator": "<|endoftext|>",
            },
            {"name": "chat", "files": [str(directory / "chat" / "*")], "format": "jsonl"},
        ],
        counts={"shards": 2, **counts},
    )


def manifest_of(config: BuildConfig) -> dict[str, Any]:
    data = (Path(config.output_path) / "counts" / "manifest.json").read_text("utf-8")
    return dict(json.loads(data))


def test_a_build_lists_its_groups_and_verifies(tmp_path: Path) -> None:
    config = config_in(tmp_path, group_by="lang", document_frequency=True)
    build.build(config)
    manifest = manifest_of(config)
    groups = manifest["groups"]
    assert [(g["source"], g["value"], g["documents"]) for g in groups] == [
        ("books", "", 12),
        ("chat", "de", 3),
        ("chat", "en", 3),
    ]
    assert sum(g["pretokens"] for g in groups) == manifest["totals"]["pretokens"]
    assert not pipelines.verify(config.output_path).problems

    for place in ("pretokens", "distinct_pretokens", "bytes"):
        changed = {**manifest, "groups": [{**groups[0], place: 1}, *groups[1:]]}
        changed.pop("checksum")
        keys = ("corpus", "sources", "shards", "totals", "groups")
        changed["fingerprint"] = fingerprint({key: changed[key] for key in keys})
        path = Path(config.output_path) / "counts" / "manifest.json"
        path.write_bytes(json_bytes(sealed(changed)))
        problems = map(str, pipelines.verify(config.output_path).problems)
        assert any("group ('books',)" in problem and place in problem for problem in problems)


def test_former_counts_of_several_sources_are_used_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_in(tmp_path)
    with monkeypatch.context() as former:
        former.setattr("pipelines.stages.jobs.is_grouped", lambda config: False)
        build.count(config)
    before = manifest_of(config)
    assert "groups" not in before
    build.build(config)
    assert manifest_of(config) == before
    assert not pipelines.verify(config.output_path).problems
