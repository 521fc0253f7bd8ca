"""From reviews to the table: the functions, the command, a kill in the middle, and the second run."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ternarybert import packed
from ternarybert.cli import main
from ternarybert.demo import demo, sources
from ternarybert.demo.demo import DemoFolder, demo_settings, make_student, make_teacher, prepare
from ternarybert.demo.measure import measure, time_models
from ternarybert.errors import DemoError, OutputError
from ternarybert.recipe import Recipe
from ternarybert.runtime import load
from ternarybert.training.callbacks import TrainingCallback

from .conftest import TINY_PLAN


@pytest.fixture
def command(monkeypatch, capfd, encoder, reviews_file, tmp_path):
    """The command in this process, on the tiny sources."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "check_installed", lambda: None)
    monkeypatch.setattr(sources, "encoder_folder", lambda: encoder)
    monkeypatch.setattr(sources, "reviews_file", lambda: reviews_file)
    monkeypatch.setattr(demo, "FULL", TINY_PLAN)
    monkeypatch.setattr(demo, "QUICK", TINY_PLAN)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["ternarybert", "demo", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return SimpleNamespace(code=end.value.code or 0, out=out, err=err)

    return call


def test_the_whole_way_and_the_second_run(command, tmp_path, monkeypatch):
    first = command("--threads", "1")
    assert first.code == 0, first.err
    for words in ("1 of 3", "2 of 3", "3 of 3", "accuracy", "smaller", "ms per sentence", "memory of the process"):
        assert words in first.out
    assert "step " in first.out  # progress in a log, too
    place = DemoFolder(tmp_path / "ternarybert-demo")
    assert "ternarybert predict ternarybert-demo/ternary" in first.out
    assert {entry.name for entry in place.folder.iterdir()} == {
        "reviews.csv", "reviews-dev.csv", "reviews-test.csv", "teacher", "ternary", "results.json", "demo.json",
    }  # fmt: skip

    stamp = (place.ternary / "model.safetensors").stat().st_mtime_ns
    second = command("--json")
    assert second.code == 0
    assert "holds a finished demo" in second.err and "of 3" not in second.err
    assert (place.ternary / "model.safetensors").stat().st_mtime_ns == stamp
    report = json.loads(second.out)
    assert report["rows"] == 20 and report["folder"] == "ternarybert-demo"
    assert report["student"]["ms"] > 0 and report["teacher"]["memory"] > report["student"]["memory"] > 0
    assert report["answers"][0]["label"] in ("negative", "positive")

    # Whether both are measured again, not how: that takes two processes, one of which imports torch.
    known, measured = place.results(), []
    monkeypatch.setattr("ternarybert.demo.measure.measure", lambda *given: measured.append(given) or known)
    third = command("--measure")
    assert len(measured) == 1
    assert "3 of 3" in third.out and "(done)" in third.out
    assert (place.ternary / "model.safetensors").stat().st_mtime_ns == stamp
    again = command("--again")
    assert again.code == 0 and "(done)" not in again.out and len(measured) == 2
    assert (place.ternary / "model.safetensors").stat().st_mtime_ns != stamp


def test_what_is_packed_answers_as_the_student_did(tmp_path, encoder, reviews, monkeypatch):
    place = DemoFolder(tmp_path / "demo")
    prepare(place, TINY_PLAN, encoder, reviews)
    make_teacher(place, TINY_PLAN, encoder)
    make_student(place, TINY_PLAN)
    model = packed.read(place.ternary)
    assert {t.packing for t in model.tensors.values() if isinstance(t, packed.PackedTensor)} == {"dense"}
    assert model.metrics["train_rows"] == 48
    no_times = {"torch": {}, "native": {}}  # only scores here
    monkeypatch.setattr("ternarybert.demo.measure.time_models", lambda *_: no_times)
    results = measure(place, TINY_PLAN)
    assert results["student"]["bytes"] * 3 < results["teacher"]["bytes"]
    with load(place.ternary) as ours:
        right = [ours.predict(r.text).label == r.label for r in sources.split(reviews)[2][:20]]
    assert results["student"]["accuracy"] == pytest.approx(100 * sum(right) / 20)


class Stop:
    """Interrupts a run after its first checkpoint, as Ctrl-C does."""

    def __new__(cls):

        class Callback(TrainingCallback):
            def on_checkpoint(self, progress):
                raise KeyboardInterrupt

        return Callback()


def test_goes_on_where_it_was_stopped(tmp_path, encoder, reviews, monkeypatch):
    place = DemoFolder(tmp_path / "demo")
    prepare(place, TINY_PLAN, encoder, reviews)
    with pytest.raises(KeyboardInterrupt):
        make_teacher(place, TINY_PLAN, encoder, Stop())
    assert not place.teacher.exists()
    prepare(place, TINY_PLAN, encoder, reviews)
    make_teacher(place, TINY_PLAN, encoder)
    with pytest.raises(KeyboardInterrupt):
        make_student(place, TINY_PLAN, Stop())
    assert not place.student.exists() and not place.ternary.exists()

    from ternarybert.training import trainer as run

    resumed = []
    original = run.last_checkpoint
    monkeypatch.setattr(run, "last_checkpoint", lambda work: resumed.append(original(work)) or resumed[-1])
    make_student(place, TINY_PLAN)
    assert resumed and resumed[0].endswith("checkpoint-1")
    assert packed.is_packed(place.ternary)


def test_stopped_between_training_and_packing(tmp_path, encoder, reviews, monkeypatch):
    place = DemoFolder(tmp_path / "demo")
    prepare(place, TINY_PLAN, encoder, reviews)
    make_teacher(place, TINY_PLAN, encoder)
    with monkeypatch.context() as patch:
        patch.setattr(demo, "pack_densely", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            make_student(place, TINY_PLAN)
    stamp = (place.student / "model.safetensors").read_bytes()
    make_student(place, TINY_PLAN, Stop())  # would stop if it trained
    assert packed.is_packed(place.ternary) and stamp


def test_ctrl_c_is_one_line(command, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "make_teacher", stop)
    result = command()
    assert result.code == 130
    assert "same command" in result.err


def test_a_folder_of_something_else_stays(tmp_path, encoder, reviews):
    place = DemoFolder(tmp_path / "demo")
    place.folder.mkdir()
    (place.folder / "thesis.txt").write_text("ten years of work")
    place.clear()
    with pytest.raises(OutputError, match=re.escape(str(place.folder))):
        prepare(place, TINY_PLAN, encoder, reviews)
    assert os.listdir(place.folder) == ["thesis.txt"]


def test_another_plan_is_refused_and_again_allows_it(tmp_path, encoder, reviews):
    place, other = DemoFolder(tmp_path / "demo"), replace(TINY_PLAN, train_rows=40)
    prepare(place, TINY_PLAN, encoder, reviews)
    (place.folder / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="--again"):
        prepare(place, other, encoder, reviews)
    place.clear()
    prepare(place, other, encoder, reviews)
    assert (place.folder / "notes.txt").is_file()
    assert len(place.train.read_text(encoding="utf-8").splitlines()) == 41


def test_results_of_something_else_are_not_shown(command, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "results.json").write_text('{"goals": 3}')
    refused = command("-o", "mine")
    assert refused.code == 2
    assert "mine" in refused.err and "--output" in refused.err
    assert os.listdir(tmp_path / "mine") == ["results.json"]


def test_results_of_another_plan_are_not_shown(command, tmp_path, monkeypatch, encoder, reviews):
    place = DemoFolder(tmp_path / "made")
    prepare(place, TINY_PLAN, encoder, reviews)
    place.write_results({"rows": 20})
    assert place.results(demo_settings(TINY_PLAN, encoder, reviews)) == {"rows": 20}
    assert place.results() == {"rows": 20}
    assert place.results(demo_settings(replace(TINY_PLAN, train_rows=40), encoder, reviews)) is None
    monkeypatch.setattr(demo, "FULL", replace(TINY_PLAN, train_rows=40))
    refused = command("-o", "made")
    assert refused.code == 2
    assert "made" in refused.err and "--again" in refused.err


def test_work_with_another_recipe_is_dropped_by_again(command, tmp_path, monkeypatch, encoder, reviews):
    place = DemoFolder(tmp_path / "made")
    prepare(place, TINY_PLAN, encoder, reviews)
    with pytest.raises(KeyboardInterrupt):
        make_teacher(place, TINY_PLAN, encoder, Stop())
    other = Recipe().override({"schedule.learning_rate": 1e-5, "schedule.epochs": 1.0})
    monkeypatch.setattr(demo.DemoPlan, "teacher_recipe", lambda *_: other)
    refused = command("-o", "made")
    assert refused.code == 2
    assert re.search(r"made/teacher\.work .*recipe.*--again", refused.err)


@pytest.mark.parametrize("engine", ["native", "unheard-of"])
def test_a_model_that_cannot_be_timed_is_an_error_with_the_reason(tmp_path, engine):
    with pytest.raises(DemoError, match="nowhere" if engine == "native" else engine):
        time_models({engine: tmp_path / "nowhere"}, ["a film"], rounds=1)


def test_the_students_process_imports_no_torch():
    code = (
        "import sys, ternarybert.demo.measure, ternarybert.runtime; assert not {'torch', 'psutil'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
