"""EM and F1 as the official scripts of SQuAD compute them, v1.1 and v2.0.

Both compare texts in lower case, without punctuation, the articles a, an, the, and doubled blanks, and count the best
of the gold answers. EM requires the same text; F1 is that of the words, in any order. They differ in corners, and both
are kept as they are: where nothing is left of both texts ("The" and "the!"), v1.1 says EM 1 and F1 0, v2.0 says 1 and
1; v2.0 ignores gold answers of which nothing is left.

Unlike the scripts, a question without a prediction is an error here: v1.1 counts it as wrong, v2.0 leaves it out.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ternarybert.data.squad.questions import GoldAnswer, Question
from ternarybert.errors import DataError

Floats: TypeAlias = NDArray[np.float64]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalize(text: str) -> str:
    """Give what counts of an answer."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score_squad(questions: Sequence[Question], texts: Sequence[str]) -> dict[str, float]:
    """Score one text for each question by the rules of v1.1: `exact` and `f1` in percent, and `total`."""
    golds = [_golds(question) for question in questions]
    for question, gold in zip(questions, golds, strict=True):
        if not gold:
            raise DataError(f"question '{question.id}' has no answer; that is SQuAD 2.0 (squad_v2)")
    exact, f1 = _scores(texts, [[normalize(a.text) for a in gold] for gold in golds], nothing_is_equal=False)
    return _summary(exact, f1)


def score_squad_v2(
    questions: Sequence[Question],
    texts: Sequence[str],
    null_differences: Sequence[float] | None = None,
    *,
    threshold: float = 0.0,
) -> dict[str, float]:
    """Score by the rules of v2.0, also `HasAns_` and `NoAns_` for questions with and without an answer.

    An empty text means that there is no answer. With null differences, `texts` are the answers if there had to be
    one, those with a difference above the threshold are emptied here, and the result also says which threshold would
    have been best: `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh`.
    """
    golds = [[gold for a in _golds(question) if (gold := normalize(a.text))] for question in questions]
    exact, f1 = _scores(texts, [gold or [""] for gold in golds], nothing_is_equal=True)
    answerable = np.array([bool(question.answers) for question in questions])
    best: dict[str, float] = {}
    if null_differences is not None:
        differences = _differences(questions, null_differences)
        answered = np.array([bool(text) for text in texts])
        for name, scores in (("exact", exact), ("f1", f1)):
            value, at = _best_threshold(scores, differences, answerable, answered)
            best |= {f"best_{name}": value, f"best_{name}_thresh": at}
        emptied = differences > threshold
        exact, f1 = (np.where(emptied, ~answerable, scores) for scores in (exact, f1))
    return _summary(exact, f1) | _summaries_by(answerable, exact, f1) | best


def _golds(question: Question) -> tuple[GoldAnswer, ...]:
    if question.answers is None:
        raise DataError(f"question '{question.id}' is not labeled; there is nothing to score against")
    return question.answers


def _differences(questions: Sequence[Question], null_differences: Sequence[float]) -> Floats:
    differences = np.asarray(null_differences, np.float64)
    if differences.shape != (len(questions),):
        raise DataError(f"null differences of shape {differences.shape} for {len(questions)} questions")
    if np.isnan(differences).any():
        bad = questions[int(np.flatnonzero(np.isnan(differences))[0])].id
        raise DataError(f"the null difference of question '{bad}' is not a number; the model is broken")
    return differences


def _scores(texts: Sequence[str], golds: Sequence[Iterable[str]], nothing_is_equal: bool) -> tuple[Floats, Floats]:
    """EM and F1 of each text against normalized golds."""
    if len(texts) != len(golds) or not texts:
        raise DataError(f"{len(texts)} predictions for {len(golds)} questions; one for each")
    exact, f1 = np.zeros(len(texts)), np.zeros(len(texts))
    for i, (text, accepted) in enumerate(zip(texts, golds, strict=True)):
        predicted = normalize(text)
        exact[i] = predicted in accepted
        f1[i] = max(_f1(predicted.split(), gold.split(), nothing_is_equal) for gold in accepted)
    return exact, f1


def _f1(predicted: list[str], gold: list[str], nothing_is_equal: bool) -> float:
    if nothing_is_equal and not (predicted and gold):
        return float(predicted == gold)
    common = sum((Counter(predicted) & Counter(gold)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def _summary(exact: Floats, f1: Floats, prefix: str = "") -> dict[str, float]:
    return {
        f"{prefix}exact": 100 * float(np.mean(exact)),
        f"{prefix}f1": 100 * float(np.mean(f1)),
        f"{prefix}total": len(exact),
    }


def _summaries_by(answerable: NDArray[np.bool_], exact: Floats, f1: Floats) -> dict[str, float]:
    summary: dict[str, float] = {}
    for prefix, part in (("HasAns_", answerable), ("NoAns_", ~answerable)):
        if part.any():
            summary |= _summary(exact[part], f1[part], prefix)
    return summary


def _best_threshold(
    scores: Floats, differences: Floats, answerable: NDArray[np.bool_], answered: NDArray[np.bool_]
) -> tuple[float, float]:
    """Raise the threshold from below all differences, question by question, and keep the best score.

    Below all, only questions without an answer are right. Each question passed then brings its score if it has an
    answer, and costs a point if it has none but was answered, be it with "the". Thresholds between equal differences,
    which the official script may choose, are left out: nobody could apply them. And where answering nothing is best,
    we return such a threshold; the script returns 0.

    The script's threshold is the last difference that is let pass. Ours has the same score and lies in the middle
    between that and the next, where the last digits of another engine's logits do not tip a question over.
    """
    order = np.argsort(differences, kind="stable")
    raised = differences[order]
    gains = np.where(answerable, scores, -1.0 * answered)[order]
    totals = np.cumsum(np.concatenate([[np.sum(~answerable)], gains]))
    totals[1:-1][raised[:-1] == raised[1:]] = -np.inf
    best = int(np.argmax(totals))
    return 100 * float(totals[best]) / len(scores), _between(raised, best)


def _between(raised: Floats, count: int) -> float:
    """A threshold that lets the first `count` differences pass and no other."""
    below = raised[count - 1] if count else -np.inf
    above = raised[count] if count < len(raised) else np.inf
    if np.isfinite(below) and np.isfinite(above):
        middle = below + (above - below) / 2
        return float(middle if middle < above else below)  # neighbors have no middle
    if np.isfinite(below):
        return float(below + 1)
    return float(above - 1) if np.isfinite(above) else 0.0
