"""Engines that are missing skip tests, or fail them where every engine is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_support import need, need_module, prism_binary


@pytest.fixture(autouse=True)
def _nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


NEEDS = {
    "program": lambda: need("java", "mvn"),
    "program elsewhere": lambda: need("sh", path="/nowhere"),
    "module": lambda: need_module("no_such_module.at_all", "no-such-package"),
    "engine": prism_binary,
}


@pytest.mark.parametrize("name", NEEDS)
def test_what_is_missing_skips(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUIRE_ENGINES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs "):
        NEEDS[name]()


@pytest.mark.parametrize("name", NEEDS)
def test_what_is_missing_fails_where_every_engine_is_asked_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUIRE_ENGINES", "1")
    with pytest.raises(pytest.fail.Exception, match=r"needs .*REQUIRE_ENGINES=1"):
        NEEDS[name]()


def test_what_is_there_does_neither(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REQUIRE_ENGINES", "1")
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    need("program")
    need_module("json", "python")
