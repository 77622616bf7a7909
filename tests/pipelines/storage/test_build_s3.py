"""Whole builds from and to S3, as a command: the bytes of a local build, and no credential."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from unittest import mock
from urllib.parse import quote

import pytest
import yaml
from build_support import checksums, command, config_for, some_text, works_of, write_corpus
from storage_support import KEY, S3, SECRET, Seen, Web
from werkzeug.wrappers import Response

from pipelines import build
from pipelines.config import BuildConfig, load_config
from pipelines.stages.context import BuildContext
from pipelines.stages.jobs import count_job

OPTIONS = {
    "key": "${TEST_S3_KEY}",
    "secret": "${TEST_S3_SECRET}",
    "client_kwargs": {"region_name": "us-east-1"},
}


@pytest.fixture
def config(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with input and output on S3; the same corpus is in `local`/data."""
    monkeypatch.setenv("TEST_S3_KEY", KEY)
    monkeypatch.setenv("TEST_S3_SECRET", SECRET)
    documents = some_text(60)
    corpus = {"a.txt": documents[:30], "b.txt": documents[30:31], "c.txt": documents[31:]}
    write_corpus(tmp_path / "local" / "data", corpus)
    for path in (tmp_path / "local" / "data").iterdir():
        s3.put(f"data/{path.name}", path.read_bytes())
    options = {**OPTIONS, "endpoint_url": s3.endpoint}
    values = {
        "output": f"{s3.url}/out",
        "output_storage_options": options,
        "input": {
            "files": [f"{s3.url}/data/*"],
            "range_bytes": 4000,
            "storage_options": options,
        },
        "tokenizer": {"vocab_size": 300},
        "counts": {"shards": 2},
        "beam": {"workers": 2},
    }
    path = tmp_path / "build.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def shown(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def check_no_credential(text: str, place: str) -> None:
    for value in (SECRET, KEY, quote(SECRET, safe=""), quote(SECRET)):
        assert value not in text, place


@pytest.mark.slow
def test_a_build_from_s3_to_s3_makes_the_bytes_of_a_local_one(
    config: Path, s3: S3, tmp_path: Path
) -> None:
    done = command("build", config)
    assert done.returncode == 0, shown(done)
    build.build(config_for(tmp_path / "local"))
    expected = checksums(tmp_path / "local" / "out")
    copy = tmp_path / "copy"
    for name in s3.names:
        if name.startswith("out/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(s3.get(name))
    assert checksums(copy / "out") == expected
    assert s3.unfinished_uploads == 0
    for path in copy.rglob("*"):
        if path.is_file():
            check_no_credential(path.read_bytes().decode("latin-1"), str(path))
    check_no_credential(shown(done), "what is shown")
    # What is finished is not done again, and is found by planning too.
    again = command("build", config)
    assert again.returncode == 0, shown(again)
    assert again.stdout.count("already finished") == 3
    planned = command("plan", config)
    assert planned.returncode == 0, shown(planned)
    check_no_credential(shown(planned), "the plan")
    assert s3.server.requests


@pytest.mark.slow
def test_groups_are_counted_and_updated_on_s3_as_on_a_disk(
    config: Path, s3: S3, tmp_path: Path
) -> None:
    """Other sources, kept counts of files, an update, and a tokenizer of a mixture of them."""

    def write(name: str, start: int) -> None:
        lines = [
            json.dumps({"text": text.decode(), "lang": ["de", "en"][i % 2]})
            for i, text in enumerate(some_text(12, start=start))
        ]
        s3.put(f"records/{name}.jsonl", "".join(f"{line}\n" for line in lines).encode())

    values = yaml.safe_load(config.read_text())
    options = values["output_storage_options"]
    values["input"] = [
        {
            "name": name,
            "files": [f"{s3.url}/records/{name}-*.jsonl"],
            "format": "jsonl",
            "range_bytes": 2000,
            "storage_options": options,
        }
        for name in ("books", "web")
    ]
    values["counts"] = {
        "shards": 2,
        "group_by": "lang",
        "document_frequency": True,
        "keep_file_counts": True,
    }
    values["tokenizer"] = {"vocab_size": 300, "mixture": {"de": 1, "en": 2, "by": "lang"}}
    config.write_text(yaml.safe_dump(values))
    for number, name in enumerate(("books-a", "books-b", "web-a")):
        write(name, 12 * number)
    assert command("count", config).returncode == 0
    write("books-b", 60)  # changed
    write("web-b", 80)  # added
    updated = command("count", config, "--update")
    assert updated.returncode == 0, shown(updated)
    trained = command("train", config)
    assert trained.returncode == 0, shown(trained)
    local = tmp_path / "on-disk"
    for name in s3.names:
        if name.startswith("records/"):
            (local / name).parent.mkdir(parents=True, exist_ok=True)
            (local / name).write_bytes(s3.get(name))
    for source in values["input"]:
        source["files"] = [file.replace(s3.url, str(local)) for file in source["files"]]
        del source["storage_options"]
    del values["output_storage_options"]
    values["output"] = str(local / "out")
    build.train(values)
    for path in (local / "out").rglob("*"):
        name = path.relative_to(local).as_posix()
        if path.name.startswith(("shard-", "tokenizer.")) and "_runs" not in name:
            assert s3.get(name) == path.read_bytes(), name
    explained = command("explain", f"{s3.url}/out", "--id", "299", "--storage-options",
                        json.dumps(options))  # fmt: skip
    assert "in books de" in explained.stdout, shown(explained)


@pytest.mark.slow
def test_an_interrupted_build_on_s3_goes_on(config: Path, s3: S3) -> None:
    with mock.patch("pipelines.stages.encode.tokens_content", lambda *_: 1 / 0):
        done = command("build", config, here=True)
    assert done.returncode == 1
    assert "out/tokens/manifest.json" not in s3.names
    done = command("build", config)
    assert done.returncode == 0, shown(done)
    assert done.stdout.count("already finished") == 2
    assert done.stdout.count("resumed") == 1
    manifest = json.loads(s3.get("out/tokens/manifest.json"))
    assert manifest["totals"]["documents"] == 60
    assert {name.split("/")[1] for name in s3.names if name.startswith("out/")} == {
        "configuration.json",
        "counts",
        "tokenizer",
        "tokens",
    }
    assert not [name for name in s3.names if "/_" in name]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "status"), [("GET", 500), ("PUT", 403)])
