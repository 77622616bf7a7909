"""The records of a stage, compared with a configuration and its inputs.

Records contain the canonical configuration and the inputs, so that the output of another
configuration is never mixed in. Beside configurations, names and sizes of inputs are compared and,
if this machine has recorded them, version tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipelines.config.fingerprints import Difference, differences
from pipelines.errors import DifferentConfigurationError, shortened
from pipelines.manifest import generations
from pipelines.manifest.models import Manifest, TokensManifest
from pipelines.manifest.names import PLAN
from pipelines.manifest.run_record import RunRecord, StagePlan
from pipelines.manifest.stage import COUNT, Identity, ManifestT, Stage
from pipelines.manifest.stage_advice import choices_after_adding, how_to_redo
from pipelines.manifest.stage_records import (
    check_present,
    has_finished_work,
    load_manifest,
    load_plan,
    unrecorded_files,
)
from pipelines.storage.directory import Directory

_DIFFERENCES_SHOWN: Final = 12


def find_finished_manifest(
    stage: Stage[ManifestT], directory: Directory, identity: Identity, *, command: str | None = None
) -> ManifestT | None:
    """Return the manifest of a finished stage, or None if the stage is unfinished.

    Args:
        stage: the stage to look for.
        directory: directory of the stage.
        identity: required identity. A stage that may grow may have fewer inputs.
        command: command that the user ran, for hints; None for that of the stage.

    Raises:
        DifferentConfigurationError: the stage has another configuration or other inputs.
        OutputError: the directory has files that no build wrote, lacks files of the manifest, or
            has a damaged record.
    """
    manifest = load_manifest(stage, directory, command=command)
    if manifest is not None:
        may_grow = stage.may_grow
        _check_same(stage, directory, manifest, identity, may_grow=may_grow, command=command)
        check_present(stage, directory, manifest, command)
        return manifest
    plan = load_plan(stage, directory, command=command)
    if plan is not None and is_bound(stage, directory, plan, identity):
        _check_same(stage, directory, plan, identity, may_grow=False, command=command)
    elif plan is None and PLAN not in directory.sizes():
        there = sorted(n for n in directory.sizes() if not n.startswith((".", "_")))
        if there:
            raise unrecorded_files(stage, directory, there, command)
    return None


def is_bound(
    stage: Stage[ManifestT], directory: Directory, plan: StagePlan | ManifestT, identity: Identity
) -> bool:
    """Return True unless an unfinished stage may begin again with this other identity.

    It may if it has finished nothing. `plan` is what `load_plan` returned.
    """
    if not isinstance(plan, StagePlan) or has_finished_work(stage, directory):
        return True
    return not _differs(directory, plan, identity)


def check_replayable(
    tokens: Directory, manifest: TokensManifest, configuration: Mapping[str, Any]
) -> None:
    """Check that a configuration is that of a dataset, apart from the policy on rejects.

    Raises:
        DifferentConfigurationError: it differs in other keys.
    """
    known = {source["name"] for source in manifest.configured_sources}
    now = generations.without_files(configuration, known)
    was = generations.without_files(manifest.configuration, known)
    changed = differences(generations.with_policy(was, generations.policy_of(now)), now)
    if not changed:
        return
    keys = sorted(
        f"{section}.{key}" for section, policy in generations.POLICY.items() for key in policy
    )
    raise DifferentConfigurationError(
        "Rejects are replayed into a dataset of another configuration; nothing was changed.",
        expected=f"differences in {', '.join(keys)} alone",
        found="these differences (there → now)\n    " + "\n    ".join(map(str, changed)),
        where=tokens.url,
        hint="Go back to the configuration of the dataset.",
    )


def _check_same(
    stage: Stage[ManifestT],
    directory: Directory,
    found: StagePlan | ManifestT,
    identity: Identity,
    *,
    may_grow: bool,
    command: str | None,
) -> None:
    inputs = found.input_sizes
    configuration = [str(d) for d in _changed_configuration(found, identity.configuration)]
    changed = list(_changed_inputs(directory, found, identity))
    added = [label for label in identity.inputs if label not in inputs]
    if added and (not configuration or _is_grown(found, identity.configuration)):
        configuration = []
        if may_grow and not changed:
            return
    if not (configuration or changed or added):
        return
    shown = sorted(
        [
            *changed,
            *(f'input {label}: not set → "{identity.inputs[label]} bytes"' for label in added),
        ]
    )
    differing = [*configuration, *shown]
    raise DifferentConfigurationError(
        "The output belongs to another configuration or other inputs; nothing was changed.",
        found="these differences (there → now)\n    "
        + shortened(differing, _DIFFERENCES_SHOWN, separator="\n    "),
        where=directory.url,
        hint=choices_after_adding(directory)
        if added and not configuration and not changed and stage == COUNT
        else "Choose another output, go back to the old configuration and restore the inputs, or "
        f"{how_to_redo(stage, directory, command)}.",
    )


def _differs(directory: Directory, found: StagePlan, identity: Identity) -> bool:
    return bool(
        found.inputs.keys() != identity.inputs.keys()
        or _changed_configuration(found, identity.configuration)
        or any(_changed_inputs(directory, found, identity))
    )


def _changed_configuration(
    found: StagePlan | Manifest, configuration: Mapping[str, Any]
) -> list[Difference]:
    """Return the differences from a stage's configuration, none if a generation of it has this one.

    A replay of rejects gives its generation a policy of its own.
    """
    replayed = generations.replay_policies(found) if isinstance(found, TokensManifest) else []
    there = found.configuration
    if any(not differences(generations.with_policy(there, p), configuration) for p in replayed):
        return []
    return differences(there, configuration)


def _is_grown(found: StagePlan | Manifest, configuration: Mapping[str, Any]) -> bool:
    """Return True if a configuration only adds sources and patterns of files."""
    if "input" not in found.configuration:
        return False
    known = [source["name"] for source in found.configuration["input"]]
    there = generations.without_files(found.configuration, known)
    return not _changed_configuration(
        found.model_copy(update={"configuration": there}),
        generations.without_files(configuration, known),
    )


def _changed_inputs(
    directory: Directory, found: StagePlan | Manifest, identity: Identity
) -> Iterator[str]:
    """Describe the inputs that are gone or that have changed."""
    return (text for _, text in _find_changed(directory, found, identity))


def _find_changed(
    directory: Directory, found: StagePlan | Manifest, identity: Identity
) -> Iterator[tuple[str, str]]:
    """Yield the label of each input that is gone or has changed, and a description."""
    run = RunRecord.load(directory)
    marks = {} if run is None else run.marks
    repaired_marks = {} if run is None else run.repaired_marks
    if isinstance(found, StagePlan) and found.marks:
        marks = found.marks
    for label, sizes in found.input_sizes.items():
        size, version_tag = identity.inputs.get(label), identity.marks.get(label)
        if size is None:
            yield label, f'input {label}: "{sizes[0]} bytes" → not set'
        elif size not in sizes:
            yield label, f'input {label}: "{sizes[0]} bytes" → "{size} bytes"'
        elif version_tag not in (
            *([marks.get(label, version_tag)] if size == sizes[0] else []),
            *([repaired_marks.get(label, version_tag)] if size in sizes[1:] else []),
        ):
            yield (
                label,
                f"input {label}: as large as before, but changed since "
                f"({marks.get(label)} → {version_tag})",
            )


def find_input_changes(
    directory: Directory, manifest: Manifest, identity: Identity
) -> tuple[list[str], list[str]]:
    """Return the labels of inputs to add to a finished stage and to remove; changed ones are both.

    Raises:
        DifferentConfigurationError: more than files of its sources and numbers of shards differ.
    """
    known = [source["name"] for source in manifest.configuration["input"]]
    was = generations.without_files(manifest.configuration, known)
    now = generations.without_files(identity.configuration, known)
    if len(identity.configuration["input"]) != len(known):
        now = {**now, "input": identity.configuration["input"]}
    counts = {**was["counts"], "shards": now["counts"]["shards"]}
    if changed := differences({**was, "counts": counts}, now):
        raise DifferentConfigurationError(
            "Only files can be updated; nothing was changed.",
            expected="differences in the files of the same sources alone",
            found="these differences (there → now)\n    "
            + shortened(list(map(str, changed)), _DIFFERENCES_SHOWN, separator="\n    "),
            where=directory.url,
            hint="Count again: `beam-bpe count CONFIG --restart`.",
        )
    removed = [label for label, _ in _find_changed(directory, manifest, identity)]
    there = manifest.input_sizes.keys() - set(removed)
    return [label for label in identity.inputs if label not in there], removed
