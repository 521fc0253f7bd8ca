"""A comparison on a tiny model: interrupted, resumed, in time, and what it writes."""

import time
from contextlib import contextmanager, nullcontext

import pytest

from ternarybert.compare.cells import Cell
from ternarybert.compare.run import Comparison, ComparisonFolder, compare
from ternarybert.compare.tables import markdown, rows_of
from ternarybert.data import ClassificationTask, TaskData
from ternarybert.errors import OptionError, OutputError
from ternarybert.recipe import PRESETS
from ternarybert.training.callbacks import TrainingCallback
from ternarybert.training.options import TrainingOptions
from tests import tiny

CELLS = [Cell("ternarybert", "2-2-8"), Cell("q8bert", "8-8-8"), Cell("gobo", "3-4-32"), Cell("ternarybert", "8-8-8")]
RECIPE = PRESETS["default"].override({"schedule.learning_rate": "1e-3"})


def silent(*_):
    return nullcontext()


def by_steps(teacher, steps=8, **more):
    return Comparison(teacher, RECIPE, options=TrainingOptions(device="cpu", max_steps=steps, evaluations=4), **more)


class Stop(TrainingCallback):
    def on_step(self, progress):
        if progress.step == 7:
            raise KeyboardInterrupt


def watching(seen, stop_in=None):
    @contextmanager
    def watch(cell, number, count):
        seen.append(cell.key)
        yield Stop() if cell == stop_in else None

    return watch


def test_a_killed_comparison_goes_on_without_repeating_anything(data, teacher, tmp_path):
    place, seen = ComparisonFolder(tmp_path / "out"), []
    with pytest.raises(KeyboardInterrupt):
        compare(by_steps(teacher), data, CELLS, place, watching(seen, stop_in=CELLS[1]))
    assert seen == [cell.key for cell in CELLS[:2]]
    assert [place.is_done(cell) for cell in CELLS] == [True, False, False, False]
    first = (place.cells / f"{CELLS[0].key}.json").stat().st_mtime_ns
    work = place.output(CELLS[1]).with_name(f"{CELLS[1].key}.work")
    assert (work / "checkpoint-6").is_dir()

    seen.clear()
    compare(by_steps(teacher), data, CELLS, place, watching(seen))
    assert seen == [cell.key for cell in CELLS[1:]]
    assert (place.cells / f"{CELLS[0].key}.json").stat().st_mtime_ns == first
    assert not work.exists()
    whole = ComparisonFolder(tmp_path / "whole")
    compare(by_steps(teacher), data, CELLS, whole, silent)
    for cell in CELLS:
        mine, theirs = place.result(cell), whole.result(cell)
        assert mine["evaluations"] == theirs["evaluations"]

    seen.clear()
    work.mkdir()  # as a kill leaves it that comes right after the figures were written
    compare(by_steps(teacher), data, CELLS, place, watching(seen))
    assert seen == []
    assert not work.exists()


def test_the_time_is_kept_by_each_cell_and_by_all(data, teacher, tmp_path):
    place = ComparisonFolder(tmp_path / "out")
    # The processor's minutes: other programs on the machine must not decide a test.
    comparison = Comparison(teacher, RECIPE, budget=8 / 60, processor_time=True, options=TrainingOptions(device="cpu"))
    cells = [Cell("ternarybert", "2-2-8"), Cell("q8bert", "8-8-8"), Cell("gobo", "2-2-32"), Cell("minmax", "8-8-8")]
    start = time.process_time()
    compare(comparison, data, cells, place, silent)
    assert time.process_time() - start <= 8 + 1.4
    results = [place.result(cell) for cell in cells]
    for result in results[:2]:
        assert result["seconds"] == pytest.approx(place.seconds, abs=0.6)
        assert result["steps"] > 5

    compare(comparison, data, [*cells, Cell("qbert", "4-8-8")], place, silent)
    assert place.result(Cell("qbert", "4-8-8"))["seconds"] == pytest.approx(place.seconds, abs=0.6)


