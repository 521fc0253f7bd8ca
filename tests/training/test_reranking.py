"""Rerankers from end to end: a teacher, its student, both engines, and sentence-transformers' CrossEncoder."""

import json

import numpy as np
import pytest
from datasets import Dataset

import ternarybert
import ternarybert.hf
from ternarybert.data import RerankingTask, TaskData
from ternarybert.errors import UnsupportedModelError
from ternarybert.runtime.evaluate import evaluate as native_evaluate
from ternarybert.training.heads import RerankingHead
from ternarybert.training.models import load_trained, trained_kind
from ternarybert.training.options import TrainingOptions
from tests import tiny
from tests.training.test_question_answering import EAGER, STUDENT

QUICK = TrainingOptions(device="cpu", evaluations=2)
TASK = RerankingTask("made", max_length=32, batch_size=8, epochs=1)
WORDS = ("good", "bad", "fun", "dull")


def rows(queries: int, start: int = 0) -> Dataset:
    """Texts with the word "good" are relevant, whatever the query is."""
    columns: dict[str, list] = {"text": [], "text_pair": [], "label": []}
    for q in range(start, start + queries):
        for i, word in enumerate(WORDS):
            columns["text"].append(f"the film {'abcdefgh'[q % 8]} {'abcdefgh'[q // 8 % 8]}")
            columns["text_pair"].append(f"the plot was {word}" + " and it" * ((q + i) % 3))
            columns["label"].append(float(word == "good"))
    return Dataset.from_dict(columns)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rerankers")
    data = TaskData(TASK, rows(20), {"dev": rows(8, start=30)})
    start = tiny.save(folder / "start", hidden_dropout_prob=0.0, num_labels=1)
    teacher = ternarybert.finetune(start, data, folder / "teacher", EAGER, QUICK)
    bare = TaskData(TASK, data.train.remove_columns("label"), data.evals)
    student = ternarybert.ternarize(folder / "teacher", bare, folder / "student", STUDENT, QUICK)
    return folder, data, teacher, student


def test_a_teacher_and_its_student(made):
    folder, data, teacher, student = made
    assert teacher.metric == student.metric == "ndcg@10"
    assert teacher.best.scores["ndcg@10"] > 95
    assert student.best.scores["agreement"] > 80
    assert trained_kind(folder / "teacher") == trained_kind(folder / "student") == "reranking"
    native = native_evaluate(folder / "student", data)["sets"]["dev"]
    assert native["ndcg@10"] == ternarybert.evaluate(folder / "student", data)["sets"]["dev"]["ndcg@10"]


def test_a_cross_encoder_gives_the_scores_of_rank(made):
    from sentence_transformers import CrossEncoder

    folder, _, _, _ = made
    query, texts = "the film a b", [f"the plot was {word}" for word in WORDS]
    with ternarybert.load(folder / "student", num_threads=1) as model:
        ranked = model.rank(query, texts)
    theirs = CrossEncoder(str(folder / "student"), device="cpu").rank(query, texts)
    assert [one.index for one in ranked] == [one["corpus_id"] for one in theirs]
    np.testing.assert_allclose([one.score for one in ranked], [one["score"] for one in theirs], atol=1e-5)


def test_a_cross_encoder_as_the_teacher(made, tmp_path):
    """Its files and its activation function are kept."""
    from sentence_transformers import CrossEncoder
    from torch import nn

    folder, data, _, _ = made
    CrossEncoder(str(folder / "teacher"), activation_fn=nn.Identity(), device="cpu").save_pretrained(
        str(tmp_path / "t")
    )
    assert trained_kind(tmp_path / "t") == "reranking"
    options = TrainingOptions(device="cpu", evaluations=1, max_steps=2)
    ternarybert.ternarize(tmp_path / "t", data, tmp_path / "s", STUDENT, options)
    assert (
        json.loads((tmp_path / "s" / "config_sentence_transformers.json").read_bytes())["model_type"] == "CrossEncoder"
    )
    pair = [("the film", "the plot was good")]
    with ternarybert.load(tmp_path / "s", num_threads=1) as model:
        logit = float(model.logits(pair)[0, 0])
        assert model.rank(*[pair[0][0], [pair[0][1]]])[0].score == pytest.approx(logit)
    assert CrossEncoder(str(tmp_path / "s"), device="cpu").predict(pair)[0] == pytest.approx(logit, abs=1e-4)


def test_several_outputs(tmp_path):
    folder = tiny.save(tmp_path / "two", num_labels=2)
    with pytest.raises(UnsupportedModelError, match="has 2 outputs"):
        load_trained(folder, RerankingHead(TASK))
