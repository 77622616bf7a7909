"""The report page has the numbers of an output, and shows hostile texts as texts."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from build_support import command as beam_bpe
from build_support import config_for, some_text, write_corpus
from hypothesis import given
from hypothesis import strategies as st
from page_support import HOSTILE, SPECIAL, Page, build_hostile

import pipelines
from bpe_core import train_bpe
from pipelines import build
from pipelines.analysis import suspects
from pipelines.analysis.token_uses import count_uses
from pipelines.config import BuildConfig
from pipelines.manifest.names import SHARD_FILE
from pipelines.pages import found_output
from pipelines.pages.card import make_card
from pipelines.pages.collect import collect
from pipelines.pages.report import make_report
from pipelines.pages.report_data import ReportData
from pipelines.pages.templates import embed_json
from pipelines.storage.directory import Directory

SHARED = Path(__file__).parents[3].parent / "shared" / "data"
VOCABULARIES = sorted(SHARED.glob("vocab/*.tiktoken"))
ASSETS = Path(pipelines.__file__).parent / "pages" / "assets"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_hostile(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def data(output: Path) -> ReportData:
    return collect(str(output))


@pytest.mark.slow
def test_the_numbers_are_those_of_the_manifests(output: Path, data: ReportData) -> None:
    manifest = json.loads((output / "tokens" / "manifest.json").read_text())
    counts = json.loads((output / "counts" / "manifest.json").read_text())
    totals = manifest["totals"]
    assert sum(split.tokens for split in data.splits) == totals["tokens"]
    assert [source.name for source in data.sources] == ["books", "web"]
    for key in ("documents", "bytes", "rejected", "empty", "not_selected"):
        assert sum(getattr(source, key) for source in data.sources) == totals[key]
    assert sum(source.tokens or 0 for source in data.sources) == totals["tokens"]
    assert data.reasons == {"invalid_utf8": 1}
    assert sum(bucket.documents for bucket in data.lengths) == totals["documents"]
    assert sum(bucket.tokens for bucket in data.lengths) == totals["tokens"]
    assert data.ranks[-1].share == pytest.approx(1.0)
    assert sum(group.tokens or 0 for group in data.kinds) == totals["tokens"]
    assert sum(group.tokens or 0 for group in data.scripts) == totals["tokens"]
    assert [step.number for step in data.steps[2:4]] == [
        counts["totals"]["distinct_pretokens"],
        340,
    ]
    largest = [point for point in data.curve if point.ids == 340]
    assert {point.source for point in largest} == {"all", "books", "web"}
    assert {time.stage for time in data.times} == {"counts", "tokenizer", "tokens"}
    assert {sample.source for sample in data.samples} == {"books", "web"}
    assert data.notes == {}
    json.dumps(data.to_json(), allow_nan=False)


def test_samples_are_documents_of_their_source(data: ReportData) -> None:
    for sample in data.samples:
        assert sample.file.startswith(f"{sample.source}/")
        assert len(sample.shown) <= sample.tokens
        assert len(b"".join(token for _, token in sample.pairs)) <= sample.num_bytes + len(
            "<|endoftext|>"
        )


@pytest.mark.slow
def test_hostile_texts_are_shown_as_texts(data: ReportData) -> None:
    text = make_report(data)
    page = Page(text)
    assert page.open == []
    assert not {"img", "b"} & set(page.names)
    assert page.names.count("script") == 7  # libraries, charts, the encoder and its box, data
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    links = [value for name, value in page.attributes if name == "href"]
    assert all(str(value).startswith("#") for value in links)
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert any(SPECIAL in cell for row in page.rows for cell in row)
    policy = next(str(value) for _, value in page.attributes if "script-src" in str(value))
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    assert "unsafe-eval" not in policy


def test_the_page_is_the_same_for_the_same_output(output: Path, data: ReportData) -> None:
    assert replace(collect(str(output)), made=data.made) == data
    assert make_report(data) == make_report(data)


@given(st.text(alphabet=st.characters(codec=None)))  # lone surrogates too
def test_any_text_survives_in_a_data_block(text: str) -> None:
    embedded = embed_json([text])
    assert json.loads(embedded) == [text]
    assert not set(embedded) & set("<>&")
    assert embedded.isascii()


@pytest.mark.slow
def test_the_command_writes_page_and_card(output: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = beam_bpe("report", output, "--html", page)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"page  {page}\n"
    assert Page(page.read_text("utf-8")).open == []
    done = beam_bpe("report", output, "--card")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("---\npretty_name: out\n")


def test_wrong_calls_are_explained(output: Path, tmp_path: Path) -> None:
    done = beam_bpe("report", output, "--html", tmp_path / "missing" / "page.html")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected: an existing directory" in done.stderr
    done = beam_bpe("report", output, "--html", tmp_path / "page.html", "--card")
    assert (done.returncode, done.stdout) == (2, "")
    assert "which report is wanted" in done.stderr
    done = beam_bpe("report", tmp_path / "nothing", "--html", tmp_path / "page.html")
    assert done.returncode == 2
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_a_card_is_valid_for_the_hub(data: ReportData) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    text = make_card(data)
    card = huggingface_hub.DatasetCard(text, ignore_metadata_errors=False)
    assert card.data.pretty_name == "out"
    assert card.data.configs[0]["data_files"] == [
        {"split": split, "path": f"tokens/{split}-*.parquet"} for split in ("train", "validation")
    ]
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["size_categories"] == ["n<1K"]
    assert data.location not in text
    assert "<img" not in text.replace(f"`{SPECIAL}`", "").replace(SPECIAL.replace("|", "\\|"), "")


# --- what an output lacks


@pytest.mark.slow
def test_a_tokenizer_alone_has_a_page(output: Path, tmp_path: Path) -> None:
    shutil.copytree(output / "tokenizer", tmp_path / "tokenizer")
    for place in (tmp_path / "tokenizer", output / "tokenizer" / "tokenizer.json"):
        found = collect(str(place))
        assert found.notes.keys() >= {"counts", "tokens", "uses", "curve", "samples"}
        assert (found.sources, found.ranks, found.splits) == ((), (), ())
        page = Page(make_report(found))
        assert page.open == []
        assert "This is a tokenizer alone: there are no counts." in page.texts


@pytest.mark.slow
def test_counts_alone_have_a_page(output: Path, tmp_path: Path) -> None:
    shutil.copytree(output / "counts", tmp_path / "out" / "counts")
    found = collect(str(tmp_path / "out"))
    assert found.notes["tokenizer"].startswith("There is no tokenizer yet")
    assert found.tokens is None
    assert Page(make_report(found)).open == []


@pytest.mark.slow
def test_a_trained_tokenizer_has_uses_from_counts_that_are_read_once(
    output: Path, tmp_path: Path
) -> None:
    for name in ("counts", "tokenizer"):
        shutil.copytree(output / name, tmp_path / "out" / name)
    with (
        patch.object(
            Directory, "read_bytes", autospec=True, side_effect=Directory.read_bytes
        ) as read,
        patch.object(found_output, "count_uses", wraps=count_uses) as counted,
        patch.object(suspects, "count_uses", None),
    ):
        found = collect(str(tmp_path / "out"))
    assert "those in the counted text" in found.notes["uses"]
    assert found.ranks
    assert found.curve
    assert found.tokens is not None
    counted.assert_called_once()
    shards = [name for call in read.mock_calls if SHARD_FILE.fullmatch(name := call.args[1])]
    assert shards and len(shards) == len(set(shards))
    assert [source.tokens for source in found.sources] == [None, None]
    assert Page(make_report(found)).open == []


@pytest.mark.slow
def test_counts_in_another_place_are_said(output: Path, tmp_path: Path) -> None:
    for name in ("tokens", "tokenizer", "rejects"):
        shutil.copytree(output / name, tmp_path / "out" / name)
    found = collect(str(tmp_path / "out"))
    assert "in another place" in found.notes["counts"]
    assert found.ranks
    assert Page(make_report(found)).open == []


@pytest.mark.slow
def test_later_generations_have_samples(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for name in ("a", "b"):
            data = {f"{name}{number}.txt": some_text(20, start=number)}
            write_corpus(tmp_path / "data", data)

    write(0)
    sources = [{"name": n, "files": [str(tmp_path / "data" / f"{n}*")]} for n in ("a", "b")]
    config = config_for(tmp_path, input=sources, encode={"append": None})
    build.build(config)
    write(1)
    build.add(config)
    found = collect(str(tmp_path / "out"))
    assert "2 generations: base, add001" in found.steps[0].facts
    page = make_report(found)
    assert page.count('<div class="sample">') == len(found.samples) == 6
    assert collect(str(tmp_path / "out" / "tokens")).sources == found.sources


@pytest.mark.slow
def test_a_dataset_without_documents_has_a_page(tmp_path: Path, output: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"", b""]})
    values = {
        "output": str(tmp_path / "out"),
        "input": {"files": [str(tmp_path / "data" / "*")]},
        "tokenizer": {"path": str(output / "tokenizer")},
    }
    build.build(BuildConfig.model_validate(values))
    found = collect(str(tmp_path / "out"))
    assert (found.sources[0].documents, found.sources[0].empty) == (0, 2)
    assert (found.samples, found.ranks) == ((), ())
    assert Page(make_report(found)).open == []


@pytest.mark.nightly
@pytest.mark.skipif(not VOCABULARIES, reason="no published vocabularies in ../shared/data")
def test_pages_of_published_tokenizers_are_small() -> None:
    for path in VOCABULARIES:
        assert len(make_report(collect(str(path))).encode()) < 5_000_000


@pytest.mark.slow
def test_too_many_counts_are_not_read(
    output: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(found_output, "_MOST_PRETOKENS", 3)
    found = collect(str(output))
    assert found.curve == ()
    assert "beam-bpe sizes" in found.notes["curve"]
    assert found.tokens is not None
    assert found.tokens.suspect_reasons  # by the statistics


@pytest.mark.slow
@pytest.mark.parametrize(
    "tokenizer",
    [
        {"vocab_size": 300, "superwords": {"max_words": 3}},
        {"unit": "character"},
        {"unit": "character", "metaspace": True, "vocab_size": 120, "byte_fallback": False},
    ],
    ids=["superwords", "words of characters", "metaspace"],
)
def test_other_tokenizers_have_pages(tmp_path: Path, tokenizer: dict[str, object]) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(20)})
    values = {
        "output": str(tmp_path / "out"),
        "input": {"files": [str(tmp_path / "data" / "*")]},
        "tokenizer": {"vocab_size": 300, "special_tokens": [], **tokenizer},
        "encode": {"append": None},
    }
    build.build(BuildConfig.model_validate(values))
    found = collect(str(tmp_path / "out"))
    assert found.samples
    assert found.kinds
    assert Page(make_report(found)).open == []


def test_special_texts_of_a_tokenizer_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(HOSTILE * 9)
    vocab, merges = train_bpe(tmp_path / "text", 320, [SPECIAL])
    from bpe_core import BPETokenizer

    BPETokenizer(vocab, merges, [SPECIAL]).save(tmp_path / "tokenizer")
    page = Page(make_report(collect(str(tmp_path / "tokenizer"))))
    assert page.open == []
    assert not {"img", "b"} & set(page.names)


# --- assets


def test_libraries_are_those_of_the_registry() -> None:
    listed = json.loads((ASSETS / "libraries.json").read_text("utf-8"))
    for library in listed:
        content = (ASSETS / library["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == library["sha256"]
        assert (ASSETS / library["license_file"]).is_file()
    assert {library["file"] for library in listed} == {
        path.name for path in ASSETS.glob("*.min.js")
    }


def test_scripts_can_be_embedded() -> None:
    for script in ASSETS.glob("*.js"):
        assert "</script" not in script.read_text("utf-8").lower(), script
