"""Which sources answer for which words, from what the user has at hand.

Words of one piece: the masked-language model; without one, a model's own word embeddings. All other words, and every
word when there is neither: GloVe. A word that nobody knows stays as it is.
"""

from __future__ import annotations

from pathlib import Path

from ternarybert.augment.masked import BATCH_SIZE, MAX_LENGTH, MaskedModel
from ternarybert.augment.neighbours import load_embeddings, load_glove
from ternarybert.augment.source import COUNT, Chain, Source
from ternarybert.errors import RecipeError


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
    """Load the named sources; each word is answered for by the first that knows it."""
    if masked_model is not None and embeddings is not None:
        raise RecipeError("a masked-language model and word embeddings both answer for words of one piece; choose one")
    sources: list[Source] = []
    if masked_model is not None:
        settings = {"count": count, "batch_size": batch_size, "max_length": max_length, "masks": masks}
        sources.append(MaskedModel.load(masked_model, device=device, **settings))
    if embeddings is not None:
        sources.append(load_embeddings(embeddings, count=count))
    if glove is not None:
        sources.append(load_glove(glove, count=count))
    if not sources:
        raise RecipeError("nowhere to take words from: name a masked-language model, word embeddings or GloVe vectors")
    return sources[0] if len(sources) == 1 else Chain(sources)
