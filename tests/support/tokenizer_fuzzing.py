"""Randomly changed tokenizer.json files: each is refused, or gives the ids of `tokenizers`.

`make fuzz` runs this file, and a test runs a few of its cases. All follows from a seed, which
failures name: `python tests/support/tokenizer_fuzzing.py --cases 1 --seed SEED` repeats one.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bpe_core import BPETokenizer
from bpe_core.errors import BpeError
from bpe_core.patterns import PATTERNS

Json = Any

CORPUS = Path(__file__).parents[2] / "examples" / "data" / "kjv-00.txt"
CORPUS_BYTES = 30_000
SPECIALS = ["<s>", "</s>", "<|end|>", "<tool>", " the", "\u2581and", "  "]

FRAGMENTS = [
    *["the", " the", "and", " and", "God", "'s", "'LL", "’s", "a", "b", "e", "é", "e\u0301", "İ"],
    *["ſ", "K", "ﬁ", "日本", "漢字かな", "\u0301", "कि", "ไทย", "العربية", "१२", "½", "²", "x²"],
    *[
        "1",
        "12",
        "123",
        "1234567",
        " 7",
        "\u0663\u0664",
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\r\n",
        "\n\n",
    ],
    *[
        "\xa0",
        "\u3000",
        "\u2028",
        "\u200d",
        "!",
        "?!",
        "--",
        "...",
        "_",
        "/",
        "<",
        ">",
        "|",
        "(",
        "«",
    ],
    *[
        "\u2581",
        "\u2581the",
        "Ġ",
        "Ċ",
        "😀",
        "👩\u200d👧",
        "\x00",
        "\x07",
        "\x7f",
        "\ufeff",
        "\ufffd",
    ],
    *SPECIALS,
    *[
        "<S>",
        "<s",
        "s>",
        "<|end",
        "<unk>",
        "<0x41>",
        "cat",
        "Cat",
        "internationalization",
        "aaaaaaa",
    ],
]


# --- whole files --------------------------------------------------------------------------------


def _lines() -> Iterator[str]:
    yield from (
        CORPUS.read_bytes()[:CORPUS_BYTES].decode("utf-8", "ignore").splitlines(keepends=True)
    )
    yield "".join(FRAGMENTS) + "\n"


def _trained(
    pre_tokenizer: Any,
    *,
    normalizer: Any = None,
    decoder: Any = None,
    byte_fallback: bool = False,
    alphabet: list[str] | None = None,
) -> Json:
    unknown = None if alphabet is not None else "<unk>"
    tokenizer = Tokenizer(
        models.BPE(unk_token=unknown, byte_fallback=byte_fallback, fuse_unk=byte_fallback)
    )
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoder or decoders.ByteLevel()
    reserved = ["<unk>", *(f"<0x{i:02X}>" for i in range(256))] if byte_fallback else []
    tokenizer.train_from_iterator(
        _lines(),
        trainers.BpeTrainer(
            vocab_size=len(reserved) + 450,
            special_tokens=reserved,
            initial_alphabet=alphabet or [],
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIALS[:4]])
    file = json.loads(tokenizer.to_str())
    if byte_fallback:  # bytes are ordinary tokens
        kept = {"<unk>", *SPECIALS}
        file["added_tokens"] = [one for one in file["added_tokens"] if one["content"] in kept]
    return file


@cache
def whole_files() -> tuple[Json, ...]:
    """Return small files of the kinds that are published."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()

    def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> Any:
        return pre_tokenizers.Split(Regex(pattern), behavior, invert)

    def bytes_of(*steps: Any, use_regex: bool = False) -> Any:
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
        return pre_tokenizers.Sequence([*steps, last])

    byte_level = [
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        bytes_of(split(PATTERNS["llama3"])),
        bytes_of(split(PATTERNS["cl100k"], "removed", True)),
        bytes_of(split(PATTERNS["qwen2"])),
        bytes_of(split(PATTERNS["o200k"])),
        bytes_of(split(r"\p{N}{1,3}"), split("[一-龥]+"), split(r"\s?\p{L}+|[\r\n]")),
        bytes_of(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
        bytes_of(),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
                pre_tokenizers.Digits(),
                split("[0-9][0-9][0-9]"),
            ]
        ),
        bytes_of(pre_tokenizers.Whitespace()),
        bytes_of(pre_tokenizers.WhitespaceSplit(), use_regex=True),
    ]
    files = [_trained(one, alphabet=alphabet) for one in byte_level]
    files[3]["normalizer"] = {"type": "NFC"}
    files[1]["model"]["ignore_merges"] = files[4]["model"]["ignore_merges"] = True
    files[1]["post_processor"] = json.loads(
        processors.TemplateProcessing(
            single="<s> $A </s>",
            pair="<s> $A </s> $B </s>",
            special_tokens=[(one["content"], one["id"]) for one in files[1]["added_tokens"][:2]],
        ).__getstate__()
    )
    llama2 = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    whole = pre_tokenizers.Split(" ", "merged_with_previous")
    files += [
        {
            **_trained(
                pre_tokenizers.Metaspace(), normalizer=llama2, decoder=decoder, byte_fallback=True
            ),
            "pre_tokenizer": None,
        },
        _trained(
            whole,
            normalizer=normalizers.Replace(" ", "\u2581"),
            decoder=decoder,
            byte_fallback=True,
        ),
        _trained(pre_tokenizers.Metaspace(), decoder=decoders.Metaspace(), byte_fallback=True),
    ]
    return tuple(files)


