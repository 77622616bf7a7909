"""The command to run next, if the next stage has files that were made of former results."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_support import command as beam_bpe
from build_support import some_text, write_corpus


@pytest.mark.slow
def test_the_next_command_restarts_what_is_outdated(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(9)})
    config = tmp_path / "build.yaml"
    config.write_text("output: out\ninput: {files: [data/*.txt]}\ntokenizer: {vocab_size: 300}\n")

    def next_command(*arguments: object) -> str:
        done = beam_bpe(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    assert next_command("count", config) == f"beam-bpe train {config}"
    assert next_command("train", config) == f"beam-bpe encode {config}"
    assert beam_bpe("encode", config).returncode == 0
    smaller = ("--set", "tokenizer.vocab_size=280")
    found = next_command("train", config, *smaller, "--restart")
    assert found == f"beam-bpe encode {config} --set tokenizer.vocab_size=280 --restart"
    assert beam_bpe(*found.split()[1:]).returncode == 0
    assert next_command("train", config, *smaller) == " ".join(
        ["beam-bpe", "encode", str(config), *smaller]
    )
    pattern = ("--set", "tokenizer.pattern=cl100k", *smaller)
    found = next_command("count", config, *pattern, "--restart")
    assert found == " ".join(["beam-bpe", "train", str(config), *pattern, "--restart"])
    assert beam_bpe(*found.split()[1:]).returncode == 0
