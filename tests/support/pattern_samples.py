"""Two hundred split patterns, published and made up, by the library that they are written for.

Each list has the patterns of one dialect. They are compared with the package `regex`, with Hugging
Face's tokenizers (Oniguruma), and with tiktoken (fancy-regex).
"""

from __future__ import annotations

from bpe_core.patterns import PATTERNS

_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_HEADS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_TAILS = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_HAN = r"&&[^\p{Han}]]"
_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MIXED = rf"[^\r\n\p{{L}}\p{{N}}]?{_HEADS}*{_TAILS}+%s|[^\r\n\p{{L}}\p{{N}}]?{_HEADS}+{_TAILS}*%s|"
_ROOMY = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++"

# Of configurations and of tokenizers that are trained with `regex` itself.
REGEX = [
    *(pattern for name, pattern in PATTERNS.items() if name not in ("llama3", "none")),
    _MIXED % ("", "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACE,
    _MIXED % (_ENDS + "?", _ENDS + "?") + r"\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACE,
    rf"{_ENDS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACE}",
    rf"{_ROOMY}|\p{{N}}{{1,2}}| ?[^\s\p{{L}}\p{{N}}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"(?V1)[\p{Han}]+|[\p{L}&&[^\p{Han}]]+|\p{N}{1,3}|\s+|[^\s\p{L}\p{N}]+",
    r"(?V1)[\p{L}--\p{Latin}]+|[\w--\d--_]+|[a-e--c&&[b-z]]|[^\p{L}--[a-c]]|.",
    *(r"\w+", r"\w+|[^\w\s]+", r"\w+|[^\w\s]|\s+", r"\S+", r"\S+|\s+", r" ?\S+", r"\s*\S+\s*"),
    *(r"\s+(?=\S)|\S+", r"[^ ]+ ?", r"(?<= )\S+| +", r"\b\w+\b|\W", r"\b", r"\B", "(?=[A-Z])"),
    *(r"(?<=[.!?])\s+", r"[.!?]+\s*", r"[^.!?]+[.!?]?", "\n", "\r\n|\r|\n", r"[^\n]*\n?", r".+"),
    *(r"(?s).", "(?s).{1,4}", r"[a-z]+|[A-Z]+|\d+|.", r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+"),
    *(
        r"\d",
        r"\d+",
        r"\d{3}",
        r"\d{1,3}(?=(?:\d{3})*(?!\d))",
        r"(?=(?:\d{3})+(?!\d))",
        r"\d+(?!x)",
    ),
    *(r"0x[0-9a-fA-F]+|\w+", r"\d+\.\d+|\d+|\D", r"[+-]?\d+(?:[.,]\d+)?", r"\p{Nd}+|\p{No}|\p{L}+"),
    *(r"\p{Lu}\p{Ll}*|\p{Ll}+", r"\p{L}\p{M}*|.", r"\P{L}+", r"\p{Latin}+|\p{Cyrillic}+|\p{Han}"),
    *(
        r"\p{Hiragana}+|\p{Katakana}+|[一-龥]+",
        r"\p{Greek}+|\P{Greek}",
        r"[\p{P}\p{S}]",
        r"\p{Zs}+",
    ),
    *("(?i)abc|s+", "(?i)ſ|É+", "(?i:st)|[k-z]+", "(?i)[a-c]+|ß", r"(?i)'(?:s|t|ll)"),
    *("a*", "a|", "a+?b|ab*?", "a*?b", "(?:ab?){2,3}", "(?:a|ab)(?:c|bcd)?", "a{2,3}?|a", "x*+a"),
    *(r"(?>\s*)\n|\S+", r"\w++\d|.", r"[ab]++c|a", r"(?<!\w)[a-z]+", "(?<=a)b+|c*?d", "(?=b)"),
    *(r"^a+|b$", r"\s+$", r"\A\w|\w\Z", r"(?m)^\s*|\w+$", r"(?m)^#.*$|\w+", "é|😀", r"[^\W\d_]+"),
    *(r"https?://\S+|\w+", r"\w+@\w+\.\w+|\w+", r"<[^>]*>|[^<]+", r"\{|\}|[^{}]+", r"//[^\n]*|\w+"),
]

# Of tokenizer.json.
ONIGURUMA = [
    rf"{_ENDS}|{_LETTERS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",
    rf"{_ENDS}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",
    _MIXED % (_ENDS + "?", _ENDS + "?") + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACE,
    _MIXED % ("", "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACE,
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACE,
    *("[一-龥\u3040-ゟ゠-ヿ]+", "[一-龥ࠀ-一가-퟿]+", r"\s?\p{L}+", r"\s?\p{P}+", r"[\r\n]", r"\s+$"),
    *(r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿ]+", r"\p{N}{1,3}", r"\p{N}+"),
    *(r"\d{1,3}(?=(?:\d{3})*\b)", r"(?=(\d{3})+(?!\d))", r" ?[^(\s|[.,!?…。，、।۔،])]+", "[0-9]"),
    *(r"[0-9][0-9][0-9]", r"\p{N}{1,3}+", r"\p{N}{2}|.", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+"),
    *(r"\w+|[^\w\s]+", r"\w+|\s+", r"\s|\S+", r" +|\S+", r" ", r"▁", r"(?<=\S) ", r"(?= )", r"\n+"),
    *(r"\h+", r"\H+", r"\R", r"\s?\p{L}+|\R", r"\N|\n", r"(?m).{3}", r"(?m:.)", "^a|.", "b$|."),
    *(
        r"\A.|.\Z|\z",
        r"\b.",
        r"\B.",
        r"\b\w+\b",
        r"\S+(?=\s)",
        r"(?<!\d)\d",
        r"(?<=\d)\D+",
        "x(?!y)",
    ),
    *("(?i:[sdmt]|ve)", "(?i)[a-m]+", "(?i:k)+", r"\p{Han}+|\p{Hiragana}", r"\p{^L}+", r"\P{N}+"),
    *(r"\p{In_Hiragana}|\p{^L}", r"\p{Alphabetic}+|\p{Nd}", r"\p{Lu}?\p{Ll}+", r"[^\p{L}\p{N}\s]+"),
    *(
        "[a-z&&[^aeiou]]+|.",
        r"[\w&&[^\d_]]+",
        r"[\p{L}&&\p{Latin}]+",
        "[[a-f][0-9]]+",
        "[^a-c[xy]]+",
    ),
    *(
        "a*|.",
        "a{1,2}+b",
        "(?>a+)b|a*+b",
        "a+?b",
        "(?:ab|a)(?:c|b)?",
        "[]x]+?",
        "a{0,2}b",
        "a{2,}|b",
    ),
]

# Of tiktoken's ranks; a last alternative takes every character that the pattern leaves.
FANCY = [
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    rf"{_ROOMY}|\p{{N}}{{1,3}}+| ?[^\s\p{{L}}\p{{N}}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    _MIXED % (_ENDS + "?", _ENDS + "?") + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACE,
    rf"{_ENDS}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",
    _MIXED % ("", "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACE,
    rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{_HEADS}{_HAN}*[{_TAILS}{_HAN}+{_ENDS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_HEADS}{_HAN}+[{_TAILS}{_HAN}*|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",
    rf"{_ROOMY}|\p{{N}}{{1,2}}| ?[^\s\p{{L}}\p{{N}}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    *(r"\w+", r"\w+|\s+", r"\w+|[^\w\s]+", r"\S+|\s+", r" ?\S+", r"\s+(?=\S)|\S+", r"\s+$|a"),
    *(
        r"\s+(?!\S)|\S+",
        r"[^ ]+ ?",
        r"\b\w+\b",
        r"\b\w|\B\w+",
        r"(?<= )\S+",
        r"[^\n]+\n?",
        "\n+|.+",
    ),
    *(
        r"\d",
        r"\d+",
        r"\d{1,3}",
        r"\d{1,3}(?=(?:\d{3})*(?!\d))",
        r"\d+(?!x)|a+b",
        r"\d{2}|\d",
        "1a?",
    ),
    *(
        r"\p{Lu}\p{Ll}*|\p{Ll}+",
        r"\p{L}\p{M}*",
        r"\P{L}+",
        r"\p{Greek}+|\p{Latin}+",
        r"[\p{P}\p{S}]+",
    ),
    *(
        r"\p{Hiragana}+|[一-龥]+",
        r"[\w&&[^1]]+",
        r"[\p{L}&&[^a-m]]+",
        r"[[a-f][0-9]]+",
        r"[b-d&&[^c]]+",
        r"[a-z--[b]]+",
        r"[\w--a--\d&&[^z]]+",
        r"[^a--b]",
    ),
    *(r"[^\W\d_]+", r"[\s\d]+", r"[^a-c]+", "[a-]+", r"[\]a]+", "(?i)abc|s+", "(?i:st)|[k-z]+"),
    *(r"(?i)'(?:s|t|ll)", "(?s).{1,4}", "(?s:.)b?", r"(?m)^a+|b$", r"^a+|b$", r"\A\w|\w\z", "ab|a"),
    *("a+?b|ab+?", "(?:ab?){2,3}", "(?:a|ab)(?:c|b1)?", "a{2,3}?|a", "x*+a", r"(?>\s+)\n|\S+"),
    *(
        r"\w++\d|1",
        "[ab]++c|a",
        r"(?<!\w)[a-z]+",
        "(?<=a)b+",
        "a(?=b)",
        "a(?!b)|b+",
        "(?:a{1,2}+b)",
    ),
]
