"""Writes native/src/text/unicode_tables.inc: what BERT's normalizer and pre-tokenizer do with each character.

The Rust crates in Hugging Face `tokenizers` have Unicode tables of several versions, so no single version of Unicode
gives the same tokens. Instead of guessing, this script asks the installed library about every code point:

    python tools/unicode_tables.py          # write the file
    python tools/unicode_tables.py --check  # fail if it is not what the installed library does
"""

from __future__ import annotations

import argparse
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import tokenizers
from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

TARGET = Path(__file__).parent.parent / "native" / "src" / "text" / "unicode_tables.inc"
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic
WIDTH = 120

_clean, _chinese, _accents, _lower = (
    BertNormalizer(
        clean_text=step == "clean",
        handle_chinese_chars=step == "chinese",
        strip_accents=step == "accents",
        lowercase=step == "lower",
    ).normalize_str
    for step in ("clean", "chinese", "accents", "lower")
)
_decompose = NFD().normalize_str
_split = BertPreTokenizer().pre_tokenize_str


def code_points() -> Iterator[str]:
    """Every character but the surrogates, which no text has."""
    return (chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def is_removed(char: str) -> bool:
    """Whether cleaning deletes it."""
    return _clean(f"a{char}b") == "ab"


def is_blank(char: str) -> bool:
    """Whether cleaning makes it a space."""
    return _clean(f"a{char}b") == "a b"


def is_chinese(char: str) -> bool:
    """Whether it becomes a word of its own."""
    return _chinese(char) == f" {char} "


def is_mark(char: str) -> bool:
    """Whether stripping accents deletes it."""
    return _accents(f"a{char}") == "a" and _decompose(char) == char


def is_separator(char: str) -> bool:
    """Whether words end at it."""
    return len(_split(f"a{char}b")) == 2


def is_punctuation(char: str) -> bool:
    """Whether it is split off a word."""
    return len(_split(f"a{char}b")) == 3


def is_nonspacing(char: str) -> bool:
    """Whether it stands on the letter before it, for the ends of answers; by Python's tables."""
    return unicodedata.category(char) == "Mn"


def ranges(test: Callable[[str], bool]) -> list[tuple[int, int]]:
    """First and last code point of each run of characters that pass the test."""
    found: list[tuple[int, int]] = []
    for char in code_points():
        if test(char):
            c = ord(char)
            if found and found[-1][1] == c - 1:
                found[-1] = (found[-1][0], c)
            else:
                found.append((c, c))
    return found


def combining_classes() -> list[tuple[int, int]]:
    """Code points with their canonical combining class, as the library orders them.

    Two marks change places exactly if the first has the higher class and the second has one. The class of Python's
    tables is checked against the marks of the neighbouring classes; a mark that never moves has class 0 there.
    """
    classes = {ord(char): unicodedata.combining(char) for char in code_points() if unicodedata.combining(char)}
    marks = {value: chr(c) for c, value in sorted(classes.items(), reverse=True) if c < 0x1000}
    order = sorted(marks)
    kept = []
    for c, value in sorted(classes.items()):
        char = chr(c)
        if _decompose(char) != char:
            continue
        below = [marks[other] for other in order if other < value]
        above = [marks[other] for other in order if other > value]
        swaps_below = not below or _decompose(f"a{char}{below[-1]}") == f"a{below[-1]}{char}"
        swaps_above = not above or _decompose(f"a{above[0]}{char}") == f"a{char}{above[0]}"
        if swaps_below and swaps_above:
            kept.append((c, value))
        elif (swaps_below and below) or (swaps_above and above):
            raise SystemExit(f"U+{c:04X} has another combining class in the library than {value}")
    return kept


def mappings(change: Callable[[str], str], without: range = range(0)) -> list[tuple[int, str]]:
    """Code points that a step turns into something else."""
    return [(ord(char), new) for char in code_points() if ord(char) not in without and (new := change(char)) != char]


def _wrapped(items: list[str]) -> str:
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])


def _mapping_table(name: str, found: list[tuple[int, str]]) -> str:
    text: list[str] = []
    rows = []
    for c, new in found:
        rows.append(f"{{0x{c:x}, {len(text)}, {len(new)}}}")
        text += [f"0x{ord(char):x}" for char in new]
    return (
        f"constexpr uint32_t k{name}Text[] = {{\n{_wrapped(text)}\n}};\n"
        f"constexpr Mapping k{name}[] = {{\n{_wrapped(rows)}\n}};\n"
    )


def render() -> str:
    """The file's text."""
    tests = {
        "Removed": is_removed,
        "Blanks": is_blank,
        "Chinese": is_chinese,
        "Marks": is_mark,
        "Separators": is_separator,
        "Punctuation": is_punctuation,
        "Nonspacing": is_nonspacing,
    }
    parts = [
        f"// Written by tools/unicode_tables.py from tokenizers {tokenizers.__version__}, "
        f"Unicode {unicodedata.unidata_version} of Python. Do not edit.\n"
    ]
    for name, test in tests.items():
        items = [f"{{0x{first:x}, 0x{last:x}}}" for first, last in ranges(test)]
        parts.append(f"constexpr CharacterRange k{name}[] = {{\n{_wrapped(items)}\n}};\n")
    items = [f"{{0x{c:x}, {value}}}" for c, value in combining_classes()]
    parts.append(f"constexpr CombiningClass kClasses[] = {{\n{_wrapped(items)}\n}};\n")
    parts.append(_mapping_table("Decomposition", mappings(_decompose, HANGUL)))
    parts.append(_mapping_table("Lower", mappings(_lower)))
    return "// clang-format off\n" + "".join(parts)


def main() -> None:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    text = render()
    if not parser.parse_args().check:
        TARGET.write_text(text)
    elif TARGET.read_text().split("\n", 2)[2] != text.split("\n", 2)[2]:
        sys.exit(f"{TARGET} differs from what tokenizers {tokenizers.__version__} does; run this without --check")


if __name__ == "__main__":
    main()
