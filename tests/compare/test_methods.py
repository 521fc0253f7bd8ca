"""Every method from teacher to figures, on a tiny model."""

import json
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from transformers import AlbertConfig, AlbertForSequenceClassification, BertConfig, DistilBertConfig
from transformers import DistilBertForSequenceClassification as DistilBert

from ternarybert.compare.cells import Widths
from ternarybert.compare.hessian import layer_sensitivities, mixed_bits
from ternarybert.compare.methods import METHODS, MethodInput
from ternarybert.compare.run import train_method
from ternarybert.data import SQUAD, TaskData
from ternarybert.errors import OptionError
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.training.callbacks import TrainingCallback
from ternarybert.training.finetune import usual_schedule
from ternarybert.training.optimizer import OPTIMIZERS
from ternarybert.training.options import TrainingOptions
from ternarybert.training.teacher import Teacher
from ternarybert.training.time_budget import TimeBudget
from tests import tiny

QUICK = TrainingOptions(device="cpu", evaluations=2, max_steps=6)
# Of the tiny teacher, 2-2-8 of our own first; every other must be what its bits say.
CELLS = [
    ("ternarybert", "2-2-8"),
    ("ternarybert", "8-8-8"),
    ("tinybert", "32-32-32"),
    ("tinybert", "2-2-8"),
    ("q2bert", "2-8-8"),
    ("q8bert", "8-8-8"),
    ("qbert", "2-8-8"),
    ("qbert", "2/3-8-8"),
    ("gobo", "3-4-32"),
    ("quant-noise", "PQ"),
    ("quant-noise", "8-8-8"),
    ("minmax", "8-8-8"),
    ("layerdrop", "32-32-32"),
]


def given(shared, teacher, bits, **more):
    recipe = PRESETS["default"]
    if bits != "PQ" and "/" not in bits and not bits.startswith("3-4"):
        recipe = recipe.with_bits(bits)
    return MethodInput(shared, teacher, bits, recipe, **more)


@pytest.mark.parametrize("method, bits", CELLS, ids=lambda value: value)
def test_every_method_gives_figures(method, bits, shared, teacher, tmp_path):
    report = train_method(method, given(shared, teacher, bits), tmp_path / "cell", QUICK)
    assert json.loads(json.dumps(report))["method"] == method
    assert {"accuracy", "agreement"} <= set(report["student"]["final"]["scores"])
    assert report["steps"] == (0 if method in ("gobo", "minmax") else 6)
    if bits == "PQ":  # a codebook for every matrix is more than matrices as tiny as these
        assert report["size"]["bits"]["codebooks"] > report["size"]["bits"]["codes"]
    else:
        assert 0 < report["size"]["bytes"] < report["teacher_size"]["bytes"]
    assert report["size"]["ratio"] == report["teacher_size"]["bytes"] / report["size"]["bytes"]
    trained = method not in ("gobo", "minmax")
    assert [path.name for path in tmp_path.glob("cell*")] == (["cell.work"] if trained else [])


def test_eight_bits_answer_as_the_teacher_does(shared, teacher, tmp_path):
    report = train_method("minmax", given(shared, teacher, "8-8-8"), tmp_path / "cell", QUICK)
    assert report["student"]["final"]["scores"]["agreement"] >= 90.0


def test_a_finished_model_that_answers_questions_is_judged_at_its_own_threshold(tmp_path):
    teacher = tiny.save(tmp_path / "teacher", make=tiny.answerer)
    task = replace(SQUAD["squad_v2"], max_length=40, stride=16)
    asked = TaskData(task, tiny.questions(8, silent=True), {"dev": tiny.questions(24, start=60, silent=True)})
    shared = Teacher.load(teacher, asked)
    scores = train_method("minmax", given(shared, teacher, "8-8-8"), tmp_path / "cell", QUICK)["student"]["final"][
        "scores"
    ]
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    assert 0 <= scores["agreement"] <= 100


