"""In spaCy: a pipe that is found by its name and adds entities, categories or vectors; pipelines saved and loaded."""

import numpy as np
import pytest

import ternarybert
from ternarybert.errors import UnsupportedModelError
from tests.runtime.folders import save_student

TEXTS = ["a good film", "it was awful and dull", "great fun, we liked it", ""]

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def pipeline(model):
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("ternarybert", config={"model": model})
    return nlp


def test_a_classifier_sets_categories(classifier):
    docs = list(pipeline(classifier).pipe(TEXTS[:3]))
    assert [doc.cats for doc in docs] == [answer.scores for answer in ternarybert.load(classifier).predict(TEXTS[:3])]


def test_a_tagger_sets_entities(tagger):
    nlp, model = pipeline(tagger), ternarybert.load(tagger)
    text = "the film was good and we liked it"
    found = [(one.start_char, one.end_char, one.label_) for one in nlp(text).ents]
    expected = [(one.start, one.end, one.label) for one in model.predict(text).entities]
    assert found == expected
    assert expected  # otherwise nothing was tested


def test_an_embedder_sets_vectors_and_similarity(embedder):
    nlp, model = pipeline(embedder), ternarybert.load(embedder)
    first, second = nlp.pipe(TEXTS[:2])
    vectors = model.encode(TEXTS[:2])
    assert np.array_equal(first.vector, vectors[0]) and first.has_vector
    assert first.vector_norm == pytest.approx(np.linalg.norm(vectors[0]))
    assert first.similarity(second) == pytest.approx(float(model.similarity(vectors[:1], vectors[1:])[0, 0]), abs=1e-5)


def test_a_pipeline_is_saved_and_loaded(classifier, tmp_path):
    import spacy

    nlp = pipeline(classifier)
    nlp.to_disk(tmp_path / "pipeline")
    assert spacy.load(tmp_path / "pipeline")(TEXTS[0]).cats == nlp(TEXTS[0]).cats
    copy = spacy.blank("en").from_config(nlp.config)
    assert copy(TEXTS[0]).cats == nlp(TEXTS[0]).cats


def test_a_text_without_words_passes(classifier, tagger, embedder):
    for model in (classifier, tagger, embedder):
        assert len(pipeline(model)("")) == 0


def test_what_spacy_has_no_place_for_is_refused(tmp_path):
    answerer = save_student(tmp_path / "answerer", "ForQuestionAnswering")
    with pytest.raises(UnsupportedModelError, match="spaCy"):
        pipeline(str(answerer))
