"""Every route gives what its clients expect, and exactly the numbers of `Model`."""

import base64
import json

import numpy as np
import pytest

from ternarybert.runtime.results import sigmoid

TEXTS = ["a good film", "the plot was dull and the acting awful", "fun"]
LONG = "the film was good " * 40


def test_embed(server, direct):
    model = direct["embedder"]
    assert server.ok("/embed", {"inputs": TEXTS}) == model.encode(TEXTS, normalize=True).tolist()
    assert server.ok("/embed", {"inputs": TEXTS[0], "normalize": False}) == model.encode(TEXTS[:1]).tolist()


def test_embed_token_ids(server, direct):
    ids = [direct["embedder"].text.tokenizer.encode(text).ids for text in TEXTS]
    whole = server.ok("/embed", {"inputs": TEXTS})
    assert server.ok("/embed", {"inputs": ids}) == whole
    assert server.ok("/embed", {"inputs": ids[0]}) == whole[:1]


def test_embed_dimensions(server, direct):
    rows = direct["embedder"].encode(TEXTS)[:, :8]
    expected = np.array([row / np.linalg.norm(row) for row in rows], np.float32)
    np.testing.assert_allclose(server.ok("/embed", {"inputs": TEXTS, "dimensions": 8}), expected, rtol=1e-6)
    assert server.post("/embed", {"inputs": TEXTS, "dimensions": 999})[0] == 422


def test_embed_all(server, direct):
    expected = direct["embedder"].encode(TEXTS, pooling="tokens")
    assert server.ok("/embed_all", {"inputs": TEXTS}) == [rows.tolist() for rows in expected]


def test_predict_gives_all_labels_the_best_first(server, direct):
    scores = direct["classes"].predict(TEXTS[0]).scores
    expected = [{"score": score, "label": label} for label, score in sorted(scores.items(), key=lambda one: -one[1])]
    assert server.ok("/predict", {"model": "classes", "inputs": TEXTS[0]}) == expected
    raw = server.ok("/predict", {"model": "classes", "inputs": TEXTS[0], "raw_scores": True})
    assert sorted(one["score"] for one in raw) == sorted(direct["classes"].logits(TEXTS[0]).tolist())


def test_a_flat_list_of_two_strings_is_one_pair(server, direct):
    pair = server.ok("/models/classes/predict", {"inputs": TEXTS[:2]})
    assert {one["label"]: one["score"] for one in pair} == direct["classes"].predict((TEXTS[0], TEXTS[1])).scores
    batch = server.ok("/models/classes/predict", {"inputs": [[TEXTS[0]], [TEXTS[0], TEXTS[1]]]})
    assert batch[1] == pair
    assert {one["label"]: one["score"] for one in batch[0]} == direct["classes"].predict(TEXTS[0]).scores
    assert server.post("/models/classes/predict", {"inputs": TEXTS})[0] == 422


@pytest.mark.parametrize("raw", [False, True])
def test_rerank_by_one_output(server, direct, raw):
    values = [direct["ranker"].predict(("good", text)).value for text in TEXTS]
    scores = values if raw else [sigmoid(value) for value in values]
    ranks = server.ok(
        "/rerank", {"model": "ranker", "query": "good", "texts": TEXTS, "raw_scores": raw, "return_text": True}
    )
    assert [one["score"] for one in ranks] == sorted(scores, reverse=True)
    assert all(one["score"] == scores[one["index"]] and one["text"] == TEXTS[one["index"]] for one in ranks)


def test_rerank_by_the_second_of_two_classes(server, direct):
    ranks = server.ok("/rerank", {"model": "two", "query": "good", "texts": TEXTS})
    assert {one["index"]: one["score"] for one in ranks} == {
        i: direct["two"].predict(("good", text)).scores["yes"] for i, text in enumerate(TEXTS)
    }
    assert "text" not in ranks[0]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_rerank_of_cohere_and_jina(server, version):
    body = {"model": "ranker", "query": "good", "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]]}
    whole = server.ok("/rerank", {"model": "ranker", "query": "good", "texts": TEXTS})
    reply = server.ok(f"/{version}/rerank", body | {"top_n": 2, "return_documents": True})
    assert [(r["index"], r["relevance_score"]) for r in reply["results"]] == [
        (r["index"], r["score"]) for r in whole[:2]
    ]
    assert all(one["document"]["text"] == TEXTS[one["index"]] for one in reply["results"])
    assert reply["model"] == "ranker" and reply["usage"]["total_tokens"] > 0


def test_similarity(server, direct):
    vectors = direct["embedder"].encode(TEXTS, normalize=True).astype(np.float64)
    reply = server.ok("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}})
    np.testing.assert_allclose(reply, vectors @ vectors[0], rtol=1e-12)
    for i, text in enumerate(TEXTS):  # whatever else is compared
        assert server.ok("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": [text]}}) == [reply[i]]


def test_tokenize(server):
    [tokens] = server.ok("/tokenize", {"inputs": "good film"})
    assert [(one["text"], one["start"], one["stop"], one["special"]) for one in tokens] == [
        ("[CLS]", None, None, True),
        ("good", 0, 4, False),
        ("film", 5, 9, False),
        ("[SEP]", None, None, True),
    ]
    [bare, _] = server.ok("/tokenize", {"inputs": ["good film", "x"], "add_special_tokens": False})
    assert [one["id"] for one in bare] == [one["id"] for one in tokens[1:3]]
    assert len(server.ok("/tokenize", {"inputs": LONG})[0]) == 162  # nothing is truncated


