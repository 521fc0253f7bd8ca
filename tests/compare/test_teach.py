"""Every method from teacher to figures, on a tiny model."""

import json
import time
from dataclasses import replace

import pytest
import torch
from transformers import AlbertConfig, AlbertForSequenceClassification, BertConfig, DistilBertConfig, TrainerCallback
from transformers import DistilBertForSequenceClassification as DistilBert

from ternarybert.compare.cells import Widths
from ternarybert.compare.hessian import layer_sensitivities, mixed_bits
from ternarybert.compare.methods import METHODS, Lesson
from ternarybert.compare.run import teach
from ternarybert.data import SQUAD, SquadData
from ternarybert.errors import OptionError
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.student import expose_scores
from ternarybert.training.finetune import usual_schedule
from ternarybert.training.heads import head_of
from ternarybert.training.models import load_tokenizer, load_trained
from ternarybert.training.options import Settings
from ternarybert.training.teacher import Classroom
from ternarybert.training.ternarize import check_data
from ternarybert.training.time_budget import Clock
from tests import tiny

QUICK = Settings(device="cpu", evaluations=2, max_steps=6)
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


def lesson(room, teacher, bits, **more):
    recipe = PRESETS["default"]
    if bits != "PQ" and "/" not in bits and not bits.startswith("3-4"):
        recipe = recipe.with_bits(bits)
    return Lesson(room, teacher, bits, recipe, **more)


@pytest.mark.parametrize("method, bits", CELLS, ids=lambda value: value)
def test_every_method_gives_figures(method, bits, room, teacher, tmp_path):
    report = teach(method, lesson(room, teacher, bits), tmp_path / "cell", QUICK)
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


def test_eight_bits_answer_as_the_teacher_does(room, teacher, tmp_path):
    report = teach("minmax", lesson(room, teacher, "8-8-8"), tmp_path / "cell", QUICK)
    assert report["student"]["final"]["scores"]["agreement"] >= 90.0


def test_a_finished_model_that_answers_questions_is_judged_at_its_own_threshold(tmp_path):
    teacher = tiny.save(tmp_path / "teacher", make=tiny.answerer)
    task = replace(SQUAD["squad_v2"], max_length=40, stride=16)
    asked = SquadData(task, tiny.questions(8, silent=True), {"dev": tiny.questions(24, start=60, silent=True)})
    network = expose_scores(load_trained(teacher, head_of(task)))
    room = Classroom.open(network, check_data(asked, network), load_tokenizer(teacher))
    scores = teach("minmax", lesson(room, teacher, "8-8-8"), tmp_path / "cell", QUICK)["student"]["final"]["scores"]
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    assert 0 <= scores["agreement"] <= 100


@pytest.mark.parametrize("kind", ["distilbert", "albert"])
def test_other_architectures_are_fine_tuned(kind, room, teacher, tmp_path):
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
        teach(kind, lesson(room, teacher, "32-32-32"), tmp_path / "cell", QUICK)
    report = teach(kind, lesson(room, teacher, "32-32-32", source=str(tmp_path / "source")), tmp_path / "cell", QUICK)
    assert report["size"]["bytes"] == 4 * sum(p.numel() for p in model.parameters())
    assert report["steps"] == 6


def test_a_student_can_start_from_a_pre_trained_model(room, teacher, tmp_path):
    tiny.bert(seed=5, vocab_size=len(tiny.tokenizer())).bert.save_pretrained(tmp_path / "encoder")
    told = lesson(room, teacher, "2-2-8", source=str(tmp_path / "encoder"))
    theirs = METHODS["ternarybert"](told).model.base_model.embeddings.word_embeddings.weight
    ours = METHODS["ternarybert"](lesson(room, teacher, "2-2-8")).model.base_model.embeddings.word_embeddings.weight
    assert not torch.equal(theirs, ours)
    assert teach("ternarybert", told, tmp_path / "cell", QUICK)["steps"] == 6


def test_the_teacher_is_asked_once_for_all_students(room, teacher, tmp_path):
    settings = Settings(device="cpu", evaluations=1, max_steps=16)
    asked = []
    room.teacher.register_forward_hook(lambda *_: asked.append(1))
    teach("ternarybert", lesson(room, teacher, "2-2-8"), tmp_path / "a", settings)
    first, memory = len(asked), room.memory
    assert memory is not None and len(memory.known) == len(room.data.train)
    teach("ternarybert", lesson(room, teacher, "8-8-8"), tmp_path / "b", settings)
    assert room.memory is memory
    assert len(asked) == first, "nothing is computed twice"
    teach("q8bert", lesson(room, teacher, "8-8-8"), tmp_path / "c", settings)
    assert len(asked) == first, "labels need no teacher"


def test_sharing_the_memory_changes_nothing(room, teacher, tmp_path):
    settings = Settings(device="cpu", evaluations=2, max_steps=16)
    alone = teach("ternarybert", lesson(room, teacher, "2-2-8"), tmp_path / "a", settings)
    again = teach("ternarybert", lesson(room, teacher, "2-2-8"), tmp_path / "b", settings)
    assert alone["evaluations"] == again["evaluations"]
    assert alone["train_loss"] == again["train_loss"]