# --- changes ------------------------------------------------------------------------------------

_ATOMS = [
    *[r"\p{L}", r"\p{N}", r"\p{P}", r"\p{S}", r"\p{M}", r"\p{Lu}", r"\p{Ll}", r"\p{Han}", r"\P{L}"],
    *[
        r"\s",
        r"\S",
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\h",
        r"[\r\n]",
        r"[^\s\p{L}\p{N}]",
        r"[a-z]",
        ".",
    ],
    *[r"[^\r\n\p{L}]", r"[[:alpha:]]", r"[\p{L}&&[^\p{Han}]]", r"[^(\s|[.,!?])]", r"[\w&&\D]", " "],
    *["a", "'s", "'", "(?i:'s|'t)", "(?:the|and)", "(?i)the", "[一-龥]", r"\u0301", r"\x41", r"\R"],
    *["[!-/]", r"[^\n]", r"[\p{L}\p{M}]", r"(?>\s+)", r"\n", r"\t", "é", "日", "[e\u0301]", r"\X"],
]
_REPEATS = [
    "",
    "",
    "",
    "+",
    "*",
    "?",
    "{1,3}",
    "{2}",
    "{2,}",
    "+?",
    "*?",
    "?+",
    "++",
    "*+",
    "{1,2}+",
]
_ASSERTIONS = [
    *[r"(?!\S)", r"(?=\s)", "$", "^", r"\b", r"\B", r"\A", r"\z", r"\Z", r"(?<=a)", r"(?<!\s)"],
    *[r"(?=(\d{3})+(?!\d))", r"(?=(?:\d{3})*\b)", r"(?!\p{L})", r"\G", r"(?=.)"],
]


def random_pattern(choose: random.Random) -> str:
    """Return a regular expression of constructs that published files use or could use."""
    if choose.random() < 0.2:
        return _changed_pattern(choose, choose.choice([p for p in PATTERNS.values() if p]))
    alternatives = []
    for _ in range(choose.randint(1, 4)):
        parts = [
            choose.choice(_ATOMS) + choose.choice(_REPEATS) for _ in range(choose.randint(1, 3))
        ]
        if choose.random() < 0.3:
            parts.insert(choose.randint(0, len(parts)), choose.choice(_ASSERTIONS))
        alternatives.append("".join(parts))
    pattern = "|".join(alternatives)
    return f"({pattern})+" if choose.random() < 0.05 else pattern


