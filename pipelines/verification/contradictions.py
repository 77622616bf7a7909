"""Checks of a manifest against itself: who edits one number must edit all that follow from it.

Checksums detect accidents; these checks detect a manifest whose checksums were computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.manifest.generations import generation_of, policy_of, with_policy
from pipelines.manifest.models import Counted, TokensManifest
from pipelines.manifest.names import BASE, statistics_file_name


def find_contradictions(manifest: Counted | TokensManifest) -> Iterator[str]:
    """Yield the parts of a manifest that contradict other parts.

    The numbers that `accounting.check_accounts` adds up are not compared here.
    """
    try:
        yield from _check_totals(manifest)
        if isinstance(manifest, TokensManifest):
            yield from _check_generations(manifest)
            yield from _check_inputs(manifest)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield f"unreadable configuration: {type(error).__name__}: {error}"


def _check_totals(manifest: Counted | TokensManifest) -> Iterator[str]:
    totals = manifest.totals.document_totals()
    sources = DocumentTotals.sum_of(source.document_totals() for source in manifest.sources)
    found, expected = manifest.totals.to_json(), sources.to_json()
    for key in ("hash_sum", "bad_files", "reasons"):
        if found[key] != expected[key]:
            yield f"totals.{key}: {found[key]}, but all sources together have {expected[key]}"
    yield from _unequal("corpus", manifest.corpus, totals.corpus_fingerprint)


def _check_generations(manifest: TokensManifest) -> Iterator[str]:
    names = [generation.name for generation in manifest.generations]
    expected = [BASE, *(f"add{number:03d}" for number in range(1, len(names)))]
    yield from _unequal("generations", names, expected)
    files = [file.name for file in manifest.files.statistics]
    yield from _unequal("files.statistics", files, [statistics_file_name(name) for name in names])
    tasks = {generation.name: generation.tasks for generation in manifest.generations}
    found = Counter(generation_of(file.name) for file in manifest.files.train)
    for name in {**tasks, **found}:
        yield from _unequal(f"token files of {name}", found[name], tasks.get(name, 0))
    parts = DocumentTotals.of_corpora(generation.corpus for generation in manifest.generations)
    yield from _unequal("corpus of generations", parts.corpus_fingerprint, manifest.corpus)
    # Sources may have got more patterns, so earlier generations had another configuration.
    encoded = [generation for generation in manifest.generations if generation.kind != "replay"]
    if not encoded:
        yield "generations: only replays"
        return
    last, configuration = encoded[-1], manifest.configuration
    made_with = with_policy(configuration, last.policy or policy_of(configuration))
    yield from _unequal(
        f"configuration_fingerprint of {last.name}",
        last.configuration_fingerprint,
        fingerprint(made_with),
    )


def _check_inputs(manifest: TokensManifest) -> Iterator[str]:
    for name, times in Counter(file.name for file in manifest.inputs).items():
        if times > 1:
            yield f"input {name}: listed {times} times"
    bad = sorted(file.name for file in manifest.inputs if file.bad)
    yield from _unequal("totals.bad_files", manifest.totals.bad_files, bad)
    sources = manifest.configured_sources
    limited = {
        source["name"]
        for source in sources
        if any(key.startswith("limit_") and source[key] is not None for key in source)
    }
    known = {generation.name for generation in manifest.generations}
    for file in manifest.inputs:
        where = f"input {file.name}"
        if file.generation not in known:
            yield f"{where}: of generation {file.generation}, which is not listed"
        source = None if sources[0]["name"] is None else file.name.partition("/")[0]
        if file.planned_bytes is not None and source not in limited:
            yield from _unequal(f"{where}: size", file.possible_sizes[-1], file.planned_bytes)


def _unequal(key: str, found: object, expected: object) -> Iterator[str]:
    if found != expected:
        yield f"{key}: {found}, but {expected} is expected"