def test_all_methods_can_have_the_same_schedule(room, teacher, tmp_path):
    schedule = {"schedule.learning_rate": 0.0123, "schedule.batch_size": 16}
    settings = Settings(device="cpu", evaluations=1)
    steps = {
        method: teach(method, lesson(room, teacher, bits), tmp_path / method, settings, schedule)["steps"]
        for method, bits in (("qbert", "4-8-8"), ("layerdrop", "32-32-32"))
    }
    assert steps == {"qbert": 8, "layerdrop": 8}  # 64 rows, 2 epochs


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method, bits", [("q8bert", "8-8-8"), ("quant-noise", "PQ"), ("layerdrop", "32-32-32")])
def test_interrupted_and_resumed_equals_uninterrupted(method, bits, room, teacher, tmp_path):
    """The ranges, the codes and the random draws are all part of a checkpoint."""
    settings = {"device": "cpu", "evaluations": 4, "max_steps": 12}
    whole = teach(method, lesson(room, teacher, bits), tmp_path / "whole", Settings(**settings))
    with pytest.raises(KeyboardInterrupt):
        teach(method, lesson(room, teacher, bits), tmp_path / "part", Settings(**settings, callbacks=(StopAt(10),)))
    resumed = teach(method, lesson(room, teacher, bits), tmp_path / "part", Settings(**settings, resume=True))
    assert resumed["evaluations"] == whole["evaluations"]
    assert resumed["train_loss"] < 10


@pytest.mark.parametrize("method, bits", [("ternarybert", "2-2-8"), ("q8bert", "8-8-8")])
def test_the_clock_ends_a_run_in_time(method, bits, room, teacher, tmp_path):
    seconds = 3.0
    # The processor's seconds: other programs on the machine must not decide a test.
    settings = Settings(device="cpu", clock=Clock(seconds, evaluations=3, now=time.process_time))
    room.ask()
    room.seconds = 1e6  # a teacher that was slow, on a machine that was busy just then, must not end it at once
    report = teach(method, lesson(room, teacher, bits), tmp_path / "cell", settings)
    assert report["seconds"] == pytest.approx(seconds, abs=0.6)
    assert report["steps"] > 10
    assert 2 <= len(report["evaluations"]) <= 4


def test_sensitivities_tell_layers_apart(room, teacher):
    found = layer_sensitivities(lesson(room, teacher, "2/3-8-8").copy(), room)
    assert len(found) == 2
    assert all(value > 0 for value in found)
    assert found[0] != found[1]
    assert sorted(mixed_bits(found, 2, 3)) == [2, 3]


def test_bits():
    assert Widths.parse("2/3-8-8") == Widths(2, 8, 8, 3)
    assert Widths.parse("8-8-32") == Widths(8, 8, 32)
    with pytest.raises(OptionError, match="2/3-8-8"):
        Widths.parse("ternary")


def test_our_recipe_is_the_one_that_was_given(room, teacher):
    recipe = Recipe().with_bits("3-3-8")
    made = METHODS["ternarybert"](Lesson(room, teacher, "3-3-8", recipe))
    assert made.recipe == recipe


@pytest.mark.parametrize("method, bits, kind", [("q8bert", "8-8-8", "AdamW"), ("ternarybert", "2-2-8", "BertAdam")])
def test_what_learns_from_labels_has_the_optimizer_of_teachers(method, bits, kind, room, teacher, tmp_path):
    seen = []

    class See(TrainerCallback):
        def on_step_end(self, args, state, control, optimizer=None, **_):
            seen.append(type(getattr(optimizer, "optimizer", optimizer)).__name__)

    teach(method, lesson(room, teacher, bits), tmp_path / "cell", replace(QUICK, callbacks=(See(),)))
    assert set(seen) == {kind}


def test_labels_alone_do_not_change_the_optimizer_of_our_own(room, teacher, tmp_path):
    """The paper's ablation: only the loss differs."""
    bare = {"distill.hidden": 0, "distill.attention": 0, "distill.logits": 0, "distill.labels": 1}
    student = METHODS["ternarybert"](Lesson(room, teacher, "2-2-8", PRESETS["default"].override(bare)))
    assert student.recipe is not None
    assert student.lessons().schedule == PRESETS["default"].schedule


@pytest.mark.parametrize("width, rate", [(384, 1e-4), (768, 3e-5), (1024, 3e-5)])
def test_wide_models_learn_from_labels_with_a_smaller_rate(width, rate):
    assert usual_schedule(BertConfig(hidden_size=width)).learning_rate == rate


def test_a_long_preparation_costs_steps_and_nothing_else(room, teacher, tmp_path):
    now, rates = [0.0], []

    class Second(TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **_):
            now[0] += 1.0
            rates.append(optimizer.param_groups[0]["lr"])

    room.ask()
    room.seconds = 0.0
    clock = Clock(60.0, 2, lambda: now[0])
    now[0] = 40.0  # the method prepared itself
    settings = Settings(device="cpu", clock=clock, callbacks=(Second(),))
    report = teach("q8bert", lesson(room, teacher, "8-8-8"), tmp_path / "cell", settings)
    assert report["steps"] == 20
    highest = usual_schedule(room.teacher.config).learning_rate
    assert rates[2] == pytest.approx(highest)  # warm-up over a tenth of what is left
    assert rates[-1] == pytest.approx(highest * 1 / 18)
