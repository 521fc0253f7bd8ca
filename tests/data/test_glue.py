import datasets
import pytest

from ternarybert.data import GLUE, align_labels, glue_task, load_glue
from ternarybert.errors import DataError, HubError, LabelError

from .conftest import HEADERS, ROWS, write_glue


def test_the_settings_of_the_paper():
    tasks = {name: record.task for name, record in GLUE.items()}
    assert set(tasks) == {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"}
    assert {name for name, task in tasks.items() if task.max_length == 64} == {"cola", "sst2"}
    assert {name for name, task in tasks.items() if task.batch_size == 16} == {"cola"}
    assert {name for name, task in tasks.items() if not task.augment} == {"stsb", "mnli", "qqp"}
    assert {(task.epochs, task.epochs_augmented) for task in tasks.values()} == {(3, 1)}
    assert {name: task.metrics[0] for name, task in tasks.items() if task.metrics[0] != "accuracy"} == {
        "cola": "matthews",
        "stsb": "spearman",
    }
    assert {name: task.num_labels for name, task in tasks.items() if task.num_labels != 2} == {"stsb": 1, "mnli": 3}


@pytest.mark.parametrize("name", ["SST-2", "sst2", "sst_2"])
def test_spellings(name):
    assert glue_task(name).name == "sst2"


def test_an_unknown_task_gets_a_suggestion():
    with pytest.raises(DataError, match="unknown task 'MRCP'; did you mean 'mrpc'"):
        load_glue("MRCP")


@pytest.mark.parametrize("name", HEADERS)
def test_every_part_is_read_whole(glue_root, made_glue, name):
    root = glue_root if (glue_root / name).is_dir() else made_glue  # some tasks may not be at hand
    data = load_glue(name, root)
    parts = {"train": data.train, **data.evals}
    files = {path.stem: path for path in (root / name).glob("*.tsv") if path.stem != "test"}
    assert {part for part, rows in parts.items() if rows is not None} == set(files)
    for part, path in files.items():
        lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
        assert len(parts[part]) == len(lines) - (HEADERS[name] is not None)
        last = parts[part][-1]
        assert all(last[column] in lines[-1] for column in ("text", "text_pair") if column in last)
        assert ("text_pair" in last) == data.task.pair
        labels = set(parts[part]["label"])
        assert labels == set(range(data.task.num_labels)) or (data.task.regression and max(labels) <= 5.0)


def test_labels_and_texts_are_those_of_the_line(made_glue):
    assert load_glue("cola", made_glue).train[1] == {"text": 'The "more the merrier.', "label": 0}
    assert load_glue("mrpc", made_glue).train[0] == {"text": "He said so.", "text_pair": '"He said so.', "label": 1}
    assert load_glue("stsb", made_glue).train[0]["label"] == 4.75
    assert list(load_glue("mnli", made_glue).evals["dev_matched"]["label"]) == [0, 1, 2]
    assert list(load_glue("rte", made_glue).train["label"]) == [0, 1]
    assert load_glue("qqp", made_glue).train[1] == {"text": "Who?", "text_pair": "", "label": 0}


def test_the_tasks_own_folder_will_do(made_glue):
    assert load_glue("rte", made_glue / "RTE").train[:] == load_glue("rte", made_glue).train[:]


def test_a_task_without_training_file(made_glue):
    (made_glue / "QNLI" / "train.tsv").unlink()
    data = load_glue("qnli", made_glue)
    assert data.train is None
    assert len(data.evals["dev"]) == 2


def test_folders_without_the_task(tmp_path, made_glue):
    with pytest.raises(DataError, match=r"nowhere is not a folder"):
        load_glue("rte", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"holds no MNLI: expected train\.tsv or dev_matched\.tsv .*, or MNLI/"):
        (tmp_path / "empty").mkdir()
        load_glue("mnli", tmp_path / "empty")
    with pytest.raises(DataError, match="no column 'question'"):
        load_glue("qnli", made_glue / "RTE")
    with pytest.raises(DataError, match="line 1: 2 fields where the header has 4"):
        load_glue("cola", made_glue / "SST-2")


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("RTE", "7\tonly this", "line 4: 2 fields where the header has 4"),
        ("RTE", "7\ta\tb\tc\td", "line 4: 5 fields"),
        ("RTE", "7\ta\tb\tmaybe", "line 4: the label is 'maybe'; expected one of 'entailment', 'not_entailment'"),
        ("CoLA", "gj04\t2\t\tA.", "line 3: the label is '2'"),
        ("STS-B", "1\tg\tf\t2012\t2\tn\tn\tA.\tB.\tnan", "line 4: the label is 'nan'; expected a number"),
        ("QQP", "torn", "line 4: 1 fields"),  # one of three is more than the known damage
    ],
)
def test_a_malformed_line_is_pointed_at(tmp_path, name, line, message):
    write_glue(tmp_path, name, "train", [*ROWS[name], line])
    with pytest.raises(DataError, match=message) as caught:
        load_glue(name, tmp_path)
    assert "train.tsv" in str(caught.value)


