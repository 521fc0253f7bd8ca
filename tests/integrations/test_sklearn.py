"""In scikit-learn: pipelines, searches, cross-validation, copies; no `fit` is needed."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import Normalizer

import ternarybert
from ternarybert.errors import InputError, LabelError, UnsupportedModelError
from ternarybert.integrations.sklearn import TernaryClassifier, TernaryEmbedder

TEXTS = ["a good film", "it was awful", "great fun", "dull plot", "we liked it", "i hated it"] * 2
LABELS = [1, 0, 1, 0, 1, 0] * 2


def test_a_pipeline_learns_on_the_vectors(embedder):
    pipeline = make_pipeline(TernaryEmbedder(embedder), LogisticRegression()).fit(TEXTS, LABELS)
    assert pipeline.score(TEXTS, LABELS) == 1.0
    vectors = ternarybert.load(embedder).encode(TEXTS)
    assert np.array_equal(pipeline[0].transform(TEXTS), vectors)
    assert np.array_equal(pipeline.predict(TEXTS), LogisticRegression().fit(vectors, LABELS).predict(vectors))
    names = pipeline[:-1].get_feature_names_out()
    assert names.shape == (vectors.shape[1],) and names[0] == "ternaryembedder0"


def test_searches_and_cross_validation(embedder):
    pipeline = make_pipeline(TernaryEmbedder(embedder), Normalizer(), LogisticRegression())
    search = GridSearchCV(pipeline, {"ternaryembedder__truncate_dim": [8, None]}, cv=2).fit(TEXTS, LABELS)
    assert set(search.best_params_) == {"ternaryembedder__truncate_dim"}
    assert cross_val_score(pipeline, TEXTS, LABELS, cv=2).shape == (2,)


def test_columns_of_tables_and_unions(embedder):
    import pandas

    frame = pandas.DataFrame({"text": TEXTS, "length": [len(text) for text in TEXTS]})
    columns = ColumnTransformer([("text", TernaryEmbedder(embedder), "text"), ("as is", "passthrough", ["length"])])
    made = columns.fit_transform(frame)
    assert made.shape == (12, 33) and made[0, -1] == len(TEXTS[0])
    halves = FeatureUnion([("all", TernaryEmbedder(embedder)), ("few", TernaryEmbedder(embedder, truncate_dim=4))])
    assert halves.fit_transform(TEXTS).shape == (12, 36)


def test_the_classifier_is_fitted_already(classifier):
    estimator = TernaryClassifier(classifier)
    model = ternarybert.load(classifier)
    assert estimator.classes_.tolist() == ["bad", "fair", "good"]
    assert estimator.predict(TEXTS).tolist() == [answer.label for answer in model.predict(TEXTS)]
    scores = [[answer.scores[name] for name in estimator.classes_] for answer in model.predict(TEXTS)]
    assert np.allclose(estimator.predict_proba(np.array(TEXTS)), scores)
    assert estimator.score(TEXTS, estimator.predict(TEXTS)) == 1.0
    assert accuracy_score(estimator.predict(TEXTS), estimator.fit(TEXTS, ["bad"] * 12).predict(TEXTS)) == 1.0
    with pytest.raises(LabelError, match="'ugly'"):
        estimator.fit(TEXTS, ["ugly"] * 12)


@pytest.mark.parametrize("kind", [TernaryEmbedder, TernaryClassifier])
def test_copies_hold_the_path_alone(kind, embedder, classifier):
    estimator = kind(embedder if kind is TernaryEmbedder else classifier, num_threads=1)
    run = "transform" if kind is TernaryEmbedder else "predict"
    before = getattr(estimator, run)(TEXTS)
    copy, other = clone(estimator), pickle.loads(pickle.dumps(estimator))
    assert len(pickle.dumps(estimator)) < 2000
    assert np.array_equal(getattr(copy, run)(TEXTS), before) and np.array_equal(getattr(other, run)(TEXTS), before)
    assert copy.set_params(num_threads=2).get_params()["num_threads"] == 2


def test_wrong_models_and_inputs_are_named(embedder, classifier):
    with pytest.raises(UnsupportedModelError, match="needs a"):
        TernaryEmbedder(classifier).fit(TEXTS)
    with pytest.raises(InputError, match="one text"):
        TernaryEmbedder(embedder).transform("a good film")