def test_ner(server, direct):
    tags = direct["names"].predict(TEXTS)
    several = server.ok("/models/names/ner", {"inputs": TEXTS})
    assert [[(e["word"], e["entity_group"], e["score"], e["start"], e["end"]) for e in one] for one in several] == [
        [(e.text, e.label, e.score, e.start, e.end) for e in one.entities] for one in tags
    ]
    assert all(several)
    words = server.ok("/ner", {"model": "names", "inputs": TEXTS[1], "parameters": {"aggregation_strategy": "none"}})
    assert [one["word"] for one in words] == TEXTS[1].split()


def test_ner_reads_texts_of_any_length(server, direct):
    text = "the film was good and awful " * 30
    tags = direct["names"].predict(text)
    assert tags.words[-1].end == len(text) - 1
    whole = server.ok("/ner", {"model": "names", "inputs": text, "parameters": {"aggregation_strategy": "none"}})
    assert [(one["word"], one["score"], one["start"]) for one in whole] == [
        (word.text, word.score, word.start) for word in tags.words
    ]
    short = server.ok(
        "/ner", {"model": "names", "inputs": text, "truncate": True, "parameters": {"aggregation_strategy": "none"}}
    )
    assert 0 < len(short) < len(whole)


def test_qa(server, direct):
    question, context = "was it fun", "we liked the film " * 60  # several windows
    answer = direct["answers"].predict((question, context))
    expected = {"answer": answer.text, "score": answer.score, "start": answer.start, "end": answer.end}
    assert server.ok("/models/answers/qa", {"question": question, "context": context}) == expected
    nested = {"inputs": [{"question": question, "context": context}, {"question": question, "context": " "}]}
    assert server.ok("/models/answers/qa", nested) == [expected, {"answer": "", "score": 1.0, "start": 0, "end": 0}]


def test_openai_embeddings(server, direct):
    expected = direct["embedder"].encode(TEXTS, normalize=True)
    reply = server.ok("/v1/embeddings", {"input": TEXTS, "model": "embedder"})
    assert [one["embedding"] for one in reply["data"]] == expected.tolist()
    assert [one["index"] for one in reply["data"]] == [0, 1, 2] and reply["usage"]["total_tokens"] > 0
    coded = server.ok("/v1/embeddings", {"input": TEXTS, "model": "embedder", "encoding_format": "base64"})
    arrays = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in coded["data"]]
    np.testing.assert_array_equal(arrays, expected)


def test_texts_that_are_too_long(server, direct):
    status, _, error = server.post("/embed", {"inputs": LONG})
    assert status == 413 and error["error_type"] == "Validation" and "64" in error["error"]
    with pytest.warns(UserWarning):
        expected = direct["embedder"].encode([LONG], normalize=True).tolist()
    assert server.ok("/embed", {"inputs": LONG, "truncate": True}) == expected
    other_end = LONG + "awful bad dull"
    right, left = (
        server.ok("/embed", {"inputs": other_end, "truncate": True, "truncation_direction": side})
        for side in ("Right", "Left")
    )
    assert right == expected and left != expected


def test_a_model_is_asked_for_what_it_cannot_do(server):
    for path, body in {
        "/models/classes/embed": {"inputs": "x"},
        "/predict": {"inputs": "x"},
        "/models/classes/rerank": {"query": "x", "texts": ["x"]},  # three classes
        "/ner": {"inputs": "x"},
        "/qa": {"question": "x", "context": "x"},
    }.items():
        status, _, error = server.post(path, body)
        assert (status, error["error_type"]) == (424, "Backend"), path


def test_models_by_name(server):
    assert [one["id"] for one in server.send("GET", "/v1/models")[2]["data"]][:2] == ["embedder", "classes"]
    assert server.send("GET", "/v1/models/two")[2]["id"] == "two"
    assert server.send("GET", "/models/two/info")[2]["model_type"] == {
        "classifier": {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}
    }
    assert server.post("/models/two/predict", {"inputs": "x", "model": "classes"})[0] == 422
    for name in ("nothing", "../two", "/etc/passwd", "two/", "..%2Ftwo", ".", "two\x00"):
        assert server.post("/v1/embeddings", {"input": "x", "model": name})[0] == 404
    for path in ("/models/nothing/embed", "/models/..%2Ftwo/embed", "/v1/models/nothing"):
        assert (
            server.send(
                "GET" if path.startswith("/v1") else "POST", path, None if path.startswith("/v1") else {"inputs": "x"}
            )[0]
            == 404
        )


def test_post_to_the_root_is_what_the_model_is_for(server):
    assert server.ok("/", {"inputs": TEXTS}) == server.ok("/embed", {"inputs": TEXTS})
    assert server.ok("/models/two", {"inputs": "x"}) == server.ok("/models/two/predict", {"inputs": "x"})


def test_info_and_health(server):
    info = server.send("GET", "/info")[2]
    assert info["model_id"] == "embedder" and info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert info["max_input_length"] == 64 and info["models"]["answers"] == "qa"
    assert server.send("GET", "/health")[0] == 200
    assert server.send("HEAD", "/health")[0] == 200


def test_errors_of_openais_routes_have_both_shapes(server):
    status, _, error = server.post("/v1/embeddings", {"input": LONG})
    assert status == error["code"] == error["error"]["code"] == 413
    assert error["error_type"] == error["error"]["type"] == "Validation"


def test_the_openapi_document_has_every_route(server):
    document = server.send("GET", "/openapi.json")[2]
    assert set(document["paths"]) == {
        *("/embed", "/embed_all", "/predict", "/rerank", "/similarity", "/tokenize", "/info", "/health", "/metrics"),
        *("/v1/embeddings", "/v1/models", "/v1/models/{name}", "/v1/rerank", "/v2/rerank", "/ner", "/qa", "/"),
        "/openapi.json",
    }
    names = set(document["components"]["schemas"])
    used = {part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]}
    assert used <= names
