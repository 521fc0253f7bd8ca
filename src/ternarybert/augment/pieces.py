"""Which pieces of a tokenizer's vocabulary are whole words.

WordPiece marks pieces that go on (`##ing`); byte-level and SentencePiece vocabularies mark pieces that begin a word
(`Ġgoing`, `▁going`). Only whole words are of use as replacements: anything else would grow into the word before it.
"""

from __future__ import annotations

from collections.abc import Mapping

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
