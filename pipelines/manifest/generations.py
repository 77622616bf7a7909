"""Generations: the increments of a dataset, each encoded at once, and their sum.

The first one is `base`. Input files that are added later, and rejects that are replayed, make
`add001`, `add002`, …. Inputs alone decide a generation: those that the manifest does not list.
Files of earlier generations keep their names and their bytes. The manifest lists the files of all
generations and is replaced as the last step of each; until then its readers see the complete
earlier dataset.

A build that trains fails if it encoded other documents than it counted (`possible_corpora`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import compress
from typing import Any, Final, TypeAlias

from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.errors import InputError
from pipelines.manifest.entries import DatasetFiles, InputEntry, SourceEntry, TokensTotals
from pipelines.manifest.models import Generation, GenerationContent, TokensManifest
from pipelines.manifest.names import BASE, REJECT_FILE, STATISTICS_FILE, TOKEN_FILE
from pipelines.manifest.records import present
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import is_of_a_build

Configuration: TypeAlias = Mapping[str, Any]
Policy: TypeAlias = dict[str, Any]

# The keys of a configuration that decide which documents are rejected, and nothing else.
POLICY: Final[Mapping[str, frozenset[str]]] = {
    "input": frozenset({"invalid_utf8", "max_document_bytes"}),
    "encode": frozenset({"special_tokens_in_text"}),
}
_READS_AT_ONCE: Final = 16


def next_name(manifest: TokensManifest) -> str:
    """Return the name of the generation that follows those of a manifest."""
    return f"add{len(manifest.generations):03d}"


# --- configurations --------------------------------------------------------------------------


def policy_of(configuration: Configuration) -> Policy:
    """Return the part of a configuration that decides which documents are rejected."""
    return {
        "input": {
            # Keys of JSON objects are strings; a single source may have no name.
            source["name"] or "": {k: v for k, v in source.items() if k in POLICY["input"]}
            for source in configuration["input"]
        },
        "encode": {k: v for k, v in configuration["encode"].items() if k in POLICY["encode"]},
    }


def with_policy(configuration: Configuration, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with another policy; sources that it does not name keep theirs."""
    return {
        **configuration,
        "input": [
            {**source, **policy["input"].get(source["name"] or "", {})}
            for source in configuration["input"]
        ],
        "encode": {**configuration["encode"], **policy["encode"]},
    }


def replay_policies(manifest: TokensManifest) -> list[Policy]:
    """Return the policies of generations that differ from that of the first one."""
    return [made.policy for made in manifest.generations if made.policy is not None]


def policy_of_generation(manifest: TokensManifest, name: str) -> Policy:
    """Return the policy that a generation was made with."""
    [policy] = [made.policy for made in manifest.generations if made.name == name]
    return policy_of(manifest.configuration) if policy is None else policy


def without_files(configuration: Configuration, sources: Iterable[str | None]) -> dict[str, Any]:
    """Return the part of a configuration that decides how the files of sources are processed."""
    known = set(sources)
    return {
        **configuration,
        "input": [
            {key: value for key, value in source.items() if key != "files"}
            for source in configuration["input"]
            if source["name"] in known
        ],
    }


# --- the manifest ----------------------------------------------------------------------------


def add_generation(
    earlier: TokensManifest | None,
    content: GenerationContent,
    *,
    name: str,
    tasks: int,
    configuration: Configuration,
    tokenizer: str,
    counts: str | None,
) -> TokensManifest:
    """Return the manifest of an earlier dataset and a generation of new inputs.

    Args:
        earlier: the manifest so far, or None before the first generation.
        content: content of the generation alone.
        name: name of the generation.
        tasks: number of its tasks.
        configuration: configuration with which it was made.
        tokenizer: fingerprint of the tokenizer.
        counts: fingerprint of the counts from which the tokenizer was trained, if known.
    """
    made = Generation(
        name=name,
        kind="base" if earlier is None else "added",
        tasks=tasks,
        configuration_fingerprint=fingerprint(configuration),
        **_corpora(content),
    )
    if earlier is None:
        return TokensManifest.seal(
            configuration,
            tokenizer=tokenizer,
            counts=counts,
            generations=[made],
            **content.fields(),
        )
    grown = with_policy(configuration, policy_of(earlier.configuration))
    if grown != configuration:
        made = Generation(**made.to_json(), policy=policy_of(configuration))
    of_sources = {source.name: DocumentTotals() for source in content.sources}
    for source in (*earlier.sources, *content.sources):
        of_sources.setdefault(source.name, DocumentTotals()).add(source.document_totals())
    return TokensManifest.seal(
        grown,
        tokenizer=tokenizer,
        counts=counts,
        generations=[*earlier.generations, made],
        **sum_content(of_sources, [*earlier.inputs, *content.inputs], earlier, content).fields(),
    )


def sum_content(
    of_sources: Mapping[str | None, DocumentTotals],
    inputs: list[InputEntry],
    earlier: GenerationContent,
    content: GenerationContent,
    superseded: Sequence[str] = (),
) -> GenerationContent:
    """Return the content of a dataset that a generation was added to.

    Args:
        of_sources: totals of all sources, by name.
        inputs: all input files.
        earlier: content before the generation was added.
        content: content of the generation.
        superseded: earlier files of rejects that are replaced by those of the generation.
    """
    totals = DocumentTotals.sum_of(of_sources.values())
    before, added = earlier.totals, content.totals
    rejects = [file for file in earlier.files.rejects if file.name not in superseded]
    return GenerationContent(
        inputs=inputs,
        sources=_source_entries(of_sources, inputs),
        corpus=totals.corpus_fingerprint,
        files=DatasetFiles(
            train=[*earlier.files.train, *content.files.train],
            validation=[*earlier.files.validation, *content.files.validation],
            rejects=[*rejects, *content.files.rejects],
            statistics=[*earlier.files.statistics, *content.files.statistics],
        ),
        totals=TokensTotals(
            train_rows=before.train_rows + added.train_rows,
            validation_rows=before.validation_rows + added.validation_rows,
            tokens=before.tokens + added.tokens,
            text_bytes=before.text_bytes + added.text_bytes,
            **totals.to_json(),
        ),
    )


