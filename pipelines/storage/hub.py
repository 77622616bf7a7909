"""Repositories of the Hugging Face Hub: names, commits, and readable errors.

The library of the Hub, the extra `hub`, is imported when a repository is first used. It has the
user's token and its own cache. No message contains the URL of a request, which may be signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final, Literal, Self, TypeAlias
from urllib.parse import quote, unquote

from bpe_core.hub_errors import explain
from pipelines.config.credentials import expanded
from pipelines.errors import ConfigError, InputError, OutputError, PipelineError
from pipelines.redaction import remember
from pipelines.storage.filesystems import split_chain
from pipelines.storage.retries import status_of

SCHEME: Final = "hf://"
RepositoryKind: TypeAlias = Literal["model", "dataset"]
_NAME: Final = r"[A-Za-z0-9][\w.-]*"
_URL: Final = re.compile(
    rf"hf://(?P<dataset>datasets/)?(?P<repository>{_NAME}/{_NAME})"
    r"(?:@(?P<revision>refs/(?:pr|convert)/[\w.-]+|[^/@]+))?(?:/(?P<path>.*))?",
    re.DOTALL,
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_AGAIN: Final[dict[type[PipelineError], str]] = {
    OutputError: "The same command continues an upload where it stopped."
}
_FORMS: Final[dict[RepositoryKind, str]] = {
    "model": "hf://ORG/NAME or hf://ORG/NAME@REVISION",
    "dataset": "hf://datasets/ORG/NAME or hf://datasets/ORG/NAME@REVISION",
}


def is_hub(url: str) -> bool:
    """Return True for the URL of a repository of the Hub."""
    return url.startswith(SCHEME)


def is_repository(url: str) -> bool:
    """Return True for the URL of files of the Hub, which contains no credentials."""
    return _URL.fullmatch(url) is not None


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository of the Hub, at a revision, and a path in it.

    Attributes:
        kind: "model" or "dataset".
        name: ORG/NAME.
        revision: branch, tag or commit; None for the default branch.
        path: file, folder or pattern in the repository; "" for all of it.
    """

    kind: RepositoryKind
    name: str
    revision: str | None = None
    path: str = ""

    @classmethod
    def parse(cls, url: str, kind: RepositoryKind) -> Self:
        """Return the repository that a URL names.

        Raises:
            ConfigError: the URL names none of this kind.

        Example:
            >>> Repository.parse("hf://datasets/org/corpus@v1/data/*.parquet", "dataset").path
            'data/*.parquet'
        """
        found = _URL.fullmatch(url)
        if found is None or (found["dataset"] is not None) != (kind == "dataset"):
            shown = "another URL" if "@" in url.partition("//")[2].partition("/")[0] else url
            raise ConfigError(
                f"This is not the address of a {kind} repository of the Hugging Face Hub.",
                expected=_FORMS[kind],
                found=shown,
                hint="Correct it; the token belongs in HF_TOKEN or in `hf auth login`.",
            )
        revision = found["revision"]
        return cls(
            kind=kind,
            name=found["repository"],
            revision=None if revision is None else unquote(revision),
            path=(found["path"] or "").strip("/"),
        )

    @property
    def is_pinned(self) -> bool:
        """True if the revision is a commit, which never changes."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    def at(self, commit: str) -> Repository:
        """Return the repository at a commit."""
        return replace(self, revision=commit)

    def __str__(self) -> str:
        """Return the URL."""
        root = SCHEME + ("datasets/" if self.kind == "dataset" else "") + self.name
        at = "" if self.revision is None else f"@{quote(self.revision, safe='')}"
        return root + at + (f"/{self.path}" if self.path else "")


def hub_library() -> ModuleType:
    """Return the library of the Hub.

    Raises:
        ConfigError: it is not installed.
    """
    try:  # its modules are attributes only once they are imported
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.hf_api
        import huggingface_hub.utils
    except ImportError as error:
        raise ConfigError(
            "A package for hf:// is not installed.",
            expected="huggingface_hub",
            found=str(error),
            hint="pip install huggingface_hub (the extra `hub` of this package), also on the "
            "workers.",
        ) from None
    huggingface_hub.utils.disable_progress_bars()  # type: ignore[attr-defined]
    token = huggingface_hub.get_token()
    if token:
        remember(token)
    return huggingface_hub


@contextmanager
def hub_errors(
    repository: Repository, kind: type[InputError | OutputError] = InputError
) -> Iterator[None]:
    """Raise errors of the library as errors of this type, with readable texts and without URLs."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:  # the library raises those of its HTTP client, too
        raise _described(error, repository, kind) from None


def is_offline() -> bool:
    """Return True if the library may only use its cache (HF_HUB_OFFLINE)."""
    return bool(hub_library().constants.is_offline_mode())


def read_info(repository: Repository, options: Mapping[str, Any] | None = None) -> Any:
    """Return the library's description of a repository at its revision: `sha` and `siblings`.

    Args:
        repository: repository to describe.
        options: options of the file system: `token` and `endpoint`.

    Raises:
        InputError: the repository or revision is missing, not permitted or unreachable.
    """
    library = hub_library()
    given = expanded(options or {})
    with hub_errors(repository):
        api = library.HfApi(endpoint=given.get("endpoint"), token=given.get("token"))
        return api.repo_info(
            repository.name, repo_type=repository.kind, revision=repository.revision
        )


def pin(url: str, options: Mapping[str, Any], commits: dict[str, str]) -> str:
    """Return the URL of files of the Hub at a commit; other URLs unchanged.

    A branch may change while it is read, and before an interrupted build is resumed.

    Args:
        url: URL of files, possibly in an archive, or with wildcards.
        options: options of the file system: `token` and `endpoint`.
        commits: commit of each repository at a revision, by its URL; new ones are added.

    Raises:
        InputError: the repository or revision is missing, not permitted or unreachable.
    """
    *before, link = split_chain(url)
    found = _URL.fullmatch(link)
    if found is None:
        return url
    kind: RepositoryKind = "dataset" if found["dataset"] else "model"
    repository = Repository.parse(link, kind)
    if repository.is_pinned:
        return url
    root = str(replace(repository, path=""))
    if root not in commits:
        commits[root] = str(read_info(repository, options).sha)
    pinned = f"{replace(repository, path='').at(commits[root])}/{found['path'] or ''}"
    return "::".join([*before, pinned])


def _described(
    error: Exception, repository: Repository, kind: type[InputError | OutputError]
) -> PipelineError:
    hub_library()
    name = f"the {repository.kind} {repository.name}"
    problem = explain(error, status_of(error), name, repository.revision, repository.path)
    again = _AGAIN.get(kind, "") if problem.expected is None else ""
    return kind(
        problem.message,
        expected=problem.expected,
        found=problem.found,
        where=str(repository),
        hint=f"{problem.hint} {again}".rstrip(),
    )
