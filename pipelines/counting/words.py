"""Counted words for the trainers of other libraries.

SentencePiece reads words with their counts. The trainers of Hugging Face's tokenizers only read
texts, so counts are scaled down to numbers in which words can be repeated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from bpe_core.short_repr import short_repr
from pipelines.choices import CountsFormat
from pipelines.counting.given import GivenCounts
from pipelines.errors import shortened

MOST_REPEATED: Final = 10_000_000
# Ends of fields and lines in a TSV file, and the end of a text in C.
_NOT_IN_TSV: Final = {b"\t": "a tab", b"\n": "a newline", b"\r": "a newline", b"\0": "NUL"}


@short_repr
@dataclass(kw_only=True)
class Words:
    """Numbers of words that were written and left out.

    Attributes:
        words: Distinct words in the file.
        occurrences: Sum of their counts in the corpus.
        left_out: Numbers of distinct words and of occurrences that the file lacks, by reason.
    """

    words: int = 0
    occurrences: int = 0
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)

    def leave_out(self, reason: str, count: int) -> None:
        """Add a word that the file lacks."""
        words, occurrences = self.left_out.get(reason, (0, 0))
        self.left_out[reason] = words + 1, occurrences + count

    def __str__(self) -> str:
        """Return the numbers as a sentence."""
        text = f"{self.words:,} words with {self.occurrences:,} occurrences"
        if not self.left_out:
            return text
        reasons = [
            f"{words:,} with {reason} ({occurrences:,} occurrences)"
            for reason, (words, occurrences) in sorted(self.left_out.items())
        ]
        return f"{text}; left out: {shortened(reasons, len(reasons))}"


def write_words(
    counts: GivenCounts, to: CountsFormat, file: BinaryIO, *, most: int = MOST_REPEATED
) -> Words:
    """Write the counted words in the order of the shards, in bounded memory.

    Args:
        counts: The counts.
        to: "sentencepiece": lines of a word, a tab and its count; "tokenizers": lines of JSON with
            `word` and `count`.
        file: Destination.
        most: tokenizers: maximum sum of the counts in the file. Larger counts are all scaled by
            one factor and rounded; words that are rounded to 0 are left out.

    Raises:
        OutputError: A shard is missing or damaged.
        FormatError: A file does not contain counts.
    """
    found = Words()
    scale = (1, 1)
    if to == "tokenizers" and (total := counts.total()) > most:
        scale = (most, total)
    for shard in range(counts.shards):
        for rows in counts.read(shard):
            for word, count in rows.items():
                line = _line_of(word, count, to, scale, found)
                if line is not None:
                    file.write(line)
                    found.words += 1
                    found.occurrences += count
    return found


def _line_of(
    word: bytes, count: int, to: CountsFormat, scale: tuple[int, int], found: Words
) -> bytes | None:
    """Return the line of a word, or record why the word cannot have one."""
    try:
        text = word.decode()
    except UnicodeDecodeError:
        found.leave_out("invalid UTF-8", count)
        return None
    if to == "sentencepiece":
        for part, reason in _NOT_IN_TSV.items():
            if part in word:
                found.leave_out(reason, count)
                return None
        return b"%s\t%d\n" % (word, count)
    most, total = scale
    scaled = (2 * count * most + total) // (2 * total)  # rounded, in integers
    if not scaled:
        found.leave_out(f"a count below {-(-total // (2 * most)):,}", count)
        return None
    return json.dumps({"word": text, "count": scaled}, ensure_ascii=False).encode() + b"\n"
