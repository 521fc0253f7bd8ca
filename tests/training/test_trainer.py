"""The training loop: what its loss is, and that batches, micro-batches, stages, evaluations and stops add up."""

import dataclasses
import json
import math
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from ternarybert.errors import DataError, DivergedError, OutputError
from ternarybert.quantize import ternarize_lat
from ternarybert.recipe import PRESETS, ROW, Recipe, Stage, WeightScheme
from ternarybert.student import expose_scores, make_student, quantized_layers
from ternarybert.training.callbacks import TrainingCallback
from ternarybert.training.checkpoints import last_checkpoint
from ternarybert.training.finetune import finetune
from ternarybert.training.losses import loss_attention, loss_hidden, soft_cross_entropy
from ternarybert.training.options import TrainingOptions
from ternarybert.training.teacher import Teacher, fitted
from ternarybert.training.ternarize import student_trainer, ternarize
from ternarybert.training.time_budget import TimeBudget
from ternarybert.training.trainer import LOG_EVERY, Trainer, evaluation_steps
from tests import tiny
from tests.crashes import at_every_event, at_sizes

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def make_trainer(data, work: Path, recipe: Recipe, *, batch: int = 8, layers: int = 2, **options) -> Trainer:
    tokenizer = tiny.tokenizer()
    shape = {"vocab_size": len(tokenizer), **NO_DROPOUT}
    student = make_student(tiny.bert(**shape), recipe)
    network = expose_scores(tiny.bert(num_hidden_layers=layers, **shape))
    work.mkdir(exist_ok=True)
    recipe = recipe.override({"schedule.batch_size": batch, "schedule.gradient_clip": "tensor"})
    chosen = TrainingOptions(**({"device": "cpu", "max_steps": 4, "seed": 1, "evaluations": 1} | options))
    teacher = Teacher.of(network, fitted(data, network), tokenizer)
    return student_trainer(teacher, student, recipe, chosen, work, save=False)