def test_a_budget_that_is_too_small_is_said(data, teacher, tmp_path):
    tiny_budget = Comparison(teacher, RECIPE, budget=1e-4, options=TrainingOptions(device="cpu"))
    with pytest.raises(OptionError, match=r"0\.0001"):
        compare(tiny_budget, data, CELLS, ComparisonFolder(tmp_path / "out"), silent)


def test_what_cannot_be_run_is_named_and_tried_again(data, teacher, tmp_path):
    place, cell = ComparisonFolder(tmp_path / "out"), Cell("ternarybert", "2-2-8", source="pretrained")
    found = compare(by_steps(teacher), data, [cell, CELLS[2]], place, silent)
    rows = rows_of(place, [cell, CELLS[2]], found)
    assert rows[1].failed == "needs a pre-trained model: --source pretrained=MODEL"
    assert "Not run: TernaryBERT 2-2-8: needs" in markdown(rows, ["accuracy"])
    assert rows[2].failed is None
    compare(by_steps(teacher, sources={"pretrained": teacher}), data, [cell], place, silent)
    assert place.is_done(cell, teacher)
    assert not place.is_done(cell, "another"), "what another model gave is not this one's"


def test_a_start_that_does_not_fit_the_teacher_is_named(data, teacher, tmp_path):
    tiny.bert(hidden_size=64, intermediate_size=32, vocab_size=len(tiny.tokenizer())).save_pretrained(tmp_path / "wide")
    cell, place = Cell("ternarybert", "2-2-8", source="pretrained"), ComparisonFolder(tmp_path / "out")
    found = compare(by_steps(teacher, sources={"pretrained": str(tmp_path / "wide")}), data, [cell], place, silent)
    assert "differ in" in rows_of(place, [cell], found)[1].failed


def test_a_folder_knows_all_its_cells(data, teacher, tmp_path):
    place = ComparisonFolder(tmp_path / "out")
    changed = Cell("ternarybert", "2-2-8", "no scores", (("distill.attention", "0"),), seed=3)
    compare(by_steps(teacher), data, [CELLS[2], changed], place, silent)
    assert place.with_others(CELLS[:1]) == [CELLS[0], CELLS[2], changed]


def test_labels_are_needed_by_methods_that_train_on_them(data, teacher, tmp_path):
    task = ClassificationTask("texts", ("text",), None, None, ("agreement",), max_length=32, batch_size=8, epochs=1)
    bare = TaskData(task, data.train.remove_columns("label"), {"dev": data.evals["dev"].remove_columns("label")})
    place = ComparisonFolder(tmp_path / "out")
    found = compare(by_steps(teacher), bare, CELLS[:3], place, silent)
    rows = rows_of(place, CELLS[:3], found)
    assert [row.failed is None for row in rows] == [True, True, False, True]
    assert "but the data have none" in rows[2].failed
    assert rows[1].scores.keys() == {"agreement"}


def test_a_folder_holds_one_comparison(data, teacher, tmp_path):
    place = ComparisonFolder(tmp_path / "out")
    compare(by_steps(teacher), data, CELLS[2:3], place, silent)
    with pytest.raises(OutputError, match="number of steps"):
        compare(by_steps(teacher, steps=9), data, CELLS[2:3], place, silent)
    compare(by_steps(teacher, steps=9), data, CELLS[2:3], place, silent, force=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="other"):
        compare(by_steps(teacher), data, CELLS, ComparisonFolder(tmp_path / "other"), silent, force=True)
    assert (tmp_path / "other" / "thesis.txt").exists()


def test_seeds_are_taken_together(data, teacher, tmp_path):
    cells = [Cell("q8bert", "8-8-8", seed=seed) for seed in (1, 2)]
    place = ComparisonFolder(tmp_path / "out")
    found = compare(by_steps(teacher), data, cells, place, silent)
    rows = rows_of(place, cells, found)
    assert len(rows) == 2
    scores = [place.result(cell)["student"]["final"]["scores"]["accuracy"] for cell in cells]
    assert rows[1].scores["accuracy"] == pytest.approx(sum(scores) / 2)
    assert rows[1].seeds == (1, 2)
    assert rows[1].spread["accuracy"] >= 0
    assert "±" in markdown(rows, ["accuracy"])
