"""Sizes of a vocabulary: the numbers are those of tokenizers trained to each size."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import (
    BPETokenizer,
    PretokenCounts,
    VocabularySize,
    count_pretokens,
    measure_vocabulary_sizes,
    reference,
    train_from_counts,
)
from bpe_core.buffers import concatenate
from bpe_core.count_groups import Group, GroupColumns
from bpe_core.errors import CountOverflowError, FormatError, TrainingError
from bpe_core.formats import read_arrow
from bpe_core.formats.arrow import write_arrow
from bpe_core.model import TokenizerModel
from bpe_core.vocabulary_sizes import NEWEST

KJV = Path(__file__).parents[2] / "examples" / "data" / "kjv-00.txt"

words = st.dictionaries(
    st.text("abc ", min_size=1, max_size=12).map(str.encode), st.integers(1, 5), max_size=8
)


@st.composite
def hand_made(draw: st.DrawFn) -> TokenizerModel:
    """Tokenizers with merges in any order, several of which may make the same token."""
    random_ = draw(st.randoms(use_true_random=False))
    tokens = [bytes([byte]) for byte in b"abc "]
    pairs: list[tuple[bytes, bytes]] = []
    for _ in range(draw(st.integers(0, 8))):
        pair = random_.choice(tokens), random_.choice(tokens)
        if pair not in pairs and len(pair[0] + pair[1]) <= 5:
            pairs.append(pair)
            tokens += [pair[0] + pair[1]] * (pair[0] + pair[1] not in tokens)
    tokens += [token for token in (b"cab", b"a b") if token not in tokens]
    random_.shuffle(pairs)
    ids = {token: 2 * i for i, token in enumerate(tokens)}
    return TokenizerModel.from_tokens(
        ((i, token) for token, i in ids.items()),
        [(ids[left], ids[right], ids[left + right]) for left, right in pairs],
        special_tokens={"<s>": 1},
        pattern="none",
        ignore_merges=draw(st.booleans()),
        stop_reason="no_pairs_left",
    )


def by_reference(
    model: TokenizerModel, mapping: Mapping[bytes, int], num_merges: int
) -> dict[str, int]:
    """The numbers of the first merges of a tokenizer, by encoding with them alone."""
    merges = model.merge_bytes
    known = {left + right for left, right in merges[:num_merges]}
    made = [left + right for left, right in merges]
    known |= {token for _, token in model.tokens if token not in made}
    whole = known if model.ignore_merges else set()
    split = {k: n for k, n in mapping.items() if k not in whole}
    occurrences, alone = reference.use_at_size(split, merges, num_merges)
    for pretoken in mapping.keys() - split.keys():
        occurrences[pretoken] += mapping[pretoken]
        alone[pretoken] += mapping[pretoken]
    newest = list(dict.fromkeys(made[:num_merges]))[-NEWEST:]
    return {
        "tokens": occurrences.total(),
        "bytes": sum(len(pretoken) * count for pretoken, count in mapping.items()),
        "pretokens": sum(mapping.values()),
        "single_token_pretokens": alone.total(),
        "used_ids": len(+occurrences),
        "last_thousand_tokens": sum(occurrences[token] for token in newest),
    }


def numbers_of(size: VocabularySize) -> dict[str, int]:
    return vars(size.total)


@pytest.mark.slow
@settings(max_examples=times(2))
@given(model=hand_made(), mapping=words, num_threads=st.integers(1, 2))
def test_any_tokenizer_gives_the_numbers_of_its_first_merges(
    model: TokenizerModel, mapping: dict[bytes, int], num_threads: int
) -> None:
    counts = PretokenCounts.from_mapping(mapping, {"pattern": "none"})
    made = [left + right for left, right in model.merge_bytes]
    start = len(model) - len(set(made))
    expected = {
        start + len(set(made[:num])): num  # of the numbers of merges with this size the least
        for num in reversed(range(len(made) + 1))
    }
    expected[len(model)] = len(made)
    sizes = [*expected, len(model) + 5]
    found = measure_vocabulary_sizes(
        BPETokenizer.from_model(model), counts, sizes, num_threads=num_threads
    )
    for size in found:
        num_merges = expected[min(size.vocab_size, len(model))]
        assert numbers_of(size) == by_reference(model, mapping, num_merges), size.vocab_size
        assert size.ids == min(size.vocab_size, len(model))


@pytest.mark.slow
@settings(max_examples=times(1))
@given(mapping=words, base_merges=words, more=st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_sizes_are_those_of_tokenizers_trained_to_them(
    mapping: dict[bytes, int], base_merges: dict[bytes, int], more: list[int]
) -> None:
    """From bytes, and extending a tokenizer; special tokens are ids, too."""
    whole = {"pattern": "none"}
    counts = PretokenCounts.from_mapping(mapping, whole)
    base = train_from_counts(PretokenCounts.from_mapping(base_merges, whole), 260).tokenizer()
    for options in ({}, {"base": base}):
        least = len(base) + 1 if options else 257
        sizes = [least + n for n in more]
        largest = train_from_counts(counts, max(sizes), ["<s>"], **options)  # type: ignore[call-overload]
        found = measure_vocabulary_sizes(largest.tokenizer(), counts, sizes)
        for size in found:
            alone = train_from_counts(counts, size.vocab_size, ["<s>"], **options)  # type: ignore[call-overload]
            tokenizer = alone.tokenizer()
            occurrences: Counter[int] = Counter()
            for pretoken, count in mapping.items():
                for token_id in tokenizer.encode_ordinary(pretoken.decode()):
                    occurrences[token_id] += count
            assert size.total.tokens == occurrences.total()
            assert size.total.used_ids == len(occurrences)
            assert size.ids == len(alone.model)


@pytest.mark.slow
@settings(max_examples=times(1))
@given(
    mapping=st.dictionaries(
        st.text("ab", min_size=1, max_size=12).map(str.encode), st.integers(1, 5), max_size=8
    ),
    more=st.integers(0, 12),
)
def test_each_merge_has_the_number_of_times_that_it_was_applied(
    mapping: dict[bytes, int], more: int
) -> None:
    """It is one token less each time; the pairs of equal tokens overlap. Files contain it."""
    counts = PretokenCounts.from_mapping(mapping)
    half = train_from_counts(counts, 256 + more // 2)
    for base in (None, half.tokenizer()):
        model = train_from_counts(counts, 256 + more, base=base).model
        assert model.applied_counts is not None
        sizes = [256 + n for n in range(len(half.merges) if base else 0, len(model.merges) + 1)]
        found = measure_vocabulary_sizes(BPETokenizer.from_model(model), counts, sizes)
        tokens = [size.total.tokens for size in found]
        applied = model.applied_counts.tolist()
        assert [a - b for a, b in pairwise(tokens)] == applied[sizes[0] - 256 :]
        with TemporaryDirectory() as directory:
            path = Path(directory, "tokenizer.arrow")
            write_arrow(model, path)
            assert not applied or read_arrow(path) == model


def test_files_without_applied_counts_are_read(tmp_path: Path) -> None:
    """Those of earlier versions. Pairs of different tokens have one count."""
    for mapping, applied in (({b"aaa": 3}, None), ({b"abc": 3}, [3])):
        model = train_from_counts(PretokenCounts.from_mapping(mapping), 257).model
        write_arrow(model, tmp_path / "tokenizer.arrow")
        table = pa.ipc.open_file((tmp_path / "tokenizer.arrow").read_bytes()).read_all()
        metadata = dict(table.schema.metadata)
        assert (metadata.pop(b"applied_counts", None) is None) == (applied is not None)
        with pa.ipc.new_file(tmp_path / "old.arrow", table.schema.with_metadata(metadata)) as file:
            file.write_table(table.replace_schema_metadata(metadata))
        old = read_arrow(tmp_path / "old.arrow").applied_counts
        assert (None if old is None else old.tolist()) == applied


@pytest.mark.parametrize("wrong", ['{"1": 2}', '{"0": -1}', '{"0": 1.5}', '{"x": 1}', "[]"])
def test_malformed_applied_counts_are_refused(tmp_path: Path, wrong: str) -> None:
    model = train_from_counts(PretokenCounts.from_mapping({b"aaa": 3}), 257).model
    write_arrow(model, tmp_path / "tokenizer.arrow")
    table = pa.ipc.open_file((tmp_path / "tokenizer.arrow").read_bytes()).read_all()
    table = table.replace_schema_metadata({**table.schema.metadata, b"applied_counts": wrong})
    with pa.ipc.new_file(tmp_path / "wrong.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(FormatError, match="metadata 'applied_counts'"):
        read_arrow(tmp_path / "wrong.arrow")


@pytest.mark.slow
@settings(max_examples=times(1))
@given(
    parts=st.dictionaries(
        st.tuples(st.sampled_from(["code", "web"]), st.sampled_from(["", "de", "en"])),
        words.filter(bool),
        min_size=1,
    ),
    by_value=st.booleans(),
    at_once=st.sampled_from([1, 1 << 24]),
)
def test_groups_have_the_numbers_of_their_own_counts(
    parts: dict[tuple[str, str], dict[bytes, int]], by_value: bool, at_once: int
) -> None:
    counts = grouped(parts, by_value)
    tokenizer = train_from_counts(counts, 262).tokenizer()
    sizes = [256, min(259, len(tokenizer)), len(tokenizer)]
    with mock.patch("bpe_core.vocabulary_sizes._MOST_ENTRIES", at_once):
        found = measure_vocabulary_sizes(tokenizer, counts, sizes)
    plain = PretokenCounts.from_mapping(dict(counts.items()))
    for size, of_all in zip(found, measure_vocabulary_sizes(tokenizer, plain, sizes), strict=True):
        assert size.total == of_all.total
        assert (of_all.sources, of_all.groups) == ({}, {})
        assert list(size.sources) == sorted({source for source, _ in parts})
        assert list(size.groups) == (list(counts.groups) if by_value else [])
        for source, use in size.sources.items():
            [alone] = measure_vocabulary_sizes(
                tokenizer, counts.select(source=source), [size.vocab_size]
            )
            assert use == alone.total
        for group, use in size.groups.items():
            selected = counts.select(source=group.source, value=group.value)
            [alone] = measure_vocabulary_sizes(tokenizer, selected, [size.vocab_size])
            assert use == alone.total


def grouped(parts: Mapping[tuple[str, str], Mapping[bytes, int]], by_value: bool) -> PretokenCounts:
    """Counts kept apart by source, or by source and value."""
    sums: dict[bytes, Counter[Group]] = {}
    for (source, value), mapping in parts.items():
        for pretoken, count in mapping.items():
            group = Group(source, value if by_value else None)
            sums.setdefault(pretoken, Counter())[group] += count
    groups = sorted({group for found in sums.values() for group in found})
    pretokens = sorted(sums)
    entries = [
        (row, groups.index(group), count)
        for row, pretoken in enumerate(pretokens)
        for group, count in sorted(sums[pretoken].items())
    ]
    rows, numbers, counts = (np.array(column, np.int64) for column in zip(*entries, strict=True))
    offsets = np.searchsorted(rows, np.arange(len(pretokens) + 1))
    columns = GroupColumns(offsets.astype(np.int64), numbers.astype(np.int32), counts)
    keys, bounds = concatenate(pretokens)
    return PretokenCounts.from_group_columns(np.frombuffer(keys, np.uint8), bounds, groups, columns)


def test_tokens_of_a_text_are_predicted_to_the_last_one() -> None:
    text = KJV.read_text("utf-8")[:200_000]
    counts = count_pretokens([text], pattern="cl100k")
    tokenizer = train_from_counts(counts, 2000).tokenizer()
    sizes = [256, 300, 1000, 1001, 2000]
    found = measure_vocabulary_sizes(tokenizer, counts, sizes, num_threads=2)
    for size, result in zip(found, train_from_counts(counts, sizes), strict=True):
        ids = result.tokenizer().encode(text)
        frequencies = Counter(ids)
        assert size.total.tokens == len(ids)
        assert size.total.bytes == len(text.encode())
        assert size.total.used_ids == len(frequencies)
        newest = [i for _, _, i in result.model.merges[-NEWEST:].tolist()]
        assert size.total.last_thousand_tokens == sum(frequencies[i] for i in newest)
        assert size.total.fertility == len(ids) / counts.total()
    assert found[0].total.bytes_per_token == 1.0


def test_no_text_has_no_tokens() -> None:
    tokenizer = train_from_counts(PretokenCounts.from_mapping({b"aa": 1}), 257).tokenizer()
    (size,) = measure_vocabulary_sizes(tokenizer, PretokenCounts.from_mapping({}), [257])
    assert (size.total.tokens, size.total.bytes_per_token, size.total.fertility) == (0, 0, 0)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (255, "expected at least 256, the ids before the first merge, found 255"),
        (258, "expected at most 257, the ids of the tokenizer, found 258"),
        (True, "expected integers, found True"),
    ],
)
def test_impossible_sizes_are_refused(size: Any, message: str) -> None:
    counts = PretokenCounts.from_mapping({b"abcd": 1})
    tokenizer = train_from_counts(counts, 257).tokenizer()
    with pytest.raises(TrainingError, match=message):
        measure_vocabulary_sizes(tokenizer, counts, [257, size])


def test_tokenizers_that_encode_other_text_than_was_counted_are_refused() -> None:
    counts = PretokenCounts.from_mapping({b"abcd": 1}, {"pattern": "gpt2"})
    tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], pattern="cl100k")
    with pytest.raises(TrainingError, match="tokenizer: expected counts by its pattern, 'cl100k'"):
        measure_vocabulary_sizes(tokenizer, counts, [256])
    spaced = TokenizerModel.from_tokens([(i, bytes([i])) for i in range(256)], prefix_space=True)
    with pytest.raises(TrainingError, match="found prefix_space, which changes spaces"):
        measure_vocabulary_sizes(BPETokenizer.from_model(spaced), counts, [256])


def test_more_text_than_fits_into_64_bits_is_refused() -> None:
    counts = PretokenCounts.from_mapping({b"abcd": sys.maxsize})
    tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [])
    with pytest.raises(CountOverflowError, match="fewer than 2\\^62 bytes"):
        measure_vocabulary_sizes(tokenizer, counts, [256])
