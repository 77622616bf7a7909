from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pipelines.cli.render import show_plan, show_summary
from pipelines.console.units import format_bytes
from pipelines.stages.estimates import Estimate
from pipelines.stages.summary import (
    BuildPlan,
    BuildSummary,
    PlannedFile,
    StageSummary,
)

SUMMARY = BuildSummary(
    documents=66,
    bytes=4_404_445,
    empty=2,
    rejects=1,
    distinct_pretokens=34_021,
    merges=7_935,
    stop_reason="the vocabulary is full",
    vocab_size=8_192,
    tokens=1_123_456,
    bytes_per_token=3.9204,
    train_rows=60,
    validation_rows=4,
    stages=(
        StageSummary(name="count", seconds=0.02, bytes=4_404_445),
        StageSummary(name="train", seconds=1.04),
        StageSummary(name="encode", seconds=0.5, bytes=4_404_445, state="resumed"),
    ),
    outputs={"tokenizer": "/out/[1]/tokenizer", "tokens": "/out/" + "long/" * 30 + "tokens"},
    next_command="beam-bpe plan configs/quickstart.yaml",
    warnings=("The corpus has too few pairs for 9,000 ids.",),
)
ESTIMATE = Estimate(
    documents=11_492,
    text_bytes=63_850_187,
    exact=False,
    sampled_bytes=8_400_000,
    distinct_pretokens=458_380,
    heaps_factor=3.21,
    heaps_exponent=0.66,
    tokens=20_000_000,
    token_file_bytes=26_000_000,
    count_file_bytes=4_000_000,
    seconds={"count": 4.0, "train": 3.0, "encode": 8.0},
    memory={"count": 300_000_000, "train": 250_000_000, "encode": 400_000_000},
    workers=2,
    tasks=4,
)
PLAN = BuildPlan(
    files=(
        PlannedFile(
            path="/d/a.txt", bytes=3_000_000, compression="none", splittable=True, ranges=3
        ),
        PlannedFile(
            path="/d/b.zst", bytes=10, compression="zstd", splittable=False, ranges=1, source="b"
        ),
    ),
    tasks=4,
    finished_tasks=1,
    shards=64,
    token_files=tuple(f"train-{number:05}-of-00004.parquet" for number in range(4)),
    id_type="uint16",
    splitting="by a native scanner",
    output="/out",
    estimate=ESTIMATE,
    warnings=("b.zst cannot be split.",),
)


def shown(show: object, value: object, files: bool = False, **options: object) -> str:
    stream = io.StringIO()
    given = {"files": True} if files else {}
    show(value, Console(file=stream, width=40, **options), **given)  # type: ignore[operator,arg-type]
    return stream.getvalue()


def test_a_summary_shows_every_figure_where_the_results_are_and_what_next() -> None:
    assert shown(show_summary, SUMMARY) == (
        "documents            66, 2 of them empty\n"
        "text                 4.4 MB (4,404,445 bytes)\n"
        "rejects              1\n"
        "distinct pre-tokens  34,021\n"
        "merges               7,935; stopped because the vocabulary is full\n"
        "vocabulary           8,192 ids\n"
        "tokens               1,123,456, 3.92 bytes per token\n"
        "rows                 60 train, 4 validation\n"
        "\n"
        "stage                  seconds      MB/s\n"
        "count                      0.0     220.2\n"
        "train                      1.0         –\n"
        "encode                     0.5       8.8  resumed\n"
        "\n"
        "results\n"
        "tokenizer            /out/[1]/tokenizer\n"
        f"tokens               /out/{'long/' * 30}tokens\n"
        "\n"
        "warning: The corpus has too few pairs for 9,000 ids.\n"
        "\n"
        "next\n"
        "beam-bpe plan configs/quickstart.yaml\n"
    )


def test_what_was_not_part_of_a_command_is_not_shown() -> None:
    summary = BuildSummary(merges=3, stages=(StageSummary(name="train", seconds=2.0),))
    assert shown(show_summary, summary) == (
        "merges               3\n"
        "\n"
        "stage                  seconds      MB/s\n"
        "train                      2.0         –\n"
    )


def test_the_parts_of_a_stage_stand_below_it() -> None:
    count = StageSummary(
        name="count", state="resumed", seconds=2.0, bytes=8_000_000, parts={"read": 0.5, "merge": 0}
    )
    stages = (count, StageSummary(name="train", seconds=1.0))
    assert shown(show_summary, BuildSummary(stages=stages)) == (
        "\n"
        "stage                  seconds      MB/s\n"
        "count                      2.0       4.0  resumed\n"
        "  read                     0.5      16.0\n"
        "  merge                    0.0         –\n"
        "train                      1.0         –\n"
        "(Indented: seconds of all workers together, MB/s of one.)\n"
    )