def latent(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


RECIPE = PRESETS["default"].override({"schedule.learning_rate": "1e-3", "schedule.warmup": "0"})


def test_the_loss_is_l_trm_plus_l_pred(data, tmp_path):
    trainer = make_trainer(data, tmp_path, RECIPE)
    inputs = tiny.batch(vocabulary=60)
    wanted = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        trainer.model.eval()
        loss = trainer.batch_loss(dict(inputs))
        student, teacher = trainer.model(**inputs, **wanted), trainer.teacher.model(**inputs, **wanted)
    mask = inputs["attention_mask"]
    by_parts = (
        loss_hidden(student.hidden_states, teacher.hidden_states, mask)
        + loss_attention(student.attentions, teacher.attentions, mask)
        + soft_cross_entropy(student.logits, teacher.logits)
    )
    torch.testing.assert_close(loss, by_parts)
    assert len(student.hidden_states) == 3
    assert len(student.attentions) == 2


def record(seen, name, *_):
    seen[name] = torch.is_autocast_enabled("cpu")


def test_a_teacher_runs_in_bfloat16_and_its_quantized_student_does_not(data, tmp_path):
    inputs, losses = tiny.batch(vocabulary=60), []
    for bf16 in (False, True):
        trainer, autocast = make_trainer(data, tmp_path, RECIPE, bf16=bf16, max_steps=1), {}
        for name, model in (("student", trainer.model), ("teacher", trainer.teacher.model)):
            model.register_forward_hook(partial(record, autocast, name))
        with torch.no_grad():
            trainer.model.eval()
            losses.append(float(trainer.batch_loss(dict(inputs))))
        assert autocast == {"student": False, "teacher": bf16}
    assert 0 < abs(losses[1] - losses[0]) < 0.01 * losses[0]


@pytest.mark.parametrize("term", ["hidden", "attention", "logits"])
def test_each_term_can_be_switched_off(data, tmp_path, term):
    whole = make_trainer(data, tmp_path, RECIPE)
    part = make_trainer(data, tmp_path, RECIPE.override({f"distill.{term}": "false"}))
    inputs = tiny.batch(vocabulary=60)
    with torch.no_grad():
        losses = [t.batch_loss(dict(inputs)) for t in (whole, part) if t.model.eval()]
    torch.testing.assert_close(losses[0] - losses[1], torch.tensor(whole.sums[term]))
    assert term not in part.sums


def test_labels_alone(data, tmp_path):
    """The ablation -Trm-logits."""
    settings = {"distill.hidden": "0", "distill.attention": "0", "distill.logits": "0", "distill.labels": "1"}
    trainer = make_trainer(data, tmp_path, RECIPE.override(settings))
    trainer.train()
    assert set(trainer.losses[-1]) == {"loss", "labels", "step"}
    with pytest.raises(DataError, match=r"distill\.labels"):
        trainer.batch_loss(tiny.batch(vocabulary=60))


def test_micro_batches_add_up(data, tmp_path):
    """K x b equals kb."""
    whole = make_trainer(data, tmp_path / "a", RECIPE)
    parts = make_trainer(data, tmp_path / "b", RECIPE, accumulation=4)
    start = latent(whole)
    whole.train()
    parts.train()
    assert not torch.allclose(latent(whole), start, atol=1e-4)
    # One step of BertAdam moves a weight by up to 3 learning rates however small its gradient is, so gradients near
    # zero whose last bits differ could be seen; the mean is the honest measure.
    assert (latent(whole) - latent(parts)).abs().mean() < 1e-6


@pytest.mark.parametrize("count", [21, 17])
def test_micro_batches_of_unlike_size_add_up(data, tmp_path, count):
    """The last step of an epoch has 5 rows, in micro-batches of 4 and 1, or a single one."""
    data = dataclasses.replace(data, train=data.train.select(range(count)))
    whole = make_trainer(data, tmp_path / "a", RECIPE, max_steps=3)
    parts = make_trainer(data, tmp_path / "b", RECIPE, accumulation=2, max_steps=3)
    whole.train()
    parts.train()
    assert whole.batches.steps_per_epoch == parts.batches.steps_per_epoch == 3
    assert (latent(whole) - latent(parts)).abs().mean() < 1e-6


def test_stages_follow_the_steps(data, tmp_path):
    recipe = dataclasses.replace(RECIPE, stages=(Stage(0.5, ("hidden", "attention")), Stage(0.5)))
    trainer = make_trainer(data, tmp_path, recipe, max_steps=4)
    seen = []
    original = trainer.term_weights
    trainer.term_weights = lambda: seen.append(original()) or seen[-1]
    trainer.train()
    assert [bool(weights["logits"]) for weights in seen] == [False, False, True, True]
    assert all(weights["hidden"] for weights in seen)


@pytest.mark.parametrize("method", ["lat", "laq"])
def test_loss_aware_methods_read_the_optimizers_second_moments(data, tmp_path, method):
    bits = "2-2-8" if method == "lat" else "3-3-8"
    scheme = WeightScheme(method)
    base = RECIPE.with_bits(bits) if method == "laq" else RECIPE
    recipe = dataclasses.replace(base, weight=scheme, embedding=dataclasses.replace(scheme, granularity=ROW))
    trainer = make_trainer(data, tmp_path, recipe)
    layers = dict(quantized_layers(trainer.model))
    trainer.train()
    name, layer = next(iter((n, m) for n, m in layers.items() if n.endswith("query")))
    v = trainer.optimizer.state[layer.weight]["exp_avg_sq"]
    assert (v > 0).any()
    assert torch.equal(layer.second_moment(), v), name
    if method == "lat":
        assert torch.equal(layer.quantized().codes, ternarize_lat(layer.weight.detach(), v).codes)
        assert torch.equal(layer.w_hat(), layer.quantized().dequantize())


def test_a_loss_that_is_no_number_stops_with_step_and_batch(data, tmp_path):
    trainer = make_trainer(data, tmp_path, RECIPE)
    with torch.no_grad():
        trainer.model.classifier.bias.fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"nan at step 1, in a batch of 8 .*'the film was"):
        trainer.train()


