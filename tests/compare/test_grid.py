"""`compare_methods` and `reproduce` from Python: what they refuse, report and return. Whole runs: tests/cli."""

import json
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ternarybert.augment.training_data import Augmentation
from ternarybert.compare.cells import Cell
from ternarybert.compare.grid import (
    GridProgress,
    GridTraining,
    ReproductionRun,
    choose_cells,
    compare_methods,
    reproduce,
    sample_rows,
)
from ternarybert.compare.paper import GRIDS, TWN, Experiment, PaperRow
from ternarybert.data import GLUE
from ternarybert.errors import DataError, HubError, OptionError
from ternarybert.recipe import PRESETS
from ternarybert.training.options import TrainingOptions


class Recorded(GridProgress):
    def __init__(self):
        self.messages, self.students = [], []

    def message(self, text):
        self.messages.append(text)

    @contextmanager
    def student(self, cell, number, count):
        self.students.append((cell.method, number, count))
        yield None


def test_a_comparison_reports_and_returns_what_it_did(data, teacher, tmp_path):
    progress = Recorded()
    cells = choose_cells(methods=["gobo"], bits=["3-4-32"]) + choose_cells(methods=["minmax"], bits=["4-4-8"])
    result = compare_methods(teacher, data, tmp_path / "out", cells, progress=progress)
    assert progress.students == [("gobo", 1, 2), ("minmax", 2, 2)]
    assert [row.bits for row in result.rows] == ["32-32-32", "3-4-32", "4-4-8"]
    assert result.metric in result.metrics
    assert json.loads(json.dumps(result.to_dict()))["output"] == str(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"table.md", "table.json", "figure.svg"}

    again = Recorded()
    assert compare_methods(str(teacher), data, str(tmp_path / "out"), cells, progress=again) == result
    assert again.students == [] and again.messages == ["2 of 2 are already done"]


@pytest.mark.parametrize(
    ("choices", "value"),
    [
        ({"budget": 1, "max_steps": 2}, "--budget and --max-steps"),
        ({"minutes_per_cell": -1.5}, "-1.5"),
        ({"max_steps": 0}, "--max-steps"),
        ({"sources": {"bert": "x"}}, "'bert'"),
    ],
)
def test_a_training_that_cannot_be(choices, value):
    with pytest.raises(OptionError, match=value):
        GridTraining(**choices)


def test_only_a_limit_replaces_epochs():
    assert not GridTraining().is_limited and GridTraining().limit is None
    for limit in ({"minutes_per_cell": 3}, {"budget": 3}, {"max_steps": 3}):
        assert GridTraining(**limit).is_limited
        assert "3" in GridTraining(**limit).limit


def test_cells_by_preset_or_method():
    assert choose_cells() == GRIDS["all"]
    assert choose_cells("granularity") == GRIDS["granularity"]
    assert [cell.bits for cell in choose_cells(methods=["qbert"], bits=["4-8-8"])] == ["4-8-8"]


def test_a_sample_of_the_rows_is_always_the_same(data):
    fewer = sample_rows(data, 5)
    assert len(fewer.train) == 5 and fewer.evals == data.evals
    assert list(fewer.train["text"]) == list(sample_rows(data, 5).train["text"])
    assert sample_rows(data, None) is data and sample_rows(data, 10**6) is data


def test_names_that_are_not_in_the_paper(tmp_path):
    with pytest.raises(OptionError, match="'granulrity'"):
        reproduce("granulrity", tmp_path)
    with pytest.raises(OptionError, match="'rt'"):
        reproduce("main", tmp_path, tasks=["rt"])


def test_distilled_students_train_on_augmented_rows_where_the_paper_augments(data, teacher, tmp_path):
    """The others on the rows as they are, in one table; a task without augmentation has none."""
    experiment = Experiment(
        "two methods",
        tuple(PaperRow(cell.label, cell.bits, None, {"rte": (50.0,)}, cell) for cell in (TWN, Cell("minmax", "8-8-8"))),
    )
    progress, training = Recorded(), GridTraining(max_steps=2, options=TrainingOptions(device="cpu", evaluations=1))
    run = ReproductionRun(
        experiment,
        str(teacher),
        tmp_path / "out",
        {"rte": str(teacher)},
        PRESETS["paper"],
        training,
        progress,
        Augmentation(variants=2, cache=tmp_path / "cache"),
    )
    more = replace(data, task=replace(data.task, augment=True))
    result = run.run({"rte": more}, force=False)
    folders = {path.name for path in (tmp_path / "out" / "rte").iterdir()}
    assert folders == {"students", "students-augmented"}
    grown = json.loads(next((tmp_path / "out/rte/students-augmented/cells").glob("*.json")).read_text())
    plain = json.loads(next((tmp_path / "out/rte/students/cells").glob("*.json")).read_text())
    assert (grown["method"], plain["method"]) == ("ternarybert", "minmax")
    assert grown["train_rows"] > plain["train_rows"] == len(data.train)
    assert f"rte {grown['train_rows']:,}" in result.notes[-1]

    never = replace(data, task=replace(data.task, augment=False))
    assert run.augmented("rte", never, str(teacher)) is None
    assert [GLUE[name].task.augment for name in ("stsb", "mnli", "qqp")] == [False] * 3
    assert all(GLUE[name].task.augment for name in ("cola", "sst2", "mrpc", "qnli", "rte"))


def test_a_hub_that_cannot_be_reached_is_asked_once(tmp_path, monkeypatch):
    asked = []

    def unreachable(task, folder):
        asked.append(task)
        raise HubError("offline")

    monkeypatch.setattr("ternarybert.data.load_task", unreachable)
    with pytest.raises(DataError, match="--data"):
        reproduce("main", tmp_path / "out")
    assert len(asked) == 1
    assert not (tmp_path / "out").exists()
