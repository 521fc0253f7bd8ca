import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.data.classification import ClassificationTask
from ternarybert.data.labels import (
    align_labels,
    are_continuous,
    as_number,
    label_warnings,
    match_labels,
    read_labels,
    sorted_names,
)
from ternarybert.data.readers import Table
from ternarybert.data.task import TaskData, make_dataset
from ternarybert.errors import DataError, LabelError


def column(*values):
    return Table(Path("t.csv"), {"label": list(values)}, range(2, len(values) + 2))


def mnli(labels=(0, 1, 2)):
    task = ClassificationTask("mnli", ("a", "b"), "label", ("entailment", "neutral", "contradiction"), ("accuracy",))
    rows = make_dataset([["x"] * len(labels), ["y"] * len(labels)], list(labels))
    return TaskData(task, rows, {"dev": rows})


def test_labels_are_read_as_written_but_for_whole_numbers():
    written = (" pos ", 3, 2.0, "4.0", "007", True, -1, 2.5)
    assert read_labels(column(*written), "label") == ["pos", "3", "2", "4", "007", "True", "-1", "2.5"]


@pytest.mark.parametrize("missing", [None, "", "  ", float("nan")])
def test_a_row_without_label_is_pointed_at(missing):
    with pytest.raises(DataError, match=r"t\.csv, line 3: no label"):
        read_labels(column("a", missing), "label")


def test_a_label_that_is_no_scalar_is_pointed_at():
    with pytest.raises(DataError, match="line 2: the label is a list"):
        read_labels(column(["a"]), "label")


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1.0), ("-2.50", -2.5), (".5", 0.5), ("+1e-3", 0.001), ("007", None), ("nan", None), ("1e999", None)],
)
def test_numbers(text, number):
    assert as_number(text) == number


def test_only_fractions_mean_regression():
    assert are_continuous(["1", "2.5"])
    assert not are_continuous(["1", "2"])
    assert not are_continuous(["1.5", "unknown"])


@given(st.lists(st.sampled_from(["10", "9", "-1", "b", "a", "B"]), min_size=1))
def test_the_order_of_names_does_not_depend_on_the_rows(labels):
    assert sorted_names(labels) == sorted_names(reversed(labels)) == sorted_names(labels * 2)


def test_numbers_sort_by_value():
    assert sorted_names(["10", "9", "-1"]) == ("-1", "9", "10")


@pytest.mark.parametrize(
    ("names", "teacher", "ids"),
    [
        (["neg", "pos"], ["NEG", "POS"], [0, 1]),
        (["not-entailment"], ["Entailment", "not_entailment"], [1]),
        (["Not Entailment"], ["entailment", "not_entailment"], [1]),
        (["0", "2"], ["LABEL_0", "LABEL_1", "LABEL_2"], [0, 2]),
        (["0", "1"], ["negative", "positive"], [0, 1]),
        (["1", "2"], ["2", "1"], [1, 0]),  # names before ids
        (["-1", "1"], ["-1", "1"], [0, 1]),
        (["False", "True"], ["LABEL_0", "LABEL_1"], [0, 1]),
        (["LABEL_1"], ["LABEL_0", "LABEL_1"], [1]),
        (["a", "A"], ["A", "a"], [1, 0]),  # where case tells labels apart, it counts
    ],
)
def test_names_find_the_teachers_ids(names, teacher, ids):
    assert list(match_labels(names, teacher).values()) == ids


@pytest.mark.parametrize(
    ("names", "teacher", "message"),
    [
        (["pos", "meh"], ["neg", "pos"], "does not know 'meh'; its labels are 'neg', 'pos'"),
        (["-1", "1"], ["0", "1"], "'-1'"),
        (["1", "2", "3"], ["bad", "fair", "good"], "does not know '1', '2', '3'"),
        (["True", "False"], ["a", "b", "c"], "does not know 'True', 'False'"),
        (["neg", "pos"], ["LABEL_0", "LABEL_1"], "have no names .* write ids from 0 to 1 into the data, or the names"),
        ([str(i) for i in range(20)], ["a", "b"], "and 12 more"),
    ],
)
def test_labels_the_teacher_does_not_know(names, teacher, message):
    with pytest.raises(LabelError, match=message):
        match_labels(names, teacher)


def test_aligning_renumbers_every_part():
    aligned = align_labels(mnli(), {0: "CONTRADICTION", 1: "ENTAILMENT", 2: "NEUTRAL"})
    assert aligned.task.labels == ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")
    assert list(aligned.train["label"]) == list(aligned.evals["dev"]["label"]) == [1, 2, 0]
    assert aligned.train.column_names == ["text", "text_pair", "label"]


