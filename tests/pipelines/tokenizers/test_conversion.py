"""`beam-bpe convert`: every format into every other, checked, and mistakes told in words."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bpe_core import BPETokenizer, CharBPETokenizer, formats
from bpe_core.characters import CharacterRules
from bpe_core.formats import CannotHoldError
from bpe_core.model import TokenizerModel
from pipelines.cli import main
from pipelines.errors import ConfigError, InputError, OutputError
from pipelines.tokenizers import peer_check
from pipelines.tokenizers.conversion import Request, convert
from pipelines.tokenizers.samples import SAMPLE

Run = Callable[..., tuple[int, str, str]]

END = "<|end of text|>"
SPECIALS = {END: 300, '"a\nb"=7': 301, "(.*)|é漢": 302}


@pytest.fixture(scope="module")
def model(kjv_tokenizer: BPETokenizer) -> TokenizerModel:
    """The bytes, then merges in order, then special tokens: what every format can hold."""
    merges = kjv_tokenizer.merges[:40]
    tokens = {i: bytes([i]) for i in range(256)}
    tokens |= {256 + i: left + right for i, (left, right) in enumerate(merges)}
    return BPETokenizer(tokens, merges, SPECIALS).model


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["convert", *map(str, arguments)])
        code = left.value.code
        return (code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


def request(source: Path, destination: Path, to: Any, **options: Any) -> Request:
    return Request(source=str(source), destination=str(destination), to=to, **options)


def source_of(format_: str, model: TokenizerModel, folder: Path) -> Path:
    """The tokenizer in one format, by this package's writers."""
    path = folder / "source"
    path.mkdir()
    match format_:
        case "arrow":
            formats.save_tokenizer(model, path)
        case "huggingface":
            formats.write_huggingface(model, path / "tokenizer.json")
        case "gpt2":
            formats.write_vocab_merges(model, path / "vocab.json", path / "merges.txt")
        case "tiktoken":
            formats.write_tiktoken(model, path / "some.tiktoken")
        case "minbpe":
            formats.write_minbpe(model, path / "some")
    return path


# Every way.


OF_BYTES = [name for name in formats.WRITTEN_FORMATS if name != "sentencepiece"]


@pytest.mark.parametrize("to", OF_BYTES)
@pytest.mark.parametrize("source", OF_BYTES)
def test_every_format_of_bytes_becomes_every_other(
    source: str, to: formats.FormatName, model: TokenizerModel, tmp_path: Path
) -> None:
    if "minbpe" in (source, to):  # no white space in its special tokens
        model = model.with_special_tokens({"<|end|>": 300, '"(.*)|é漢': 301})
    options: dict[str, Any] = {}
    if source in ("gpt2", "tiktoken"):
        named = [f"{text}={i}" for text, i in model.special_tokens.items()]
        options = {"pattern": "gpt2", "special_tokens": named}
    place = source_of(source, model, tmp_path)
    done = convert(request(place, tmp_path / "out", to, **options))
    assert done.source.format == source
    assert done.model.fingerprint == model.fingerprint
    if to != "arrow" and done.checked is not None:
        assert done.checked.ids is None or done.checked.ids > 300
        assert (done.checked.ids is None) == (done.checked.library == "minbpe")
    out = tmp_path / "out"
    specials = model.special_tokens
    readers: dict[str, Callable[[], TokenizerModel]] = {
        "arrow": lambda: formats.load_tokenizer(out),
        "huggingface": lambda: formats.read_huggingface(out / "tokenizer.json"),
        "gpt2": lambda: formats.read_vocab_merges(
            out / "vocab.json", out / "merges.txt", list(specials)
        ),
        "tiktoken": lambda: formats.read_tiktoken(
            out / "tokenizer.tiktoken", pattern="gpt2", special_tokens=specials
        ),
        "minbpe": lambda: formats.read_minbpe(out / "tokenizer.model"),
    }
    assert readers[to]().fingerprint == model.fingerprint
    assert sorted(map(str, out.iterdir())) == sorted(done.written)


