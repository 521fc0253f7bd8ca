"""Real clients of other projects get their answers from a running server."""

import huggingface_hub.constants
import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient

TEXTS = ["a good film", "the plot was dull", "fun"]


@pytest.fixture(scope="module")
def vectors(direct):
    return direct["embedder"].encode(TEXTS, normalize=True)


def test_openai(server, vectors):
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        reply = client.embeddings.create(model="embedder", input=TEXTS)  # asks for base64
        np.testing.assert_array_equal(np.array([one.embedding for one in reply.data], np.float32), vectors)
        floats = client.embeddings.create(model="embedder", input=TEXTS[0], encoding_format="float", dimensions=8)
        assert len(floats.data[0].embedding) == 8
        assert next(model.id for model in client.models.list()) == "embedder"
        with pytest.raises(openai.NotFoundError) as error:
            client.embeddings.create(model="text-embedding-3-small", input="x")
        assert error.value.status_code == 404
        with pytest.raises(openai.APIStatusError) as error:
            client.embeddings.create(model="embedder", input="good " * 100)
        assert error.value.status_code == 413


def test_huggingface_hub(server, vectors, direct, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # it refuses even this machine
    client = InferenceClient(f"{server.address}/embed")
    np.testing.assert_array_equal(client.feature_extraction(TEXTS[0]), vectors[:1])
    np.testing.assert_array_equal(InferenceClient(server.address).feature_extraction(TEXTS, normalize=True), vectors)
    similar = InferenceClient(f"{server.address}/similarity").sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    assert similar[0] == pytest.approx(1)
    entities = InferenceClient(f"{server.address}/models/names/ner").token_classification(TEXTS[1])
    assert [one.word for one in entities] == [one.text for one in direct["names"].predict(TEXTS[1]).entities]
    answering = InferenceClient(f"{server.address}/models/answers/qa")
    answer = answering.question_answering(question="was it fun", context="the film was good")
    assert answer.answer == direct["answers"].predict(("was it fun", "the film was good")).text
    best = InferenceClient(f"{server.address}/models/two/predict").text_classification(TEXTS[0])
    assert best.label == direct["two"].predict(TEXTS[0]).label


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_llama_index(server, vectors):
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    client = TextEmbeddingsInference(
        model_name="embedder", base_url=server.address, text_instruction="", query_instruction=""
    )
    found = np.array(client.get_text_embedding_batch(TEXTS), np.float32)
    np.testing.assert_array_equal(found, vectors)
    np.testing.assert_array_equal(np.array(client.get_query_embedding(TEXTS[2]), np.float32), vectors[2])
