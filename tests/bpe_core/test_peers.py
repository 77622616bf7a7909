"""The ids of tiktoken and of Hugging Face's tokenizers, for every character and on random text.

By default one vocabulary sees every code point, and the others a sample; `make soak` shows every
code point to all, alone and beside letters, a digit, a space, a newline and an apostrophe.

The peers differ from each other in two places, both of which have a test below:

- White space with a line break in it that ends a text, or comes before a special token: tiktoken's
  cl100k takes it as one pre-token, the published pattern (Llama 3's, Qwen's) ends one after the
  last line break. `cl100k_tiktoken` and `cl100k` are these two.
- Halves of surrogate pairs: tiktoken takes them as U+FFFD, as this package does; Hugging Face's
  tokenizers refuse them.

Where ../shared/data/vocab lacks the published vocabularies, such are trained on examples/data.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from core_support import (
    FRAGMENTS,
    huggingface_tokenizer,
    published_tokenizer,
    texts,
    tiktoken_encoding,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pathological_texts import TEXTS
from peer_normalization import normalizes_alike
from profiles import share, times
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from bpe_core import PATTERNS, BPETokenizer, count_pretokens, train_from_counts
from bpe_core.patterns import resolve_pattern

END = "<|endoftext|>"
VOCABULARIES = Path(__file__).parents[2].parent / "shared" / "data" / "vocab"

CODE_POINTS = range(0x110000)
SURROGATES = range(0xD800, 0xE000)
# What stands before and after the character.
FORMS = [("", ""), *[f for c in "aA7 \n'" for f in ((c, ""), ("", c))]]


@dataclass(frozen=True)
class Peer:
    """Another library's tokenizer, and this package's of the same vocabulary."""

    ours: BPETokenizer
    ids: Callable[[list[str]], list[list[int]]]  # of texts, in which END is a special token
    takes_surrogates: bool


def tiktoken_peer(name: str, kjv_documents: list[bytes]) -> Peer:
    path = VOCABULARIES / f"{name}_base.tiktoken"
    if path.exists():
        ours, theirs = published_tokenizer(name, str(path)), tiktoken_encoding(name, str(path))
    else:
        pattern = "cl100k_tiktoken" if name == "cl100k" else name
        ours = trained_tokenizer(pattern, kjv_documents)
        theirs = tiktoken.Encoding(
            name,
            pat_str=tiktoken_pattern(name),
            mergeable_ranks={token: i for i, token in ours.model.tokens},
            special_tokens=ours.special_tokens,
        )

    def ids(documents: list[str]) -> list[list[int]]:
        return theirs.encode_batch(documents, num_threads=2, allowed_special={END})

    return Peer(ours, ids, takes_surrogates=True)


def tiktoken_pattern(name: str) -> str:
    from tiktoken_ext import openai_public

    return {
        "r50k": openai_public.r50k_pat_str,
        "cl100k": resolve_pattern("cl100k_tiktoken").regex,
        "o200k": resolve_pattern("o200k").regex,
    }[name]


def trained_tokenizer(pattern: str, kjv_documents: list[bytes]) -> BPETokenizer:
    counts = count_pretokens(kjv_documents, pattern=pattern, special_tokens=[END])
    return train_from_counts(counts, 1500, [END]).tokenizer()


def huggingface_peer(ours: BPETokenizer, theirs: Tokenizer) -> Peer:
    def ids(documents: list[str]) -> list[list[int]]:
        return [e.ids for e in theirs.encode_batch_fast(documents, add_special_tokens=False)]

    return Peer(ours, ids, takes_surrogates=False)


def gpt2_peer(kjv_documents: list[bytes]) -> Peer:
    files = VOCABULARIES / "gpt2_vocab.json", VOCABULARIES / "gpt2_merges.txt"
    if files[0].exists():
        ours = BPETokenizer.from_files(*files, [END])
        theirs = Tokenizer(models.BPE.from_file(*map(str, files)))
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        ours = trained_tokenizer("gpt2", kjv_documents)
        theirs = huggingface_tokenizer(ours.vocab, ours.merges)
    theirs.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    assert theirs.token_to_id(END) == ours.special_tokens[END]
    return huggingface_peer(ours, theirs)


def trained_json_peer(style: str, kjv_documents: list[bytes], path: Path) -> Peer:
    """Llama 3's or Qwen's kind of tokenizer.json, small, made by the library itself."""
    theirs = Tokenizer(models.BPE(ignore_merges=style == "llama3"))
    if style == "qwen2":
        theirs.normalizer = normalizers.NFC()
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[style]), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    theirs.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=[AddedToken(END, special=True, normalized=False)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator((d.decode() for d in kjv_documents[::4]), trainer)
    if style == "llama3":
        # Tokens that no merges make, as Llama 3 has some: with ignore_merges they are found.
        data = json.loads(theirs.to_str())
        vocab = data["model"]["vocab"]
        for token in ("Ġuncountable", "zzz", "aé".encode().decode("latin-1"), "77", "'''"):
            vocab.setdefault(token, len(vocab))
        theirs = Tokenizer.from_str(json.dumps(data))
    theirs.save(str(path))
    return huggingface_peer(BPETokenizer.from_huggingface(path), theirs)


PEERS = {
    **{f"tiktoken {n}": n for n in ("r50k", "cl100k", "o200k")},
    **{f"huggingface {n}": n for n in ("gpt2", "llama3", "qwen2")},
}


@pytest.fixture(scope="module")
def peers(
    kjv_documents: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Peer]:
    made: dict[str, Peer] = {}

    def make(name: str) -> Peer:
        if name in made:
            return made[name]
        library, kind = name.split()
        if library == "tiktoken":
            made[name] = tiktoken_peer(kind, kjv_documents)
        elif kind == "gpt2":
            made[name] = gpt2_peer(kjv_documents)
        else:
            path = tmp_path_factory.mktemp(kind) / "tokenizer.json"
            made[name] = trained_json_peer(kind, kjv_documents, path)
        return made[name]

    return make


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest, peers: Callable[[str], Peer]) -> Peer:
    return peers(request.param)


# ---- comparing


def check_cases(peer: Peer, cases: Iterable[str], cases_a_document: int = 2000) -> int:
    """Compares the ids of many short texts: joined by special tokens, each is a text of its own."""
    cases = iter(cases)
    number = 0
    while group := list(islice(cases, 16 * cases_a_document)):
        number += len(group)
        documents = [
            END.join(group[i : i + cases_a_document])
            for i in range(0, len(group), cases_a_document)
        ]
        ids, offsets = peer.ours.encode_batch_to_numpy(documents)
        expected = peer.ids(documents)
        if np.array_equal(np.diff(offsets), [len(document) for document in expected]) and (
            np.array_equal(ids, np.concatenate([np.array(e, np.uint32) for e in expected]))
        ):
            continue
        found = peer.ours.encode_batch_to_numpy(group)
        for i, case in enumerate(group):
            [theirs] = peer.ids([case])
            assert found[0][found[1][i] : found[1][i + 1]].tolist() == theirs, ascii(case)
        pytest.fail("cases differ together, but not alone")
    return number


def in_forms(peer: Peer, code_points: Iterable[int], forms: Iterable[int]) -> Iterator[str]:
    for code_point in code_points:
        if code_point in SURROGATES and not peer.takes_surrogates:
            continue
        for form in forms:
            # Which one is each character's follows from its number, if it is one.
            before, after = FORMS[form if form >= 0 else (code_point * 7 + 3) % len(FORMS)]
            yield f"{before}{chr(code_point)}{after}"


def random_texts(seed: int, number: int, end: int = 0x110000) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(number):
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.6:
                parts.append(rng.choice(FRAGMENTS))
            elif kind < 0.8:
                parts.append(chr(rng.randrange(0x20, 0x250)))
            elif (code_point := rng.randrange(end)) not in SURROGATES:
                parts.append(chr(code_point))
        yield "".join(parts)


def comparable(peer: Peer, text: str) -> str:
    """Return the text, for a peer that normalizes without what it normalizes by older tables."""
    return text if peer.ours.normalizer is None else "".join(filter(normalizes_alike, text))


def texts_for(peer: Peer, seed: int, number: int) -> Iterator[str]:
    return (comparable(peer, text) for text in random_texts(seed, number))


# ---- every code point


@pytest.mark.slow
def test_every_code_point_has_the_ids_of_the_peer(peers: Callable[[str], Peer]) -> None:
    """In one form each; see the other tests for the other peers and forms."""
    peer = peers("tiktoken r50k")
    code_points = share(CODE_POINTS, 17)
    assert check_cases(peer, in_forms(peer, code_points, [-1])) == len(code_points)


@pytest.mark.slow
@pytest.mark.parametrize("form", [0, -1])
def test_code_points_here_and_there_have_the_ids_of_the_peer(peer: Peer, form: int) -> None:
    dense = range(0x600)
    sparse = share(range(0x600 + form % 40, 0x110000, 41), 4)
    check_cases(peer, in_forms(peer, [*dense, *sparse], [form]))


@pytest.mark.slow
def test_latin_characters_in_every_form_have_the_ids_of_the_peer(peer: Peer) -> None:
    blocks = [*range(0x250), *range(0x2000, 0x2070), *range(0x3000, 0x3040)]
    assert check_cases(peer, in_forms(peer, blocks, range(len(FORMS)))) == len(blocks) * len(FORMS)


@pytest.mark.soak
@pytest.mark.parametrize("form", range(len(FORMS)))
def test_every_code_point_in_every_form_has_the_ids_of_the_peer(peer: Peer, form: int) -> None:
    number = check_cases(peer, in_forms(peer, CODE_POINTS, [form]))
    assert number == 0x110000 - (0 if peer.takes_surrogates else len(SURROGATES))


# ---- random text


@pytest.mark.slow
def test_random_texts_have_the_ids_of_the_peer(peer: Peer) -> None:
    assert check_cases(peer, texts_for(peer, 1, times(100)), 500) == times(100)


@pytest.mark.soak
def test_a_hundred_thousand_random_texts_have_the_ids_of_the_peer(peer: Peer) -> None:
    assert check_cases(peer, texts_for(peer, 2, 100_000), 500) == 100_000


@pytest.mark.parametrize("name", PEERS)
def test_random_texts_that_shrink_have_the_ids_of_the_peer(
    name: str, peers: Callable[[str], Peer]
) -> None:
    peer = peers(name)

    @settings(max_examples=times(10 / len(PEERS)))
    @given(text=st.lists(texts | st.sampled_from([END, END[:5], "\n \n", "    "])).map("".join))
    def check(text: str) -> None:
        text = comparable(peer, text)
        assert [peer.ours.encode(text)] == peer.ids([text])

    check()


def test_tokens_that_no_merges_make_are_found_where_merges_are_ignored(
    peers: Callable[[str], Peer],
) -> None:
    peer = peers("huggingface llama3")
    for text in ("77", "'''", "aé", " uncountable"):
        assert len(peer.ours.encode(text)) == 1
    assert check_cases(peer, ["77", "777", "7777", "'''", "''''", "aé", " aé", "zzz zzzz"]) == 8


# ---- whole texts


def check_texts(peer: Peer, documents: list[bytes]) -> None:
    ids, offsets = peer.ours.encode_batch_to_numpy(documents)
    for i, expected in enumerate(peer.ids([document.decode() for document in documents])):
        assert np.array_equal(ids[offsets[i] : offsets[i + 1]], expected), i


def test_the_example_texts_have_the_ids_of_the_peer(peer: Peer, kjv_documents: list[bytes]) -> None:
    check_texts(peer, kjv_documents[::8])


@pytest.mark.parametrize("name", ["prose", "multilingual"])
def test_the_shared_texts_have_the_ids_of_the_peer(
    peer: Peer, name: str, shared_text: Callable[..., bytes]
) -> None:
    check_texts(peer, shared_text(name, times(5000)).split(END.encode()))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["prose", "multilingual"])
def test_the_whole_shared_texts_have_the_ids_of_the_peer(
    peer: Peer, name: str, shared_text: Callable[..., bytes]
) -> None:
    documents = shared_text(name).split(END.encode())
    for i in range(0, len(documents), 500):
        check_texts(peer, documents[i : i + 500])


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_pathological_texts_have_the_ids_of_the_peer(peer: Peer, name: str) -> None:
    check_texts(peer, [TEXTS[name](20_000)])


# ---- where the peers differ


def test_white_space_at_the_end_is_where_the_peers_differ(peers: Callable[[str], Peer]) -> None:
    ours = [peers("tiktoken cl100k").ours, peers("huggingface llama3").ours]
    assert [tokenizer.pattern for tokenizer in ours] == ["cl100k_tiktoken", "cl100k"]
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"\n ", 257: b" \n"}
    merges = [(b"\n", b" "), (b" ", b"\n")]
    ranks = {token: i for i, token in vocab.items()}
    by_tiktoken = tiktoken.Encoding(
        "test", pat_str=tiktoken_pattern("cl100k"), mergeable_ranks=ranks, special_tokens={}
    )
    by_huggingface = huggingface_tokenizer(vocab, merges)
    by_huggingface.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS["cl100k"]), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    text = "a\n "
    assert by_tiktoken.encode(text) == [97, 256]
    assert by_huggingface.encode(text).ids == [97, 10, 32]
    for pattern, expected in [("cl100k_tiktoken", [97, 256]), ("cl100k", [97, 10, 32])]:
        assert BPETokenizer(vocab, merges, pattern=pattern).encode(text) == expected


def test_halves_of_surrogate_pairs_are_where_the_peers_differ(
    peers: Callable[[str], Peer],
) -> None:
    of_tiktoken, of_huggingface = peers("tiktoken r50k"), peers("huggingface gpt2")
    for text in ("a\ud800b", "\ude00", "\ud83d\ude00"):
        assert of_tiktoken.ids([text]) == [of_tiktoken.ours.encode(text)]
        with pytest.raises((TypeError, UnicodeEncodeError)):
            of_huggingface.ids([text])
    assert of_huggingface.ours.encode("a\ud800b") == of_huggingface.ours.encode("a\ufffdb")
