"""The whole job on a tiny model: what it writes, what it refuses, and that processes and restarts do not show."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForSequenceClassification

import ternarybert
from ternarybert import packed
from ternarybert.data import ClassificationTask, TaskData
from ternarybert.errors import DataError, OutputError, UnsupportedModelError
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.training.batches import predict_logits
from ternarybert.training.callbacks import TrainingCallback
from ternarybert.training.checkpoints import last_checkpoint
from ternarybert.training.finetune import finetune
from ternarybert.training.heads.classification import tokenize_texts
from ternarybert.training.history import History
from ternarybert.training.options import TrainingOptions
from ternarybert.training.report import RunReport, StepEvaluation
from ternarybert.training.ternarize import ternarize
from tests import tiny
from tests.processes import fork, fork_ranks
from tests.training.conftest import rows

RECIPE = PRESETS["default"].override({"schedule.learning_rate": "1e-3"})
EVERYTHING = {
    "distill.normalize": "variance",
    "distill.attention_loss": "maps",
    "distill.intervention": "0.8",
    "schedule.tail": "0.2",
    "schedule.decay": "cosine",
    "schedule.average": "0.3",
    "weight.granularity": "row",
}
QUICK = TrainingOptions(device="cpu", evaluations=2)
FOUR = TrainingOptions(device="cpu", evaluations=4)


class StopAt(TrainingCallback):
    """Pulls the plug after some steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, progress):
        if progress.step == self.step:
            raise KeyboardInterrupt


def test_a_teacher_is_made_and_ternarized(data, tmp_path):
    start = tiny.save(tmp_path / "start")
    settings = {"schedule.epochs": "12", "schedule.gradient_clip": "global"}
    eager = Recipe().override({**settings, "schedule.learning_rate": "3e-3", "schedule.warmup": "0.1"})
    report = finetune(start, data, tmp_path / "teacher", eager, QUICK)
    assert report.best.scores["accuracy"] == 100.0
    assert report.losses[-1]["loss"] < report.losses[0]["loss"]
    teacher = AutoModelForSequenceClassification.from_pretrained(tmp_path / "teacher")
    assert teacher.config.id2label == {0: "neg", 1: "pos"}

    metrics = ternarize(str(tmp_path / "teacher"), data, tmp_path / "out", RECIPE.override(settings), QUICK)
    short = replace(QUICK, bf16=True)
    other = ternarize(str(tmp_path / "teacher"), data, tmp_path / "short", RECIPE.override(settings), short)
    assert (metrics.precision, other.precision) == ("float32", "bf16")
    assert other.best.scores["accuracy"] >= 90.0
    assert 0 < abs(other.losses[-1]["loss"] - metrics.losses[-1]["loss"]) < 0.1 * metrics.losses[-1]["loss"]
    assert metrics.teacher.scores["dev"]["accuracy"] == 100.0
    assert metrics.best.scores["accuracy"] >= 90.0
    assert {"accuracy", "agreement"} <= set(metrics.final.scores)
    assert metrics.examples_per_second > 0
    assert metrics.seed == 42
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {
        "config.json",
        "ternarybert.safetensors",
        "recipe.yaml",
        "metrics.json",
        "README.md",
        "tokenizer.json",
    } <= written
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == json.loads(json.dumps(metrics.to_dict()))
    assert RunReport.from_dict(json.loads((tmp_path / "out" / "metrics.json").read_text())) == metrics
    assert RunReport.from_dict(json.loads((tmp_path / "teacher" / "finetune.json").read_text())) == report
    assert Recipe.load(tmp_path / "out" / "recipe.yaml") == RECIPE.override(settings)
    assert not (tmp_path / "out.work").exists()


