"""In Haystack: an indexing pipeline, a query pipeline and a classifier of documents; pipelines saved and loaded."""

import pytest

import ternarybert
from ternarybert.errors import UnsupportedModelError

TEXTS = ["a good film", "it was awful and dull", "great fun", "the plot was bad"]

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def documents():
    from haystack import Document

    return [Document(content=text, meta={"number": i}) for i, text in enumerate(TEXTS)]


def test_indexing_and_querying(embedder):
    from haystack import Pipeline
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.components.writers import DocumentWriter
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    from ternarybert.integrations.haystack import TernaryDocumentEmbedder, TernaryTextEmbedder

    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    indexing = Pipeline()
    indexing.add_component("embedder", TernaryDocumentEmbedder(model=embedder))
    indexing.add_component("writer", DocumentWriter(document_store=store))
    indexing.connect("embedder.documents", "writer.documents")
    assert indexing.run({"embedder": {"documents": documents()}})["writer"]["documents_written"] == 4

    querying = Pipeline()
    querying.add_component("text_embedder", TernaryTextEmbedder(model=embedder))
    querying.add_component("retriever", InMemoryEmbeddingRetriever(document_store=store, scale_score=False))
    querying.connect("text_embedder.embedding", "retriever.query_embedding")
    found = querying.run({"text_embedder": {"text": "good"}})["retriever"]["documents"]

    model = ternarybert.load(embedder)
    scores = model.similarity(model.encode_query(["good"]), model.encode_document(TEXTS))[0]
    assert [document.content for document in found] == [TEXTS[i] for i in (-scores).argsort(kind="stable")]
    assert [document.score for document in found] == pytest.approx(sorted(scores.tolist(), reverse=True), abs=1e-5)


def test_documents_get_their_class(classifier):
    from ternarybert.integrations.haystack import TernaryDocumentClassifier

    given = documents()
    component = TernaryDocumentClassifier(model=classifier)
    component.warm_up()
    made = component.run(documents=given)["documents"]
    expected = [answer.as_dict() for answer in ternarybert.load(classifier).predict(TEXTS)]
    assert [document.meta["classification"] for document in made] == expected
    assert [document.meta["number"] for document in made] == [0, 1, 2, 3]
    assert "classification" not in given[0].meta  # what was given stays as it was


def test_pipelines_are_saved_and_loaded(embedder, classifier):
    from haystack import Pipeline
    from haystack.core import serialization

    from ternarybert.integrations.haystack import TernaryDocumentClassifier, TernaryDocumentEmbedder

    pipeline = Pipeline()
    pipeline.add_component("classifier", TernaryDocumentClassifier(model=classifier, num_threads=1))
    pipeline.add_component("embedder", TernaryDocumentEmbedder(model=embedder))
    pipeline.connect("classifier", "embedder")
    allow = getattr(serialization, "allow_deserialization_module", None)  # newer versions load only what is allowed
    if allow is not None:
        allow("ternarybert.integrations.*")
    again = Pipeline.loads(pipeline.dumps())
    first, second = (one.run({"classifier": {"documents": documents()}})["embedder"] for one in (pipeline, again))
    assert [document.to_dict() for document in first["documents"]] == [d.to_dict() for d in second["documents"]]


def test_a_wrong_model_is_refused(classifier):
    from ternarybert.integrations.haystack import TernaryTextEmbedder

    with pytest.raises(UnsupportedModelError, match="Embedder"):
        TernaryTextEmbedder(model=classifier).warm_up()
