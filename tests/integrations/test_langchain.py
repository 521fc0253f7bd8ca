"""In LangChain: the embeddings of a vector store and of its retriever."""

import asyncio

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

import ternarybert
from ternarybert.errors import UnsupportedModelError
from ternarybert.integrations.langchain import TernaryEmbeddings

TEXTS = ["a good film", "it was awful and dull", "great fun", "the plot was bad"]


def test_vectors_of_documents_and_queries(embedder):
    embeddings, model = TernaryEmbeddings(embedder), ternarybert.load(embedder)
    assert isinstance(embeddings, Embeddings)
    assert embeddings.embed_documents(TEXTS) == model.encode_document(TEXTS).tolist()
    assert embeddings.embed_query("good") == model.encode_query("good").tolist()
    assert embeddings.embed_query("good") != embeddings.embed_documents(["good"])[0]  # the prompt of queries
    assert asyncio.run(embeddings.aembed_query("good")) == embeddings.embed_query("good")
    assert asyncio.run(embeddings.aembed_documents(TEXTS)) == embeddings.embed_documents(TEXTS)


def test_a_vector_store_and_its_retriever(embedder):
    embeddings, model = TernaryEmbeddings(embedder), ternarybert.load(embedder)
    store = InMemoryVectorStore(embeddings)
    store.add_documents([Document(id=str(i), page_content=text) for i, text in enumerate(TEXTS)])
    scores = model.similarity(model.encode_query(["good"]), model.encode_document(TEXTS))[0]
    expected = [TEXTS[i] for i in (-scores).argsort(kind="stable")]
    found = store.similarity_search_with_score("good", k=4)
    assert [document.page_content for document, _ in found] == expected
    assert [score for _, score in found] == pytest.approx(sorted(scores.tolist(), reverse=True), abs=1e-5)
    retriever = store.as_retriever(search_kwargs={"k": 1})
    assert [document.page_content for document in retriever.invoke("good")] == expected[:1]


def test_a_classifier_is_refused(classifier):
    with pytest.raises(UnsupportedModelError, match="Embedder"):
        TernaryEmbeddings(classifier)