@pytest.mark.parametrize("kind", ["distilbert", "albert"])
def test_other_architectures_are_fine_tuned(kind, shared, teacher, tmp_path):
    known = tiny.tokenizer()
    shape = {"vocab_size": len(known), "max_position_embeddings": 64}
    model = (
        DistilBert(DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, **shape))
        if kind == "distilbert"
        else AlbertForSequenceClassification(
            AlbertConfig(embedding_size=16, hidden_size=32, num_attention_heads=4, intermediate_size=48, **shape)
        )
    )
    model.save_pretrained(tmp_path / "source")
    known.save_pretrained(tmp_path / "source")
    with pytest.raises(OptionError, match="--source"):
        train_method(kind, given(shared, teacher, "32-32-32"), tmp_path / "cell", QUICK)
    report = train_method(
        kind, given(shared, teacher, "32-32-32", source=str(tmp_path / "source")), tmp_path / "cell", QUICK
    )
    assert report["size"]["bytes"] == 4 * sum(p.numel() for p in model.parameters())
    assert report["steps"] == 6


def test_a_student_can_start_from_a_pre_trained_model(shared, teacher, tmp_path):
    tiny.bert(seed=5, vocab_size=len(tiny.tokenizer())).bert.save_pretrained(tmp_path / "encoder")
    told = given(shared, teacher, "2-2-8", source=str(tmp_path / "encoder"))
    theirs = METHODS["ternarybert"](told).model.base_model.embeddings.word_embeddings.weight
    ours = METHODS["ternarybert"](given(shared, teacher, "2-2-8")).model.base_model.embeddings.word_embeddings.weight
    assert not torch.equal(theirs, ours)
    assert train_method("ternarybert", told, tmp_path / "cell", QUICK)["steps"] == 6


def test_the_teacher_is_asked_once_for_all_students(shared, teacher, tmp_path):
    settings = TrainingOptions(device="cpu", evaluations=1, max_steps=16)
    asked = []
    shared.model.register_forward_hook(lambda *_: asked.append(1))
    train_method("ternarybert", given(shared, teacher, "2-2-8"), tmp_path / "a", settings)
    first, memory = len(asked), shared.cache
    assert memory is not None and len(memory.outputs) == len(shared.data.train)
    train_method("ternarybert", given(shared, teacher, "8-8-8"), tmp_path / "b", settings)
    assert shared.cache is memory
    assert len(asked) == first, "nothing is computed twice"
    train_method("q8bert", given(shared, teacher, "8-8-8"), tmp_path / "c", settings)
    assert len(asked) == first, "labels need no teacher"


def test_sharing_the_memory_changes_nothing(shared, teacher, tmp_path):
    settings = TrainingOptions(device="cpu", evaluations=2, max_steps=16)
    alone = train_method("ternarybert", given(shared, teacher, "2-2-8"), tmp_path / "a", settings)
    again = train_method("ternarybert", given(shared, teacher, "2-2-8"), tmp_path / "b", settings)
    assert alone["evaluations"] == again["evaluations"]
    assert alone["train_loss"] == again["train_loss"]


def test_all_methods_can_have_the_same_schedule(shared, teacher, tmp_path):
    schedule = {"schedule.learning_rate": 0.0123, "schedule.batch_size": 16}
    settings = TrainingOptions(device="cpu", evaluations=1)
    steps = {
        method: train_method(method, given(shared, teacher, bits), tmp_path / method, settings, schedule)["steps"]
        for method, bits in (("qbert", "4-8-8"), ("layerdrop", "32-32-32"))
    }
    assert steps == {"qbert": 8, "layerdrop": 8}  # 64 rows, 2 epochs


class StopAt(TrainingCallback):
    def __init__(self, step):
        self.step = step

    def on_step(self, progress):
        if progress.step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method, bits", [("q8bert", "8-8-8"), ("quant-noise", "PQ"), ("layerdrop", "32-32-32")])
def test_interrupted_and_resumed_equals_uninterrupted(method, bits, shared, teacher, tmp_path):
    """The ranges, the codes and the random draws are all part of a checkpoint."""
    options = TrainingOptions(device="cpu", evaluations=4, max_steps=12)
    whole = train_method(method, given(shared, teacher, bits), tmp_path / "whole", options)
    with pytest.raises(KeyboardInterrupt):
        train_method(
            method,
            given(shared, teacher, bits),
            tmp_path / "part",
            replace(options, callbacks=(StopAt(10),)),
        )
    resumed = train_method(method, given(shared, teacher, bits), tmp_path / "part", replace(options, resume=True))
    assert resumed["evaluations"] == whole["evaluations"]
    assert resumed["train_loss"] < 10


