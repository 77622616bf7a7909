"""Commands that errors of a stage propose, with what they keep and remove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipelines.console.units import format_bytes
from pipelines.manifest.stage import COUNT, ENCODE, IMPORT, STAGES, SUPERWORDS, TRAIN, Stage
from pipelines.storage.directory import Directory


def choices_after_adding(counts: Directory) -> str:
    """Return the commands to choose from when files were added to an input that is counted."""
    return (
        "Files were added, and the tokenizer is of the others. Choose:\n"
        "    to encode the added files alone, with the tokenizer that is there: "
        "`beam-bpe add CONFIG`;\n"
        "    to train with them: `beam-bpe count CONFIG --update`, which counts the added files "
        "alone,\n"
        "      then `beam-bpe train CONFIG --restart`;\n"
        "      if the tokenizer has the same ids then, `beam-bpe encode CONFIG` encodes the added "
        "files alone;\n"
        f"    to start again and encode everything{describe_removal(counts, STAGES)}: "
        "`beam-bpe build CONFIG --restart`."
    )


def how_to_redo(stage: Stage[Any], directory: Directory, command: str | None) -> str:
    """Return the smallest commands that make a stage and those after it again.

    Args:
        stage: the stage; an import is a part of encoding, superwords are one of training.
        directory: its directory.
        command: command that the user ran, or None for that of the stage.
    """
    names = [known.name for known in STAGES]
    parts = {IMPORT.name: ENCODE.name, SUPERWORDS.name: TRAIN.name}
    first = names.index(parts.get(stage.name, stage.name))
    reached = ENCODE.name if command in ("build", "add") else command
    last = names.index(reached) if reached in names else first
    redone = STAGES[first : max(first, last) + 1]
    if command == "build" and first == 0:
        commands = ["build CONFIG --restart"]
    else:
        commands = [f"{redone[0].name} CONFIG --restart"]
        for later in redone[1:]:
            made = (_output_of(directory) / later.directory).sizes()
            commands.append(f"{later.name} CONFIG" + " --restart" * bool(made))
    kept = ["the counts", "the counts and the tokenizer"][first - 1] if first else ""
    there = first > 0 and (_output_of(directory) / COUNT.directory).exists()
    return (
        f"redo this stage{f' and keep {kept}' if there else ''}: "
        + ", then ".join(f"`beam-bpe {each}`" for each in commands)
        + describe_removal(directory, redone)
    )


def describe_removal(directory: Directory, stages: Sequence[Stage[Any]]) -> str:
    """Return the directories of stages with their sizes, as what will be removed; or nothing."""
    sizes = {
        stage.directory: sum((_output_of(directory) / stage.directory).sizes().values())
        for stage in stages
    }
    removed = [f"{name}/, {format_bytes(size)}" for name, size in sizes.items() if size]
    return f" (removes {'; '.join(removed)})" if removed else ""


def _output_of(directory: Directory) -> Directory:
    """Return the output that a stage's directory is in."""
    return replace(directory, url=directory.url.rpartition("/")[0])