def _changed_pattern(choose: random.Random, pattern: str) -> str:
    alternatives = pattern.split("|")
    match choose.randrange(4):
        case 0:
            choose.shuffle(alternatives)
        case 1:
            del alternatives[choose.randrange(len(alternatives))]
        case 2:
            alternatives.insert(choose.randint(0, len(alternatives)), choose.choice(_ATOMS) + "+")
        case _:
            old, new = choose.choice(
                [("+", "*"), ("+", "++"), ("?", "*"), (r"\s", r"\h"), (r"\p{L}", r"\w"), ("3", "2")]
            )
            return pattern.replace(old, new)
    return "|".join(alternatives)


def _split(choose: random.Random) -> Json:
    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    pattern: Json = {"Regex": random_pattern(choose)}
    if choose.random() < 0.15:
        pattern = {"String": choose.choice([" ", "the", "a", "\n", ".", "[", "  ", "\u2581"])}
    isolated = choose.random() < 0.6
    return {
        "type": "Split",
        "pattern": pattern,
        "behavior": "Isolated" if isolated else choose.choice(behaviors),
        "invert": choose.random() < 0.2,
    }


def _step(choose: random.Random) -> Json:
    kind = choose.choice(["Split", "Split", "Split", "Digits", "Punctuation", "ByteLevel", "other"])
    if kind == "Split":
        return _split(choose)
    if kind == "Digits":
        return {"type": "Digits", "individual_digits": choose.random() < 0.5}
    if kind == "Punctuation":
        return {
            "type": "Punctuation",
            "behavior": choose.choice(["Isolated", "Contiguous", "Removed", "MergedWithNext"]),
        }
    if kind == "ByteLevel":
        return {
            "type": "ByteLevel",
            "add_prefix_space": choose.random() < 0.5,
            "trim_offsets": choose.random() < 0.5,
            "use_regex": choose.random() < 0.5,
        }
    return choose.choice(
        [
            {"type": "Whitespace"},
            {"type": "WhitespaceSplit"},
            {"type": "BertPreTokenizer"},
            {"type": "UnicodeScripts"},
            {"type": "CharDelimiterSplit", "delimiter": "a"},
            {
                "type": "Metaspace",
                "replacement": "\u2581",
                "prepend_scheme": choose.choice(["always", "never", "first"]),
                "split": choose.random() < 0.5,
            },
        ]
    )


def _steps_of(file: Json) -> list[Json]:
    part = file["pre_tokenizer"]
    if part is None:
        return []
    return part["pretokenizers"] if part["type"] == "Sequence" else [part]


def _change_pre_tokenizer(choose: random.Random, file: Json) -> None:
    steps = _steps_of(file)
    match choose.randrange(6):
        case 0 | 1:
            steps.insert(choose.randint(0, len(steps)), _step(choose))
        case 2 if steps:
            del steps[choose.randrange(len(steps))]
        case 3 if steps:
            steps[choose.randrange(len(steps))] = _step(choose)
        case 4:
            choose.shuffle(steps)
        case _:
            for step in steps:
                for key, value in step.items():
                    if isinstance(value, bool) and choose.random() < 0.4:
                        step[key] = not value
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps} if steps else None


def _change_pattern(choose: random.Random, file: Json) -> None:
    splits = [step for step in _steps_of(file) if step["type"] == "Split"]
    if splits:
        choose.choice(splits)["pattern"] = {"Regex": random_pattern(choose)}
    else:
        _change_pre_tokenizer(choose, file)


