"""Generations of a dataset: what was encoded at once, and the dataset that they add up to.

The first one is `base`; input files that are added later, and rejects that are encoded after all,
make `add001`, `add002`, …. Files of earlier generations keep their names and their bytes. The
manifest lists the generations in order, and is replaced as the last step of each: until then the
dataset is the earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.errors import InputError
from pipelines.manifest.names import BASE, REJECT_FILE, STATISTICS_FILE, TOKEN_FILE

if TYPE_CHECKING:
    from pipelines.storage.directory import Directory

# Of the configuration: what decides which documents are rejected, and nothing else.
POLICY: Final[Mapping[str, frozenset[str]]] = {
    "input": frozenset({"invalid_utf8", "max_document_bytes"}),
    "encode": frozenset({"special_tokens_in_text"}),
}
_READS_AT_ONCE: Final = 16
_ROW_TOTALS: Final = ("train_rows", "validation_rows", "tokens", "text_bytes")


def next_name(manifest: Mapping[str, Any]) -> str:
    """The name of the generation that follows those of a manifest.

    >>> next_name({"generations": [{"name": "base"}, {"name": "add001"}]})
    'add002'
    """
    return f"add{len(manifest['generations']):03d}"


def record(name: str, kind: str, *, tasks: int, fingerprint: str, **more: Any) -> dict[str, Any]:
    """A generation as the manifest lists it.

    Args:
        name: "base", "add001", ….
        kind: "base", "added" (further input files) or "replay" (rejects).
        tasks: number of its tasks, of which each has its files.
        fingerprint: of the configuration that its files name.
        more: what else there is to say of its kind.
    """
    return {
        "name": name,
        "kind": kind,
        "tasks": tasks,
        "configuration_fingerprint": fingerprint,
        **more,
    }


# --- configurations --------------------------------------------------------------------------


def policy_of(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration that decides which documents are rejected."""
    return {
        "input": {
            # Names in JSON are texts; an only source may have none.
            source["name"] or "": {k: v for k, v in source.items() if k in POLICY["input"]}
            for source in configuration["input"]
        },
        "encode": {k: v for k, v in configuration["encode"].items() if k in POLICY["encode"]},
    }


