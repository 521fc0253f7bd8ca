import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.data import load_table
from ternarybert.data.table import hold_out_rows
from ternarybert.errors import DataError, LabelError

REVIEWS = [f"review number {i}" for i in range(60)]
MOODS = ["good", "bad", "so, so"] * 20


def jsonl(path, **columns):
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text(
        "".join(f'"{a}","{b}"\n' for a, b in [("What they wrote", "Mood"), *zip(REVIEWS, MOODS, strict=True)])
    )
    return path


def test_three_classes_in_odd_columns(reviews):
    data = load_table(reviews, label="Mood")
    assert data.task.name == "reviews"
    assert data.task.text_columns == ("What they wrote",)
    assert data.task.labels == ("bad", "good", "so, so")
    assert data.task.metrics == ("accuracy", "macro_f1", "matthews")
    assert (len(data.train), len(data.evals["dev"])) == (54, 6)
    assert sorted(data.evals["dev"]["label"]) == [0, 0, 1, 1, 2, 2]
    row = data.train[0]
    assert data.task.labels[row["label"]] == MOODS[REVIEWS.index(row["text"])]


def test_the_held_out_rows_depend_on_the_seed_alone(reviews):
    first, again = (load_table(reviews, label="Mood", seed=1).evals["dev"]["text"] for _ in range(2))
    other = load_table(reviews, label="Mood", seed=2).evals["dev"]["text"]
    assert list(first) == list(again) != list(other)


def test_nothing_is_held_out_when_told(reviews):
    data = load_table(reviews, label="Mood", eval_share=0)
    assert (len(data.train), data.evals) == (60, {})
    with pytest.raises(DataError, match=r"held-out share .* not 1\.5"):
        load_table(reviews, label="Mood", eval_share=1.5)


@given(st.lists(st.integers(0, 3), min_size=8, max_size=80), st.sampled_from([0.1, 0.25, 0.5]), st.integers(0, 9))
@settings(deadline=None)
def test_every_class_gives_its_share(classes, share, seed):
    kept, held = hold_out_rows(len(classes), classes, share, seed)
    assert sorted(kept + held) == list(range(len(classes)))
    total, out = Counter(classes), Counter(classes[row] for row in held)
    rate = len(held) / sum(n for n in total.values() if n > 1)
    assert all(abs(out[c] - rate * n) < 2 for c, n in total.items() if n > 1)
    assert not any(out[c] for c, n in total.items() if n == 1)


def test_an_evaluation_file_is_used_whole(reviews, tmp_path):
    dev = jsonl(tmp_path / "dev.jsonl", **{"What they wrote": ["x", "y"], "Mood": ["good", "bad"]})
    data = load_table(reviews, dev, label="Mood")
    assert (len(data.train), list(data.evals["dev"]["label"])) == (60, [1, 0])
    alone = load_table(None, dev, label="Mood")
    assert alone.train is None
    assert len(alone.evals["dev"]) == 2


def test_pairs(tmp_path):
    path = jsonl(tmp_path / "p.jsonl", a=["x"] * 10, b=["y", ""] * 5, same=[True, False] * 5)
    data = load_table(path, text="a", text_pair="b", label="same", labels=["LABEL_0", "LABEL_1"])
    assert data.task.pair
    assert data.train.column_names == ["text", "text_pair", "label"]
    assert data.train[:2] == {"text": ["x", "x"], "text_pair": ["y", ""], "label": [1, 0]}


def test_regression_by_the_look_of_the_labels(tmp_path):
    data = load_table(jsonl(tmp_path / "r.jsonl", text=REVIEWS, score=[i / 4 for i in range(60)]))
    assert data.task.regression
    assert data.task.labels is None
    assert data.task.metrics == ("spearman", "pearson", "mse")
    assert data.train.features["label"].dtype == "float64"


def test_regression_when_told(tmp_path):
    path = jsonl(tmp_path / "r.jsonl", text=REVIEWS, score=[i % 5 for i in range(60)])
    assert load_table(path).task.labels == ("0", "1", "2", "3", "4")
    assert load_table(path, regression=True).train[0]["label"] == 0.0
    assert load_table(path, labels=["LABEL_0"]).task.regression
    with pytest.raises(LabelError, match="one output; this one has the labels 'a', 'b'"):
        load_table(path, regression=True, labels=["a", "b"])


def test_classes_when_told(tmp_path):
    path = jsonl(tmp_path / "r.jsonl", text=REVIEWS, score=[0.5, 1.5, 2] * 20)
    assert load_table(path, regression=False).task.labels == ("0.5", "1.5", "2")


