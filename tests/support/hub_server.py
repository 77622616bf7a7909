"""A small Hub over real HTTP: the endpoints that huggingface_hub asks, and nothing else.

Repositories are in memory, as commits of files. Large files come by LFS, so that preuploads,
commits and interrupted uploads are those of the Hub.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

TOKEN = "hf_token-of-the-tests"
_REPOSITORY = r"(?P<name>[\w.-]+/[\w.-]+)"
_RESOLVE = rf"/(?P<kind>datasets/)?{_REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)"
_API = rf"/api/(?P<kind>models|datasets)/{_REPOSITORY}"


@dataclass
class Repository:
    """A repository: its commits, each all its files, and the commits of its branches."""

    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    lfs: set[str] = field(default_factory=set)
    messages: list[str] = field(default_factory=list)

    def commit(self, changes: Mapping[str, bytes | None], ref: str = "main") -> str:
        """Add a commit to a branch; a file is removed by None."""
        files = dict(self.commits.get(self.refs.get(ref, ""), {}))
        for path, data in changes.items():
            if data is None:
                files.pop(path, None)
            else:
                files[path] = data
        content = json.dumps([len(self.commits), ref, *sorted(map(repr, files.items()))])
        sha = hashlib.sha1(content.encode()).hexdigest()
        self.commits[sha] = files
        self.refs[ref] = sha
        return sha

    def files(self, ref: str = "main") -> dict[str, bytes]:
        """Return the files at a branch or commit."""
        return self.commits[self.refs.get(ref, ref)]


class HubServer:
    """The Hub of a test.

    Attributes:
        url: of the server.
        requests: method and path of every request.
        fail: method and path, as a regex, of requests that get a status instead of an answer.
    """

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.fail: dict[str, int] = {}
        self.url = ""

    def add(
        self,
        name: str,
        files: Mapping[str, bytes],
        *,
        kind: str = "models",
        private: bool = False,
        gated: bool = False,
    ) -> Repository:
        """Add a repository with one commit."""
        repository = Repository(private=private, gated=gated)
        repository.commit(files)
        self.repositories[kind, name] = repository
        return repository

    def count(self, pattern: str) -> int:
        """Return the number of requests that match a regex, as "GET /path"."""
        return sum(re.search(pattern, one) is not None for one in self.requests)


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """Run a Hub in a thread."""
    hub = HubServer()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def use_hub(monkeypatch: pytest.MonkeyPatch, url: str, cache: object) -> None:
    """Direct the library to a Hub and an empty cache, as HF_ENDPOINT and HF_HUB_CACHE do."""
    import fsspec
    from huggingface_hub import HfFileSystem, constants
    from huggingface_hub.utils import close_session

    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_TOKEN_PATH", f"{cache}/no-token")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # The library reads the variables when it is imported, which another test may have done.
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", f"{cache}/no-token")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    HfFileSystem.clear_instance_cache()
    fsspec.config.conf.pop("hf", None)
    close_session()


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[HubServer]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET

    def _answer(self) -> None:
        self.body = self._read_body()
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query)
        path = parts.path
        asked = f"{self.command} {path}"
        self.hub.requests.append(asked)
        for pattern, status in self.hub.fail.items():
            if re.search(pattern, asked):
                self._send(status, b"failing")
                return
        for pattern, method in _ROUTES:
            found = re.fullmatch(pattern, asked)
            if found is not None:
                parts_of_path = {key: unquote(value) for key, value in found.groupdict("").items()}
                getattr(self, f"_{method}")(**parts_of_path)
                return
        self._send(404, b"no such endpoint")

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body

    # --- answers

    def _send(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.get("Content_Length", str(len(data))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Content-Length" and any(
            line.lower().startswith(b"content-length") for line in self._headers_buffer
        ):
            return
        super().send_header(keyword, value)

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), Content_Type="application/json")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, b"{}", X_Error_Code=code, X_Error_Message=message)

    @property
    def _is_permitted(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _find(self, kind: str, name: str) -> Repository | None:
        """Return a repository that the token may read, or answer why there is none."""
        found = self.hub.repositories.get((kind, name))
        if found is None or (found.private and not self._is_permitted):
            self._refuse(404 if self._is_permitted else 401, "RepoNotFound", "Repository not found")
            return None
        return found

    def _files(self, kind: str, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Return commit and files of a revision, or answer why there are none."""
        repository = self._find(kind, name)
        if repository is None:
            return None
        sha = repository.refs.get(revision, revision)
        if sha not in repository.commits:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return sha, repository.commits[sha]

    # --- endpoints

    def _info(self, kind: str, name: str, revision: str = "main") -> None:
        found = self._files(kind, name, revision or "main")
        if found is None:
            return
        sha, files = found
        siblings = [{"rfilename": path} for path in sorted(files)]
        self._send_json(
            {
                "_id": "0",
                "id": name,
                "sha": sha,
                "siblings": siblings,
                "private": self.hub.repositories[kind, name].private,
                "gated": False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
            }
        )

    def _entry(self, repository: Repository, path: str, data: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "type": "file",
            "path": path,
            "size": len(data),
            "oid": hashlib.sha1(data).hexdigest(),
        }
        if path in repository.lfs:
            oid = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"oid": oid, "size": len(data), "pointerSize": 130}
        return entry

    def _tree(self, kind: str, name: str, revision: str, path: str = "") -> None:
        found = self._files(kind, name, revision)
        if found is None:
            return
        prefix = f"{path}/" if path else ""
        below = {one: data for one, data in found[1].items() if one.startswith(prefix)}
        if path and not below:
            self._refuse(404, "EntryNotFound", f"{path} does not exist")
            return
        repository = self.hub.repositories[kind, name]
        is_recursive = self.query.get("recursive", ["false"])[0].lower() in ("true", "1")
        entries: dict[str, dict[str, Any]] = {}
        for one, data in sorted(below.items()):
            steps = one.removeprefix(prefix).split("/")
            for depth in range(1, len(steps) if is_recursive else min(2, len(steps))):
                folder = prefix + "/".join(steps[:depth])
                entries[folder] = {"type": "directory", "path": folder, "size": 0, "oid": "0" * 40}
            if is_recursive or len(steps) == 1:
                entries[one] = self._entry(repository, one, data)
        self._send_json(list(entries.values()))

    def _paths(self, kind: str, name: str, revision: str) -> None:
        found = self._files(kind, name, revision)
        if found is None:
            return
        try:
            asked = json.loads(self.body)["paths"]
        except ValueError:
            asked = parse_qs(self.body.decode())["paths"]
        repository = self.hub.repositories[kind, name]
        entries = []
        for path in asked:
            if path in found[1]:
                entries.append(self._entry(repository, path, found[1][path]))
            elif any(one.startswith(f"{path}/") for one in found[1]):
                entries.append({"type": "directory", "path": path, "size": 0, "oid": "0" * 40})
        self._send_json(entries)

    def _resolve(self, kind: str, name: str, revision: str, path: str) -> None:
        kind = "datasets" if kind else "models"
        found = self._files(kind, name, revision)
        if found is None:
            return
        sha, files = found
        if self.hub.repositories[kind, name].gated and not self._is_permitted:
            self._refuse(403, "GatedRepo", "Access to this repository is restricted")
            return
        if path not in files:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        data = files[path]
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        common = {"ETag": etag, "X_Repo_Commit": sha, "Accept_Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            self._send(200, data, Content_Length=str(len(data)), **common)
            return
        start = int(asked[1])
        end = min(int(asked[2] or len(data) - 1), len(data) - 1)
        if start >= len(data):
            self._send(416, b"", **common)
            return
        of = f"bytes {start}-{end}/{len(data)}"
        self._send(206, data[start : end + 1], Content_Range=of, **common)

    # --- writing

    def _may_write(self) -> bool:
        if not self._is_permitted:
            self._refuse(401, "Unauthorized", "Invalid credentials")
        return self._is_permitted

    def _create(self) -> None:
        if not self._may_write():
            return
        asked = json.loads(self.body)
        kind = asked.get("type", "model") + "s"
        name = f"{asked.get('organization') or 'user'}/{asked['name']}"
        if (kind, name) in self.hub.repositories:
            self._send(409, b"{}")
            return
        repository = self.hub.add(name, {".gitattributes": b""}, kind=kind)
        repository.private = bool(asked.get("private")) or asked.get("visibility") == "private"
        self._send_json({"url": f"{self.hub.url}/{kind}/{name}", "name": name, "id": "0"})

    def _validate(self) -> None:
        card = json.loads(self.body)
        assert card["repoType"] == "dataset" and yaml.safe_load(card["content"].split("---")[1])
        self._send_json({"errors": [], "warnings": []})

    def _preupload(self, kind: str, name: str, revision: str) -> None:
        if not self._may_write() or self._files(kind, name, revision) is None:
            return
        files = json.loads(self.body)["files"]
        self._send_json(
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                        "shouldIgnore": False,
                        "oid": None,
                    }
                    for file in files
                ]
            }
        )

    def _batch(self, kind: str, name: str) -> None:
        asked = json.loads(self.body)["objects"]
        objects = []
        for one in asked:
            entry = {"oid": one["oid"], "size": one["size"], "authenticated": True}
            if one["oid"] not in self.hub.objects:
                entry["actions"] = {
                    "upload": {"href": f"{self.hub.url}/lfs/{one['oid']}?signature=secret"}
                }
            objects.append(entry)
        self._send_json({"transfer": "basic", "objects": objects, "hash_algo": "sha256"})

    def _object(self, oid: str) -> None:
        assert hashlib.sha256(self.body).hexdigest() == oid
        self.hub.objects[oid] = self.body
        self._send(200)

    def _commit(self, kind: str, name: str, revision: str) -> None:
        if not self._may_write() or self._files(kind, name, revision) is None:
            return
        changes: dict[str, bytes | None] = {}
        repository = self.hub.repositories[kind, name]
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            match entry["key"]:
                case "header":
                    repository.messages.append(value["summary"])
                case "file":
                    changes[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    changes[value["path"]] = self.hub.objects[value["oid"]]
                    repository.lfs.add(value["path"])
                case "deletedFile":
                    changes[value["path"]] = None
        sha = repository.commit(changes, revision)
        self._send_json(
            {
                "success": True,
                "commitOid": sha,
                "commitUrl": f"{self.hub.url}/{kind}/{name}/commit/{sha}",
                "hookOutput": "",
            }
        )


# Files that come by LFS.
LARGE = (".parquet", ".bin", ".arrow", ".mds", ".npy")

_ROUTES: list[tuple[str, str]] = [
    (rf"(?:GET|HEAD) {_API}(?:/revision/(?P<revision>.+))?", "info"),
    (rf"GET {_API}/tree/(?P<revision>[^/]+)(?:/(?P<path>.*))?", "tree"),
    (rf"POST {_API}/paths-info/(?P<revision>[^/]+)", "paths"),
    (rf"POST {_API}/preupload/(?P<revision>[^/]+)", "preupload"),
    (rf"POST {_API}/commit/(?P<revision>[^/]+)", "commit"),
    (r"POST /api/repos/create", "create"),
    (r"POST /api/validate-yaml", "validate"),
    (rf"POST /(?P<kind>datasets/)?{_REPOSITORY}\.git/info/lfs/objects/batch", "batch"),
    (r"PUT /lfs/(?P<oid>[0-9a-f]{64})", "object"),
    (rf"(?:GET|HEAD) {_RESOLVE}", "resolve"),
]