@pytest.mark.parametrize("to", ["arrow", "huggingface", "sentencepiece"])
@pytest.mark.parametrize("source", ["arrow", "huggingface", "sentencepiece"])
def test_formats_of_characters_become_each_other(
    source: str, to: formats.WrittenFormat, tmp_path: Path
) -> None:
    tokens = [(0, b" "), (1, b"a"), (2, b" a"), (3, "é".encode()), (4, "aé".encode())]
    model = TokenizerModel.from_tokens(
        [*tokens, *((byte + 6, bytes([byte])) for byte in range(256))],
        [(0, 1, 2), (1, 3, 4)],
        special_tokens={"<unk>": 5},
        unknown_id=5,
        pattern="none",
        characters=CharacterRules(
            byte_ids=tuple(range(6, 262)),
            fuse_unknown=True,
            prefix="document",
            prefix_before_space=True,
            hidden_tokens=frozenset(["<unk>"]),
        ),
    )
    BPETokenizer.from_model(model).save(tmp_path / "in")
    names = {"arrow": "arrow", "huggingface": "json", "sentencepiece": "model"}
    place = tmp_path / "in" / f"tokenizer.{names[source]}"
    if (source, to) == ("huggingface", "sentencepiece"):  # which has no place for a hidden token
        with pytest.raises(CannotHoldError, match="no token for the unknown"):
            convert(request(place, tmp_path / "out", to))
        return
    done = convert(request(place, tmp_path / "out", to))
    assert (done.source.format, done.model.vocab) == (source, model.vocab)
    assert done.checked is None or done.checked.ids
    found = formats.find_tokenizer(tmp_path / "out", to)
    assert found.location == str(tmp_path / "out" / f"tokenizer.{names[to]}")


def test_a_file_may_be_named_instead_of_a_directory(model: TokenizerModel, tmp_path: Path) -> None:
    source = source_of("arrow", model, tmp_path)
    names: dict[formats.FormatName, tuple[str, set[str]]] = {
        "huggingface": ("mine.json", {"mine.json"}),
        "tiktoken": ("mine.tiktoken", {"mine.tiktoken", "mine_tiktoken.py"}),
        "arrow": ("mine.arrow", {"mine.arrow"}),
    }
    for to, (name, expected) in names.items():
        convert(request(source / "tokenizer.arrow", tmp_path / to / name, to))
        assert {path.name for path in (tmp_path / to).iterdir()} == expected


def test_the_output_of_a_build_may_be_named(model: TokenizerModel, tmp_path: Path) -> None:
    (tmp_path / "built" / "tokens").mkdir(parents=True)
    formats.save_tokenizer(model, tmp_path / "built" / "tokenizer")
    done = convert(request(tmp_path / "built", tmp_path / "out", "huggingface"))
    assert done.source.location == str(tmp_path / "built" / "tokenizer" / "tokenizer.arrow")
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_vocab_json_finds_its_merges_by_name_or_is_told(
    model: TokenizerModel, tmp_path: Path
) -> None:
    source = source_of("gpt2", model, tmp_path)
    (source / "vocab.json").rename(source / "x-vocab.json")
    (source / "merges.txt").rename(source / "x-merges.txt")
    for merges in (None, str(source / "x-merges.txt")):
        made = convert(
            request(
                source / "x-vocab.json",
                tmp_path / "out",
                "huggingface",
                merges=merges,
                special_tokens=[f"{text}={i}" for text, i in SPECIALS.items()],
            )
        )
        assert made.model.fingerprint == model.fingerprint
    (source / "x-vocab.json").rename(source / "words.json")
    with pytest.raises(ConfigError, match=r"needs its merges\.txt"):
        convert(request(source / "words.json", tmp_path / "out2", "huggingface"))


