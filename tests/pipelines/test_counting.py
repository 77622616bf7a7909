"""Runs, commits and shards: what is counted once, whatever dies, is repeated or is damaged."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from build_support import (
    checksums,
    config_for,
    count_job,
    finish_counting,
    merge_all,
    some_text,
    works_of,
    write_corpus,
)

from bpe_core import count_pretokens
from bpe_core._native import PretokenTable
from bpe_core.counts import PretokenCounts
from bpe_core.errors import CountOverflowError
from pipelines import counting
from pipelines.config import BuildConfig, TokenizerConfig
from pipelines.config.fingerprints import fingerprint
from pipelines.counting import commits, table
from pipelines.counting import shards as counting_shards
from pipelines.counting.commits import (
    TaskCounter,
    count_tasks,
    read_commit,
    usable_commits,
)
from pipelines.counting.given import GivenCounts
from pipelines.counting.jobs import CountJob
from pipelines.counting.load import load_counts
from pipelines.counting.training_counts import load_training_counts
from pipelines.errors import IncompleteCountsError, InputError, OutputError, TooLargeError
from pipelines.manifest.notes import CommitNote
from pipelines.readers.tasks import TaskWork

DOCUMENTS = {f"{name}.txt": some_text(40, start=40 * i) for i, name in enumerate("abc")}


@pytest.fixture
def config(tmp_path: Path) -> BuildConfig:
    write_corpus(tmp_path / "data", DOCUMENTS)
    return config_for(tmp_path, counts={"shards": 3, "checkpoint_bytes": 1})


@pytest.fixture
def works(config: BuildConfig) -> list[TaskWork]:
    found = works_of(config)
    assert len(found) >= 6
    return found


@pytest.fixture
def job(config: BuildConfig, works: list[TaskWork]) -> CountJob:
    return count_job(config, works)


@pytest.fixture
def expected(
    tmp_path_factory: pytest.TempPathFactory, config: BuildConfig, works: list[TaskWork]
) -> dict[str, str]:
    """Checksums of the shards that an undisturbed count of the same tasks writes."""
    other = config.model_copy(update={"output": str(tmp_path_factory.mktemp("other"))})
    finish_counting(count_job(other, works), works)
    return shards(count_job(other, works))


def shards(job: CountJob) -> dict[str, str]:
    files = checksums(Path(job.counts.url))
    return {name: value for name, value in files.items() if not name.startswith("_")}


def commits_of(job: CountJob) -> list[Path]:
    return sorted(Path(job.runs.url).glob("commit-*.json"))


def runs_of(job: CountJob) -> list[Path]:
    return sorted(Path(job.runs.url).glob("run-*.bin"))


def assert_nothing_written(job: CountJob) -> None:
    assert shards(job) == {}


# --- what a count gives


def test_shards_hold_every_pretoken_once_sorted_with_its_count(
    job: CountJob, works: list[TaskWork]
) -> None:
    entries = finish_counting(job, works)
    documents = [document for found in DOCUMENTS.values() for document in found]
    assert dict(PretokenCounts.load(job.counts.url).items()) == dict(
        count_pretokens(documents).items()
    )
    for entry in entries:
        table = pq.read_table(job.counts.path(entry["name"]))
        tokens = table["pretoken"].to_pylist()
        assert tokens == sorted(set(tokens))
        assert [str(field.type) for field in table.schema] == ["large_binary", "int64"]
        assert entry["rows"] == len(tokens)
        assert entry["pretokens"] == sum(table["count"].to_pylist())


def test_shards_say_what_they_were_counted_from(job: CountJob, works: list[TaskWork]) -> None:
    entries = finish_counting(job, works)
    metadata = pq.read_metadata(job.counts.path(entries[1]["name"])).metadata
    said = {key.decode(): value.decode() for key, value in metadata.items() if b"bpe." in key}
    corpus = said.pop("bpe.corpus")
    assert corpus.startswith("120-")
    totals = {key: entries[1][key] for key in ("rows", "pretokens")}
    assert json.loads(said.pop("bpe.totals")) == totals
    assert said == {
        "bpe.format": "1",
        "bpe.pattern": "gpt2",
        "bpe.special_tokens": '["<|endoftext|>"]',
        "bpe.unicode_version": "16.0.0",
        "bpe.normalizer": "null",
        "bpe.normalize_quotes": "false",
        "bpe.shard": "1 of 3",
    }


def test_a_custom_pattern_is_counted_into_the_same_kind_of_shards(
    config: BuildConfig, works: list[TaskWork]
) -> None:
    job = replace(count_job(config, works), pattern=r"\w+|\W")
    finish_counting(job, works)
    documents = [document for found in DOCUMENTS.values() for document in found]
    assert dict(PretokenCounts.load(job.counts.url).items()) == dict(
        count_pretokens(documents, pattern=r"\w+|\W").items()
    )


def test_a_document_on_which_the_pattern_backtracks_is_an_error_with_its_place(
    config: BuildConfig, works: list[TaskWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bpe_core.patterns._SPLIT_SECONDS", -1.0)
    job = replace(count_job(config, works), pattern=r"(?P<one>\w)(?P=one)|.")
    with pytest.raises(InputError, match="backtracks too long") as caught:
        list(count_tasks(job, works))
    assert "document at offset 0" in str(caught.value.where)


def test_little_memory_makes_many_runs_and_the_same_shards(
    job: CountJob, works: list[TaskWork], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(job, memory=1, checkpoint_bytes=1 << 30)
    descriptors = list(count_tasks(small, works))
    assert len(commits_of(small)) == 1
    assert len(runs_of(small)) > 10
    monkeypatch.setattr("pipelines.counting.shards.MERGED_AT_ONCE", 2)
    merge_all(small, descriptors)
    assert shards(small) == expected


def test_scratch_files_of_merging_in_rounds_are_removed(
    job: CountJob, works: list[TaskWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = list(count_tasks(job, works))
    before = runs_of(job)
    monkeypatch.setattr("pipelines.counting.shards.MERGED_AT_ONCE", 2)
    merge_all(job, descriptors)
    assert runs_of(job) == before


def test_merging_keeps_no_file_open(
    job: CountJob, works: list[TaskWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 256 runs each, a few workers would reach the usual limit of 1,024 open files."""
    descriptors = list(count_tasks(replace(job, memory=1), works))
    seen = []
    read = counting_shards.CountMerger

    def merger(*arguments: Any, **options: Any) -> Any:
        made = read(*arguments, **options)
        opened = [path.resolve().name for path in Path("/proc/self/fd").iterdir()]
        seen.append(sum(name.startswith("run-") for name in opened))
        return made

    monkeypatch.setattr("pipelines.counting.shards.CountMerger", merger)
    merge_all(job, descriptors)
    assert seen == [0] * job.shards


