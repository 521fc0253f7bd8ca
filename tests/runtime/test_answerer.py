"""Questions and contexts: the answer is a piece of the context, whatever its length; or there is none."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import ternarybert
from ternarybert.errors import InputError
from ternarybert.runtime import Answer
from ternarybert.runtime.answerer import Answerer
from ternarybert.tasks.squad import SQUAD

QUESTION = "was the film good"
CONTEXT = "The movie was great, and the plot: very fun! We hated it not."


@pytest.fixture(params=["native", "oracle"])
def model(folders, request):
    with ternarybert.load(folders("ForQuestionAnswering"), engine=request.param) as loaded:
        yield loaded


def test_an_answer_is_a_piece_of_the_context(model):
    answer = model.predict((QUESTION, CONTEXT))
    assert isinstance(model, Answerer)
    assert isinstance(answer, Answer)
    assert CONTEXT[answer.start : answer.end] == answer.text
    assert 0 < answer.score <= 1
    assert model.predict([(QUESTION, CONTEXT)] * 3) == [answer] * 3
    assert answer.as_dict() == {
        "answer": answer.text,
        "score": answer.score,
        "start": answer.start,
        "end": answer.end,
    }


def test_the_answer_of_the_students_logits(folders, model):
    """The span with the highest sum of torch's logits, found by looking at all of them."""
    folder = folders("ForQuestionAnswering")
    encoded = AutoTokenizer.from_pretrained(folder)(QUESTION, CONTEXT, return_tensors="pt", return_offsets_mapping=True)
    places, parts = encoded.pop("offset_mapping")[0].tolist(), encoded.sequence_ids(0)
    with torch.no_grad():
        result = ternarybert.load_torch(folder).eval()(**encoded)
    start, end = result.start_logits[0].numpy(), result.end_logits[0].numpy()
    tokens = [i for i, part in enumerate(parts) if part == 1]
    best = max(((i, j) for i in tokens for j in tokens if i <= j < i + 30), key=lambda s: start[s[0]] + end[s[1]])
    assert model.predict((QUESTION, CONTEXT)).text == CONTEXT[places[best[0]][0] : places[best[1]][1]]
    logits = model.logits((QUESTION, CONTEXT))
    np.testing.assert_allclose(logits, np.stack([start, end], -1), rtol=0, atol=1e-5)


def test_long_contexts_are_read_to_their_end(model):
    """No notice: nothing is left out."""
    long = "The plot was dull. " * 60 + CONTEXT
    answer = model.predict((QUESTION, long))
    assert long[answer.start : answer.end] == answer.text


def test_no_answer(model):
    model.task = dataclasses.replace(model.task, null_threshold=-1e9)
    assert model.predict((QUESTION, CONTEXT)).text is None
    model.task = dataclasses.replace(model.task, null_threshold=1e9)
    assert model.predict((QUESTION, CONTEXT)).text is not None


@pytest.mark.parametrize("context", ["", "  \n ", "\x00\x01"])
def test_an_empty_context_has_no_answer(model, context):
    empty = Answer(None, 0.0, None, None)
    assert model.predict((QUESTION, context)) == empty
    answers = model.predict([(QUESTION, CONTEXT), (QUESTION, context), ("", CONTEXT)])
    assert answers[0].text is not None
    assert answers[1] == empty
    assert answers[2].text is not None


def test_nothing_asked(model):
    assert model.predict([]) == []


@pytest.mark.parametrize("wrong", ["a question alone", ["a", "b"], [("a", "b"), "c"]])
def test_a_question_needs_a_context(model, wrong):
    with pytest.raises(InputError, match="needs a context"):
        model.predict(wrong)


def test_what_it_was_trained_on_decides_whether_there_may_be_none(folders):
    said = {"null_threshold": -1.5, "stride": 64}
    with ternarybert.load(folders("ForQuestionAnswering", question_answering=said)) as model:
        assert model.task == replace(SQUAD["squad_v2"], **said)
    with ternarybert.load(folders("ForQuestionAnswering")) as model:
        assert model.task == SQUAD["squad"]