def _source_entries(
    of_sources: Mapping[str | None, DocumentTotals], inputs: Iterable[InputEntry]
) -> list[SourceEntry]:
    planned: dict[str | None, int | None] = dict.fromkeys(of_sources, 0)
    for file in inputs:
        name = None if None in of_sources else file.name.partition("/")[0]
        sum_ = planned[name]
        planned[name] = (
            None if sum_ is None or file.planned_bytes is None else (sum_ + file.planned_bytes)
        )
    return [
        SourceEntry(name=name, planned_bytes=planned[name], **totals.to_json())
        for name, totals in of_sources.items()
    ]


def possible_corpora(content: TokensManifest) -> set[str]:
    """Return the corpora that counting the files of a dataset may have found.

    Either the documents that the files had when they were encoded, or those that they have with
    repaired files and by the policies of replays. The policy on special tokens acts in encoding
    alone, so counting includes the documents that encoding rejects for them: `refused` of an input
    file is their number and sum of hashes, `corpus_read` of a generation the corpus with them.
    """
    as_read = [
        made.corpus if made.corpus_read is None else made.corpus_read
        for made in content.generations
        if made.kind != "replay"
    ]
    as_now = [made.corpus for made in content.generations] + _refused(content.inputs)
    return {DocumentTotals.of_corpora(parts).corpus_fingerprint for parts in (as_read, as_now)}


def _corpora(content: GenerationContent) -> dict[str, Any]:
    """Return the corpus of a generation and, if documents were refused, the corpus with them."""
    refused = _refused(content.inputs)
    as_read = DocumentTotals.of_corpora([content.corpus, *refused]).corpus_fingerprint
    return {"corpus": content.corpus, **present(corpus_read=as_read if refused else None)}


def _refused(inputs: Iterable[InputEntry]) -> list[str]:
    return [file.refused for file in inputs if file.refused is not None]


# --- files -----------------------------------------------------------------------------------


def generation_of(name: str) -> str:
    """Return the name of the generation that a file of the dataset belongs to.

    >>> generation_of("train-add001-00000-of-00007.parquet")
    'add001'
    """
    found = re.search(r"add\d+", name)
    return found[0] if found else BASE


def record_of(manifest: TokensManifest, file: str) -> Generation:
    """Return the generation that a file of the dataset belongs to.

    Raises:
        InputError: the manifest does not list it.
    """
    name = generation_of(file)
    for generation in manifest.generations:
        if generation.name == name:
            return generation
    raise InputError(f"The manifest does not list {name}, the generation of the file.")


def patterns_of_listed(manifest: TokensManifest) -> tuple[str, str]:
    """Return regexes of the listed files in `tokens/` and in `rejects/`."""
    names: dict[str, list[str]] = {"tokens": [], "rejects": []}
    for directory, file in manifest.listed_files():
        names[directory].append(re.escape(file.name))
    return "|".join(names["tokens"]), "|".join(names["rejects"])


def patterns_of_tasks(tasks: int | None) -> tuple[str, str]:
    """Return regexes of the files of a number of tasks, in `tokens/` and in `rejects/`.

    Without a number they match the files of any tasks, also of later generations.
    """
    if tasks is None:
        return f"{TOKEN_FILE.pattern}|{STATISTICS_FILE.pattern}", REJECT_FILE.pattern
    of = f"{tasks:05d}"
    return (
        rf"(train|validation)-\d+-of-{of}\.parquet|statistics\.parquet",
        rf"\d+-of-{of}\.parquet",
    )


def find_unlisted(
    tokens: Directory, rejects: Directory, manifest: TokensManifest, keep: Iterable[str] = ()
) -> list[tuple[Directory, list[str]]]:
    """Return files of the next, unfinished generation, and superseded files of rejects.

    Files of an unfinished generation have its name, and a footer that only builds write.

    Args:
        tokens, rejects: the directories.
        manifest: manifest of the token files.
        keep: names of files of finished tasks of the current generation.

    Returns:
        Names of files by directory.
    """
    known = {file.name for _, file in manifest.listed_files()}.union(keep)
    unfinished = next_name(manifest)
    superseded = {name for made in manifest.generations for name in made.of or ()}

    def find(directory: Directory, form: str) -> list[str]:
        others = sorted(directory.sizes().keys() - known)
        named = [
            name
            for name in others
            if re.fullmatch(form, name) and generation_of(name) == unfinished
        ]
        with ThreadPoolExecutor(_READS_AT_ONCE) as threads:
            ours = list(threads.map(partial(is_of_a_build, directory), named))
        gone = superseded.intersection(others) if directory is rejects else set()
        return sorted({*gone, *compress(named, ours)})

    found = [
        (tokens, find(tokens, f"{TOKEN_FILE.pattern}|{STATISTICS_FILE.pattern}")),
        (rejects, find(rejects, REJECT_FILE.pattern)),
    ]
    return [(directory, names) for directory, names in found if names]


def remove(unlisted: Iterable[tuple[Directory, Sequence[str]]]) -> None:
    """Remove the files that `find_unlisted` returned."""
    for directory, names in unlisted:
        directory.remove_files(names)
