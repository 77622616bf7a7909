"""Encoding where memory is short: streams take little, and what fails is a MemoryError."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from profiles import seldom, times

from bpe_core import BPETokenizer

END = "<|endoftext|>"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="limits of memory as Linux has them"
)

# Reads /proc without buffers of its own, so that nothing is allocated between limit and encoding.
_MEMORY = """
import json, os, resource, sys
from bpe_core import BPETokenizer

def memory():
    pages = open("/proc/self/statm").read().split()
    return [int(n) * resource.getpagesize() for n in pages[:2]]
"""

_STREAM = (
    _MEMORY
    + """
vocab, merges, text, limited = sys.argv[1:]
tokenizer = BPETokenizer.from_files(vocab, merges, ["<|endoftext|>"])
with open(text, encoding="utf-8", newline="") as file:
    _, before = memory()
    if limited == "limited":
        # As Stanford's CS336 does it: below what the process has mapped already.
        resource.setrlimit(resource.RLIMIT_AS, (before + 1_000_000, -1))
    n = digest = most = 0
    for token_id in tokenizer.encode_iterable(file):
        n += 1
        digest = (digest * 31 + token_id) & 0xFFFFFFFF
    _, after = memory()
print(json.dumps([n, digest, after - before]))
"""
)

# Each limit is set in a child of its own: the system may not give back what was taken before.
_LIMITS = (
    _MEMORY
    + """
import numpy as np

vocab, merges, text, what, step = sys.argv[1:]
tokenizer = BPETokenizer.from_files(vocab, merges, ["<|endoftext|>"])
make = lambda: BPETokenizer.from_model(tokenizer.model)
data = open(text, "rb").read()
documents = data.split(b"<|endoftext|>")
expected = make().encode(data)
batch = make().encode_batch_to_numpy(documents, num_threads=1)[0].tolist()
outcomes = []
for limit in [0, 1 << 16, 1 << 18, *range(1 << 20, 160 << 20, int(step)), 2 << 30]:
    child = os.fork()
    if child == 0:
        code = 3
        try:
            resource.setrlimit(resource.RLIMIT_AS, (memory()[0] + limit, -1))
            if what == "encode":
                right = tokenizer.encode(data) == expected
            elif what == "batch":
                ids, _ = tokenizer.encode_batch_to_numpy(documents, num_threads=4)
                right = ids.tolist() == batch
            else:
                right = list(make().encode_iterable([data])) == expected
            code = 0 if right else 4
        except MemoryError:
            code = 5
        finally:
            os._exit(code)
    outcomes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(outcomes))
"""
)


def run(program: str, *arguments: object) -> Any:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def digest_of(ids: Iterable[int]) -> list[int]:
    n = digest = 0
    for token_id in ids:
        n += 1
        digest = (digest * 31 + token_id) & 0xFFFFFFFF
    return [n, digest]


@pytest.fixture(scope="module")
def trained_files(
    kjv_tokenizer: BPETokenizer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("trained")
    kjv_tokenizer.save(directory)
    return directory / "vocab.json", directory / "merges.txt"


@pytest.fixture(scope="module", params=["trained", "gpt2"])
def files(request: pytest.FixtureRequest, trained_files: tuple[Path, Path]) -> tuple[Path, Path]:
    if request.param == "trained":
        return trained_files
    vocab = Path(__file__).parents[2].parent / "shared" / "data" / "vocab"
    if not (vocab / "gpt2_vocab.json").exists():
        pytest.skip("needs GPT-2's files in ../shared/data/vocab")
    return vocab / "gpt2_vocab.json", vocab / "gpt2_merges.txt"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("repetition", seldom(range(3), 3))
def test_five_megabytes_line_by_line_take_less_than_one(
    files: tuple[Path, Path], repetition: int, kjv: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "text.txt"
    text = (kjv + kjv[::-1].decode("ascii", "replace").encode())[: 5_000_000 + repetition]
    text = text.decode(errors="ignore").encode()
    path.write_bytes(text)
    *found, grown = run(_STREAM, *files, path, "limited")
    assert found == digest_of(BPETokenizer.from_files(*files, [END]).encode(text))
    assert grown <= 1_000_000


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("what", ["encode", "batch", "stream"])
def test_under_any_limit_ids_are_right_or_it_is_a_memory_error(
    trained_files: tuple[Path, Path], what: str, kjv: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "text.txt"
    # Words that none of the caches has seen.
    numbers = " ".join(f"{n * 7919:x}" for n in range(100_000)).encode()
    path.write_bytes(kjv[:300_000] + END.encode().join([numbers[:400_000], numbers[400_000:]]))
    outcomes = run(_LIMITS, *trained_files, path, what, (500 << 20) // times(1))
    assert set(outcomes) <= {0, 5}, outcomes
    assert outcomes[-1] == 0


@pytest.mark.soak
def test_a_stream_of_any_length_takes_as_much(
    files: tuple[Path, Path], shared_text: Callable[..., bytes], tmp_path: Path
) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(shared_text("prose"))
    n, _, grown = run(_STREAM, *files, path, "unlimited")
    print(f"{path.stat().st_size:,} bytes, {n:,} ids: {grown:,} bytes more")
    assert grown <= 2_000_000
