"""From a model's start and end logits back to text.

A span's score is the start logit of its first token plus the end logit of its last. Of every window the `n_best` spans
are taken that begin at a token which belongs to the window, end in its part of the context and have at most
`max_answer` tokens; then the best of all windows of a question. All spans are compared, not, as in BERT's script, the
pairs of the 20 best starts and 20 best ends, which may leave none that is valid. Text is cut from the original context,
never put together from tokens.

"No answer" has a score as well: both logits of the first token, in the window where that is lowest, since one window
that shows an answer is enough. The question gets no answer when this exceeds the best span's score by more than a
threshold.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from ternarybert.data.squad.windows import FIRST_TOKEN, Window
from ternarybert.errors import DataError

Floats: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = NDArray[np.int64]
Logits: TypeAlias = Sequence[ArrayLike] | NDArray[np.floating]

_BLOCK = 64  # windows at a time, so that what is computed about them stays in the cache


class Span(NamedTuple):
    """A piece of the context that may be the answer."""

    text: str
    start: int  # characters of the context, up to but without `end`
    end: int
    logit: float
    score: float  # its share among the spans that were found: a softmax over their logits


@dataclass(frozen=True, slots=True)
class Prediction:
    """The model's answer to one question."""

    id: str
    spans: tuple[Span, ...]  # the best first, no text twice
    answer: Span | None  # None: the context does not answer the question
    score: float  # of the answer, or of there being none
    null_difference: float  # how much "no answer" scores above the best span

    @property
    def text(self) -> str:
        """The answer, or nothing, as the official metric takes it."""
        return self.answer.text if self.answer else ""

    @property
    def best_text(self) -> str:
        """The answer if there had to be one."""
        return self.spans[0].text if self.spans else ""


class _Spans(NamedTuple):
    """Spans as columns."""

    window: Ids
    logit: Floats
    place: Ids  # in the order of the text, the shorter first
    start: Ids  # characters
    end: Ids

    def pick(self, rows: Ids) -> _Spans:
        """Some of the spans, in the order asked."""
        window, logit, place, start, end = self
        return _Spans(window[rows], logit[rows], place[rows], start[rows], end[rows])


def answer_questions(
    windows: Sequence[Window],
    start_logits: Logits,
    end_logits: Logits,
    *,
    n_best: int = 20,
    max_answer: int = 30,
    null_threshold: float | None = None,
) -> list[Prediction]:
    """Answer the questions that the windows are of, in the order of their rows.

    Logits are one row per window, padded on the right or not. Without a threshold every question gets an answer
    (SQuAD 1.1); with one, a question gets none when its null difference is larger (SQuAD 2.0), and "no answer" has its
    share in the scores.
    """
    if min(n_best, max_answer) < 1:
        raise DataError(f"{n_best} answers of up to {max_answer} tokens are none; both must be at least 1")
    if not windows:
        return []
    max_answer = min(max_answer, max(window.count for window in windows))
    starts, ends = (_checked(windows, *side) for side in (("start", start_logits), ("end", end_logits)))
    rows = np.array([window.row for window in windows])
    null = np.full(rows.max() + 1, np.inf)
    np.minimum.at(null, rows, [s[FIRST_TOKEN] + e[FIRST_TOKEN] for s, e in zip(starts, ends, strict=True)])
    spans = _best_spans(windows, starts, ends, n_best, max_answer)
    spans = spans.pick(_leading(rows[spans.window], spans.logit, spans.place, n_best))
    borders = np.flatnonzero(np.diff(rows[spans.window], prepend=-1, append=-1)).tolist()
    window, logit, _, start, end = (column.tolist() for column in spans)
    predictions = []
    for low, high in pairwise(borders):  # the spans of one question
        of = windows[window[low]]
        cut = _cut(of.question.context, start[low:high], end[low:high], logit[low:high])
        predictions.append(_predict(of.question.id, cut, float(null[of.row]), null_threshold))
    return predictions


def _checked(windows: Sequence[Window], name: str, logits: Logits) -> list[Floats]:
    """Each window's logits without padding."""
    if len(logits) != len(windows):
        raise DataError(f"{len(logits)} rows of {name} logits for {len(windows)} windows")
    rows = []
    for window, row in zip(windows, logits, strict=True):
        values = np.asarray(row, np.float64)
        if values.ndim != 1 or len(values) < len(window):
            shape = values.shape
            raise DataError(f"{name} logits of shape {shape} for a window of {len(window)} tokens; one for each token")
        values = values[: len(window)]
        if not np.isfinite(values).all():
            raise DataError(f"the {name} logits of question '{window.question.id}' are not finite; the model is broken")
        rows.append(values)
    return rows


