"""llm.c: the ids of a split in files of at most `max_tokens` ids, each with a header.

The header is 256 int32; the first are a magic number, a version and the number of ids. There are
two kinds: GPT-2's with uint16 ids and Llama 3's with uint32 (`write_datafile` in llm.c's
`dev/data/data_common.py`). The end of a file may cut a document.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import ConfigError
from pipelines.exports.files import ExportFiles, FormatOptions, IdStream, Written, write_array

_NAMES: Final = {"train": "train", "validation": "val"}
# Magic number and version, by the type of the ids.
_KINDS: Final = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
_HEADER_INTS: Final = 256
_MOST_TOKENS: Final = 2**31 - 1


def write_split(
    dataset: TokenDataset, split: str, files: ExportFiles, options: FormatOptions
) -> Written:
    """Write the files of a split: `train_000000.bin`, …."""
    most = options["max_tokens"]
    if most > _MOST_TOKENS:
        raise ConfigError(
            "The header of a file cannot represent this number of ids.",
            expected=f"at most {_MOST_TOKENS:,}",
            found=f"--max-tokens {most}",
        )
    total = dataset.num_tokens(split)
    ids = IdStream(dataset, split, np.dtype(options["id_type"]))
    numbers = range(max(1, -(-total // most)))
    for number in numbers:
        tokens = min(most, total - number * most)
        with files.write(f"{_NAMES[split]}_{number:06d}.bin") as file:
            header = np.zeros(_HEADER_INTS, np.int32)
            header[:3] = (*_KINDS[options["id_type"]], tokens)
            write_array(file, header)
            for chunk in ids.read(tokens):
                write_array(file, chunk)
                progress.advance(len(chunk))
    return ids.finish(files=len(numbers))