def test_counts_beyond_64_bits_are_refused(job: CountJob, works: list[TaskWork]) -> None:
    def write_run(count: int) -> counting.Section:
        table = PretokenTable(None, [])
        table.add_counts(*PretokenCounts.from_mapping({b"x": count}).columns())
        (packed,) = table.pack_sections(1)
        name = f"run-{count}.bin"
        with job.runs.write(name) as file:
            file.write(packed)
        return counting.Section(run=name, offset=0, length=len(packed), hash=file.hexdigest)

    sections = [write_run(2**63 - 1), write_run(1)]
    with pytest.raises(CountOverflowError):
        list(counting_shards.SectionMerger(job, sections).rows())


@pytest.mark.slow
def test_one_shard_alone_is_told_the_totals_of_every_source(
    tmp_path: Path, config: BuildConfig
) -> None:
    (source,) = config.input
    sources = [source.model_copy(update={"name": f"source-{i}"}) for i in range(50)]
    many = config.model_copy(update={"input": tuple(sources)})
    job = replace(count_job(many, works_of(many)), shards=8)
    descriptors = dict(count_tasks(job, works_of(many)))
    sizes = [len(descriptors[shard]) for shard in range(8)]
    assert len(json.loads(descriptors[0])["sources"]) == 50
    assert max(sizes[1:]) < 1000 < sizes[0] // 10