def _best_spans(
    windows: Sequence[Window], starts: list[Floats], ends: list[Floats], n_best: int, max_answer: int
) -> _Spans:
    """Find the best spans of each window, block by block, windows of like length together so that little is padded."""
    order = np.argsort([window.count for window in windows], kind="stable")
    blocks = np.split(order, range(_BLOCK, len(order), _BLOCK))
    found = [_block(block, windows, starts, ends, n_best, max_answer) for block in blocks]
    return _Spans(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def _block(
    block: Ids, windows: Sequence[Window], starts: list[Floats], ends: list[Floats], n_best: int, max_answer: int
) -> _Spans:
    width = max(windows[i].count for i in block)
    start = np.full((len(block), width), -np.inf)
    end = np.full((len(block), width + max_answer - 1), -np.inf)
    chars = np.zeros((2, len(block), width), np.int64)
    for row, i in enumerate(block):
        window = windows[i]
        low, high = (token - window.first for token in window.owned)
        start[row, low:high] = starts[i][window.context_at :][low:high]
        end[row, : window.count] = ends[i][window.context_at :][: window.count]
        chars[0, row, : window.count] = window.tokens.starts[window.first :][: window.count]
        chars[1, row, : window.count] = window.tokens.ends[window.first :][: window.count]
    at, first, length, logit = _best_pairs(start, end, n_best, max_answer)
    place = (np.array([windows[i].first for i in block])[at] + first) * max_answer + length
    spans = _Spans(block[at], logit, place, chars[0, at, first], chars[1, at, first + length])
    return spans.pick(_leading(at, logit, place, n_best))


def _best_pairs(start: Floats, end: Floats, n_best: int, max_answer: int) -> tuple[Ids, Ids, Ids, Floats]:
    """Row, first token, tokens after it and logit of every row's best spans; more than `n_best` where some are equal.

    `end` is longer than `start` by `max_answer` - 1; what must not be chosen is minus infinity.
    """
    reach = sliding_window_view(end, max_answer, axis=1)  # [b, s, k] ends the span of k + 1 tokens from s on
    # The n best spans begin at the n tokens whose own best span is best: only those are spread out.
    tops = np.argsort(-(start + reach.max(axis=2)), axis=1, kind="stable")[:, :n_best]  # (B, n)
    rows = np.arange(len(start))[:, None]
    logit = (start[rows, tops][:, :, None] + reach[rows, tops]).reshape(len(start), -1)  # (B, n * max_answer)
    kept = min(n_best, logit.shape[1])
    floor = np.partition(logit, -kept, axis=1)[:, -kept, None]
    row, column = np.nonzero((logit >= floor) & (logit > -np.inf))
    return row, tops[row, column // max_answer], column % max_answer, logit[row, column]


def _leading(group: Ids, logit: Floats, place: Ids, n: int) -> Ids:
    """Indices of the `n` largest of each group, largest first; of equal ones the first in the text."""
    order = np.lexsort((place, -logit, group))
    begins = np.searchsorted(group[order], group[order])
    return order[np.arange(len(order)) - begins < n]


def _cut(context: str, starts: list[int], ends: list[int], logits: list[float]) -> list[tuple[str, int, int, float]]:
    """Cut each text out of the context, without blanks around it: some tokenizers count the blank before a word.

    Others drop marks that stand on a letter, such as vowels of Thai and Arabic: an answer keeps those of its last one.
    """
    cut: dict[str, tuple[str, int, int, float]] = {}
    for start, end, logit in zip(starts, ends, logits, strict=True):
        while end < len(context) and unicodedata.category(context[end]) == "Mn":
            end += 1
        piece = context[start:end]
        text = piece.strip()
        if text and text not in cut:
            start += len(piece) - len(piece.lstrip())
            cut[text] = (text, start, start + len(text), logit)
    return list(cut.values())


def _predict(
    name: str, cut: list[tuple[str, int, int, float]], null: float, null_threshold: float | None
) -> Prediction:
    logits = [logit for *_, logit in cut]
    difference = null - (logits[0] if logits else -np.inf)
    scores = _softmax(logits if logits and null_threshold is None else [*logits, null])
    spans = tuple(Span(*piece, score) for piece, score in zip(cut, scores, strict=False))
    silent = null_threshold is not None and difference > null_threshold
    answer = spans[0] if spans and not silent else None
    return Prediction(name, spans, answer, answer.score if answer else scores[-1], difference)


def _softmax(logits: Sequence[float]) -> list[float]:
    powers = np.exp(np.array(logits) - max(logits))
    shares: list[float] = (powers / powers.sum()).tolist()
    return shares
