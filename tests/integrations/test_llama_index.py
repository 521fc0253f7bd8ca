"""In LlamaIndex: the embedding model of an index and of its retriever, also from what it stores."""

import asyncio

import pytest

import ternarybert
from ternarybert.errors import UnsupportedModelError

TEXTS = ["a good film", "it was awful and dull", "great fun", "the plot was bad"]

# The library itself warns about its dependencies.
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def embedding(embedder):
    from ternarybert.integrations.llama_index import TernaryIndexEmbedding

    return TernaryIndexEmbedding(embedder)


def test_vectors_of_texts_and_queries(embedding, embedder):
    model = ternarybert.load(embedder)
    assert embedding.get_text_embedding_batch(TEXTS) == model.encode_document(TEXTS).tolist()
    assert embedding.get_text_embedding(TEXTS[0]) == model.encode_document(TEXTS[0]).tolist()
    assert embedding.get_query_embedding("good") == model.encode_query("good").tolist()
    assert asyncio.run(embedding.aget_query_embedding("good")) == embedding.get_query_embedding("good")
    assert asyncio.run(embedding.aget_text_embedding_batch(TEXTS)) == embedding.get_text_embedding_batch(TEXTS)


def test_an_index_finds_what_the_model_finds(embedding, embedder, tmp_path):
    from llama_index.core import Document, Settings, StorageContext, VectorStoreIndex, load_index_from_storage

    model = ternarybert.load(embedder)
    scores = model.similarity(model.encode_query(["good"]), model.encode_document(TEXTS))[0]
    Settings.embed_model = embedding
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS])
    found = index.as_retriever(similarity_top_k=4).retrieve("good")
    assert [node.text for node in found] == [TEXTS[i] for i in (-scores).argsort(kind="stable")]
    assert [node.score for node in found] == pytest.approx(sorted(scores.tolist(), reverse=True), abs=1e-5)
    index.storage_context.persist(tmp_path)
    again = load_index_from_storage(StorageContext.from_defaults(persist_dir=str(tmp_path)))
    assert [node.text for node in again.as_retriever(similarity_top_k=1).retrieve("good")] == [found[0].text]


def test_it_is_made_again_from_what_it_stores(embedding):
    from ternarybert.integrations.llama_index import TernaryIndexEmbedding

    copy = TernaryIndexEmbedding.from_dict(embedding.to_dict())
    assert copy.get_query_embedding("good") == embedding.get_query_embedding("good")


def test_a_classifier_is_refused(classifier):
    from ternarybert.integrations.llama_index import TernaryIndexEmbedding

    with pytest.raises(UnsupportedModelError, match="Embedder"):
        TernaryIndexEmbedding(classifier)