@pytest.mark.parametrize("policy", ["split", "reject", "error"])
def test_documents_with_special_tokens_are_counted_whatever_becomes_of_them_in_encoding(
    policy: str, tmp_path: Path, config: BuildConfig
) -> None:
    write_corpus(tmp_path / "data", {"d.txt": [b"good", b"bad <|x|> one"]})
    tokens = config.tokenizer.model_copy(update={"special_tokens": ("<|endoftext|>", "<|x|>")})
    encode = config.encode.model_copy(update={"special_tokens_in_text": policy})
    config = config.model_copy(update={"tokenizer": tokens, "encode": encode})
    works = works_of(config)
    job = count_job(config, works)
    (entry, *_) = finish_counting(job, works)
    (totals,) = entry["sources"]
    assert (totals["documents"], totals["rejected"]) == (122, 0)
    assert not list(Path(job.rejects.url).glob("*"))


# --- long pre-tokens


def test_a_pretoken_that_is_too_long_is_an_error_that_names_its_place(
    tmp_path: Path, config: BuildConfig
) -> None:
    write_corpus(tmp_path / "data", {"d.txt": [b"short", b"so " + b"l" * 30 + b"ng"]})
    works = works_of(config)
    job = replace(count_job(config, works), max_pretoken_bytes=20)
    with pytest.raises(InputError) as error:
        finish_counting(job, works)
    text = str(error.value)
    assert "33 bytes" in text
    assert "d.txt, document at offset 18, part 0, byte 2" in text
    assert "counts.on_long_pretoken: skip" in text


@pytest.mark.parametrize("pattern", ["gpt2", r" ?\w+|\W"])
def test_skipped_long_pretokens_are_counted_as_skipped(
    pattern: str, tmp_path: Path, config: BuildConfig
) -> None:
    write_corpus(tmp_path / "data", {"d.txt": [b"so " + b"l" * 30 + b" ng"] * 2})
    works = works_of(config)
    job = replace(
        count_job(config, works), max_pretoken_bytes=20, on_long_pretoken="skip", pattern=pattern
    )
    entries = finish_counting(job, works)
    assert entries[0]["long_pretokens"] == 2
    counted = dict(PretokenCounts.load(job.counts.url).items())
    assert counted[b" ng"] == 2
    assert max(map(len, counted)) <= 20


# --- commits


def test_a_commit_names_its_tasks_its_runs_and_their_checksums(
    job: CountJob, works: list[TaskWork]
) -> None:
    descriptors = list(count_tasks(job, works[:2]))
    assert len(commits_of(job)) == 2
    assert Counter(shard for shard, _ in descriptors) == {0: 2, 1: 2, 2: 2}
    commit = json.loads(commits_of(job)[0].read_bytes())
    assert commit["plan_id"] == job.plan_id
    ((index, task_hash),) = commit["tasks"].items()
    assert int(task_hash, 16) == works[int(index)].hash
    assert [len(run) for run in commit["runs"]] == [job.shards]
    assert {section["run"] for run in commit["runs"] for section in run} <= {
        path.name for path in runs_of(job)
    }


def test_a_commit_is_due_at_the_first_end_of_a_task_after_checkpoint_bytes(
    job: CountJob, works: list[TaskWork]
) -> None:
    list(count_tasks(replace(job, checkpoint_bytes=5000), works))
    commits = list(usable_commits(job))
    assert sum(len(commit.tasks) for commit in commits) == len(works)
    enough = [commit for commit in commits if commit.totals.all_bytes >= 5000]
    assert len(enough) >= len(commits) - 1  # but for that at the end
    assert max(commit.totals.all_bytes for commit in commits) < 10_000


def test_runs_without_a_commit_are_ignored(
    job: CountJob, works: list[TaskWork], expected: dict[str, str]
) -> None:
    counter = TaskCounter(replace(job, memory=1, checkpoint_bytes=1 << 30))
    list(counter.count(works[0]))
    counter.close()
    assert runs_of(job)
    assert list(usable_commits(job)) == []
    finish_counting(job, works)
    assert shards(job) == expected