def test_no_credential_is_shown_when_a_server_tells_them(
    config: Path,
    s3: S3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_pauses: list[float],
    status: int,
    method: str,
) -> None:
    def telling(seen: Seen, *rest: object) -> Response:
        text = f"denied: {SECRET} {quote(SECRET)} {KEY}"
        return Response(f"<Error><Code>Code</Code><Message>{text}</Message></Error>", status)

    monkeypatch.setattr(s3.server, "_refuse", telling)
    s3.server.fail_always(
        "slow_down",
        when=lambda request: (
            request.method == method and ("/data/" in request.path or method == "PUT")
        ),
    )
    done = command("build", config, "--debug", here=True)
    assert done.returncode == (4 if method == "GET" else 5), shown(done)
    assert "denied: *** *** ***" in done.stderr
    assert s3.url in done.stderr
    check_no_credential(shown(done), "what is shown")


@pytest.mark.slow
def test_no_credential_is_shown_by_an_unexpected_error(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "pipelines.counting.content.fingerprint"
    monkeypatch.setattr(where, lambda content: Path(SECRET).read_bytes())
    done = command("build", config, here=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    check_no_credential(shown(done), "the traceback")


@pytest.mark.slow
def test_a_tokenizer_beside_the_output_is_opened_with_its_options(config: Path) -> None:
    loaded = load_config(config)
    for path, options in (
        ("s3://other/tokenizer", loaded.output_storage_options),
        ("https://host/tokenizer", {}),
    ):
        tokenizer = type(loaded.tokenizer)(path=path)
        context = BuildContext.of(loaded.model_copy(update={"tokenizer": tokenizer}))
        assert context.output.encoder.url == path
        assert context.output.encoder.storage_options == options


@pytest.mark.slow
def test_no_credential_travels(config: Path) -> None:
    loaded = load_config(config)
    context = BuildContext.of(loaded)
    works = works_of(loaded)
    job = count_job(loaded, context.output, context.inputs.plan, works, "x", shards=4)
    job.counts.sizes()
    for value in (job, works, loaded):
        check_no_credential(pickle.dumps(value).decode("latin-1"), "a pickle")
        check_no_credential(repr(value), "a repr")
    assert "storage_options" not in repr(job)


def test_a_missing_variable_is_told_with_key_and_place(
    config: Path, monkeypatch: pytest.MonkeyPatch, s3: S3
) -> None:
    monkeypatch.delenv("TEST_S3_SECRET")
    done = command("build", config)
    assert done.returncode == 2
    assert "input.storage_options.secret" in done.stderr
    assert "output_storage_options.secret" in done.stderr
    assert "the environment variable TEST_S3_SECRET to be set" in done.stderr
    assert f"{config}:" in done.stderr
    check_no_credential(shown(done), "what is shown")
    assert s3.server.requests == []


def test_a_header_from_the_environment_is_sent_and_not_shown(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", SECRET)
    web.files["/a.txt"] = b"".join(text + b"<|endoftext|>" for text in some_text(20))
    config = config_for(
        tmp_path,
        input={
            "files": [f"{web.url}/a.txt"],
            "storage_options": {"headers": {"X-Token": "Bearer ${TEST_TOKEN}"}},
        },
    )
    web.token = f"Bearer {SECRET}"
    build.build(config)
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            check_no_credential(path.read_bytes().decode("latin-1"), str(path))


@pytest.mark.slow
def test_added_files_and_replays_on_s3_make_the_bytes_of_a_local_dataset(
    config: Path, s3: S3, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    bad = b"not \xff text<|endoftext|>"
    mended = tmp_path / "mended.txt"
    mended.write_bytes(b"mended<|endoftext|>")
    values = config_for(local, encode={"max_reject_fraction": 1.0})
    remote = load_config(config, ["encode.max_reject_fraction=1.0"])

    def both(run: Callable[[BuildConfig], object]) -> None:
        for settings, out in ((values, f"{local}/out"), (remote, f"{s3.url}/out")):
            tokenizer = type(settings.tokenizer)(path=f"{out}/tokenizer")
            run(settings.model_copy(update={"tokenizer": tokenizer}))

    build.build(values)
    build.build(remote)
    (local / "data" / "d.txt").write_bytes(bad)
    s3.put("data/d.txt", bad)
    both(build.encode)
    both(lambda settings: build.replay(settings, {"d.txt": str(mended)}))
    theirs = checksums(local / "out")
    ours = {name: s3.get(f"out/{name}") for name in theirs}
    assert {n: hashlib.sha256(data).hexdigest() for n, data in ours.items()} == theirs
    generations = json.loads(ours["tokens/manifest.json"])["generations"]
    assert [g["kind"] for g in generations] == ["base", "added", "replay"]
