"""Exports to a directory, or to a dataset of the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.config import BeamConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import export, format_export, read_storage_options
from pipelines.exports.formats import ExportOptions
from pipelines.exports.hub import export_to_hub
from pipelines.storage.directory import Directory
from pipelines.storage.hub import Repository, is_hub


def export_dataset(
    output: str,
    destination: str,
    options: ExportOptions,
    storage_options: str | None = None,
    *,
    restart: bool = False,
    beam: BeamConfig | None = None,
    beam_args: Sequence[str] = (),
) -> str:
    """Export the output of a build, given by its path or URL. Return the text for the terminal.

    Args:
        output: The output.
        destination: The directory to write to, or `hf://datasets/ORG/NAME[@BRANCH][/FOLDER]`.
        options: Splits, format and options of the format.
        storage_options: Options of the file system of both, as JSON. A local one has none.
        restart, beam, beam_args: See `export`.
    """
    remote = read_storage_options(storage_options)
    source = Directory.given(output, remote)
    dataset = TokenDataset.open(output, source.storage_options)
    if is_hub(destination):
        repository = Repository.parse(destination, "dataset")
        exported = export_to_hub(
            dataset, repository, options, remote, restart=restart, beam=beam, beam_args=beam_args
        )
        return format_export(exported)
    directory = Directory.given(destination, remote)
    exported = export(dataset, directory, options, restart=restart, beam=beam, beam_args=beam_args)
    return format_export(exported)