def test_an_attempt_that_fails_in_the_middle_of_a_task_leaves_nothing_that_counts(
    job: CountJob,
    works: list[TaskWork],
    expected: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = commits.read_task

    def dying(work: TaskWork, readings: Any) -> Iterator[Any]:
        yield from real(work, readings)
        if work.index == 3:
            raise MemoryError

    monkeypatch.setattr("pipelines.counting.commits.read_task", dying)
    with pytest.raises(MemoryError):
        list(count_tasks(replace(job, memory=1), works))
    assert len(commits_of(job)) == 3
    read: list[int] = []

    def recording(work: TaskWork, readings: Any) -> Iterator[Any]:
        read.append(work.index)
        return real(work, readings)

    monkeypatch.setattr("pipelines.counting.commits.read_task", recording)
    finish_counting(job, works)
    assert read == [work.index for work in works[3:]]
    assert shards(job) == expected


def test_a_repeated_bundle_counts_once_and_a_resume_after_it_too(
    job: CountJob, works: list[TaskWork], expected: dict[str, str]
) -> None:
    list(count_tasks(job, works[:4]))  # an attempt whose outputs were lost
    list(count_tasks(replace(job, checkpoint_bytes=1 << 30), works[2:6]))
    commits = list(usable_commits(job))
    tasks = Counter(index for commit in commits for index in commit.tasks)
    assert set(tasks.values()) == {1}
    finish_counting(job, works)
    assert shards(job) == expected


def test_commits_of_another_plan_are_not_used(
    config: BuildConfig, job: CountJob, works: list[TaskWork], expected: dict[str, str]
) -> None:
    other = count_job(config, works, plan_id="other")
    list(count_tasks(other, works[:3]))
    for path in (*commits_of(other), *runs_of(other)):
        target = Path(job.runs.url) / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    assert list(usable_commits(job)) == []
    finish_counting(job, works)
    assert shards(job) == expected


def test_a_commit_copied_under_another_name_is_used_once(
    job: CountJob, works: list[TaskWork], expected: dict[str, str]
) -> None:
    list(count_tasks(job, works[:3]))
    first = commits_of(job)[0]
    first.with_name("commit-0.json").write_bytes(first.read_bytes())
    assert len(list(usable_commits(job))) == 3
    finish_counting(job, works)
    assert shards(job) == expected


def test_the_tasks_of_a_removed_commit_are_counted_again(
    job: CountJob, works: list[TaskWork], expected: dict[str, str]
) -> None:
    list(count_tasks(job, works))
    commits_of(job)[1].unlink()
    finish_counting(job, works)
    assert shards(job) == expected


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_no_shard_is_written_from_too_few_commits(
    shard: int, job: CountJob, works: list[TaskWork]
) -> None:
    descriptors = [text for s, text in count_tasks(job, works) if s == shard]
    for left_out in range(len(descriptors)):
        some = descriptors[:left_out] + descriptors[left_out + 1 :]
        with pytest.raises(IncompleteCountsError, match="do not contain every task exactly once"):
            counting.merge_commits(job, shard, some)
    assert_nothing_written(job)


def test_no_shard_is_written_from_a_commit_that_comes_twice(
    job: CountJob, works: list[TaskWork]
) -> None:
    descriptors = [text for s, text in count_tasks(job, works) if s == 0]
    for twice in range(len(descriptors)):
        with pytest.raises(IncompleteCountsError):
            counting.merge_commits(job, 0, [*descriptors, descriptors[twice]])
        # One twice and another missing: the right number of tasks, but not the right ones.
        other = descriptors[(twice + 1) % len(descriptors)]
        exchanged = [other if i == twice else text for i, text in enumerate(descriptors)]
        with pytest.raises(IncompleteCountsError):
            counting.merge_commits(job, 0, exchanged)
    assert_nothing_written(job)


def test_no_shard_is_written_from_no_commit(job: CountJob) -> None:
    with pytest.raises(IncompleteCountsError) as error:
        counting.merge_commits(job, 0, [b""])
    assert f"{job.num_tasks} tasks" in str(error.value)
    assert "found: 0 tasks" in str(error.value)


# --- damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"documents": ', '"documents": 1'),
        lambda text: text[:-20],
        lambda text: "",
        lambda text: "{}",
        lambda text: "[1]",
        lambda text: text.replace('"offset": 0', '"offset": 1'),
    ],
)
def test_a_damaged_commit_is_found(
    damage: Callable[[str], str], job: CountJob, works: list[TaskWork]
) -> None:
    list(count_tasks(job, works))
    # Names are random, and a task in whose range no document begins has a commit without runs.
    commit = next(path for path in commits_of(job) if '"offset": 0' in path.read_text())
    damaged = damage(commit.read_text())
    assert damaged != commit.read_text()
    commit.write_text(damaged)
    with pytest.raises(OutputError) as error:
        list(usable_commits(job))
    assert commit.name in str(error.value)
    assert "--restart" in str(error.value)


