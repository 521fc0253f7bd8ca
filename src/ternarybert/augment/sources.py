"""Where replacement words come from: the interface of a source, several sources in a row, and how they are loaded.

A source returns `None` for a word it does not cover and `()` for a word it covers without knowing a replacement. That
is enough to express "words of one piece from the masked-language model, all others from GloVe": `SourceChain` queries
one source after the other, each only for the words that the sources before it did not cover.

`load_source` builds the chain from what the user has. Words of one piece: the masked-language model or, without one,
the word embeddings of a model. All other words: GloVe. A word that no source covers is never replaced.

Candidates are ordered by vocabulary, not by score. Scores differ in their last digits between batch sizes; with this
order such a difference matters only at the boundary of the best fifteen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ternarybert.augment.words import WordPosition
from ternarybert.errors import RecipeError

COUNT = 15  # candidates per word, as in TinyBERT
BATCH_SIZE = 32  # of a masked-language model; larger batches are slower on CPU because activations exceed its caches
MAX_LENGTH = 512

Candidates = tuple[str, ...]


def no_progress(done: int) -> None:
    """Ignore progress."""


class Source(Protocol):
    """Gives candidates for words."""

    @property
    def description(self) -> str:
        """What the source is, in words."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever a candidate could change; files and caches with another fingerprint are not resumed."""

    def candidates(
        self, positions: Sequence[WordPosition], progress: Callable[[int], None] = no_progress
    ) -> list[Candidates | None]:
        """Return candidates for each word. `progress` receives the number of finished words now and then."""


class SourceChain:
    """Several sources; the first one that covers a word gives its candidates."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)

    @property
    def description(self) -> str:
        """The descriptions of all sources, in query order."""
        return "; for the other words, ".join(source.description for source in self.sources)

    @property
    def fingerprint(self) -> str:
        """The fingerprints of all sources combined."""
        return digest(*(source.fingerprint for source in self.sources))

    def candidates(
        self, positions: Sequence[WordPosition], progress: Callable[[int], None] = no_progress
    ) -> list[Candidates | None]:
        """Return candidates from the first source that covers the word."""
        answers: list[Candidates | None] = [None] * len(positions)
        uncovered = list(range(len(positions)))
        for source in self.sources:
            offset_progress = _with_offset(len(positions) - len(uncovered), progress)
            given = source.candidates([positions[i] for i in uncovered], offset_progress)
            for i, answer in zip(uncovered, given, strict=True):
                answers[i] = answer
            uncovered = [i for i in uncovered if answers[i] is None]
        return answers


def _with_offset(finished: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    """Progress of a source that starts when `finished` words are done."""
    return lambda count: progress(finished + count)


def load_source(
    *,
    masked_model: str | None = None,
    embeddings: str | Path | None = None,
    glove: str | Path | None = None,
    count: int = COUNT,
    batch_size: int = BATCH_SIZE,
    max_length: int = MAX_LENGTH,
    masks: int = 1,
    device: str = "cpu",
) -> Source:
    """Load the named sources; several become a chain."""
    from ternarybert.augment.masked import MaskedModel
    from ternarybert.augment.neighbors import load_embeddings, load_glove

    if masked_model is not None and embeddings is not None:
        raise RecipeError(
            f"the masked-language model {masked_model} and the word embeddings of {embeddings} cover the same words; "
            "choose one"
        )
    sources: list[Source] = []
    if masked_model is not None:
        options = {"count": count, "batch_size": batch_size, "max_length": max_length, "masks": masks}
        sources.append(MaskedModel.load(masked_model, device=device, **options))
    if embeddings is not None:
        sources.append(load_embeddings(embeddings, count=count))
    if glove is not None:
        sources.append(load_glove(glove, count=count))
    if not sources:
        raise RecipeError("no source of words: name a masked-language model, word embeddings or GloVe vectors")
    return sources[0] if len(sources) == 1 else SourceChain(sources)


def digest(*parts: str | bytes | memoryview) -> str:
    """Hash content to a short name; each part is hashed with its length."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hashed.update(f"{len(data)}:".encode())
        hashed.update(data)
    return hashed.hexdigest()
