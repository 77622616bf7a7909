"""The effective configuration of a build, kept in its output for people and for comparison.

Fingerprints in the manifests decide what may be mixed. This file also has the keys without
influence on any output, and the defaults of the version that ran.
"""

from __future__ import annotations

from typing import Any, Final

from pipelines.config import BuildConfig
from pipelines.config.fingerprints import differences
from pipelines.errors import shortened
from pipelines.manifest.names import CONFIGURATION, MANIFEST
from pipelines.manifest.records import load_sealed, sealed
from pipelines.manifest.stage import STAGES
from pipelines.manifest.stage_writing import may_contain_credentials
from pipelines.redaction import REDACTED
from pipelines.storage.directory import Directory

_OPTIONS: Final[dict[str, Any]] = {
    "output_storage_options": True,
    "input": {"__all__": {"storage_options"}},
    "beam": {"options"},
}
_DIFFERENCES_SHOWN: Final = 6


def write_configuration(config: BuildConfig, output: Directory) -> None:
    """Write the effective configuration, without options of storage and of Beam."""
    output.create()
    output.write_json(CONFIGURATION, sealed(_effective(config)))


def describe_changes(config: BuildConfig, output: Directory) -> list[str]:
    """Return a warning if a configuration is not the one that an output was last written with."""
    if not any(MANIFEST in (output / stage.directory).sizes() for stage in STAGES):
        return []
    try:
        former = load_sealed(output.find_bytes(CONFIGURATION) or b"")
    except ValueError:  # missing or damaged; the next stage writes it
        return []
    former.pop("checksum")
    changed = [str(each) for each in differences(former, _effective(config))]
    if not changed:
        return []
    return [
        "the configuration is not the one that the output was last written with "
        f"({CONFIGURATION}): {shortened(changed, _DIFFERENCES_SHOWN, separator='; ')}"
    ]


def _effective(config: BuildConfig) -> dict[str, Any]:
    masked: dict[str, Any] = _mask(config.model_dump(mode="json", exclude=_OPTIONS))
    return masked


def _mask(value: Any) -> Any:
    """Return the value with URLs that may contain credentials replaced."""
    if isinstance(value, dict):
        return {key: _mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask(item) for item in value]
    if isinstance(value, str) and may_contain_credentials(value):
        return REDACTED
    return value
