"""Readable texts for errors of the library of the Hugging Face Hub, without URLs of requests."""

from __future__ import annotations

from dataclasses import dataclass

from bpe_core.errors import HubError

__all__ = ["HubProblem", "explain", "hub_error"]

_LOGIN = "`hf auth login`, or HF_TOKEN"


@dataclass(frozen=True, kw_only=True)
class HubProblem:
    """Parts of a message: what happened, expected, found, and what to do."""

    message: str
    expected: str | None = None
    found: str
    hint: str


def hub_error(error: Exception, name: str, revision: str | None, path: str) -> HubError:
    """Return our error for one of the library, for `BPETokenizer.from_pretrained`.

    Args:
        error: Error of the library, or of its HTTP client.
        name: ORG/NAME of the repository of a model.
        revision: Branch, tag or commit; None for the default branch.
        path: File or folder in the repository, or "".
    """
    response = getattr(error, "response", None)
    problem = explain(
        error, getattr(response, "status_code", None), f"the model {name}", revision, path
    )
    where = f"hf://{name}" + (f"@{revision}" if revision else "") + (f"/{path}" if path else "")
    expected = "" if problem.expected is None else f"expected {problem.expected}, "
    return HubError(
        f"{where}: {problem.message.removesuffix('.')}: {expected}found {problem.found}. "
        f"{problem.hint}"
    )


def explain(
    error: Exception, status: int | None, repository: str, revision: str | None, path: str
) -> HubProblem:
    """Return the parts of the message for an error of the library.

    Args:
        error: Error of the library, or of its HTTP client.
        status: HTTP status of the server's answer, or None.
        repository: Kind and name of the repository, for the message.
        revision: Branch, tag or commit; None for the default branch.
        path: File or folder in the repository, or "".
    """
    from huggingface_hub import errors

    at = revision or "the default branch"
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return HubProblem(
            message="The repository may not be used with this token.",
            expected=f"permission for {repository}",
            found="a gated repository" if isinstance(error, errors.GatedRepoError) else "HTTP 403",
            hint="Accept the conditions on the repository's page, and log in with a token that may "
            f"read it: {_LOGIN}.",
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return HubProblem(
            message="The repository was not found.",
            expected=repository,
            found="no such repository, or a private one that this token may not read",
            hint=f"Check the name; for a private repository, log in: {_LOGIN}.",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return HubProblem(
            message="The revision was not found.",
            expected=f"a branch, tag or commit of {repository}",
            found=f"none called {at}",
            hint="Check the revision.",
        )
    offline = isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError)
    if not offline and isinstance(error, errors.EntryNotFoundError):
        return HubProblem(
            message="The file was not found in the repository.",
            expected=path or "a file of the repository",
            found=f"none in {repository} at {at}",
            hint="Check the path.",
        )
    if not offline and status is not None:
        return HubProblem(
            message="The Hub answered with an error.",
            found=f"HTTP {status}",
            hint="Try again later.",
        )
    return _explain_unreachable(error, at)


def _explain_unreachable(error: Exception, at: str) -> HubProblem:
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return HubProblem(
            message="The files are not in the cache of the Hub's library.",
            expected="files that were downloaded before, as HF_HUB_OFFLINE is set",
            found=f"none at {at}",
            hint="Run the command once with a network and without HF_HUB_OFFLINE, or name a "
            "revision that is in the cache.",
        )
    return HubProblem(
        message="The Hub cannot be reached.",
        found=type(error.__cause__ or error).__name__,
        hint="Check the network, its proxy and HF_ENDPOINT. With HF_HUB_OFFLINE=1, files that were "
        "downloaded before are read from the cache.",
    )