def _change_normalizer(choose: random.Random, file: Json) -> None:
    kinds: list[Callable[[], Json]] = [
        *[lambda kind=kind: {"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")],
        lambda: {"type": "StripAccents"},
        lambda: {"type": "Strip", "strip_left": choose.random() < 0.5, "strip_right": False},
        lambda: {"type": "Prepend", "prepend": choose.choice(["\u2581", " ", "a"])},
        lambda: {
            "type": "Replace",
            "pattern": choose.choice([{"String": " "}, {"String": "  "}, {"Regex": r"\s+"}]),
            "content": choose.choice(["\u2581", " ", "", "_"]),
        },
        lambda: {"type": "Nmt"},
        lambda: {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": False,
            "strip_accents": None,
            "lowercase": False,
        },
    ]
    part = file["normalizer"]
    steps = [] if part is None else part.get("normalizers", [part])
    match choose.randrange(3):
        case 0 if steps:
            del steps[choose.randrange(len(steps))]
        case 1:
            choose.shuffle(steps)
        case _:
            steps.insert(choose.randint(0, len(steps)), choose.choice(kinds)())
    if len(steps) == 1 and choose.random() < 0.5:
        file["normalizer"] = steps[0]
    else:
        file["normalizer"] = {"type": "Sequence", "normalizers": steps} if steps else None


def _change_model(choose: random.Random, file: Json) -> None:
    model = file["model"]
    match choose.randrange(7):
        case 0:
            key = choose.choice(["ignore_merges", "fuse_unk", "byte_fallback"])
            model[key] = not model.get(key)
        case 1:
            model["unk_token"] = choose.choice([None, "<unk>", "<s>", "a", "missing"])
        case 2:
            model["continuing_subword_prefix"] = choose.choice(["", "##", None])
        case 3:
            model["end_of_word_suffix"] = choose.choice(["", "</w>", None])
        case 4:
            merges = model["merges"]
            for _ in range(choose.randint(1, 5)):
                a, b = (choose.randrange(len(merges)) for _ in range(2))
                merges[a], merges[b] = merges[b], merges[a]
        case 5:
            for _ in range(choose.randint(1, 20)):
                del model["merges"][choose.randrange(len(model["merges"]))]
        case _:
            one = choose.choice(list(model["vocab"]))
            if choose.random() < 0.5:
                del model["vocab"][one]
            else:
                model["vocab"][one] = choose.randrange(2 * len(model["vocab"]))


def _change_added(choose: random.Random, file: Json) -> None:
    added = file["added_tokens"]
    match choose.randrange(4):
        case 0:
            known = {one["content"] for one in added}
            text = choose.choice([*SPECIALS, *choose.sample(FRAGMENTS, 3)])
            if text not in known:
                ids = [*file["model"]["vocab"].values(), *(one["id"] for one in added)]
                added.append(
                    {
                        "id": file["model"]["vocab"].get(text, max(ids) + 1),
                        "content": text,
                        **{
                            key: choose.random() < 0.25
                            for key in ("single_word", "lstrip", "rstrip", "normalized")
                        },
                        "special": choose.random() < 0.6,
                    }
                )
        case 1 if added:
            del added[choose.randrange(len(added))]
        case _:
            for one in added:
                for key in ("single_word", "lstrip", "rstrip", "normalized", "special"):
                    if choose.random() < 0.15:
                        one[key] = not one[key]


