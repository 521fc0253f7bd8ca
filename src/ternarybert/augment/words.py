"""Which words of a text may be replaced, which vocabulary entries are words, and how a replacement is spelled.

A word is a run of letters in any script. Everything else (spaces, punctuation, numbers, emoji) is copied byte for byte:
replacements are spliced into the text, the text is never split and joined again.

Function words are never replaced: articles, pronouns, prepositions, conjunctions, auxiliaries, question words,
quantifiers and particles. They carry the sentence structure, and a neighbor of "not" or "before" would reverse the
meaning. Single letters and words with an apostrophe inside ("don't") are not replaced either; the possessive ("dog's")
is an exception.

Tokenizer vocabularies mark pieces differently. WordPiece marks continuations (`##ing`); byte-level and SentencePiece
vocabularies mark pieces that start a word (`Ġgoing`, `▁going`). Only whole words can be replacements: any other piece
would attach to the word before it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from ternarybert.errors import DataError

_CLOSED_CLASSES = (
    # articles and determiners
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

# Combining accents are part of the run; otherwise a replacement would inherit the accent of the last letter.
_LETTER = r"[\w\u0300-\u036f]"
_RUN = re.compile(rf"{_LETTER}+(?:['’]{_LETTER}+)*")
_POSSESSIVE = re.compile(r"['’][sS]$")

_CONTINUATION = "##"
_BYTE_LEVEL = "Ġ"  # how byte-level vocabularies spell a space
_WORD_STARTS = (_BYTE_LEVEL, "▁")
_MARKED_SHARE = 0.1  # a vocabulary uses a mark if this share of its pieces starts with it


class WordPosition(NamedTuple):
    """A word and its position in a text."""

    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word as it is spelled in the text."""
        return self.text[self.start : self.end]


def find_words(text: str, stop_words: Collection[str] = STOP_WORDS) -> list[WordPosition]:
    """Find every replaceable word of a text, from left to right."""
    positions = []
    for run in _RUN.finditer(text):
        word = _POSSESSIVE.sub("", run.group())
        if len(word) > 1 and word.isalpha() and word.lower() not in stop_words and not _is_partial(run):
            positions.append(WordPosition(text, run.start(), run.start() + len(word)))
    return positions


def _is_partial(run: re.Match[str]) -> bool:
    """Whether a run is part of a longer word: `re` does not count combining marks (Hindi, Thai) as letters."""
    text, end = run.string, run.end()
    before = run.start()
    while before and _is_mark(text[before - 1]):
        before -= 1
    # A mark after an emoji does not belong to the next word.
    follows = 0 < before < run.start() and text[before - 1].isalpha()
    return follows or (end < len(text) and _is_mark(text[end]))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def read_stop_words(path: Path) -> frozenset[str]:
    """Read words that must not be replaced, one per line."""
    try:
        return frozenset(path.read_text(encoding="utf-8-sig").lower().split())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read stop words from {path}: {error}") from error


def match_case(word: str, candidate: str) -> str:
    """Apply the case of the replaced word to a lower-case candidate; other candidates keep their case."""
    if not candidate.islower():
        return candidate
    if word.isupper():
        return candidate.upper()
    return candidate[0].upper() + candidate[1:] if word[0].isupper() else candidate


def whole_words(vocabulary: Mapping[str, int]) -> dict[int, str]:
    """Map ids to vocabulary pieces that are whole words made of letters only."""
    mark = next((mark for mark in _WORD_STARTS if _share(vocabulary, mark) > _MARKED_SHARE), None)
    words = {i: _as_word(piece, mark) for piece, i in vocabulary.items()}
    return {i: word for i, word in words.items() if word is not None}


def _share(vocabulary: Mapping[str, int], mark: str) -> float:
    return sum(piece.startswith(mark) for piece in vocabulary) / max(1, len(vocabulary))


def _as_word(piece: str, mark: str | None) -> str | None:
    if mark is None:
        return piece if piece.isalpha() and not piece.startswith(_CONTINUATION) else None
    word = piece.removeprefix(mark)
    # Byte-level vocabularies spell non-ASCII letters as bytes, some of which look like other letters.
    whole = piece.startswith(mark) and word.isalpha() and (word.isascii() or mark != _BYTE_LEVEL)
    return word if whole else None
