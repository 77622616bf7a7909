"""Options of a pipeline: what goes with its runner, and with each other."""

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
from pipelines.runners.spec import PLACE_OF_OPTIONS, Kind
from pipelines.storage.filesystems import split_chain

KINDS: Final[Mapping[str, Kind]] = {
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
    """The options of a pipeline.

    Raises:
        ConfigError: one that Beam does not know, that has a wrong value, or that does not go with
            the runner, with where the data are or, with `no_wait`, with leaving the job.
    """
    kind = KINDS[config.runner]
    given = {**kind.defaults(config, beam_args), **config.options}
    known = PipelineOptions([]).get_all_options()
    options = PipelineOptions([*_flags(given, known), *beam_args])
    asked = _parsed(options)
    if unknown := sorted(asked.keys() - known.keys()):
        raise ConfigError(
            "An option is none of Beam's.",
            found=", ".join(f"--{name}" for name in unknown),
            where=PLACE_OF_OPTIONS,
            hint="See the pipeline options of Apache Beam; keys of the configuration are "
            "overridden with --set.",
        )
    if asked["runner"] not in (None, config.runner):
        raise ConfigError(
            "The runner is not one of the options.",
            expected=f"{config.runner}, as beam.runner says",
            found=f"--runner={asked['runner']}",
            where=PLACE_OF_OPTIONS,
            hint="Remove it, or change beam.runner.",
        )
    kind.check(config, asked)
    if no_wait:
        check_detaches(config, options)
    if (reason := kind.elsewhere(asked)) is not None:
        _check_reachable(config, places, reason)
    if config.workers and kind.decides_workers:
        raise ConfigError(
            "beam.workers has no effect on this runner.",
            expected=f"0 (the default) for {config.runner}, whose engine decides how much it does "
            "at a time",
            found=str(config.workers),
            where="beam.workers",
            hint="Leave it out, and set what the engine knows in beam.options.",
        )
    return options


def workers_of(config: BeamConfig, options: PipelineOptions) -> int | None:
    """How many workers a pipeline with these options has; None: its engine decides.

    >>> config = BeamConfig(workers=3)
    >>> workers_of(config, options_of(config, ["--direct_num_workers=2"]))
    2
    """
    return KINDS[config.runner].workers(options.get_all_options())


def check_waits(options: PipelineOptions) -> None:
    """A build goes on from what a pipeline has written, so it must wait for its end.

    Raises:
        ConfigError: an option would have it go on before.
    """
    asked = options.get_all_options()
    found = [name for name in _NOT_WAITING if asked.get(name)]
    if found:
        raise ConfigError(
            "A build must wait for its pipelines, which these options do not let run to their end.",
            expected="no " + ", ".join(f"--{name}" for name in _NOT_WAITING),
            found=", ".join(f"--{name}" for name in found),
            where=PLACE_OF_OPTIONS,
            hint="Remove them, and let the command run until the build is finished; or submit its "
            "pipelines with --no-wait.",
        )


def check_detaches(config: BeamConfig, options: PipelineOptions) -> None:
    """With --no-wait a job must live on when the command has left.

    Raises:
        ConfigError: it would not, or an option says something else of waiting.
    """
    asked = options.get_all_options()
    kind = KINDS[config.runner]
    found = kind.held_here(asked)
    if kind.job_of is None or found is not None:
        raise ConfigError(
            "With --no-wait a job goes on without the command, which this one can't.",
            expected="FlinkRunner or PortableRunner with a cluster or job server of its own and "
            "workers beside it, or DataflowRunner",
            found=found or f"{config.runner}, which works in processes of the command",
            where=f"beam.runner; {PLACE_OF_OPTIONS}",
            hint="Leave out --no-wait, or change where the job runs.",
        )
    others = [name for name in _NOT_WAITING if name != TEMPLATE and asked.get(name)]
    if others:
        raise ConfigError(
            "Whether the command waits is said twice.",
            expected="--no-wait alone",
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
            "Workers elsewhere can't reach a path of this machine.",
            expected="URLs of a storage that all workers reach, such as s3://bucket/folder",
            found=place,
            where=f"beam.runner: {config.runner}, with {reason}",
            hint="Use an object store; for a folder that is mounted alike on every machine, and in "
            "every container, write file:///path.",
        )


def _parsed(options: PipelineOptions) -> dict[str, Any]:
    """All options with their values."""
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
    """Beam's parser would print its long usage, and leave."""
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
    """What says no to Beam: nothing where it says no by itself, else another flag."""
    if name not in known and name.removeprefix("no_") not in known:
        yield f"--{name}=false"  # to be refused
        return
    flag = f"--no_{name}"
    without = PipelineOptions([flag]).get_all_options(retain_unknown_options=True)
    if without.get(name) != known.get(name):
        yield flag