def test_the_teachers_order_rules(reviews):
    data = load_table(reviews, label="Mood", labels=["SO, SO", "unused", "GOOD", "BAD"], eval_share=0)
    assert data.task.labels == ("SO, SO", "unused", "GOOD", "BAD")
    assert list(data.train["label"])[:3] == [2, 3, 0]
    with pytest.raises(LabelError, match="does not know 'so, so'; its labels are 'good', 'bad'"):
        load_table(reviews, label="Mood", labels=["good", "bad"])
    with pytest.raises(LabelError, match="have no names"):
        load_table(reviews, label="Mood", labels=["LABEL_0", "LABEL_1", "LABEL_2"])


def test_unlabeled_text_is_enough(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(REVIEWS))
    data = load_table(path)
    assert data.task.metrics == ("agreement",)
    assert data.task.labels is data.task.label_column is None
    assert data.train.column_names == ["text"]
    assert (len(data.train), len(data.evals["dev"])) == (54, 6)
    assert load_table(path, labels=["a", "b"]).task.labels == ("a", "b")


def test_unlabeled_training_with_labeled_evaluation(reviews, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(REVIEWS))
    data = load_table(path, reviews, label="Mood")
    assert data.train.column_names == ["text"]
    assert data.task.labels == ("bad", "good", "so, so")
    assert data.task.metrics[0] == "accuracy"


def test_a_label_only_the_evaluation_has(reviews, tmp_path):
    dev = jsonl(tmp_path / "dev.jsonl", **{"What they wrote": ["x"], "Mood": ["angry"]})
    with pytest.raises(LabelError, match=r"dev\.jsonl has labels that the training file has not: 'angry'"):
        load_table(reviews, dev, label="Mood")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a", None], "label": [0, 1]}, "line 2: 'text' is missing"),
        ({"text": ["a", 12], "label": [0, 1]}, r"line 2: 'text' is 12 \(int\), not a text"),
        ({"text": ["a", " "], "label": [0, 1]}, "line 2: 'text' is empty"),
        ({"text": ["a", "b"], "label": [0, None]}, "line 2: no label"),
        ({"text": ["a", "b"], "label": ["x", "x"]}, "every label in .* is 'x'"),
        ({"text": REVIEWS, "label": list(range(60))}, "60 different labels in 60 rows"),
        ({"text": ["a"]}, "too few rows to hold any out"),
        ({"text": ["a", "b"], "label": ["x", "y"]}, "too few rows to hold any out"),
    ],
)
def test_unusable_rows_are_pointed_at(tmp_path, columns, message):
    with pytest.raises(DataError, match=message) as caught:
        load_table(jsonl(tmp_path / "t.jsonl", **columns))
    assert "\n" not in str(caught.value)


def test_regression_labels_must_be_numbers(tmp_path):
    path = jsonl(tmp_path / "t.jsonl", text=["a", "b"], label=[1.5, "high"])
    with pytest.raises(LabelError, match="line 2: the label 'high' is not a number"):
        load_table(path, regression=True)


def test_no_data_at_all():
    with pytest.raises(DataError, match="no data"):
        load_table(None)


def test_torch_is_never_imported(reviews):
    code = f"""
import sys
from ternarybert.data import load_table
assert "datasets" not in sys.modules
load_table({str(reviews)!r}, label="Mood")
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_codes_with_a_point_are_regression_unless_told_and_it_is_said(tmp_path, caplog):
    rows = "".join(f"text {i},1.{i % 3 + 1}\n" for i in range(60))
    (tmp_path / "t.csv").write_text("text,label\n" + rows)
    assert load_table(tmp_path / "t.csv").task.regression
    assert "--no-regression" in caplog.text and "'label'" in caplog.text
    caplog.clear()
    task = load_table(tmp_path / "t.csv", regression=False).task
    assert (task.regression, task.labels, caplog.text) == (False, ("1.1", "1.2", "1.3"), "")
    assert load_table(tmp_path / "t.csv", regression=True).task.regression
    assert caplog.text == ""


def test_what_looks_like_a_typo_is_said(tmp_path, caplog):
    (tmp_path / "t.csv").write_text("text,label\n" + "a,Positive\nb,Negative\n" * 20 + "c,Positve\n")
    data = load_table(tmp_path / "t.csv")
    assert "'Positve' (1 rows) and 'Positive' (20)" in caplog.text
    assert data.task.describe(data).endswith("(Negative 18, Positive 18, Positve 1)")
