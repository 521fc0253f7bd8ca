"""Queries and texts: reading, held-out queries, figures of rankings."""

import json

import numpy as np
import pytest
from sklearn import metrics as reference

from ternarybert.data import RerankingTask, load_rankings
from ternarybert.data.kinds import model_kind
from ternarybert.data.reranking import holds_rankings
from ternarybert.errors import DataError, LabelError, UnsupportedModelError


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def pairs(queries=20, candidates=5):
    return [
        {"query": f"query {q}", "passage": f"text {t}", "relevance": float(t == q % candidates)}
        for q in range(queries)
        for t in range(candidates)
    ]


def test_queries_are_held_out_as_a_whole(tmp_path):
    path = write(tmp_path / "a.jsonl", pairs())
    assert holds_rankings(path)
    data = load_rankings(path)
    assert data.task.text_columns == ("query", "passage")
    assert (len(data.train), len(data.evals["dev"])) == (90, 10)
    assert not set(data.train["text"]) & set(data.evals["dev"]["text"])
    assert data.task.describe(data) == "'query' and 'passage', 20 queries, with scores"


def test_figures_as_of_scikit_learn(tmp_path):
    data = load_rankings(None, write(tmp_path / "a.jsonl", pairs()))
    rows = data.evals["dev"]
    logits = np.random.default_rng(0).normal(size=(100, 1))
    scores = data.task.scores(rows, logits, logits)
    wanted = np.array(rows["label"]).reshape(20, 5)
    expected = reference.ndcg_score(wanted, logits.reshape(20, 5), k=10)
    assert scores["ndcg@10"] == pytest.approx(100 * expected)
    ranks = (logits.reshape(20, 5) >= logits.reshape(20, 5)[wanted > 0][:, None]).sum(1)
    assert scores["mrr@10"] == pytest.approx(100 * np.mean(1 / ranks))
    assert scores["agreement"] == pytest.approx(100)
    assert data.task.main_metric(scores) == "ndcg@10"


def test_equal_scores_earn_nothing(tmp_path):
    """Even if the relevant text is the first of every query in the file."""
    rows = sorted(pairs(), key=lambda row: (row["query"], -row["relevance"]))
    data = load_rankings(None, write(tmp_path / "a.jsonl", rows))
    scores = data.task.scores(data.evals["dev"], np.zeros((100, 1)))
    assert scores["mrr@10"] == pytest.approx(100 / 5)
    assert scores["ndcg@10"] == pytest.approx(100 / np.log2(6))


def test_pairs_without_scores(tmp_path):
    rows = [{"query": row["query"], "text": row["passage"]} for row in pairs()]
    path = write(tmp_path / "a.jsonl", rows)
    assert not load_rankings(path).task.has_references(load_rankings(path).train)
    with pytest.raises(DataError, match="no column with scores"):
        load_rankings(path, labeled=True)


@pytest.mark.parametrize("score", [2, "much", None])
def test_bad_scores(tmp_path, score):
    with pytest.raises(LabelError, match=r"line 2: the score .* is not a number from 0 to 1"):
        load_rankings(write(tmp_path / "a.jsonl", [pairs()[0], pairs()[1] | {"relevance": score}]))


def test_unknown_columns(tmp_path):
    with pytest.raises(DataError, match=r"which column .* is the query"):
        load_rankings(write(tmp_path / "a.jsonl", [{"a": "b", "text": "c"}]))


def test_a_model_with_several_outputs(tmp_path):
    data = load_rankings(write(tmp_path / "a.jsonl", pairs()))
    with pytest.raises(UnsupportedModelError, match="one output; this model has 2"):
        data.task.fit(data, {"id2label": {0: "a", 1: "b"}})


def test_kinds_of_models(tmp_path):
    classifier = {"architectures": ["BertForSequenceClassification"]}
    assert model_kind(classifier) == "classification"
    one = classifier | {"id2label": {"0": "LABEL_0"}}
    assert model_kind(one | {"sentence_transformers": {"activation_fn": "Sigmoid"}}) == RerankingTask.kind
    for several in (classifier, classifier | {"id2label": {0: "a", 1: "b", 2: "c"}}):  # sorts pairs into classes
        assert model_kind(several | {"sentence_transformers": {"activation_fn": "Identity"}}) == "classification"
    assert model_kind(classifier | {"problem_type": "multi_label_classification"}) == "multi-label"
    assert model_kind({"architectures": ["BertForTokenClassification"]}) == "token-classification"
    assert model_kind({"architectures": ["BertModel"]}) is None
    settings = {"model_type": "CrossEncoder", "activation_fn": "Identity"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")
    assert model_kind(one, tmp_path) == RerankingTask.kind