@pytest.mark.parametrize("method, bits", [("ternarybert", "2-2-8"), ("q8bert", "8-8-8")])
def test_the_clock_ends_a_run_in_time(method, bits, shared, teacher, tmp_path):
    seconds = 3.0
    # The processor's seconds: other programs on the machine must not decide a test.
    settings = TrainingOptions(device="cpu", time_budget=TimeBudget(seconds, evaluations=3, now=time.process_time))
    shared.evaluate()
    shared.seconds = 1e6  # a teacher that was slow, on a machine that was busy just then, must not end it at once
    report = train_method(method, given(shared, teacher, bits), tmp_path / "cell", settings)
    assert report["seconds"] == pytest.approx(seconds, abs=0.6)
    assert report["steps"] > 10
    assert 2 <= len(report["evaluations"]) <= 4


def test_sensitivities_tell_layers_apart(shared, teacher):
    found = layer_sensitivities(given(shared, teacher, "2/3-8-8").copy_teacher(), shared)
    assert len(found) == 2
    assert all(value > 0 for value in found)
    assert found[0] != found[1]
    assert sorted(mixed_bits(found, 2, 3)) == [2, 3]


def test_bits():
    assert Widths.parse("2/3-8-8") == Widths(2, 8, 8, 3)
    assert Widths.parse("8-8-32") == Widths(8, 8, 32)
    with pytest.raises(OptionError, match="2/3-8-8"):
        Widths.parse("ternary")


def test_our_recipe_is_the_one_that_was_given(shared, teacher):
    recipe = Recipe().with_bits("3-3-8")
    made = METHODS["ternarybert"](MethodInput(shared, teacher, "3-3-8", recipe))
    assert made.recipe == recipe


@pytest.mark.parametrize("method, bits, kind", [("q8bert", "8-8-8", "AdamW"), ("ternarybert", "2-2-8", "BertAdam")])
def test_what_learns_from_labels_has_the_optimizer_of_teachers(
    method, bits, kind, shared, teacher, tmp_path, monkeypatch
):
    made = []

    def recorded(model, schedule, make):
        made.append(make(model, schedule))
        return made[-1]

    for name, make in OPTIMIZERS.items():
        monkeypatch.setitem(OPTIMIZERS, name, partial(recorded, make=make))
    train_method(method, given(shared, teacher, bits), tmp_path / "cell", QUICK)
    assert [type(optimizer).__name__ for optimizer in made] == [kind]


def test_labels_alone_do_not_change_the_optimizer_of_our_own(shared, teacher, tmp_path):
    """The paper's ablation: only the loss differs."""
    bare = {"distill.hidden": 0, "distill.attention": 0, "distill.logits": 0, "distill.labels": 1}
    student = METHODS["ternarybert"](MethodInput(shared, teacher, "2-2-8", PRESETS["default"].override(bare)))
    assert student.recipe is not None
    assert student.training_recipe().schedule == PRESETS["default"].schedule


@pytest.mark.parametrize("width, rate", [(384, 1e-4), (768, 3e-5), (1024, 3e-5)])
def test_wide_models_learn_from_labels_with_a_smaller_rate(width, rate):
    assert usual_schedule(BertConfig(hidden_size=width)).learning_rate == rate


def test_a_long_preparation_costs_steps_and_nothing_else(shared, teacher, tmp_path):
    now, rates = [0.0], []

    class Second(TrainingCallback):
        def on_step(self, progress):
            now[0] += 1.0

        def on_log(self, progress, values):
            rates.append(values["learning_rate"])

    shared.evaluate()
    shared.seconds = 0.0
    clock = TimeBudget(60.0, 2, lambda: now[0])
    now[0] = 40.0  # the method prepared itself
    settings = TrainingOptions(device="cpu", time_budget=clock, callbacks=(Second(),))
    report = train_method("q8bert", given(shared, teacher, "8-8-8"), tmp_path / "cell", settings)
    assert report["steps"] == 20
    highest = usual_schedule(shared.model.config).learning_rate
    assert rates[2] == pytest.approx(highest)  # warm-up over a tenth of what is left
    assert rates[-1] == pytest.approx(highest * 1 / 18)
