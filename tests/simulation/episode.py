"""Episode of the simulation: a random dataset that is built, grown, replayed and exported."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import faults
from build_support import checksums, config_for
from corpus import END, SPECIAL_TOKENS, random_file, random_source
from faults import Fault
from model import (
    Model,
    Trained,
    check,
    check_counts,
    check_export,
    check_nothing_left,
    check_rejects,
    check_tokenizer,
    check_tokens,
    check_totals,
)

import pipelines
from pipelines import build
from pipelines.config import BuildConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import DifferentConfigurationError
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory

_FAULTS_A_STEP: Final = 3
_MOMENTS: Final = 150


@dataclass
class Outcomes:
    """Ends of commands by fault, and the number of commands."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    commands: int = 0


def run_episode(seed: int, folder: Path) -> Outcomes:
    """Build a dataset with and without faults, and check every promise.

    Raises:
        AssertionError: A promise is broken, or a command ends with a traceback.
    """
    generator = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    return _Episode(generator, folder).run()


class _Episode:
    """Dataset that is made twice at one place, `world`: calmly, and with faults."""

    def __init__(self, generator: random.Random, folder: Path) -> None:
        self._generator = generator
        self._outcomes = Outcomes()
        self._world, self._unchanged = folder / "world", folder / "unchanged"
        self._data, self._out = self._world / "data", self._world / "out"
        self._calm, self._rough = folder / "calm", folder / "rough"
        self._before = folder / "before"
        self._data.mkdir(parents=True)
        self._sources = [
            random_source(generator, self._data, f"s{i}")
            for i in range(generator.choice([1, 2, 3]))
        ]
        self._pattern = generator.choice(["gpt2", "cl100k"])
        self._vocab_size = generator.choice([258, 270, 300])
        self._invalid_utf8 = generator.choice(["reject", "reject", "replace"])
        self._settings: dict[str, Any] = {
            "tokenizer": {
                "vocab_size": self._vocab_size,
                "pattern": self._pattern,
                "special_tokens": list(SPECIAL_TOKENS),
            },
            "counts": {
                "shards": generator.choice([1, 2, 3]),
                "checkpoint_bytes": generator.choice([1, 1 << 30]),
            },
            "encode": {
                "append": END,
                "max_reject_fraction": 1.0,
                "validation_fraction": generator.choice([0.0, 0.0, 0.3]),
            },
            "report": False,
        }

    def run(self) -> Outcomes:
        self._do("build", build.build)
        model = Model.of(self._sources, self._invalid_utf8)
        counts = model.counts(self._pattern)
        trained = Trained.of(counts, self._vocab_size, self._pattern)
        check_counts(self._rough, model, self._pattern)
        check_tokenizer(self._rough, trained)
        self._check(trained)
        if self._generator.random() < 0.6 and self._add_files():
            self._do("add", build.add)
            self._check(trained)
        if self._invalid_utf8 == "reject" and self._generator.random() < 0.6:
            self._invalid_utf8 = "replace"
            self._do("replay", build.replay)
            self._check(trained)
        if any(Model.of(self._sources, self._invalid_utf8).kept.values()):
            self._export(trained)
        return self._outcomes

    def _config(self, workers: int) -> BuildConfig:
        sources = [
            {**source.settings, "invalid_utf8": self._invalid_utf8} for source in self._sources
        ]
        return config_for(self._world, input=sources, beam={"workers": workers}, **self._settings)

    def _do(self, name: str, command: Callable[[BuildConfig], object]) -> None:
        """Do a step calmly, and with faults until it is done. Both make the same bytes."""
        shutil.copytree(self._data, self._unchanged, dirs_exist_ok=True)
        shutil.rmtree(self._before, ignore_errors=True)
        with self._in_place(self._calm):
            command(self._config(1))
            calm = checksums(self._out)
        with self._in_place(self._rough):
            config = self._config(self._generator.choice([1, 2]))
            for _ in range(self._generator.randrange(_FAULTS_A_STEP + 1)):
                self._disturb(partial(command, config))
            self._finish(partial(command, config))
            rough = checksums(self._out)
        self._outcomes.commands += 2
        differing = sorted({file for file, _ in calm.items() ^ rough.items()})
        check(not differing, f"{name} makes the same bytes after faults", differing)

    @contextmanager
    def _in_place(self, output: Path) -> Iterator[None]:
        """Move an output to where it is built, and away afterwards."""
        with suppress(FileNotFoundError):
            output.rename(self._out)
        yield
        self._out.rename(output)

    def _finish(self, command: Callable[[], object]) -> None:
        """Run a command without faults, from the state before them if they changed the input."""
        try:
            command()
        except DifferentConfigurationError:
            # A command that was given the changed input may have finished a stage with it.
            check(self._before.exists(), "only a changed input makes a different configuration")
            shutil.rmtree(self._out, ignore_errors=True)
            if any(self._before.iterdir()):
                shutil.copytree(self._before, self._out)
            command()

    def _disturb(self, command: Callable[[], object]) -> None:
        """Run a command with a fault, and restore the input."""
        kind = self._generator.choice(faults.KINDS)
        moment = 1 + int(_MOMENTS ** self._generator.random())
        fault = Fault(kind, moment, self._generator.randrange(1 << 30))
        if kind == "change" and not self._before.exists():
            if self._out.exists():
                shutil.copytree(self._out, self._before)
            else:
                self._before.mkdir()
        ended = faults.run_with(fault, command, self._world)
        self._outcomes.ends[kind, ended.how] += 1
        self._outcomes.commands += 1 + (kind == "two")
        for path in self._unchanged.iterdir():
            if (self._data / path.name).stat().st_size != path.stat().st_size:
                shutil.copy2(path, self._data)

    def _add_files(self) -> bool:
        """Add a file to each source but archives; return False if all sources are archives."""
        added = False
        for source in self._sources:
            if "://" not in source.settings["files"][0]:
                name, documents, data = random_file(self._generator, source, 9)
                source.files[f"{source.name}/{name}"] = documents
                (self._data / name).write_bytes(data)
                added = True
        return added

    def _check(self, trained: Trained) -> None:
        """Check the output with faults, which has the bytes of the other one."""
        model = Model.of(self._sources, self._invalid_utf8)
        check_tokens(self._rough, model, trained)
        check_totals(self._rough, model)
        check_rejects(self._rough, model)
        check_nothing_left(self._rough)
        found = pipelines.verify(self._rough, sources=True)
        check(not found.problems, "verify finds the output intact", found.problems)

    def _export(self, trained: Trained) -> None:
        folder = self._world / "export"
        dataset = TokenDataset.open(str(self._rough), {})
        export(dataset, Directory(url=str(folder)), ExportOptions(to="npy", split="all"))
        check_export(folder, Model.of(self._sources, self._invalid_utf8), trained)
