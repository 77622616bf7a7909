"""The stages of a build, and all that decides the bytes of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from bpe_core.short_repr import short_repr
from pipelines.config.fingerprints import fingerprint
from pipelines.manifest.models import (
    CountsManifest,
    ImportedManifest,
    Manifest,
    StageDirectory,
    SuperwordsManifest,
    TokenizerManifest,
    TokensManifest,
)
from pipelines.tasks.plan import Plan

ManifestT = TypeVar("ManifestT", bound=Manifest)


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[ManifestT]):
    """A stage of a build.

    Attributes:
        name: in summaries and errors; also the name of its command.
        manifest: model of its manifest.
        may_grow: if inputs may be added to it when it is finished, as a further generation.
    """

    name: str
    manifest: type[ManifestT]
    may_grow: bool = False

    @property
    def directory(self) -> StageDirectory:
        """The name of its directory in the output."""
        return self.manifest.directory_name


COUNT: Final = Stage(name="count", manifest=CountsManifest)
SUPERWORDS: Final = Stage(name="superwords", manifest=SuperwordsManifest)  # a part of training
TRAIN: Final = Stage(name="train", manifest=TokenizerManifest)
IMPORT: Final = Stage(name="import", manifest=ImportedManifest)
ENCODE: Final = Stage(name="encode", manifest=TokensManifest, may_grow=True)
STAGES: Final[tuple[Stage[Any], ...]] = (COUNT, TRAIN, ENCODE)


@short_repr
@dataclass(frozen=True, kw_only=True)
class Identity:
    """All that decides the bytes of a stage's output.

    Attributes:
        configuration: in canonical form, without the keys that have no influence.
        inputs: size of each input file, by its label.
        marks: version tag (ETag or modification time) of each input file, by its label.
        locations: path or URL of each input file, by its label.
    """

    configuration: Mapping[str, Any]
    inputs: Mapping[str, int]
    marks: Mapping[str, str]
    locations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, configuration: Mapping[str, Any], plan: Plan) -> Identity:
        """Return the identity of a stage with this configuration and the inputs of a plan."""
        return cls(
            configuration=configuration,
            inputs={file.label: file.size for file in plan.files},
            marks={file.label: file.version_tag for file in plan.files},
            locations={file.label: file.url for file in plan.files},
        )

    @property
    def configuration_fingerprint(self) -> str:
        """The fingerprint of the configuration alone."""
        return fingerprint(self.configuration)