def _change_rest(choose: random.Random, file: Json) -> None:
    match choose.randrange(5):
        case 0:
            file["truncation"] = {
                "direction": "Right",
                "max_length": choose.choice([3, 100_000]),
                "strategy": "LongestFirst",
                "stride": 0,
            }
        case 1:
            file["padding"] = {
                "strategy": choose.choice(["BatchLongest", {"Fixed": 8}]),
                "direction": "Left",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "<s>",
            }
        case 2:
            file["post_processor"] = choose.choice(
                [
                    None,
                    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
                    {
                        "type": "RobertaProcessing",
                        "sep": ["</s>", 1],
                        "cls": ["<s>", 0],
                        "trim_offsets": True,
                        "add_prefix_space": choose.random() < 0.5,
                    },
                    {"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]},
                ]
            )
        case 3:
            part = file["post_processor"]
            if part is not None and "single" in part:
                pieces = part["single"]
                choose.shuffle(pieces)
                if choose.random() < 0.5:
                    pieces.append(choose.choice(pieces))
        case _:
            file["decoder"] = choose.choice(
                [None, {"type": "ByteFallback"}, {"type": "Fuse"}, file["decoder"]]
            )


CHANGES: list[Callable[[random.Random, Json], None]] = [
    _change_pre_tokenizer,
    _change_pattern,
    _change_pattern,
    _change_normalizer,
    _change_model,
    _change_added,
    _change_added,
    _change_rest,
]


def changed_file(choose: random.Random) -> tuple[Json, list[str]]:
    """Return a file with one to three changes, and the names of the changes."""
    file = copy.deepcopy(choose.choice(whole_files()))
    changes = choose.choices(CHANGES, k=choose.choice([1, 1, 2, 3]))
    for change in changes:
        change(choose, file)
    return file, [change.__name__.removeprefix("_change_") for change in changes]


def random_texts(choose: random.Random, number: int = 12) -> list[str]:
    """Return texts of fragments that tokenizers treat differently."""
    whole = ["", " ", "the", "".join(FRAGMENTS), " ".join(FRAGMENTS), "It's 1234567 x  \n\n y "]
    return whole + [
        "".join(choose.choices(FRAGMENTS, k=choose.randint(1, 12))) for _ in range(number)
    ]


# --- the check ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The result of one case: agrees, refused, unloadable (by the owner), or differs or fails."""

    kind: str
    detail: str = ""

    @property
    def is_failure(self) -> bool:
        return self.kind in ("differs", "fails")


def run_case(seed: int, directory: Path) -> Outcome:
    """Change a file as the seed says, load it with both libraries, and compare their ids."""
    choose = random.Random(seed)
    file, changes = changed_file(choose)
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    label = "+".join(changes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of patterns that are not compiled
            ours = BPETokenizer.from_huggingface(path)
    except BpeError as error:
        return Outcome("refused", f"{label}: {error}")
    except Exception as error:
        return Outcome("fails", f"{label}: loading: {type(error).__name__}: {error}")
    try:
        theirs = Tokenizer.from_file(str(path))
    except BaseException as error:  # a panic in Rust is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return Outcome("unloadable", f"{label}: {error}")
    for text in random_texts(choose):
        try:
            plain = theirs.encode(text, add_special_tokens=False).ids
            whole = theirs.encode(text).ids
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Outcome("unloadable", f"{label}: encoding: {error}")
        try:
            found = ours.encode(text)
        except Exception as error:
            return Outcome("fails", f"{label}: {text!r}: {type(error).__name__}: {error}")
        if found != plain:
            return Outcome("differs", f"{label}: {text!r}: {_first_difference(ours, found, plain)}")
        around = [*ours.prepend, *found, *ours.append]
        if around != whole:
            return Outcome("differs", f"{label}: {text!r}, with added ids: {around} {whole}")
    return Outcome("agrees", label)


def _first_difference(ours: BPETokenizer, found: list[int], wanted: list[int]) -> str:
    pairs = zip(found, wanted, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(found), len(wanted)))
    vocab = ours.vocab
    shown = [[vocab.get(i, i) for i in ids[at : at + 4]] for ids in (found, wanted)]
    return f"from id {at} on {shown[0]}, tokenizers {shown[1]}"


def run_cases(first_seed: int, number: int) -> tuple[Counter[str], list[tuple[int, Outcome]]]:
    """Run cases with consecutive seeds; return the numbers of outcomes and the failures."""
    kinds: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(first_seed, first_seed + number):
            outcome = run_case(seed, Path(directory))
            kinds[outcome.kind] += 1
            if outcome.is_failure:
                failures.append((seed, outcome))
    return kinds, failures


def main() -> None:
    """Run cases, print the failures, and fail if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    kinds, failures = run_cases(arguments.seed, arguments.cases)
    for seed, outcome in failures:
        print(f"seed {seed}: {outcome.kind}: {outcome.detail}")
    print(", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items())))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
