"""The scores of the paper's tables, in NumPy alone, so that a packed model is scored without torch or scikit-learn.

Every function takes predictions first, references second, both one-dimensional and equally long. Where a score is
undefined because one side never varies, it is 0.0: a model that always gives the same answer has learned nothing.
scikit-learn does the same for Matthews and F1; scipy's correlations would be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ternarybert.errors import DataError, suggest

Floats: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = NDArray[np.int64]

# What a user's own table is scored by; the first name is the one models are selected by.
CLASSIFICATION = ("accuracy", "macro_f1", "matthews")
REGRESSION = ("spearman", "pearson", "mse")
# Without labels there is only the teacher to compare with.
UNLABELLED = ("agreement",)
MAX_CONFUSION_CLASSES = 12  # of a readable confusion matrix; with more, list the most frequent mistakes


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:
    """Share of predictions that are right."""
    predicted, wanted = _both(predictions, references)
    return float(np.mean(predicted == wanted))


def agreement(predictions: ArrayLike, teacher_predictions: ArrayLike) -> float:
    """Share of inputs that student and teacher put into the same class."""
    return accuracy(predictions, teacher_predictions)


def f1(predictions: ArrayLike, references: ArrayLike, positive: int = 1) -> float:
    """Harmonic mean of precision and recall of the class `positive`."""
    predicted, wanted = _both(predictions, references)
    hits = int(np.sum((predicted == positive) & (wanted == positive)))
    claimed_or_wanted = int(np.sum(predicted == positive)) + int(np.sum(wanted == positive))
    return 2 * hits / claimed_or_wanted if claimed_or_wanted else 0.0


def macro_f1(predictions: ArrayLike, references: ArrayLike) -> float:
    """Plain mean of the F1 of every class that occurs on either side: rare classes count as much as common ones."""
    predicted, wanted = _both(predictions, references)
    return float(np.mean([f1(predicted, wanted, int(c)) for c in np.union1d(predicted, wanted)]))


def matthews(predictions: ArrayLike, references: ArrayLike) -> float:
    """Matthews correlation for any number of classes (Gorodkin's R_K)."""
    predicted, wanted = _both(predictions, references)
    names, ids = np.unique(np.concatenate([predicted, wanted]), return_inverse=True)
    counts = confusion_matrix(ids[: len(predicted)], ids[len(predicted) :], len(names)).astype(np.float64)
    n, right = counts.sum(), np.trace(counts)
    per_wanted, per_predicted = counts.sum(axis=1), counts.sum(axis=0)
    spread = (n**2 - per_predicted @ per_predicted) * (n**2 - per_wanted @ per_wanted)
    return float((right * n - per_wanted @ per_predicted) / np.sqrt(spread)) if spread > 0 else 0.0


def pearson(predictions: ArrayLike, references: ArrayLike) -> float:
    """Linear correlation."""
    x, y = (_standardized(side) for side in _both(predictions, references))
    if x is None or y is None:
        return 0.0
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(predictions: ArrayLike, references: ArrayLike) -> float:
    """Correlation of the ranks; equal values share the mean of their ranks."""
    x, y = _both(predictions, references)
    return pearson(_ranks(x), _ranks(y))


def mse(predictions: ArrayLike, references: ArrayLike) -> float:
    """Mean squared error, in the labels' own unit."""
    x, y = _both(predictions, references)
    return float(np.mean((x.astype(np.float64) - y.astype(np.float64)) ** 2))


def confusion_matrix(predictions: ArrayLike, references: ArrayLike, classes: int) -> Ids:
    """Count pairs, shape (classes, classes): a row per reference class, a column per predicted class."""
    predicted, wanted = (side.astype(np.int64) for side in _both(predictions, references))
    if min(predicted.min(), wanted.min()) < 0 or max(predicted.max(), wanted.max()) >= classes:
        raise DataError(f"a class id lies outside 0..{classes - 1}")
    return np.bincount(wanted * classes + predicted, minlength=classes**2).reshape(classes, classes)


Metric: TypeAlias = Callable[[ArrayLike, ArrayLike], float]
_METRICS: dict[str, Metric] = {
    function.__name__: function for function in (accuracy, agreement, f1, macro_f1, matthews, pearson, spearman, mse)
}


def score(
    metric_names: Iterable[str], predictions: ArrayLike, references: ArrayLike, *, positive: int = 1
) -> dict[str, float]:
    """Compute the named metrics, in percent as in the paper's tables but for the mean squared error.

    `positive` is the class that `f1` is about; a teacher with another order of labels may not have it at 1.
    """
    metrics: dict[str, Metric] = {**_METRICS, "f1": partial(f1, positive=positive)}
    scores: dict[str, float] = {}
    for name in metric_names:
        if name not in metrics:
            raise DataError(f"unknown metric '{name}'{suggest(name, metrics)}")
        scores[name] = metrics[name](predictions, references) * (1 if name == "mse" else 100)
    return scores


def predict_from_logits(logits: ArrayLike, regression: bool) -> Ids | Floats:
    """The class of the largest logit, or for regression the one output itself."""
    array = np.asarray(logits)
    if array.ndim != 2 or (regression and array.shape[1] != 1):
        wanted = "(examples, 1)" if regression else "(examples, classes)"
        raise DataError(f"logits have shape {array.shape}; expected {wanted}")
    if not np.isfinite(array).all():
        # argmax would return the class of the first NaN
        bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise DataError(f"the logits of example {bad} are not finite; the model is broken")
    return array[:, 0].astype(np.float64) if regression else array.argmax(axis=1).astype(np.int64)


def _both(predictions: ArrayLike, references: ArrayLike) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    predicted, wanted = np.asarray(predictions), np.asarray(references)
    if predicted.shape != wanted.shape or predicted.ndim != 1:
        raise DataError(f"predictions of shape {predicted.shape} cannot be scored against {wanted.shape}")
    if not predicted.size:
        raise DataError("there is nothing to score: no predictions")
    return predicted, wanted


def _standardized(values: NDArray[np.generic]) -> Floats | None:
    """Centered, of length 1; None when all values are equal."""
    x = values.astype(np.float64)
    # Checked before centring: the mean of equal numbers is not always exactly that number.
    if x.max() == x.min():
        return None
    x = x / np.abs(x).max()  # the squares of very large or very small numbers would leave the range of a double
    x = x - x.mean()
    length = np.linalg.norm(x)
    return x / length if length > 0 else None


def _ranks(values: NDArray[np.generic]) -> Floats:
    """Ranks from 0; each run of equal values gets the mean of the ranks it covers."""
    _, run, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    mean_rank: Floats = last - (counts - 1) / 2
    return mean_rank[run]


def mean_scores(sets: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean over the evaluation sets of the scores that all of them have; models are selected by it."""
    first, *others = sets.values()
    names = [name for name in first if all(name in other for other in others)]
    return {name: float(np.mean([each[name] for each in sets.values()])) for name in names}


def mistakes(counts: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """(rows, true class, predicted class) of every kind of mistake in a confusion table, the most frequent first."""
    pairs = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if i != j and n]
    return sorted(pairs, key=lambda pair: -pair[0])
