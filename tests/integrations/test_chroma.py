"""In Chroma: the embedding function of a collection, which a later client finds again."""

import pytest

import ternarybert
from ternarybert.errors import UnsupportedModelError

TEXTS = ["a good film", "it was awful and dull", "great fun", "the plot was bad"]

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def test_a_collection_embeds_documents_and_queries(embedder, tmp_path):
    import chromadb

    from ternarybert.integrations.chroma import TernaryEmbeddingFunction

    client = chromadb.PersistentClient(path=str(tmp_path), settings=chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("notes", embedding_function=TernaryEmbeddingFunction(embedder))
    collection.add(ids=[str(i) for i in range(4)], documents=TEXTS)
    model = ternarybert.load(embedder)
    stored = collection.get(include=["embeddings"])["embeddings"]
    assert stored == pytest.approx(model.encode_document(TEXTS), abs=1e-6)
    scores = model.similarity(model.encode_query(["good"]), model.encode_document(TEXTS))[0]
    expected = [TEXTS[i] for i in (-scores).argsort(kind="stable")]
    found = collection.query(query_texts=["good"], n_results=4)
    assert found["documents"] == [expected]
    # The collection measures the cosine, as the model does.
    assert found["distances"][0] == pytest.approx(sorted((1 - scores).tolist()), abs=1e-5)

    # Opened again without naming the function: the collection knows it.
    again = client.get_collection("notes")
    assert again.query(query_texts=["good"], n_results=4)["documents"] == [expected]


def test_a_classifier_is_refused(classifier):
    from ternarybert.integrations.chroma import TernaryEmbeddingFunction

    with pytest.raises(UnsupportedModelError, match="Embedder"):
        TernaryEmbeddingFunction(classifier)
