"""Texts for embedders: any file, pairs as two texts, scored pairs for evaluation."""

import numpy as np
import pytest

from ternarybert.data.embedding import EmbeddingTask, cosines, load_texts, read_scored_pairs, texts_of
from ternarybert.errors import DataError, LabelError

STS = "sentence1\tsentence2\tscore\na film\ta movie\t4.5\nfun\tdull\t0\ngood\tgreat\t4\n"


def write(path, text):
    path.write_text(text)
    return path


def test_lines_of_a_text_file(tmp_path):
    data = load_texts(write(tmp_path / "texts.txt", "\n".join(f"text {i}" for i in range(20))))
    assert len(data.train) == 18 and len(data.evals["dev"]) == 2 and data.train.column_names == ["text"]
    assert not set(data.train["text"]) & set(data.evals["dev"]["text"])


def test_a_pair_counts_as_two_texts(tmp_path):
    table = write(tmp_path / "pairs.csv", "text_a,text_b\n" + "\n".join(f"a{i},b{i}" for i in range(10)))
    data = load_texts(table)
    assert len(data.train) + len(data.evals["dev"]) == 20 and data.task.text_columns == ("text_a", "text_b")


def test_scored_pairs_are_for_evaluation(tmp_path):
    pairs = write(tmp_path / "sts.tsv", STS)
    data = load_texts(write(tmp_path / "texts.txt", "one\ntwo\nthree"), pairs)
    assert len(data.train) == 3 and data.task.has_references(data.evals["dev"])
    assert texts_of(data.evals["dev"]) == ["a film", "fun", "good", "a movie", "dull", "great"]
    assert len(load_texts(pairs).train) + len(load_texts(pairs).evals["dev"]) == 6  # scores do not matter


def test_scores_are_correlations_and_the_cosine_to_the_teacher(tmp_path):
    data = load_texts(None, write(tmp_path / "sts.tsv", STS))
    vectors = np.array([[1, 0], [1, 0], [1, 0], [1, 0.1], [-1, 0], [1, 0.5]], float)
    scores = data.task.scores(data.evals["dev"], vectors, vectors * 3)
    assert scores["spearman"] == pytest.approx(100) and scores["cosine"] == pytest.approx(100)
    assert data.task.main_metric(scores) == "spearman" and data.task.main_metric({"cosine": 1}) == "cosine"
    turned = vectors @ np.array([[0, 1], [-1, 0]])
    assert data.task.scores(data.evals["dev"], vectors, turned)["cosine"] == pytest.approx(0, abs=1e-9)


def test_cosines_of_zeros():
    np.testing.assert_array_equal(cosines(np.zeros((1, 2)), np.ones((1, 2))), [0.0])


def test_at_most_a_thousand_texts_are_held_out(tmp_path):
    data = load_texts(write(tmp_path / "texts.txt", "\n".join(f"text {i}" for i in range(20_000))))
    assert len(data.evals["dev"]) == 1000


def test_what_is_refused(tmp_path):
    with pytest.raises(DataError, match="no data"):
        load_texts(None)
    with pytest.raises(LabelError, match=r"line 2.*'high'"):
        read_scored_pairs(write(tmp_path / "a.tsv", "text1\ttext2\tlabel\na\tb\thigh\n"))
    with pytest.raises(DataError, match="review, mood"):
        read_scored_pairs(write(tmp_path / "b.csv", "review,mood\na film,good\n"))
    with pytest.raises(DataError, match="empty"):
        load_texts(write(tmp_path / "c.csv", "text,id\n,1\nfun,2\n"))


def test_a_task_tells_itself_apart():
    assert EmbeddingTask("a").identity() != EmbeddingTask("a", pooling="cls").identity()
