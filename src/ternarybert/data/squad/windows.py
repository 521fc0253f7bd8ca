"""Cuts a question and its context into windows that fit a model: [CLS] question [SEP] piece of the context [SEP].

As in BERT, the windows of one context begin every `stride` tokens and overlap by the rest. (`stride` of the
`tokenizers` and `transformers` libraries is something else: the overlap.) A token is seen in several windows then, and
belongs to the one that shows most of its surroundings: where the nearer edge is farthest away, the earlier of two.
Answers that begin there are believed, others ignored.

A window keeps no ids of its own but points into its context's tokens, which exist once: a thousand questions about one
long text cost hardly more than the text. Nothing here knows BERT's ids: the special tokens are read off the tokenizer's
own post-processor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer

from ternarybert.data.pair_frame import Ints, PairFrame, pair_frame, plain_copy
from ternarybert.data.squad.questions import Question
from ternarybert.errors import DataError

FIRST_TOKEN = 0  # where a window points that does not hold the answer
UNKNOWN = -1  # the label of a window that has none: nothing to learn from
_BATCH = 512  # texts tokenized at a time; the tokenizer's own records are large


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A text's tokens and the characters they cover, `text[starts[i] : ends[i]]`."""

    ids: Ints
    starts: Ints
    ends: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One input of the model. `first`, `count` and `owned` are in tokens of the whole context."""

    row: int  # which question of the list
    question: Question
    question_ids: Ints
    tokens: Tokens  # of the whole context
    frame: PairFrame
    first: int
    count: int
    owned: tuple[int, int]  # from, up to: the tokens that belong to this window
    start: int  # the label, in tokens of the window
    end: int

    def __len__(self) -> int:
        return len(self.frame) + len(self.question_ids) + self.count

    @property
    def context_at(self) -> int:
        """Where in the window the context begins."""
        return len(self.frame.before) + len(self.question_ids) + len(self.frame.between)

    @property
    def input_ids(self) -> Ints:
        """The ids that go into the model, not padded."""
        return np.concatenate(self._parts())

    @property
    def token_type_ids(self) -> Ints:
        """Which of the two texts each token is of, in the tokenizer's numbering."""
        return np.repeat(np.array(self.frame.types, np.int32), [len(part) for part in self._parts()])

    def example(self) -> dict[str, Ints | int]:
        """All of the window by the names of `transformers`, for running transformers models."""
        return {
            "input_ids": self.input_ids,
            "token_type_ids": self.token_type_ids,
            "attention_mask": np.ones(len(self), np.int32),
            "start_positions": self.start,
            "end_positions": self.end,
        }

    def _parts(self) -> list[Ints]:
        context = self.tokens.ids[self.first : self.first + self.count]
        return [self.frame.before, self.question_ids, self.frame.between, context, self.frame.after]


