"""Vectors of a student, of its teacher and of both are measured on pairs and retrieval."""

import json

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sentence_transformers import SentenceTransformer
from sklearn.metrics import average_precision_score, ndcg_score

import ternarybert.hf  # registers the format
from ternarybert.embedding_evaluation import as_encoder
from ternarybert.errors import DataError, UnsupportedModelError
from tests import tiny
from tests.cli.shell import command
from tests.embedders import float_embedder, packed_embedder
from tests.training.conftest import rows


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return packed_embedder(folder / "small"), float_embedder(folder / "teacher")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pairs with scores, pairs with 0 or 1, and a corpus."""
    folder, texts = tmp_path_factory.mktemp("files"), list(dict.fromkeys(rows(40)["text"]))
    first, second = texts, [f"i liked {text}" for text in reversed(texts)]
    for name, values in (("sts", [i % 6 for i in range(len(texts))]), ("same", [i % 2 for i in range(len(texts))])):
        lines = [f"{a}\t{b}\t{value}" for a, b, value in zip(first, second, values, strict=True)]
        (folder / f"{name}.tsv").write_text("\n".join(["text1\ttext2\tlabel", *lines]))
    corpus = folder / "corpus"
    (corpus / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "text": text} for i, text in enumerate(second)]
    queries = [{"_id": f"q{i}", "text": text} for i, text in enumerate(first)]
    (corpus / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (corpus / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    relevant = [f"q{i}\td{len(texts) - 1 - i}\t1" for i in range(len(texts))]
    (corpus / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *relevant]))
    return folder, first, second


def cosines(a, b):
    a, b = a.astype(float), b.astype(float)
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_figures_equal_those_of_other_libraries(models, files):
    small, teacher = models
    folder, first, second = files
    report = ternarybert.evaluate_embedder(
        small, sts=folder / "sts.tsv", pairs=folder / "same.tsv", retrieval=folder / "corpus", teacher=teacher
    )
    encoders = {"model": SentenceTransformer(str(small)), "teacher": SentenceTransformer(str(teacher))}
    a, b = ({name: each.encode(texts) for name, each in encoders.items()} for texts in (first, second))
    sides = {"model": (a["model"], b["model"]), "teacher": (a["teacher"], b["teacher"])}
    sides["asymmetric"] = (a["model"], b["teacher"])
    scores, labels = [i % 6 for i in range(len(first))], [i % 2 for i in range(len(first))]
    for name, (x, y) in sides.items():
        sts, same = report["sets"]["sts"]["sts"][name], report["sets"]["pairs"]["same"][name]
        assert sts["spearman"] == pytest.approx(100 * spearmanr(cosines(x, y), scores).statistic, abs=0.5)
        assert sts["pearson"] == pytest.approx(100 * pearsonr(cosines(x, y), scores).statistic, abs=0.5)
        assert same["average_precision"] == pytest.approx(100 * average_precision_score(labels, cosines(x, y)), abs=0.5)
        found = report["sets"]["retrieval"]["corpus"][name]
        wanted = np.eye(len(first))[::-1]
        assert found["ndcg@10"] == pytest.approx(100 * ndcg_score(wanted, x @ y.T, k=10), abs=0.5)
        assert 0 < found["mrr@10"] <= found["ndcg@10"] <= found["recall@100"] == 100
    mean = 100 * np.mean(cosines(np.vstack([a["model"], b["model"]]), np.vstack([a["teacher"], b["teacher"]])))
    assert report["sets"]["sts"]["sts"]["model"]["cosine"] == pytest.approx(mean, abs=1e-3)


def test_torch_and_native_agree(models, files):
    small, _ = models
    native, slow = (
        ternarybert.evaluate_embedder(small, retrieval=files[0] / "corpus", engine=engine)["sets"]
        for engine in ("native", "torch")
    )
    assert native == slow


def test_a_loaded_encoder_can_be_evaluated(models, files):
    class Constant:
        def encode(self, texts):
            return np.ones((len(texts), 2))

        encode_query = encode_document = encode

    report = ternarybert.evaluate_embedder(Constant(), sts=files[0] / "sts.tsv")
    assert report["model"] == "Constant" and report["sets"]["sts"]["sts"]["model"]["spearman"] == 0.0


def test_the_teacher_encodes_as_the_library_does(models):
    texts = ["a good film", "the plot " * 20, ""]
    expected = SentenceTransformer(str(models[1])).encode(texts)
    np.testing.assert_allclose(as_encoder(models[1]).encode(texts), expected, rtol=0, atol=1e-5)
    assert as_encoder(models[1]).encode([]).shape == (0, 32)


def test_the_command_prints_a_table(models, files):
    small, teacher = models
    data = ["--sts", files[0] / "sts.tsv", "--retrieval", files[0] / "corpus"]
    code, out, err = command("evaluate", small, *data, "--teacher", teacher)
    assert code == 0, err
    for word in ("spearman", "ndcg@10", "asymmetric", "teacher", "texts/s"):
        assert word in out
    code, out, err = command("evaluate", small, "--pairs", files[0] / "same.tsv", "--engine", "native", "--json")
    assert json.loads(out)["sets"]["pairs"]["same"]["model"]["average_precision"] > 0


def test_what_is_refused(models, files, tmp_path):
    with pytest.raises(DataError, match="sts"):
        ternarybert.evaluate_embedder(models[0])
    with pytest.raises(UnsupportedModelError, match="BertForSequenceClassification"):
        ternarybert.evaluate_embedder(tiny.save(tmp_path / "classifier"), sts=files[0] / "sts.tsv")
    code, _, err = command("evaluate", models[0], "--sts", files[0] / "sts.tsv", "--task", "mrpc")
    assert code == 2 and "--task" in err
