"""Rejected documents are encoded after all, and the accounts stay true."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from build_support import checksums, command, config_for, some_text, states, write_corpus
from profiles import seldom

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.errors import ConfigError, DifferentConfigurationError, InputError, OutputError
from pipelines.stages import transforms
from pipelines.stages.summary import BuildSummary
from pipelines.storage.directory import Directory
from pipelines.verification.verify import verify

END = b"<|endoftext|>"
GOOD = some_text(40)
BAD = [b"not \xff text", b"nor \xfe\xfd this", b"\xff"]
CORPUS = {
    "a.txt": [*GOOD[:10], BAD[0], *GOOD[10:20]],
    "b.txt": [BAD[1], *GOOD[20:30], BAD[2]],
    "c.txt": GOOD[30:],
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    write_corpus(directory / "data", {"a.txt": GOOD})
    build.train(config_for(directory))
    return directory / "out" / "tokenizer"


Configure = Callable[..., BuildConfig]


@pytest.fixture
def configure(tmp_path: Path, tokenizer: Path) -> Configure:
    """Configurations of a dataset in the folder of the test, with these keys of its source."""

    def configure_(
        directory: Path = tmp_path, encode: Mapping[str, Any] | None = None, **source: Any
    ) -> BuildConfig:
        config = config_for(
            directory,
            input={"max_bad_files": 9, **source},
            encode={"max_reject_fraction": 1.0, "validation_fraction": 0.2, **(encode or {})},
        )
        return config.model_copy(update={"tokenizer": type(config.tokenizer)(path=str(tokenizer))})

    return configure_


def manifest_of(directory: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((directory / "out/tokens/manifest.json").read_text())
    return manifest


def rows(directory: Path) -> dict[tuple[str, int, int], list[int]]:
    """The ids by place, of all files of the manifest; none may be there twice."""
    files = manifest_of(directory)["files"]
    found = {}
    for file in files["train"] + files["validation"]:
        for row in pq.read_table(directory / "out/tokens" / file["name"]).to_pylist():
            key = row["source"], row["offset"], row["part"]
            assert key not in found
            found[key] = row["input_ids"]
    return found


def rejects(directory: Path) -> list[tuple[str, int, str]]:
    files = manifest_of(directory)["files"]["rejects"]
    assert {p.name for p in (directory / "out/rejects").glob("*")} == {f["name"] for f in files}
    tables = [pq.read_table(directory / "out/rejects" / file["name"]) for file in files]
    found = [row for table in tables for row in table.to_pylist()]
    return sorted((row["source"], row["offset"], row["reason"]) for row in found)


def check_same_documents(ours: Path, theirs: Path, *, but: tuple[str, ...] = ()) -> None:
    """Both datasets have the same documents and the same accounts."""
    assert rows(ours) == rows(theirs)
    assert rejects(ours) == rejects(theirs)
    mine, other = manifest_of(ours), manifest_of(theirs)
    for key in ("corpus", "totals", "sources"):
        assert mine[key] == other[key], key
    ignored = ("generation", "repaired", *but)
    for a, b in zip(mine["inputs"], other["inputs"], strict=True):
        assert {k: a[k] for k in a if k not in ignored} == {k: b[k] for k in b if k not in ignored}


def at_once(tmp_path: Path, configure: Configure, **keys: Any) -> Path:
    """Another dataset of the same files, made in one build."""
    other = tmp_path / "at_once"
    shutil.copytree(tmp_path / "data", other / "data")
    build.encode(configure(other, **keys))
    return other


def replayed(config: BuildConfig, **sources: Path) -> BuildSummary:
    names = {name.replace("_", "."): str(path) for name, path in sources.items()}
    return build.replay(config, names)


# --- another policy --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_changed_policy_makes_the_dataset_that_it_had_made_from_the_start(
    configure: Configure, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    before = checksums(tmp_path / "out/tokens", but=("run.json", "manifest.json"))
    assert len(rejects(tmp_path)) == 3
    (stage,) = replayed(configure(invalid_utf8="replace")).stages
    assert (stage.name, stage.state) == ("replay add001", "done")
    after = checksums(tmp_path / "out/tokens")
    assert before.items() <= after.items()
    check_same_documents(tmp_path, at_once(tmp_path, configure, invalid_utf8="replace"))

    generation = manifest_of(tmp_path)["generations"][1]
    assert generation["kind"] == "replay"
    assert generation["policy"]["input"][""]["invalid_utf8"] == "replace"
    assert all(name[0] == "0" for name in generation["of"])
    for again in (
        replayed(configure(invalid_utf8="replace")),
        build.encode(configure(invalid_utf8="replace")),
        build.encode(configure()),
    ):
        assert [stage.state for stage in again.stages] == ["already finished"]
    assert checksums(tmp_path / "out/tokens") == after


@pytest.mark.slow
def test_what_is_rejected_still_stays_and_can_be_replayed_again(
    configure: Configure, tmp_path: Path
) -> None:
    special = b"a special <|endoftext|> token"
    separated = {"separator": "\n"}
    write_corpus(tmp_path / "data", {"a.txt": [GOOD[0].strip(), BAD[0], special, b"x" * 500]}, "\n")
    first = {**separated, "max_document_bytes": 400}
    build.encode(configure(encode={"special_tokens_in_text": "reject"}, **separated))
    assert [reason for _, _, reason in rejects(tmp_path)] == ["invalid_utf8", "special_token"]
    replayed(
        configure(encode={"special_tokens_in_text": "reject"}, invalid_utf8="replace", **first)
    )
    assert [reason for _, _, reason in rejects(tmp_path)] == ["special_token"]
    replayed(configure(invalid_utf8="replace", **separated))
    assert rejects(tmp_path) == []
    check_same_documents(
        tmp_path, at_once(tmp_path, configure, invalid_utf8="replace", **separated)
    )
    kinds = [g["kind"] for g in manifest_of(tmp_path)["generations"]]
    assert kinds == ["base", "replay", "replay"]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("selection", [{"sample_fraction": 0.4}, {"max_chars": 450}, {}])
def test_of_lines_too_long_to_be_looked_at_some_may_be_empty_or_not_selected(
    selection: dict[str, Any], suffix: str, configure: Configure, tmp_path: Path
) -> None:
    lines: list[dict[str, Any]] = [{"text": f"{i} " + "long " * (80 + i)} for i in range(20)]
    lines += [{"text": f"short {i}"} for i in range(20)]
    lines += [{"text": "", "more": "x" * 900}, {"text": None, "more": "x" * 900}, {"text": ""}]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    path = tmp_path / f"data/a.jsonl{suffix}"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(text) if suffix else text)
    source = {"format": "jsonl", **selection}
    build.encode(configure(max_document_bytes=400, **source))
    assert {reason for _, _, reason in rejects(tmp_path)} == {"too_long"}
    replayed(configure(**source))
    totals = manifest_of(tmp_path)["totals"]
    assert totals["empty"] == 2
    assert bool(totals["not_selected"]) == bool(selection)
    check_same_documents(tmp_path, at_once(tmp_path, configure, **source))
    assert not verify(Directory(url=str(tmp_path / "out")), sources=True).problems


SPECIAL = {
    "a.txt": [*GOOD[:9], b"a <|x|> token", b"not \xff text", b"\xff <|x|>"],
    "b.txt": [*GOOD[9:15], b"another <|x|>", b"<|x|>"],
}


def trained(directory: Path, policy: str, **source: Any) -> BuildConfig:
    """A configuration that trains, with a second special token; without merges.

    So more text leaves the tokenizer as it is.
    """
    return config_for(
        directory,
        input=source,
        tokenizer={"special_tokens": ["<|endoftext|>", "<|x|>"], "vocab_size": 258},
        encode={"special_tokens_in_text": policy, "max_reject_fraction": 0.5},
        beam={"workers": 1},
    )


def grown(directory: Path, config: BuildConfig) -> None:
    """Counts all files anew and encodes those that were added."""
    (directory / "data" / "c.txt").write_bytes(b"more <|x|><|endoftext|>and more")
    build.count(config, restart=True)
    build.train(config, restart=True)
    build.encode(config)


@pytest.mark.slow
@pytest.mark.parametrize("before", ["split", "reject"])
def test_counts_and_tokenizer_stay_under_another_policy_on_special_tokens(
    before: str, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", SPECIAL)
    build.build(trained(tmp_path, before))
    finished = {name: checksums(tmp_path / "out" / name) for name in ("counts", "tokenizer")}
    after = "reject" if before == "split" else "text"
    build.build(trained(tmp_path, after), restart=True)
    assert finished == {name: checksums(tmp_path / "out" / name) for name in finished}
    build.encode(trained(tmp_path, before), restart=True)
    assert finished == {name: checksums(tmp_path / "out" / name) for name in finished}


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [False, True])
def test_what_was_encoded_is_what_was_counted_after_replays_of_special_tokens(
    replaces: bool, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", SPECIAL)
    build.build(trained(tmp_path, "reject"))
    policy = {"invalid_utf8": "replace"} if replaces else {}
    assert len(rejects(tmp_path)) == 5
    replayed(trained(tmp_path, "reject", invalid_utf8="replace"))
    assert [reason for _, _, reason in rejects(tmp_path)] == ["special_token"] * 4
    grown(tmp_path, trained(tmp_path, "reject", **policy))
    assert len(rejects(tmp_path)) == 5
    replayed(trained(tmp_path, "text", invalid_utf8="replace"))
    assert rejects(tmp_path) == []
    assert "refused" not in json.dumps(manifest_of(tmp_path)["inputs"])


@pytest.mark.slow
def test_repaired_files_with_special_tokens_are_what_is_counted_then(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", SPECIAL)
    build.build(trained(tmp_path, "reject"))
    mended = tmp_path / "mended.txt"
    # One is mended, one still has its special token, one gets one.
    repaired = [*GOOD[:9], b"a ++|x|++ token", b"not <|x|> text", b"+ <|x|>"]
    mended.write_bytes(b"<|endoftext|>".join(repaired) + b"<|endoftext|>")
    replayed(trained(tmp_path, "reject"), a_txt=mended)
    assert len(rejects(tmp_path)) == 4
    mended.replace(tmp_path / "data" / "a.txt")
    grown(tmp_path, trained(tmp_path, "reject"))
    assert len(rejects(tmp_path)) == 5


@pytest.mark.slow
def test_only_the_policy_may_differ(configure: Configure, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    before = states(tmp_path / "out")
    with pytest.raises(DifferentConfigurationError) as caught:
        replayed(configure(invalid_utf8="replace", encode={"append": None}, range_bytes=50))
    shown = str(caught.value)
    assert 'encode.append: "<|endoftext|>" → null' in shown
    assert "input[0].range_bytes: 4000 → 50" in shown
    assert '→ "replace"' not in shown
    assert "input.invalid_utf8" in shown
    assert states(tmp_path / "out") == before


@pytest.mark.parametrize("alter", [Path.unlink, Path.touch, lambda path: path.write_bytes(b"new")])
def test_a_file_that_changed_is_told_and_nothing_is_taken(
    alter: Callable[[Path], object], configure: Configure, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    before = states(tmp_path / "out")
    alter(tmp_path / "data/b.txt")
    with pytest.raises(InputError, match=r"--source b\.txt=PATH"):
        replayed(configure(invalid_utf8="replace"))
    assert states(tmp_path / "out") == before


@pytest.mark.slow
def test_files_without_rejects_may_have_changed(configure: Configure, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    (tmp_path / "data/c.txt").unlink()
    (tmp_path / "data/d.txt").write_bytes(b"new")
    replayed(configure(invalid_utf8="replace"))
    assert rejects(tmp_path) == []


@pytest.mark.slow
def test_added_files_and_replays_follow_each_other(configure: Configure, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"b.txt": CORPUS["b.txt"]})
    build.encode(configure())
    replayed(configure(invalid_utf8="replace"))
    write_corpus(tmp_path / "data", {"a.txt": CORPUS["a.txt"]})
    build.encode(configure())  # the added file by the first policy
    assert len(rejects(tmp_path)) == 1
    replayed(configure(invalid_utf8="replace"))
    write_corpus(tmp_path / "data", {"c.txt": [*CORPUS["c.txt"], b"\xff"]})
    build.encode(configure(invalid_utf8="replace"))
    manifest = manifest_of(tmp_path)
    assert [g["kind"] for g in manifest["generations"]] == [
        "base", "replay", "added", "replay", "added",
    ]  # fmt: skip
    manifest["inputs"].sort(key=lambda file: file["name"])
    (tmp_path / "out/tokens/manifest.json").write_text(json.dumps(manifest))
    check_same_documents(tmp_path, at_once(tmp_path, configure, invalid_utf8="replace"))


def test_nothing_rejected_is_nothing_to_do(configure: Configure, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": GOOD})
    build.encode(configure())
    before = states(tmp_path / "out")
    (stage,) = replayed(configure(invalid_utf8="replace")).stages
    assert stage.state == "already finished"
    assert states(tmp_path / "out") == before


def test_without_a_dataset_there_is_nothing_to_replay_into(
    configure: Configure, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    with pytest.raises(InputError, match="no finished token files"):
        replayed(configure())


# --- repaired files --------------------------------------------------------------------------


def repaired_corpus(documents: list[bytes]) -> bytes:
    return b"".join((b"repaired" if d in BAD else d) + END for d in documents)


@pytest.mark.slow
@pytest.mark.parametrize("same_length", [False, True])
def test_a_repaired_text_gives_what_was_rejected(
    same_length: bool, configure: Configure, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    mended = tmp_path / "mended.txt"
    for document in CORPUS["b.txt"]:
        good = b"?" * len(document) if same_length else b"much longer than it was, mended"
        with mended.open("ab") as file:
            file.write((good if document in BAD else document) + END)
    replayed(configure(), b_txt=mended)
    assert [source for source, _, _ in rejects(tmp_path)] == ["a.txt"]
    (file,) = (file for file in manifest_of(tmp_path)["inputs"] if file["name"] == "b.txt")
    assert file["repaired"] == {"size": mended.stat().st_size, "generation": "add001"}
    assert (file["documents"], file["rejected"]) == (12, 0)
    # The place of a document is the one that it had in the file as it was first.
    offsets = sorted(offset for source, offset, _ in rows(tmp_path) if source == "b.txt")
    place, expected = 0, []
    for document in CORPUS["b.txt"]:
        expected.append(place)
        place += len(document) + len(END)
    assert offsets == expected

    # Either file may be the input from now on, and a build leaves the dataset as it is.
    (stage,) = build.encode(configure()).stages
    assert stage.state == "already finished"
    shutil.copy2(mended, tmp_path / "data/b.txt")
    (stage,) = build.encode(configure()).stages
    assert stage.state == "already finished"
    other = at_once(tmp_path, configure)
    assert sorted(rows(other).values()) == sorted(rows(tmp_path).values())
    for key in ("corpus", "totals", "sources"):
        assert manifest_of(tmp_path)[key] == manifest_of(other)[key], key


@pytest.mark.slow
def test_repaired_twice(configure: Configure, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    documents = CORPUS["b.txt"]
    first.write_bytes(END.join([b"the first is much longer now", *documents[1:]]) + END)
    second.write_bytes(END.join([b"the first is much longer now", *documents[1:-1], b"last"]) + END)
    replayed(configure(), b_txt=first)
    assert len(rejects(tmp_path)) == 2
    # What is left is in the repaired file alone, so a changed policy needs it once more.
    first.unlink()
    summary = replayed(configure(invalid_utf8="replace"))
    assert [warning for warning in summary.warnings if "b.txt" in warning]
    assert [source for source, _, _ in rejects(tmp_path)] == ["b.txt"]
    replayed(configure(invalid_utf8="replace"), b_txt=second)
    assert rejects(tmp_path) == []
    shutil.copy2(second, tmp_path / "data/b.txt")
    other = at_once(tmp_path, configure, invalid_utf8="replace")
    assert sorted(rows(other).values()) == sorted(rows(tmp_path).values())
    for key in ("corpus", "totals", "sources"):
        assert manifest_of(tmp_path)[key] == manifest_of(other)[key], key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda documents: documents[:-1], "11 documents"),
        (lambda documents: [*documents, b"more"], "13 documents"),
        (lambda documents: [*documents[:3], b"another", *documents[4:]], "7 bytes"),
    ],
)
def test_a_repaired_file_that_does_not_fit_is_refused(
    change: Callable[[list[bytes]], list[bytes]],
    expected: str,
    configure: Configure,
    tmp_path: Path,
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    before = states(tmp_path / "out")
    mended = tmp_path / "mended.txt"
    mended.write_bytes(repaired_corpus(change(CORPUS["b.txt"])))
    with pytest.raises(InputError, match=expected):
        replayed(configure(), b_txt=mended)
    with pytest.raises(ConfigError, match=r"a\.txt, b\.txt"):
        replayed(configure(), z_txt=mended)
    with pytest.raises(ConfigError, match=r"such as a\.txt, b\.txt, c\.txt\n"):
        build.replay(configure(), {"b.tx": str(mended)})
    with pytest.raises(InputError, match=r"where: --source b\.txt=.*/nothing\n"):
        replayed(configure(), b_txt=tmp_path / "nothing")
    assert states(tmp_path / "out") == before


def audited(directory: Path) -> dict[str, Any]:
    """The manifest, once its sums are those of the files and of what each file was read as."""
    manifest = manifest_of(directory)
    kept = {file["name"]: [0, 0] for file in manifest["inputs"]}
    left = {file["name"]: [0, 0] for file in manifest["inputs"]}
    files = manifest["files"]
    for file in files["train"] + files["validation"]:
        for row in pq.read_table(directory / "out/tokens" / file["name"]).to_pylist():
            kept[row["source"]][0] += row["part"] == 0
            kept[row["source"]][1] += row["num_bytes"]
    for file in files["rejects"]:
        for row in pq.read_table(directory / "out/rejects" / file["name"]).to_pylist():
            left[row["source"]][0] += 1
            left[row["source"]][1] += row["length"]
    for file in manifest["inputs"]:
        name = file["name"]
        assert [file["documents"], file["bytes"]] == kept[name]
        assert [file["rejected"], file["rejected_bytes"]] == left[name]
    sums = ["documents", "rejected", "empty", "not_selected", "bytes", "not_selected_bytes"]
    for key in (*sums, "rejected_bytes", "framing_bytes"):
        assert manifest["totals"][key] == sum(file[key] for file in manifest["inputs"]), key
    return manifest


SELECTIONS: list[dict[str, Any]] = [
    {"sample_fraction": 0.5},
    {"min_chars": 7},
    {"max_chars": 6},
    {"sample_fraction": 0.6, "min_chars": 6},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "same_places", "selection"),
    [
        # Of what is not UTF-8 it is known whether it is selected by its length.
        *(("text", same, {"separator": "|", "min_chars": 7}) for same in (True, False)),
        *seldom(
            (
                (form, same, selection)
                for form in ("jsonl", "parquet")
                for selection in SELECTIONS
                for same in (True, False)
            ),
            3,
        ),
    ],
    ids=str,
)
def test_a_repaired_document_that_is_not_selected_moves_there(
    form: str,
    same_places: bool,
    selection: dict[str, Any],
    configure: Configure,
    tmp_path: Path,
) -> None:
    texts = [f"doc {i}" + "!" * (i % 3) for i in range(60)]
    data = tmp_path / "data"
    data.mkdir()
    mended = tmp_path / "mended"
    keys: dict[str, Any] = {"format": form, **selection}
    good = list(texts)
    if form == "text":
        bad = [i for i, text in enumerate(texts) if i % 7 == 3 and len(text) >= 7]
        for i in bad:
            good[i] = ["é" * 2 + "x" * (len(texts[i]) - 4), texts[i]][i % 2]
            good[i] += "" if same_places else "more"[: i % 3]
        lines = [text.encode() for text in texts]
        for i in bad:
            lines[i] = lines[i][:-1] + b"\xff"
        (data / "a").write_bytes(b"|".join(lines))
        mended.write_text("|".join(good), "utf-8")
    else:
        bad = [i for i in range(60) if i % 7 == 3]
        for i in bad:
            good[i] += "" if same_places else "more"
    if form == "jsonl":
        records = [json.dumps({"text": text}) for text in texts]
        for i in bad:
            records[i] = "?" * len(records[i])
        (data / "a").write_text("\n".join(records))
        mended.write_text("\n".join(json.dumps({"text": text}) for text in good))
    elif form == "parquet":
        column = [None if i in bad else text for i, text in enumerate(texts)]
        pq.write_table(pa.table({"text": column}), data / "a")
        pq.write_table(pa.table({"text": good}), mended)
    build.encode(configure(**keys))
    was = audited(tmp_path)["totals"]
    assert was["rejected"]
    assert was["not_selected"] or not keys.get("min_chars")
    build.replay(configure(**keys), {"a": str(mended)})
    now = audited(tmp_path)["totals"]
    assert now["rejected"] == 0
    assert now["documents"] + now["not_selected"] == 60
    shutil.copy2(mended, data / "a")
    other = at_once(tmp_path, configure, **keys)
    assert sorted(rows(other).values()) == sorted(rows(tmp_path).values())
    for key in ("corpus", "totals", "sources"):
        assert manifest_of(tmp_path)[key] == manifest_of(other)[key], key


@pytest.mark.slow
def test_which_of_several_were_left_out_is_not_guessed(
    configure: Configure, tmp_path: Path
) -> None:
    keys = {"separator": "|", "min_chars": 4}
    write_corpus(tmp_path / "data", {"a.txt": [b"first", b"x\xffxx", b"y\xffyy", b"z\xffzz"]}, "|")
    build.encode(configure(**keys))
    assert len(rejects(tmp_path)) == 3
    mended = tmp_path / "mended.txt"
    mended.write_bytes(b"first|long enough|x|y|")
    replayed(configure(**keys), a_txt=mended)  # of the first its place is known
    assert len(rows(tmp_path)) == 2
    audited(tmp_path)
    shutil.rmtree(tmp_path / "out")
    build.encode(configure(**keys))
    mended.write_bytes(b"first|long enough|x|long too|")
    replayed(configure(**keys), a_txt=mended)  # they stand side by side
    assert len(rows(tmp_path)) == 3
    audited(tmp_path)
    shutil.rmtree(tmp_path / "out")
    documents = [b"first", b"x\xffxx", b"a", b"y\xffyy", b"b", b"z\xffzz"]
    write_corpus(tmp_path / "data", {"a.txt": documents}, "|")
    build.encode(configure(**keys))
    before = checksums(tmp_path / "out")
    mended.write_bytes(b"first|long enough|a|x|b|long too|")
    with pytest.raises(InputError, match=r"(?s)3 repaired.*selection of.*min_chars: 4"):
        replayed(configure(**keys), a_txt=mended)
    assert checksums(tmp_path / "out") == before


@pytest.mark.slow
@pytest.mark.parametrize("mended_text", ["one|||three|four|five", "one|twoo||three||five"])
def test_a_repaired_document_may_be_empty(
    mended_text: str, configure: Configure, tmp_path: Path
) -> None:
    keys = {"separator": "|", "range_bytes": 4}
    data = tmp_path / "data"
    write_corpus(data, {"a.txt": [b"one", b"t\xffo", b"", b"three", b"f\xffur", b"five"]}, "|")
    build.encode(configure(**keys))
    was = audited(tmp_path)["totals"]
    mended = tmp_path / "mended.txt"
    mended.write_text(mended_text)
    replayed(configure(**keys), a_txt=mended)
    now = audited(tmp_path)["totals"]
    assert (now["rejected"], now["empty"]) == (0, was["empty"] + 1)
    assert now["documents"] == was["documents"] + 1


@pytest.mark.slow
def test_what_is_rejected_of_a_repaired_file_is_replayed_from_it(
    configure: Configure, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    mended = tmp_path / "mended.txt"
    mended.write_bytes(END.join([b"longer than it was", *CORPUS["b.txt"][1:]]) + END)
    replayed(configure(), b_txt=mended)
    run = json.loads((tmp_path / "out/tokens/run.json").read_text())
    assert run["repaired_locations"] == {"b.txt": str(mended)}
    summary = replayed(configure(invalid_utf8="replace"))
    assert not summary.warnings
    assert rejects(tmp_path) == []
    audited(tmp_path)
    (stage,) = build.encode(configure(invalid_utf8="replace")).stages
    assert stage.state == "already finished"
    shutil.copy2(mended, tmp_path / "data/b.txt")
    other = at_once(tmp_path, configure, invalid_utf8="replace")
    assert sorted(rows(other).values()) == sorted(rows(tmp_path).values())


@pytest.mark.slow
def test_it_is_told_that_no_reject_could_be_taken(configure: Configure, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"b.txt": CORPUS["b.txt"]})
    build.encode(configure())
    mended = tmp_path / "mended.txt"
    mended.write_bytes(END.join([b"longer than it was", *CORPUS["b.txt"][1:]]) + END)
    replayed(configure(), b_txt=mended)
    mended.write_bytes(b"changed")
    config = configure(invalid_utf8="replace")
    path = tmp_path / "build.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    done = command("replay", path)
    assert "No reject can be replayed without a repaired file (--source)." in done.stdout
    assert "--source b.txt=PATH" in done.stdout
    assert "already finished" not in done.stdout


def damaged_gzip(documents: list[bytes]) -> tuple[bytes, bytes]:
    whole = gzip.compress(b"".join(d + END for d in documents), mtime=0)
    return whole, whole[: len(whole) // 2]


def damaged_jsonl(documents: list[bytes]) -> tuple[bytes, bytes]:
    lines = [json.dumps({"text": d.decode("utf-8", "replace")}) for d in documents]
    broken = [line if i % 4 else line[:-3] + "???" for i, line in enumerate(lines)]
    return "\n".join(lines).encode(), "\n".join(broken).encode()


def damaged_parquet(documents: list[bytes]) -> tuple[bytes, bytes]:
    texts = [d.decode("utf-8", "replace") for d in documents]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": texts}), sink, row_group_size=10)
    whole = sink.getvalue().to_pybytes()
    return whole, whole[:-20] + b"?" * 20


FORMS: dict[str, tuple[dict[str, Any], Callable[[list[bytes]], tuple[bytes, bytes]]]] = {
    "b.txt.gz": ({"format": "text"}, damaged_gzip),
    "b.jsonl": ({"format": "jsonl", "separator": None}, damaged_jsonl),
    "b.parquet": ({"format": "parquet", "separator": None}, damaged_parquet),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_a_damaged_file_that_is_whole_again_gives_the_dataset_of_the_whole_file(
    name: str, configure: Configure, tmp_path: Path
) -> None:
    keys, damaged = FORMS[name]
    keys = {key: value for key, value in keys.items() if key != "separator"}
    data = tmp_path / "data"
    data.mkdir()
    whole, broken = damaged(GOOD)
    (data / name).write_bytes(broken)
    (data / f"a{name}").write_bytes(damaged(GOOD[:9])[0])
    build.encode(configure(**keys))
    assert rejects(tmp_path)
    again = tmp_path / f"again-{name}"
    again.write_bytes(whole)
    build.replay(configure(**keys), {name: str(again)})
    assert rejects(tmp_path) == []
    shutil.copy2(again, data / name)
    check_same_documents(tmp_path, at_once(tmp_path, configure, **keys), but=("size",))


@pytest.mark.slow
def test_rejects_of_damaged_files_stay_where_no_repaired_file_is_given(
    configure: Configure, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    documents = [*GOOD[:15], BAD[0], *GOOD[15:]]
    (data / "b.txt.gz").write_bytes(damaged_gzip([BAD[1], *documents])[1])
    write_corpus(data, {"a.txt": CORPUS["a.txt"]})
    build.encode(configure())
    summary = replayed(configure(invalid_utf8="replace"))
    assert [reason for _, _, reason in rejects(tmp_path)] == ["damaged_file"]
    assert [w for w in summary.warnings if "--source b.txt.gz=PATH" in w]
    assert manifest_of(tmp_path)["totals"]["bad_files"] == ["b.txt.gz"]
    check_same_documents(tmp_path, at_once(tmp_path, configure, invalid_utf8="replace"))


# --- interruptions, bytes, the command --------------------------------------------------------


@pytest.mark.slow
def test_an_interrupted_replay_goes_on_and_gives_the_same_bytes(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    keys = {"range_bytes": 2000}
    build.encode(configure(**keys))
    mended = tmp_path / "mended.txt"
    mended.write_bytes(repaired_corpus(CORPUS["b.txt"]))
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "out", other / "out")
    shutil.copytree(tmp_path / "data", other / "data")
    was = manifest_of(tmp_path)
    write, calls = transforms.write_task, []

    def failing(*arguments: Any) -> Any:
        if calls:
            raise KeyError("stopped by the test")
        calls.append(arguments)
        return write(*arguments)

    config = configure(invalid_utf8="replace", **keys)
    with monkeypatch.context() as patch:
        patch.setattr(transforms, "write_task", failing)
        with pytest.raises(Exception, match="stopped by the test"):
            replayed(
                config.model_copy(update={"beam": config.beam.model_copy(update={"workers": 1})}),
                b_txt=mended,
            )
    assert manifest_of(tmp_path) == was
    (stage,) = build.encode(configure(**keys)).stages
    assert stage.state == "already finished"
    assert manifest_of(tmp_path) == was
    # A killed writer leaves such a file.
    (tmp_path / "out/rejects/.add001-00000-of-00002.parquet.0123456789abcdef.tmp").touch()
    replayed(config, b_txt=mended)
    replayed(configure(other, invalid_utf8="replace", **keys), b_txt=mended)
    assert checksums(tmp_path / "out") == checksums(other / "out")


@pytest.mark.slow
@pytest.mark.parametrize("repaired", [False, True])
def test_a_token_file_on_a_failing_disk_is_an_error_of_the_output(
    repaired: bool, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    build.encode(configure())
    (tmp_path / "repaired.txt").write_bytes(repaired_corpus(CORPUS["b.txt"]))

    def failing(url: str, *_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), url)

    monkeypatch.setattr("pipelines.storage.parquet.open_stored", failing)
    files = {"b_txt": tmp_path / "repaired.txt"} if repaired else {}
    with pytest.raises(OutputError, match=r"cannot be read(.|\n)*tokens/train-"):
        replayed(configure(invalid_utf8="replace"), **files)


@pytest.mark.slow
def test_the_command_replays(configure: Configure, tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", CORPUS)
    config = configure()
    build.encode(config)
    mended = tmp_path / "mended.txt"
    mended.write_bytes(repaired_corpus(CORPUS["b.txt"]))
    path = tmp_path / "build.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    wrong = command("replay", path, "--source", "b.txt")
    assert wrong.returncode == 2
    assert "NAME=PATH" in wrong.stderr
    options = ["--source", f"b.txt={mended}", "--set", "input[0].invalid_utf8=replace"]
    done = command("replay", path, *options)
    assert done.returncode == 0, done.stderr
    assert "replay add001" in done.stdout
    assert rejects(tmp_path) == []
