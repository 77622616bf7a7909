"""Check the links of the documentation to other sites.

    python3 tools/site/links.py

The exit code is 1 if an address is malformed or its server answers that there is nothing. Servers
that cannot be reached, or refuse programs, are listed and are no failure.
"""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((https?:[^)\s]*)\)")
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_SECONDS = 20
_AT_ONCE = 4  # servers refuse programs that ask for more


def find_links(pages: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the addresses of other sites, with the pages that link to them."""
    found: dict[str, list[Path]] = {}
    for page in pages:
        for address in _LINK.findall(_FENCED.sub("", page.read_text("utf-8"))):
            found.setdefault(address, []).append(page)
    return found


def documentation() -> list[Path]:
    """Return the pages of the repository."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("[a-z]*/README.md")])


def find_mistake(address: str) -> str | None:
    """Return what is wrong with the form of an address, or None."""
    parts = urlsplit(address)
    if parts.scheme != "https":
        return "expected https"
    if "." not in (parts.hostname or "") or not re.fullmatch(r"[\w.-]+", parts.netloc):
        return "expected the name of a host"
    if not re.fullmatch(r"[\w.~!$&'()*+,;=:@%/-]*", parts.path):
        return "expected a path without blanks and other characters"
    return None


def ask(addresses: Iterable[str]) -> dict[str, str | int]:
    """Return the status that each server answers, or the reason why it cannot be reached."""
    unique = sorted({address.partition("#")[0] for address in addresses})
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return dict(zip(unique, threads.map(_ask, unique), strict=True))


def _ask(address: str) -> str | int:
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (link check)"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def sort_answers(answers: Mapping[str, str | int]) -> tuple[list[str], list[str]]:
    """Return lines about addresses that lead nowhere, and about those that are unknown."""
    broken = [f"{address}: {found}" for address, found in answers.items() if found in _GONE]
    unknown = [
        f"{address}: {found}"
        for address, found in answers.items()
        if found not in _GONE and found != HTTPStatus.OK
    ]
    return broken, unknown


def main() -> None:
    """Print what is wrong, and exit with 1 if a link is broken."""
    links = find_links(documentation())
    mistakes = [f"{link}: {mistake}" for link in links if (mistake := find_mistake(link))]
    answers = ask(links)
    broken, unknown = sort_answers(answers)
    print(f"{len(answers)} addresses, {len(broken)} broken, {len(unknown)} not reached")
    for heading, lines in (("malformed", mistakes), ("broken", broken), ("not reached", unknown)):
        for line in lines:
            pages = {
                page.relative_to(ROOT).as_posix() for page in links.get(line.split(": ")[0], [])
            }
            print(f"{heading}: {line}  ({', '.join(sorted(pages))})")
    sys.exit(bool(mistakes or broken))


if __name__ == "__main__":
    main()