class Windower:
    """A tokenizer with the sizes of the windows; made once, used for training, evaluation and answering."""

    def __init__(
        self,
        tokenizer: Tokenizer | str | Path,
        *,
        max_length: int = 384,
        stride: int = 128,
        max_question: int = 64,
        parallel: bool = True,
    ) -> None:
        if min(max_length, stride) < 1 or max_question < 0:
            raise DataError(f"windows of {max_length} tokens, {stride} apart, questions of {max_question}: impossible")
        self.max_length, self.stride, self.max_question = max_length, stride, max_question
        self.parallel = parallel  # lets the tokenizer start threads; a forked process has none of them
        self._process = os.getpid()
        self._tokenizer = plain_copy(tokenizer)
        self._frame = _frame(self._tokenizer)

    def windows(self, questions: Sequence[Question]) -> list[Window]:
        """Cut every question's context; windows of a question stand together, in the order of the text.

        A window is labeled with the question's first answer if it holds all of it, and otherwise points at the
        first token, like every window of a question that has no answer.
        """
        contexts = dict(self._tokens(question.context for question in questions))
        tokens = dict(self._tokens(question.question for question in questions))
        longest = min(self.max_question, (self.max_length - len(self._frame)) // 2)  # the context needs room too
        windows: list[Window] = []
        for row, question in enumerate(questions):
            question_ids = tokens[question.question].ids[:longest]
            windows += self._cut(row, question, question_ids, contexts[question.context])
        return windows

    def _tokens(self, texts: Iterable[str]) -> Iterator[tuple[str, Tokens]]:
        distinct = list(dict.fromkeys(texts))
        for at in range(0, len(distinct), _BATCH):
            batch = distinct[at : at + _BATCH]
            for text, encoding in zip(batch, self._encode(batch), strict=True):
                offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
                yield text, Tokens(np.array(encoding.ids, np.int32), offsets[:, 0].copy(), offsets[:, 1].copy())

    def _encode(self, texts: list[str]) -> list[Encoding]:
        if self.parallel and len(texts) > 1 and self._process == os.getpid():
            return list(self._tokenizer.encode_batch(texts, add_special_tokens=False))
        return [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def _cut(self, row: int, question: Question, question_ids: Ints, tokens: Tokens) -> Iterator[Window]:
        total, room = len(tokens.ids), self.max_length - len(self._frame) - len(question_ids)
        if not total:
            raise DataError(f"question '{question.id}': the tokenizer finds nothing in its context")
        if room < 1:
            raise DataError(f"windows of {self.max_length} tokens leave no room for a context; make them longer")
        answer = _answer_tokens(question, tokens)
        at = len(self._frame.before) + len(question_ids) + len(self._frame.between)
        stride = min(self.stride, max(1, room // 2))  # short windows overlap too, or answers would be cut in two
        firsts, borders = window_cuts(total, room, stride)
        for first, owned in zip(firsts, pairwise(borders), strict=True):
            count = min(room, total - first)
            label = _label(answer, first, count, at)
            yield Window(row, question, question_ids, tokens, self._frame, first, count, owned, *label)


def _frame(tokenizer: Tokenizer) -> PairFrame:
    frame = pair_frame(tokenizer)
    if not len(frame.before):
        raise DataError(
            "the tokenizer puts no special token before a pair of texts, such as [CLS]; questions without an answer "
            "point at it"
        )
    return frame


def window_cuts(total: int, room: int, stride: int) -> tuple[list[int], list[int]]:
    """Where the windows begin, and the borders between the tokens that belong to one and to the next.

    Between two windows that begin at f and g and hold `room` tokens, token t is g's when its distance t - g to g's
    left edge is larger than its distance f + room - 1 - t to f's right edge. (BERT adds 1 % of the window's length to
    these, which moves the border of a shorter last window by a token or two. We do not.)
    """
    step = min(stride, room)
    firsts = list(range(0, max(total - room, 0) + step, step))
    return firsts, [0, *((f + g + room - 1) // 2 + 1 for f, g in pairwise(firsts)), total]


def _answer_tokens(question: Question, tokens: Tokens) -> tuple[int, int] | None:
    """Give the first and last token that touch the first answer; None when there is no answer to point at."""
    if not question.answers:
        return None if question.answers is not None else (UNKNOWN, UNKNOWN)
    answer = question.answers[0]
    touched = np.flatnonzero((tokens.ends > answer.start) & (tokens.starts < answer.start + len(answer.text)))
    return (int(touched[0]), int(touched[-1])) if len(touched) else (UNKNOWN, UNKNOWN)


def _label(answer: tuple[int, int] | None, first: int, count: int, context_at: int) -> tuple[int, int]:
    if answer == (UNKNOWN, UNKNOWN):
        return UNKNOWN, UNKNOWN
    if answer is None or answer[0] < first or answer[1] >= first + count:
        return FIRST_TOKEN, FIRST_TOKEN
    return context_at + answer[0] - first, context_at + answer[1] - first
