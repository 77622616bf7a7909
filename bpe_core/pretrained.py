"""Tokenizers of repositories on the Hugging Face Hub."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from bpe_core.errors import FormatError
from bpe_core.formats.detection import names_of_tokenizer
from bpe_core.formats.ranks_config import CONFIG
from bpe_core.formats.reading import merges_name
from bpe_core.hub_errors import hub_error

__all__ = ["choose_files", "companions", "download_tokenizer"]

_PART = r"[A-Za-z0-9][\w.-]*"
_NAME = re.compile(rf"(?:hf://)?({_PART}/{_PART})(?:@([^/@]+))?(?:/(.*))?", re.DOTALL)


def download_tokenizer(name: str, revision: str | None = None) -> str:
    """Download the tokenizer files of a repository, unless they are in the cache of the library.

    Args:
        name: ORG/NAME, or `hf://ORG/NAME[@REVISION][/PATH]`.
        revision: A branch, tag or commit; None for the default branch.

    Returns:
        The local path of the file or directory.

    Raises:
        FormatError: The repository has no tokenizer.
        HubError: The repository is missing, not permitted or unreachable.
        ImportError: The library of the Hub is not installed.
        ValueError: The name is not that of a repository.
    """
    found = _NAME.fullmatch(name)
    if found is None or Path(name).exists():
        raise ValueError(
            f"from_pretrained takes the name of a repository as ORG/NAME, found {name!r}; for a "
            "file or directory use load"
        )
    repository, path = found[1], (found[3] or "").strip("/")
    revision = revision or found[2]
    try:
        from huggingface_hub import HfApi, constants, snapshot_download
    except ImportError as error:
        raise ImportError(
            f"from_pretrained needs the library huggingface_hub ({error}): "
            "pip install huggingface_hub"
        ) from None
    try:
        if constants.is_offline_mode():
            root = snapshot_download(repository, revision=revision, allow_patterns=[])
            return str(Path(root, path))
        info = HfApi().model_info(repository, revision=revision)
    except Exception as error:  # the library raises those of its HTTP client, too
        raise hub_error(error, repository, revision, path) from None
    present = [file.rfilename for file in info.siblings or ()]
    wanted = choose_files(present, path)
    if not wanted:
        shown = ", ".join(sorted(present)[:8]) or "no files"
        raise FormatError(
            f"{name}: expected tokenizer.json, tekken.json, ranks, a .model, or vocab.json and "
            f"merges.txt, found {shown}; name a folder or file of it: {repository}/PATH"
        )
    try:
        root = snapshot_download(
            repository, revision=revision, allow_patterns=[glob.escape(file) for file in wanted]
        )
    except Exception as error:
        raise hub_error(error, repository, revision, path) from None
    return str(Path(root, path))


def choose_files(present: Sequence[str], path: str) -> list[str]:
    """Return the files of a repository that contain its tokenizer.

    Args:
        present: All files of the repository.
        path: A file or folder of it; "" for the repository itself.

    Example:
        >>> choose_files(["model.bin", "tokenizer.json", "old/vocab.json", "old/merges.txt"], "")
        ['tokenizer.json']
        >>> choose_files(["old/vocab.json", "old/merges.txt", "README.md"], "old/vocab.json")
        ['old/vocab.json', 'old/merges.txt']
    """
    folder, name = (path.rpartition("/")[::2]) if path in present else (path, "")
    prefix = f"{folder}/" if folder else ""
    names = [
        file.removeprefix(prefix)
        for file in present
        if file.startswith(prefix) and "/" not in file.removeprefix(prefix)
    ]
    wanted = companions(name, names) if name else names_of_tokenizer(names)
    return [prefix + file for file in wanted]


def companions(name: str, present: Collection[str]) -> list[str]:
    """Return the name of a file, and of those beside it that its reader may open."""
    return [name, *sorted({CONFIG, merges_name(name)} & {*present} - {name})]
