"""The training loop: what its loss is, and that batches, micro-batches, stages and stops add up."""

import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import TrainingArguments

from ternarybert.errors import DivergedError
from ternarybert.quantize import ternarize_lat
from ternarybert.recipe import PRESETS, ROW, Recipe, Stage, WeightScheme
from ternarybert.student import expose_scores, make_student, quantized_layers
from ternarybert.training.batches import Collator, tokenize
from ternarybert.training.heads import head_of
from ternarybert.training.losses import loss_attention, loss_hidden, soft_cross_entropy
from ternarybert.training.trainer import DistillTrainer
from tests import tiny

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def make_trainer(data, work: Path, recipe: Recipe, **arguments) -> DistillTrainer:
    tokenizer = tiny.tokenizer()
    shape = {"vocab_size": len(tokenizer), **NO_DROPOUT}
    student = make_student(tiny.bert(**shape), recipe)
    settings = {
        "max_steps": 4,
        "per_device_train_batch_size": 8,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "remove_unused_columns": False,
        "train_sampling_strategy": "group_by_length",
        "max_grad_norm": 0.0,
        "seed": 1,
    }
    return DistillTrainer(
        student,
        TrainingArguments(str(work), **(settings | arguments)),
        train_dataset=tokenize(data, tokenizer).train,
        data_collator=Collator(tokenizer),
        processing_class=tokenizer,
        recipe=recipe,
        head=head_of(data.task),
        teacher=expose_scores(tiny.bert(**shape)),
    )


def latent(trainer: DistillTrainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


RECIPE = PRESETS["default"].override({"schedule.learning_rate": "1e-3", "schedule.warmup": "0"})


def test_the_loss_is_l_trm_plus_l_pred(data, tmp_path):
    trainer = make_trainer(data, tmp_path, RECIPE)
    inputs = tiny.batch(vocabulary=60)
    wanted = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        loss = trainer.compute_loss(trainer.model.eval(), dict(inputs))
        student, teacher = trainer.model(**inputs, **wanted), trainer.teacher(**inputs, **wanted)
    mask = inputs["attention_mask"]
    by_parts = (
        loss_hidden(student.hidden_states, teacher.hidden_states, mask)
        + loss_attention(student.attentions, teacher.attentions, mask)
        + soft_cross_entropy(student.logits, teacher.logits)
    )
    torch.testing.assert_close(loss, by_parts)
    assert len(student.hidden_states) == 3
    assert len(student.attentions) == 2


def test_a_teacher_may_be_asked_in_bfloat16(data, tmp_path):
    trainer, inputs = make_trainer(data, tmp_path, RECIPE), tiny.batch(vocabulary=60)
    models, short = (trainer.model, trainer.teacher), {}
    for model in models:
        model.register_forward_hook(lambda m, *_: short.setdefault(m, []).append(torch.is_autocast_enabled("cpu")))
    losses = []
    for trainer.short_teacher in (False, True):
        with torch.no_grad():
            losses.append(float(trainer.compute_loss(trainer.model.eval(), dict(inputs))))
    assert [short[model] for model in models] == [[False, False], [False, True]]
    assert 0 < abs(losses[1] - losses[0]) < 0.01 * losses[0]


@pytest.mark.parametrize("term", ["hidden", "attention", "logits"])
def test_each_term_can_be_switched_off(data, tmp_path, term):
    whole = make_trainer(data, tmp_path, RECIPE)
    part = make_trainer(data, tmp_path, RECIPE.override({f"distill.{term}": "false"}))
    inputs = tiny.batch(vocabulary=60)
    with torch.no_grad():
        losses = [t.compute_loss(t.model.eval(), dict(inputs)) for t in (whole, part)]
    torch.testing.assert_close(losses[0] - losses[1], torch.tensor(whole.sums[term]))
    assert term not in part.sums


def test_labels_alone(data, tmp_path):
    """The ablation -Trm-logits."""
    settings = {"distill.hidden": "0", "distill.attention": "0", "distill.logits": "0", "distill.labels": "1"}
    trainer = make_trainer(data, tmp_path, RECIPE.override(settings))
    trainer.train()
    assert set(trainer.sums) <= {"labels", "batches"}
    with pytest.raises(DivergedError, match="the data have none"):
        trainer.compute_loss(trainer.model, tiny.batch(vocabulary=60))


def test_micro_batches_add_up(data, tmp_path):
    """k x b equals kb: the trap is Trainer dividing, or not dividing, the loss by k."""
    whole = make_trainer(data, tmp_path, RECIPE, per_device_train_batch_size=8)
    parts = make_trainer(data, tmp_path, RECIPE, per_device_train_batch_size=2, gradient_accumulation_steps=4)
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
    whole = make_trainer(data, tmp_path, RECIPE, per_device_train_batch_size=8, max_steps=3)
    parts = make_trainer(
        data, tmp_path, RECIPE, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=3
    )
    whole.train()
    parts.train()
    assert whole.state.epoch == parts.state.epoch == 1
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
    with pytest.raises(DivergedError, match=r"nan at step 1, in a batch of 8 that begins with 'the film was"):
        trainer.train()


def test_activations_that_are_no_numbers_stop_with_step_and_batch(data, tmp_path):
    trainer = make_trainer(data, tmp_path, RECIPE)
    with torch.no_grad():
        trainer.model.bert.embeddings.LayerNorm.weight.fill_(torch.inf)
    with pytest.raises(DivergedError, match=r"at step 1, in a batch of 8 .* try a smaller --learning-rate"):
        trainer.train()


def test_a_shallower_student_learns_from_every_second_layer(data, tmp_path):
    recipe = RECIPE.override({"distill.layer_map": "uniform"})
    tokenizer = tiny.tokenizer()
    trainer = make_trainer(data, tmp_path, recipe)
    deep = expose_scores(tiny.bert(vocab_size=len(tokenizer), num_hidden_layers=4, **NO_DROPOUT))
    twin = DistillTrainer(
        trainer.model,
        trainer.args,
        train_dataset=trainer.train_dataset,
        data_collator=trainer.data_collator,
        processing_class=tokenizer,
        recipe=recipe,
        head=head_of(data.task),
        teacher=deep,
    )
    assert twin.teacher_layers == [2, 4]
    twin.train()
