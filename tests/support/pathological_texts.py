"""Texts that are one pre-token, or nearly."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

import numpy as np


def _chosen(alphabet: str, size: int) -> bytes:
    characters = [character.encode() for character in alphabet]
    mean = sum(map(len, characters)) / len(characters)
    places = np.random.default_rng(1).integers(0, len(characters), int(size / mean))
    return b"".join(characters[place] for place in places)


def _random_bytes(size: int) -> bytes:
    return np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes()


def _families(size: int) -> bytes:
    """Return emoji joined by U+200D, some with a skin tone."""
    rng = random.Random(1)
    people, tones = "👨👩🧑👦👧", ["", "🏻", "🏽", "🏿"]
    families = [
        "\u200d".join(rng.choice(people) + rng.choice(tones) for _ in range(rng.randint(1, 4)))
        for _ in range(500)
    ]
    return "".join(rng.choice(families) for _ in range(size // 20)).encode()


def _minified(size: int) -> bytes:
    """Return JavaScript like a minifier's output: one line, short names."""
    rng = random.Random(1)
    names = [a + b for a in "abcdefghijklmnopqrstuvwxyzABC_$" for b in ["", *"abcdeABCDE0123"]]
    members = [
        "length",
        "push",
        "prototype",
        "call",
        "apply",
        "exports",
        "default",
        "props",
        "state",
        "map",
        "value",
        "type",
    ]

    def expression(depth: int = 0) -> str:
        forms = 2 if depth > 2 else 8
        match rng.randrange(forms):
            case 0:
                return rng.choice(names)
            case 1:
                return str(rng.choice([0, 1, rng.randrange(100_000)]))
            case 2:
                return f'"{rng.choice(members)}"'
            case 3:
                return f"{rng.choice(names)}.{rng.choice(members)}({expression(depth + 1)})"
            case 4:
                operator = rng.choice(["===", "!==", "+", "&&", "||", ">>>"])
                return f"{expression(depth + 1)}{operator}{expression(depth + 1)}"
            case 5:
                parts = (expression(depth + 1) for _ in range(3))
                return "({}?{}:{})".format(*parts)
            case 6:
                return f"{{{rng.choice(members)}:{expression(depth + 1)}}}"
            case _:
                return f"function({rng.choice(names)}){{return {expression(depth + 1)}}}"

    statements = [f"var {rng.choice(names)}={expression()};" for _ in range(2000)]
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        parts.append("".join(rng.sample(statements, len(statements))))
    return "".join(parts).encode()[:size]


TEXTS: dict[str, Callable[[int], bytes]] = {
    "one letter": lambda size: b"a" * size,
    "random letters": lambda size: _chosen("abcdefghijklmnopqrstuvwxyz", size),
    "spaces": lambda size: b" " * size,
    "newlines": lambda size: b"\n" * size,
    "one digit": lambda size: b"0" * size,
    "random digits": lambda size: _chosen("0123456789", size),
    "emoji with joiners": _families,
    "combining marks": lambda size: b"a" + _chosen("".join(map(chr, range(0x300, 0x370))), size),
    "1-byte and 4-byte characters": lambda size: "a😀".encode() * (size // 5),
    "random bytes made valid": lambda size: _random_bytes(size).decode(errors="ignore").encode(),
    "base64": lambda size: base64.b64encode(_random_bytes(size * 3 // 4)),
    "minified JavaScript": _minified,
}
