"""Options of a pipeline, checked against its runner and against each other."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.config import BeamConfig
from pipelines.config.values import is_url
from pipelines.errors import ConfigError
from pipelines.runners.dataflow import DATAFLOW, TEMPLATE
from pipelines.runners.direct import DIRECT
from pipelines.runners.flink import FLINK
from pipelines.runners.portable import PORTABLE
from pipelines.runners.prism import PRISM
from pipelines.runners.spec import PLACE_OF_OPTIONS, RunnerSpec
from pipelines.storage.filesystems import split_chain

RUNNERS: Final[Mapping[str, RunnerSpec]] = {
    "DirectRunner": DIRECT,
    "FlinkRunner": FLINK,
    "PrismRunner": PRISM,
    "PortableRunner": PORTABLE,
    "DataflowRunner": DATAFLOW,
}

_NOT_WAITING: Final = (
    TEMPLATE,
    "dry_run",
    "no_wait_until_finish",
    "output_executable_path",
    "wait_until_finish_duration",
)


def options_of(
    config: BeamConfig,
    beam_args: Sequence[str] = (),
    places: Sequence[str] = (),
    *,
    no_wait: bool = False,
) -> PipelineOptions:
    """Return the options of a pipeline.

    Raises:
        ConfigError: An option is unknown, has a wrong value, or does not fit the runner, the
            location of the data or, with `no_wait`, a job that outlives the launcher.
    """
    spec = RUNNERS[config.runner]
    given = {**spec.defaults(config, beam_args), **config.options}
    known = PipelineOptions([]).get_all_options()
    options = PipelineOptions([*_flags(given, known), *beam_args])
    asked = _parsed(options)
    if unknown := sorted(asked.keys() - known.keys()):
        raise ConfigError(
            "Unknown Beam option.",
            found=", ".join(f"--{name}" for name in unknown),
            where=PLACE_OF_OPTIONS,
            hint="See the pipeline options of Apache Beam. Keys of the configuration are "
            "overridden with --set.",
        )
    if asked["runner"] not in (None, config.runner):
        raise ConfigError(
            "--runner conflicts with beam.runner.",
            expected=f"{config.runner}, the value of beam.runner",
            found=f"--runner={asked['runner']}",
            where=PLACE_OF_OPTIONS,
            hint="Remove it, or change beam.runner.",
        )
    spec.check(config, asked)
    if no_wait:
        check_detaches(config, options)
    if (reason := spec.elsewhere(asked)) is not None:
        _check_reachable(config, places, reason)
    if config.workers and spec.decides_workers:
        raise ConfigError(
            "beam.workers has no effect on this runner.",
            expected=f"0 (the default) for {config.runner}, whose engine decides how many tasks "
            "run "
            "at once",
            found=str(config.workers),
            where="beam.workers",
            hint="Remove it, and set the engine's own options in beam.options.",
        )
    return options


def workers_of(config: BeamConfig, options: PipelineOptions) -> int | None:
    """Return the number of workers with these options, or None if the engine decides.

    >>> config = BeamConfig(workers=3)
    >>> workers_of(config, options_of(config, ["--direct_num_workers=2"]))
    2
    """
    return RUNNERS[config.runner].workers(options.get_all_options())


def check_waits(options: PipelineOptions) -> None:
    """Check that the launcher waits for the pipeline, whose output a build continues with.

    Raises:
        ConfigError: An option makes the launcher continue before the pipeline has ended.
    """
    asked = options.get_all_options()
    found = [name for name in _NOT_WAITING if asked.get(name)]
    if found:
        raise ConfigError(
            "A build must wait for its pipelines; with these options it would not.",
            expected="no " + ", ".join(f"--{name}" for name in _NOT_WAITING),
            found=", ".join(f"--{name}" for name in found),
            where=PLACE_OF_OPTIONS,
            hint="Remove them. To leave while the build runs, submit its pipelines with --no-wait.",
        )


def check_detaches(config: BeamConfig, options: PipelineOptions) -> None:
    """Check that a job started with --no-wait survives the end of the launcher.

    Raises:
        ConfigError: It does not, or another option also controls waiting.
    """
    asked = options.get_all_options()
    spec = RUNNERS[config.runner]
    found = spec.in_launcher(asked)
    if spec.job_of is None or found is not None:
        raise ConfigError(
            "With --no-wait a job must survive the end of the launcher; this one cannot.",
            expected="FlinkRunner or PortableRunner with a separate cluster or job server and "
            "separate workers, or DataflowRunner",
            found=found or f"{config.runner}, which works in processes of the launcher",
            where=f"beam.runner; {PLACE_OF_OPTIONS}",
            hint="Remove --no-wait, or change where the job runs.",
        )
    others = [name for name in _NOT_WAITING if name != TEMPLATE and asked.get(name)]
    if others:
        raise ConfigError(
            "--no-wait conflicts with a Beam option that also controls waiting.",
            expected="only --no-wait",
            found=", ".join(f"--{name}" for name in others),
            where=PLACE_OF_OPTIONS,
            hint="Remove them.",
        )


def _check_reachable(config: BeamConfig, places: Sequence[str], reason: str) -> None:
    for place in places:
        stored = split_chain(place)[-1]
        if is_url(stored) and not stored.startswith("memory://"):
            continue
        raise ConfigError(
            "Remote workers cannot reach a path of this machine.",
            expected="URLs of a storage that all workers can reach, such as s3://bucket/folder",
            found=place,
            where=f"beam.runner: {config.runner}, with {reason}",
            hint="Use an object store. If a folder is mounted at the same path on every machine "
            "and in "
            "every container, write file:///path.",
        )


def _parsed(options: PipelineOptions) -> dict[str, Any]:
    """Return all options with their values."""
    try:
        values: dict[str, Any] = options.get_all_options(
            retain_unknown_options=True, add_extra_args_fn=_raise_errors
        )
    except ArgumentError as error:
        raise ConfigError(
            "An option of Beam has a wrong value.", found=str(error), where=PLACE_OF_OPTIONS
        ) from None
    return values


def _raise_errors(parser: ArgumentParser) -> None:
    """Make Beam's parser raise errors; it would print its long usage and exit."""
    parser.exit_on_error = False


def _flags(options: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if any(isinstance(v, Mapping) for v in (value if isinstance(value, list) else [value])):
            raise ConfigError(
                "An option of Beam has a wrong value.",
                expected="a text, number, true, false, or a list of these; JSON as a text",
                found="a mapping",
                where=f"beam.options.{name}",
            )
        if value is True:
            yield f"--{name}"
        elif isinstance(value, list):
            yield from (f"--{name}={item}" for item in value)
        elif value is False:
            yield from _negated(name, known)
        elif value is not None:
            yield f"--{name}={value}"


def _negated(name: str, known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the flag that turns a Beam option off, or nothing if it is off by default."""
    if name not in known and name.removeprefix("no_") not in known:
        yield f"--{name}=false"  # Beam's parser refuses this value
        return
    flag = f"--no_{name}"
    without = PipelineOptions([flag]).get_all_options(retain_unknown_options=True)
    if without.get(name) != known.get(name):
        yield flag