def test_activations_that_are_no_numbers_stop_with_step_and_batch(data, tmp_path):
    trainer = make_trainer(data, tmp_path, RECIPE)
    with torch.no_grad():
        trainer.model.bert.embeddings.LayerNorm.weight.fill_(torch.inf)
    with pytest.raises(DivergedError, match=r"at step 1, in a batch of 8 .* try a smaller --learning-rate"):
        trainer.train()


def test_a_shallower_student_learns_from_every_second_layer(data, tmp_path):
    trainer = make_trainer(data, tmp_path, RECIPE.override({"distill.layer_map": "uniform"}), layers=4)
    assert trainer.teacher_layers == [2, 4]
    trainer.train()


@pytest.mark.parametrize("steps", [1, 7, 16, 19, 25, 29, 59, 99, 100])
@pytest.mark.parametrize("evaluations", [1, 3, 6, 10, 200])
def test_evaluations_are_as_many_as_wanted_and_evenly_spaced(steps, evaluations):
    when = sorted(evaluation_steps(steps, evaluations))
    assert len(when) == min(steps, evaluations)
    assert when[-1] == steps
    gaps = [b - a for a, b in zip([0, *when], when, strict=False)]
    assert max(gaps) - min(gaps) <= 1
    assert max(gaps) == math.ceil(steps / min(steps, evaluations))


class Events(TrainingCallback):
    """Records what the loop calls, and can stop it."""

    def __init__(self, stop_at=None):
        self.seen, self.stop_at = [], stop_at

    def on_start(self, progress):
        self.seen.append(("start", progress.step, progress.steps))

    def on_step(self, progress):
        self.seen.append(("step", progress.step, progress.evaluation_follows))
        if progress.step == self.stop_at:
            raise KeyboardInterrupt

    def on_log(self, progress, values):
        assert values["loss"] == pytest.approx(sum(v for name, v in values.items() if name.startswith("loss_")))
        assert values["learning_rate"] >= 0

    def on_evaluate(self, progress, scores):
        self.seen.append(("evaluate", progress.step, next(iter(scores))))
        assert scores["best"] >= scores["accuracy"]

    def on_checkpoint(self, progress):
        self.seen.append(("checkpoint", progress.step))

    def on_end(self, progress):
        self.seen.append(("end", progress.step))


def test_a_run_for_a_time_logs_long_before_its_epochs_are_over(data, tmp_path):
    ticks = count()
    budget = TimeBudget(400.0, evaluations=1, now=lambda: float(next(ticks)))  # every look at the clock is a second
    recipe = PRESETS["default"].override({"schedule.epochs": "1000"})
    trainer = make_trainer(data, tmp_path, recipe, time_budget=budget, max_steps=-1)
    trainer.train()
    steps = [entry["step"] for entry in trainer.losses]
    assert steps == list(range(LOG_EVERY, trainer.progress.step + 1, LOG_EVERY))
    assert len(steps) >= 2


def test_callbacks_follow_a_run_in_order(data, tmp_path):
    events = Events()
    make_trainer(data, tmp_path, RECIPE, evaluations=2, callbacks=(events,)).train()
    assert events.seen == [
        ("start", 0, 4),
        ("step", 1, False),
        ("step", 2, True),
        ("evaluate", 2, "accuracy"),
        ("checkpoint", 2),
        ("step", 3, False),
        ("step", 4, True),
        ("evaluate", 4, "accuracy"),
        ("checkpoint", 4),
        ("end", 4),
    ]


@pytest.mark.parametrize("stop", [9, 14])
def test_a_resumed_teacher_equals_an_uninterrupted_one(data, teacher, tmp_path, stop):
    """With dropout, logs that do not fall on checkpoints, and a checkpoint at the very end of an epoch."""
    recipe = Recipe().override({"schedule.epochs": "3", "schedule.learning_rate": "1e-3"})
    options = TrainingOptions(device="cpu", evaluations=3)
    whole = finetune(teacher, data, tmp_path / "whole", recipe, options)
    with pytest.raises(KeyboardInterrupt):
        stopped = dataclasses.replace(options, callbacks=(Stop(stop),))
        finetune(teacher, data, tmp_path / "part", recipe, stopped)
    resumed = finetune(teacher, data, tmp_path / "part", recipe, dataclasses.replace(options, resume=True))
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "part")]
    assert files[0] == files[1]
    assert (whole.losses, whole.evaluations, whole.train_loss) == (
        resumed.losses,
        resumed.evaluations,
        resumed.train_loss,
    )