def test_a_sample_of_ones_own_is_encoded(model: TokenizerModel, tmp_path: Path) -> None:
    source = source_of("arrow", model, tmp_path)
    sample = tmp_path / "sample.txt"
    sample.write_text("In the beginning" * 100)
    done = convert(request(source, tmp_path / "out", "tiktoken", sample=str(sample)))
    assert done.checked is not None
    text = sample.read_text() + "".join(f" {s}a{s}\n" for s in model.special_tokens)
    assert done.checked.ids == len(BPETokenizer.from_model(model).encode(text))
    sample.write_bytes(b"abc\xff")
    with pytest.raises(InputError, match=r"The sample .*sample\.txt: byte 3: expected UTF-8"):
        convert(request(source, tmp_path / "out2", "tiktoken", sample=str(sample)))


def test_the_built_in_sample_has_some_of_everything() -> None:
    kinds = [str.isalpha, str.isdigit, str.isspace, str.isupper, lambda c: ord(c) > 0xFFFF]
    assert all(any(kind(c) for c in SAMPLE) for kind in kinds)
    assert len(SAMPLE.encode()) > 600


# What a format cannot hold, and what libraries say.


def test_what_a_format_cannot_hold_is_refused_and_nothing_written(
    run: Run, kjv_tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    kjv_tokenizer.save(tmp_path / "source")
    code, out, err = run(tmp_path / "source", tmp_path / "out", "--to", "minbpe")
    assert (code, out) == (9, "")
    assert "the format minbpe cannot store this tokenizer: minbpe's ids 0 to 255 are" in err
    assert not (tmp_path / "out").exists()


def test_gpt2s_files_are_refused_for_other_patterns(model: TokenizerModel, tmp_path: Path) -> None:
    other = TokenizerModel.from_tokens(
        model.tokens, map(tuple, model.merges.tolist()), pattern="cl100k"
    )
    with pytest.raises(CannotHoldError, match=r"GPT-2's pattern, .* this tokenizer uses 'cl100k'"):
        convert(request(source_of("arrow", other, tmp_path), tmp_path / "out", "gpt2"))


@pytest.mark.parametrize("to", ["huggingface", "gpt2", "tiktoken"])
def test_a_difference_of_ids_is_an_error_and_nothing_is_written(
    to: formats.FormatName,
    model: TokenizerModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = peer_check._ENCODERS[to]

    def wrong(*arguments: Any) -> Callable[[str], list[int]]:
        ids = encode(*arguments)
        return lambda text: [*ids(text)[:20], 7, 7]

    monkeypatch.setitem(peer_check._ENCODERS, to, wrong)
    source = source_of("arrow", model, tmp_path)
    with pytest.raises(
        CannotHoldError, match=r"returns other ids: after .* it returns \[7, 7\], and"
    ):
        convert(request(source, tmp_path / "out", to))
    assert not (tmp_path / "out").exists()


def test_a_library_that_fails_is_an_error(
    model: TokenizerModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setitem(peer_check._ENCODERS, "tiktoken", fails)
    with pytest.raises(
        CannotHoldError, match="cannot load the result: RuntimeError: no such thing"
    ):
        convert(request(source_of("arrow", model, tmp_path), tmp_path / "out", "tiktoken"))


def test_a_library_that_is_not_installed_is_said(
    run: Run, model: TokenizerModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    source = source_of("arrow", model, tmp_path)
    code, out, _ = run(source, tmp_path / "out", "--to", "tiktoken")
    assert code == 0
    assert "not checked: the result with tiktoken, which is not installed; read back, it is" in out


def test_minbpe_checks_its_files_where_it_is_installed(
    model: TokenizerModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in with minbpe's interface."""
    plain = model.with_special_tokens({"<|end|>": 300})

    class RegexTokenizer:
        def load(self, path: str) -> None:
            assert path.endswith(".model")
            self.tokenizer = BPETokenizer.from_model(formats.read_minbpe(path))

        def encode(self, text: str, allowed_special: str) -> list[int]:
            assert allowed_special == "all"
            return self.tokenizer.encode(text)

    stand_in = types.ModuleType("minbpe")
    stand_in.RegexTokenizer = RegexTokenizer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "minbpe", stand_in)
    done = convert(request(source_of("arrow", plain, tmp_path), tmp_path / "out", "minbpe"))
    assert done.checked is not None
    assert done.checked.library == "minbpe"
    assert done.checked.ids is not None


# Mistakes.


def test_files_that_are_there_are_not_overwritten(model: TokenizerModel, tmp_path: Path) -> None:
    source = source_of("arrow", model, tmp_path)
    convert(request(source, tmp_path / "out", "huggingface"))
    before = (tmp_path / "out" / "tokenizer.json").read_bytes()
    convert(request(source, tmp_path / "out", "huggingface"))  # the same again
    (tmp_path / "out" / "tokenizer_config.json").write_text('{"chat_template": "mine"}')
    with pytest.raises(OutputError, match="with this name and other content already exists"):
        convert(request(source, tmp_path / "out", "huggingface"))
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == before


MISTAKES: list[tuple[list[str], int, str]] = [
    (["absent", "out", "--to", "gpt2"], 4, "No such file"),
    (["source/some.tiktoken", "out", "--to", "gpt2"], 2, "--pattern with one of gpt2"),
    (["source", "out", "--to", "gpt2", "--pattern", "gtp2"], 2, "did you mean 'gpt2'"),
    (["source", "out", "--to", "gpt2", "--pattern", "("], 2, "not a valid regular expression"),
    (["source", "out", "--to", "nothing"], 2, "nothing"),
    (["source", "out"], 2, "--to"),
    (["source", "out", "--to", "gpt2", "--from", "minbpe"], 4, "none of them of the format minbpe"),
    (["source/some.tiktoken", "out", "--to", "gpt2", "--from", "arrow"], 4, "an Arrow IPC file"),
    (["nonsense://x", "out", "--to", "gpt2"], 4, "Protocol not known"),
    (["empty", "out", "--to", "gpt2"], 4, "an empty file"),
    (["sentences", "out", "--to", "gpt2"], 4, "may be a SentencePiece model"),
    (["merges.txt", "out", "--to", "gpt2"], 4, "name the vocab.json beside it"),
    (["folder", "out", "--to", "gpt2"], 4, "none of them"),
    (["two", "out", "--to", "gpt2"], 4, "a.tiktoken, b.tiktoken; name the file"),
    (["chars", "out", "--to", "gpt2"], 4, "found a character tokenizer, which is not converted"),
    (["chars/char_bpe.json", "out", "--to", "gpt2"], 4, "found a character tokenizer, which is"),
    (["settings", "out", "--to", "gpt2"], 4, "name the tokenizer.json beside it"),
    (["source", "out.txt", "--to", "huggingface"], 2, "a file name that ends in .json"),
    (["source", "out.json", "--to", "gpt2"], 2, "expected: a directory found: out.json"),
    (["source", "out.model", "--to", "tiktoken"], 2, "If DEST is a directory, add a slash"),
    (
        ["source", "out", "--to", "arrow", "--pattern", "gpt2", "--special", "foo=5"],
        4,
        "found 5 twice: of the special token 'foo' and of an ordinary token",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES)
def test_mistakes_are_told_in_words_with_their_exit_code(
    arguments: list[str],
    code: int,
    message: str,
    run: Run,
    model: TokenizerModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    source_of("tiktoken", model, tmp_path)
    Path("empty").touch()
    Path("sentences").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00")
    Path("merges.txt").write_text("#version: 0.2\na b\n")
    Path("folder").mkdir()
    Path("settings").write_text('{"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024}')
    characters = CharBPETokenizer()
    characters.train("the cat in the hat", 20)
    characters.save("chars")
    Path("two").mkdir()
    for name in ("a", "b"):
        Path(f"two/{name}.tiktoken").write_bytes(b"YQ== 0\n")
    found, out, err = run(*arguments)
    assert (found, out) == (code, ""), err
    assert message in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err
    assert not list(Path().glob("out*"))


def test_a_directory_may_end_like_a_file_if_it_is_there_or_has_a_slash(
    model: TokenizerModel, tmp_path: Path
) -> None:
    source = source_of("arrow", model, tmp_path)
    (tmp_path / "out.txt").mkdir()
    convert(request(source, tmp_path / "out.txt", "huggingface"))
    assert (tmp_path / "out.txt" / "tokenizer.json").exists()
    convert(Request(source=str(source), destination=f"{tmp_path}/new.json/", to="gpt2"))
    assert (tmp_path / "new.json" / "vocab.json").exists()


def test_special_tokens_that_a_vocab_json_does_not_name_are_asked_for(
    model: TokenizerModel, tmp_path: Path
) -> None:
    model = model.with_special_tokens({"<|end|>": 300, "it's": 301})
    source = source_of("gpt2", model, tmp_path)
    hint = r""": name them, --special '<\|end\|>=300' --special 'it'"'"'s=301'$"""
    with pytest.raises(CannotHoldError, match=hint):
        convert(request(source, tmp_path / "out", "tiktoken"))
    named = ["<|end|>=300", "it's=301"]
    done = convert(request(source, tmp_path / "out", "tiktoken", special_tokens=named))
    assert done.model.fingerprint == model.fingerprint


def test_special_tokens_are_not_asked_for_where_they_would_not_help(
    kjv_tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    kjv_tokenizer.save(tmp_path / "source")  # ids 0 ... are special tokens'
    with pytest.raises(CannotHoldError, match=r"nothing was written$"):
        convert(request(tmp_path / "source" / "vocab.json", tmp_path / "out", "minbpe"))


def test_options_that_the_source_says_itself_are_refused(
    model: TokenizerModel, tmp_path: Path
) -> None:
    source = source_of("arrow", model, tmp_path)
    for options in ({"pattern": "gpt2"}, {"special_tokens": ["<s>"]}, {"merges": "merges.txt"}):
        with pytest.raises(ConfigError, match="does not apply to the format arrow"):
            convert(request(source, tmp_path / "out", "huggingface", **options))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["<s>=300", "<e>"], "Some special tokens have ids and others have none"),
        (["<s>=300", "<s>=301"], "empty or named twice"),
        ([""], "empty or named twice"),
    ],
)
def test_special_tokens_named_wrongly_are_told(
    given: list[str], message: str, model: TokenizerModel, tmp_path: Path
) -> None:
    source = source_of("tiktoken", model, tmp_path)
    with pytest.raises(ConfigError, match=message):
        convert(request(source, tmp_path / "out", "arrow", pattern="gpt2", special_tokens=given))


def test_an_output_that_can_not_be_written_is_told(model: TokenizerModel, tmp_path: Path) -> None:
    source = source_of("arrow", model, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="The output cannot be written"):
        convert(request(source, tmp_path / "file" / "out", "huggingface"))


# What is said.


@pytest.mark.slow
def test_what_a_format_does_not_say_is_noted(run: Run, tmp_path: Path) -> None:
    model = TokenizerModel.from_tokens(
        [(i, bytes([i])) for i in range(256)],
        special_tokens={"<s>": 256, "</s>": 257, "<tool>": 258},
        prepend=[256],
        append=[257],
        nonspecial_tokens=["<tool>"],
    )
    formats.write_huggingface(model, tmp_path / "tokenizer.json")
    code, out, err = run(tmp_path / "tokenizer.json", tmp_path / "out", "--to", "gpt2")
    assert (code, err) == (0, "")
    assert "checked: for the source, tokenizers " in out
    assert "checked: for the result, tokenizers " in out
    assert "note: the format does not store that <s> belongs before a text" in out
    assert "note: the format does not store that </s> belongs after a text" in out
    assert "which special tokens decoding keeps: 1 of 3" in out
    assert "does not store which tokens are special" in out
    code, out, _ = run(tmp_path / "out", tmp_path / "again", "--to", "huggingface")
    assert "note: 3 entries are neither bytes nor results of merges, such as '<s>'" in out
    code, out, _ = run(tmp_path / "tokenizer.json", tmp_path / "third", "--to", "huggingface")
    assert "note" not in out
    assert 'to encode a corpus with it: encode.prepend: "<s>" and encode.append: "</s>"\n' in out
    assert json.loads((tmp_path / "third" / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