def test_a_commit_that_is_gone_when_a_worker_reads_it_is_told_of(
    job: CountJob, works: list[TaskWork]
) -> None:
    list(count_tasks(job, works))
    first = next(usable_commits(job))
    assert read_commit(job, first.name) == first
    (Path(job.runs.url) / first.name).unlink()
    with pytest.raises(OutputError, match=first.name):
        read_commit(job, first.name)


def test_a_commit_with_tasks_that_the_plan_does_not_have_writes_no_shard(
    job: CountJob, works: list[TaskWork]
) -> None:
    list(count_tasks(job, works))
    commit = commits_of(job)[0]
    content = json.loads(commit.read_bytes())
    del content["fingerprint"]
    content["tasks"] = {"999": f"{5:032x}"}
    commit.write_text(json.dumps({**content, "fingerprint": fingerprint(content)}))
    with pytest.raises(IncompleteCountsError):
        finish_counting(job, works)
    assert_nothing_written(job)


def test_every_damaged_byte_of_a_run_is_found(job: CountJob, works: list[TaskWork]) -> None:
    job = replace(job, checkpoint_bytes=1 << 30, shards=1)
    descriptors = list(count_tasks(job, works))
    (run,) = runs_of(job)
    good = run.read_bytes()
    for place in range(len(good)):
        damaged = bytearray(good)
        damaged[place] ^= 1 << (place % 8)
        run.write_bytes(damaged)
        with pytest.raises(IncompleteCountsError) as error:
            merge_all(job, descriptors)
        assert "damaged" in str(error.value)
        assert str(run.parent) in str(error.value)
    assert_nothing_written(job)
    run.write_bytes(good)
    merge_all(job, descriptors)


@pytest.mark.parametrize("length", [0, 1, 0.5, -1])
def test_a_run_that_is_cut_short_is_found(
    length: float, job: CountJob, works: list[TaskWork]
) -> None:
    descriptors = list(count_tasks(replace(job, checkpoint_bytes=1 << 30), works))
    (run,) = runs_of(job)
    good = run.read_bytes()
    run.write_bytes(good[: int(len(good) * length) if length == 0.5 else int(length)])
    with pytest.raises(IncompleteCountsError, match="damaged"):
        merge_all(job, descriptors)


def test_a_missing_run_is_found(job: CountJob, works: list[TaskWork]) -> None:
    descriptors = list(count_tasks(job, works))
    missing = runs_of(job)[0]
    missing.unlink()
    with pytest.raises(IncompleteCountsError) as error:
        merge_all(job, descriptors)
    assert str(missing) in str(error.value)
    assert "No such file" in str(error.value)


def test_a_damaged_shard_is_not_trained_on(job: CountJob, works: list[TaskWork]) -> None:
    entries = finish_counting(job, works)
    manifest = {"shards": entries, "fingerprint": "f"}
    assert len(load_counts(job.counts, manifest)) == sum(entry["rows"] for entry in entries)
    path = Path(job.counts.path(entries[1]["name"]))
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(OutputError, match="damaged"):
        load_counts(job.counts, manifest)
    path.unlink()
    with pytest.raises(OutputError, match="cannot be read"):
        load_counts(job.counts, manifest)


