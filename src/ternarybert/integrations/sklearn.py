"""scikit-learn: an embedder as a transformer and a classifier as an estimator that is fitted already.

    from ternarybert.integrations.sklearn import TernaryEmbedder
    make_pipeline(TernaryEmbedder("embedder"), LogisticRegression()).fit(texts, labels)

Both hold the path of the model and load it on first use, so they can be cloned, pickled and searched over as any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import InputError, LabelError, name_missing_extras
from ternarybert.integrations.models import load_as
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.model import Classifier, Model
from ternarybert.runtime.results import softmax

with name_missing_extras():
    from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin


class _TextEstimator(BaseEstimator):  # type: ignore[misc]
    """Takes a list, array or Series of texts, and needs no `fit`."""

    model: Any
    num_threads: int | None

    def _load(self, kind: type[Model]) -> Any:
        """The model, loaded again when its parameters change."""
        key = (str(self.model), self.num_threads)
        if getattr(self, "_loaded_key", None) != key:
            self._loaded = load_as(kind, self.model, num_threads=self.num_threads)
            self._loaded_key = key
        return self._loaded

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if not name.startswith("_loaded")}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit, tags.input_tags.string, tags.input_tags.two_d_array = False, True, False
        return tags


class TernaryEmbedder(TransformerMixin, _TextEstimator):  # type: ignore[misc]
    """Vectors of texts, one row per text."""

    def __init__(
        self,
        model: str,
        *,
        prompt_name: str | None = None,
        normalize: bool = False,
        truncate_dim: int | None = None,
        num_threads: int | None = None,
    ) -> None:
        self.model, self.prompt_name, self.normalize = model, prompt_name, normalize
        self.truncate_dim, self.num_threads = truncate_dim, num_threads

    def fit(self, X: Any, y: Any = None) -> TernaryEmbedder:
        """Nothing is learned; a model that is not an embedder is refused."""
        self._load(Embedder)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The vectors of texts."""
        options = {"prompt_name": self.prompt_name, "normalize": self.normalize, "truncate_dim": self.truncate_dim}
        return np.asarray(self._load(Embedder).encode(_as_list(X), **options))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """A name for every dimension."""
        width = self.truncate_dim or self._load(Embedder).width
        return np.array([f"ternaryembedder{i}" for i in range(width)], dtype=object)


class TernaryClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """The labels of texts. The model is trained already: `fit` only checks that it knows the labels."""

    def __init__(self, model: str, *, num_threads: int | None = None) -> None:
        self.model, self.num_threads = model, num_threads

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted; numbers if `fit` saw numbers."""
        return np.array(sorted(map(getattr(self, "label_type_", str), self._load(Classifier).labels)))

    def fit(self, X: Any, y: Any) -> TernaryClassifier:
        """Take the type of the labels from `y`."""
        known, seen = set(self._load(Classifier).labels), np.unique(np.asarray(y))
        unknown = [str(label) for label in seen.tolist() if str(label) not in known]
        if unknown:
            raise LabelError(f"the model does not know the label '{unknown[0]}'; it has {', '.join(sorted(known))}")
        self.label_type_ = type(seen.tolist()[0])
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each text."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities, with a column for each of `classes_`."""
        model = self._load(Classifier)
        if model.problem != "single_label_classification":
            raise InputError(f"this needs a model with one label per text, not one of {model.problem}")
        names = [str(label) for label in self.classes_.tolist()]
        return softmax(model.logits(_as_list(X)))[:, [model.labels.index(name) for name in names]]


def _as_list(texts: Any) -> list[Any]:
    """A list, array, Series or table with one column, as a list of texts."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, got one text; put it into a list")
    array = np.asarray(texts, dtype=object)
    return [tuple(row) if isinstance(row, np.ndarray) else row for row in (array[:, 0] if _is_column(array) else array)]


def _is_column(array: NDArray[Any]) -> bool:
    return array.ndim == 2 and array.shape[1] == 1
