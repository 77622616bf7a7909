"""The stage after a command's last one, which may have made something of former results."""

from __future__ import annotations

from pipelines.config.fingerprints import tokens_configuration
from pipelines.counting.given import GivenCounts
from pipelines.counting.training import training_configuration
from pipelines.errors import PipelineError
from pipelines.manifest.stage import ENCODE, TRAIN
from pipelines.manifest.stage_records import load_declaration, load_manifest
from pipelines.stages.context import BuildContext


def outdates_following(context: BuildContext) -> bool:
    """Return True if the next stage has files that were made of something else than there is now.

    Only the commands `count` and `train` have a next stage.
    """
    output, config = context.output, context.config
    try:
        if context.command == "count":
            made = load_declaration(TRAIN, output.tokenizer)
            given = GivenCounts.find(output.root.url, output.root.storage_options)
            if made is None or given is None:
                return False
            return dict(made.configuration) != training_configuration(config, given)
        if context.command == "train":
            encoded = load_declaration(ENCODE, output.tokens)
            trained = load_manifest(TRAIN, output.tokenizer)
            if encoded is None or trained is None:
                return False
            [encoder] = [
                found.fingerprint
                for _, found in trained.of_all_sizes()
                if found.vocab_size_asked_for == config.encoded_vocab_size
            ]
            wanted = tokens_configuration(config, encoder)
            return any(encoded.configuration.get(key) != wanted[key] for key in wanted)
    except PipelineError:  # of damaged files, which the next command reports
        return False
    return False
