"""Which words of a text may be replaced, and how a replacement is written in their place.

A word is a run of letters in any script. Everything else (spaces, punctuation, numbers, emoji) is left as it stands,
byte for byte: replacements are cut into the text, the text is never split and joined again.

Words of the closed classes stay: articles, pronouns, prepositions, conjunctions, auxiliaries, question words,
quantifiers and particles. They hold the sentence together, and a neighbour of "not" or "before" turns its meaning
around. So do single letters, and words with an apostrophe inside ("don't"), but for the possessive ("dog's").

MERGED-DOCS:
Which pieces of a tokenizer's vocabulary are whole words.

WordPiece marks pieces that go on (`##ing`); byte-level and SentencePiece vocabularies mark pieces that begin a word
(`Ġgoing`, `▁going`). Only whole words are of use as replacements: anything else would grow into the word before it.

"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from ternarybert.errors import DataError

_CONTINUES = "##"
_BYTE_LEVEL = "Ġ"  # how byte-level vocabularies spell a space
_BEGINS = (_BYTE_LEVEL, "▁")
_MARKED_SHARE = 0.1  # a vocabulary in which this many pieces begin with a mark uses that mark


def whole_words(vocabulary: Mapping[str, int]) -> dict[int, str]:
    """The pieces that are words, made of letters alone, by their ids."""
    mark = next((mark for mark in _BEGINS if _share(vocabulary, mark) > _MARKED_SHARE), None)
    words = {i: _as_word(piece, mark) for piece, i in vocabulary.items()}
    return {i: word for i, word in words.items() if word is not None}


def _share(vocabulary: Mapping[str, int], mark: str) -> float:
    return sum(piece.startswith(mark) for piece in vocabulary) / max(1, len(vocabulary))


def _as_word(piece: str, mark: str | None) -> str | None:
    if mark is None:
        return piece if piece.isalpha() and not piece.startswith(_CONTINUES) else None
    word = piece.removeprefix(mark)
    # Byte-level pieces spell letters beyond ASCII as bytes, some of which look like other letters.
    whole = piece.startswith(mark) and word.isalpha() and (word.isascii() or mark != _BYTE_LEVEL)
    return word if whole else None


_CLOSED_CLASSES = (
    # articles and what stands in their place
    "a an the this that these those each every either neither such same other another",
    # pronouns
    "i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself",
    "we us our ours ourselves they them their theirs themselves one oneself",
    "someone anyone everyone somebody anybody everybody nobody something anything everything nothing",
    # question words
    "who whom whose which what when where why how whoever whatever whichever whenever wherever",
    # prepositions
    "about above across after against along alongside amid among amongst around as at before behind below",
    "beneath beside besides between beyond by despite down during except for from in inside into near of off",
    "on onto out outside over per since than through throughout till to toward towards under underneath until",
    "unto up upon via with within without",
    # conjunctions
    "and but or nor so yet because although though unless while whereas if whether lest",
    # auxiliaries
    "am is are was were be been being do does did doing done have has had having",
    "can cannot could may might must shall should will would ought",
    # quantifiers
    "all any both enough few fewer least less many more most much no none several some",
    # particles
    "not never hardly scarcely barely only just also too very even then thus again once ever else",
    "here there somewhere anywhere everywhere nowhere",
)
STOP_WORDS: frozenset[str] = frozenset(word for line in _CLOSED_CLASSES for word in line.split())

# Combining accents belong to the run: a replacement would otherwise inherit the accent of the last letter.
_LETTER = r"[\w\u0300-\u036f]"
_RUN = re.compile(rf"{_LETTER}+(?:['’]{_LETTER}+)*")
_POSSESSIVE = re.compile(r"['’][sS]$")


class Place(NamedTuple):
    """A word where it stands."""

    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word itself."""
        return self.text[self.start : self.end]


def find_words(text: str, stop_words: Collection[str] = STOP_WORDS) -> list[Place]:
    """Every word of a text that may be replaced, from left to right."""
    places = []
    for run in _RUN.finditer(text):
        word = _POSSESSIVE.sub("", run.group())
        if len(word) > 1 and word.isalpha() and word.lower() not in stop_words and not _is_torn(run):
            places.append(Place(text, run.start(), run.start() + len(word)))
    return places


def _is_torn(run: re.Match[str]) -> bool:
    """Whether a run is a piece of a longer word: vowel signs and the like (Hindi, Thai) are no letters for `re`."""
    text, end = run.string, run.end()
    before = run.start()
    while before and _is_mark(text[before - 1]):
        before -= 1
    # The mark behind an emoji has nothing to do with the word after it.
    follows = 0 < before < run.start() and text[before - 1].isalpha()
    return follows or (end < len(text) and _is_mark(text[end]))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def read_stop_words(path: Path) -> frozenset[str]:
    """Read words that stay, one a line."""
    try:
        return frozenset(path.read_text(encoding="utf-8-sig").lower().split())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the stop words in {path}: {error}") from error


def written_like(word: str, candidate: str) -> str:
    """Give a lower-case candidate the case of the word it replaces; other candidates know their own."""
    if not candidate.islower():
        return candidate
    if word.isupper():
        return candidate.upper()
    return candidate[0].upper() + candidate[1:] if word[0].isupper() else candidate