def damage_at_random(job: CountJob, numbers: random.Random) -> str:
    """Damages, cuts, doubles, exchanges or removes one file of the runs; what was done."""
    paths = sorted(path for path in Path(job.runs.url).iterdir() if path.is_file())
    if not paths:
        return "nothing is left"
    path, other = numbers.choice(paths), numbers.choice(paths)
    data = path.read_bytes()
    what = numbers.choice(["flip", "cut", "empty", "extend", "double", "exchange", "remove"])
    if what == "flip" and data:
        place = numbers.randrange(len(data))
        data = data[:place] + bytes([data[place] ^ 1 << numbers.randrange(8)]) + data[place + 1 :]
        path.write_bytes(data)
    elif what == "cut":
        path.write_bytes(data[: numbers.randrange(len(data) + 1)])
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "extend":
        path.write_bytes(data + data[:10])
    elif what == "double":
        kind, _, _ = path.name.partition("-")
        path.with_name(f"{kind}-{numbers.getrandbits(128):032x}{path.suffix}").write_bytes(data)
    elif what == "exchange":
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif what == "remove":
        path.unlink()
    return f"{what} {path.name}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_whatever_becomes_of_runs_and_commits_no_shard_is_incomplete_or_double(
    seed: int, job: CountJob, works: list[TaskWork], expected: dict[str, str]
) -> None:
    numbers = random.Random(seed)
    job = replace(job, checkpoint_bytes=numbers.choice([1, 3000, 1 << 30]))
    list(count_tasks(job, numbers.sample(works, numbers.randint(1, len(works)))))
    list(count_tasks(job, numbers.sample(works, numbers.randint(0, 2))))  # a repeated bundle
    done = [damage_at_random(job, numbers) for _ in range(numbers.randint(1, 4))]
    for _ in range(2):
        try:
            finish_counting(job, works)
        except (OutputError, IncompleteCountsError) as error:
            assert job.runs.url in str(error) or "commit-" in str(error), done
            assert shards(job).items() <= expected.items(), done
        else:
            assert shards(job) == expected, done


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_shard_is_written_from_every_task_once_and_from_nothing_else(
    seed: int, job: CountJob, works: list[TaskWork], expected: dict[str, str]
) -> None:
    """Any choice of descriptors, of attempts that overlap, some of them several times."""
    numbers = random.Random(seed)
    attempts = [replace(job, checkpoint_bytes=numbers.choice([1, 2500, 5000])) for _ in range(3)]
    for attempt in attempts:
        list(count_tasks(attempt, numbers.sample(works, len(works))))
    commits = [
        counting.Commit.of_note(path.name, CommitNote.parse(path.read_bytes(), path.name))
        for path in commits_of(job)
    ]
    for _ in range(30):
        chosen = numbers.choices(commits, k=numbers.randint(1, len(works)))
        if numbers.random() < 0.5:  # likely to be right
            chosen, taken = [], set()
            for commit in numbers.sample(commits, len(commits)):
                if taken.isdisjoint(commit.tasks):
                    chosen.append(commit)
                    taken.update(commit.tasks)
        held = Counter(index for commit in chosen for index in commit.tasks)
        right = held == Counter(work.index for work in works)
        descriptors = [text for commit in chosen for s, text in commit.descriptors(3) if s == 1]
        if right:
            counting.merge_commits(job, 1, descriptors)
            assert shards(job).items() <= expected.items()
            assert len(shards(job)) == 1
            Path(job.counts.path(counting.shard_name(1, 3))).unlink()
        else:
            with pytest.raises(IncompleteCountsError):
                counting.merge_commits(job, 1, descriptors)
            assert_nothing_written(job)


# --- memory of the tables


def test_counts_too_large_for_the_merge_stage_are_refused_with_the_estimate(
    job: CountJob, works: list[TaskWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = finish_counting(job, works)
    manifest = {"shards": entries, "fingerprint": "0"}
    monkeypatch.setattr("pipelines.counting.load.available_memory", lambda: 1 << 20)
    with pytest.raises(TooLargeError, match=r"tokenizer\.min_count"):
        load_counts(job.counts, manifest)


def test_rare_pretokens_are_left_out_while_counts_are_loaded(
    job: CountJob, works: list[TaskWork]
) -> None:
    manifest = {"shards": finish_counting(job, works), "fingerprint": "0"}
    given = GivenCounts.open(job.counts.url)
    kept = load_training_counts(given, TokenizerConfig(min_count=20)).counts
    assert dict(kept.items()) == dict(load_counts(job.counts, manifest).prune(20).items())
    assert 0 < len(kept) < len(load_counts(job.counts, manifest))


def test_counters_at_work_share_the_memory() -> None:
    share = table.MemoryShare
    before = share.of(1000)

    class Counter_:
        pass

    first, second = Counter_(), Counter_()
    share.join(first)
    share.join(second)
    assert share.of(1000) <= min(before, 500)
    share.leave(first)
    del second  # forgotten after an error: it has no share
    assert share.of(1000) == before
