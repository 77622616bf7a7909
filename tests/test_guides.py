"""The tutorial and the guides: every command, file and program of theirs runs as it is shown."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs
from build_support import EXAMPLES, ROOT
from guide_support import Page, blocks, difference
from inline_runner import inline_builds, report_pages, runner_of_builds  # noqa: F401
from moto.server import DomainDispatcherApplication, create_backend_app
from storage_support import Server, serve

GUIDES = ROOT / "docs" / "guides"
PAGES = [ROOT / "docs" / "tutorial.md", *sorted(GUIDES.glob("*.md"))]
# Libraries that the tests don't install.
NOT_INSTALLED = {"jax", "megatron", "torch"}
pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of `make quickstart`."""
    directory = tmp_path_factory.mktemp("quickstart")
    (directory / "examples").symlink_to(ROOT / "examples")
    shutil.copytree(ROOT / "configs", directory / "configs")
    page = Page(Path(), directory)
    page.run_line("beam-bpe build configs/quickstart.yaml", None, "make quickstart")
    return directory / "out" / "quickstart"


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """An S3 server to which the variables of the environment lead, without any bucket."""
    from moto.s3.models import s3_backends

    server = serve(Server(DomainDispatcherApplication(create_backend_app)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", next(server))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        yield s3_backends["123456789012"]["aws"]
    s3fs.S3FileSystem.clear_instance_cache()
    for _ in server:
        pass


@pytest.fixture
def bucket(s3: Any) -> Iterator[Callable[[str, bytes], object]]:
    """A function that puts a file into the bucket `my-bucket`, which is empty at first."""
    s3.create_bucket("my-bucket", "us-east-1")
    yield lambda name, data: s3.put_object("my-bucket", name, data)
    s3.reset()


def genesis() -> list[dict[str, str]]:
    """Return chapters as records with a text and an address, like those of a crawl."""
    with gzip.open(EXAMPLES / "genesis.jsonl.gz", "rt", encoding="utf-8") as file:
        return [
            {"url": f"https://example.org/{i}", "text": json.loads(line)["content"]["text"]}
            for i, line in enumerate(file)
        ]


def json_lines(records: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def put_crawl(put: Callable[[str, bytes], object]) -> None:
    records = genesis()
    for part in range(2):
        put(f"crawl/part-{part:05d}.jsonl.gz", gzip.compress(json_lines(records[part::2])))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_page_runs(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text = path.read_text("utf-8")
    if "out/quickstart" in text:
        output = tmp_path / "out" / "quickstart"
        shutil.copytree(request.getfixturevalue("quickstart"), output)
    if "s3://my-bucket" in text:
        put_crawl(request.getfixturevalue("bucket"))
    if "corpus/" in text and path.stem != "tutorial":
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus" / "part-00000.jsonl").write_bytes(json_lines(genesis()))
    with report_pages(written=path.stem == "tutorial"):
        Page(path, tmp_path).run(NOT_INSTALLED)


def test_every_guide_is_listed() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (GUIDES / "index.md").read_text("utf-8"))
    assert {path.name for path in GUIDES.glob("*.md")} - {"index.md"} <= {*listed}


def test_shown_output_may_differ_in_times_alone() -> None:
    shown = "documents 3\ncount  1.5  2.0\n…\ntext a … b\n"
    assert difference(shown, "documents 3\ncount  0.1  7\nx\ny\ntext a 9 b\n") is None
    assert difference(shown, "documents 3\ncount  0.1  7\ntext a  b\n") is None
    assert "documents 3" in (difference(shown, "documents 4\ncount 1 2\ntext a 1 b\n") or "")


def test_blocks_that_are_not_run_have_a_reason() -> None:
    reasons = [r for path in PAGES for r in re.findall(r"<!-- not run: (.*) -->", path.read_text())]
    assert all(len(reason.split()) > 1 for reason in reasons)
    assert all(list(blocks(path)) for path in PAGES if path.stem != "index")
