"""Lets `mteb` evaluate packed models:

    import mteb
    from ternarybert.mteb_model import MtebModel

    mteb.evaluate(MtebModel("small"), mteb.get_tasks(["NanoSciFactRetrieval"]))

The class has the methods of mteb's EncoderProtocol (version 2). mteb, and with it torch, is only imported to describe
the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import MissingExtraError, UnsupportedModelError
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.load import load
from ternarybert.runtime.vectors import similarities


class MtebModel:
    """A packed embedder as mteb wants it."""

    def __init__(self, model: str | Path | Embedder, revision: str | None = None, **options: Any) -> None:
        """`model` is a folder, the name of an installed model, or a loaded one; `options` are those of `load`."""
        options.pop("device", None)  # the command line of mteb passes one
        loaded = model if isinstance(model, Embedder) else load(model, **options)
        if not isinstance(loaded, Embedder):
            raise UnsupportedModelError(f"'{model}' is a {type(loaded).__name__}, not an embedder (no modules.json)")
        self.model, self.revision = loaded, revision

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **_: Any) -> NDArray[np.float32]:
        """Vectors of batches of texts; `prompt_type` is query, document or none."""
        texts = [text for batch in inputs for text in batch["text"]]
        kind = getattr(prompt_type, "value", prompt_type)
        encode = {"query": self.model.encode_query, "document": self.model.encode_document}.get(kind, self.model.encode)
        return np.asarray(encode(texts))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> NDArray[np.float32]:
        """Every vector of the first with every one of the second."""
        return self.model.similarity(np.asarray(embeddings1), np.asarray(embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> NDArray[np.float32]:
        """The first vector with the first, the second with the second, and so on."""
        name = self.model.modules.similarity
        pairs = zip(np.atleast_2d(embeddings1), np.atleast_2d(embeddings2), strict=True)
        return np.array([similarities(a, b, name)[0, 0] for a, b in pairs], np.float32)

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb writes beside the results."""
        try:
            from mteb.models.model_meta import ModelMeta
        except ImportError as error:
            raise MissingExtraError("this needs mteb: pip install mteb") from error
        folder = self.model.folder
        name = f"ternarybert/{folder.name if folder else 'model'}"
        return ModelMeta.create_empty(
            {
                "name": name,
                "revision": self.revision or "no_revision_available",
                "embed_dim": self.model.width,
                "max_tokens": float(self.model.max_length),
                "framework": ["NumPy"],
                "similarity_fn_name": self.model.modules.similarity,
            }
        )