def test_stages_that_had_nothing_to_do_show_no_rate() -> None:
    stages = tuple(StageSummary(name=name, state="already finished") for name in ("count", "train"))
    text = shown(show_summary, BuildSummary(stages=stages))
    assert text.startswith("Everything was finished already; nothing was done.\n")
    assert text.count("already finished\n") == 2


def test_a_plan_shows_documents_work_expected_output_and_warnings() -> None:
    assert shown(show_plan, PLAN) == (
        "files                2, 3.0 MB; 1 can be split\n"
        "documents            about 11,492\n"
        "text                 about 63.9 MB (8.4 MB sampled)\n"
        "distinct pre-tokens  about 458,380 (fit: 3.21 × bytes^0.660)\n"
        "tokens               about 20,000,000, 3.19 bytes per token\n"
        "work                 4 tasks (1 finished) on 2 workers (2.0 each), about 12 s here; "
        "under 0.01 vCPU-hours elsewhere\n"
        "  count              about 4.0 s of one core, 300.0 MB of memory a worker\n"
        "  train              about 3.0 s of one core, 250.0 MB of memory\n"
        "  encode             about 8.0 s of one core, 400.0 MB of memory a worker\n"
        "text is split        by a native scanner\n"
        "count files          64, about 4.0 MB\n"
        "token files          4: train-00000-of-00004.parquet … train-00003-of-00004.parquet; "
        "about 26.0 MB, 6.5 MB each\n"
        "token ids            uint16\n"
        "output               /out\n"
        "\n"
        "warning: b.zst cannot be split.\n"
    )


def test_a_plan_lists_files_on_request() -> None:
    assert shown(show_plan, PLAN, files=True).endswith(
        "warning: b.zst cannot be split.\n"
        "\n"
        "/d/a.txt: 3.0 MB, 3 ranges\n"
        "/d/b.zst (b): 10 bytes, zstd, 1 range, cannot be split\n"
    )


def test_a_plan_without_an_estimate_shows_the_work() -> None:
    text = shown(show_plan, replace(PLAN, estimate=None))
    assert "work                 4 tasks (1 finished)\n" in text
    assert "about" not in text


def test_a_plan_for_an_engine_shows_no_time_here() -> None:
    text = shown(show_plan, replace(PLAN, estimate=replace(ESTIMATE, workers=None)))
    assert "work                 4 tasks (1 finished); under 0.01 vCPU-hours elsewhere\n" in text


def test_a_plan_shows_what_is_selected_and_what_is_not_read() -> None:
    files = (replace(PLAN.files[0], stop=1500), replace(PLAN.files[1], stop=0))
    selection = {"b": {"limit_documents": 7, "exclude": ["c*"]}, "d": {"min_chars": 3}}
    text = shown(show_plan, replace(PLAN, files=files, selection=selection), files=True)
    assert "/d/a.txt: 3.0 MB, 3 ranges, read up to 1,500\n" in text
    assert "/d/b.zst (b): 10 bytes, zstd, not read\n" in text
    assert "files                2, 3.0 MB; 1 can be split, 1 not read\n" in text
    assert "selection b          limit_documents: 7, exclude: ['c*']\n" in text
    assert "selection d          min_chars: 3\n" in text


def test_a_summary_shows_framing_and_what_was_not_selected() -> None:
    text = shown(show_summary, replace(SUMMARY, framing_bytes=1234, not_selected=9_999))
    assert "separators           1.2 kB (1,234 bytes)\n" in text
    assert "not selected         9,999\n" in text


def test_a_plan_of_a_finished_tokenizer_shows_that_nothing_is_trained() -> None:
    text = shown(show_plan, replace(PLAN, shards=0, token_files=()))
    assert "count files          none: nothing is trained\n" in text


def test_a_terminal_gets_bold_headings_and_other_output_none() -> None:
    assert "\x1b[1m" in shown(show_summary, SUMMARY, force_terminal=True)
    assert "\x1b" not in shown(show_summary, SUMMARY)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5 * 10**12, "5.0 TB"),
        (7 * 10**18, "7000.0 PB"),
    ],
)
def test_sizes_are_shown_with_three_digits_or_so(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_names_of_files_do_nothing_to_the_terminal() -> None:
    file = PlannedFile(
        path="/d/\x1b[2Ja\x07\u202e.txt", bytes=1, compression="none", splittable=True, ranges=1
    )
    plan = replace(PLAN, files=(file,))
    text = shown(show_plan, plan, files=True, force_terminal=True, color_system=None)
    assert "/d/\\x1b[2Ja\\x07\\u202e.txt" in text
    assert "\x07" not in text
    assert "\u202e" not in text