def test_aligning_leaves_unlabeled_parts_alone():
    data = mnli()
    data = TaskData(data.task, make_dataset([["x"], ["y"]], None), data.evals)
    aligned = align_labels(data, {0: "neutral", 1: "entailment", 2: "contradiction"})
    assert aligned.train is data.train
    assert list(aligned.evals["dev"]["label"]) == [1, 0, 2]


def test_aligning_keeps_what_f1_is_about():
    task = ClassificationTask("mrpc", ("a",), "label", ("not_equivalent", "equivalent"), ("f1",))
    data = TaskData(task, None, {"dev": make_dataset([["x", "y"]], [1, 0])})
    aligned = align_labels(data, {0: "equivalent", 1: "not_equivalent"})
    assert aligned.task.positive == 0
    answers = [0, 0]  # "equivalent" twice: one is right
    assert aligned.task.score(answers, aligned.evals["dev"]["label"]) == {"f1": pytest.approx(200 / 3)}


@pytest.mark.parametrize("names", [["LABEL_0", "LABEL_1", "LABEL_2"], ["0", "1", "2"]])
def test_a_teacher_without_names_uses_the_tasks_order(names):
    data = mnli()
    assert align_labels(data, {str(i): name for i, name in enumerate(names)}) is data


@given(st.permutations(["entailment", "neutral", "contradiction"]), st.lists(st.integers(0, 2), min_size=1))
@settings(deadline=None, max_examples=30)  # every example writes two Arrow tables
def test_names_stay_with_their_rows(order, labels):
    data = mnli(labels)
    aligned = align_labels(data, dict(enumerate(order)))
    assert [order[i] for i in aligned.train["label"]] == [data.task.labels[i] for i in labels]


@pytest.mark.parametrize(
    ("id2label", "message"),
    [
        ({0: "no", 1: "yes"}, r"teacher has 2 labels \('no', 'yes'\), the task mnli has 3"),
        ({0: "a", 1: "neutral", 2: "contradiction"}, "does not know 'entailment'"),
        ({0: "entailment", 1: "neutral", 3: "contradiction"}, "number its labels from 0"),
    ],
)
def test_a_teacher_of_another_task_is_refused(id2label, message):
    with pytest.raises(LabelError, match=message):
        align_labels(mnli(), id2label)


def test_two_labels_may_not_become_one():
    task = ClassificationTask("t", ("text",), "label", ("pos", "Pos"), ("accuracy",))
    data = TaskData(task, make_dataset([["x", "y"]], [0, 1]), {})
    with pytest.raises(LabelError, match=r"POS|Pos"):
        align_labels(data, {0: "POS", 1: "NEG"})


def test_regression_needs_one_output():
    data = TaskData(
        ClassificationTask("stsb", ("a",), "s", None, ("spearman",), regression=True), make_dataset([["x"]], [2.5]), {}
    )
    assert align_labels(data, {0: "LABEL_0"}) is data
    with pytest.raises(LabelError, match="stsb is regression"):
        align_labels(data, {0: "a", 1: "b"})


def test_unlabeled_data_take_the_teachers_names():
    data = TaskData(ClassificationTask("t", ("text",), None, None, ("agreement",)), make_dataset([["x"]], None), {})
    assert align_labels(data, {0: "a", 1: "b"}).task.labels == ("a", "b")
    scored = align_labels(data, {0: "LABEL_0"}).task
    assert scored.regression and scored.num_labels == 1 and scored.metrics[0] == "spearman"


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (["Positive"] * 50 + ["negative"] * 50 + ["Positve"], [("Positve", "Positive")]),
        (["yes"] * 30 + ["Yes"] * 20 + ["no"] * 9, [("Yes", "yes")]),
        (["so so"] * 30 + ["so-so"] * 20 + ["no"] * 9, [("so-so", "so so")]),
        (["step 1"] * 90 + ["step 2"] * 4, []),  # two names
        (["cat"] * 50 + ["car"] * 50, []),  # both are frequent
        (["business"] * 50 + ["tech"] * 5, []),
    ],
)
def test_labels_that_look_like_typos_are_named(labels, named):
    found = [line for line in label_warnings(labels) if "nearly" in line]
    assert len(found) == len(named)
    for line, names in zip(found, named, strict=True):
        assert all(f"'{name}'" in line for name in names)


def test_tiny_classes_are_counted():
    assert label_warnings(["a", "b"] * 10) == []
    (line,) = label_warnings(["good"] * 20 + ["bad"] * 20 + ["odd", "rare", "rare"])
    assert "'odd' (1)" in line and "'rare' (2)" in line and "2 of 4" in line


def test_many_labels_are_compared_quickly():
    labels = [f"some rather long name of a class {chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(600)] * 3
    start = time.process_time()
    label_warnings(labels)
    assert time.process_time() - start < 5