def test_the_known_damage_in_qqp_is_left_out(tmp_path):
    write_glue(tmp_path, "QQP", "train", [*ROWS["QQP"] * 1000, '7\t8\t9\t"', '"\tWas it so?\t0'])
    assert len(load_glue("qqp", tmp_path).train) == 2000


def test_mrpc_as_microsoft_publishes_it(tmp_path):
    rows = [f"{i % 2}\t{i}\t{i + 100}\tText {i}.\tOther {i}." for i in range(10)]
    for part, lines in (("train", rows), ("test", rows[:3])):
        content = "\r\n".join([HEADERS["MRPC"], *lines])
        (tmp_path / f"msr_paraphrase_{part}.txt").write_text(content, encoding="utf-8", newline="")
    data = load_glue("mrpc", tmp_path)
    assert (len(data.train), {name: len(rows) for name, rows in data.evals.items()}) == (10, {"test": 3})

    (tmp_path / "dev_ids.tsv").write_text("3\t103\n8\t108\n")
    data = load_glue("mrpc", tmp_path)
    assert (len(data.train), data.evals["dev"][:]["text"]) == (8, ["Text 3.", "Text 8."])

    (tmp_path / "dev_ids.tsv").write_text("3\t108\n")
    with pytest.raises(DataError, match=r"does not split .* lists 0 of its 10 pairs"):
        load_glue("mrpc", tmp_path)


def test_a_teacher_in_the_order_of_the_released_code(made_glue):
    data = align_labels(load_glue("mnli", made_glue), {0: "contradiction", 1: "entailment", 2: "neutral"})
    assert list(data.train["label"]) == [1, 2, 0]


def test_the_wrong_teacher(made_glue):
    with pytest.raises(LabelError, match="teacher has 2 labels"):
        align_labels(load_glue("mnli", made_glue), {0: "LABEL_0", 1: "LABEL_1"})


def hub(columns, names, splits):
    rows = datasets.Dataset.from_dict({**columns, "idx": [0, 1]})
    kind = datasets.ClassLabel(names=names) if names else datasets.Value("float32")
    return datasets.DatasetDict({split: rows.cast_column("label", kind) for split in splits})


def test_rows_from_the_hub_have_the_same_shape(monkeypatch, made_glue):
    names = ["entailment", "neutral", "contradiction"]
    splits = ["train", "validation_matched", "validation_mismatched"]
    columns = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [2, 0]}
    monkeypatch.setattr(datasets, "load_dataset", lambda repository, name: hub(columns, names, splits))
    data = load_glue("mnli")
    assert list(data.evals) == ["dev_matched", "dev_mismatched"]
    assert data.train[0] == {"text": "a", "text_pair": "c", "label": 2}
    assert data.train.features == load_glue("mnli", made_glue).train.features


def test_regression_from_the_hub(monkeypatch):
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [2.5, 0.0]}
    monkeypatch.setattr(datasets, "load_dataset", lambda repository, name: hub(columns, None, ["train", "validation"]))
    assert load_glue("stsb").evals["dev"][0] == {"text": "a", "text_pair": "c", "label": 2.5}


def test_an_unreachable_hub_is_one_line_that_says_what_to_do(monkeypatch):
    def unreachable(repository, name):
        raise ConnectionError(f"Couldn't reach '{repository}' on the Hub\n(details)")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(HubError, match=r"cannot get nyu-mll/glue .*; pass a folder .*SST-2/dev\.tsv") as caught:
        load_glue("sst2")
    assert "\n" not in str(caught.value)