def with_policy(configuration: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with another policy; sources that this does not name keep theirs."""
    return {
        **configuration,
        "input": [
            {**source, **policy["input"].get(source["name"] or "", {})}
            for source in configuration["input"]
        ],
        "encode": {**configuration["encode"], **policy["encode"]},
    }


def policies(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The policies that generations were made with, that of the first one first."""
    first = policy_of(manifest["configuration"])
    later = [g["policy"] for g in manifest.get("generations", ()) if "policy" in g]
    return [first, *later]


def policy_of_generation(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The policy that a generation was made with."""
    first = policy_of(manifest["configuration"])
    [found] = [g.get("policy", first) for g in manifest["generations"] if g["name"] == name]
    return dict(found)


def without_files(
    configuration: Mapping[str, Any], sources: Iterable[str | None]
) -> dict[str, Any]:
    """The configuration as far as it decides what becomes of the files of these sources."""
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


def content_of(
    earlier: Mapping[str, Any] | None,
    content: Mapping[str, Any],
    name: str,
    tasks: int,
    configuration: Mapping[str, Any],
) -> dict[str, Any]:
    """The part of the manifest that an earlier one and the files of a generation add up to.

    Args:
        earlier: the manifest so far; None before the first generation.
        content: what the generation alone would state, its inputs new ones.
        name: of the generation.
        tasks: number of its tasks.
        configuration: that it was made with.
    """
    made_by = fingerprint(configuration)
    if earlier is None:
        found = _corpora_of_generation(content)
        of_base = record(name, "base", tasks=tasks, fingerprint=made_by, **found)
        return {**content, "generations": [of_base]}
    policy = policy_of(configuration)
    first = policies(earlier)[0]
    of_sources = {part["name"]: DocumentTotals() for part in content["sources"]}
    for part in (*earlier["sources"], *content["sources"]):
        of_sources.setdefault(part["name"], DocumentTotals()).add(DocumentTotals.from_json(part))
    inputs = [*earlier["inputs"], *content["inputs"]]
    grown = with_policy(configuration, first)
    return {
        "configuration": grown,
        "configuration_fingerprint": fingerprint(grown),
        "inputs": inputs,
        "sources": sources_of(of_sources, inputs),
        "files": {
            kind: [*earlier["files"][kind], *files] for kind, files in content["files"].items()
        },
        "generations": [
            *earlier["generations"],
            record(
                name,
                "added",
                tasks=tasks,
                fingerprint=made_by,
                **_corpora_of_generation(content),
                **({} if grown == configuration else {"policy": policy}),
            ),
        ],
        **sums(of_sources.values(), [earlier["totals"], content["totals"]]),
    }


def sources_of(
    totals: Mapping[str | None, DocumentTotals], inputs: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """`sources` of a manifest, from their totals and the input files."""
    planned: dict[str | None, int | None] = dict.fromkeys(totals, 0)
    for file in inputs:
        name = None if None in totals else file["name"].partition("/")[0]
        sum_, of_file = planned[name], file["planned_bytes"]
        planned[name] = None if sum_ is None or of_file is None else sum_ + of_file
    return [
        {"name": name, "planned_bytes": planned[name], **of.to_json()}
        for name, of in totals.items()
    ]


def sums(
    of_sources: Iterable[DocumentTotals], parts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """`corpus` and `totals` of a manifest, from totals of its sources and of its generations."""
    totals = DocumentTotals.sum_of(of_sources)
    rows = {name: sum(part[name] for part in parts) for name in _ROW_TOTALS}
    return {"corpus": totals.corpus_fingerprint, "totals": {**totals.to_json(), **rows}}


def corpora(content: Mapping[str, Any]) -> set[str]:
    """What counting the files of a dataset may have found: without the replayed rejects, or with.

    With them if the repaired files have taken the place of the others, or by the later policy.
    Documents that encoding refuses for their special tokens are counted.
    """
    as_read = [
        g.get("corpus_read", g["corpus"]) for g in content["generations"] if g["kind"] != "replay"
    ]
    as_now = [g["corpus"] for g in content["generations"]] + _refused(content["inputs"])
    return {DocumentTotals.of_corpora(parts).corpus_fingerprint for parts in (as_read, as_now)}


def _corpora_of_generation(content: Mapping[str, Any]) -> dict[str, str]:
    """Of a record: the documents kept and, if others were refused, those with them."""
    corpus, refused = content["corpus"], _refused(content["inputs"])
    if not refused:
        return {"corpus": corpus}
    as_read = DocumentTotals.of_corpora([corpus, *refused])
    return {"corpus": corpus, "corpus_read": as_read.corpus_fingerprint}


def _refused(inputs: Iterable[Mapping[str, Any]]) -> list[str]:
    return [file["refused"] for file in inputs if "refused" in file]


# --- files -----------------------------------------------------------------------------------


def generation_of(name: str) -> str:
    """The generation that a file of the dataset belongs to, by its name.

    >>> generation_of("train-add001-00000-of-00007.parquet")
    'add001'
    """
    found = re.search(r"add\d+", name)
    return found[0] if found else BASE


def record_of(manifest: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """What a manifest says of the generation of a file.

    Raises:
        InputError: it does not list the generation.
    """
    name = generation_of(file)
    for generation in manifest["generations"]:
        if generation["name"] == name:
            found: Mapping[str, Any] = generation
            return found
    raise InputError(f"The manifest does not list {name}, the generation of the file.")


def names_of(found: Mapping[str, Any]) -> tuple[str, str]:
    """Regexes of the names of token files and statistics, and of rejects, that a build has made.

    They match what a manifest lists or, of a build that was begun, the files of its tasks.

    Args:
        found: the manifest, or what was stated when the build began.
    """
    files, tasks = found.get("files"), found.get("tasks")
    if isinstance(files, Mapping):
        listed = [
            file["name"] for kind in ("train", "validation", "statistics") for file in files[kind]
        ]
        in_rejects = [file["name"] for file in files["rejects"]]
        return "|".join(map(re.escape, listed)), "|".join(map(re.escape, in_rejects))
    of = f"{tasks:05d}" if isinstance(tasks, int) else r"\d{5,}"
    return (
        rf"(train|validation)-\d+-of-{of}\.parquet|statistics\.parquet",
        rf"\d+-of-{of}\.parquet",
    )


def unlisted(
    tokens: Directory,
    rejects: Directory,
    manifest: Mapping[str, Any],
    keep: Iterable[Mapping[str, Any]] = (),
) -> list[tuple[Directory, list[str]]]:
    """Files that the manifest does not list: of an unfinished generation after it, or superseded.

    Those of an unfinished one have its name, and say in their footers that a build wrote them.

    Args:
        tokens, rejects: the directories.
        manifest: of the token files.
        keep: entries of finished tasks of a generation that is being made.
    """
    from pipelines.storage.parquet import is_of_a_build

    files, entries = manifest["files"], list(keep)
    begun = next_name(manifest)
    gone = {name for generation in manifest["generations"] for name in generation.get("of") or ()}

    def others(directory: Directory, form: re.Pattern[str], kinds: Sequence[str]) -> list[str]:
        known = {file["name"] for kind in kinds for file in files[kind]}
        known |= {entry[kind]["name"] for entry in entries for kind in kinds if entry[kind]}
        named = sorted(directory.sizes().keys() - known)
        left = [n for n in named if form.fullmatch(n) and generation_of(n) == begun]
        with ThreadPoolExecutor(_READS_AT_ONCE) as threads:
            ours = list(threads.map(partial(is_of_a_build, directory), left))
        superseded = gone.intersection(named) if directory is rejects else set()
        return sorted({*superseded, *compress(left, ours)})

    in_tokens = re.compile(f"{TOKEN_FILE.pattern}|{STATISTICS_FILE.pattern}")
    found = [
        (tokens, others(tokens, in_tokens, ("train", "validation", "statistics"))),
        (rejects, others(rejects, REJECT_FILE, ("rejects",))),
    ]
    return [(directory, names) for directory, names in found if names]


def remove(unlisted: Iterable[tuple[Directory, Sequence[str]]]) -> None:
    """Removes files that `unlisted` found."""
    for directory, names in unlisted:
        directory.remove_files(names)