def test_a_teacher_learns_with_the_recipes_dropout(data, tmp_path):
    """As one whose configuration says so, while its own configuration stays."""
    rates = [{"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate} for rate in (0.5, 0.0)]
    half, none = (tiny.save(tmp_path / str(i), **rate) for i, rate in enumerate(rates))
    without = Recipe().override({"schedule.learning_rate": "1e-3", "schedule.dropout": "0"})
    told = finetune(half, data, tmp_path / "told", without, QUICK)
    same = finetune(none, data, tmp_path / "same", without, QUICK)
    kept = finetune(half, data, tmp_path / "kept", without.override({"schedule.dropout": "null"}), QUICK)
    assert told.losses == same.losses != kept.losses
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "told").config.hidden_dropout_prob == 0.5


@pytest.mark.parametrize(
    ("evaluations", "steps"),
    [(3, [6, 11, 16]), (6, [3, 6, 8, 11, 14, 16]), (2, [8, 16]), (1, [16]), (99, [*range(1, 17)])],
)
def test_there_are_as_many_evaluations_as_asked_for(data, teacher, tmp_path, evaluations, steps):
    """The last of them at the end."""
    settings = replace(QUICK, evaluations=evaluations)
    metrics = ternarize(teacher, data, tmp_path / "out", RECIPE.override({"schedule.epochs": "2"}), settings)
    assert [evaluation.step for evaluation in metrics.evaluations] == steps


def test_what_is_written_is_what_was_evaluated(data, teacher, tmp_path):
    """The packed folder gives the agreement that was reported."""
    metrics = ternarize(teacher, data, tmp_path / "out", RECIPE, QUICK)
    student = ternarybert.load_torch(tmp_path / "out")
    tokenizer = tiny.tokenizer()
    features = tokenize_texts(data, tokenizer)
    original = AutoModelForSequenceClassification.from_pretrained(teacher)
    ours, theirs = (predict_logits(m, features.evals["dev"], tokenizer).argmax(1) for m in (student, original))
    assert metrics.best.scores["agreement"] == pytest.approx(100 * (ours == theirs).mean())


@pytest.mark.parametrize("method", ["twn", "lat", "lsq"])
def test_interrupted_and_resumed_equals_uninterrupted(data, teacher, tmp_path, method):
    recipe = RECIPE.override({"weight.method": method, "embedding.method": method})
    if method == "lsq":  # with everything else that a checkpoint has to keep
        recipe = recipe.override(EVERYTHING)
    whole = ternarize(teacher, data, tmp_path / "whole", recipe, TrainingOptions(device="cpu", evaluations=4))
    interrupted = TrainingOptions(device="cpu", evaluations=4, callbacks=(StopAt(10),))
    with pytest.raises(KeyboardInterrupt):
        ternarize(teacher, data, tmp_path / "part", recipe, interrupted)
    assert not (tmp_path / "part").exists()
    with pytest.raises(OutputError, match="--resume"):
        ternarize(teacher, data, tmp_path / "part", recipe, TrainingOptions(device="cpu"))
    resume = TrainingOptions(device="cpu", evaluations=4, resume=True)
    resumed = ternarize(teacher, data, tmp_path / "part", recipe, resume)
    bytes_of = [(tmp_path / name / "ternarybert.safetensors").read_bytes() for name in ("whole", "part")]
    assert bytes_of[0] == bytes_of[1]
    assert whole.evaluations == resumed.evaluations
    assert whole.losses == resumed.losses


@pytest.mark.parametrize("average", ["0", "0.5"])
def test_learned_scales_are_packed_as_they_were_evaluated(data, teacher, tmp_path, average):
    """By torch, by the engine and after loading; TWN's folder has the same tensors with the same shapes."""
    settings = {**EVERYTHING, "schedule.average": average}
    recipe = RECIPE.override({"weight.method": "lsq", "embedding.method": "lsq", **settings})
    metrics = ternarize(teacher, data, tmp_path / "out", recipe, QUICK)
    ternarize(teacher, data, tmp_path / "twn", RECIPE.override({"weight.granularity": "row"}), QUICK)
    ours, theirs = (load_file(tmp_path / name / "ternarybert.safetensors") for name in ("out", "twn"))
    assert {name: (t.shape, t.dtype) for name, t in ours.items()} == {
        name: (t.shape, t.dtype) for name, t in theirs.items()
    }
    features, texts = tokenize_texts(data, tiny.tokenizer()), data.evals["dev"]["text"]
    student = ternarybert.load_torch(tmp_path / "out")
    logits = predict_logits(student, features.evals["dev"], tiny.tokenizer())
    np.testing.assert_allclose(ternarybert.load(tmp_path / "out").logits(texts), logits, rtol=0, atol=1e-6)
    accuracy = 100 * (logits.argmax(1) == np.asarray(data.evals["dev"]["label"])).mean()
    assert metrics.best.scores["accuracy"] == pytest.approx(accuracy)


def test_the_losses_over_the_steps(data, teacher, tmp_path):
    """One entry for every step here; the loss is the weighted sum of its terms, which are means over the batches."""
    metrics = ternarize(teacher, data, tmp_path / "out", RECIPE, TrainingOptions(device="cpu", evaluations=4))
    losses, weights = metrics.losses, RECIPE.distill
    assert [entry["step"] for entry in losses] == list(range(1, metrics.steps + 1))
    for entry in losses:
        terms = {name: value for name, value in entry.items() if name not in ("step", "loss")}
        assert terms.keys() == {"hidden", "attention", "logits"}
        total = sum(getattr(weights, name) * value for name, value in terms.items())
        assert entry["loss"] == pytest.approx(total, rel=1e-4)
    mean = sum(entry["loss"] for entry in losses) / len(losses)
    assert metrics.train_loss == pytest.approx(mean, rel=1e-4)


def test_a_resumed_run_wants_the_same_rows_and_its_best_student(data, teacher, tmp_path):
    out, begun = tmp_path / "out", TrainingOptions(device="cpu", evaluations=4, callbacks=(StopAt(10),))
    with pytest.raises(KeyboardInterrupt):
        ternarize(teacher, data, out, RECIPE, begun)
    again = TrainingOptions(device="cpu", evaluations=4, resume=True)
    for other in (replace(data, train=rows(64, start=1)), replace(data, evals={"dev": rows(20, start=7)})):
        with pytest.raises(OutputError, match="different data"):
            ternarize(teacher, other, out, RECIPE, again)
    with pytest.raises(OutputError, match="different precision"):
        ternarize(teacher, data, out, RECIPE, replace(again, bf16=True))
    with pytest.raises(OutputError, match="different choice of the model"):
        ternarize(teacher, data, out, RECIPE, replace(again, keep_last=True))
    weights = tmp_path / "out.work" / "best" / "ternarybert.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(OutputError, match="damaged or missing"):
        ternarize(teacher, data, out, RECIPE, again)
    weights.write_bytes(whole)
    history = json.loads((tmp_path / "out.work" / "history.json").read_text())
    (tmp_path / "out.work" / "history.json").write_text(json.dumps(history | {"seconds": 1000.0}))
    assert 1000 < ternarize(teacher, data, out, RECIPE, again).seconds < 1100  # the time before counts too


def test_of_equals_the_best_agrees_most_or_is_the_last():
    history = History("accuracy")
    history.add(StepEvaluation(1, {"accuracy": 90.0, "agreement": 10.0}, {}))
    assert history.add(StepEvaluation(2, {"accuracy": 90.0, "agreement": 95.0}, {}))
    assert not history.add(StepEvaluation(3, {"accuracy": 90.0, "agreement": 94.0}, {}))
    assert history.add(StepEvaluation(4, {"accuracy": 90.0, "agreement": 95.0}, {}))
    assert not history.add(StepEvaluation(5, {"accuracy": 89.0, "agreement": 99.0}, {}))


def test_the_last_student_is_kept_whatever_its_score(data, teacher, tmp_path):
    """It learns from the labels and is judged by their opposites: the more it learns, the lower its score."""
    terms = {"distill.hidden": "0", "distill.attention": "0", "distill.logits": "0", "distill.labels": "1"}
    recipe = RECIPE.override({**terms, "schedule.learning_rate": "3e-3", "schedule.epochs": "6"})
    data.evals["dev"] = data.evals["dev"].map(lambda row: {"label": 1 - row["label"]})
    for keep_last, choose in ((True, min), (False, max)):
        out, settings = tmp_path / choose.__name__, TrainingOptions(device="cpu", evaluations=4, keep_last=keep_last)
        metrics = ternarize(teacher, data, out, recipe, settings)
        scores = [evaluation.scores["accuracy"] for evaluation in metrics.evaluations]
        assert scores[0] > scores[-1] == min(scores)
        assert metrics.best.scores["accuracy"] == choose(scores)
        assert ternarybert.evaluate(out, data)["scores"]["accuracy"] == choose(scores)
        assert metrics.kept == ("last" if keep_last else "best")
        card = (out / "README.md").read_text()
        assert ("that of the last evaluation" in card) == keep_last
        assert ("a best of\n4 evaluations" in card) == (not keep_last)


def test_texts_are_cut_in_use_as_in_training(data, teacher, tmp_path):
    short = replace(data, task=replace(data.task, max_length=9))
    ternarize(teacher, short, tmp_path / "out", RECIPE, replace(QUICK, max_steps=1))
    assert ternarybert.load(tmp_path / "out").max_length == 9
    assert ternarybert.load(tmp_path / "out", max_length=20).max_length == 20


def test_two_processes_equal_one_with_twice_the_batch(tmp_path):
    """In float64: the processes' gradients are added in another order, and a weight near a threshold is 0 or α."""
    teacher = tiny.save(tmp_path / "teacher", dtype=torch.float64)
    worker = ["-m", "tests.training.worker", teacher]
    one, two = fork(*worker, tmp_path / "one", 8), fork_ranks(2, *worker, tmp_path / "two", 4)
    for process in (one, two):
        _, err = process.communicate()
        assert process.returncode == 0, err
    checkpoints = [Path(last_checkpoint(tmp_path / f"{name}.work")) for name in ("one", "two")]
    one, other = (load_file(checkpoint / "model.safetensors") for checkpoint in checkpoints)
    for name in one:
        assert np.abs(one[name] - other[name]).max() < 1e-5, name
    agree = [packed.read(tmp_path / n).metrics["student"]["final"]["scores"]["agreement"] for n in ("one", "two")]
    assert agree[0] == agree[1]


def test_resumed_processes_continue_with_their_own_losses(tmp_path):
    """The checkpoint lies between two logs, so each process has sums of its own to keep."""
    teacher = tiny.save(tmp_path / "teacher", dtype=torch.float64)

    def run(name, *mode):
        return fork_ranks(2, "-m", "tests.training.worker", teacher, tmp_path / name, 4, 22, *mode)

    whole, stopped = run("whole"), run("stopped", "stop")
    assert [whole.communicate() and whole.returncode, stopped.communicate() and stopped.returncode] == [0, 3]
    shutil.copytree(tmp_path / "stopped.work", tmp_path / "lost.work")
    resumed, lost = run("stopped", "resume"), run("lost", "lose")
    _, err = resumed.communicate()
    assert resumed.returncode == 0, err
    one, other = (packed.read(tmp_path / name).metrics for name in ("whole", "stopped"))
    assert 11 not in [entry["step"] for entry in one["losses"]]
    assert one["losses"] == other["losses"]
    assert one["train_loss"] == other["train_loss"]
    _, err = lost.communicate()
    assert lost.returncode != 0
    assert re.search(r"OutputError.*11, 0", err)


def test_unlabeled_text_is_enough(data, teacher, tmp_path):
    task = ClassificationTask("texts", ("text",), None, None, ("agreement",), max_length=32, batch_size=8, epochs=1)
    bare = TaskData(task, data.train.remove_columns("label"), {"dev": data.evals["dev"].remove_columns("label")})
    metrics = ternarize(teacher, bare, tmp_path / "out", RECIPE, QUICK)
    assert metrics.metric == "agreement"
    assert metrics.teacher.scores == {"dev": {}}


def test_regression(tmp_path, data):
    task = ClassificationTask("stars", ("text",), "label", None, ("spearman",), regression=True, batch_size=8, epochs=1)
    scored = rows(32).map(lambda row: {"score": float(row["label"]) + 0.5}).remove_columns("label")
    scored = scored.rename_column("score", "label")
    teacher = tiny.save(tmp_path / "teacher", num_labels=1)
    metrics = ternarize(teacher, TaskData(task, scored, {"dev": scored}), tmp_path / "out", RECIPE, QUICK)
    assert {"spearman", "agreement"} <= set(metrics.best.scores)


def test_nothing_existing_is_lost(data, teacher, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    for settings in (QUICK, TrainingOptions(device="cpu", force=True)):
        with pytest.raises(OutputError, match=re.escape(str(out))):
            ternarize(teacher, data, out, RECIPE, settings)
    assert (out / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_teacher_may_be_a_path(data, tmp_path, kind):
    missing = tmp_path / "missing"
    for job in (ternarize, finetune):
        with pytest.raises(UnsupportedModelError, match=re.escape(str(missing))):
            job(kind(missing), data, tmp_path / "out", RECIPE, QUICK)
    with pytest.raises(UnsupportedModelError, match=re.escape(str(missing))):
        ternarybert.evaluate(kind(missing), data)
    with pytest.raises(UnsupportedModelError, match="missing"):
        ternarize(Path("missing"), data, tmp_path / "out", RECIPE, QUICK)  # a path, not the name of a hub model


def test_models_and_data_that_do_not_fit(data, teacher, tmp_path):
    headless = tmp_path / "headless"
    tiny.bert().bert.save_pretrained(headless)
    with pytest.raises(UnsupportedModelError, match="no classification head"):
        ternarize(str(headless), data, tmp_path / "a", RECIPE, QUICK)
    three = tiny.save(tmp_path / "three", num_labels=3)
    with pytest.raises(DataError, match="3 outputs, but the data have 2"):
        ternarize(three, data, tmp_path / "b", RECIPE, QUICK)
    deep = tiny.save(tmp_path / "deep", num_hidden_layers=4)
    with pytest.raises(UnsupportedModelError, match="layer_map=uniform"):
        ternarize(deep, data, tmp_path / "c", RECIPE, QUICK, student=teacher)
    with pytest.raises(DataError, match="no training rows"):
        ternarize(teacher, TaskData(data.task, None, data.evals), tmp_path / "d", RECIPE, QUICK)
    shallow = RECIPE.override({"distill.layer_map": "uniform", "schedule.stretch": 1.0})
    assert ternarize(deep, data, tmp_path / "e", shallow, QUICK, student=teacher).steps == 16