class Stop(TrainingCallback):
    def __init__(self, step):
        self.step = step

    def on_step(self, progress):
        if progress.step == self.step:
            raise KeyboardInterrupt


def test_a_run_that_was_killed_after_its_last_step_takes_no_other(data, teacher, tmp_path, monkeypatch):
    options, recipe = TrainingOptions(device="cpu", evaluations=2), PRESETS["default"]
    whole = ternarize(teacher, data, tmp_path / "whole", recipe, options)
    monkeypatch.setattr(Trainer, "report", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        ternarize(teacher, data, tmp_path / "part", recipe, options)
    monkeypatch.undo()
    resumed = ternarize(teacher, data, tmp_path / "part", recipe, dataclasses.replace(options, resume=True))
    assert (resumed.steps, resumed.evaluations) == (whole.steps, whole.evaluations)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "process_0.pt"])
def test_a_damaged_checkpoint_is_an_error_that_names_it(data, tmp_path, name):
    trainer = make_trainer(data, tmp_path, RECIPE)
    trainer.train()
    folder = tmp_path / "checkpoint-4"
    (folder / name).write_bytes(b"damaged")
    with pytest.raises(OutputError, match="checkpoint-4"):
        make_trainer(data, tmp_path, RECIPE, resume=True).train()
    (folder / name).unlink()
    with pytest.raises(OutputError, match=name):
        make_trainer(data, tmp_path, RECIPE, resume=True).train()
    (folder / "trainer_state.json").write_text("{")  # a checkpoint that was never complete
    again = make_trainer(data, tmp_path, RECIPE, resume=True)
    assert again.load_checkpoint() is None


def test_the_default_device_is_cuda_or_the_cpu(monkeypatch):
    """Apple's mps has no float64, which the evaluation of a student needs."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert TrainingOptions().uses_cpu
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not TrainingOptions().uses_cpu
    assert TrainingOptions(device="cpu").uses_cpu


def test_a_state_file_is_plain_json(data, tmp_path):
    make_trainer(data, tmp_path, RECIPE).train()
    state = json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text())
    assert (state["step"], state["steps"]) == (4, 4)
    assert [entry["step"] for entry in state["losses"]] == [1, 2, 3, 4]


# Files of a checkpoint are announced by nobody, so they are also cut off at several sizes.
WAYS = {
    "killed": lambda work, folder: at_every_event(work, folder),
    "full": lambda work, folder: at_every_event(work, folder, full=True),
    "cut off": lambda work, folder: at_sizes(work, (0, 100, 3_000, 100_000)),
    "too long": lambda work, folder: at_sizes(work, (0, 100, 3_000, 100_000), full=True),
}


@pytest.mark.linux_only("processes are forked and limited")
@pytest.mark.parametrize("way", WAYS)
def test_killed_or_out_of_space_while_a_checkpoint_is_written(data, tmp_path, way):
    """The last complete checkpoint can always be loaded, and is the old one or the new one."""
    trainer = make_trainer(data, tmp_path / "out", RECIPE)
    trainer.progress.step = 1
    trainer.save_checkpoint()

    def work():
        trainer.progress.step = 2
        trainer.save_checkpoint()

    ended = 0
    for _ in WAYS[way](work, trainer.work):
        ended += 1
        last = last_checkpoint(trainer.work)
        assert last is not None and Path(last).name in ("checkpoint-1", "checkpoint-2")
        trainer.load_checkpoint()
        assert Path(last).name == f"checkpoint-{trainer.progress.step}"
        if last.endswith("-2"):
            trainer.progress.step = 1
            trainer.save_checkpoint()
    assert ended
    work()
    assert [path.name for path in trainer.work.glob("checkpoint-*")] == ["checkpoint-2"]
